"""The requests of callers, their results, and the memory that answers a repeated one.

The requests of callers that concern tables and their rows.

The requests of callers that concern views.

The requests of callers, and their results.

The memory of requests: the same request again gets the same answer, also while the first is being worked on.
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
    """Read rows; meanings in `ReadRowsRequest` (protos/leman/v1/tables.proto)."""

    uri: str
    columns: tuple[str, ...] = ()
    where: str = ""
    limit: int | None = None
    offset: int = 0
    #: 0: the latest, unless `tag` names one.
    version: int = 0
    tag: str = ""
    #: 0: as the reader chooses.
    batch_size: int = 0
    with_row_id: bool = False
    with_row_address: bool = False
    #: That of the table which is meant; empty: whichever is there.
    incarnation: str = ""
    #: Whether values that no version has yet are shown; then of the latest version alone.
    include_checkpointed: bool = False
    #: Bytes of a record batch at the most, where it has more than one row.
    batch_bytes: int = 4 << 20

    def in_batches(self, rows: int, size: int) -> ReadRequest:
        """Return the request for batches of so many rows and bytes."""
        return replace(self, batch_size=rows, batch_bytes=size)


@dataclass(frozen=True, slots=True)
class CreateTableRequest:
    """Make a table without rows."""

    uri: str
    request_id: str
    #: Tells the request from another one under the same id.
    body: str
    schema: pa.Schema
    stable_row_ids: bool = True


@dataclass(frozen=True, slots=True)
class AppendRowsRequest:
    """Add rows that lie in files of the table's data folder already, one file for each new fragment."""

    uri: str
    request_id: str
    body: str
    #: That of the table for which the files were written.
    incarnation: str
    #: The columns that the files hold, as they were then.
    columns: tuple[TableField, ...]
    files: tuple[StagedFile, ...] = field(repr=False)

    @property
    def rows(self) -> int:
        return sum(file.physical_rows for file in self.files)


@dataclass(frozen=True, slots=True)
class DeleteRowsRequest:
    """Delete the rows for which a checked filter is true."""

    uri: str
    request_id: str
    body: str
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateRowsRequest:
    """Give columns of the rows for which a checked filter is true other values."""

    uri: str
    request_id: str
    body: str
    where: str
    #: Column → checked SQL.
    expressions: Mapping[str, str] = field(default_factory=dict)
    #: Those of their columns that get the time of the call, `now()`.
    clocks: frozenset[str] = frozenset()
    #: One row: what columns get in every row; None: there are none.
    values: pa.RecordBatch | None = field(default=None, repr=False)

    @property
    def columns(self) -> frozenset[str]:
        """Return the columns that get values."""
        return frozenset(self.expressions).union(() if self.values is None else self.values.schema.names)


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeRules:
    """What is to become of rows that match, and of those that do not; meanings in `MergeRowsHeader`."""

    on: tuple[str, ...]
    update_matched: bool
    update_where: str
    insert_not_matched: bool
    delete_not_matched_by_source: bool
    delete_where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeRowsRequest:
    """Bring rows together with those of a table, by rules that were checked."""

    uri: str
    request_id: str
    body: str
    #: That of the table for which the rows were taken.
    incarnation: str
    #: The columns that the rows have, as they were then.
    columns: tuple[TableField, ...]
    rules: MergeRules
    #: A file with an Arrow IPC stream of the rows.
    rows: str


@dataclass(frozen=True, slots=True)
class AlteredColumn:
    """What is to become of a column. None: it stays as it is."""

    name: str
    new_name: str | None = None
    kind: pa.DataType | None = None
    nullable: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeColumnsRequest:
    """Add columns without values, drop or alter columns: one of the three."""

    uri: str
    request_id: str
    body: str
    added: tuple[pa.Field, ...] = ()
    dropped: tuple[str, ...] = ()
    altered: tuple[AlteredColumn, ...] = ()
    #: Although others read them.
    force: bool = False
    #: What columns a try began with: one that failed unclearly may have done its work.
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
    """Make placeholders, for a view that this request creates or for one that gets them again."""

    uri: str
    incarnation: str
    request_id: str
    job_id: str
    read_version: int
    schema: pa.Schema
    #: 0: the coordinator chooses.
    max_rows_per_fragment: int
    #: The request creates the view, and has no incarnation and no read version.
    create: bool
    attempt: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FillPlaceholdersRequest:
    """Install values of placeholders."""

    uri: str
    incarnation: str
    request_id: str
    job_id: str
    read_version: int
    fragments: tuple[ViewFile, ...]
    attempt: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyDeltaRequest:
    """Bring a view from one version of its source to another."""

    uri: str
    incarnation: str
    request_id: str
    job_id: str
    read_version: int
    appended: tuple[ViewFile, ...]
    swapped: tuple[ViewFile, ...]
    #: Empty: no row is evicted.
    evictions_file: str
    evictions_digest: str
    replace_all: bool
    metadata: Mapping[str, str]
    attempt: int = 0


ViewRequest = CreatePlaceholdersRequest | FillPlaceholdersRequest | ApplyDeltaRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaceRequest:
    """Install files of a column, and of others with it."""

    uri: str
    incarnation: str
    request_id: str
    job_id: str
    read_version: int
    output: OutputField
    replacements: tuple[FragmentReplacement, ...]
    #: Empty: the inputs that the column's metadata names.
    input_field_ids: tuple[int, ...] = ()
    attempt: int = 0
    #: See ReplaceColumn in protos/leman/internal/v1/submission.proto.
    inputs_version: int = 0
    #: Other columns of the same request.
    others: tuple[ReplaceRequest, ...] = ()

    @property
    def columns(self) -> tuple[ReplaceRequest, ...]:
        """Return the request column by column."""
        return (self, *self.others)


