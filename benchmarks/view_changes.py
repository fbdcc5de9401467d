"""Refreshes of views of a million rows, half of them kept: the first one, nothing to do, 10,000 rows appended, 1 %
updated, 1 % deleted, after a compaction. One view of SQL alone, one with a scalar Python function, both of one table.

The other sides: LanceDB's own view over a table of its own with the same data and the same changes, where the package
`lancedb` is installed; and what Lance alone needs, by hand in one process: reads the matching rows that were appended
and appends them, reads and rewrites the rows that were updated, deletes those that were deleted.

`--rows 10000000` does it over ten million.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

import lance
import pyarrow as pa

import leman
from benchmarks.common import Document, Options, Target, figures, options_of, report, say, scratch
from benchmarks.leman_side import Caller, running
from benchmarks.practical_limit import double, even, make_table
from benchmarks.view_side import KEPT, append_rows, refresh

_APPENDED = 10_000
_VIEW = {"x": "x", "y": "x * 2"}


class Side(Protocol):
    """Someone who keeps a view. `source`: the table that it is of."""

    name: str
    source: str

    def first(self, repetition: int) -> float:
        """Seconds of a first refresh, of another view each time."""
        ...

    def refresh(self) -> float:
        """Seconds of a refresh of one and the same view."""
        ...


class LemanSide:
    """From CreateJob to DONE."""

    def __init__(self, caller: Caller, name: str, *, function: bool) -> None:
        self.name, self.source = name, caller.uri("t")
        self._caller = caller
        self._function = function
        self.jobs: list[Any] = []
        self._make(name)
        refresh(caller, name)

    def _make(self, view: str) -> None:
        query = self._caller.sdk.open_table("t").search(None).where(KEPT)
        if self._function:
            made = leman.udf(data_type=pa.int64(), name="double", version=view)(double)
            query = query.select(["x"]).add_column("y", made)
        else:
            query = query.select(_VIEW)
        self._caller.sdk.create_materialized_view(view, query)

    def first(self, repetition: int) -> float:
        view = f"{self.name}{repetition}"
        self._make(view)
        return self._timed(view)

    def refresh(self) -> float:
        return self._timed(self.name)

    def _timed(self, view: str) -> float:
        run = refresh(self._caller, view)
        self.jobs.append(run.job)
        return run.seconds


class LanceDbSide:
    """In this process."""

    name = "lancedb"

    def __init__(self, folder: Path, rows: int, fragments: int) -> None:
        folder.mkdir()
        self.source = str(folder / "t.lance")
        make_table(self.source, even(rows, fragments))
        lancedb = importlib.import_module("lancedb")
        self._db = lancedb.connect(str(folder), storage_options={"new_table_enable_stable_row_ids": "true"})
        self._view = self._make("v", with_no_data=False)

    def _make(self, name: str, *, with_no_data: bool) -> Any:
        select = list(_VIEW.items())
        return self._db.create_materialized_view(name, "t", select=select, where=KEPT, with_no_data=with_no_data)

    def first(self, repetition: int) -> float:
        view = self._make(f"v{repetition}", with_no_data=True)
        return _timed(view.refresh)

    def refresh(self) -> float:
        return _timed(self._view.refresh)


def _timed(action: Callable[[], object]) -> float:
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


class ByHand:
    """Lance alone, knowing what was changed."""

    def __init__(self, source: str, target: str, rows: int) -> None:
        self._source, self._target, self._rows = source, target, rows
        lance.write_dataset(self._matching(KEPT), target, enable_stable_row_ids=True)

    def _matching(self, where: str) -> pa.Table:
        return lance.dataset(self._source).scanner(columns=_VIEW, filter=where).to_table()

    def first(self, repetition: int) -> None:
        lance.write_dataset(self._matching(KEPT), f"{self._target}{repetition}", enable_stable_row_ids=True)

    def appended(self, _: int) -> None:
        last = max(lance.dataset(self._source).get_fragments(), key=lambda f: f.fragment_id)
        lance.write_dataset(last.scanner(columns=_VIEW, filter=KEPT).to_table(), self._target, mode="append")

    def updated(self, repetition: int) -> None:
        changed = self._matching(f"{KEPT} AND {_hundredth(self._rows, repetition)}")
        lance.dataset(self._target).merge_insert("x").when_matched_update_all().execute(changed)

    def deleted(self, repetition: int) -> None:
        lance.dataset(self._target).delete(_hundredth(self._rows, repetition + 50))


def _hundredth(rows: int, number: int) -> str:
    one = rows // 100
    return f"x >= {number * one} AND x < {(number + 1) * one}"


class Changes:
    """What happens to every source before each timed refresh. `n`: the repetition, at most 40."""

    def __init__(self, rows: int) -> None:
        self._rows = rows

    def nothing(self, uri: str, n: int) -> None: ...

    def append(self, uri: str, n: int) -> None:  # noqa: ARG002
        append_rows(uri, _APPENDED)

    def update(self, uri: str, n: int) -> None:
        lance.dataset(uri).update({"x": "x + 0"}, where=_hundredth(self._rows, n))

    def delete(self, uri: str, n: int) -> None:
        lance.dataset(uri).delete(_hundredth(self._rows, n + 50))

    def compact(self, uri: str, n: int) -> None:  # noqa: ARG002
        lance.dataset(uri).optimize.compact_files(target_rows_per_fragment=self._rows)


def main() -> None:
    options = options_of(__doc__ or "", rows=1_000_000)
    with scratch(options) as folder, running(folder / "lake") as caller:
        make_table(caller.uri("t"), even(options.rows, options.fragments))
        sql, udf = LemanSide(caller, "sql", function=False), LemanSide(caller, "udf", function=True)
        sides: list[Side] = [sql, udf, *_lancedb(folder, options)]
        hand = ByHand(sql.source, str(folder / "plain"), options.rows)
        cases = _measure(options, sides, hand)
        jobs = sum(job.progress.spark_jobs for job in sql.jobs)
    report("view_changes", options, _targets(cases, jobs), cases=cases)


def _lancedb(folder: Path, options: Options) -> Iterator[Side]:
    if importlib.util.find_spec("lancedb") is None:
        say("lancedb is not installed: its side is left out")
    else:
        yield LanceDbSide(folder / "lancedb", options.rows, options.fragments)


def _measure(options: Options, sides: list[Side], hand: ByHand) -> dict[str, Document]:
    changes = Changes(options.rows)
    cases = {"first": _case(options, sides, None, hand.first)}
    cases["nothing"] = _case(options, sides, changes.nothing, None)
    cases["append"] = _case(options, sides, changes.append, hand.appended)
    cases["update"] = _case(options, sides, changes.update, hand.updated)
    cases["delete"] = _case(options, sides, changes.delete, hand.deleted)
    cases["compact"] = _case(options, sides, changes.compact, None, before=changes.append)
    return cases


def _apply(change: Callable[[str, int], None], sources: Iterable[str], repetition: int) -> None:
    for uri in sources:
        change(uri, repetition)


def _case(
    options: Options,
    sides: list[Side],
    change: Callable[[str, int], None] | None,
    by_hand: Callable[[int], None] | None,
    before: Callable[[str, int], None] | None = None,
) -> Document:
    """`before`: a change after which everyone refreshes without a clock. `change` None: first refreshes."""
    seconds: dict[str, list[float]] = {side.name: [] for side in sides}
    alone: list[float] = []
    sources = {side.source for side in sides}
    for repetition in range(options.repetitions + 1):
        if before is not None:
            _apply(before, sources, repetition)
            for side in sides:
                side.refresh()
        if change is not None:
            _apply(change, sources, repetition)
        for side in sides:
            took = side.first(repetition) if change is None else side.refresh()
            if repetition:
                seconds[side.name].append(took)
        if by_hand is not None:
            took = _timed(lambda repetition=repetition: by_hand(repetition))  # type: ignore[misc]
            if repetition:
                alone.append(took)
        say(f"repetition {repetition} of {options.repetitions}")
    found = {name: figures(values) for name, values in seconds.items()}
    return found | ({"lance_alone": figures(alone)} if alone else {})


def _targets(cases: dict[str, Document], jobs: int) -> list[Target]:
    targets = [
        Target("nothing to do ≤ 0.03 s, SQL", cases["nothing"]["sql"]["median"], 0.03),
        Target("nothing to do ≤ 0.03 s, function", cases["nothing"]["udf"]["median"], 0.03),
        Target("10,000 rows appended ≤ 0.35 s, function", cases["append"]["udf"]["median"], 0.35),
        Target("Spark jobs for SQL = 0", jobs, 0),
    ]
    for name, case in cases.items():
        if name == "nothing":  # over the network it has a promise of its own
            continue
        for other in ("lancedb", "lance_alone"):
            with contextlib.suppress(KeyError):
                rule = f"{name}, SQL ≤ 5 × {other}"
                targets.append(Target(rule, case["sql"]["median"], 5 * case[other]["median"]))
    return targets


if __name__ == "__main__":
    main()
