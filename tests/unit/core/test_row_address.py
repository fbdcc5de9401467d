"""Row addresses: one, and arrays of them."""

from __future__ import annotations

import lance
import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from leman_core.model.row_positions import RowAddress, addresses_of, fragments_of, offsets_of

PLACES = st.lists(st.tuples(st.integers(0, (1 << 31) - 1), st.integers(0, (1 << 32) - 1)), max_size=20)


@given(PLACES)
def test_arrays_and_single_ones_agree_and_sort_as_rows_lie(places):
    addresses = [RowAddress(*place) for place in places]
    numbers = np.array([address.to_int() for address in addresses], np.int64)
    assert [RowAddress.from_int(int(number)) for number in numbers] == addresses
    assert list(zip(fragments_of(numbers).tolist(), offsets_of(numbers).tolist(), strict=True)) == places
    fragments, offsets = (np.array([place[i] for place in places], np.int64) for i in (0, 1))
    assert addresses_of(fragments, offsets).tolist() == numbers.tolist()
    assert [address.to_int() for address in sorted(addresses)] == sorted(numbers.tolist())


def test_an_address_is_the_number_that_lance_gives(tmp_path):
    dataset = lance.write_dataset(pa.table({"x": range(10)}), str(tmp_path / "t.lance"), max_rows_per_file=4)
    found = dataset.to_table(columns=[], with_row_address=True).column("_rowaddr").to_numpy().astype(np.int64)
    expected = np.concatenate([addresses_of(n, np.arange(rows)) for n, rows in enumerate([4, 4, 2])])
    assert found.tolist() == expected.tolist()
