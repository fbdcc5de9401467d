"""What the executor gives a worker and gets back, and the ports through which work reads, reserves and reports.

What the executor gives a worker, and what comes back. Plain data: it travels as JSON.

The narrow interfaces between packages. What implements them does I/O; what uses them can be tested without.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import pyarrow as pa

from leman_core.model.databases import StoreOptions
from leman_core.model.plan import CheckpointRef, FragmentTask, StagedFile
from leman_core.model.row_positions import RowAddress, RowRange
from leman_core.model.table import TableSnapshot
from leman_core.model.udf import CheckpointBounds, ErrorPolicy, InputSource, UdfKind


@dataclass(frozen=True, slots=True)
class ServerAccess:
    """How to speak with a function server: where it is, and the contents of what it asks for, or shows."""

    address: str
    token: str = field(repr=False, default="")
    #: CA certificates that it is checked with; empty: the system's.
    ca: str = ""
    #: What it is shown (mTLS).
    cert: str = ""
    key: str = field(repr=False, default="")


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteRef:
    """Enough to have a remote function called by a worker."""

    #: What the servers call it.
    function: str
    servers: tuple[ServerAccess, ...]
    #: An Arrow IPC schema message with what it reads, in order.
    input_schema: bytes
    #: How long no server may be reached.
    patience_seconds: float
    #: How long a server may have a batch at work; 0: the function has a timeout of its own, or there is no bound.
    answer_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionSpec:
    """Enough of a definition to load and call the function on a worker."""

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
        """Return the identity of the code: two with the same one may run in the same process."""
        return f"{self.name}@{self.version} {self.bundle_sha256 or self.entrypoint}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkContext:
    """What holds for all units of a job."""

    job_id: str
    uri: str
    read_version: int
    #: An Arrow IPC schema message with the output field.
    output_schema: bytes
    output_field_ids: tuple[int, ...]
    column_id: str
    #: Those of `input_source` where that is given: the table then holds row ids of it.
    input_columns: tuple[str, ...]
    #: Their types as the function is given them, an IPC schema message; empty: as they are read.
    input_schema: bytes = b""
    udf: FunctionSpec
    where: str
    checkpoint: CheckpointBounds
    checkpoint_seconds: float
    checkpoint_max_bytes: int
    #: Where failed rows are stored; empty: nowhere.
    errors_uri: str = ""
    #: Whether what the function said is stored with them.
    store_messages: bool = True
    redis_url: str = field(repr=False, default="")
    reservation_ttl: float = 6.0
    threads: int = 1
    #: Seconds after which a worker at work says again that it lives; 0: it does not.
    heartbeat_seconds: float = 0.0
    #: Whether only rows that the current file marks as failed are evaluated.
    failed_only: bool = False
    #: See `leman_core.model.plan.PlanHeader`.
    versions: tuple[str, ...] = ()
    input_source: InputSource | None = None
    attempt: int = 1
    #: Reservations that are not renewed any more, see `Reservations`.
    ignored_holds: tuple[str, ...] = ()
    #: Whether the plan was asked for the table's latest version.
    of_latest: bool = True
    #: Environment variables of the function, by name; their values are secrets.
    env: dict[str, str] = field(default_factory=dict, repr=False, hash=False)
    #: Rows are read from this older version where it has them, and others left alone; 0: from `read_version`.
    inputs_version: int = 0
    #: The manifest of `read_version`; empty: it is read.
    manifest: bytes = field(default=b"", repr=False)
    #: How the object stores are reached that it reads and writes.
    stores: tuple[StoreOptions, ...] = field(default=(), repr=False)
    #: See `leman_core.model.keys.job_key`; empty: it is the only job.
    job_key: str = ""

    @property
    def key(self) -> str:
        """Return what names the job among those of all databases."""
        return self.job_key or self.job_id

    @property
    def holder(self) -> str:
        """Return the name under which its units reserve rows."""
        return holder_of(self.key, self.attempt)

    def scope(self, values: str) -> str:
        """Return the scope of values (see `scope_of`) in this table: a copy of it has the same values."""
        return f"{hashlib.blake2b(self.uri.rstrip('/').encode(), digest_size=8).hexdigest()}:{values}"

    def process_name(self, salt: bytes) -> str:
        """Return what names the processes that may run it: those of one version of a function in one environment.

        Args:
            salt: of up to 64 bytes, secret, so that the name does not tell what is in the environment.
        """
        if not self.env:
            return self.udf.identity
        pairs = json.dumps(sorted(self.env.items())).encode()
        return f"{self.udf.identity} {hashlib.blake2b(pairs, key=salt, digest_size=16).hexdigest()}"

    @property
    def selective(self) -> bool:
        """Return whether rows are left out that have no value yet."""
        return bool(self.where or self.inputs_version)


def holder_of(job_key: str, attempt: int) -> str:
    """Return the name under which the units of an attempt at a job reserve rows."""
    return f"{job_key}#{attempt}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RowError:
    """A row for which the function failed, as workers report it and the error store keeps it.

    The fields are those of `RowError` in `protos/leman/v1/jobs.proto`.
    """

    #: As Lance writes it.
    row_address: int
    error_type: str
    error_message: str
    traceback: str
    attempt: int
    #: -1 where row ids are not stable.
    row_id: int = -1
    #: These three are set when it is stored: the job knows them, a worker's report leaves them out.
    job_id: str = ""
    column: str = ""
    udf_version: str = ""

    @property
    def fragment_id(self) -> int:
        """The fragment that the row is in."""
        return self.row_address >> 32

    @property
    def offset(self) -> int:
        """Its physical offset there."""
        return self.row_address & 0xFFFFFFFF

    def moved_to(self, row_id: int, address: RowAddress) -> RowError:
        """Return the same error as that of another row."""
        return replace(self, row_id=row_id, row_address=address.to_int())


@dataclass(frozen=True, slots=True)
class FragmentWork:
    """A unit's share of one fragment."""

    task: FragmentTask
    """What the plan says of the fragment, without the rows that are missing and their checkpoints: a share has its own,
    and what every unit carries has to travel (see `of`)."""

    ranges: tuple[RowRange, ...]
    """The rows to be computed."""

    finish: bool
    """This unit writes the column file, as no one else works on the rest."""

    checkpoints: tuple[CheckpointRef, ...] = ()
    """Those that reach into the ranges; of the whole fragment for the unit that finishes it."""

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
        """Return a share of what the plan wants."""
        bare = task._replace(missing=(), checkpoints=())
        return cls(bare, tuple(ranges), finish, tuple(checkpoints), quarantined)

    @property
    def fragment_id(self) -> int:
        return self.task.fragment_id

    @property
    def scope(self) -> str:
        """Return what its ranges are reserved under."""
        return scope_of(self.task)


