"""Drives the production code of views in one process: planner, refreshes, workers of both kinds, coordinator. Between
them are calls instead of gRPC, and threads instead of Spark; everything else is as it runs."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import lance
import pyarrow as pa

from leman._format.stored_functions import UdfDefinition, UdfKind
from leman._format.view_definitions import IS_SET, SOURCE_ROW_ID, ViewQuery
from leman_coordinator.commits.commit_queue import CommitQueues, Limits
from leman_coordinator.commits.commit_requests import (
    ApplyDeltaRequest,
    BeginAttemptRequest,
    CommitResult,
    CreatePlaceholdersRequest,
    FillPlaceholdersRequest,
    ReplaceRequest,
    Status,
    ViewFile,
)
from leman_core.model.job import Attempt, BegunAttempt, ColumnCommit, FragmentOutcome, Job, JobState
from leman_core.model.plan import BackfillSpec, OutputField, Plan, PlanHeader, StagedFile
from leman_core.model.view import RefreshPlan, RefreshSpec, ViewCommit
from leman_core.model.work import WorkContext
from leman_core.server.blocking import BlockingPool
from leman_core.settings import Settings
from leman_core.storage.lance_tables import LanceTables
from leman_core.storage.udf_registry import UdfRegistry
from leman_executor.jobs.backfill_run import BackfillRun
from leman_executor.jobs.checkpoint_maintenance import LanceCheckpointMaintenance
from leman_executor.jobs.job_environment import JobEnvironment
from leman_executor.refresh.refresh_run import RefreshRun
from leman_executor.scheduling.dispatcher import Cancelled, Dispatcher, ExecutorEndpoint
from leman_executor.scheduling.local_runner import LocalRunner
from leman_executor.worker.worker_link import Hello, WorkerTask
from leman_executor.worker.worker_loop import run_worker
from leman_planner.planning.plan_maker import PlanMaker
from leman_planner.planning.stale_inputs import refuse_stale_refresh
from leman_planner.views.refresh_reader import ViewReader
from leman_planner.views.view_catalog import ViewCatalog
from tests.integration.views.histories import functions

_TABLES = LanceTables()


class ThreadWorkers:
    """Takes the place of Spark: production workers in threads."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(8)
        self._cancelled: set[str] = set()
        self.jobs = 0

    trouble = None

    def busy_for(self, _job_id: str) -> str:
        return ""

    async def run_workers(
        self, address: ExecutorEndpoint, context: WorkContext, count: int, *_: Any, **_more: Any
    ) -> None:
        if address.job_key in self._cancelled:
            raise Cancelled(address.job_key)
        self.jobs += 1
        task = WorkerTask(address.host, address.port, Hello(address.job_key, address.secret), address.certificate)
        loop = asyncio.get_running_loop()
        await asyncio.gather(*(loop.run_in_executor(self._pool, run_worker, task) for _ in range(count)))

    async def stop_job(self, _job_id: str) -> None:
        """Workers end when no one gives them work."""

    def cancel(self, job_id: str) -> None:
        self._cancelled.add(job_id)

    def forget(self, job_id: str) -> None:
        self._cancelled.discard(job_id)

    def slots(self, here: int) -> int:
        return here

    def cluster(self, _slots: int) -> Any:
        raise AssertionError("no function here asks for resources")

    def close(self) -> None:
        self._pool.shutdown()


class Planner:
    async def create_plan(self, spec: BackfillSpec) -> Plan:
        return await asyncio.to_thread(PlanMaker(_TABLES).plan, spec)

    async def plan_refresh(self, spec: RefreshSpec) -> RefreshPlan:
        return refuse_stale_refresh(await asyncio.to_thread(ViewReader(_TABLES).plan, spec), spec)


class Commits:
    def __init__(self, queues: CommitQueues) -> None:
        self._queues = queues

    async def replace_column(
        self, header: PlanHeader, output: OutputField, replacements: Sequence[Any], *, attempt: Attempt, request_id: str
    ) -> ColumnCommit:
        request = ReplaceRequest(
            uri=header.uri,
            incarnation=header.incarnation,
            request_id=request_id,
            job_id=attempt.job_id,
            read_version=header.read_version,
            output=output,
            replacements=tuple(replacements),
            input_field_ids=header.input_field_ids,
            attempt=attempt.number,
        )
        return ColumnCommit(*_answer(await self._queues.submit(request)))

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
        request = BeginAttemptRequest(
            uri=uri,
            incarnation=incarnation,
            request_id=request_id,
            job_id=attempt.job_id,
            attempt=attempt.number,
            identity=identity,
            read_version=read_version,
        )
        result = await self._queues.submit(request)
        return BegunAttempt(result.version, result.incarnation)

    async def create_placeholders(
        self, plan: RefreshPlan, schema: pa.Schema, max_rows: int, *, attempt: Attempt, request_id: str
    ) -> int:
        request = CreatePlaceholdersRequest(
            uri=plan.uri,
            incarnation=plan.incarnation,
            request_id=request_id,
            job_id=attempt.job_id,
            read_version=plan.version,
            schema=schema,
            max_rows_per_fragment=max_rows,
            create=False,
            attempt=attempt.number,
        )
        return (await self._queues.submit(request)).version

    async def fill_placeholders(
        self, plan: RefreshPlan, files: Sequence[tuple[int, StagedFile]], *, attempt: Attempt, request_id: str
    ) -> tuple[int, list[FragmentOutcome]]:
        filled = tuple(ViewFile(i, f) for i, f in files)
        request = FillPlaceholdersRequest(
            uri=plan.uri,
            incarnation=plan.incarnation,
            request_id=request_id,
            job_id=attempt.job_id,
            read_version=plan.version,
            fragments=filled,
            attempt=attempt.number,
        )
        return _answer(await self._queues.submit(request))

    async def apply_view_delta(
        self,
        plan: RefreshPlan,
        *,
        appended: Sequence[StagedFile],
        swapped: Sequence[tuple[int, StagedFile]],
        evictions: tuple[str, str],
        replace_all: bool,
        metadata: dict[str, str],
        attempt: Attempt,
        request_id: str,
    ) -> ViewCommit:
        request = ApplyDeltaRequest(
            uri=plan.uri,
            incarnation=plan.incarnation,
            request_id=request_id,
            job_id=attempt.job_id,
            read_version=plan.version,
            appended=tuple(ViewFile(0, f) for f in appended),
            swapped=tuple(ViewFile(i, f) for i, f in swapped),
            evictions_file=evictions[0],
            evictions_digest=evictions[1],
            replace_all=replace_all,
            metadata=metadata,
            attempt=attempt.number,
        )
        result = await self._queues.submit(request)
        return ViewCommit(result.version, result.without_indexes)


