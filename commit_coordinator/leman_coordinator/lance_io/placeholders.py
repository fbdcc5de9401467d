"""Placeholders: the rows of a view before it has values."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from leman_core.model.plan import StagedFile
from leman_core.model.view import IS_SET, PLACEHOLDER_FILE_PREFIX, SOURCE_ROW_ID
from leman_core.model.view_rows import Ids
from leman_core.storage.views.files import ViewFileWriter

#: Rows of the first fragments, where the caller leaves the number open. Fragments of a view are written side by side,
#: and those of a small view should be too: so the first ones are small.
_FIRST_ROWS = 1 << 16
#: So many fragments have the same number of rows before the next ones have twice as many.
_ALIKE = 8
#: The most rows of a fragment, where the caller leaves the number open.
_MOST_ROWS = 1 << 18
_BATCH_BYTES = 8 << 20
_SAMPLE = 64


def stage_placeholders(
    uri: str, schema: pa.Schema, ids: Iterable[Ids], max_rows_per_fragment: int, version: str | None
) -> list[StagedFile]:
    """Write placeholders for the ids, one file for each fragment, and return the files.

    All columns of the view are physically there and NULL, but for the source's row ids, in the order given, and
    `__is_set`, which is false.

    Args:
        max_rows_per_fragment: Rows of each file, the last one has the rest; 0: as `fragment_sizes` chooses.
    """
    nulls = _Nulls(schema)
    staged: list[StagedFile] = []
    writer: ViewFileWriter | None = None
    sizes = fragment_sizes(max_rows_per_fragment)
    for piece, ends in _pieces(ids, sizes, nulls.batch_rows):
        if writer is None:
            writer = ViewFileWriter(uri, schema, version, PLACEHOLDER_FILE_PREFIX)
        writer.write(nulls.batch(piece))
        if ends:
            staged.append(writer.close())
            writer = None
    if writer is not None:
        staged.append(writer.close())
    return staged


def fragment_sizes(max_rows_per_fragment: int) -> Iterator[int]:
    """Yield the rows of one fragment after the other, without end; for 0 the sizes are chosen here and grow."""
    if max_rows_per_fragment:
        yield from itertools.repeat(max_rows_per_fragment)
    rows = _FIRST_ROWS
    while rows < _MOST_ROWS:
        yield from itertools.repeat(rows, _ALIKE)
        rows *= 2
    yield from itertools.repeat(_MOST_ROWS)


def _pieces(ids: Iterable[Ids], sizes: Iterator[int], most: int) -> Iterator[tuple[Ids, bool]]:
    """Yield pieces of at most `most` ids within one fragment, and whether the piece ends its fragment."""
    room = next(sizes)
    for piece in ids:
        at = 0
        while at < len(piece):
            taken = piece[at : at + min(room, most)]
            at += len(taken)
            room -= len(taken)
            yield taken, not room
            room = room or next(sizes)


class _Nulls:
    """Makes batches of placeholders; memory is bounded whatever the width of the columns."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema.remove_metadata()
        width = sum(pa.nulls(_SAMPLE, field.type).nbytes for field in schema) / _SAMPLE
        self.batch_rows = int(min(max(_BATCH_BYTES / max(width, 1), _SAMPLE), 1 << 16))

    def batch(self, ids: Ids) -> pa.RecordBatch:
        return pa.record_batch([self._column(field, ids) for field in self._schema], schema=self._schema)

    @staticmethod
    def _column(field: pa.Field, ids: Ids) -> pa.Array:
        if field.name == SOURCE_ROW_ID:
            return pa.array(np.asarray(ids, np.int64), field.type)
        if field.name == IS_SET:
            return pa.array(np.zeros(len(ids), np.bool_), field.type)
        return pa.nulls(len(ids), field.type)
