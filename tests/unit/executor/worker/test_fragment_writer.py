"""A column file has each row of its fragment, in its place, or it is not published."""

from __future__ import annotations

from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

from leman_core.model.row_positions import RowRange
from leman_core.model.service_errors import Unavailable
from leman_core.storage.checkpoint_records import Piece
from leman_executor.worker.fragment_writer import Existing, FragmentWriter

ROWS = 4


@pytest.fixture
def uri(tmp_path: Path) -> str:
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"x": range(ROWS)}), uri)
    return uri


def writer(uri: str, *, selective: bool = False, existing: Existing | None = None) -> FragmentWriter:
    return FragmentWriter(
        uri,
        pa.field("c", pa.int64()),
        "a" * 32,
        ROWS,
        existing=existing,
        live=lambda part: np.ones(part.rows, np.bool_),
        selective=selective,
    )


def piece(*offsets: int) -> Piece:
    return Piece(np.array(offsets), pa.array([10 * offset for offset in offsets], pa.int64()))


def test_ranges_follow_one_another(uri):
    made = writer(uri)
    made.emit(RowRange(0, 2), [piece(0, 1)])
    for start in (0, 1, 3):
        with pytest.raises(ValueError, match="does not follow"):
            made.emit(RowRange(start, 4), [piece(*range(start, 4))])
    made.emit(RowRange(2, 4), [piece(2, 3)])
    assert made.finish(frozenset()).rows_computed == ROWS


def test_a_file_without_all_rows_is_not_published(uri):
    made = writer(uri)
    made.emit(RowRange(0, 3), [piece(0, 1, 2)])
    with pytest.raises(ValueError, match="3 of 4 rows"):
        made.finish(frozenset())


@pytest.mark.parametrize("selective", [False, True])
def test_rows_without_a_value_are_left_out_by_a_request_for_some_rows_alone(uri, selective):
    made = writer(uri, selective=selective)
    made.emit(RowRange(0, 4), [piece(0, 3)])
    if selective:
        assert made.finish(frozenset()).rows_computed == 2
        return
    with pytest.raises(ValueError, match="2 rows that are not deleted"):
        made.finish(frozenset())


@pytest.mark.parametrize("joining", [False, True], ids=["read", "joined"])
def test_values_that_are_kept_are_taken_fewer_at_once_where_one_array_cannot_hold_them(uri, joining):
    taken = []

    def existing(covered: RowRange) -> pa.Array:
        taken.append(covered)
        if covered.rows > 1:
            refused = pa.ArrowInvalid("offset overflow while concatenating arrays")
            if joining:
                raise refused
            raise Unavailable("STORE_UNAVAILABLE", "Lance cannot read them") from refused
        return pa.array([covered.start], pa.int64())

    made = FragmentWriter(
        uri,
        pa.field("c", pa.int64()),
        "a" * 32,
        ROWS,
        existing=Existing("old.lance", existing),
        live=lambda part: np.ones(part.rows, np.bool_),
        selective=True,
    )
    made.emit(RowRange(0, 4), [piece(1), piece(3)])
    assert taken == [RowRange(0, 4), *(RowRange(at, at + 1) for at in range(4))]
    assert made.untouched == 2


def test_new_values_are_compared_fewer_at_once_where_one_array_cannot_hold_the_old_ones(uri):
    def existing(covered: RowRange) -> pa.Array:
        if covered.rows > 1:
            raise Unavailable("STORE_UNAVAILABLE", "no") from pa.ArrowInvalid("Offset overflow error: 2160000000")
        return pa.array([10 * covered.start if covered.start != 2 else 0], pa.int64())

    made = writer(uri, existing=Existing("old.lance", existing))
    made.emit(RowRange(0, 4), [piece(0, 1, 2, 3)])
    assert made._changed is not None
    assert made._changed.tolist() == [False, False, True, False]
