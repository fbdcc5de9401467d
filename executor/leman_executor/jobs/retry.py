"""The retry of a job: the specification of the backfill that computes its failed rows again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from leman_core.model.errors import FailedPrecondition, InvalidArgument
from leman_core.model.job import Job, JobState
from leman_core.model.plan import BackfillSpec, FragmentTask
from leman_core.model.refresh import RefreshSpec
from leman_core.model.udf import FunctionVersion
from leman_executor.jobs.ports import Planner
from leman_executor.jobs.same_table import check_same_table


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """What a retry is asked to do, see `RetryJobRequest` in `protos/leman/v1/jobs.proto`."""

    job_id: str
    udf_name: str = ""
    udf_version: str = ""
    keep_others: bool = False


async def specification(planner: Planner, job: Job, retry: Retry) -> tuple[BackfillSpec, bytes]:
    """Return the backfill that retries an ended job, and what `Planner.alter_column` returned.

    Where the column is to have another function, it is given that first. Doing so twice changes nothing: a caller whose
    first try died asks again.

    Raises:
        FailedPrecondition: JOB_RUNNING – the job has not ended; NOT_A_BACKFILL – it is a refresh;
            or it filled several columns and another function is given;
            KEEP_OTHERS_FUNCTION – its values are not of the column's function and cannot be kept.
        Aborted: TABLE_REPLACED – its table was dropped, and another one has the name.
        InvalidArgument: BAD_REQUEST – `keep_others` or `udf_version` is given without `udf_name`.
        LemanError: what the planner says.
    """
    if not job.state.terminal:
        raise FailedPrecondition(
            "JOB_RUNNING", f"Job {job.job_id} has not ended: cancel it, or wait for its end", job_id=job.job_id
        )
    if isinstance(job.request, RefreshSpec):
        raise FailedPrecondition("NOT_A_BACKFILL", _instead(job), job_id=job.job_id)
    if job.request.columns and retry.udf_name:
        raise FailedPrecondition(
            "NOT_A_BACKFILL",
            f"Job {job.job_id} filled several columns: leave the function out, or give it to its column with "
            "CatalogService.AlterColumns, where keep_values keeps the other rows, and backfill that",
            job_id=job.job_id,
        )
    if (retry.keep_others or retry.udf_version) and not retry.udf_name:
        raise InvalidArgument(
            "BAD_REQUEST", "keep_others and a version need `udf.name`, the function to be used", field="udf.name"
        )
    await check_same_table(job)  # before the column of another one is given a function
    # which fragments were sampled, or in which version, says nothing about the failed rows: they are marked
    spec = replace(job.request, num_frags=0, read_version=0, read_tag="", commit_rows=0, failed_only=True)
    if job.request.columns:
        return spec, b""
    if not retry.udf_name:
        own = not spec.udf_name or await _is_own(planner, job)
        return replace(spec, udf_name="", udf_version="") if own else spec, b""
    wanted = await planner.find_udf(spec.database, retry.udf_name, retry.udf_version)
    if wanted == FunctionVersion(job.udf_name, job.udf_version):
        return replace(spec, udf_name=wanted.name, udf_version=wanted.version), b""
    if retry.keep_others:
        await _check_kept(planner, job, wanted)
    outcome = await planner.alter_column(spec, wanted, keep_values=retry.keep_others)
    return replace(spec, udf_name="", udf_version="", failed_only=retry.keep_others), outcome


def _instead(job: Job) -> str:
    """Return, for a person, what brings values for the rows that a refresh left without."""
    refreshed = f"Job {job.job_id} refreshed view {job.request.table}"
    if job.state in (JobState.DONE, JobState.DONE_WITH_ERRORS):
        return (
            f"{refreshed}, and a refresh calls a function again for a row that failed when the row has changed in "
            "the source, when CatalogService.AlterMaterializedView has given the column another function, or with "
            "POLICY_FULL"
        )
    return f"{refreshed} and ended {job.state.value}: refresh the view again, it goes on where the job stopped"


async def _is_own(planner: Planner, job: Job) -> bool:
    """Tell whether the job computed with the column's function, or with one whose values the column keeps."""
    return str(FunctionVersion(job.udf_name, job.udf_version)) in await planner.functions_of(job.backfill)


async def _check_kept(planner: Planner, job: Job, wanted: FunctionVersion) -> None:
    """Raise FailedPrecondition (KEEP_OTHERS_FUNCTION) unless the job's values are those of the column's own functions.

    Other values would be stale, and could not be kept.
    """
    if await _is_own(planner, job):
        return
    raise FailedPrecondition(
        "KEEP_OTHERS_FUNCTION",
        f"Job {job.job_id} computed column {job.column} with {job.udf_name}@{job.udf_version}, which is not the "
        f"column's function: its values cannot be kept beside those of {wanted}. Retry without keep_others",
        job_id=job.job_id,
    )


def _filled(job: Job) -> str:
    columns = job.backfill.columns
    return f"columns {', '.join(columns)}" if columns else f"column {job.column}"


class HasTasks(Protocol):
    """The plan of a backfill, of one column or several."""

    @property
    def tasks(self) -> Sequence[FragmentTask]: ...


def check_worth(job: Job, plan: HasTasks) -> None:
    """Check that there is something to retry.

    Raises:
        FailedPrecondition: NOTHING_TO_RETRY – the job ended early and left no failed row; a backfill does what it left
            undone.
    """
    if plan.tasks or job.state in (JobState.DONE, JobState.DONE_WITH_ERRORS):
        return
    raise FailedPrecondition(
        "NOTHING_TO_RETRY",
        f"Job {job.job_id} ended {job.state.value}, and no row of {_filled(job)} is marked as failed: "
        "run the backfill again, it goes on where the job stopped",
        job_id=job.job_id,
    )
