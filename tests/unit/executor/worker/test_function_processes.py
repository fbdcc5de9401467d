"""The pool of function processes: one version each, clean, and nothing left behind. The tasks run no units."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import psutil
import pytest

from leman_executor.spark import function_processes as callers
from leman_executor.spark.function_processes import FunctionProcessEnded
from leman_executor.worker.function_pool import receive
from leman_executor.worker.worker_link import Hello, WorkerTask

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's part is Linux's")
SECONDS = 10.0

# An task is a few statements here: they run in the function process, and leave `said` behind.
_PREAMBLE = "import os, sys, math, subprocess, time; said = None\n"


def do(worker_task: str) -> int:
    """In place of `run_worker_task`: runs the statements, and writes what they leave in `said` to a file."""
    asked = msgspec.json.decode(worker_task, type=WorkerTask)
    space: dict[str, object] = {}
    exec(_PREAMBLE + asked.hello.secret, space)
    own = Path(f"{asked.host}-{os.getpid()}")  # a child that the statements made may come here too
    own.write_text(repr(space["said"]))
    own.replace(asked.host)
    return 1


class Requests:
    """Sends tasks to a pool of its own."""

    def __init__(self, caller: callers.Caller, folder: Path) -> None:
        self._caller, self._folder = caller, folder

    def run(self, function: str, statements: str) -> object:
        out = self._folder / f"said-{threading.get_ident()}"
        worker_task = WorkerTask(str(out), 0, Hello("job", statements), function=function)
        assert self._caller.run(msgspec.json.encode(worker_task).decode()) == 1
        return eval(out.read_text())


_STARTER = """
import os, sys
from leman_executor.spark import function_processes
from tests.unit.executor.worker import test_function_processes as here
function_processes.run_task = here.do
started = function_processes.start_pool(lambda state: None, ())
os.set_inheritable(started._requests.fileno(), True)
here.reassign(started, sys.argv[1])
sys.stdin.read()
"""


def reassign(started: callers.Caller, path: str) -> None:
    """Gives the test the way to the pool: it is not to be forked from a process that has threads."""
    import socket

    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        socket.send_fds(connection, [b"."], [started._requests.fileno()])


@pytest.fixture(scope="module")
def starter(tmp_path_factory):
    """The process that stands for Spark's daemon, and a way to its pool."""
    import socket

    path = str(tmp_path_factory.mktemp("pool") / "s")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        process = subprocess.Popen([sys.executable, "-c", _STARTER, path], stdin=subprocess.PIPE, cwd=Path.cwd())
        connection, _ = listener.accept()
        with connection:
            _, fds, _, _ = socket.recv_fds(connection, 1, 1)
    with socket.socket(fileno=fds[0]) as requests:
        yield process, callers.Caller(requests, process.pid)
    process.communicate()


@pytest.fixture
def worker_tasks(starter, tmp_path):
    return Requests(starter[1], tmp_path)


def test_what_one_function_did_to_its_process_is_not_there_for_the_next(worker_tasks, tmp_path):
    """Modules, working directory, environment, open descriptors."""
    look = "said = (math.floor(1.5), os.getcwd(), os.environ.get('LEFT'), os.path.exists('/dev/fd/1'))"
    before = worker_tasks.run("look@1", look)
    spoil = f"math.floor = lambda x: 99; os.chdir({str(tmp_path)!r}); os.environ['LEFT'] = 'yes'; os.close(1)"
    worker_tasks.run("spoil@1", spoil)
    assert worker_tasks.run("other@1", look) == before
    assert worker_tasks.run("spoil@2", look) == before
    assert math.floor(1.5) == 1


