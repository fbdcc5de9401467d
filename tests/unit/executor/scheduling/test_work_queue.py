"""The work queue hands out every missing row exactly once, whatever comes back, and finishes every fragment."""

from __future__ import annotations

import heapq
import itertools
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leman_core.model.plan import CheckpointRef, FragmentTask, Reason
from leman_core.model.row_positions import RowRange, count_offsets, merge_ranges, subtract_ranges
from leman_core.model.work import FragmentResult, Timings, UnitFailure, UnitOutcome, WorkUnit
from leman_executor.scheduling.crash_tracker import give_back_outcome
from leman_executor.scheduling.work_queue import UnitSizes, WorkQueue


def task(fragment_id: int, rows: int, missing: list[RowRange]) -> FragmentTask:
    covered = subtract_ranges([RowRange(0, rows)], missing)
    refs = tuple(CheckpointRef(f"c{fragment_id}-{r.start}", r) for r in covered)
    return FragmentTask(
        fragment_id, rows, 0, Reason.MISSING, "f" * 32, "p", (), missing=tuple(missing), checkpoints=refs
    )


class Simulation:
    """Workers that stop wherever they like, and a model of what they did."""

    def __init__(self, tasks: list[FragmentTask], rng: random.Random):
        self.tasks = {t.fragment_id: t for t in tasks}
        self.done: dict[int, list[RowRange]] = {t.fragment_id: [] for t in tasks}
        self.finished: set[int] = set()
        self.rng = rng

    def outcome(self, unit: WorkUnit) -> UnitOutcome:
        results = []
        for work in unit.works:
            assert work.fragment_id not in self.finished
            ranges = list(work.ranges)
            again = [r for a in ranges for d in self.done[work.fragment_id] if (r := a.intersect(d))]
            assert not again, "handed out twice"
            left: list[RowRange] = []
            if ranges and unit.budget_seconds and self.rng.random() < 0.4:
                cut = self.rng.randint(ranges[0].start, ranges[-1].end)
                left = subtract_ranges(ranges, [RowRange(0, cut)])
            did = subtract_ranges(ranges, left)
            self.done[work.fragment_id] = merge_ranges([*self.done[work.fragment_id], *did])
            staged = None
            known = [r.range for r in work.checkpoints]
            if work.finish and not left:
                whole = [RowRange(0, work.task.physical_rows)]
                assert not subtract_ranges(whole, [*known, *did]), "finished with rows unknown"
                self.finished.add(work.fragment_id)
                staged = object()
            refs = () if staged else tuple(CheckpointRef(f"n{work.fragment_id}-{r.start}", r) for r in did)
            results.append(
                FragmentResult(
                    work.fragment_id,
                    checkpoints=refs,
                    left=tuple(left),
                    staged=staged,  # type: ignore[arg-type]
                    rows_evaluated=count_offsets(did),
                )
            )
        return UnitOutcome(unit.unit_id, tuple(results), timings=Timings(udf=self.rng.random()))


@st.composite
def plans(draw: st.DrawFn) -> list[FragmentTask]:
    tasks = []
    for fragment_id in range(draw(st.integers(1, 6))):
        rows = draw(st.integers(1, 500))
        cuts = sorted(draw(st.lists(st.integers(0, rows), max_size=4)))
        covered = [RowRange(a, b) for a, b in zip(cuts[::2], cuts[1::2], strict=False) if a < b]
        tasks.append(task(fragment_id, rows, subtract_ranges([RowRange(0, rows)], covered)))
    return tasks


@given(
    plans(),
    st.integers(1, 5),
    st.sampled_from([None, 1e-6, 0.01, 1.0]),
    st.sampled_from([0, 0, 1, 7, 100]),
    st.sampled_from([0, 0, 1, 3]),
    st.integers(0, 1 << 32),
)
def test_everything_is_handed_out_once_and_finished(tasks, workers, cost, task_size, diversity, seed):
    rng = random.Random(seed)
    world = Simulation(tasks, rng)
    work_queue = WorkQueue(tasks, workers, seconds_per_row=cost, task_size=task_size, diversity=diversity)
    out = work_queue.first_units()
    assert len(out) <= workers
    for _ in range(5000):
        while len(out) < workers and (unit := work_queue.take()) is not None:
            out.append(unit)
        if not out:
            break
        unit = out.pop(rng.randrange(len(out)))
        if rng.random() < 0.1:
            work_queue.give_back(unit)
        else:
            work_queue.note(world.outcome(unit))
        assert work_queue.outstanding == len(out)
    assert world.finished == set(world.tasks)
    for fragment_id, plan in world.tasks.items():
        assert world.done[fragment_id] == merge_ranges(plan.missing)
    assert work_queue.rows_left == 0


