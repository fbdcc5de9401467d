"""Views through CatalogService and PlannerService, with a real commit coordinator."""

import asyncio
import dataclasses

import grpc
import lance
import pyarrow as pa
import pytest
from google.protobuf import field_mask_pb2

from leman._format import column_bindings
from leman._format.column_bindings import ColumnBinding, ColumnInput, InputSource
from leman._format.stored_functions import UdfDefinition, UdfKind
from leman._format.view_definitions import QUERY
from leman.v1 import catalog_pb2, commit_pb2, planner_pb2, udf_pb2
from leman_core.model.plan import BackfillSpec
from leman_core.model.view import RefreshSpec
from leman_core.storage.lance_tables import LanceTables
from leman_core.wire import convert_plans, convert_views
from leman_internal.v1 import planning_pb2
from leman_planner.planning.plan_maker import PlanMaker
from leman_planner.views import view_catalog
from tests.integration.planner.planner_lake import rows
from tests.integration.planner.test_planner_service import error_of, served
from tests.integration.views.view_lake import UDF, ViewLake

LENGTH = UdfDefinition("length", "1", UdfKind.SCALAR, ("text",), pa.int64(), (pa.string(),), entrypoint="m:length")


@pytest.fixture
def lake(tmp_path):
    return ViewLake(tmp_path)


def create(lake, name="v", request_id="", **options):
    query = catalog_pb2.ViewQuery(source=catalog_pb2.TableRef(table="t"), where=options.pop("where", "id < 25"))
    query.columns.add(name="id")
    query.columns.add(name="loud", expression="upper(body)")
    query.functions.add(name="d", udf=udf_pb2.UdfRef(name="double"))
    return catalog_pb2.CreateMaterializedViewRequest(
        view=catalog_pb2.TableRef(database=lake.database, table=name), query=query, request_id=request_id, **options
    )


def described(lake, name="v"):
    return catalog_pb2.GetMaterializedViewRequest(view=catalog_pb2.TableRef(database=lake.database, table=name))


def refresh(lake, name="v", **asked):
    spec = convert_views.refresh_spec_to_proto(RefreshSpec(lake.database, name, **asked))
    return planning_pb2.PlanRefreshRequest(spec=spec)


def test_a_view_is_made_of_placeholders(lake):
    async def work(stubs):
        answer = await stubs.catalog.CreateMaterializedView(create(lake, max_rows_per_fragment=10))
        assert await stubs.catalog.GetMaterializedView(described(lake)) == catalog_pb2.GetMaterializedViewResponse(
            view=answer.view
        )
        return answer

    answer = served(work)
    view = answer.view
    assert (view.row_count, view.rows_set, view.source_version) == (25, 0, 1)
    assert view.row_reference == catalog_pb2.ROW_REFERENCE_STABLE_ROW_ID
    assert pa.ipc.read_schema(pa.py_buffer(view.schema)).names == ["id", "loud", "d"]
    assert view.query.source.database == lake.database
    assert [(f.udf.version, list(f.input_columns)) for f in view.query.functions] == [("1", ["x"])]
    table = lake.open().to_table().to_pydict()
    assert sorted(table["__source_row_id"]) == list(range(25))
    assert set(table["__is_set"]) <= {False, None}
    assert set(table["d"]) == {None}
    assert [f.metadata.physical_rows for f in lake.open().get_fragments()] == [10, 10, 5]
    assert not answer.warnings


def test_its_first_plan_is_to_fill_it(lake):
    async def work(stubs):
        await stubs.catalog.CreateMaterializedView(create(lake))
        return await stubs.planning.PlanRefresh(refresh(lake))

    plan = convert_views.refresh_plan_from_proto(served(work))
    assert (plan.mode.name, plan.reason.name) == ("FULL", "FIRST_FILL")
    assert sum(f.physical_rows for f in plan.unset) == 25
    assert plan.functions[0].udf == UDF
    assert plan.definition.source_uri == lake.uri


def test_the_same_request_makes_it_once_and_another_one_not_again(lake):
    async def work(stubs):
        first = await stubs.catalog.CreateMaterializedView(create(lake, request_id="one"))
        lance.write_dataset(rows(5, 30), lake.uri, mode="append")
        again = await stubs.catalog.CreateMaterializedView(create(lake, request_id="one"))
        return first, again, await error_of(stubs.catalog.CreateMaterializedView(create(lake, request_id="two")))

    first, again, (code, error) = served(work)
    assert first.view == again.view
    assert code is grpc.StatusCode.ALREADY_EXISTS
    assert error.reason == "TABLE_EXISTS"


