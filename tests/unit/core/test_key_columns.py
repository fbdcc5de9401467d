"""Keys of checkpoints in columns, against what `KeyFamily.parse` says of each."""

import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leman_core.model import keys
from leman_core.model.plan_columns import parse_range_keys
from leman_core.model.row_positions import RowRange

FAMILY = keys.KeyFamily(udf_name="f", udf_version="1", column="c", uri="/data/t.lance")
KEY = keys.range_key(FAMILY.prefix("x > 1", [(0, "a.lance")]), 3, RowRange(0, 10))
#: What looks like a key and is none that Leman writes.
STRANGE = [
    "",
    KEY + "\n",
    KEY + "0" * 18,
    "x" + KEY,
    KEY.replace("_frag-3", "_frag-03"),
    KEY.replace("_range-0-10", "_range-00-10"),
    KEY.replace("_range-0-10", "_range-0-010"),
    KEY.replace("_range-0-10", "_file"),
    KEY.replace("_where-", "_where-0"),
    KEY.replace("udf-f_", "udf-g_"),
    KEY.replace("_frag-3", f"_frag-{1 << 64}"),
]


def both(family, texts):
    """Return the keys that came in columns and the others; all in all nothing is lost."""
    found, others = parse_range_keys(family, texts)
    assert sorted([*(key.key for key in found), *others]) == sorted(texts)
    assert list(found) == [key for key in family.parse_all(texts) if key.key not in others]
    return list(found), others


@settings(max_examples=100)
@given(
    st.text(min_size=1, max_size=20),
    st.text(min_size=1, max_size=20),
    st.lists(st.tuples(st.sampled_from(["", "x > 1"]), *[st.integers(0, 10**18 - 1)] * 3), max_size=5),
)
def test_keys_are_taken_apart_whatever_the_names_in_them(name, column, ranges):
    family = keys.KeyFamily(udf_name=name, udf_version="1", column=column, uri="/data/t.lance")
    texts = [
        keys.range_key(family.prefix(where, [(0, f"{at}.lance")]), at, RowRange(start, end))
        for where, at, start, end in ranges
    ]
    found, others = both(family, texts)
    assert [key.key for key in found] == texts
    assert others == []


@pytest.mark.parametrize("head", [string.punctuation, string.whitespace, "ä\u4e00", "\\Q.*\\E"])
def test_no_character_of_a_name_means_anything(head):
    family = keys.KeyFamily(udf_name=head, udf_version=head, column=head, uri="/data/t.lance")
    key = keys.range_key(family.prefix("", []), 0, RowRange(0, 1))
    assert both(family, [key, KEY]) == ([family.parse(key)], [KEY])


def test_other_keys_come_back_as_they_are():
    assert both(FAMILY, [*STRANGE, KEY]) == ([FAMILY.parse(KEY)], STRANGE)
    assert both(FAMILY, []) == ([], [])


def test_a_file_name_that_is_no_text_hides_no_key():
    found, others = parse_range_keys(FAMILY, [KEY, KEY + "\udc80"])
    assert (len(found), others) == (0, [KEY, KEY + "\udc80"])
