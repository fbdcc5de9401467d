"""Messages between the executor and a function process that previews a function, and the values in them.

Values travel twice: as JSON texts for people to read, and as Arrow for programs. Imports neither gRPC nor Spark.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pyarrow as pa

from leman_core.model.work import RowError

#: The outcomes of a row: it has a value; it failed and a job would skip it; it failed and would end a job.
COMPUTED, FAILED, FAILS = "computed", "failed", "fails"


class PreviewTask(msgspec.Struct, frozen=True):
    """A request to preview a function."""

    #: A `WorkContext` as JSON.
    context: bytes
    #: How many rows to preview.
    rows: int
    #: The function's bundle. If empty, it is read from storage.
    bundle: bytes = b""
    #: The first row to call the function with. An earlier process ended while computing the rows before it.
    skip: int = 0
    #: The function is called separately with each row before this one, because an earlier process ended while it
    #: computed these rows together.
    alone_before: int = 0


class PlacedRow(msgspec.Struct, frozen=True, array_like=True):
    """The place and inputs of a row. `row_id` is -1 if row ids are not stable."""

    fragment_id: int
    offset: int
    row_id: int
    #: The row's inputs as JSON texts.
    inputs: tuple[str, ...]


class Rows(msgspec.Struct, frozen=True, tag="rows"):
    """The previewed rows."""

    rows: tuple[PlacedRow, ...]
    #: The inputs as an Arrow IPC stream, without the columns in `left_out`, which are too large.
    values: bytes
    left_out: tuple[str, ...] = ()


class SetUp(msgspec.Struct, frozen=True, tag="set_up"):
    """The function is loaded."""

    seconds: float


class Calling(msgspec.Struct, frozen=True, tag="calling"):
    """The function is about to be called with rows."""

    first: int
    count: int


class Overran(msgspec.Struct, frozen=True, tag="overran"):
    """The call exceeded the function's own timeout, so the process ends."""

    seconds: float


class Attempted(msgspec.Struct, frozen=True, array_like=True):
    """The outcome of a row."""

    state: str
    #: The value as a JSON text.
    output: str = ""
    failure: RowError | None = None


class Called(msgspec.Struct, frozen=True, tag="called"):
    """The outcomes of the rows of a call."""

    first: int
    seconds: float
    rows: tuple[Attempted, ...]
    #: The outputs, as an Arrow IPC stream of one column.
    values: bytes


class RowCost(msgspec.Struct, frozen=True, tag="row_cost"):
    """The cost of a row, if it was measured on rows outside the preview."""

    seconds: float


class Printed(msgspec.Struct, frozen=True, tag="printed"):
    """Output printed since the last such message, as far as it is kept. `total` counts all bytes printed so far."""

    text: str
    total: int


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """The preview cannot continue. `kind` is the class in `leman_core.model.service_errors`."""

    kind: str
    reason: str
    message: str
    facts: dict[str, str] = {}


PreviewMessage = Rows | SetUp | Calling | Overran | Called | RowCost | Printed | Refused


#: The maximum length of a text; longer ones are cut.
_LONGEST = 1000
#: The maximum number of items of a list or struct in a text.
_MOST_ITEMS = 200
#: The maximum number of bytes in one message for all inputs, and for all outputs.
MOST_BYTES = 1 << 20


def value_text(scalar: pa.Scalar) -> str:
    """Return a value as JSON, cut to a readable length. If JSON cannot represent it, describe it."""
    try:
        value = scalar.as_py()
    except Exception as error:  # noqa: BLE001 such as a date beyond the year 9999
        return json.dumps(f"<{scalar.type}: {error}>")
    return _cut(json.dumps(_plain(value), ensure_ascii=False, default=str))


def value_texts(values: pa.Array) -> list[str]:
    """Return the values of a column as texts."""
    return [value_text(value) for value in values]


def to_arrow_stream(batch: pa.RecordBatch) -> bytes:
    """Encode a batch as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue().to_pybytes())


def from_arrow_stream(stream: bytes) -> pa.RecordBatch:
    """Decode the batch of an Arrow IPC stream."""
    with pa.ipc.open_stream(pa.py_buffer(stream)) as reader:
        return reader.read_next_batch()


def fit_columns(batch: pa.RecordBatch, most: int = MOST_BYTES) -> tuple[pa.RecordBatch, tuple[str, ...]]:
    """Return the leading columns that together take at most `most` bytes, and the names of the remaining columns."""
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
