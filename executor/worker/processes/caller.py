"""Has tasks run by processes of the pool; used where Spark runs a worker."""

from __future__ import annotations

import contextlib
import os
import signal
import socket

import msgspec

from executor.worker.messages import WorkerTask
from executor.worker.processes.function_process import Prepare, Warm
from executor.worker.processes.messages import MOST_BYTES, NONSENSE, Answer, Request, receive, send
from executor.worker.processes.pool import Pool
from executor.worker.worker_loop import run_task

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
        ours, theirs = socket.socketpair()
        with ours:
            try:
                with theirs:
                    socket.send_fds(self._requests, [task.function.encode()], [theirs.fileno()])
                send(ours, Request(worker_task, state, task.hello.job_id))
                data = receive(ours, MOST_BYTES)
            except OSError:
                data = None
            if data is None:
                self._end_parent()
                raise FunctionProcessEnded("the pool of function processes is gone")
        try:
            answer = _answers.decode(data)
        except NONSENSE:
            raise FunctionProcessEnded("the function's process sent nonsense") from None
        if answer.error:
            raise FunctionProcessEnded(answer.error)
        return answer.units

    def _end_parent(self) -> None:
        """End Spark's daemon, which is of no use without a pool: Spark starts another one."""
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
        Pool(requests, lambda task, _say: run_task(task), prepare, warm).serve(here)
    requests.close()
    return Caller(asking, here)
