"""Materialized views: the query, what a refresh is asked, what it finds, what it did."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

import pyarrow as pa

from core.domain.udf import UdfDefinition

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
    """A column made by the source alone. `expression` is SQL over the source's columns; `source_column` is set where
    it is no more than one of them."""

    name: str
    expression: str
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
        """Of its values: a function version and what it reads."""
        return f"{self.udf_name}@{self.udf_version}({', '.join(self.inputs)})"


@dataclass(frozen=True, slots=True)
class ViewQuery:
    """What a view holds. `limit` and `offset` choose by source row id, before the shuffle; `limit` None: all."""

    database: str
    table: str
    columns: tuple[ViewColumn, ...]
    functions: tuple[ViewFunction, ...] = ()
    where: str = ""
    shuffle: bool = False
    seed: int = 0
    limit: int | None = None
    offset: int = 0


@dataclass(frozen=True, slots=True)
class EarlierState:
    """What a view was up to one of its versions: all rows of `view_version` are right for `source_version`. `computed`
    names what computed the function columns (name → `ViewFunction.identity`); `last_fragment` is the highest id of a
    fragment of the source then."""

    view_version: int
    source_version: int
    computed: dict[str, str]
    last_fragment: int = -1

    def is_like(self, other: EarlierState) -> bool:
        """Whether both hold the same values."""
        return (self.source_version, self.computed) == (other.source_version, other.computed)


@dataclass(frozen=True, slots=True)
class FailedNote:
    """What a view says of the values that it lacks because a function failed: how many, by column and by the job in
    which that was (the latest first), and the `file` that lists the rows (see `core.lance_io.views.failed_rows`)."""

    file: str = ""
    rows: dict[str, int] = field(default_factory=dict)
    jobs: dict[str, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """Values that are missing."""
        return sum(self.rows.values())


@dataclass(frozen=True, slots=True)
class ViewDefinition:
    """A view as its table's schema metadata describes it.

    `base_version` is the source version that the set rows are right for; `filled` names the function version that
    computed each function column's values (name → "udf@version"), which differs from the query's after an alteration.
    `base_record`: the file in which the view keeps that source version (`source_records`); empty: none.
    `earlier`: what it was before, newest first, as far as it is remembered. `failed`: values that are missing.
    """

    query: ViewQuery
    source_uri: str
    base_version: int
    base_incarnation: str
    format: ViewFormat
    filled: dict[str, str] = field(default_factory=dict)
    base_record: str = ""
    earlier: tuple[EarlierState, ...] = ()
    failed: FailedNote = field(default_factory=FailedNote)

    @property
    def computed(self) -> dict[str, str]:
        """Name of each function column with values → what computed them, as `ViewFunction.identity` says it. The
        inputs are those of the query: a column that gets others is not among the filled ones any more."""
        inputs = {function.name: function.inputs for function in self.query.functions}
        return {name: f"{by}({', '.join(inputs[name])})" for name, by in self.filled.items() if name in inputs}


@dataclass(frozen=True, slots=True)
class MaterializedView:
    """A view as its table describes it. `rows_set` are the rows that queries show."""

    uri: str
    name: str
    version: int
    definition: ViewDefinition
    schema: pa.Schema
    row_count: int
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
    """What a refresh is asked to do; names are those of the API, 0 and empty mean "not given".

    `latest`: nobody asked for `src_version`, it was the latest when the refresh began.
    """

    database: str
    view: str
    src_version: int = 0
    max_rows_per_fragment: int = 0
    policy: RefreshPolicy = RefreshPolicy.AUTO
    concurrency: int = 0
    latest: bool = False
    optimize_indices: bool = False

    @property
    def table(self) -> str:
        """The table that it writes to."""
        return self.view


class ChangeKind(enum.Enum):
    """How a fragment of the source differs between two versions, as far as the view reads it."""

    APPEARED = "appeared"
    GONE = "gone"
    DELETIONS = "deletions"
    REWRITTEN = "rewritten"


@dataclass(frozen=True, slots=True)
class SourceChange:
    """One fragment that is not the same in both versions. Those that are not listed hold the same rows with the same
    values in every column that the view reads: as they were, or as compaction made them of one another."""

    fragment_id: int
    kind: ChangeKind


@dataclass(frozen=True, slots=True)
class ResolvedFunction:
    """A function column with all that is needed to run it."""

    column: ViewFunction
    udf: UdfDefinition
    bundle_uri: str


@dataclass(frozen=True, slots=True)
class EarlierValues:
    """An earlier version of the view with values that may be right again: of these function `columns`, in rows that
    are the same in the source version of its `definition` and in the one that is computed for. `changes` are those
    between the two, as `RefreshPlan.changes`."""

    view_version: int
    definition: ViewDefinition
    columns: tuple[str, ...]
    changes: tuple[SourceChange, ...] = ()


@dataclass(frozen=True, slots=True)
class UnsetFragment:
    """A fragment of the view with placeholders that have no values yet. It is filled as a whole, even where compaction
    put rows with values among them."""

    fragment_id: int
    physical_rows: int
    deleted_rows: int


@dataclass(frozen=True, slots=True)
class RefreshPlan:
    """What is to be done, from manifests alone: no row was read.

    First `unset` fragments are filled from `base_version`; where `create_placeholders_again`, placeholders are laid
    anew for
    `target_version` before, and the view is planned again. Then the rows of `changes` are compared between
    `base_version` and `target_version`. `stale` names function columns that another function version has to compute for
    every row, at `target_version`. With mode FULL and no `unset` the view is built anew beside the old one and swapped
    in. `state`: what the view is, to be remembered where the refresh changes rows; None: it is not worth it. Values of
    `earlier` versions are taken where they are right, for the first step that calls functions.
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
    unset: tuple[UnsetFragment, ...] = ()
    create_placeholders_again: bool = False
    changes: tuple[SourceChange, ...] = ()
    stale: tuple[str, ...] = ()
    rows: int = 0
    state: EarlierState | None = None
    earlier: tuple[EarlierValues, ...] = ()

    @property
    def only_version(self) -> bool:
        """Whether all rows stay as they are, and only the source version that they are right for is another."""
        return self.mode is RefreshMode.INCREMENTAL and not (self.unset or self.changes or self.stale)


