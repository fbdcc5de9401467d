"""Compressed batches are refused by what they become, before anything is decompressed."""

from __future__ import annotations

import asyncio

import numpy as np
import pyarrow as pa
import pytest

from leman_coordinator.tables import arrow_streams as incoming_module
from leman_coordinator.tables.arrow_streams import Decompressed, Incoming, read_batches
from leman_core.model.service_errors import InvalidArgument

ROWS = 10_000
COLUMNS = {
    "zeros": pa.array(np.zeros(ROWS, np.int64)),
    "nulls": pa.array([None, 1] * (ROWS // 2), pa.int64()),
    "texts": pa.array(["the same text"] * ROWS),
    "dictionary": pa.array([f"{n:0100}" for n in range(ROWS)]).dictionary_encode(),
    "random": pa.array(np.random.default_rng(1).integers(0, 1 << 62, ROWS)),
}


def stream(column: pa.Array, compression: str | None) -> bytes:
    sink = pa.BufferOutputStream()
    rows = pa.table({"a": column})
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(rows)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize("compression", ["zstd", "lz4", None])
@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("step", [1 << 30, 7])
def test_a_batch_tells_what_it_becomes_however_its_bytes_come(name, compression, step):
    content = stream(COLUMNS[name], compression)
    follower = Decompressed()
    largest = max(follower.took(content[at : at + step]) for at in range(0, len(content), step))
    whole = sum(buffer.size for buffer in _buffers(COLUMNS[name]) if buffer is not None)
    if compression is None:
        assert largest == 0
    elif name == "random":  # Arrow leaves a buffer as it is that would not become smaller
        assert largest in (0, whole)
    else:
        assert 0 < largest <= whole + 64
        assert largest > whole / 4


def _buffers(column: pa.Array) -> list[pa.Buffer | None]:
    inner = column.dictionary if isinstance(column, pa.DictionaryArray) else None
    return [*column.buffers(), *(inner.buffers() if inner is not None else ())]


def received(content: bytes) -> int:
    """The rows in a stream, as an upload reads it."""

    async def scenario() -> int:
        incoming = Incoming()
        reading = asyncio.ensure_future(asyncio.to_thread(lambda: sum(b.num_rows for b in read_batches(incoming)[1])))
        for at in range(0, len(content), 1000):
            await incoming.put(content[at : at + 1000])
        incoming.end()
        return await reading

    return asyncio.run(scenario())


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
@pytest.mark.parametrize("name", ["zeros", "texts", "dictionary"])
def test_a_few_bytes_that_become_many_are_refused_before_they_do(monkeypatch, name, compression):
    """Some kilobytes took all memory of the coordinator."""
    content = stream(COLUMNS[name], compression)
    assert received(content) == ROWS
    monkeypatch.setattr(incoming_module, "MAX_BATCH_BYTES", max(len(content), 60_000))
    with pytest.raises(InvalidArgument, match="bytes decompressed, and at most") as caught:
        received(content)
    assert caught.value.reason == "BATCH_TOO_LARGE"


def test_a_batch_that_says_so_in_the_way_of_old_writers_is_looked_at_too():
    sink, rows = pa.BufferOutputStream(), pa.record_batch([pa.array([1 << 40])], names=["a"])
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows, custom_metadata={"ARROW:experimental_compression": "zstd"})
    assert Decompressed().took(sink.getvalue().to_pybytes()) == 1 << 40
