"""TableService on a real coordinator on loopback, as a caller without Lance uses it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import grpc
import lance
import pyarrow as pa

from leman.v1 import catalog_pb2, commit_pb2_grpc, tables_pb2, tables_pb2_grpc
from leman_core.server.server import start_server
from leman_core.settings import Commit, Settings
from leman_internal.v1 import submission_pb2_grpc

DEADLINE = 60.0
Result = TypeVar("Result")


class Coordinator:
    """The methods of all services of a coordinator, and what a caller makes of TableService."""

    def __init__(self, channel: grpc.aio.Channel, draining: asyncio.Event, database: str) -> None:
        self.draining = draining
        self.database = database
        for stub in (
            tables_pb2_grpc.TableServiceStub,
            commit_pb2_grpc.CommitServiceStub,
            submission_pb2_grpc.CommitSubmissionServiceStub,
        ):
            vars(self).update(vars(stub(channel)))

    def ref(self, table: str) -> catalog_pb2.TableRef:
        return catalog_pb2.TableRef(database=self.database, table=table)

    async def read(self, table: str = "t", **fields: Any) -> pa.Table:
        """All that a ReadRows gives."""
        call = self.ReadRows(tables_pb2.ReadRowsRequest(table=self.ref(table), **fields))
        return pa.ipc.open_stream(b"".join([answer.arrow_ipc async for answer in call])).read_all()

    async def create(self, schema: pa.Schema, table: str = "t", **fields: Any) -> int:
        request = tables_pb2.CreateTableRequest(table=self.ref(table), schema=ipc_schema(schema))
        return (await self.CreateTable(merged(request, fields))).version

    async def append(self, rows: pa.Table, table: str = "t", **header: Any) -> tables_pb2.AppendRowsResponse:
        return await self.AppendRows(self.upload(stream_of(rows), table, **header))

    async def upload(
        self, pieces: Iterable[bytes], table: str = "t", **header: Any
    ) -> AsyncIterator[tables_pb2.AppendRowsRequest]:
        """The messages of an AppendRows."""
        first = tables_pb2.AppendRowsHeader(**{"table": self.ref(table), "request_id": uuid.uuid4().hex, **header})
        yield tables_pb2.AppendRowsRequest(header=first)
        for piece in pieces:
            yield tables_pb2.AppendRowsRequest(arrow_ipc=piece)

    async def delete(self, where: str, table: str = "t", **fields: Any) -> tables_pb2.DeleteRowsResponse:
        return await self.DeleteRows(merged(tables_pb2.DeleteRowsRequest(table=self.ref(table), where=where), fields))

    async def update(self, where: str, table: str = "t", **fields: Any) -> tables_pb2.UpdateRowsResponse:
        return await self.UpdateRows(merged(tables_pb2.UpdateRowsRequest(table=self.ref(table), where=where), fields))

    async def merge(self, rows: pa.Table, table: str = "t", **header: Any) -> tables_pb2.MergeRowsResponse:
        """An upsert by `id`, unless the header says something else."""
        usual = {"on": ["id"], "update_matched": True, "insert_not_matched": True, "request_id": uuid.uuid4().hex}
        first = tables_pb2.MergeRowsHeader(**{"table": self.ref(table), **usual, **header})
        parts = [tables_pb2.MergeRowsRequest(header=first)]
        parts += [tables_pb2.MergeRowsRequest(arrow_ipc=piece) for piece in stream_of(rows)]
        return await self.MergeRows(iter(parts))

    async def drop(self, table: str = "t", **fields: Any) -> None:
        await self.DropTable(merged(tables_pb2.DropTableRequest(table=self.ref(table)), fields))

    async def rename(self, new_name: str, table: str = "t", **fields: Any) -> int:
        request = tables_pb2.RenameTableRequest(table=self.ref(table), new_name=new_name)
        return (await self.RenameTable(merged(request, fields))).version


def merged(request: Any, fields: dict[str, Any]) -> Any:
    """The request with more fields, and with a request id if it has none."""
    request.MergeFrom(type(request)(**{"request_id": uuid.uuid4().hex, **fields}))
    return request


def ipc_schema(schema: pa.Schema) -> bytes:
    return bytes(schema.serialize())


def stream_of(
    rows: pa.Table | list[pa.RecordBatch], size: int = 1 << 16, schema: pa.Schema | None = None
) -> list[bytes]:
    """The bytes of an Arrow IPC stream, in pieces that end anywhere."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema or (rows if isinstance(rows, pa.Table) else rows[0]).schema) as writer:
        for batch in rows.to_batches() if isinstance(rows, pa.Table) else rows:
            writer.write_batch(batch)
    content = sink.getvalue().to_pybytes()
    return [content[at : at + size] for at in range(0, len(content), size)]


async def with_a_place(call: Callable[[], Awaitable[Result]]) -> Result:
    """What a call gives as soon as the service has heard that others gave their places back."""
    while True:
        try:
            return await call()
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
                raise


def data_files(uri: str) -> set[str]:
    """What lies in a table's data folder."""
    return {path.name for path in Path(uri, "data").iterdir()} if Path(uri, "data").exists() else set()


def wait_for_files(uri: Any, count: int, but: str = "\0") -> None:
    """Returns once so many files lie in a table's data folder; those whose names begin with `but` are not counted."""
    pause, deadline = threading.Event(), time.monotonic() + DEADLINE
    while sum(not name.startswith(but) for name in data_files(str(uri))) < count:
        assert time.monotonic() < deadline
        pause.wait(0.01)


def referenced(uri: str) -> set[str]:
    """The data files of a table's latest version."""
    return {file.path for fragment in lance.dataset(uri).get_fragments() for file in fragment.metadata.files}


@contextlib.asynccontextmanager
async def coordinator(database: Path | str, **commit: Any) -> AsyncIterator[Coordinator]:
    """A coordinator on loopback, for one database."""
    from leman_coordinator.app import create

    settings, draining = Settings(commit=Commit(**commit)), asyncio.Event()
    up = await start_server(settings, "commit_coordinator", create(settings, draining), draining)
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{up.port}") as channel:
            yield Coordinator(channel, draining, str(database))
    finally:
        await up.stop()
