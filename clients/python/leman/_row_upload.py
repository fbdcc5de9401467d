"""Rows that go through the services, as an Arrow IPC stream: for whoever cannot, or shall not, write their files."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import grpc

from leman._channel import Services
from leman.v1 import catalog_pb2, tables_pb2

if TYPE_CHECKING:
    import pyarrow as pa
else:
    from leman import _arrow as pa

_SERVICE = "commit_coordinator"
_PIECE_BYTES = 1 << 20
_BATCH_BYTES = 16 << 20
_A_DAY = 86400.0


def append(
    services: Services, table: catalog_pb2.TableRef, rows: pa.Table | pa.RecordBatchReader, max_rows: int | None
) -> tables_pb2.AppendRowsResponse:
    """Add rows to a table, all or none. A table of rows is sent again where the service was away; a reader is not, as
    what it gave is gone. Raises LemanError, and what the reader raises."""
    header = tables_pb2.AppendRowsHeader(table=table, request_id=uuid.uuid4().hex, max_rows_per_fragment=max_rows or 0)
    patience = services.patient()
    while True:
        messages = _Messages(header, rows)
        try:
            return services.tables.AppendRows(messages, timeout=_A_DAY)
        except (grpc.RpcError, ValueError) as error:  # ValueError: the channel is closed
            failure = error
        if messages.error is not None:
            raise messages.error
        if isinstance(rows, pa.RecordBatchReader) and isinstance(failure, grpc.RpcError):
            raise services.explain(_SERVICE, failure) from None
        services.wait_or_raise(_SERVICE, failure, patience)


class _Messages:
    """The messages of one call. What the rows raise is kept: gRPC would only say that it was raised."""

    def __init__(self, header: tables_pb2.AppendRowsHeader, rows: pa.Table | pa.RecordBatchReader) -> None:
        self._messages = _messages(header, rows)
        self.error: Exception | None = None

    def __iter__(self) -> Iterator[tables_pb2.AppendRowsRequest]:
        return self

    def __next__(self) -> tables_pb2.AppendRowsRequest:
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

    def taken(self) -> Iterator[tables_pb2.AppendRowsRequest]:
        """What was written since, as messages."""
        content = b"".join(self._parts)
        self._parts.clear()
        for at in range(0, len(content), _PIECE_BYTES):
            yield tables_pb2.AppendRowsRequest(arrow_ipc=content[at : at + _PIECE_BYTES])


def _messages(
    header: tables_pb2.AppendRowsHeader, rows: pa.Table | pa.RecordBatchReader
) -> Iterator[tables_pb2.AppendRowsRequest]:
    yield tables_pb2.AppendRowsRequest(header=header)
    sink = _Sink()
    with pa.ipc.new_stream(pa.PythonFile(sink, mode="w"), rows.schema) as writer:
        yield from sink.taken()
        for batch in rows.to_batches() if isinstance(rows, pa.Table) else rows:
            most = max(1, int(_BATCH_BYTES * batch.num_rows / max(batch.nbytes, 1)))
            for at in range(0, batch.num_rows, most):
                writer.write_batch(batch.slice(at, most))
                yield from sink.taken()
    yield from sink.taken()
