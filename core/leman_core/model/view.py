"""Materialized views and their refreshes.

Refreshes of views: what one is asked, what it finds, what it did. What a view is: `leman._format.view_definitions`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from leman._format.view_definitions import (
    INTERNAL_COLUMNS,
    IS_SET,
    SOURCE_ROW_ID,
    EarlierState,
    FailedNote,
    ViewColumn,
    ViewDefinition,
    ViewFormat,
    ViewFunction,
    ViewQuery,
)
from leman_core.model.plan import OnStaleInput, StaleInput
from leman_core.model.udf import UdfDefinition

__all__ = [
    "INTERNAL_COLUMNS",
    "IS_SET",
    "PLACEHOLDER_FILE_PREFIX",
    "SCRATCH_PREFIX",
    "SOURCE_ROW_ID",
    "VIEW_FILE_PREFIX",
    "AskedCommit",
    "ChangeKind",
    "EarlierState",
    "EarlierValues",
    "FailedNote",
    "MaterializedView",
    "RefreshJournal",
    "RefreshMode",
    "RefreshPlan",
    "RefreshPolicy",
    "RefreshReason",
    "RefreshResult",
    "RefreshSpec",
    "ResolvedFunction",
    "SourceChange",
    "UnsetFragment",
    "ViewColumn",
    "ViewCommit",
    "ViewDefinition",
    "ViewFormat",
    "ViewFunction",
    "ViewQuery",
    "ViewSummary",
]


#: Names of tables that hold the rows of a refresh while they are computed. No table of a user can begin so.
SCRATCH_PREFIX = "__leman_scratch_"

#: Names of a view's data files tell a planner, from the manifest alone, whether a fragment holds placeholders.
PLACEHOLDER_FILE_PREFIX = "placeholders-"
VIEW_FILE_PREFIX = "view-"


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
    """`INCREMENTAL` refuses where only a full refresh would do; `FULL` computes every row again."""

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
    `target_version`. With mode FULL and no `unset` the view is rebuilt beside the old one and swapped in.
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
    #: Identifies `version` where the view has no incarnation; else empty.
    identity: str = ""

    @property
    def only_version(self) -> bool:
        """Return whether all rows stay as they are, and only the source version that they are right for is another."""
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