def scope_of(task: FragmentTask) -> str:
    """Return what rows of a fragment are reserved under: its values, as this version of the function computes them."""
    return f"{task.fragment_id}:{task.fingerprint}"


@dataclass(frozen=True, slots=True)
class WorkUnit:
    """A piece of work for one worker."""

    unit_id: str
    works: tuple[FragmentWork, ...]
    #: After so long it stops at the next safe point and gives the rest back; 0: no budget.
    budget_seconds: float = 0.0
    #: Whether a worker died over some of this work and may have left checkpoints.
    look_first: bool = False
    #: The function may be deadly for one of these rows and gets at most so many of them at once, in one thread; 0: the
    #: worker chooses.
    slice_rows: int = 0
    #: In place of the context's where these are other ones by now, as credentials were renewed; empty: they hold.
    stores: tuple[StoreOptions, ...] = field(default=(), repr=False)
    #: The span that it belongs to, as W3C has it: the worker tells what it did when; empty: it does not.
    traceparent: str = ""


@dataclass(frozen=True, slots=True)
class UnitFailure:
    """Why a unit could not go on."""

    reason: str
    message: str
    #: Given where a row is to blame.
    row: RowError | None = None
    #: Whether another worker may do better: this one could get no server of a remote function.
    elsewhere: bool = False


@dataclass(frozen=True, slots=True)
class FragmentResult:
    """What a unit did for one fragment."""

    fragment_id: int
    checkpoints: tuple[CheckpointRef, ...] = ()
    #: Rows that are given back.
    left: tuple[RowRange, ...] = ()
    #: Rows that another job is computing, which has the `holds`.
    busy: tuple[RowRange, ...] = ()
    staged: StagedFile | None = None
    rows_evaluated: int = 0
    rows_computed: int = 0
    #: Those that are stored, in a checkpoint or the file.
    rows_failed: int = 0
    #: Rows of the `staged` file that had failed before the request and that it leaves so; None: as the plan says.
    failed_before: int | None = None
    #: See `leman_core.model.work.Grant`.
    holds: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """Seconds of one unit, by what they went into."""

    udf: float = 0.0
    read: float = 0.0
    checkpoint: float = 0.0
    write: float = 0.0
    #: Setting the function up, which no row is to blame for.
    load: float = 0.0
    #: Those of reading and storing that would have been the same with fewer rows, as storage answers late.
    fixed: float = 0.0

    @property
    def storing(self) -> float:
        return self.checkpoint + self.write

    @property
    def by_rows(self) -> float:
        """Return what the rows cost, as far as it grows with their number."""
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
    """A stretch of a unit's work. Times are nanoseconds since the epoch, by the worker's clock."""

    name: str
    begin: int
    end: int
    #: How long it was done in between, and how many times.
    seconds: float
    times: int


