"""Small chunks that come fast are passed on as few large ones; what is expensive, or comes before an error, at once."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leman_core.model.row_positions import RowRange
from leman_core.storage.scan import CHUNK_BYTES, CHUNK_ROWS, Chunk
from leman_executor.worker.sql_source import merge_chunks


def chunk(start: int, rows: int, kept: int | None = None, values: pa.Array | None = None) -> Chunk:
    offsets = np.arange(start, start + (rows if kept is None else kept), dtype=np.int64)
    column = pa.array(offsets) if values is None else values
    return Chunk(RowRange(start, start + rows), offsets, pa.RecordBatch.from_arrays([column], names=["x"]))


def chunks(*sizes: int) -> list[Chunk]:
    starts = itertools.accumulate(sizes, initial=0)
    return [chunk(start, rows) for start, rows in zip(starts, sizes, strict=False)]


def never() -> float:
    return 0.0


def each_takes(seconds: float) -> Callable[[], float]:
    times = itertools.count()
    return lambda: next(times) * seconds


@given(st.lists(st.tuples(st.integers(1, CHUNK_ROWS), st.floats(0.0, 1.0)), max_size=12), st.floats(0.0, 0.1))
def test_the_same_rows_come_in_the_same_order(sizes: list[tuple[int, float]], seconds: float) -> None:
    start, given_chunks = 0, []
    for rows, share in sizes:
        given_chunks.append(chunk(start, rows, int(rows * share)))
        start += rows
    found = list(merge_chunks(iter(given_chunks), each_takes(seconds)))
    at = 0
    for part in found:
        assert part.covered.start == at
        assert part.covered.rows <= CHUNK_ROWS
        at = part.covered.end
    assert at == start
    expected = [i for part in given_chunks for i in part.offsets.tolist()]
    assert [i for part in found for i in part.offsets.tolist()] == expected
    assert [i for part in found for i in part.rows.column(0).to_pylist()] == expected


def test_fast_ones_are_joined_up_to_the_bound_of_rows() -> None:
    found = list(merge_chunks(iter(chunks(*[8192] * 20)), never))
    assert [part.covered.rows for part in found] == [CHUNK_ROWS, CHUNK_ROWS, 4 * 8192]


def test_fast_ones_are_joined_up_to_the_bound_of_bytes() -> None:
    wide = pa.array([b"x" * (CHUNK_BYTES // 8)] * 3)
    found = list(merge_chunks((chunk(3 * i, 3, values=wide) for i in range(4)), never))
    assert [part.covered.rows for part in found] == [6, 6]


def test_one_that_took_long_goes_on_at_once() -> None:
    found = list(merge_chunks(iter(chunks(10, 10, 10)), each_takes(1.0)))
    assert [part.covered.rows for part in found] == [10, 10, 10]


def test_what_came_before_an_error_goes_on_before_it() -> None:
    def failing() -> Iterator[Chunk]:
        yield from chunks(10, 10)
        raise ValueError("no value")

    found = merge_chunks(failing(), never)
    assert next(found).covered == RowRange(0, 20)
    with pytest.raises(ValueError, match="no value"):
        next(found)


def test_dictionaries_are_not_joined() -> None:
    parts = [chunk(2 * i, 2, values=pa.array([f"a{i}", None]).dictionary_encode()) for i in range(3)]
    assert [part.covered.rows for part in merge_chunks(iter(parts), never)] == [2, 2, 2]
