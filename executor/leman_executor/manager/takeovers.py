"""Take over the jobs of dead executors, and hand this executor's jobs back when it stops.

The executor searches for abandoned jobs, so that they continue even if no caller asks for them. The leases show which
jobs are open and which of these have no owner. If leases were lost, for example because Redis was emptied, the jobs of
registered databases are found in their histories. Any other database is checked when a caller asks for one of its jobs.
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

from leman_core.model.job import AT_REST, OPEN, Job, JobError, JobState, same_attempt
from leman_core.model.keys import id_in_key, job_key
from leman_core.model.service_errors import LemanError, Unavailable
from leman_core.model.view import RefreshSpec
from leman_core.server.database_locations import DatabaseLocations
from leman_executor.coordination.leases import JobLeases, LeaseOutcome
from leman_executor.history.job_index import JobFilter
from leman_executor.jobs.job_run import begin_attempt
from leman_executor.jobs.work_context import NO_ENV, env_lost_error
from leman_executor.manager.job_databases import JobDatabase
from leman_executor.manager.job_supervisor import ManagerDeps, Supervisor

_log = structlog.get_logger(__name__)

T = TypeVar("T")

#: Seconds between two searches of the histories of registered databases.
_HISTORY_SECONDS = 60.0
#: Seconds for which a database is skipped after it could not be read.
_REST_SECONDS = 120.0
#: Maximum seconds for one database, because other databases wait meanwhile. A slower database is skipped.
_PLACE_SECONDS = 20.0


class TakesJobsOver(Protocol):
    """Take over jobs for one executor."""

    async def take_over_abandoned(self, path: str, keys: Iterable[str]) -> None:
        """Take over the abandoned ones of these jobs of a database."""
        ...

    async def left_in(self, path: str) -> list[str]:
        """Return the keys of those open jobs of a database that other executors have."""
        ...


class AbandonedJobs:
    """Search for abandoned jobs, on one event loop.

    Args:
        locations: The registered databases, and the locations where databases may be. Databases at other locations
            belong to other executors.
        clock: Returns the time in seconds.
    """

    def __init__(
        self,
        takeovers: TakesJobsOver,
        leases: JobLeases,
        locations: DatabaseLocations,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._takeovers = takeovers
        self._leases = leases
        self._locations = locations
        self._clock = clock
        self._seen: set[str] = set()
        self._left: dict[str, str] = {}
        self._rests: dict[str, float] = {}

    async def follow(self, seconds: float) -> None:
        """Search the leases every `seconds`, and the histories once a minute, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._again_and_again(self.look_into_histories, _HISTORY_SECONDS))
            group.create_task(self._again_and_again(self.look, seconds))

    async def _again_and_again(self, look: Callable[[], Awaitable[None]], seconds: float) -> None:
        while True:
            try:
                await look()
            except Exception:  # noqa: BLE001 - retried at the next search
                _log.exception("the search for abandoned jobs failed")
            await asyncio.sleep(seconds)

    async def look(self) -> None:
        """Take over the jobs that had no owner in this search and in the previous one.

        Two searches are needed because an executor that renews a lease too late acquires it again when it notices.
        """
        noted = await self._leases.open_jobs()
        candidates = self._left | (noted or {})
        free = None if noted is None else await self._leases.without_holder(candidates)
        if free is None:  # without Redis, dead executors cannot be recognized
            self._seen.clear()
            return
        abandoned, self._seen = _by_place(candidates, free & self._seen), free
        await asyncio.gather(*(self._take_over(place, keys) for place, keys in abandoned.items()))

    async def look_into_histories(self) -> None:
        """Find open jobs of registered databases whose leases Redis may have lost."""
        try:
            known = await asyncio.to_thread(self._locations.registrations)
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
        """Run `work` for one database. If it fails or takes too long, skip the database for a while."""
        if self._is_at_rest(place):
            return None
        try:
            self._locations.roots.check(place)
            async with asyncio.timeout(_PLACE_SECONDS):
                return await work()
        except (LemanError, TimeoutError) as error:
            _log.warning(
                "the search for jobs of a database failed", database=place, error=str(error) or "it takes long"
            )
        except Exception:  # noqa: BLE001 - the other databases must still be searched
            _log.exception("the search for jobs of a database failed", database=place)
        self._rests[place] = self._clock() + _REST_SECONDS
        return None

    def _is_at_rest(self, place: str) -> bool:
        return self._clock() < self._rests.get(place, float("-inf"))


