"""The requests that change tables and views, their results, and the memory that answers repeated requests.

A repeated request gets the same answer, even while the first one is running.
"""

from __future__ import annotations

import asyncio
import enum
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from leman_core.model.plan import FragmentReplacement, OutputField, StagedFile
from leman_core.model.table import TableField
from leman_core.server.request_messages import check_same_request, same_but_for_rows


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """Read rows; see `ReadRowsRequest` (protos/leman/v1/tables.proto)."""

    uri: str
    columns: tuple[str, ...] = ()
    where: str = ""
    limit: int | None = None
    offset: int = 0
    #: 0 for the latest version, unless `tag` is given.
    version: int = 0
    tag: str = ""
    #: With 0 the reader chooses.
    batch_size: int = 0
    with_row_id: bool = False
    with_row_address: bool = False
    #: The expected incarnation of the table; empty for any.
    incarnation: str = ""
    #: Whether to include values that are not committed yet; only for the latest version.
    include_checkpointed: bool = False
    #: The maximum size of a record batch with several rows.
    batch_bytes: int = 4 << 20

    def in_batches(self, rows: int, size: int) -> ReadRequest:
        """Return the request with these limits for the rows and bytes of a batch."""
        return replace(self, batch_size=rows, batch_bytes=size)


@dataclass(frozen=True, slots=True)
class CreateTableRequest:
    """Create a table without rows."""

    uri: str
    request_id: str
    #: Digest of the request, to detect reuse of its id.
    body: str
    schema: pa.Schema
    stable_row_ids: bool = True


@dataclass(frozen=True, slots=True)
class AppendRowsRequest:
    """Add rows that are already in files of the table's data folder, one file for each new fragment."""

    uri: str
    request_id: str
    body: str
    #: The incarnation of the table for which the files were written.
    incarnation: str
    #: The columns in the files, as defined when they were written.
    columns: tuple[TableField, ...]
    files: tuple[StagedFile, ...] = field(repr=False)

    @property
    def rows(self) -> int:
        return sum(file.physical_rows for file in self.files)


@dataclass(frozen=True, slots=True)
class DeleteRowsRequest:
    """Delete the rows that match a checked filter."""

    uri: str
    request_id: str
    body: str
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateRowsRequest:
    """Set new values in the rows that match a checked filter."""

    uri: str
    request_id: str
    body: str
    where: str
    #: Column → checked SQL.
    expressions: Mapping[str, str] = field(default_factory=dict)
    #: Columns that get the time of the call, `now()`.
    clocks: frozenset[str] = frozenset()
    #: One row whose values apply to all rows, or None.
    values: pa.RecordBatch | None = field(default=None, repr=False)

    @property
    def columns(self) -> frozenset[str]:
        return frozenset(self.expressions).union(() if self.values is None else self.values.schema.names)


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeRules:
    """How a merge treats matched and unmatched rows; see `MergeRowsHeader`."""

    on: tuple[str, ...]
    update_matched: bool
    update_where: str
    insert_not_matched: bool
    delete_not_matched_by_source: bool
    delete_where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeRowsRequest:
    """Merge rows into a table, by checked rules."""

    uri: str
    request_id: str
    body: str
    #: The incarnation of the table for which the rows were received.
    incarnation: str
    #: The columns of the rows, as defined when they were received.
    columns: tuple[TableField, ...]
    rules: MergeRules
    #: A file with an Arrow IPC stream of the rows.
    rows: str


@dataclass(frozen=True, slots=True)
class AlteredColumn:
    """Changes of one column. A field that is None stays unchanged."""

    name: str
    new_name: str | None = None
    kind: pa.DataType | None = None
    nullable: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeColumnsRequest:
    """Add columns without values, drop columns, or alter columns: one of the three."""

    uri: str
    request_id: str
    body: str
    added: tuple[pa.Field, ...] = ()
    dropped: tuple[str, ...] = ()
    altered: tuple[AlteredColumn, ...] = ()
    #: Proceed even if others read the columns.
    force: bool = False
    #: The column names before each try, because a try with an unclear result may have succeeded.
    before: list[tuple[str, ...]] = field(default_factory=list, compare=False, repr=False)


RowsRequest = AppendRowsRequest | DeleteRowsRequest | UpdateRowsRequest | MergeRowsRequest
TableRequest = CreateTableRequest | RowsRequest | ChangeColumnsRequest


