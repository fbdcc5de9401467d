"""Has tasks run by processes of the pool; used where Spark runs a worker."""

from __future__ import annotations

import contextlib
import os
import signal
import socket

import msgspec

from leman_core.process import environment
from leman_executor.worker.messages import WorkerTask
from leman_executor.worker.processes.function_process import Prepare, Warm
from leman_executor.worker.processes.messages import MOST_BYTES, NONSENSE, SENT_NONSENSE, Answer, Request, receive, send
from leman_executor.worker.processes.pool import Pool
from leman_executor.worker.worker_loop import run_task

#: Made at import, in one thread: msgspec crashes where two threads are the first to decode a type.
_worker_tasks, _answers = msgspec.json.Decoder(WorkerTask), msgspec.json.Decoder(Answer)


class FunctionProcessEnded(RuntimeError):
    """The process that ran a task is gone, or could not go on: the worker is to be started again."""


class Caller:
    """A connection to the pool, inherited by every process that is forked from the one that started it."""

    def __init__(self, requests: socket.socket, pool_parent: int) -> None:
        self._requests = requests
        self._pool_parent = pool_parent

    def run(self, worker_task: str, state: bytes = b"") -> int:
        """Run a task where its function's version runs.

        Returns:
            How many units were run.

        Raises:
            FunctionProcessEnded: The pool or the process is gone, or the task ended with an error.
        """
        task = _worker_tasks.decode(worker_task)
        data = self._asked(task.function, Request(worker_task, state, task.hello.job_id))
        if data is None:
            if self._pool_is_gone():
                self._end_parent()
                raise FunctionProcessEnded("the pool of function processes is gone")
            raise FunctionProcessEnded("the function's process ended without a word")
        try:
            answer = _answers.decode(data)
        except NONSENSE:
            raise FunctionProcessEnded(SENT_NONSENSE) from None
        if answer.error:
            raise FunctionProcessEnded(answer.error)
        return answer.units

    def _asked(self, function: str, request: Request) -> bytes | None:
        """Return the answer to a request; None where there is none."""
        ours, theirs = socket.socketpair()
        with ours:
            with theirs, contextlib.suppress(OSError):
                socket.send_fds(self._requests, [function.encode()], [theirs.fileno()])
            with contextlib.suppress(OSError):  # a process that is gone already: the pool has said so
                send(ours, request)
            with contextlib.suppress(OSError):
                return receive(ours, MOST_BYTES)
        return None

    def _pool_is_gone(self) -> bool:
        """Ask with a request for nothing."""
        ours, theirs = socket.socketpair()
        with ours, theirs:
            try:
                socket.send_fds(self._requests, [b""], [theirs.fileno()])
            except OSError:
                return True
        return False

    def _end_parent(self) -> None:
        """End Spark's daemon, which is of no use without a pool: Spark starts another one.

        With it all of its workers end: never for what became of one function process.
        """
        if os.getppid() == self._pool_parent:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pool_parent, signal.SIGTERM)


def start(prepare: Prepare, warm: Warm) -> Caller:
    """Fork the pool from this process, which must be as clean as function processes are to be."""
    here = os.getpid()
    requests, asking = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    if os.fork() == 0:
        asking.close()
        os.dup2(2, 1)  # what Spark's daemon says on standard output is for Spark
        environment.confine()
        Pool(requests, lambda task, _say: run_task(task), prepare, warm).serve(here)
    requests.close()
    return Caller(asking, here)
