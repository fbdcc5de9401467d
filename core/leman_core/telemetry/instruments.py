"""The metrics of all services, recorded where their values are known.

docs/observability.md lists them, and a test compares both.

Until `bind` instruments do nothing. A process without metrics imports no OpenTelemetry, and pays one attribute access
for each measurement.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from opentelemetry import metrics
    from opentelemetry.metrics import CallbackOptions, Observation


#: An instrument's attributes by name.
Attributes: TypeAlias = Mapping[str, str]
#: Returns the values of a gauge with their attributes; called in a thread of its own.
Look: TypeAlias = Callable[[], Iterable[tuple[float, Attributes]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """The description of an instrument."""

    name: str
    """By OpenTelemetry's conventions; Leman's own names begin with `leman.`."""
    unit: str
    """In UCUM; a word in braces is a count."""
    text: str
    """What it measures, in a sentence."""
    attributes: tuple[str, ...] = ()
    """The names of its attributes. The code bounds their values: never names of tables, jobs or callers."""


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
        """Add an amount, from any thread."""
        if self._bound is not None:
            self._bound.add(amount, attributes)

    def bind(self, meter: metrics.Meter | None) -> None:
        """Count with a meter from now on; None: stop counting."""
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
        """Record a value, from any thread."""
        if self._bound is not None:
            self._bound.record(value, attributes)

    def bind(self, meter: metrics.Meter | None) -> None:
        """Record with a meter from now on; None: stop recording."""
        about = self.description
        self._bound = None
        if meter is not None:
            self._bound = meter.create_histogram(
                about.name, about.unit, about.text, explicit_bucket_boundaries_advisory=self.bounds
            )


class Gauge:
    """A value that is read on export, and costs nothing in between."""

    def __init__(self, description: Description) -> None:
        self.description = description
        self._look: Look | None = None
        self._shown = False

    @property
    def is_shown(self) -> bool:
        """Return whether values are exported, so that callers can skip computing them."""
        return self._shown

    def show(self, look: Look | None) -> None:
        """Read values with a function from now on, in a thread of its own; None: there are none."""
        self._look = look

    def values(self) -> list[tuple[float, Attributes]]:
        """Return the current values."""
        return [] if self._look is None else list(self._look())

    def bind(self, meter: metrics.Meter | None) -> None:
        """Show values to a meter from now on; None: stop."""
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
        text="How long calls took that this service serves; those that it refused are among them.",
        attributes=("rpc.system.name", RPC_METHOD, STATUS_CODE, ERROR_TYPE),
    ),
    _CALL_BOUNDS,
)
CALL_BUDGET = Gauge(
    Description(
        name="leman.rpc.budget.used",
        unit="1",
        text="Share of a method's calls that may be at work at once which are.",
        attributes=(RPC_METHOD,),
    )
)

PROCESS_CPU = ObservedCounter(
    Description(
        name="process.cpu.time",
        unit="s",
        text="Processor time of the service's own process; of the executor without Spark and functions.",
        attributes=(CPU_MODE,),
    )
)
PROCESS_MEMORY = Gauge(
    Description(
        name="process.memory.usage",
        unit="By",
        text="Resident memory of the service's own process; of the executor without Spark and functions.",
    )
)

STORE_REQUESTS = ObservedCounter(
    Description(
        name="leman.store.requests",
        unit="{request}",
        text="Requests of the service's own process to object stores, by the library that sends them; not of workers.",
        attributes=(STORE, LIBRARY, STORE_OPERATION),
    )
)

# ------------------------------------------------------------------------------------- the planner

PLAN_DURATION = Histogram(
    Description(
        name="leman.plan.duration",
        unit="s",
        text="How long the phases of plans took.",
        attributes=(JOB_KIND, PHASE),
    ),
    _CALL_BOUNDS,
)

# ------------------------------------------------------------------------------------ the executor

JOBS = Gauge(
    Description(
        name="leman.jobs", unit="{job}", text="Jobs that this executor has, by state.", attributes=(JOB_KIND, JOB_STATE)
    )
)
JOB_DURATION = Histogram(
    Description(
        name="leman.job.duration",
        unit="s",
        text="How long jobs took that have ended here, from their first turn on.",
        attributes=(JOB_KIND, JOB_STATE),
    ),
    _JOB_BOUNDS,
)
JOB_ENDS = Counter(
    Description(
        name="leman.job.ends",
        unit="{job}",
        text="Jobs that have ended here, by how.",
        attributes=(JOB_KIND, JOB_STATE),
    )
)
JOB_QUEUE = Gauge(Description(name="leman.job.queue.size", unit="{job}", text="Jobs that wait for their turn."))
JOB_ROWS = Counter(
    Description(
        name="leman.job.rows",
        unit="{row}",
        text="Rows that were evaluated, got a value, failed, or were committed.",
        attributes=(JOB_KIND, ROWS),
    )
)
JOB_FRAGMENTS = Counter(
    Description(
        name="leman.job.fragments",
        unit="{fragment}",
        text="Fragments of which a file was committed.",
        attributes=(JOB_KIND,),
    )
)
WORK_TIME = Counter(
    Description(
        name="leman.job.work.time",
        unit="s",
        text="Seconds of workers, and of waiting for commits, by what they went into.",
        attributes=(JOB_KIND, PHASE),
    )
)
JOB_EVENTS = Counter(
    Description(
        name="leman.job.events",
        unit="{event}",
        text="Events of jobs, as their watchers see them: stall, error, replan and so on.",
        attributes=(EVENT,),
    )
)
STALLS = Gauge(
    Description(name="leman.job.stalls", unit="{stall}", text="What running jobs wait for that does not move.")
)
LEASE_AGE = Gauge(
    Description(
        name="leman.job.lease.age",
        unit="s",
        text="Seconds since the lease of a job was renewed; that of the job for which it is longest ago.",
    )
)
ERROR_BUDGET = Gauge(
    Description(
        name="leman.job.error_budget.used",
        unit="1",
        text="Share of the failed rows that an error policy allows which a job has; that of the job with the largest.",
    )
)
WORKERS = Gauge(
    Description(name="leman.workers", unit="{worker}", text="Workers of Spark that are connected with this executor.")
)
FUNCTIONS_AVAILABLE = Gauge(
    Description(
        name="leman.functions.available",
        unit="1",
        text="1 where Spark's workers can run functions; 0 where none has called back, or none runs Python as it must.",
    )
)
REDIS_FAILURES = Counter(
    Description(
        name="leman.redis.failures",
        unit="{call}",
        text="Calls of the executor that Redis refused or did not answer; jobs continue without.",
    )
)
REDIS_DURATION = Histogram(
    Description(
        name="db.client.operation.duration",
        unit="s",
        text="How long calls of the executor to Redis took; those that failed are among them.",
        attributes=(DB_SYSTEM, DB_OPERATION, ERROR_TYPE),
    ),
    _REDIS_BOUNDS,
)
REDIS_MEMORY = Gauge(
    Description(
        name="leman.redis.memory",
        unit="By",
        text="Memory that Redis uses (used), and that it may use (limit; 0: it has no limit).",
        attributes=(MEMORY,),
    )
)
STORED = Counter(
    Description(
        name="leman.job.stored",
        unit="By",
        text="Bytes of values that workers stored: in checkpoints, as in memory, and in column files, as in storage.",
        attributes=(FILE_KIND,),
    )
)

# -------------------------------------------------------------------------- the commit coordinator

COMMIT_DURATION = Histogram(
    Description(
        name="leman.commit.duration",
        unit="s",
        text="How long requests took to commit, their checks and their wait included.",
        attributes=(OPERATION, ERROR_TYPE),
    ),
    _CALL_BOUNDS,
)
COMMIT_QUEUE = Gauge(
    Description(
        name="leman.commit.queue.size", unit="{request}", text="Requests to commit that have no answer, of all tables."
    )
)
COMMIT_FRAGMENTS = Counter(
    Description(
        name="leman.commit.fragments",
        unit="{fragment}",
        text="Fragments on which there was a decision, and the reason where their files were refused.",
        attributes=(OUTCOME, ERROR_TYPE),
    )
)

ALL: tuple[Instrument, ...] = tuple(
    value for value in list(globals().values()) if isinstance(value, Counter | Histogram | Gauge)
)


def measure_call(path: str, seconds: float, code: str, reason: str) -> None:
    """Record a finished call.

    Args:
        path: Such as `/leman.v1.JobService/GetJob`, only of served methods, so that their number is bounded.
        reason: Of its error; empty: there is none.
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
