"""Expressions that compute a column: judged from the text, followed through renames, registered as functions."""

from __future__ import annotations

import datetime as dt

import lance
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from leman._format import stored_functions
from leman._format.stored_functions import ErrorAction, ErrorPolicy, ErrorRule, UdfDefinition, UdfKind
from leman_core.functions import function_definitions
from leman_core.functions.function_definitions import check_definition
from leman_core.model.service_errors import InvalidArgument, LemanError
from leman_core.sql import expressions
from leman_core.sql.filters import tokenize
from leman_core.sql.time_values import pin_relative_times
from leman_core.storage.lance_tables import LanceTables
from leman_core.storage.udf_registry import UdfRegistry
from leman_core.wire import convert_udfs
from leman_planner.catalog import table_catalog

COLUMNS = ["x", "Title", "we ird", "s", "length", "double"]


@pytest.mark.parametrize(
    ("expression", "read"),
    [
        ("upper(Title)", ("Title",)),
        ("TITLE || title", ("Title",)),
        ("X * 2 + `we ird`", ("x", "we ird")),
        ("length(length)", ("length",)),
        ("'x' || \"x\"", ()),
        ("s.Title + s['x'] + s.x", ("s",)),
        ("cast(x as double)", ("x",)),
        ("x::double + double", ("x", "double")),
        ("nope", ()),
    ],
)
def test_columns_that_it_reads(expression, read):
    assert expressions.columns_of_expression(expression, COLUMNS) == read


def test_a_name_as_it_stands_comes_before_one_in_another_case():
    assert expressions.columns_of_expression("X + x", ["x", "X"]) == ("X", "x")


def test_other_names_in_place_of_its_columns():
    names = {"title": "head `line", "s": "s"}
    text = "upper(title) || 'title' || s.title || title(title)"
    expected = "upper(`head ``line`) || 'title' || s.title || title(`head ``line`)"
    assert expressions.rename_columns(text, names) == expected
    swapped = expressions.rename_columns("a - b", {"a": "b", "b": "a"})
    assert swapped == "`b` - `a`"


@given(st.lists(st.sampled_from([*"x()[]+-.,2", "`we ird`", "upper", "in", "'a  b'", "::"])))
@example(["2", ".", "2"])
@example(["x", ".", "x", "[", "2", "]"])
def test_white_space_makes_no_difference(pieces):
    once = expressions.normalize_spaces(" ".join(pieces))
    assert expressions.normalize_spaces("\n\t".join(pieces)) == once
    assert expressions.normalize_spaces(once) == once
    assert [t.text for t in tokenize(once)] == pieces


@pytest.mark.parametrize("name", ["now()", "random() + x", "`random`() + x", "uuid()", "x > CURRENT_DATE", "today()"])
def test_what_says_something_else_each_time_is_refused(name):
    with pytest.raises(InvalidArgument, match="at each call") as raised:
        expressions.check_expression(name, COLUMNS)
    assert raised.value.reason == "INVALID_EXPRESSION"


def test_what_filters_refuse_is_refused():
    with pytest.raises(InvalidArgument, match=r"^Invalid SQL expression: function 'repeat'"):
        expressions.check_expression("repeat(Title, 1000000000)", COLUMNS)
    with pytest.raises(InvalidArgument, match="comments are not allowed"):
        expressions.check_expression("x -- y", COLUMNS)


@pytest.mark.parametrize(
    "sql",
    [
        "cast(123456789012345678901234567890 as decimal(38, 0))",
        "try_cast(-18446744073709551617 as decimal(38, 0))",
        "12345678901234567.89::decimal(38, 2)",
        "arrow_cast(123456789012345678901234567890, 'Decimal128(38, 0)')",
    ],
)
def test_a_number_that_loses_digits_before_it_is_cast_is_refused(sql):
    with pytest.raises(InvalidArgument, match="has more digits than a double"):
        expressions.check_expression(sql, COLUMNS)


