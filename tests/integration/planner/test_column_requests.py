"""Columns that a table is to have: the same request again does nothing, a changed one says what it changes."""

import dataclasses
import uuid

import lance
import pytest

from leman_coordinator.lance_io import column_definitions
from leman_coordinator.lance_io.table_handle import TableHandle
from leman_core.functions.column_checks import NewColumn
from leman_core.model.service_errors import AlreadyExists, FailedPrecondition, InvalidArgument
from leman_core.storage.lance_tables import LanceTables
from leman_planner.catalog.column_changes import OnChange, Outcome
from leman_planner.catalog.column_requests import ColumnRequest, ColumnRequests
from leman_planner.catalog.table_catalog import Catalog
from leman_planner.planner_service import explain_plan
from leman_planner.planning.plan_maker import PlanMaker
from tests.integration.planner.planner_lake import ROWS, UDF, Lake, rows

SECOND = dataclasses.replace(UDF, version="2", source="def f(x):\n    return x + 1")
ALL = 3 * ROWS


@pytest.fixture
def lake(tmp_path):
    made = Lake(tmp_path)
    made.registry.put(dataclasses.replace(UDF, source="def f(x):\n    return x"))
    made.registry.put(SECOND)
    made.fill(made.plan())
    return made


def asked(lake, *columns, on_change=OnChange.ERROR, request_id="r"):
    """What is to be done, and its outcomes by column."""
    tables = LanceTables()
    requests = ColumnRequests(Catalog(tables), PlanMaker(tables), lambda *_: 720.0)
    work = requests.work(
        ColumnRequest(
            database=lake.database, table="t", columns=columns, on_change=on_change, request_id=request_id, body="b"
        )
    )
    return work, {outcome.column: outcome for outcome in work.outcomes}


def altered(lake, *columns):
    """Give a column another function; return what becomes of it."""
    tables = LanceTables()
    catalog = Catalog(tables)
    wanted = catalog.alteration(lake.database, "t", columns, uuid.uuid4().hex)
    outcomes = ColumnRequests(catalog, PlanMaker(tables), lambda *_: 720.0).alteration_outcomes(
        lake.database, "t", columns, wanted
    )
    handle = TableHandle(lake.uri)
    column_definitions.bind_columns(handle, handle.latest(), wanted.schema)
    (outcome,) = outcomes
    return outcome


def done(lake, work):
    """Does it, as the commit coordinator would."""
    handle = TableHandle(lake.uri)
    if work.changed is not None:
        column_definitions.bind_columns(handle, handle.latest(), work.changed.schema)
    if work.added is not None:
        column_definitions.add_null_columns(handle, handle.latest(), work.added.schema)


def column(name="c", version="1", inputs=(), **more):
    return NewColumn(name, "f", version, inputs, **more)


def test_the_same_again_is_nothing_to_do(lake):
    work, told = asked(lake, column())
    assert (work.changed, work.added, work.version) == (None, None, lake.open().version)
    assert told["c"].outcome is Outcome.UNCHANGED


def test_a_changed_function_is_refused_with_what_would_be_stale_and_why(lake):
    with pytest.raises(FailedPrecondition) as caught:
        asked(lake, column(version="2"), column("n"))
    assert caught.value.reason == "COLUMN_CHANGED"
    assert caught.value.message.startswith("c changed: 30 rows stale, about 12 minutes (f@1 → f@2)")
    assert "-    return x\n+    return x + 1" in caught.value.message


def test_on_update_the_column_gets_the_function_and_its_rows_are_stale(lake):
    work, told = asked(lake, column(version="2"), on_change=OnChange.UPDATE)
    assert told["c"].summary == "c changed: 30 rows stale, computed again by the next backfill, about 12 minutes"
    done(lake, work)
    made = lake.plan()
    assert (made.header.udf.version, made.header.rows_to_compute) == ("2", ALL)
    assert asked(lake, column(version="2"), on_change=OnChange.UPDATE, request_id="r2")[0].changed is None


def test_rows_without_a_value_are_told_apart(lake):
    lance.write_dataset(rows(ROWS), lake.uri, mode="append")
    told = asked(lake, column(version="2"), on_change=OnChange.UPDATE)[1]["c"]
    assert (told.rows_stale, told.rows_not_computed) == (ALL, ROWS)


def test_on_keep_values_stay_current_and_only_new_rows_are_left(lake):
    lance.write_dataset(rows(ROWS), lake.uri, mode="append")
    work, told = asked(lake, column(version="2"), on_change=OnChange.KEEP)
    assert told["c"].summary == "c changed: its values are kept, 10 not computed yet, about 12 minutes"
    done(lake, work)
    made = lake.plan()
    assert (made.header.udf.version, made.header.rows_to_compute) == ("2", ROWS)


