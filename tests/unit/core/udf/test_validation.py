"""Whether a function can fill a column, and what is said where it cannot."""

import dataclasses

import pyarrow as pa
import pytest

from leman._format import column_bindings
from leman._format.column_bindings import ColumnBinding, ColumnInput, FunctionVersion
from leman._format.stored_functions import UdfDefinition, UdfKind
from leman_core.functions import binding, column_checks
from leman_core.functions.column_checks import NewColumn
from leman_core.model.service_errors import AlreadyExists, DataLoss, FailedPrecondition, InvalidArgument
from leman_core.model.table import TableField, TableSnapshot

TABLE = TableSnapshot(
    uri="/d/t.lance",
    version=3,
    incarnation="",
    fields=(
        TableField(pa.field("body", pa.string()), (0,)),
        TableField(pa.field("title", pa.large_string()), (1,)),
        TableField(pa.field("pages", pa.int32()), (2,)),
        TableField(pa.field("box", pa.struct([("w", pa.int32())])), (3, 4)),
    ),
    fragments=(),
)
UDF = UdfDefinition("count", "1", UdfKind.SCALAR, ("body",), pa.int32(), input_types=(pa.string(),), entrypoint="m:f")
COLUMN = NewColumn("n", "count", "1")


def refused(kind, reason, column=COLUMN, udf=UDF):
    with pytest.raises(kind) as caught:
        column_checks.new_field(column, udf, TABLE, "id")
    assert caught.value.reason == reason
    return caught.value.message


@pytest.mark.parametrize("zone", ["Mars/Olympus", "europe", "+2", "../UTC", "Europe"])
def test_a_time_zone_of_which_nothing_is_known_is_refused(zone):
    for kind in (pa.timestamp("us", zone), pa.list_(pa.struct([("at", pa.timestamp("s", zone))]))):
        message = refused(FailedPrecondition, "TYPE_NOT_STORABLE", udf=dataclasses.replace(UDF, output_type=kind))
        assert f"the time zone '{zone}' is unknown" in message


@pytest.mark.parametrize("zone", ["UTC", "Europe/Zurich", "+02:00", "-0930", "EST5EDT"])
def test_known_time_zones_and_offsets_are_taken(zone):
    udf = dataclasses.replace(UDF, output_type=pa.timestamp("us", zone))
    assert column_checks.new_field(COLUMN, udf, TABLE, "id").type.tz == zone


def test_the_new_field_says_who_fills_it():
    field = column_checks.new_field(COLUMN, UDF, TABLE, "id")
    assert (field.name, field.type, field.nullable) == ("n", pa.int32(), True)
    assert binding.read(field) == ColumnBinding("id", "count", "1", (ColumnInput("body", 0),), "n")
    assert set(field.metadata) == {
        b"leman::column_id",
        b"leman::udf_name",
        b"leman::udf_version",
        b"leman::inputs",
        b"leman::added_as",
        b"leman::digest",
        b"leman::format",
    }
    assert field.metadata[b"leman::inputs"] == b'[["body", 0]]'


def test_columns_may_be_mapped_in_parameter_order():
    udf = dataclasses.replace(UDF, input_columns=("a", "b"), input_types=())
    field = column_checks.new_field(dataclasses.replace(COLUMN, input_columns=("box", "body")), udf, TABLE, "id")
    bound = binding.read(field)
    assert bound is not None
    assert bound.inputs == (ColumnInput("box", 3), ColumnInput("body", 0))


def test_a_missing_input_is_named_with_what_may_be_meant():
    message = refused(FailedPrecondition, "INPUT_COLUMN_MISSING", dataclasses.replace(COLUMN, input_columns=("Bodi",)))
    assert message.startswith("UDF expects input columns ['Bodi'] which are not found")
    assert "Did you mean body?" in message
    far = refused(FailedPrecondition, "INPUT_COLUMN_MISSING", dataclasses.replace(COLUMN, input_columns=("zzz",)))
    assert "The table has body, title, pages, box." in far


def test_the_number_of_columns_must_be_that_of_the_parameters():
    column = dataclasses.replace(COLUMN, input_columns=("body", "title"))
    assert "takes 1 columns (body), 2 are given" in refused(FailedPrecondition, "INPUT_COUNT_MISMATCH", column)


def test_a_declared_type_must_be_that_of_the_column():
    message = refused(FailedPrecondition, "TYPE_MISMATCH", dataclasses.replace(COLUMN, input_columns=("pages",)))
    assert message.startswith("Type mismatch for column pages: function count declares string, the column is int32")


def test_an_existing_column_is_not_added_again():
    told = "'title' exists already and holds plain data, which no function computes, so on_change does not apply"
    message = refused(AlreadyExists, "COLUMN_EXISTS", NewColumn("title", "count", "1"))
    assert told in message
    assert "drop" not in message  # source data
    computed = TableField(column_checks.new_field(COLUMN, UDF, TABLE, "id"), (5,))
    with pytest.raises(AlreadyExists, match="'n' exists already and is computed: alter it"):
        column_checks.new_field(COLUMN, UDF, dataclasses.replace(TABLE, fields=(*TABLE.fields, computed)), "id")


