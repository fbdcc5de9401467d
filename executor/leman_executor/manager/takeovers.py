"""Jobs change hands: those whose executor died are looked for and taken over, this executor's are handed back.

Jobs that no one has: looked for without being asked, so that a dead executor's jobs go on although no one calls.

The leases say which jobs are open and which of them no one holds. What they forgot, as Redis was emptied, is in the
histories of registered databases; other databases are looked into when someone asks for one of their jobs.

The takeover of jobs whose executor died or was stopped, and the return of this executor's jobs when it stops.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import Protocol, TypeVar

import structlog

from leman_core.model.databases import Registrations
from leman_core.model.job import AT_REST, OPEN, Job, JobError, JobState, same_attempt
from leman_core.model.keys import id_in_key, job_key
from leman_core.model.service_errors import LemanError, Unavailable
from leman_core.model.view import RefreshSpec
from leman_core.storage.database_roots import DatabaseRoots
from leman_executor.coordination.leases import JobLeases, LeaseOutcome
from leman_executor.history.job_index import JobFilter
from leman_executor.jobs.job_run import begin_attempt
from leman_executor.jobs.work_context import NO_ENV, env_lost_error
from leman_executor.manager.job_databases import JobDatabase
from leman_executor.manager.job_supervisor import ManagerDeps, Supervisor

_log = structlog.get_logger(__name__)

T = TypeVar("T")

#: Seconds between two looks into the histories of registered databases.
_HISTORY_SECONDS = 60.0
#: Seconds for which a database is left alone that could not be read.
_REST_SECONDS = 120.0
#: Seconds that one database may take: others wait for it.
_PLACE_SECONDS = 20.0


class TakesJobsOver(Protocol):
    """What takes jobs over."""

    async def take_over_abandoned(self, path: str, keys: Iterable[str]) -> None:
        """Take over jobs of a database that no one has."""
        ...

    async def left_in(self, path: str) -> list[str]:
        """Return the keys of a database's open jobs that are not this executor's."""
        ...


class Registry(Protocol):
    """Where registrations are kept."""

    def read(self) -> Registrations:
        """Return all registrations."""
        ...


class AbandonedJobs:
    """The search of one executor, for one event loop.

    Args:
        registry: None: no database is registered.
        roots: where databases may lie: others are another executor's business.
        clock: returns seconds.
    """

    def __init__(
        self,
        takeovers: TakesJobsOver,
        leases: JobLeases,
        registry: Registry | None,
        roots: DatabaseRoots,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._takeovers = takeovers
        self._leases = leases
        self._registry = registry
        self._roots = roots
        self._clock = clock
        self._seen: set[str] = set()
        self._left: dict[str, str] = {}
        self._rests: dict[str, float] = {}

    async def follow(self, seconds: float) -> None:
        """Look every so many seconds, and once a minute into histories, until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._again_and_again(self.look_into_histories, _HISTORY_SECONDS))
            group.create_task(self._again_and_again(self.look, seconds))

    async def _again_and_again(self, look: Callable[[], Awaitable[None]], seconds: float) -> None:
        while True:
            try:
                await look()
            except Exception:  # noqa: BLE001 - the next look may find what this one did not
                _log.exception("abandoned jobs are not looked for")
            await asyncio.sleep(seconds)

    async def look(self) -> None:
        """Take over the jobs that no one had in this look and in the one before.

        Two looks, as an executor that is late with its lease takes it again when it finds that out.
        """
        noted = await self._leases.open_jobs()
        candidates = self._left | (noted or {})
        free = None if noted is None else await self._leases.without_holder(candidates)
        if free is None:  # then no one can tell whether an executor is dead
            self._seen.clear()
            return
        abandoned, self._seen = _by_place(candidates, free & self._seen), free
        await asyncio.gather(*(self._take_over(place, keys) for place, keys in abandoned.items()))

    async def look_into_histories(self) -> None:
        """Find open jobs of registered databases that other executors have or had: Redis may have forgotten them."""
        if self._registry is None:
            return
        try:
            known = await asyncio.to_thread(self._registry.read)
        except LemanError as error:
            _log.warning("the registry of databases cannot be read", reason=error.reason, error=error.message)
            return
        found: dict[str, str] = {}
        for root in sorted({database.root for database in known.by_name.values()}):
            left = await self._of_place(root, functools.partial(self._takeovers.left_in, root))
            found |= dict.fromkeys(left or (), root)
        self._left = found

    async def _take_over(self, place: str, keys: list[str]) -> None:
        await self._of_place(place, functools.partial(self._takeovers.take_over_abandoned, place, keys))
        for key in keys:
            self._left.pop(key, None)

    async def _of_place(self, place: str, work: Callable[[], Awaitable[T]]) -> T | None:
        """Do what is about one database; where that fails or takes long, it is left alone for a while."""
        if self._is_at_rest(place):
            return None
        try:
            self._roots.check(place)
            async with asyncio.timeout(_PLACE_SECONDS):
                return await work()
        except (LemanError, TimeoutError) as error:
            _log.warning("jobs of a database are not looked for", database=place, error=str(error) or "it takes long")
        except Exception:  # noqa: BLE001 - others are looked at all the same
            _log.exception("jobs of a database are not looked for", database=place)
        self._rests[place] = self._clock() + _REST_SECONDS
        return None

    def _is_at_rest(self, place: str) -> bool:
        return self._clock() < self._rests.get(place, float("-inf"))


