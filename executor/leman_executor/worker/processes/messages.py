"""What travels between a caller, the pool and a function process: JSON behind a length of four bytes."""

from __future__ import annotations

import socket

import msgspec

from leman_executor.worker.messages import LENGTH_BYTES, framed

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


class Said(msgspec.Struct, frozen=True, tag="said"):
    """What a task says while it runs, to a caller that listens."""

    content: bytes


class Answer(msgspec.Struct, frozen=True, tag="answer"):
    """What the caller is told at the end: how many units were run, or why the task ended early."""

    units: int = 0
    error: str = ""


def send(connection: socket.socket, message: Request | Said | Answer) -> None:
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
