"""Begin and end attempts of backfills and refreshes, and turn failures into errors of jobs."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable
from typing import Any, Protocol

from leman._format.stored_functions import UdfDefinition
from leman_core.model import service_errors as error_tree
from leman_core.model.job import BegunAttempt, Job, JobError, JobState
from leman_core.model.service_errors import (
    ATTEMPT_FENCED,
    INTERNAL_BUG,
    Aborted,
    DataLoss,
    FailedPrecondition,
    Internal,
    LemanError,
    NotFound,
    Unavailable,
)
from leman_core.model.work import RowError, UnitFailure
from leman_core.storage.locations import table_uri
from leman_executor.jobs.async_helpers import retry_unavailable
from leman_executor.jobs.incarnation_check import TABLE_REPLACED
from leman_executor.jobs.job_environment import Commits, JobEnvironment, JobStore
from leman_executor.jobs.job_status import JobStatus
from leman_executor.scheduling.dispatcher import Cancelled

#: The error class of each reason of a unit's failure. Any other reason is a FailedPrecondition.
_KINDS: dict[str, type[LemanError]] = {
    INTERNAL_BUG: Internal,
    "FUNCTION_UNAVAILABLE": Unavailable,
    "FUNCTION_NOT_FOUND": NotFound,
    "TABLE_DAMAGED": DataLoss,
}


def unit_error(failure: UnitFailure) -> LemanError:
    """Return the job's error for the failure of a unit, with the facts about the failed row."""
    error = _KINDS.get(failure.reason, FailedPrecondition)(failure.reason, failure.message)
    if failure.row is not None:
        error.facts.update(failed_row_facts(failure.row))
    return error


def too_many_failed_rows(udf: UdfDefinition, rows: int, failed: int) -> LemanError | None:
    """Return the error (TOO_MANY_ERRORS) if more rows failed than the function's policy allows, else None."""
    allowed = udf.error_policy.errors_allowed(rows)
    if allowed is None or failed <= allowed:
        return None
    return FailedPrecondition(
        "TOO_MANY_ERRORS",
        f"UDF '{udf.name}' failed on {failed} rows, {allowed} are allowed. "
        "JobService.ListJobErrors lists them; fix the function, or increase `max_errors` in its error policy.",
        rows_failed=failed,
    )


def failed_row_facts(row: RowError) -> dict[str, str]:
    """Return a failed row as the facts of an error."""
    return {
        "error_type": row.error_type,
        "error_message": row.error_message[:500],
        "row_address": str(row.row_address),
        "fragment_id": str(row.fragment_id),
        "offset": str(row.offset),
        "attempt": str(row.attempt),
        "traceback": row.traceback[-2000:],
    }


def to_job_error(error: LemanError) -> JobError:
    """Return an error in the form in which a job stores it."""
    return JobError(kind=type(error).__name__, reason=error.reason, message=error.message, facts=error.facts)


def from_job_error(error: JobError) -> LemanError:
    """Return the error that a job stored. Return an Internal error if this release does not know its class."""
    kind: type[LemanError] = getattr(error_tree, error.kind, error_tree.Internal)
    found = kind(error.reason, error.message)
    found.facts = error.facts
    return found


def note_lost_commit(status: JobStatus, jobs: JobStore, version: int) -> None:
    """Add an event to a job if its table or view is at an earlier version than a recent job committed.

    The job continues, because the table looks the same if it was deliberately restored from a copy.

    Args:
        version: The latest version of the table.
    """
    lost = jobs.lost_commit(status.job, version)
    if lost is None:
        return
    kind, name = "view" if lost.column is None else "table", lost.request.table
    status.note(
        "error",
        f"{kind} '{name}' is at version {version}, but job {lost.job_id} committed version {lost.table_version}: the "
        "newest files in _versions are missing, so the commits after them are lost. Restore these files from a copy "
        "before more is written; without a copy, the lost values are computed again",
    )


async def begin_attempt(commits: Commits, job: Job) -> None:
    """Fence the job's earlier attempts in its table or view.

    The executor of an earlier attempt may be suspended instead of dead. From now on, its files are refused. For a first
    attempt, this writes nothing. A deleted or replaced table is ignored here, because planning reports it.

    Raises:
        FailedPrecondition: ATTEMPT_FENCED – a later attempt has begun.
        LemanError: any other error of the coordinator.
    """
    try:
        await begin_attempt_at(commits, job, table_uri(job.request.database, job.request.table), job.incarnation)
    except NotFound:
        return
    except Aborted as error:
        if error.reason != TABLE_REPLACED:
            raise


async def begin_attempt_at(commits: Commits, job: Job, uri: str, incarnation: str = "") -> None:
    """Fence the job's earlier attempts in another table that the job writes to.

    Args:
        incarnation: The expected incarnation of the table. If empty, it is not checked.

    Raises:
        NotFound: The table does not exist.
        Aborted: TABLE_REPLACED – the table has another incarnation.
        LemanError: see `begin_attempt`.
    """
    if job.attempt > 1:
        await _note_attempt(commits, job, uri, incarnation)


