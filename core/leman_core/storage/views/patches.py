"""Patches: what a file says about the rows that it changed, so that views on its table need not compute others.

A view's file that replaces columns of a fragment carries, in the global buffer that the schema metadata key
`leman.patch` names: 4 bytes length (little endian) of a JSON header {"replaces": {column: old file}, "rows": n}, the
header, zlib of the offsets of the changed rows as n 32-bit numbers (little endian, ascending). Values of all other rows
are those of the old files.

The file of a computed column lists the files before it, see `leman_core.model.changed_rows`.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from leman_core.model import keys
from leman_core.model.sorted_sets import distinct
from leman_core.model.view_rows import NO_IDS, Ids
from leman_core.storage import footer
from leman_core.storage.column_files import data_path, read_predecessors
from leman_core.storage.filesystems import filesystem_of

PATCH_KEY = "leman.patch"
_LONGEST_CHAIN = 1000

Patch = tuple[dict[str, str], Ids]


def encode(replaces: Mapping[str, str], offsets: Ids) -> bytes:
    """Return a patch as bytes; the format stands in the module."""
    header = json.dumps({"replaces": dict(replaces), "rows": len(offsets)}).encode()
    body = zlib.compress(np.sort(offsets).astype("<u4").tobytes(), 1)
    return len(header).to_bytes(4, "little") + header + body


def decode(buffer: bytes) -> Patch:
    """Return (column → file before, offsets).

    Raises:
        ValueError: the bytes are no patch.
    """
    end = 4 + int.from_bytes(buffer[:4], "little")
    header = json.loads(buffer[4:end])
    try:
        offsets: npt.NDArray[np.uint32] = np.frombuffer(zlib.decompress(buffer[end:]), "<u4")
    except zlib.error as error:
        raise ValueError(f"damaged patch: {error}") from None
    if len(offsets) != header["rows"]:
        raise ValueError("damaged patch: other number of rows")
    return {str(c): str(f) for c, f in header["replaces"].items()}, offsets.astype(np.int64)


def read(uri: str, file: str) -> Patch | None:
    """Return what a data file says about the rows that it changed; None where it says nothing."""
    try:
        buffer = footer.read_buffer(*filesystem_of(data_path(uri, file)), PATCH_KEY)
        return None if buffer is None else decode(buffer)
    except (OSError, ValueError, KeyError):
        return None


def patched_offsets(uri: str, before: Mapping[str, str], after: Mapping[str, str]) -> Ids | None:
    """Return the rows of a fragment that changed between two states of it, each column → file; sorted.

    None: any may have changed.
    """
    known: dict[str, Patch | None] = {}
    found = NO_IDS
    for column, file in after.items():
        chain = _chain(uri, known, column, file, before.get(column, ""))
        if chain is None:
            return None
        found = distinct(np.concatenate([found, *chain]))
    return found


def _chain(uri: str, known: dict[str, Patch | None], column: str, file: str, oldest: str) -> list[Ids] | None:
    """Return the offsets of each patch from a column's file back to an older one; None: patches do not lead there."""
    chain: list[Ids] = []
    at = file
    if at != oldest and keys.parse_column_file_name(at) is not None:
        earlier = next((p for p in read_predecessors(uri, at) if p.file == oldest), None)
        return None if earlier is None else [np.flatnonzero(earlier.changed)]
    while at != oldest:
        if at not in known:
            known[at] = read(uri, at)
        patch = known[at]
        if patch is None or column not in patch[0] or len(chain) == _LONGEST_CHAIN:
            return None
        chain.append(patch[1])
        at = patch[0][column]
    return chain
