"""How deep SQL may be nested: what would end a process or take minutes is refused, and what callers generate is not."""

import time

import lance
import pyarrow as pa
import pytest

from leman._format import sql_limits
from leman_core.sql import expressions, filters
from leman_core.storage.lance_sql import Dialect


def nested(form, times):
    text = "x"
    for _ in range(times):
        text = form.format(text)
    return text


DEEP = {
    "sum": "x" + "+1" * 2030 + " > 0",
    "cast": "x" + "::int" * 800 + " = 1",
    "product": "x" + " * 2" * 101,
    "concatenation": "t" + " || 'a'" * 101,
    "not": "NOT " * 101 + "x > 0",
    "minus": "- " * 101 + "x > 0",
    "is null": "x" + " IS NOT NULL" * 101,
    "equal": "x" + " = true" * 101,
    "between": "x" + " BETWEEN 1 AND 2" * 101,
    "like": "t" + " LIKE 'a'" * 101,
    "items": "l" + "[0]" * 101 + " = 1",
    "calls": nested("abs({})", 101),
    "brackets": nested("({})", 101),
    "sums in brackets": nested("({} + 1 + 1 + 1)", 30),
    "list": "x IN (1, x" + "+1" * 101 + ")",
    "case": "CASE WHEN x = 1 THEN x" + "+1" * 101 + " END",
    "nested case": nested("CASE WHEN {} = 1 THEN 2 ELSE 3 END", 12),
    "operand of case": nested("CASE {} WHEN 1 THEN 2 WHEN 3 THEN 4 ELSE 5 END", 7),
    "coalesce": nested("coalesce({}, x)", 16),
    "nvl": nested("nvl({}, x)", 16),
    "many sums": " AND ".join(["x" + "+1" * 90 + " > 0"] * 5),
    "open brackets": "(" * 3_000_000,
}


@pytest.mark.parametrize("text", DEEP.values(), ids=DEEP)
def test_what_is_nested_too_deeply_is_refused_at_once(text):
    begin = time.monotonic()
    assert sql_limits.nesting_problem(text)
    with pytest.raises(filters.InvalidArgument) as caught:
        filters.check_filter(text, ["x", "t", "l"])
    assert caught.value.reason == "INVALID_FILTER"
    with pytest.raises(filters.InvalidArgument):
        expressions.check_expression(text, ["x", "t", "l"])
    assert time.monotonic() - begin < 2


@pytest.fixture(scope="module")
def table():
    return lance.write_dataset(pa.table({"x": range(20), "t": ["a"] * 20}), "memory://nesting")


@pytest.mark.parametrize(
    "text",
    [
        " AND ".join(f"`x` <> {i + 100000}" for i in range(300)),
        " OR ".join(f"(x = {i} AND t = 'b{i}')" for i in range(300)),
        "x IN (" + ", ".join(map(str, range(1000))) + ")",
        "x" + " + 1" * 90 + " > 0",
        "x" + "::bigint" * 90 + " = 1",
        "t" + " || 'a'" * 90 + " = 'b'",
        nested("coalesce({}, x)", 6) + " > 0",
        nested("coalesce(x, {})", 20) + " > 0",
    ],
    ids=lambda text: text[:20],
)
def test_what_callers_generate_passes_and_is_planned_quickly(table, text):
    filters.check_filter(text, ["x", "t"])
    begin = time.monotonic()
    table.to_table(filter=text)
    assert time.monotonic() - begin < 10


@pytest.mark.parametrize("text", ["x" + "::bigint" * 390, "t" + " || 'a'" * 390], ids=["casts", "texts"])
def test_what_is_stored_is_bounded_where_lance_would_end_the_process(table, text):
    dialect = Dialect(table)
    assert sql_limits.nesting_problem(text)
    table.scanner(columns={"v": dialect.lance(text), "row": "_rowid"}).to_table()
    with pytest.raises(filters.InvalidArgument, match="nested too deeply"):
        dialect.lance("x" + "+1" * 600)
