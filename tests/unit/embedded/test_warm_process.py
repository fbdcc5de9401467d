"""The process that others are forked from, and who asks it: no one waits for ever for the other."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from leman_executor.spark import daemon_startup
from leman_local import fd_messages, service_process, warm_parent, warm_process
from leman_local.service_process import Spec
from leman_local.warm_parent import WarmParent
from leman_local.warm_process import WarmProcess

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux alone")
REQUEST = {"command": [], "environment": {}, "path": []}
#: Tells the id of a process that it has started, which holds its pipes.
STARTS_ANOTHER = ["sh", "-c", "sleep 600 & echo $! >&2; wait"]


@pytest.fixture
def warm(tmp_path, monkeypatch):
    """A process that may not fork: nothing that it is asked here is reason to."""
    monkeypatch.setattr(warm_process, "_REQUEST_SECONDS", 0.05)
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("a daemon was forked"))
    control, other = socket.socketpair()
    made = WarmProcess(os.getpid(), control, tmp_path / "s")
    yield made
    made._listener.close()
    control.close()
    other.close()


def _asked(warm: WarmProcess, data: bytes, *, leave: bool = False) -> None:
    """Send something, have it served, and see that the connection was closed."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(warm._file))
        client.sendall(data)
        if leave:
            client.close()
        warm._fork_daemon()
        if not leave:
            assert client.recv(1) == b""


@pytest.mark.parametrize(
    "sent", [b"", fd_messages.encoded(REQUEST)[:-1], b"\0\0\0\3[1]", b"\0\0\0\1x", fd_messages.encoded({})]
)
def test_who_sends_no_request_holds_nobody_up(warm, sent):
    _asked(warm, sent)


def test_no_daemon_is_forked_for_one_who_has_left(warm):
    _asked(warm, fd_messages.encoded(REQUEST), leave=True)


def test_the_values_of_settings_are_not_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("LEMAN_SERVER__TOKEN", "a secret value")
    control, other = socket.socketpair()
    with control, other:
        warm = WarmProcess(os.getpid(), control, tmp_path / "s")
        warm._listener.close()
        assert "a secret value" not in repr(vars(warm))


def test_a_daemon_is_started_anew_where_none_is_forked_in_time(tmp_path, monkeypatch):
    monkeypatch.setattr(daemon_startup, "_ANSWER_SECONDS", 0.05)
    monkeypatch.setenv(daemon_startup.WARM_PROCESS_VARIABLE, str(tmp_path / "s"))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        daemon_startup.relay_to_warm_process()
    assert daemon_startup.WARM_PROCESS_VARIABLE not in os.environ


@pytest.mark.parametrize("path", [None, "/nowhere"], ids=["a program waits", "the interpreter waits"])
def test_who_asked_for_a_daemon_ends_with_it(tmp_path, path):
    """And is not what keeps open the descriptors that were passed on."""
    environment = {**os.environ, daemon_startup.WARM_PROCESS_VARIABLE: str(tmp_path / "s")}
    ask = "import os; from leman_executor.spark import daemon_startup; os.environ.update(PATH=%r); "
    ask += "daemon_startup.relay_to_warm_process()"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        relay = subprocess.Popen(
            [sys.executable, "-c", ask % (path or os.environ["PATH"])],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        daemon, _ = listener.accept()
        with daemon:
            asked = fd_messages.receive(daemon)
            assert asked is not None
            fd_messages.send(daemon, {"pid": 1})
            os.write(asked[1][1], b"what the daemon says")
            fd_messages.close(asked[1])
            assert relay.stdout is not None
            if path is None:
                assert relay.stdout.read() == b"what the daemon says"
            with pytest.raises(subprocess.TimeoutExpired):
                relay.wait(0.1)
    assert relay.wait(10) == 0
    assert relay.stdin is not None
    relay.stdin.close()
    relay.stdout.close()


def _parent(folder: Path, command: list[str]) -> tuple[WarmParent, socket.socket, subprocess.Popen[bytes]]:
    ours, theirs = socket.socketpair()
    started = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    return WarmParent(started, ours, folder / "s"), theirs, started


def test_a_service_is_started_anew_where_the_process_does_not_answer(tmp_path, monkeypatch):
    monkeypatch.setattr(warm_parent, "_ANSWER_SECONDS", 0.05)
    spec = Spec(
        name="planner",
        command=service_process.module_command("planner"),
        environment={"x": "y" * (1 << 20)},
        log=tmp_path / "l",
    )
    parent, theirs, started = _parent(tmp_path, ["sleep", "600"])
    with theirs:
        assert asyncio.run(parent.start(spec)) is None
    assert parent.is_gone
    assert started.returncode is not None
    assert "did not answer" in parent.last_words


def test_a_service_that_it_has_imported_is_not_waited_for_as_long(tmp_path, monkeypatch):
    monkeypatch.setattr(warm_parent, "_LATER_SECONDS", 0.05)
    spec = Spec(name="planner", command=service_process.module_command("planner"), environment={}, log=tmp_path / "l")
    parent, theirs, _ = _parent(tmp_path, ["sleep", "600"])
    service = subprocess.Popen(["true"])
    service.wait()

    async def start_twice() -> None:
        first = await parent.start(spec)
        assert first is not None
        assert first.stdout is not None
        assert first.stderr is not None
        asked = fd_messages.receive(theirs)
        assert asked is not None
        fd_messages.close(asked[1])
        assert await first.stdout.read() + await first.stderr.read() == b""
        os.close(first._stdin)
        assert await parent.start(spec) is None

    with theirs:
        fd_messages.send(theirs, {"pid": service.pid})  # the answer to the first request, and to no other
        asyncio.run(start_twice())
    assert parent.last_words == "it did not answer within 0.05 s"


def test_what_it_has_started_is_ended_with_it_and_not_waited_for(tmp_path):
    parent, theirs, started = _parent(tmp_path, STARTS_ANOTHER)
    assert started.stderr is not None
    (tmp_path / "s").touch()
    theirs.close()
    below = psutil.Process(int(started.stderr.readline()))
    parent.abandon()
    assert started.returncode is not None
    _, alive = psutil.wait_procs([below], timeout=10)
    assert not [left for left in alive if left.status() != psutil.STATUS_ZOMBIE]
    assert not (tmp_path / "s").exists()


def test_sockets_of_supervisors_that_are_gone_are_deleted(tmp_path):
    gone = subprocess.Popen(["true"])
    gone.wait()
    for pid in (gone.pid, os.getpid()):
        (tmp_path / warm_parent.warm_socket_name(pid)).touch()
    (tmp_path / warm_parent.warm_socket_name(gone.pid, 2)).touch()
    (tmp_path / "service.json").touch()
    warm_parent.sweep_warm_sockets(tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "service.json",
        warm_parent.warm_socket_name(os.getpid()),
    ]