def test_a_view_that_was_dropped_is_made_again_by_the_same_request(lake):
    async def work(stubs):
        first = await stubs.catalog.CreateMaterializedView(create(lake, request_id="one"))
        await stubs.commit.DropView(commit_pb2.DropViewRequest(view=described(lake).view, request_id="drop"))
        again = await stubs.catalog.CreateMaterializedView(create(lake, request_id="one"))
        return first, again, await stubs.catalog.CreateMaterializedView(create(lake, request_id="one"))

    first, again, third = served(work)
    assert first.view == again.view == third.view
    assert lake.open().count_rows() == 25


def test_a_request_id_stands_for_one_body(lake):
    async def work(stubs):
        await stubs.catalog.CreateMaterializedView(create(lake, request_id="one"))
        others = [
            create(lake, request_id="one", where="id < 5"),
            create(lake, request_id="one", max_rows_per_fragment=3),
        ]
        return [await error_of(stubs.catalog.CreateMaterializedView(other)) for other in others]

    for code, error in served(work):
        assert (code, error.reason) == (grpc.StatusCode.ALREADY_EXISTS, "REQUEST_ID_REUSED")
    assert lake.open().count_rows() == 25


def test_two_at_once_make_one(lake):
    async def work(stubs):
        calls = [stubs.catalog.CreateMaterializedView(create(lake)) for _ in range(2)]
        return await asyncio.gather(*calls, return_exceptions=True)

    failed = [answer for answer in served(work) if isinstance(answer, BaseException)]
    assert len(failed) == 1
    assert failed[0].code() is grpc.StatusCode.ALREADY_EXISTS
    assert lake.open().count_rows() == 25


def test_a_view_of_nothing(lake):
    async def work(stubs):
        await stubs.catalog.CreateMaterializedView(create(lake, where="id > 99"))
        return await stubs.planning.PlanRefresh(refresh(lake))

    assert served(work).mode == planner_pb2.REFRESH_MODE_NO_OP


def test_source_without_stable_row_ids_warns(tmp_path):
    lake = ViewLake(tmp_path, stable_row_ids=False)

    async def work(stubs):
        answer = await stubs.catalog.CreateMaterializedView(create(lake))
        lance.write_dataset(rows(5, 30), lake.uri, mode="append")
        return answer, await error_of(stubs.planning.PlanRefresh(refresh(lake)))

    answer, (code, error) = served(work)
    assert answer.view.row_reference == catalog_pb2.ROW_REFERENCE_ADDRESS
    assert "stable row IDs" in answer.warnings[0]
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert error.reason == "STABLE_ROW_IDS_REQUIRED"
    assert error.message.startswith("Cannot refresh materialized view to version 2")


def test_what_is_refused_leaves_nothing_behind(lake):
    async def work(stubs):
        where = await error_of(stubs.catalog.CreateMaterializedView(create(lake, where="now() > x")))
        number = await error_of(stubs.catalog.CreateMaterializedView(create(lake, max_rows_per_fragment=-1)))
        table = await error_of(stubs.catalog.GetMaterializedView(described(lake, "t")))
        names = await stubs.catalog.ListTables(catalog_pb2.ListTablesRequest(database=lake.database))
        return where, number, table, list(names.tables)

    where, number, table, names = served(work)
    assert (where[0], where[1].reason) == (grpc.StatusCode.INVALID_ARGUMENT, "VOLATILE_FUNCTION")
    assert number[1].reason == "BAD_NUMBER"
    assert (table[0], table[1].reason) == (grpc.StatusCode.FAILED_PRECONDITION, "NOT_A_VIEW")
    assert names == ["t"]


def test_describing_its_table_shows_the_query(lake):
    async def work(stubs):
        await stubs.catalog.CreateMaterializedView(create(lake))
        table = catalog_pb2.TableRef(database=lake.database, table="v")
        return await stubs.catalog.DescribeTable(catalog_pb2.DescribeTableRequest(table=table))

    schema = pa.ipc.read_schema(pa.py_buffer(served(work).schema))
    assert b'"where": "id < 25"' in schema.metadata[b"leman::view::query"]


# other functions


