"""Regular expressions in SQL are compiled once, before rows are read."""

from __future__ import annotations

import pytest

from leman_core.model.service_errors import InvalidArgument
from leman_core.storage import lance_sql

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