@dataclass(frozen=True, slots=True)
class UnitOutcome:
    """Result of one unit."""

    unit_id: str
    results: tuple[FragmentResult, ...]
    failure: UnitFailure | None = None
    timings: Timings = Timings()
    #: Empty unless the unit is traced.
    spans: tuple[WorkSpan, ...] = ()


@dataclass(frozen=True, slots=True)
class ServerAnswers:
    """How the servers of a remote function took what a unit gave to them."""

    #: Batches that they answered, with values or with an error.
    answered: int = 0
    #: Rows that were tried by themselves and given up, as connections broke over them.
    lost: int = 0
    #: Connections that broke over batches that were tried by themselves.
    broken: int = 0
    #: What was said of the last of these rows and connections.
    message: str = ""
    #: Why servers are left out that are there, while others compute.
    refusals: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressReport:
    """What a running unit says about itself: its sums so far, and a fragment that it is done with."""

    unit_id: str
    rows_evaluated: int = 0
    rows_safe: int = 0
    #: Stored like `rows_safe`.
    rows_failed: int = 0
    result: FragmentResult | None = None
    timings: Timings = Timings()
    #: The fragment at hand.
    fragment_id: int = -1
    servers: ServerAnswers = ServerAnswers()
    #: What the function said of the first batch that it was called with again in parts; empty: there was none.
    split: str = ""


@dataclass(frozen=True, slots=True)
class InFlightRows:
    """A worker's report of what it is about to do, in case it dies over it.

    The function is about to be loaded, or to be called with these rows, or a checkpoint was `stored`.
    """

    fragment_id: int
    rows: tuple[RowRange, ...] = ()
    #: None: nothing was stored.
    stored: CheckpointRef | None = None
    #: The bytes of its values.
    stored_bytes: int = 0
    #: How long a call with these rows took, where it was so long that the worker ends; 0 elsewhere.
    overran_seconds: float = 0.0
    #: Whether the function is about to be loaded.
    loading: bool = False


class CheckpointStore(Protocol):
    """Batches of computed values under text keys. Implementations pass one conformance suite.

    A key that is set again takes the new value. Reading verifies the stored digest: a damaged checkpoint is set aside
    and reads as absent. Keys may hold any character; `list_keys` gives them back as they were set. Where the storage
    cannot be used, calls raise what `storage_errors.failed` gives.
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
    """What reads manifests."""

    def snapshot(self, uri: str, version: int = 0) -> TableSnapshot:
        """Return a version of the table (0: latest).

        Raises:
            NotFound: TABLE_NOT_FOUND, VERSION_NOT_FOUND.
        """
        ...

    def check_filter(self, uri: str, where: str) -> None:
        """Check that Lance takes the expression on this table.

        Raises:
            InvalidArgument: INVALID_FILTER.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """Answer to a reservation."""

    #: Ours until released or expired.
    granted: tuple[RowRange, ...]
    #: Someone else's.
    busy: tuple[RowRange, ...]
    #: Whether another holder has released finished work in this scope since it was first reserved: look at the
    #: checkpoint store again before computing.
    others_finished: bool
    #: The reservations that `busy` is due to, each with a mark that changes whenever it is renewed.
    holds: tuple[str, ...] = ()
    #: Whether a later attempt at the job reserves here; stop then.
    overtaken: bool = False


class Reservations(Protocol):
    """Who is computing what, so that two jobs do not compute the same rows.

    Saves work; correctness never rests on it.

    A scope is one fragment's values. Holders are attempts at jobs, `job#attempt`: a job never gives out a row twice at
    once, and takes over by itself what one of its dead workers held, or an earlier attempt, dead or not. What a dead
    job held expires.
    """

    def reserve(self, scope: str, wanted: Sequence[RowRange], holder: str, ignored: Collection[str] = ()) -> Grant:
        """Take what is free. Those `ignored`, out of `Grant.holds`, count as free if they were not renewed since."""
        ...

    def renew(self, scopes: Iterable[str], holder: str) -> bool:
        """Renew what the holder has in the scopes; False: a later attempt at the job reserves in one of them; stop."""
        ...

    def release(self, scope: str, ranges: Sequence[RowRange], holder: str, *, finished: bool) -> None:
        """Give back granted ranges; `finished` says that their results are stored."""
        ...

    def release_all(self, scopes: Iterable[str], holder: str) -> None:
        """Give back whatever the holder has in the scopes: its workers were ended and cannot."""
        ...


class ErrorSink(Protocol):
    """What stores failed rows, before the checkpoint or file that says that they failed."""

    def store(self, failures: Sequence[RowError]) -> None: ...


class ProgressSink(Protocol):
    """What takes the reports of a unit while it runs. Losing them delays a display, never a value."""

    def send(self, report: ProgressReport) -> None: ...

    def in_flight(self, in_flight: InFlightRows) -> None:
        """Say what the unit is about to do, in case its worker dies over it."""
        ...
