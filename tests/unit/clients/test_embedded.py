"""Finding and starting the embedded services, with a made-up `embedded`."""

from __future__ import annotations

import datetime
import fcntl
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from pathlib import Path

import pyarrow as pa
import pytest

import leman
from leman import cli
from leman._local import embedded_services, running_systems
from leman._local.running_systems import System
from leman._wire.channel import Services
from leman.cli import _service_commands
from leman.errors import InvalidArgument, StartFailed
from tests.unit.clients.fake_services import FakeLeman

#: Holds its folder, says how it is reached, and does what its control port is asked to.
SUPERVISOR = """
    import fcntl, json, os, pathlib, socketserver, sys
    home = pathlib.Path(sys.argv[sys.argv.index("--home") + 1])
    names = ("planner", "executor", "commit_coordinator")
    said = dict(dict.fromkeys(names, {address!r}), pid=os.getpid(), token="t", home=str(home), python={python!r})
    said["version"] = {version!r}
    held = {{}}

    def hold(folder):
        folder.mkdir(exist_ok=True)
        lock = (folder / "supervisor.lock").open("w")
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        held[folder] = lock
        (folder / "new").write_text(json.dumps(said))
        (folder / "new").rename(folder / "service.json")

    class Control(socketserver.StreamRequestHandler):
        def handle(self):
            asked = json.loads(self.rfile.readline())
            with (home / "asked").open("a") as log:
                log.write(json.dumps(asked) + "\\n")
            answer = dict(done=True)
            folder = pathlib.Path(asked.get("database", ""), "_leman")
            try:
                if asked["do"] == "serve" and folder not in held:
                    hold(folder)
                if asked["do"] == "stop" and not {idle!r}:
                    answer = dict(done=False, error="it is not idle")
            except BlockingIOError:
                answer = dict(done=False, elsewhere=True)
            except OSError as error:
                answer = dict(done=False, error=str(error))
            self.wfile.write(json.dumps(answer).encode() + b"\\n")
            self.wfile.flush()
            if asked["do"] == "stop" and answer["done"]:
                os._exit(0)

    with (home / "starts").open("a") as starts:
        starts.write(f"{{os.getpid()}} {{os.getsid(0)}} {{os.getcwd()}}\\n")
    server = socketserver.TCPServer(("127.0.0.1", 0), Control)
    said.update(control="127.0.0.1:%d" % server.server_address[1], control_token="c")
    hold(home)
    server.serve_forever()
"""
GIVEN = {"python": sys.executable, "version": leman.__version__, "idle": True}


@pytest.fixture
def fake():
    server = FakeLeman(token="t")
    server.start()
    yield server
    server.stop()


@pytest.fixture
def services(tmp_path, monkeypatch):
    """Makes a program that plays `python -m leman_local`."""
    folder = tmp_path / "installed"
    folder.mkdir(parents=True)

    def install(program, **names):
        text = textwrap.dedent(program)
        (folder / "leman_local.py").write_text(text.format(**GIVEN | names) if names else text)

    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    yield install
    for pid, child in list(running_systems.child_processes.items()):
        child.kill()
        child.wait()
        del running_systems.child_processes[pid]


@pytest.fixture
def database(tmp_path):
    return made(tmp_path / "my lake")


def made(path):
    """A folder that is a database."""
    (path / "docs.lance").mkdir(parents=True)
    (path / "_leman").mkdir()
    return path


def call(database):
    """A call that needs the services."""
    with leman.connect(database, direct=False) as db:
        assert db.table_names() == ["docs"]


def write(db):
    """A call that changes something."""
    db.register_entrypoint("m:f", name="f", version="1", input_columns=["x"], data_type=pa.int64())


def starts():
    """Process, session and folder of each supervisor that was started."""
    return [line.split(maxsplit=2) for line in (running_systems.shared_home() / "starts").read_text().splitlines()]


def asked():
    """What they received."""
    return [json.loads(line) for line in (running_systems.shared_home() / "asked").read_text().splitlines()]


