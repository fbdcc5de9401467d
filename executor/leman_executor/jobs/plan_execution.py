"""Execute one plan: workers compute its units, and finished fragments are committed.

A fragment is committed when all its rows are computed, which may take hours with a slow function. Until then, its
stored rows are committed as partial files, so that a long job shows its results. The first such commit comes after some
seconds, the next ones at intervals that double. A job that takes a day makes a dozen partial commits. A short job makes
none, nor does a job that finishes fragments at least as often.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import structlog

from leman._format.stored_functions import UdfKind
from leman_core.model.plan import CheckpointRef, FragmentTask, Plan, PlanHeader, StagedFile
from leman_core.model.plan_columns import planned_tasks
from leman_core.model.row_positions import count_offsets, merge_ranges
from leman_core.model.service_errors import LemanError, Unavailable
from leman_core.model.work import WorkContext
from leman_executor.jobs.async_helpers import ignore_result, run_all_or_raise
from leman_executor.jobs.commit_cadence import CommitCadence
from leman_executor.jobs.committer import Committer, PartialFile, RetainedReservations
from leman_executor.jobs.job_environment import CheckpointMaintenance, JobEnvironment, task_slots_for
from leman_executor.jobs.job_status import JobStatus
from leman_executor.jobs.unit_source import PlanUnits
from leman_executor.jobs.work_context import RenewedStores, work_context
from leman_executor.scheduling.crash_tracker import CrashTracker, ServerBreaks
from leman_executor.scheduling.dispatcher import ExecutorEndpoint
from leman_executor.scheduling.stalls import ReservationWaits, WorkerWatch
from leman_executor.scheduling.task_slots import TaskSlots
from leman_executor.scheduling.work_queue import WorkQueue

_log = structlog.get_logger(__name__)

#: The maximum share of a job's time that writing partial files may take, and the assumed writing speed in bytes per
#: second.
_SHARE, _BYTES_A_SECOND = 0.05, 200 << 20
#: If the request sets `commit_rows`: the minimum seconds between two commits, and between two checks.
_LEAST_PAUSE_SECONDS, _LOOK_SECONDS = 1.0, 0.5
#: Maximum number of fragments in one commit.
_MOST_FRAGMENTS = 256


class PartialCadence:
    """Decide when stored rows of unfinished fragments are committed. Pure: no I/O, no clock.

    Args:
        first_seconds: The first partial commit follows after this many seconds without a commit; 0 for no partial
            commits.
        rows: Number of rows of each commit, if the request sets it; 0 leaves the choice to this class.
    """

    def __init__(self, first_seconds: float, rows: int = 0) -> None:
        self._interval = _LEAST_PAUSE_SECONDS if rows and first_seconds else first_seconds
        self._rows = rows
        self._last_cost = 0.0

    @property
    def never(self) -> bool:
        """Return True if there are no partial commits."""
        return not self._interval

    def left(self, since_last: float, stored_bytes: int, new_rows: int) -> float:
        """Return the seconds until the next commit, or until `left` should be called again.

        Args:
            since_last: Seconds since the plan's last commit or, before that, since it began.
            stored_bytes: Number of bytes that the plan has stored so far.
            new_rows: Number of rows that a commit would add to the previous one.
        """
        if new_rows < self._rows:
            return _LOOK_SECONDS
        cost = max(self._last_cost, stored_bytes / _BYTES_A_SECOND)
        return max(self._interval, cost / _SHARE) - since_last

    def committed(self, seconds: float) -> None:
        """Record how long it took to write the files of a commit."""
        self._last_cost = seconds
        if not self._rows:
            self._interval *= 2


class PartialCommits:
    """Make the partial commits of one plan."""

    def __init__(
        self,
        context: WorkContext,
        maintenance: CheckpointMaintenance,
        committer: Committer,
        cadence: PartialCadence,
        units: PlanUnits,
    ) -> None:
        self._context = context
        self._maintenance = maintenance
        self._committer = committer
        self._cadence = cadence
        self._units = units
        #: By fragment, the rows in its last partial file.
        self._shown: dict[int, _Part] = {}

    @staticmethod
    def are_for(header: PlanHeader) -> bool:
        """Return whether a plan's unfinished fragments can be committed.

        They cannot be committed if the job has a filter or is a retry. Such a job also leaves out rows that it will
        never compute, and a partial file could not tell these from rows that are still to be computed.
        """
        return not (header.where or header.failed_only or header.inputs_version or header.input_source is not None)

    @property
    def never(self) -> bool:
        """Return True if there are no partial commits."""
        return self._cadence.never

    async def run(self, until: asyncio.Future[None]) -> None:
        """Make partial commits at intervals until `until` ends. A failure ends the partial commits, but not the job."""
        while not (self._cadence.never or until.done()):
            new_rows = sum(part.new_rows for part in self._parts())
            since_last = self._committer.seconds_since_last
            left = self._cadence.left(since_last, self._units.stored_bytes, new_rows)
            left = max(left, self._committer.pause_seconds - since_last)
            if left > 0:
                await asyncio.wait((until,), timeout=left)
                continue
            try:
                await self._commit(until)
            except LemanError as error:
                _log.warning("partial commits ended: rows become visible with their fragments", error=error.message)
                return

    async def _commit(self, until: asyncio.Future[None]) -> None:
        """Write and commit the files of those fragments that have the most new rows."""
        begin = time.monotonic()
        made: list[PartialFile] = []
        for part in self._parts()[:_MOST_FRAGMENTS]:
            staged = await self._written(part, until)
            if until.done():
                return
            if staged is not None:
                made.append(PartialFile(part.task, staged))
                self._shown[part.task.fragment_id] = part
        self._cadence.committed(time.monotonic() - begin)
        if made:
            await self._committer.commit_partial(made)

    async def _written(self, part: _Part, until: asyncio.Future[None]) -> StagedFile | None:
        """Write a file in a thread. The thread stops soon after the plan ends."""
        stop = threading.Event()
        refs = list(part.checkpoints.values())
        writing = asyncio.ensure_future(self._maintenance.write_partial(self._context, part.task, refs, stop))
        try:
            await asyncio.wait((writing, until), return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not writing.done():
                stop.set()
        return await writing

    def _parts(self) -> list[_Part]:
        """Return the fragments with rows that their last partial file does not have, those with the most first."""
        found = []
        for fragment_id, (task, refs) in self._units.stored().items():
            if not self._committer.takes_partial(fragment_id) or (task.current_file and not task.extend_current):
                continue  # keep a file of another version until all rows have new values
            before = self._shown.get(fragment_id)
            every = dict(before.checkpoints) if before is not None else {}
            every |= {ref.key: ref for ref in refs if ref.settles}
            rows = count_offsets(merge_ranges(ref.range for ref in every.values()))
            new = rows - (before.rows if before is not None else 0)
            if new > 0 and rows < task.physical_rows:
                found.append(_Part(task, every, rows, new))
        return sorted(found, key=lambda part: (-part.new_rows, part.task.fragment_id))


@dataclass(frozen=True, slots=True)
class _Part:
    """The stored rows of a fragment, by checkpoint key, and the number of rows that no partial file has."""

    task: FragmentTask
    checkpoints: Mapping[str, CheckpointRef]
    rows: int
    new_rows: int


class WorkerFleet:
    """Start, replace and await the workers of one plan. `units` gives them work."""

    def __init__(
        self,
        status: JobStatus,
        services: JobEnvironment,
        context: WorkContext,
        slots: TaskSlots,
        units: PlanUnits,
    ) -> None:
        self._status = status
        self._services = services
        self._context = context
        self._profile = slots.profile
        self._units = units
        self._count = slots.count
        self._missing = 0
        self._replaced = 0
        self._begun: asyncio.Future[None] | None = None

    def begin(self, address: ExecutorEndpoint) -> None:
        """Start the workers that `until_end` awaits."""
        self._begun = self._start(address, self._count)

    def grow(self, count: int) -> None:
        """Change the number of workers."""
        self._missing += max(0, count - self._count)
        self._count = max(self._count, count)
        self._units.changed.set()

    async def until_end(self, address: ExecutorEndpoint) -> Unavailable | None:
        """Run workers until no unit is left, all workers have ended, or the failure of a unit ends the job.

        Returns:
            The error if Spark gave up on a worker, else None. The error may fail the job only if no worker has
            requested a unit yet. Later deaths are counted for each unit instead.
        """
        begun, self._begun = self._begun, None
        workers = {begun or self._start(address, self._count)}
        self._missing, self._replaced = 0, self._units.silent_workers
        refused: Unavailable | None = None
        while workers:
            await self._something(workers)
            if self._units.failure.done():
                for worker in workers:
                    worker.cancel()
                self._units.failure.result()
            if self._units.worked_off and self._context.udf.kind is not UdfKind.SQL:
                await self._leave(workers)
                return None
            if more := self._to_start():
                workers.add(self._start(address, more))
            for worker in {worker for worker in workers if worker.done()}:
                workers.remove(worker)
                refused = self._refusal(worker) or refused
        return refused

    def _to_start(self) -> int:
        """Return how many workers to start, to use new cores of the cluster and to replace silent workers."""
        silent = self._units.silent_workers
        more = self._missing + silent - self._replaced
        self._missing, self._replaced = 0, silent
        return more

    def _start(self, address: ExecutorEndpoint, count: int) -> asyncio.Future[None]:
        """Start workers: in this process if no user code runs, else on Spark."""
        work: Awaitable[None]
        if self._context.udf.kind is UdfKind.SQL:
            work = self._services.local.run_workers(self._units, self._context, count)
        else:
            self._status.metrics.spark_jobs += 1
            additional = bool(self._units.handed_out)
            work = self._services.spark.run_workers(address, self._context, count, self._profile, additional=additional)
        workers = asyncio.ensure_future(work)
        workers.add_done_callback(ignore_result)
        return workers

    async def _something(self, workers: set[asyncio.Future[None]]) -> None:
        """Wait until a worker ends, one should be started, the work is done, or the failure of a unit ends the job."""
        changed = asyncio.ensure_future(self._units.changed.wait())
        either: list[asyncio.Future[Any]] = [*workers, self._units.failure, changed]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            changed.cancel()
        self._units.changed.clear()

    async def _leave(self, workers: set[asyncio.Future[None]]) -> None:
        if self._units.silent_workers:  # do not wait for silent workers
            await self._services.spark.stop_job(self._status.job.key)
        for worker in workers:
            worker.cancel()  # no worker has a unit, so the Spark job ends by itself
        await asyncio.gather(*workers, return_exceptions=True)

    def _refusal(self, worker: asyncio.Future[None]) -> Unavailable | None:
        try:
            worker.result()
        except Unavailable as error:
            self._status.note("error", error.message)
            return error
        return None


#: The reason that a refusal has if another writer of the column committed first.
_FASTER = "FRAGMENT_CHANGED"
#: Maximum number of times that Spark may give up on a worker before any worker has requested a unit.
_FRUITLESS = 3


@dataclass(frozen=True, slots=True)
class UnsettledReasons:
    """Why a part of a plan is not committed."""

    waiting: int
    """Number of fragments that another job has reserved, if nothing else prevents progress."""
    why: str
    """The refusal or failure, as a text."""
    unusable: bool = False
    """Whether some of the refused files would have been refused even if the table had not changed."""
    overtaken: bool = False
    """Whether all refusals say that another writer of the same column committed first."""
    failing: bool = False
    """Whether files could not be read or written."""


class PlanExecution:
    """The execution of one plan of a job.

    Args:
        services: The interfaces to other parts of the executor, and the settings.
        cost: The cost of a row in seconds; None if unknown.
        waits: The waits of the job for reservations of other jobs.
        is_scratch: Whether the table is a scratch table, which has no readers while the job runs.
    """

    def __init__(
        self,
        status: JobStatus,
        plan: Plan,
        services: JobEnvironment,
        cost: float | None,
        waits: ReservationWaits,
        *,
        is_scratch: bool = False,
    ) -> None:
        self._status = status
        self._plan = plan
        self._services = services
        settings, spec = services.settings, status.job.backfill
        self._slots = self._usable_slots()
        self._work_queue = WorkQueue(
            plan.tasks,
            self._slots.count,
            seconds_per_row=cost,
            task_size=spec.task_size,
            diversity=spec.task_shuffle_diversity,
            first_unit=status.metrics.units,
        )
        self._context: WorkContext = work_context(status.job, plan.header, settings, waits.dead, status.env)
        self._left = RetainedReservations(services.reservations, self._context)
        cadence = CommitCadence(
            granularity=spec.commit_granularity,
            planned=len(plan.tasks),
            interval_seconds=settings.executor.commit_interval_seconds,
            longest_seconds=settings.executor.commit_interval_max_seconds,
            input_fields=len(plan.header.input_field_ids),
        )
        self._committer = Committer(services.commits, plan, status, self._left, cadence)
        crashes = CrashTracker()
        is_remote = plan.header.udf.kind is UdfKind.REMOTE
        writer = settings.writer
        self._watch = WorkerWatch(writer.stall_idle_checks, writer.stall_check_seconds, crashes, is_remote=is_remote)
        self._units = PlanUnits(
            status,
            plan,
            work_queue=self._work_queue,
            committer=self._committer,
            left=self._left,
            waits=waits,
            watch=self._watch,
            crashes=crashes,
        )
        if self._context.udf.remote is not None:
            patience = self._context.udf.remote.patience_seconds
            self._units.server_breaks = ServerBreaks(f"{plan.header.udf.name}@{plan.header.udf.version}", patience)
        self._units.stores = RenewedStores.of(plan.header, spec.database, self._context.stores)
        seconds = settings.executor.partial_commit_seconds
        if is_scratch or (spec.commit_granularity and not spec.commit_rows) or not PartialCommits.are_for(plan.header):
            seconds = 0.0
        self._partial = PartialCommits(
            self._context,
            services.checkpoints,
            self._committer,
            PartialCadence(seconds, spec.commit_rows),
            self._units,
        )
        self._fleet = WorkerFleet(status, services, self._context, self._slots, self._units)
        self._computed = False
        self._busy = ""
        self._address: ExecutorEndpoint | None = None

    @property
    def plan(self) -> Plan:
        return self._plan

    @property
    def commits_partial_files(self) -> bool:
        """Return whether rows may be committed before their fragments are finished."""
        return not self._partial.never

    def begin(self) -> None:
        """Start workers. They get no work until `work` is called. If you do not call `work`, call `abandon`."""
        if self._units.ended:
            return
        self._units.hold()
        self._address = self._services.dispatcher.open(self._status.job.key, self._units, self._context)
        self._fleet.begin(self._address)

    async def abandon(self) -> None:
        """Stop the workers that `begin` started."""
        self._units.close()
        await self._services.stop_workers(self._status.job.key)
        if self._address is not None:
            await self._services.dispatcher.close(self._address)

    async def work(self) -> UnsettledReasons | None:
        """Compute and commit the plan. Return why a part is not committed, or None if everything is committed."""
        own = 0 if self._address is None else 1
        if self._slots.note and self._status.metrics.spark_jobs == own:
            self._status.note("resources", self._slots.note)
        self._units.begin()
        self._collect_staged()
        committing = asyncio.create_task(self._committer.run())
        try:
            work = self._compute(), self._watch_workers(committing), self._left.keep_until(committing)
            await run_all_or_raise(*work, self._partial.run(committing), asyncio.shield(committing))
        except BaseException:
            await self._services.stop_workers(self._status.job.key)
            await self._left.give_all_back(self._scopes_out())
            await self._end_commits(committing)
            raise
        finally:
            self._status.metrics.units = self._work_queue.units_made
            self._status.update(stalls=())
            if self._committer.version:
                self._status.update(table_version=self._committer.version)
        await self._left.give_back_scopes(self._scopes_out())
        return self._unsettled(unusable=await self._forget_unusable())

    def _scopes_out(self) -> list[str]:
        """Return the scopes in which workers may still have reservations."""
        return [self._context.scope(values) for values in self._work_queue.scopes_out]

    def stop(self) -> None:
        """Let `work` end soon: workers store computed rows and return all other rows, and finished files are
        committed.
        """
        self._units.stop()
        self._services.stop_units(self._status.job.key)

    def _unsettled(self, *, unusable: bool) -> UnsettledReasons | None:
        stopped = self._units.stopping and not self._work_queue.empty
        rejected = [f"{outcome.reason}: {outcome.message}" for outcome in self._committer.rejected]
        trouble, waiting = self._units.trouble, self._work_queue.busy_fragments
        if not (rejected or waiting or trouble or stopped):
            return None
        why = "; ".join(list(dict.fromkeys([*trouble, *rejected]))[:3])
        overtaken = self._units.cleaned_up and all(outcome.reason == _FASTER for outcome in self._committer.rejected)
        pending = 0 if rejected or trouble else waiting
        return UnsettledReasons(pending, why, unusable=unusable, overtaken=overtaken, failing=bool(trouble))

    async def _end_commits(self, committing: asyncio.Future[None]) -> None:
        """Commit the finished files of a job that ends early, unless another executor has taken the job over."""
        if self._status.lost:
            committing.cancel()
            await asyncio.gather(committing, return_exceptions=True)
            return
        self._committer.close()
        with contextlib.suppress(LemanError):
            await committing

    def _collect_staged(self) -> None:
        tasks = planned_tasks(self._plan.tasks)
        staged, reused = tasks.staged, tasks.from_checkpoints
        if staged or reused:
            rows = staged.live_rows
            told = [f"Collected {len(staged)} checkpointed fragments with {rows} rows"] if staged else []
            told += [f"{reused} {'continues' if reused == 1 else 'continue'} from checkpoints"] if reused else []
            self._status.note("collected", "; ".join(told) if staged else f"Fragments: {told[0]}")
        for task in staged:
            if task.staged is not None:
                self._committer.add(task, task.staged)

    async def _compute(self) -> None:
        """Run workers until no work is left.

        Spark restarts a worker that died. If Spark gives up on a worker, all workers are restarted, but only a few
        times if none of them requests work.
        """
        opened = self._services.dispatcher.open
        address = self._address or opened(self._status.job.key, self._units, self._context)
        try:
            fruitless = 0
            while not self._units.ended:
                handed_out = self._units.handed_out
                refused = await self._fleet.until_end(address)
                fruitless = fruitless + 1 if self._units.handed_out == handed_out else 0
                if refused is not None and fruitless >= _FRUITLESS:
                    raise refused
        finally:
            self._computed = True
            self._units.close()
            await self._services.dispatcher.close(address)
        self._committer.close()

    async def _watch_workers(self, until: asyncio.Future[None]) -> None:
        """Check for stalls every `stall_check_seconds`, until the plan is done."""
        seconds = self._services.settings.writer.stall_check_seconds
        self._tell_busy()
        while not (await asyncio.wait((until,), timeout=seconds))[0]:
            await self._grow_with_cluster()
            self._tell_busy()
            told, news = self._watch.check(self._waits_for())
            for stall in news:
                self._status.note("stall", stall.message)
            self._status.update(stalls=tuple(told))
            self._units.reassign_silent()

    async def _grow_with_cluster(self) -> None:
        """Add workers if the cluster has grown, because some of Spark's executors start only after the job."""
        slots = await asyncio.to_thread(self._usable_slots)
        if slots.count > self._slots.count and not self._computed:
            self._status.note("resources", f"{slots.count} workers from now on: the cluster has more cores than before")
            self._slots = slots
            self._work_queue.spread(slots.count)
            self._fleet.grow(slots.count)

    def _usable_slots(self) -> TaskSlots:
        """Return the task slots of the job: at most one for each row to compute or file to write."""
        found = task_slots_for(self._plan.header.udf, self._status.job.backfill.concurrency, self._services)
        useful = max(1, self._plan.header.rows_to_compute, len(self._plan.tasks))
        return replace(found, count=min(found.count, useful))

    @property
    def _spark_busy(self) -> str:
        return self._services.spark.busy_for(self._status.job.key)

    def _tell_busy(self) -> None:
        is_sql = self._context.udf.kind is UdfKind.SQL
        busy = "" if is_sql or self._units.with_workers or self._computed else self._spark_busy
        if busy and busy != self._busy:
            self._status.note("wait", f"the job waits for workers: {busy}")
        self._busy = busy

    def _waits_for(self) -> dict[str, object]:
        """Return descriptions of what the job waits for except workers, each with a value that changes on progress."""
        waits = self._committer.waits_for
        if not (self._computed or self._work_queue.empty or self._units.with_workers):
            why = self._spark_busy or "Spark may have no free slots"
            waits[f"no worker has asked for work: {why}"] = self._units.handed_out
        return waits

    async def _forget_unusable(self) -> bool:
        """Delete the records of files that were refused because they are damaged, missing or incomplete, so that no
        plan finds these files. Return whether there were any.
        """
        tasks = planned_tasks(self._plan.tasks)
        unusable = [o for o in self._committer.rejected if o.reason.startswith(("FILE_", "ROW_COUNT", "TYPE_"))]
        for outcome in unusable:
            file = self._committer.files[outcome.fragment_id]
            await self._services.checkpoints.forget_file(
                self._plan.header.uri, tasks.of_fragment(outcome.fragment_id), file
            )
        return bool(unusable)
