"""Admit jobs: find the job of a repeated request, or plan a new one (possibly a retry), then run, queue or end it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import time
import uuid
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from leman._format.column_bindings import FunctionVersion
from leman_core.functions.function_definitions import FunctionPolicy
from leman_core.model.job import Job, JobRequest, JobState
from leman_core.model.plan import BackfillSpec, FragmentTask
from leman_core.model.service_errors import (
    AlreadyExists,
    FailedPrecondition,
    InvalidArgument,
    Unavailable,
    reused_request_id,
)
from leman_core.model.view import RefreshSpec
from leman_core.server.request_messages import check_same_request
from leman_executor.coordination.leases import LeaseOutcome
from leman_executor.jobs.async_helpers import within_call_deadline
from leman_executor.jobs.incarnation_check import check_ended_job
from leman_executor.jobs.job_environment import Planner
from leman_executor.jobs.job_run import JobRun
from leman_executor.jobs.work_context import EnvNotices, check_may_set_env
from leman_executor.manager.job_queries import JobQueries
from leman_executor.manager.job_supervisor import ManagerDeps, Supervisor, to_queued_job
from leman_executor.manager.job_telemetry import end_span_if_refused
from leman_executor.manager.takeovers import Takeovers


@dataclass(frozen=True, slots=True, kw_only=True)
class JobAttributes:
    """The labels, priority, initiator and environment of a job. `protos/leman/v1/jobs.proto` explains them."""

    labels: Mapping[str, str] = field(default_factory=dict)
    priority: int = 0
    initiator: str = ""
    env: Mapping[str, str] = field(default_factory=dict, repr=False)


DEFAULT_ATTRIBUTES = JobAttributes()
"""No labels, default priority."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryOptions:
    """The options of a retry; see `RetryJobRequest` in `protos/leman/v1/jobs.proto`."""

    job_id: str
    udf_name: str = ""
    udf_version: str = ""
    keep_others: bool = False


async def retry_spec(planner: Planner, job: Job, retry: RetryOptions) -> tuple[BackfillSpec, bytes]:
    """Return the backfill that retries an ended job, and the result of `Planner.alter_column`.

    If the retry sets another function, the column first gets that function. This is idempotent, so that a caller can
    repeat an interrupted request.

    Raises:
        FailedPrecondition: JOB_RUNNING – the job has not ended; NOT_A_BACKFILL – the job is a refresh, or it filled
            several columns and the retry sets another function; KEEP_OTHERS_FUNCTION – `keep_others` is set, but the
            column's values are not from the job's function.
        Aborted: TABLE_REPLACED – the job's table was dropped, and a new table has its name.
        InvalidArgument: BAD_REQUEST – `keep_others` or `udf_version` is given without `udf_name`.
        LemanError: The planner's error.
    """
    if not job.state.terminal:
        raise FailedPrecondition(
            "JOB_RUNNING", f"Job {job.job_id} has not ended: cancel it, or wait until it has ended", job_id=job.job_id
        )
    if isinstance(job.request, RefreshSpec):
        raise FailedPrecondition("NOT_A_BACKFILL", _instead(job), job_id=job.job_id)
    if job.request.columns and retry.udf_name:
        raise FailedPrecondition(
            "NOT_A_BACKFILL",
            f"Job {job.job_id} filled several columns: retry without a function, or set the function of one column "
            "with CatalogService.AlterColumns (keep_values keeps the values of other rows) and backfill that column",
            job_id=job.job_id,
        )
    if (retry.keep_others or retry.udf_version) and not retry.udf_name:
        raise InvalidArgument(
            "BAD_REQUEST", "keep_others and a version need `udf.name`, the function to use", field="udf.name"
        )
    await check_ended_job(job)  # else a new table's column might be changed
    # Failed rows are marked in the table, so the job's sample of fragments and its version do not matter.
    spec = replace(job.request, num_frags=0, read_version=0, read_tag="", commit_rows=0, failed_only=True)
    if job.request.columns:
        return spec, b""
    if not retry.udf_name:
        own = not spec.udf_name or await _is_own(planner, job)
        return replace(spec, udf_name="", udf_version="") if own else spec, b""
    wanted = await planner.find_udf(spec.database, retry.udf_name, retry.udf_version)
    if wanted == FunctionVersion(job.udf_name, job.udf_version):
        return replace(spec, udf_name=wanted.name, udf_version=wanted.version), b""
    if retry.keep_others:
        await _check_kept(planner, job, wanted)
    outcome = await planner.alter_column(spec, wanted, keep_values=retry.keep_others)
    return replace(spec, udf_name="", udf_version="", failed_only=retry.keep_others), outcome