def test_starts_once_and_is_found_again(fake, services, database):
    services(SUPERVISOR, address=fake.address)
    call(database)
    call(database)
    ((pid, session, folder),) = starts()
    assert pid == session  # detached: a Ctrl-C here does not reach it
    assert folder == str(running_systems.shared_home())


def test_file_of_a_dead_supervisor_is_no_service(fake, services, database):
    services(SUPERVISOR, address=fake.address)
    call(database)
    os.kill(int(starts()[0][0]), signal.SIGKILL)
    running_systems.child_processes[int(starts()[0][0])].wait()
    call(database)
    assert len(starts()) == 2


def test_pid_that_now_is_another_program_is_no_service(fake, services, database):
    if not Path("/proc/self/cmdline").exists():
        pytest.skip("needs /proc")
    services(SUPERVISOR, address=fake.address)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger:
        content = dict.fromkeys(("planner", "executor", "commit_coordinator"), "127.0.0.1:1")
        (database / "_leman" / "service.json").write_text(json.dumps({"pid": stranger.pid, **content}))
        call(database)
        stranger.communicate(b"\n")
    assert len(starts()) == 1


def test_pid_that_now_is_another_databases_supervisor_is_no_service(fake, services, database, tmp_path):
    """Its lock is free, whatever runs under its process id."""
    services(SUPERVISOR, address=fake.address)
    other = made(tmp_path / "other")
    call(other)
    (database / "_leman" / "supervisor.lock").touch()
    (database / "_leman" / "service.json").write_text((other / "_leman" / "service.json").read_text())
    call(database)
    assert [told["database"] for told in asked()] == [str(other), str(database)]