def test_on_update_after_keep_the_kept_values_are_stale(lake):
    done(lake, asked(lake, column(version="2"), on_change=OnChange.KEEP, request_id="r1")[0])
    assert lake.plan().header.rows_to_compute == 0
    assert asked(lake, column(version="2"))[1]["c"].outcome is Outcome.UNCHANGED, "only who asks for it loses them"
    assert asked(lake, column(version="2"), on_change=OnChange.KEEP)[1]["c"].outcome is Outcome.UNCHANGED
    work, told = asked(lake, column(version="2"), on_change=OnChange.UPDATE, request_id="r2")
    assert told["c"].summary == "c changed: 30 rows stale, computed again by the next backfill, about 12 minutes"
    assert told["c"].notes == ("values of f@1 are no longer kept",)
    done(lake, work)
    assert lake.plan().header.rows_to_compute == ALL
    assert asked(lake, column(version="2"), on_change=OnChange.UPDATE, request_id="r3")[0].changed is None


def test_the_same_function_with_other_inputs_does_not_keep_values_that_it_has_not_given(lake):
    with pytest.raises(FailedPrecondition, match=r"cannot keep its values: f@1 reads .*on_change: 'update'") as caught:
        asked(lake, column(inputs=("id",)), on_change=OnChange.KEEP)
    assert caught.value.reason == "KEPT_INPUTS_DIFFER"


def test_a_column_without_a_value_takes_another_function_and_one_with_a_checkpoint_does_not(tmp_path):
    """Anyone who fixes a function that failed runs the program again as it is."""
    made = Lake(tmp_path)
    made.registry.put(SECOND)
    _, told = asked(made, column(version="2"))
    assert (told["c"].outcome, told["c"].rows_stale, told["c"].rows_not_computed) == (Outcome.UPDATED, 0, ALL)
    made.checkpoint(made.plan().tasks[0], 0, ROWS)
    with pytest.raises(
        FailedPrecondition, match=f"c changed: {ROWS} finished rows would be computed again.*'keep' keeps them"
    ):
        asked(made, column(version="2"))


def test_a_change_that_goes_back_finds_the_values_that_are_still_there(lake):
    done(lake, asked(lake, column(version="2"), on_change=OnChange.UPDATE)[0])
    told = asked(lake, column(), on_change=OnChange.UPDATE, request_id="r2")[1]["c"]
    assert (told.rows_stale, told.rows_not_computed) == (0, 0)


def test_a_change_taken_back_counts_the_values_that_are_stored(tmp_path):
    lake = Lake(tmp_path)
    lake.registry.put(SECOND)
    made = lake.plan()
    for task in made.tasks:
        staged = lake.write(made, task)
        lake.record(made, task, staged)
        lake.install(made, task, staged.file)
    done(lake, asked(lake, column(version="2"), on_change=OnChange.UPDATE)[0])
    lake.fill(lake.plan())
    with pytest.raises(FailedPrecondition, match=rf"^c changed: {ALL} rows get back stored values of f@1 \("):
        asked(lake, column(), request_id="r2")
    work, told = asked(lake, column(), on_change=OnChange.UPDATE, request_id="r2")
    assert (told["c"].rows_stale, told["c"].rows_lost) == (0, 0)
    assert told["c"].summary == f"c changed: {ALL} rows get back stored values of f@1"
    done(lake, work)
    explained = explain_plan(lake.plan(), 0, None)
    assert (explained.rows_to_compute, explained.rows_reused) == (0, ALL)
    assert "about 0 rows to compute; 30 rows reused, of which 30 are stored elsewhere" in explained.summary
    lake.open().delete("id < 3")
    assert explain_plan(lake.plan(), 0, None).rows_reused == ALL - 3
    lance.write_dataset(rows(ROWS), lake.uri, mode="append")
    explained = explain_plan(lake.plan(), 0, None)
    assert (explained.rows_to_compute, explained.rows_reused) == (ROWS, ALL - 3)


def test_an_altered_column_says_what_is_computed_again_and_how_that_is_kept(lake):
    lake.registry.put(dataclasses.replace(UDF, version="3"))
    told = altered(lake, column(version="2"))
    assert (told.outcome, told.rows_stale, told.rows_lost) == (Outcome.UPDATED, ALL, ALL)
    assert told.summary == (
        f"c changed: {ALL} finished rows will be computed again, about 12 minutes; "
        "to keep them, give c f@1(x) again, then f@2 with keep_values"
    )
    told = altered(lake, column(version="3"))
    assert (told.rows_lost, told.summary) == (
        0,
        "c changed: 30 rows stale, computed again by the next backfill, about 12 minutes",
    ), "they were stale"
    assert altered(lake, column(version="3")).outcome is Outcome.UNCHANGED
    assert altered(lake, column()).rows_stale == 0
    assert altered(lake, column(version="2", keep_values=True)).summary == "c changed: its values are kept"
    assert lake.plan().header.rows_to_compute == 0


