"""The databases that a system serves: replaced ones are let go, one that makes trouble leaves the others in peace."""

from __future__ import annotations

import asyncio
import errno
import json
import shutil

import pytest

from leman_local.local_databases import Announcement, ServedDatabases
from leman_local.service_file import AlreadyRunning, Home, HomeLock


@pytest.fixture
def home(tmp_path):
    made = Home(tmp_path / "home")
    made.create()
    return made


def said(served):
    return json.loads(served.file.read_text())


def test_a_database_that_is_replaced_by_a_copy_of_itself_is_let_go_and_taken_anew(tmp_path, home):
    """A copy has the lock file, too, and no one holds that."""
    lake = tmp_path / "lake"

    async def scenario():
        served = ServedDatabases(home)
        await served.add(lake, warm=False)
        assert said(served)["taken"] == {str(lake): 1}
        shutil.copytree(lake, tmp_path / "copy")
        shutil.rmtree(lake)
        (tmp_path / "copy").rename(lake)
        served.look()
        assert said(served)["databases"] == []
        await served.add(lake, warm=False)
        assert said(served)["databases"] == [str(lake)]
        assert said(served)["taken"] == {str(lake): 2}
        shutil.copytree(lake, tmp_path / "copy")
        shutil.rmtree(lake)
        (tmp_path / "copy").rename(lake)
        await served.add(lake, warm=False)  # before anybody looked
        assert said(served)["taken"] == {str(lake): 3}
        with pytest.raises(AlreadyRunning):
            HomeLock(Home.of(lake)).acquire(0.0)
        served.release()

    asyncio.run(scenario())


def test_a_database_that_is_gone_keeps_no_other_from_being_announced(tmp_path, home):
    async def scenario():
        served = ServedDatabases(home)
        for name in ("a", "gone", "z"):
            await served.add(tmp_path / name, warm=False)
        shutil.rmtree(tmp_path / "gone")
        served.announce({"pid": 1})
        for name in ("a", "z"):
            assert Home.of(tmp_path / name).said()["pid"] == 1
        served.look()
        assert said(served)["databases"] == [str(tmp_path / "a"), str(tmp_path / "z")]
        served.release()

    asyncio.run(scenario())


def test_a_lock_is_given_back_where_the_database_cannot_be_announced(tmp_path, home, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    async def scenario():
        served = ServedDatabases(home)
        served.announce({"pid": 1})
        with monkeypatch.context() as patched:
            patched.setattr(Announcement, "write", full)
            with pytest.raises(OSError, match="No space"):
                await served.add(tmp_path / "lake", warm=False)
        await served.add(tmp_path / "lake", warm=False)
        assert served.paths == [str(tmp_path / "lake")]
        served.release()

    asyncio.run(scenario())


def test_who_does_not_wait_any_more_does_not_get_the_lock_later(tmp_path, home, monkeypatch):
    tries, take = [], HomeLock._try
    monkeypatch.setattr(HomeLock, "_try", lambda lock: tries.append(lock) or take(lock))
    lake = Home.of(tmp_path / "lake")
    lake.folder.mkdir(parents=True)
    other = HomeLock(lake)
    other.acquire(0.0)

    async def scenario():
        served = ServedDatabases(home)
        waiting = asyncio.create_task(served.add(tmp_path / "lake", warm=False))
        while len(tries) < 2:  # noqa: ASYNC110 - of another thread
            await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await asyncio.wait(asyncio.all_tasks() - {asyncio.current_task()})
        other.release()

    asyncio.run(scenario())
    other.acquire(0.0)
    other.release()
