"""Views over a chain of computed columns: a refresh calls each function for rows whose input changed, and for no
others, whatever files of the columns were written meanwhile."""

from __future__ import annotations

import tempfile
from datetime import timedelta

import lance
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from leman._format.stored_functions import UdfDefinition, UdfKind
from leman._format.view_definitions import ViewColumn, ViewFunction, ViewQuery
from leman_coordinator.lance_io import column_definitions
from leman_coordinator.lance_io.table_handle import TableHandle
from leman_core.functions.column_checks import NewColumn
from leman_core.model.job import JobState
from leman_core.model.plan import OnStaleInput
from leman_core.storage.lance_tables import LanceTables
from leman_planner.catalog.table_catalog import Catalog
from tests.integration.views.histories import functions
from tests.integration.views.histories.test_failed_rows import SKIP
from tests.shares import LONG

ROWS, PER_FRAGMENT = 40, 20


class Chain:
    """`t`: id, a, b (a // 10) and c (b / 10). `v`: id, c, `h` of id and c, and `k` of id and b."""

    def __init__(self, system, folder) -> None:
        self.system, self.database = system, str(folder)
        self.uri, self.view = f"{self.database}/t.lance", f"{self.database}/v.lance"
        self.next_id = 0
        lance.write_dataset(self.new(ROWS), self.uri, max_rows_per_file=PER_FRAGMENT, enable_stable_row_ids=True)
        of = functions.__name__
        for udf in (
            UdfDefinition("b", "1", UdfKind.SCALAR, ("a",), pa.int64(), entrypoint=f"{of}:tenth", error_policy=SKIP),
            UdfDefinition("c", "1", UdfKind.SQL, ("b",), pa.int64(), sql_expression="b / 10"),
            UdfDefinition("h", "1", UdfKind.SCALAR, ("id", "c"), pa.int64(), entrypoint=f"{of}:negative"),
            UdfDefinition("k", "1", UdfKind.SCALAR, ("id", "b"), pa.int64(), entrypoint=f"{of}:squared"),
        ):
            system.put(self.database, udf)
        self.add("b", "a")
        self.add("c", "b")
        shown = tuple(ViewColumn(name, f"`{name}`", name) for name in ("id", "c"))
        made = (ViewFunction("h", "h", "1", ("id", "c")), ViewFunction("k", "k", "1", ("id", "b")))
        system.create(self.database, "v", ViewQuery(self.database, "t", shown, made))
        #: By id the values of `b` and `c` that the view knows.
        self.seen: dict[int, tuple[int | None, int | None]] = {}
        #: All that it ever knew: an earlier version of it has the functions' values.
        self.past: list[dict[int, tuple[int | None, int | None]]] = []

    def add(self, name, read) -> None:
        asked = [NewColumn(name, name, "1", (read,))]
        schema = Catalog(LanceTables()).addition(self.database, "t", asked, "").schema
        handle = TableHandle(self.uri)
        column_definitions.add_null_columns(handle, handle.latest(), schema)

    def new(self, count) -> pa.Table:
        ids = range(self.next_id, self.next_id + count)
        self.next_id += count
        return self.rows(ids, [i * 30 for i in ids])

    def rows(self, ids, a) -> pa.Table:
        return pa.table({"id": pa.array(ids, pa.int64()), "a": pa.array(a, pa.int64())})

    @property
    def source(self) -> lance.LanceDataset:
        return lance.dataset(self.uri)

    # what may happen

    def append(self, number=0) -> None:
        lance.write_dataset(self.new(3 + number % 4), self.uri, mode="append")

    def update(self, number=0) -> None:
        self.source.update({"a": "a + 1000"}, where=f"id % 7 = {number % 7}")

    def update_a_little(self, number=0) -> None:
        """The rows get another `b`, and few of them another `c`."""
        self.source.update({"a": "a + 20"}, where=f"id % 3 = {number % 3}")

    def rewrite_as_they_were(self, number=0) -> None:
        self.source.update({"a": "a"}, where=f"id % 5 = {number % 5}")

    def delete(self, number=0) -> None:
        self.source.delete(f"id % 11 = {number % 11}")

    def compact(self, number=0) -> None:
        self.source.optimize.compact_files(
            target_rows_per_fragment=30 + number % 2 * 30, materialize_deletions_threshold=0.0
        )

    def merge_in_place(self, number=0) -> None:
        """With an index on the key rows stay where they are, and their fragment gets another file."""
        if not self.source.describe_indices():
            self.source.create_scalar_index("id", "BTREE")
        there = self.source.to_table(columns=["id", "a"]).to_pylist()[number % 5 :: 9]
        changed = self.rows([r["id"] for r in there], [r["a"] + r["id"] % 4 * 20 for r in there])
        self.source.merge_insert("id").when_matched_update_all().execute(changed)

    def backfill_some(self, number=0) -> None:
        for column in ("b", "c"):
            self.system.backfill(self.database, "t", column, where=f"id < {number % ROWS}", **WARN)

    def fail_and_retry(self, number=0) -> None:
        """`b` fails for some rows at first, so that `c` is NULL there until they are tried again."""
        self.update(number)
        found = self.source.to_table(columns=["a"], filter=f"id % 7 = {number % 7}").to_pydict()["a"]
        functions.BROKEN.update(found[::2])
        try:
            self.backfill()
            self.refresh()
        finally:
            functions.BROKEN.clear()
        self.system.backfill(self.database, "t", "b", failed_only=True)

    def backfill(self, _number=0) -> None:
        for column in ("b", "c"):
            self.system.backfill(self.database, "t", column, **WARN)

    # what must hold

    def now(self) -> dict[int, tuple[int | None, int | None]]:
        found = self.source.to_table(columns=["id", "b", "c"]).to_pylist()
        return {row["id"]: (row["b"], row["c"]) for row in found}

    def changed(self, *at) -> list[int]:
        """The ids of rows of which the view does not know these values."""
        return sorted(
            i for i, row in self.now().items() if i not in self.seen or any(self.seen[i][n] != row[n] for n in at)
        )

    def refresh(self, _number=0):
        """The result of a refresh, which has to call each function for all rows whose input changed, and no others.

        It may have the value of an input that the view had in an earlier version."""
        functions.EVALUATED.clear()
        functions.SQUARED.clear()
        changed = {"h": self.changed(1), "k": self.changed(0)}
        job = self.system.refresh(self.database, "v", **WARN)
        assert job.state is JobState.DONE, job.error
        self.seen = self.now()
        view = lance.dataset(self.view).to_table(columns=["id", "c", "h", "k"]).to_pylist()
        assert {row["id"]: (row["c"], row["h"], row["k"]) for row in view} == {
            i: (c, None if c is None else -c, None if b is None else b * b) for i, (b, c) in self.seen.items()
        }
        for name, at, called in (("h", 1, functions.EVALUATED), ("k", 0, functions.SQUARED)):
            known = {
                i for past in self.past for i, row in past.items() if i in self.seen and row[at] == self.seen[i][at]
            }
            assert sorted(called) == sorted(set(called)), name
            assert set(changed[name]) - known <= set(called) <= set(changed[name]), name
        self.past.append(self.seen)
        return job.refresh_result

    def clean(self) -> None:
        self.source.cleanup_old_versions(timedelta(0), retain_versions=1, delete_unverified=True)


