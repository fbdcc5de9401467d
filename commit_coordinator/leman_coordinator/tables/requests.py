"""The requests of callers that concern tables and their rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa

from leman_core.model.plan import StagedFile
from leman_core.model.table import TableField


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