@dataclass(frozen=True, slots=True, kw_only=True)
class AddColumnsRequest:
    """Add columns without data. `incarnation` empty: whichever table is there."""

    uri: str
    incarnation: str
    request_id: str
    schema: pa.Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class BindColumnsRequest:
    """Say which functions compute columns. `incarnation` empty: whichever table is there."""

    uri: str
    incarnation: str
    request_id: str
    schema: pa.Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginAttemptRequest:
    """Refuse all earlier attempts at the job, and give the table an incarnation if it has none."""

    uri: str
    incarnation: str
    request_id: str
    job_id: str
    attempt: int
    #: Where given, the identity of `read_version`, see `leman_core.model.view_metadata.version_identity`.
    identity: str = ""
    read_version: int = 0


CommitRequest = (
    ReplaceRequest | AddColumnsRequest | BindColumnsRequest | BeginAttemptRequest | ViewRequest | TableRequest
)


class Status(enum.Enum):
    """What can become of a fragment. Meanings: `protos/leman/internal/v1/submission.proto`."""

    COMMITTED = "committed"
    ALREADY_CURRENT = "already_current"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one fragment."""

    fragment_id: int
    status: Status
    reason: str = ""
    message: str = ""
    #: The version of the table in which the fragment's file is; 0: not committed.
    version: int = 0


#: Answers that are right whichever table has the name afterwards.
_ENDINGS = frozenset({"DropTable", "DropView"})


@dataclass(frozen=True, slots=True)
class CommitResult:
    """The answer to a request."""

    #: 0: nothing was committed.
    version: int
    #: In the order of the request's fragments.
    outcomes: tuple[Outcome, ...] = ()
    #: The name of an operation that has no fragments.
    operation: str = ""
    #: How many rows came, went or changed.
    rows: int = 0
    #: How long the version took to write, where it was written for this request's fragments; 0: not known.
    manifest_seconds: float = field(default=0.0, compare=False)
    #: Whether it is known that this version has no index.
    without_indexes: bool = field(default=False, compare=False)
    #: How many rows a merge inserted, updated and deleted.
    merged: tuple[int, ...] = ()
    #: An earlier call with this request id had committed it already.
    repeated: bool = False
    #: Where the table lies that it is about; empty: where the request said.
    place: str = field(default="", compare=False)
    #: The incarnation of that table; empty: not known.
    incarnation: str = field(default="", compare=False)

    def is_about(self, uri: str, asked: str) -> bool:
        """Return whether the answer, to a request for `asked`, is about the table at a place."""
        return self.operation not in _ENDINGS and (self.place or asked) == uri


Key = tuple[str, str]


class RequestMemory:
    """The last requests of one event loop, by table and request id: those of about `capacity` fragments.

    A request that is no longer here, or that came before a restart, is answered from the table: a commit that
    was made is found there. This memory keeps answers stable; exactly-once does not rest on it.

    An answer is one about a table: it is forgotten when the table goes from its place.

    Args:
        holds: says whether the table that an answer is about is still there. It is asked before an answer is given
            again, as others may have dropped the table, or made another one of its name.
    """

    def __init__(self, capacity: int, holds: Callable[[str, CommitResult], Awaitable[bool]] | None = None) -> None:
        self._capacity = capacity
        self._holds = holds
        self._running: dict[Key, tuple[str, asyncio.Task[CommitResult]]] = {}
        self._done: OrderedDict[Key, tuple[str, CommitResult]] = OrderedDict()
        self._size = 0

    async def once(self, key: Key, body: str, work: Callable[[], Coroutine[Any, Any, CommitResult]]) -> CommitResult:
        """Run `work` once for a key and return its result; it goes on when its callers are cancelled.

        An error of `work` is raised to all that wait for it, then forgotten: the request may be sent again. Where other
        rows came under the key and are in work, it waits until it is known what became of them.

        Raises:
            AlreadyExists: REQUEST_ID_REUSED – another body came under this key.
        """
        while True:
            answered = await self.known(key, body)
            if answered is not None:
                return answered[1]
            if key not in self._running:  # no await since nothing was found: no one can have begun in between
                task = asyncio.create_task(work())
                self._running[key] = (body, task)
                task.add_done_callback(lambda ended: self._settle(key, ended))
            known, task = self._running[key]
            if known == body or not same_but_for_rows(known, body):
                check_same_request(key[1], known, body)
                return await asyncio.shield(task)
            await asyncio.wait([task])

    async def known(self, key: Key, body: str) -> tuple[str, CommitResult] | None:
        """Return the body and the result of a request that was answered, as far as it is remembered.

        Raises:
            AlreadyExists: REQUEST_ID_REUSED – another body came under this key.
        """
        kept = await self._kept(key)
        if kept is not None:
            check_same_request(key[1], kept[0], body)
        return kept

    async def ended(self, key: Key) -> CommitResult | None:
        """Wait for a request if it is in work, and return its result; None: it failed or is not remembered."""
        if key in self._running:
            await asyncio.wait([self._running[key][1]])
        kept = await self._kept(key)
        return kept[1] if kept is not None else None

    def forget(self, uri: str) -> None:
        """Forget the answers about the table at a place, once it is gone from there."""
        for key in [key for key, (_, result) in self._done.items() if result.is_about(uri, key[0])]:
            self._drop(key)

    async def settled(self) -> None:
        """Wait until nothing is being worked on."""
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