def alter(lake, udf_name, version="", inputs=(), name="v", column="d", mask=("functions",), request_id=""):
    udf = udf_pb2.UdfRef(name=udf_name, version=version)
    return catalog_pb2.AlterMaterializedViewRequest(
        view=catalog_pb2.TableRef(database=lake.database, table=name),
        functions=[catalog_pb2.ViewFunction(name=column, udf=udf, input_columns=inputs)] if column else [],
        update_mask=field_mask_pb2.FieldMask(paths=mask),
        request_id=request_id,
    )


def stale(plan):
    return convert_views.refresh_plan_from_proto(plan).stale


@pytest.fixture
def filled(lake):
    """A view `v` with values, and functions to compute its column `d`."""

    async def work(stubs):
        await stubs.catalog.CreateMaterializedView(create(lake))

    served(work)
    lake.fill()
    lake.registry.put(dataclasses.replace(UDF, version="2"))
    lake.registry.put(dataclasses.replace(UDF, name="other", input_columns=("body",), input_types=(pa.string(),)))
    lake.registry.put(dataclasses.replace(UDF, name="text", output_type=pa.string()))
    lake.registry.put(UdfDefinition("sql", "1", UdfKind.SQL, ("x",), pa.int64(), sql_expression="x + 1"))
    return lake


def test_an_alteration_that_is_sent_again_changes_nothing(filled):
    """Neither right after it, nor when another one came after it."""

    async def work(stubs):
        first, other = alter(filled, "double", "2", request_id="one"), alter(filled, "double", "1", request_id="two")
        versions = [(await stubs.catalog.AlterMaterializedView(r)).view.version for r in (first, first, other, first)]
        taken = await error_of(stubs.catalog.AlterMaterializedView(alter(filled, "other", request_id="one")))
        return versions, taken, await stubs.catalog.GetMaterializedView(described(filled))

    before = filled.open().version
    versions, taken, answer = served(work)
    assert versions == [before + 1, before + 1, before + 2, before + 2]
    assert (taken[0], taken[1].reason) == (grpc.StatusCode.ALREADY_EXISTS, "REQUEST_ID_REUSED")
    assert [f.udf.version for f in answer.view.query.functions] == ["1"]


def test_columns_of_a_view_are_altered_as_a_views_only(filled):
    async def work(stubs):
        table = catalog_pb2.TableRef(database=filled.database, table="v")
        column = catalog_pb2.NewColumn(name="d", udf=udf_pb2.UdfRef(name="double", version="2"))
        altered = catalog_pb2.ColumnAlteration(column=column)
        request = catalog_pb2.AlterColumnsRequest(table=table, columns=[altered])
        return await error_of(stubs.catalog.AlterColumns(request))

    code, error = served(work)
    assert (code, error.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "IS_A_VIEW")


def test_another_version_makes_the_column_stale(filled):
    async def work(stubs):
        before = filled.open().version
        altered = (await stubs.catalog.AlterMaterializedView(alter(filled, "double", "2"))).view
        plan = await stubs.planning.PlanRefresh(refresh(filled))
        same = (await stubs.catalog.AlterMaterializedView(alter(filled, "double", "2"))).view
        last = (await stubs.catalog.AlterMaterializedView(alter(filled, "double", "1"))).view
        return before, altered, plan, same, last, await stubs.planning.PlanRefresh(refresh(filled))

    before, altered, plan, same, last, back = served(work)
    assert altered.version == before + 1 == same.version
    assert list(altered.stale_columns) == ["d"] == list(stale(plan))
    assert list(last.stale_columns) == []
    assert plan.reason == planner_pb2.REFRESH_REASON_FUNCTION_CHANGED
    assert plan.functions[0].udf.version == "2"
    assert back.mode == planner_pb2.REFRESH_MODE_NO_OP


def test_other_inputs_make_it_stale_too(filled):
    async def work(stubs):
        await stubs.catalog.AlterMaterializedView(alter(filled, "double", "1", ["id"]))
        return await stubs.planning.PlanRefresh(refresh(filled))

    plan = served(work)
    assert stale(plan) == ("d",)
    assert list(plan.functions[0].column.input_columns) == ["id"]