@dataclass(frozen=True, slots=True)
class ViewFile:
    """A staged file for a fragment of a view."""

    fragment_id: int
    staged: StagedFile


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePlaceholdersRequest:
    """Create placeholders, for a new view or for an existing one."""

    uri: str
    incarnation: str
    request_id: str
    job_id: str
    read_version: int
    schema: pa.Schema
    #: With 0 the coordinator chooses.
    max_rows_per_fragment: int
    #: Whether the request creates the view, which then has no incarnation and no read version.
    create: bool
    attempt: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FillPlaceholdersRequest:
    """Install the values of placeholders."""

    uri: str
    incarnation: str
    request_id: str
    job_id: str
    read_version: int
    fragments: tuple[ViewFile, ...]
    attempt: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyDeltaRequest:
    """Update a view from one version of its source to another."""

    uri: str
    incarnation: str
    request_id: str
    job_id: str
    read_version: int
    appended: tuple[ViewFile, ...]
    swapped: tuple[ViewFile, ...]
    #: Empty if no row is evicted.
    evictions_file: str
    evictions_digest: str
    replace_all: bool
    metadata: Mapping[str, str]
    attempt: int = 0


ViewRequest = CreatePlaceholdersRequest | FillPlaceholdersRequest | ApplyDeltaRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaceRequest:
    """Install the files of a column, together with those of other columns in the same version."""

    uri: str
    incarnation: str
    request_id: str
    job_id: str
    read_version: int
    output: OutputField
    replacements: tuple[FragmentReplacement, ...]
    #: Empty for the inputs in the column's metadata.
    input_field_ids: tuple[int, ...] = ()
    attempt: int = 0
    #: See ReplaceColumn in protos/leman/internal/v1/submission.proto.
    inputs_version: int = 0
    #: Other columns of the same request.
    others: tuple[ReplaceRequest, ...] = ()

    @property
    def columns(self) -> tuple[ReplaceRequest, ...]:
        """Return one request for each column."""
        return (self, *self.others)


@dataclass(frozen=True, slots=True, kw_only=True)
class AddColumnsRequest:
    """Add columns without data. An empty `incarnation` stands for any."""

    uri: str
    incarnation: str
    request_id: str
    schema: pa.Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class BindColumnsRequest:
    """Bind columns to functions. An empty `incarnation` stands for any."""

    uri: str
    incarnation: str
    request_id: str
    schema: pa.Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginAttemptRequest:
    """Fence all earlier attempts at the job, and give the table an incarnation if it has none."""

    uri: str
    incarnation: str
    request_id: str
    job_id: str
    attempt: int
    #: If given, the expected identity of `read_version`, see `leman_core.model.table.TableSnapshot.version_identity`.
    identity: str = ""
    read_version: int = 0


CommitRequest = (
    ReplaceRequest | AddColumnsRequest | BindColumnsRequest | BeginAttemptRequest | ViewRequest | TableRequest
)


