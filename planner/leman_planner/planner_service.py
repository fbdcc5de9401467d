"""PlannerService explains plans and row states to callers; PlanningService sends whole plans to the executor."""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import grpc
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from google.protobuf.message import Message

from leman.v1 import planner_pb2, planner_pb2_grpc
from leman_core.model import row_states
from leman_core.model.plan import (
    BackfillSpec,
    FragmentTask,
    KeptRows,
    OnStaleInput,
    Plan,
    ValueState,
    rows_found,
    summarize_plan,
)
from leman_core.model.plan_columns import planned_tasks, slice_tasks
from leman_core.model.row_positions import RowAddress, RowRange, addresses_of
from leman_core.model.row_states import RowState, States
from leman_core.model.service_errors import InvalidArgument
from leman_core.model.view import RefreshPlan
from leman_core.server import paging
from leman_core.server.blocking import BlockingPool
from leman_core.server.call_streams import BufferedStream
from leman_core.storage.scan import FragmentReader
from leman_core.wire import convert_plans, convert_udfs, convert_views
from leman_core.wire.convert_values import duration_to_proto, number_from_proto, or_none, ref_to_proto
from leman_internal.v1 import plan_pb2, planning_pb2, planning_pb2_grpc
from leman_planner.catalog.column_changes import estimate_text
from leman_planner.catalog.column_requests import expected_seconds
from leman_planner.catalog.function_catalog import PreviewPlans, Registrations
from leman_planner.planning.fragment_status import FragmentStatus, Statuses
from leman_planner.planning.plan_draft import draft_plan
from leman_planner.planning.plan_maker import PlanMaker, measure_phase
from leman_planner.planning.request_resolution import ResolvedRequest
from leman_planner.planning.stale_inputs import refuse_stale, refuse_stale_refresh, states_of
from leman_planner.views.refresh_reader import ViewReader


def explain_plan(
    plan: Plan, decisions: int, seconds: float | None, on_stale_input: OnStaleInput = OnStaleInput.ERROR
) -> planner_pb2.ExplainPlanResponse:
    """Describe what a backfill would do, and list the first `decisions` fragments that have work.

    Args:
        plan: The plan.
        decisions: How many fragments to list.
        seconds: The estimated duration, or None if it is unknown.
        on_stale_input: What the job would do about stale inputs.
    """
    header, found = plan.header, rows_found(plan)
    return planner_pb2.ExplainPlanResponse(
        uri=header.uri,
        read_version=header.read_version,
        inputs_version=or_none(header.inputs_version),
        column=header.output.name,
        udf=ref_to_proto(header.udf.name, header.udf.version),
        input_columns=header.input_columns,
        where=header.where,
        rows_total=header.rows_total,
        rows_reused=header.rows_reused + found,
        rows_to_compute=header.rows_to_compute - found,
        rows_failed_before=header.rows_failed_before,
        rows_not_computed=header.rows_not_computed,
        reasons=[convert_plans.reason_count_to_proto(count) for count in header.reasons],
        kept=[convert_plans.kept_to_proto(kept) for kept in header.kept],
        decisions=[_decision(task) for task in plan.tasks[:decisions]],
        summary=summarize_plan(plan, on_stale_input) + ("" if seconds is None else f"; {estimate_text(seconds)}"),
        expected_duration=None if seconds is None else duration_to_proto(seconds),
        stale_inputs=[convert_plans.stale_input_to_proto(stale) for stale in header.stale_inputs],
    )


def explain_refresh(plan: RefreshPlan) -> planner_pb2.ExplainRefreshResponse:
    """Describe what a refresh would do."""
    kinds = Counter(change.kind for change in plan.changes)
    return planner_pb2.ExplainRefreshResponse(
        uri=plan.uri,
        version=plan.version,
        source_version=plan.definition.base_version,
        target_version=plan.target_version,
        mode=convert_views.refresh_mode_to_proto(plan.mode),
        reason=convert_views.refresh_reason_to_proto(plan.reason),
        message=plan.message,
        rows=plan.rows,
        fragments_unset=len(plan.unset),
        changes=[
            planner_pb2.SourceChangeCount(kind=convert_views.change_kind_to_proto(kind), fragments=fragments)
            for kind, fragments in kinds.items()
        ],
        stale=plan.stale,
        stale_inputs=[convert_plans.stale_input_to_proto(stale) for stale in plan.stale_inputs],
        functions=[
            planner_pb2.FunctionCalls(
                column=function.column.name,
                udf=ref_to_proto(function.udf.name, function.udf.version),
                most_rows=plan.calls[function.column.name],
            )
            for function in plan.functions
        ],
    )


