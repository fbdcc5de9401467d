"""Random histories of a source with a computed column that views filter by, or take. A refresh never stores a value of
it that is not current, except with ON_STALE_INPUT_WARN."""

from __future__ import annotations

import tempfile

import lance
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from leman._format.stored_functions import UdfDefinition, UdfKind
from leman._format.view_definitions import ViewColumn, ViewQuery
from leman_coordinator.lance_io import column_definitions
from leman_coordinator.lance_io.table_handle import TableHandle
from leman_core.functions.column_checks import NewColumn
from leman_core.model.job import JobState
from leman_core.model.plan import OnStaleInput
from leman_core.model.service_errors import FailedPrecondition
from leman_core.model.view import RefreshMode
from leman_core.storage.lance_tables import LanceTables
from leman_planner.catalog.table_catalog import Catalog
from tests.integration.views.histories.harness import System, rows_of

ROWS, PER_FRAGMENT = 20, 5
FACTORS = (2, 3, 5)

#: Its name, its query, and what it has of a row whose column `c` has this value.
VIEWS = {
    "filtered": ({"id": "`id`"}, "c >= 20", lambda x, c: None if c is None or c < 20 else {"id": x}),
    "selected": ({"id": "`id`", "c": "`c`"}, "id < 12", lambda x, c: {"id": x, "c": c} if x < 12 else None),
    "expressed": ({"e": "id + c"}, "", lambda x, c: {"e": None if c is None else x + c}),
}


class World:
    """`t`: id, x and `c`, which is x times the factor of the function that is bound to it."""

    def __init__(self, folder: str, system: System) -> None:
        self.database, self.uri, self.system = folder, f"{folder}/t.lance", system
        self.ids = 0
        #: id → x
        self.rows: dict[int, int] = {}
        #: id → (value of `c`, the x and the factor that it was computed from); missing: not computed.
        self.stored: dict[int, tuple[int, int, int]] = {}
        lance.write_dataset(self._new(ROWS), self.uri, max_rows_per_file=PER_FRAGMENT, enable_stable_row_ids=True)
        self.factor = 0
        system.register(folder)
        self.bind(0)
        for name, (columns, where, _) in VIEWS.items():
            made = tuple(ViewColumn(n, e, n if e == f"`{n}`" else "") for n, e in columns.items())
            system.create(folder, name, ViewQuery(folder, "t", made, (), where))

    def _new(self, count: int) -> pa.Table:
        ids = list(range(self.ids, self.ids + count))
        self.ids += count
        self.rows |= {i: i for i in ids}
        return pa.table({"id": pa.array(ids, pa.int64()), "x": pa.array(ids, pa.int64())})

    def _some(self, number: int) -> list[int]:
        found = sorted(self.rows)
        return sorted({found[(number * 5 + i * 7) % len(found)] for i in range(3)}) if found else [-1]

    # what may happen

    def append(self, number: int) -> None:
        table = self._new(2 + number % 3)
        lance.write_dataset(table, self.uri, mode="append")

    def delete(self, number: int) -> None:
        ids = self._some(number)
        lance.dataset(self.uri).delete(f"id IN ({', '.join(map(str, ids))})")
        for i in ids:
            self.rows.pop(i, None)

    def update(self, number: int) -> None:
        ids = self._some(number)
        lance.dataset(self.uri).update({"x": "x + 100"}, where=f"id IN ({', '.join(map(str, ids))})")
        for i in ids:
            if i in self.rows:
                self.rows[i] += 100

    def compact(self, number: int) -> None:
        lance.dataset(self.uri).optimize.compact_files(target_rows_per_fragment=8 + number % 9)

    def bind(self, number: int) -> None:
        """Give the column another function, or its first one."""
        factor = FACTORS[number % len(FACTORS)]
        if factor == self.factor:
            return
        first, self.factor = not self.factor, factor
        udf = UdfDefinition("times", str(factor), UdfKind.SQL, ("x",), pa.int64(), sql_expression=f"x * {factor}")
        catalog = Catalog(LanceTables())
        self.system.put(self.database, udf)
        asked = [NewColumn("c", "times", str(factor), ("x",))]
        handle = TableHandle(self.uri)
        if first:
            schema = catalog.addition(self.database, "t", asked, "").schema
            column_definitions.add_null_columns(handle, handle.latest(), schema)
        else:
            schema = catalog.alteration(self.database, "t", asked, "").schema
            column_definitions.bind_columns(handle, handle.latest(), schema)

    def backfill(self, _number: int = 0) -> None:
        self.system.backfill(self.database, "t", "c")
        self.see_computed()

    # what must hold

    def see_computed(self) -> None:
        self.stored = {i: (x * self.factor, x, self.factor) for i, x in self.rows.items()}

    def there(self) -> dict[int, int | None]:
        """The values of `c` as they are, right or not."""
        found = lance.dataset(self.uri).to_table(columns=["id", "c"]).to_pydict()
        return dict(zip(found["id"], found["c"], strict=True))

    def stale(self) -> set[int]:
        """Rows whose value was not computed of what they are now, by the function that is bound now."""
        current = {i for i, (_, x, factor) in self.stored.items() if (x, factor) == (self.rows.get(i), self.factor)}
        return set(self.rows) - current

    def refresh(self, name: str, on_stale_input: OnStaleInput) -> None:
        columns, where, expected = VIEWS[name]
        stale = self.stale()
        if "c" not in where:
            stale = {i for i in stale if expected(i, 0) is not None}
        if stale and on_stale_input is OnStaleInput.ERROR:
            with pytest.raises(FailedPrecondition) as caught:
                self.system.refresh(self.database, name)
            assert (caught.value.reason, caught.value.facts["inputs"]) == ("INPUT_COLUMN_STALE", "c")
            return
        job = self.system.refresh(self.database, name, on_stale_input=on_stale_input)
        assert job.state is JobState.DONE
        done = job.refresh_result
        changed = done.rows_added + done.rows_recomputed + done.rows_evicted
        assert not changed or done.mode is not RefreshMode.NO_OP, "it says that it did something"
        if stale and on_stale_input is OnStaleInput.FIRST:
            self.see_computed()
        values = self.there()
        if on_stale_input is not OnStaleInput.WARN:
            values = {i: x * self.factor for i, x in self.rows.items()}
        rows = [row for i in self.rows if (row := expected(i, values[i])) is not None]
        key = next(iter(columns))
        _, found = rows_of(f"{self.database}/{name}.lance")
        assert sorted(found, key=lambda row: str(row[key])) == sorted(rows, key=lambda row: str(row[key]))


STEPS = {
    step.__name__: step
    for step in (World.append, World.delete, World.update, World.compact, World.bind, World.backfill)
}


@settings(
    max_examples=6,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 9)),
            st.tuples(st.sampled_from(sorted(VIEWS)), st.sampled_from(list(OnStaleInput))),
        ),
        min_size=4,
        max_size=10,
    )
)
def test_a_refresh_stores_no_value_that_is_not_current_unless_it_is_told_to(views_system, quick_folder, steps):
    with tempfile.TemporaryDirectory(dir=quick_folder) as folder:
        world = World(folder, views_system)
        for name, argument in steps:
            if name in STEPS:
                STEPS[name](world, argument)
            else:
                world.refresh(name, argument)
        for name in VIEWS:
            world.refresh(name, OnStaleInput.ERROR)
            world.refresh(name, OnStaleInput.FIRST)
            world.refresh(name, OnStaleInput.ERROR)