def test_cheap_work_goes_out_as_one_unit_a_worker():
    tasks = [task(i, 1000, [RowRange(0, 1000)]) for i in range(16)]
    units = WorkQueue(tasks, 4).first_units()
    assert [len(u.works) for u in units] == [4, 4, 4, 4]
    assert all(w.finish for u in units for w in u.works)


def makespan(sizes: list[int], workers: int, cost: float, fixed: float = 0.0, pieces: list[int] | None = None) -> float:
    """Seconds that workers take, by a clock of their own, for fragments whose rows cost so much each, and every part of
    one `fixed` beside. `pieces` gets the rows of each part."""
    work_queue = WorkQueue([task(i, rows, [RowRange(0, rows)]) for i, rows in enumerate(sizes)], workers)
    now, order, free = 0.0, itertools.count(), workers
    ends: list[tuple[float, int, UnitOutcome]] = []
    units = work_queue.first_units()
    while not work_queue.empty:
        while free and (unit := units.pop() if units else work_queue.take()) is not None:
            outcome, seconds = worked(unit, cost, fixed)
            if pieces is not None:
                pieces += [result.rows_evaluated for result in outcome.results if result.rows_evaluated]
            heapq.heappush(ends, (now + seconds, next(order), outcome))
            free -= 1
        now, _, outcome = heapq.heappop(ends)
        work_queue.note(outcome)
        free += 1
    return now


def worked(unit: WorkUnit, cost: float, fixed: float = 0.0) -> tuple[UnitOutcome, float]:
    """What a worker does of a unit within its budget, and how long it takes."""
    results, able = [], round(unit.budget_seconds / cost) or 1 << 60
    before = able
    for work in unit.works:
        ranges = list(work.ranges)
        cut = ranges[0].start + able if ranges else 0
        did = merge_ranges([r for a in ranges if (r := a.intersect(RowRange(0, cut)))])
        able = max(0, able - count_offsets(did))
        left = tuple(subtract_ranges(ranges, did))
        staged: object = object() if work.finish and not left else None
        refs = () if staged else tuple(CheckpointRef(f"{unit.unit_id}-{r.start}", r) for r in did)
        results.append(FragmentResult(work.fragment_id, refs, left, staged=staged, rows_evaluated=count_offsets(did)))  # type: ignore[arg-type]
    seconds = (before - able) * cost
    waiting = fixed * sum(bool(result.rows_evaluated or result.staged) for result in results)
    timings = Timings(udf=seconds, read=waiting / 2, write=waiting / 2, fixed=waiting)
    return UnitOutcome(unit.unit_id, tuple(results), timings=timings), seconds + waiting


@pytest.mark.parametrize("cost", [0.0004, 0.001, 0.01])
@pytest.mark.parametrize("workers", [2, 4, 16])
def test_a_fragment_with_most_of_the_rows_does_not_leave_workers_idle(workers, cost):
    """Nine tenths in one fragment of eight, and in the end all workers have had work nearly all the time."""
    rows = 5000 * workers
    small = rows // 10 // 7
    ideal = rows * cost / workers
    assert makespan([rows - 7 * small, *[small] * 7], workers, cost) <= 1.15 * ideal


@pytest.mark.parametrize("fixed", [0.1, 0.5])
@pytest.mark.parametrize("workers", [2, 4])
def test_storage_that_answers_late_does_not_make_units_ever_smaller(workers, fixed):
    """Rows of a millisecond, and half a second of waiting for each part of a fragment."""
    pieces: list[int] = []
    sizes = [5000] * 2 * workers
    near = makespan(sizes, workers, 0.001)
    assert makespan(sizes, workers, 0.001, fixed, pieces) <= 1.3 * near + 2 * fixed
    assert statistics.median(pieces) * 0.001 >= 2 * fixed
    assert sum(pieces) == sum(sizes)


