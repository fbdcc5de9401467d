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
    """The access to a function server: its address, and the contents of the files with certificates and keys."""

    address: str
    token: str = field(repr=False, default="")
    #: CA certificates that verify the server's certificate; empty: the system's.
    ca: str = ""
    #: The client certificate that is shown to the server (mTLS).
    cert: str = ""
    key: str = field(repr=False, default="")


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteRef:
    """What a worker needs to call a remote function."""

    #: The function's name on the servers.
    function: str
    servers: tuple[ServerAccess, ...]
    #: An Arrow IPC schema message with the function's inputs, in order.
    input_schema: bytes
    #: How long all servers may be unreachable before the unit fails.
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
    """The data that is the same for all units of a job."""

    job_id: str
    uri: str
    read_version: int
    #: An Arrow IPC schema message with the output field.
    output_schema: bytes
    output_field_ids: tuple[int, ...]
    column_id: str
    #: The function's inputs: columns of the table or, if `input_source` is given, of that table. Then a column of the
    #: job's table holds the row ids in `input_source`.
    input_columns: tuple[str, ...]
    #: The types in which the function gets its inputs, as an Arrow IPC schema message; empty: the stored types.
    input_schema: bytes = b""
    udf: FunctionSpec
    where: str
    checkpoint: CheckpointBounds
    checkpoint_seconds: float
    checkpoint_max_bytes: int
    #: Where failed rows are stored; empty: nowhere.
    errors_uri: str = ""
    #: Whether the error messages of the function are stored with the failed rows.
    store_messages: bool = True
    redis_url: str = field(repr=False, default="")
    reservation_ttl: float = 6.0
    threads: int = 1
    #: A busy worker reports that it is alive at intervals of this many seconds; 0: it sends no such reports.
    heartbeat_seconds: float = 0.0
    #: Whether to evaluate only the rows that the current column file marks as failed.
    failed_only: bool = False
    #: The field of the same name in `leman_core.model.plan.PlanHeader`.
    versions: tuple[str, ...] = ()
    input_source: InputSource | None = None
    attempt: int = 1
    #: Marks (`Grant.holds`) of reservations whose holders no longer renew them. `Reservations.reserve` ignores these.
    ignored_holds: tuple[str, ...] = ()
    #: Whether the plan was requested for the table's latest version.
    of_latest: bool = True
    #: Environment variables of the function, by name. Their values are secret.
    env: dict[str, str] = field(default_factory=dict, repr=False, hash=False)
    #: The older version from which rows are read. Rows that it does not have are skipped. 0: read from `read_version`.
    inputs_version: int = 0
    #: The manifest of `read_version`; empty: the worker reads it from the table.
    manifest: bytes = field(default=b"", repr=False)
    #: The access to the object stores that the job reads and writes.
    stores: tuple[StoreOptions, ...] = field(default=(), repr=False)
    #: See `leman_core.model.keys.job_key`; empty: `job_id` serves as the key.
    job_key: str = ""

    @property
    def key(self) -> str:
        """Return the key that identifies the job among the jobs of all databases."""
        return self.job_key or self.job_id

    @property
    def holder(self) -> str:
        """Return the name under which the units of the job reserve rows."""
        return holder_of(self.key, self.attempt)

    def scope(self, values: str) -> str:
        """Return the scope `values` (see `scope_of`) with this table's URI: scopes in a copy of the table are equal."""
        return f"{hashlib.blake2b(self.uri.rstrip('/').encode(), digest_size=8).hexdigest()}:{values}"

    def process_name(self, salt: bytes) -> str:
        """Return a name for the processes that may run the function.

        The name is equal for jobs with the same version of the function and the same environment variables.

        Args:
            salt: Up to 64 secret bytes, so that the name does not reveal the environment.
        """
        if not self.env:
            return self.udf.identity
        pairs = json.dumps(sorted(self.env.items())).encode()
        return f"{self.udf.identity} {hashlib.blake2b(pairs, key=salt, digest_size=16).hexdigest()}"

    @property
    def selective(self) -> bool:
        """Return whether the job computes only some rows and leaves all other rows without a value."""
        return bool(self.where or self.inputs_version)


