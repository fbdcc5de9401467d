"""Histories of a column that keeps values of earlier versions: the rows that each job evaluates, the states that are
told, and the values, against a model that knows of every row which version computed it."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from leman._format.stored_functions import CheckpointBounds, UdfDefinition, UdfKind
from leman_coordinator.commits.commit_requests import BindColumnsRequest
from leman_core.functions.column_checks import NewColumn
from leman_core.model.plan import BackfillSpec
from leman_core.storage.lance_tables import LanceTables
from leman_core.storage.udf_registry import UdfRegistry
from leman_planner.catalog.table_catalog import Catalog
from leman_planner.planner_service import StatesReader, ValueState
from leman_planner.planning.plan_maker import PlanMaker
from tests.integration.stateful import udfs
from tests.integration.stateful.harness import SKIP, Fate, Killed, Made, System, decisions
from tests.integration.stateful.test_machine import _MEMORY, KILLS, LONG

VERSIONS = 6
ids = st.integers(0, 10_000)


class Kept(RuleBasedStateMachine):
    """`rows`: id → (version that was asked, value, whether it failed), or None where no one asked."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="leman-kept-", dir=_MEMORY if _MEMORY.is_dir() else None))
        self.system = System(str(self.folder), register=False)
        registry = UdfRegistry(self.system.database)
        for version in range(1, VERSIONS + 1):
            entrypoint = f"{udfs.__name__}:f{version}"
            registry.put(
                UdfDefinition(
                    "f", str(version), UdfKind.SCALAR, ("id", "x"), pa.int64(), entrypoint=entrypoint, error_policy=SKIP
                )
            )
        self.version = 1
        self.rows: dict[int, tuple[int, int | None, bool] | None] = {}
        self.evaluated: set[tuple[int, int]] = set()
        #: The earliest version whose values are kept.
        self.oldest = 1
        self.numbers = itertools.count(1)

    def teardown(self) -> None:
        self.system.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    @initialize()
    def begin(self) -> None:
        lance.write_dataset(self._new(40), self.system.uri, max_rows_per_file=10, enable_stable_row_ids=True)
        self.system.add_column("c", "f", 1, ("id", "x"))

    def _new(self, count: int) -> pa.Table:
        first = max(self.rows, default=-1) + 1
        new = range(first, first + count)
        self.rows |= dict.fromkeys(new)
        return pa.table({"id": pa.array(new, pa.int64()), "x": pa.array([i % 50 for i in new], pa.int64())})

    # the table

    @rule(count=st.integers(1, 12))
    def append(self, count: int) -> None:
        lance.write_dataset(self._new(count), self.system.uri, mode="append", max_rows_per_file=10)

    @rule(number=ids)
    @precondition(lambda self: len(self.rows) > 20)
    def delete(self, number: int) -> None:
        """A row, a failed one if there is one."""
        failed = [i for i, row in self.rows.items() if row is not None and row[2]]
        chosen = (failed or sorted(self.rows))[number % len(failed or self.rows)]
        self.system.open().delete(f"id = {chosen}")
        del self.rows[chosen]
        self._check()

    @rule()
    def compact(self) -> None:
        self.system.open().optimize.compact_files(target_rows_per_fragment=20, materialize_deletions_threshold=0.0)
        self._check()

    @rule()
    def compact_and_clean(self) -> None:
        """The files whose rows were moved are gone before anybody looked at what had become of them."""
        self.system.plan(BackfillSpec(self.system.database, "t", "c"))  # earlier compactions are recorded
        version = self.system.open().version
        self.compact()
        if self.system.open().version != version:
            self.system.clean()
        self._check()

    # the column

    @rule()
    @precondition(lambda self: self.version < VERSIONS)
    def next_version(self) -> None:
        """The column gets another function and keeps its values."""
        self.version += 1
        self._bind(keep=True)
        self._check()

    @rule()
    def make_stale(self) -> None:
        """The column gets its own function again: what it kept is stale."""
        self._bind(keep=False)
        self.oldest = self.version
        self.rows = {i: row if row is not None and row[0] == self.version else None for i, row in self.rows.items()}
        self._check()

    def _bind(self, *, keep: bool) -> None:
        column = NewColumn("c", "f", str(self.version), keep_values=keep)
        wanted = Catalog(LanceTables()).alteration(self.system.database, "t", [column], "")
        request = BindColumnsRequest(
            uri=wanted.uri, incarnation="", request_id=f"b{next(self.numbers)}", schema=wanted.schema
        )
        self.system._runner.run(self.system._queues.submit(request))

    # jobs

    @rule(interval=st.sampled_from([0, 3]), kill=st.sampled_from(["", "", *KILLS[:3]]))
    def backfill(self, interval: int, kill: str) -> None:
        self._run(lambda _, row: row is None or (row[2] and row[0] != self.version), interval, kill)

    @rule(kill=st.sampled_from(KILLS[:3]), passes=st.integers(1, 3))
    def killed_backfill(self, kill: str, passes: int) -> None:
        """What it stored is found by the next job, which may be one of another version."""
        udfs.EVALUATED.clear()
        spec = BackfillSpec(self.system.database, "t", "c", checkpoint=CheckpointBounds(3))
        made, fate = Made(self.system.plan(spec)), Fate(kill, passes)
        with contextlib.suppress(Killed):
            self.system.compute(spec, made, fate, lambda _key, _batch: None)
        self.evaluated |= {(i, self.version) for i in udfs.EVALUATED}

    @rule(low=st.integers(0, 40), interval=st.sampled_from([0, 3]))
    def backfill_where(self, low: int, interval: int) -> None:
        self._run(
            lambda i, row: i >= low and (row is None or (row[2] and row[0] != self.version)),
            interval,
            where=f"id >= {low}",
        )

    @rule(interval=st.sampled_from([0, 3]), kill=st.sampled_from(["", "", *KILLS[:3]]))
    def retry(self, interval: int, kill: str) -> None:
        self._run(lambda _, row: row is not None and row[2], interval, kill, failed_only=True)

    @rule(low=st.integers(0, 40))
    def retry_where(self, low: int) -> None:
        self._run(lambda i, row: i >= low and row is not None and row[2], 3, where=f"id >= {low}", failed_only=True)

    def _run(
        self,
        asked: Callable[[int, tuple[int, int | None, bool] | None], bool],
        interval: int,
        kill: str = "",
        *,
        where: str = "",
        failed_only: bool = False,
    ) -> None:
        """A job; where it is killed, another one that ends it."""
        spec = BackfillSpec(
            self.system.database,
            "t",
            "c",
            where=where,
            checkpoint=CheckpointBounds(interval),
            failed_only=failed_only,
        )
        expected = {i for i, row in self.rows.items() if asked(i, row)}
        udfs.EVALUATED.clear()
        fate = Fate(kill)
        self._execute(spec, fate)
        if fate.dead:
            self._execute(spec, Fate())
        else:
            assert len(udfs.EVALUATED) == len(set(udfs.EVALUATED)), "a row was evaluated twice"
        seen = set(udfs.EVALUATED)
        assert seen <= expected, f"evaluated needlessly: {seen - expected}"
        # what was evaluated before may be in a checkpoint, but a row that failed is tried again
        before = set() if failed_only else {i for i in expected if self._stored(i)}
        assert expected - seen <= before, f"not evaluated: {expected - seen - before}"
        self.evaluated |= {(i, self.version) for i in seen}
        found = {i: row["c"] for i, row in self.system.rows().items()}
        for i in expected:
            stored = [] if i in seen else [v for v in self._stored(i) if self._value(i, v)[0] == found[i]]
            version = max(stored, default=self.version)
            self.rows[i] = (version, *self._value(i, version))
        self._check()

    def _stored(self, i: int) -> list[int]:
        """Versions of which a value of a row may be stored that counts."""
        earlier = range(self.oldest, self.version)
        stored = [v for v in earlier if (i, v) in self.evaluated and not self._value(i, v)[1]]
        return stored + [self.version] * ((i, self.version) in self.evaluated)

    def _execute(self, spec: BackfillSpec, fate: Fate) -> None:
        made = Made(self.system.plan(spec))
        try:
            self.system.compute(spec, made, fate, lambda _key, _batch: None)
        except Killed:
            return
        if made.staged:
            found = decisions(self.system.submit(made.request(self.system.uri, sorted(made.staged))))
            assert all(not reason for _, reason in found.values()), found

    def _value(self, i: int, version: int) -> tuple[int | None, bool]:
        try:
            return udfs.f_value(version, i, i % 50), False
        except ValueError:
            return None, True

    def _check(self) -> None:
        """Values, and states row by row."""
        found = {i: row["c"] for i, row in self.system.rows().items()}
        assert found.keys() == self.rows.keys()
        wrong = {i: (found[i], row) for i, row in self.rows.items() if row is not None and found[i] != row[1]}
        assert not wrong, wrong
        reader = StatesReader(PlanMaker(LanceTables()))
        at = {(f << 32) + o: i for f, offsets in self.system.layout().items() for o, i in offsets.items()}
        for state, holds in {
            ValueState.FAILED: lambda row: row is not None and row[2],
            ValueState.NOT_COMPUTED: lambda row: row is None,
            ValueState.NULL: lambda row: row is not None and not row[2] and row[1] is None,
        }.items():
            told = reader.read(self.system.database, "t", "c", state)
            assert {at[a] for a in told.addresses} == {i for i, row in self.rows.items() if holds(row)}, state
        kept = {int(k.function.version): k.rows for k in told.kept}
        held = [row[0] for row in self.rows.values() if row is not None and not row[2] and row[0] != self.version]
        assert kept == {v: held.count(v) for v in set(held)}


@pytest.mark.timeout(3600 if LONG else 300)
def test_histories_of_kept_values_agree_with_the_model():
    profile = settings(
        max_examples=1000 if LONG else 10,
        stateful_step_count=12,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.explicit, Phase.generate, Phase.shrink],
        derandomize=not LONG,
        database=None,
    )
    run_state_machine_as_test(Kept, settings=profile)
