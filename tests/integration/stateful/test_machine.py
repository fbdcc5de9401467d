"""Histories of a table, made up by Hypothesis: after every step the values, and the rows that were evaluated, are those
that a pure-Python oracle names."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import lance
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from leman._format.stored_functions import CheckpointBounds
from leman_coordinator.commits.commit_requests import Status
from leman_core.model import keys
from leman_core.model.job import Attempt
from leman_core.model.plan import BackfillSpec
from leman_core.model.service_errors import ATTEMPT_FENCED, LemanError, NotFound
from tests.integration.stateful import udfs
from tests.integration.stateful.harness import Fate, Frozen, Killed, Made, System, decisions
from tests.integration.stateful.oracle import Asked, Oracle, Where, X, Z
from tests.shares import LONG

ROWS, PER_FRAGMENT = 64, 16
_ROUNDS = 6
_RESTORE = 5  # among what may happen meanwhile
Stored = Callable[[str, pa.RecordBatch], None]
_MEMORY = Path("/dev/shm")  # fsync is not what is tested here

_COLUMNS = [pa.field("x", pa.int64()), pa.field("z", pa.int64())]
#: Without and with a primary key, which Lance knows by a field's metadata and does not enforce.
_SCHEMAS = (
    pa.schema([pa.field("id", pa.int64()), *_COLUMNS]),
    pa.schema([pa.field("id", pa.int64(), False, {"lance-schema:unenforced-primary-key": "true"}), *_COLUMNS]),
)
EVERYTHING = Where()
FILTERS = [
    Where("z >= 5", ("z",), lambda r: r["z"] is not None and r["z"] >= 5),
    Where("z < 3", ("z",), lambda r: r["z"] is not None and r["z"] < 3),
    Where("id < 40", ("id",), lambda r: r["id"] < 40),
    Where("id >= 20 AND z > 1", ("id", "z"), lambda r: r["id"] >= 20 and r["z"] is not None and r["z"] > 1),
    Where("c IS NULL", ("c",), lambda r: r["c"] is None),
    Where("c > 300", ("c",), lambda r: r["c"] is not None and r["c"] > 300),
]
KILLS = ["worker.checkpoint_stored", "worker.file_written", "worker.record_stored", "before_commit", "after_commit"]
numbers = st.integers(0, 10_000)
names = st.sampled_from(["c", "c", "c", "d", "e"])
versions = st.sampled_from([0, 0, 0, 1, 2, 3])
filters = st.sampled_from(FILTERS)
intervals = st.sampled_from([0, 0, 3, 7])
sizes = st.sampled_from([0, 0, 0, 9])


def value(function: str, version: int, id_: int, argument: int | None) -> tuple[int | None, bool]:
    try:
        return udfs.VALUES[function](version, id_, argument), False
    except ValueError:
        return None, True


class Machine(RuleBasedStateMachine):
    """One table and everything that may happen to it."""

    registers: ClassVar[bool] = True
    stable_row_ids: ClassVar[bool] = True
    steps: ClassVar[Counter[str]] = Counter()
    changed: ClassVar[Counter[str]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="leman-machine-", dir=_MEMORY if _MEMORY.is_dir() else None))
        self.system = System(self.place(), register=self.registers)
        self.oracle = Oracle(value)
        self.next_id = 0
        self.keyed = False
        self.frozen = 0
        self.late: list[tuple[object, str, list[Asked]]] = []

    def place(self) -> str:
        """Where its database is."""
        return str(self.folder)

    def teardown(self) -> None:
        try:
            if self.oracle.state.columns:
                self._fill_all()
        finally:
            self.system.close()
            shutil.rmtree(self.folder, ignore_errors=True)

    def _fill_all(self) -> None:
        """In the end everything can be computed, and then nothing is left to do."""
        for name in ("c", "d", "e"):
            if self._computable(name):
                self._backfill(BackfillSpec(self.system.database, "t", name), 0, Where())
                self._compare()
                assert not self.system.plan(BackfillSpec(self.system.database, "t", name)).tasks

    # the table

    def _new_rows(self, count: int, seed: int) -> pa.Table:
        ids = range(self.next_id, self.next_id + count)
        self.next_id += count
        return pa.table(
            {
                "id": pa.array(ids, pa.int64()),
                "x": pa.array([None if (i + seed) % 19 == 0 else (i * 31 + seed) % 50 for i in ids], pa.int64()),
                "z": pa.array([None if (i + seed) % 23 == 0 else (i + seed) % 9 for i in ids], pa.int64()),
            },
            schema=_SCHEMAS[self.keyed],
        )

    def _rows_for_oracle(self, rows: pa.Table) -> dict[int, dict[int, int | None]]:
        return {r["id"]: {0: r["id"], X: r["x"], Z: r["z"]} for r in rows.to_pylist()}

    def _layout(self) -> dict[int, list[int]]:
        return {f: list(ids.values()) for f, ids in self.system.layout().items()}

    def _some(self, number: int, most: int = 6) -> list[int]:
        """Some ids, spread over the table or lying together."""
        ids = sorted(self.oracle.state.rows)
        count = 1 + number % most
        step = 1 if number % 2 else max(1, len(ids) // count)
        start = number % len(ids)
        return sorted({ids[(start + k * step) % len(ids)] for k in range(count)})

    def _x(self) -> str:
        return next(n for n, c in self.oracle.state.columns.items() if c.identity == X)

    def _has(self, name: str) -> bool:
        return name in self.oracle.state.columns

    def _computable(self, name: str) -> bool:
        column = self.oracle.state.columns.get(name)
        if column is None or not column.function:
            return False
        try:
            self.oracle.input_identities(name)
        except KeyError:
            return False
        return True

    def _step(self, name: str, *, changed: bool = True) -> None:
        """A step is over: counts it and compares the whole table."""
        Machine.steps[name] += 1
        Machine.changed[name] += changed
        self._compare()
        self.oracle.remember(self.system.open().version)

    def _compare(self) -> None:
        found, wanted = self.system.rows(), self.oracle.table()
        assert found.keys() == wanted.keys()
        wrong = {i: (found[i], wanted[i]) for i in wanted if found[i] != wanted[i]}
        assert not wrong, wrong

    @initialize(seed=numbers)
    def begin(self, seed: int) -> None:
        self.keyed = bool(seed % 2)
        rows = self._new_rows(ROWS, seed)
        stable = self.stable_row_ids
        self._write(rows, enable_stable_row_ids=stable)
        self.oracle.create(self._rows_for_oracle(rows), self._layout())
        self._add("c", 1)
        assert len(self.oracle.state.fragments) >= 4

    # changes

    def _write(self, rows: pa.Table, **how: object) -> None:
        options = self.system.options
        lance.write_dataset(rows, self.system.uri, max_rows_per_file=PER_FRAGMENT, storage_options=options, **how)

    @rule(seed=numbers, count=st.integers(1, 24))
    def append(self, seed: int, count: int) -> None:
        rows = self._new_rows(count, seed)
        names = {"x": self._x()}
        renamed = rows.rename_columns([names.get(n, n) for n in rows.column_names])
        self._write(renamed, mode="append")
        self.oracle.append(self._rows_for_oracle(rows), self._layout())
        self._step("append")

    @rule(number=numbers)
    @precondition(lambda self: len(self.oracle.state.rows) > 60)
    def delete(self, number: int) -> None:
        ids = self._some(number, 4)
        self.system.open().delete(f"id in ({', '.join(map(str, ids))})")
        self.oracle.delete(ids, self._layout())
        self._step("delete")

    @rule(number=numbers, unrelated=st.booleans())
    def update(self, number: int, unrelated: bool) -> None:
        ids = self._some(number)
        column, identity = ("z", Z) if unrelated else (self._x(), X)
        self.system.open().update({column: str(number % 70)}, where=f"id in ({', '.join(map(str, ids))})")
        self.oracle.move({i: {identity: number % 70} for i in ids}, self._layout())
        self._step("update")

    @rule(number=numbers, seed=numbers, new=st.integers(0, 5))
    def merge_insert(self, number: int, seed: int, new: int) -> None:
        rows = self._new_rows(new, seed)
        ids = self._some(number)
        old = pa.table(
            {
                "id": pa.array(ids, pa.int64()),
                "x": pa.array([seed % 60] * len(ids), pa.int64()),
                "z": pa.array([seed % 9] * len(ids), pa.int64()),
            },
            schema=_SCHEMAS[self.keyed],
        )
        both = pa.concat_tables([old, rows])
        source = both.rename_columns([{"x": self._x()}.get(n, n) for n in both.column_names])
        self.system.open().merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(source)
        self.oracle.move(self._rows_for_oracle(both), self._layout())
        self._step("merge_insert")

    @rule(number=numbers, shift=st.integers(1, 40), column=st.sampled_from(["x", "x", "z", "c"]))
    def rewrite(self, number: int, shift: int, column: str) -> None:
        """Someone writes a column of a fragment again, in place."""
        name = self._x() if column == "x" else column
        if not self._has(name):
            self.append(shift, 3)
            return
        layout = self.system.layout()
        fragment = sorted(layout)[number % len(layout)]
        identity = self.oracle.state.columns[name].identity
        change = lambda i, v: None if i % 10 == 0 else (v or 0) + shift  # noqa: E731
        old = {o: self.oracle.state.rows[i].get(identity) for o, i in layout[fragment].items()}
        ids = layout[fragment]
        self.system.rewrite(name, fragment, lambda o: change(ids[o], old[o]) if o in ids else -7)
        self.oracle.rewrite(fragment, identity, change)
        self._step("rewrite")

    @rule()
    @precondition(lambda self: len(self.oracle.state.fragments) > 4)
    def compact(self) -> None:
        before = self.system.open().version
        self.system.open().optimize.compact_files(target_rows_per_fragment=PER_FRAGMENT)
        self.oracle.compact(self._layout())
        self._step("compact", changed=self.system.open().version != before)

    @rule(column=st.sampled_from(["x", "z", "c", "c"]), kind=st.sampled_from(["BTREE", "BITMAP", "ZONEMAP"]))
    def index(self, column: str, kind: str) -> None:
        """Someone makes an index, perhaps of a computed column: no value is another one for it.

        None on `id`: where the key of a merge has one, Lance writes the merged columns of fragments again in place,
        which the rule `rewrite` is about. An index follows its column over a rename, and Lance gives no other column
        an index of that name.
        """
        name = self._x() if column == "x" else column
        if not self._has(name):
            name = "z"
        identity = self.oracle.state.columns[name].identity
        self.system.open().create_scalar_index(name, kind, name=f"index of {identity}", replace=True)
        self._step("index")

    @rule()
    def optimize_indices(self) -> None:
        before = self.system.open().version
        self.system.open().optimize.optimize_indices()
        self._step("optimize_indices", changed=self.system.open().version != before)

    @rule()
    def compact_indexed(self) -> None:
        """Compaction writes in its transaction what it did to each index."""
        self.index("z", "BTREE")
        self.compact()

    @rule(number=numbers)
    def tag(self, number: int) -> None:
        """A version gets a name, and is not cleaned away from then on."""
        tags = self.system.open().tags
        name = f"tag {number % 3}".replace(" ", "-")
        if name in tags.list():
            tags.delete(name)
        tags.create(name, self.system.open().version)
        self._compare()

    @rule(number=numbers, fresh=st.booleans())
    def branch(self, number: int, fresh: bool) -> None:
        """Someone makes a branch, or continues with one that lags behind, and tags it: main has none of its rows."""
        dataset = self.system.open()
        name = f"branch-{number % 2}"
        made = name in dataset.branches.list()
        if made and fresh:
            dataset.tags.delete(f"of-{name}")
            dataset.branches.delete(name)
        branch = dataset.checkout_version((name, None)) if made and not fresh else dataset.create_branch(name)
        ids = ", ".join(map(str, self._some(number)))
        if number % 3:
            branch.update({"z": "-5"}, where=f"id in ({ids})")
        else:
            branch.delete(f"id in ({ids})")
        if not made or fresh:
            dataset.tags.create(f"of-{name}", (name, None))
        self._compare()

    @rule(compacted=st.booleans(), untold=st.booleans())
    def clean(self, compacted: bool, untold: bool) -> None:
        """Old versions are cleaned away, perhaps at once after a compaction, perhaps with what tells of it."""
        computed = [n for n, c in self.oracle.state.columns.items() if c.function]
        if not all(map(self._computable, computed)):
            self._run_backfill("c", 0)
            return
        if compacted:
            self.compact()
            if untold:
                self.append(1, 1)
        before = len(self.system.open().versions())
        gone = self.system.clean()
        self.oracle.cleaned(gone)
        for name in computed:
            for version in (1, 2, 3):
                function = self.oracle.state.columns[name].function
                spec = BackfillSpec(self.system.database, "t", name, udf_name=function, udf_version=str(version))
                with contextlib.suppress(NotFound):  # no one has asked for that function yet
                    self.oracle.told(name, version, self.system.settled(spec))
        self._step("clean", changed=before > 1)

    @rule(seed=numbers)
    def overwrite(self, seed: int) -> None:
        if seed % 5:  # rarely: it takes everything else away
            self.update(seed, bool(seed % 2))
            return
        rows = self._new_rows(ROWS, seed)
        self._write(rows, mode="overwrite")
        self.oracle.create(self._rows_for_oracle(rows), self._layout())
        self._add("c", 1 + seed % 2)
        self._step("overwrite")

    @rule(number=numbers)
    @precondition(lambda self: len(self.oracle.versions) > 2)
    def restore(self, number: int) -> None:
        versions = sorted(self.oracle.versions)[:-1]
        version = versions[-1 - number % min(len(versions), 5)]
        self.system.open(version).restore()
        self.oracle.restore(version)
        self._step("restore")

    # columns

    def _add_to_table(self, name: str, function: str, version: int, inputs: tuple[str, ...]) -> None:
        self.system.add_column(name, function, version, inputs)

    def _add(self, name: str, version: int) -> None:
        function, inputs = ("g", ("id", "c")) if name == "d" else ("f", ("id", self._x()))
        self._add_to_table(name, function, version, inputs)
        self.oracle.add_column(name, function, version, inputs)

    @rule(name=st.sampled_from(["c", "d", "d", "e"]), version=st.integers(1, 2))
    def add_column(self, name: str, version: int) -> None:
        if self._has(name) or (name == "d" and not self._has("c")):
            self._run_backfill(name, version)
            return
        self._add(name, version)
        self._step("add_column")

    @rule(name=st.sampled_from(["c", "d", "e"]), again=st.booleans())
    def drop_column(self, name: str, again: bool) -> None:
        if not self._has(name):
            self.add_column(name, 1)
            return
        version = self.oracle.state.columns[name].version
        self.system.open().drop_columns([name])
        self.oracle.drop_column(name)
        if again and (name != "d" or self._has("c")):
            self._add(name, version)
        self._step("drop_column")

    @rule(what=st.sampled_from(["x", "output"]), again=st.booleans())
    def rename(self, what: str, again: bool) -> None:
        """An input is renamed to and fro; an output is renamed, and another added under its name."""
        if what == "x":
            old, new = self._x(), "y" if self._x() == "x" else "x"
        else:
            old, new = "c", "e"
        if not self._has(old) or self._has(new):
            self.append(1, 3)
            return
        self.system.open().alter_columns({"path": old, "name": new})
        self.oracle.rename(old, new)
        if what == "output" and again:
            self._add("c", 1)
        self._step("rename")

    # backfills

    @rule(name=names, version=versions)
    def backfill(self, name: str, version: int) -> None:
        self._run_backfill(name, version)

    @rule(name=names, version=versions, where=filters, interval=intervals)
    def backfill_where(self, name: str, version: int, where: Where, interval: int) -> None:
        self._run_backfill(name, version, where, interval)

    @rule(name=names, version=st.integers(1, 3), where=st.one_of(st.just(Where()), filters), task_size=sizes)
    def backfill_new_version(self, name: str, version: int, where: Where, task_size: int) -> None:
        self._run_backfill(name, version, where, 3, task_size)

    @rule(
        name=names,
        version=versions,
        where=st.one_of(st.just(Where()), filters),
        interval=intervals,
        task_size=sizes,
        kill=st.sampled_from(KILLS),
        passes=st.integers(1, 6),
    )
    def backfill_killed(
        self, name: str, version: int, where: Where, interval: int, task_size: int, kill: str, passes: int
    ) -> None:
        self._run_backfill(name, version, where, interval, task_size, Fate(kill, passes))

    @rule(
        name=names,
        version=versions,
        where=st.one_of(st.just(Where()), filters),
        task_size=sizes,
        meanwhile=st.sampled_from(["planned", "staged"]),
        number=numbers,
    )
    def backfill_meanwhile(
        self, name: str, version: int, where: Where, task_size: int, meanwhile: str, number: int
    ) -> None:
        self._run_backfill(name, version, where, 3, task_size, meanwhile=meanwhile, number=number)

    @rule(name=names, interval=intervals, kill=st.sampled_from(["", "", *KILLS]), passes=st.integers(1, 4))
    @precondition(lambda self: self.registers)  # through the services: tests/integration/backfills/test_retry.py
    def retry(self, name: str, interval: int, kill: str, passes: int) -> None:
        """Failed rows are tried again, by the same function: without success."""
        if not self._computable(name):
            self._run_backfill(name, 0)
            return
        spec = BackfillSpec(self.system.database, "t", name, checkpoint=CheckpointBounds(interval), failed_only=True)
        before = self.system.open().version
        fate = Fate(kill, passes)
        evaluated = self._backfill_once(spec, fate)
        self._step("retry", changed=bool(evaluated) or before != self.system.open().version)

    def _backfill_once(self, spec: BackfillSpec, fate: Fate) -> int:
        """An execution of a retry: the rows that fail again are there to be tried again."""
        parts = self.oracle.plan_failed(spec.column)
        made = Made(self.system.plan(spec))
        open_parts = {t.fragment_id: parts[t.fragment_id] for t in made.plan.tasks}
        left = {i for f, p in parts.items() if f not in open_parts for i in p.needed}
        assert not left, f"not planned: {sorted(left)}"
        if not made.plan.tasks:
            return 0
        evaluated = self._compute(spec, made, open_parts, fate)
        if not fate.dead:
            self._commit(spec, made, open_parts, fate)
        return evaluated

    def _run_backfill(
        self,
        name: str,
        version: int,
        where: Where = EVERYTHING,
        interval: int = 0,
        task_size: int = 0,
        fate: Fate | None = None,
        meanwhile: str = "",
        number: int = 0,
        work: Callable[..., int] | None = None,
    ) -> None:
        if not self._computable(name) or not all(self._has(c) for c in where.reads):
            name, where = "c", Where()
            if not self._computable(name):
                if not self._has("c"):
                    self._add("c", 1)
                    self._step("add_column")
                return
        function = self.oracle.state.columns[name].function
        spec = BackfillSpec(
            self.system.database,
            "t",
            name,
            udf_name=function if version else "",
            udf_version=str(version) if version else "",
            where=where.text,
            checkpoint=CheckpointBounds(interval),
            task_size=task_size,
        )
        before = self.system.open().version
        fate = fate or Fate()
        evaluated = (work or self._backfill)(spec, version, where, fate, meanwhile, number)
        what = "kill" if fate.dead else "frozen" if work is not None else "backfill"
        self._step(what, changed=bool(evaluated) or before != self.system.open().version)

    @rule(
        name=names,
        version=versions,
        where=st.one_of(st.just(EVERYTHING), filters),
        interval=intervals,
        task_size=sizes,
        point=st.sampled_from(["store", *KILLS[:3]]),
        passes=st.integers(1, 6),
        number=numbers,
    )
    @precondition(lambda self: self.registers)  # through the services: tests/faults/test_frozen_executor.py
    def backfill_frozen(
        self,
        name: str,
        version: int,
        where: Where,
        interval: int,
        task_size: int,
        point: str,
        passes: int,
        number: int,
    ) -> None:
        """An executor freezes in the middle of a job, a second one takes the job over, and the first one wakes."""
        fate = Fate(point, passes)
        self._run_backfill(name, version, where, interval, task_size, fate, number=number, work=self._backfill_twice)

    def _backfill_twice(self, spec, version, where, fate, _meanwhile, number) -> int:
        """It calls for what it had in hand and nothing else, and installs nothing."""
        parts = self.oracle.plan(spec.column, version, where)
        self.frozen += 1
        job_id = f"frozen-{self.frozen}"
        first = Made(self.system.plan(spec), Attempt(job_id, 1))
        if not first.plan.tasks:
            return 0
        udfs.EVALUATED.clear()
        stored = self._noting(parts, self._planned_layout_at(first.plan.header.read_version), set())
        frozen = Frozen(fate.point, fate.passes)
        frozen.begin(lambda: self.system.compute(spec, first, frozen, stored))
        try:
            seen = len(udfs.EVALUATED)
            self.system.take_over(job_id)
            seen += self._backfill(
                spec, version, where, made=lambda plan: Made(plan, Attempt(job_id, 2), first.reservations)
            )
            if number % 3 and number % 6 != _RESTORE:  # a restore forgets who had the job
                self._meanwhile(number)
            before = self.system.open().version
            udfs.EVALUATED.clear()
        finally:
            frozen.wake()
        works = first.in_flight.works if first.in_flight is not None else ()
        in_flight = sum(rows.rows for work in works for rows in work.ranges)
        assert len(udfs.EVALUATED) <= in_flight, "it continued with what it no longer had"
        if first.staged:
            with pytest.raises(LemanError) as refused:
                self.system.submit(first.request(self.system.uri, sorted(first.staged)))
            assert refused.value.reason == ATTEMPT_FENCED
        assert self.system.open().version == before
        return seen

    def _backfill(self, spec, version, where, fate=None, meanwhile="", number=0, made=Made) -> int:
        """Rounds as a job makes them, until nothing is left or the process dies. Rows evaluated."""
        make = made
        fate = fate or Fate()
        total = 0
        for _ in range(_ROUNDS):
            parts = self.oracle.plan(spec.column, version, where)
            made = make(self.system.plan(spec))
            open_parts = {t.fragment_id: parts[t.fragment_id] for t in made.plan.tasks}
            left = {i for f, p in parts.items() if f not in open_parts for i in p.needed}
            assert not left, f"not planned: {sorted(left)}"
            if not made.plan.tasks:
                return total
            if meanwhile == "planned":
                self._meanwhile(number)
            total += self._compute(spec, made, open_parts, fate)
            if fate.dead:
                return total
            if meanwhile == "staged":
                self._meanwhile(number)
            meanwhile = ""
            self._commit(spec, made, open_parts, fate)
            if fate.dead or not self._computable(spec.column) or not all(self._has(c) for c in where.reads):
                return total
        raise AssertionError("planned again and again")

    def _noting(self, parts: dict[int, Asked], layout: dict[int, dict[int, int]], safe: set[int]) -> Stored:
        """Tells the oracle of what is stored, and adds its rows to those that are safe."""

        def stored(key: str, batch: pa.RecordBatch) -> None:
            parsed = keys.parse_range_key(key)
            if parsed is not None:
                addresses = batch.column("_rowaddr").to_pylist()
                held = layout[parsed.fragment_id]  # live rows: deleted ones are in the checkpoint too
                ids = [held[a & 0xFFFFFFFF] for a in addresses if a & 0xFFFFFFFF in held]
                self.oracle.stored(parts[parsed.fragment_id], key, ids)
                safe.update(ids)
                return
            fragment = keys.parse_record_key(key)[1]
            self.oracle.staged(parts[fragment], key)
            safe.update(parts[fragment].live)

        return stored

    def _compute(self, spec, made: Made, parts: dict[int, Asked], fate: Fate) -> int:
        udfs.EVALUATED.clear()
        layout = self._planned_layout_at(made.plan.header.read_version)
        safe: set[int] = set()
        with contextlib.suppress(Killed):
            self.system.compute(spec, made, fate, self._noting(parts, layout, safe))
        seen = list(udfs.EVALUATED)
        needed = {i for p in parts.values() for i in p.needed}
        optional = {i for p in parts.values() for i in p.optional}
        again = {i for p in parts.values() if self.oracle.may_begin_again(p) for i in p.live}
        once = [i for i in seen if i not in again]
        assert len(once) == len(set(once)), "a row was evaluated twice"
        assert set(seen) <= needed | optional, f"evaluated needlessly: {sorted(set(seen) - needed - optional)}"
        if fate.dead:
            lost = set(seen) - safe
            interval = spec.checkpoint.checkpoint_size or PER_FRAGMENT * 8
            assert len(lost) <= interval, f"{len(lost)} rows lost, the interval is {interval}"
        else:
            assert needed <= set(seen), f"not evaluated: {sorted(needed - set(seen))}"
        return len(seen)

    def _planned_layout_at(self, version: int) -> dict[int, dict[int, int]]:
        table = self.system.open(version).to_table(columns=["id"], with_row_address=True)
        found: dict[int, dict[int, int]] = {}
        for i, address in zip(table["id"].to_pylist(), table["_rowaddr"].to_pylist(), strict=True):
            found.setdefault(address >> 32, {})[address & 0xFFFFFFFF] = i
        return found

    def _commit(self, spec, made: Made, parts: dict[int, Asked], fate: Fate) -> None:
        fragments = sorted(made.staged)
        if fate.point == "before_commit":
            fate.dead = True
            self._keep_late(spec, made, parts, fragments)
            return
        if fate.point == "after_commit":
            fate.dead = True
            half = fragments[: 1 + fate.passes % len(fragments)]
            self._keep_late(spec, made, parts, fragments[len(half) :])
            fragments = half
        request = made.request(self.system.uri, fragments)
        if not self._is_there(spec.column, parts):
            with pytest.raises(LemanError) as refused:
                self.system.submit(request)
            assert refused.value.reason == "COLUMN_NOT_DEFINED"
            return
        result = self.system.submit(request)
        self._commit_parts(spec.column, parts, decisions(result), {f: staged.file for f, staged in made.staged.items()})
        tasks = {t.fragment_id: t for t in made.plan.tasks}
        for fragment, (_, reason) in decisions(result).items():
            if reason.startswith(("FILE_", "ROW", "TYPE_")):
                self.system.forget(tasks[fragment], made.staged[fragment].file)
                self.oracle.forget(parts[fragment])
        if fate.dead:  # the answer was lost: the same request again changes nothing
            self.system.restart_coordinator()
            again = decisions(self.system.submit(request))
            assert again == decisions(result), (again, result)

    def _is_there(self, name: str, parts: dict[int, Asked]) -> bool:
        """Whether the planned column is in the table: a restore may have taken it away."""
        found = self.oracle.state.columns.get(name)
        return found is not None and all(part.fingerprint.column == found.identity for part in parts.values())

    def _commit_parts(
        self, name: str, parts: dict[int, Asked], found: dict[int, tuple[Status, str]], files: dict[int, str]
    ) -> None:
        for fragment, (status, reason) in found.items():
            part = parts[fragment]
            if status is Status.ALREADY_CURRENT:  # a restore brought equal values back
                assert self.oracle.is_current(part), f"fragment {fragment} does not hold these values"
                continue
            allowed = self.oracle.may_commit(name, part)
            if allowed and reason == "TYPE_MISMATCH":  # written under a new name, which a restore took away again
                names = {name, self.oracle.state.columns[name].added_as}
                assert self.system.column_in(files[fragment]) not in names, f"fragment {fragment} was refused"
                continue
            assert allowed or status is Status.REJECTED, f"fragment {fragment} was installed, its base had changed"
            assert not allowed or status is Status.COMMITTED, f"fragment {fragment} was refused: {reason}"
            if status is Status.COMMITTED:
                self.oracle.committed(part, files[fragment])

    def _keep_late(self, spec, made: Made, parts: dict[int, Asked], fragments: list[int]) -> None:
        if fragments:
            self.late.append((made.request(self.system.uri, fragments), spec.column, parts))

    @rule()
    @precondition(lambda self: self.late)
    def late_commit(self) -> None:
        """A request of a job that is dead for long arrives after all."""
        request, name, parts = self.late.pop(0)
        before = self.system.open().version
        allowed = {r.fragment_id for r in request.replacements if self.oracle.may_commit(name, parts[r.fragment_id])}
        try:
            outcomes = self.system.submit(request).outcomes
        except LemanError:
            outcomes = ()  # refused as a whole
        installed = {o.fragment_id for o in outcomes if o.version > before}
        assert installed == allowed, f"installed: {installed}, its base is unchanged: {allowed}"
        files = {r.fragment_id: r.staged.file for r in request.replacements}
        for fragment in installed:
            self.oracle.committed(parts[fragment], files[fragment])
        self._step("late_commit", changed=self.system.open().version != before)

    @rule(name=names, version=versions, where=st.one_of(st.just(EVERYTHING), filters), number=numbers)
    def late_backfill(self, name: str, version: int, where: Where, number: int) -> None:
        """A job dies before it commits, the table changes, then its request arrives."""
        self._run_backfill(name, version, where, fate=Fate("before_commit"))
        if number % 3:
            self._meanwhile(number // 3)
        if self.late:
            self.late_commit()

    @rule(number=numbers)
    def damage(self, number: int) -> None:
        """A checkpoint goes bad on the disk."""
        key = self.system.damage(number)
        if key is None:
            self._run_backfill("c", 1 + number % 3, FILTERS[number % 4], 3, fate=Fate("worker.file_written", 2))
            return
        parsed = keys.parse_range_key(key)
        assert parsed is not None
        self.oracle.damaged(key, parsed.fragment_id)
        self._step("damage")

    def _meanwhile(self, number: int) -> None:
        """Something happens to the table while a job is at work."""
        what = [self.append, self.update, self.merge_insert, self.delete, self.rewrite, self.restore][number % 6]
        if what == self.append:
            self.append(number, 3)
        elif what == self.update:
            self.update(number, bool(number % 2))
        elif what == self.merge_insert:
            self.merge_insert(number, number // 2, 2)
        elif what == self.delete and len(self.oracle.state.rows) > 60:
            self.delete(number)
        elif what == self.restore and len(self.oracle.versions) > 2:
            self.restore(number)
        else:
            self.rewrite(number, 3, "x")


def run(machine: type[Machine], examples: int, steps: int) -> float:
    """Runs histories; the share of steps that changed something."""
    Machine.steps.clear()
    Machine.changed.clear()
    profile = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.explicit, Phase.generate, *([Phase.shrink] if LONG else [])],  # it takes minutes
        derandomize=not LONG,
        database=None,
    )
    run_state_machine_as_test(machine, settings=profile)
    total = sum(Machine.steps.values())
    share = sum(Machine.changed.values()) / total
    print(f"\n{total} steps, {share:.0%} changed something: {dict(Machine.changed)} of {dict(Machine.steps)}")  # noqa: T201
    return share


@pytest.mark.timeout(7200 if LONG else 300)
def test_histories_agree_with_the_oracle():
    assert run(Machine, 3000 if LONG else 12, 12) >= 0.5
