"""The values that describe jobs to callers, and one-line texts about jobs."""

from __future__ import annotations

import datetime
import enum
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

from leman._message_text import Shown, short_repr
from leman._table_model import IndexCoverage, ReasonCount

_JOBS_SHOWN, _TARGET = 20, 26


class JobState(enum.StrEnum):
    """PENDING → PLANNING → RUNNING → DONE | DONE_WITH_ERRORS | FAILED.

    Also CANCELLING → CANCELLED, and PAUSING → PAUSED → PENDING.
    """

    PENDING = "PENDING"
    PLANNING = "PLANNING"
    RUNNING = "RUNNING"
    DONE = "DONE"
    DONE_WITH_ERRORS = "DONE_WITH_ERRORS"
    FAILED = "FAILED"
    CANCELLING = "CANCELLING"
    CANCELLED = "CANCELLED"
    PAUSING = "PAUSING"
    PAUSED = "PAUSED"

    @property
    def terminal(self) -> bool:
        """True if the job has ended."""
        return self in (JobState.DONE, JobState.DONE_WITH_ERRORS, JobState.FAILED, JobState.CANCELLED)


@dataclass(frozen=True, slots=True, repr=False)
class Progress:
    """Counts of one job, without deleted rows.

    Rows go through three states: *checkpointed* (computed and stored), *ready to commit* (in a complete column file
    that waits for its commit), *committed* (visible to queries). `rows_checkpointed` counts the rows in any of the
    three. For `rows_computed` rows, the function returned a value; for `rows_failed` rows, it failed, and the error
    policy leaves them NULL. `rows_failed_before` rows failed in earlier jobs and stay NULL. In a refresh, rows are
    those of the view, and counts of calls are sums over its functions. `input_rows_evaluated`: rows passed to the
    functions of stale inputs, which the job computed first; no other count includes them. Seconds of work are sums over
    all workers.
    """

    rows_total: int = 0
    rows_reused: int = 0
    rows_planned: int = 0
    rows_checkpointed: int = 0
    rows_ready_to_commit: int = 0
    rows_committed: int = 0
    rows_skipped: int = 0
    rows_failed: int = 0
    rows_evaluated: int = 0
    fragments_planned: int = 0
    fragments_committed: int = 0
    udf_seconds: float = 0.0
    read_seconds: float = 0.0
    checkpoint_seconds: float = 0.0
    write_seconds: float = 0.0
    load_seconds: float = 0.0
    commit_seconds: float = 0.0
    bottleneck: str = ""
    elapsed_seconds: float = 0.0
    spark_jobs: int = 0
    rows_per_second: float = 0.0
    eta_seconds: float = 0.0
    commits: int = 0
    rows_computed: int = 0
    rows_failed_before: int = 0
    input_rows_evaluated: int = 0

    __repr__ = short_repr


@dataclass(frozen=True, slots=True)
class JobError:
    """Why a job failed: a reason for programs, a message for people, facts, and a gRPC code."""

    reason: str
    message: str
    facts: Mapping[str, str] = field(default_factory=dict)
    code: str = "UNKNOWN"


@dataclass(frozen=True, slots=True)
class JobEvent:
    """An event of a job.

    `kind`: `state`, `queue`, `plan`, `collected`, `commit`, `error`, `replan`, `wait`, `stall` or `resources`.
    """

    sequence: int
    time: datetime.datetime
    kind: str
    message: str


@dataclass(frozen=True, slots=True, repr=False)
class RefreshResult(Shown):
    """What a refresh did.

    `mode`: `no_op`, `incremental` or `full`. `reason`: why, such as `first_fill`, `source_changed`, `up_to_date`. Rows
    are those of the view. `rows_evaluated` counts the rows passed to functions, once for each function column. The
    values of `rows_recomputed` rows were written again, with or without calls. `input_rows_evaluated`: see `Progress`.

    A value is missing if a function failed on its row. `rows_failed` counts the missing values of this refresh, and
    `rows_failed_before` those of earlier ones; a row counts once for each column that lacks its value.
    `View.get_errors` returns the errors, by `job_id` and the ids in `failed_in`. `state`: the job's state, which is
    DONE_WITH_ERRORS if values are missing. `warnings`: damaged or missing records of the view, with advice.
    """

    mode: str
    reason: str
    rows_added: int = 0
    rows_recomputed: int = 0
    rows_evicted: int = 0
    rows_reused: int = 0
    rows_evaluated: int = 0
    source_rows_read: int = 0
    fragments_rewritten: int = 0
    source_version_before: int = 0
    source_version: int = 0
    view_version: int = 0
    rows_failed: int = 0
    rows_failed_before: int = 0
    job_id: str = ""
    failed_in: tuple[str, ...] = ()
    state: JobState = JobState.DONE
    warnings: tuple[str, ...] = ()
    input_rows_evaluated: int = 0

    __repr__ = short_repr

    def __str__(self) -> str:
        told = [self.work]
        if self.rows_failed:
            told.append(f"{_stay(self.rows_failed, 'failed and')}: get_errors(job_id={self.job_id!r})")
        if self.rows_failed_before:
            where = f": failed_in={self.failed_in!r}" if self.failed_in else ""
            told.append(_stay(self.rows_failed_before, "that failed before") + where)
        return "\n".join(["; ".join(told), *(f"warning: {text}" for text in self.warnings)])

    @property
    def work(self) -> str:
        """The changes of the rows in one line, without the failed rows."""
        calls = [f"{_rows(self.input_rows_evaluated)} of inputs computed first"] if self.input_rows_evaluated else []
        if self.mode == "no_op":
            return "; ".join([f"nothing to do, it is right for source version {self.source_version}", *calls])
        counts = {
            "added": self.rows_added,
            "updated": self.rows_recomputed,
            "evicted": self.rows_evicted,
            "reused": self.rows_reused,
        }
        rows = ", ".join(f"{_rows(n)} {what}" for what, n in counts.items() if n) or "no row changed"
        if self.rows_evaluated or self.rows_recomputed:
            calls.append(f"functions called for {_rows(self.rows_evaluated)}" if self.rows_evaluated else "no calls")
        done = f"{self.mode} ({self.reason.replace('_', ' ')}): {rows}"
        return "; ".join([done, *calls, f"source version {self.source_version}"])


