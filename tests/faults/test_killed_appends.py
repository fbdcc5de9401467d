"""A coordinator that dies while rows are added: all of them are there afterwards, or none, and no file is left over."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import grpc
import lance
import pyarrow as pa
import pytest
from google.protobuf.duration_pb2 import Duration

from leman.v1 import commit_pb2
from tests.conftest import ROOT
from tests.integration.tables.table_helpers import (
    DEADLINE,
    Coordinator,
    data_files,
    referenced,
    stream_of,
    wait_for_files,
)

pytestmark = pytest.mark.faults
ROWS = pa.table({"id": pa.array(range(1, 501), pa.int64())})


class Process:
    """A coordinator in a process of its own; `armed` names a crash point."""

    def __init__(self, folder: Path, armed: str = "") -> None:
        folder.mkdir(exist_ok=True)
        if armed:
            (folder / f"{armed}:1").touch()
        settings = {key: value for key, value in os.environ.items() if not key.startswith("LEMAN_")}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "leman_coordinator"],
            cwd=ROOT,
            env=settings | {"LEMAN_CRASH": str(folder)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self._process.stdout is not None
        self.port = json.loads(self._process.stdout.readline())["port"]

    def kill(self) -> None:
        self._process.kill()

    def ended(self) -> int:
        assert self._process.stdout is not None
        self._process.stdout.close()
        return self._process.wait(DEADLINE)


async def with_coordinator(process, database, use):
    async with asyncio.timeout(DEADLINE), grpc.aio.insecure_channel(f"127.0.0.1:{process.port}") as channel:
        return await use(Coordinator(channel, asyncio.Event(), str(database)))


def finished_files(uri):
    """Without what a killed writer was at: it looks like any other writer's, and stays for a day."""
    return {name for name in data_files(uri) if not name.startswith(".tmp")}


async def half_sent(up, process):
    """Kills the coordinator once files of the upload are there."""

    async def pieces():
        given = stream_of(ROWS.to_batches(50), 256, ROWS.schema)
        async for part in up.upload(given[:-1], request_id="mine", max_rows_per_fragment=50):
            yield part
        await asyncio.to_thread(wait_for_files, f"{up.database}/t.lance", 4)
        process.kill()
        await asyncio.Event().wait()

    await up.AppendRows(pieces())


async def sent(up, _process):
    await up.append(ROWS, request_id="mine", max_rows_per_fragment=50)


@pytest.mark.parametrize(
    ("armed", "use", "expected"),
    [
        ("", half_sent, 1),
        pytest.param("coordinator.rows_staged", sent, 1, marks=pytest.mark.long),
        ("coordinator.rows_committed", sent, 501),
    ],
    ids=["in the middle", "before the commit", "after it"],
)
def test_an_append_that_was_killed_is_whole_or_not_there(tmp_path, armed, use, expected):
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"id": pa.array([0], pa.int64())}), uri, enable_stable_row_ids=True)
    process = Process(tmp_path / "crash", armed)

    with pytest.raises(grpc.aio.AioRpcError):
        asyncio.run(with_coordinator(process, tmp_path, lambda up: use(up, process)))
    assert process.ended() == -9
    assert lance.dataset(uri).count_rows() == expected
    assert data_files(uri) - referenced(uri) or expected == 501

    async def again(up):
        if not armed:  # who sent half may also give up: what is left is garbage
            await up.CollectGarbage(commit_pb2.CollectGarbageRequest(table=up.ref("t"), older_than=Duration()))
            assert finished_files(uri) == referenced(uri)
        answer = await up.append(ROWS, request_id="mine", max_rows_per_fragment=50)
        await up.CollectGarbage(commit_pb2.CollectGarbageRequest(table=up.ref("t"), older_than=Duration()))
        return answer

    process = Process(tmp_path / "crash")
    try:
        answer = asyncio.run(with_coordinator(process, tmp_path, again))
    finally:
        process.kill()
        process.ended()
    dataset = lance.dataset(uri)
    assert dataset.to_table().column("id").to_pylist() == [*range(501)]
    assert (answer.rows_added, answer.version) == (500, dataset.version)
    assert finished_files(uri) == referenced(uri)
