"""What callers are told about a plan: counts, reasons and the first decisions, without what running it takes."""

from __future__ import annotations

from collections import Counter

from leman.v1 import planner_pb2
from leman_core.model.plan import FragmentTask, Plan
from leman_core.model.plan_summary import summarise
from leman_core.model.refresh import RefreshPlan
from leman_core.wire import convert, convert_views
from leman_core.wire.convert_values import duration_to_proto, given, ref_to_proto
from leman_planner.run_times import in_words


def explain_plan(plan: Plan, decisions: int, seconds: float | None) -> planner_pb2.ExplainPlanResponse:
    """Tell what a backfill would do, with the first `decisions` fragments that have work.

    Args:
        seconds: how long it will take about; None: that is not known.
    """
    header = plan.header
    return planner_pb2.ExplainPlanResponse(
        uri=header.uri,
        read_version=header.read_version,
        inputs_version=given(header.inputs_version),
        column=header.output.name,
        udf=ref_to_proto(header.udf.name, header.udf.version),
        input_columns=header.input_columns,
        where=header.where,
        rows_total=header.rows_total,
        rows_reused=header.rows_reused,
        rows_to_compute=header.rows_to_compute,
        rows_failed_before=header.rows_failed_before,
        rows_not_computed=header.rows_not_computed,
        reasons=[convert.reason_count_to_proto(count) for count in header.reasons],
        kept=[convert.kept_to_proto(kept) for kept in header.kept],
        decisions=[_decision(task) for task in plan.tasks[:decisions]],
        summary=summarise(plan) + ("" if seconds is None else f"; {in_words(seconds)}"),
        expected_duration=None if seconds is None else duration_to_proto(seconds),
        stale_inputs=[convert.stale_input_to_proto(stale) for stale in header.stale_inputs],
    )


def explain_refresh(plan: RefreshPlan) -> planner_pb2.ExplainRefreshResponse:
    """Tell what a refresh would do."""
    kinds = Counter(change.kind for change in plan.changes)
    return planner_pb2.ExplainRefreshResponse(
        uri=plan.uri,
        version=plan.version,
        source_version=plan.definition.base_version,
        target_version=plan.target_version,
        mode=convert_views.mode_to_proto(plan.mode),
        reason=convert_views.reason_to_proto(plan.reason),
        message=plan.message,
        rows=plan.rows,
        fragments_unset=len(plan.unset),
        changes=[
            planner_pb2.SourceChangeCount(kind=convert_views.change_kind_to_proto(kind), fragments=fragments)
            for kind, fragments in kinds.items()
        ],
        stale=plan.stale,
        stale_inputs=[convert.stale_input_to_proto(stale) for stale in plan.stale_inputs],
    )


def _decision(task: FragmentTask) -> planner_pb2.FragmentDecision:
    return planner_pb2.FragmentDecision(
        fragment_id=task.fragment_id,
        physical_rows=task.physical_rows,
        deleted_rows=task.deleted_rows,
        reason=convert.reason_to_proto(task.reason),
        missing=[convert.range_to_proto(missing) for missing in task.missing],
        checkpoints_reused=len(task.checkpoints),
    )
