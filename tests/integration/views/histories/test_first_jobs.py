"""A first job plans once, no matter who made its table: its plan continues with the incarnation that the coordinator
gives."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from leman._format.stored_functions import UdfDefinition, UdfKind
from leman_coordinator.commits.commit_requests import BeginAttemptRequest
from leman_coordinator.commits.group_commit import begin_attempt
from leman_coordinator.lance_io import column_definitions
from leman_coordinator.lance_io.table_handle import TableHandle
from leman_core.functions.column_checks import NewColumn
from leman_core.model.job import JobState
from leman_core.model.plan import BackfillSpec, Plan
from leman_core.model.service_errors import Aborted
from leman_core.model.view import RefreshPlan, RefreshSpec
from leman_core.storage.lance_tables import INCARNATION_KEY, LanceTables, incarnation_at
from leman_planner.catalog.table_catalog import Catalog
from tests.integration.views.histories.harness import Planner, System, rows_of
from tests.integration.views.histories.shapes import SHAPES
from tests.integration.views.histories.world import World

SQL = SHAPES[0]


def rows(first: int) -> pa.Table:
    return pa.table({"x": pa.array(range(first, first + 40), pa.int64())})


def make_table(system: System, folder: Path, first: int = 0) -> str:
    """A table that Lance made, with a column `y` that Leman added."""
    uri, database = f"{folder}/t.lance", str(folder)
    lance.write_dataset(rows(first), uri, max_rows_per_file=20, enable_stable_row_ids=True)
    system.put(database, UdfDefinition("twice", "1", UdfKind.SQL, ("x",), pa.int64(), sql_expression="x * 2"))
    schema = Catalog(LanceTables()).addition(database, "t", [NewColumn("y", "twice", "1", ("x",))], "").schema
    handle = TableHandle(uri)
    column_definitions.add_null_columns(handle, handle.latest(), schema)
    return uri


class Asked(list[BackfillSpec | RefreshSpec]):
    """What the planner was asked; `after_first` runs when it has answered the first call."""

    after_first: Callable[[], None] | None = None

    def note(self, spec: BackfillSpec | RefreshSpec) -> None:
        self.append(spec)
        if len(self) == 1 and self.after_first is not None:
            self.after_first()


def forget_incarnation(uri: str) -> None:
    lance.dataset(uri).delete_config_keys([INCARNATION_KEY])


def copy_with_lance(uri: str) -> None:
    """A copy of the table takes its place: it has the computed column, and no incarnation."""
    copied = lance.dataset(uri).to_table()
    shutil.rmtree(uri)
    lance.write_dataset(copied, uri, max_rows_per_file=20, enable_stable_row_ids=True)
    assert incarnation_at(uri) == ""


@pytest.fixture
def folder(quick_folder):
    made = quick_folder / "db"
    made.mkdir()
    return made


@pytest.fixture
def plans(monkeypatch):
    """The calls of the planner."""
    asked = Asked()
    real_plan, real_refresh = Planner.create_plan, Planner.plan_refresh

    async def create_plan(self: Planner, spec: BackfillSpec) -> Plan:
        plan = await real_plan(self, spec)
        asked.note(spec)
        return plan

    async def plan_refresh(self: Planner, spec: RefreshSpec) -> RefreshPlan:
        plan = await real_refresh(self, spec)
        asked.note(spec)
        return plan

    monkeypatch.setattr(Planner, "create_plan", create_plan)
    monkeypatch.setattr(Planner, "plan_refresh", plan_refresh)
    return asked


def run_backfill(system: System, folder: Path) -> None:
    job = system.backfill(str(folder), "t", "y")
    assert job.state is JobState.DONE, job.error
    found = lance.dataset(f"{folder}/t.lance").to_table()
    assert found["y"].to_pylist() == [2 * x for x in found["x"].to_pylist()]
    assert job.incarnation == incarnation_at(f"{folder}/t.lance") != ""


MAKERS = pytest.mark.parametrize(
    "forget", [lambda _: None, copy_with_lance, forget_incarnation], ids=["Leman", "copied by Lance", "Lance"]
)


@MAKERS
def test_a_first_backfill_is_planned_once(views_system, folder, plans, forget: Callable[[str], None]):
    forget(make_table(views_system, folder))
    run_backfill(views_system, folder)
    assert len(plans) == 1


def test_a_table_that_is_replaced_before_it_has_an_incarnation_is_planned_again(views_system, folder, plans):
    forget_incarnation(uri := make_table(views_system, folder))

    def replace() -> None:
        shutil.rmtree(uri)
        forget_incarnation(make_table(views_system, folder, first=1000))

    plans.after_first = replace
    run_backfill(views_system, folder)
    assert len(plans) == 2
    assert lance.dataset(uri).to_table()["x"].to_pylist()[0] == 1000


@pytest.mark.parametrize("made_by_leman", [True, False], ids=["Leman", "Lance"])
def test_a_first_refresh_is_planned_once(views_system, quick_folder, plans, made_by_leman):
    world = World(views_system, quick_folder / "db", [SQL])
    if not made_by_leman:
        forget_incarnation(world.uri(SQL))
    job = world.system.refresh(world.database, SQL.name)
    assert job.state is JobState.DONE, job.error
    assert job.incarnation == incarnation_at(world.uri(SQL)) != ""
    assert len(rows_of(world.uri(SQL))[0]) == sum(r["k"] >= 5 for r in world.source.rows().to_pylist())
    assert len(plans) == 1


def begin(uri: str, read_version: int, identity: str) -> str:
    """Begin an attempt, and return the table's incarnation."""
    handle = TableHandle(uri)
    request = BeginAttemptRequest(
        uri=uri,
        incarnation="",
        request_id="r",
        job_id="job",
        attempt=1,
        identity=identity,
        read_version=read_version,
    )
    begin_attempt(handle, request)
    return handle.incarnation


def test_an_attempt_begins_in_the_table_that_was_planned_from_alone(views_system, folder):
    forget_incarnation(uri := make_table(views_system, folder))
    former = LanceTables().snapshot(uri).version_identity
    shutil.rmtree(uri)
    forget_incarnation(make_table(views_system, folder))
    planned = LanceTables().snapshot(uri)
    identity = planned.version_identity
    for version, known in [(planned.version, former), (planned.version + 7, identity), (planned.version, "of later")]:
        with pytest.raises(Aborted, match="dropped and created again"):
            begin(uri, version, known)
    assert incarnation_at(uri) == ""
    lance.write_dataset(rows(100), uri, mode="append")
    given = begin(uri, planned.version, identity)
    assert given == incarnation_at(uri) != ""
    assert begin(uri, planned.version, identity) == given, "another job that planned from that version gets the same"
