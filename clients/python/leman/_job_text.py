"""What people are told about a job, in a line."""

from __future__ import annotations

import shlex

from leman._job_model import Job, JobState, Progress


def is_done(job: Job) -> bool:
    """True for a job that has ended with its work done, failed rows or not."""
    return job.state in (JobState.DONE, JobState.DONE_WITH_ERRORS)


def result_line(job: Job) -> str:
    """How a job ended, in one line."""
    name, progress = job.target, job.progress
    if job.state is JobState.FAILED:
        why = job.error.message.splitlines()[0] if job.error is not None and job.error.message else "no reason given"
        return f"{name}: failed: {why} ({job.job_id})"
    if job.state is JobState.CANCELLED:
        kept = "is" if progress.rows_checkpointed == 1 else "are"
        return f"{name}: cancelled, {_rows(progress.rows_checkpointed)} {kept} kept ({job.job_id})"
    took = duration(progress.elapsed_seconds)
    if job.refresh_result is not None:
        text = f"{name}: {job.refresh_result.work} ({took})"
    elif progress.fragments_planned == 0:
        text = f"{name}: {job.plan_summary or 'nothing to do'} ({took})"
    else:
        text = f"{name}: {_work(progress)} in {took}"
        text += f", table version {job.table_version}" if job.table_version else ""
    if job.stale_indices:
        text += f"; {'; '.join(str(index) for index in job.stale_indices)} until optimize_indices"
    if job.state is not JobState.DONE_WITH_ERRORS:
        return text
    if progress.rows_failed:
        stay = "stays" if progress.rows_failed == 1 else "stay"
        every = "all of " if progress.rows_failed == progress.rows_evaluated > 1 else ""
        text += f"; {every}{_rows(progress.rows_failed)} failed and {stay} NULL: {errors_command(job)}"
        if job.failed_in and not progress.rows_failed_before:  # what a job that was not finished had found of them
            text += f", and {_where_failed(job)}"
    if progress.rows_failed_before or not progress.rows_failed:
        text += f"; {_failed_before(job)}"
    return text


def interrupted_line(job: Job | None, job_id: str) -> str:
    """What became of a job whose caller was interrupted, and how to go on."""
    if job is None:
        return f"{job_id} is being cancelled; what it has finished is kept: the same call goes on from there"
    kept = max(job.progress.rows_checkpointed, job.progress.rows_committed)
    if is_done(job):
        return f"{job.target}: had just ended: {_rows(kept)} are kept ({job.job_id})"
    how = "cancelled" if job.state.terminal else "is being cancelled"
    verb = "is" if kept == 1 else "are"
    return f"{job.target}: {how}; {_rows(kept)} {verb} kept, and the same call goes on from there ({job.job_id})"


def left_line(job: Job | None, database: str, job_id: str) -> str:
    """What becomes of a job that nobody watches any more. `job`: as it was last seen, if it was."""
    place = f"{shlex.quote(database)} {job_id}"
    how = f"`leman jobs watch {place}` shows it again, `leman jobs cancel {place}` ends it"
    return f"{job.target if job is not None else job_id}: the job goes on; {how}"


def state_line(job: Job) -> str:
    """Its state, with its place where it waits for its turn: `PENDING, 3 in the queue`."""
    return f"{job.state}, {queue_line(job)}" if job.queue_position else str(job.state)


def queue_line(job: Job) -> str:
    """Its place in the queue, and when its turn is expected, where that is known."""
    place = f"{job.queue_position} in the queue"
    if job.expected_start_time is None:
        return place
    return f"{place}, its turn at about {job.expected_start_time.astimezone():%H:%M:%S}"


def _failed_before(job: Job) -> str:
    rows = job.progress.rows_failed_before
    counted = f"{_rows(rows)} that failed before {'stays' if rows == 1 else 'stay'} NULL"
    if not job.failed_in:
        return counted
    return f"{counted}: {_where_failed(job)}"


def _where_failed(job: Job) -> str:
    others = f" (and in {len(job.failed_in) - 1} before it)" if len(job.failed_in) > 1 else ""
    return f"{errors_command(job, job.failed_in[0])}{others}"


def errors_command(job: Job, job_id: str = "") -> str:
    """The command line that lists a job's failed rows; `job_id`: those of another one in its database."""
    return f"leman errors {shlex.quote(job.database)} {job_id or job.job_id}"


def duration(seconds: float) -> str:
    """Seconds for people: `12 ms`, `1.4 s`, `3 min 20 s`, `2 h 05 min`."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02} s"
    return f"{minutes // 60} h {minutes % 60:02} min"


def _rows(count: int) -> str:
    return f"{count:,} row" if count == 1 else f"{count:,} rows"


def _work(progress: Progress) -> str:
    computed = f"{_rows(progress.rows_computed)} computed"
    if progress.rows_reused:
        computed += f", {progress.rows_reused:,} reused"
    return computed
