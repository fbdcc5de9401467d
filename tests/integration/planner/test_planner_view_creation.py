"""What is checked and resolved before a view is made, on real tables."""

import lance
import pyarrow as pa
import pytest

from leman._format.stored_functions import UdfDefinition, UdfKind
from leman._format.view_definitions import ViewColumn, ViewFunction
from leman_core.model.service_errors import AlreadyExists, FailedPrecondition, InvalidArgument, LemanError, NotFound
from leman_core.model.view_metadata import read
from tests.integration.views.view_lake import ViewLake, column

SQL = UdfDefinition("plus", "1", UdfKind.SQL, ("a", "b"), pa.int64(), sql_expression="a + b")


@pytest.fixture
def lake(tmp_path):
    return ViewLake(tmp_path, 1)


def made(lake, *columns, **options):
    creation = lake.creation(lake.query(*columns, **options))
    return creation, read(creation.schema)


def refused(lake, *columns, **options):
    with pytest.raises(LemanError) as caught:
        made(lake, *columns, **options)
    return caught.value


def test_the_definition_says_where_the_view_comes_from(lake):
    creation, found = made(lake, column("id"), where="x > 3", shuffle=True, seed=7, limit=5, offset=2)
    assert creation.uri == f"{lake.database}/v.lance"
    assert (found.source_uri, found.base_version) == (lake.uri, 1)
    assert found.query.database == lake.database
    assert (found.query.where, found.query.seed, found.query.limit, found.query.offset) == ("x > 3", 7, 5, 2)
    assert not creation.warnings


def test_no_columns_are_all_columns(lake):
    creation, found = made(lake)
    assert creation.schema.names == ["__source_row_id", "__is_set", "id", "x", "body", "box"]
    assert [c.source_column for c in found.query.columns] == ["id", "x", "body", "box"]
    assert creation.schema.field("box").type == lake.source().schema.field("box").type


def test_case_in_columns_and_filter(lake):
    size = ViewColumn("size", "case when x > 3 then 'large' else 'small' end")
    creation, found = made(lake, size, where="case when x > 3 then 1 else 0 end = 1")
    assert creation.schema.field("size").type == pa.string()
    assert found.query.columns[0].expression == size.expression
    assert "END" in refused(lake, column("id"), where="case when x > 3 then 1").message


def test_internal_columns_have_their_types(lake):
    schema = made(lake)[0].schema
    assert schema.field("__source_row_id").type == pa.int64()
    assert schema.field("__is_set").type == pa.bool_()
    assert all(field.nullable for field in schema)


def test_aliases_and_expressions_get_their_types(lake):
    creation, found = made(
        lake,
        ViewColumn("number", "`id`", "id"),
        ViewColumn("plain", "x"),
        ViewColumn("loud", "upper(body)"),
        ViewColumn("wide", "box.w > 3"),
    )
    assert {f.name: f.type for f in creation.schema}["loud"] == pa.string()
    assert creation.schema.field("wide").type == pa.bool_()
    assert [c.source_column for c in found.query.columns] == ["id", "x", "", ""]


def test_functions_are_pinned_and_come_last(lake):
    creation, found = made(lake, column("id"), functions=[ViewFunction("d", "double", "", ())])
    assert creation.schema.names[-1] == "d"
    assert found.query.functions == (ViewFunction("d", "double", "1", ("x",)),)
    assert found.filled == {"d": "double@1"}


def test_sql_functions_need_no_scratch_table(lake):
    lake.registry.put(SQL)
    _, found = made(lake, column("id"), functions=[ViewFunction("s", "plus", "1", ("id", "x"))])
    assert found.query.functions == ()
    assert found.query.columns[-1].name == "s"
    assert found.query.columns[-1].expression == "`id` + `x`"


