"""Histories of a chain of computed columns: each backfill calls its function for the rows whose inputs changed.

`c` is computed from x, `d` from `c`, `e` from `d`, and `w` from the struct `s`, whose fields are renamed. A model knows
with which input each value was computed.
"""

from __future__ import annotations

import contextlib
import itertools
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, ClassVar

import lance
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from leman._format.stored_functions import CheckpointBounds
from leman_core.model import keys
from leman_core.model.plan import BackfillSpec
from leman_executor.worker.row_checkpoints import from_checkpoint
from tests.integration.stateful import udfs
from tests.integration.stateful.harness import Fate, Killed, Made, System, decisions
from tests.integration.stateful.test_machine import _MEMORY, KILLS, LONG

#: Column → its function and its input.
CHAIN = {"c": ("f", "x"), "d": ("g", "c"), "e": ("g", "d"), "w": ("h", "s")}
numbers = st.integers(0, 10_000)
columns = st.sampled_from([*CHAIN])


class Chain(RuleBasedStateMachine):
    """One table with a chain, and what is known of its values: by column and id the input they were computed from."""

    stable_row_ids: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="leman-chain-", dir=_MEMORY if _MEMORY.is_dir() else None))
        self.system = System(str(self.folder), register=True)
        #: Of `s` the values of its fields, whatever they are called.
        self.rows: dict[int, dict[str, Any]] = {}
        #: What the fields of `s` are called now.
        self.fields = ["p", "q"]
        self.made: dict[str, dict[int, Any]] = {name: {} for name in CHAIN}
        #: By column and id all inputs that a value was ever computed from: an earlier version may have it.
        self.seen: dict[str, dict[int, set[Any]]] = {name: {} for name in CHAIN}
        #: Rows whose values others overwrote, by column: they are computed again, or have them from an earlier version.
        self.lost: dict[str, set[int]] = {name: set() for name in CHAIN}
        #: Rows whose input others had overwritten when old versions were cleaned away: the only version that had both
        #: the value and its input is gone, so they may be computed again when the input comes back.
        self.forgotten: dict[str, set[int]] = {name: set() for name in CHAIN}
        #: By column and id the input of a value that a job stored before it died.
        self.stored: dict[str, dict[int, Any]] = {name: {} for name in CHAIN}
        #: Whether values may come from earlier versions, of which plans do not know how many rows they have.
        self.are_restored = False
        self.indexed = False
        #: The ids of the rows that the last job called a function for.
        self.called: set[int] = set()
        self.numbers = itertools.count(1)
        self.next_id = 0

    def teardown(self) -> None:
        try:
            for name in CHAIN if self.rows else ():
                self.backfill(name)
                assert not self.system.plan(BackfillSpec(self.system.database, "t", name)).tasks
        finally:
            self.system.close()
            shutil.rmtree(self.folder, ignore_errors=True)

    @initialize()
    def begin(self) -> None:
        stable = self.stable_row_ids
        lance.write_dataset(self._new(40), self.system.uri, max_rows_per_file=10, enable_stable_row_ids=stable)
        for name, (function, read) in CHAIN.items():
            self.system.add_column(name, function, 1, ("id", read))

    def _new(self, count: int) -> pa.Table:
        ids = range(self.next_id, self.next_id + count)
        self.next_id += count
        self.rows |= {i: {"id": i, "x": i % 50, "s": (i % 50, i), **dict.fromkeys(CHAIN)} for i in ids}
        return self._inputs(ids)

    def _inputs(self, ids: Collection[int]) -> pa.Table:
        rows = [self.rows[i] for i in ids]
        kind = pa.struct([(name, pa.int64()) for name in self.fields])
        structs = pa.array([dict(zip(self.fields, row["s"], strict=True)) for row in rows], kind)
        plain = {name: pa.array([row[name] for row in rows], pa.int64()) for name in ("id", "x")}
        return pa.table({**plain, "s": structs})

    def _some(self, number: int) -> list[int]:
        ids = sorted(self.rows)
        return sorted({ids[(number + k * (1 + number % 5)) % len(ids)] for k in range(1 + number % 6)})

    def _check(self) -> None:
        found = {i: {**row, "s": tuple(row["s"].values())} for i, row in self.system.rows().items()}
        assert found == self.rows, {i: (found.get(i), row) for i, row in self.rows.items() if found.get(i) != row}

    # the table

    @rule(count=st.integers(1, 12))
    def append(self, count: int) -> None:
        lance.write_dataset(self._new(count), self.system.uri, mode="append", max_rows_per_file=10)
        self._check()

    @rule(number=numbers)
    def update(self, number: int) -> None:
        """Some rows get a value that no row had."""
        ids, value = self._some(number), 1000 + next(self.numbers)
        self.system.open().update({"x": str(value)}, where=f"id in ({', '.join(map(str, ids))})")
        for i in ids:
            self.rows[i]["x"] = value
        self._check()

    @rule(number=numbers)
    def rewrite_as_they_were(self, number: int) -> None:
        """Some rows are updated to what they hold."""
        self.system.open().update({"x": "x"}, where=f"id in ({', '.join(map(str, self._some(number)))})")
        self._check()

    @rule(number=numbers, new=st.integers(0, 4), changed=st.integers(0, 3), all_rows=st.booleans())
    def upsert(self, number: int, new: int, changed: int, all_rows: bool) -> None:
        """Rows as they were, some that changed and some new ones. With an index on the key they stay in their place."""
        ids = sorted(self.rows) if all_rows else self._some(number)
        for i in ids[:changed]:
            self.rows[i]["x"] = 1000 + next(self.numbers)
            self.rows[i]["s"] = (1000 + next(self.numbers), i)
        both = pa.concat_tables([self._inputs(ids), self._new(new)])
        self.system.open().merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(both)
        self._check()

    @rule(number=numbers, new=st.integers(0, 4))
    def upsert_without_values(self, number: int, new: int) -> None:
        """Rows as they were and new ones, whose computed columns are empty: so a merge of Leman writes them."""
        ids = self._some(number)
        source = pa.concat_tables([self._inputs(ids), self._new(new)])
        for name in CHAIN:
            source = source.append_column(name, pa.nulls(len(source), pa.int64()))
        self.system.open().merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(source)
        for name in CHAIN:
            self.lost[name].update(i for i in ids if self.rows[i][name] is not None)
        for i in ids:
            self.rows[i].update(dict.fromkeys(CHAIN))
        self.are_restored = True
        self._check()

    @rule(exchange=st.booleans())
    def rename_fields(self, exchange: bool) -> None:
        """A field of the struct gets another name, or the two exchange theirs: no value is another one for it."""
        spec = BackfillSpec(self.system.database, "t", "w")
        settled = self.system.settled(spec)
        first, second = self.fields
        self._rename(first, f"n{next(self.numbers)}")
        if exchange:
            self._rename(second, first)
            self._rename(self.fields[0], second)
        assert self.system.settled(spec) == settled
        self._check()

    def _rename(self, old: str, new: str) -> None:
        self.system.open().alter_columns({"path": f"s.{old}", "name": new})
        self.fields[self.fields.index(old)] = new

    @rule()
    @precondition(lambda self: not self.indexed)
    def index(self) -> None:
        self.indexed = True
        self.system.open().create_scalar_index("id", "BTREE")

    @rule(number=numbers, back=st.booleans())
    def overwrite_value(self, number: int, back: bool) -> None:
        """Others write values of a computed column; `back`: they are what they were, after two updates."""
        ids = self._some(number)
        where = f"id in ({', '.join(map(str, ids))})"
        name = [*CHAIN][number % len(CHAIN)]
        if back and all(self.rows[i][name] == self.rows[ids[0]][name] for i in ids):
            value = self.rows[ids[0]][name]
            self.system.open().update({name: "7"}, where=where)
            self.system.open().update({name: "NULL" if value is None else str(value)}, where=where)
        else:
            self.system.open().update({name: "-77"}, where=where)
            for i in ids:
                self.rows[i][name] = -77
            self.lost[name].update(ids)
            self.are_restored = True
        self._check()

    @rule(number=numbers)
    @precondition(lambda self: len(self.rows) > 30)
    def delete(self, number: int) -> None:
        ids = self._some(number)[:3]
        self.system.open().delete(f"id in ({', '.join(map(str, ids))})")
        for i in ids:
            del self.rows[i]
            for made in self.made.values():
                made.pop(i, None)
            for lost in self.lost.values():
                lost.discard(i)
        self._check()

    @rule()
    def compact(self) -> None:
        self.system.open().optimize.compact_files(target_rows_per_fragment=20, materialize_deletions_threshold=0.0)
        self._check()

    @rule()
    def clean(self) -> None:
        """Old versions are cleaned away after a plan has recorded what became of the rows of each column."""
        for name in CHAIN:
            self.system.plan(BackfillSpec(self.system.database, "t", name))
            self.forgotten[name] |= self.lost.get(CHAIN[name][1], set())
        self.system.clean()

    # jobs

    def stale(self, name: str) -> set[int]:
        """Return the ids of the rows that were never computed, or from another input than they have now."""
        read, made = CHAIN[name][1], self.made[name]
        return {i for i, row in self.rows.items() if i not in made or made[i] != row[read]}

    @rule(name=columns, interval=st.sampled_from([0, 3]), kill=st.sampled_from(["", "", *KILLS[:3]]))
    def backfill(self, name: str, interval: int = 0, kill: str = "") -> None:
        self._run(name, self.rows, interval, kill)

    @rule(name=columns, interval=st.sampled_from([0, 3]), kill=st.sampled_from(KILLS[:3]))
    def abandon(self, name: str, kill: str, interval: int = 3) -> None:
        """A job dies, and no one continues with it."""
        read, layout = CHAIN[name][1], self.system.layout()

        def stored(key: str, batch: pa.RecordBatch) -> None:
            found = keys.parse_range_key(key)
            fragment_id = found.fragment_id if found else (keys.parse_record_key(key) or ("", -1))[1]
            offsets = from_checkpoint(batch).offsets.tolist() if found else layout.get(fragment_id, {})
            ids = [layout[fragment_id][at] for at in offsets if at in layout[fragment_id]]
            self.stored[name] |= {i: self.rows[i][read] for i in ids}

        spec = BackfillSpec(self.system.database, "t", name, checkpoint=CheckpointBounds(interval))
        if (plan := self.system.plan(spec)).tasks:
            with contextlib.suppress(Killed):
                self.system.compute(spec, Made(plan), Fate(kill, 2), stored)
        self.are_restored = True
        self._check()

    def known(self, name: str) -> set[int]:
        """The ids of stale rows whose value was stored for the input that they have."""
        read, stored = CHAIN[name][1], self.stored[name]
        return {i for i in self.stale(name) if i in stored and stored[i] == self.rows[i][read]}

    @rule(name=columns, low=st.integers(0, 40), interval=st.sampled_from([0, 3]))
    def backfill_where(self, name: str, low: int, interval: int) -> None:
        self._run(name, {i for i in self.rows if i >= low}, interval, where=f"id >= {low}")

    @rule(interval=st.sampled_from([0, 3]))
    def backfill_all(self, interval: int) -> None:
        for name in CHAIN:
            self.backfill(name, interval)

    @rule(name=columns)
    def retry(self, name: str) -> None:
        """The failed rows are tried again, and fail again."""
        function, read = CHAIN[name]
        others = self.stale(name) | self.lost[name]
        failed = {i for i, row in self.rows.items() if i not in others and _value(function, i, row[read])[1]}
        self.system.plan(BackfillSpec(self.system.database, "t", name))  # a retry compares no rows
        self._run(name, failed, 0, failed_only=True)

    def _run(
        self, name: str, asked: Collection[int], interval: int, kill: str = "", where: str = "", **options: bool
    ) -> None:
        """Run a job to its end, and again where it was killed: together they call the function as often as needed.

        `asked`: ids of the rows that the filter matches; of a retry, of those that failed.
        A call whose result was in no checkpoint yet is made again after a kill.
        """
        spec = BackfillSpec(
            self.system.database, "t", name, checkpoint=CheckpointBounds(interval), where=where, **options
        )
        function, read = CHAIN[name]
        forgotten = self.forgotten[name].intersection(asked)
        open_ = set(asked) if options else set(asked) & (self.stale(name) | self.lost[name]) | forgotten
        seen = self.seen[name]
        perhaps = forgotten if options else {i for i in open_ if self.rows[i][read] in seen.get(i, ())} | forgotten
        perhaps |= self.known(name)
        needed = open_ - perhaps
        udfs.EVALUATED.clear()
        plan = self.system.plan(spec)
        assert plan.header.rows_to_compute >= len(needed), "the plan promises too little"
        if not (where or options or self.are_restored or self._deletes):
            assert plan.header.rows_to_compute == len(needed), "the plan promises too much"
        for fate in [Fate(kill, 2)] * bool(kill) + [Fate()]:
            while (plan := self.system.plan(spec)).tasks:
                made = Made(plan)
                try:
                    self.system.compute(spec, made, fate, lambda *_: None)
                except Killed:
                    break
                request = made.request(self.system.uri, sorted(made.staged))
                outcomes = decisions(self.system.submit(request))
                assert all(reason == "" for _, reason in outcomes.values()), outcomes
                if where or options:
                    break
        called = list(udfs.EVALUATED)
        assert needed <= set(called) <= open_, (sorted(set(called) - open_), sorted(needed - set(called)))
        assert kill or len(called) == len(set(called)), "a row was evaluated twice"
        self.called = set(called)
        self.lost[name] -= open_
        self.forgotten[name] -= open_
        for i in open_:
            self.made[name][i] = self.rows[i][read]
            seen.setdefault(i, set()).add(self.rows[i][read])
            self.rows[i][name] = _value(function, i, self.rows[i][read])[0]
        self._check()

    @property
    def _deletes(self) -> bool:
        """Whether rows of the table are deleted: a plan does not look up which ones."""
        return any(fragment.num_deletions for fragment in self.system.open().get_fragments())