def _answer(result: CommitResult) -> tuple[int, list[FragmentOutcome]]:
    settled = (Status.COMMITTED, Status.ALREADY_CURRENT)
    return result.version, [
        FragmentOutcome(fragment_id=o.fragment_id, committed=o.status in settled, reason=o.reason, message=o.message)
        for o in result.outcomes
    ]


class Jobs:
    """Neither history nor error store is looked at, and no one else has a job."""

    async def save(self, job: Job) -> Job:
        return job

    async def save_error(self, *_: object) -> None:
        return

    def failed_in(self, _job: Job) -> tuple[str, ...]:
        return ()

    def lost_commit(self, _job: Job, _version: int) -> None:
        return None


class Reservations:
    """No one else wants the rows."""

    async def keep(self, *_: object) -> None:
        return

    async def release(self, *_: object) -> None:
        return


class System:
    """Everything that several databases can share."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self.spark = ThreadWorkers()
        self._dispatcher = Dispatcher("127.0.0.1")
        self._queues = self._runner.run(self._start())
        self.services = JobEnvironment(
            settings=Settings(),
            spark=self.spark,
            local=LocalRunner(),
            dispatcher=self._dispatcher,
            planner=Planner(),
            commits=Commits(self._queues),
            slots=2,
            jobs=Jobs(),
            checkpoints=LanceCheckpointMaintenance(BlockingPool(2)),
            reservations=Reservations(),
        )

    async def _start(self) -> CommitQueues:
        await self._dispatcher.start()
        return CommitQueues(Limits())

    def close(self) -> None:
        self._runner.run(self._queues.close())
        self._runner.run(self._dispatcher.stop())
        self._runner.close()
        self.spark.close()

    def register(self, database: str) -> None:
        UdfRegistry(database).put(
            UdfDefinition(
                "score",
                "1",
                UdfKind.SCALAR,
                ("id", "x", "y"),
                pa.int64(),
                entrypoint=f"{functions.__name__}:score",
            )
        )

    def put(self, database: str, udf: UdfDefinition) -> None:
        UdfRegistry(database).put(udf)

    def backfill(self, database: str, table: str, column: str, **parameters: Any) -> Job:
        """Runs a backfill to its end; the job as it ended."""
        spec = BackfillSpec(database, table, column, **parameters)
        job = Job(f"job-{uuid.uuid4().hex}", "", JobState.PLANNING, spec, 0, 0)
        return self._runner.run(self._backfill(BackfillRun(job, self.services)))

    async def _backfill(self, run: BackfillRun) -> Job:
        plan = await run.plan()
        if not await run.ended_at_once(plan):
            await run.run(plan)
        return run.status.job

    def create(self, database: str, name: str, query: ViewQuery, max_rows_per_fragment: int = 0) -> None:
        request_id = uuid.uuid4().hex
        made = ViewCatalog(_TABLES).creation(database, name, query, request_id)
        request = CreatePlaceholdersRequest(
            uri=made.uri,
            incarnation="",
            request_id=request_id,
            job_id="",
            read_version=0,
            schema=made.schema,
            max_rows_per_fragment=max_rows_per_fragment,
            create=True,
        )
        self._runner.run(self._queues.submit(request))

    def refresh(self, database: str, view: str, *, job_id: str = "", **parameters: Any) -> Job:
        """Runs a refresh to its end; the job as it ended."""
        spec = RefreshSpec(database, view, **parameters)
        return self._runner.run(self._refresh(spec, job_id or f"job-{uuid.uuid4().hex}"))

    def take_over(self, job: Job) -> Job:
        """Continues with the job of an executor that died."""
        run = RefreshRun(replace(job, attempt=job.attempt + 1), self.services)
        self._runner.run(run.replan_and_run())
        return run.status.job

    async def _refresh(self, spec: RefreshSpec, job_id: str) -> Job:
        job = Job(job_id, "", JobState.PLANNING, spec, 0, 0)
        run = RefreshRun(job, self.services)
        self.status = run.status
        plan = await run.plan()
        run.check_resources(plan)
        if not (await run.ended_at_once(plan) or await run.ended_soon(plan)):
            run.prefetch(plan)
            await run.run(plan)
        return run.status.job


def rows_of(uri: str) -> tuple[list[int], list[dict[str, Any]]]:
    """Source row ids and visible rows of a view, in its order; only rows that are set."""
    table = lance.dataset(uri).to_table(filter=f"{IS_SET}")
    ids = table.column(SOURCE_ROW_ID).to_pylist()
    return ids, table.drop_columns([SOURCE_ROW_ID, IS_SET]).to_pylist()
