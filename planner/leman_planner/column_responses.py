"""What is asked and told about columns of a table, in protobuf messages."""

# ruff: noqa: D103 - x_to_proto and x_from_proto say it all

from __future__ import annotations

from leman.v1 import catalog_pb2
from leman_core.model.errors import InvalidArgument
from leman_core.wire.convert_values import duration_to_proto, ref_to_proto
from leman_planner.column_changes import ColumnOutcome, OnChange, Outcome

_ON_CHANGE_FROM = {
    catalog_pb2.ON_CHANGE_UNSPECIFIED: OnChange.REFUSE_ANY,
    catalog_pb2.ON_CHANGE_ERROR: OnChange.ERROR,
    catalog_pb2.ON_CHANGE_UPDATE: OnChange.UPDATE,
    catalog_pb2.ON_CHANGE_KEEP: OnChange.KEEP,
}
_OUTCOME_TO = {
    Outcome.ADDED: catalog_pb2.ColumnOutcome.OUTCOME_ADDED,
    Outcome.UNCHANGED: catalog_pb2.ColumnOutcome.OUTCOME_UNCHANGED,
    Outcome.UPDATED: catalog_pb2.ColumnOutcome.OUTCOME_UPDATED,
    Outcome.KEPT: catalog_pb2.ColumnOutcome.OUTCOME_KEPT,
}


def on_change_from_proto(number: int) -> OnChange:
    found = {int(key): value for key, value in _ON_CHANGE_FROM.items()}.get(number)
    if found is None:
        raise InvalidArgument(
            "UNKNOWN_VALUE",
            f"on_change is {number}; known are 0 to {max(_ON_CHANGE_FROM)}",
            field="on_change",
        )
    return found


def outcome_to_proto(outcome: ColumnOutcome) -> catalog_pb2.ColumnOutcome:
    seconds = outcome.expected_seconds
    return catalog_pb2.ColumnOutcome(
        column=outcome.column,
        outcome=_OUTCOME_TO[outcome.outcome],
        udf=ref_to_proto(*outcome.function),
        udf_before=None if outcome.before is None else ref_to_proto(*outcome.before),
        diff=outcome.diff,
        rows_stale=outcome.rows_stale,
        rows_not_computed=outcome.rows_not_computed,
        rows_stored=outcome.rows_stored,
        rows_lost=outcome.rows_lost,
        expected_duration=None if seconds is None else duration_to_proto(seconds),
        summary=outcome.summary,
    )