def _decision(task: FragmentTask) -> planner_pb2.FragmentDecision:
    return planner_pb2.FragmentDecision(
        fragment_id=task.fragment_id,
        physical_rows=task.physical_rows,
        deleted_rows=task.deleted_rows,
        reason=convert_plans.reason_to_proto(task.reason),
        missing=[convert_plans.range_to_proto(missing) for missing in task.missing],
        checkpoints_reused=len(task.checkpoints),
    )


Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class ColumnStates:
    """The numbers of live rows by state, and the addresses of the rows in one state."""

    uri: str
    version: int
    computed: int
    null: int
    failed: int
    not_computed: int
    kept: tuple[KeptRows, ...]
    addresses: list[int]
    #: The rows among `not_computed` whose values are in a checkpoint.
    checkpointed: int = 0
    #: The rows among `not_computed` whose values are in a finished file that only has to be committed.
    ready: int = 0


class StatesReader:
    """Reads the row states of a column. It reads states in partial files, deletions and NULLs, but no values."""

    def __init__(self, plans: PlanMaker) -> None:
        self._plans = plans

    def read(self, database: str, table: str, column: str, listed: ValueState | None) -> ColumnStates:
        """Count a column's live rows by state, and list the addresses of the rows in state `listed`.

        Raises:
            LemanError: As `PlanMaker.plan`.
        """
        resolved = self._plans.resolved(BackfillSpec(database, table, column))
        statuses = self._plans.statuses(resolved)
        reader = FragmentReader(resolved.table.uri, resolved.table.version)
        nulls = reader.null_rows(resolved.output.name)
        counts = dict.fromkeys(ValueState, 0)
        kept = np.zeros(len(resolved.versions), np.int64)
        addresses: list[int] = []
        for status in sorted(statuses, key=lambda s: s.fragment.fragment_id):
            fragment = status.fragment
            states = states_of(resolved, status)
            live = _live(reader, status)
            for state, mask in _masks(fragment.physical_rows, states, nulls.get(fragment.fragment_id)):
                alive = mask & live
                counts[state] += int(alive.sum())
                if state is listed:
                    addresses.extend(addresses_of(fragment.fragment_id, np.flatnonzero(alive)).tolist())
            computed = states[live & (row_states.state_kinds(states) == RowState.COMPUTED)]
            kept += np.bincount(row_states.state_versions(computed), minlength=len(kept))[: len(kept)]
        checkpointed, ready = self._stored(resolved, statuses, counts[ValueState.NOT_COMPUTED])
        return ColumnStates(
            uri=resolved.table.uri,
            version=resolved.table.version,
            computed=counts[ValueState.COMPUTED],
            null=counts[ValueState.NULL],
            failed=counts[ValueState.FAILED],
            not_computed=counts[ValueState.NOT_COMPUTED],
            kept=tuple(KeptRows(f, int(n)) for f, n in zip(resolved.kept, kept[1:], strict=True) if n),
            addresses=addresses,
            checkpointed=checkpointed,
            ready=ready,
        )

    def _stored(self, resolved: ResolvedRequest, statuses: Statuses, not_computed: int) -> tuple[int, int]:
        """Count the rows that are not computed, but stored in checkpoints or in finished files."""
        if not not_computed:
            return 0, 0
        asked, stored_work = self._plans.stored_work(resolved, statuses)
        made = draft_plan(asked, statuses, stored_work)
        stored = max(0, not_computed - made.plan.header.rows_to_compute)
        ready = min(stored, made.rows_ready)
        return stored - ready, ready

    @staticmethod
    def row_ids(found: ColumnStates, addresses: Sequence[int]) -> list[int]:
        """Return the stable row ids of ascending addresses, or nothing if the table has none."""
        reader = FragmentReader(found.uri, found.version)
        ids: list[int] = []
        places = map(RowAddress.from_int, addresses)
        for fragment_id, group in itertools.groupby(places, key=lambda place: place.fragment_id):
            ids += reader.row_ids(fragment_id, [place.offset for place in group])
        return ids if ids and max(ids) >= 0 else []


def _live(reader: FragmentReader, status: FragmentStatus) -> Mask:
    fragment = status.fragment
    if not fragment.deleted_rows:
        return np.ones(fragment.physical_rows, np.bool_)
    return reader.live(fragment.fragment_id, RowRange(0, fragment.physical_rows))


