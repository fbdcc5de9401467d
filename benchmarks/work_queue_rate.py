"""Units a second that one executor's work queue hands out and takes back, with 100, 10,000 and 100,000 fragments open.

No service, no I/O: it is what the executor's event loop does between two messages of workers. Fragments of 10,000 rows
of a millisecond each, 1,000 workers; every unit comes back done but for its last tenth. The other side is a queue that
sorts all open fragments for each unit, at 10,000 of them.
"""

from __future__ import annotations

import time
from collections import deque

from benchmarks.common import Document, Target, figures, interleaved, options_of, report
from core.domain.plan import CheckpointRef, FragmentTask, Reason
from core.domain.ranges import RowRange, subtract, total
from core.domain.work import FragmentResult, FragmentWork, Timings, UnitOutcome, WorkUnit
from executor.scheduling.work_queue import WorkQueue

_WORKERS = 1000
_SECONDS_PER_ROW = 1e-3
_SECONDS = 2.0
_SORTED_FRAGMENTS = 10_000


def tasks_of(fragments: int, rows: int) -> list[FragmentTask]:
    """A plan with nothing computed."""
    missing = (RowRange(0, rows),)
    return [
        FragmentTask(
            i, rows, 0, Reason.MISSING, f"{i:032x}", f"udf-f_ver-1_col-{i}", (f"{i:032x}.lance",), missing=missing
        )
        for i in range(fragments)
    ]


def outcome_of(unit: WorkUnit) -> UnitOutcome:
    """The unit is done, but for a tenth of its last fragment."""
    results = [_done(work) for work in unit.works]
    last = unit.works[-1]
    if last.ranges and last.ranges[-1].rows >= 10:
        end = last.ranges[-1]
        left = RowRange(end.end - end.rows // 10, end.end)
        refs = tuple(CheckpointRef(f"{unit.unit_id}-{r.start}", r) for r in subtract(last.ranges, [left]))
        results[-1] = FragmentResult(last.fragment_id, refs, (left,), rows_evaluated=total(last.ranges) - left.rows)
    rows = sum(result.rows_evaluated for result in results)
    return UnitOutcome(unit.unit_id, tuple(results), timings=Timings(udf=rows * _SECONDS_PER_ROW))


def _done(work: FragmentWork) -> FragmentResult:
    rows = total(work.ranges)
    if work.finish:
        return FragmentResult(work.fragment_id, staged=object(), rows_evaluated=rows)  # type: ignore[arg-type]
    refs = tuple(CheckpointRef(f"{work.fragment_id}-{r.start}", r) for r in work.ranges)
    return FragmentResult(work.fragment_id, refs, rows_evaluated=rows)


def rate(fragments: int, rows: int) -> float:
    """Units a second, taken and given back, with all workers at work."""
    work_queue = WorkQueue(tasks_of(fragments, rows), _WORKERS, seconds_per_row=_SECONDS_PER_ROW)
    out: deque[WorkUnit] = deque()
    back: list[UnitOutcome] = []
    units, spent = 0, 0.0
    while spent < _SECONDS and (out or not work_queue.empty):
        begin = time.perf_counter()
        while len(out) < _WORKERS and (unit := work_queue.take()) is not None:
            out.append(unit)
            units += 1
        spent += time.perf_counter() - begin
        back = [outcome_of(out.popleft()) for _ in range(max(1, len(out) // 2))]
        begin = time.perf_counter()
        for outcome in back:
            work_queue.note(outcome)
        spent += time.perf_counter() - begin
    return units / spent


def sorted_rate(fragments: int, rows: int) -> float:
    """Units a second where all open fragments are sorted for each."""
    left = dict.fromkeys(range(fragments), rows)
    units, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < _SECONDS:
        largest = sorted(left, key=lambda i: (-left[i], i))[0]
        left[largest] -= 1
        units += 1
    return units / (time.perf_counter() - begin)


def main() -> None:
    options = options_of(__doc__ or "", rows=10_000, fragments=100_000, repetitions=3)
    sizes = sorted({100, min(10_000, options.fragments), options.fragments})
    rates: dict[int, list[float]] = {fragments: [] for fragments in sizes}
    plain: list[float] = []

    def side(repetition: int) -> None:
        for fragments in sizes:
            found = rate(fragments, options.rows)
            if repetition:
                rates[fragments].append(found)

    def other(repetition: int) -> None:
        found = sorted_rate(min(_SORTED_FRAGMENTS, options.fragments), options.rows)
        if repetition:
            plain.append(found)

    interleaved(options.repetitions, side, other)
    found: Document = {str(fragments): figures(rates[fragments]) for fragments in sizes}
    target = Target(
        f"units/s at {options.fragments:,} fragments ≥ 5000",
        found[str(options.fragments)]["median"],
        5000,
        at_least=True,
    )
    report("work_queue_rate", options, [target], workers=_WORKERS, units_per_second=found, sorting=figures(plain))


if __name__ == "__main__":
    main()