def _value(function: str, id_: int, argument: Any) -> tuple[int | None, bool]:
    try:
        return udfs.VALUES[function](1, id_, argument), False
    except ValueError:
        return None, True


@pytest.fixture
def chain() -> Iterator[Chain]:
    made = Chain()
    made.begin()
    yield made
    made.teardown()


CHANGES: dict[str, Callable[[Chain], None]] = {
    "append": lambda chain: chain.append(5),
    "update": lambda chain: chain.update(977),
    "delete": lambda chain: chain.delete(977),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_compaction_after_a_change_costs_no_call_of_any_column(chain, change):
    chain.backfill_all(0)
    CHANGES[change](chain)
    chain.compact()
    chain.backfill_all(0)


def test_a_renamed_field_costs_no_call_and_new_rows_are_given_its_name(chain):
    chain.backfill("w")
    chain.rename_fields(exchange=True)
    chain.rewrite_as_they_were(977)
    chain.upsert(977, 2, 1, all_rows=False)
    chain.rename_fields(exchange=False)
    chain.backfill("w", 3)
    assert all(row["w"] is not None for i, row in chain.rows.items() if (i + 1) % 19)


@pytest.mark.parametrize("interval", [0, 3])
def test_rows_that_a_filter_left_out_make_no_other_row_stale(chain, interval):
    for name in CHAIN:
        chain.backfill_where(name, 15, interval)
    chain.backfill_all(interval)


def test_a_column_follows_its_input_over_several_files_of_it(chain):
    chain.backfill_where("c", 30, 0)
    chain.backfill("d")
    for low in (25, 15, 0):
        chain.backfill_where("c", low, 0)
    chain.backfill("d")


def test_a_changed_input_counts_in_a_fragment_that_was_compacted_before_anything_was_computed(chain):
    chain.backfill_all(0)
    chain.append(5)
    chain.backfill("c")
    chain.append(5)
    chain.compact()
    chain.backfill("c")
    chain.compact()
    chain.clean()
    chain.backfill_all(0)


def test_a_filter_over_an_input_is_not_settled_by_what_it_matched_before(chain):
    chain.backfill_where("c", 20, 0)
    spec = BackfillSpec(chain.system.database, "t", "d", where="c IS NULL")
    assert chain.system.plan(spec).header.rows_to_compute >= 20
    chain._run("d", {i for i, row in chain.rows.items() if row["c"] is None}, 0, where="c IS NULL")
    chain.backfill("c")
    chain._run("d", {i for i, row in chain.rows.items() if row["c"] is None}, 0, where="c IS NULL")
    chain.backfill_all(0)


def test_an_input_that_comes_back_costs_no_call_where_a_filter_left_its_rows_out_meanwhile(chain):
    """The file that the filtered job wrote took over what others had written."""
    chain.backfill_all(0)
    chain.overwrite_value(1, back=False)  # of `d`
    chain.backfill_where("e", 26, 0)
    chain.backfill("d")
    chain.backfill("e")


def test_rows_that_were_compared_are_known_after_cleaning_when_their_input_gets_a_file(chain):
    """Found by the machine: the file of `d` is one that an update wrote, and what is known of it was recorded."""
    chain.backfill("d")
    chain.rewrite_as_they_were(210)
    chain.append(1)
    chain.backfill("d")
    chain.clean()
    chain.backfill("c")
    chain.backfill("d")


def _merge_in_place(chain: Chain) -> None:
    chain.index()
    chain.upsert(977, 0, 2, all_rows=False)


NEW_FILES: dict[str, Callable[[Chain], None]] = {
    "merged in place": _merge_in_place,
    "filled": lambda chain: None,
    "compacted": lambda chain: chain.compact(),
    "compacted and merged in place": lambda chain: (chain.compact(), _merge_in_place(chain))[-1],
}


@pytest.mark.parametrize("change", NEW_FILES)
@pytest.mark.parametrize("kill", KILLS[:3])
def test_values_that_a_dead_job_stored_outlive_a_new_file_of_their_input(chain, change, kill):
    """In the rows of which that file says that they are as they were."""
    chain.backfill_where("c", 2, 0)
    chain.abandon("d", kill)
    NEW_FILES[change](chain)
    chain.backfill("c")
    known, stale = chain.known("d"), chain.stale("d")
    assert known
    chain.backfill("d")
    assert chain.called == stale - known


@pytest.mark.timeout(7200 if LONG else 300)
def test_histories_of_chains_call_for_changed_rows_alone():
    profile = settings(
        max_examples=1000 if LONG else 7,
        stateful_step_count=12,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.explicit, Phase.generate, *([Phase.shrink] if LONG else [])],
        derandomize=not LONG,
        database=None,
    )
    run_state_machine_as_test(Chain, settings=profile)
