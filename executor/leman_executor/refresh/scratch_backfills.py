"""Find or create the scratch tables of a refresh, fill them by one backfill for each function column, and drop them.

If an executor dies, its scratch table stays. The executor that continues the refresh finds it by a digest of the work.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import pyarrow as pa

from leman._format import column_bindings
from leman._format.column_bindings import ColumnBinding, ColumnInput, InputSource
from leman._format.view_definitions import SOURCE_ROW_ID, is_view
from leman_core.functions import arrow_types, column_checks
from leman_core.model.job import Job, JobState
from leman_core.model.plan import BackfillSpec, Plan
from leman_core.model.row_ids import Ids
from leman_core.model.service_errors import Aborted, LemanError, NotFound, Unavailable
from leman_core.model.view import RefreshPlan, RefreshSpec, ResolvedFunction
from leman_core.process.crash_points import crash_point
from leman_core.server.blocking import run_in_job_thread
from leman_core.storage import scratch_table
from leman_core.storage import view_data_files as view_files
from leman_core.storage.lance_tables import LanceTables
from leman_core.storage.locations import table_uri
from leman_core.storage.scratch_table import ScratchTable
from leman_core.storage.stored_jobs import open_jobs
from leman_executor.jobs import job_run
from leman_executor.jobs.async_helpers import run_storage_work
from leman_executor.jobs.backfill_run import BackfillRun
from leman_executor.jobs.incarnation_check import Replaced, find_replaced
from leman_executor.jobs.job_environment import JobEnvironment
from leman_executor.jobs.job_status import ChildJobStatus, ChildJobStore, JobStatus
from leman_executor.refresh.earlier_values import ValueReuse
from leman_executor.refresh.refresh_journal import JournalKeeper
from leman_executor.refresh.view_writer import scratch_table_name, scratch_table_pattern
from leman_executor.scheduling.dispatcher import Cancelled

#: Errors that a new plan may avoid: the source was cleaned up, or another refresh dropped or recreated the scratch
#: table.
_PASSING = frozenset({"SOURCE_VERSION_NOT_FOUND", "SOURCE_ROW_GONE", "COLUMN_NOT_DEFINED"})
#: The field id of a scratch table's first column, `__source_row_id`.
_ROW_ID_FIELD = 0


class ScratchTables:
    """The scratch tables of one refresh, one at a time."""

    def __init__(self, status: JobStatus, journal: JournalKeeper, services: JobEnvironment) -> None:
        self._status = status
        self._journal = journal
        self._commits = services.commits
        self._services = replace(services, jobs=ChildJobStore(services.jobs))
        #: The scratch table that the refresh uses now.
        self._current: ScratchTable | None = None
        self._running: BackfillRun | None = None
        self._stop = threading.Event()
        self._cancelled = False

    @property
    def _spec(self) -> RefreshSpec:
        return self._status.job.refresh

    async def open(
        self, plan: RefreshPlan, functions: Sequence[ResolvedFunction], version: int, work: str, rows: Sequence[Ids]
    ) -> ScratchTable | None:
        """Find or create the scratch table for a piece of work.

        Args:
            plan: The plan.
            functions: The functions to call.
            version: The source version that the functions read.
            work: The digest of the work, see `view_writer.work_digest`.
            rows: Source row ids, one array for each fragment of the scratch table.

        Returns:
            None if there is no function to call, or no row.

            Raises:
                Aborted: VIEW_CHANGED – another refresh changed the view first.
        """
        self._current = None
        if not functions or not any(map(len, rows)):
            return None
        uri = table_uri(self._spec.database, scratch_table_name(self._spec.view, work))
        columns = _columns(functions, plan.definition.source_uri, version, work)

        def find_or_create() -> tuple[ScratchTable, bool]:
            found = scratch_table.find_for(uri, work, rows)
            if found is not None:
                return found, True
            if view_files.latest_version(plan.uri) != plan.version:
                raise Aborted("VIEW_CHANGED", "another refresh changed the view first")
            return scratch_table.create(uri, work, rows, columns), False

        scratch, found = await run_storage_work(find_or_create)
        if self._status.job.attempt > 1:
            await job_run.begin_attempt_at(self._commits, self._status.job, uri)
        self._current = scratch
        if found:
            self._status.note("collected", "found the scratch table of an interrupted refresh: continuing with it")
        return scratch

    async def is_lost(self) -> bool:
        """Return whether another refresh has dropped the current scratch table."""
        return self._current is not None and not await run_in_job_thread(self._current.is_there)

    async def fill(
        self,
        scratch: ScratchTable,
        functions: Sequence[ResolvedFunction],
        between: Callable[[], Awaitable[None]] | None = None,
        reuse: ValueReuse | None = None,
    ) -> None:
        """Compute all function columns of a scratch table, one after the other.

        Args:
            scratch: The scratch table.
            functions: The functions, one for each column.
            between: Called repeatedly while the last column is being computed, to commit complete fragments.
            reuse: Finds values for which no function needs to be called.

        Raises:
            Cancelled: The refresh was asked to stop, or another executor has taken its job over.
            Aborted: SOURCE_VERSION_NOT_FOUND, SOURCE_ROW_GONE, COLUMN_NOT_DEFINED – a new plan may help.
            LemanError: Any other error that ended a backfill.
        """
        for function in functions:
            run = asyncio.ensure_future(self._column(scratch, function, reuse))
            try:
                while between is not None and function is functions[-1] and not run.done():
                    await asyncio.wait((run,), timeout=self._services.settings.executor.commit_interval_seconds)
                    if not (run.done() or self._stop.is_set()):
                        await between()
                await run
            except Cancelled:
                if self._cancelled:
                    run.cancel()
                await asyncio.gather(run, return_exceptions=True)  # to pause, it first stores rows
                raise
            except BaseException:
                run.cancel()
                await asyncio.gather(run, return_exceptions=True)
                raise

    async def _column(self, scratch: ScratchTable, function: ResolvedFunction, reuse: ValueReuse | None) -> None:
        now, parent = time.time(), self._status.job
        table = scratch.uri.rsplit("/", 1)[1].removesuffix(".lance")
        spec = BackfillSpec(self._spec.database, table, function.column.name, concurrency=self._spec.concurrency)
        job = Job(parent.job_id, "", JobState.PLANNING, spec, now, now, attempt=parent.attempt)
        child = BackfillRun(job, self._services, ChildJobStatus(job, self._status), is_scratch=True)
        self._check_stop()
        self._running = child
        try:
            plan = await self._planned(child, scratch, reuse)
            child.prefetch(plan)
            await self._journal.column(table, function.column.name, child.status.metrics)
            if not await child.ended_at_once(plan):
                await child.run(plan)
        except LemanError as error:
            raise _passing(error) from None
        finally:
            self._running = None
            await child.abandon()
        ended = child.status.job
        if child.status.lost or ended.state is JobState.CANCELLED:
            raise Cancelled(parent.job_id)
        self._check_stop()
        if ended.error is not None:
            raise _passing(job_run.from_job_error(ended.error))

    async def _planned(self, child: BackfillRun, scratch: ScratchTable, reuse: ValueReuse | None) -> Plan:
        """Store the values that earlier versions of the view have, and return a plan for the remaining rows."""
        plan = await child.plan()
        stored = await run_storage_work(reuse.store, scratch, plan, self._stop) if reuse and plan.tasks else 0
        self._check_stop()
        if not stored:
            return plan
        crash_point("executor.earlier_stored")
        self._status.note("migrated", f"{stored:,} values of {plan.header.output.name} reused from earlier versions")
        before, plan = plan.header.rows_to_compute, await child.plan()
        child.status.metrics.migrated(plan)
        child.status.metrics.known(stored - (before - plan.header.rows_to_compute))
        return plan

    def _check_stop(self) -> None:
        if self._stop.is_set():
            raise Cancelled(self._status.job.job_id)

    async def drop(self) -> None:
        """Drop the scratch table, after its values were committed to the view."""
        if self._current is not None:
            await run_in_job_thread(scratch_table.drop, self._current.uri)
        self._current = None

    async def drop_leftovers(self, plan: RefreshPlan) -> None:
        """Drop the scratch table and, if no other job on the view is open, those that dead refreshes left."""
        spec = self._spec
        try:
            await self.drop()
            await run_in_job_thread(_drop_leftovers, spec.database, spec.view, plan.uri, self._status.job.job_id)
        except Unavailable as error:  # the view is correct anyway
            self._status.note("leftovers", f"scratch tables could not be dropped yet: {error.message}")

    async def drop_of_dropped_view(self) -> None:
        """Drop the scratch tables of a view that was dropped during the refresh, because workers may have written to
        them after that.

        If a new view has the same name, drop only the scratch tables of this refresh.
        """
        job, spec = self._status.job, self._spec
        uri = table_uri(spec.database, spec.view)
        with contextlib.suppress(LemanError):  # otherwise the next view with that name drops them
            if await run_in_job_thread(_is_dropped, uri):
                await run_in_job_thread(_drop_leftovers, spec.database, spec.view, uri, job.job_id)
            elif (own := self._own()) and await find_replaced(job) is Replaced.TABLE:
                for scratch in own:
                    await run_in_job_thread(scratch_table.drop, scratch)

    def _own(self) -> set[str]:
        """Return the uris of the refresh's scratch tables, including those of earlier executors."""
        names = {key.partition("/")[0] for key in self._status.job.refresh_journal.found}
        uris = {table_uri(self._spec.database, name) for name in names}
        return uris if self._current is None else uris | {self._current.uri}

    def cancel(self) -> None:
        """Stop the running backfill, and start no others. Blocks for a moment."""
        self._cancelled = True
        self._stop.set()
        running = self._running
        if running is not None:
            running.cancel()

    def pause(self) -> None:
        """Stop the running backfill as soon as its values are stored, and start no others until `resume`."""
        self._stop.set()
        running = self._running
        if running is not None:
            running.pause()

    def resume(self) -> None:
        """Allow backfills again after a pause."""
        self._stop.clear()


