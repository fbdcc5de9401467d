"""Which filters this process reads with by itself: those that mean the same to Lance and to the services."""

from __future__ import annotations

import pytest

from leman._format.sql_limits import is_plain


@pytest.mark.parametrize(
    "where",
    [
        "x = 3",
        "x > 3 AND y < 4.5e-3 or not z",
        "`a b` IN (1, 2, -3) and `a``b`.`c d` <> 'q'",
        "x NOT IN ('a', 'b''c')",
        "s.a.b >= -1.5",
        "(x = 1 OR (y = 2)) AND NOT (z IS NULL)",
        "x is not null and y between 1 and 3 and z not between -1 and 3",
        "a LIKE 'x%' AND a NOT LIKE 'limit'",
        "x + 1 > y * 2 - 3 and x - -1 = 2 and NOT NOT true",
    ],
)
def test_plain(where):
    assert is_plain(where)


@pytest.mark.parametrize(
    "where",
    [
        "x > 3 limit 2",
        "x > 3 garbage",
        "x = 3; drop table t",
        "x -- y",
        "x /* y */ = 3",
        "\"Abbrev\" = 'D'",
        "at > timestamp '2024-01-01 00:00:00+00:00'",
        "at > date '2024-01-01'",
        "at > now() - interval '1 day'",
        "case when x then y end",
        "cast(x as int) = 1",
        "x::int = 1",
        "x[1] = 2",
        "s.f(x)",
        "x in (select y)",
        "x =",
        "x = = 3",
        "a.(b)",
        "1 'a'",
        "",
        "💥 = 3",
    ],
)
def test_not_plain(where):
    assert not is_plain(where)


def test_long_filters_take_no_time_to_judge():
    assert is_plain(" or ".join(f"(x = {n} and y < {n})" for n in range(20_000)))
    assert is_plain("(" * 200 + "x" + ")" * 200)
    assert not is_plain("(" * 200_000)
