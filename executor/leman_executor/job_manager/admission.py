"""The admission of jobs: they are planned, then run, wait for their turn, or end at once."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import time
import uuid
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from leman_core.functions.function_policy import FunctionPolicy
from leman_core.model.errors import AlreadyExists, Unavailable, reused
from leman_core.model.job import Job, JobRequest, JobState
from leman_core.server.request_digest import check_body
from leman_executor.coordination.leases import Answer
from leman_executor.job_manager.job_spans import until_refused
from leman_executor.job_manager.queries import JobQueries
from leman_executor.job_manager.request_deduplication import JobRequests
from leman_executor.job_manager.shared import Shared
from leman_executor.job_manager.supervisor import Supervisor, queued
from leman_executor.job_manager.takeovers import Takeovers
from leman_executor.jobs.async_helpers import caller_waits
from leman_executor.jobs.function_env import EnvNotices, check_may_set
from leman_executor.jobs.job_attributes import JobAttributes
from leman_executor.jobs.job_run import JobRun
from leman_executor.jobs.retry import Retry, check_worth, specification

#: Jobs that are planned at once while they are made: the planner serves others too.
_PLANS_AT_ONCE = 16
#: Seconds between two looks whether another executor has made the job that this one was asked for too.
_MADE_SECONDS = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """A job to be made."""

    request: JobRequest
    request_id: str
    #: Digest of the whole message that asks for it.
    body: str
    attributes: JobAttributes
    retry_of: Job | None = None

    def job(self) -> Job:
        """Return the job as it begins.

        The job's id is made from the database and the request id: where two executors are given one request at the same
        time, the first to write the job down has it, as with a takeover. Callers of other databases may give the same
        request id, and the ids of all jobs of an executor differ.
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
    """The admission of one executor's jobs, for one event loop."""

    def __init__(self, shared: Shared, supervisor: Supervisor, takeovers: Takeovers, queries: JobQueries) -> None:
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
        """Accept a job, see `JobManager.create`."""
        asked = _Asked(request=request, request_id=request_id, body=body, attributes=attributes)
        make = functools.partial(self._create, asked)
        return await self._once(request.database, request_id, body, attributes, make)

    async def retry(
        self, path: str, retry: Retry, request_id: str, body: str, attributes: JobAttributes
    ) -> tuple[Job, bytes]:
        """Accept the retry of a job, see `JobManager.retry`."""
        outcome = b""

        async def make() -> Job:
            nonlocal outcome
            job = await self._queries.get(path, retry.job_id)
            spec, outcome = await specification(self._services.planner, job, retry)
            asked = _Asked(request=spec, request_id=request_id, body=body, attributes=attributes, retry_of=job)
            return await self._create(asked)

        return await self._once(path, request_id, body, attributes, make), outcome

    async def stop(self) -> None:
        """End the making of jobs."""
        await self._requests.stop()

    async def _once(
        self,
        path: str,
        request_id: str,
        body: str,
        attributes: JobAttributes,
        make: Callable[[], Coroutine[Any, Any, Job]],
    ) -> Job:
        check_may_set(attributes.env, self._policy)
        database = await self._takeovers.open(path)

        def known() -> Job | None:
            job = database.jobs.of_request(request_id)
            return self._running.current(job) if job is not None else None

        if request_id and known() is None and not database.is_looked_at_rarely:
            await database.reload()  # another executor may have made it
        job = await self._requests.once((path, request_id), body, known, make)
        await self._check_values(job, request_id, attributes.env)
        return job

    async def _check_values(self, job: Job, request_id: str, env: Mapping[str, str]) -> None:
        """Refuse a request id that came with other values before, as long as they are kept: no digest has them.

        Raises:
            AlreadyExists: REQUEST_ID_REUSED.
        """
        if not (request_id and env) or job.state.terminal:
            return
        run = self._running.here(job.job_id)
        known: Mapping[str, str] | None = None if run is None else run.status.env
        if run is None:
            with contextlib.suppress(Unavailable):
                known = await self._env_values.find(job.job_id)
        if known and known != env:
            raise reused(request_id)

    async def _create(self, asked: _Asked) -> Job:
        job = asked.job()
        if self._databases.at(asked.request.database).jobs.was_deleted(job.job_id):
            raise AlreadyExists(
                "REQUEST_ID_REUSED",
                f"the job of request id {asked.request_id!r} was deleted: take a new id",
                request_id=asked.request_id,
            )
        run = self._supervisor.run_of(job, asked.attributes.env)
        with until_refused(run.status.span):
            try:
                return await self._accept(asked, run)
            except BaseException:
                self._running.measured.forget(run.status.job.job_id)
                raise

    async def _accept(self, asked: _Asked, run: JobRun) -> Job:
        self._supervisor.queue.check_capacity(queued(run.status.job))
        async with self._planning:
            with caller_waits():
                plan: Any = await run.plan()
        run.check_env(plan)
        if asked.retry_of is not None:
            check_worth(asked.retry_of, plan)
        database = self._databases.at(asked.request.database)
        await database.prepare()
        job_id = run.status.job.job_id
        self._running.runs[job_id] = run
        try:
            job = await self._begin(run, plan)
        except BaseException:
            # where history has it all the same, whoever opens the database takes it over once nobody holds it
            database.jobs.drop(job_id)
            self._supervisor.leave_queue(job_id)
            try:
                await run.abandon()
            finally:
                self._running.runs.pop(job_id, None)  # until now nobody here takes it for a job that is nobody's
                await self._leases.release(job_id)
            raise
        if not run.status.lost:
            return job
        try:
            await run.abandon()
        finally:
            job = await self._made_elsewhere(asked, job_id)
        return job

    async def _begin(self, run: JobRun, plan: Any) -> Job:
        """End a job that has nothing to do, have it run, or have it wait for its turn.

        Where another executor was given the same request and has the job, it is lost here.
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
                self._supervisor.leave_queue(job.job_id)
                self._supervisor.forget_old_runs()
                return run.status.job
        lease = await self._lease(job)
        if lease is Answer.HELD:
            run.status.lose()
            return job
        if at_once:
            if lease is Answer.OURS or self._leases.is_alone:  # else another executor may be about to make it too
                run.prefetch(plan)
        else:
            run.status.note("queue", "as many jobs run as may: it waits for its turn")
        await run.status.move(JobState.RUNNING if at_once else JobState.PENDING)
        if not await self._env_values.keep(job.job_id, run.status.env):
            notice = self._env_notices.next(job.request.database, run.status.env)
            if notice:
                run.status.note("resources", notice)
        await self._store.save(run.status.job)
        if not run.status.lost:
            self._supervisor.start(run, run.run(plan) if at_once else self._supervisor.in_turn(run, turn))
            self._supervisor.tell_places()
        return run.status.snapshot()

    async def _lease(self, job: Job) -> Answer:
        """Take the lease of a new job; HELD: another executor has made the job.

        Where the lease is held, wait until its holder has written the job down, or has given it up.
        """
        database = self._databases.of(job)
        while (answer := await self._leases.acquire(job.job_id, job.request.database)) is Answer.HELD:
            await database.reload()
            if database.jobs.get(job.job_id) is not None:
                break
            await asyncio.sleep(_MADE_SECONDS)
        return answer

    async def _made_elsewhere(self, asked: _Asked, job_id: str) -> Job:
        """Return the job that another executor made of the same request.

        Raises:
            AlreadyExists: REQUEST_ID_REUSED – that executor was given another request under the id.
        """
        await self._running.stopped()
        self._services.forget_workers(job_id)
        self._running.runs.pop(job_id, None)
        self._supervisor.leave_queue(job_id)
        await self._leases.release(job_id)
        job = await self._queries.get(asked.request.database, job_id)
        check_body(asked.request_id, job.request_body, asked.body)
        return job
