"""Computes the inputs of a backfill that are computed columns themselves, as part of its job."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from core.domain.job import Job, JobState
from core.domain.plan import BackfillSpec, StaleInput
from executor.jobs import job_errors
from executor.jobs.job_environment import JobEnvironment
from executor.jobs.job_run import JobRun
from executor.jobs.job_status import JobStatus
from executor.jobs.part_of_job import TOLD, PartOfJob, PartStatus
from executor.scheduling.cancelled import Cancelled

#: Makes the backfill of one input.
RunOf = Callable[[Job, JobEnvironment, JobStatus], JobRun]


class InputColumns:
    """The inputs of one backfill: one column after the other is brought up to date, with all of its rows."""

    def __init__(self, status: JobStatus, services: JobEnvironment, run_of: RunOf) -> None:
        self._status = status
        self._services = replace(services, jobs=PartOfJob(services.jobs))
        self._run_of = run_of
        self._running: JobRun | None = None

    async def compute(self, inputs: Sequence[StaleInput], check_stop: Callable[[], None]) -> None:
        """Compute what is stale or missing.

        Args:
            inputs: inputs before what reads them.
            check_stop: raises Cancelled where the job was asked to stop.

        Raises:
            Cancelled: The job was asked to stop, or is lost.
            LemanError: What ended the backfill of an input.
        """
        for stale in inputs:
            check_stop()
            await self._column(stale.column)
            check_stop()

    async def _column(self, column: str) -> None:
        whole = self._status.job
        asked = whole.backfill
        spec = BackfillSpec(asked.database, asked.table, column, concurrency=asked.concurrency)
        now = time.time()
        job = Job(
            whole.job_id,
            "",
            JobState.PLANNING,
            spec,
            now,
            now,
            attempt=whole.attempt,
            incarnation=whole.incarnation,
        )
        part = self._run_of(job, self._services, PartStatus(job, self._status, TOLD | {"plan", "commit"}, column))
        self._running = part
        try:
            plan = await part.plan()
            if not await part.ended_at_once(plan):
                part.check_resources(plan)
                await part.run(plan)
        finally:
            self._running = None
        ended = part.status.job
        if part.status.lost or ended.state is JobState.CANCELLED:
            raise Cancelled(whole.job_id)
        if ended.error is not None:
            raise job_errors.of_job(ended.error)

    def cancel(self) -> None:
        """Stop what runs. Blocks for a moment."""
        if self._running is not None:
            self._running.cancel()

    def pause(self) -> None:
        """Stop what runs as soon as what it computed is stored."""
        if self._running is not None:
            self._running.pause()