def _masks(rows: int, states: States, nulls: npt.NDArray[np.int64] | None) -> Iterator[tuple[ValueState, Mask]]:
    found = row_states.state_kinds(states)
    null = np.zeros(rows, np.bool_)
    if nulls is not None:
        null[nulls] = True
    computed = found == RowState.COMPUTED
    yield ValueState.COMPUTED, computed
    yield ValueState.NULL, computed & null
    yield ValueState.FAILED, found == RowState.FAILED
    yield ValueState.NOT_COMPUTED, found == RowState.UNTOUCHED


DEFAULT_DECISIONS = 20
MAX_DECISIONS = 1000
#: Row addresses in a page of GetRowStates: the default and the maximum.
DEFAULT_ADDRESSES = 10_000
MAX_ADDRESSES = 100_000

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class PlannerServicer(planner_pb2_grpc.PlannerServiceServicer):
    """The RPCs of PlannerService, as protos/leman/v1/planner.proto describes them."""

    def __init__(self, plans: PlanMaker, views: ViewReader, pool: BlockingPool) -> None:
        self._plans = plans
        self._views = views
        self._states = StatesReader(plans)
        self._pool = pool

    async def ExplainPlan(
        self, request: planner_pb2.ExplainPlanRequest, _context: Context
    ) -> planner_pb2.ExplainPlanResponse:
        wanted = number_from_proto(request, "max_decisions", least=0, most=MAX_DECISIONS, default=DEFAULT_DECISIONS)
        spec = convert_plans.spec_from_proto(request.spec)
        if spec.columns:
            raise InvalidArgument("BAD_REQUEST", "A plan has one column: set column, not columns", field="spec.columns")
        plan = await self._pool.run(self._plans.plan, spec)
        rows = plan.header.rows_to_compute - rows_found(plan)
        seconds = await self._pool.run(expected_seconds, spec.database, spec.table, spec.column, rows)
        return explain_plan(plan, wanted, seconds, spec.on_stale_input)

    async def ExplainRefresh(
        self, request: planner_pb2.ExplainRefreshRequest, _context: Context
    ) -> planner_pb2.ExplainRefreshResponse:
        plan = await self._pool.run(self._views.plan, convert_views.refresh_spec_from_proto(request.spec))
        return explain_refresh(plan)

    async def GetRowStates(
        self, request: planner_pb2.GetRowStatesRequest, _context: Context
    ) -> planner_pb2.GetRowStatesResponse:
        table = request.table
        scope = f"GetRowStates {table.database} {table.table} {request.column} {request.state}"
        page = paging.read_page(request.page_size or DEFAULT_ADDRESSES, request.page_token, scope, MAX_ADDRESSES)
        listed = convert_plans.value_state_from_proto(request.state)
        found = await self._pool.run(self._states.read, table.database, table.table, request.column, listed)
        addresses, token = paging.cut(found.addresses, page, lambda address: address)
        row_ids = await self._pool.run(StatesReader.row_ids, found, addresses)
        return planner_pb2.GetRowStatesResponse(
            version=found.version,
            rows_computed=found.computed,
            rows_null=found.null,
            rows_failed=found.failed,
            rows_not_computed=found.not_computed,
            kept=[convert_plans.kept_to_proto(kept) for kept in found.kept],
            row_addresses=addresses,
            row_ids=row_ids,
            next_page_token=token,
            rows_checkpointed=found.checkpointed,
            rows_ready_to_commit=found.ready,
        )


#: The maximum number of tasks in a message, and the size in bytes from which on no further task is added.
MAX_BATCH_TASKS = 4000
MAX_BATCH_BYTES = 1 << 20

Part = TypeVar("Part", bound=Message)


def plan_messages(
    plan: Plan, *, batches: bool = False, compared: bool = False
) -> Iterator[planning_pb2.CreatePlanResponse]:
    """Yield the messages of CreatePlan, beginning with the header. Each is made on demand.

    Args:
        plan: The plan.
        batches: Whether the caller can read record batches of tasks.
        compared: Whether the caller can read ComparedFile.
    """
    yield planning_pb2.CreatePlanResponse(header=convert_plans.header_to_proto(plan.header))
    if batches:
        for batch in planned_tasks(plan.tasks).batches:
            yield from map(_batch_message, _halved(batch))
    else:
        yield from _one_by_one(plan.tasks)
    for files in _sized(map(convert_plans.traced_to_proto, plan.traced)):
        yield planning_pb2.CreatePlanResponse(traced=plan_pb2.TracedFileBatch(files=files))
    for rows in _sized(map(convert_plans.migrated_to_proto, plan.migrated)):
        yield planning_pb2.CreatePlanResponse(migrated=plan_pb2.MigratedRowsBatch(rows=rows))
    for rewritten in _sized(map(convert_plans.compared_to_proto, plan.compared if compared else ())):
        yield planning_pb2.CreatePlanResponse(compared=plan_pb2.ComparedFileBatch(files=rewritten))


