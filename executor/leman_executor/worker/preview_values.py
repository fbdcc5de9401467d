"""Values of a preview: as JSON texts for people, and as Arrow for programs. Imports no gRPC and no Spark."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

#: A text is cut here.
_LONGEST = 1000
#: Items of a list, or of a struct, that a text has at the most: beyond, nobody reads on.
_MOST_ITEMS = 200
#: All values of one kind (inputs, outputs) that are sent take no more.
MOST_BYTES = 1 << 20


def text_of(scalar: pa.Scalar) -> str:
    """Return a value as JSON, cut; what JSON has no word for is described."""
    try:
        value = scalar.as_py()
    except Exception as error:  # noqa: BLE001 -- dates beyond the year 9999, and what comes next
        return json.dumps(f"<{scalar.type}: {error}>")
    return _cut(json.dumps(_plain(value), ensure_ascii=False, default=str))


def texts_of(values: pa.Array) -> list[str]:
    """Return the values of a column as texts."""
    return [text_of(value) for value in values]


def stream_of(batch: pa.RecordBatch) -> bytes:
    """Return a batch as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue().to_pybytes())


def batch_of(stream: bytes) -> pa.RecordBatch:
    """Return the batch of an Arrow IPC stream."""
    with pa.ipc.open_stream(pa.py_buffer(stream)) as reader:
        return reader.read_next_batch()


def within(batch: pa.RecordBatch, most: int = MOST_BYTES) -> tuple[pa.RecordBatch, tuple[str, ...]]:
    """Return the columns that take no more than so many bytes in their order, and the names of the others."""
    kept, left_out, taken = [], [], 0
    for at, name in enumerate(batch.schema.names):
        size = batch.column(at).nbytes
        if taken + size <= most:
            kept.append(at)
            taken += size
        else:
            left_out.append(name)
    return batch.select(kept), tuple(left_out)


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return f"<{len(value):,} bytes>"
    if isinstance(value, str):
        return value[: _LONGEST + 1]
    if isinstance(value, list | tuple):
        shown = [_plain(item) for item in value[:_MOST_ITEMS]]
        return [*shown, f"… {len(value) - _MOST_ITEMS:,} more"] if len(value) > _MOST_ITEMS else shown
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in list(value.items())[:_MOST_ITEMS]}
    return value


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
