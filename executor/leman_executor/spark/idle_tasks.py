"""Tasks of Spark that wait for a job: to begin some costs more than all else that a small job does before its rows.

They are the tasks of a Spark job that was begun while nothing else ran. Each asks this process, through a socket in its
temporary folder, what its worker is to do, and is told once there is a job. A task that Spark tries again asks again.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import threading
from concurrent.futures import Future
from pathlib import Path

#: With this the property of a Spark job begins whose tasks are to ask; it goes on with a secret and the socket's path.
_ASK = "ask "
_SECRET_BYTES = 16
_NUMBER_BYTES = 4
_HEAD = 2 * _SECRET_BYTES + _NUMBER_BYTES
_HELLO_SECONDS = 5.0
#: The longest path of a socket, with its final zero, on the system that has the least.
_LONGEST_PATH = 104


class IdleTasks:
    """The tasks of one Spark job that wait until a job is there, for any number of threads.

    `call` is set by whoever runs that Spark job: it is done when the Spark job is.
    """

    def __init__(self, folder: Path, count: int) -> None:
        """Listen for so many tasks.

        Raises:
            OSError: There can be no socket in the folder.
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
        #: What tasks with a lower number than `_workers` are told; None: there is no job yet.
        self._told: bytes | None = None
        self._workers = 0
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self._path))
        self._listener.listen(count)
        threading.Thread(target=self._listen, name="standing", daemon=True).start()

    @property
    def address(self) -> str:
        """What the tasks find in the property of their Spark job."""
        return f"{_ASK}{self._secret.decode()} {self._path}"

    def give(self, worker_task: str, workers: int) -> None:
        """Have so many of the tasks run workers of a job, and the others end."""
        with self._lock:
            self._told, self._workers = worker_task.encode(), workers
            waiting, self._waiting = self._waiting, []
        for number, task in waiting:
            self._tell(number, task)

    def dismiss(self) -> None:
        """Have all tasks end."""
        self.give("", 0)

    def close(self) -> None:
        """Listen no more, as the Spark job is over."""
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
        """Return the number of a task that knows the secret; None where another program has connected."""
        with contextlib.suppress(OSError):
            task.settimeout(_HELLO_SECONDS)
            head = task.recv(_HEAD, socket.MSG_WAITALL)
            if len(head) == _HEAD and secrets.compare_digest(head[:-_NUMBER_BYTES], self._secret):
                return int.from_bytes(head[-_NUMBER_BYTES:], "big")
        return None

    def _tell(self, number: int, task: socket.socket) -> None:
        with task, contextlib.suppress(OSError):  # a task that is gone: Spark tries it again
            if number < self._workers and self._told is not None:
                task.sendall(self._told)


def is_idle_task(worker_task: str) -> bool:
    """Tell whether a task is one that waits for a job."""
    return worker_task.startswith(_ASK)


def receive_task(worker_task: str, number: int) -> str:
    """Return what the worker of a task is to do, asked for where the task is one that waits; empty: nothing.

    Args:
        worker_task: What the Spark job says.
        number: Of the task in its Spark job.
    """
    if not is_idle_task(worker_task):
        return worker_task
    secret, _, path = worker_task.removeprefix(_ASK).partition(" ")
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as driver:  # it is gone, or is done with the job
        driver.connect(path)
        driver.sendall(secret.encode() + number.to_bytes(_NUMBER_BYTES, "big"))
        parts = []
        while part := driver.recv(1 << 20):
            parts.append(part)
        return b"".join(parts).decode()
    return ""