def test_values_that_cannot_be_kept_are_counted_without_advice(lake):
    told = altered(lake, column(version="2", inputs=("id",)))
    assert told.summary == f"c changed: {ALL} finished rows will be computed again, about 12 minutes"
    done(lake, asked(lake, column(inputs=("x",)), on_change=OnChange.UPDATE)[0])
    altered(lake, column(version="2", keep_values=True))
    told = altered(lake, column(version="2"))
    assert told.summary.endswith("about 12 minutes"), "only values of one function have a short way back"


def test_a_column_whose_input_is_gone_takes_another_function(lake):
    lake.open().drop_columns(["x"])
    work, told = asked(lake, column(version="2", inputs=("id",)), on_change=OnChange.UPDATE)
    assert (told["c"].rows_stale, told["c"].rows_lost) == (ALL, 0)
    done(lake, work)
    assert lake.plan().header.rows_to_compute == ALL


def test_new_and_changed_columns_come_together(lake):
    work, told = asked(lake, column(version="2"), column("n", "2"), column(name="c2"), on_change=OnChange.UPDATE)
    assert [told[name].outcome for name in ("c", "n", "c2")] == [Outcome.UPDATED, Outcome.ADDED, Outcome.ADDED]
    assert work.changed.request_id != work.added.request_id
    done(lake, work)
    assert {"n", "c2"} <= set(lake.open().schema.names)
    assert (told["n"].function, told["n"].rows_not_computed) == (("f", "2"), ALL)


def test_a_request_that_is_sent_again_is_told_its_outcome_again(lake):
    columns = (column(version="2"), column("n"))
    done(lake, asked(lake, *columns, on_change=OnChange.UPDATE)[0])
    work, told = asked(lake, *columns, on_change=OnChange.UPDATE)
    assert [told[name].outcome for name in ("c", "n")] == [Outcome.UPDATED, Outcome.ADDED]
    before = lake.open().version
    done(lake, work)
    assert lake.open().version == before


def test_other_inputs_are_a_change(lake):
    lake.open().add_columns({"z": "x + 1"})
    told = asked(lake, column(inputs=("z",)), on_change=OnChange.UPDATE)[1]["c"]
    assert (told.outcome, told.rows_stale) == (Outcome.UPDATED, ALL)
    assert told.notes == ("its inputs change from x to z",)


def test_an_input_with_another_name_is_no_change_for_who_calls_it_as_before(lake):
    lake.open().alter_columns({"path": "x", "name": "price"})
    assert asked(lake, column())[1]["c"].outcome is Outcome.UNCHANGED


def test_expressions_are_compared_too_and_only_registered_where_they_are_taken(lake):
    done(lake, asked(lake, NewColumn("s", "", "", sql_expression="x * 2"), request_id="r1")[0])
    lake.fill(lake.plan("s"))
    known = len(lake.registry.names())
    assert asked(lake, NewColumn("s", "", "", sql_expression="x  *  2"))[1]["s"].outcome is Outcome.UNCHANGED
    with pytest.raises(FailedPrecondition, match=r"-x \* 2\n\+x \* 3"):
        asked(lake, NewColumn("s", "", "", sql_expression="x * 3"))
    assert len(lake.registry.names()) == known
    done(lake, asked(lake, NewColumn("s", "", "", sql_expression="x * 3"), on_change=OnChange.UPDATE)[0])
    assert len(lake.registry.names()) == known + 1


@pytest.mark.parametrize("on_change", [OnChange.ERROR, OnChange.UPDATE, OnChange.KEEP])
def test_a_column_keeps_its_type_and_plain_data_stays_plain(lake, on_change):
    with pytest.raises(FailedPrecondition) as caught:
        asked(lake, NewColumn("c", "", "", sql_expression="cast(x as string)"), on_change=on_change)
    assert caught.value.reason == "TYPE_MISMATCH"
    with pytest.raises(AlreadyExists) as exists:
        asked(lake, column("id"), on_change=on_change)
    assert exists.value.reason == "COLUMN_EXISTS"
    with pytest.raises(InvalidArgument, match="more than once"):
        asked(lake, column(), column(), on_change=on_change)


def test_without_a_word_about_changes_a_column_that_is_there_is_refused(lake):
    with pytest.raises(AlreadyExists) as caught:
        asked(lake, column(), on_change=OnChange.REFUSE_ANY)
    assert caught.value.reason == "COLUMN_EXISTS"


def test_a_function_that_is_gone_is_replaced_without_a_diff(lake):
    assert "f@1.json" in lake.registry.names()
    lake.registry._folder.delete("f@1.json")
    told = asked(lake, column(version="2"), on_change=OnChange.UPDATE)[1]["c"]
    assert (told.outcome, told.diff, told.rows_stale) == (Outcome.UPDATED, "", ALL)
