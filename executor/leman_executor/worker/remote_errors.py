"""What can go wrong with a remote function on a worker. Imports nothing of Arrow Flight."""

from __future__ import annotations

from typing import Protocol

from leman_core.model.errors import LemanError

#: Reasons of an error after which servers are waited for.
WAITED_FOR = frozenset({"FUNCTION_UNAVAILABLE", "FUNCTION_TLS_FAILED"})


class ServerError(Exception):
    """An error of a remote function, as its server told of it.

    Args:
        kind: Name of its class, or of what the server's language has in its place.
        bases: Names of what that derives from.
        message: What it says.
        traceback: Where it was raised.
    """

    def __init__(self, kind: str, bases: tuple[str, ...], message: str, traceback: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.bases = bases
        self.traceback = traceback

    @property
    def names(self) -> set[str]:
        """Return what an error rule may call it: its names and its bases', with and without modules."""
        told = {self.kind, *self.bases}
        return {*told, *(name.rpartition(".")[2] for name in told), "Exception", "BaseException"}


class WorkerLost(Exception):
    """Whoever was to compute rows is gone, again and again."""


class FunctionLost(WorkerLost):
    """The servers of a remote function break the connection over the same batch."""


class BatchTooLarge(Exception):
    """A batch has more bytes than servers take in a message; it was not sent."""


class NoServer(Exception):
    """No server computes batches now; no row is to blame.

    Args:
        error: What the job ends with.
    """

    def __init__(self, error: LemanError) -> None:
        super().__init__(error.message)
        self.error = error


class StreamBroken(Exception):
    """A stream ended while a batch was at work."""


class AnswerTooLarge(StreamBroken):
    """A stream was ended as its answer has more bytes than may be sent."""


class NoAnswer(StreamBroken):
    """A server took a batch and said nothing for as long as it may."""


class BatchNotes(Protocol):
    """What counts how batches are taken, those of remote functions above all. Any thread may call it."""

    def batch_split(self, message: str) -> None:
        """Note that a batch failed and is given to the function again in parts."""
        ...

    def batch_answered(self) -> None:
        """Count a batch that was answered, with values or with an error."""
        ...

    def connection_broken(self, message: str) -> None:
        """Count a connection that broke over a batch that was tried by itself."""
        ...

    def row_lost(self, message: str) -> None:
        """Count a single row that is given up, as connections broke over it."""
        ...

    def server_refused(self, message: str) -> None:
        """Note that a server is left out, which no waiting mends; the others compute."""
        ...
