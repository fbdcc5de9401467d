"""The changes that the demo makes to its table."""

import pytest

from examples.demo.changes import split
from examples.demo.extract import Row


def rows(count, documented):
    return [Row("m", f"f{i}", "function", "Doc." if documented(i) else None, "", "m.py", i) for i in range(count)]


@pytest.mark.parametrize("count", [0, 1, 2, 3, 50, 101, 3000])
def test_each_definition_has_one_fate_at_most(count):
    given = rows(count, lambda i: i % 3)

    first, later = split(given)

    assert [*first, *later["add"]] == given
    touched = [*later["edit"], *later["remove"]]
    assert len(set(touched)) == len(touched)
    assert set(touched) <= {row for row in first if row.docstring}


def test_one_of_a_hundred_comes_later_and_some_forty_are_touched():
    _, later = split(rows(3000, lambda i: True))

    assert [len(later[kind]) for kind in ("add", "edit", "remove")] == [30, 21, 20]


def test_a_table_is_never_without_rows():
    assert [len(split(rows(n, bool))[0]) for n in (1, 2, 3)] == [1, 1, 2]
