"""The embedded system with small services: start, service file, kill -9 of everything, idle end, no orphans."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import stat
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest
import redis
import structlog

from leman._local import running_systems
from leman.v1 import info_pb2, info_pb2_grpc, jobs_pb2, jobs_pb2_grpc
from leman_core.model.service_errors import FailedPrecondition
from leman_local import __main__ as embedded
from leman_local.tcp_ports import HeldPort, free_port
from leman_local.warm_parent import begin_early

ROOT = Path(__file__).resolve().parents[3]
DEADLINE = 60.0
SERVICES = ("planner", "executor", "commit_coordinator")
#: What services are forked from, on Linux.
WARM = ("leman-warm",) if sys.platform == "linux" else ()

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX only")


def wait_for(what: Callable[[], Any], seconds: float = DEADLINE) -> Any:
    """The first true answer."""
    deadline = time.monotonic() + seconds
    while not (answer := what()):
        assert time.monotonic() < deadline, "waited without success"
        time.sleep(0.01)
    return answer


def lives(process: psutil.Process) -> bool:
    """A zombie does not: it waits for anyone who adopted it."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


class System:
    """A supervisor in a process of its own, and everything below it."""

    def __init__(self, database: Path, *arguments: str, **environment: str) -> None:
        self.database = database
        self.file = database / "_leman" / "service.json"
        ours = {"PYTHONPATH": str(ROOT), "LEMAN_SERVER__GRACE_SECONDS": "1", **environment}
        clean = {name: value for name, value in os.environ.items() if not name.startswith("LEMAN_")}
        command = [sys.executable, "-m", "tests.integration.embedded.embedded_fake", "--database", str(database)]
        self.process = subprocess.Popen(
            [*command, *arguments],
            env={**clean, **ours},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.family: set[psutil.Process] = set()

    def content(self) -> dict[str, Any]:
        """The service file, as soon as this supervisor has written it."""

        def read() -> dict[str, Any] | None:
            assert self.process.poll() is None, self.process.communicate()
            with contextlib.suppress(FileNotFoundError):
                found = json.loads(self.file.read_text())
                return found if found["pid"] == self.process.pid else None
            return None

        content = wait_for(read)
        self.remember()
        return content

    def remember(self) -> None:
        self.family |= set(psutil.Process(self.process.pid).children(recursive=True))

    def alive(self) -> list[psutil.Process]:
        return [process for process in self.family if lives(process)]

    def end(self, number: int = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.remember()
            self.process.send_signal(number)
        with contextlib.closing(self.process.stdout), contextlib.closing(self.process.stderr):
            return self.process.wait(DEADLINE)

    def log(self, name: str) -> str:
        return (self.database / "_leman" / "logs" / f"{name}.log").read_text()


@contextlib.contextmanager
def system(database: Path, *arguments: str, **environment: str) -> Iterator[System]:
    up = System(database, *arguments, **environment)
    try:
        yield up
    finally:
        up.end(signal.SIGKILL)
        for process in up.alive():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


def info(content: dict[str, Any], service: str, token: str | None = None) -> info_pb2.GetInfoResponse:
    with grpc.insecure_channel(content[service]) as channel:
        metadata = (("authorization", f"Bearer {content['token'] if token is None else token}"),)
        stub = info_pb2_grpc.InfoServiceStub(channel)
        return stub.GetInfo(info_pb2.GetInfoRequest(), metadata=metadata, wait_for_ready=True, timeout=DEADLINE)


def asked_over_http(content: dict[str, Any]) -> dict[str, Any]:
    headers = {"authorization": f"Bearer {content['token']}", "content-type": "application/json"}
    url = f"http://{content['http']}/leman.v1.InfoService/GetInfo"
    with urllib.request.urlopen(urllib.request.Request(url, b"{}", headers), timeout=DEADLINE) as answer:
        return dict(json.load(answer))


def redis_url(content: dict[str, Any]) -> str:
    with grpc.insecure_channel(content["planner"]) as channel:
        metadata = (("authorization", f"Bearer {content['token']}"),)
        stub = jobs_pb2_grpc.JobServiceStub(channel)
        return stub.GetJob(jobs_pb2.GetJobRequest(), metadata=metadata, timeout=DEADLINE).job.job_id


def ping(url: str) -> bool:
    with redis.Redis.from_url(url) as client:
        return bool(client.ping())


# ------------------------------------------------------------------------------- one that runs


@pytest.fixture(scope="module")
def shared(tmp_path_factory) -> Iterator[System]:
    with system(tmp_path_factory.mktemp("lake")) as up:
        up.content()
        yield up


def test_the_service_file_says_how_to_reach_everything_and_is_private(shared):
    content = shared.content()
    assert stat.S_IMODE(shared.file.stat().st_mode) == 0o600
    assert set(content["pids"]) == {*SERVICES, "redis"}
    assert content["redis_pid"] == content["pids"]["redis"]
    assert len({content["pid"], *content["pids"].values()}) == 5
    assert content["database"] == str(shared.database.resolve())
    assert content["http"] is None
    for service in SERVICES:
        told = info(content, service)
        assert (told.service, told.pid, told.database) == (service, content["pids"][service], content["database"])
        assert told.planner_address == content["planner"]
        assert told.executor_address == content["executor"]
        assert told.commit_coordinator_address == content["commit_coordinator"]


def test_services_ask_for_the_token_of_the_file(shared):
    with pytest.raises(grpc.RpcError) as caught:
        info(shared.content(), "planner", token="guessed")
    assert caught.value.code() == grpc.StatusCode.UNAUTHENTICATED


def test_no_secret_is_on_a_command_line_or_in_a_log(shared):
    content = shared.content()
    url = redis_url(content)
    password = url.partition("://:")[2].partition("@")[0]
    assert len(password) > 20
    shown = [" ".join(process.cmdline()) for process in shared.family if process.is_running()]
    shown += [path.read_text() for path in (shared.database / "_leman" / "logs").iterdir()]
    assert not [text for text in shown if content["token"] in text or password in text]
    config = shared.database / "_leman" / "redis" / "redis.conf"
    assert stat.S_IMODE(config.stat().st_mode) == 0o600


def test_what_a_service_prints_goes_to_its_log(shared):
    assert "not a line about itself" in shared.log("planner")
    assert '"event": "serving"' in shared.log("planner")


@pytest.mark.faults
@pytest.mark.parametrize("victim", [*SERVICES, "redis"])
def test_a_killed_process_is_back_at_its_address(shared, victim):
    before = shared.content()
    url = redis_url(before)
    below = psutil.Process(before["pids"][victim]).children(recursive=True)
    os.kill(before["pids"][victim], signal.SIGKILL)
    after = wait_for(lambda: (c := shared.content())["pids"][victim] != before["pids"][victim] and c)
    assert {name: after[name] for name in SERVICES} == {name: before[name] for name in SERVICES}
    assert {n: p for n, p in after["pids"].items() if n != victim} == {
        n: p for n, p in before["pids"].items() if n != victim
    }
    if victim == "redis":
        assert ping(url)
    else:
        assert info(after, victim).pid == after["pids"][victim]
        assert below
    assert not [process for process in below if lives(process)]


@pytest.mark.skipif(not WARM, reason="services are forked on Linux")
@pytest.mark.faults
def test_services_are_forked_and_where_that_process_is_killed_from_another_one(tmp_path):
    with system(tmp_path) as up:
        content = up.content()
        names = {psutil.Process(content["pids"][name]).name() for name in SERVICES}
        assert names == {"leman-planner", "leman-executor", "leman-commit_co"}
        (warm,) = [child for child in psutil.Process(content["pid"]).children() if child.name() == "leman-warm"]
        os.kill(warm.pid, signal.SIGKILL)
        wait_for(lambda: not psutil.pid_exists(warm.pid))  # reaped, too
        assert up.content()["pids"] == content["pids"]
        for name in ("planner", "executor"):  # which the process becomes that the planner was forked from
            os.kill(content["pids"][name], signal.SIGKILL)
            after = wait_for(lambda name=name: (c := up.content())["pids"][name] != content["pids"][name] and c)
            assert info(after, name).pid == after["pids"][name]
            assert psutil.Process(after["pids"][name]).name() == f"leman-{name}"
        assert "the warm process has ended" in up.log("supervisor")
        (other,) = [child for child in psutil.Process(content["pid"]).children() if child.name() == "leman-warm"]
        assert other.pid != warm.pid
        assert up.end() == 0
        assert not up.alive()


@pytest.mark.parametrize("how", ["gone", "garbage", "empty", "other token", "other port"])
def test_a_damaged_service_file_is_written_again(shared, how):
    content, told = shared.content(), shared.log("supervisor").count("is rewritten")
    damaged = {
        "garbage": b"\x00\xff{",
        "empty": b"",
        "other token": json.dumps({**content, "token": "x"}).encode(),
        "other port": json.dumps({**content, "planner": "127.0.0.1:1"}).encode(),
    }
    if how == "gone":
        shared.file.unlink()
    else:
        shared.file.write_bytes(damaged[how])

    def is_told() -> bool:
        with contextlib.suppress(OSError, ValueError):
            return bool(json.loads(shared.file.read_text()) == content)
        return False

    wait_for(is_told)
    assert stat.S_IMODE(shared.file.stat().st_mode) == 0o600
    wait_for(lambda: shared.log("supervisor").count("is rewritten") == told + 1)


def test_a_second_supervisor_gives_way(shared):
    with system(shared.database) as second:
        assert second.process.wait(DEADLINE) == 4
        assert "already" in second.process.stderr.read()
    assert info(shared.content(), "planner").pid


# -------------------------------------------------------------------------------- how it ends


def test_it_ends_when_asked_and_leaves_nothing(tmp_path):
    with system(tmp_path) as up:
        up.content()
        assert len(up.family) == 7 + len(WARM)
        assert up.end() == 0
        assert not up.file.exists()
        assert up.alive() == []


@pytest.mark.faults
def test_killed_it_leaves_no_orphan_and_the_next_one_starts_at_once(tmp_path):
    with system(tmp_path) as up:
        first = up.content()
        up.end(signal.SIGKILL)
        assert up.file.exists()
        with system(tmp_path) as following:
            second = following.content()
            assert second["token"] != first["token"]
            assert info(second, "executor").pid == second["pids"]["executor"]
        wait_for(lambda: not up.alive())


def test_it_ends_when_idle_but_not_while_a_service_works(tmp_path):
    busy, asked = tmp_path / "busy", tmp_path / "asked"
    busy.touch()
    asked.touch()
    with system(tmp_path, "--idle-seconds", "0.4") as up:
        said = up.content()
        # Each service is asked eight times within the idle time: so often means that it is over.
        begun = asked.stat().st_size
        wait_for(lambda: asked.stat().st_size - begun > 3 * 8 * 2)
        assert up.process.poll() is None
        assert running_systems.send_command(said, {"do": "stop", "if_idle": True}) == {
            "done": False,
            "error": "it is not idle",
        }
        up.remember()
        busy.unlink()
        assert up.process.wait(DEADLINE) == 0
        assert not up.file.exists()
        assert up.alive() == []


def test_asked_to_end_while_it_starts_it_leaves_nothing(tmp_path):
    with system(tmp_path) as up:
        log = tmp_path / "_leman" / "logs" / "supervisor.log"
        wait_for(lambda: log.exists() and log.read_text().count('"started"') == 4)
        assert up.end() == 0
        assert up.alive() == []
        assert not up.file.exists()


def test_a_service_that_cannot_start_is_named_and_nothing_is_left(tmp_path):
    with system(tmp_path, FAKE_FAILS="executor", XDG_DATA_HOME=str(tmp_path)) as up:
        assert any(str(tmp_path) in _shown(p) for p in psutil.process_iter())
        assert up.process.wait(DEADLINE) == 1
        told = up.process.stderr.read()
        assert "executor ended with code 1" in told
        assert "no Java here" in told
        assert not up.file.exists()
        assert not [p for p in psutil.process_iter() if str(tmp_path) in _shown(p)]


def _shown(process: psutil.Process) -> str:
    """A variable that processes continue to show."""
    with contextlib.suppress(psutil.Error):
        return process.environ().get("XDG_DATA_HOME", "")
    return ""


# ------------------------------------------------------------------------------ settings


@pytest.fixture
def default_logging():
    """The supervisor, run in this process, sets logging up for itself."""
    yield
    logging.basicConfig(level=logging.WARNING, handlers=[], force=True)
    structlog.reset_defaults()


def test_a_redis_from_outside_fixed_ports_and_the_table_of_foreground(tmp_path):
    port, http_port = free_port(), free_port()
    settings = {
        "LEMAN_REDIS__URL": "redis://elsewhere:6379/0",
        "LEMAN_SERVER__PORT": str(port),
        "LEMAN_SERVER__HTTP_PORT": str(http_port),
        "LEMAN_SERVER__TOKEN": "chosen",
        "COLUMNS": "200",
    }
    with system(tmp_path, "--foreground", **settings) as up:
        content = up.content()
        assert content["planner"] == f"127.0.0.1:{port}"
        assert content["token"] == "chosen"
        assert content["redis_pid"] is None
        assert redis_url(content) == "redis://elsewhere:6379/0"
        assert content["http"] == f"127.0.0.1:{http_port}"
        assert asked_over_http(content)["service"] == "planner"
        up.remember()
        up.process.send_signal(signal.SIGINT)
        shown, _ = up.process.communicate(timeout=DEADLINE)
        assert up.process.returncode == 0
        for expected in (str(up.file), content["http"], *(content[name] for name in SERVICES)):
            assert expected in shown
        assert "chosen" not in shown


@pytest.mark.parametrize(
    ("database", "environment", "told"),
    [
        ("s3://bucket/lake", {}, "local folder"),
        ("lake", {"LEMAN_SERVER__PROT": "1"}, "LEMAN_SERVER__PROT"),
        ("lake", {"LEMAN_SERVER__HOST": "0.0.0.0"}, "this machine only"),
        ("file/below", {}, "Not a directory"),
        ("~no-such-user/lake", {}, "~no-such-user/lake: Could not determine home directory"),
    ],
)
def test_wrong_arguments_and_settings(tmp_path, monkeypatch, capsys, default_logging, database, environment, told):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert begin_early(["--database", database]) is None
    assert embedded.main(["--database", database]) in {1, 2}
    assert told in capsys.readouterr().err
    assert not (tmp_path / "lake" / "_leman" / "service.json").exists()


def test_a_fixed_port_that_is_taken_is_named(shared):
    port = int(shared.content()["planner"].rpartition(":")[2])
    with pytest.raises(FailedPrecondition) as caught:
        HeldPort(port)
    assert str(port) in caught.value.message