def _stay(count: int, which: str) -> str:
    return f"{count:,} row {which} stays NULL" if count == 1 else f"{count:,} rows {which} stay NULL"


@dataclass(frozen=True, slots=True)
class Stall:
    """Something for which a running job waits without progress. Its `str` is a sentence.

    `worker`: the worker process that computes `rows`, physical offsets with an exclusive end, of the fragment
    `fragment_id` (None: of no fragment). `silent`: the worker sends no heartbeat, so another worker got its work.
    """

    worker: str
    fragment_id: int | None
    rows: tuple[int, int]
    idle_seconds: float
    silent: bool
    message: str

    def __str__(self) -> str:
        return self.message


def trace_of(traceparent: str) -> str:
    """Return the trace id in a `traceparent`, or "" if that is empty."""
    return traceparent.split("-")[1] if traceparent else ""


@dataclass(frozen=True, slots=True, repr=False)
class Job(Shown):
    """A job in the state that it had when it was read.

    `table_version`: the last version that it committed, or 0. `stalls`: what it waits for without progress. `retry_of`:
    the job whose failed rows it retries. A job that fills several columns lists them in `columns` and leaves `column`
    empty; its progress is the sum over these columns. A job that refreshes a view has neither `column` nor `columns`;
    `refresh_result` has what it did so far. `queue_position`: its place among waiting jobs (1 is next), or 0 if it does
    not wait, or waits in another executor's queue. `expected_start_time`: an estimate, if the services have one.
    `failed_in`: ids of the jobs in which the rows of `progress.rows_failed_before` failed, if the history has these
    jobs. They include jobs whose stored failures this job reused. `stale_indices`: indexes on the written columns that
    did not cover all rows when it ended, see `Table.optimize_indices`. `labels`, `priority`: given by its caller.
    `initiator`: the caller's name, or "". `start_time`: when it first began to run. `end_time`: when it ended. Each is
    None before that. `env_names`: the names of the environment variables that it was given; their values are secret.
    `trace_id`: the id of its trace in hex, or "" if services are not traced.
    """

    job_id: str
    state: JobState
    database: str
    table: str
    column: str
    where: str
    udf_name: str
    udf_version: str
    progress: Progress
    reasons: tuple[ReasonCount, ...]
    plan_summary: str
    error: JobError | None
    table_version: int
    attempt: int
    create_time: datetime.datetime
    update_time: datetime.datetime
    stalls: tuple[Stall, ...] = ()
    retry_of: str = ""
    refresh_result: RefreshResult | None = None
    failed_in: tuple[str, ...] = ()
    queue_position: int = 0
    stale_indices: tuple[IndexCoverage, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    priority: int = 0
    initiator: str = ""
    start_time: datetime.datetime | None = None
    end_time: datetime.datetime | None = None
    expected_start_time: datetime.datetime | None = None
    env_names: tuple[str, ...] = ()
    trace_id: str = ""
    columns: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<leman.Job {self.job_id} {self.state}: {self.target}>"

    def __str__(self) -> str:
        progress, plan = self.progress, f"; {self.plan_summary}" if self.plan_summary else ""
        done = f"{progress.rows_committed:,} of {progress.rows_planned:,} rows committed"
        if self.refresh_result is not None and self.state.terminal:
            done = self.refresh_result.work
        failed = f": {self.error.message}" if self.error is not None else ""
        return f"{self.target}: {self.state}{failed or f', {done}{plan}'} ({self.job_id})"

    @property
    def target(self) -> str:
        """What it computes: `table.column`, the columns of a table, or the name of a view."""
        if self.columns:
            return f"{self.table}: {', '.join(self.columns)}"
        return f"{self.table}.{self.column}" if self.column else self.table


@dataclass(frozen=True, slots=True)
class JobUpdate:
    """A job at one moment, with the events since the previous update. No event is in two updates.

    `events_missing`: whether earlier events may be lost, because an executor crashed or more than a thousand events
    occurred at once. `sequence`: the position of the update in the watch. It never decreases, even if services restart.
    """

    job: Job
    events: list[JobEvent]
    events_missing: bool
    sequence: int


class Jobs(list[Job], Shown):
    """Jobs, newest first. `str()` has a line of at most 80 columns for each."""

    def __str__(self) -> str:
        return "\n".join(_lines(self))

    __repr__ = __str__


def _lines(jobs: list[Job]) -> list[str]:
    if not jobs:
        return ["no jobs"]
    row = "{:<20}  {:<26}  {:<16}  {:>10}"
    lines = [row.format("job", "of", "state", "rows")]
    for job in jobs[:_JOBS_SHOWN]:
        target = job.target if len(job.target) <= _TARGET else f"{job.target[: _TARGET - 1]}…"
        lines.append(row.format(job.job_id, target, job.state, f"{job.progress.rows_committed:,}"))
    more = len(jobs) - _JOBS_SHOWN
    return [*lines, f"and {more:,} more"] if more > 0 else lines


def is_done(job: Job) -> bool:
    """Return True for a job that ended as DONE or DONE_WITH_ERRORS."""
    return job.state in (JobState.DONE, JobState.DONE_WITH_ERRORS)


def result_line(job: Job) -> str:
    """Return a line about how a job ended."""
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
        text = f"{name}: {_work(job)} in {took}"
        text += f", table version {job.table_version}" if job.table_version else ""
    if job.stale_indices:
        text += f"; {'; '.join(str(index) for index in job.stale_indices)} until optimize_indices"
    if job.state is not JobState.DONE_WITH_ERRORS:
        return text
    if progress.rows_failed:
        stay = "stays" if progress.rows_failed == 1 else "stay"
        every = "all of " if progress.rows_failed == progress.rows_evaluated > 1 else ""
        text += f"; {every}{_rows(progress.rows_failed)} failed and {stay} NULL: {errors_command(job)}"
        if job.failed_in and not progress.rows_failed_before:  # found by a job that did not finish
            text += f", and {_where_failed(job)}"
    if progress.rows_failed_before or not progress.rows_failed:
        text += f"; {_failed_before(job)}"
    return text


def interrupted_line(job: Job | None, job_id: str) -> str:
    """Return a line about a job whose caller was interrupted. It says how to continue."""
    if job is None:
        return f"{job_id} is being cancelled; finished work is kept, and the same call continues from there"
    kept = max(job.progress.rows_checkpointed, job.progress.rows_committed)
    if is_done(job):
        return f"{job.target}: had just ended: {_rows(kept)} are kept ({job.job_id})"
    how = "cancelled" if job.state.terminal else "is being cancelled"
    verb = "is" if kept == 1 else "are"
    return f"{job.target}: {how}; {_rows(kept)} {verb} kept, and the same call continues from there ({job.job_id})"


def left_line(job: Job | None, database: str, job_id: str) -> str:
    """Return a line about a job that is no longer watched. `job`: its last known state, or None."""
    place = f"{shlex.quote(database)} {job_id}"
    how = f"`leman jobs watch {place}` shows it again, `leman jobs cancel {place}` ends it"
    return f"{job.target if job is not None else job_id}: the job continues; {how}"


def state_line(job: Job) -> str:
    """Return the job's state, with its place in the queue if it waits: `PENDING, 3 in the queue`."""
    return f"{job.state}, {queue_line(job)}" if job.queue_position else str(job.state)


def queue_line(job: Job) -> str:
    """Return the job's place in the queue, with its expected start time if that is known."""
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
    """Return the command that lists a job's failed rows, or those of `job_id` in the same database."""
    return f"leman errors {shlex.quote(job.database)} {job_id or job.job_id}"


def duration(seconds: float) -> str:
    """Return seconds for people: `12 ms`, `1.4 s`, `3 min 20 s`, `2 h 05 min`."""
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


def _work(job: Job) -> str:
    progress = job.progress
    computed = f"{_rows(progress.rows_computed)} computed"
    if job.attempt > 1 and (before := progress.rows_checkpointed - progress.rows_evaluated) > 0:
        computed = f"{computed} since the job resumed, {before:,} stored before"
    if progress.rows_reused:
        computed += f", {progress.rows_reused:,} reused"
    if progress.input_rows_evaluated:
        computed += f", {_rows(progress.input_rows_evaluated)} of inputs computed first,"
    return computed
