"""What the demo does: index source, compute three columns, answer with them, keep a view of it up to date."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any, Literal, TypeVar

import pyarrow as pa

import leman
from examples.demo import answers, changes, training
from examples.demo.extract import Found, Row, extract
from examples.demo.output import heading, say
from examples.demo.text_model import TextModel
from examples.demo.udfs import Embedding, complexity, n_tokens
from leman.progress import duration

T = TypeVar("T")

TABLE = "definitions"
FRAGMENTS = 12
QUESTION = "parse a date string"
COLUMNS: dict[str, Any] = {"n_tokens": n_tokens, "complexity": complexity, "embedding": Embedding}

SCHEMA = pa.schema(
    [
        pa.field("module", pa.string()),
        pa.field("qualified_name", pa.string()),
        pa.field("kind", pa.string()),
        pa.field("docstring", pa.string()),
        pa.field("source", pa.string()),
        pa.field("path", pa.string()),
        pa.field("line", pa.int32()),
    ]
)


def run(path: Path, rows: int, *, fresh: bool) -> None:
    """Builds or continues the database at `path` and prints what it finds. Raises leman.LemanError."""
    begun = time.perf_counter()
    services = _in_background(partial(_connect, path))
    found = None if _exists(path) and not fresh else _read_source(rows)
    model = _in_background(TextModel)
    with _when_ready(services) as db:
        table = _table(db, found, fresh=fresh)
        heading("Computed columns")
        computed = [_compute(db, table, column) for column in COLUMNS]
        answers.most_complex(table)
        answers.errors(db, table, "complexity")
        answers.nearest(table, QUESTION, model.result().question(QUESTION))
        refreshed = _keep_view(db, table)
    say(f"\nAll of it in {duration(time.perf_counter() - begun)}. {_farewell(anything=any(computed) or refreshed)}")


def _in_background(call: Callable[[], T]) -> Future[T]:
    """As an executor's `submit`, in a thread that does not keep an interrupted program from ending."""
    future: Future[T] = Future()

    def work() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001 - for anyone who waits
            future.set_exception(error)

    Thread(target=work, daemon=True).start()
    return future


def _exists(path: Path) -> bool:
    return (path / f"{TABLE}.lance" / "_versions").is_dir()


def _read_source(rows: int) -> Found:
    begun = time.perf_counter()
    found = extract(rows)
    left_out = f", {found.unreadable:,} unreadable" if found.unreadable else ""
    took = duration(time.perf_counter() - begun)
    say(f"Source    {len(found.rows):,} definitions in {found.files:,} files{left_out}, parsed in {took}")
    return found


def _connect(path: Path) -> tuple[leman.Database, float]:
    begun = time.perf_counter()
    db = leman.connect(path.absolute())
    db.start()
    return db, time.perf_counter() - begun


def _when_ready(services: Future[tuple[leman.Database, float]]) -> leman.Database:
    db, seconds = services.result()
    say(f"Services  planner, executor, commit coordinator and Redis: ready after {duration(seconds)}")
    return db


def _table(db: leman.Database, found: Found | None, *, fresh: bool) -> leman.Table:
    """The table with all its columns, created or opened."""
    table = db.open_table(TABLE) if found is None else _write(db, found.rows, fresh=fresh)
    info = table.describe()
    have = {column.name for column in info.computed_columns}
    missing = {name: udf for name, udf in COLUMNS.items() if name not in have}
    if missing:
        table.add_columns(missing)
    state = "" if found is not None else ", as they were (--fresh reads them again)"
    say(f"Table     {table.name}: {info.row_count:,} rows in {info.fragment_count} fragments{state}")
    return table


def _write(db: leman.Database, rows: Sequence[Row], *, fresh: bool) -> leman.Table:
    """The table without the rows that are to come later; these wait in another one."""
    if fresh and training.NAME in db.table_names():
        db.drop_view(training.NAME)
    first, later = changes.split(rows)
    waiting = [
        as_arrow(found).append_column("change", pa.array([kind] * len(found), pa.string()))
        for kind, found in later.items()
    ]
    db.create_table(changes.TABLE, pa.concat_tables(waiting), mode="overwrite")
    mode: Literal["create", "overwrite"] = "overwrite" if fresh else "create"
    return db.create_table(TABLE, as_arrow(first), mode=mode, max_rows_per_file=math.ceil(len(first) / FRAGMENTS))


def as_arrow(rows: Sequence[Row]) -> pa.Table:
    """Rows as an Arrow table."""
    columns = zip(*rows, strict=True) if rows else [[]] * len(SCHEMA)
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def _compute(db: leman.Database, table: leman.Table, column: str) -> bool:
    """Brings a column up to date; returns whether there was anything to compute."""
    job = db.job(table.backfill(column, udf=COLUMNS[column]))
    if job.progress.fragments_planned:
        return True
    for count in job.reasons:
        say(f"  why: {count.fragments} fragments {count.reason}: computed by version {job.udf_version}, same inputs")
    return False


def _keep_view(db: leman.Database, table: leman.Table) -> bool:
    """Fills the view, changes the table, refreshes the view; returns whether there was anything to do."""
    heading("A view of it for training: all that has a docstring, shuffled, with its signature")
    view = training.view_of(db, table)
    refreshes = [training.refresh(view, "again" if view.count_rows() else "first")]
    training.show_rows(view)
    todo = changes.pending(db.open_table(changes.TABLE), table) if changes.TABLE in db.table_names() else {}
    if todo:
        counts = ", ".join(f"{rows.num_rows:,} to {kind}" for kind, rows in todo.items())
        heading(f"The table changes: {counts}")
        changes.make(table, todo)
        for column in COLUMNS:
            _compute(db, table, column)
        refreshes += [training.refresh(view, "after the changes")]
    done = [refresh for refresh in refreshes if refresh.result.mode != "no_op"]
    if done:
        heading("What the view reused")
        training.show_costs(done)
    return bool(done)


def _farewell(*, anything: bool) -> str:
    return "Run it again: there will be nothing to do." if anything else "Nothing was computed."