@pytest.mark.parametrize("file_format", ["2.1", "2.2"])
def test_blobs_are_plain_blobs_in_a_view(lake, file_format):
    blob = pa.field("raw", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    table = pa.table([pa.array([b"x"], pa.large_binary())], schema=pa.schema([blob]))
    if file_format == "2.2":
        table = pa.table({"raw": lance.blob_array([b"x"])})
    uri = f"{lake.database}/files.lance"
    lance.write_dataset(table, uri, data_storage_version=file_format, enable_stable_row_ids=True)
    schema = made(lake, table="files")[0].schema
    assert schema.field("raw").metadata == {b"lance-encoding:blob": b"true"}
    assert schema.field("raw").type == pa.large_binary()


def test_what_makes_a_column_computed_stays_behind(lake):
    own = pa.field("c", pa.int64(), metadata={"leman::column_id": "1", "leman::udf_name": "f", "mine": "yes"})
    lance.write_dataset(pa.table([[1]], schema=pa.schema([own])), f"{lake.database}/computed.lance")
    assert made(lake, table="computed")[0].schema.field("c").metadata == {b"mine": b"yes"}


@pytest.mark.parametrize(
    ("expression", "named"),
    [
        ("now()", "now"),
        ("random() * x", "random"),
        ("uuid()", "uuid"),
        ("current_date", "current_date"),
        ("current_timestamp", "current_timestamp"),
    ],
)
def test_volatile_functions_are_refused_by_name(lake, expression, named):
    error = refused(lake, ViewColumn("v", expression))
    assert error.reason == "VOLATILE_FUNCTION"
    assert named in error.message
    error = refused(lake, where=f"{expression} IS NOT NULL")
    assert error.reason == "VOLATILE_FUNCTION"
    assert error.field == "where"


@pytest.mark.parametrize("expression", ["x % 0", "date_part('bogus', to_timestamp(x))"])
def test_sql_that_no_row_can_compute_is_refused_before_a_refresh(lake, expression):
    error = refused(lake, ViewColumn("v", expression))
    assert (error.reason, error.field) == ("INVALID_EXPRESSION", "query.columns.expression")
    assert "fails for every row" in error.message
    error = refused(lake, where=f"{expression} = 1")
    assert error.reason == "INVALID_FILTER"
    assert "fails for every row" in error.message


@pytest.mark.parametrize("expression", ["sum(x)", "COUNT(*)", "avg(x) > 1", "array_agg(body)", "max(x)"])
def test_aggregates_are_refused_by_name(lake, expression):
    error = refused(lake, ViewColumn("v", expression))
    assert error.reason == "INVALID_EXPRESSION"
    assert "is an aggregate" in error.message
    assert expression.partition("(")[0].lower() in error.message
    assert refused(lake, where=f"{expression} > 1").reason == "INVALID_FILTER"


@pytest.mark.parametrize("expression", ["row_number() over (order by x)", "sum(x) over (order by id)", "rank()"])
def test_windows_are_refused_by_name(lake, expression):
    assert "window" in refused(lake, ViewColumn("v", expression)).message


def test_words_of_windows_and_aggregates_can_be_columns(lake):
    table = pa.table({"over": [1], "rank": [2], "count": [3]})
    lance.write_dataset(table, f"{lake.database}/words.lance", enable_stable_row_ids=True)
    _, found = made(lake, ViewColumn("s", "over + rank"), table="words", where="count > 1")
    assert found.query.columns[0].expression == "over + rank"


@pytest.mark.parametrize("expression", ["x + 1; drop", "x -- y", "x + $1", "x\u200b + 1", "x + " * 1200 + "x"])
def test_what_is_no_expression_names_its_column_and_its_length_before_all(lake, expression):
    error = refused(lake, ViewColumn("v", expression))
    assert (error.reason, error.field) == ("INVALID_EXPRESSION", "query.columns.expression")
    assert error.message.startswith("Column 'v': Invalid SQL expression: ")
    assert ("at most 4096 are allowed" in error.message) is (len(expression) > 4096)


@pytest.mark.parametrize("where", ["nope > 1", "x >", "x > 1 LIMIT 3", "repeat('a', 9) = 'a'", "x > 1; drop", "body"])
def test_bad_filters(lake, where):
    error = refused(lake, where=where)
    assert isinstance(error, InvalidArgument)
    assert error.reason == "INVALID_FILTER"


@pytest.mark.parametrize("name", ["__source_row_id", "__is_set", "_rowid", "__leman_x", "_ROWADDR"])
def test_internal_names(lake, name):
    assert refused(lake, ViewColumn(name, "x + 1")).reason == "RESERVED_NAME"
    assert refused(lake, column("id"), functions=[ViewFunction(name, "double", "", ())]).reason == "RESERVED_NAME"


@pytest.mark.parametrize("name", ["__source_row_id", "__is_set"])
def test_internal_columns_of_a_source_view_are_not_there(lake, name):
    lake.create(name="w")
    assert refused(lake, ViewColumn("mine", f"`{name}`", name), table="w").reason == "RESERVED_NAME"
    assert refused(lake, ViewColumn("mine", f"{name} IS NULL"), table="w").reason == "RESERVED_NAME"
    assert refused(lake, where=f"{name} IS NULL", table="w").reason == "RESERVED_NAME"
    function = ViewFunction("d", "double", "", (name,))
    assert refused(lake, functions=[function], table="w").reason == "RESERVED_NAME"


def test_row_ids_are_no_part_of_a_view(lake):
    assert refused(lake, where="_rowid > 3").reason == "RESERVED_NAME"
    assert refused(lake, ViewColumn("v", "_row_last_updated_at_version")).reason == "RESERVED_NAME"


def test_unknown_column(lake):
    error = refused(lake, column("nope"))
    assert isinstance(error, FailedPrecondition)
    assert error.reason == "COLUMN_NOT_FOUND"
    assert error.message.startswith("Column 'nope' not found in table schema")


def test_unknown_column_in_an_expression(lake):
    error = refused(lake, ViewColumn("v", "nope + 1"))
    assert error.reason == "INPUT_COLUMN_MISSING"
    assert "Column 'v'" in error.message
    assert "'nope'" in error.message


@pytest.mark.parametrize("name", ["a.b", "", "a\nb", "a`b"])
def test_names_that_lance_does_not_take(lake, name):
    assert refused(lake, ViewColumn(name, "x + 1")).reason == "BAD_COLUMN_NAME"


def test_name_clashes(lake):
    assert refused(lake, column("id"), ViewColumn("id", "x + 1")).reason == "NAME_CLASH"
    error = refused(lake, functions=[ViewFunction("x", "double", "", ())])
    assert error.reason == "NAME_CLASH"
    assert "'x'" in error.message


def test_functions_against_the_source(lake):
    assert refused(lake, functions=[ViewFunction("d", "nope", "", ())]).reason == "UDF_NOT_FOUND"
    assert refused(lake, functions=[ViewFunction("d", "double", "", ("nope",))]).reason == "INPUT_COLUMN_MISSING"
    assert refused(lake, functions=[ViewFunction("d", "double", "", ("x", "id"))]).reason == "INPUT_COUNT_MISMATCH"
    error = refused(lake, functions=[ViewFunction("d", "double", "", ("body",))])
    assert error.reason == "TYPE_MISMATCH"
    assert error.message.startswith("Type mismatch for column body")


@pytest.mark.parametrize("numbers", [{"limit": -1}, {"offset": -1}, {"seed": 7}])
def test_numbers_that_make_no_sense(lake, numbers):
    assert refused(lake, **numbers).reason == "BAD_NUMBER"


def test_source_that_is_not_there(lake):
    with pytest.raises(NotFound) as caught:
        made(lake, table="nothing")
    assert caught.value.reason == "TABLE_NOT_FOUND"


@pytest.mark.parametrize("name", ["t", "v"])
def test_names_of_tables_are_taken(lake, name):
    lake.create()
    with pytest.raises(AlreadyExists) as caught:
        lake.creation(lake.query(), name)
    assert caught.value.reason == "TABLE_EXISTS"


@pytest.mark.parametrize("name", ["_", "__scratch", "-x"])
def test_a_view_is_named_as_a_table_may_be(lake, name):
    with pytest.raises(InvalidArgument, match="begin with a letter or a digit") as caught:
        lake.creation(lake.query(), name)
    assert (caught.value.reason, caught.value.field) == ("BAD_TABLE_NAME", "view.table")


@pytest.mark.parametrize("name", ["v" * 201, "é" * 101, "v" * 300])
def test_a_name_leaves_room_for_that_of_a_scratch_table(lake, name):
    with pytest.raises(InvalidArgument) as caught:
        lake.creation(lake.query(), name)
    assert caught.value.reason == "BAD_TABLE_NAME"
    assert refused(lake, table=name * 2).reason == "BAD_TABLE_NAME"


def test_scratch_tables_are_nobodys_tables(lake):
    with pytest.raises(InvalidArgument) as caught:
        lake.creation(lake.query(), "__leman_scratch_1")
    assert caught.value.reason == "RESERVED_NAME"
    assert refused(lake, table="__leman_scratch_1").reason == "RESERVED_NAME"


def test_a_view_with_a_blob_holds_no_map(lake):
    blob = pa.field("raw", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    schema = pa.schema([blob, pa.field("m", pa.map_(pa.string(), pa.int32()))])
    rows = pa.table({"raw": [b"x"], "m": [[("a", 1)]]}, schema=schema)
    lance.write_dataset(rows, f"{lake.database}/maps.lance", data_storage_version="2.2", enable_stable_row_ids=True)
    error = refused(lake, table="maps")
    assert (error.reason, error.facts["column"]) == ("TYPE_NOT_STORABLE", "m")
    assert "in a view with a blob column ('raw'): leave out one of the two" in error.message
    assert made(lake, column("m"), table="maps")[0].schema.field("m").type == schema.field("m").type


def test_a_column_of_a_type_that_cannot_be_read_is_refused(lake):
    """Lance writes a fixed-size list of structs, and then does not find its values."""
    pairs = pa.array([[{"a": 1}, {"a": 2}]], pa.list_(pa.struct([("a", pa.int32())]), 2))
    lance.write_dataset(pa.table({"x": pairs}), f"{lake.database}/pairs.lance", enable_stable_row_ids=True)
    lake.registry.put(UdfDefinition("said", "1", UdfKind.SCALAR, ("x",), pa.string(), entrypoint="m:said"))
    for query in (
        {"columns": [column("x")]},
        {"columns": [ViewColumn("n", "cardinality(x)")]},
        {"columns": [], "functions": [ViewFunction("s", "said", "", ("x",))]},
    ):
        error = refused(lake, *query.pop("columns"), table="pairs", **query)
        assert error.reason == "TYPE_NOT_STORABLE", query
        assert "Column 'x'" in error.message
