"""Rows that come through the services, as Arrow IPC streams: for whoever cannot, or shall not, read a table's files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import grpc

from leman._channel import Services
from leman.errors import InvalidArgument
from leman.v1 import catalog_pb2, tables_pb2

if TYPE_CHECKING:
    import pyarrow as pa
else:
    from leman import _arrow as pa

_SERVICE = "commit_coordinator"


class _Incoming:
    """A file for pyarrow: the bytes of a stream's answers, one after the other."""

    closed = False

    def __init__(self, answers: Any) -> None:
        self._answers = answers
        self._left = b""
        self.version = 0
        self.incarnation = ""

    def read(self, size: int = -1) -> bytes:
        """The next `size` bytes, fewer at the end."""
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
        """End the call, whatever is still to come."""
        self.closed = True
        self._answers.cancel()


class RowStream:
    """The rows of one version of a table, batch by batch; interrupted, it goes on where it was."""

    def __init__(self, services: Services, request: tables_pb2.ReadRowsRequest) -> None:
        """Ask for the rows, and wait for their schema. Raises LemanError."""
        self._services = services
        self._request = request
        self._incoming, self._reader = self._opened()

    @property
    def schema(self) -> pa.Schema:
        """That of all batches."""
        return self._reader.schema

    @property
    def version(self) -> int:
        """The version of the table that is read."""
        return self._incoming.version

    def reader(self) -> pa.RecordBatchReader:
        """The rows as pyarrow hands them on."""
        return pa.RecordBatchReader.from_batches(self.schema, self._batches())

    def _batches(self) -> Iterator[pa.RecordBatch]:
        patience = self._services.patient()
        try:
            while True:
                try:
                    for batch in self._reader:
                        yield batch
                        self._request.offset += batch.num_rows
                        if self._request.HasField("limit"):
                            self._request.limit -= batch.num_rows
                        patience = self._services.patient()
                    return
                except (grpc.RpcError, ValueError) as error:  # ValueError: the channel is closed
                    failure = error
                self._services.wait_or_raise(_SERVICE, failure, patience, repeatable=True)
                self._request.version, self._request.incarnation = self.version, self._incoming.incarnation
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
) -> tables_pb2.ReadRowsRequest:
    """What is asked of the services. Raises InvalidArgument."""
    if isinstance(columns, str):
        raise InvalidArgument(f"columns is a list of names, not {columns!r}")
    request = tables_pb2.ReadRowsRequest(table=table, columns=columns or (), where=where or "", offset=offset)
    request.batch_size = batch_size
    if limit is not None:
        request.limit = limit
    if isinstance(version, str):
        request.tag = version
    elif version is not None:
        request.version = version
    return request
