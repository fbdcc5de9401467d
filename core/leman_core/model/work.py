"""The messages between executor and workers, and the interfaces by which workers read, reserve rows and report.

Messages are plain data that is sent as JSON. The interfaces are small protocols, so that code that uses them can be
tested without I/O.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import pyarrow as pa

from leman._format.column_bindings import InputSource
from leman._format.stored_functions import CheckpointBounds, ErrorPolicy, UdfKind
from leman_core.model.databases import StoreOptions
from leman_core.model.plan import CheckpointRef, FragmentTask, StagedFile
from leman_core.model.row_positions import RowAddress, RowRange
from leman_core.model.table import TableSnapshot


@dataclass(frozen=True, slots=True)
class ServerAccess:
    """The access to a function server: its address, and the contents of certificates and keys."""

    address: str
    token: str = field(repr=False, default="")
    #: CA certificates to verify it; empty: the system's.
    ca: str = ""
    #: The client certificate (mTLS).
    cert: str = ""
    key: str = field(repr=False, default="")


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteRef:
    """What a worker needs to call a remote function."""

    #: Its name on the servers.
    function: str
    servers: tuple[ServerAccess, ...]
    #: An Arrow IPC schema message with its inputs, in order.
    input_schema: bytes
    #: How long all servers may be unreachable.
    patience_seconds: float
    #: How long a server may process a batch; 0: the function has its own timeout, or there is none.
    answer_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionSpec:
    """What a worker needs to load and call the function."""

    name: str
    version: str
    kind: UdfKind
    input_columns: tuple[str, ...]
    bundle_uri: str
    bundle_sha256: str
    bundle_python: str
    entrypoint: str
    stateful: bool
    batch_size: int
    error_policy: ErrorPolicy
    sql_expression: str = ""
    timeout_seconds: float = 0.0
    remote: RemoteRef | None = None

    @property
    def identity(self) -> str:
        """Return the identity of the code. Functions of equal identity may share a process."""
        return f"{self.name}@{self.version} {self.bundle_sha256 or self.entrypoint}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkContext:
    """The facts that are the same for all units of a job."""

    job_id: str
    uri: str
    read_version: int
    #: An Arrow IPC schema message with the output field.
    output_schema: bytes
    output_field_ids: tuple[int, ...]
    column_id: str
    #: Columns of `input_source` if that is given: the table then holds row ids of it.
    input_columns: tuple[str, ...]
    #: Their types as the function gets them, an IPC schema message; empty: as they are read.
    input_schema: bytes = b""
    udf: FunctionSpec
    where: str
    checkpoint: CheckpointBounds
    checkpoint_seconds: float
    checkpoint_max_bytes: int
    #: Where failed rows are stored; empty: nowhere.
    errors_uri: str = ""
    #: Whether the function's messages are stored with them.
    store_messages: bool = True
    redis_url: str = field(repr=False, default="")
    reservation_ttl: float = 6.0
    threads: int = 1
    #: Seconds after which a working worker reports that it lives; 0: it does not.
    heartbeat_seconds: float = 0.0
    #: Whether only rows that the current file marks as failed are evaluated.
    failed_only: bool = False
    #: See `leman_core.model.plan.PlanHeader`.
    versions: tuple[str, ...] = ()
    input_source: InputSource | None = None
    attempt: int = 1
    #: Reservations that are not renewed any more, see `Reservations`.
    ignored_holds: tuple[str, ...] = ()
    #: Whether the plan was requested for the table's latest version.
    of_latest: bool = True
    #: Environment variables of the function, by name; their values are secrets.
    env: dict[str, str] = field(default_factory=dict, repr=False, hash=False)
    #: Rows are read from this older version if it has them, and others are skipped; 0: from `read_version`.
    inputs_version: int = 0
    #: The manifest of `read_version`; empty: it is read.
    manifest: bytes = field(default=b"", repr=False)
    #: The access to the object stores that it reads and writes.
    stores: tuple[StoreOptions, ...] = field(default=(), repr=False)
    #: See `leman_core.model.keys.job_key`; empty: it is the only job.
    job_key: str = ""

    @property
    def key(self) -> str:
        """Return the job's key among all databases."""
        return self.job_key or self.job_id

    @property
    def holder(self) -> str:
        """Return the name under which its units reserve rows."""
        return holder_of(self.key, self.attempt)

    def scope(self, values: str) -> str:
        """Return the scope of values (see `scope_of`) in this table, as a copy of it may have the same values."""
        return f"{hashlib.blake2b(self.uri.rstrip('/').encode(), digest_size=8).hexdigest()}:{values}"

    def process_name(self, salt: bytes) -> str:
        """Return a name for the processes that may run the function: equal for one function version in one environment.

        Args:
            salt: Up to 64 secret bytes, so that the name does not reveal the environment.
        """
        if not self.env:
            return self.udf.identity
        pairs = json.dumps(sorted(self.env.items())).encode()
        return f"{self.udf.identity} {hashlib.blake2b(pairs, key=salt, digest_size=16).hexdigest()}"

    @property
    def selective(self) -> bool:
        """Return whether the job computes only some rows and leaves others without a value."""
        return bool(self.where or self.inputs_version)


