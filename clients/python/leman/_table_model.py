"""What the services tell about tables: columns, functions, states of rows, indexes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from leman._shown import Shown

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class ReasonCount:
    """Fragments with one reason (`MISSING`, `REUSED`, `UDF_CHANGED`, …), and their rows."""

    reason: str
    fragments: int
    rows: int


@dataclass(frozen=True, slots=True)
class StaleInput:
    """A computed column that another one rests on, and how many of its rows are stale or were never computed."""

    column: str
    rows: int

    def __str__(self) -> str:
        return f"{self.column}: {self.rows:,} rows are stale or not computed yet"


@dataclass(frozen=True, slots=True)
class KeptRows:
    """Rows with values of an earlier version of the column's function, which the column keeps."""

    udf_name: str
    udf_version: str
    rows: int


@dataclass(frozen=True, slots=True)
class RowStates(Shown):
    """Rows of a computed column by what is known of their value; deleted rows are not counted.

    `computed`: the function gave the value, from the inputs as they are now; `null`: of these, rows whose value is
    NULL; `kept`: of these, rows with values of earlier versions that the column keeps. `failed`: the function failed on
    them, and a plain backfill leaves them alone unless the column has another function since. `not_computed`: the table
    has no value of them, or a stale one. Of these, `checkpointed` rows are stored in checkpoints and `ready` rows in
    finished files that wait for their commit: they are paid for, and a backfill, the one that runs or the next one,
    brings them into the table without calling the function. It computes the others.
    """

    version: int
    computed: int
    null: int
    failed: int
    not_computed: int
    kept: tuple[KeptRows, ...]
    checkpointed: int = 0
    ready: int = 0


@dataclass(frozen=True, slots=True)
class RowError:
    """A row for which the function failed.

    `row_address` is fragment id << 32 | physical offset, in the version that the job read; of a refresh, both are those
    of the view's source. `row_id` is None where the table's row ids are not stable. `attempt`: how often the function
    was called for the row.
    """

    job_id: str
    column: str
    row_address: int
    row_id: int | None
    error_type: str
    error_message: str
    traceback: str
    attempt: int
    udf_version: str

    @property
    def fragment_id(self) -> int:
        """The fragment that the row is in."""
        return self.row_address >> 32

    @property
    def offset(self) -> int:
        """Its physical offset there: deleted rows are counted."""
        return self.row_address & 0xFFFFFFFF

    def __str__(self) -> str:
        place = f"fragment {self.fragment_id}, row {self.offset}"
        return f"{self.column}, {place}: {self.error_type}: {self.error_message}"


class RowErrors(list[RowError], Shown):
    """Rows for which functions failed, by row address."""


@dataclass(frozen=True, slots=True)
class Commit:
    """A version of a table that Leman made.

    `operation`: what it did, such as `DataReplacement` or `AppendRows`. `fragments`: those that got a new file.
    `request_ids`, `job_ids`: what it was for; requests that came together share a version.
    """

    version: int
    operation: str
    fragments: int
    request_ids: tuple[str, ...]
    job_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class IndexCoverage:
    """How much of a table one of its indexes covers; `str` of it is a sentence. A search takes what is covered from the
    index and scans the rest; a fast search leaves the rest out."""

    name: str
    kind: str
    columns: tuple[str, ...]
    fragments: int
    fragments_covered: int
    rows_left_out: int

    @property
    def is_stale(self) -> bool:
        """Whether a fast search by it misses rows."""
        return self.rows_left_out > 0

    def __str__(self) -> str:
        covered = f"index {self.name} covers {self.fragments_covered:,} of {self.fragments:,} fragments"
        return f"{covered}, a fast search misses {self.rows_left_out:,} rows" if self.is_stale else covered


@dataclass(frozen=True, slots=True)
class UdfInfo(Shown):
    """A registered function. `kind`: `scalar`, `array`, `record_batch`, `sql`, which has a `sql_expression`, or
    `remote`, whose servers have the `addresses`. `options`: those of `leman.udf` that were given. `source`: its
    text, which `Database.udf` tells, and listings leave out."""

    name: str
    version: str
    kind: str
    input_columns: tuple[str, ...]
    data_type: pa.DataType
    stateful: bool
    sql_expression: str = ""
    options: dict[str, object] = field(default_factory=dict)
    addresses: tuple[str, ...] = ()
    source: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class ComputedColumn:
    """A column of a table and the function that computes it from other columns. `kept_versions`: earlier functions,
    `name@version`, whose values it keeps."""

    name: str
    udf_name: str
    udf_version: str
    input_columns: tuple[str, ...]
    kept_versions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TableInfo(Shown):
    """A table as it stands now. `row_count` leaves deleted rows out."""

    name: str
    uri: str
    version: int
    row_count: int
    fragment_count: int
    schema: pa.Schema
    computed_columns: tuple[ComputedColumn, ...]
    stable_row_ids: bool
