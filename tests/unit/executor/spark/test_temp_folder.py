"""Spark's temporary files lie in a folder of the executor's own, which no one outlives."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path

import pytest

from leman_core.http.listener import HttpListener
from leman_core.model.service_errors import InvalidArgument, Unavailable
from leman_core.process import temp_folders
from leman_core.process.temp_folders import socket_folder
from leman_core.server.admission import Limiter
from leman_core.settings import Settings
from leman_executor.spark.idle_tasks import IdleTasks
from leman_executor.spark.temp_folder import TempFolder


def folders(base):
    return {path for path in base.iterdir() if path.is_dir()}


def test_it_goes_with_its_process(tmp_path):
    scratch = TempFolder.make(str(tmp_path))
    (scratch.path / "blockmgr-1").mkdir()
    (scratch.path / "blockmgr-1" / "block").write_text("x")
    assert scratch.jvm_options == [f"-Djava.io.tmpdir={scratch.path}"]
    assert scratch.path.stat().st_mode & 0o077 == 0
    scratch.remove()
    assert folders(tmp_path) == set()


def test_what_a_killed_process_left_goes_with_the_next_start_and_nothing_else(tmp_path):
    killed, alive = TempFolder.make(str(tmp_path)), TempFolder.make(str(tmp_path))
    os.close(killed._lock)  # as the system does with a process that is killed
    killed._lock = -1
    other = tmp_path / "spark-of-somebody-else"
    other.mkdir()
    new = TempFolder.make(str(tmp_path))
    assert folders(tmp_path) == {alive.path, new.path, other}
    for scratch in (killed, alive, new):
        scratch.remove()
    assert folders(tmp_path) == {other}


def test_who_cannot_wait_neither_waits_nor_tidies(tmp_path):
    """Another process holds the lock, and may be frozen; what it was killed over is for the next one who can wait."""
    killed = TempFolder.make(str(tmp_path))
    os.close(killed._lock)
    killed._lock = -1
    hasty = TempFolder.make(str(tmp_path), patient=False)
    assert folders(tmp_path) == {killed.path, hasty.path}
    with next(tmp_path.glob(".*.lock")).open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(BlockingIOError):
            TempFolder.make(str(tmp_path), patient=False)
    assert folders(tmp_path) == {killed.path, hasty.path}
    for scratch in (killed, hasty):
        scratch.remove()


def test_a_folder_of_another_name_is_not_traced(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").write_text("x")
    base = tmp_path / "base"
    base.mkdir()
    (base / "leman-spark-link").symlink_to(elsewhere)
    TempFolder.make(str(base)).remove()
    assert (elsewhere / "precious").exists()


@pytest.mark.parametrize("name", ["a folder", "a,folder", "relative"])
def test_a_folder_that_spark_would_misread(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    wanted = name if name == "relative" else str(tmp_path / name)
    with pytest.raises(InvalidArgument, match="Spark needs an absolute path without spaces and commas") as refused:
        TempFolder.make(wanted)
    assert refused.value.reason == "BAD_SETTING"
    monkeypatch.setattr("tempfile.gettempdir", lambda: wanted)
    assert TempFolder.make("") is None, "the system's own is used as it is"


def test_a_folder_that_cannot_be_made_is_named_with_its_setting(tmp_path):
    file = tmp_path / "file"
    file.touch()
    for wanted in (file, file / "scratch"):
        with pytest.raises(InvalidArgument, match=f"LEMAN_SPARK__SCRATCH_DIR={wanted}: .*{wanted}") as caught:
            TempFolder.make(str(wanted))
        assert caught.value.reason == "BAD_SETTING"


def test_a_system_without_a_temporary_folder_is_told_what_to_see_to(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path / "file"))
    (tmp_path / "file").touch()
    with pytest.raises(Unavailable, match="TMPDIR or LEMAN_SPARK__SCRATCH_DIR") as caught:
        TempFolder.make("")
    assert caught.value.reason == "SPARK_NOT_STARTED"


@pytest.mark.parametrize("length", [65, 100, 150])
def test_sockets_have_short_paths_however_long_that_of_the_temporary_folder_is(monkeypatch, request, length):
    short = tempfile.mkdtemp(prefix="l", dir="/tmp")
    request.addfinalizer(lambda: shutil.rmtree(short))
    long = Path(short, "d" * (length - len(short) - 1))
    long.mkdir()
    assert len(str(long)) == length
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    scratch = TempFolder.make("")
    folder = scratch.settings.get("spark.python.unix.domain.socket.dir", str(scratch.path))
    for bound in (Path(folder, f".{uuid.uuid4()}.sock"), Path(socket_folder(19), f"leman-{uuid.uuid4().hex[:8]}")):
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(bound))
        bound.unlink()
    standing = IdleTasks(scratch.sockets, 1)
    standing.close()
    assert len(HttpListener(Settings(), Limiter(1, "", str)).inner_address) < 100
    scratch.remove()


def test_sockets_stay_in_the_folder_where_there_is_room(tmp_path, monkeypatch):
    assert socket_folder(10, "/tmp") == "/tmp"
    monkeypatch.setattr(temp_folders, "_SHORT_FOLDERS", ())
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    with pytest.raises(OSError, match="short enough for a socket"):
        socket_folder(90, str(tmp_path / ("d" * 60)))
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/var")
    assert socket_folder(90, str(tmp_path / ("d" * 60))) == "/var"


MAKES = "import os, sys; from leman_executor.spark.temp_folder import TempFolder; TempFolder.make(sys.argv[1]); {end}"


@pytest.mark.parametrize(("end", "left"), [("sys.exit(1)", 0), ("os.kill(os.getpid(), 9)", 1)])
def test_a_process_that_ends_removes_its_own_and_one_that_is_killed_leaves_it_to_the_next(tmp_path, end, left):
    subprocess.run([sys.executable, "-c", MAKES.format(end=end), str(tmp_path)], check=False, timeout=120)
    assert len(folders(tmp_path)) == left
    TempFolder.make(str(tmp_path)).remove()
    assert folders(tmp_path) == set()