def holder_of(job_key: str, attempt: int) -> str:
    """Return the name under which the units of an attempt at a job reserve rows."""
    return f"{job_key}#{attempt}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RowError:
    """A row for which the function failed, as workers report it and as it is stored.

    The fields are those of `RowError` in `protos/leman/v1/jobs.proto`.
    """

    #: As Lance writes it.
    row_address: int
    error_type: str
    error_message: str
    traceback: str
    attempt: int
    #: -1 if row ids are not stable.
    row_id: int = -1
    #: These three are set when it is stored: the job knows them, a worker's report omits them.
    job_id: str = ""
    column: str = ""
    udf_version: str = ""

    @property
    def fragment_id(self) -> int:
        """The fragment of the row."""
        return self.row_address >> 32

    @property
    def offset(self) -> int:
        """The physical offset of the row."""
        return self.row_address & 0xFFFFFFFF

    def moved_to(self, row_id: int, address: RowAddress) -> RowError:
        """Return the same error for another row."""
        return replace(self, row_id=row_id, row_address=address.to_int())


@dataclass(frozen=True, slots=True)
class FragmentWork:
    """The part of one fragment that a unit computes."""

    task: FragmentTask
    """The plan's task for the fragment, without missing rows and their checkpoints (see `of`).

    A share has its own, and units are sent to workers, so they should be small.
    """

    ranges: tuple[RowRange, ...]
    """The rows to compute."""

    finish: bool
    """Whether this unit writes the column file, as no other unit works on the rest."""

    checkpoints: tuple[CheckpointRef, ...] = ()
    """Those that overlap the ranges; for the unit that finishes the fragment, all of them."""

    quarantined: tuple[RowError, ...] = ()
    """Rows that are recorded as failed without being evaluated."""

    @classmethod
    def of(
        cls,
        task: FragmentTask,
        ranges: Sequence[RowRange],
        *,
        finish: bool,
        checkpoints: Sequence[CheckpointRef] = (),
        quarantined: tuple[RowError, ...] = (),
    ) -> FragmentWork:
        """Return a share of a plan's task."""
        bare = task._replace(missing=(), checkpoints=())
        return cls(bare, tuple(ranges), finish, tuple(checkpoints), quarantined)

    @property
    def fragment_id(self) -> int:
        return self.task.fragment_id

    @property
    def scope(self) -> str:
        """Return the scope under which its ranges are reserved."""
        return scope_of(self.task)


def scope_of(task: FragmentTask) -> str:
    """Return the scope of a fragment's rows: its values by this version of the function."""
    return f"{task.fragment_id}:{task.fingerprint}"