def holder_of(job_key: str, attempt: int) -> str:
    """Return the name under which all units of one attempt at a job reserve rows."""
    return f"{job_key}#{attempt}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RowError:
    """A row for which the function failed, as workers report and store it.

    The fields are those of `RowError` in `protos/leman/v1/jobs.proto`.
    """

    #: The row address in Lance's form: fragment id and offset in one number.
    row_address: int
    error_type: str
    error_message: str
    traceback: str
    attempt: int
    #: The stable row id; -1 if the table has no stable row ids.
    row_id: int = -1
    #: A worker's report leaves the next three fields empty. They are set when the row is stored, from the job's data.
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
        """Return the same error at another row id and address."""
        return replace(self, row_id=row_id, row_address=address.to_int())


@dataclass(frozen=True, slots=True)
class FragmentWork:
    """The part of one fragment that a unit computes."""

    task: FragmentTask
    """The plan's task for the fragment, without its `missing` rows and `checkpoints`, which `of` removes.

    The fields below have those of this unit. So the message to the worker stays small.
    """

    ranges: tuple[RowRange, ...]
    """The rows to compute."""

    finish: bool
    """Whether this unit finishes the fragment: no other unit works on it, so this unit writes the column file."""

    checkpoints: tuple[CheckpointRef, ...] = ()
    """The checkpoints that overlap `ranges`. The unit that finishes the fragment gets all of the fragment's."""

    quarantined: tuple[RowError, ...] = ()
    """Rows that the unit records as failed without calling the function."""

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
        """Return the part of a plan's task that covers `ranges`."""
        bare = task._replace(missing=(), checkpoints=())
        return cls(bare, tuple(ranges), finish, tuple(checkpoints), quarantined)

    @property
    def fragment_id(self) -> int:
        return self.task.fragment_id

    @property
    def scope(self) -> str:
        """Return the scope in which the ranges are reserved."""
        return scope_of(self.task)


def scope_of(task: FragmentTask) -> str:
    """Return the reservation scope of a fragment: the values that one version of the function computes for its rows."""
    return f"{task.fragment_id}:{task.fingerprint}"


@dataclass(frozen=True, slots=True)
class WorkUnit:
    """A piece of work for one worker."""

    unit_id: str
    works: tuple[FragmentWork, ...]
    #: Seconds after which the worker stops at the next checkpoint or file and returns the remaining rows; 0: no limit.
    budget_seconds: float = 0.0
    #: Whether a worker died during some of this work. It may have left checkpoints, so look for them first.
    look_first: bool = False
    #: If one of these rows may kill the worker: the largest number of rows in one call of the function. The unit then
    #: uses one thread. 0: the worker chooses.
    slice_rows: int = 0
    #: Replaces `WorkContext.stores` after credentials were renewed; empty: no change.
    stores: tuple[StoreOptions, ...] = field(default=(), repr=False)
    #: The W3C trace parent, if the worker is to report spans; empty: the unit is not traced.
    traceparent: str = ""


@dataclass(frozen=True, slots=True)
class UnitFailure:
    """Why a unit could not continue."""

    reason: str
    message: str
    #: The row that caused the failure, if it is known.
    row: RowError | None = None
    #: Whether another worker may succeed, because only this worker could not reach the servers of a remote function.
    elsewhere: bool = False


@dataclass(frozen=True, slots=True)
class FragmentResult:
    """The result of a unit for one fragment."""

    fragment_id: int
    checkpoints: tuple[CheckpointRef, ...] = ()
    #: Rows that the unit returns without having computed them.
    left: tuple[RowRange, ...] = ()
    #: Rows that another job has reserved. `holds` has the marks of these reservations.
    busy: tuple[RowRange, ...] = ()
    staged: StagedFile | None = None
    rows_evaluated: int = 0
    rows_computed: int = 0
    #: Failed rows that a checkpoint or the column file records.
    rows_failed: int = 0
    #: Rows of the `staged` file that had failed before the request and stay failed; None: the number in the plan.
    failed_before: int | None = None
    #: See `Grant.holds`.
    holds: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """Seconds of one unit, by activity."""

    udf: float = 0.0
    read: float = 0.0
    checkpoint: float = 0.0
    write: float = 0.0
    #: Loading and setting up the function, which does not depend on any row.
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
    #: The time spent on the activity within the period, and how often it happened.
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
    """Counts of a unit's batches, rows and connections to the servers of a remote function, by how they ended."""

    #: Batches that servers answered, with values or with an error.
    answered: int = 0
    #: Rows that the unit sent alone and then gave up, because the connection broke each time.
    lost: int = 0
    #: Connections that broke while one batch was in flight alone.
    broken: int = 0
    #: The last error of the lost rows and broken connections.
    message: str = ""
    #: Why the unit does not use some servers that it can reach, while other servers compute.
    refusals: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressReport:
    """A report of a running unit: its totals so far, and the result of a fragment that it has just finished, if any."""

    unit_id: str
    rows_evaluated: int = 0
    rows_safe: int = 0
    #: Failed rows that are stored, as `rows_safe` counts stored rows.
    rows_failed: int = 0
    result: FragmentResult | None = None
    timings: Timings = Timings()
    #: The current fragment.
    fragment_id: int = -1
    servers: ServerAnswers = ServerAnswers()
    #: The function's error for the first batch that was retried in parts; empty: no batch was.
    split: str = ""


