"""JobService: translates, calls the job manager, translates back."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeVar

import grpc
import structlog

from core.checkpoints import LanceCheckpointStore
from core.checkpoints.lance_store import checkpoint_root
from core.checkpoints.records import forget_file
from core.config import Settings
from core.domain.job import Job
from core.domain.plan import BackfillSpec, FragmentTask, Plan
from core.domain.view import RefreshSpec
from core.domain.work import RowFailure
from core.errors import InvalidArgument, LemanError, Unavailable
from core.lance_io.tables import LanceTables
from core.locations import table_uri
from core.rpc import convert, convert_views
from core.rpc.blocking import BlockingPool
from core.rpc.bodies import body_digest
from core.rpc.channels import open_peer
from core.rpc.paging import read_page
from executor import convert_jobs
from executor.coordination.leases import JobLeases
from executor.coordination.reservations import reservations_at
from executor.job_manager import JobManager
from executor.jobs import job_errors
from executor.jobs.checkpoint_migration import migrate_checkpoints
from executor.jobs.compaction_records import store_traced
from executor.jobs.compaction_watch import CompactionWatch
from executor.jobs.known_jobs import age
from executor.jobs.retry import Retry
from executor.jobs.services import Services
from executor.peers import CommitClient, PlannerClient
from executor.scheduling.dispatcher import Dispatcher
from executor.scheduling.local_runner import LocalRunner
from executor.spark.spark_runner import SparkRunner
from executor.worker.error_store import JobErrors, errors_uri
from leman.v1 import jobs_pb2, jobs_pb2_grpc

_Result = TypeVar("_Result")

_log = structlog.get_logger(__name__)

_HEARTBEAT_SECONDS = 10.0
_ANSWERS_KEPT = 1000
#: After so long without a job Spark's classes are archived.
_ARCHIVE_AFTER_SECONDS = 30.0


def create(settings: Settings, draining: asyncio.Event, spark: SparkRunner | None = None) -> ExecutorService:
    """Starts the Spark session (or waits for one that starts already), then makes the service. Blocks for seconds."""
    spark = spark or SparkRunner(settings.spark)
    spark.start()
    return ExecutorService(settings, draining, spark)


class ExecutorService:
    """See `core.rpc.server.Service`."""

    def __init__(self, settings: Settings, draining: asyncio.Event, spark: SparkRunner) -> None:
        self._settings = settings
        self._draining = draining
        self._spark = spark
        self._pool = BlockingPool(8, name="executor")
        self._reservations = reservations_at(
            settings.redis.url.get_secret_value(), settings.executor.reservation_ttl_seconds
        )
        self._manager: JobManager | None = None
        self._dispatcher: Dispatcher | None = None
        self._channels: list[grpc.aio.Channel] = []
        self._archiving: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None

    async def start(self, server: grpc.aio.Server) -> list[str]:
        """Takes over the jobs of an embedded database, then adds JobService."""
        settings = self._settings
        planner, coordinator = open_peer(settings, "planner"), open_peer(settings, "commit_coordinator")
        self._channels = [planner, coordinator]
        address = self._spark.address
        self._dispatcher = Dispatcher(address.host, address.bind, address.lane_port)
        await self._dispatcher.start()
        services = functools.partial(
            Services,
            settings,
            self._spark,
            LocalRunner(),
            self._dispatcher,
            PlannerClient(planner),
            CommitClient(coordinator),
            settings.executor.slots or os.cpu_count() or 1,
            forget_file=self._forget_file,
            save_error=self._save_error,
            save_traced=self._save_traced,
            release=self._release,
            keep=self._keep,
            migrate_checkpoints=self._migrate_checkpoints,
        )
        # an embedded database has one executor at a time: what the last one held is ours at once
        owner = f"{os.uname().nodename}:{settings.embedded.database or os.getpid()}"
        alone = bool(settings.embedded.database)
        lease_seconds = settings.executor.job_lease_seconds
        leases = JobLeases(settings.redis.url.get_secret_value(), owner, lease_seconds, alone=alone)
        self._manager = JobManager(settings, services, leases, self._pool)
        if settings.embedded.database:
            try:
                await self._manager.open_database(settings.embedded.database)
            except LemanError as error:  # whoever asks for its jobs hears of it
                _log.error("jobs that were left are not taken over yet", reason=error.reason, error=error.message)
        if settings.executor.compaction_watch_seconds:
            watch = CompactionWatch(
                PlannerClient(planner), self._save_traced, self._manager.columns, self._latest_version
            )
            self._watching = asyncio.create_task(watch.run(settings.executor.compaction_watch_seconds))
        if self._spark.lacks_archive:
            self._archiving = asyncio.create_task(self._archive_when_idle())
        servicer = JobServicer(self._manager, self._draining, self.trouble)
        jobs_pb2_grpc.add_JobServiceServicer_to_server(servicer, server)
        return [jobs_pb2.DESCRIPTOR.services_by_name["JobService"].full_name]

    def trouble(self) -> LemanError | None:
        """See `core.rpc.server.MayBeUnfit`."""
        return self._spark.trouble

    async def stop(self) -> None:
        """Lets go of the jobs and ends the session."""
        for task in (self._archiving, self._watching):
            if task is not None:
                task.cancel()
        if self._manager is not None:
            await self._manager.stop()
        if self._dispatcher is not None:
            await self._dispatcher.stop()
        for channel in self._channels:
            await channel.close()
        self._pool.close()
        await asyncio.to_thread(self._spark.stop)

    async def _archive_when_idle(self) -> None:
        idle_since = time.monotonic()
        while time.monotonic() - idle_since < _ARCHIVE_AFTER_SECONDS:
            await asyncio.sleep(_ARCHIVE_AFTER_SECONDS / 10)
            if self.busy():
                idle_since = time.monotonic()
        # a daemon, as nobody is to wait for it who stops the executor
        threading.Thread(target=self._spark.archive_classes, name="archive", daemon=True).start()

    def busy(self) -> bool:
        """Whether a job runs."""
        return self._manager is not None and self._manager.busy()

    async def _forget_file(self, uri: str, task: FragmentTask, file: str) -> None:
        store = LanceCheckpointStore(checkpoint_root(uri))
        await self._pool.run(forget_file, store, task.checkpoint_prefix, task.fragment_id, file)

    async def _save_traced(self, plan: Plan) -> None:
        store = LanceCheckpointStore(checkpoint_root(plan.header.uri))
        await self._pool.run(store_traced, store, plan)

    async def _latest_version(self, database: str, table: str) -> int:
        return await self._pool.run(LanceTables().latest_version, table_uri(database, table))

    async def _keep(self, holder: str, scopes: Sequence[str]) -> None:
        await self._pool.run(self._reservations.renew, scopes, holder)

    async def _release(self, holder: str, scopes: Sequence[str]) -> None:
        await self._pool.run(self._reservations.release_all, scopes, holder)

    async def _migrate_checkpoints(self, plan: Plan, stopped: Callable[[], bool]) -> int:
        store = LanceCheckpointStore(checkpoint_root(plan.header.uri))
        return await self._pool.run(migrate_checkpoints, store, plan, stopped)

    async def _save_error(self, job: Job, row: RowFailure) -> None:
        spec = job.backfill
        errors = JobErrors(errors_uri(spec.database), job.job_id, spec.column, job.udf_version)
        await self._pool.run(errors.store, [row])


class JobServicer(jobs_pb2_grpc.JobServiceServicer):
    """The RPCs; contracts in `protos/leman/v1/jobs.proto`. Errors are mapped by the server's interceptor."""

    def __init__(
        self, manager: JobManager, draining: asyncio.Event, trouble: Callable[[], LemanError | None] = lambda: None
    ) -> None:
        self._manager = manager
        self._trouble = trouble
        self._draining = draining
        self._ended = _EndedJobs()

    async def CreateJob(self, request: jobs_pb2.CreateJobRequest, _context: object) -> jobs_pb2.CreateJobResponse:
        self._check_open()
        body = body_digest(request)
        asked = (
            _checked_refresh(request)
            if request.HasField("refresh")
            else _checked(convert.spec_from_proto(request.backfill))
        )
        job = await self._manager.create(asked, request.request_id, body=body)
        return jobs_pb2.CreateJobResponse(job=_job(job))

    def _check_open(self) -> None:
        if self._draining.is_set():
            raise Unavailable("DRAINING", "This executor is shutting down: try again")
        trouble = self._trouble()
        if trouble is not None:
            raise trouble.with_traceback(None)  # the same one for everybody

    async def GetJob(self, request: jobs_pb2.GetJobRequest, _context: object) -> jobs_pb2.GetJobResponse:
        return self._ended.answer(await self._manager.get(request.database, request.job_id))

    async def ListJobs(self, request: jobs_pb2.ListJobsRequest, _context: object) -> jobs_pb2.ListJobsResponse:
        page = read_page(request.page_size, request.page_token, f"jobs:{request.database}:{request.table}")
        after = (int(page.after[0]), str(page.after[1])) if isinstance(page.after, tuple) else None
        jobs = await self._manager.list_jobs(request.database, request.table, after, page.size + 1)
        items = jobs[: page.size]
        return jobs_pb2.ListJobsResponse(
            jobs=[_job(j) for j in items],
            next_page_token=page.token(age(items[-1])) if len(jobs) > page.size else "",
            warnings=await self._manager.warnings(request.database),
        )

    async def WatchJob(
        self, request: jobs_pb2.WatchJobRequest, _context: object
    ) -> AsyncIterator[jobs_pb2.WatchJobResponse]:
        watch = self._manager.watch(request.database, request.job_id, request.after_sequence, _HEARTBEAT_SECONDS)
        async with contextlib.aclosing(watch) as messages, _ended_with_it(self._draining.wait()) as drained:
            while True:
                async with _ended_with_it(anext(messages, None)) as upcoming:
                    await asyncio.wait((upcoming, drained), return_when=asyncio.FIRST_COMPLETED)
                    if not upcoming.done():
                        raise Unavailable("DRAINING", "This executor is shutting down: watch again")
                    message = await upcoming
                if message is None:
                    return
                sequence, job, events = message
                yield jobs_pb2.WatchJobResponse(
                    sequence=sequence, job=_job(job), events=[convert_jobs.event_to_proto(e) for e in events]
                )

    async def CancelJob(self, request: jobs_pb2.CancelJobRequest, _context: object) -> jobs_pb2.CancelJobResponse:
        return jobs_pb2.CancelJobResponse(job=_job(await self._manager.cancel(request.database, request.job_id)))

    async def RetryJob(self, request: jobs_pb2.RetryJobRequest, _context: object) -> jobs_pb2.RetryJobResponse:
        self._check_open()
        retry = Retry(request.job_id, request.udf_name, request.udf_version, request.keep_others)
        job = await self._manager.retry(request.database, retry, request.request_id, body=body_digest(request))
        return jobs_pb2.RetryJobResponse(job=_job(job))

    async def ListJobErrors(
        self, request: jobs_pb2.ListJobErrorsRequest, _context: object
    ) -> jobs_pb2.ListJobErrorsResponse:
        scope = f"errors:{request.database}:{request.job_id}:{request.column}:{request.places_only}"
        page = read_page(request.page_size, request.page_token, scope)
        after = (int(page.after[0]), str(page.after[1])) if isinstance(page.after, tuple) else None
        errors, go_on = await self._manager.errors(
            request.database, request.job_id, request.column, after, page.size, untold=request.places_only
        )
        found = [convert_jobs.row_error_to_proto(e, place_only=request.places_only) for e in errors]
        return jobs_pb2.ListJobErrorsResponse(errors=found, next_page_token=page.token(go_on) if go_on else "")