async def give_incarnation(commits: Commits, job: Job, read_version: int, identity: str) -> BegunAttempt | None:
    """Give the job's table or view an incarnation if its plan has none, because commits need it.

    A table has no incarnation if Lance copied it from a table with computed columns. A view has none if its creator
    died.

    Args:
        read_version: The version that the plan was made from.
        identity: The identity of that version, from the plan.

    Returns:
        The attempt, with the incarnation of the planned table. None if the planned version no longer exists, so that
        the job must plan again.

    Raises:
        LemanError: see `begin_attempt`.
    """
    uri = table_uri(job.request.database, job.request.table)
    if identity:
        try:
            begun = await _note_attempt(commits, job, uri, "", read_version, identity)
        except Aborted as error:
            if error.reason != TABLE_REPLACED:
                raise
        else:
            if begun.incarnation:
                return begun
    await _note_attempt(commits, job, uri, "")
    return None


async def _note_attempt(
    commits: Commits, job: Job, uri: str, incarnation: str, read_version: int = 0, identity: str = ""
) -> BegunAttempt:
    return await retry_unavailable(
        commits.begin_attempt,
        uri,
        incarnation=incarnation,
        attempt=job.this_attempt,
        request_id=uuid.uuid4().hex,
        read_version=read_version,
        identity=identity,
    )


class EndingRun(Protocol):
    """The part of a running job that is needed to end the job."""

    @property
    def status(self) -> JobStatus: ...

    @property
    def cancelling(self) -> bool:
        """Return whether the job was cancelled."""
        ...

    async def end(self, state: JobState, error: JobError | None = None) -> None:
        """End the job."""
        ...


class JobRun(EndingRun, Protocol):
    """A backfill or a refresh. The plan has the type that the run's own `plan` returns."""

    @property
    def workers(self) -> int:
        """Return the number of the job's workers; 0 if unknown."""
        ...

    def set_cost_estimate(self, seconds_per_row: float | None) -> None:
        """Set the cost of a row in an earlier job of the same function version; None if unknown."""
        ...

    async def plan(self) -> Any:
        """Ask the planner for a plan. Retry while the planner is unreachable."""
        ...

    async def ended_at_once(self, plan: Any) -> bool:
        """End the job if there is nothing to do. Return whether it ended."""
        ...

    async def ended_soon(self, plan: Any) -> bool:
        """Do the job's work and end the job, if that takes no longer than recording that the job runs. Return whether
        the job ended.

        When this is called, the job is not in the history yet, and the caller has no response.
        """
        ...

    def check_env(self, plan: Any) -> None:
        """If the job has environment variables, check that at least one function can use them.

        Raises:
            FailedPrecondition: ENV_NOT_USABLE – no function can use them.
        """
        ...

    def check_resources(self, plan: Any) -> None:
        """Check that workers have the resources that the functions ask for.

        Raises:
            FailedPrecondition: RESOURCES_NOT_AVAILABLE – a function asks for more than any worker has.
        """
        ...

    def prefetch(self, plan: Any) -> None:
        """Start work before the job is in the history. This work writes nothing and calls no function."""
        ...

    async def abandon(self) -> None:
        """Stop the work that `prefetch` started, because `run` will not be called."""
        ...

    async def run(self, plan: Any) -> None:
        """Work until nothing is left, and end the job. An error ends the job too; only a bug raises."""
        ...

    async def replan_and_run(self) -> None:
        """Make a plan and run it, for a job that was taken over or queued."""
        ...

    def cancel(self) -> None:
        """Stop the workers. `run` then ends the job as CANCELLED. Blocks for a moment."""
        ...

    def pause(self) -> None:
        """Stop as soon as computed rows are stored. `run` then leaves the job as PAUSED."""
        ...

    def resume(self) -> None:
        """Allow a stopped job to run again. `replan_and_run` then continues it."""
        ...


async def run_to_completion(run: EndingRun, services: JobEnvironment, work: Awaitable[bool]) -> None:
    """Await `work`, which returns whether rows failed, and end the job accordingly. Only a bug raises."""
    ticking = asyncio.create_task(run.status.tick())
    try:
        await run.end(JobState.DONE_WITH_ERRORS if await work else JobState.DONE)
    except Cancelled:
        await end_stopped(run, services)
    except LemanError as error:
        await end_with_error(run, error)
    finally:
        ticking.cancel()
        services.forget_workers(run.status.job.key)


async def end_stopped(run: EndingRun, services: JobEnvironment) -> None:
    """End a job as CANCELLED if it is being cancelled; otherwise leave it as PAUSED."""
    if run.cancelling:
        await run.end(JobState.CANCELLED)
    else:
        await run.status.rest(services.jobs)


async def end_with_error(run: EndingRun, error: LemanError) -> None:
    """End a job with an error, unless another executor has taken it over."""
    if error.reason == ATTEMPT_FENCED:
        await run.status.leave()
        return
    if run.cancelling:
        await run.end(JobState.CANCELLED)
    else:
        await run.end(JobState.FAILED, to_job_error(error))
