"""Lance's deletion files, read without the fragment they belong to: a scan for deleted rows reads every row's id.

A file holds the offsets of all deleted rows of a fragment: as one column of an Arrow file or, where they are many, as
a roaring bitmap in its portable format (https://github.com/RoaringBitmap/RoaringFormatSpec).
"""

from __future__ import annotations

import struct

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from leman_core.storage.filesystems import filesystem_of

Offsets = npt.NDArray[np.int64]

_NONE: Offsets = np.empty(0, np.int64)
_ENDINGS = {"array": "arrow", "bitmap": "bin"}
_PLAIN, _WITH_RUNS = 12346, 12347
#: A container has the lower 16 bits of values. With more values than this it is a bitmap of this many bytes.
_LARGEST_ARRAY, _BITMAP_BYTES = 4096, 8192
#: Bitmaps of so many containers that have runs, or more, say where each container begins.
_WITH_PLACES = 4


def path_of(fragment_id: int, file: lance.fragment.DeletionFile) -> str:
    """Return where in its table's folder a fragment's deletion file lies."""
    return f"_deletions/{fragment_id}-{file.read_version}-{file.id}.{_ENDINGS.get(file.file_type, file.file_type)}"


def deleted_offsets(uri: str, fragment: lance.LanceFragment) -> Offsets | None:
    """Return the offsets of a fragment's deleted rows, sorted; none is deleted: no offsets.

    Returns:
        None where its deletion file is not what the manifest says, or lies elsewhere: only Lance can tell.
    """
    metadata = fragment.metadata
    file = metadata.deletion_file
    if file is None:
        return _NONE
    known: int | None = file.num_deleted_rows  # None: written by an old Lance
    if not known or file.base_id is not None or file.file_type not in _ENDINGS:
        return None
    try:
        filesystem, root = filesystem_of(uri)
        with filesystem.open_input_file(f"{root}/{path_of(fragment.fragment_id, file)}") as stored:
            content = stored.read()
        offsets = _from_arrow(content) if file.file_type == "array" else roaring_values(content)
    except (OSError, ValueError, struct.error):  # pa.ArrowInvalid is a ValueError
        return None
    return offsets if _are_sound(offsets, known, metadata.physical_rows) else None


def roaring_values(content: bytes) -> Offsets:
    """Return the values of a roaring bitmap, sorted.

    Raises:
        ValueError: it is none, or cut off.
        struct.error: it is cut off.
    """
    (cookie,) = struct.unpack_from("<I", content)
    runs: npt.NDArray[np.bool_]
    if cookie & 0xFFFF == _WITH_RUNS:
        count, at = (cookie >> 16) + 1, 4
        flags = np.frombuffer(content, np.uint8, (count + 7) // 8, at)
        runs = np.unpackbits(flags, count=count, bitorder="little").astype(np.bool_)
        at += len(flags)
    elif cookie == _PLAIN:
        (count,) = struct.unpack_from("<I", content, 4)
        at, runs = 8, np.zeros(count, np.bool_)
    else:
        raise ValueError(f"{cookie} begins no roaring bitmap")
    header = np.frombuffer(content, "<u2", 2 * count, at).astype(np.int64).reshape(-1, 2)
    at += 4 * count
    if cookie == _PLAIN or count >= _WITH_PLACES:
        at += 4 * count
    found = [_NONE]
    for (key, most), has_runs in zip(header.tolist(), runs.tolist(), strict=True):
        if has_runs:
            (pairs,) = struct.unpack_from("<H", content, at)
            begins, more = np.frombuffer(content, "<u2", 2 * pairs, at + 2).astype(np.int64).reshape(-1, 2).T
            low = np.repeat(begins - np.cumsum(more + 1) + more + 1, more + 1) + np.arange(int((more + 1).sum()))
            at += 2 + 4 * pairs
        elif most + 1 > _LARGEST_ARRAY:
            bits = np.frombuffer(content, np.uint8, _BITMAP_BYTES, at)
            low = np.flatnonzero(np.unpackbits(bits, bitorder="little"))
            at += _BITMAP_BYTES
        else:
            low = np.frombuffer(content, "<u2", most + 1, at).astype(np.int64)
            at += 2 * (most + 1)
        found.append(low + (key << 16))
    return np.concatenate(found)


def _from_arrow(content: bytes) -> Offsets:
    column = pa.ipc.open_file(content).read_all().column(0)
    return np.sort(column.to_numpy().astype(np.int64))


def _are_sound(offsets: Offsets, number: int, rows: int) -> bool:
    ascending = bool((offsets[1:] > offsets[:-1]).all())
    return len(offsets) == number and ascending and bool(offsets[0] >= 0) and bool(offsets[-1] < rows)
