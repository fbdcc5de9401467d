"""Materialized views and their refreshes.

Materialized views: their queries, and what they say of themselves.

Refreshes of views: what one is asked, what it finds, what it did.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from leman_core.model.plan import OnStaleInput, StaleInput
from leman_core.model.udf import UdfDefinition

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

    #: The file that lists the rows (see `leman_core.storage.view_side_files`).
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


class RefreshPolicy(enum.Enum):
    """`INCREMENTAL` refuses where only a full refresh would do; `FULL` computes every row anew."""

    AUTO = "auto"
    INCREMENTAL = "incremental"
    FULL = "full"


class RefreshMode(enum.Enum):
    """What a refresh did, or would do."""

    NO_OP = "no_op"
    INCREMENTAL = "incremental"
    FULL = "full"


class RefreshReason(enum.Enum):
    """Why a refresh took its mode. Meanings: `protos/leman/v1/planner.proto`."""

    UP_TO_DATE = "up_to_date"
    FIRST_FILL = "first_fill"
    SOURCE_CHANGED = "source_changed"
    FUNCTION_CHANGED = "function_changed"
    SOURCE_HISTORY_LOST = "source_history_lost"
    SOURCE_REPLACED = "source_replaced"
    FORCED = "forced"


@dataclass(frozen=True, slots=True)
class RefreshSpec:
    """What a refresh is asked to do; names are those of the API, 0 and empty mean "not given"."""

    database: str
    view: str
    src_version: int = 0
    max_rows_per_fragment: int = 0
    policy: RefreshPolicy = RefreshPolicy.AUTO
    concurrency: int = 0
    #: Whether `src_version` was not asked for: it was the latest when the refresh began.
    latest: bool = False
    optimize_indices: bool = False
    on_stale_input: OnStaleInput = OnStaleInput.ERROR

    @property
    def table(self) -> str:
        """Return the table that it writes to."""
        return self.view


class ChangeKind(enum.Enum):
    """How a fragment of the source differs between two versions, as far as the view reads it."""

    APPEARED = "appeared"
    GONE = "gone"
    DELETIONS = "deletions"
    REWRITTEN = "rewritten"


@dataclass(frozen=True, slots=True)
class SourceChange:
    """One fragment that is not the same in both versions.

    Those that are not listed hold the same rows with the same values in every column that the view reads: as they were,
    or as compaction made them of one another.
    """

    fragment_id: int
    kind: ChangeKind


@dataclass(frozen=True, slots=True)
class ResolvedFunction:
    """A function column with all that is needed to run it."""

    column: ViewFunction
    udf: UdfDefinition
    bundle_uri: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierValues:
    """An earlier version of the view with values that may be right again.

    They are right in rows that are the same in the source version of its `definition` and in the one that is computed
    for.
    """

    view_version: int
    definition: ViewDefinition
    #: The function columns whose values these are.
    columns: tuple[str, ...]
    #: Those between the two source versions, as `RefreshPlan.changes`.
    changes: tuple[SourceChange, ...] = ()


@dataclass(frozen=True, slots=True)
class UnsetFragment:
    """A fragment of the view with placeholders that have no values yet.

    It is filled as a whole, even where compaction put rows with values among them.
    """

    fragment_id: int
    physical_rows: int
    deleted_rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshPlan:
    """What is to be done, from manifests alone: no row was read.

    First the `unset` fragments are filled, then the rows of `changes` are compared between `base_version` and
    `target_version`. With mode FULL and no `unset` the view is built anew beside the old one and swapped in.
    """

    uri: str
    version: int
    incarnation: str
    definition: ViewDefinition
    schema: pa.Schema
    functions: tuple[ResolvedFunction, ...]
    target_version: int
    target_incarnation: str
    mode: RefreshMode
    reason: RefreshReason
    message: str
    #: Fragments that are filled from `base_version`.
    unset: tuple[UnsetFragment, ...] = ()
    #: Whether, before that, placeholders are created again for `target_version`, and the view is planned again.
    create_placeholders_again: bool = False
    changes: tuple[SourceChange, ...] = ()
    #: Function columns that another function version has to compute for every row, at `target_version`.
    stale: tuple[str, ...] = ()
    rows: int = 0
    #: What the view is, to be remembered where the refresh changes rows; None: it is not worth it.
    state: EarlierState | None = None
    #: Versions whose values are taken where they are right, for the first step that calls functions.
    earlier: tuple[EarlierValues, ...] = ()
    #: Columns of the source that are read and are not current: computed ones, and function columns of a source view.
    stale_inputs: tuple[StaleInput, ...] = ()
    #: Whether the latter are among them; a refresh of that view computes these, and no backfill does.
    stale_in_source_view: bool = False
    #: The file format of the view; empty: not known.
    file_format: str = ""

    @property
    def only_version(self) -> bool:
        """Tell whether all rows stay as they are, and only the source version that they are right for is another."""
        return self.mode is RefreshMode.INCREMENTAL and not (self.unset or self.changes or self.stale)


@dataclass(frozen=True, slots=True)
class RefreshResult:
    """What a refresh did. Rows are the view's."""

    mode: RefreshMode = RefreshMode.NO_OP
    reason: RefreshReason = RefreshReason.UP_TO_DATE
    rows_added: int = 0
    rows_recomputed: int = 0
    rows_evicted: int = 0
    rows_reused: int = 0
    #: Rows given to functions, each column's apart.
    rows_evaluated: int = 0
    source_rows_read: int = 0
    fragments_rewritten: int = 0
    source_version_before: int = 0
    source_version: int = 0
    view_version: int = 0
    #: What of the view's records is damaged or gone, for people.
    warnings: tuple[str, ...] = ()


class ViewCommit(NamedTuple):
    """What the coordinator says about a request to bring a view to another version of its source."""

    #: The view's version with it.
    version: int
    #: Whether it is known that this version has no index.
    without_indexes: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedCommit:
    """A commit to a view before its answer."""

    uri: str
    request_id: str
    read_version: int
    #: What the refresh will have done with it.
    gains: RefreshResult
    #: Rows of each fragment that a first fill asks for, of which some may be refused; empty: all or nothing.
    filled: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshJournal:
    """What a refresh writes down for an executor that may have to take it over.

    The keys of the dictionaries are "scratch table/column", their values numbers of rows.
    """

    #: Commits without an answer.
    asked: tuple[AskedCommit, ...] = ()
    #: The rows that were given to functions by then.
    evaluated: int = 0
    #: How many rows had a value.
    settled: dict[str, int] = field(default_factory=dict)
    #: How many rows had failed.
    failed: dict[str, int] = field(default_factory=dict)
    #: How many of the failed ones were found when the refresh began with the column.
    found: dict[str, int] = field(default_factory=dict)