class Status(enum.Enum):
    """The outcome of a fragment, see `protos/leman/internal/v1/submission.proto`."""

    COMMITTED = "committed"
    ALREADY_CURRENT = "already_current"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of one fragment, with details."""

    fragment_id: int
    status: Status
    reason: str = ""
    message: str = ""
    #: The version of the table with the fragment's file, or 0 if it was not committed.
    version: int = 0


#: Operations whose results stay valid even if another table gets the name.
_ENDINGS = frozenset({"DropTable", "DropView"})


@dataclass(frozen=True, slots=True)
class CommitResult:
    """The result of a request."""

    #: The committed version, or 0 if nothing was committed.
    version: int
    #: In the order of the request's fragments.
    outcomes: tuple[Outcome, ...] = ()
    #: The name of the operation, if it has no fragments.
    operation: str = ""
    #: The number of added, deleted or changed rows.
    rows: int = 0
    #: How long the version took to write, if it was written for this request's fragments, or 0 if unknown.
    manifest_seconds: float = field(default=0.0, compare=False)
    #: Whether this version is known to have no index.
    without_indexes: bool = field(default=False, compare=False)
    #: The numbers of rows that a merge inserted, updated and deleted.
    merged: tuple[int, ...] = ()
    #: Whether an earlier call with this request id committed it.
    repeated: bool = False
    #: The table's location; empty if it is the request's.
    place: str = field(default="", compare=False)
    #: The table's incarnation, or "" if unknown.
    incarnation: str = field(default="", compare=False)

    def is_about(self, uri: str, asked: str) -> bool:
        """Return whether this result of a request about `asked` concerns the table at `uri`."""
        return self.operation not in _ENDINGS and (self.place or asked) == uri


Key = tuple[str, str]


class RequestMemory:
    """Remembers the latest requests of one event loop by table and request id, with about `capacity` fragments in all.

    A request that is no longer remembered, or came before a restart, is answered from the table, which records its
    commits. Exactly-once commits do not depend on this memory; it only keeps the answers the same.

    A result is forgotten when its table is removed from its location.

    Args:
        capacity: The number of fragments to remember.
        holds: Returns whether the table of a result still exists. It is called before a result is returned again,
            because others may have dropped or replaced the table.
    """

    def __init__(self, capacity: int, holds: Callable[[str, CommitResult], Awaitable[bool]] | None = None) -> None:
        self._capacity = capacity
        self._holds = holds
        self._running: dict[Key, tuple[str, asyncio.Task[CommitResult]]] = {}
        self._done: OrderedDict[Key, tuple[str, CommitResult]] = OrderedDict()
        self._size = 0

    async def once(self, key: Key, body: str, work: Callable[[], Coroutine[Any, Any, CommitResult]]) -> CommitResult:
        """Run `work` once for a key, and return its result to all callers. If these are cancelled, `work` continues.

        An error of `work` is raised to all waiting callers and then forgotten, so the request may be retried. If a
        request with the same key and another body is running, this call first waits for its outcome.

        Raises:
            AlreadyExists: REQUEST_ID_REUSED – this key came with another body.
        """
        while True:
            answered = await self.known(key, body)
            if answered is not None:
                return answered[1]
            if key not in self._running:  # no await since nothing was found, so no other call can have begun
                task = asyncio.create_task(work())
                self._running[key] = (body, task)
                task.add_done_callback(lambda ended: self._settle(key, ended))
            known, task = self._running[key]
            if known == body or not same_but_for_rows(known, body):
                check_same_request(key[1], known, body)
                return await asyncio.shield(task)
            await asyncio.wait([task])

    async def known(self, key: Key, body: str) -> tuple[str, CommitResult] | None:
        """Return the body and the result of an answered request, or None if it is no longer remembered.

        Raises:
            AlreadyExists: REQUEST_ID_REUSED – this key came with another body.
        """
        kept = await self._kept(key)
        if kept is not None:
            check_same_request(key[1], kept[0], body)
        return kept

    async def ended(self, key: Key) -> CommitResult | None:
        """Wait for a request if it runs, and return its result, or None if it failed or is no longer remembered."""
        if key in self._running:
            await asyncio.wait([self._running[key][1]])
        kept = await self._kept(key)
        return kept[1] if kept is not None else None

    def forget(self, uri: str) -> None:
        """Forget the results about the table at a location. Call this after the table was removed or replaced."""
        for key in [key for key, (_, result) in self._done.items() if result.is_about(uri, key[0])]:
            self._drop(key)

    async def settled(self) -> None:
        """Wait until no request is running."""
        while self._running:
            await asyncio.wait([task for _, task in self._running.values()])

    async def _kept(self, key: Key) -> tuple[str, CommitResult] | None:
        while (kept := self._done.get(key)) is not None:
            if self._holds is None or await self._holds(key[0], kept[1]):
                if key in self._done:
                    self._done.move_to_end(key)
                return kept
            if self._done.get(key) is kept:
                self._drop(key)
        return None

    def _drop(self, key: Key) -> None:
        _, forgotten = self._done.pop(key)
        self._size -= _size(forgotten)

    def _settle(self, key: Key, task: asyncio.Task[CommitResult]) -> None:
        body, _ = self._running.pop(key)
        if task.cancelled() or task.exception() is not None:
            return
        self._done[key] = (body, task.result())
        self._size += _size(task.result())
        while self._size > self._capacity and len(self._done) > 1:
            self._drop(next(iter(self._done)))


def _size(result: CommitResult) -> int:
    return max(1, len(result.outcomes))
