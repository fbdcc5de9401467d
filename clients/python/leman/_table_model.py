"""The values that describe tables and views: columns, functions, row states, failed rows, indexes, plans."""

from __future__ import annotations

import graphlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from leman._message_text import Shown
from leman.errors import FailedPrecondition

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class ReasonCount:
    """Fragments with one reason (`MISSING`, `REUSED`, `UDF_CHANGED`, …), and the number of their rows."""

    reason: str
    fragments: int
    rows: int


@dataclass(frozen=True, slots=True)
class StaleInput:
    """A computed column that another column reads, and how many rows of the column read are stale or not computed."""

    column: str
    rows: int

    def __str__(self) -> str:
        return f"{self.column}: {self.rows:,} rows are stale or not computed yet"


@dataclass(frozen=True, slots=True)
class KeptRows:
    """Rows whose values an earlier version of the column's function computed, and which the column keeps."""

    udf_name: str
    udf_version: str
    rows: int


@dataclass(frozen=True, slots=True)
class RowStates(Shown):
    """Rows of a computed column by the state of their value, without deleted rows.

    `computed`: rows whose value the function computed from the current inputs. They include `null`, rows whose value is
    NULL, and `kept`, rows with values of earlier versions that the column keeps. `failed`: rows on which the function
    failed. A backfill skips them unless the column has got another function since. `not_computed`: rows whose value is
    missing from the table, or stale. They include `checkpointed` rows, whose values are in checkpoints, and `ready`
    rows, whose values are in finished files that wait for their commit. The running or next backfill brings both into
    the table without calling the function, and computes all other `not_computed` rows.
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

    `row_address`: fragment id << 32 | physical offset, in the version that the job read; for a refresh, of the view's
    source. `row_id`: None if the table has no stable row ids. `attempt`: how often the function was called for the row.
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
        return self.row_address >> 32

    @property
    def offset(self) -> int:
        """The physical offset in the fragment, which counts deleted rows, too."""
        return self.row_address & 0xFFFFFFFF

    def __str__(self) -> str:
        place = f"fragment {self.fragment_id}, row {self.offset}"
        return f"{self.column}, {place}: {self.error_type}: {self.error_message}"


class RowErrors(list[RowError], Shown):
    """Failed rows, by row address."""


@dataclass(frozen=True, slots=True)
class RowErrorGroup:
    """Failed rows with the same kind of error.

    They have the same class of exception, and the first lines of their messages differ only in numbers and quoted
    texts. For a validation error of pydantic, that line includes fields and reasons. `error_message` is that line, with
    `…` for the differences. `examples`: the first of the rows, by address.
    """

    error_type: str
    error_message: str
    rows: int
    examples: tuple[RowError, ...]

    def __str__(self) -> str:
        return f"{self.rows:,} × {self.error_type}: {self.error_message}"


class RowErrorGroups(list[RowErrorGroup], Shown):
    """Failed rows of a job, grouped by error, the largest group first.

    `total`: the number of all groups, including those beyond the limit. `rows`: the number of all failed rows.
    `rows_ungrouped`: the number of failed rows in no group, because there are more than 10,000 kinds of errors.
    """

    def __init__(
        self, groups: Iterable[RowErrorGroup] = (), *, total: int = 0, rows: int = 0, rows_ungrouped: int = 0
    ) -> None:
        super().__init__(groups)
        self.total = total
        self.rows = rows
        self.rows_ungrouped = rows_ungrouped


@dataclass(frozen=True, slots=True)
class Commit:
    """A version of a table that Leman made.

    `operation`: such as `DataReplacement` or `AppendRows`. `fragments`: the number of fragments that got a new file.
    `request_ids`, `job_ids`: the requests and jobs that it committed; concurrent requests can share a version.
    """

    version: int
    operation: str
    fragments: int
    request_ids: tuple[str, ...]
    job_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class IndexCoverage:
    """How many of a table's fragments one of its indexes covers. `str()` is a sentence.

    A search uses the index for covered rows and scans the other rows. A fast search leaves the other rows out.
    """

    name: str
    kind: str
    columns: tuple[str, ...]
    fragments: int
    fragments_covered: int
    rows_left_out: int

    @property
    def is_stale(self) -> bool:
        """True if a fast search that uses the index misses rows."""
        return self.rows_left_out > 0

    def __str__(self) -> str:
        covered = f"index {self.name} covers {self.fragments_covered:,} of {self.fragments:,} fragments"
        return f"{covered}, a fast search misses {self.rows_left_out:,} rows" if self.is_stale else covered


@dataclass(frozen=True, slots=True)
class UdfInfo(Shown):
    """A registered function.

    `kind`: `scalar`, `array`, `record_batch`, `sql` (with its `sql_expression`) or `remote` (with the `addresses` of
    its servers). `options`: the given options of `leman.udf`. `source`: its source text, which `Database.udfs` omits.
    """

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
    """A column of a table, and the function that computes it from other columns.

    `kept_versions`: earlier functions, as `name@version`, whose values the column keeps.
    """

    name: str
    udf_name: str
    udf_version: str
    input_columns: tuple[str, ...]
    kept_versions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TableInfo(Shown):
    """The state of a table when it was read. `row_count` does not count deleted rows."""

    name: str
    uri: str
    version: int
    row_count: int
    fragment_count: int
    schema: pa.Schema
    computed_columns: tuple[ComputedColumn, ...]
    stable_row_ids: bool


REASONS = {
    "REUSED": "written by this function version, or by one whose values are kept, from these inputs",
    "STAGED": "computed, not committed yet",
    "MISSING": "never computed",
    "UDF_CHANGED": "computed by another version of the function",
    "INPUT_CHANGED": "computed from data that has changed since",
    "PARTIAL": "some rows computed, some not",
    "EXTERNAL_WRITE": "values that Leman did not compute, or that an update moved",
    "REUSED_FILTER": "all rows that the filter selects are computed",
    "REUSED_COMPACTED": "computed before compaction moved its rows",
    "PAST_INPUT": "inputs have changed since: gets values of read_version; a backfill without it makes them current",
    "HISTORY_LOST": "possibly moved by compaction: the versions that would show it were cleaned up",
}
"""The meaning of each reason for a fragment."""


@dataclass(frozen=True, slots=True)
class FragmentDecision:
    """What a backfill does with one fragment.

    `missing`: physical offsets (start, end) of rows without a stored value.
    """

    fragment_id: int
    reason: str
    rows: int
    missing: tuple[tuple[int, int], ...]
    checkpoints_reused: int


@dataclass(frozen=True, slots=True)
class Plan(Shown):
    """What a backfill would do, and why. `str()` is for people.

    `fragments`: the first few fragments with work. `kept`: rows that keep the values of an earlier version of the
    function. `inputs_version`: the version given as `read_version`, or 0. `expected_seconds`: an estimate from the
    column's last backfills; None if they computed too few rows. `stale_inputs`: computed columns that the column
    depends on and that are not current, each before the columns that read it.
    """

    table: str
    column: str
    udf_name: str
    udf_version: str
    input_columns: tuple[str, ...]
    read_version: int
    where: str
    rows_total: int
    rows_reused: int
    rows_to_compute: int
    rows_failed_before: int
    reasons: tuple[ReasonCount, ...]
    fragments: tuple[FragmentDecision, ...]
    summary: str
    kept: tuple[KeptRows, ...] = ()
    inputs_version: int = 0
    expected_seconds: float | None = None
    stale_inputs: tuple[StaleInput, ...] = ()

    def __str__(self) -> str:
        inputs = ", ".join(self.input_columns)
        lines = [
            f"{self.table}.{self.column} = {self.udf_name}({inputs})",
            f"  function version {self.udf_version}, table version {self.read_version}"
            + (f", rows as in version {self.inputs_version}" if self.inputs_version else "")
            + (f", where {self.where}" if self.where else ""),
            f"  {self.rows_to_compute:,} of {self.rows_total:,} rows to compute, {self.rows_reused:,} reused"
            + (f", {self.rows_failed_before:,} failed before" if self.rows_failed_before else ""),
        ]
        lines += [
            f"  {kept.rows:,} rows keep values of {kept.udf_name}@{kept.udf_version}: alter_columns() to"
            f" {self.udf_name}@{self.udf_version} makes them stale"
            for kept in self.kept
        ]
        lines += [f"  it depends on {stale}" for stale in self.stale_inputs]
        if self.reasons:
            rows = [("fragments", "rows", "reason", "")]
            rows += [(f"{r.fragments:,}", f"{r.rows:,}", r.reason, REASONS.get(r.reason, "")) for r in self.reasons]
            widths = [max(len(row[i]) for row in rows) for i in range(3)]
            lines.append("")
            lines += [f"  {a:>{widths[0]}}  {b:>{widths[1]}}  {c:<{widths[2]}}  {d}".rstrip() for a, b, c, d in rows]
        return "\n".join([*lines, "", f"  {self.summary}"] if self.summary else lines)


RefreshPolicy = Literal["auto", "incremental", "full"]
"""`incremental` refuses if only a full refresh is right; `full` computes every row again."""


@dataclass(frozen=True, slots=True)
class ViewColumn:
    """A column of a view, and its SQL expression over the source."""

    name: str
    expression: str


@dataclass(frozen=True, slots=True)
class ViewFunction:
    """A column of a view, the function that computes it, and the source's columns that the function reads."""

    name: str
    udf_name: str
    udf_version: str
    input_columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ViewQuery:
    """The resolved query of a view. `limit` is None for all rows, `shuffle_seed` if rows are not shuffled."""

    source_database: str
    source_table: str
    columns: tuple[ViewColumn, ...]
    functions: tuple[ViewFunction, ...]
    where: str
    shuffle_seed: int | None
    limit: int | None
    offset: int

    def __str__(self) -> str:
        made = [c.name if c.expression == c.name else f"{c.expression} AS {c.name}" for c in self.columns]
        made += [f"{f.udf_name}({', '.join(f.input_columns)}) AS {f.name}" for f in self.functions]
        parts = [f"SELECT {', '.join(made)}", f"FROM {self.source_table}"]
        parts += [f"WHERE {self.where}"] if self.where else []
        parts += [f"LIMIT {self.limit}"] if self.limit is not None else []
        parts += [f"OFFSET {self.offset}"] if self.offset else []
        parts += [f"SHUFFLE({self.shuffle_seed})"] if self.shuffle_seed is not None else []
        return " ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewInfo(TableInfo):
    """The state of a view when it was read.

    `row_count` and `schema` describe what queries return: rows with values, without internal columns. `rows_unset`: the
    number of rows that wait for a refresh. `row_reference`: `stable_row_id`, or `address` if the source has no stable
    row ids: the view can then only be refreshed to the version that it was made from. `stale_columns`: columns that got
    another function since their values were computed; a refresh computes them.
    """

    query: ViewQuery
    source_version: int
    rows_unset: int
    row_reference: str
    stale_columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewSummary:
    """A view in a list; fields as in `ViewInfo`.

    The numbers of rows are None if counting them requires reading rows, as after a compaction of the view.
    `View.describe` reads and counts them.
    """

    name: str
    uri: str
    version: int
    source_database: str
    source_table: str
    source_version: int
    row_reference: str
    row_count: int | None
    rows_unset: int | None
    stale_columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RefreshPlan(Shown):
    """What a refresh would do, and why; `str()` is for people.

    `changes`: the number of the source's fragments to compare row by row, by their kind of change: `appeared`, `gone`,
    `deletions`, `rewritten`. `fragments_unset`: the number of fragments whose rows have no values yet. `stale`:
    function columns to recompute for every row. `stale_inputs`: computed columns of the source, or function columns of
    a source view, that the view depends on and that are not current. `on_stale_input` says how a refresh treats them.
    `calls`: for each function column, the maximum number of rows for which its function is called. It is no exact
    number, because the plan reads no rows.
    """

    view: str
    mode: str
    reason: str
    message: str
    version: int
    source_version: int
    target_version: int
    rows: int
    fragments_unset: int
    changes: dict[str, int]
    stale: tuple[str, ...]
    stale_inputs: tuple[StaleInput, ...] = ()
    calls: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [
            f"{self.view}: {self.mode} ({self.reason.replace('_', ' ')})",
            f"  {self.message}",
            f"  source version {self.source_version} to {self.target_version}, {self.rows:,} rows in the view",
        ]
        if self.fragments_unset:
            fragments = "fragment" if self.fragments_unset == 1 else "fragments"
            lines.append(f"  {self.fragments_unset:,} {fragments} of placeholders to fill")
        if self.changes:
            counts = ", ".join(f"{count:,} {kind}" for kind, count in self.changes.items())
            lines.append(f"  fragments of the source to compare: {counts}")
        if self.stale:
            lines.append(f"  columns to recompute: {', '.join(self.stale)}")
        if any(self.calls.values()):
            each = ", ".join(f"{name} for up to {rows:,} rows" for name, rows in self.calls.items())
            lines.append(f"  functions to call: {each}")
        return "\n".join(lines)


