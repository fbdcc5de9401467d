"""The order in which fragments are handed out, against a model that looks at all of them each time."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leman_core.model.plan import CheckpointRef, FragmentTask, Reason
from leman_core.model.plan_columns import planned_tasks, whole_range
from leman_core.model.row_positions import RowRange, count_offsets, subtract_ranges
from leman_core.model.work import FragmentResult, FragmentWork, RowError, Timings, UnitOutcome, WorkUnit, scope_of
from leman_executor.scheduling import work_queue as open_fragments
from leman_executor.scheduling.work_queue import OpenFragment, WorkQueue
from tests.unit.executor.scheduling.test_work_queue import plans, task


class PlainFragments:
    """The rules, word for word: suspects and what can be assembled in the order of the plan, the rest by size."""

    def __init__(self, tasks: Iterable[FragmentTask]) -> None:
        self._all = [OpenFragment(t, place, t.missing, t.checkpoints) for place, t in enumerate(tasks)]
        self._by_id = {f.fragment_id: f for f in self._all}
        self._settled: set[int] = set()
        self._turn: list[OpenFragment] = []
        for fragment in self._all:
            self.changed(fragment)

    def __bool__(self) -> bool:
        return any(self)

    def __iter__(self) -> Iterator[OpenFragment]:
        return (f for f in self._all if f.fragment_id not in self._settled)

    def of(self, fragment_id: int) -> OpenFragment:
        return self._by_id[fragment_id]

    def largest_first(self, most: int) -> list[OpenFragment]:
        return sorted(self, key=lambda f: (-f.rows, f.fragment_id))[:most]

    @property
    def scopes_out(self) -> list[str]:
        return [scope_of(f.task) for f in self._all if f.out or f.lost]

    def changed(self, fragment: OpenFragment) -> None:
        fragment.filed_rows = count_offsets(fragment.missing)
        if fragment.settled:
            self._settled.add(fragment.fragment_id)

    @property
    def rows_left(self) -> int:
        return sum(count_offsets(f.missing) + count_offsets(f.suspects) for f in self)

    @property
    def ready(self) -> int:
        return sum(f.to_assemble for f in self)

    @property
    def waiting(self) -> int:
        return sum(bool(count_offsets(f.missing)) for f in self)

    @property
    def busy(self) -> int:
        return sum(bool(f.busy) for f in self._all)

    def first_suspect(self) -> OpenFragment | None:
        return next((f for f in self if f.suspects), None)

    def first_to_assemble(self) -> OpenFragment | None:
        return next((f for f in self if f.to_assemble), None)

    def largest(self) -> OpenFragment | None:
        return next(iter(self._by_size()), None)

    def _by_size(self) -> list[OpenFragment]:
        return sorted((f for f in self if f.missing), key=lambda f: (-count_offsets(f.missing), f.fragment_id))

    def next_in_turn(self, diversity: int) -> OpenFragment | None:
        self._turn = [f for f in self._turn if f.missing and f.fragment_id not in self._settled]
        waiting = [f for f in self._by_size() if f not in self._turn]
        self._turn += waiting[: max(0, diversity - len(self._turn))]
        if not self._turn:
            return None
        self._turn.append(self._turn.pop(0))
        return self._turn[-1]


def anything(unit: WorkUnit, rng: random.Random) -> UnitOutcome:
    """Whatever a worker may say of a unit, sensible or not."""
    timings = Timings(
        udf=rng.random(), write=rng.random() * rng.choice([0, 2]), fixed=rng.random() * rng.choice([0, 1])
    )
    return UnitOutcome(unit.unit_id, tuple(_result(work, rng) for work in unit.works), timings=timings)


def _result(work: FragmentWork, rng: random.Random) -> FragmentResult:
    pieces = [list(work.ranges), [], []]
    if work.ranges and rng.random() < 0.5:
        cut = RowRange(0, rng.randint(work.ranges[0].start, work.ranges[-1].end))
        pieces[0] = subtract_ranges(work.ranges, [cut])
        pieces[rng.choice([1, 1, 1, 2])] = subtract_ranges(work.ranges, pieces[0])
    elif rng.random() < 0.8:
        pieces = [[], list(work.ranges), []]
    left, done, busy = pieces
    refs = tuple(CheckpointRef(f"n{work.fragment_id}-{r.start}", r) for r in done)
    staged = object() if rng.random() < (0.9 if work.finish and not left else 0.02) else None
    return FragmentResult(
        work.fragment_id,
        refs,
        tuple(left),
        tuple(busy),
        staged=staged,  # type: ignore[arg-type]
        rows_evaluated=count_offsets(done),
    )


def held_at_death(unit: WorkUnit, rng: random.Random) -> list[tuple[int, RowRange]]:
    """Rows that were in hand when a worker died."""
    rows = [(w.fragment_id, r) for w in unit.works for r in w.ranges]
    return [(f, RowRange(r.start, rng.randint(r.start + 1, r.end))) for f, r in rng.sample(rows, min(len(rows), 2))]


@given(
    plans(),
    st.integers(1, 5),
    st.sampled_from([None, 1e-6, 0.01, 1.0]),
    st.sampled_from([0, 0, 1, 7, 100]),
    st.sampled_from([0, 0, 1, 2, 3, 8]),
    st.integers(0, 1 << 32),
)
def test_units_go_out_as_by_the_plain_rules(tasks, workers, cost, task_size, diversity, seed):
    rng = random.Random(seed)
    made = {"seconds_per_row": cost, "task_size": task_size, "diversity": diversity}
    work_queue = WorkQueue(tasks, workers, **made)
    with mock.patch("leman_executor.scheduling.work_queue.OpenFragments", PlainFragments):
        plain = WorkQueue(tasks, workers, **made)
    out = work_queue.first_units()
    assert out == plain.first_units()
    for _ in range(300):
        for _ in range(rng.randint(1, workers)):
            unit = work_queue.take()
            assert unit == plain.take()
            out += [unit] if unit is not None else []
        assert (work_queue.empty, work_queue.rows_left, work_queue.busy_fragments) == (
            plain.empty,
            plain.rows_left,
            plain.busy_fragments,
        )
        assert set(work_queue.scopes_out) == set(plain.scopes_out)
        if not out:
            break
        unit = out.pop(rng.randrange(len(out)))
        if rng.random() < 0.8:
            outcome = anything(unit, rng)
            both(work_queue, plain, "note", outcome)
        else:
            held = held_at_death(unit, rng)
            both(work_queue, plain, "give_back", unit, held)
            if held and held[0][1].rows == 1 and rng.random() < 0.5:
                fragment_id, row = held[0]
                both(
                    work_queue,
                    plain,
                    "quarantine",
                    RowError(
                        row_address=fragment_id << 32 | row.start,
                        error_type="WorkerLost",
                        error_message="",
                        traceback="",
                        attempt=2,
                    ),
                )


def both(a: WorkQueue, b: WorkQueue, method: str, *arguments: object) -> None:
    for work_queue in (a, b):
        getattr(work_queue, method)(*arguments)


def test_what_no_longer_holds_does_not_pile_up(monkeypatch):
    """A fragment that comes back again and again leaves an entry each time."""
    monkeypatch.setattr(open_fragments, "_FEW_ENTRIES", 10)
    tasks = [task(i, 1000, [RowRange(0, 1000)]) for i in range(3)]
    fragments = open_fragments.OpenFragments(planned_tasks(tasks))
    fragment = fragments.of(1)
    for rows in range(1, 500):
        fragment.missing = [RowRange(0, rows)]
        fragments.changed(fragment)
        assert len(fragments._largest) <= 2 * 3 + 10
    assert fragments.largest() is fragments.of(0)
    fragment.missing = [RowRange(0, 1001)]
    fragments.changed(fragment)
    assert fragments.largest() is fragment


def test_the_queue_holds_objects_of_fragments_at_work_alone():
    """A plan may have a million fragments, of which a thousand are at work."""
    one = whole_range(1)
    tasks = planned_tasks(FragmentTask(i, 1, 0, Reason.MISSING, "f", "p", (), missing=one) for i in range(2000))
    work_queue = WorkQueue(tasks, 4, seconds_per_row=0.2)
    done = 0
    while not work_queue.empty:
        units = [unit for unit in (work_queue.take() for _ in range(4)) if unit is not None]
        assert len(work_queue._open._known) <= sum(len(unit.works) for unit in units) + 1
        for unit in units:
            results = tuple(FragmentResult(w.fragment_id, staged=object(), rows_evaluated=1) for w in unit.works)  # type: ignore[arg-type]
            work_queue.note(UnitOutcome(unit.unit_id, results))
            done += len(unit.works)
    assert (done, work_queue._open._known) == (2000, {})


@pytest.mark.parametrize("workers", [1, 2, 7])
def test_first_units_are_dealt_to_the_worker_with_the_least(workers):
    sizes = [random.Random(workers).randint(0, 50) for _ in range(60)]
    tasks = [task(i, rows + 1, [RowRange(0, rows)] if rows else []) for i, rows in enumerate(sizes)]
    hands: list[list[int]] = [[] for _ in range(workers)]
    weights = [0] * workers
    for fragment_id in sorted(range(60), key=lambda i: (-sizes[i], i)):
        worker = weights.index(min(weights))
        hands[worker].append(fragment_id)
        weights[worker] += sizes[fragment_id] + 1
    assert [[w.fragment_id for w in unit.works] for unit in WorkQueue(tasks, workers).first_units()] == hands


def test_only_who_assembles_a_fragment_is_told_of_all_its_checkpoints():
    work_queue = WorkQueue([task(0, 400, [RowRange(100, 200), RowRange(300, 400)])], 1, task_size=50)
    units = [unit for unit in iter(work_queue.take, None) if unit is not None]
    assert [[ref.range for ref in w.checkpoints] for u in units for w in u.works] == [[]] * 4
    for unit in units:
        (work,) = unit.works
        refs = tuple(CheckpointRef(f"n{r.start}", r) for r in work.ranges)
        work_queue.note(UnitOutcome(unit.unit_id, (FragmentResult(0, refs, rows_evaluated=50),)))
    last = work_queue.take()
    assert last is not None
    (work,) = last.works
    assert (work.finish, count_offsets(ref.range for ref in work.checkpoints)) == (True, 400)
