"""Computed columns that read computed columns: added together, refused in a cycle, looked at before they are read."""

from dataclasses import replace

import lance
import pytest

from leman._format.column_bindings import NOT_YET
from leman._format.view_definitions import ViewColumn, ViewFunction, with_query
from leman_coordinator.lance_io import column_definitions
from leman_coordinator.lance_io.table_handle import TableHandle
from leman_core.functions import binding
from leman_core.functions.column_checks import NewColumn
from leman_core.model.plan import OnStaleInput, StaleInput, summarize_plan
from leman_core.model.service_errors import FailedPrecondition
from leman_core.model.view import RefreshSpec
from leman_core.model.view_metadata import read
from leman_core.storage.lance_tables import LanceTables
from leman_planner.catalog.table_catalog import Catalog
from leman_planner.planning.stale_inputs import refuse_stale, refuse_stale_refresh
from tests.integration.planner.planner_lake import ROWS, UDF, Lake, rows
from tests.integration.views.view_lake import ViewLake
from tests.integration.views.view_lake import column as view_column

ALL = 3 * ROWS


@pytest.fixture
def lake(tmp_path):
    """`d` is computed from `c`, and `c` from x; nothing is computed yet."""
    made = Lake(tmp_path)
    made.add_column("d", ("c",))
    return made


def stale(made):
    return made.header.stale_inputs


def addition(lake, *columns):
    return Catalog(LanceTables()).addition(lake.database, "t", list(columns), "r1", "b").schema


def add(lake, schema):
    handle = TableHandle(lake.uri)
    return column_definitions.add_null_columns(handle, handle.latest(), schema)


def inputs(lake, column):
    field = lake.open().schema.field(column)
    return [(i.name, i.field_id) for i in binding.read(field).inputs]


def field_id(lake, column):
    return LanceTables().snapshot(lake.uri).column(column).field_id


def test_a_plan_says_which_inputs_are_not_current(lake):
    made = lake.plan("d")
    assert stale(made) == (StaleInput("c", ALL),)
    assert "it depends on c, in which 30 rows are stale or not computed yet" in summarize_plan(made)
    lake.fill(lake.plan("c"))
    assert stale(lake.plan("d")) == ()
    assert stale(lake.plan("c")) == ()


def test_where_everything_seems_current_it_does_not_say_that_nothing_is_to_do(lake):
    lake.fill(lake.plan("c"))
    lake.fill(lake.plan("d"))
    assert "nothing to do" in summarize_plan(lake.plan("d"))
    lance.write_dataset(rows(ROWS), lake.uri, mode="append")
    lake.fill(lake.plan("d"))
    made = lake.plan("d")
    assert (made.header.rows_to_compute, stale(made)) == (0, (StaleInput("c", ROWS),))
    assert "nothing to do" not in summarize_plan(made)


def test_what_is_far_counts_too(lake):
    lake.add_column("e", ("d",))
    assert stale(lake.plan("e")) == (StaleInput("c", ALL), StaleInput("d", ALL))
    lake.fill(lake.plan("c"))
    lake.fill(lake.plan("d"))
    lance.write_dataset(rows(ROWS), lake.uri, mode="append")
    assert stale(lake.plan("e")) == (StaleInput("c", ROWS), StaleInput("d", ROWS))


def test_of_a_part_only_its_fragments_count(lake):
    lake.fill(lake.plan("c", num_frags=1))
    assert stale(lake.plan("d", num_frags=1)) == ()
    assert stale(lake.plan("d", num_frags=2)) == (StaleInput("c", ROWS),)
    assert stale(lake.plan("d")) == (StaleInput("c", 2 * ROWS),)


def test_with_a_filter_only_the_rows_that_it_matches_count(lake):
    made = lake.plan("c", where="id < 5")
    first, *_ = made.tasks
    states = [1] * 5 + [0] * (ROWS - 5)
    lake.install(made, first, lake.write(made, first, states=states).file)
    assert stale(lake.plan("d", where="id < 5")) == ()
    assert stale(lake.plan("d", where="id < 7")) == (StaleInput("c", 2),)


def test_failed_rows_of_an_input_are_settled(lake):
    for task in (made := lake.plan("c")).tasks:
        lake.install(made, task, lake.write(made, task, states=[2] * ROWS).file)
    assert stale(lake.plan("d")) == ()


def test_an_older_version_is_looked_at_as_it_was(lake):
    lake.fill(lake.plan("c"))
    then = lake.open().version
    lance.write_dataset(rows(ROWS), lake.uri, mode="append")
    assert stale(lake.plan("d", read_version=then)) == ()
    assert stale(lake.plan("d")) == (StaleInput("c", ROWS),)


