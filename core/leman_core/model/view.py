"""Materialized views and the requests, plans and results of their refreshes.

For definitions see `leman._format.view_definitions`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from leman._format.stored_functions import UdfDefinition
from leman._format.view_definitions import (
    EarlierState,
    ViewDefinition,
    ViewFunction,
)
from leman_core.model.plan import OnStaleInput, StaleInput

#: Prefix of tables with the rows of a running refresh. No user table can have it.
SCRATCH_PREFIX = "__leman_scratch_"

#: Prefixes of the names of a view's data files. From the names in the manifest, a planner sees whether a fragment
#: contains placeholders: rows whose values are not computed yet.
PLACEHOLDER_FILE_PREFIX = "placeholders-"
VIEW_FILE_PREFIX = "view-"


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewSummary:
    """A view in a listing."""

    uri: str
    name: str
    version: int
    definition: ViewDefinition
    row_count: int
    #: The rows that queries show; None if rows would have to be read to count them.
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
    """`INCREMENTAL` refuses a full refresh; `FULL` computes every row again."""

    AUTO = "auto"
    INCREMENTAL = "incremental"
    FULL = "full"


class RefreshMode(enum.Enum):
    """The way in which a refresh updates the view."""

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
    """The request of a refresh. Names are those of the API, 0 and empty mean "not given"."""

    database: str
    view: str
    src_version: int = 0
    max_rows_per_fragment: int = 0
    policy: RefreshPolicy = RefreshPolicy.AUTO
    concurrency: int = 0
    #: Whether no `src_version` was requested, so it was the latest when the refresh began.
    latest: bool = False
    optimize_indices: bool = False
    on_stale_input: OnStaleInput = OnStaleInput.ERROR

    @property
    def table(self) -> str:
        """Return the table to which the refresh writes."""
        return self.view


class ChangeKind(enum.Enum):
    """The difference of a source fragment between two versions, in rows or in columns that the view reads."""

    APPEARED = "appeared"
    GONE = "gone"
    DELETIONS = "deletions"
    REWRITTEN = "rewritten"


@dataclass(frozen=True, slots=True)
class SourceChange:
    """One fragment that differs between the versions.

    Unlisted fragments hold the same rows with the same values in every column that the view reads, unchanged or moved
    by compaction.
    """

    fragment_id: int
    kind: ChangeKind


@dataclass(frozen=True, slots=True)
class ResolvedFunction:
    """A function column with all data that is needed to run its function."""

    column: ViewFunction
    udf: UdfDefinition
    bundle_uri: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierValues:
    """An earlier version of the view whose values may be reused.

    They are valid in rows that are the same in the source version of its `definition` and in the target version.
    """

    view_version: int
    definition: ViewDefinition
    #: The function columns of these values.
    columns: tuple[str, ...]
    #: Changes between the two source versions, as `RefreshPlan.changes`.
    changes: tuple[SourceChange, ...] = ()


@dataclass(frozen=True, slots=True)
class UnsetFragment:
    """A fragment of the view with placeholders that have no values yet.

    It is filled as a whole, even if compaction added rows with values.
    """

    fragment_id: int
    physical_rows: int
    deleted_rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshPlan:
    """The plan of a refresh, from manifests alone: no row was read.

    First the `unset` fragments are filled, then the rows of `changes` are compared between `base_version` and
    `target_version`. With mode FULL and no `unset` the view is rebuilt next to the old one and swapped in.
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
    #: Whether placeholders are first recreated for `target_version`, and the view is planned again.
    create_placeholders_again: bool = False
    changes: tuple[SourceChange, ...] = ()
    #: Function columns whose rows must all be computed with another function version, at `target_version`.
    stale: tuple[str, ...] = ()
    rows: int = 0
    #: Function column → an upper bound of the rows for which its function is called. It is not sent to executors.
    calls: Mapping[str, int] = field(default_factory=dict)
    #: The state of the view, to be remembered if the refresh changes rows; None: not worthwhile.
    state: EarlierState | None = None
    #: Versions whose valid values are reused in the first step that calls functions.
    earlier: tuple[EarlierValues, ...] = ()
    #: Source columns that are read and are not current: computed ones, and function columns of a source view.
    stale_inputs: tuple[StaleInput, ...] = ()
    #: Whether these columns include some of a source view. A refresh of that view computes them; a backfill cannot.
    stale_in_source_view: bool = False
    #: The file format of the view; empty: unknown.
    file_format: str = ""
    #: Identifies `version` if the view has no incarnation; else empty.
    identity: str = ""

    @property
    def only_version(self) -> bool:
        """Return whether all rows are unchanged, and only the source version advances."""
        return self.mode is RefreshMode.INCREMENTAL and not (self.unset or self.changes or self.stale)

    @property
    def only_columns(self) -> bool:
        """Return whether rows stay as they are, and only the `stale` columns get other values."""
        return bool(self.stale) and not self.changes and self.mode is not RefreshMode.FULL


@dataclass(frozen=True, slots=True)
class RefreshResult:
    """The result of a refresh. Rows are the view's."""

    mode: RefreshMode = RefreshMode.NO_OP
    reason: RefreshReason = RefreshReason.UP_TO_DATE
    rows_added: int = 0
    rows_recomputed: int = 0
    rows_evicted: int = 0
    rows_reused: int = 0
    #: Rows given to functions, counted for each column.
    rows_evaluated: int = 0
    source_rows_read: int = 0
    fragments_rewritten: int = 0
    source_version_before: int = 0
    source_version: int = 0
    view_version: int = 0
    #: Damaged or missing records of the view, as texts.
    warnings: tuple[str, ...] = ()


class ViewCommit(NamedTuple):
    """The coordinator's response to a request to update a view."""

    #: The view's new version.
    version: int
    #: Whether this version is known to have no index.
    without_indexes: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedCommit:
    """A commit to a view before its answer."""

    uri: str
    request_id: str
    read_version: int
    #: The result of the refresh, this commit included.
    gains: RefreshResult
    #: For a first fill, whose fragments may be refused one by one: the rows of each fragment. Otherwise empty.
    filled: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshJournal:
    """The records of a refresh for an executor that takes it over.

    The keys of the dictionaries are "scratch table/column", their values numbers of rows.
    """

    #: Unanswered commits.
    asked: tuple[AskedCommit, ...] = ()
    #: The rows given to functions so far.
    evaluated: int = 0
    #: How many rows had a value.
    settled: dict[str, int] = field(default_factory=dict)
    #: How many rows had failed.
    failed: dict[str, int] = field(default_factory=dict)
    #: How many of the failed ones were there when the refresh began the column.
    found: dict[str, int] = field(default_factory=dict)
