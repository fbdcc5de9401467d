"""Call the planner and the commit coordinator, with domain values as arguments and results."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import grpc
import pyarrow as pa

from leman._format.column_bindings import FunctionVersion
from leman.v1 import catalog_pb2, catalog_pb2_grpc, commit_pb2, commit_pb2_grpc, jobs_pb2
from leman_core.model.job import Attempt, BegunAttempt, ColumnCommit, FragmentOutcome
from leman_core.model.plan import (
    BackfillSpec,
    ComparedFile,
    FragmentReplacement,
    FragmentTask,
    MigratedRows,
    OutputField,
    Plan,
    PlanHeader,
    StagedFile,
    TracedFile,
)
from leman_core.model.plan_columns import planned_tasks
from leman_core.model.service_errors import Internal
from leman_core.model.table import IndexCoverage
from leman_core.model.view import RefreshPlan, RefreshSpec, ViewCommit
from leman_core.server.status import error_from_rpc
from leman_core.storage.locations import database_and_table
from leman_core.telemetry import tracing
from leman_core.wire import convert_plans, convert_values, convert_views
from leman_core.wire.convert_values import ref_to_proto
from leman_internal.v1 import planning_pb2, planning_pb2_grpc, submission_pb2, submission_pb2_grpc

_SETTLED = (
    submission_pb2.FragmentOutcome.STATUS_COMMITTED,
    submission_pb2.FragmentOutcome.STATUS_ALREADY_CURRENT,
)


class PlannerClient:
    """A `leman_executor.jobs.job_environment.Planner` over gRPC."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._plans = planning_pb2_grpc.PlanningServiceStub(channel)
        self._catalog = catalog_pb2_grpc.CatalogServiceStub(channel)

    async def create_plan(self, spec: BackfillSpec) -> Plan:
        with tracing.span("plan"):
            return await self._create_plan(spec)

    async def _create_plan(self, spec: BackfillSpec) -> Plan:
        header: PlanHeader | None = None
        tasks: list[FragmentTask] = []
        batches: list[bytes] = []
        traced: list[TracedFile] = []
        migrated: list[MigratedRows] = []
        compared: list[ComparedFile] = []
        try:
            request = planning_pb2.CreatePlanRequest(
                spec=convert_plans.spec_to_proto(spec),
                reads_compared=True,
                reads_batches=True,
            )
            async for message in self._plans.CreatePlan(request):
                if message.HasField("header"):
                    header = convert_plans.header_from_proto(message.header)
                elif message.HasField("traced"):
                    traced.extend(convert_plans.traced_from_proto(f) for f in message.traced.files)
                elif message.HasField("migrated"):
                    migrated.extend(convert_plans.migrated_from_proto(c) for c in message.migrated.rows)
                elif message.HasField("compared"):
                    compared.extend(convert_plans.compared_from_proto(f) for f in message.compared.files)
                elif message.HasField("task_batch"):
                    batches.append(message.task_batch)
                else:  # sent by planners of earlier releases
                    tasks.extend(convert_plans.task_from_proto(t) for t in message.tasks.tasks)
        except grpc.RpcError as error:
            raise error_from_rpc(error) from None
        if header is None:
            raise Internal("PLAN_WITHOUT_HEADER", "the planner sent a plan without its header")
        planned = convert_plans.tasks_from_bytes(batches) if batches else planned_tasks(tasks)
        return Plan(header, planned, tuple(traced), tuple(migrated), tuple(compared))

    async def find_udf(self, database: str, name: str, version: str) -> FunctionVersion:
        try:
            request = catalog_pb2.GetUdfRequest(database=database, udf=ref_to_proto(name, version))
            found = (await self._catalog.GetUdf(request)).definition
        except grpc.RpcError as error:
            raise error_from_rpc(error) from None
        return FunctionVersion(found.name, found.version)

    async def functions_of(self, spec: BackfillSpec) -> list[str]:
        try:
            table = catalog_pb2.TableRef(database=spec.database, table=spec.table)
            answer = await self._catalog.DescribeTable(catalog_pb2.DescribeTableRequest(table=table))
        except grpc.RpcError as error:
            raise error_from_rpc(error) from None
        for column in answer.computed_columns:
            if column.name == spec.column:
                return [str(FunctionVersion(udf.name, udf.version)) for udf in (column.udf, *column.kept)]
        return []

    async def alter_column(self, spec: BackfillSpec, function: FunctionVersion, *, keep_values: bool) -> bytes:
        column = catalog_pb2.ColumnAlteration(
            column=catalog_pb2.NewColumn(name=spec.column, udf=ref_to_proto(function.name, function.version)),
            keep_values=keep_values,
        )
        table = catalog_pb2.TableRef(database=spec.database, table=spec.table)
        request = catalog_pb2.AlterColumnsRequest(table=table, columns=[column], request_id=uuid.uuid4().hex)
        try:
            answer = await self._catalog.AlterColumns(request)
        except grpc.RpcError as error:
            raise error_from_rpc(error) from None
        return b"".join(outcome.SerializeToString() for outcome in answer.columns)

    async def plan_refresh(self, spec: RefreshSpec) -> RefreshPlan:
        request = planning_pb2.PlanRefreshRequest(spec=convert_views.refresh_spec_to_proto(spec))
        try:
            with tracing.span("plan"):
                return convert_views.refresh_plan_from_proto(await self._plans.PlanRefresh(request))
        except grpc.RpcError as error:
            raise error_from_rpc(error) from None

    async def plan_preview(self, request: jobs_pb2.PreviewFunctionRequest) -> PlanHeader:
        asked = planning_pb2.PlanPreviewRequest(preview=request)
        has_bundle, asked.preview.bundle = bool(request.bundle), b""
        try:
            header = convert_plans.header_from_proto((await self._plans.PlanPreview(asked)).header)
        except grpc.RpcError as error:
            raise error_from_rpc(error) from None
        return replace(header, bundle_uri="") if has_bundle else header


