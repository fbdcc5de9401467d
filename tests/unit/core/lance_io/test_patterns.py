"""SQL that no row can compute because of a constant or a type is refused before rows are read."""

from __future__ import annotations

import datetime as dt

import lance
import pyarrow as pa
import pytest

from leman_core.model.service_errors import InvalidArgument
from leman_core.storage import lance_sql
from leman_core.storage.lance_tables import LanceTables

TOO_LARGE = r"(\w{1,250}){1,7}z"


@pytest.mark.parametrize(
    ("sql", "fault"),
    [
        ("regexp_like(s, '(')", "does not compile"),
        ("x > 1 and regexp_match(lower(concat(s, 'a')), '(?<=x)a', 'i') is null", "does not compile"),
        (f"REGEXP_LIKE(s, '{TOO_LARGE}')", "too large"),
    ],
)
def test_a_regular_expression_that_does_not_compile_is_refused(sql, fault):
    with pytest.raises(InvalidArgument, match=fault) as caught:
        lance_sql.check_patterns(sql)
    assert caught.value.reason == "INVALID_FILTER"


@pytest.mark.parametrize(
    "sql",
    ["regexp_like(s, 'a+(b|c)', 'i')", "regexp_like(s, '^it''s$')", "regexp_like(s, p)", "s = 'regexp_like(s, (('"],
)
def test_others_are_taken(sql):
    lance_sql.check_patterns(sql)


@pytest.fixture(scope="module")
def uri(tmp_path_factory) -> str:
    columns = {
        "id": pa.array([1]),
        "s": pa.array(["a"]),
        "f": pa.array([1.5]),
        "at": pa.array([dt.datetime(2024, 1, 1)]),
        "clock": pa.array([dt.time(1)]),
        "l": pa.array([[1]]),
        "box": pa.array([{"w": 1}]),
        "j": pa.ExtensionArray.from_storage(pa.json_(), pa.array(["{}"])),
    }
    place = str(tmp_path_factory.mktemp("constants") / "t.lance")
    lance.write_dataset(pa.table(columns), place)
    return place


WRONG_CONSTANTS = [
    ("date_trunc('bogus', at)", "'bogus'"),
    ("date_part('bogus', at)", "'bogus'"),
    ("date_bin(interval '0 seconds', at)", "interval '0 seconds'"),
    ("date_bin(interval '1 month 1 day', at)", "combination"),
    ("to_timestamp(s, '%Q')", "%Q is not part of any format"),
    ("to_timestamp_millis(s, '%Y-%Q')", "%Q is not part of any format"),
    ("to_date(s, '%Q', '%J')", "%J is not part of any format"),
    ("json_extract(j, '$.[')", "Invalid JSONPath"),
    ("json_exists(j, '$$$')", "Invalid JSONPath"),
]


@pytest.mark.parametrize(("expression", "fault"), WRONG_CONSTANTS)
def test_a_constant_that_is_wrong_for_every_row_is_refused(uri, expression, fault):
    for check, sql, reason in (
        (LanceTables().expression_type, expression, "INVALID_EXPRESSION"),
        (LanceTables().check_filter, f"id > 1 and {expression} is not null", "INVALID_FILTER"),
    ):
        with pytest.raises(InvalidArgument) as caught:
            check(uri, sql)
        assert caught.value.reason == reason
        assert fault in caught.value.message
        check(uri, sql, is_stored=True)
    LanceTables().expression_type(uri, f"case when s = 'a' then {expression} end")


@pytest.mark.parametrize(
    ("expression", "fault"),
    [
        ("-at", "Invalid arithmetic operation"),
        ("date_trunc(s, at)", "must be non-null scalar"),
        ("date_trunc('day', clock)", "does not support 'day'"),
        ("date_part('year', clock)", "does not support"),
        ("cast(id as decimal(5, 9))", "scale 9 is greater than precision 5"),
        ("date_trunc('day', at) > to_timestamp('x')", "parsing timestamp from 'x'"),
        ("id % 0", "divides by the constant 0"),
        ("l[1] / 0 + box.w", "divides by the constant 0"),
    ],
)
def test_sql_that_fails_for_every_row_is_refused_by_its_trial_on_a_made_up_row(uri, expression, fault):
    with pytest.raises(InvalidArgument, match=fault):
        LanceTables().expression_type(uri, expression)
    with pytest.raises(InvalidArgument, match=fault):
        LanceTables().check_filter(uri, f"({expression}) = ({expression})", on_a_row=True)
    LanceTables().expression_type(uri, expression, is_stored=True)


@pytest.mark.parametrize(
    "expression",
    [
        "cast(s as int)",
        "cast(s as date)",
        "1 / id",
        "1 / (id - 1)",
        "id / (id - 1) + f / 0.0",
        "f / 0",
        "5 / nullif(0, id)",
        "cast(concat(s, '-01-01') as date)",
        "coalesce(id, 1 % 0)",
        "coalesce(at, date_trunc('bogus', at))",
        "case when id = 1 then id % 0 else id end",
        "case when s = 'good' then 1 else id % 0 end",
        "to_timestamp(s)",
        "to_timestamp(s, '%Y-%m-%d', '%Q')",
        "to_timestamp(s, '%d.%m.%Y %H:%M:%S%.3f %:z %%')",
        "to_date(s, '%-d %B %Y')",
        "date_trunc(lower('DAY'), at)",
        "array_position(l, 1, 99)",
        "json_array_length(j, '$.a[0].b')",
        "json_get_int(j, 'a')",
        "at > '2024-06-01'",
        "-id - f",
    ],
)
def test_sql_whose_failures_depend_on_values_is_taken(uri, expression):
    LanceTables().expression_type(uri, expression)


@pytest.mark.parametrize(
    ("where", "cause", "advice"),
    [
        ("1 / (id - 1) = 1", "Divide by zero error", "nullif or try_cast"),
        ("id > 0 and id % 0 = 1", "Divide by zero error", "divides by the constant 0"),
        ("date_trunc('bogus', at) = at", "Unsupported granularity", "Correct the constant: date_trunc fails"),
        ("json_get_int(j, 'a') = 1", "Failed to convert to integer: InvalidCast", "try_cast(json_extract("),
        ("id > 0 and -at = at", "Invalid arithmetic operation: !Timestamp", "No row can have a value"),
    ],
)
def test_the_advice_for_a_failed_filter_fits_its_cause(where, cause, advice):
    error = lance_sql.filter_failed("filter", where, cause)
    assert error.reason == "FILTER_FAILED"
    assert cause in error.message
    assert advice in error.message
    assert ("nullif or try_cast" in error.message) is ("nullif" in advice)
