"""Values that an earlier version of a view has, for rows that are the same again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from core.domain.refresh import EarlierValues, RefreshPlan
from core.lance_io.error_translation import using_storage
from core.lance_io.views.source import SourceRows, plain
from core.sorted_sets import contains
from core.views.rows import Ids, positions
from executor.refresh.diff.base_source_version import Base
from executor.refresh.diff.row_diff import diff_rows
from executor.refresh.diff.view_rows import held_with_values
from executor.worker.source_inputs import rows_within

#: Rows read at first, when it is not known how wide values are.
_FIRST_ROWS = 64


@dataclass(frozen=True, slots=True, eq=False)
class EarlierRows:
    """Rows of an earlier version of a view."""

    #: The source's row ids, sorted.
    ids: Ids
    #: The view's own row ids, in the same order as `ids`.
    own_ids: Ids

    def among(self, wanted: Ids) -> Ids:
        """Return the view's row ids of the wanted rows, -1 where it has none."""
        at = positions(self.ids, wanted)
        found = np.full(len(wanted), -1, np.int64)
        found[at >= 0] = self.own_ids[at[at >= 0]]
        return found


def unchanged_rows(plan: RefreshPlan, earlier: EarlierValues, wanted: Ids) -> EarlierRows:
    """Return those of the wanted rows whose earlier values are right at the plan's version of the source.

    These are rows of the source that are the same as when the earlier values were computed, and that the view had then.

    Raises:
        NotFound: SOURCE_VERSION_NOT_FOUND.
        LemanError: What `storage_errors.unusable` gives, where the view's version is gone.
    """
    with using_storage(plan.definition.source_uri):
        return _unchanged(plan, earlier, wanted)


def _unchanged(plan: RefreshPlan, earlier: EarlierValues, wanted: Ids) -> EarlierRows:
    then = replace(plan, version=earlier.view_version, definition=earlier.definition, changes=earlier.changes)
    ids, own_ids = held_with_values(then.uri, then.version, np.sort(wanted))
    if not earlier.changes or not len(ids):
        return EarlierRows(ids, own_ids)
    moves = diff_rows(then, Base(then), SourceRows(then.definition.source_uri, then.target_version)).moves
    same = ~(contains(moves.changed, ids) | contains(moves.fresh, ids) | contains(moves.gone, ids))
    return EarlierRows(ids[same], own_ids[same])


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
