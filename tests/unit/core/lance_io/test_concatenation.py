"""Arrays of dictionaries that hold NULL are joined, which pyarrow alone refuses; others are as pyarrow joins them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from leman_core.functions.arrow_values import concatenate, single_batch
from tests.integration.types.matrix import NESTINGS

_LEFT = pa.DictionaryArray.from_arrays(pa.array([0, None, 1, 0, None], pa.int8()), pa.array(["a", None]))
_RIGHT = pa.DictionaryArray.from_arrays(pa.array([0, None, 1, 2, None], pa.int8()), pa.array([None, "b", "c"]))
_HOLDING = [name for name in NESTINGS if "dictionary" not in name and name != "map by"]


@pytest.mark.parametrize("nesting", _HOLDING)
@pytest.mark.parametrize("start", range(4))
def test_values_stay(nesting, start):
    left, right = (NESTINGS[nesting](values).slice(start) for values in (_LEFT, _RIGHT))
    for parts in ([left, right], [right, left, right.slice(0, 1)], [left]):
        found = concatenate(parts)
        found.validate(full=True)
        assert found.type == left.type
        assert found.to_pylist() == [value for part in parts for value in part.to_pylist()]


def test_pyarrow_alone_does_not():
    with pytest.raises(pa.ArrowInvalid, match="unify dictionaries with nulls"):
        pa.concat_arrays([_LEFT, _RIGHT])


def test_the_order_of_a_dictionary_is_kept():
    kind = pa.dictionary(pa.int8(), pa.string(), ordered=True)
    parts = [pa.DictionaryArray.from_arrays(a.indices, a.dictionary, ordered=True) for a in (_LEFT, _LEFT)]
    assert concatenate(parts).type == kind


def test_tables_become_batches():
    table = pa.table({"d": pa.chunked_array([_LEFT, _RIGHT]), "n": pa.chunked_array([[1, 2, 3], list(range(7))])})
    batch = single_batch(table)
    assert batch.to_pylist() == table.to_pylist()
    nothing = table.schema.empty_table()
    assert single_batch(nothing).schema == nothing.schema
    assert single_batch(nothing).num_rows == 0
