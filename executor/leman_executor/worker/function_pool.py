"""The pool of function processes, each bound to one version of a function, and what it says to them.

What travels between a caller, the pool and a function process: JSON behind a length of four bytes.

The life of a process that runs one version of a function: task after task, until it is killed.

The pool of function processes: binds each to one version of a function, and ends them.

The pool is a process of its own, which runs no user code, starts no thread and opens no dataset: what it forks is clean
and ready in milliseconds. A few are forked before anybody asks.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

import msgspec
import psutil

from leman_core.process.environment import adopt_orphans, die_with
from leman_executor.worker import process_environment, user_errors
from leman_executor.worker.process_environment import kept_environment
from leman_executor.worker.worker_link import LENGTH_BYTES, framed

#: Tells the pool that a function process may get another task.
IDLE = b"i"
#: No message to a caller is larger. What a function process sends is what the function makes of it, which has its
#: descriptors: a length that it made up is not to fill the caller's memory.
MOST_BYTES = 64 << 20
#: What decoding raises where the other side sends nonsense, and what is said of that.
NONSENSE = (msgspec.DecodeError, UnicodeDecodeError)
SENT_NONSENSE = "the function's process sent nonsense"


class Request(msgspec.Struct, frozen=True):
    """What the caller asks of the function process."""

    #: As `worker_loop.run_task` takes it.
    worker_task: str
    #: What the process is to take over from its caller beforehand.
    state: bytes = b""
    #: The job that it is for.
    job_id: str = ""


class Output(msgspec.Struct, frozen=True, tag="said"):
    """What a task says while it runs, to a caller that listens."""

    content: bytes


class Answer(msgspec.Struct, frozen=True, tag="answer"):
    """What the caller is told at the end: how many units were run, or why the task ended early."""

    units: int = 0
    error: str = ""


def send(connection: socket.socket, message: Request | Output | Answer) -> None:
    """Send a message.

    Raises:
        OSError: The other side is gone.
    """
    connection.sendall(framed(message))


def receive(connection: socket.socket, most: int | None = None) -> bytes | None:
    """Return a message, still encoded; None where the other side is gone; nothing of one with more than `most` bytes,
    which decodes as nonsense.
    """
    head = _read(connection, LENGTH_BYTES)
    if head is None:
        return None
    length = int.from_bytes(head, "big")
    return b"" if most is not None and length > most else _read(connection, length)


def _read(connection: socket.socket, length: int) -> bytes | None:
    parts = []
    while length:
        part = connection.recv(min(length, 1 << 20))
        if not part:
            return None
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


#: Runs a task and returns how many units it had; what it says meanwhile goes to the caller.
Run = Callable[[str, Callable[[bytes], None]], int]
#: Takes over what a caller's process has and this one lacks.
Prepare = Callable[[bytes], None]
#: What a process does before it has a task, step by step: none is begun once a task waits.
Warm = Sequence[Callable[[], None]]
_requests = msgspec.json.Decoder(Request)
#: Garbage is collected so long after a task: its job is being ended meanwhile, which is not to wait for cores.
_IDLE_WAIT_SECONDS = 0.2
#: What is printed is said from a thread of its own.
_saying = threading.Lock()


def serve_tasks(control: socket.socket, pool: int, run: Run, prepare: Prepare, warm: Warm) -> NoReturn:
    """Serve tasks, after the fork; each message on `control` brings a caller's connection."""
    try:
        _settle(pool)
        guarded = process_environment.guard_descriptors()
        for step in warm:
            if not select.select((control,), (), (), 0)[0]:  # else a task waits
                step()
        with guarded.keeping(control.fileno()):
            while (caller := _next_caller(control)) is not None:
                with caller, guarded.keeping(caller.fileno()):
                    guarded.restore()
                    _serve(caller, control, run, prepare, guarded)
                if not select.select((control,), (), (), _IDLE_WAIT_SECONDS)[0]:
                    gc.collect()
    finally:
        os._exit(1)


