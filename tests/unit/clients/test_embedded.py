"""Finding and starting the embedded services, with a made-up `embedded`."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

import leman
from leman import _embedded, _services_here
from leman.errors import InvalidArgument, StartFailed
from tests.unit.clients.fake_services import FakeLeman

SUPERVISOR = """
    import fcntl, json, os, pathlib, signal, sys
    database = pathlib.Path(sys.argv[sys.argv.index("--database") + 1])
    lock = (database / "_leman" / "supervisor.lock").open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    names = ("planner", "executor", "commit_coordinator")
    content = dict(dict.fromkeys(names, {address!r}), pid=os.getpid(), token="t")
    with (database / "starts").open("a") as starts:
        starts.write(f"{{os.getpid()}} {{os.getsid(0)}} {{os.getcwd()}}\\n")
    temporary = database / "_leman" / "new"
    temporary.write_text(json.dumps(content))
    temporary.rename(database / "_leman" / "service.json")
    signal.pause()
"""


@pytest.fixture
def fake():
    server = FakeLeman(token="t")
    server.start()
    yield server
    server.stop()


@pytest.fixture
def services(tmp_path, monkeypatch):
    """Makes a program that plays `python -m embedded`."""
    folder = tmp_path / "installed"
    folder.mkdir(parents=True)

    def install(program, **names):
        (folder / "embedded.py").write_text(textwrap.dedent(program).format(**names))

    monkeypatch.setattr(_services_here, "folder", lambda: folder)
    yield install
    for pid, child in list(_embedded._children.items()):
        child.kill()
        child.wait()
        del _embedded._children[pid]


@pytest.fixture
def database(tmp_path):
    return made(tmp_path / "my lake")


def made(path):
    """A folder that is a database."""
    (path / "docs.lance").mkdir(parents=True)
    return path


def call(database):
    """A call that needs the services."""
    with leman.connect(database) as db:
        assert db.table_names() == ["docs"]


def starts(database):
    return [line.split(maxsplit=2) for line in (database / "starts").read_text().splitlines()]


def test_starts_once_and_is_found_again(fake, services, database):
    services(SUPERVISOR, address=fake.address)
    call(database)
    call(database)
    ((pid, session, folder),) = starts(database)
    assert pid == session  # detached: a Ctrl-C here does not reach it
    assert folder == str(database / "_leman")


def test_file_of_a_dead_supervisor_is_no_service(fake, services, database):
    services(SUPERVISOR, address=fake.address)
    call(database)
    os.kill(int(starts(database)[0][0]), signal.SIGKILL)
    _embedded._children[int(starts(database)[0][0])].wait()
    call(database)
    assert len(starts(database)) == 2


def test_pid_that_now_is_another_program_is_no_service(fake, services, database):
    if not Path("/proc/self/cmdline").exists():
        pytest.skip("needs /proc")
    services(SUPERVISOR, address=fake.address)
    (database / "_leman").mkdir(parents=True)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger:
        content = dict.fromkeys(("planner", "executor", "commit_coordinator"), "127.0.0.1:1")
        (database / "_leman" / "service.json").write_text(json.dumps({"pid": stranger.pid, **content}))
        call(database)
        stranger.communicate(b"\n")
    assert len(starts(database)) == 1


def test_pid_that_now_is_another_databases_supervisor_is_no_service(fake, services, database, tmp_path):
    """Its lock is free, whatever runs under its process id."""
    services(SUPERVISOR, address=fake.address)
    other = made(tmp_path / "other")
    call(other)
    (database / "_leman").mkdir(parents=True)
    (database / "_leman" / "supervisor.lock").touch()
    (database / "_leman" / "service.json").write_text((other / "_leman" / "service.json").read_text())
    call(database)
    assert len(starts(database)) == 1


def test_a_system_that_dies_while_it_is_asked_is_started_anew(fake, services, database):
    """It does not answer, and its process ends meanwhile: nobody waits for it any longer."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        services(SUPERVISOR, address=f"127.0.0.1:{silent.getsockname()[1]}")
        _embedded.Embedded(str(database.absolute())).locate()
        services(SUPERVISOR, address=fake.address)
        (pid,) = (int(line[0]) for line in starts(database))

        def kill():
            connection, _ = silent.accept()
            connection.close()
            os.kill(pid, signal.SIGKILL)
            _embedded._children[pid].wait()

        killer = threading.Thread(target=kill)
        killer.start()
        call(database)
        killer.join()
    assert len(starts(database)) == 2


def test_a_stopped_supervisor_that_does_not_answer_is_named(services, database):
    if not Path("/proc/self/stat").exists():
        pytest.skip("needs /proc")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        services(SUPERVISOR, address=f"127.0.0.1:{silent.getsockname()[1]}")
        _embedded.Embedded(str(database.absolute())).locate()
        (pid,) = (int(line[0]) for line in starts(database))
        os.kill(pid, signal.SIGSTOP)
        os.waitpid(pid, os.WUNTRACED)
        with pytest.raises(StartFailed, match=f"process {pid} is stopped .*kill -9 {pid}"):
            call(database)


