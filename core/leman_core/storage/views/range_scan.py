"""Rows that lie one after the other, or nearly so: a scan reads them several times as fast as a take."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import lance
import numpy as np
import pyarrow as pa

from leman_core.model.row_address import RowAddress
from leman_core.model.sorted_sets import contains
from leman_core.model.view_rows import Ids
from leman_core.storage.concatenation import one_batch
from leman_core.storage.panics import panics_as_errors

#: Name of the row ids among values that are read.
ROW_ID = "__leman_row_id"

#: How many rows are scanned at the least, and at the most for each row that is wanted.
_LEAST_SCAN = 1 << 12
_SPARSEST = 2


class RangeScan:
    """One version of a table, opened. For many threads at once."""

    def __init__(self, dataset: lance.LanceDataset) -> None:
        self._dataset = dataset
        self._stable = bool(dataset.has_stable_row_ids)

    def scan(self, wanted: Ids, names: Mapping[str, str]) -> pa.RecordBatch | None:
        """Return values (name → expression) of the rows with these ids, ascending.

        Args:
            names: with one for the ids, `ROW_ID`.

        Returns:
            None where the rows are few, not all there, or too far apart.
        """
        if len(wanted) < _LEAST_SCAN:
            return None
        if self._stable and int(wanted[-1]) - int(wanted[0]) >= _SPARSEST * len(wanted):
            return None
        with panics_as_errors():
            ends = self._dataset._take_rows(pa.array(wanted[[0, -1]], pa.uint64()), columns=["_rowaddr"])
            first, last = (
                RowAddress.from_int(int(number)) for number in [*ends.column("_rowaddr").to_pylist(), -1, -1][:2]
            )
            pieces = self._pieces(first, last)
            rows = sum(end - start for _, start, end in pieces)
            if not rows or rows > _SPARSEST * len(wanted) or len(pieces) > 1 + rows // _LEAST_SCAN:
                return None
            tables = [f.scanner(columns=dict(names), offset=at, limit=end - at).to_table() for f, at, end in pieces]
        batch = one_batch(pa.concat_tables(tables))
        ids = batch.column(ROW_ID).to_numpy().astype(np.int64)
        if np.array_equal(ids, wanted):
            return batch
        chosen = np.flatnonzero(contains(wanted, ids))
        return batch.take(pa.array(chosen)) if np.array_equal(ids[chosen], wanted) else None

    def _pieces(self, first: RowAddress, last: RowAddress) -> list[tuple[lance.LanceFragment, int, int]]:
        """Return the rows from one address to another, in the order of the table.

        They come as fragments, each with a range of its rows; none where rows of these fragments were deleted: offsets
        and limits would be off.
        """
        order, places = self._order
        begin, end = places.get(first.fragment_id), places.get(last.fragment_id)
        if begin is None or end is None or any(f.num_deletions for f in order[begin : end + 1]):
            return []
        return [
            (
                fragment,
                first.offset if place == begin else 0,
                last.offset + 1 if place == end else fragment.physical_rows,
            )
            for place, fragment in enumerate(order[begin : end + 1], begin)
        ]

    @cached_property
    def _order(self) -> tuple[list[lance.LanceFragment], dict[int, int]]:
        """Return all fragments, and the place of each among them by its id."""
        fragments = self._dataset.get_fragments()
        return fragments, {fragment.fragment_id: place for place, fragment in enumerate(fragments)}