def test_a_version_keeps_its_process_and_finds_its_surroundings_anew(worker_tasks, tmp_path):
    first = worker_tasks.run("warm@1", "sys.model = 'loaded'; said = os.getpid()")
    here = worker_tasks.run("warm@1", "said = os.getcwd()")
    worker_tasks.run("warm@1", f"os.chdir({str(tmp_path)!r}); os.environ['LEFT'] = 'yes'; os.umask(0o077); os.close(0)")
    state = "said = (os.getpid(), sys.model, os.getcwd(), os.environ.get('LEFT'), os.umask(0o022) != 0o077)"
    assert worker_tasks.run("warm@1", state) == (first, "loaded", here, None, True)


def test_variables_of_a_job_are_there_anew_each_time_and_in_no_other_process(worker_tasks):
    give = "from leman_executor.worker.process_environment import kept_environment\n"
    give += "kept_environment.give({'KEY': 'one'}); "
    look = "said = (os.getpid(), os.environ.get('KEY'))"
    pid, value = worker_tasks.run("keyed@1 one", give + look)
    assert value == "one"
    assert worker_tasks.run("keyed@1 one", look) == (pid, None), "a process goes back to what it was"
    assert worker_tasks.run(
        "keyed@1 one", f"{give}kept_environment.loaded(); os.environ['KEY'] = 'spoilt'; {look}"
    ) == (
        pid,
        "spoilt",
    )
    assert worker_tasks.run("keyed@1 one", give + look) == (pid, "one")
    other, value = worker_tasks.run("keyed@1 two", look)
    assert value is None
    assert other != pid


def test_two_at_once_run_in_two_processes(worker_tasks):
    pids: list[object] = []
    run = lambda: pids.append(worker_tasks.run("twice@1", "time.sleep(0.3); said = os.getpid()"))  # noqa: E731
    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    assert len(set(pids)) == 2


def test_children_end_with_the_worker_task_however_they_hide(worker_tasks):
    hide = (
        "a = subprocess.Popen(['sleep', '1000'])\n"
        "b = subprocess.Popen(['setsid', 'sh', '-c', 'sleep 1000 & echo $!'], stdout=subprocess.PIPE)\n"
        "said = (os.getpid(), a.pid, int(b.stdout.readline()))"
    )
    for pid in worker_tasks.run("parent@1", hide):
        with contextlib.suppress(psutil.NoSuchProcess):
            psutil.Process(pid).wait(SECONDS)


def test_children_end_when_the_caller_is_killed(starter, tmp_path):
    """As when a job is cancelled: Spark kills its worker."""
    told = tmp_path / "pid"
    hide = (
        "b = subprocess.Popen(['setsid', 'sh', '-c', 'sleep 1000 & echo $!'], stdout=subprocess.PIPE)\n"
        f"to = {str(told)!r}; open(to + '~', 'w').write(b.stdout.readline().decode()); os.rename(to + '~', to)\n"
        "while True: pass"
    )
    worker_task = msgspec.json.encode(
        WorkerTask(str(tmp_path / "x"), 0, Hello("job", hide), function="parent@2")
    ).decode()
    code = "import sys, socket; from leman_executor.spark.function_processes import Caller\n"
    code += "Caller(socket.socket(fileno=int(sys.argv[1])), 0).run(sys.argv[2])"
    fd = starter[1]._requests.fileno()
    worker = subprocess.Popen([sys.executable, "-c", code, str(fd), worker_task], pass_fds=[fd])
    pause = threading.Event()
    while not told.exists():
        assert worker.poll() is None
        pause.wait(0.01)
    hidden = psutil.Process(int(told.read_text()))
    worker.kill()
    worker.wait()
    with contextlib.suppress(psutil.NoSuchProcess):
        hidden.wait(SECONDS)


@pytest.mark.parametrize(
    ("statements", "how"),
    [
        ("os._exit(7)", "ended with code 7"),
        ("os.kill(os.getpid(), 9)", "killed by signal 9"),
        ("raise SystemExit('gone')", "SystemExit: gone"),
    ],
)
def test_a_process_that_dies_is_told_and_replaced(worker_tasks, statements, how):
    with pytest.raises(FunctionProcessEnded, match=how):
        worker_tasks.run("deadly@1", statements)
    assert worker_tasks.run("deadly@1", "said = 'alive'") == "alive"