def test_a_view_without_values_has_nothing_stale(lake):

    async def work(stubs):
        await stubs.catalog.CreateMaterializedView(create(lake))
        lake.registry.put(dataclasses.replace(UDF, version="2"))
        await stubs.catalog.AlterMaterializedView(alter(lake, "double", "2"))
        return await stubs.planning.PlanRefresh(refresh(lake))

    plan = served(work)
    assert stale(plan) == ()
    assert plan.functions[0].udf.version == "2"


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"udf_name": "text"}, "TYPE_MISMATCH"),
        ({"udf_name": "double", "inputs": ["body"]}, "TYPE_MISMATCH"),
        ({"udf_name": "double", "inputs": ["nope"]}, "INPUT_COLUMN_MISSING"),
        ({"udf_name": "double", "inputs": ["__is_set"]}, "RESERVED_NAME"),
        ({"udf_name": "nope"}, "UDF_NOT_FOUND"),
        ({"udf_name": "double", "column": "loud"}, "COLUMN_NOT_DEFINED"),
        ({"udf_name": "double", "column": "nope"}, "COLUMN_NOT_DEFINED"),
        ({"udf_name": ""}, "BAD_UDF"),
        ({"udf_name": "sql"}, "BAD_REQUEST"),
        ({"udf_name": "double", "column": ""}, "BAD_REQUEST"),
        ({"udf_name": "double", "mask": ()}, "BAD_UPDATE_MASK"),
        ({"udf_name": "double", "mask": ("functions", "where")}, "BAD_UPDATE_MASK"),
        ({"udf_name": "double", "name": "t"}, "NOT_A_VIEW"),
    ],
)
def test_functions_that_do_not_fit_are_refused(filled, asked, reason):
    async def work(stubs):
        return await error_of(stubs.catalog.AlterMaterializedView(alter(filled, **asked)))

    before = filled.open().version
    assert served(work)[1].reason == reason
    assert filled.open().version == before


def test_a_function_with_other_parameters_reads_the_columns_of_their_names(filled):
    async def work(stubs):
        await stubs.catalog.AlterMaterializedView(alter(filled, "other"))
        return await stubs.planning.PlanRefresh(refresh(filled))

    assert list(served(work).functions[0].column.input_columns) == ["body"]


def test_columns_are_added_to_queries_not_to_views(filled):
    async def work(stubs):
        table = catalog_pb2.TableRef(database=filled.database, table="v")
        column = catalog_pb2.NewColumn(name="more", udf=udf_pb2.UdfRef(name="double"))
        return await error_of(stubs.catalog.AddColumns(catalog_pb2.AddColumnsRequest(table=table, columns=[column])))

    assert served(work)[1].reason == "IS_A_VIEW"


def test_a_backfill_of_a_view_is_told_to_refresh_it(filled):
    async def work(stubs):
        table = catalog_pb2.TableRef(database=filled.database, table="v")
        asked = planner_pb2.ExplainPlanRequest(spec=planner_pb2.BackfillSpec(table=table, column="d"))
        return await error_of(stubs.plans.ExplainPlan(asked))

    code, error = served(work)
    assert (code, error.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "IS_A_VIEW")
    assert "refresh it" in error.message


# lists


def listed(lake, **fields):
    return catalog_pb2.ListMaterializedViewsRequest(database=lake.database, **fields)


def test_views_are_listed_with_their_sources_and_rows(filled):
    async def work(stubs):
        await stubs.catalog.CreateMaterializedView(create(filled, "empty", where="id < 3"))
        await stubs.catalog.AlterMaterializedView(alter(filled, "double", "2"))
        whole = await stubs.catalog.GetMaterializedView(described(filled))
        return whole.view, (await stubs.catalog.ListMaterializedViews(listed(filled))).views

    whole, (empty, view) = served(work)
    for name in ("name", "uri", "version", "source_version", "row_reference", "row_count", "rows_set", "stale_columns"):
        assert getattr(view, name) == getattr(whole, name), name
    assert view.source == whole.query.source
    assert list(view.stale_columns) == ["d"]
    assert (empty.name, empty.row_count, empty.rows_set, list(empty.stale_columns)) == ("empty", 3, 0, [])


def test_rows_of_a_compacted_view_are_not_counted_for_a_list(lake):
    async def work(stubs):
        await stubs.catalog.CreateMaterializedView(create(lake, max_rows_per_fragment=10))
        lake.fill()
        lance.dataset(f"{lake.database}/v.lance").optimize.compact_files()
        (view,) = (await stubs.catalog.ListMaterializedViews(listed(lake))).views
        return view, (await stubs.catalog.GetMaterializedView(described(lake))).view

    view, whole = served(work)
    assert (view.row_count, view.HasField("rows_set")) == (25, False)
    assert (whole.row_count, whole.rows_set) == (25, 25)


