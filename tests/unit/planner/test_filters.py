"""Filters from callers: what is refused from the text alone, and relative times."""

import contextlib
import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leman_core.model.service_errors import InvalidArgument
from leman_core.sql import filters
from leman_core.sql.time_values import pin_relative_times

COLUMNS = ["id", "body", "Größe", "now"]
NOW = dt.datetime(2024, 3, 31, 12, 30, tzinfo=dt.UTC)
AT = "timestamp '2024-03-31T12:30:00.000000+00:00'"


def test_length_is_that_of_the_text_as_written():
    long = "ts > now() OR " * 600 + "id > 0"
    assert len(pin_relative_times(long, NOW)) > filters.MAX_BYTES
    filters.check_filter(pin_relative_times(long, NOW), COLUMNS)
    with pytest.raises(InvalidArgument, match="it has 20012 bytes, at most 16384"):
        pin_relative_times("body = '" + "x" * 20_003 + "'", NOW)


@pytest.mark.parametrize(
    "where",
    [
        "id > 3",
        "body = 'it''s; -- fine'",
        "`Größe` IS NOT NULL AND NOT (id IN (1, 2, 3) OR lower(body) LIKE 'a%')",
        "CAST(id AS DECIMAL(10, 2)) > 1.5e3",
        "id::int = 1 and regexp_like(body, '\\d+')",
        "s.a[0] <= -1 || body",
        "ts > now() - interval '1 day'",
    ],
)
def test_ordinary_filters_pass(where):
    filters.check_filter(where, COLUMNS)


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("id > 0; drop table x", "unexpected ';' at character 7"),
        ("id > 0 -- all", "comments are not allowed"),
        ("id > 0 /* all */", "comments are not allowed"),
        ("", "it is empty"),
        ("  ", "it is empty"),
        ("body = 'a\0b'", "zero character"),
        ("id > 1) OR (id < 1", "unexpected ')' at character 7"),
        ("(id > 1", "')' is missing at the end"),
        ("l[1) = 2", "unexpected ')'"),
        ("(" * 33 + "true" + ")" * 33, "nested deeper than 32: compute a part of it"),
        ("NOT " * 41 + "true", "at most 40 are allowed. Compute a part of it"),
        ("NOT (" * 21 + "true" + ")" * 21, "at most 40 are allowed"),
        ("CASE WHEN id > 1 THEN " * 11 + "true" + " ELSE true END" * 11, "CASE 4, and at most 40"),
        ("id IN (" + ",".join(["1"] * 1002) + ")", "at most 1000"),
        (" OR ".join(["true"] * 1026), "at most 1024"),
        ("repeat('a', 1000000000) = 'a'", "function 'repeat'"),
        ("REPEAT ('a', 1000000000) = 'a'", "function 'repeat'"),
        ("`repeat`('a', 1000000000) = 'a'", "function 'repeat'"),
        ("lpad(body, 1000000000) = rpad(body, 1)", "function 'lpad'"),
        ("random() > 0.5", "function 'random'"),
        ("loewr(body) = 'a'", "did you mean lower?"),
        ("extract(year from ts) = 2026", "write date_part('year', …)"),
        ("EXTRACT (month FROM ts) = 1", "write date_part("),
        ("month(ts) = 1", "write date_part('month', …)"),
        ("`in`(1)", "function 'in'"),
        ("id > ?", "unexpected '?'"),
        ("id > :limit", "unexpected ':'"),
        ("id > $1", "unexpected '$'"),
        ("id > @x", "unexpected '@'"),
        ("{fn now()} > ts", "unexpected '{'"),
        ("body = N'a'", "strings are not supported"),
        ("body = 'open", "unexpected"),
        ("id < cast(1e999 as bigint)", "1e999 is larger than any number in SQL: write a smaller one"),
        ("\"body\" = 'a'", "to name the column write `body`"),
        ('"BODY" IS NULL', "to name the column write `BODY`"),
        ("\"body.w\" <> 'a'", "to name the column write `body`.`w`"),
        ("\"target.body\" <> 'a'", "to name the column write `target`.`body`"),
        ("\"bdy\" <> 'a'", "write text in single quotes, and names in backticks"),
        ('body = "a"', "write text in single quotes, and names in backticks"),
    ],
    ids=lambda text: text[:24],
)
def test_what_is_refused_says_why(where, said):
    with pytest.raises(InvalidArgument) as caught:
        filters.check_filter(where, COLUMNS)
    assert (caught.value.reason, caught.value.field) == ("INVALID_FILTER", "where")
    assert said in caught.value.message


