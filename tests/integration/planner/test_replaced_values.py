"""A plan says whose values a backfill replaces: those of an edited function, or of another one that was given."""

from dataclasses import replace

import pytest

from leman._format.column_bindings import FunctionVersion
from leman_core.model import keys
from leman_core.model.plan import KeptRows, summarize_plan
from leman_core.storage.checkpoint_records import FragmentRecord
from leman_core.wire.convert_plans import header_from_proto, header_to_proto
from tests.integration.planner.planner_lake import ROWS, UDF, Lake

OTHER = replace(UDF, name="g", entrypoint="m:g")
OLD = replace(UDF, version="0")


@pytest.fixture
def lake(tmp_path):
    """The first fragment has values of g, the second of an earlier f, the third none."""
    made = Lake(tmp_path)
    for fragment, udf in enumerate((OTHER, OLD)):
        made.registry.put(udf)
        plan = made.plan(udf_name=udf.name, udf_version=udf.version)
        made.install(plan, plan.tasks[fragment], made.write(plan, plan.tasks[fragment]).file)
    return made


def kept(udf, rows=ROWS):
    return KeptRows(FunctionVersion(udf.name, udf.version), rows)


def test_a_plain_run_says_what_it_undoes(lake):
    made = lake.plan()
    assert made.header.replaced == (kept(OTHER), kept(OLD))
    told = "it replaces values of g@1 in 10 rows; it replaces values of f@0 in 10 rows"
    assert told in summarize_plan(made)
    assert header_from_proto(header_to_proto(made.header)).replaced == made.header.replaced


def test_rows_that_an_update_moved_count_once_a_run_has_recorded_whose_values_they_have(lake):
    lake.open().update({"body": "'z'"}, where="id < 3")
    others = lake.plan(udf_name="g", udf_version="1")
    assert lake.plan().header.replaced == (kept(OLD), kept(OTHER, ROWS - 3))
    [known] = [compared.known for compared in others.compared if compared.known.physical_rows == 3]
    recorded = FragmentRecord.of_traced(replace(known, rows_computed=3, compared=True))
    lake.store[keys.traced_key(keys.function_of(known.fingerprint))] = recorded.to_batch()
    assert sorted(lake.plan().header.replaced, key=str) == [kept(OLD), kept(OTHER)]
    lake.open().delete("id < 2")
    assert kept(OTHER, ROWS - 2) in lake.plan().header.replaced


def test_with_a_filter_it_says_how_many_rows_at_the_most(lake):
    assert "it replaces values of g@1 in up to 10 rows" in summarize_plan(lake.plan(where="x > 3"))


def test_who_gives_another_function_hears_whose_values_go(lake):
    assert lake.plan(udf_name="g", udf_version="1").header.replaced == (kept(OLD),)


def test_where_nothing_is_replaced_nothing_is_said(lake):
    assert lake.plan(failed_only=True).header.replaced == ()
    lake.fill(lake.plan())
    made = lake.plan()
    assert made.header.replaced == ()
    assert summarize_plan(made) == "3 of 3 fragments are current: nothing to do"


def test_of_a_function_that_nobody_knows_nothing_is_said(lake):
    assert {"g@1.json", "f@0.json"} <= set(lake.registry.names())
    lake.registry._folder.delete("g@1.json", "f@0.json")
    assert lake.plan().header.replaced == ()