@dataclass(frozen=True, slots=True)
class InFlightRows:
    """A worker's report before its next step. If the worker dies, the report says which rows may be the cause.

    The worker is about to load the function, or to call it with `rows`, or it has just `stored` a checkpoint.
    """

    fragment_id: int
    rows: tuple[RowRange, ...] = ()
    #: None: nothing was stored.
    stored: CheckpointRef | None = None
    #: The size of the checkpoint's values in bytes.
    stored_bytes: int = 0
    #: Seconds that a call with `rows` has taken, if it takes so long that the worker ends; else 0.
    overran_seconds: float = 0.0
    #: Whether the function is about to be loaded.
    loading: bool = False


class CheckpointStore(Protocol):
    """Stores batches of computed values under text keys. One conformance suite tests all implementations.

    Setting a key again replaces the value. Reading verifies the stored digest: a damaged checkpoint is moved aside and
    counts as absent. Keys may contain any character; `list_keys` returns them unchanged. If the storage cannot be used,
    calls raise the error that `storage_failed` returns.
    """

    def __setitem__(self, key: str, value: pa.RecordBatch) -> None: ...

    def __getitem__(self, key: str) -> pa.RecordBatch:
        """Return the batch under a key.

        Raises:
            KeyError: The key is absent, or its file was damaged.
        """
        ...

    def __contains__(self, key: str) -> bool: ...

    def __delitem__(self, key: str) -> None: ...

    def list_keys(self, prefix: str | None = None) -> list[str]:
        """Return all keys that begin with `prefix`, sorted."""
        ...


class TableReader(Protocol):
    """Reads the manifests of tables."""

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

    #: Rows that the caller has reserved, until it releases them or they expire.
    granted: tuple[RowRange, ...]
    #: Rows that other holders have reserved.
    busy: tuple[RowRange, ...]
    #: Whether another holder has released finished work in this scope since the caller first reserved rows in it. If
    #: so, read the checkpoint store again before computing.
    others_finished: bool
    #: The reservations of the `busy` rows, as marks. The mark of a reservation changes whenever it is renewed.
    holds: tuple[str, ...] = ()
    #: Whether a later attempt at the job has reserved rows in this scope. If so, stop.
    overtaken: bool = False


class Reservations(Protocol):
    """Reservations of rows, so that two jobs do not compute the same rows at the same time.

    They only save work; correctness does not depend on them.

    A scope is the values of one fragment. A holder is an attempt at a job, `job#attempt`, and not a worker: a job never
    gives a row to two workers at the same time. A job takes over the reservations of its dead workers and of its
    earlier attempts. The reservations of a dead job expire.
    """

    def reserve(self, scope: str, wanted: Sequence[RowRange], holder: str, ignored: Collection[str] = ()) -> Grant:
        """Reserve the free rows of `wanted`.

        Rows whose reservation is in `ignored` (marks from `Grant.holds`) count as free, unless it was renewed since.
        """
        ...

    def renew(self, scopes: Iterable[str], holder: str) -> bool:
        """Renew the holder's reservations.

        Return False if a later attempt at the job has reserved rows in one of the scopes. The caller then stops.
        """
        ...

    def release(self, scope: str, ranges: Sequence[RowRange], holder: str, *, finished: bool) -> None:
        """Release ranges that were granted. `finished` says whether their results are stored."""
        ...

    def release_all(self, scopes: Iterable[str], holder: str) -> None:
        """Release all reservations of a holder in the scopes. Call it when none of its workers runs any more."""
        ...


class ErrorSink(Protocol):
    """Stores failed rows. It is called before the checkpoint or file that marks these rows as failed is written."""

    def store(self, failures: Sequence[RowError]) -> None: ...


class ProgressSink(Protocol):
    """Receives the reports of a running unit. A lost report delays only what callers see, never a value."""

    def send(self, report: ProgressReport) -> None: ...

    def in_flight(self, in_flight: InFlightRows) -> None:
        """Report the next step of the unit, so that the job knows the cause if the worker dies."""
        ...
