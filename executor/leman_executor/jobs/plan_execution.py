"""The execution of one plan: workers compute its units, and finished files are committed."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, replace

from leman_core.model.errors import LemanError
from leman_core.model.plan import Plan
from leman_core.model.task_columns import PlannedTasks
from leman_core.model.udf import UdfKind
from leman_core.model.work import WorkContext
from leman_executor.jobs.async_helpers import all_or_first
from leman_executor.jobs.commit_cadence import CommitCadence
from leman_executor.jobs.committer import Committer
from leman_executor.jobs.job_environment import JobEnvironment, slots_of
from leman_executor.jobs.job_status import JobStatus
from leman_executor.jobs.left_reservations import LeftReservations
from leman_executor.jobs.partial_commits import PartialCadence, PartialCommits
from leman_executor.jobs.unit_source import PlanUnits
from leman_executor.jobs.work_context import RenewedStores, work_context
from leman_executor.jobs.worker_fleet import WorkerFleet
from leman_executor.scheduling.crash_tracker import CrashTracker
from leman_executor.scheduling.dispatcher import ExecutorEndpoint
from leman_executor.scheduling.reservation_waits import ReservationWaits
from leman_executor.scheduling.resources import TaskSlots
from leman_executor.scheduling.server_breaks import ServerBreaks
from leman_executor.scheduling.stalls import WorkerWatch
from leman_executor.scheduling.work_queue import WorkQueue

#: Reason of a refusal where another writer of the column came first.
_FASTER = "FRAGMENT_CHANGED"
#: Times that Spark may give up before a worker has asked for a unit.
_FRUITLESS = 3


@dataclass(frozen=True, slots=True)
class Unsettled:
    """Why something of a plan is left."""

    waiting: int
    """Number of fragments that another job has reserved, where nothing else is in the way."""
    why: str
    """What was refused or failed, for a person."""
    unusable: bool = False
    """Some of the refused files would have been as wrong on a table that nobody changed."""
    overtaken: bool = False
    """All refusals say that another writer of the same column was faster."""
    failing: bool = False
    """Files could not be read or written."""


class PlanExecution:
    """The execution of one plan of a job.

    Args:
        status: The job.
        plan: The plan.
        services: What it uses.
        cost: Seconds that a row takes; None where that is not known.
        waits: The reservations of other jobs that it waits for.
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
        self._left = LeftReservations(services.reservations, self._context)
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
        """Return the plan that is executed."""
        return self._plan

    @property
    def commits_partial_files(self) -> bool:
        """Tell whether rows may be committed before the others of their fragment."""
        return not self._partial.never

    def begin(self) -> None:
        """Start workers, which get nothing to do before `work`; where that is not called, call `abandon`."""
        if self._units.ended:
            return
        self._units.hold()
        self._address = self._services.dispatcher.open(self._status.job.job_id, self._units, self._context)
        self._fleet.begin(self._address)

    async def abandon(self) -> None:
        """End what `begin` started."""
        self._units.close()
        await self._services.stop_workers(self._status.job.job_id)
        if self._address is not None:
            await self._services.dispatcher.close(self._address)

    async def work(self) -> Unsettled | None:
        """Compute and commit what the plan lists, and return what is left; None when everything is committed."""
        own = 0 if self._address is None else 1
        if self._slots.note and self._status.metrics.spark_jobs == own:
            self._status.note("resources", self._slots.note)
        self._units.begin()
        self._collect_staged()
        committing = asyncio.create_task(self._committer.run())
        try:
            work = self._compute(), self._watch_workers(committing), self._left.keep_until(committing)
            await all_or_first(*work, self._partial.run(committing), asyncio.shield(committing))
        except BaseException:
            await self._services.stop_workers(self._status.job.job_id)
            await self._left.give_all_back(self._work_queue.scopes_out)
            await self._end_commits(committing)
            raise
        finally:
            self._status.metrics.units = self._work_queue.units_made
            self._status.update(stalls=())
            if self._committer.version:
                self._status.update(table_version=self._committer.version)
        await self._left.give_back_scopes(self._work_queue.scopes_out)
        return self._unsettled(unusable=await self._forget_unusable())

    def stop(self) -> None:
        """Have `work` end soon: workers store what they have computed and give back the rest; files are committed."""
        self._units.stop()
        self._services.stop_units(self._status.job.job_id)

    def _unsettled(self, *, unusable: bool) -> Unsettled | None:
        stopped = self._units.stopping and not self._work_queue.empty
        rejected = [f"{outcome.reason}: {outcome.message}" for outcome in self._committer.rejected]
        trouble, waiting = self._units.trouble, self._work_queue.busy_fragments
        if not (rejected or waiting or trouble or stopped):
            return None
        why = "; ".join(list(dict.fromkeys([*trouble, *rejected]))[:3])
        overtaken = self._units.cleaned_up and all(outcome.reason == _FASTER for outcome in self._committer.rejected)
        pending = 0 if rejected or trouble else waiting
        return Unsettled(pending, why, unusable=unusable, overtaken=overtaken, failing=bool(trouble))

    async def _end_commits(self, committing: asyncio.Future[None]) -> None:
        """Commit what is finished of a job that ends early, unless another executor has the job by now."""
        if self._status.lost:
            committing.cancel()
            await asyncio.gather(committing, return_exceptions=True)
            return
        self._committer.close()
        with contextlib.suppress(LemanError):
            await committing

    def _collect_staged(self) -> None:
        tasks = PlannedTasks.of(self._plan.tasks)
        staged = [t for t in tasks.stored if t.staged is not None]
        reused = tasks.from_checkpoints
        if staged or reused:
            rows = sum(t.physical_rows - t.deleted_rows for t in staged)
            told = [f"Collected {len(staged)} checkpointed fragments with {rows} rows"] if staged else []
            told += [f"{reused} {'goes' if reused == 1 else 'go'} on from checkpoints"] if reused else []
            self._status.note("collected", "; ".join(told) if staged else f"Fragments: {told[0]}")
        for task in staged:
            if task.staged is not None:
                self._committer.add(task, task.staged)

    async def _compute(self) -> None:
        """Run workers until nothing is left to compute.

        Spark restarts a worker that died; when it gives up on one, all are started anew, a few times where none of
        them asks for work.
        """
        job_id = self._status.job.job_id
        address = self._address or self._services.dispatcher.open(job_id, self._units, self._context)
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
        """Look for stalls every `stall_check_seconds`, until the job is done."""
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
        """Use more workers where a cluster has grown: Spark's executors come one by one, some after the job."""
        slots = await asyncio.to_thread(self._usable_slots)
        if slots.count > self._slots.count and not self._computed:
            self._status.note("resources", f"{slots.count} workers from now on: the cluster has more cores than before")
            self._slots = slots
            self._work_queue.spread(slots.count)
            self._fleet.grow(slots.count)

    def _usable_slots(self) -> TaskSlots:
        """Return the task slots of the job, no more than there are rows to compute, or files to write."""
        found = slots_of(self._plan.header.udf, self._status.job.backfill.concurrency, self._services)
        useful = max(1, self._plan.header.rows_to_compute, len(self._plan.tasks))
        return replace(found, count=min(found.count, useful))

    @property
    def _spark_busy(self) -> str:
        return self._services.spark.busy_for(self._status.job.job_id)

    def _tell_busy(self) -> None:
        is_sql = self._context.udf.kind is UdfKind.SQL
        busy = "" if is_sql or self._units.with_workers or self._computed else self._spark_busy
        if busy and busy != self._busy:
            self._status.note("wait", f"the job waits for workers: {busy}")
        self._busy = busy

    def _waits_for(self) -> dict[str, object]:
        """Return what the job waits for besides workers, in words, with marks that change when it moves."""
        waits = self._committer.waits_for
        if not (self._computed or self._work_queue.empty or self._units.with_workers):
            why = self._spark_busy or "Spark may have no free slots"
            waits[f"no worker has asked for work: {why}"] = self._units.handed_out
        return waits

    async def _forget_unusable(self) -> bool:
        """Keep plans from finding files that were refused as damaged, missing or lacking rows; tell whether one was."""
        tasks = PlannedTasks.of(self._plan.tasks)
        unusable = [o for o in self._committer.rejected if o.reason.startswith(("FILE_", "ROW_COUNT", "TYPE_"))]
        for outcome in unusable:
            file = self._committer.files[outcome.fragment_id]
            await self._services.checkpoints.forget_file(
                self._plan.header.uri, tasks.of_fragment(outcome.fragment_id), file
            )
        return bool(unusable)