def _by_place(jobs: dict[str, str], wanted: Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for key in sorted(wanted):
        found[jobs[key]].append(key)
    return found


#: Number of jobs whose costs are read before the event loop serves other calls.
_LEARNT = 1000
_PAUSING = frozenset({JobState.PAUSING, JobState.PAUSED})


class Takeovers:
    """Take over and hand back the jobs of one executor, on one event loop.

    `waiting` has, by key, jobs of other executors for whose leases this executor waits.
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
        """Return a database whose history has been read.

        Args:
            take_over: On the first call with True, take over the jobs that a dead executor left.
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
        """Take over a job of another executor once its lease is free."""
        key = job_key(database.path, job_id)
        if key in self.waiting or self._is_ours(key):
            return
        task = asyncio.create_task(self._wait_and_adopt(database, job_id))
        self.waiting[key] = task
        task.add_done_callback(lambda _: self.waiting.pop(key, None))

    def _is_ours(self, key: str) -> bool:
        """Return whether this executor runs the job, or has ended it and has not yet written the end to the history."""
        return key in self._running.runs or key in self._store.unsaved

    async def take_over_abandoned(self, path: str, keys: Iterable[str]) -> None:
        """Take over the abandoned ones of these jobs of a database.

        Raises:
            LemanError: The database cannot be read.
        """
        database = await self.open(path, take_over=False)
        await database.reload()
        for key in keys:
            self.take_over_when_free(database, id_in_key(key))

    async def left_in(self, path: str) -> list[str]:
        """Return the keys of a database's open jobs that other executors have. If there is no other executor, take
        these jobs over instead.

        Raises:
            LemanError: The database cannot be read.
        """
        database = await self.open(path, take_over=self._leases.is_alone)
        await database.reload()
        found, _ = database.jobs.listed(JobFilter(states=OPEN))
        keys = (job_key(path, job.job_id) for job in found)
        return [key for key in keys if key not in self._running.runs]

    async def finish(self, job: Job) -> None:
        """If the history already names this executor as the owner of the job, wait until the takeover is finished."""
        task = self.waiting.get(job.key)
        if task is not None and job.executor == self._supervisor.executor_id:
            await asyncio.wait((task,))

    async def _wait_and_adopt(self, database: JobDatabase, job_id: str) -> None:
        key, told = job_key(database.path, job_id), False
        try:
            while (doubt := await self._look(database, job_id)) is not None:
                if not told:
                    _log.warning("a job cannot be taken over yet", job_id=job_id, why=doubt.message)
                told = True
                await asyncio.sleep(self._leases.lease_seconds / 3)
        except LemanError as error:  # the next request for the job or the next search retries
            _log.warning("a job could not be taken over", job_id=job_id, error=str(error))
        except Exception:  # noqa: BLE001 retried likewise
            _log.exception("a job could not be taken over", job_id=job_id)
        else:
            return
        if not self._is_ours(key):
            await self._leases.release(key)

    async def _look(self, database: JobDatabase, job_id: str) -> Unavailable | None:
        """Take over a job once its lease is free, and return None.

        If the values of the job's environment variables cannot be read now, leave the job for the next search, and
        return the reason.
        """
        key, job = job_key(database.path, job_id), database.jobs.get(job_id)
        if job is not None:
            await self._until_free(job)
        else:
            await self._leases.acquire(key, database.path)  # also removes the entry of an earlier release
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
        """Return whether a job may run again after it was taken over."""
        return job.state is not JobState.CANCELLING and not self._is_deadly(job)

    def _is_deadly(self, job: Job) -> bool:
        """Return whether too many executors died while they ran the job (not while it was queued or paused)."""
        if job.state in AT_REST or job.state in _PAUSING:
            return False
        return _deaths(job) >= self._services.settings.executor.job_attempts_max

    async def _until_free(self, job: Job) -> None:
        """Wait until the job's lease is free.

        While Redis is unavailable, it is unknown whether the owner is dead. The wait is then longer, and grows with
        each attempt, so that two live executors do not repeatedly take the job from each other.
        """
        pause, unknown_since = self._leases.lease_seconds / 3, None
        while (answer := await self._leases.acquire(job.key, job.request.database)) is not LeaseOutcome.OURS:
            now = time.monotonic()
            unknown_since = (unknown_since or now) if answer is LeaseOutcome.UNKNOWN else None
            patience = self._leases.patience(job.attempt, lost=self._running.was_lost(job.key))
            if unknown_since is not None and now - unknown_since >= patience:
                return
            if unknown_since == now:
                _log.warning(
                    "the owner of a job cannot be read from redis; it is taken over later",
                    job_id=job.job_id,
                    s=patience,
                )
            await asyncio.sleep(pause)

    async def _adopt(self, orphan: Job, env: Mapping[str, str] | None) -> None:
        """Take over a job whose executor has died. A new plan finds all finished work.

        The first executor that writes the new attempt to the history owns the job.

        Args:
            env: The values of the job's environment variables; None if they are lost.
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
        """End a job that was taken over and cannot run again.

        Before that, fence the job's earlier attempts, because its last executor may be suspended instead of dead.
        """
        async with self._leases.kept(job.key):
            try:
                await begin_attempt(self._services.commits, job)
            except LemanError as error:  # then the suspended executor cannot reach its coordinator either
                _log.warning("earlier attempts could not be fenced", job_id=job.job_id, error=error.message)
            self._running.measured.begin(job)
            now = time.time()
            kept = await self._store.save(replace(job, updated_at=now, ended_at=now))
        if job.key not in self._store.unsaved:
            await self._leases.release(job.key, ended=kept.state.terminal)
            await self._env_values.forget(job.key)

    async def _with_stored(self, job: Job) -> Job:
        """Return an abandoned job with its number of stored rows. Its next plan counts these as done."""
        before = job.progress
        if isinstance(job.request, RefreshSpec) or not before.rows_planned:
            return job
        try:
            left = (await self._services.planner.create_plan(job.request)).header.rows_to_compute
        except LemanError as error:
            _log.warning("the stored rows of a job cannot be counted", job_id=job.job_id, error=error.message)
            return job
        stored = max(before.rows_checkpointed, before.rows_planned - left)
        computed = max(before.rows_computed, stored - before.rows_failed)
        return replace(job, progress=replace(before, rows_checkpointed=stored, rows_computed=computed))

    async def hand_back(self, job: Job) -> None:
        """Record that a running job loses its executor because the executor stops. The number of takeovers for this
        reason is not limited.

        Queued and paused jobs need no record, because their state shows that no executor died while it ran them.
        """
        if job.state.terminal or job.state in AT_REST or self._running.run_of(job) is None:
            return
        try:
            await self._store.save(replace(job, handed_back=job.handed_back + 1, updated_at=time.time()))
        except Exception:  # noqa: BLE001 stopping continues; this will count as a death
            _log.exception("a job could not be handed back", job_id=job.job_id)


def _deaths(job: Job) -> int:
    return job.attempt - job.handed_back


def _executor_lost(deaths: int) -> JobError:
    message = (
        f"The executor died {deaths} times while it ran this job. Finished work is kept; "
        "run the backfill again once you have found the cause."
    )
    return JobError(kind="Unavailable", reason="EXECUTOR_LOST", message=message)