class CommitClient:
    """A `leman_executor.jobs.job_environment.Commits` over gRPC."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._commits = commit_pb2_grpc.CommitServiceStub(channel)
        self._submissions = submission_pb2_grpc.CommitSubmissionServiceStub(channel)

    async def replace_column(
        self,
        header: PlanHeader,
        output: OutputField,
        replacements: Sequence[FragmentReplacement],
        *,
        attempt: Attempt,
        request_id: str,
    ) -> ColumnCommit:
        return (await self.replace_columns([(header, output, replacements)], attempt=attempt, request_id=request_id))[0]

    async def replace_columns(
        self,
        columns: Sequence[tuple[PlanHeader, OutputField, Sequence[FragmentReplacement]]],
        *,
        attempt: Attempt,
        request_id: str,
    ) -> list[ColumnCommit]:
        header = columns[0][0]
        request = submission_pb2.SubmitCommitRequest(
            uri=header.uri,
            incarnation=header.incarnation,
            request_id=request_id,
            read_version=min(planned.read_version for planned, _, _ in columns),
            job_id=attempt.job_id,
            attempt=attempt.number,
        )
        if len(columns) == 1:
            request.replace_column.CopyFrom(_replace_column(*columns[0]))
        else:
            request.replace_columns.columns.extend(_replace_column(*column) for column in columns)
        answer = await self._submit(request)
        outcomes = iter(_outcomes(answer))
        return [
            ColumnCommit(
                answer.version,
                list(itertools.islice(outcomes, len(replacements))),
                answer.manifest_seconds,
                without_indexes=answer.without_indexes,
            )
            for _, _, replacements in columns
        ]

    async def begin_attempt(
        self,
        uri: str,
        *,
        incarnation: str,
        attempt: Attempt,
        request_id: str,
        read_version: int = 0,
        identity: str = "",
    ) -> BegunAttempt:
        request = submission_pb2.SubmitCommitRequest(
            uri=uri,
            incarnation=incarnation,
            job_id=attempt.job_id,
            attempt=attempt.number,
            request_id=request_id,
            read_version=read_version,
            begin_attempt=submission_pb2.BeginAttempt(identity=identity),
        )
        answer = await self._submit(request)
        return BegunAttempt(answer.version, answer.incarnation)

    async def create_placeholders(
        self,
        plan: RefreshPlan,
        schema: pa.Schema,
        max_rows_per_fragment: int,
        *,
        attempt: Attempt,
        request_id: str,
    ) -> int:
        request = _view_request(plan, attempt, request_id)
        request.create_placeholders.schema = convert_values.schema_to_bytes(schema)
        request.create_placeholders.max_rows_per_fragment = max_rows_per_fragment
        return (await self._submit(request)).version

    async def fill_placeholders(
        self, plan: RefreshPlan, files: Sequence[tuple[int, StagedFile]], *, attempt: Attempt, request_id: str
    ) -> tuple[int, list[FragmentOutcome]]:
        request = _view_request(plan, attempt, request_id)
        request.fill_placeholders.fragments.extend(_view_files(files))
        answer = await self._submit(request)
        return answer.version, _outcomes(answer)

    async def apply_view_delta(
        self,
        plan: RefreshPlan,
        *,
        appended: Sequence[StagedFile],
        swapped: Sequence[tuple[int, StagedFile]],
        evictions: tuple[str, str],
        replace_all: bool,
        metadata: Mapping[str, str],
        attempt: Attempt,
        request_id: str,
    ) -> ViewCommit:
        operation = submission_pb2.ApplyViewDelta(
            appended=_view_files((-1, file) for file in appended),
            swapped=_view_files(swapped),
            evictions_file=evictions[0],
            evictions_digest=evictions[1],
            replace_all=replace_all,
            metadata=metadata,
        )
        request = _view_request(plan, attempt, request_id)
        request.apply_view_delta.CopyFrom(operation)
        answer = await self._submit(request)
        return ViewCommit(answer.version, answer.without_indexes)

    async def optimize_indices(self, uri: str, columns: Sequence[str]) -> list[IndexCoverage]:
        database, name = database_and_table(uri)
        table = catalog_pb2.TableRef(database=database, table=name)
        try:
            answer = await self._commits.OptimizeIndices(
                commit_pb2.OptimizeIndicesRequest(table=table, columns=columns)
            )
        except grpc.RpcError as error:
            raise error_from_rpc(error) from None
        return [convert_plans.index_from_proto(index) for index in answer.indices]

    async def _submit(self, request: submission_pb2.SubmitCommitRequest) -> submission_pb2.SubmitCommitResponse:
        try:
            with tracing.span("commit", attributes={"leman.commit.operation": str(request.WhichOneof("operation"))}):
                return await self._submissions.SubmitCommit(request)
        except grpc.RpcError as error:
            raise error_from_rpc(error) from None


def _replace_column(
    header: PlanHeader, output: OutputField, replacements: Sequence[FragmentReplacement]
) -> submission_pb2.ReplaceColumn:
    return submission_pb2.ReplaceColumn(
        output=convert_plans.output_to_proto(output),
        input_field_ids=header.input_field_ids,
        inputs_version=header.inputs_version,
        fragments=[
            submission_pb2.FragmentReplacement(
                fragment_id=r.fragment_id,
                file=convert_plans.staged_to_proto(r.staged),
                input_files=r.input_files,
                replaces=r.replaces,
            )
            for r in replacements
        ],
    )


def _view_request(plan: RefreshPlan, attempt: Attempt, request_id: str) -> submission_pb2.SubmitCommitRequest:
    return submission_pb2.SubmitCommitRequest(
        uri=plan.uri,
        incarnation=plan.incarnation,
        read_version=plan.version,
        job_id=attempt.job_id,
        attempt=attempt.number,
        request_id=request_id,
    )


def _view_files(files: Iterable[tuple[int, StagedFile]]) -> list[submission_pb2.ViewFile]:
    return [submission_pb2.ViewFile(fragment_id=i, file=convert_plans.staged_to_proto(file)) for i, file in files]


def _outcomes(answer: submission_pb2.SubmitCommitResponse) -> list[FragmentOutcome]:
    return [
        FragmentOutcome(fragment_id=o.fragment_id, committed=o.status in _SETTLED, reason=o.reason, message=o.message)
        for o in answer.outcomes
    ]