WARN = {"on_stale_input": OnStaleInput.WARN}


@pytest.fixture
def chain(views_system, quick_folder) -> Chain:
    made = Chain(views_system, quick_folder / "db")
    made.backfill()
    made.refresh()
    return made


def written(chain) -> int:
    """How many rows that the view has are to be written again."""
    return len([i for i in chain.changed(0, 1) if i in chain.seen])


#: By what happened to the source: whether old versions are cleaned away before the refresh.
IN_FILES = {
    "appended and compacted": (["append", "compact", "backfill"], False),
    "updated and compacted": (["update", "compact", "backfill"], False),
    "updated, compacted, updated and compacted": (["update", "compact", "backfill", "update", "compact"], False),
    "merged in place": (["merge_in_place", "backfill"], False),
    "merged in place, and cleaned": (["merge_in_place", "backfill"], True),
    "merged in place and compacted": (["merge_in_place", "backfill", "compact"], False),
    "compacted and merged in place": (["update", "compact", "backfill", "merge_in_place", "backfill"], False),
}


@pytest.mark.parametrize("name", IN_FILES)
def test_files_tell_which_rows_of_a_computed_column_changed(chain, name):
    """No row of which they tell is written again."""
    steps, cleaned = IN_FILES[name]
    for number, step in enumerate(steps):
        getattr(chain, step)(number)
    chain.backfill()
    changed = written(chain)
    if cleaned:
        chain.clean()
    assert chain.refresh().rows_recomputed == changed


def test_rows_that_a_filter_left_out_are_all_that_a_later_backfill_changes(views_system, quick_folder):
    chain = Chain(views_system, quick_folder / "db")
    chain.backfill_some(25)
    chain.refresh()
    chain.backfill()
    assert chain.refresh().rows_recomputed == ROWS - 25


def test_rows_that_were_tried_again_are_all_that_change(chain):
    chain.fail_and_retry(1)
    chain.backfill()
    changed = written(chain)
    assert chain.refresh().rows_recomputed == changed > 0


@pytest.mark.parametrize("step", ["update_a_little", "rewrite_as_they_were"])
def test_rows_that_were_written_once_more_cost_no_call_where_the_inputs_are_the_same(chain, step):
    getattr(chain, step)(1)
    chain.backfill()
    assert chain.refresh().rows_recomputed > len(functions.EVALUATED)


def test_what_is_the_same_for_one_function_need_not_be_so_for_another(chain):
    """Both read a column of the same fragments, and the files of these differ in other rows."""
    chain.merge_in_place(1)
    chain.backfill()
    assert chain.changed(0) != chain.changed(1)
    chain.refresh()


STEPS = [
    *("append", "update", "update_a_little", "rewrite_as_they_were", "delete", "compact", "merge_in_place"),
    *("backfill_some", "fail_and_retry", "backfill", "backfill", "refresh", "refresh"),
]


@settings(
    max_examples=300 if LONG else 5,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate, *([Phase.shrink] if LONG else [])],
    derandomize=not LONG,
    database=None,
)
@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 1000)), min_size=6, max_size=14))
def test_histories_of_chains_cost_a_view_the_calls_of_changed_rows(views_system, quick_folder, steps):
    with tempfile.TemporaryDirectory(dir=quick_folder) as folder:
        chain = Chain(views_system, folder)
        for name, number in steps:
            getattr(chain, name)(number)
        chain.refresh()
        chain.backfill()
        chain.refresh()
