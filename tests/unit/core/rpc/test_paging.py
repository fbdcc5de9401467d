"""Pages: sizes, tokens, listings that change while they are read."""

from __future__ import annotations

import pytest

from leman_core.model.service_errors import InvalidArgument
from leman_core.server.paging import cut, read_page


def pages(items, size, *, descending=False, key=lambda item: item):
    token, found = "", []
    while True:
        chunk, token = cut(items, read_page(size, token, "list"), key, descending=descending)
        found.append(list(chunk))
        if not token:
            return found


@pytest.mark.parametrize(("asked", "given"), [(0, 100), (1, 1), (1000, 1000), (5000, 1000)])
def test_sizes_are_clamped(asked, given):
    assert read_page(asked, "", "list").size == given


def test_a_negative_size_is_refused():
    with pytest.raises(InvalidArgument) as caught:
        read_page(-1, "", "list")
    assert caught.value.field == "page_size"


def test_every_item_comes_once_up_and_down():
    assert pages(list(range(7)), 3) == [[0, 1, 2], [3, 4, 5], [6]]
    assert pages(list(range(6)), 3) == [[0, 1, 2], [3, 4, 5]]
    assert pages(list(range(6, -1, -1)), 3, descending=True) == [[6, 5, 4], [3, 2, 1], [0]]
    assert pages([], 3) == [[]]


def test_keys_of_several_parts():
    items = [("a", 3), ("a", 1), ("b", 2)]
    assert pages(items, 1, key=lambda item: (item[0], -item[1])) == [[("a", 3)], [("a", 1)], [("b", 2)]]


def test_nothing_is_lost_or_doubled_when_items_come_and_go_between_pages():
    chunk, token = cut([10, 20, 30, 40], read_page(2, "", "list"), lambda item: item)
    assert list(chunk) == [10, 20]
    chunk, token = cut([5, 10, 30, 35, 40], read_page(2, token, "list"), lambda item: item)
    assert list(chunk) == [30, 35]
    assert list(cut([40], read_page(2, token, "list"), lambda item: item)[0]) == [40]


def test_a_token_is_opaque_text_of_its_own_listing():
    _, token = cut(["a", "b"], read_page(1, "", "ListTables /db"), lambda item: item)
    assert read_page(1, token, "ListTables /db").after == "a"
    with pytest.raises(InvalidArgument):
        read_page(1, token, "ListTables /other")


@pytest.mark.parametrize("token", ["x", "!!!!", "AAAAAAAA", "é", "W10=", "a" * 10_000])
def test_what_is_no_token_is_refused(token):
    with pytest.raises(InvalidArgument) as caught:
        read_page(1, token, "list")
    assert (caught.value.reason, caught.value.field) == ("BAD_PAGE_TOKEN", "page_token")


def test_a_changed_token_is_refused():
    _, token = cut(["a", "b"], read_page(1, "", "list"), lambda item: item)
    for at in range(len(token)):
        changed = token[:at] + ("A" if token[at] != "A" else "B") + token[at + 1 :]
        try:
            assert read_page(1, changed, "list").after == "a"  # only padding bits differ
        except InvalidArgument as error:
            assert error.reason == "BAD_PAGE_TOKEN"  # noqa: PT017 - either is right


def test_a_token_whose_key_does_not_fit_the_listing_is_refused():
    _, token = cut(["a", "b"], read_page(1, "", "list"), lambda item: item)
    with pytest.raises(InvalidArgument):
        cut([1, 2, 3], read_page(1, token, "list"), lambda item: item)
