"""What the steps of a refresh share: the source that it reads, status, counts, scratch table, files, failed rows.

Which of all tables that had its name a refresh reads: another one that has it by now has other rows.

What the steps of a refresh share: its job's status and counts, the scratch table, and the writing of files.

Keeps the list of a view's failed rows right: anyone who fills, changes or evicts rows says which of them failed.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
import uuid
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import pyarrow as pa

from leman._format import view_definitions
from leman._format.view_definitions import is_view
from leman_core.model.job import Job
from leman_core.model.plan import StagedFile
from leman_core.model.row_ids import NO_IDS, intersection
from leman_core.model.service_errors import Aborted, LemanError, NotFound, Unavailable
from leman_core.model.view import FailedNote, RefreshPlan, RefreshSpec, ResolvedFunction
from leman_core.model.view_metadata import identity, outlives_versions
from leman_core.process.crash_points import crash_point
from leman_core.server.blocking import run_in_job_thread
from leman_core.storage import scratch_table as view_scratch
from leman_core.storage import view_data_files as view_files
from leman_core.storage import view_side_files
from leman_core.storage.checkpoint_store import LanceCheckpointStore, checkpoint_root
from leman_core.storage.lance_tables import LanceTables
from leman_core.storage.locations import database_and_table, table_uri
from leman_core.storage.scratch_table import ScratchTable
from leman_core.storage.source_rows import SourceRows
from leman_core.storage.stored_jobs import open_jobs
from leman_core.storage.view_data_files import definition_in
from leman_core.storage.view_side_files import NONE_FAILED
from leman_executor.jobs.async_helpers import gather_limited, retry_unavailable
from leman_executor.jobs.job_environment import JobEnvironment
from leman_executor.jobs.job_run import TABLE_REPLACED, begin_attempt_at, is_table_replaced
from leman_executor.jobs.job_status import JobStatus
from leman_executor.refresh import view_writer
from leman_executor.refresh.refresh_journal import JournalKeeper, RefreshMetrics
from leman_executor.refresh.row_diff import RowOutcome, row_outcome
from leman_executor.refresh.scratch_backfills import KnownValues, ScratchBackfills, ValueReuse, scratch_columns
from leman_executor.refresh.view_writer import Ints, ViewWriter, retry_in_thread
from leman_executor.scheduling.dispatcher import Cancelled


def plans_another_source(job: Job, plan: RefreshPlan) -> bool:
    """Return whether a plan goes to the version of the job's first plan, by its number, and that is another table's."""
    same_number = plan.target_version == job.refresh.src_version
    return bool(job.source_incarnation) and same_number and plan.target_incarnation != job.source_incarnation


def is_source_replaced(job: Job) -> bool:
    """Return whether another table has the name of the source that the job began with; False where that is not known.

    Reads the view and the source.
    """
    if not job.source_incarnation:
        return False
    try:
        uri = table_uri(job.request.database, job.request.table)
        definition = definition_in(LanceTables().snapshot(uri))
        return definition is not None and _is_another(definition.source_uri, job)
    except LemanError:
        return False


def _is_another(uri: str, job: Job) -> bool:
    tables, known = LanceTables(), job.source_incarnation
    try:
        return identity(tables.snapshot(uri, job.refresh.src_version)) != known
    except NotFound:  # the latest tells less: a restore may have taken its incarnation along
        now = tables.snapshot(uri).incarnation
        return bool(now) and outlives_versions(known) and now != known


def check_source(opened: SourceRows, plan: RefreshPlan) -> None:
    """Check that a version of the source is of the table that a plan was made for.

    Raises:
        Aborted: TABLE_REPLACED – it is of another one: plan again.
    """
    expected = {
        plan.definition.base_version: plan.definition.base_incarnation,
        plan.target_version: plan.target_incarnation,
    }
    if expected.get(opened.version, opened.identity) != opened.identity:
        raise source_replaced_error()


def source_replaced_error() -> Aborted:
    """Return the error of a refresh whose source is another table now."""
    return Aborted(
        TABLE_REPLACED,
        "The view's source was dropped during the refresh, and another table has its name now. Refresh the view "
        "without a version, or to one of the new source",
    )


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
        self.journal = JournalKeeper(self.status, self.metrics, services.jobs)
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
            task = asyncio.create_task(retry_in_thread(row_outcome, plan, partial(self._source, plan)))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())  # perhaps no one waits for it
            self._ahead = plan, task

    def _source(self, plan: RefreshPlan, uri: str, version: int) -> SourceRows:
        """Return a version of the source, opened once for all steps that continue with it; for many threads. Blocking.

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
            task.add_done_callback(lambda done: done.cancelled() or done.exception())  # perhaps no one waits for it
            self._recording = plan, task
        return self._recording[1]

    async def _recorded(self, plan: RefreshPlan) -> RefreshPlan:
        now = plan.definition

        def write() -> str:
            opened = self._source(plan, now.source_uri, plan.target_version).dataset
            return view_side_files.write_source_record(
                plan.uri, now.query, now.source_uri, plan.target_version, now.base_record, opened
            )

        return replace(plan, definition=replace(now, base_record=await retry_in_thread(write)))

    async def outcome_soon(self, plan: RefreshPlan) -> RowOutcome | None:
        """Return what `outcome` does; None where that takes long: `outcome` has what was begun.

        Raises:
            LemanError: as `outcome`, which then starts again.
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
        return await retry_in_thread(row_outcome, plan, partial(self._source, plan))

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
        uri = table_uri(spec.database, view_writer.scratch_table_name(spec.view, of))
        columns = scratch_columns(functions, plan.definition.source_uri, version, of)

        def find_or_create_placeholders() -> tuple[ScratchTable, bool]:
            found = view_scratch.find_for(uri, of, rows)
            if found is not None:
                return found, True
            if view_files.latest_version(plan.uri) != plan.version:
                raise Aborted("VIEW_CHANGED", "another refresh was faster")
            return view_scratch.create(uri, of, rows, columns), False

        scratch, found = await retry_in_thread(find_or_create_placeholders)
        if self.status.job.attempt > 1:
            await begin_attempt_at(self.services.commits, self.status.job, uri)
        self._scratch_in_use = scratch
        if found:
            self.status.note("collected", "found the scratch table of a refresh that was cut short: continuing with it")
        return scratch

    async def scratch_is_lost(self) -> bool:
        """Return whether another refresh dropped the scratch table that this one worked with."""
        return self._scratch_in_use is not None and not await run_in_job_thread(self._scratch_in_use.is_there)

    async def drop_scratch(self) -> None:
        """Drop the scratch table, whose values are in the view by now."""
        if self._scratch_in_use is not None:
            await run_in_job_thread(view_scratch.drop, self._scratch_in_use.uri)
        self._scratch_in_use = None

    async def drop_leftovers(self, plan: RefreshPlan) -> None:
        """Remove the scratch table, and what refreshes left that died or were given up.

        The latter only where no other job on the view is open.
        """
        spec = self.spec
        try:
            await self.drop_scratch()
            await run_in_job_thread(_drop_leftovers, spec.database, spec.view, plan.uri, self.status.job.job_id)
        except Unavailable as error:  # what the view has stands
            self.status.note("leftovers", f"scratch tables stay for now: {error.message}")

    async def drop_of_dropped_view(self) -> None:
        """Remove what refreshes left of a view that was dropped while they ran: its workers wrote after the drop.

        Where another view has the name, those of this refresh go: names of scratch tables are of one view only.
        """
        job = self.status.job
        uri = table_uri(self.spec.database, self.spec.view)
        with contextlib.suppress(LemanError):  # the database's next view of that name does it then
            if await run_in_job_thread(_is_dropped, uri):
                await run_in_job_thread(_drop_leftovers, self.spec.database, self.spec.view, uri, job.job_id)
            elif (own := self._scratch_tables()) and await is_table_replaced(job):
                for scratch in own:
                    await run_in_job_thread(view_scratch.drop, scratch)

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
            file, read, seconds = await retry_in_thread(write, work)
            self.metrics.seconds_writing += seconds
            self.journal.say(source_rows_read=self.journal.result.source_rows_read + read)
            return file

        return await gather_limited(self.services.slots, [partial(one, work) for work in works])


def _is_dropped(uri: str) -> bool:
    """Return whether a view is gone; a table may have its name by now."""
    try:
        return not is_view(LanceTables().snapshot(uri).metadata)
    except NotFound:
        return True


def _drop_leftovers(database: str, view: str, uri: str, job_id: str) -> None:
    leftovers = view_scratch.scratch_tables(database, view_writer.scratch_table_pattern(view))
    if leftovers and all(job.job_id == job_id for job in open_jobs(uri)):
        for leftover in leftovers:
            view_scratch.drop(leftover)


#: How many times another refresh that fills the view may be faster.
_TRIES = 20

FailedRowIds = Mapping[str, Ints]


def failed_row_ids(
    scratch: ScratchTable, columns: Sequence[str], rows: Ints | None, only: Collection[int] | None
) -> FailedRowIds:
    """Return the source row ids of failed rows, by column. Blocking.

    Args:
        scratch: The scratch table.
        columns: The columns to look at.
        rows: Source row ids of the whole scratch table, where they are known.
        only: Positions of the fragments to look at; None: all.
    """
    places = {column: scratch.failed(column, only) for column in columns}
    if rows is None:
        rows = scratch.row_ids() if any(map(len, places.values())) else NO_IDS
    return {column: rows[at] for column, at in places.items()}


class UpdatedNote(NamedTuple):
    """What a view is to say of failed rows."""

    note: FailedNote
    #: Whether the list so far is damaged or gone.
    lost: bool = False


def update_failed_note(
    uri: str, before: FailedNote, rows: Ints, evicted: Ints, failed: FailedRowIds, job_id: str
) -> UpdatedNote:
    """Return what a view says of failed rows once `rows` were computed and others were evicted. Blocking.

    If the list so far is damaged, the new one begins with these failures.

    Args:
        uri: The view.
        before: What it says now.
        rows: Source row ids of the rows that were computed, in the columns of `failed`.
        evicted: Source row ids of the rows that were evicted.
        failed: Source row ids of the rows that failed, by column.
        job_id: The job that computed them.

    Raises:
        OSError: The list cannot be read or written.
    """
    if not before.file and not any(map(len, failed.values())):
        return UpdatedNote(before)
    known = view_side_files.read_failed_rows(uri, before)
    listed = NONE_FAILED if known is None else known
    left = listed.without(evicted, before.rows.keys()).without(rows, failed.keys()).plus(job_id, failed)
    return UpdatedNote(before if left == listed else view_side_files.write_failed_rows(uri, left), known is None)


def warn_if_lost(work: RefreshWork, plan: RefreshPlan, before: FailedNote, noted: UpdatedNote) -> FailedNote:
    """Return what a view is to say of failed rows; have the refresh say once where the list so far is lost."""
    if noted.lost:
        message = view_side_files.lost_failed_rows(database_and_table(plan.uri)[1], before)
        if message not in work.journal.result.warnings:
            work.journal.say(warnings=(*work.journal.result.warnings, message))
            work.status.note("error", message)
    return noted.note


def new_failed_note(uri: str, failed: FailedRowIds, job_id: str) -> FailedNote:
    """Return what a view says of failed rows once none of its earlier rows is left; see `noted`."""
    return view_side_files.write_failed_rows(uri, NONE_FAILED.plus(job_id, failed))


class FirstFailures:
    """The failed rows of a first fill.

    Their list is committed before the fragments that they are in. Until then it names rows that have no values yet,
    which does no harm; once they have values, the list is right.
    """

    def __init__(self, work: RefreshWork, plan: RefreshPlan) -> None:
        self._work = work
        self._plan = plan

    async def note(self, scratch: ScratchTable, rows: Ints, fragments: Collection[int]) -> None:
        """Commit the list of failed rows, before rows of the source are installed.

        Args:
            scratch: The scratch table.
            rows: Source row ids of the rows that are going to be installed.
            fragments: Positions of the fragments of the scratch table that have them.

        Raises:
            Aborted: VIEW_CHANGED, where other refreshes of the view were faster again and again.
        """
        columns = [f.column.name for f in self._plan.functions]
        found = await retry_in_thread(failed_row_ids, scratch, columns, None, fragments)
        failed = {column: intersection(ids, rows) for column, ids in found.items()}
        if not self._plan.definition.failed.file and not any(map(len, failed.values())):
            return
        for _ in range(_TRIES):
            if await self._commit(rows, failed):
                return
        raise Aborted("VIEW_CHANGED", "other refreshes of the view were faster again and again")

    async def _commit(self, rows: Ints, failed: FailedRowIds) -> bool:
        """Commit the list once; False where the view changed meanwhile."""
        version, definition = await retry_in_thread(view_files.latest_definition, self._plan.uri)
        job = self._work.status.job
        found = await retry_in_thread(
            update_failed_note, self._plan.uri, definition.failed, rows, NO_IDS, failed, job.job_id
        )
        note = warn_if_lost(self._work, self._plan, definition.failed, found)
        if note == definition.failed:
            self._work.failed = note
            return True
        definition = replace(definition, failed=note)
        try:
            await retry_unavailable(
                self._work.services.commits.apply_view_delta,
                replace(self._plan, version=version, definition=definition),
                appended=(),
                swapped=(),
                evictions=("", ""),
                replace_all=False,
                metadata=view_definitions.updates(definition),
                attempt=job.this_attempt,
                request_id=uuid.uuid4().hex,
            )
        except Aborted as error:
            if error.reason != "VIEW_CHANGED":
                raise
            return False
        self._work.failed = note
        crash_point("executor.failed_noted")
        return True
