"""One transaction for files of several columns.

Lance's DataReplacement takes files of the same fields, one for each fragment. Its Update takes whole fragments, and so
files of any columns. Indexes on these columns leave the fragments out, as after a DataReplacement, and the versions in
which rows were last updated move. It conflicts with whatever touches the same fragments meanwhile, also with deletions,
which a DataReplacement does not.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import lance
from lance import LanceOperation

from leman_coordinator.lance_io.installable_files import InstallableFile, with_files
from leman_core.model.errors import Aborted

_CONTAINER = 1 << 16
#: The number that begins a Roaring bitmap in its portable format with containers of runs, and the number of containers
#: from which on their places are listed.
_COOKIE, _LISTED_FROM = 12347, 4


def update_of(dataset: lance.LanceDataset, files: Sequence[tuple[int, InstallableFile]]) -> LanceOperation.Update:
    """Return what installs files in fragments of the version of `dataset`; one fragment may get several."""
    by_fragment: dict[int, list[InstallableFile]] = {}
    for fragment_id, file in files:
        by_fragment.setdefault(fragment_id, []).append(file)
    fragments = []
    for fragment_id, new in by_fragment.items():
        fragment = dataset.get_fragment(fragment_id)
        if fragment is None:
            raise Aborted("FRAGMENT_GONE", f"Fragment {fragment_id} is not in the table any more")
        fragments.append(with_files(fragment.metadata, [file.data_file for file in new]))
    return LanceOperation.Update(
        updated_fragments=fragments,
        fields_modified=sorted({field_id for _, file in files for field_id in file.data_file.fields}),
        update_mode="rewrite_columns",
        updated_fragment_offsets={fragment.id: all_offsets(fragment.physical_rows) for fragment in fragments},
    )


def are_one_replacement(files: Sequence[tuple[int, InstallableFile]]) -> bool:
    """Tell whether a DataReplacement takes the files."""
    fields = {tuple(file.data_file.fields) for _, file in files}
    return len(fields) == 1 and len({fragment_id for fragment_id, _ in files}) == len(files)


def all_offsets(rows: int) -> bytes:
    """Return the numbers below `rows` as a Roaring bitmap: one run in each container."""
    sizes = [min(_CONTAINER, rows - begin) for begin in range(0, rows, _CONTAINER)]
    count = len(sizes)
    head = struct.pack("<I", _COOKIE | (count - 1) << 16) + ((1 << count) - 1).to_bytes(-(-count // 8), "little")
    head += b"".join(struct.pack("<HH", key, size - 1) for key, size in enumerate(sizes))
    if count >= _LISTED_FROM:
        begin = len(head) + 4 * count
        head += struct.pack(f"<{count}I", *(begin + 6 * at for at in range(count)))
    return head + b"".join(struct.pack("<HHH", 1, 0, size - 1) for size in sizes)