def _passing(error: LemanError) -> LemanError:
    """Return the error as Aborted if a new plan may help. Return any other error unchanged."""
    return Aborted(error.reason, error.message) if error.reason in _PASSING else error


def _columns(functions: Sequence[ResolvedFunction], source_uri: str, version: int, work: str) -> pa.Schema:
    """Return the function columns of a scratch table, bound to their functions and to the source that these read."""
    fields = []
    for function in functions:
        column = ColumnBinding(
            column_id=f"{work}-{function.column.name}",
            udf_name=function.udf.name,
            udf_version=function.udf.version,
            inputs=(ColumnInput(SOURCE_ROW_ID, _ROW_ID_FIELD),),
            source=InputSource(source_uri, version, function.column.inputs),
        )
        made = column_checks.output_field(function.column.name, function.udf, arrow_types.VIEW_FORMAT)
        fields.append(column_bindings.bind(made, column))
    return pa.schema(fields)


def _is_dropped(uri: str) -> bool:
    """Return whether the view at `uri` was dropped. A table of the same name may exist now."""
    try:
        return not is_view(LanceTables().snapshot(uri).metadata)
    except NotFound:
        return True


def _drop_leftovers(database: str, view: str, uri: str, job_id: str) -> None:
    leftovers = scratch_table.scratch_tables(database, scratch_table_pattern(view))
    if leftovers and all(job.job_id == job_id for job in open_jobs(uri)):
        for leftover in leftovers:
            scratch_table.drop(leftover)
