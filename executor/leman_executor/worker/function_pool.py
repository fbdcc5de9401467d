"""Run function processes: their messages, the life of one process, and the pool that forks them.

Each process is bound to one version of a function and runs its tasks until the pool kills the process. The pool is a
separate process that runs no user code, starts no thread and opens no dataset. Therefore the processes that it forks
are clean, and ready in milliseconds. The pool forks a few in advance. Messages between a caller, the pool and a process
are JSON after a length of four bytes.
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

#: The message with which a function process tells the pool that it can take another task.
IDLE = b"i"
#: The maximum size of a message to a caller. A function can use its process's descriptors to forge messages, and a
#: forged length must not fill the caller's memory.
MOST_BYTES = 64 << 20
#: Errors of decoding an invalid message.
NONSENSE = (msgspec.DecodeError, UnicodeDecodeError)
SENT_NONSENSE = "the function's process sent an invalid message"


class Request(msgspec.Struct, frozen=True):
    """A caller's request to the function process."""

    #: The task as JSON, in the form that `worker_loop.run_task` takes.
    worker_task: str
    #: State of the caller, which the process applies before it runs the task.
    state: bytes = b""
    #: The job that the task belongs to.
    job_id: str = ""


class Output(msgspec.Struct, frozen=True, tag="said"):
    """Output of a running task, for a caller that reads it."""

    content: bytes


class Answer(msgspec.Struct, frozen=True, tag="answer"):
    """The last message to a caller: the number of units run, or the reason why the task ended early."""

    units: int = 0
    error: str = ""


def send(connection: socket.socket, message: Request | Output | Answer) -> None:
    """Send a message.

    Raises:
        OSError: The other side has closed the connection.
    """
    connection.sendall(framed(message))