def _settle(pool: int) -> None:
    os.setpgid(0, 0)  # no session of its own: whoever ends the executor's session looks for that
    adopt_orphans()
    die_with(pool)
    for number in (signal.SIGHUP, signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _next_caller(control: socket.socket) -> socket.socket | None:
    _, fds, _, _ = socket.recv_fds(control, 1, 1)
    return socket.socket(fileno=fds[0]) if fds else None


def _serve(
    caller: socket.socket, control: socket.socket, run: Run, prepare: Prepare, guarded: process_environment.Descriptors
) -> None:
    """Run one task.

    Another one is taken only where this one ended well and left no process behind. Otherwise the pool ends this process
    when the caller has its answer, and with it what the task left behind.
    """
    here = os.getpid()
    request = receive(caller)
    if request is None:
        return
    asked = _requests.decode(request)
    with guarded.printing(asked.job_id):
        answer = _answer(asked, run, prepare, lambda content: _say(caller, content, here))
    if os.getpid() != here:
        os._exit(1)  # a function forked, and its child came back here
    if not answer.error and not _has_children():
        control.sendall(IDLE)
    with contextlib.suppress(OSError):  # nobody waits any more: another caller may have been told of this process
        send(caller, answer)


def _say(caller: socket.socket, content: bytes, here: int) -> None:
    if os.getpid() != here:
        os._exit(1)  # a function forked, and its child came back here
    with _saying:
        send(caller, Output(content))


def _answer(request: Request, run: Run, prepare: Prepare, say: Callable[[bytes], None]) -> Answer:
    try:
        kept_environment.begin()
        if request.state:
            prepare(request.state)
        return Answer(run(request.worker_task, say))
    except BaseException as error:  # noqa: BLE001 the caller has to hear of any error
        return Answer(error=user_errors.describe_error(error))


def _has_children() -> bool:
    """Tell whether processes of the function live; dead ones are reaped."""
    try:
        while True:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                return True
    except ChildProcessError:
        return False


_CORES = os.cpu_count() or 1
#: Processes forked in advance: as many as a job that says nothing asks for at once.
_SPARE = min(4, _CORES)
#: Idle processes that are kept, of all versions together.
_MOST_IDLE = max(4, 2 * _CORES)
#: As long as Spark keeps its own idle Python processes. Where no task has come for so long the spare ones end, too:
#: each takes some 30 MB, and what a task waits for without one is a fork.
_IDLE_SECONDS = 60.0
_LOOK_SECONDS = 5.0
#: After the end of a task its job is being ended, which is not to wait for cores.
_QUIET_SECONDS = 0.25
_LARGEST_NAME = 4096


@dataclass(eq=False, slots=True)
class _Process:
    """A function process, as the pool knows it."""

    pid: int
    control: socket.socket
    #: What it is bound to; empty: nothing yet.
    function: str = ""
    #: Whose task it runs.
    caller: socket.socket | None = None
    #: Callers that get their answers, or have them and did not hang up yet: it says that it is idle before it answers.
    answered: list[socket.socket] = field(default_factory=list)
    idle_since: float = field(default_factory=time.monotonic)


class FunctionPool:
    """Serves requests, each a function's name with a caller's connection.

    It ends when it is told to, or when its parent is gone. `run`, `prepare` and `warm` are for the processes that it
    forks. `reuses`: a process that is idle again gets more tasks of its function; else it ends with its caller.
    """

    def __init__(self, requests: socket.socket, run: Run, prepare: Prepare, warm: Warm, *, reuses: bool = True) -> None:
        self._requests = requests
        self._reuses = reuses
        self._run, self._prepare, self._warm = run, prepare, warm
        self._processes: dict[int, _Process] = {}
        self._poll = select.poll()
        self._actions: dict[int, tuple[socket.socket, Callable[[], None]]] = {}
        self._spare = _SPARE
        #: When a task came or ended last.
        self._used = time.monotonic()
        self._over = False

    def serve(self, parent: int) -> NoReturn:
        """Serve requests, after the fork."""
        try:
            woken, self._wake = socket.socketpair()
            for end in (woken, self._wake):
                end.setblocking(False)
            adopt_orphans()
            signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)
            signal.signal(signal.SIGCHLD, lambda *_: None)
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                signal.signal(number, self._end)
            die_with(parent, signal.SIGTERM)
            self._on(woken, lambda: self._woken(woken))
            self._on(self._requests, self._take)
            self._look_after(parent)
        finally:
            self._end_all()
            os._exit(0)

    def _look_after(self, parent: int) -> None:
        self._fork_spares()
        while not self._over and os.getppid() == parent:
            seconds = _QUIET_SECONDS if self._lacks_spares() else _LOOK_SECONDS
            heard = [(fd, self._actions.get(fd)) for fd, _ in self._poll.poll(seconds * 1000)]
            for fd, action in heard:
                # what an earlier one closed may have given its number to another connection, which said nothing
                if action is not None and self._actions.get(fd) is action:
                    action[1]()
            if not heard and self._lacks_spares():
                self._fork_spares()
            self._end_idle()

    def _lacks_spares(self) -> bool:
        """Tell whether spare processes are missing, and nothing runs that forking them would slow down."""
        return self._is_idle() and not self._rests() and self._spares_missing() > 0

    def _is_idle(self) -> bool:
        return all(process.caller is None for process in self._processes.values())

    def _rests(self) -> bool:
        """Tell whether there was no task for so long that none is expected."""
        return self._is_idle() and time.monotonic() - self._used >= _IDLE_SECONDS

    def _on(self, connection: socket.socket, action: Callable[[], None], events: int = select.POLLIN) -> None:
        self._actions[connection.fileno()] = (connection, action)
        self._poll.register(connection, events)

    def _close(self, connection: socket.socket) -> None:
        del self._actions[connection.fileno()]
        self._poll.unregister(connection)
        connection.close()

    # tasks

    def _take(self) -> None:
        name, fds, _, _ = socket.recv_fds(self._requests, _LARGEST_NAME, 1)
        if not fds:
            self._over = True
            return
        caller, function = socket.socket(fileno=fds[0]), name.decode()
        if not function:
            caller.close()  # somebody only wants to know whether the pool is there
            return
        self._used = time.monotonic()
        for process in self._processes.values():
            self._heard(process)  # a process whose caller has its answer is idle again
        process = self._idle_one(function) or self._idle_one("") or self._fork()
        process.function, process.caller = function, caller
        self._on(caller, lambda: self._caller_gone(process, caller), events=0)
        with contextlib.suppress(OSError):  # it has just died: SIGCHLD says so
            socket.send_fds(process.control, [b"c"], [caller.fileno()])

    def _idle_one(self, function: str) -> _Process | None:
        """Return the process that was busy last: what it has in its caches is the newest.

        Of those without a function the oldest one: the newest may still be warming up.
        """
        idle = [p for p in self._processes.values() if p.caller is None and p.function == function]
        choose = max if function else min
        return choose(idle, key=lambda p: p.idle_since, default=None)

    def _heard(self, process: _Process) -> None:
        """Read what a process has to say: that it is idle."""
        said = b""
        with contextlib.suppress(OSError):
            said = process.control.recv(1, socket.MSG_DONTWAIT)
        if said == IDLE and self._reuses and process.caller is not None:
            process.answered.append(process.caller)
            process.caller, process.idle_since = None, time.monotonic()

    def _caller_gone(self, process: _Process, caller: socket.socket) -> None:
        """Handle a caller that has its answer, or was killed as its job was cancelled."""
        self._used = time.monotonic()
        self._heard(process)
        self._close(caller)
        if caller in process.answered:
            process.answered.remove(caller)
        else:
            process.caller = None
            self._kill(process, "ended with the caller before")

    # processes

    def _fork(self) -> _Process:
        here = os.getpid()
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            ours.close()
            self._forget()
            serve_tasks(theirs, here, self._run, self._prepare, self._warm)
        theirs.close()
        process = _Process(pid, ours)
        self._processes[pid] = process
        self._on(ours, lambda: self._heard(process))
        return process

    def _forget(self) -> None:
        """Close the pool's connections, in a process that was just forked."""
        for connection, _ in self._actions.values():
            connection.close()
        self._wake.close()

    def _fork_spares(self) -> None:
        for _ in range(self._spares_missing()):
            self._fork()

    def _spares_missing(self) -> int:
        return self._spare - sum(not p.function for p in self._processes.values())

    def _end_idle(self) -> None:
        """End the processes that were idle for long, and the oldest of too many; none that may still be answering.

        Those that wait for a function end where none is expected.
        """
        if self._rests():
            for process in [p for p in self._processes.values() if not p.function]:
                self._kill(process, "was not needed")
        idle = [p for p in self._processes.values() if p.function and p.caller is None and not p.answered]
        idle.sort(key=lambda p: p.idle_since, reverse=True)
        until = time.monotonic() - _IDLE_SECONDS
        for place, process in enumerate(idle):
            if place >= _MOST_IDLE or process.idle_since < until:
                self._kill(process, "was idle")

    def _kill(self, process: _Process, why: str) -> None:
        """Kill a process with its group; what that leaves behind is killed when the process is dead."""
        self._processes.pop(process.pid)
        self._close(process.control)
        _kill_group(process.pid)
        self._tell(process, why)

    def _tell(self, process: _Process, how: str) -> None:
        """Tell those who wait for answers of a process that it is gone; who has its answer does not read on."""
        waiting = [*process.answered, *([] if process.caller is None else [process.caller])]
        for caller in waiting:
            with contextlib.suppress(OSError):
                send(caller, Answer(error=f"the function's process {how}"))
            self._close(caller)
        process.answered, process.caller = [], None

    def _woken(self, woken: socket.socket) -> None:
        with contextlib.suppress(BlockingIOError):
            while woken.recv(4096):
                pass
        self._reap()

    def _reap(self) -> None:
        """Reap all processes that died; what a dead one left behind became a child of this one, and is killed too."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                break
            process = self._processes.pop(pid, None)
            if process is not None:
                self._died(process, os.waitstatus_to_exitcode(status))
        for child in psutil.Process().children():
            if child.pid not in self._processes:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child.pid, signal.SIGKILL)

    def _died(self, process: _Process, code: int) -> None:
        _kill_group(process.pid)
        self._close(process.control)
        if not process.function:
            self._spare = 0  # where it dies by itself, the next one does too
        self._tell(process, _how(code))

    # ending

    def _end(self, _number: int, _frame: object) -> None:
        self._over = True

    def _end_all(self) -> None:
        for process in list(self._processes.values()):
            self._kill(process, "was ended")
        with contextlib.suppress(ChildProcessError):
            while True:
                os.waitpid(-1, 0)
                self._reap()


def _kill_group(pid: int) -> None:
    """Kill a process and its group; the process alone where it has not made its group yet."""
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)
            return


def _how(code: int) -> str:
    return f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