@dataclass(frozen=True, slots=True)
class RefreshResult:
    """What a refresh did. Rows are the view's; `rows_evaluated` counts rows given to functions, each column's apart."""

    mode: RefreshMode = RefreshMode.NO_OP
    reason: RefreshReason = RefreshReason.UP_TO_DATE
    rows_added: int = 0
    rows_recomputed: int = 0
    rows_evicted: int = 0
    rows_reused: int = 0
    rows_evaluated: int = 0
    source_rows_read: int = 0
    fragments_rewritten: int = 0
    source_version_before: int = 0
    source_version: int = 0
    view_version: int = 0


@dataclass(frozen=True, slots=True)
class AskedCommit:
    """A commit to a view before its answer. `gains`: what the refresh will have done with it. `filled`: rows of each
    fragment that a first fill asks for, of which some may be refused; empty: all or nothing."""

    uri: str
    request_id: str
    read_version: int
    gains: RefreshResult
    filled: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RefreshJournal:
    """What a refresh writes down for an executor that may have to take it over: commits without an answer, the rows
    that were given to functions by then, and how many rows of the scratch table's columns had a value (scratch
    table/column → rows), how many had `failed`, and how many of these were `found` when the refresh began with the
    column."""

    asked: tuple[AskedCommit, ...] = ()
    evaluated: int = 0
    settled: dict[str, int] = field(default_factory=dict)
    failed: dict[str, int] = field(default_factory=dict)
    found: dict[str, int] = field(default_factory=dict)