def test_fragments_of_few_rows_count_with_what_each_of_them_costs():
    tasks = [task(i, 10, [RowRange(0, 10)]) for i in range(1000)]
    work_queue = WorkQueue(tasks, 1, seconds_per_row=0.01)
    first = work_queue.take()
    assert first is not None
    assert len(first.works) == 300, "thirty seconds of rows, as far as anybody knows"
    outcome, _ = worked(first, 0.01, fixed=0.9)
    work_queue.note(outcome)
    second = work_queue.take()
    assert second is not None
    assert len(second.works) == 30, "a fragment takes a second, not a tenth"


def test_the_time_that_a_function_takes_to_be_set_up_makes_no_row_dear():
    work_queue = WorkQueue([task(0, 100_000, [RowRange(0, 100_000)])], 1)
    (unit,) = work_queue.first_units()
    measured(work_queue, unit, Timings(udf=1.0, load=30.0), 1000)
    following = work_queue.take()
    assert following is not None
    assert count_offsets(following.works[0].ranges) == 30_000, "thirty seconds of a millisecond each"


def test_rows_of_a_unit_that_then_got_no_server_do_not_count_as_free():
    """Its time is not known apart from the waiting: rows that took none seemed cheap, and units were too large."""
    tasks = [task(i, 1000, [RowRange(0, 1000)]) for i in range(40)]
    work_queue, untold = WorkQueue(tasks, 2, seconds_per_row=0.1), UnitSizes(2, None)
    unit = work_queue.take()
    assert unit is not None
    work_queue.note(worked(unit, 0.1)[0])
    costs = work_queue._sizes.seconds_per_row
    unit = work_queue.take()
    assert unit is not None
    first = FragmentResult(unit.works[0].fragment_id, staged=object(), rows_evaluated=300)  # type: ignore[arg-type]
    no_server = UnitFailure("FUNCTION_UNAVAILABLE", "none could be had", elsewhere=True)
    outcome = give_back_outcome(UnitOutcome(unit.unit_id, (first,), no_server, Timings(udf=90.0)), unit, {})
    work_queue.note(outcome)
    untold.note(outcome)
    assert (work_queue._sizes.seconds_per_row, untold.seconds_per_row) == (costs, None)


def test_a_worker_that_is_dealt_more_than_its_share_comes_back_sooner():
    def budgets(*sizes: int) -> list[float]:
        tasks = [task(i, rows, [RowRange(0, rows)]) for i, rows in enumerate(sizes)]
        return [round(unit.budget_seconds, 2) for unit in WorkQueue(tasks, 4).first_units()]

    assert budgets(100, 100, 100, 100) == [1.0] * 4
    assert budgets(1000, 200, 200, 200) == [0.4, 1.0, 1.0, 1.0]
    assert budgets(10_000, 10, 10, 10) == [0.25, 1.0, 1.0, 1.0]
    assert budgets(10_000) == [1.0], "no other worker has been dealt anything"


def test_a_large_fragment_is_spread_over_all_workers_once_the_cost_is_known():
    tasks = [task(0, 9000, [RowRange(0, 9000)]), *(task(i, 500, [RowRange(0, 500)]) for i in (1, 2))]
    work_queue = WorkQueue(tasks, 4, seconds_per_row=0.01)
    assert work_queue.first_units() == []
    first = [work_queue.take() for _ in range(4)]
    assert all(u is not None and u.works[0].fragment_id == 0 for u in first)
    rows = [count_offsets(w.ranges) for u in first for w in u.works]
    assert rows == sorted(rows, reverse=True), "pieces shrink towards the end"


def test_task_size_means_exactly_that():
    work_queue = WorkQueue([task(0, 250, [RowRange(0, 250)])], 2, task_size=100)
    sizes = []
    while (unit := work_queue.take()) is not None:
        sizes.append(count_offsets(unit.works[0].ranges))
    assert sizes == [100, 100, 50]


def test_ranges_of_another_job_keep_a_fragment_open_but_out_of_the_way():
    work_queue = WorkQueue([task(0, 10, [RowRange(0, 10)])], 1)
    (unit,) = work_queue.first_units()
    result = FragmentResult(0, busy=(RowRange(5, 10),), rows_evaluated=5)
    work_queue.note(UnitOutcome(unit.unit_id, (result,)))
    assert work_queue.take() is None
    assert work_queue.outstanding == 0
    assert work_queue.busy_fragments == 1


@pytest.mark.parametrize("workers", [1, 3])
def test_a_fragment_with_nothing_missing_is_assembled(workers):
    work_queue = WorkQueue([task(0, 10, [])], workers, seconds_per_row=1.0)
    unit = work_queue.first_units() or [work_queue.take()]
    assert unit[0] is not None
    assert unit[0].works[0].finish
    assert unit[0].works[0].ranges == ()


