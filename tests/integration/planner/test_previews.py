"""What a preview reads and runs, and how much a backfill would compute with it; nothing is registered for it."""

import dataclasses

import pyarrow as pa
import pytest

from leman._format.stored_functions import UdfDefinition, UdfKind
from leman_core.functions.function_definitions import FunctionPolicy
from leman_core.model.plan import PreviewSpec
from leman_core.model.service_errors import FailedPrecondition, InvalidArgument, NotFound, PermissionDenied
from leman_core.storage.lance_tables import LanceTables
from leman_core.storage.udf_registry import UdfRegistry
from leman_planner.catalog.function_catalog import PreviewPlans
from leman_planner.catalog.table_catalog import Catalog
from leman_planner.planning.plan_maker import PlanMaker
from tests.integration.planner.planner_lake import ROWS, UDF

NEW = UdfDefinition("g", "1", UdfKind.SCALAR, ("x",), pa.int64(), entrypoint="m:g")
ALL = 3 * ROWS


def planned(lake, registry=UdfRegistry, **asked):
    tables = LanceTables()
    plans = PreviewPlans(Catalog(tables, registry), PlanMaker(tables, registry=registry), tables)
    return plans.plan(PreviewSpec(database=lake.database, table="t", **asked))


def test_a_column_is_tried_with_its_own_function_and_what_is_left_to_compute(lake):
    made = planned(lake, column="c")
    assert (made.udf, made.input_columns, made.rows_to_compute) == (UDF, ("x",), ALL)
    lake.fill(lake.plan())
    assert planned(lake, column="c").rows_to_compute == 0


def test_another_function_for_a_column_would_compute_all_rows_again(lake):
    lake.fill(lake.plan())
    edited = dataclasses.replace(UDF, version="2")
    made = planned(lake, column="c", definition=edited)
    assert (made.udf.version, made.input_columns, made.rows_to_compute) == ("2", ("x",), ALL)
    text = dataclasses.replace(edited, output_type=pa.string())
    with pytest.raises(FailedPrecondition) as error:
        planned(lake, column="c", definition=text)
    assert error.value.reason == "TYPE_MISMATCH"


def test_a_function_that_comes_along_is_checked_and_not_registered(lake):
    before = lake.registry.names()
    made = planned(lake, definition=NEW, where="id >= 0")
    assert (made.rows_to_compute, made.where, made.output.field.arrow.type) == (ALL, "id >= 0", pa.int64())
    assert lake.registry.names() == before
    with pytest.raises(InvalidArgument) as error:
        planned(lake, definition=dataclasses.replace(NEW, entrypoint=""))
    assert error.value.reason == "BAD_UDF"
    with pytest.raises(PermissionDenied):
        planned(lake, lambda uri: UdfRegistry(uri, policy=FunctionPolicy(kinds=("sql",))), definition=NEW)


def test_a_registered_function_and_an_expression_need_no_definition(lake):
    assert planned(lake, udf_name="f", input_columns=("id",)).input_columns == ("id",)
    expression = planned(lake, sql_expression="x * 2")
    assert (expression.udf.kind, expression.input_columns) == (UdfKind.SQL, ("x",))
    with pytest.raises(NotFound):
        planned(lake, udf_name="unknown")


def test_an_older_version_is_read_with_the_names_that_its_columns_had(lake):
    first = lake.open().version
    lake.open().alter_columns({"path": "x", "name": "renamed"})
    made = planned(lake, column="c", read_version=first)
    assert (made.read_version, made.input_columns) == (first, ("x",))
    assert planned(lake, column="c").input_columns == ("renamed",)


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"column": "x"}, "COLUMN_NOT_DEFINED"),
        ({"definition": dataclasses.replace(NEW, input_columns=("nowhere",))}, "INPUT_COLUMN_MISSING"),
        ({"definition": dataclasses.replace(NEW, input_types=(pa.string(),))}, "TYPE_MISMATCH"),
        ({"udf_name": "f", "input_columns": ("x", "id")}, "INPUT_COUNT_MISMATCH"),
        ({"definition": NEW, "where": "nowhere > 1"}, "INVALID_FILTER"),
    ],
)
def test_what_does_not_fit_the_table_is_refused(lake, asked, reason):
    with pytest.raises((FailedPrecondition, InvalidArgument)) as error:
        planned(lake, **asked)
    assert error.value.reason == reason
