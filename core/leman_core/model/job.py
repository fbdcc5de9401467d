"""A job: its request, its progress and its end."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from leman_core.model.keys import job_key
from leman_core.model.plan import BackfillSpec, ReasonCount
from leman_core.model.row_positions import RowRange
from leman_core.model.table import IndexCoverage
from leman_core.model.view import RefreshJournal, RefreshResult, RefreshSpec


class JobState(enum.Enum):
    """PENDING → PLANNING → RUNNING → DONE | DONE_WITH_ERRORS | FAILED.

    In addition CANCELLING → CANCELLED, and PAUSING → PAUSED → PENDING.
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

    __hash__ = object.__hash__  # Enum's own is written in Python, and listings filter by state

    @property
    def terminal(self) -> bool:
        return self in _TERMINAL


_TERMINAL = frozenset({JobState.DONE, JobState.DONE_WITH_ERRORS, JobState.FAILED, JobState.CANCELLED})
#: The states of jobs that have not ended.
OPEN = frozenset(JobState) - _TERMINAL
#: The states of jobs that no executor works on, so none can die over them.
AT_REST = frozenset({JobState.PENDING, JobState.PAUSED})


@dataclass(frozen=True, slots=True)
class Progress:
    """Counts of one job, see `protos/leman/v1/jobs.proto`."""

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
    #: The committed rows of fragments that are still being computed. Not on the wire: for an executor that continues
    #: the job, which counts all rows of these fragments once they are finished.
    rows_partly_committed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobError:
    """Why a job failed. `kind` is the class in `leman_core.model.service_errors`."""

    kind: str
    reason: str
    message: str
    facts: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """What a job waits for, see `protos/leman/v1/jobs.proto`."""

    worker: str
    fragment_id: int
    rows: RowRange
    idle_seconds: float
    silent: bool
    message: str


#: The request of a job, with the `database` and the `table` that it writes to.
JobRequest = BackfillSpec | RefreshSpec


class Attempt(NamedTuple):
    """One attempt at a job, as a commit names it."""

    job_id: str
    number: int


@dataclass(frozen=True, slots=True)
class Job:
    """One job as its history keeps it. Times are seconds since the epoch."""

    job_id: str
    request_id: str
    state: JobState
    request: JobRequest
    created_at: float
    updated_at: float
    progress: Progress = Progress()
    error: JobError | None = None
    udf_name: str = ""
    udf_version: str = ""
    reasons: tuple[ReasonCount, ...] = ()
    plan_summary: str = ""
    table_version: int = 0
    attempt: int = 1
    """The number of executors that have begun the job, including this one."""
    queue_position: int = 0
    """The job's place in the queue, where 1 is the next; 0 if it does not wait."""
    expected_start_at: float = 0.0
    """The expected start of a waiting job; 0: unknown, or it does not wait."""
    stalls: tuple[Stall, ...] = ()
    """What the running job waits for; empty in any other state."""
    handed_back: int = 0
    """The number of the job's attempts that ended because their executor was stopped, not because it died."""
    executor: str = ""
    """The executor of the attempt."""
    retry_of: str = ""
    incarnation: str = ""
    """The incarnation of the job's table or view: an id that no later table at its URI has; empty: unknown."""
    source_incarnation: str = ""
    """For a refresh, the `TableSnapshot.identity` of the source at the target version."""
    request_body: str = ""
    """Digest of the whole request message: see `leman_core.server.request_messages`."""
    refresh_result: RefreshResult | None = None
    refresh_journal: RefreshJournal = field(default_factory=RefreshJournal)
    """For a refresh, the records that an executor needs to take it over."""
    failed_in: tuple[str, ...] = ()
    """Other jobs in which rows had failed before this job."""
    stale_indices: tuple[IndexCoverage, ...] = ()
    """The indexes on the job's output that did not cover all rows when the job ended."""
    labels: dict[str, str] = field(default_factory=dict)
    """The caller's labels."""
    priority: int = 0
    """Of waiting jobs, those with a higher priority run first."""
    started_at: float = 0.0
    """When the job first left the queue; 0: not yet."""
    initiator: str = ""
    """The name of the caller; empty: anonymous."""
    ended_at: float = 0.0
    """When it ended; 0: not yet."""
    env_names: tuple[str, ...] = ()
    """The sorted names of the environment variables of its functions. The history never has their values."""
    traceparent: str = ""
    """The W3C trace parent; empty: it is not traced."""
    functions: dict[str, str] = field(default_factory=dict)
    """For a backfill of several columns: column → function, `name@version`, when it was accepted."""
    deleted: bool = False
    """Whether the job was deleted from the history. This record is then all that is left, see `deleted_job`."""

    @property
    def backfill(self) -> BackfillSpec:
        """Return the request of a job that is known to be a backfill.

        Raises:
            TypeError: it is not.
        """
        if not isinstance(self.request, BackfillSpec):
            raise TypeError(f"job {self.job_id} is not a backfill")
        return self.request

    @property
    def refresh(self) -> RefreshSpec:
        """Return the request of a job that is known to refresh a view.

        Raises:
            TypeError: it does not.
        """
        if not isinstance(self.request, RefreshSpec):
            raise TypeError(f"job {self.job_id} is not a refresh")
        return self.request

    @property
    def column(self) -> str | None:
        """Return the column that the job computes; None if it refreshes a view."""
        return self.request.column if isinstance(self.request, BackfillSpec) else None

    @property
    def key(self) -> str:
        """Return the job's key among all databases, see `leman_core.model.keys.job_key`."""
        return job_key(self.request.database, self.job_id)

    @property
    def this_attempt(self) -> Attempt:
        """Return the attempt of this state."""
        return Attempt(self.job_id, self.attempt)


def deleted_job(job: Job, now: float) -> Job:
    """Return the record that stays in the history for a deleted job, so that no other job gets its id."""
    return Job(
        job.job_id,
        "",
        job.state,
        BackfillSpec(job.request.database, "", ""),
        job.created_at,
        now,
        attempt=job.attempt,
        executor=job.executor,
        deleted=True,
    )


def same_attempt(one: Job, other: Job) -> bool:
    """Return whether two states of a job belong to the same attempt of one executor."""
    return (one.attempt, one.executor) == (other.attempt, other.executor)


@dataclass(frozen=True, slots=True)
class JobEvent:
    """An event for the log of a job. `sequence` grows within a job, also over restarts."""

    sequence: int
    time: float
    kind: str
    message: str


@dataclass(frozen=True, slots=True)
class BegunAttempt:
    """The coordinator's response to the begin of an attempt: the table's version after it, and its incarnation."""

    version: int
    #: Empty: the coordinator's release does not send it.
    incarnation: str = ""


@dataclass(frozen=True, slots=True)
class ColumnCommit:
    """The coordinator's response to a request to install a column's files."""

    #: The table's version after the commit; 0 if nothing was committed.
    version: int
    outcomes: Sequence[FragmentOutcome]
    #: Seconds that the version took to write, which depend on the manifest's size; 0 if this call did not write it.
    manifest_seconds: float = 0.0
    #: Whether this version is known to have no index.
    without_indexes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FragmentOutcome:
    """The coordinator's decision on one fragment. `reason` is empty unless it was rejected."""

    fragment_id: int
    committed: bool
    reason: str = ""
    message: str = ""
