"""Reads and writes of rows through the services, as Arrow IPC streams, for callers without access to the files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import grpc

from leman._arrow import pa
from leman._wire.channel import Services
from leman._wire.wire_values import checked_request_id
from leman.errors import InvalidArgument
from leman.v1 import catalog_pb2, tables_pb2

_SERVICE = "commit_coordinator"


class _Incoming:
    """A file for pyarrow that reads the bytes of a stream of answers."""

    closed = False

    def __init__(self, answers: Any) -> None:
        self._answers = answers
        self._left = b""
        self.version = 0
        self.incarnation = ""

    def read(self, size: int = -1) -> bytes:
        """Return the next `size` bytes, or fewer at the end."""
        parts, wanted = [], size if size >= 0 else 1 << 62
        while wanted:
            if not self._left:
                answer = next(self._answers, None)
                if answer is None:
                    break
                self.version = self.version or answer.version
                self.incarnation = self.incarnation or answer.incarnation
                self._left = answer.arrow_ipc
            parts.append(self._left[:wanted])
            self._left = self._left[wanted:]
            wanted -= len(parts[-1])
        return b"".join(parts)

    def close(self) -> None:
        self.closed = True
        self._answers.cancel()


class RowStream:
    """The rows of one version of a table.

    An interrupted read resumes at its next row. A read with checkpointed values restarts instead, because there may be
    more of them by then.
    """

    def __init__(self, services: Services, request: tables_pb2.ReadRowsRequest) -> None:
        """Request the rows, and wait for their schema. Raises LemanError."""
        self._services = services
        self._request = request
        self._incoming, self._reader = self._opened()

    @property
    def schema(self) -> pa.Schema:
        return self._reader.schema

    @property
    def version(self) -> int:
        return self._incoming.version

    def reader(self) -> pa.RecordBatchReader:
        """Return the rows as a reader, which raises an error if the read cannot resume after its first rows."""
        return pa.RecordBatchReader.from_batches(self.schema, self._batches(None))

    def read_all(self) -> pa.Table:
        """Return all rows, restarting the read as often as needed. Raises LemanError."""
        found: list[pa.RecordBatch] = []
        for batch in self._batches(found.clear):
            found.append(batch)
        return pa.Table.from_batches(found, self.schema)

    def _batches(self, forget: Callable[[], None] | None) -> Iterator[pa.RecordBatch]:
        """`forget` is called when the read restarts, to drop earlier batches. Without `forget`, it cannot restart."""
        first = tables_pb2.ReadRowsRequest()
        first.CopyFrom(self._request)
        can_resume = not first.include_checkpointed
        patience, given = self._services.patient(), False
        try:
            while True:
                try:
                    for batch in self._reader:
                        given = True
                        yield batch
                        self._request.offset += batch.num_rows
                        if self._request.HasField("limit"):
                            self._request.limit -= batch.num_rows
                        patience = self._services.patient() if can_resume else patience
                    return
                except (grpc.RpcError, ValueError) as error:  # the channel raises ValueError when closed
                    failure = error
                if given and not can_resume and forget is None and isinstance(failure, grpc.RpcError):
                    raise self._services.explain(_SERVICE, failure) from None
                self._services.wait_or_raise(_SERVICE, failure, patience, repeatable=True)
                if can_resume:
                    self._request.version, self._request.incarnation = self.version, self._incoming.incarnation
                else:
                    self._request.CopyFrom(first)
                    if forget is not None:
                        forget()
                self._incoming, self._reader = self._opened()
        finally:
            self._incoming.close()

    def _opened(self) -> tuple[_Incoming, Any]:
        patience = self._services.patient()
        while True:
            try:
                incoming = _Incoming(self._services.tables.ReadRows(self._request))
                return incoming, pa.ipc.open_stream(incoming)
            except (grpc.RpcError, ValueError) as error:
                failure = error
            self._services.wait_or_raise(_SERVICE, failure, patience, repeatable=True)


def read_request(
    table: catalog_pb2.TableRef,
    columns: Sequence[str] | None,
    where: str | None,
    *,
    limit: int | None,
    offset: int,
    version: int | str | None,
    batch_size: int = 0,
    include_checkpointed: bool = False,
) -> tables_pb2.ReadRowsRequest:
    if isinstance(columns, str):
        raise InvalidArgument(f"columns is a list of names, not {columns!r}")
    request = tables_pb2.ReadRowsRequest(table=table, columns=columns or (), where=where or "", offset=offset)
    request.batch_size, request.include_checkpointed = batch_size, include_checkpointed
    if limit is not None:
        request.limit = limit
    if isinstance(version, str):
        request.tag = version
    elif version is not None:
        request.version = version
    return request


Answer = TypeVar("Answer")

_PIECE_BYTES = 1 << 20
_BATCH_BYTES = 16 << 20
_A_DAY = 86400.0


def append_rows(
    services: Services,
    table: catalog_pb2.TableRef,
    rows: pa.Table | pa.RecordBatchReader,
    max_rows: int | None,
    request_id: str | None = None,
) -> tables_pb2.AppendRowsResponse:
    """Add rows to a table, all or none.

    If the service is unreachable or has too many uploads, a table of rows is sent again. The rows of a reader are not,
    because they were consumed. Raises LemanError, and the reader's errors.
    """
    header = tables_pb2.AppendRowsHeader(
        table=table, request_id=checked_request_id(request_id), max_rows_per_fragment=max_rows or 0
    )
    return _sent(services, tables_pb2.AppendRowsRequest, header, rows, services.tables.AppendRows)


def merge_rows(
    services: Services,
    rules: tables_pb2.MergeRowsHeader,
    rows: pa.Table | pa.RecordBatchReader,
    request_id: str | None = None,
) -> tables_pb2.MergeRowsResponse:
    """Merge rows with those of a table. Retries and errors: as for `append_rows`."""
    header = tables_pb2.MergeRowsHeader(request_id=checked_request_id(request_id))
    header.MergeFrom(rules)
    return _sent(services, tables_pb2.MergeRowsRequest, header, rows, services.tables.MergeRows)


def ipc_stream(rows: pa.Table | pa.RecordBatchReader) -> bytes:
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
    patience = services.patient()
    while True:
        messages = _Messages(message, header, rows)
        try:
            return call(messages, timeout=_A_DAY)
        except (grpc.RpcError, ValueError) as error:  # the channel raises ValueError when closed
            failure = error
        if messages.error is not None:
            raise messages.error
        if isinstance(rows, pa.RecordBatchReader) and isinstance(failure, grpc.RpcError):
            raise services.explain(_SERVICE, failure) from None
        services.wait_or_raise(_SERVICE, failure, patience, stands_in_line=True)


class _Messages:
    """The messages of one call. An error that the rows raise is kept, because gRPC would hide it."""

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
    """A file for pyarrow that buffers what is written until `taken` yields it."""

    closed = False

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, data: object) -> None:
        self._parts.append(bytes(memoryview(data)))  # type: ignore[arg-type]

    def flush(self) -> None:
        """Do nothing: there is no other buffer."""

    def close(self) -> None:
        self.closed = True

    def taken(self) -> Iterator[bytes]:
        """Yield the bytes written since the last call, in pieces that fit into messages."""
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
