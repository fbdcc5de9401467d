"""Rows that go through the services, as an Arrow IPC stream: for whoever cannot, or shall not, write their files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import grpc

from leman._channel import Services
from leman._request_id import id_of
from leman.v1 import catalog_pb2, tables_pb2

if TYPE_CHECKING:
    import pyarrow as pa
else:
    from leman import _arrow as pa

Answer = TypeVar("Answer")

_SERVICE = "commit_coordinator"
_PIECE_BYTES = 1 << 20
_BATCH_BYTES = 16 << 20
_A_DAY = 86400.0


def append(
    services: Services,
    table: catalog_pb2.TableRef,
    rows: pa.Table | pa.RecordBatchReader,
    max_rows: int | None,
    request_id: str | None = None,
) -> tables_pb2.AppendRowsResponse:
    """Add rows to a table, all or none. A table of rows is sent again where the service was away, or had too many
    uploads at work; a reader is not, as what it gave is gone. Raises LemanError, and what the reader raises."""
    header = tables_pb2.AppendRowsHeader(table=table, request_id=id_of(request_id), max_rows_per_fragment=max_rows or 0)
    return _sent(services, tables_pb2.AppendRowsRequest, header, rows, services.tables.AppendRows)


def merge(
    services: Services,
    rules: tables_pb2.MergeRowsHeader,
    rows: pa.Table | pa.RecordBatchReader,
    request_id: str | None = None,
) -> tables_pb2.MergeRowsResponse:
    """Bring rows together with those of a table; sent again, and raising, as `append`."""
    header = tables_pb2.MergeRowsHeader(request_id=id_of(request_id))
    header.MergeFrom(rules)
    return _sent(services, tables_pb2.MergeRowsRequest, header, rows, services.tables.MergeRows)


def stream(rows: pa.Table | pa.RecordBatchReader) -> bytes:
    """Rows as the bytes of an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        for batch in rows.to_batches() if isinstance(rows, pa.Table) else rows:
            writer.write_batch(batch)
    return bytes(sink.getvalue())


def _sent(
    services: Services,
    message: Callable[..., Any],
    header: tables_pb2.AppendRowsHeader | tables_pb2.MergeRowsHeader,
    rows: pa.Table | pa.RecordBatchReader,
    call: Callable[..., Answer],
) -> Answer:
    """Make a call of a header and rows, in messages of one kind."""
    patience = services.patient()
    while True:
        messages = _Messages(message, header, rows)
        try:
            return call(messages, timeout=_A_DAY)
        except (grpc.RpcError, ValueError) as error:  # ValueError: the channel is closed
            failure = error
        if messages.error is not None:
            raise messages.error
        if isinstance(rows, pa.RecordBatchReader) and isinstance(failure, grpc.RpcError):
            raise services.explain(_SERVICE, failure) from None
        services.wait_or_raise(_SERVICE, failure, patience, stands_in_line=True)


class _Messages:
    """The messages of one call. What the rows raise is kept: gRPC would only say that it was raised."""

    def __init__(self, message: Callable[..., Any], header: Any, rows: pa.Table | pa.RecordBatchReader) -> None:
        self._messages = _messages(message, header, rows)
        self.error: Exception | None = None

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        try:
            return next(self._messages)
        except StopIteration:
            raise
        except Exception as error:
            self.error = error
            raise


class _Sink:
    """A file for pyarrow that keeps what is written until it is taken."""

    closed = False

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, data: object) -> None:
        self._parts.append(bytes(memoryview(data)))  # type: ignore[arg-type]

    def flush(self) -> None:
        """Nothing: what is written is there."""

    def close(self) -> None:
        self.closed = True

    def taken(self) -> Iterator[bytes]:
        """What was written since, in pieces for messages."""
        content = b"".join(self._parts)
        self._parts.clear()
        for at in range(0, len(content), _PIECE_BYTES):
            yield content[at : at + _PIECE_BYTES]


def _messages(message: Callable[..., Any], header: Any, rows: pa.Table | pa.RecordBatchReader) -> Iterator[Any]:
    yield message(header=header)
    for piece in _pieces(rows):
        yield message(arrow_ipc=piece)


def _pieces(rows: pa.Table | pa.RecordBatchReader) -> Iterator[bytes]:
    sink = _Sink()
    with pa.ipc.new_stream(pa.PythonFile(sink, mode="w"), rows.schema) as writer:
        yield from sink.taken()
        for batch in rows.to_batches() if isinstance(rows, pa.Table) else rows:
            most = max(1, int(_BATCH_BYTES * batch.num_rows / max(batch.nbytes, 1)))
            for at in range(0, batch.num_rows, most):
                writer.write_batch(batch.slice(at, most))
                yield from sink.taken()
    yield from sink.taken()