def test_a_job_is_refused_unless_it_says_what_is_to_happen(lake):
    made = lake.plan("d")
    with pytest.raises(FailedPrecondition) as caught:
        refuse_stale(made, OnStaleInput.ERROR)
    assert (caught.value.reason, caught.value.facts["inputs"]) == ("INPUT_COLUMN_STALE", "c")
    assert "c (30 rows)" in caught.value.message
    assert "'first'" in caught.value.message
    for goes_on in (OnStaleInput.WARN, OnStaleInput.FIRST):
        assert refuse_stale(made, goes_on) is made
    plain = lake.plan("c")
    assert refuse_stale(plan=plain, on_stale_input=OnStaleInput.ERROR) is plain


def test_columns_that_read_one_another_are_added_together_in_any_order(tmp_path):
    lake = Lake(tmp_path)
    before = lake.open().version
    schema = addition(
        lake,
        NewColumn("z", "", "", sql_expression="y + c"),
        NewColumn("y", "f", "1", ("w",)),
        NewColumn("w", "", "", sql_expression="x * 2"),
    )
    assert schema.names == ["w", "y", "z"]
    assert [i.field_id for i in binding.read(schema.field("y")).inputs] == [NOT_YET]
    version = add(lake, schema)
    assert version == lake.open().version == before + 2
    assert inputs(lake, "y") == [("w", field_id(lake, "w"))]
    assert inputs(lake, "z") == [("y", field_id(lake, "y")), ("c", field_id(lake, "c"))]
    names = [found.column for found in stale(lake.plan("z"))]
    assert sorted(names) == ["c", "w", "y"]
    assert names.index("w") < names.index("y")


def test_an_id_that_was_not_written_is_written_by_the_same_request_again(tmp_path):
    lake = Lake(tmp_path)
    schema = addition(lake, NewColumn("w", "f", "1", ("x",)), NewColumn("y", "f", "1", ("w",)))
    lake.open().add_columns(schema)  # as where the coordinator died in between
    assert inputs(lake, "y") == [("w", NOT_YET)]
    assert stale(lake.plan("y")) == (StaleInput("w", ALL),), "until then it is known by its name"
    version = add(lake, schema)
    assert inputs(lake, "y") == [("w", field_id(lake, "w"))]
    lake.open().update_config({"something": "else"})
    assert add(lake, schema) == version < lake.open().version, "answered as the first time"
    lake.open().alter_columns({"path": "w", "name": "wide"})
    assert stale(lake.plan("y")) == (StaleInput("wide", ALL),)


@pytest.mark.parametrize(
    "columns",
    [
        (NewColumn("y", "f", "1", ("z",)), NewColumn("z", "f", "1", ("y",))),
        (NewColumn("y", "", "", sql_expression="z + 1"), NewColumn("z", "", "", sql_expression="y + 1")),
    ],
)
def test_new_columns_in_a_cycle_are_refused(tmp_path, columns):
    with pytest.raises(FailedPrecondition) as caught:
        addition(Lake(tmp_path), *columns)
    assert caught.value.reason == "COLUMN_CYCLE"


def test_an_alteration_that_closes_a_cycle_is_refused(lake):
    with pytest.raises(FailedPrecondition) as caught:
        Catalog(LanceTables()).alteration(lake.database, "t", [NewColumn("c", "f", "1", ("d",))], "r")
    assert caught.value.reason == "COLUMN_CYCLE"


def test_another_function_of_a_backfill_may_not_close_a_cycle_either(lake):
    lake.registry.put(replace(UDF, version="2", input_columns=("d",)))
    with pytest.raises(FailedPrecondition) as caught:
        lake.plan("c", udf_name="f", udf_version="2")
    assert caught.value.reason == "COLUMN_CYCLE"


def test_a_view_that_reads_what_is_not_current_says_so(tmp_path):
    lake = ViewLake(tmp_path)
    lake.registry.put(UDF)
    for name, inputs in (("c", ("x",)), ("d", ("c",))):
        added = Catalog(lake.tables).addition(lake.database, "t", [NewColumn(name, "f", "1", inputs)], "")
        handle = TableHandle(lake.uri)
        column_definitions.add_null_columns(handle, handle.latest(), added.schema)
    lake.create(lake.query(view_column("id"), view_column("d")))
    made = lake.plan()
    rows_there = lake.source().count_rows()
    assert made.stale_inputs == (StaleInput("c", rows_there), StaleInput("d", rows_there))
    assert f"it reads d, in which {rows_there} rows of the source are stale or not computed yet" in made.message
    assert "a refresh is rejected until these are computed" in made.message


