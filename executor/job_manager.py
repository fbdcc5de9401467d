"""All jobs of one executor: accepts, runs, finds, cancels, takes over."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import time
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any

import structlog

from core.config import Settings
from core.domain.job import Job, JobError, JobEvent, JobRequest, JobState, StoredRowError, same_attempt
from core.domain.plan import BackfillSpec
from core.errors import LemanError, NotFound, Unavailable
from core.rpc.blocking import BlockingPool
from core.rpc.bodies import check_body
from executor.coordination.leases import Answer, JobLeases
from executor.jobs.backfill_run import BackfillRun
from executor.jobs.cost_estimates import CostEstimates
from executor.jobs.history_writer import HistoryWriter
from executor.jobs.job_history import JobHistory
from executor.jobs.job_queue import JobQueue
from executor.jobs.job_status import JobStatus
from executor.jobs.known_jobs import Age, KnownJobs
from executor.jobs.request_memory import JobRequests
from executor.jobs.retry import Retry, check_worth, specification
from executor.jobs.row_errors import Place, RowErrors
from executor.jobs.services import Services
from executor.jobs.takeover import begin_attempt
from executor.refresh.refresh_run import RefreshRun

_log = structlog.get_logger(__name__)
_POLL_SECONDS = 1.0
#: Between two looks whether another executor has made the job that this one was asked for too.
_MADE_SECONDS = 0.1
_RUNS_KEPT = 200
#: Earlier jobs that are named as those in which rows failed.
_FAILED_IN = 5
_SAVE_AGAIN_SECONDS = 3.0
#: Databases whose history is written at once.
_WRITERS = 4
#: The writers bound what waits: one batch for each database.
_UNBOUNDED = 1 << 40
#: Plans of jobs that are being made: the planner is for others too.
_PLANS_AT_ONCE = 16

SaveJob = Callable[[Job], Awaitable[Job]]


class _Database:
    """Jobs of one database, as history and memory have them."""

    def __init__(self, path: str, pool: BlockingPool) -> None:
        self.history = JobHistory(path)
        self.writer = HistoryWriter(self.history, pool)
        self.row_errors = RowErrors(path)
        self.jobs = KnownJobs()
        self.opened = asyncio.Lock()
        self.reading = asyncio.Lock()
        self.loaded = False


@dataclass(frozen=True, slots=True)
class _Asked:
    """A job to be made. `body`: digest of the whole message that asks for it."""

    request: JobRequest
    request_id: str
    body: str
    retry_of: Job | None = None

    def job(self) -> Job:
        """It, as it begins. A request id makes the job's: of two executors that are given one request at the same time
        the first to write the job down has it, as of two that take one over."""
        now = time.time()
        of_request = hashlib.blake2b(self.request_id.encode(), digest_size=8).hexdigest()
        return Job(
            f"job-{of_request if self.request_id else uuid.uuid4().hex[:16]}",
            self.request_id,
            JobState.PLANNING,
            self.request,
            now,
            now,
            retry_of=self.retry_of.job_id if self.retry_of else "",
            request_body=self.body,
        )


class JobManager:
    """Call it on one event loop."""

    def __init__(
        self, settings: Settings, services: Callable[[SaveJob], Services], leases: JobLeases, pool: BlockingPool
    ) -> None:
        self._settings = settings
        self._services = services(self._save)
        self._leases = leases
        self._pool = pool
        self._writers = BlockingPool(_WRITERS, max_queued=_UNBOUNDED, name="job-history")
        self._id = uuid.uuid4().hex
        self._databases: dict[str, _Database] = {}
        self._runs: dict[str, BackfillRun | RefreshRun] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._adopting: dict[str, asyncio.Task[None]] = {}
        self._losing: set[asyncio.Task[None]] = set()
        self._lost: set[str] = set()
        self._unsaved: dict[str, asyncio.Task[None]] = {}
        self._costs = CostEstimates()
        self._requests = JobRequests()
        self._queue = JobQueue(settings.executor.max_running_jobs, settings.executor.max_waiting_jobs)
        self._planning = asyncio.Semaphore(_PLANS_AT_ONCE)
        self._telling: set[asyncio.Task[None]] = set()

    def busy(self) -> bool:
        """Whether any job runs or waits for its turn."""
        return bool(self._tasks)

    def columns(self) -> set[tuple[str, str, str]]:
        """(database, table, column) of all backfills in the databases that somebody asked for."""
        known = ((path, job.request) for path, database in self._databases.items() for job in database.jobs)
        return {(path, asked.table, asked.column) for path, asked in known if isinstance(asked, BackfillSpec)}

    async def retry(self, database: str, retry: Retry, request_id: str, *, body: str = "") -> Job:
        """Accepts a job that computes the failed rows of an ended one again. Raises what `create` and
        `executor.jobs.retry.specification` raise, NotFound (JOB_NOT_FOUND), FailedPrecondition (NOTHING_TO_RETRY)."""

        async def make() -> Job:
            job = await self.get(database, retry.job_id)
            spec = await specification(self._services.planner, job, retry)
            return await self._create(_Asked(spec, request_id, body, retry_of=job))

        return await self._once(database, request_id, body, make)

    async def create(self, request: JobRequest, request_id: str, *, body: str = "") -> Job:
        """Accepts a job and returns it running, waiting for its turn, or done where nothing was to do. The same request
        id with the same `body`, a digest of the whole message, gives the same job. Raises what planning raises,
        AlreadyExists (REQUEST_ID_REUSED), ResourceExhausted (TOO_MANY_JOBS)."""
        asked = _Asked(request, request_id, body)
        return await self._once(request.database, request_id, body, lambda: self._create(asked))

    async def _once(self, path: str, request_id: str, body: str, make: Callable[[], Coroutine[Any, Any, Job]]) -> Job:
        database = await self._open(path)

        def known() -> Job | None:
            job = database.jobs.of_request(request_id)
            return None if job is None else self.current(job)

        if request_id and known() is None:
            await self._reload(database)  # another executor may have made it
        return await self._requests.once((path, request_id), body, known, make)

    async def _create(self, asked: _Asked) -> Job:
        self._queue.check_capacity()
        run = self._run_of(asked.job())
        async with self._planning:
            plan: Any = await run.plan()
        if asked.retry_of is not None:
            check_worth(asked.retry_of, plan)
        await self._pool.run(self._databases[asked.request.database].history.prepare)
        job_id = run.status.job.job_id
        self._runs[job_id] = run
        try:
            job = await self._begin(run, plan)
        except BaseException:
            # where history has it all the same, whoever opens the database takes it over once nobody holds it
            del self._runs[job_id]
            self._databases[asked.request.database].jobs.drop(job_id)
            self._leave_queue(job_id)
            await self._leases.release(job_id)
            raise
        return await self._made_elsewhere(asked, job_id) if run.status.lost else job

    async def _begin(self, run: BackfillRun | RefreshRun, plan: Any) -> Job:
        """Ends a job that has nothing to do, has it run, or has it wait for its turn; unless another executor was given
        the same request and has it: then it is lost here."""
        job = run.status.job
        run.set_cost_estimate(self._costs.of(job))
        if await run.ended_at_once(plan):
            return run.status.job
        run.check_resources(plan)
        if await self._is_made_elsewhere(job):
            run.status.lose()
            return job
        turn = self._queue.join(job.job_id, job.created_at)
        at_once = turn.done()
        if at_once:
            run.prefetch(plan)
        else:
            run.status.note("queue", "as many jobs run as may: it waits for its turn")
        await run.status.move(JobState.RUNNING if at_once else JobState.PENDING)
        await self._save(run.status.job)
        if not run.status.lost:
            self._start(run, run.run(plan) if at_once else self._in_turn(run, turn))
            self._tell_places()
        return run.status.snapshot()

    async def _is_made_elsewhere(self, job: Job) -> bool:
        """Takes the lease of a new job. Who finds it held waits until its holder has written the job down, or has given
        it up."""
        database = self._databases[job.request.database]
        while await self._leases.acquire(job.job_id) is Answer.HELD:
            await self._reload(database)
            if database.jobs.get(job.job_id) is not None:
                return True
            await asyncio.sleep(_MADE_SECONDS)
        return False

    async def _made_elsewhere(self, asked: _Asked, job_id: str) -> Job:
        """The job that another executor made of the same request. Raises AlreadyExists (REQUEST_ID_REUSED) where it was
        given another one under that id."""
        await asyncio.gather(*self._losing)
        self._services.spark.forget(job_id)
        self._services.local.forget(job_id)
        self._runs.pop(job_id, None)
        self._leave_queue(job_id)
        await self._leases.release(job_id)
        job = await self.get(asked.request.database, job_id)
        check_body(asked.request_id, job.request_body, asked.body)
        return job

    async def _in_turn(self, run: BackfillRun | RefreshRun, turn: asyncio.Future[bool]) -> None:
        """Has a job run once its turn has come: from the plan on, as the table may have changed while it waited."""
        job = run.status.job
        if not turn.done() and job.state is not JobState.PENDING:
            await run.status.move(JobState.PENDING)
            await self._save(run.status.job)
        self._tell_places()
        if not await turn:
            await run.end(JobState.CANCELLED)
            return
        run.status.queue(0)
        if run.status.job.state is JobState.PENDING:  # from now on it counts when its executor dies
            await run.status.move(JobState.PLANNING)
            await self._save(run.status.job)
        await run.replan_and_run()

    def _leave_queue(self, job_id: str) -> None:
        self._queue.leave(job_id)
        self._tell_places()

    def _tell_places(self) -> None:
        """Tells those who watch jobs that wait how far these are."""
        statuses = (
            (self._runs[job_id].status, place) for job_id, place in self._queue.places() if job_id in self._runs
        )
        moved = [status for status, place in statuses if status.queue(place)]
        if moved:
            task = asyncio.create_task(_publish(moved))
            self._telling.add(task)
            task.add_done_callback(self._telling.discard)

    def _run_of(self, job: Job) -> BackfillRun | RefreshRun:
        job = replace(job, executor=self._id)
        return (
            BackfillRun(job, self._services, self._failed_in)
            if isinstance(job.request, BackfillSpec)
            else RefreshRun(job, self._services)
        )

    def _start(self, run: BackfillRun | RefreshRun, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(self._supervise(run, work))
        self._tasks[run.status.job.job_id] = task
        task.add_done_callback(lambda _: self._tasks.pop(run.status.job.job_id, None))

    async def _supervise(self, run: BackfillRun | RefreshRun, work: Coroutine[Any, Any, None]) -> None:
        beat = asyncio.create_task(self._heartbeat(run))
        try:
            await work
        except Exception:  # noqa: BLE001 a job must end in a state, whatever happened
            _log.exception("job failed on a bug", job_id=run.status.job.job_id)
            message = "the executor failed on a bug; its log has the traceback. Finished work is kept."
            await run.status.end(JobState.FAILED, JobError("Internal", "INTERNAL_BUG", message), self._save)
        finally:
            beat.cancel()
            self._services.spark.forget(run.status.job.job_id)
            self._services.local.forget(run.status.job.job_id)
            self._leave_queue(run.status.job.job_id)
        if run.status.job.job_id not in self._unsaved:
            await self._leases.release(run.status.job.job_id)
        if run.status.lost:
            self._runs.pop(run.status.job.job_id, None)
            return
        self._costs.learn(run.status.job, run.status.metrics.seconds_per_row)
        ended = [job_id for job_id in self._runs if job_id not in self._tasks and job_id not in self._unsaved]
        for job_id in ended[:-_RUNS_KEPT]:  # their watchers have seen the end, and history has it
            del self._runs[job_id]

    async def _heartbeat(self, run: BackfillRun | RefreshRun) -> None:
        """Keeps the lease. Where it was not kept all the time, history says whether the job is still ours."""
        beaten = time.monotonic()
        while True:
            await asyncio.sleep(self._leases.lease_seconds / 3)
            in_time = time.monotonic() - beaten < self._leases.lease_seconds
            beaten = time.monotonic()
            kept = await self._leases.renew(run.status.job.job_id)
            if not (kept and in_time):
                await self._check_ours(run)

    async def _check_ours(self, run: BackfillRun | RefreshRun) -> None:
        job = run.status.job
        database = self._databases[job.request.database]
        try:
            stored = await self._pool.run(database.history.find, job.job_id)
        except LemanError as error:
            _log.warning("history does not say who has a job", job_id=job.job_id, error=str(error))
            return
        if stored is not None and not same_attempt(stored, job):
            database.jobs.put(stored)
            self._lose(job.job_id)

    async def _save(self, job: Job) -> Job:
        """Writes a job's state into history and returns the one that counts: who finds another one there stops."""
        database = self._databases[job.request.database]
        database.jobs.put(job)
        try:
            kept = await database.writer.save(job)
        except LemanError as error:
            if not job.state.terminal:
                raise
            # whoever waits for the job hears of its end also where nothing can be written
            self._save_later(database, job, error)
            return job
        database.jobs.put(kept)
        if not same_attempt(kept, job):
            self._lose(job.job_id)
        return kept

    def _save_later(self, database: _Database, job: Job, error: Exception) -> None:
        _log.error("the end of a job is not in its history yet", job_id=job.job_id, error=str(error))
        if job.job_id not in self._unsaved:
            self._unsaved[job.job_id] = asyncio.create_task(self._keep_saving(database, job))

    async def _keep_saving(self, database: _Database, job: Job) -> None:
        """Until it is in history. The lease is held until then: nobody takes a job over that has ended."""
        try:
            while True:
                await asyncio.sleep(_SAVE_AGAIN_SECONDS)
                await self._leases.renew(job.job_id)
                with contextlib.suppress(LemanError):
                    database.jobs.put(await database.writer.save(job))
                    return
        finally:
            del self._unsaved[job.job_id]
            await self._leases.release(job.job_id)

    def _lose(self, job_id: str) -> None:
        """Another executor has the job: ends what runs for it here, and says nothing more about it."""
        run = self._here(job_id)
        if run is None:
            return
        _log.warning("a job is left to the executor that has taken it over", job_id=job_id)
        run.status.lose()
        self._lost.add(job_id)
        stopping = asyncio.create_task(asyncio.to_thread(run.cancel))
        self._losing.add(stopping)
        stopping.add_done_callback(self._losing.discard)

    def _here(self, job_id: str) -> BackfillRun | RefreshRun | None:
        """The run of a job that this executor has, or had when it ended."""
        run = self._runs.get(job_id)
        return None if run is None or run.status.lost else run

    def _failed_in(self, job: Job) -> tuple[str, ...]:
        """See `BackfillRun`; of the jobs that history knew when it was read last."""
        function = job.request.table, job.column, job.udf_name, job.udf_version

        def failed(other: Job) -> bool:
            its = other.request.table, other.column, other.udf_name, other.udf_version
            return bool(other.progress.rows_failed) and its == function and other.job_id != job.job_id

        return tuple(j.job_id for j in self._databases[job.request.database].jobs.newest(None, _FAILED_IN, failed))

    # finding jobs

    def current(self, job: Job) -> Job:
        """The live state of a job that runs here, else what history says."""
        run = self._here(job.job_id)
        return run.status.snapshot() if run is not None else job

    async def get(self, database: str, job_id: str) -> Job:
        """Raises NotFound (JOB_NOT_FOUND)."""
        opened = await self._open(database)
        job = opened.jobs.get(job_id)
        if job is None or (self._here(job_id) is None and not job.state.terminal):
            await self._reload(opened)
            job = opened.jobs.get(job_id)
            if job is not None and not job.state.terminal:
                self._adopt_when_free(opened, job_id)
        if job is None:
            raise NotFound("JOB_NOT_FOUND", f"There is no job {job_id}: `leman jobs ls` lists all", job_id=job_id)
        return self.current(job)

    async def list_jobs(
        self, database: str, table: str, after: Age | None = None, most: int | None = None
    ) -> list[Job]:
        """Newest first: those that are older than `after`, at most so many."""
        opened = await self._open(database)
        await self._reload(opened)
        return [self.current(j) for j in opened.jobs.newest(after, most, lambda j: table in ("", j.request.table))]

    async def warnings(self, database: str) -> list[str]:
        """What of a database's job history was damaged and set aside."""
        return await self._pool.run((await self._open(database)).history.warnings)

    async def watch(
        self, database: str, job_id: str, after: int, heartbeat_seconds: float
    ) -> AsyncGenerator[tuple[int, Job, list[JobEvent]]]:
        """See `JobStatus.follow`; a job that another executor runs is followed through history."""
        sequence = after
        while True:
            job = await self.get(database, job_id)
            run = self._here(job_id)
            if run is not None:
                async with contextlib.aclosing(run.status.follow(after, heartbeat_seconds)) as messages:
                    async for message in messages:
                        sequence = message[0]
                        yield message
                if not run.status.lost:
                    return
                continue
            sequence += 1
            yield sequence, job, []
            if job.state.terminal:
                return
            await asyncio.sleep(_POLL_SECONDS)

    async def cancel(self, database: str, job_id: str) -> Job:
        """Asks a job to stop; ended jobs stay as they are. History knows it before the caller does, so that an executor
        which takes the job over cancels it too. Raises NotFound; Unavailable (JOB_ELSEWHERE)."""
        job = await self.get(database, job_id)
        if job.state.terminal:
            return job
        run = self._here(job_id)
        if run is None:
            raise Unavailable("JOB_ELSEWHERE", f"Job {job_id} is run by another executor: ask that one")
        if not run.cancelling:
            await run.status.move(JobState.CANCELLING)
            await self._save_cancelling(run.status.job)
            if run.status.lost or run.status.job.state.terminal:
                return await self.get(database, job_id)
            if self._queue.waits(job_id):
                self._leave_queue(job_id)
            else:
                await asyncio.to_thread(run.cancel)
        return run.status.snapshot()

    async def _save_cancelling(self, job: Job) -> None:
        """Where nothing can be written the job is stopped all the same; another executor would not know of it."""
        try:
            await self._save(job)
        except LemanError as error:
            _log.warning("a cancel is not in history yet", job_id=job.job_id, error=str(error))

    async def errors(
        self, database: str, job_id: str, column: str, after: Place | None, size: int, *, untold: bool
    ) -> tuple[list[StoredRowError], Place | None]:
        """See `RowErrors.page`. Raises NotFound (JOB_NOT_FOUND)."""
        await self.get(database, job_id)
        rows = self._databases[database].row_errors
        return await self._pool.run(rows.page, job_id, column, after, size, untold=untold)

    # history

    async def _open(self, path: str) -> _Database:
        database = self._databases.get(path)
        if database is None:
            database = self._databases[path] = _Database(path, self._writers)
        async with database.opened:
            if not database.loaded:
                await self._reload(database)
                database.loaded = True
                for job in database.jobs:
                    self._costs.learn_from_history(job)
                    if not job.state.terminal:
                        self._adopt_when_free(database, job.job_id)
        return database

    async def _reload(self, database: _Database) -> None:
        task = asyncio.create_task(self._take_news(database))  # news that were fetched are not to be lost
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)
        await asyncio.shield(task)

    async def _take_news(self, database: _Database) -> None:
        async with database.reading:
            news = await self._pool.run(database.history.news)
            for job in news.values():
                database.jobs.put(job)

    def _adopt_when_free(self, database: _Database, job_id: str) -> None:
        """Takes over a job that another executor runs or ran as soon as that one's lease is free."""
        if job_id in self._adopting or job_id in self._runs:
            return
        task = asyncio.create_task(self._wait_and_adopt(database, job_id))
        self._adopting[job_id] = task
        task.add_done_callback(lambda _: self._adopting.pop(job_id, None))

    async def _wait_and_adopt(self, database: _Database, job_id: str) -> None:
        try:
            job = database.jobs.get(job_id)
            if job is not None:
                await self._until_free(job)
            await self._reload(database)
            job = database.jobs.get(job_id)
            if job is None or job.state.terminal:
                await self._leases.release(job_id)
            else:
                await self._adopt(job)
        except Exception:  # noqa: BLE001 whoever asks for the job next tries again
            _log.exception("job not taken over", job_id=job_id)

    async def _until_free(self, job: Job) -> None:
        """Waits for the job's lease. Where Redis cannot be asked nobody can prove that the executor is dead: then it is
        waited for longer, and longer with each attempt, so that two that live do not take the job from one another."""
        pause, unknown_since = self._leases.lease_seconds / 3, None
        while (answer := await self._leases.acquire(job.job_id)) is not Answer.OURS:
            now = time.monotonic()
            unknown_since = (unknown_since or now) if answer is Answer.UNKNOWN else None
            patience = self._leases.patience(job.attempt, lost=job.job_id in self._lost)
            if unknown_since is not None and now - unknown_since >= patience:
                return
            if unknown_since == now:
                _log.warning("redis does not say who has a job; it is taken over later", job_id=job.job_id, s=patience)
            await asyncio.sleep(pause)

    async def _adopt(self, job: Job) -> None:
        """Takes over a job whose executor died: from the plan on, as everything finished is found there. Who writes the
        new attempt into history first has it."""
        deaths = job.attempt - job.handed_back
        waited = job.state is JobState.PENDING  # nobody died over it
        job = replace(
            job,
            attempt=job.attempt + 1,
            handed_back=job.handed_back + waited,
            executor=self._id,
            updated_at=time.time(),
        )
        if not same_attempt(await self._save(job), job):
            await self._leases.release(job.job_id)
            return
        if job.state is JobState.CANCELLING:
            await self._end_for_another(replace(job, state=JobState.CANCELLED))
            return
        if deaths >= self._settings.executor.job_attempts_max and not waited:
            message = (
                f"The executor died {deaths} times while it ran this job. What was finished is kept; "
                "run the backfill again once the cause is found."
            )
            error = JobError("Unavailable", "EXECUTOR_LOST", message)
            await self._end_for_another(replace(job, state=JobState.FAILED, error=error))
            return
        run = self._run_of(job)
        run.status.note("state", "taken over from an executor that died or was stopped")
        self._runs[job.job_id] = run
        turn = self._queue.join(job.job_id, job.created_at, always=True)
        self._start(run, self._in_turn(run, turn))

    async def _end_for_another(self, job: Job) -> None:
        """Ends a job that was taken over and is not run. Its last executor may only be frozen."""
        try:
            await begin_attempt(self._services.commits, job)
        except LemanError as error:  # who commits by the same coordinator cannot reach it either
            _log.warning("earlier attempts are not refused", job_id=job.job_id, error=error.message)
        await self._save(replace(job, updated_at=time.time()))
        await self._leases.release(job.job_id)

    async def open_database(self, path: str) -> None:
        """Takes over what a dead executor left."""
        await self._open(path)

    async def _hand_back(self, job: Job) -> None:
        """Notes that the job lost its executor without a death: as often as it takes, it is taken over. Of one that
        waits for its turn its state says so."""
        if job.state.terminal or job.state is JobState.PENDING or self._here(job.job_id) is None:
            return
        try:
            await self._save(replace(job, handed_back=job.handed_back + 1, updated_at=time.time()))
        except Exception:  # noqa: BLE001 stopping goes on: it will count as a death
            _log.exception("job not handed back", job_id=job.job_id)

    async def stop(self) -> None:
        """Lets go of all jobs: another executor takes them over from their checkpoints."""
        self._queue.close()
        await self._requests.stop()
        running = list(self._tasks)
        for job_id in running:
            self._services.local.cancel(job_id)
            self._services.spark.cancel(job_id)
        tasks = [*self._adopting.values(), *self._tasks.values(), *self._unsaved.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(self._hand_back(self._runs[job_id].status.job) for job_id in running))
        for job_id in list(self._runs):
            await self._leases.release(job_id)
        await self._leases.close()
        for database in self._databases.values():
            await database.writer.written()
        self._writers.close()


async def _publish(statuses: Sequence[JobStatus]) -> None:
    for status in statuses:
        await status.publish()