def _batch_message(tasks: bytes) -> planning_pb2.CreatePlanResponse:
    return planning_pb2.CreatePlanResponse(task_batch=tasks)


def _halved(batch: pa.RecordBatch) -> Iterator[bytes]:
    """Yield the tasks in parts that are halved until each fits into a message, as a fragment may have many files."""
    made = convert_plans.tasks_to_bytes(batch)
    if len(made) <= MAX_BATCH_BYTES or len(batch) == 1:
        yield made
        return
    half = len(batch) // 2
    yield from _halved(slice_tasks(batch, 0, half))
    yield from _halved(slice_tasks(batch, half, len(batch)))


def _one_by_one(tasks: Iterable[FragmentTask]) -> Iterator[planning_pb2.CreatePlanResponse]:
    """Yield the tasks in messages far below 4 MiB, which clients accept by default."""
    for batch in _task_batches(tasks):
        yield planning_pb2.CreatePlanResponse(tasks=batch)


def _task_batches(tasks: Iterable[FragmentTask]) -> Iterator[plan_pb2.FragmentTaskBatch]:
    batch = plan_pb2.FragmentTaskBatch()
    size = 0
    for task in tasks:
        size += convert_plans.add_task(batch, task).ByteSize()
        if len(batch.tasks) >= MAX_BATCH_TASKS or size >= MAX_BATCH_BYTES:
            yield batch
            batch, size = plan_pb2.FragmentTaskBatch(), 0
    if batch.tasks:
        yield batch


def _sized(parts: Iterable[Part]) -> Iterator[list[Part]]:
    """Yield lists of parts, limited in number and size."""
    batch: list[Part] = []
    size = 0
    for part in parts:
        batch.append(part)
        size += part.ByteSize()
        if len(batch) >= MAX_BATCH_TASKS or size >= MAX_BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


#: If the plans that callers have not read yet take this many bytes, further plans are refused. A plan of 100,000
#: fragments takes 10 MB.
_UNREAD_BYTES = 256 << 20


class PlanningServicer(planning_pb2_grpc.PlanningServiceServicer):
    """The RPCs of PlanningService, as protos/leman/internal/v1/planning.proto describes them."""

    def __init__(
        self,
        plans: PlanMaker,
        views: ViewReader,
        previews: PreviewPlans,
        registrations: Registrations,
        pool: BlockingPool,
    ) -> None:
        self._plans = plans
        self._views = views
        self._previews = previews
        self._registrations = registrations
        self._pool = pool
        self._streams = BufferedStream(pool, _UNREAD_BYTES)

    async def CreatePlan(
        self, request: planning_pb2.CreatePlanRequest, _context: Context
    ) -> AsyncIterator[planning_pb2.CreatePlanResponse]:
        spec = convert_plans.spec_from_proto(request.spec)

        def planned() -> Iterator[planning_pb2.CreatePlanResponse]:
            plan = refuse_stale(self._plans.plan(spec), spec.on_stale_input)
            with measure_phase("backfill", "send"):
                yield from plan_messages(plan, batches=request.reads_batches, compared=request.reads_compared)

        async with contextlib.aclosing(self._streams.stream(planned)) as made:
            async for message in made:
                yield message

    async def PlanRefresh(
        self, request: planning_pb2.PlanRefreshRequest, _context: Context
    ) -> planning_pb2.PlanRefreshResponse:
        spec = convert_views.refresh_spec_from_proto(request.spec)
        plan = refuse_stale_refresh(await self._pool.run(self._views.plan, spec), spec)
        return convert_views.refresh_plan_to_proto(plan)

    async def PlanPreview(
        self, request: planning_pb2.PlanPreviewRequest, _context: Context
    ) -> planning_pb2.PlanPreviewResponse:
        described = None
        if (remote := convert_udfs.remote_from_proto(request.preview.definition)) is not None:
            described, _ = await self._pool.run(self._registrations.described, remote)
        header = await self._pool.run(self._previews.plan, convert_udfs.preview_from_proto(request.preview, described))
        return planning_pb2.PlanPreviewResponse(header=convert_plans.header_to_proto(header))
