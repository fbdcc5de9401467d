"""The demo's view: what has a docstring, shuffled, with a column of its own; and what its refreshes cost."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import leman
from examples.demo.output import grid
from examples.demo.udfs import signature
from leman.progress import duration

NAME = "training"
_SAMPLE = 3


@dataclass(frozen=True, slots=True)
class Refresh:
    """One refresh of the view, for a line of a table."""

    when: str
    result: leman.RefreshResult
    seconds: float


def view_of(db: leman.Database, table: leman.Table) -> leman.View:
    """The view, made or opened; with the function as it is written now."""
    if NAME not in db.table_names():
        query = table.search(None).where("docstring IS NOT NULL")
        query = query.select(["module", "qualified_name", "docstring", "embedding"]).add_column("signature", signature)
        return db.create_materialized_view(NAME, query.shuffle(seed=42))
    view = db.open_view(NAME)
    (column,) = view.describe().query.functions
    if column.udf_version != signature.version:
        view.alter_columns({column.name: signature})
    return view


def refresh(view: leman.View, when: str) -> Refresh:
    """Refreshes the view, with live progress."""
    begun = time.perf_counter()
    result = view.refresh()
    return Refresh(when, result, time.perf_counter() - begun)


def show_rows(view: leman.View) -> None:
    """Prints the first rows in the order of the shuffle."""
    rows = view.to_lance().to_table(["signature", "docstring"], filter="__is_set", limit=_SAMPLE).to_pylist()
    found = [(row["signature"], row["docstring"].strip().partition("\n")[0]) for row in rows]
    grid(("signature", "docstring"), found, wide={"signature": 1, "docstring": 1})


def show_costs(refreshes: Sequence[Refresh]) -> None:
    """Prints what each refresh did, and what it reused."""
    rows = [
        (
            refresh.when,
            refresh.result.mode.replace("_", " "),
            refresh.result.rows_added,
            refresh.result.rows_recomputed,
            refresh.result.rows_evicted,
            refresh.result.rows_reused,
            refresh.result.rows_evaluated,
            duration(refresh.seconds),
        )
        for refresh in refreshes
    ]
    grid(("refresh", "mode", "added", "recomputed", "evicted", "reused", "calls of signature", "took"), rows)
