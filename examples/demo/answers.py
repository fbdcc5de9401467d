"""What the demo's table can tell once its columns are computed."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

import leman
from examples.demo.output import grid, heading
from examples.demo.text_model import Vectors
from leman.progress import duration

_SHOWN = 10
_CANDIDATES = 40  # more than shown: vendored copies of one function come first together


def most_complex(table: leman.Table) -> None:
    """Prints the functions with the most ways through."""
    columns = ["complexity", "n_tokens", "module", "qualified_name", "line"]
    rows = table.to_arrow(columns, where="kind != 'class' AND complexity IS NOT NULL")
    top = rows.sort_by([("complexity", "descending"), ("module", "ascending"), ("line", "ascending")])
    heading(f"The {_SHOWN} most complex functions")
    found = top.slice(0, _SHOWN).to_pylist()
    grid(
        ("complexity", "tokens", "function"),
        [(row["complexity"], row["n_tokens"], _name(row)) for row in found],
        wide={"function": 1},
    )


def nearest(table: leman.Table, question: str, vector: Vectors) -> None:
    """Prints the definitions whose embeddings are nearest to that of a question."""
    begun = time.perf_counter()
    rows = table.to_lance().to_table(
        columns=["module", "qualified_name", "docstring", "_distance"],
        nearest={"column": "embedding", "q": vector, "k": _CANDIDATES},
    )
    took = duration(time.perf_counter() - begun)
    heading(f"Nearest to “{question}” (vector search, {took})")
    by_name = {row["qualified_name"]: row for row in reversed(rows.to_pylist())}
    closest = sorted(by_name.values(), key=lambda row: float(row["_distance"]))[:_SHOWN]
    grid(
        ("similarity", "definition", "docstring"),
        [(f"{1 - row['_distance'] / 2:.2f}", _name(row), _first_line(row["docstring"])) for row in closest],
        wide={"definition": 4, "docstring": 3},
    )


def errors(db: leman.Database, table: leman.Table, column: str) -> None:
    """Prints the rows without a value by the type of their error."""
    dataset = table.to_lance()
    failed = dataset.to_table(columns=["module", "qualified_name"], filter=f"{column} IS NULL", with_row_id=True)
    if not failed.num_rows:
        return
    names = {row["_rowid"]: _name(row) for row in failed.to_pylist()}
    raised = _row_errors(db, table, column, set(names))
    counts = Counter((error.error_type, _reason(error)) for error in raised)
    examples = {(error.error_type, _reason(error)): names[error.row_id] for error in reversed(raised)}
    heading(f"Rows that have no {column}, because it raised: {failed.num_rows:,} of {dataset.count_rows():,}")
    grid(
        ("rows", "error", "message", "for example"),
        [(count, *kind, examples[kind]) for kind, count in counts.most_common()],
        wide={"for example": 1},
    )


def _row_errors(db: leman.Database, table: leman.Table, column: str, row_ids: set[int]) -> list[leman.RowError]:
    """The stored errors of rows, from the newest jobs: an interrupted one may have left some to the next."""
    found: dict[int, leman.RowError] = {}
    for job in _jobs_that_failed_rows(db, table, column):
        for error in db.get_errors(job.job_id, column):
            if error.row_id in row_ids:
                found.setdefault(error.row_id, error)
        if len(found) == len(row_ids):
            break
    return list(found.values())


def _jobs_that_failed_rows(db: leman.Database, table: leman.Table, column: str) -> Iterable[leman.Job]:
    return (job for job in db.jobs(table.name) if job.column == column and job.progress.rows_failed)


def _reason(error: leman.RowError) -> str:
    """The message without the place, which differs from row to row."""
    return error.error_message.partition(" (<unknown>")[0]


def _name(row: dict[str, Any]) -> str:
    return f"{row['module']}:{row['qualified_name']}"


def _first_line(docstring: str | None) -> str:
    return (docstring or "").strip().partition("\n")[0]
