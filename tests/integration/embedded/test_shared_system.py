"""A system that databases share: the real supervisor, with small services."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from leman._local import running_systems
from leman._local.running_systems import ServiceFile, System
from leman_core.process.release import SERVICES
from tests.integration.embedded.test_embedded_supervisor import ROOT, info, lives, wait_for

DEADLINE = 60.0


class Shared:
    """A supervisor without a database of its own."""

    def __init__(self, home: Path, *arguments: str, **environment: str) -> None:
        self.home = home
        clean = {name: value for name, value in os.environ.items() if not name.startswith("LEMAN_")}
        fake = [sys.executable, "-m", "tests.integration.embedded.embedded_fake", "--home", str(home)]
        self.process = subprocess.Popen(
            [*fake, "--register", str(home.parent / "running"), *arguments],
            env={**clean, "PYTHONPATH": str(ROOT), "LEMAN_SERVER__GRACE_SECONDS": "1", **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.system = System(home, wait_for(lambda: ServiceFile(home).running()))
        import psutil

        self.family = psutil.Process(self.process.pid).children(recursive=True)

    def serve(self, database: Path) -> dict[str, object]:
        return running_systems.send_command(self.system.said, {"do": "serve", "database": str(database)})

    def ends(self) -> bool:
        return self.process.wait(DEADLINE) == 0 and not [child for child in self.family if lives(child)]


@contextlib.contextmanager
def shared(home: Path, *arguments: str, **environment: str):
    up = Shared(home, *arguments, **environment)
    try:
        yield up
    finally:
        up.process.kill()
        up.process.communicate()


@pytest.fixture(scope="module")
def up(tmp_path_factory):
    with shared(tmp_path_factory.mktemp("state") / "home") as running:
        yield running


def test_it_serves_databases_that_it_is_told_of(up, tmp_path):
    paths = [tmp_path / "a", tmp_path / "b c"]
    assert [up.serve(path) for path in (*paths, paths[0])] == [{"done": True}] * 3
    for path in paths:
        found = running_systems.system_serving(str(path))
        assert (found.pid, found.home, found.said["database"]) == (up.process.pid, up.home, str(path))
        file = path / "_leman" / "service.json"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert sorted(entry.name for entry in file.parent.iterdir()) == ["service.json", "supervisor.lock"]
    assert set(map(str, paths)) <= set(up.system.databases)
    assert up.system.kind == "session"
    assert {info(up.system.said, service).database for service in SERVICES} == {""}


def test_a_database_has_one_system(up, tmp_path):
    with shared(tmp_path / "other") as other:
        assert other.serve(tmp_path / "lake") == {"done": True}
        answer = up.serve(tmp_path / "lake")
        assert answer["elsewhere"]
        assert f"process {other.process.pid}, since " in answer["error"]
        assert other.system.down()
        assert up.serve(tmp_path / "lake") == {"done": True}


def test_a_database_that_is_deleted_is_let_go_and_may_come_again(up, tmp_path):
    database = tmp_path / "lake"
    up.serve(database)
    (database / "_leman" / "service.json").unlink()
    (database / "_leman" / "supervisor.lock").unlink()
    wait_for(lambda: str(database) not in up.system.databases)
    assert up.serve(database) == {"done": True}
    assert running_systems.system_serving(str(database)).pid == up.process.pid


def test_a_damaged_service_file_of_a_database_is_mended(up, tmp_path):
    up.serve(tmp_path)
    (tmp_path / "_leman" / "service.json").write_text("{")
    assert wait_for(lambda: running_systems.system_serving(str(tmp_path))).pid == up.process.pid


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"do": "stop", "token": "guessed"}, "token is wrong"),
        ({"do": "stop", "token": None}, "token is wrong"),
        ({"do": "else"}, "serve and stop"),
        ({"do": "serve"}, "not an absolute path"),
        ({"do": "serve", "database": "lake"}, "not an absolute path"),
        ({"do": "serve", "database": "/dev/null/lake"}, "Not a directory"),
    ],
)
def test_what_control_refuses(up, asked, told):
    said = {**up.system.said, "control_token": asked.pop("token", up.system.said["control_token"])}
    answer = running_systems.send_command(said, asked)
    assert not answer["done"]
    assert told in answer["error"]
    assert up.process.poll() is None


@pytest.mark.parametrize("line", [b"", b"x\n", b"[]\n", b"{" * 100_000 + b"\n"])
def test_garbage_does_not_end_control(up, line):
    host, _, port = up.system.said["control"].rpartition(":")
    with socket.create_connection((host, int(port))) as connection, contextlib.suppress(ConnectionError):
        connection.sendall(line)
        connection.shutdown(socket.SHUT_WR)
        connection.recv(1000)
    assert "serve and stop" in running_systems.send_command(up.system.said, {"do": ""})["error"]


def test_it_is_registered_while_it_runs_and_ends_soon_leaving_nothing(tmp_path):
    database = tmp_path / "lake"
    with shared(tmp_path / "home", LEMAN_SERVER__GRACE_SECONDS="60") as running:
        running.serve(database)
        file = tmp_path / "running" / f"{running.process.pid}.json"
        assert json.loads(file.read_text()) == {"home": str(running.home)}
        reaper = threading.Thread(target=running.process.wait)  # its parent is this process
        reaper.start()
        begun = time.monotonic()
        assert running.system.down()
        assert time.monotonic() - begun < 30.0, "the grace of a minute was not waited for"
        reaper.join()
        assert running.ends()
        left = {path.name for folder in (running.home, database / "_leman") for path in folder.iterdir()}
        assert left == {"supervisor.lock", "logs", "redis", "databases.json"}
        assert not file.exists()
        assert not (running.home / "redis" / "redis.sock").exists()


def test_one_that_does_not_end_is_killed_and_what_it_said_is_removed(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with shared(tmp_path / "home") as running:
        running.serve(tmp_path / "lake")
        os.kill(running.process.pid, signal.SIGSTOP)
        reaper = threading.Thread(target=running.process.wait)
        reaper.start()
        monkeypatch.setattr(running_systems, "_ANSWER_SECONDS", 0.2)
        assert not running.system.down(within=0.1)
        reaper.join()
        wait_for(lambda: not [child for child in running.family if lives(child)])
        assert running_systems.system_serving(str(tmp_path / "lake")) is None
        assert not (tmp_path / "lake" / "_leman" / "service.json").exists()


def test_it_ends_with_the_process_that_holds_its_lifeline(tmp_path):
    with shared(tmp_path / "home", "--lifeline") as running:
        running.process.stdin.close()
        running.process.stdin = None
        assert running.ends()


def test_the_executor_hears_of_databases_and_of_spark(tmp_path):
    with shared(tmp_path / "home", "--warm") as running:
        running.serve(tmp_path / "lake")
        said = json.loads((running.home / "databases.json").read_text())
        assert said == {"databases": [str(tmp_path / "lake")], "taken": {str(tmp_path / "lake"): 1}, "warm": True}