def test_a_stored_filter_may_have_text_in_double_quotes_that_names_no_column():
    filters.check_filter('body = "a"', COLUMNS, is_stored=True)
    with pytest.raises(InvalidArgument, match="write `body`"):
        filters.check_filter("\"body\" <> 'a'", COLUMNS, is_stored=True)


@given(st.text(max_size=60))
def test_any_text_is_taken_or_refused_and_nothing_else(where):
    with contextlib.suppress(InvalidArgument):
        filters.check_filter(where, COLUMNS)
        assert filters.names_in_filter(pin_relative_times(where, NOW)) is not None


def test_names_are_a_superset_of_the_columns_that_are_read():
    assert filters.names_in_filter("ID > 1 AND `Größe` = 'body' OR s.a IS NULL") >= {"id", "grösse", "s", "body"}


@pytest.mark.parametrize(
    ("where", "pinned"),
    [
        ("id > 3", "id > 3"),
        ("body = 'now()' OR now > 1", "body = 'now()' OR now > 1"),
        ("ts>now()", f"ts>{AT}"),
        ("ts > CURRENT_TIMESTAMP OR ts < Now ( )", f"ts > {AT} OR ts < {AT}"),
        ("ts > now() - interval '30 days'", "ts > timestamp '2024-03-01T12:30:00.000000+00:00'"),
        ("ts > now() - INTERVAL '1 day 2 hours'", "ts > timestamp '2024-03-30T10:30:00.000000+00:00'"),
        ("ts > now() + interval 5 minute", "ts > timestamp '2024-03-31T12:35:00.000000+00:00'"),
        ("ts > now() - interval '1' year", "ts > timestamp '2023-03-31T12:30:00.000000+00:00'"),
        ("ts > now() - interval '1 month'", "ts > timestamp '2024-02-29T12:30:00.000000+00:00'"),
        (
            "ts > now() - interval '1 week' + interval '0.5 seconds'",
            "ts > timestamp '2024-03-24T12:30:00.500000+00:00'",
        ),
        ("d > current_date", "d > date '2024-03-31'"),
        ("d > today() - interval '1 month'", "d > date '2024-02-29'"),
        ("d > current_date - interval '36 hours'", "d > timestamp '2024-03-29T12:00:00.000000+00:00'"),
        ("ts - now() - interval '1 day' > x", f"ts - {AT} - interval '1 day' > x"),
        ("ts > now() - interval '1 day' * 2", f"ts > {AT} - interval '1 day' * 2"),
    ],
)
def test_relative_times_become_literals(where, pinned):
    assert pin_relative_times(where, NOW) == pinned


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("ts > now() - interval 'soon'", "interval 'soon' cannot be read"),
        ("ts > now() - interval '3 fortnights'", "cannot be read"),
        ("ts > now() - interval '9000 years'", "years 1 to 9999"),
        ("ts > now() - interval '99999999999 weeks'", "too long"),
        ("ts > now() - interval x", "an interval is not valid: write it like"),
    ],
)
def test_intervals_that_cannot_be_read_are_refused(where, said):
    with pytest.raises(InvalidArgument, match=said) as caught:
        pin_relative_times(where, NOW)
    assert caught.value.reason == "INVALID_FILTER"
