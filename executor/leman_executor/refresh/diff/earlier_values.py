"""Values that an earlier version of a view has, for rows that are the same again.

A rewritten row may have the same inputs of a function: then the value of the function is still right.
That takes a look at the values in both versions of the source.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from leman_core.functions.blobs import given_type, is_blob
from leman_core.model.equal_values import equal_rows
from leman_core.model.refresh import EarlierValues, RefreshPlan
from leman_core.model.sorted_sets import contains
from leman_core.model.view_rows import Ids, Mask, positions
from leman_core.storage.error_translation import using_storage
from leman_core.storage.views.source import SourceRows, plain
from leman_executor.refresh.diff.base_source_version import Base
from leman_executor.refresh.diff.row_diff import diff_rows
from leman_executor.refresh.diff.view_rows import held_with_values
from leman_executor.worker.source_inputs import rows_within

#: Rows read at first, when it is not known how wide values are.
_FIRST_ROWS = 64
#: Of more rows a sample of so many is compared first: where none has the inputs that it had, no others are read.
_SAMPLE = 1 << 16
_MOST_BYTES = 32 << 20


@dataclass(frozen=True, slots=True, eq=False)
class EarlierRows:
    """Rows of an earlier version of a view."""

    #: The source's row ids, sorted.
    ids: Ids
    #: The view's own row ids, in the same order as `ids`.
    own_ids: Ids

    #: Whether each row is as it was; of the others only their function's inputs may be.
    same: Mask

    def among(self, wanted: Ids, *, same: bool) -> Ids:
        """Return the view's row ids of those of the wanted rows that are the same, or not; -1 for all others."""
        at = positions(self.ids, wanted)
        chosen = at >= 0
        chosen[chosen] = self.same[at[chosen]] == same
        found = np.full(len(wanted), -1, np.int64)
        found[chosen] = self.own_ids[at[chosen]]
        return found


def earlier_rows(plan: RefreshPlan, earlier: EarlierValues, wanted: Ids) -> EarlierRows:
    """Return those of the wanted rows for which an earlier version of the view has values.

    These are rows that the source had then and has at the plan's version of it, too.

    Raises:
        NotFound: SOURCE_VERSION_NOT_FOUND.
        LemanError: What `storage_errors.unusable` gives, where the view's version is gone.
    """
    with using_storage(plan.definition.source_uri):
        return _earlier_rows(plan, earlier, wanted)


def _earlier_rows(plan: RefreshPlan, earlier: EarlierValues, wanted: Ids) -> EarlierRows:
    then = replace(plan, version=earlier.view_version, definition=earlier.definition, changes=earlier.changes)
    ids, own_ids = held_with_values(then.uri, then.version, np.sort(wanted))
    if not earlier.changes or not len(ids):
        return EarlierRows(ids, own_ids, np.ones(len(ids), np.bool_))
    moves = diff_rows(then, Base(then), SourceRows(then.definition.source_uri, then.target_version)).moves
    stayed = ~(contains(moves.fresh, ids) | contains(moves.gone, ids))
    return EarlierRows(ids[stayed], own_ids[stayed], ~contains(moves.changed, ids[stayed]))


def equal_inputs(
    plan: RefreshPlan, earlier: EarlierValues, inputs: Sequence[str], ids: Ids, stop: threading.Event
) -> Mask:
    """Tell of rows whether their inputs are, bit for bit, what they were when the earlier values were computed.

    Both source versions have the rows. Memory is bounded. Those that were not compared when `stop` is set count as
    other ones.

    Raises:
        NotFound: SOURCE_VERSION_NOT_FOUND.
        Aborted: SOURCE_ROW_GONE.
        LemanError: What `storage_errors.unusable` gives.
    """
    versions = earlier.definition.base_version, plan.target_version
    then, now = (SourceRows(plan.definition.source_uri, version) for version in versions)
    same = np.zeros(len(ids), np.bool_)
    if not all(_can_be_compared(rows, inputs) for rows in (then, now)):
        return same
    if len(ids) > _SAMPLE:
        some = np.linspace(0, len(ids) - 1, _SAMPLE).astype(np.int64)
        if not any(found.any() for _, found in _compared(then, now, inputs, ids[some], stop)):
            return same
    for at, found in _compared(then, now, inputs, ids, stop):
        same[at : at + len(found)] = found
    return same


def _can_be_compared(rows: SourceRows, inputs: Sequence[str]) -> bool:
    """Tell whether inputs are read with their bytes; of a blob inside of another column its place is read."""
    schema = rows.dataset.schema
    fields = [schema.field(path.split(".")[0]) for path in inputs]
    return all(is_blob(field) or given_type(field, field.type) == field.type for field in fields)


def _compared(
    then: SourceRows, now: SourceRows, inputs: Sequence[str], ids: Ids, stop: threading.Event
) -> Iterator[tuple[int, Mask]]:
    """Yield which rows have the same inputs in both versions, in parts: where the part begins, and one bit a row."""
    at, step = 0, _FIRST_ROWS
    columns = plain(inputs)
    while at < len(ids) and not stop.is_set():
        part = ids[at : at + step]
        part = part[: min(rows.within(part, columns, _MOST_BYTES) for rows in (then, now))]
        before, after = (rows.take(part, columns) for rows in (then, now))
        pairs = zip(before.columns, after.columns, strict=True)
        yield at, np.logical_and.reduce([equal_rows(*pair) for pair in pairs])
        step = rows_within(_MOST_BYTES, after)
        at += len(part)


class EarlierColumns:
    """Values of columns of an earlier version, by the view's own row ids; blobs come as their bytes."""

    def __init__(self, uri: str, version: int) -> None:
        self._rows = SourceRows(uri, version)

    def values(self, column: str, own_ids: Ids, most_rows: int, most_bytes: int) -> Iterator[pa.Array]:
        """Yield values in order, in parts of at most so many rows, and of so many bytes as far as these are known."""
        at, step = 0, _FIRST_ROWS
        columns: dict[str, str] = plain([column])
        while at < len(own_ids):
            part = own_ids[at : at + min(step, most_rows)]
            part = part[: self._rows.within(part, columns, most_bytes)]
            batch = self._rows.take(part, columns)
            step = rows_within(most_bytes, batch)
            at += len(part)
            yield batch.column(column)