def columns_read(column: ComputedColumn) -> list[str]:
    """Return the columns that a column reads, each once. A struct's field counts as its column."""
    return list(dict.fromkeys(name.split(".")[0] for name in column.input_columns))


def inputs_first(columns: Sequence[ComputedColumn]) -> list[str]:
    """Sort the names of computed columns, each after those that it reads. Raises FailedPrecondition (COLUMN_CYCLE)."""
    names = {column.name for column in columns}
    graph = {column.name: [name for name in columns_read(column) if name in names] for column in columns}
    try:
        return list(graphlib.TopologicalSorter(graph).static_order())
    except graphlib.CycleError as error:
        cycle = " → ".join(reversed(error.args[1]))
        raise FailedPrecondition(
            f"computed columns read each other in a cycle ({cycle}): alter one of them", reason="COLUMN_CYCLE"
        ) from None


def column_tree(table: TableInfo) -> list[str]:
    """Return lines of a tree: each column that is read, with the columns below it that are computed from it.

    A column that is computed from several columns is below each of them. Its own tree is shown once.
    """
    computed = {column.name: column for column in table.computed_columns}
    readers: dict[str, list[str]] = {}
    for column in table.computed_columns:
        for name in columns_read(column):
            readers.setdefault(name, []).append(column.name)
    told: set[str] = set()

    def below(name: str, indent: str) -> Iterator[str]:
        for at, reader in enumerate(readers.get(name, ())):
            last = at == len(readers[name]) - 1
            column = computed[reader]
            text = f"{reader} = {column.udf_name}({', '.join(column.input_columns)})"
            again = reader in told and reader in readers
            yield f"{indent}{'└─' if last else '├─'} {text}{' …' if again else ''}"
            if reader not in told:
                told.add(reader)
                yield from below(reader, indent + ("   " if last else "│  "))

    return [line for root in _roots(table, readers, computed) for line in (root, *below(root, ""))]


def _roots(table: TableInfo, readers: Iterable[str], computed: Iterable[str]) -> list[str]:
    """Return the columns that are read but not computed: first the table's in its order, then missing ones."""
    found = [name for name in readers if name not in computed]
    there = [name for name in table.schema.names if name in found]
    return [*there, *(name for name in found if name not in there)]
