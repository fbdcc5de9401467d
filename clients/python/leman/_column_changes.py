"""Columns that were there with another definition when `Table.add_columns` asked for them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, TextIO

from leman._wire_values import seconds
from leman.errors import InvalidArgument
from leman.v1 import catalog_pb2

OnChange = Literal["error", "update", "keep"]
"""What becomes of a computed column that is there with another definition, see `Table.add_columns`."""

_ON_CHANGE = {
    "error": catalog_pb2.ON_CHANGE_ERROR,
    "update": catalog_pb2.ON_CHANGE_UPDATE,
    "keep": catalog_pb2.ON_CHANGE_KEEP,
}
_OUTCOMES = {catalog_pb2.ColumnOutcome.OUTCOME_UPDATED: "updated", catalog_pb2.ColumnOutcome.OUTCOME_KEPT: "kept"}
_LINES = 40


@dataclass(frozen=True, slots=True)
class ColumnChange:
    """A column that got another definition; `str` of it says so, with the difference of the functions' sources.

    `outcome`: `updated` (its values are stale) or `kept` (they count as current). `udf_before`, `udf`: `name@version`;
    `diff`: a unified diff of their sources, empty where these are not known or the same. `rows_stale`: rows that the
    next backfill computes again; `rows_stored`: rows that it computes again although a job that did not finish had
    computed them (`on_change="keep"` keeps them); `rows_lost`: those of both that were finished with the definition so
    far; `rows_not_computed`: rows that it computes for the first time.
    `expected_seconds`: what that takes about, from the column's last backfill; None: it had none. `summary`: all of
    this in a sentence.
    """

    column: str
    outcome: str
    udf_before: str
    udf: str
    diff: str
    rows_stale: int
    rows_not_computed: int
    expected_seconds: float | None
    summary: str
    rows_stored: int = 0
    rows_lost: int = 0

    def __str__(self) -> str:
        lines = self.diff.splitlines()
        cut = [f"… {len(lines) - _LINES:,} more lines"] if len(lines) > _LINES else []
        return "\n  ".join([self.summary, *lines[:_LINES], *cut])


def on_change_to_proto(on_change: str) -> catalog_pb2.OnChange.ValueType:
    """Raises InvalidArgument."""
    if on_change not in _ON_CHANGE:
        raise InvalidArgument(f"on_change is 'error', 'update' or 'keep', not {on_change!r}")
    return _ON_CHANGE[on_change]


def changes(outcomes: Iterable[catalog_pb2.ColumnOutcome]) -> list[ColumnChange]:
    """Those of the columns that got another definition by this call."""
    return [
        ColumnChange(
            column=item.column,
            outcome=_OUTCOMES[item.outcome],
            udf_before=f"{item.udf_before.name}@{item.udf_before.version}",
            udf=f"{item.udf.name}@{item.udf.version}",
            diff=item.diff,
            rows_stale=item.rows_stale,
            rows_not_computed=item.rows_not_computed,
            expected_seconds=seconds(item.expected_duration) if item.HasField("expected_duration") else None,
            summary=item.summary,
            rows_stored=item.rows_stored,
            rows_lost=item.rows_lost,
        )
        for item in outcomes
        if item.outcome in _OUTCOMES and item.HasField("udf_before")
    ]


def report_lost(
    outcomes: Iterable[catalog_pb2.ColumnOutcome],
    to: bool | Callable[[ColumnChange], object] | None,  # noqa: FBT001 - the argument of alter_columns, passed on
) -> None:
    """Tell of columns whose finished rows are computed again, as `report` does."""
    report((change for change in changes(outcomes) if change.rows_lost), to)


def report(
    found: Iterable[ColumnChange],
    to: bool | Callable[[ColumnChange], object] | None,  # noqa: FBT001 - the argument of add_columns, passed on
    stream: TextIO | None = None,
) -> None:
    """Tell of changes: on standard error (None, True), not at all (False), or to a function."""
    for change in found:
        if callable(to):
            to(change)
        elif to is not False:
            print(change, file=stream or sys.stderr, flush=True)
