"""What the steps of a refresh share: its job's board and counts, the stage, and the writing of files."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from core.checkpoints import LanceCheckpointStore
from core.checkpoints.lance_store import checkpoint_root
from core.domain.job import Job
from core.domain.plan import Plan, StagedFile
from core.domain.view import FailedNote, RefreshPlan, RefreshSpec, ResolvedFunction
from core.errors import Aborted, Unavailable
from core.lance_io.open_jobs import open_jobs
from core.lance_io.views import files as view_files
from core.lance_io.views import scratch_table as view_stage
from core.lance_io.views.scratch_table import Stage
from core.locations import table_uri
from executor.jobs.awaiting import so_many_at_once
from executor.jobs.job_status import JobBoard
from executor.jobs.services import Services
from executor.jobs.takeover import begin_attempt_at
from executor.refresh import file_layout
from executor.refresh.diff.view_changes import RowOutcome, row_outcome
from executor.refresh.file_layout import Ints
from executor.refresh.journal import Ledger
from executor.refresh.refresh_metrics import RefreshTally
from executor.refresh.retries import in_thread
from executor.refresh.scratch_backfills import StageFiller, stage_columns
from executor.refresh.value_reuse import Reuse
from executor.refresh.view_files import ViewWriter
from executor.scheduling.cancelled import Cancelled

FileWork = Callable[[ViewWriter], StagedFile]


async def _nothing() -> None:
    """Nothing is installed before all is computed."""


class RefreshWork:
    """One running refresh as its steps see it. `ledger`: what it did so far; `cancelling`: it was asked to stop;
    `failed`: what the view says of failed rows."""

    def __init__(self, job: Job, services: Services) -> None:
        self.board = JobBoard(job)
        self.tally = RefreshTally()
        self.board.tally = self.tally
        self.cancelling = False
        self.failed = FailedNote()
        self.services = services
        self.ledger = Ledger(self.board, self.tally, services.save_job)
        self.filler = StageFiller(self.board, self.ledger, services, _spec(job).concurrency)
        self._stage_in_use: Stage | None = None
        self._ahead: tuple[RefreshPlan, asyncio.Task[RowOutcome]] | None = None

    @property
    def spec(self) -> RefreshSpec:
        """What was asked for; once planned, with the source version that "latest" meant."""
        return _spec(self.board.job)

    def check(self) -> None:
        """Raises Cancelled where the refresh was asked to stop."""
        if self.cancelling:
            raise Cancelled(self.board.job.job_id)

    def look_ahead(self, plan: RefreshPlan) -> None:
        """Begins to compare rows, for a plan that begins with it. Only reads: the job may not be known yet."""
        if not (plan.lay_again or plan.unset or plan.stale):
            task = asyncio.create_task(in_thread(row_outcome, plan))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())  # perhaps nobody waits for it
            self._ahead = plan, task

    async def outcome(self, plan: RefreshPlan) -> RowOutcome:
        """What the plan does to the view's rows."""
        ahead, self._ahead = self._ahead, None
        return await (ahead[1] if ahead is not None and ahead[0] is plan else in_thread(row_outcome, plan))

    async def stage(
        self,
        plan: RefreshPlan,
        functions: Sequence[ResolvedFunction],
        version: int,
        of: str,
        rows: Sequence[Ints],
    ) -> Stage | None:
        """The stage for this work: found, or laid. None where no function is to be called."""
        self._stage_in_use = None
        if not functions or not any(map(len, rows)):
            return None
        spec = self.spec
        uri = table_uri(spec.database, file_layout.stage_table(spec.view, of))
        columns = stage_columns(functions, plan.definition.source_uri, version, of)

        def find_or_lay() -> tuple[Stage, bool]:
            found = view_stage.find_for(uri, of, rows)
            if found is not None:
                return found, True
            if view_files.latest_version(plan.uri) != plan.version:
                raise Aborted("VIEW_CHANGED", "another refresh was faster")
            return view_stage.lay(uri, of, rows, columns), False

        stage, found = await in_thread(find_or_lay)
        if self.board.job.attempt > 1:
            await begin_attempt_at(self.services.commits, self.board.job, uri)
        self._stage_in_use = stage
        if found:
            self.board.note("collected", "found the stage of a refresh that was cut short: going on with it")
        return stage

    async def stage_is_lost(self) -> bool:
        """Whether another refresh dropped the stage that this one worked with."""
        return self._stage_in_use is not None and not await asyncio.to_thread(self._stage_in_use.is_there)

    async def drop_stage(self) -> None:
        """The stage's values are in the view."""
        if self._stage_in_use is not None:
            await asyncio.to_thread(view_stage.drop, self._stage_in_use.uri)
        self._stage_in_use = None

    async def drop_leftovers(self, plan: RefreshPlan) -> None:
        """Removes what refreshes left that died or were given up, unless another one is at it."""
        spec = self.spec
        try:
            await asyncio.to_thread(_drop_leftovers, spec.database, spec.view, plan.uri, self.board.job.job_id)
        except Unavailable as error:
            self.board.note("leftovers", f"stages of other refreshes stay for now: {error.message}")

    async def fill(
        self,
        stage: Stage,
        functions: Sequence[ResolvedFunction],
        between: Callable[[], Awaitable[None]] = _nothing,
        reuse: Reuse | None = None,
    ) -> None:
        """Computes the stage's columns. See `StageFiller.fill`."""
        table = stage.uri.rsplit("/", 1)[1].removesuffix(".lance")
        store = LanceCheckpointStore(checkpoint_root(stage.uri))

        async def known(plan: Plan, stopped: Callable[[], bool]) -> int:
            if reuse is None or plan.header.output.name not in reuse.columns:
                return 0
            return await in_thread(reuse.store, store, plan, stage.rows, stopped)

        await self.filler.fill(self.spec.database, table, functions, between, known)

    async def write(
        self,
        plan: RefreshPlan,
        version: int,
        stage: Stage | None,
        functions: Sequence[str],
        works: Sequence[FileWork],
    ) -> list[StagedFile]:
        """Files, written by as many threads as there are lanes; none is being written any more when it raises."""

        def write(work: FileWork) -> tuple[StagedFile, int, float]:
            begin = time.monotonic()
            writer = ViewWriter(plan, version, stage, functions)
            return work(writer), writer.rows_read, time.monotonic() - begin

        async def one(work: FileWork) -> StagedFile:
            self.check()
            file, read, seconds = await in_thread(write, work)
            self.tally.seconds_writing += seconds
            self.ledger.say(source_rows_read=self.ledger.result.source_rows_read + read)
            return file

        return await so_many_at_once(self.services.lanes, [partial(one, work) for work in works])


def _drop_leftovers(database: str, view: str, uri: str, job_id: str) -> None:
    leftovers = view_stage.stages(database, file_layout.stage_pattern(view))
    if leftovers and all(job.job_id == job_id for job in open_jobs(uri)):
        for leftover in leftovers:
            view_stage.drop(leftover)


def _spec(job: Job) -> RefreshSpec:
    if job.refresh is None:
        raise RuntimeError(f"job {job.job_id} is no refresh")
    return job.refresh
