"""Arrow IPC streams whose batches are compressed are recognised without decompressing one."""

from __future__ import annotations

import pyarrow as pa
import pytest

from leman_coordinator.tables.arrow_streams import is_compressed


@pytest.mark.parametrize("compression", [None, "zstd", "lz4"])
@pytest.mark.parametrize(
    "column",
    [pa.array([1, 2]), pa.nulls(2), pa.array(["x" * 100]).dictionary_encode()],
    ids=lambda column: str(column.type),
)
def test_compression_is_seen(column, compression):
    sink = pa.BufferOutputStream()
    rows = pa.table({"a": column})
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(rows)
    assert is_compressed(sink.getvalue().to_pybytes()) == (compression is not None)