def order(diversity: int) -> list[int]:
    """Fragments in the order in which their units are handed out."""
    tasks = [task(i, 40, [RowRange(0, 40)]) for i in range(4)]
    work_queue = WorkQueue(tasks, 1, task_size=10, diversity=diversity)
    assert work_queue.first_units() == []
    found = []
    while (unit := work_queue.take()) is not None:
        (work,) = unit.works
        assert count_offsets(work.ranges) == 10
        found.append(work.fragment_id)
    return found


def test_diversity_is_how_many_fragments_are_handed_out_in_turn():
    assert order(1) == [0] * 4 + [1] * 4 + [2] * 4 + [3] * 4
    assert order(2) == [0, 1] * 4 + [2, 3] * 4
    assert order(3) == [0, 1, 2] * 4 + [3] * 4
    assert order(0) == [0, 1, 2, 3] * 4, "of all, the one with the most rows left"


def test_a_fragment_that_is_done_leaves_its_turn_to_the_next():
    tasks = [task(i, rows, [RowRange(0, rows)]) for i, rows in enumerate((40, 20, 20))]
    work_queue = WorkQueue(tasks, 1, task_size=10, diversity=2)
    found = [unit.works[0].fragment_id for unit in iter(work_queue.take, None) if unit is not None]
    assert found == [0, 1, 0, 1, 0, 2, 0, 2]


def test_diversity_without_a_size_or_a_cost_cuts_smaller_pieces():
    tasks = [task(i, 400, [RowRange(0, 400)]) for i in range(2)]
    unit = WorkQueue(tasks, 2, diversity=2).take()
    assert unit is not None
    assert count_offsets(unit.works[0].ranges) == 200
    assert unit.budget_seconds


def measured(work_queue: WorkQueue, unit: WorkUnit, timings: Timings, done: int) -> None:
    """The unit comes back with the time it took for some rows of its first fragment, and gives back the others."""
    results = []
    for work in unit.works:
        rows = min(done, count_offsets(work.ranges))
        done -= rows
        left = subtract_ranges(work.ranges, [RowRange(work.ranges[0].start, work.ranges[0].start + rows)])
        refs = (CheckpointRef(f"m{work.fragment_id}", RowRange(0, rows)),) if rows else ()
        results.append(FragmentResult(work.fragment_id, checkpoints=refs, left=tuple(left), rows_evaluated=rows))
    work_queue.note(UnitOutcome(unit.unit_id, tuple(results), timings=timings))


@pytest.mark.parametrize(
    ("timings", "cut"),
    [
        (Timings(udf=0.2, read=0.1, write=0.7), False),
        (Timings(udf=0.2, read=0.1, checkpoint=0.7), False),
        (Timings(udf=0.6, read=0.1, write=0.2, checkpoint=0.1), True),
        (Timings(udf=0.1, read=0.6, write=0.3), True),
    ],
)
def test_a_fragment_is_not_cut_where_most_of_the_time_goes_into_storing(timings, cut):
    work_queue = WorkQueue([task(0, 100_000, [RowRange(0, 100_000)])], 4)
    (unit,) = work_queue.first_units()
    measured(work_queue, unit, timings, 1000)
    following = work_queue.take()
    assert following is not None
    (work,) = following.works
    assert (count_offsets(work.ranges) < 99_000) is cut
    assert work.finish is not cut
    assert following.budget_seconds >= 3 * count_offsets(work.ranges) / 1000


def test_a_size_of_units_holds_where_storing_takes_the_time():
    work_queue = WorkQueue([task(0, 1000, [RowRange(0, 1000)])], 2, task_size=100)
    first = work_queue.take()
    assert first is not None
    measured(work_queue, first, Timings(write=1.0), 100)
    following = work_queue.take()
    assert following is not None
    assert [count_offsets(w.ranges) for w in following.works] == [100]


def test_a_unit_of_whole_fragments_is_not_filled_up_with_a_part_of_the_next():
    tasks = [task(i, 100, [RowRange(0, 100)]) for i in range(12)]
    work_queue = WorkQueue(tasks, 4, seconds_per_row=0.02)
    unit = work_queue.take()
    assert unit is not None
    assert [count_offsets(w.ranges) for w in unit.works] == [100], "an eighth of 1,200 rows is 150"
    assert unit.works[0].finish
