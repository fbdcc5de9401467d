"""A database with a long past: ended jobs, and failed rows of one of them, written as executors write them."""

from __future__ import annotations

import time
from pathlib import Path

from benchmarks.common import say
from leman_core.model.job import Job, JobState, Progress
from leman_core.model.plan import BackfillSpec, Reason, ReasonCount
from leman_core.model.work import RowError
from leman_executor.history.job_history import JobHistory
from leman_executor.worker.error_store import JobErrors, errors_uri

_JOBS_AT_ONCE = 2000
_ERRORS_AT_ONCE = 5_000
_FRAGMENTS = 16
_STATES = (JobState.DONE, JobState.DONE, JobState.DONE_WITH_ERRORS, JobState.FAILED, JobState.CANCELLED)


def ended_job(database: str, number: int, begun: float) -> Job:
    """A job as it stands in a history."""
    return Job(
        job_id=f"job-{number:016x}",
        request_id=f"request-{number}",
        state=_STATES[number % len(_STATES)],
        request=BackfillSpec(database, f"table{number % 50}", f"column{number % 7}"),
        created_at=begun + number,
        updated_at=begun + number + 0.5,
        progress=Progress(rows_total=10_000, rows_committed=10_000, rows_evaluated=10_000, udf_seconds=1.5),
        udf_name=f"function{number % 7}",
        udf_version=f"{number % 7:032x}",
        reasons=(ReasonCount(Reason.MISSING, 16, 10_000),),
        plan_summary="10,000 rows in 16 fragments to compute: 16 missing",
        table_version=number % 1000 + 1,
        executor="0" * 32,
        request_body="0" * 32,
    )


def fill(database: Path, jobs: int, errors: int) -> str:
    """Write the past of a database, unless it has one; return the job whose rows failed."""
    failed_job = f"job-{2:016x}"
    if (database / "_leman" / "jobs.lance").exists():
        return failed_job
    database.mkdir(exist_ok=True)
    started = time.perf_counter()
    history = JobHistory(str(database))
    history.prepare()
    begun = time.time() - jobs - 60
    for at in range(0, jobs, _JOBS_AT_ONCE):
        numbers = range(at, min(at + _JOBS_AT_ONCE, jobs))
        history.save_all([ended_job(str(database), number, begun) for number in numbers])
        if history.untidy:
            history.tidy()
    sink = JobErrors(errors_uri(str(database)), failed_job, "y", f"{2:032x}")
    for number in range(-(-errors // _ERRORS_AT_ONCE)):  # workers store failures beside one another, each its own
        fragment, part = number % _FRAGMENTS, number // _FRAGMENTS
        begin = part * _ERRORS_AT_ONCE
        rows = range(begin, begin + min(_ERRORS_AT_ONCE, errors - number * _ERRORS_AT_ONCE))
        sink.store([_failure(fragment, offset) for offset in rows])
    say(f"{jobs} jobs and {errors} failed rows written in {time.perf_counter() - started:.1f} s")
    return failed_job


def _failure(fragment: int, offset: int) -> RowError:
    return RowError(
        row_address=fragment << 32 | offset,
        error_type="ValueError",
        error_message=f"row {offset} has no text",
        traceback=_TRACEBACK,
        attempt=1,
    )


_TRACEBACK = 'Traceback (most recent call last):\n  File "functions.py", line 7, in words\nValueError: no text\n' * 2
