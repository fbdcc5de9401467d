"""The metrics of all services. docs/observability.md lists the same, which a test checks.

The code that knows a value records it in an instrument here. Until `bind`, an instrument does nothing: a process
without metrics does not import OpenTelemetry, and a measurement costs it one attribute access.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from opentelemetry import metrics
    from opentelemetry.metrics import CallbackOptions, Observation


#: The values of an instrument's attributes, by name.
Attributes: TypeAlias = Mapping[str, str]
#: A function that returns the values of a gauge with their attributes. The exporter calls it in its own thread.
Look: TypeAlias = Callable[[], Iterable[tuple[float, Attributes]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """The description of an instrument."""

    #: A name of OpenTelemetry's conventions, or one that begins with `leman.`.
    name: str
    #: The unit in UCUM. A word in braces means a count.
    unit: str
    #: What it measures, in a sentence.
    text: str
    #: The names of its attributes. Values come from small fixed sets: never names of tables, jobs or callers.
    attributes: tuple[str, ...] = ()


class Counter:
    """A sum that only grows."""

    def __init__(self, description: Description) -> None:
        self.description = description
        self._bound: metrics.Counter | None = None

    @property
    def is_bound(self) -> bool:
        """Return whether the count is exported."""
        return self._bound is not None

    def add(self, amount: float, attributes: Attributes | None = None) -> None:
        """Add an amount. Any thread may call it."""
        if self._bound is not None:
            self._bound.add(amount, attributes)

    def bind(self, meter: metrics.Meter | None) -> None:
        """Begin to count with a meter, or stop if it is None."""
        about = self.description
        self._bound = None if meter is None else meter.create_counter(about.name, about.unit, about.text)


class Histogram:
    """A distribution over buckets with the upper bounds `bounds`."""

    def __init__(self, description: Description, bounds: tuple[float, ...]) -> None:
        self.description = description
        self.bounds = bounds
        self._bound: metrics.Histogram | None = None

    @property
    def is_bound(self) -> bool:
        """Return whether values are exported, so that callers can skip computing them."""
        return self._bound is not None

    def record(self, value: float, attributes: Attributes | None = None) -> None:
        """Record a value. Any thread may call it."""
        if self._bound is not None:
            self._bound.record(value, attributes)

    def bind(self, meter: metrics.Meter | None) -> None:
        """Begin to record with a meter, or stop if it is None."""
        about = self.description
        self._bound = None
        if meter is not None:
            self._bound = meter.create_histogram(
                about.name, about.unit, about.text, explicit_bucket_boundaries_advisory=self.bounds
            )


class Gauge:
    """A value that is read at each export, and costs nothing in between."""

    def __init__(self, description: Description) -> None:
        self.description = description
        self._look: Look | None = None
        self._shown = False

    @property
    def is_shown(self) -> bool:
        """Return whether values are exported, so that callers can skip computing them."""
        return self._shown

    def show(self, look: Look | None) -> None:
        """Set the function that returns the values at each export; with None there are no values."""
        self._look = look

    def values(self) -> list[tuple[float, Attributes]]:
        """Return the current values."""
        return [] if self._look is None else list(self._look())

    def bind(self, meter: metrics.Meter | None) -> None:
        """Begin to export to a meter, or stop if it is None."""
        self._shown = meter is not None
        if meter is None:
            return
        from opentelemetry.metrics import Observation  # noqa: PLC0415 - see the module

        def observed(_options: CallbackOptions) -> list[Observation]:
            return [Observation(value, attributes) for value, attributes in self.values()]

        self._create(meter, [observed])

    def _create(self, meter: metrics.Meter, callbacks: list[Callable[[CallbackOptions], list[Observation]]]) -> None:
        about = self.description
        meter.create_observable_gauge(about.name, callbacks, about.unit, about.text)


class ObservedCounter(Gauge):
    """A sum that only grows and is counted elsewhere, such as by the operating system."""

    def _create(self, meter: metrics.Meter, callbacks: list[Callable[[CallbackOptions], list[Observation]]]) -> None:
        about = self.description
        meter.create_observable_counter(about.name, callbacks, about.unit, about.text)


Instrument: TypeAlias = Counter | Histogram | Gauge


#: Upper bounds of buckets in seconds, from a fast Redis call to a job of a day.
_CALL_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_REDIS_BOUNDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
_JOB_BOUNDS = (0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 86_400.0)

ERROR_TYPE = "error.type"
RPC_METHOD = "rpc.method"
STATUS_CODE = "rpc.response.status_code"
JOB_KIND = "leman.job.kind"
JOB_STATE = "leman.job.state"
ROWS = "leman.rows"
PHASE = "leman.phase"
EVENT = "leman.event"
FILE_KIND = "leman.file.kind"
OPERATION = "leman.commit.operation"
OUTCOME = "leman.commit.outcome"
CPU_MODE = "cpu.mode"
DB_SYSTEM = "db.system.name"
DB_OPERATION = "db.operation.name"
MEMORY = "leman.memory"
STORE = "leman.store"
LIBRARY = "leman.library"
STORE_OPERATION = "leman.store.operation"

# ---------------------------------------------------------------------------------- every service

CALL_DURATION = Histogram(
    Description(
        name="rpc.server.call.duration",
        unit="s",
        text="Durations of the calls that this service serves, including those that it refuses.",
        attributes=("rpc.system.name", RPC_METHOD, STATUS_CODE, ERROR_TYPE),
    ),
    _CALL_BOUNDS,
)
CALL_BUDGET = Gauge(
    Description(
        name="leman.rpc.budget.used",
        unit="1",
        text="Calls in progress, as a share of the method's limit on concurrent calls.",
        attributes=(RPC_METHOD,),
    )
)

PROCESS_CPU = ObservedCounter(
    Description(
        name="process.cpu.time",
        unit="s",
        text="Processor time of the service's own process. For the executor this excludes Spark and functions.",
        attributes=(CPU_MODE,),
    )
)
PROCESS_MEMORY = Gauge(
    Description(
        name="process.memory.usage",
        unit="By",
        text="Resident memory of the service's own process. For the executor this excludes Spark and functions.",
    )
)

STORE_REQUESTS = ObservedCounter(
    Description(
        name="leman.store.requests",
        unit="{request}",
        text="Requests to object stores by the service's own process, by library. Those of workers are not included.",
        attributes=(STORE, LIBRARY, STORE_OPERATION),
    )
)

# ------------------------------------------------------------------------------------- the planner

PLAN_DURATION = Histogram(
    Description(
        name="leman.plan.duration",
        unit="s",
        text="Durations of the phases of planning.",
        attributes=(JOB_KIND, PHASE),
    ),
    _CALL_BOUNDS,
)

# ------------------------------------------------------------------------------------ the executor

JOBS = Gauge(
    Description(
        name="leman.jobs",
        unit="{job}",
        text="Jobs that this executor owns and that have not ended, by state.",
        attributes=(JOB_KIND, JOB_STATE),
    )
)
JOB_DURATION = Histogram(
    Description(
        name="leman.job.duration",
        unit="s",
        text="Durations of the jobs that ended on this executor, from each job's first start to its end.",
        attributes=(JOB_KIND, JOB_STATE),
    ),
    _JOB_BOUNDS,
)
JOB_ENDS = Counter(
    Description(
        name="leman.job.ends",
        unit="{job}",
        text="Jobs that ended on this executor, by final state.",
        attributes=(JOB_KIND, JOB_STATE),
    )
)
JOB_QUEUE = Gauge(Description(name="leman.job.queue.size", unit="{job}", text="Jobs that wait for a free slot."))
JOB_ROWS = Counter(
    Description(
        name="leman.job.rows",
        unit="{row}",
        text="Rows that were evaluated, computed, failed or committed.",
        attributes=(JOB_KIND, ROWS),
    )
)
JOB_FRAGMENTS = Counter(
    Description(
        name="leman.job.fragments",
        unit="{fragment}",
        text="Fragments for which a column file was committed.",
        attributes=(JOB_KIND,),
    )
)
WORK_TIME = Counter(
    Description(
        name="leman.job.work.time",
        unit="s",
        text="Time that workers spent in each phase of their work, and time spent waiting for commits.",
        attributes=(JOB_KIND, PHASE),
    )
)
JOB_EVENTS = Counter(
    Description(
        name="leman.job.events",
        unit="{event}",
        text="Events of jobs, as clients see them: stall, error, replan and so on.",
        attributes=(EVENT,),
    )
)
STALLS = Gauge(
    Description(
        name="leman.job.stalls",
        unit="{stall}",
        text="Stalls of running jobs: things that a job waits for and that made no progress for too long.",
    )
)
LEASE_AGE = Gauge(
    Description(
        name="leman.job.lease.age",
        unit="s",
        text="Largest time, over all jobs of this executor, since the job's lease was last renewed.",
    )
)
ERROR_BUDGET = Gauge(
    Description(
        name="leman.job.error_budget.used",
        unit="1",
        text="Failed rows of a job, as a share of those that its error policy allows; the largest share of all jobs.",
    )
)
WORKERS = Gauge(
    Description(name="leman.workers", unit="{worker}", text="Spark workers that are connected to this executor.")
)
FUNCTIONS_AVAILABLE = Gauge(
    Description(
        name="leman.functions.available",
        unit="1",
        text="1 if workers can run functions; 0 if none has connected, or if none has the required Python.",
    )
)
REDIS_FAILURES = Counter(
    Description(
        name="leman.redis.failures",
        unit="{call}",
        text="Calls of the executor that Redis refused or did not answer. Jobs continue without them.",
    )
)
REDIS_DURATION = Histogram(
    Description(
        name="db.client.operation.duration",
        unit="s",
        text="Durations of the executor's calls to Redis, including failed ones.",
        attributes=(DB_SYSTEM, DB_OPERATION, ERROR_TYPE),
    ),
    _REDIS_BOUNDS,
)
REDIS_MEMORY = Gauge(
    Description(
        name="leman.redis.memory",
        unit="By",
        text="Memory that Redis uses (used), and the most that it may use (limit; 0 means no limit).",
        attributes=(MEMORY,),
    )
)
STORED = Counter(
    Description(
        name="leman.job.stored",
        unit="By",
        text="Bytes that workers stored: in checkpoints (size in memory) and in column files (size in storage).",
        attributes=(FILE_KIND,),
    )
)

# -------------------------------------------------------------------------- the commit coordinator

COMMIT_DURATION = Histogram(
    Description(
        name="leman.commit.duration",
        unit="s",
        text="Durations of requests to commit, including checks and waiting.",
        attributes=(OPERATION, ERROR_TYPE),
    ),
    _CALL_BOUNDS,
)
COMMIT_QUEUE = Gauge(
    Description(
        name="leman.commit.queue.size",
        unit="{request}",
        text="Requests to commit, for all tables, that are waiting or in progress.",
    )
)
COMMIT_FRAGMENTS = Counter(
    Description(
        name="leman.commit.fragments",
        unit="{fragment}",
        text="Fragments whose files were accepted or refused, with the reason if they were refused.",
        attributes=(OUTCOME, ERROR_TYPE),
    )
)

ALL: tuple[Instrument, ...] = tuple(
    value for value in list(globals().values()) if isinstance(value, Counter | Histogram | Gauge)
)


def measure_call(path: str, seconds: float, code: str, reason: str) -> None:
    """Record a finished call.

    Args:
        path: Its method, such as `/leman.v1.JobService/GetJob`. Pass only served methods, so that their number is
            bounded.
        seconds: How long it took.
        code: The name of its gRPC status.
        reason: The reason of its error; empty if there is none.
    """
    if CALL_DURATION.is_bound:
        CALL_DURATION.record(seconds, _attributes(path, code, reason))


@functools.cache
def method_attributes(path: str) -> Attributes:
    """Return the attributes that identify a method."""
    return {"rpc.system.name": "grpc", RPC_METHOD: path.removeprefix("/")}


@functools.cache
def _attributes(path: str, code: str, reason: str) -> Attributes:
    error = {} if code == "OK" else {ERROR_TYPE: reason or code}
    return {**method_attributes(path), STATUS_CODE: code, **error}
