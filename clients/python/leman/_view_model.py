"""What the services tell about views: queries, plans of refreshes, and what refreshes did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from leman._shown import Shown
from leman._table_model import StaleInput, TableInfo

RefreshPolicy = Literal["auto", "incremental", "full"]
"""`incremental` refuses where only a full refresh is right; `full` computes every row anew."""

VIEW_KEYS = b"leman::view::"
"""How all keys begin that a view has in the metadata of its schema."""
VIEW_KEY = VIEW_KEYS + b"query"
"""Every view has it."""
IS_SET = "__is_set"
"""Column of a view: whether a row has values, or waits for a refresh."""
INTERNAL_COLUMNS = ("__source_row_id", IS_SET)
"""Columns of a view that are not shown."""


@dataclass(frozen=True, slots=True)
class ViewColumn:
    """A column of a view and the SQL expression over its source that makes it."""

    name: str
    expression: str


@dataclass(frozen=True, slots=True)
class ViewFunction:
    """A column of a view, the function that computes it, and the source's columns that this reads."""

    name: str
    udf_name: str
    udf_version: str
    input_columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ViewQuery:
    """What a view holds, with everything resolved. `limit` None: all rows; `shuffle_seed` None: not shuffled."""

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
    """A view as it stands now. `row_count` and `schema` are what queries show: rows with values, without internal
    columns. `rows_unset`: placeholders that wait for a refresh. `row_reference`: `stable_row_id`, or `address` where
    the source has no stable row ids: the view can only be refreshed to the version that it was made from.
    `stale_columns`: those that got another function since their values were computed; a refresh computes them."""

    query: ViewQuery
    source_version: int
    rows_unset: int
    row_reference: str
    stale_columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewSummary:
    """A view in a list. `row_count`, `rows_unset`, `row_reference` and `stale_columns`: as in `ViewInfo`. The numbers
    are None where rows would have to be read to count them, as after a compaction of the view: `View.describe` reads
    them."""

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

    `changes` counts the source's fragments that are to be compared row by row, by how they differ: `appeared`, `gone`,
    `deletions`, `rewritten`. `fragments_unset`: fragments of placeholders that are filled. `stale`: function columns
    that are computed anew for every row. `stale_inputs`: columns of the source that the view rests on and that
    are not current: computed ones, and function columns of a source view. `on_stale_input` says what happens.
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
            lines.append(f"  columns to compute anew: {', '.join(self.stale)}")
        return "\n".join(lines)
