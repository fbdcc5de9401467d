"""Computes the inputs of a backfill or a refresh that are computed columns themselves, as part of its job."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from leman_core.model.job import Job, JobState
from leman_core.model.plan import BackfillSpec, StaleInput
from leman_executor.jobs import job_errors
from leman_executor.jobs.job_environment import JobEnvironment
from leman_executor.jobs.job_run import JobRun
from leman_executor.jobs.job_status import JobStatus
from leman_executor.jobs.part_of_job import TOLD, PartOfJob, PartStatus
from leman_executor.scheduling.cancelled import Cancelled

#: Makes the backfill of one input.
RunOf = Callable[[Job, JobEnvironment, JobStatus], JobRun]


class InputColumns:
    """The inputs of one job: one column after the other is brought up to date, with all of its rows."""

    def __init__(self, status: JobStatus, services: JobEnvironment, run_of: RunOf) -> None:
        self._status = status
        self._services = services
        self._run_of = run_of
        self._running: JobRun | None = None

    async def compute(
        self, inputs: Sequence[StaleInput], table: BackfillSpec, check_stop: Callable[[], None], incarnation: str = ""
    ) -> None:
        """Compute what is stale or missing.

        Args:
            inputs: inputs before what reads them.
            table: whose columns these are, and how many workers they may have; it names no column.
            check_stop: raises Cancelled where the job was asked to stop.
            incarnation: of the table that is meant; empty: whichever is there.

        Raises:
            Cancelled: The job was asked to stop, or is lost.
            LemanError: What ended the backfill of an input.
        """
        for stale in inputs:
            check_stop()
            await self._column(replace(table, column=stale.column), incarnation)
            check_stop()

    async def _column(self, spec: BackfillSpec, incarnation: str) -> None:
        whole, column = self._status.job, spec.column
        now = time.time()
        job = Job(
            whole.job_id,
            "",
            JobState.PLANNING,
            spec,
            now,
            now,
            attempt=whole.attempt,
            incarnation=incarnation,
        )
        services = replace(self._services, jobs=PartOfJob(self._services.jobs))
        part = self._run_of(job, services, PartStatus(job, self._status, TOLD | {"plan", "commit"}, column))
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
