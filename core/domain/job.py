"""A job: what was asked, how far it is, how it ended."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import NamedTuple

from core.domain.plan import BackfillSpec, ReasonCount
from core.domain.ranges import RowRange
from core.domain.table import IndexCoverage
from core.domain.view import RefreshJournal, RefreshResult, RefreshSpec


class JobState(enum.Enum):
    """PENDING → PLANNING → RUNNING → DONE | DONE_WITH_ERRORS | FAILED, and CANCELLING → CANCELLED."""

    PENDING = "PENDING"
    PLANNING = "PLANNING"
    RUNNING = "RUNNING"
    DONE = "DONE"
    DONE_WITH_ERRORS = "DONE_WITH_ERRORS"
    FAILED = "FAILED"
    CANCELLING = "CANCELLING"
    CANCELLED = "CANCELLED"

    @property
    def terminal(self) -> bool:
        return self in _TERMINAL


_TERMINAL = frozenset({JobState.DONE, JobState.DONE_WITH_ERRORS, JobState.FAILED, JobState.CANCELLED})


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


@dataclass(frozen=True, slots=True)
class JobError:
    """Why a job failed. `kind` is the class in `core.errors`."""

    kind: str
    reason: str
    message: str
    facts: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Stall:
    """What a job waits for; meanings in `protos/leman/v1/jobs.proto`."""

    worker: str
    fragment_id: int
    rows: RowRange
    idle_seconds: float
    silent: bool
    message: str


class Attempt(NamedTuple):
    """One attempt at a job, as whoever commits names it."""

    job_id: str
    number: int


@dataclass(frozen=True, slots=True)
class Job:
    """One job as history keeps it. Times are seconds since the epoch. `attempt` counts the executors that began it,
    `handed_back` those of them that stopped in good order, and `executor` is the one that has the attempt (empty: an
    earlier release did not say); `queue_position` is 0 unless it waits for its turn, `stalls` empty unless it is
    running. `failed_in`: other jobs in which rows failed that it
    found failed. `request_body`: digest of the whole
    request that it was made for, see `core.rpc.bodies`. `refresh`: what was asked where the job refreshes a view;
    `spec` then names the view as its table and nothing else, and `refresh_journal` is for who takes the job over.
    `stale_indices`: indexes on what it wrote that left rows out when it ended."""

    job_id: str
    request_id: str
    state: JobState
    spec: BackfillSpec
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
    queue_position: int = 0
    stalls: tuple[Stall, ...] = ()
    handed_back: int = 0
    executor: str = ""
    retry_of: str = ""
    request_body: str = ""
    refresh: RefreshSpec | None = None
    refresh_result: RefreshResult | None = None
    refresh_journal: RefreshJournal = field(default_factory=RefreshJournal)
    failed_in: tuple[str, ...] = ()
    stale_indices: tuple[IndexCoverage, ...] = ()

    @property
    def this_attempt(self) -> Attempt:
        """The attempt that this is a state of."""
        return Attempt(self.job_id, self.attempt)


def counted(known: Job | None, said: Job) -> Job:
    """Which of two states of a job counts, of which `said` was written down after `known`.

    The first terminal state is final. An attempt belongs to whoever wrote it down first; once a later one is written
    down, the earlier one's executor has nothing to say any more, not even that the job has ended.
    """
    if known is None:
        return said
    if known.state.terminal or said.attempt < known.attempt:
        return known
    return known if said.attempt == known.attempt and said.executor != known.executor else said


def same_attempt(one: Job, other: Job) -> bool:
    """Whether two states of a job are of one attempt of one executor."""
    return (one.attempt, one.executor) == (other.attempt, other.executor)


@dataclass(frozen=True, slots=True)
class JobEvent:
    """Something worth a line in a log. `sequence` grows within a job, over restarts too."""

    sequence: int
    time: float
    kind: str
    message: str


@dataclass(frozen=True, slots=True)
class StoredRowError:
    """A failed row in the error store."""

    job_id: str
    column: str
    udf_version: str
    row_address: int
    row_id: int
    error_type: str
    error_message: str
    traceback: str
    attempt: int


@dataclass(frozen=True, slots=True)
class FragmentOutcome:
    """What the coordinator says about one fragment. `reason` is empty unless it was rejected."""

    fragment_id: int
    committed: bool
    reason: str = ""
    message: str = ""