def receive(connection: socket.socket, most: int | None = None) -> bytes | None:
    """Return a message, still encoded. Return None if the other side has closed the connection.

    A message of more than `most` bytes is returned as empty bytes, whose decoding fails.
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


#: Runs a task and returns the number of its units. Meanwhile it sends output to the caller.
Run = Callable[[str, Callable[[bytes], None]], int]
#: Applies state of the caller's process to this process.
Prepare = Callable[[bytes], None]
#: Steps that a process runs before its first task. Once a task waits, no further step starts.
Warm = Sequence[Callable[[], None]]
_requests = msgspec.json.Decoder(Request)
#: Seconds between the end of a task and a garbage collection, which must not compete for cores with the end of the job.
_IDLE_WAIT_SECONDS = 0.2
#: Held while output is sent, which is done by a separate thread.
_saying = threading.Lock()


def serve_tasks(control: socket.socket, pool: int, run: Run, prepare: Prepare, warm: Warm) -> NoReturn:
    """Serve tasks in a forked process. Each message on `control` carries the connection of a caller."""
    try:
        _settle(pool)
        guarded = process_environment.guard_descriptors()
        for step in warm:
            if not select.select((control,), (), (), 0)[0]:  # no task waits
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
    os.setpgid(0, 0)  # no new session: the executor's processes are found by their session
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
    """Run one task. Return whether the process can take another task.

    The process can take another task if the task ended well and left no child process. Otherwise the pool kills the
    process and its children once the caller has its answer.
    """
    here = os.getpid()
    request = receive(caller)
    if request is None:
        return
    asked = _requests.decode(request)
    with guarded.printing(asked.job_id):
        answer = _answer(asked, run, prepare, lambda content: _say(caller, content, here))
    if os.getpid() != here:
        os._exit(1)  # this is a child that the function forked
    if not answer.error and not _has_children():
        control.sendall(IDLE)
    with contextlib.suppress(OSError):  # the caller may have ended
        send(caller, answer)


def _say(caller: socket.socket, content: bytes, here: int) -> None:
    if os.getpid() != here:
        os._exit(1)  # this is a child that the function forked
    with _saying:
        send(caller, Output(content))


def _answer(request: Request, run: Run, prepare: Prepare, say: Callable[[bytes], None]) -> Answer:
    try:
        kept_environment.begin()
        if request.state:
            prepare(request.state)
        return Answer(run(request.worker_task, say))
    except BaseException as error:  # noqa: BLE001 report every error to the caller
        return Answer(error=user_errors.describe_error(error))


def _has_children() -> bool:
    """Return whether the function has live child processes. Reap dead ones."""
    try:
        while True:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                return True
    except ChildProcessError:
        return False


_CORES = os.cpu_count() or 1
#: Number of processes forked in advance: as many as a job with default settings needs at once.
_SPARE = min(4, _CORES)
#: Maximum number of idle processes, over all versions of functions.
_MOST_IDLE = max(4, 2 * _CORES)
#: Seconds after which an idle process ends, as with Spark's Python workers. If no task arrives for as long, spare
#: processes end too. Each takes some 30 MB, and a task without a spare process only waits for a fork.
_IDLE_SECONDS = 60.0
_LOOK_SECONDS = 5.0
#: Seconds between a task and the next forks, which must not compete for cores with the end of the task's job.
_QUIET_SECONDS = 0.25
_LARGEST_NAME = 4096


@dataclass(eq=False, slots=True)
class _Process:
    """A function process, as the pool sees it."""

    pid: int
    control: socket.socket
    #: The function that the process is bound to; empty if it is not bound yet.
    function: str = ""
    #: The caller whose task the process runs.
    caller: socket.socket | None = None
    #: Callers that have not closed their connection, and that have an answer or will get it. (A process reports that it
    #: is idle before it answers.)
    answered: list[socket.socket] = field(default_factory=list)
    idle_since: float = field(default_factory=time.monotonic)


class FunctionPool:
    """Serve requests. Each has the name of a function, and the connection of a caller.

    The pool ends on request, or when its parent has ended. `run`, `prepare` and `warm` are for the processes that it
    forks. If `reuses` is True, an idle process gets further tasks of its function; otherwise it ends with its caller.
    """

    def __init__(self, requests: socket.socket, run: Run, prepare: Prepare, warm: Warm, *, reuses: bool = True) -> None:
        self._requests = requests
        self._reuses = reuses
        self._run, self._prepare, self._warm = run, prepare, warm
        self._processes: dict[int, _Process] = {}
        self._poll = select.poll()
        self._actions: dict[int, tuple[socket.socket, Callable[[], None]]] = {}
        self._spare = _SPARE
        #: When a task last arrived or ended.
        self._used = time.monotonic()
        self._over = False

    def serve(self, parent: int) -> NoReturn:
        """Serve requests in the forked process of the pool."""
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
                # an earlier handler may have closed this number, and a new connection may have it
                if action is not None and self._actions.get(fd) is action:
                    action[1]()
            if not heard and self._lacks_spares():
                self._fork_spares()
            self._end_idle()

    def _lacks_spares(self) -> bool:
        """Return whether to fork spare processes now: some are missing, and no running task would become slower."""
        return self._is_idle() and not self._rests() and self._spares_missing() > 0

    def _is_idle(self) -> bool:
        return all(process.caller is None for process in self._processes.values())

    def _rests(self) -> bool:
        """Return whether no task has arrived for so long that none is expected."""
        return self._is_idle() and time.monotonic() - self._used >= _IDLE_SECONDS

    def _on(self, connection: socket.socket, action: Callable[[], None], events: int = select.POLLIN) -> None:
        self._actions[connection.fileno()] = (connection, action)
        self._poll.register(connection, events)

    def _close(self, connection: socket.socket) -> None:
        del self._actions[connection.fileno()]
        self._poll.unregister(connection)
        connection.close()

    # Tasks.

    def _take(self) -> None:
        name, fds, _, _ = socket.recv_fds(self._requests, _LARGEST_NAME, 1)
        if not fds:
            self._over = True
            return
        caller, function = socket.socket(fileno=fds[0]), name.decode()
        if not function:
            caller.close()  # an empty request only checks that the pool lives
            return
        self._used = time.monotonic()
        for process in self._processes.values():
            self._heard(process)  # note first which processes have become idle
        process = self._idle_one(function) or self._idle_one("") or self._fork()
        process.function, process.caller = function, caller
        self._on(caller, lambda: self._caller_gone(process, caller), events=0)
        with contextlib.suppress(OSError):  # the process has just died; SIGCHLD reports it
            socket.send_fds(process.control, [b"c"], [caller.fileno()])

    def _idle_one(self, function: str) -> _Process | None:
        """Return the function's idle process that was busy most recently, because its caches are the newest.

        For an empty name, return the oldest process that is not bound, because the newest may still be warming up.
        """
        idle = [p for p in self._processes.values() if p.caller is None and p.function == function]
        choose = max if function else min
        return choose(idle, key=lambda p: p.idle_since, default=None)

    def _heard(self, process: _Process) -> None:
        """Read the message with which a process reports that it is idle."""
        said = b""
        with contextlib.suppress(OSError):
            said = process.control.recv(1, socket.MSG_DONTWAIT)
        if said == IDLE and self._reuses and process.caller is not None:
            process.answered.append(process.caller)
            process.caller, process.idle_since = None, time.monotonic()

    def _caller_gone(self, process: _Process, caller: socket.socket) -> None:
        """Handle the end of a caller: it has its answer, or was killed because its job was cancelled."""
        self._used = time.monotonic()
        self._heard(process)
        self._close(caller)
        if caller in process.answered:
            process.answered.remove(caller)
        else:
            process.caller = None
            self._kill(process, "ended with its previous caller")

    # Processes.

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
        """Close the pool's connections, in a newly forked process."""
        for connection, _ in self._actions.values():
            connection.close()
        self._wake.close()

    def _fork_spares(self) -> None:
        for _ in range(self._spares_missing()):
            self._fork()

    def _spares_missing(self) -> int:
        return self._spare - sum(not p.function for p in self._processes.values())

    def _end_idle(self) -> None:
        """End processes that have been idle for a long time, and those beyond the limit that have been idle longest.

        If no task is expected, also end processes that are not bound. Do not end processes that may still be answering.
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
        """Kill a process with its group. Once it is dead, kill its remaining children."""
        self._processes.pop(process.pid)
        self._close(process.control)
        _kill_group(process.pid)
        self._tell(process, why)

    def _tell(self, process: _Process, how: str) -> None:
        """Tell the callers of a process that it has ended.

        Callers that already have an answer do not read this message.
        """
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
        """Reap all dead processes, and kill their children, which have become children of the pool."""
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
            self._spare = 0  # if it dies without a task, the next one will too
        self._tell(process, _how(code))

    # The end of the pool.

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
    """Kill a process and its group, or only the process if it has not made its group yet."""
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)
            return


def _how(code: int) -> str:
    return f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
