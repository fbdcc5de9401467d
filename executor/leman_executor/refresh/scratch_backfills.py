"""Fills scratch tables: one backfill for each function column, run as part of the refresh."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import pyarrow as pa

from leman_core.functions import binding, blobs, validation
from leman_core.model.errors import Aborted, LemanError
from leman_core.model.job import Job, JobState
from leman_core.model.plan import BackfillSpec, InputSource, Plan
from leman_core.model.refresh import ResolvedFunction
from leman_core.model.udf import ColumnBinding, ColumnInput
from leman_core.model.view import SOURCE_ROW_ID
from leman_core.process.crash_points import crash_point
from leman_executor.jobs import job_errors
from leman_executor.jobs.backfill_run import BackfillRun
from leman_executor.jobs.job_environment import JobEnvironment
from leman_executor.jobs.job_status import JobStatus
from leman_executor.jobs.part_of_job import PartOfJob, PartStatus
from leman_executor.refresh.journal import Journal
from leman_executor.refresh.value_reuse import KnownValues
from leman_executor.scheduling.cancelled import Cancelled

#: The source was cleaned up, or the scratch table is gone or being created anew by another refresh: plan again.
_PASSING = frozenset({"SOURCE_VERSION_NOT_FOUND", "SOURCE_ROW_GONE", "COLUMN_NOT_DEFINED"})
#: `__source_row_id` is a scratch table's first column.
_ROW_ID_FIELD = 0


class ScratchBackfills:
    """Runs the backfills of one refresh, one after the other; `journal` adds up what they do."""

    def __init__(self, status: JobStatus, journal: Journal, services: JobEnvironment, concurrency: int) -> None:
        self._status = status
        self._journal = journal
        self._services = replace(services, jobs=PartOfJob(services.jobs))
        self._concurrency = concurrency
        self._running: BackfillRun | None = None
        self._stop = threading.Event()
        self._cancelled = False

    async def fill(
        self,
        database: str,
        table: str,
        functions: Sequence[ResolvedFunction],
        between: Callable[[], Awaitable[None]],
        known: KnownValues | None,
    ) -> None:
        """Compute every function column of the scratch table.

        Args:
            database: The database.
            table: The scratch table.
            functions: The functions, one for each column.
            between: Called now and then while the last column is being computed, to install what is complete.
            known: Values that need no call of a function.

        Raises:
            Cancelled: The refresh was asked to stop, or lost its job.
            Aborted: With the reason of the error, where a new plan may help: SOURCE_VERSION_NOT_FOUND, SOURCE_ROW_GONE,
                COLUMN_NOT_DEFINED.
            LemanError: What else ended a backfill.
        """
        for at, function in enumerate(functions):
            run = asyncio.ensure_future(self._column(database, table, function, known))
            try:
                while not run.done() and at == len(functions) - 1:
                    await asyncio.wait((run,), timeout=self._services.settings.executor.commit_interval_seconds)
                    if not (run.done() or self._stop.is_set()):
                        await between()
                await run
            except Cancelled:
                if self._cancelled:
                    run.cancel()
                await asyncio.gather(run, return_exceptions=True)  # in a pause what is at hand is stored first
                raise
            except BaseException:
                run.cancel()
                await asyncio.gather(run, return_exceptions=True)
                raise

    async def _column(self, database: str, table: str, function: ResolvedFunction, known: KnownValues | None) -> None:
        now = time.time()
        parent = self._status.job
        spec = BackfillSpec(database, table, function.column.name, concurrency=self._concurrency)
        job = Job(parent.job_id, "", JobState.PLANNING, spec, now, now, attempt=parent.attempt)
        child = BackfillRun(job, self._services, PartStatus(job, self._status), is_scratch=True)
        if self._stop.is_set():
            raise Cancelled(parent.job_id)
        self._running = child
        try:
            plan = await self._planned(child, known)
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
        if child.status.lost or ended.state is JobState.CANCELLED or self._stop.is_set():
            raise Cancelled(parent.job_id)
        if ended.error is not None:
            raise _passing(job_errors.of_job(ended.error))

    async def _planned(self, child: BackfillRun, known: KnownValues | None) -> Plan:
        """Return a plan of what is left to compute, after storing the known values where a plan finds them."""
        plan = await child.plan()
        stored = await known.store(plan, self._stop) if known is not None and plan.tasks else 0
        if self._stop.is_set():
            raise Cancelled(self._status.job.job_id)
        if not stored:
            return plan
        crash_point("executor.earlier_stored")
        self._status.note("migrated", f"{stored:,} values of {plan.header.output.name} are those of earlier versions")
        before, plan = plan.header.rows_to_compute, await child.plan()
        child.status.metrics.migrated(plan)
        child.status.metrics.known(stored - (before - plan.header.rows_to_compute))
        return plan

    def cancel(self) -> None:
        """Stop what runs, and begin nothing any more. Blocks for a moment."""
        self._cancelled = True
        self._stop.set()
        running = self._running
        if running is not None:
            running.cancel()

    def pause(self) -> None:
        """Stop what runs as soon as what it computed is stored, and begin nothing any more until `resume`."""
        self._stop.set()
        running = self._running
        if running is not None:
            running.pause()

    def resume(self) -> None:
        """Begin again, after a pause."""
        self._stop.clear()


def _passing(error: LemanError) -> LemanError:
    """Return Aborted for an error that is neither the function's nor its table's, and any other error as it is."""
    return Aborted(error.reason, error.message) if error.reason in _PASSING else error


def scratch_columns(functions: Sequence[ResolvedFunction], source_uri: str, version: int, of: str) -> pa.Schema:
    """Return the function columns of a scratch table, bound to their functions and to the source that these read."""
    fields = []
    for function in functions:
        column = ColumnBinding(
            column_id=f"{of}-{function.column.name}",
            udf_name=function.udf.name,
            udf_version=function.udf.version,
            inputs=(ColumnInput(SOURCE_ROW_ID, _ROW_ID_FIELD),),
            source=InputSource(source_uri, version, function.column.inputs),
        )
        made = validation.output_field(function.column.name, function.udf, blobs.VIEW_FORMAT)
        fields.append(binding.bind(made, column))
    return pa.schema(fields)
