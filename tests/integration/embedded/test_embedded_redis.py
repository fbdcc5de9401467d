"""A supervisor without services: Redis for odd paths, damaged data, a missing program, a deleted database."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import redis

from leman_core.model.service_errors import FailedPrecondition, Unavailable
from leman_core.settings import Settings
from leman_local import redis_server
from leman_local.local_supervisor import Supervisor
from leman_local.service_file import Home

DEADLINE = 30


@contextlib.asynccontextmanager
async def redis_for(database: Path) -> AsyncIterator[Supervisor]:
    """Its Redis is up inside the block and gone after it."""
    home = Home.of(database)
    home.create()
    home.lock_file.touch()
    ready = asyncio.Event()
    supervisor = Supervisor(home, Settings(), idle_seconds=0, on_ready=lambda content: ready.set(), commands={})
    async with asyncio.timeout(DEADLINE):
        run = asyncio.ensure_future(supervisor.run())
        waiting = asyncio.ensure_future(ready.wait())
        try:
            await asyncio.wait((run, waiting), return_when=asyncio.FIRST_COMPLETED)
            if run.done():
                run.result()
            yield supervisor
        finally:
            waiting.cancel()
            supervisor.stop()
            await run


@pytest.mark.parametrize(
    ("names", "scheme"),
    [
        (["lake"], "unix"),
        (['it\'s "the" \\größte\u2603 lake'], "unix"),
        (["x" * 90, "y" * 90, 'a "b" c'], "redis"),
    ],
)
def test_any_path_gets_a_redis_with_a_password(tmp_path_factory, names, scheme):
    async def scenario():
        database = tmp_path_factory.mktemp("d").joinpath(*names)
        async with redis_for(database) as supervisor:
            url = supervisor._redis.url
            assert url.startswith(f"{scheme}://:")
            with redis.Redis.from_url(url) as client:
                client.xadd("stream", {"a": "b"})
                assert client.config_get("appendonly") == {"appendonly": "yes"}
            with (
                redis.Redis.from_url(url.replace(supervisor._redis.password, "guessed")) as stranger,
                pytest.raises(redis.AuthenticationError),
            ):
                stranger.ping()

    asyncio.run(scenario())


@pytest.mark.faults
def test_killed_it_is_back_with_its_data(tmp_path):
    async def scenario():
        async with redis_for(tmp_path) as supervisor:
            with redis.Redis.from_url(supervisor._redis.url) as client:
                client.set("lease", "7")
                before = supervisor._running["redis"]
                os.kill(before.pid, signal.SIGKILL)
                await before.wait()
                while supervisor._running["redis"] is before:  # noqa: ASYNC110 - the supervisor has no event for it
                    await asyncio.sleep(0)
                await supervisor._running["redis"].wait_ready()
                assert client.get("lease") == b"7"

    asyncio.run(scenario())


def test_data_that_cannot_be_loaded_are_set_aside(tmp_path):
    async def scenario():
        folder = Home.of(tmp_path).redis
        folder.mkdir(parents=True)
        (folder / "appendonly.aof").write_text("this is no log of commands\n")
        async with redis_for(tmp_path) as supervisor:
            assert await supervisor._redis.answers()
            assert (folder / "appendonly.damaged").read_text() == "this is no log of commands\n"

    asyncio.run(scenario())


def test_a_supervisor_ends_when_its_database_is_deleted(tmp_path):
    async def scenario():
        async with redis_for(tmp_path / "lake") as supervisor:
            server = supervisor._running["redis"]
            shutil.rmtree(tmp_path / "lake")
            await server.wait()

    asyncio.run(scenario())


def test_a_program_that_does_not_start_is_named_with_the_end_of_its_log(tmp_path, monkeypatch):
    async def scenario():
        failing = tmp_path / "redis-server"
        failing.write_text("#!/bin/sh\necho wrong architecture >&2\nexit 3\n")
        failing.chmod(0o700)
        monkeypatch.setattr(redis_server, "find_program", lambda: str(failing))
        with pytest.raises(Unavailable) as caught:
            async with redis_for(tmp_path / "lake"):
                pass
        assert "redis ended with code 3" in caught.value.message
        assert "wrong architecture" in caught.value.message

    asyncio.run(scenario())


def test_without_any_redis_the_remedy_is_told(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(FailedPrecondition) as caught:
        redis_server.find_program()
    assert "LEMAN_REDIS__URL" in caught.value.message