@pytest.mark.parametrize(
    "sql",
    [
        "cast('123456789012345678901234567890' as decimal(38, 0))",
        "cast(18446744073709551615 as decimal(38, 0))",
        "cast(1.005 as decimal(10, 2))",
        "cast(3.14159265358979323846 as double) * 3.14159265358979323846",
        "cast(1000000000000000000000000000000 as decimal(38, 0))",
    ],
)
def test_a_number_that_a_double_says_may_be_cast(sql):
    expressions.check_expression(sql, COLUMNS)


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("cast(x as decimal(99, 2))", "1 to 38 digits, and arrow_cast"),
        ("x::DECIMAL(39)", "1 to 38 digits"),
        ("try_cast(x as decimal(10, 39))", "1 to 38 digits"),
        ("cast(x as decimal(0, 0))", "1 to 38 digits"),
        (f"cast(x as decimal({'9' * 4000}, 2))", "9… is not a valid type"),
        ("arrow_cast(x, 'List(Decimal128(39, 2))')", "1 to 38 digits"),
        ("arrow_cast(x, 'Decimal256( 77 , 2 )')", "1 to 76 digits"),
        ("arrow_cast(x, 'Decimal32(10, 2)')", "1 to 9 digits"),
        ("arrow_cast(x, 'Decimal128(-1, -99)')", "1 to 38 digits"),
    ],
)
def test_a_decimal_with_more_digits_than_there_are_is_refused(sql, said):
    """Lance panics over it, or fails when it reads rows."""
    with pytest.raises(InvalidArgument, match=said):
        expressions.check_expression(sql, COLUMNS)


@pytest.mark.parametrize(
    "sql",
    ["cast(x as decimal(38, 38))", "cast(x as decimal(38, -3))", "arrow_cast(x, 'Decimal256(76, 2)')", "decimal"],
)
def test_a_decimal_that_there_is_may_be_cast_to(sql):
    expressions.check_expression(sql, COLUMNS)


@pytest.mark.parametrize(
    "sql",
    [
        f"{'f' * 4000}(x)",
        f"x > {'1' * 4000}.5 and cast({'1' * 4000}.5 as decimal(38, 0)) > 1",
        f"x > now() - interval '{'1 day ' * 600}x'",
        f"{'x.' * 1900}a > 1",
        f"`{'y' * 4000}` > 1",
        "x > 1 " + "and " * 40 + "x > 2",
    ],
)
def test_a_refusal_repeats_no_more_of_a_text_than_a_person_reads(tmp_path, sql):
    lance.write_dataset(pa.table({"x": [1]}), tmp_path / "t.lance")
    with pytest.raises(LemanError) as refused:
        LanceTables().check_filter(str(tmp_path / "t.lance"), pin_relative_times(sql, dt.datetime.now(dt.UTC)))
    assert len(str(refused.value)) + sum(map(len, refused.value.facts.values())) < 1500


def test_the_version_says_what_is_computed():
    one = table_catalog.sql_function_definition("x * 2", ("x",), pa.int64())
    assert one == table_catalog.sql_function_definition(" x*2 ", ("x",), pa.int64())
    others = [
        table_catalog.sql_function_definition("x * 3", ("x",), pa.int64()),
        table_catalog.sql_function_definition("x * 2", ("x",), pa.int32()),
        table_catalog.sql_function_definition("x * 2", ("X",), pa.int64()),
    ]
    assert len({one.version, *(o.version for o in others)}) == 4
    assert (one.name, one.kind, one.sql_expression) == ("sql", UdfKind.SQL, "x * 2")


def test_a_definition_travels_and_is_stored(tmp_path):
    one = table_catalog.sql_function_definition("upper(Title)", ("Title",), pa.string())
    assert convert_udfs.udf_from_proto(convert_udfs.udf_to_proto(one)) == one
    assert function_definitions.decode_definition(stored_functions.encode_definition(one, 1.0), "f") == (one, 1.0)
    registry = UdfRegistry(str(tmp_path))
    assert registry.put(one)
    assert not registry.put(one)
    assert registry.get("sql", one.version) == one


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"sql_expression": ""}, "must have an expression"),
        ({"kind": UdfKind.SCALAR}, "must have an expression"),
        ({"entrypoint": "a:b"}, "must have an expression"),
        ({"batch_size": 5}, "no state, batch size"),
        ({"stateful": True}, "no state, batch size"),
        ({"error_policy": ErrorPolicy((ErrorRule(ErrorAction.SKIP, message_pattern="("),))}, "valid regular"),
        ({"input_columns": ("x", "Title")}, r"must name exactly the columns .*: \['x'\], not \['x', 'Title'\]"),
        ({"input_columns": ()}, r"must name exactly the columns .*: \['x'\], not \[\]"),
        ({"input_columns": ("y",)}, r"must name exactly the columns .*: \['x'\], not \['y'\]"),
        ({"sql_expression": "1 + 1"}, "reads no column"),
        ({"sql_expression": "now()"}, "at each call"),
    ],
)
def test_a_contradicting_definition_is_refused(changes, said):
    fields = {"sql_expression": "x + 1", "kind": UdfKind.SQL, "input_columns": ("x",), **changes}
    with pytest.raises(InvalidArgument, match=said):
        check_definition(UdfDefinition("plus", "1", output_type=pa.int64(), **fields))