@dataclass(frozen=True, slots=True)
class WorkUnit:
    """A piece of work for one worker."""

    unit_id: str
    works: tuple[FragmentWork, ...]
    #: Seconds after which it stops at the next safe point and returns the rest; 0: no budget.
    budget_seconds: float = 0.0
    #: Whether a worker died over some of this work and may have left checkpoints.
    look_first: bool = False
    #: The function may be deadly for one of these rows and gets at most this many at a time, in one thread; 0: the
    #: worker chooses.
    slice_rows: int = 0
    #: Replaces the context's after credentials were renewed; empty: unchanged.
    stores: tuple[StoreOptions, ...] = field(default=(), repr=False)
    #: The W3C trace parent; the worker reports its spans; empty: not traced.
    traceparent: str = ""


@dataclass(frozen=True, slots=True)
class UnitFailure:
    """Why a unit could not continue."""

    reason: str
    message: str
    #: The row to blame, if any.
    row: RowError | None = None
    #: Whether another worker may succeed: this one could not reach a server of a remote function.
    elsewhere: bool = False


@dataclass(frozen=True, slots=True)
class FragmentResult:
    """The result of a unit for one fragment."""

    fragment_id: int
    checkpoints: tuple[CheckpointRef, ...] = ()
    #: Rows that are returned.
    left: tuple[RowRange, ...] = ()
    #: Rows that another job is computing, which has the `holds`.
    busy: tuple[RowRange, ...] = ()
    staged: StagedFile | None = None
    rows_evaluated: int = 0
    rows_computed: int = 0
    #: The stored ones, in a checkpoint or the file.
    rows_failed: int = 0
    #: Rows of the `staged` file that had failed before the request and stay failed; None: as the plan says.
    failed_before: int | None = None
    #: See `leman_core.model.work.Grant`.
    holds: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """Seconds of one unit, by activity."""

    udf: float = 0.0
    read: float = 0.0
    checkpoint: float = 0.0
    write: float = 0.0
    #: Setting the function up, for which no row is to blame.
    load: float = 0.0
    #: Seconds of reading and storing that do not depend on the number of rows, such as latency.
    fixed: float = 0.0

    @property
    def storing(self) -> float:
        return self.checkpoint + self.write

    @property
    def by_rows(self) -> float:
        """Return the seconds that grow with the number of rows."""
        return max(0.0, self.udf + self.read + self.storing - self.fixed)

    def __add__(self, other: Timings) -> Timings:
        return Timings(
            udf=self.udf + other.udf,
            read=self.read + other.read,
            checkpoint=self.checkpoint + other.checkpoint,
            write=self.write + other.write,
            load=self.load + other.load,
            fixed=self.fixed + other.fixed,
        )


@dataclass(frozen=True, slots=True)
class WorkSpan:
    """A period of a unit's work, for traces. Times are nanoseconds since the epoch, by the worker's clock."""

    name: str
    begin: int
    end: int
    #: The time spent on it in the period, and how many times.
    seconds: float
    times: int


@dataclass(frozen=True, slots=True)
class UnitOutcome:
    """The result of one unit."""

    unit_id: str
    results: tuple[FragmentResult, ...]
    failure: UnitFailure | None = None
    timings: Timings = Timings()
    #: Empty unless the unit is traced.
    spans: tuple[WorkSpan, ...] = ()


@dataclass(frozen=True, slots=True)
class ServerAnswers:
    """How often the servers of a remote function answered a unit, or did not."""

    #: Batches that they answered, with values or with an error.
    answered: int = 0
    #: Rows that were tried alone and given up, as connections broke over them.
    lost: int = 0
    #: Connections that broke over batches that were tried alone.
    broken: int = 0
    #: The last error of these rows and connections.
    message: str = ""
    #: Why reachable servers are left out, while others compute.
    refusals: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressReport:
    """A report of a running unit: its totals so far, and a fragment if it has finished one."""

    unit_id: str
    rows_evaluated: int = 0
    rows_safe: int = 0
    #: Stored like `rows_safe`.
    rows_failed: int = 0
    result: FragmentResult | None = None
    timings: Timings = Timings()
    #: The current fragment.
    fragment_id: int = -1
    servers: ServerAnswers = ServerAnswers()
    #: The function's error for the first batch that was retried in parts; empty: none.
    split: str = ""