def test_a_system_that_dies_while_it_is_asked_is_started_anew(fake, services, database):
    """It does not answer, and its process ends meanwhile: no one waits for it any longer."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        services(SUPERVISOR, address=f"127.0.0.1:{silent.getsockname()[1]}")
        embedded_services.Embedded(str(database.absolute())).locate()
        services(SUPERVISOR, address=fake.address)
        (pid,) = (int(line[0]) for line in starts())

        def kill():
            connection, _ = silent.accept()
            connection.close()
            os.kill(pid, signal.SIGKILL)
            running_systems.child_processes[pid].wait()

        killer = threading.Thread(target=kill)
        killer.start()
        call(database)
        killer.join()
    assert len(starts()) == 2


def test_a_stopped_supervisor_that_does_not_answer_is_named(services, database):
    if not Path("/proc/self/stat").exists():
        pytest.skip("needs /proc")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        services(SUPERVISOR, address=f"127.0.0.1:{silent.getsockname()[1]}")
        embedded_services.Embedded(str(database.absolute())).locate()
        (pid,) = (int(line[0]) for line in starts())
        os.kill(pid, signal.SIGSTOP)
        os.waitpid(pid, os.WUNTRACED)
        with pytest.raises(StartFailed, match=f"process {pid} is stopped .*kill -9 {pid}"):
            call(database)


def test_local_calls_take_no_proxy(fake, services, database, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # nothing listens there
    services(SUPERVISOR, address=fake.address)
    with leman.connect(database, direct=False) as db:
        assert db.table_names() == ["docs"]


@pytest.mark.parametrize("spelling", ["{0}/_leman", "file://{0}/_leman", "{0}/_leman/sub", "{0}/x/../_leman"])
def test_lemans_own_folder_is_no_database(tmp_path, spelling):
    with pytest.raises(InvalidArgument, match="Leman keeps for itself"):
        leman.connect(spelling.format(tmp_path))


def test_calls_go_on_when_the_whole_system_was_started_anew(fake, services, database):
    services(SUPERVISOR, address=fake.address)
    with leman.connect(database, direct=False) as db:
        db.table_names()
        pid = int(starts()[0][0])
        fake.stop()
        os.kill(pid, signal.SIGKILL)
        running_systems.child_processes[pid].wait()
        fake.start()  # at another port
        services(SUPERVISOR, address=fake.address)
        assert db.table_names() == ["docs"]
    assert len(starts()) == 2


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


def test_a_folder_that_cannot_be_written_can_be_read(fake, services, database):
    services(SUPERVISOR, address=fake.address)
    (database / "_leman").rmdir()
    (database / "_leman").touch()
    with leman.connect(database, direct=False) as db:
        assert db.table_names() == ["docs"]
        with pytest.raises(StartFailed, match=r"cannot write their files to .*_leman: "):
            write(db)


def test_nothing_is_written_to_a_database_that_is_only_read(fake, services, database):
    services(SUPERVISOR, address=fake.address)
    (database / "_leman").rmdir()
    with leman.connect(database, direct=False) as db:
        assert db.table_names() == ["docs"]
        assert [entry.name for entry in database.iterdir()] == ["docs.lance"]
        write(db)
        assert (database / "_leman" / "service.json").exists()
    assert [(told["do"], told["database"], told["warm"]) for told in asked()] == [("serve", str(database), True)]


def test_databases_share_one_system(fake, services, tmp_path):
    services(SUPERVISOR, address=fake.address)
    paths = [made(tmp_path / name) for name in ("a", "b", "c")]
    for path in paths:
        call(path)
    assert len(starts()) == 1
    assert [told["database"] for told in asked()] == [str(path) for path in paths]


def test_other_settings_have_another_system(fake, services, tmp_path, monkeypatch):
    services(SUPERVISOR, address=fake.address)
    call(made(tmp_path / "a"))
    first = running_systems.shared_home()
    monkeypatch.setenv("LEMAN_EXECUTOR__SLOTS", "1")
    assert running_systems.shared_home() != first
    monkeypatch.setenv("LEMAN_TOKEN", "of a client")
    second = running_systems.shared_home()
    monkeypatch.delenv("LEMAN_TOKEN")
    assert running_systems.shared_home() == second
    call(made(tmp_path / "b"))
    assert len(starts()) == 1
    call(tmp_path / "a")
    assert len(starts()) == 1, "who serves a database continues to"


def test_what_the_user_keeps_of_systems_is_for_nobody_else(services):
    services("")
    folder = running_systems.state_folder()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    folder.chmod(0o755)
    assert stat.S_IMODE(running_systems.state_folder().stat().st_mode) == 0o700


def test_a_folder_of_another_user_is_not_taken(services, tmp_path, monkeypatch):
    services("")
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    with pytest.raises(StartFailed, match=f"files in {tmp_path}/state/leman or {tmp_path}/leman-12345: make one"):
        running_systems.state_folder()


def test_an_idle_system_of_another_release_is_replaced(fake, services, database):
    services(SUPERVISOR, address=fake.address, version="0.0.1")
    call_warned(database, None)
    services(SUPERVISOR, address=fake.address)
    call(database)
    assert running_systems.system_serving(str(database)).said["version"] == leman.__version__
    assert "stop" in [told["do"] for told in asked()]


def call_warned(database, match):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        call(database)
    assert match is None or [True for warning in told if match in str(warning.message)]


def test_one_of_another_release_that_is_at_work_is_told_of(fake, services, database):
    services(SUPERVISOR, address=fake.address, version="0.0.1", idle=False)
    call_warned(database, f"of release 0.0.1, and this client of {leman.__version__}: `leman down {database}`")
    assert len(starts()) == 1


def test_another_python_that_runs_functions_is_told_of(fake, services, database):
    services(SUPERVISOR, address=fake.address, python="/other/bin/python")
    with pytest.warns(UserWarning, match=f"run in /other/bin/python, .*`leman down {database}` ends them"):
        call(database)


def test_a_command_tells_a_warning_as_a_remark(fake, services, database, monkeypatch, capsys):
    services(SUPERVISOR, address=fake.address, python="/other/bin/python")
    monkeypatch.setattr(sys, "argv", ["leman", "jobs", "cancel", str(database), "job-1"])
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        with pytest.raises(SystemExit):
            cli.main()
    assert capsys.readouterr().err.startswith("leman: functions for this database run in /other/bin/python")


def test_one_python_by_its_other_names_is_one(fake, services, database, tmp_path, monkeypatch):
    """`python program.py` and the command `leman`, whose first line may name python3, share their services."""
    folder = tmp_path / "venv" / "bin"
    folder.mkdir(parents=True)
    names = [folder / "python", folder / "python3"]
    for name in names:
        name.symlink_to(sys.executable)
    services(SUPERVISOR, address=fake.address, python=str(names[0]))
    keys = set()
    for name in names:
        monkeypatch.setattr(sys, "executable", str(name))
        keys.add(running_systems.environment_key())
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            call(database)
    assert len(keys) == 1
    assert len(starts()) == 1
    monkeypatch.setattr(sys, "executable", str(tmp_path / "other" / "bin" / "python"))
    assert running_systems.environment_key() not in keys


@pytest.mark.parametrize("path", ["", None, 5, b"lake", "a\0b"])
def test_what_is_no_path(path):
    with pytest.raises(InvalidArgument, match="a database needs a path or uri"):
        leman.connect(path)


def test_services_that_are_not_installed(monkeypatch, tmp_path, database):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(running_systems, "services_installed", lambda: False)
    with pytest.raises(StartFailed, match=r"install leman\[local\]") as caught:
        call(database)
    assert caught.value.reason == "SERVICES_NOT_INSTALLED"


def test_slow_start_is_given_up(services, database):
    services("import signal; signal.pause()")
    with pytest.raises(StartFailed, match="not ready within"):
        embedded_services.Embedded(str(database.absolute()), deadline=0.5).locate()


def test_one_that_lost_the_race_waits_for_the_winner(fake, services, database):
    """Its own supervisor ends with code 4, for there is another one."""
    services("import pathlib, sys; pathlib.Path('lost').touch(); sys.exit(4)")

    def win():
        while not (running_systems.shared_home() / "lost").exists():
            threading.Event().wait(0.01)
        services(SUPERVISOR, address=fake.address)

    winner = threading.Thread(target=win)
    winner.start()
    with leman.connect(database, direct=False) as db:
        assert db.table_names() == ["docs"]
    winner.join()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": 1}', '{"pid": "x", "planner": ""}'])
def test_damaged_service_file_is_none(fake, services, database, text):
    services(SUPERVISOR, address=fake.address)
    (database / "_leman" / "service.json").write_text(text)
    call(database)
    assert len(starts()) == 1


@pytest.fixture
def unmended(fake, services, database, monkeypatch):
    """A system that runs, and does not write its file again."""
    services(SUPERVISOR, address=fake.address)
    call(database)
    monkeypatch.setattr(embedded_services, "_REPAIR_SECONDS", 0.3)
    return database / "_leman"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": 1}'])
def test_a_damaged_file_of_a_system_that_runs_is_named_with_its_process(unmended, text):
    ((pid, *_),) = starts()
    (unmended / "service.json").write_text(text)
    with pytest.raises(StartFailed, match=f"process {pid}.*service.json.*kill {pid}"):
        call(unmended.parent)
    assert len(starts()) == 1


def test_a_token_that_was_damaged_is_told(unmended):
    ((pid, *_),) = starts()
    said = (unmended / "service.json").read_text()
    (unmended / "service.json").write_text(said.replace('"token": "t"', '"token": "x"'))
    with pytest.raises(StartFailed, match=f"process {pid}.*service.json.*token that is refused.*kill {pid}"):
        call(unmended.parent)


@pytest.mark.parametrize("change", [("{", ""), ('"token": "t"', '"token": "x"')])
def test_a_damaged_file_that_is_mended_is_waited_for(unmended, monkeypatch, change):
    monkeypatch.setattr(embedded_services, "_REPAIR_SECONDS", 60.0)
    file = unmended / "service.json"
    said = file.read_text()
    file.write_text(said.replace(*change))
    looked = threading.Event()
    monkeypatch.setattr(embedded_services, "_POLL", 0.01)
    running = running_systems.ServiceFile.said

    def look(self):
        looked.set()
        return running(self)

    monkeypatch.setattr(running_systems.ServiceFile, "said", look)

    def mend():
        looked.wait()
        (unmended / "new").write_text(said)
        (unmended / "new").rename(file)

    mending = threading.Thread(target=mend)
    mending.start()
    with leman.connect(unmended.parent, direct=False) as db:
        assert db.table_names() == ["docs"]
    mending.join()


def test_token_is_for_remote_services(database):
    with pytest.raises(leman.LemanError, match="endpoint="):
        leman.connect(database, token="x")


def held(folder, address):
    """A service file of a system that runs, and the lock that it holds."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = (folder / "supervisor.lock").open("w")
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    said = dict.fromkeys(("planner", "executor", "commit_coordinator"), address)
    (folder / "service.json").write_text(json.dumps({**said, "pid": os.getpid(), "token": "t"}))
    return lock


