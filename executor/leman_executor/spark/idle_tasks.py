"""Keep Spark tasks waiting for the next job, because for a small job starting tasks takes longer than everything else.

The waiting tasks belong to a Spark job that started while no other job ran. Each task connects to a socket in this
process's temporary folder, and receives its worker's task when there is a job. If Spark retries a waiting task, the
task connects again.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import threading
from concurrent.futures import Future
from pathlib import Path

#: The property of the Spark job of waiting tasks is this prefix, a secret, and the path of the socket.
_ASK = "ask "
_SECRET_BYTES = 16
_NUMBER_BYTES = 4
_HEAD = 2 * _SECRET_BYTES + _NUMBER_BYTES
_HELLO_SECONDS = 5.0
#: The longest path of a socket, with its terminating zero byte, that all supported systems allow.
_LONGEST_PATH = 104


class IdleTasks:
    """The waiting tasks of one Spark job, for use by any number of threads.

    The code that runs the Spark job sets `call`, a future that ends with the Spark job.
    """

    def __init__(self, folder: Path, count: int) -> None:
        """Listen for `count` tasks.

        Raises:
            OSError: No socket can be made in the folder.
        """
        self.count = count
        self.call: Future[None] = Future()
        #: The tag of the Spark job.
        self.tag = f"standing-{secrets.token_hex(8)}"
        self._path = folder / self.tag
        if len(os.fsencode(self._path)) >= _LONGEST_PATH:
            raise OSError("the path of the socket is too long")
        self._secret = secrets.token_hex(_SECRET_BYTES).encode()
        self._lock = threading.Lock()
        self._waiting: list[tuple[int, socket.socket]] = []
        #: The worker task that tasks with a number below `_workers` receive; None until there is a job.
        self._told: bytes | None = None
        self._workers = 0
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self._path))
        self._listener.listen(count)
        threading.Thread(target=self._listen, name="standing", daemon=True).start()

    @property
    def address(self) -> str:
        """The value of the Spark job property from which the tasks learn where to connect."""
        return f"{_ASK}{self._secret.decode()} {self._path}"

    def give(self, worker_task: str, workers: int) -> None:
        """Let the first `workers` tasks run the workers of a job, and end all other tasks."""
        with self._lock:
            self._told, self._workers = worker_task.encode(), workers
            waiting, self._waiting = self._waiting, []
        for number, task in waiting:
            self._tell(number, task)

    def dismiss(self) -> None:
        """End all tasks."""
        self.give("", 0)

    def close(self) -> None:
        """Stop listening after the Spark job has ended."""
        with contextlib.suppress(OSError):
            self._path.unlink()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.dismiss()

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                task, _ = self._listener.accept()
                self._take(task)

    def _take(self, task: socket.socket) -> None:
        number = self._number_of(task)
        if number is None:
            task.close()
            return
        with self._lock:
            if self._told is None:
                self._waiting.append((number, task))
                return
        self._tell(number, task)

    def _number_of(self, task: socket.socket) -> int | None:
        """Return the number that a task sends with the secret; None if another program has connected."""
        with contextlib.suppress(OSError):
            task.settimeout(_HELLO_SECONDS)
            head = task.recv(_HEAD, socket.MSG_WAITALL)
            if len(head) == _HEAD and secrets.compare_digest(head[:-_NUMBER_BYTES], self._secret):
                return int.from_bytes(head[-_NUMBER_BYTES:], "big")
        return None

    def _tell(self, number: int, task: socket.socket) -> None:
        with task, contextlib.suppress(OSError):  # the task has died, and Spark retries it
            if number < self._workers and self._told is not None:
                task.sendall(self._told)


def is_idle_task(worker_task: str) -> bool:
    """Return whether the property of a Spark job says that its tasks wait for a job."""
    return worker_task.startswith(_ASK)


def receive_task(worker_task: str, number: int) -> str:
    """Return the worker task. A waiting task first requests it, and gets an empty text if no worker is needed.

    Args:
        worker_task: The value of the Spark job's property.
        number: The number of the task in its Spark job.
    """
    if not is_idle_task(worker_task):
        return worker_task
    secret, _, path = worker_task.removeprefix(_ASK).partition(" ")
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as driver:  # the driver died, or the job is over
        driver.connect(path)
        driver.sendall(secret.encode() + number.to_bytes(_NUMBER_BYTES, "big"))
        parts = []
        while part := driver.recv(1 << 20):
            parts.append(part)
        return b"".join(parts).decode()
    return ""
