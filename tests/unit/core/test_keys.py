"""Checkpoint keys and column file names."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leman_core.model import keys
from leman_core.model.row_positions import RowRange

VECTORS = json.loads(
    (Path(__file__).parents[2] / "conformance" / "vectors" / "checkpoint_keys.json").read_text(encoding="utf-8")
)
NAMES = st.text("ab_-.", min_size=1, max_size=12) | st.sampled_from(
    ["x_frag-3_range-0-10", "x_where-" + "0" * 32, "x_frag-1_file", "a b", 'é"`']
)


def family_of(vector: dict) -> keys.KeyFamily:
    return keys.KeyFamily(
        udf_name=vector["udf_name"], udf_version=vector["udf_version"], column=vector["column"], uri=vector["uri"]
    )


@pytest.mark.parametrize("vector", VECTORS["keys"], ids=lambda v: v["title"])
def test_published_key_vectors_hold(vector):
    family = family_of(vector)
    identity = keys.filter_identity(vector["where"], vector["filter_files"])
    prefix = family.prefix(identity, vector["inputs"])
    covered = RowRange(*vector["range"])
    assert prefix == vector["prefix"]
    assert keys.filter_id(prefix) == vector["filter_id"]
    assert keys.sources(vector["inputs"]) == vector["sources"]
    assert keys.range_key(prefix, vector["fragment_id"], covered) == vector["range_key"]
    assert keys.record_key(prefix, vector["fragment_id"]) == vector["record_key"]


@pytest.mark.parametrize("vector", VECTORS["keys"], ids=lambda v: v["title"])
def test_published_keys_are_taken_apart(vector):
    parsed = family_of(vector).parse(vector["range_key"])
    assert parsed == keys.FamilyKey(
        vector["range_key"],
        vector["filter_id"],
        vector["sources"],
        vector["fragment_id"],
        RowRange(*vector["range"]),
    )
    assert keys.parse_range_key(vector["range_key"]) == keys.RangeKey(
        vector["prefix"], vector["fragment_id"], RowRange(*vector["range"])
    )
    record = family_of(vector).parse(vector["record_key"])
    assert record is not None
    assert record.range is None
    assert keys.parse_record_key(vector["record_key"]) == (vector["prefix"], vector["fragment_id"])


@pytest.mark.parametrize("vector", VECTORS["column_files"], ids=lambda v: v["file"])
def test_published_column_file_vectors_hold(vector):
    made = keys.fingerprint(vector["udf_name"], vector["udf_version"], vector["column_id"], vector["inputs"])
    assert made == vector["fingerprint"]
    assert keys.column_file_name(made, "0a1b2c", partial=vector["partial"]) == vector["file"]
    parsed = keys.parse_column_file_name(vector["file"])
    assert parsed == keys.ColumnFileName(vector["fingerprint"], vector["partial"])


@pytest.mark.parametrize("vector", VECTORS["not_reusable"], ids=lambda v: v["title"])
def test_other_forms_are_no_range_keys(vector):
    assert keys.parse_range_key(vector["key"]) is None
    assert keys.KeyFamily(udf_name="f", udf_version="1", column="c", uri="u").parse(vector["key"]) is None


@pytest.mark.parametrize(
    "name",
    [
        "1011010101101011011011018d153646abad782e13fcb8a4e5.lance",
        "0" * 32 + "-a.lance.tmp",
        "0" * 32 + "-partial-.lance",
        "0" * 31 + "-a.lance",
        "F" * 32 + "-a.lance",
        "0" * 32 + "-a.lance\n",
    ],
)
def test_a_file_that_leman_did_not_name_has_no_fingerprint(name):
    assert keys.parse_column_file_name(name) is None


@given(NAMES, NAMES, NAMES, st.integers(0, 2**40), st.integers(0, 2**40), st.integers(1, 2**40))
def test_a_key_names_exactly_one_range_of_one_family(udf, column, other, fragment, start, rows):
    family = keys.KeyFamily(udf_name=udf, udf_version="1", column=column, uri="/t.lance")
    covered = RowRange(start, start + rows)
    prefix = family.prefix("", [(0, "a.lance")])
    key = keys.range_key(prefix, fragment, covered)
    parsed = family.parse(key)
    assert parsed is not None
    assert (parsed.fragment_id, parsed.range) == (fragment, covered)
    assert keys.parse_range_key(key) == keys.RangeKey(prefix, fragment, covered)
    for stranger in (
        keys.KeyFamily(udf_name=udf, udf_version="1", column=column + other, uri="/t.lance"),
        keys.KeyFamily(udf_name=udf, udf_version="2", column=column, uri="/t.lance"),
        keys.KeyFamily(udf_name=udf, udf_version="1", column=column, uri="/u.lance"),
    ):
        assert stranger.parse(key) is None


@pytest.mark.parametrize("column", [f"c_where-{keys.md5('')}", f"c_where-{keys.md5('')}_uri-{keys.md5('u')}"])
def test_a_column_whose_name_goes_on_like_a_key_is_another_column(column):
    key = keys.range_key(
        keys.KeyFamily(udf_name="f", udf_version="1", column=column, uri="u").prefix("", [(0, "a")]), 1, RowRange(0, 5)
    )
    assert keys.KeyFamily(udf_name="f", udf_version="1", column=column, uri="u").parse(key) is not None
    assert key.startswith(keys.KeyFamily(udf_name="f", udf_version="1", column="c", uri="u").head)
    assert keys.KeyFamily(udf_name="f", udf_version="1", column="c", uri="u").parse(key) is None


def test_keys_are_made_as_before_a_table_was_moved_until_some_are_made_where_it_is():
    first, second, third = (
        keys.KeyFamily(udf_name="f", udf_version="1", column="c", uri=f"/{place}/t.lance") for place in "abc"
    )
    made = [
        keys.range_key(first.prefix("", [(0, "a")]), 1, RowRange(0, 5)),
        keys.record_key(first.prefix("x > 1", [(0, "b")]), 2),
        keys.range_key(second.prefix("", [(0, "a")]), 1, RowRange(5, 9)),
    ]
    assert third.as_made([]) == third
    moved = third.as_made([*made, "udf-f_ver-1_col-c_where-else"])
    assert moved.prefix("", [(0, "a")]) == first.prefix("", [(0, "a")])
    assert list(moved.parse_all(made)) == list(first.parse_all(made))
    assert third.as_made([*made, keys.record_key(third.prefix("", []), 1)]) == third
    assert [key.fragment_id for key in third.parse_all(made, anywhere=True)] == [1, 2, 1]


def test_two_columns_in_one_file_are_two_inputs():
    family = keys.KeyFamily(udf_name="f", udf_version="1", column="c", uri="/t.lance")
    assert family.prefix("", [(1, "a.lance")]) != family.prefix("", [(2, "a.lance")])
    assert family.prefix("", [(1, "a"), (2, "a")]) != family.prefix("", [(2, "a"), (1, "a")])
    assert keys.fingerprint("f", "1", "c", [(1, "a"), (2, "a")]) != keys.fingerprint(
        "f", "1", "c", [(2, "a"), (1, "a")]
    )


def test_the_halves_of_a_fingerprint_tell_function_from_inputs():
    base = keys.fingerprint("f", "1", "c", [(0, "a")])
    assert keys.fingerprint("f", "2", "c", [(0, "a")])[16:] == base[16:]
    assert keys.fingerprint("f", "2", "c", [(0, "a")])[:16] != base[:16]
    assert keys.fingerprint("f", "1", "d", [(0, "a")])[:16] != base[:16]
    assert keys.fingerprint("f", "1", "c", [(0, "b")])[:16] == base[:16]
    assert keys.fingerprint("f", "1", "c", [(0, "b")])[16:] != base[16:]


def test_the_filter_is_the_only_thing_that_any_filter_takes_out():
    family = keys.KeyFamily(udf_name="f", udf_version="1", column="c_where-x", uri="/t.lance")
    first, second = (family.prefix(where, [(0, "a")]) for where in ("x > 1", ""))
    assert first != second
    assert keys.any_filter(first) == keys.any_filter(second)
    assert keys.any_filter(first) != keys.any_filter(family.prefix("", [(0, "b")]))


def test_a_prefix_of_another_function_is_about_the_same_rows():
    """Names may hold whatever keys are made of."""
    families = [
        keys.KeyFamily(udf_name=name, udf_version=version, column="a_col-b_where-c", uri="/lake/t.lance")
        for name, version in (("f_ver-1", "2_col-x"), ("g", "3"))
    ]
    own, other = (family.prefix("x > 1", [(1, "a.lance")]) for family in families)
    assert keys.of_function(own, ("f_ver-1", "2_col-x"), ("g", "3")) == other