@pytest.mark.parametrize("reads", [True, False])
def test_who_reads_follows_the_system_that_serves_the_database_by_now(tmp_path, monkeypatch, reads):
    """Another system knows nothing of its jobs, and would take them for those of a dead one."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(running_systems, "is_alive", lambda _: True)
    (tmp_path / "lake" / "docs.lance").mkdir(parents=True)
    locator = embedded_services.Embedded(str(tmp_path / "lake"))
    with held(running_systems.shared_home(), "ours:1"):
        services = Services(locator)
        monkeypatch.setattr(locator, "locate_first", locator.locate)
        services.channel("executor", reads=True)
        assert list(services._channels) == ["ours:1"]
        with held(tmp_path / "lake" / "_leman", "theirs:1"):
            services.channel("executor", reads=reads)
            assert list(services._channels) == ["theirs:1"]
    services.close()


def test_a_call_that_could_not_be_made_does_not_let_the_next_one_through(tmp_path, monkeypatch):
    (tmp_path / "lake" / "docs.lance").mkdir(parents=True)
    locator, asked = embedded_services.Embedded(str(tmp_path / "lake")), []

    def locate():
        asked.append(True)
        raise StartFailed("no")

    monkeypatch.setattr(locator, "locate", locate)
    for _ in range(2):
        with pytest.raises(StartFailed):
            locator.check(reads=False)
    assert len(asked) == 2


def test_systems_are_told_apart_by_what_changes_them():
    settings = [{}, {"JAVA_HOME": "/jvm"}, {"leman_spark__driver_memory": "2g"}, {"LEMAN_SPARK": "{}"}]
    assert len({running_systems.environment_key(environment) for environment in settings}) == len(settings)
    assert running_systems.environment_key({"HOME": "/root"}) == running_systems.environment_key({})


@pytest.mark.parametrize(
    ("ago", "told"),
    [
        (datetime.timedelta(0), r"\d\d:\d\d:\d\d"),
        (datetime.timedelta(days=3), r"(\d{4}-)?\d\d-\d\d \d\d:\d\d"),  # it may have been another year
        (datetime.timedelta(days=400), r"\d{4}-\d\d-\d\d \d\d:\d\d"),
    ],
)
def test_since_when_services_run_is_told_by_the_clock_here(tmp_path, ago, told, monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        begun = datetime.datetime.now(datetime.UTC) - ago
        since = _service_commands._since(System(tmp_path, {"started_at": begun.isoformat(timespec="seconds")}))
        assert re.fullmatch(told, since)
        assert f"{begun.astimezone():%H:%M}" in since
    finally:
        monkeypatch.undo()
        time.tzset()
    assert _service_commands._since(System(tmp_path, {})) == ""
