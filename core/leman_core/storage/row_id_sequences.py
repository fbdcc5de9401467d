"""Stable row ids of single rows, from a manifest: a scan for them reads the ids of whole fragments."""

from __future__ import annotations

import functools
import json
from typing import Any

import lance
import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError
from lance.fragment import RowIdMeta, RowIdSequence

from leman_core.storage.manifest import manifest_bytes
from leman_core.storage.protobuf import Kind, Layout, message_class

Ids = npt.NDArray[np.int64]

_MANIFEST: Layout = {
    "DataFragment": [("id", 1, Kind.TYPE_UINT64, ""), ("inline_row_ids", 5, Kind.TYPE_BYTES, "")],
    "Manifest": [("fragments", 2, Kind.TYPE_MESSAGE, "DataFragment")],
}
#: Of the kinds of segments the one that written rows have; ids of rows that were moved are other ones.
_SEQUENCE: Layout = {
    "Range": [("start", 1, Kind.TYPE_UINT64, ""), ("end", 2, Kind.TYPE_UINT64, "")],
    "Segment": [("range", 1, Kind.TYPE_MESSAGE, "Range")],
    "Sequence": [("segments", 1, Kind.TYPE_MESSAGE, "Segment")],
}


def inline_row_ids(serialized: bytes | None) -> dict[int, bytes]:
    """Return the row ids of each fragment, as a manifest has them; empty: they are not in it."""
    return {raw.id: raw.inline_row_ids for raw in _manifest_class().FromString(serialized or b"").fragments}


def inline_row_ids_of(dataset: lance.LanceDataset) -> dict[int, bytes]:
    """Return what `inline_row_ids` does of an open version."""
    return inline_row_ids(manifest_bytes(dataset))


def all_ids(inline: bytes) -> Ids:
    """Return the ids of all rows of a fragment, deleted ones too, in the order of their offsets."""
    meta: RowIdMeta = RowIdMeta.from_json(  # type: ignore[misc,call-arg]  # the stub lacks the decorator
        json.dumps({"Inline": list(inline)})
    )
    ids: npt.NDArray[Any] = RowIdSequence.from_inline_metadata(meta).to_pyarrow().to_numpy()
    return ids.astype(np.int64)


def ids_at(inline: bytes, offsets: Ids) -> Ids:
    """Return the ids of the rows at these offsets of a fragment, in their order."""
    ranges = _ranges(inline)
    if ranges is None:
        return all_ids(inline)[offsets]
    starts, lengths = ranges
    first = np.cumsum(lengths) - lengths
    segment = np.searchsorted(first, offsets, side="right") - 1
    return np.asarray(starts[segment] + offsets - first[segment], np.int64)


def _ranges(inline: bytes) -> tuple[Ids, Ids] | None:
    """Return the starts and lengths of ranges of ids that follow each other; None: they are not ranges alone."""
    try:
        segments = _sequence_class().FromString(inline).segments
    except DecodeError:
        return None
    if not segments or not all(segment.HasField("range") for segment in segments):
        return None
    starts, ends = (np.array([getattr(s.range, name) for s in segments], np.int64) for name in ("start", "end"))
    filled = ends > starts
    return starts[filled], (ends - starts)[filled]


@functools.cache
def _manifest_class() -> Any:
    return message_class("leman.lance_rows", _MANIFEST, root="Manifest", repeated={"fragments"})


@functools.cache
def _sequence_class() -> Any:
    return message_class("leman.lance_row_ids", _SEQUENCE, root="Sequence", repeated={"segments"})
