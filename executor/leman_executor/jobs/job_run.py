"""What is common to a backfill and a refresh while they run: what the job manager asks of both, and how they end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, Protocol

from leman_core.model.errors import ATTEMPT_FENCED, LemanError
from leman_core.model.job import JobError, JobState
from leman_executor.jobs import job_errors
from leman_executor.jobs.job_environment import JobEnvironment
from leman_executor.jobs.job_status import JobStatus
from leman_executor.scheduling.cancelled import Cancelled


class EndingRun(Protocol):
    """The part of a running job that its end needs."""

    @property
    def status(self) -> JobStatus: ...

    @property
    def cancelling(self) -> bool:
        """Tell whether the job was asked to stop for good."""
        ...

    async def end(self, state: JobState, error: JobError | None = None) -> None:
        """Leave the job in a terminal state."""
        ...


class JobRun(EndingRun, Protocol):
    """A backfill or a refresh. `Any` is the plan that its own `plan` gives."""

    @property
    def workers(self) -> int:
        """Return how many workers it gets; 0: that is not known."""
        ...

    def set_cost_estimate(self, seconds_per_row: float | None) -> None:
        """Say what a row cost in an earlier job of the same function version; None: that is not known."""
        ...

    async def plan(self) -> Any:
        """Ask the planner, again while it cannot be reached."""
        ...

    async def ended_at_once(self, plan: Any) -> bool:
        """End the job where nothing is to be done; False: it has to run."""
        ...

    async def ended_soon(self, plan: Any) -> bool:
        """End the job, which has its turn, where it takes no longer than to write down that it runs; False: it has to
        run. History does not know it yet, and neither does its caller."""
        ...

    def check_env(self, plan: Any) -> None:
        """Check that a function can have the environment variables of the job, where it has some.

        Raises:
            FailedPrecondition: ENV_NOT_USABLE – none can.
        """
        ...

    def check_resources(self, plan: Any) -> None:
        """Check that workers have what the functions ask for.

        Raises:
            FailedPrecondition: RESOURCES_NOT_AVAILABLE – a function asks for what no worker has.
        """
        ...

    def prefetch(self, plan: Any) -> None:
        """Begin with what writes nothing and calls no function, while history does not know the job yet."""
        ...

    async def abandon(self) -> None:
        """End what `prefetch` began, where `run` is not called after all."""
        ...

    async def run(self, plan: Any) -> None:
        """Work until nothing is left, and leave the job in a terminal state; only bugs are raised."""
        ...

    async def replan_and_run(self) -> None:
        """Go on with a job that was taken over or had to wait for its turn: from the plan on."""
        ...

    def cancel(self) -> None:
        """Stop what runs; `run` then ends the job as CANCELLED. Blocks for a moment."""
        ...

    def pause(self) -> None:
        """Stop as soon as what was computed is stored; `run` then leaves the job as PAUSED."""
        ...

    def resume(self) -> None:
        """Let a job that has stopped run again: `replan_and_run` goes on with it."""
        ...


async def run_to_completion(run: EndingRun, services: JobEnvironment, work: Awaitable[bool]) -> None:
    """Do a job's work, which says whether rows failed, and end the job by how that went; only bugs are raised."""
    ticking = asyncio.create_task(run.status.tick())
    try:
        await run.end(JobState.DONE_WITH_ERRORS if await work else JobState.DONE)
    except Cancelled:
        await stop(run, services)
    except LemanError as error:
        await end_by(run, error)
    finally:
        ticking.cancel()
        services.forget_workers(run.status.job.job_id)


async def stop(run: EndingRun, services: JobEnvironment) -> None:
    """Leave a job that was asked to stop as CANCELLED or PAUSED."""
    if run.cancelling:
        await run.end(JobState.CANCELLED)
    else:
        await run.status.rest(services.jobs)


async def end_by(run: EndingRun, error: LemanError) -> None:
    """End a job by an error; one that another executor has taken over is left to it."""
    if error.reason == ATTEMPT_FENCED:
        await run.status.leave()
        return
    if run.cancelling:
        await run.end(JobState.CANCELLED)
    else:
        await run.end(JobState.FAILED, job_errors.to_job(error))