def test_a_page_holds_the_views_among_the_tables_that_were_looked_at(lake, monkeypatch):
    """Views stand between tables; a damaged one is reported, and the list continues."""
    monkeypatch.setattr(view_catalog, "MOST_TABLES", 3)

    async def work(stubs):
        for name in ("a", "n", "v", "z"):
            await stubs.catalog.CreateMaterializedView(create(lake, name))
        for name in ("b", "c", "d", "e", "f"):
            lance.write_dataset(rows(1), f"{lake.database}/{name}.lance")
        lance.dataset(f"{lake.database}/n.lance").update_schema_metadata({QUERY: "{"})
        pages, tokens = [], [""]
        while tokens[-1] or not pages:
            request = listed(lake, page_size=1, page_token=tokens[-1])
            pages.append(await stubs.catalog.ListMaterializedViews(request))
            tokens.append(pages[-1].next_page_token)
        other = listed(lake, page_token=tokens[1])
        other.database += "/elsewhere"
        wrong = [await error_of(stubs.catalog.ListMaterializedViews(r)) for r in (other, listed(lake, page_size=-1))]
        return pages, [error.reason for _, error in wrong]

    pages, wrong = served(work)
    names = [[view.name for view in page.views] for page in pages]
    assert [name for page in names for name in page] == ["a", "v", "z"]
    assert [] in names, "a page of tables alone"
    (warning,) = [text for page in pages for text in page.warnings]
    assert warning.startswith("n: The table's metadata does not say what the view holds")
    assert wrong == ["BAD_PAGE_TOKEN", "BAD_PAGE_SIZE"]


# scratch tables: hidden tables whose columns are computed from another table's


@pytest.fixture
def scratch_table(lake):
    """A scratch table of the first 20 rows, with `d` = length(body of t)."""
    lake.registry.put(LENGTH)
    uri = f"{lake.database}/__leman_scratch_v.lance"
    ids = pa.table({"__source_row_id": pa.array(range(20), pa.int64())})
    dataset = lance.write_dataset(ids, uri, max_rows_per_file=10)
    source = InputSource(lake.uri, 1, ("body",))
    bound = ColumnBinding("digest-d", "length", "1", (ColumnInput("__source_row_id", 0),), source=source)
    dataset.add_columns(column_bindings.bind(pa.field("d", pa.int64()), bound))
    return source


def test_a_scratch_table_is_planned_like_any_table(lake, scratch_table):
    async def work(stubs):
        spec = convert_plans.spec_to_proto(BackfillSpec(lake.database, "__leman_scratch_v", "d"))
        return [
            m async for m in stubs.planning.CreatePlan(planning_pb2.CreatePlanRequest(spec=spec, reads_batches=True))
        ]

    header, part = served(work)
    plan = convert_plans.header_from_proto(header.header)
    assert plan.input_source == scratch_table
    assert plan.input_columns == ("__source_row_id",)
    assert [task.physical_rows for task in convert_plans.tasks_from_bytes([part.task_batch])] == [10, 10]


def test_nobody_describes_or_changes_a_scratch_table(lake, scratch_table):
    table = catalog_pb2.TableRef(database=lake.database, table="__leman_scratch_v")
    column = catalog_pb2.NewColumn(name="e", sql_expression="1")
    altered = catalog_pb2.ColumnAlteration(column=column)
    for call in (
        lambda stubs: stubs.catalog.DescribeTable(catalog_pb2.DescribeTableRequest(table=table)),
        lambda stubs: stubs.catalog.AddColumns(catalog_pb2.AddColumnsRequest(table=table, columns=[column])),
        lambda stubs: stubs.catalog.AlterColumns(catalog_pb2.AlterColumnsRequest(table=table, columns=[altered])),
    ):
        code, error = served(lambda stubs, call=call: error_of(call(stubs)))
        assert (code, error.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "RESERVED_NAME")


def test_what_the_function_reads_is_not_looked_for_in_the_scratch_table(lake, scratch_table):
    """Its parameter is called text and is one; the scratch table has row ids only."""
    plan = PlanMaker(LanceTables()).plan(BackfillSpec(lake.database, "__leman_scratch_v", "d"))
    assert plan.header.input_source == scratch_table
    assert plan.header.input_field_ids == (0,)
    assert plan.header.udf == LENGTH