def test_a_child_that_comes_back_answers_nothing(worker_tasks):
    assert worker_tasks.run("fork@1", "here = os.getpid(); os.fork(); said = here") is not None
    assert worker_tasks.run("fork@1", "said = 2") == 2


@pytest.mark.parametrize("close", ["os.close(1)", "sys.stdout.close()", "sys.__stdout__.close()"])
def test_closing_standard_output_closes_nothing(worker_tasks, tmp_path, close):
    mine = tmp_path / "mine"
    statements = f"{close}\nwith open({str(mine)!r}, 'w') as f: said = f.fileno()\nos.write(1, b'into the void')"
    assert worker_tasks.run(f"close@{close}", statements) > 2
    assert mine.read_text() == ""


def test_a_redirection_works_until_the_worker_task_ends(worker_tasks, tmp_path):
    mine = tmp_path / "mine"
    redirect = f"os.dup2(os.open({str(mine)!r}, os.O_WRONLY | os.O_CREAT), 1); print('here')"
    worker_tasks.run("redirect@1", redirect)
    worker_tasks.run("redirect@1", "print('not here')")
    assert mine.read_text() == "here\n"


def test_closing_what_is_not_the_functions_own_is_an_error_of_the_function(worker_tasks):
    guarded = "try: os.closerange(3, 100)\nexcept PermissionError as e: said = str(e)"
    assert "did not open" in worker_tasks.run("range@1", guarded)
    assert worker_tasks.run("range@1", "said = 3") == 3


def test_descriptors_that_were_broken_in_another_way_are_noticed(worker_tasks):
    statements = (
        "from leman_executor.worker.process_environment import check_descriptors\n"
        "check_descriptors(); import ctypes; ctypes.CDLL(None).close(1)\n"
        "try: check_descriptors()\n"
        "except Exception as e: said = e.reason"
    )
    assert worker_tasks.run("break@1", statements) == "UDF_BROKE_DESCRIPTORS"


@pytest.mark.parametrize("nonsense", [b"\0\0\0\2[]", b'\0\0\0\3"\xff"', b"\xff\xff\xff\xff"])
def test_what_answers_with_nonsense_has_ended(nonsense):
    requests, asking = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)

    def answer() -> None:
        _, (caller,), _, _ = socket.recv_fds(requests, 4096, 1)
        with socket.socket(fileno=caller) as connection:
            receive(connection)
            connection.sendall(nonsense)

    with requests, asking:
        process = threading.Thread(target=answer)
        process.start()
        with pytest.raises(FunctionProcessEnded, match="sent an invalid message"):
            callers.Caller(asking, 0).run(msgspec.json.encode(WorkerTask("", 0, Hello("", ""), function="x")).decode())
        process.join()


def test_without_a_pool_the_daemon_is_ended(starter, tmp_path):
    """Spark starts another one. Last: the pool of this module is gone afterwards."""
    daemon, caller = starter
    (pool,) = psutil.Process(daemon.pid).children()
    kept = pool.children()
    pool.send_signal(signal.SIGKILL)
    with pytest.raises(FunctionProcessEnded, match="pool"):
        caller_of_daemon(caller).run(msgspec.json.encode(WorkerTask("", 0, Hello("", ""), function="x")).decode())
    assert daemon.wait(SECONDS) != 0
    psutil.wait_procs(kept, SECONDS)
    assert not any(process.is_running() and process.status() != "zombie" for process in kept)


def caller_of_daemon(caller: callers.Caller) -> callers.Caller:
    """One whose parent's end can be seen from here."""
    caller._end_parent = lambda: os.kill(caller._pool_parent, signal.SIGTERM)  # type: ignore[method-assign]
    return caller