def test_a_column_is_not_computed_from_itself():
    column = dataclasses.replace(COLUMN, input_columns=("n",))
    assert "cannot be computed from itself" in refused(FailedPrecondition, "INPUT_IS_OUTPUT", column)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "  ",
        "a.b",
        "_rowid",
        "_ROWADDR",
        "_row_last_updated_at_version",
        "__leman_x",
        "a\nb",
        "a\0",
        "tick`",
        "x" * 1025,
    ],
)
def test_names_that_break_a_table_are_refused(name):
    message = refused(InvalidArgument, "BAD_COLUMN_NAME", dataclasses.replace(COLUMN, name=name))
    assert "cannot be a column" in message


@pytest.mark.parametrize("name", ["with space", "a/b", 'quo"ted', "it's", "größe", "_private", "-", "日本"])
def test_unusual_names_are_fine(name):
    assert column_checks.new_field(dataclasses.replace(COLUMN, name=name), UDF, TABLE, "id").name == name


@pytest.mark.parametrize(
    ("declared", "actual", "same"),
    [
        (pa.string(), pa.large_string(), True),
        (pa.string_view(), pa.string(), True),
        (pa.large_binary(), pa.binary(), True),
        (pa.string(), pa.binary(), False),
        (pa.int32(), pa.int64(), False),
        (pa.float32(), pa.float64(), False),
        (pa.uint8(), pa.int8(), False),
        (pa.list_(pa.large_string()), pa.large_list(pa.string()), True),
        (pa.list_(pa.int32()), pa.list_(pa.int64()), False),
        (pa.list_(pa.float32(), 4), pa.list_(pa.float32(), 4), True),
        (pa.list_(pa.float32(), 4), pa.list_(pa.float32(), 8), False),
        (pa.list_(pa.float32(), 4), pa.list_(pa.float32()), False),
        (pa.struct([("a", pa.string())]), pa.struct([("a", pa.large_string())]), True),
        (pa.struct([("a", pa.string())]), pa.struct([("b", pa.string())]), False),
        (pa.map_(pa.string(), pa.int32()), pa.map_(pa.large_string(), pa.int32()), True),
        (pa.timestamp("us"), pa.timestamp("us", "UTC"), False),
        (pa.decimal128(10, 2), pa.decimal128(10, 3), False),
    ],
    ids=str,
)
def test_types_are_equal_but_for_the_width_of_offsets(declared, actual, same):
    assert column_checks.same_type(declared, actual) is same
    assert column_checks.same_type(actual, declared) is same


def test_an_output_of_another_type_is_refused():
    with pytest.raises(FailedPrecondition, match="Type mismatch for column pages") as caught:
        column_checks.check_output_type(TABLE.fields[2], dataclasses.replace(UDF, output_type=pa.int64()))
    assert caught.value.reason == "TYPE_MISMATCH"


def test_other_metadata_of_a_field_stays():
    bound = ColumnBinding("id", "f", "1", (ColumnInput('ä "x"', 7), ColumnInput("y", 8)))
    field = column_bindings.bind(pa.field("c", pa.int8(), metadata={"unit": "m"}), bound)
    assert field.metadata[b"unit"] == b"m"
    assert binding.read(field) == bound
    assert binding.read(pa.field("c", pa.int8(), metadata={"unit": "m"})) is None


@pytest.mark.parametrize("inputs", [b"", b"{}x", b'[["x"]]', b'[["x", "y"]]', b"7"])
def test_a_damaged_binding_is_an_error_and_not_plain_data(inputs):
    field = column_bindings.bind(pa.field("c", pa.int8()), ColumnBinding("id", "f", "1", ()))
    broken = field.with_metadata({**field.metadata, b"leman::inputs": inputs})
    with pytest.raises(DataLoss, match="'c'") as caught:
        binding.read(broken)
    assert caught.value.reason == "BINDING_DAMAGED"


@pytest.mark.parametrize("name", ["back`tick", "`", "*"])
def test_names_under_which_lance_finds_no_column(name):
    assert "Lance cannot read" in refused(InvalidArgument, "BAD_COLUMN_NAME", dataclasses.replace(COLUMN, name=name))
    table = dataclasses.replace(TABLE, fields=(TableField(pa.field(name, pa.string()), (0,)),))
    with pytest.raises(InvalidArgument, match="Lance cannot read a column that is called") as caught:
        column_checks.find_inputs([name], UDF, table)
    assert caught.value.reason == "BAD_COLUMN_NAME"


def test_a_column_keeps_values_of_a_bounded_number_of_versions():
    kept = tuple(FunctionVersion("count", str(n)) for n in range(2, 2 + column_checks.MOST_KEPT))
    before = column_checks.new_field(COLUMN, UDF, TABLE, "id")
    bound = binding.read(before)
    assert bound is not None
    new = dataclasses.replace(UDF, version="99")
    inputs = [TABLE.fields[0]]
    last = column_checks.kept_functions("n", dataclasses.replace(bound, kept=kept[:-1]), new, inputs, TABLE)
    assert len(last) == column_checks.MOST_KEPT
    with pytest.raises(FailedPrecondition) as caught:
        column_checks.kept_functions("n", dataclasses.replace(bound, kept=kept), new, inputs, TABLE)
    assert caught.value.reason == "TOO_MANY_KEPT"