def _instead(job: Job) -> str:
    """Return the part of an error text that says how the failed rows of a refresh get values."""
    refreshed = f"Job {job.job_id} refreshed view {job.request.table}"
    if job.state in (JobState.DONE, JobState.DONE_WITH_ERRORS):
        return (
            f"{refreshed}. A refresh calls a function again for a failed row only if the row has changed in the "
            "source, if CatalogService.AlterMaterializedView has given the column another function, or with POLICY_FULL"
        )
    return f"{refreshed} and ended {job.state.value}: refresh the view again, which continues where the job stopped"


async def _is_own(planner: Planner, job: Job) -> bool:
    """Return whether the column keeps the values of the job's function."""
    return str(FunctionVersion(job.udf_name, job.udf_version)) in await planner.functions_of(job.backfill)


async def _check_kept(planner: Planner, job: Job, wanted: FunctionVersion) -> None:
    """Raise FailedPrecondition (KEEP_OTHERS_FUNCTION) unless the column's values are from the job's function.

    Values of another function would be stale, so they could not be kept.
    """
    if await _is_own(planner, job):
        return
    raise FailedPrecondition(
        "KEEP_OTHERS_FUNCTION",
        f"Job {job.job_id} computed column {job.column} with {job.udf_name}@{job.udf_version}, which is not the "
        f"column's function: its values cannot be kept with those of {wanted}. Retry without keep_others",
        job_id=job.job_id,
    )


def _filled(job: Job) -> str:
    columns = job.backfill.columns
    return f"columns {', '.join(columns)}" if columns else f"column {job.column}"


class HasTasks(Protocol):
    """The plan of a backfill, for one or several columns."""

    @property
    def tasks(self) -> Sequence[FragmentTask]: ...


def check_has_failed_rows(job: Job, plan: HasTasks) -> None:
    """Check that there is something to retry.

    Raises:
        FailedPrecondition: NOTHING_TO_RETRY – the job ended early and has no failed row. A new backfill computes the
            remaining rows.
    """
    if plan.tasks or job.state in (JobState.DONE, JobState.DONE_WITH_ERRORS):
        return
    raise FailedPrecondition(
        "NOTHING_TO_RETRY",
        f"Job {job.job_id} ended {job.state.value}, and no row of {_filled(job)} is marked as failed: "
        "run the backfill again, which continues where the job stopped",
        job_id=job.job_id,
    )


_Key = tuple[str, str]