@contextlib.asynccontextmanager
async def _ended_with_it(work: Awaitable[_Result]) -> AsyncIterator[asyncio.Future[_Result]]:
    """Runs beside the block, and not longer: whoever watches may go away at any moment."""
    task = asyncio.ensure_future(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class _EndedJobs:
    """Answers about ended jobs, which stay what they are: making one takes longer than all else in a call."""

    def __init__(self) -> None:
        self._answers: OrderedDict[str, tuple[Job, jobs_pb2.GetJobResponse]] = OrderedDict()

    def answer(self, job: Job) -> jobs_pb2.GetJobResponse:
        """The same message again for the same ended job."""
        known = self._answers.get(job.job_id)
        if known is not None and known[0] is job:
            return known[1]
        answer = jobs_pb2.GetJobResponse(job=_job(job))
        if job.state.terminal:
            self._answers[job.job_id] = (job, answer)
            if len(self._answers) > _ANSWERS_KEPT:
                self._answers.popitem(last=False)
        return answer


def _checked(spec: BackfillSpec) -> BackfillSpec:
    """Refuses numbers that make no sense. The planner checks names, types and the filter."""
    for field, value in spec.numbers.items():
        if value < 0:
            raise InvalidArgument("BAD_NUMBER", f"{field} is {value}: it must not be negative", field=field)
    return spec


def _checked_refresh(request: jobs_pb2.CreateJobRequest) -> RefreshSpec:
    if request.HasField("backfill"):
        raise InvalidArgument("BAD_REQUEST", "say either backfill or refresh", field="refresh")
    spec = convert_views.refresh_spec_from_proto(request.refresh)
    for field in ("src_version", "max_rows_per_fragment", "concurrency"):
        if getattr(spec, field) < 0:
            raise InvalidArgument("BAD_NUMBER", f"{field} must not be negative", field=f"refresh.{field}")
    return spec


def _job(job: Job) -> jobs_pb2.Job:
    return convert_jobs.job_to_proto(job, None if job.error is None else job_errors.of_job(job.error))