@pytest.fixture
def source(tmp_path):
    """The source `t` of views; its `c` is computed, and nothing of it is there yet."""
    lake = ViewLake(tmp_path)
    lake.registry.put(UDF)
    _add_column(lake, "c", ("x",))
    return lake


def _add_column(lake, name, inputs):
    added = Catalog(lake.tables).addition(lake.database, "t", [NewColumn(name, "f", "1", inputs)], "")
    handle = TableHandle(lake.uri)
    column_definitions.add_null_columns(handle, handle.latest(), added.schema)


def refusal(lake, name="v", on_stale_input=OnStaleInput.ERROR, **asked):
    """The error that a refresh ends with; None: it may begin."""
    spec = RefreshSpec(lake.database, name, on_stale_input=on_stale_input, **asked)
    try:
        refuse_stale_refresh(lake.reader.plan(spec), spec)
    except FailedPrecondition as error:
        return error
    return None


PLACES = {
    "a column": {"columns": [view_column("c")]},
    "a column under another name": {"columns": [ViewColumn("other", "`c`", "c")]},
    "an expression": {"columns": [view_column("e", "x + C * 2")]},
    "the filter": {"columns": [view_column("id")], "where": "`c` > 3 OR x < 2"},
    "a function": {"columns": [view_column("id")], "functions": [ViewFunction("g", "double", "", ("c",))]},
    "all columns": {"columns": []},
}


@pytest.mark.parametrize("place", PLACES)
def test_a_view_that_reads_a_column_that_is_not_current_is_not_refreshed(source, place):
    asked = dict(PLACES[place])
    source.create(source.query(*asked.pop("columns"), **asked))
    error = refusal(source)
    assert (error.reason, error.facts["inputs"]) == ("INPUT_COLUMN_STALE", "c")
    stale = f"computed columns that are stale or not computed yet: c ({3 * ROWS} rows)"
    assert f"View v depends on {stale}" in error.message
    assert refusal(source, on_stale_input=OnStaleInput.WARN) is None
    assert refusal(source, on_stale_input=OnStaleInput.FIRST) is None
    Lake.at(source.database).fill(Lake.at(source.database).plan("c"))
    assert refusal(source) is None


def test_a_view_that_does_not_read_such_a_column_is_refreshed(source):
    source.create(source.query(view_column("id"), where="x > 3"))
    assert refusal(source) is None


def test_an_older_version_of_the_source_counts_as_it_was(source):
    source.create(source.query(view_column("c")))
    before = source.source().version
    Lake.at(source.database).fill(Lake.at(source.database).plan("c"))
    assert refusal(source) is None
    assert refusal(source, src_version=before).facts["inputs"] == "c"


def test_rows_that_the_filter_leaves_out_need_not_be_current(source):
    lake = Lake.at(source.database)
    made = lake.plan("c", where="x < 12")
    lake.fill(replace(made, tasks=made.tasks[:1]))
    source.create(source.query(view_column("c"), where="x < 10"), "inside")
    source.create(source.query(view_column("c"), where="x < 15"), "beyond")
    source.create(source.query(view_column("c"), where="x < 10 AND c IS NOT NULL"), "by the column itself")
    assert refusal(source, "inside") is None
    assert refusal(source, "beyond").facts["rows"] == "5"
    assert refusal(source, "by the column itself").facts["rows"] == str(2 * ROWS)


def test_a_view_over_a_view_whose_column_has_another_function_is_not_refreshed(source):
    source.create(name="below")
    source.fill(name="below")
    source.create(source.query(view_column("d"), table="below"), "above")
    source.create(source.query(view_column("id"), table="below"), "beside")
    assert refusal(source, "above") is None
    definition = read(source.open("below").schema)
    functions = tuple(replace(function, udf_version="2") for function in definition.query.functions)
    altered = replace(definition, query=replace(definition.query, functions=functions))
    source.open("below").update_schema_metadata(with_query(altered))
    for policy in (OnStaleInput.ERROR, OnStaleInput.FIRST):
        error = refusal(source, "above", policy)
        assert (error.reason, error.facts["inputs"], error.facts["rows"]) == ("INPUT_COLUMN_STALE", "d", str(ALL))
        assert "Refresh the view below first" in error.message
    assert refusal(source, "above", OnStaleInput.WARN) is None
    assert refusal(source, "beside") is None
