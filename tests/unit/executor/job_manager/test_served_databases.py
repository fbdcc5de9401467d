"""The executor of an embedded system opens the databases that the supervisor names."""

from __future__ import annotations

import asyncio
import contextlib
import json

import pytest

from core.errors import Unavailable
from executor.job_manager import served_databases
from executor.job_manager.served_databases import follow_served


class Manager:
    def __init__(self):
        self.opened = []

    async def open_database(self, path):
        self.opened.append(path)
        if path == "/damaged":
            raise Unavailable("STORE_UNAVAILABLE", "no")


@pytest.fixture
def following(tmp_path, monkeypatch):
    monkeypatch.setattr(served_databases, "_LOOK_SECONDS", 0.001)

    @contextlib.asynccontextmanager
    async def follow():
        manager, warmed = Manager(), []
        task = asyncio.create_task(follow_served(tmp_path / "file", manager, lambda: warmed.append(True)))
        async with asyncio.timeout(30):
            yield manager, warmed
        task.cancel()

    return follow


def test_it_opens_each_once_and_warms_spark_once(tmp_path, following):
    def say(*databases, warm=False):
        (tmp_path / "new").write_text(json.dumps({"databases": databases, "warm": warm}))
        (tmp_path / "new").replace(tmp_path / "file")

    async def until(condition):
        while not condition():  # noqa: ASYNC110 - nobody could set an event
            await asyncio.sleep(0.001)

    async def scenario():
        async with following() as (manager, warmed):
            say("/a", "/damaged")
            await until(lambda: manager.opened == ["/a", "/damaged"])
            assert warmed == []
            (tmp_path / "file").write_text("{")
            say("/a", "/b", "/damaged", warm=True)
            await until(lambda: manager.opened[2:] == ["/b"] and warmed == [True])
            say("/a", "/c", warm=True)
            await until(lambda: manager.opened[3:] == ["/c"])
            assert warmed == [True]

    asyncio.run(scenario())
