"""The executor of an embedded system opens the databases that the supervisor names."""

from __future__ import annotations

import asyncio
import contextlib
import json

import pytest

from leman_core.model.service_errors import InvalidArgument, Unavailable
from leman_core.server.blocking import BlockingPool
from leman_executor.manager import job_databases
from leman_executor.manager.job_databases import JobDatabases, follow_served


class Manager:
    def __init__(self):
        self.opened = []
        self.forgotten = []

    async def open_database(self, path):
        self.opened.append(path)
        if path == "/damaged":
            raise Unavailable("STORE_UNAVAILABLE", "no")

    def forget_database(self, path):
        self.forgotten.append(path)


@pytest.fixture
def following(tmp_path, monkeypatch):
    monkeypatch.setattr(job_databases, "_LOOK_SECONDS", 0.001)

    @contextlib.asynccontextmanager
    async def follow():
        manager, warmed = Manager(), []
        task = asyncio.create_task(follow_served(tmp_path / "file", manager, lambda: warmed.append(True)))
        async with asyncio.timeout(30):
            yield manager, warmed
        task.cancel()

    return follow


@pytest.fixture
def say(tmp_path):
    """What the supervisor says, whole at any time. `taken`: how often each database was taken."""

    def write(*databases, warm=False, taken=()):
        said = {"databases": databases, "taken": dict.fromkeys(databases, 1) | dict(taken), "warm": warm}
        (tmp_path / "new").write_text(json.dumps(said))
        (tmp_path / "new").replace(tmp_path / "file")

    return write


async def until(condition):
    while not condition():  # noqa: ASYNC110 - no one could set an event
        await asyncio.sleep(0.001)


def test_a_database_that_is_gone_is_forgotten_and_one_in_its_place_is_opened_anew(say, following):
    async def scenario():
        async with following() as (manager, _):
            say("/a", "/b")
            await until(lambda: sorted(manager.opened) == ["/a", "/b"])
            say("/a", "/b", taken={"/a": 2})
            await until(lambda: manager.opened[2:] == ["/a"])
            assert manager.forgotten == ["/a"]
            say("/a", taken={"/a": 2})
            await until(lambda: manager.forgotten == ["/a", "/b"])
            assert len(manager.opened) == 3

    asyncio.run(scenario())


def test_it_opens_each_once_and_warms_spark_once(tmp_path, say, following):
    async def scenario():
        async with following() as (manager, warmed):
            say("/a", "/damaged")
            await until(lambda: sorted(manager.opened) == ["/a", "/damaged"])
            assert warmed == []
            (tmp_path / "file").write_text("{")
            say("/a", "/b", "/damaged", warm=True)
            await until(lambda: manager.opened[2:] == ["/b"] and warmed == [True])
            say("/a", "/c", warm=True)
            await until(lambda: manager.opened[3:] == ["/c"])
            assert warmed == [True]

    asyncio.run(scenario())


def test_a_database_has_a_name():
    databases = JobDatabases(BlockingPool(1, name="p"))
    with pytest.raises(InvalidArgument, match="database is empty; give a path, uri or name") as refused:
        databases.at("")
    assert refused.value.reason == "BAD_DATABASE"
