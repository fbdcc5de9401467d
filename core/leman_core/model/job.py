"""A job: what was asked, how far it is, how it ended."""

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

    Beside that CANCELLING → CANCELLED, and PAUSING → PAUSED → PENDING.
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
#: The states of jobs that go on.
OPEN = frozenset(JobState) - _TERMINAL
#: The states of jobs that no one works on: no executor can die over them.
AT_REST = frozenset({JobState.PENDING, JobState.PAUSED})


@dataclass(frozen=True, slots=True)
class Progress:
    """Counts of one job; meanings in `protos/leman/v1/jobs.proto`."""

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
    #: Of the committed rows, those of fragments that are still being computed. Not on the wire: for an executor that
    #: continues with the job, which counts all rows of these fragments once they are finished.
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
    """What a job waits for; meanings in `protos/leman/v1/jobs.proto`."""

    worker: str
    fragment_id: int
    rows: RowRange
    idle_seconds: float
    silent: bool
    message: str


#: What a job was asked to do. Both say the `database` and the `table` that the job writes to.
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
    """How many executors have begun it, this one included."""
    queue_position: int = 0
    """Its place among the jobs that wait for their turn, 1 is next; 0: it does not wait."""
    expected_start_at: float = 0.0
    """When a job that waits will have its turn, as far as is known; 0: not known, or it does not wait."""
    stalls: tuple[Stall, ...] = ()
    """What it waits for; empty unless it is running."""
    handed_back: int = 0
    """Of its attempts, those whose executor stopped in good order."""
    executor: str = ""
    """Who has the attempt."""
    retry_of: str = ""
    incarnation: str = ""
    """Which of all tables, or views, that had its name it is about; empty: that is not known."""
    source_incarnation: str = ""
    """Likewise for the source of a view that it refreshes: `view_metadata.identity` of the version to go to."""
    request_body: str = ""
    """Digest of the whole message that asked for it: see `leman_core.server.request_messages`."""
    refresh_result: RefreshResult | None = None
    refresh_journal: RefreshJournal = field(default_factory=RefreshJournal)
    """What an executor has to know that takes a refresh over."""
    failed_in: tuple[str, ...] = ()
    """Other jobs in which rows failed that it found failed."""
    stale_indices: tuple[IndexCoverage, ...] = ()
    """Indexes on what it wrote that left rows out when it ended."""
    labels: dict[str, str] = field(default_factory=dict)
    """What its caller said of it."""
    priority: int = 0
    """Among jobs that wait, those with a higher one have their turn first."""
    started_at: float = 0.0
    """When it first had its turn; 0: it has not had it yet."""
    initiator: str = ""
    """The name of the caller who asked for it; empty: anonymous."""
    ended_at: float = 0.0
    """When it ended; 0: it has not ended."""
    env_names: tuple[str, ...] = ()
    """The environment variables that its functions have, in order; their values are in no record."""
    traceparent: str = ""
    """What its trace began with, as W3C has it; empty: it is not traced."""
    functions: dict[str, str] = field(default_factory=dict)
    """Of a backfill of several columns: each with the function, `name@version`, that it was accepted with."""
    deleted: bool = False
    """It was taken out of the history: this is all that is left of it, see `deleted`."""

    @property
    def backfill(self) -> BackfillSpec:
        """Return the request of a job that is known to be a backfill.

        Raises:
            TypeError: it is none.
        """
        if not isinstance(self.request, BackfillSpec):
            raise TypeError(f"job {self.job_id} is no backfill")
        return self.request

    @property
    def refresh(self) -> RefreshSpec:
        """Return the request of a job that is known to refresh a view.

        Raises:
            TypeError: it does not.
        """
        if not isinstance(self.request, RefreshSpec):
            raise TypeError(f"job {self.job_id} is no refresh")
        return self.request

    @property
    def column(self) -> str | None:
        """Return the column that it fills; None: it refreshes a view."""
        return self.request.column if isinstance(self.request, BackfillSpec) else None

    @property
    def key(self) -> str:
        """Return what names the job among those of all databases, see `leman_core.model.keys.job_key`."""
        return job_key(self.request.database, self.job_id)

    @property
    def this_attempt(self) -> Attempt:
        """Return the attempt that this is a state of."""
        return Attempt(self.job_id, self.attempt)


def deleted_job(job: Job, now: float) -> Job:
    """Return what is left in the history of a job that has ended and is deleted: that its id is taken."""
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
    """Return whether two states of a job are of one attempt of one executor."""
    return (one.attempt, one.executor) == (other.attempt, other.executor)


@dataclass(frozen=True, slots=True)
class JobEvent:
    """Something worth a line in a log. `sequence` grows within a job, over restarts too."""

    sequence: int
    time: float
    kind: str
    message: str


@dataclass(frozen=True, slots=True)
class BegunAttempt:
    """What the coordinator says about the begin of an attempt: the table's version after it, and its incarnation."""

    version: int
    #: Empty: the coordinator is of a release that does not say.
    incarnation: str = ""


@dataclass(frozen=True, slots=True)
class ColumnCommit:
    """What the coordinator says about a request to install a column's files."""

    #: The table's version after it; 0: nothing was committed.
    version: int
    outcomes: Sequence[FragmentOutcome]
    #: How long the version took to write, which goes by the size of the table's manifest; 0: it was not written now.
    manifest_seconds: float = 0.0
    #: Whether it is known that this version has no index.
    without_indexes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FragmentOutcome:
    """What the coordinator says about one fragment. `reason` is empty unless it was rejected."""

    fragment_id: int
    committed: bool
    reason: str = ""
    message: str = ""
