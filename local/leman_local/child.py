"""Run one process of the local system, which dies with its supervisor.

    python child.py PARENT_PID run MODULE [ARGUMENT...]      a Python module, in this process
    python child.py PARENT_PID exec PROGRAM [ARGUMENT...]    a program in place of this process (Linux)
    python child.py PARENT_PID watch PROGRAM [ARGUMENT...]   a program below this process (elsewhere)
    python child.py PARENT_PID warm DESCRIPTOR SOCKET [...]  the process that others are forked from (warm_process.py)

On Linux, the kernel kills this process when its parent dies. On all systems, standard input is a pipe whose other end
only the parent has, so the pipe ends with the parent. This module uses only the standard library and is run by its
path, so that it starts in milliseconds.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import runpy
import signal
import subprocess
import sys
import threading
import time

_PR_SET_PDEATHSIG = 1
_GRACE_SECONDS = 5.0


def main(argv: list[str]) -> int:
    """Run the process that the arguments describe. Return its exit code."""
    parent, mode, *command = argv
    _take_rest()
    if sys.platform == "linux":
        _die_with(int(parent))
    if mode == "exec":
        os.execv(command[0], command)
    if mode == "watch":
        return _watch(command)
    is_service = True
    if mode == "warm":
        warm_process = importlib.import_module("leman_local.warm_process")
        command, is_service = warm_process.main(int(parent), int(command[0]), command[1], command[2:])
    if is_service:
        threading.Thread(target=_end_when_stdin_does, daemon=True, name="lifeline").start()
    sys.argv = command
    runpy.run_module(command[0], run_name="__main__", alter_sys=True)
    return 0


def _take_rest() -> None:
    """Read the remaining environment variables from a pipe, so that /proc/PID/environ never shows a secret.

    `leman_core.process.environment.give_rest` writes them to the pipe.
    """
    descriptor = os.environ.pop("_LEMAN_ENVIRONMENT", "")
    if descriptor:
        with os.fdopen(int(descriptor), "rb") as pipe:
            entries = pipe.read().split(b"\0")
        for name, _, value in (entry.partition(b"=") for entry in entries if entry):
            os.environb[name] = value


def _die_with(parent: int) -> None:
    """Ask the kernel to send SIGKILL when the parent dies. This also holds after exec."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent died before the request
        os._exit(1)


def _end_when_stdin_does() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_GRACE_SECONDS)
    os._exit(1)


def _watch(command: list[str]) -> int:
    with subprocess.Popen(command, stdin=subprocess.DEVNULL) as program:
        signal.signal(signal.SIGTERM, lambda *_: program.terminate())

        def end() -> None:
            while os.read(0, 4096):
                pass
            program.kill()

        threading.Thread(target=end, daemon=True, name="lifeline").start()
        return program.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