@dataclass(frozen=True, slots=True)
class InFlightRows:
    """A worker's report of what it does next. If the worker dies, this says which rows may be the cause.

    It next loads the function, or calls it with these rows, or it has `stored` a checkpoint.
    """

    fragment_id: int
    rows: tuple[RowRange, ...] = ()
    #: None: nothing was stored.
    stored: CheckpointRef | None = None
    #: The bytes of its values.
    stored_bytes: int = 0
    #: The duration of a call with these rows that is so long that the worker ends; else 0.
    overran_seconds: float = 0.0
    #: Whether the function is about to be loaded.
    loading: bool = False


class CheckpointStore(Protocol):
    """Stores batches of computed values under text keys. One conformance suite tests all implementations.

    Setting a key again replaces the value. Reading verifies the stored digest: a damaged checkpoint is moved aside and
    counts as absent. Keys may contain any character; `list_keys` returns them unchanged. If the storage cannot be used,
    calls raise the error of `storage_failed`.
    """

    def __setitem__(self, key: str, value: pa.RecordBatch) -> None: ...

    def __getitem__(self, key: str) -> pa.RecordBatch:
        """Return the batch under a key.

        Raises:
            KeyError: the key is absent or its file was damaged.
        """
        ...

    def __contains__(self, key: str) -> bool: ...

    def __delitem__(self, key: str) -> None: ...

    def list_keys(self, prefix: str | None = None) -> list[str]:
        """Return all keys that begin with `prefix`, sorted."""
        ...


class TableReader(Protocol):
    """Reads manifests."""

    def snapshot(self, uri: str, version: int = 0) -> TableSnapshot:
        """Return a version of the table (0: latest).

        Raises:
            NotFound: TABLE_NOT_FOUND, VERSION_NOT_FOUND.
        """
        ...

    def check_filter(self, uri: str, where: str, *, is_stored: bool = False) -> None:
        """Check that Lance accepts the expression on this table.

        Raises:
            InvalidArgument: INVALID_FILTER.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """The answer to a reservation."""

    #: Ours until released or expired.
    granted: tuple[RowRange, ...]
    #: Reserved by others.
    busy: tuple[RowRange, ...]
    #: Whether another holder has released finished work in this scope since it was first reserved: check the checkpoint
    #: store again before computing.
    others_finished: bool
    #: The reservations of `busy` rows, each with a mark that changes with every renewal.
    holds: tuple[str, ...] = ()
    #: Whether a later attempt at the job reserves here; then stop.
    overtaken: bool = False


class Reservations(Protocol):
    """Reservations of rows, so that two jobs do not compute the same rows at the same time.

    They only save work; correctness does not depend on them.

    A scope is one fragment's values. A holder is an attempt at a job, `job#attempt`, and not a worker: a job itself
    never gives a row to two workers at the same time. It takes over the reservations of its dead workers and earlier
    attempts. Reservations of a dead job expire.
    """

    def reserve(self, scope: str, wanted: Sequence[RowRange], holder: str, ignored: Collection[str] = ()) -> Grant:
        """Reserve the free rows of `wanted`.

        Reservations in `ignored`, from `Grant.holds`, count as free unless renewed since.
        """
        ...

    def renew(self, scopes: Iterable[str], holder: str) -> bool:
        """Renew the holder's reservations.

        Return False if a later attempt at the job has reserved in a scope: stop then.
        """
        ...

    def release(self, scope: str, ranges: Sequence[RowRange], holder: str, *, finished: bool) -> None:
        """Release granted ranges. `finished`: whether their results are stored."""
        ...

    def release_all(self, scopes: Iterable[str], holder: str) -> None:
        """Release all reservations of a holder in the scopes, after its workers were ended."""
        ...


class ErrorSink(Protocol):
    """Stores failed rows, before the checkpoint or file that marks them as failed."""

    def store(self, failures: Sequence[RowError]) -> None: ...


class ProgressSink(Protocol):
    """Receives the reports of a running unit. Losing them delays a display, never a value."""

    def send(self, report: ProgressReport) -> None: ...

    def in_flight(self, in_flight: InFlightRows) -> None:
        """Report what the unit does next, so that the cause is known if its worker dies."""
        ...
