"""Reads the inputs of a computed column from another table: the column's own table holds row ids of that one.

So the function columns of a view are computed by ordinary backfills of a scratch table, without copying their inputs
first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from leman_core.model.plan import InputSource
from leman_core.model.ranges import RowRange
from leman_core.model.row_address import RowAddress
from leman_core.model.view import SOURCE_ROW_ID
from leman_core.storage.scan import CHUNK_ROWS, Chunk, Columns, FragmentReader
from leman_core.storage.views.source import SourceRows, plain

#: Rows read at first, when it is not known how wide they are.
_FIRST_ROWS = 64
_ADDRESS = "_rowaddr"
_CHUNK_BYTES = 64 << 20


class SourcedReader(FragmentReader):
    """A scratch table's fragments, read with the columns of its source in place of its own."""

    def __init__(self, uri: str, version: int, source: InputSource) -> None:
        super().__init__(uri, version)
        self._source = SourceRows(source.uri, source.version)
        self._rows = _FIRST_ROWS

    def read(
        self, fragment_id: int, covered: RowRange, columns: Columns, *, deletions: bool, where: str = ""
    ) -> Iterator[Chunk]:
        """Yield chunks in order that together cover `covered`, of at most 65,536 rows and about 64 MB each.

        A scratch table has no deleted rows, and its columns are filled without a filter.

        Raises:
            Aborted: SOURCE_ROW_GONE, where a row is not in the source any more.
            ValueError: A filter, deletions or expressions are asked for.
        """
        if where or deletions or isinstance(columns, Mapping):
            raise ValueError("a scratch table is read without filter, deletions and expressions")
        wanted = plain(columns)
        at = covered.start
        while at < covered.end:
            ids = self._ids(fragment_id, RowRange(at, min(at + self._rows, covered.end)))
            ids = ids[: self._source.within(ids, wanted, _CHUNK_BYTES)]
            piece = RowRange(at, at + len(ids))
            rows = self._source.take(ids, wanted)
            self._rows = rows_within(_CHUNK_BYTES, rows)
            yield Chunk(piece, np.arange(piece.start, piece.end, dtype=np.int64), rows)
            at = piece.end

    def located(self, fragment_id: int, offsets: Sequence[int]) -> list[tuple[int, RowAddress]]:
        """Return (row id, row address) in the source, as `FragmentReader.located` does.

        Those in the scratch table mean nothing to anybody.
        """
        if not offsets:
            return []
        low = min(offsets)
        ids = self._ids(fragment_id, RowRange(low, max(offsets) + 1))[np.asarray(offsets) - low]
        addresses = self._source.take(ids, {_ADDRESS: _ADDRESS}).column(_ADDRESS).to_pylist()
        stable = self._source.stable_row_ids
        return [
            (int(i) if stable else -1, RowAddress.from_int(address)) for i, address in zip(ids, addresses, strict=True)
        ]

    def _ids(self, fragment_id: int, covered: RowRange) -> npt.NDArray[np.int64]:
        values = self.values(fragment_id, covered, SOURCE_ROW_ID)
        return np.asarray(values.to_numpy(zero_copy_only=False), dtype=np.int64)


def first_rows(most_bytes: int, schema: pa.Schema) -> int:
    """Return how many rows of a schema to read at first: few, where only reading tells how wide they are."""
    if not all(pa.types.is_primitive(field.type) for field in schema):
        return _FIRST_ROWS
    bits = sum(int(field.type.bit_width) + 1 for field in schema)
    return max(1, min(CHUNK_ROWS, 8 * most_bytes // max(1, bits)))


def rows_within(most_bytes: int, like: pa.RecordBatch) -> int:
    """Return how many rows like these take about so many bytes: at most a chunk's rows, at least one."""
    if not like.num_rows:
        return _FIRST_ROWS
    return max(1, min(CHUNK_ROWS, int(most_bytes * like.num_rows / max(1, like.nbytes))))