def _by_place(jobs: dict[str, str], wanted: Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for key in sorted(wanted):
        found[jobs[key]].append(key)
    return found


#: Jobs that are learnt from at once: then other calls have their turn.
_LEARNT = 1000
_PAUSING = frozenset({JobState.PAUSING, JobState.PAUSED})


class Takeovers:
    """The takeovers of one executor, for one event loop.

    `waiting`: jobs of other executors whose lease is waited for, by key.
    """

    def __init__(self, shared: ManagerDeps, supervisor: Supervisor) -> None:
        self._services = shared.services
        self._databases = shared.databases
        self._running = shared.running
        self._store = shared.store
        self._supervisor = supervisor
        self._leases = shared.leases
        self._env_values = shared.env_values
        self.waiting: dict[str, asyncio.Task[None]] = {}

    async def open(self, path: str, *, take_over: bool = True) -> JobDatabase:
        """Return a database with its history read.

        Args:
            take_over: When it is opened so first, jobs that a dead executor left are taken over.
        """
        database = self._databases.at(path)
        if not database.loaded:
            async with database.opened:
                await self._load(database)
        if take_over and not database.waited_for:
            database.waited_for = True
            open_jobs, _ = database.jobs.listed(JobFilter(states=OPEN))
            for job in reversed(open_jobs):
                self.take_over_when_free(database, job.job_id)
        return database

    async def _load(self, database: JobDatabase) -> None:
        if database.loaded:
            return
        await database.reload()
        database.loaded = True
        database.look_ahead()
        for count, job in enumerate(database.jobs):
            self._supervisor.costs.learn(job, job.seconds_per_row)
            if not count % _LEARNT:
                await asyncio.sleep(0)

    def take_over_when_free(self, database: JobDatabase, job_id: str) -> None:
        """Take over a job that another executor runs or ran, as soon as that one's lease is free."""
        key = job_key(database.path, job_id)
        if key in self.waiting or self._is_ours(key):
            return
        task = asyncio.create_task(self._wait_and_adopt(database, job_id))
        self.waiting[key] = task
        task.add_done_callback(lambda _: self.waiting.pop(key, None))

    def _is_ours(self, key: str) -> bool:
        """Return whether this executor runs the job, or has its end, which history does not have yet."""
        return key in self._running.runs or key in self._store.unsaved

    async def take_over_abandoned(self, path: str, keys: Iterable[str]) -> None:
        """Take over jobs of a database that no one has.

        Raises:
            LemanError: the database cannot be read.
        """
        database = await self.open(path, take_over=False)
        await database.reload()
        for key in keys:
            self.take_over_when_free(database, id_in_key(key))

    async def left_in(self, path: str) -> list[str]:
        """Return the keys of a database's open jobs that are not this executor's; where it is alone it takes them over.

        Raises:
            LemanError: the database cannot be read.
        """
        database = await self.open(path, take_over=self._leases.is_alone)
        await database.reload()
        found, _ = database.jobs.listed(JobFilter(states=OPEN))
        keys = (job_key(path, job.job_id) for job in found)
        return [key for key in keys if key not in self._running.runs]

    async def finish(self, job: Job) -> None:
        """Wait for the end of the job's takeover, where history has it already as this executor's."""
        task = self.waiting.get(job.key)
        if task is not None and job.executor == self._supervisor.executor_id:
            await asyncio.wait((task,))

    async def _wait_and_adopt(self, database: JobDatabase, job_id: str) -> None:
        key, told = job_key(database.path, job_id), False
        try:
            while (doubt := await self._look(database, job_id)) is not None:
                if not told:
                    _log.warning("a job is not taken over yet", job_id=job_id, why=doubt.message)
                told = True
                await asyncio.sleep(self._leases.lease_seconds / 3)
        except LemanError as error:  # anyone who asks for the job next tries again, or looks for jobs that no one has
            _log.warning("job not taken over", job_id=job_id, error=str(error))
        except Exception:  # noqa: BLE001 likewise
            _log.exception("job not taken over", job_id=job_id)
        else:
            return
        if not self._is_ours(key):
            await self._leases.release(key)

    async def _look(self, database: JobDatabase, job_id: str) -> Unavailable | None:
        """Take over a job once its lease is free, and return None.

        Where no one can tell the values of its environment now, leave it as it is, for anyone who looks next, and
        return why.
        """
        key, job = job_key(database.path, job_id), database.jobs.get(job_id)
        if job is not None:
            await self._until_free(job)
        else:
            await self._leases.acquire(key, database.path)  # an earlier release's note of it ends with that
        await database.reload()
        job = database.jobs.get(job_id)
        if job is None or job.state.terminal:
            await self._leases.release(key, ended=True)
            await self._env_values.forget(key)
            return None
        try:
            env = await self._env_values.find(key) if job.env_names and self._goes_on(job) else NO_ENV
        except Unavailable as error:
            await self._leases.release(key)
            return error
        await self._adopt(job, env)
        return None

    def _goes_on(self, job: Job) -> bool:
        """Return whether a job that is taken over is run again, or may be."""
        return job.state is not JobState.CANCELLING and not self._is_deadly(job)

    def _is_deadly(self, job: Job) -> bool:
        """Return whether too many executors have died over a job; over one that is at rest no one did."""
        if job.state in AT_REST or job.state in _PAUSING:
            return False
        return _deaths(job) >= self._services.settings.executor.job_attempts_max

    async def _until_free(self, job: Job) -> None:
        """Wait for the job's lease.

        While Redis cannot be asked, no one can prove that the executor is dead: then the wait is longer, and longer
        with each attempt, so that two executors that live do not take the job from one another.
        """
        pause, unknown_since = self._leases.lease_seconds / 3, None
        while (answer := await self._leases.acquire(job.key, job.request.database)) is not LeaseOutcome.OURS:
            now = time.monotonic()
            unknown_since = (unknown_since or now) if answer is LeaseOutcome.UNKNOWN else None
            patience = self._leases.patience(job.attempt, lost=self._running.was_lost(job.key))
            if unknown_since is not None and now - unknown_since >= patience:
                return
            if unknown_since == now:
                _log.warning("redis does not say who has a job; it is taken over later", job_id=job.job_id, s=patience)
            await asyncio.sleep(pause)

    async def _adopt(self, orphan: Job, env: Mapping[str, str] | None) -> None:
        """Take over a job whose executor died: from the plan on, as everything finished is found there.

        The executor that writes the new attempt into history first has the job.

        Args:
            env: the values of its environment; None: they are lost.
        """
        pausing = orphan.state in _PAUSING
        job = replace(
            orphan,
            attempt=orphan.attempt + 1,
            handed_back=orphan.handed_back + (orphan.state in AT_REST),
            executor=self._supervisor.executor_id,
            state=JobState.PAUSED if pausing else orphan.state,
            updated_at=time.time(),
        )
        if not same_attempt(await self._store.save(job), job):
            await self._leases.release(job.key)
            return
        if job.state is JobState.CANCELLING:
            await self._end_for_another(replace(job, state=JobState.CANCELLED))
            return
        if self._is_deadly(orphan):
            job = await self._with_stored(job)
            await self._end_for_another(replace(job, state=JobState.FAILED, error=_executor_lost(_deaths(orphan))))
            return
        if env is None:
            job = await self._with_stored(job)
            lost = env_lost_error(job.job_id, job.env_names, job.progress.rows_checkpointed)
            await self._end_for_another(replace(job, state=JobState.FAILED, error=lost))
            return
        run = self._supervisor.run_of(job, env)
        run.status.note("state", "taken over from an executor that died or was stopped")
        self._running.runs[job.key] = run
        if pausing:
            self._supervisor.start(run, None)
            return
        turn = self._supervisor.join_queue(job, always=True)
        self._supervisor.start(run, self._supervisor.in_turn(run, turn))

    async def _end_for_another(self, job: Job) -> None:
        """End a job that was taken over and is not run.

        Its earlier attempts are refused first, as its last executor may only be frozen.
        """
        async with self._leases.kept(job.key):
            try:
                await begin_attempt(self._services.commits, job)
            except LemanError as error:  # who commits by the same coordinator cannot reach it either
                _log.warning("earlier attempts are not refused", job_id=job.job_id, error=error.message)
            self._running.measured.begin(job)
            now = time.time()
            kept = await self._store.save(replace(job, updated_at=now, ended_at=now))
        if job.key not in self._store.unsaved:
            await self._leases.release(job.key, ended=kept.state.terminal)
            await self._env_values.forget(job.key)

    async def _with_stored(self, job: Job) -> Job:
        """Return an abandoned job with the number of rows that it stored, which a plan counts."""
        before = job.progress
        if isinstance(job.request, RefreshSpec) or not before.rows_planned:
            return job
        try:
            left = (await self._services.planner.create_plan(job.request)).header.rows_to_compute
        except LemanError as error:
            _log.warning("what a job has stored is not known", job_id=job.job_id, error=error.message)
            return job
        stored = max(before.rows_checkpointed, before.rows_planned - left)
        computed = max(before.rows_computed, stored - before.rows_failed)
        return replace(job, progress=replace(before, rows_checkpointed=stored, rows_computed=computed))

    async def hand_back(self, job: Job) -> None:
        """Note that the job lost its executor without a death: such takeovers are not limited.

        For a job that waits for its turn, or is paused, its state says so already.
        """
        if job.state.terminal or job.state in AT_REST or self._running.run_of(job) is None:
            return
        try:
            await self._store.save(replace(job, handed_back=job.handed_back + 1, updated_at=time.time()))
        except Exception:  # noqa: BLE001 stopping goes on: it will count as a death
            _log.exception("job not handed back", job_id=job.job_id)


def _deaths(job: Job) -> int:
    return job.attempt - job.handed_back


def _executor_lost(deaths: int) -> JobError:
    message = (
        f"The executor died {deaths} times while it ran this job. What was finished is kept; "
        "run the backfill again once the cause is found."
    )
    return JobError(kind="Unavailable", reason="EXECUTOR_LOST", message=message)
