"""Views of the fault tests: what they are made of, and what must hold after every fault."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import leman
from leman._format.view_definitions import IS_SET, SOURCE_ROW_ID
from leman_core.model.view import SCRATCH_PREFIX
from tests.faults.lake import CallLog, Lake
from tests.integration.call_log import numbers

ROWS = 160
PER_FRAGMENT = 40
#: A first fill installs the fragments of its placeholders in two parts.
PLACEHOLDERS = 6
WHERE = "x % 5 <> 0"


def matching(xs: Iterator[int] | range | list[int]) -> list[int]:
    """Those that `WHERE` lets through."""
    return [x for x in xs if x % 5]


def make(db: leman.Database, call_log: CallLog, name: str, *, seconds: float = 0) -> tuple[leman.Table, leman.View]:
    """A table of `ROWS` rows and a shuffled view of four fifths of them, with a function that takes its time."""
    table = db.create_table(name, numbers(ROWS), max_rows_per_file=PER_FRAGMENT)
    query = (
        table.search(None).where(WHERE).select(["x"]).add_column("y", call_log.double(seconds=seconds)).shuffle(seed=7)
    )
    return table, query.create_materialized_view(db, f"{name}_view", max_rows_per_fragment=PLACEHOLDERS)


def change(table: leman.Table) -> tuple[list[int], list[int]]:
    """Rows come, go, and become others. What the source then holds, and what is new in it."""
    table.add(numbers(50, start=1000))
    table.to_lance().delete("x >= 60 AND x < 70")
    table.to_lance().update({"x": "x + 5000"}, where="x >= 10 AND x < 20")
    new = [*range(1000, 1050), *range(5010, 5020)]
    old = [x for x in range(ROWS) if not (60 <= x < 70 or 10 <= x < 20)]
    return [*old, *new], new


def check_settled(lake: Lake, db: leman.Database, view: leman.View, xs: list[int]) -> None:
    """What holds after every fault: each matching row of the source once, with its value; all jobs ended; no scratch
    table and nothing to do are left."""
    raw = view.to_lance().to_table()
    assert all(raw[IS_SET].to_pylist())
    ids = raw[SOURCE_ROW_ID].to_pylist()
    assert len(set(ids)) == len(ids)
    rows = view.to_arrow()
    wanted = matching(xs)
    assert sorted(rows["x"].to_pylist()) == sorted(wanted)
    assert rows["y"].to_pylist() == [2 * x for x in rows["x"].to_pylist()]
    assert all(job.state.terminal for job in db.jobs(view.name))
    assert scratch_tables(lake.database, view.name) == []
    version = view.version
    again = view.refresh(progress=False)
    assert (again.mode, again.rows_evaluated) == ("no_op", 0)
    assert view.version == version


def scratch_tables(database: Path, view: str) -> list[str]:
    """Hidden tables of the view's refreshes."""
    return [path.name for path in database.glob(f"{SCRATCH_PREFIX}{view}_*")]