class JobRequests:
    """The jobs that are being created.

    Each job is created in a separate task. Its creation therefore completes or fails as a whole, even if its callers
    disconnect.
    """

    def __init__(self) -> None:
        self._making: dict[_Key, tuple[str, asyncio.Task[Job]]] = {}
        self._tasks: set[asyncio.Task[Job]] = set()

    async def once(
        self,
        key: _Key,
        body: str,
        known: Callable[[], Job | None],
        make: Callable[[], Coroutine[Any, Any, Job]],
    ) -> Job:
        """Return the job of a request. Create the job if it does not exist.

        Args:
            key: The database and the request id. Without an id, every request creates a job.
            body: A digest of the request.
            known: Returns the job if it exists.
            make: Creates the job.

        Raises:
            AlreadyExists: REQUEST_ID_REUSED – the id was used with another body.
            LemanError: as `make` raises.
        """
        if not key[1]:
            return await asyncio.shield(self._apart(make()))
        if key in self._making:
            asked, task = self._making[key]
            check_same_request(key[1], asked, body)
            return await asyncio.shield(task)
        job = known()
        if job is not None:
            check_same_request(key[1], job.request_body, body)
            return job
        task = self._apart(make())
        self._making[key] = body, task
        task.add_done_callback(lambda _: self._making.pop(key, None))
        return await asyncio.shield(task)

    async def stop(self) -> None:
        """Stop creating jobs."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _apart(self, work: Coroutine[Any, Any, Job]) -> asyncio.Task[Job]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


#: Maximum number of jobs that are planned concurrently when they are created, because the planner has other callers
#: too.
_PLANS_AT_ONCE = 16
#: Seconds between two checks whether another executor has created a job.
_MADE_SECONDS = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    request: JobRequest
    request_id: str
    #: A digest of the whole request message.
    body: str
    attributes: JobAttributes
    retry_of: Job | None = None

    def job(self) -> Job:
        """Return the job in its first state.

        The job's id is a hash of the database and the request id. If two executors receive the same request at the same
        time, the first to write the job owns it, as in a takeover. Request ids are unique only within a database, but
        job ids must be unique among all databases of an executor; therefore the hash includes the database.
        """
        now = time.time()
        scope = f"{self.request.database}\n{self.request_id}"
        of_request = hashlib.blake2b(scope.encode(), digest_size=8).hexdigest()
        return Job(
            f"job-{of_request if self.request_id else uuid.uuid4().hex[:16]}",
            self.request_id,
            JobState.PLANNING,
            self.request,
            now,
            now,
            retry_of=self.retry_of.job_id if self.retry_of else "",
            incarnation=self.retry_of.incarnation if self.retry_of else "",
            request_body=self.body,
            labels=dict(self.attributes.labels),
            priority=self.attributes.priority,
            initiator=self.attributes.initiator,
            env_names=tuple(sorted(self.attributes.env)),
        )


class Admission:
    """Admit the jobs of one executor, on one event loop."""

    def __init__(self, shared: ManagerDeps, supervisor: Supervisor, takeovers: Takeovers, queries: JobQueries) -> None:
        self._services = shared.services
        self._databases = shared.databases
        self._running = shared.running
        self._store = shared.store
        self._supervisor = supervisor
        self._takeovers = takeovers
        self._queries = queries
        self._leases = shared.leases
        self._env_values = shared.env_values
        self._env_notices = EnvNotices()
        self._policy = FunctionPolicy.of(shared.services.settings.udf)
        self._requests = JobRequests()
        self._planning = asyncio.Semaphore(_PLANS_AT_ONCE)

    async def create(self, request: JobRequest, request_id: str, body: str, attributes: JobAttributes) -> Job:
        asked = _Asked(request=request, request_id=request_id, body=body, attributes=attributes)
        make = functools.partial(self._create, asked)
        return await self._once(request.database, request_id, body, attributes, make)

    async def retry(
        self, path: str, retry: RetryOptions, request_id: str, body: str, attributes: JobAttributes
    ) -> tuple[Job, bytes]:
        outcome = b""

        async def make() -> Job:
            nonlocal outcome
            job = await self._queries.get(path, retry.job_id)
            spec, outcome = await retry_spec(self._services.planner, job, retry)
            asked = _Asked(request=spec, request_id=request_id, body=body, attributes=attributes, retry_of=job)
            return await self._create(asked)

        return await self._once(path, request_id, body, attributes, make), outcome

    async def stop(self) -> None:
        await self._requests.stop()

    async def _once(
        self,
        path: str,
        request_id: str,
        body: str,
        attributes: JobAttributes,
        make: Callable[[], Coroutine[Any, Any, Job]],
    ) -> Job:
        check_may_set_env(attributes.env, self._policy)
        database = await self._takeovers.open(path)

        def known() -> Job | None:
            job = database.jobs.of_request(request_id)
            return self._running.current(job) if job is not None else None

        if request_id and known() is None and not database.is_looked_at_rarely:
            await database.reload()  # another executor may have created it
        job = await self._requests.once((path, request_id), body, known, make)
        await self._check_values(job, request_id, attributes.env)
        return job

    async def _check_values(self, job: Job, request_id: str, env: Mapping[str, str]) -> None:
        """Reject a request id that was used with other values of environment variables.

        Digests of requests leave these values out. Therefore this compares the values with those of the earlier
        request, which are kept until that request's job ends.

        Raises:
            AlreadyExists: REQUEST_ID_REUSED.
        """
        if not (request_id and env) or job.state.terminal:
            return
        run = self._running.run_of(job)
        known: Mapping[str, str] | None = None if run is None else run.status.env
        if run is None:
            with contextlib.suppress(Unavailable):
                known = await self._env_values.find(job.key)
        if known and known != env:
            raise reused_request_id(request_id)

    async def _create(self, asked: _Asked) -> Job:
        job = asked.job()
        if self._databases.at(asked.request.database).jobs.was_deleted(job.job_id):
            raise AlreadyExists(
                "REQUEST_ID_REUSED",
                f"the job of request id {asked.request_id!r} was deleted: use a new id",
                request_id=asked.request_id,
            )
        run = self._supervisor.run_of(job, asked.attributes.env)
        with end_span_if_refused(run.status.span):
            try:
                return await self._accept(asked, run)
            except BaseException:
                self._running.measured.forget(run.status.job.key)
                raise

    async def _accept(self, asked: _Asked, run: JobRun) -> Job:
        self._supervisor.queue.check_capacity(to_queued_job(run.status.job))
        async with self._planning:
            with within_call_deadline():
                plan: Any = await run.plan()
        run.check_env(plan)
        if asked.retry_of is not None:
            check_has_failed_rows(asked.retry_of, plan)
        database = self._databases.at(asked.request.database)
        await database.prepare()
        key = run.status.job.key
        self._running.runs[key] = run
        try:
            job = await self._begin(run, plan)
        except BaseException:
            # If the history does have the job, the next executor that opens the database takes it over once its lease
            # is free.
            database.jobs.drop(run.status.job.job_id)
            self._supervisor.leave_queue(key)
            try:
                await run.abandon()
            finally:
                self._running.runs.pop(key, None)  # from now on, the job may count as abandoned
                await self._leases.release(key)
            raise
        if not run.status.lost:
            return job
        try:
            await run.abandon()
        finally:
            job = await self._made_elsewhere(asked, run.status.job)
        return job

    async def _begin(self, run: JobRun, plan: Any) -> Job:
        """End a job that has nothing to do, run it, or queue it.

        If another executor received the same request and owns the job, drop the local run.
        """
        job = run.status.job
        run.set_cost_estimate(self._supervisor.costs.of(job))
        if await run.ended_at_once(plan):
            self._supervisor.forget_old_runs()
            return run.status.job
        run.check_resources(plan)
        turn = self._supervisor.join_queue(job)
        at_once = turn.done()
        if at_once:
            run.status.has_its_turn()
            if await run.ended_soon(plan):
                self._supervisor.leave_queue(job.key)
                self._supervisor.forget_old_runs()
                return run.status.job
        lease = await self._lease(job)
        if lease is LeaseOutcome.HELD:
            run.status.lose()
            return job
        if at_once:
            if lease is LeaseOutcome.OURS or self._leases.is_alone:  # otherwise another executor may be creating it
                run.prefetch(plan)
        else:
            run.status.note("queue", "queued: the limit of running jobs is reached")
        await run.status.move(JobState.RUNNING if at_once else JobState.PENDING)
        if not await self._env_values.keep(job.key, run.status.env):
            notice = self._env_notices.next(job.request.database, run.status.env)
            if notice:
                run.status.note("resources", notice)
        await self._store.save(run.status.job)
        if not run.status.lost:
            self._supervisor.start(run, run.run(plan) if at_once else self._supervisor.in_turn(run, turn))
            self._supervisor.tell_places()
        return run.status.snapshot()

    async def _lease(self, job: Job) -> LeaseOutcome:
        """Acquire the lease of a new job. HELD means that another executor has created the job.

        While another executor has the lease, wait until it writes the job or releases the lease.
        """
        database = self._databases.of(job)
        while (answer := await self._leases.acquire(job.key, job.request.database)) is LeaseOutcome.HELD:
            await database.reload()
            if database.jobs.get(job.job_id) is not None:
                break
            await asyncio.sleep(_MADE_SECONDS)
        return answer

    async def _made_elsewhere(self, asked: _Asked, mine: Job) -> Job:
        """Return the job that another executor created for the same request.

        Raises:
            AlreadyExists: REQUEST_ID_REUSED – the other executor used the id for a different request.
        """
        await self._running.stopped()
        self._services.forget_workers(mine.key)
        self._running.runs.pop(mine.key, None)
        self._supervisor.leave_queue(mine.key)
        await self._leases.release(mine.key)
        job = await self._queries.get(asked.request.database, mine.job_id)
        check_same_request(asked.request_id, job.request_body, asked.body)
        return job
