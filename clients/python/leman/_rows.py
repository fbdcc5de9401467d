"""Rows that come through the services, as Arrow IPC streams: for whoever cannot, or shall not, read a table's files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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
    """The rows of one version of a table. An interrupted read resumes where it was; one with checkpointed values
    restarts, as there may be more of them by then."""

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
        """Return the rows as a reader. Once it has given rows, a read that cannot resume raises the error that
        interrupted it."""
        return pa.RecordBatchReader.from_batches(self.schema, self._batches(None))

    def read_all(self) -> pa.Table:
        """Return all rows, restarting the read as often as needed. Raises LemanError."""
        found: list[pa.RecordBatch] = []
        for batch in self._batches(found.clear):
            found.append(batch)
        return pa.Table.from_batches(found, self.schema)

    def _batches(self, forget: Callable[[], None] | None) -> Iterator[pa.RecordBatch]:
        """`forget` drops the batches so far when the read restarts; None: it cannot restart once it has given rows."""
        anew = tables_pb2.ReadRowsRequest()
        anew.CopyFrom(self._request)
        can_go_on = not anew.include_checkpointed
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
                        patience = self._services.patient() if can_go_on else patience
                    return
                except (grpc.RpcError, ValueError) as error:  # ValueError: the channel is closed
                    failure = error
                if given and not can_go_on and forget is None and isinstance(failure, grpc.RpcError):
                    raise self._services.explain(_SERVICE, failure) from None
                self._services.wait_or_raise(_SERVICE, failure, patience, repeatable=True)
                if can_go_on:
                    self._request.version, self._request.incarnation = self.version, self._incoming.incarnation
                else:
                    self._request.CopyFrom(anew)
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
    """What is asked of the services. Raises InvalidArgument."""
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
