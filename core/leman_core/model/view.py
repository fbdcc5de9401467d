"""Materialized views: their queries, and what they say of themselves."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

import pyarrow as pa

#: Columns that every view has. Queries made through Leman do not show them.
SOURCE_ROW_ID = "__source_row_id"
IS_SET = "__is_set"
INTERNAL_COLUMNS = (SOURCE_ROW_ID, IS_SET)

#: Names of tables that hold the rows of a refresh while they are computed. No table of a user can begin so.
SCRATCH_PREFIX = "__leman_scratch_"

#: Names of a view's data files tell a planner, from the manifest alone, whether a fragment holds placeholders.
PLACEHOLDER_FILE_PREFIX = "placeholders-"
VIEW_FILE_PREFIX = "view-"


class ViewFormat(enum.IntEnum):
    """How `__source_row_id` points into the source (`leman::view::version`)."""

    ADDRESSES = 1
    STABLE_ROW_IDS = 2


@dataclass(frozen=True, slots=True)
class ViewColumn:
    """A column made by the source alone."""

    name: str
    #: SQL over the source's columns.
    expression: str
    #: Set where the expression is no more than one of them.
    source_column: str = ""


@dataclass(frozen=True, slots=True)
class ViewFunction:
    """A column computed by a registered function from columns of the source, in the order of its parameters."""

    name: str
    udf_name: str
    udf_version: str
    inputs: tuple[str, ...]

    @property
    def identity(self) -> str:
        """Return what tells its values from others: a function version and what it reads."""
        return f"{self.udf_name}@{self.udf_version}({', '.join(self.inputs)})"


@dataclass(frozen=True, slots=True)
class ViewQuery:
    """What a view holds. `limit` and `offset` choose by source row id, before the shuffle."""

    database: str
    table: str
    columns: tuple[ViewColumn, ...]
    functions: tuple[ViewFunction, ...] = ()
    where: str = ""
    shuffle: bool = False
    seed: int = 0
    #: None: all rows.
    limit: int | None = None
    offset: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierState:
    """What a view was up to one of its versions: all rows of `view_version` are right for `source_version`."""

    view_version: int
    source_version: int
    #: What computed the function columns (name → `ViewFunction.identity`).
    computed: dict[str, str]
    #: The highest id of a fragment of the source then.
    last_fragment: int = -1

    def is_like(self, other: EarlierState) -> bool:
        """Tell whether both hold the same values."""
        return (self.source_version, self.computed) == (other.source_version, other.computed)


@dataclass(frozen=True, slots=True)
class FailedNote:
    """What a view says of the values that it lacks because a function failed."""

    #: The file that lists the rows (see `leman_core.storage.views.failed_rows_file`).
    file: str = ""
    #: How many, by column.
    rows: dict[str, int] = field(default_factory=dict)
    #: How many, by the job in which that was, the latest first.
    jobs: dict[str, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """Count the values that are missing."""
        return sum(self.rows.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewDefinition:
    """A view as its table's schema metadata describes it."""

    query: ViewQuery
    source_uri: str
    #: The source version that the set rows are right for.
    base_version: int
    base_incarnation: str
    format: ViewFormat
    #: The function version that computed each function column's values (name → "udf@version"); it differs from the
    #: query's after an alteration.
    filled: dict[str, str] = field(default_factory=dict)
    #: The file in which the view keeps that source version (`source_records`); empty: none.
    base_record: str = ""
    #: What it was before, newest first, as far as it is remembered.
    earlier: tuple[EarlierState, ...] = ()
    #: Values that are missing.
    failed: FailedNote = field(default_factory=FailedNote)
    #: The source is in the database of the view, and stays so wherever that is copied or moved.
    in_own_database: bool = False

    @property
    def computed(self) -> dict[str, str]:
        """Return, by name of each function column with values, what computed them, as `ViewFunction.identity` says it.

        The inputs are those of the query: a column that gets others is not among the filled ones any more.
        """
        inputs = {function.name: function.inputs for function in self.query.functions}
        return {name: f"{by}({', '.join(inputs[name])})" for name, by in self.filled.items() if name in inputs}

    @property
    def stale(self) -> tuple[str, ...]:
        """Return the function columns whose values are of another function, or of other inputs, than the query says."""
        wanted = {f.name: f"{f.udf_name}@{f.udf_version}" for f in self.query.functions}
        return tuple(name for name, function in wanted.items() if self.filled.get(name) != function)


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewSummary:
    """A view as a listing tells of it."""

    uri: str
    name: str
    version: int
    definition: ViewDefinition
    row_count: int
    #: The rows that queries show; None where rows would have to be read to count them.
    rows_set: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MaterializedView:
    """A view as its table describes it."""

    uri: str
    name: str
    version: int
    definition: ViewDefinition
    schema: pa.Schema
    row_count: int
    #: The rows that queries show.
    rows_set: int