def test_local_calls_take_no_proxy(fake, services, database, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # nothing listens there
    services(SUPERVISOR, address=fake.address)
    with leman.connect(database) as db:
        assert db.table_names() == ["docs"]


@pytest.mark.parametrize("spelling", ["{0}/_leman", "file://{0}/_leman", "{0}/_leman/sub", "{0}/x/../_leman"])
def test_lemans_own_folder_is_no_database(tmp_path, spelling):
    with pytest.raises(InvalidArgument, match="Leman keeps for itself"):
        leman.connect(spelling.format(tmp_path))


def test_calls_go_on_when_the_whole_system_was_started_anew(fake, services, database):
    services(SUPERVISOR, address=fake.address)
    with leman.connect(database) as db:
        db.table_names()
        pid = int(starts(database)[0][0])
        fake.stop()
        os.kill(pid, signal.SIGKILL)
        _embedded._children[pid].wait()
        fake.start()  # at another port
        services(SUPERVISOR, address=fake.address)
        assert db.table_names() == ["docs"]
    assert len(starts(database)) == 2


def test_failed_start_shows_the_end_of_the_log(services, database):
    services("import sys; print('old noise'); print('no Java was found'); sys.exit(7)")
    with pytest.raises(StartFailed, match="exit code 7") as caught:
        call(database)
    assert "no Java was found" in str(caught.value)
    assert "supervisor.log" in str(caught.value)


def test_only_this_starts_log_is_shown(services, database):
    services("import sys; print('first'); sys.exit(7)")
    with pytest.raises(StartFailed):
        call(database)
    services("import sys; print('second'); sys.exit(8)")
    with pytest.raises(StartFailed) as caught:
        call(database)
    assert "first" not in str(caught.value)


def test_a_folder_that_cannot_be_written(services, database):
    services("")
    (database / "_leman").touch()
    with pytest.raises(StartFailed, match="_leman, which cannot be written: "):
        call(database)


@pytest.mark.parametrize("path", ["", None, 5, b"lake", "a\0b"])
def test_what_is_no_path(path):
    with pytest.raises(InvalidArgument, match="a database needs a path or uri"):
        leman.connect(path)


def test_services_that_are_not_installed(monkeypatch, database):
    monkeypatch.setattr(_services_here, "folder", lambda: None)
    with pytest.raises(StartFailed, match=r"install leman\[local\]") as caught:
        call(database)
    assert caught.value.reason == "SERVICES_NOT_INSTALLED"


def test_slow_start_is_given_up(services, database):
    services("import signal; signal.pause()")
    with pytest.raises(StartFailed, match="not ready within"):
        _embedded.Embedded(str(database.absolute()), deadline=0.5).locate()


def test_one_that_lost_the_race_waits_for_the_winner(fake, services, database):
    """Its own supervisor ends with code 4, for there is another one."""
    services("import pathlib, sys; pathlib.Path('lost').touch(); sys.exit(4)")
    (database / "_leman").mkdir(parents=True)

    def win():
        while not (database / "_leman" / "lost").exists():
            threading.Event().wait(0.01)
        services(SUPERVISOR, address=fake.address)

    winner = threading.Thread(target=win)
    winner.start()
    with leman.connect(database) as db:
        assert db.table_names() == ["docs"]
    winner.join()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": 1}', '{"pid": "x", "planner": ""}'])
def test_damaged_service_file_is_none(fake, services, database, text):
    services(SUPERVISOR, address=fake.address)
    (database / "_leman").mkdir(parents=True)
    (database / "_leman" / "service.json").write_text(text)
    call(database)
    assert len(starts(database)) == 1


@pytest.fixture
def unmended(fake, services, database, monkeypatch):
    """A system that runs, and does not write its file again; those that come later give way."""
    services(SUPERVISOR, address=fake.address)
    call(database)
    services(
        """
        import pathlib, sys
        with pathlib.Path("later").open("a") as later: later.write("x")
        sys.exit(4)
        """
    )
    monkeypatch.setattr(_embedded, "_MEND_SECONDS", 0.3)
    return database / "_leman"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": 1}'])
def test_a_damaged_file_of_a_system_that_runs_is_named_with_its_process(unmended, text):
    ((pid, *_),) = starts(unmended.parent)
    (unmended / "service.json").write_text(text)
    with pytest.raises(StartFailed, match=f"process {pid}.*service.json.*kill {pid}"):
        call(unmended.parent)
    assert (unmended / "later").read_text() == "x", "one supervisor was started and no more"


def test_a_token_that_was_damaged_is_told(unmended):
    ((pid, *_),) = starts(unmended.parent)
    said = (unmended / "service.json").read_text()
    (unmended / "service.json").write_text(said.replace('"token": "t"', '"token": "x"'))
    with pytest.raises(StartFailed, match=f"process {pid}.*service.json.*token that is refused.*kill {pid}"):
        call(unmended.parent)


@pytest.mark.parametrize("change", [("{", ""), ('"token": "t"', '"token": "x"')])
def test_a_damaged_file_that_is_mended_is_waited_for(unmended, monkeypatch, change):
    monkeypatch.setattr(_embedded, "_MEND_SECONDS", 60.0)
    file = unmended / "service.json"
    said = file.read_text()
    file.write_text(said.replace(*change))
    looked = threading.Event()
    monkeypatch.setattr(_embedded, "_POLL", 0.01)
    running = _embedded.Embedded._said

    def look(self):
        looked.set()
        return running(self)

    monkeypatch.setattr(_embedded.Embedded, "_said", look)

    def mend():
        looked.wait()
        (unmended / "new").write_text(said)
        (unmended / "new").rename(file)

    mending = threading.Thread(target=mend)
    mending.start()
    with leman.connect(unmended.parent) as db:
        assert db.table_names() == ["docs"]
    mending.join()


def test_token_is_for_remote_services(database):
    with pytest.raises(leman.LemanError, match="endpoint="):
        leman.connect(database, token="x")
