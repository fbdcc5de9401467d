"""The life of a process that runs one version of a function: task after task, until it is killed."""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import socket
import threading
from collections.abc import Callable, Sequence
from typing import NoReturn

import msgspec

from leman_core.process.linux import adopt_orphans, die_with
from leman_executor.worker import user_errors
from leman_executor.worker.processes import file_descriptors
from leman_executor.worker.processes.messages import IDLE, Answer, Request, Said, receive, send
from leman_executor.worker.processes.process_environment import kept

#: Runs a task and returns how many units it had; what it says meanwhile goes to the caller.
Run = Callable[[str, Callable[[bytes], None]], int]
#: Takes over what a caller's process has and this one lacks.
Prepare = Callable[[bytes], None]
#: What a process does before it has a task, step by step: none is begun once a task waits.
Warm = Sequence[Callable[[], None]]
_requests = msgspec.json.Decoder(Request)
#: Garbage is collected so long after a task: its job is being ended meanwhile, which is not to wait for cores.
_QUIET_SECONDS = 0.2
#: What is printed is said from a thread of its own.
_saying = threading.Lock()


def main(control: socket.socket, pool: int, run: Run, prepare: Prepare, warm: Warm) -> NoReturn:
    """Serve tasks, after the fork; each message on `control` brings a caller's connection."""
    try:
        _settle(pool)
        guarded = file_descriptors.guard()
        for step in warm:
            if not select.select((control,), (), (), 0)[0]:  # else a task waits
                step()
        with guarded.keeping(control.fileno()):
            while (caller := _next_caller(control)) is not None:
                with caller, guarded.keeping(caller.fileno()):
                    guarded.restore()
                    _serve(caller, control, run, prepare, guarded)
                if not select.select((control,), (), (), _QUIET_SECONDS)[0]:
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
    caller: socket.socket, control: socket.socket, run: Run, prepare: Prepare, guarded: file_descriptors.Descriptors
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
        send(caller, Said(content))


def _answer(request: Request, run: Run, prepare: Prepare, say: Callable[[bytes], None]) -> Answer:
    try:
        kept.begin()
        if request.state:
            prepare(request.state)
        return Answer(run(request.worker_task, say))
    except BaseException as error:  # noqa: BLE001 the caller has to hear of any error
        return Answer(error=user_errors.told(error))


def _has_children() -> bool:
    """Tell whether processes of the function live; dead ones are reaped."""
    try:
        while True:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                return True
    except ChildProcessError:
        return False
