"""SQL functions and altered columns in the catalog, on a real table."""

from __future__ import annotations

import pyarrow as pa
import pytest

from leman._format.stored_functions import UdfDefinition, UdfKind
from leman_core.functions import binding
from leman_core.functions.column_checks import NewColumn
from leman_core.model.service_errors import FailedPrecondition, InvalidArgument
from leman_core.storage.lance_tables import LanceTables
from leman_planner.catalog.table_catalog import Catalog
from tests.integration.planner.planner_lake import Lake, why

TWICE = UdfDefinition("twice", "1", UdfKind.SQL, ("n",), pa.int64(), sql_expression="n * 2")


def add(lake: Lake, *columns: NewColumn, request_id: str = "r") -> pa.Schema:
    return Catalog(LanceTables()).addition(lake.database, "t", columns, request_id).schema


def alter(lake: Lake, *columns: NewColumn) -> pa.Schema:
    return Catalog(LanceTables()).alteration(lake.database, "t", columns, "r").schema


def test_an_expression_gives_type_inputs_and_version_the_same_when_asked_again(lake):
    wanted = NewColumn("y", "", "", sql_expression="upper(body) || cast(box.w as string)")
    (field,) = add(lake, wanted)
    bound = binding.read(field)
    assert field.type == pa.string()
    assert [i.name for i in bound.inputs] == ["body", "box"]
    assert lake.registry.get("sql", bound.udf_version).sql_expression == wanted.sql_expression
    assert add(lake, wanted).equals(pa.schema([field]), check_metadata=True)


def test_nothing_is_registered_where_another_column_is_refused(lake):
    with pytest.raises(FailedPrecondition):
        add(lake, NewColumn("y", "", "", sql_expression="x + 1"), NewColumn("z", "f", "1", ("nope",)))
    assert [entry.udf.name for entry in lake.registry.list()] == ["f"]


def test_a_registered_expression_reads_the_columns_that_it_is_given(lake):
    lake.registry.put(TWICE)
    (field,) = add(lake, NewColumn("y", "twice", "1", ("x",)))
    assert [i.name for i in binding.read(field).inputs] == ["x"]
    with pytest.raises(FailedPrecondition) as caught:
        add(lake, NewColumn("y", "twice", "1"))
    assert caught.value.reason == "INPUT_COLUMN_MISSING"
    with pytest.raises(InvalidArgument) as refused:
        add(lake, NewColumn("y", "twice", "1", ("body",)))
    assert refused.value.reason == "INVALID_EXPRESSION"


def test_an_expression_that_no_row_can_compute_is_refused_before_a_job(lake):
    lake.registry.put(UdfDefinition("rest", "1", UdfKind.SQL, ("n",), pa.int64(), sql_expression="n % 0"))
    for column in (NewColumn("y", "", "", sql_expression="x % 0"), NewColumn("y", "rest", "1", ("x",))):
        with pytest.raises(InvalidArgument, match="divides by the constant 0") as refused:
            add(lake, column)
        assert refused.value.reason == "INVALID_EXPRESSION"


def test_a_registered_expression_of_another_type_is_refused(lake):
    lake.registry.put(UdfDefinition("low", "1", UdfKind.SQL, ("x",), pa.int64(), sql_expression="x > 2"))
    with pytest.raises(FailedPrecondition, match="gives bool on this table") as caught:
        add(lake, NewColumn("y", "low", "1"))
    assert caught.value.reason == "TYPE_MISMATCH"


@pytest.mark.parametrize("both", [{"udf_name": "f"}, {"udf_version": "1"}, {"input_columns": ("x",)}])
def test_either_a_function_or_an_expression(lake, both):
    wanted = {"udf_name": "", "udf_version": "", **both}
    with pytest.raises(InvalidArgument, match="either a function or a SQL expression"):
        add(lake, NewColumn("y", sql_expression="x + 1", **wanted))


def test_only_an_input_that_is_rewritten_makes_a_fragment_stale(lake):
    lake.registry.put(TWICE)
    lake.add_column("y", ("x",), TWICE)
    lake.fill(lake.plan("y"))
    lake.rewrite("body", 0)
    assert why(lake.plan("y")) == {}
    lake.rewrite("x", 1)
    assert why(lake.plan("y")) == {1: "INPUT_CHANGED"}
    header = lake.plan("y").header
    assert (header.udf.kind, header.bundle_uri, header.input_columns) == (UdfKind.SQL, "", ("x",))


def test_altered_fields_keep_the_column_and_its_other_metadata(lake):
    lake.registry.put(TWICE)
    before = lake.open().schema.field("c")
    (field,) = alter(lake, NewColumn("c", "twice", "1", ("id",)))
    old, new = binding.read(before), binding.read(field)
    assert (new.column_id, new.udf_name, [i.name for i in new.inputs]) == (old.column_id, "twice", ["id"])
    assert field.type == before.type
    with pytest.raises(InvalidArgument, match="more than once"):
        alter(lake, NewColumn("c", "f", "1"), NewColumn("c", "twice", "1", ("id",)))
