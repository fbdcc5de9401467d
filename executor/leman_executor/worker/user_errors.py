"""Turn errors of functions, local and remote, into texts that can be stored.

No function here raises, even if the class of an exception or value misbehaves. Runs on Spark workers, so it imports
neither gRPC, Spark nor Arrow Flight.
"""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import PurePath
from typing import Protocol

from leman_core.model.row_positions import RowAddress
from leman_core.model.service_errors import LemanError
from leman_core.model.work import RowError
from leman_executor.worker.process_environment import masked

#: Reasons of errors after which the worker waits until servers are available.
WAITED_FOR = frozenset({"FUNCTION_UNAVAILABLE", "FUNCTION_TLS_FAILED"})


class ServerError(Exception):
    """An error of a remote function, as its server reported it.

    Args:
        kind: The name of the error's class, or of the corresponding class in the server's language.
        bases: The names of its base classes.
        message: Its message.
        traceback: Where it was raised.
    """

    def __init__(self, kind: str, bases: tuple[str, ...], message: str, traceback: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.bases = bases
        self.traceback = traceback

    @property
    def names(self) -> set[str]:
        """Return the names by which error rules match the error: its own and its bases', with and without modules."""
        told = {self.kind, *self.bases}
        return {*told, *(name.rpartition(".")[2] for name in told), "Exception", "BaseException"}


class WorkerLost(Exception):
    """The worker or server that computes some rows ended repeatedly while computing them."""


class FunctionLost(WorkerLost):
    """The servers of a remote function repeatedly break the connection while they compute the same batch."""


class BatchTooLarge(Exception):
    """A batch has more bytes than servers accept in a message, and was not sent."""


class NoServer(Exception):
    """No server is available, for reasons other than the rows.

    Args:
        error: The error that ends the job.
    """

    def __init__(self, error: LemanError) -> None:
        super().__init__(error.message)
        self.error = error


class StreamBroken(Exception):
    """A stream ended while its server computed a batch."""


class AnswerTooLarge(StreamBroken):
    """The answer has too many bytes, so the stream was closed."""


class NoAnswer(StreamBroken):
    """A server received a batch and then sent nothing for too long."""


class BatchNotes(Protocol):
    """Count batches and their outcomes, mainly those of remote functions. Any thread may call it."""

    def batch_split(self, message: str) -> None:
        """Note that a batch failed and is retried in parts."""
        ...

    def batch_answered(self) -> None:
        """Count a batch that got an answer: values or an error."""
        ...

    def connection_broken(self, message: str) -> None:
        """Count a connection that broke while the server computed a batch, and no other batch."""
        ...

    def row_lost(self, message: str) -> None:
        """Count a single row that was recorded as failed because connections broke while computing it."""
        ...

    def server_refused(self, message: str) -> None:
        """Note that a reachable server is not used because retries would not help. Other servers are still used."""
        ...


_MESSAGE_CHARS = 2048
_TRACEBACK_CHARS = 4096
#: The module that calls functions.
_CALLER = "leman_executor.worker.evaluator"
#: Modules whose names are omitted in front of a class name.
_PLAIN = frozenset(
    {"builtins", "__main__", "leman_executor.worker.call_guards", _CALLER, "leman_executor.worker.user_errors"}
)


def error_names(error: BaseException) -> set[str]:
    """Return the names by which error rules match an error: those of its class and bases, with and without modules."""
    if isinstance(error, ServerError):
        return error.names
    return {n for c in type(error).__mro__ for n in (c.__name__, f"{c.__module__}.{c.__qualname__}")}


def to_row_failure(error: BaseException, fragment_id: int, offset: int, attempt: int) -> RowError:
    """Return an error as the record of a failed row, for the error store."""
    if isinstance(error, ServerError):
        name, trace = error.kind, _storable(error.traceback)
    else:
        name, trace = _named(error), _trace(error)
    return RowError(
        row_address=RowAddress(fragment_id, offset).to_int(),
        error_type=name,
        error_message=_short(error_text(error) + hints(error)),
        traceback=trace[-_TRACEBACK_CHARS:],
        attempt=attempt,
    )


def _named(error: BaseException) -> str:
    kind = type(error)
    return kind.__name__ if kind.__module__ in _PLAIN else f"{kind.__module__}.{kind.__qualname__}"


def _trace(error: BaseException) -> str:
    # Skip the frames of Leman, which come first.
    first = error.__traceback__.tb_next if error.__traceback__ else None
    while first is not None and first.tb_frame.f_globals.get("__name__") == _CALLER:
        first = first.tb_next
    return _storable("".join(traceback.format_exception(type(error), error, first)))


def hints(error: BaseException) -> str:
    """Return advice for errors that occur only on workers, not where the function was written."""
    return missing_module(error) + null_hint(error) + _other_folder(error) + _no_variable(error)


def missing_module(error: BaseException) -> str:
    """If a module is missing, say which Python lacks it and what to do."""
    if not isinstance(error, ModuleNotFoundError):
        return ""
    return f" (functions run in {sys.executable}: install it there, or run the services by the Python that has it)"


def null_hint(error: BaseException) -> str:
    """Return advice if the error shows that the function was called with None."""
    if not isinstance(error, TypeError | AttributeError) or "NoneType" not in error_text(error):
        return ""
    return " (where an input is NULL the function is given None: have it return None for that, or another value)"


def _other_folder(error: BaseException) -> str:
    name = error.filename if isinstance(error, FileNotFoundError) else None
    if not isinstance(name, str) or not name or PurePath(name).is_absolute():
        return ""
    return " (functions run in another folder: use an absolute path of a file that exists on the workers)"


def _no_variable(error: BaseException) -> str:
    """If the function read an environment variable that is not set, say how to pass it."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if not isinstance(error, KeyError) or trace is None or trace.tb_frame.f_globals.get("environ") is not os.environ:
        return ""
    name = error.args[0] if error.args and isinstance(error.args[0], str) else "NAME"
    given = f"env={{{name!r}: os.environ[{name!r}]}}"
    return f" (workers do not have your environment: pass the variable with {given}, or --env {name})"


def error_text(error: BaseException) -> str:
    """Return an exception's message, or a substitute if it cannot be formatted."""
    try:
        return _storable(str(error))
    except BaseException:  # noqa: BLE001 the class may be defined by the user
        return f"<no message: {type(error).__name__}.__str__ raised>"


def describe_error(error: BaseException) -> str:
    """Return class and message of the error that ended a task."""
    return f"{type(error).__name__}: {error_text(error)}"


def _storable(any_text: str) -> str:
    """Make a text storable: escape lone surrogates, and mask the values of `env`."""
    return masked.out_of(any_text).encode(errors="backslashreplace").decode()


def _short(long: str) -> str:
    return long if len(long) <= _MESSAGE_CHARS else long[: _MESSAGE_CHARS - 1] + "…"


def format_value(value: object) -> str:
    """Format a function's return value for display."""
    try:
        return _short(_storable(repr(value)))
    except Exception:  # noqa: BLE001 the class may be defined by the user
        return "an object whose repr raised"
