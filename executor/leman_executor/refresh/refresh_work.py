"""What the steps of a refresh share: its job's status and counts, the scratch table, and the writing of files."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa

from leman_core.model.errors import Aborted, LemanError, NotFound, Unavailable
from leman_core.model.job import Job
from leman_core.model.plan import StagedFile
from leman_core.model.refresh import RefreshPlan, RefreshSpec, ResolvedFunction
from leman_core.model.view import FailedNote
from leman_core.model.view_metadata import is_view
from leman_core.server.blocking import in_job_thread
from leman_core.storage.checkpoints import LanceCheckpointStore
from leman_core.storage.checkpoints.lance_store import checkpoint_root
from leman_core.storage.locations import table_uri
from leman_core.storage.open_jobs import open_jobs
from leman_core.storage.tables import LanceTables
from leman_core.storage.views import files as view_files
from leman_core.storage.views import scratch_table as view_scratch
from leman_core.storage.views import source_records
from leman_core.storage.views.scratch_table import ScratchTable
from leman_core.storage.views.source import SourceRows
from leman_executor.jobs.async_helpers import so_many_at_once
from leman_executor.jobs.job_environment import JobEnvironment
from leman_executor.jobs.job_status import JobStatus
from leman_executor.jobs.same_table import is_replaced
from leman_executor.jobs.takeover import begin_attempt_at
from leman_executor.refresh import file_layout
from leman_executor.refresh.diff.view_changes import RowOutcome, row_outcome
from leman_executor.refresh.file_layout import Ints
from leman_executor.refresh.journal import Journal
from leman_executor.refresh.refresh_metrics import RefreshMetrics
from leman_executor.refresh.same_source import check_source
from leman_executor.refresh.scratch_backfills import ScratchBackfills, scratch_columns
from leman_executor.refresh.storage_retries import in_thread
from leman_executor.refresh.value_reuse import KnownValues, ValueReuse
from leman_executor.refresh.view_files import ViewWriter
from leman_executor.scheduling.cancelled import Cancelled

FileWork = Callable[[ViewWriter], StagedFile]


#: Seconds that are waited for what a refresh is going to change, before its job is written down.
_SOON_SECONDS = 0.1


async def _nothing() -> None:
    """Do nothing: no value is installed before all are computed."""


class RefreshWork:
    """One running refresh as its steps see it."""

    def __init__(self, job: Job, services: JobEnvironment) -> None:
        self.status = JobStatus(job)
        self.metrics = RefreshMetrics()
        self.status.metrics = self.metrics
        if job.attempt > 1:
            self.metrics.go_on(job.progress)
        #: Whether it was asked to stop: for good, or for a while.
        self.cancelling = self.pausing = False
        #: What the view says of failed rows.
        self.failed = FailedNote()
        self.services = services
        #: What it did so far.
        self.journal = Journal(self.status, self.metrics, services.jobs)
        self.filler = ScratchBackfills(self.status, self.journal, services, job.refresh.concurrency)
        self._scratch_in_use: ScratchTable | None = None
        self._ahead: tuple[RefreshPlan, asyncio.Task[RowOutcome]] | None = None
        self._recording: tuple[RefreshPlan, asyncio.Task[RefreshPlan]] | None = None
        self._opened: SourceRows | None = None
        self._opening = threading.Lock()

    @property
    def spec(self) -> RefreshSpec:
        """Return what was asked for; once planned, with the source version that "latest" meant."""
        return self.status.job.refresh

    def check(self) -> None:
        """Check that the refresh may go on.

        Raises:
            Cancelled: It was asked to stop.
        """
        if self.cancelling or self.pausing:
            raise Cancelled(self.status.job.job_id)

    def prefetch(self, plan: RefreshPlan) -> None:
        """Begin to compare rows, where the plan begins with that; only reads, as the job may not be known yet."""
        if self._ahead is not None and self._ahead[0] is plan:
            return
        if not (plan.create_placeholders_again or plan.unset or plan.stale):
            task = asyncio.create_task(in_thread(row_outcome, plan, partial(self._source, plan)))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())  # perhaps nobody waits for it
            self._ahead = plan, task

    def _source(self, plan: RefreshPlan, uri: str, version: int) -> SourceRows:
        """Return a version of the source, opened once for all steps that go on with it; for many threads. Blocking.

        Raises:
            Aborted: TABLE_REPLACED – the source is another one than that of the plan.
            LemanError: what `SourceRows` raises.
        """
        with self._opening:
            opened = self._opened
            if opened is None or (opened.uri, opened.version) != (uri, version):
                opened = SourceRows(uri, version)
                check_source(opened, plan)
                self._opened = opened
            return opened

    def close(self) -> None:
        """Keep nothing open: a job that has ended is remembered for a while."""
        self._ahead = self._recording = self._opened = None

    def recording(self, plan: RefreshPlan) -> asyncio.Task[RefreshPlan]:
        """Return what gives the plan with a record of the source version that the view is going to be right for.

        It is begun with the first call for a plan.
        """
        if self._recording is None or self._recording[0] is not plan:
            task = asyncio.create_task(self._recorded(plan))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())  # perhaps nobody waits for it
            self._recording = plan, task
        return self._recording[1]

    async def _recorded(self, plan: RefreshPlan) -> RefreshPlan:
        now = plan.definition

        def write() -> str:
            opened = self._source(plan, now.source_uri, plan.target_version).dataset
            return source_records.write(
                plan.uri, now.query, now.source_uri, plan.target_version, now.base_record, opened
            )

        return replace(plan, definition=replace(now, base_record=await in_thread(write)))

    async def outcome_soon(self, plan: RefreshPlan) -> RowOutcome | None:
        """Return what `outcome` does; None where that takes long: `outcome` has what was begun.

        Raises:
            LemanError: as `outcome`, which then begins anew.
        """
        self.prefetch(plan)
        if self._ahead is None:
            return None
        task = self._ahead[1]
        await asyncio.wait({task}, timeout=_SOON_SECONDS)
        if not task.done():
            return None
        if task.exception() is not None:
            self._ahead = None
        return task.result()

    async def outcome(self, plan: RefreshPlan) -> RowOutcome:
        """Return what the plan does to the view's rows."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead[0] is plan:
            return await ahead[1]
        return await in_thread(row_outcome, plan, partial(self._source, plan))

    async def scratch(
        self,
        plan: RefreshPlan,
        functions: Sequence[ResolvedFunction],
        version: int,
        of: str,
        rows: Sequence[Ints],
    ) -> ScratchTable | None:
        """Find or create the scratch table for this work.

        Args:
            plan: The plan.
            functions: The functions to call.
            version: The source version that they read.
            of: The name of the work; see `file_layout.digest`.
            rows: Source row ids, one list for each fragment of the scratch table.

        Returns:
            None where no function is to be called.

        Raises:
            Aborted: VIEW_CHANGED, where another refresh was faster.
        """
        self._scratch_in_use = None
        if not functions or not any(map(len, rows)):
            return None
        spec = self.spec
        uri = table_uri(spec.database, file_layout.scratch_table(spec.view, of))
        columns = scratch_columns(functions, plan.definition.source_uri, version, of)

        def find_or_create_placeholders() -> tuple[ScratchTable, bool]:
            found = view_scratch.find_for(uri, of, rows)
            if found is not None:
                return found, True
            if view_files.latest_version(plan.uri) != plan.version:
                raise Aborted("VIEW_CHANGED", "another refresh was faster")
            return view_scratch.create(uri, of, rows, columns), False

        scratch, found = await in_thread(find_or_create_placeholders)
        if self.status.job.attempt > 1:
            await begin_attempt_at(self.services.commits, self.status.job, uri)
        self._scratch_in_use = scratch
        if found:
            self.status.note("collected", "found the scratch table of a refresh that was cut short: going on with it")
        return scratch

    async def scratch_is_lost(self) -> bool:
        """Tell whether another refresh dropped the scratch table that this one worked with."""
        return self._scratch_in_use is not None and not await in_job_thread(self._scratch_in_use.is_there)

    async def drop_scratch(self) -> None:
        """Drop the scratch table, whose values are in the view by now."""
        if self._scratch_in_use is not None:
            await in_job_thread(view_scratch.drop, self._scratch_in_use.uri)
        self._scratch_in_use = None

    async def drop_leftovers(self, plan: RefreshPlan) -> None:
        """Remove the scratch table, and what refreshes left that died or were given up.

        The latter only where no other job on the view is open.
        """
        spec = self.spec
        try:
            await self.drop_scratch()
            await in_job_thread(_drop_leftovers, spec.database, spec.view, plan.uri, self.status.job.job_id)
        except Unavailable as error:  # what the view has stands
            self.status.note("leftovers", f"scratch tables stay for now: {error.message}")

    async def drop_of_dropped_view(self) -> None:
        """Remove what refreshes left of a view that was dropped while they ran: its workers wrote after the drop.

        Where another view has the name, those of this refresh go: names of scratch tables are of one view only.
        """
        job = self.status.job
        uri = table_uri(self.spec.database, self.spec.view)
        with contextlib.suppress(LemanError):  # the database's next view of that name does it then
            if await in_job_thread(_is_dropped, uri):
                await in_job_thread(_drop_leftovers, self.spec.database, self.spec.view, uri, job.job_id)
            elif (own := self._scratch_tables()) and await is_replaced(job):
                for scratch in own:
                    await in_job_thread(view_scratch.drop, scratch)

    def _scratch_tables(self) -> set[str]:
        """Return where the refresh had scratch tables, over all executors that worked on it."""
        known = {key.partition("/")[0] for key in self.status.job.refresh_journal.found}
        uris = {table_uri(self.spec.database, name) for name in known}
        return uris if self._scratch_in_use is None else uris | {self._scratch_in_use.uri}

    async def fill(
        self,
        scratch: ScratchTable,
        functions: Sequence[ResolvedFunction],
        between: Callable[[], Awaitable[None]] = _nothing,
        reuse: ValueReuse | None = None,
    ) -> None:
        """Compute the scratch table's columns; see `ScratchBackfills.fill`."""
        table = scratch.uri.rsplit("/", 1)[1].removesuffix(".lance")
        store = LanceCheckpointStore(checkpoint_root(scratch.uri))

        known = None if reuse is None else KnownValues(reuse, store, scratch.rows)
        await self.filler.fill(self.spec.database, table, functions, between, known)
        self._opened = None  # that took its time: the version may be cleaned away

    async def write(
        self,
        plan: RefreshPlan,
        version: int,
        scratch: ScratchTable | None,
        functions: Sequence[str],
        works: Sequence[FileWork],
        known: pa.RecordBatch | None = None,
    ) -> list[StagedFile]:
        """Write files, with as many threads as there are workers; when it raises, none is being written any more.

        Args: as `ViewWriter`, and
            works: What is written, a file each.
        """

        def write(work: FileWork) -> tuple[StagedFile, int, float]:
            begin = time.monotonic()
            source = self._source(plan, plan.definition.source_uri, version)
            writer = ViewWriter(plan, source, scratch, functions, known)
            return work(writer), writer.rows_read, time.monotonic() - begin

        async def one(work: FileWork) -> StagedFile:
            self.check()
            file, read, seconds = await in_thread(write, work)
            self.metrics.seconds_writing += seconds
            self.journal.say(source_rows_read=self.journal.result.source_rows_read + read)
            return file

        return await so_many_at_once(self.services.slots, [partial(one, work) for work in works])


def _is_dropped(uri: str) -> bool:
    """Tell whether a view is gone; a table may have its name by now."""
    try:
        return not is_view(LanceTables().snapshot(uri).metadata)
    except NotFound:
        return True


def _drop_leftovers(database: str, view: str, uri: str, job_id: str) -> None:
    leftovers = view_scratch.scratch_tables(database, file_layout.scratch_pattern(view))
    if leftovers and all(job.job_id == job_id for job in open_jobs(uri)):
        for leftover in leftovers:
            view_scratch.drop(leftover)
