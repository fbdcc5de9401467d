"""Share state among the steps of one refresh: the job, the open source, and comparisons that were started early. Also
write the files of a step.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa

from leman._format.view_definitions import FailedNote
from leman_core.model.job import Job
from leman_core.model.plan import StagedFile
from leman_core.model.view import RefreshPlan, RefreshSpec, ResolvedFunction
from leman_core.storage import view_side_files
from leman_core.storage.scratch_table import ScratchTable
from leman_core.storage.source_rows import SourceRows
from leman_executor.jobs.async_helpers import gather_limited, ignore_result, run_storage_work
from leman_executor.jobs.incarnation_check import check_source
from leman_executor.jobs.job_environment import JobEnvironment
from leman_executor.jobs.job_status import JobStatus
from leman_executor.refresh.earlier_values import ValueReuse
from leman_executor.refresh.refresh_journal import JournalKeeper, RefreshMetrics
from leman_executor.refresh.row_diff import RowOutcome, row_outcome
from leman_executor.refresh.scratch_backfills import ScratchTables
from leman_executor.refresh.view_writer import ViewWriter
from leman_executor.scheduling.dispatcher import Cancelled

#: A piece of work that writes one file.
FileWork = Callable[[ViewWriter], StagedFile]
_Result = TypeVar("_Result")


class RefreshWork:
    """The state of one running refresh that its steps share."""

    def __init__(self, job: Job, services: JobEnvironment) -> None:
        self.status = JobStatus(job)
        self.metrics = RefreshMetrics()
        self.status.metrics = self.metrics
        if job.attempt > 1:
            self.metrics.go_on(job.progress)
        #: Whether the job was asked to stop for good (`cancelling`), or until it is resumed (`pausing`).
        self.cancelling = self.pausing = False
        #: Whether the job is in the job history. Before that, a step must be instant or write nothing.
        self.in_history = False
        #: The note on failed rows that the view's metadata will have.
        self.failed = FailedNote()
        self.services = services
        self.journal = JournalKeeper(self.status, self.metrics, services.jobs)
        self.scratch = ScratchTables(self.status, self.journal, services)
        self._begun_for: RefreshPlan | None = None
        self._begun: dict[str, asyncio.Task[Any]] = {}
        self._opened: SourceRows | None = None
        self._opening = threading.Lock()

    @property
    def spec(self) -> RefreshSpec:
        """Return the request. After the first plan, it has the number of the source version instead of "latest"."""
        return self.status.job.refresh

    def check(self) -> None:
        """Raise Cancelled if the refresh was asked to stop."""
        if self.cancelling or self.pausing:
            raise Cancelled(self.status.job.job_id)

    def close(self) -> None:
        """Close open tables. An ended job stays in memory for a while, and would otherwise keep its tables open."""
        self._begun_for, self._begun, self._opened = None, {}, None

    def comparison(self, plan: RefreshPlan) -> asyncio.Task[RowOutcome]:
        """Return the task that compares the plan's rows. The first call starts it. The task writes nothing."""
        return self._once(plan, "comparison", lambda: run_storage_work(row_outcome, plan, partial(self._source, plan)))

    def recording(self, plan: RefreshPlan) -> asyncio.Task[RefreshPlan]:
        """Return the task that records the target version of the source. The task returns the plan with the record."""
        now = plan.definition

        def write() -> RefreshPlan:
            source = self._source(plan, now.source_uri, plan.target_version).dataset
            record = view_side_files.write_source_record(
                plan.uri, now.query, now.source_uri, plan.target_version, now.base_record, source
            )
            return replace(plan, definition=replace(now, base_record=record))

        return self._once(plan, "recording", lambda: run_storage_work(write))

    def _once(
        self, plan: RefreshPlan, name: str, work: Callable[[], Coroutine[Any, Any, _Result]]
    ) -> asyncio.Task[_Result]:
        if self._begun_for is not plan:
            self._begun_for, self._begun = plan, {}
        if name not in self._begun:
            self._begun[name] = asyncio.create_task(work())
            self._begun[name].add_done_callback(ignore_result)
        return self._begun[name]

    def _source(self, plan: RefreshPlan, uri: str, version: int) -> SourceRows:
        """Return a version of the source, which is opened once for all steps and threads that read it. Blocking.

        Raises:
            Aborted: TABLE_REPLACED – the source is not the plan's source.
            LemanError: as `SourceRows` raises.
        """
        with self._opening:
            opened = self._opened
            if opened is None or (opened.uri, opened.version) != (uri, version):
                opened = SourceRows(uri, version)
                check_source(opened, plan)
                self._opened = opened
            return opened

    async def fill(
        self,
        scratch: ScratchTable,
        functions: Sequence[ResolvedFunction],
        between: Callable[[], Awaitable[None]] | None = None,
        reuse: ValueReuse | None = None,
    ) -> None:
        """Compute the scratch table's columns; see `ScratchTables.fill`."""
        await self.scratch.fill(scratch, functions, between, reuse)
        self._opened = None  # filling takes long, and the version may be removed by now

    async def write(
        self,
        plan: RefreshPlan,
        version: int,
        scratch: ScratchTable | None,
        functions: Sequence[str],
        works: Sequence[FileWork],
        known: pa.RecordBatch | None = None,
    ) -> list[StagedFile]:
        """Write one file for each of `works`, in as many threads as there are task slots.

        If this raises, all threads have stopped writing. The other arguments are those of `ViewWriter`.
        """

        def write(work: FileWork) -> tuple[StagedFile, int, float]:
            begin = time.monotonic()
            source = self._source(plan, plan.definition.source_uri, version)
            writer = ViewWriter(plan, source, scratch, functions, known)
            return work(writer), writer.rows_read, time.monotonic() - begin

        async def one(work: FileWork) -> StagedFile:
            self.check()
            file, read, seconds = await run_storage_work(write, work)
            self.metrics.seconds_writing += seconds
            self.journal.update(source_rows_read=self.journal.result.source_rows_read + read)
            return file

        return await gather_limited(self.services.slots, [partial(one, work) for work in works])
