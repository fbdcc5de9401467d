"""What a function raised or returned, in words that can be stored: nothing here raises, whatever its class does.

Runs on Spark workers: imports no gRPC and no Spark.
"""

from __future__ import annotations

import traceback

from core.domain.work import RowFailure

_MESSAGE_CHARS = 2048
_TRACEBACK_CHARS = 4096
#: Modules that say nothing in front of a class name.
_PLAIN = frozenset({"builtins", "__main__", "executor.worker.evaluator"})


def names(error: BaseException) -> set[str]:
    """Of its class and their bases, with and without their modules: what an error rule may call it."""
    return {n for c in type(error).__mro__ for n in (c.__name__, f"{c.__module__}.{c.__qualname__}")}


def failure(error: BaseException, fragment_id: int, offset: int, attempt: int) -> RowFailure:
    """As the error store keeps it."""
    kind = type(error)
    name = kind.__name__ if kind.__module__ in _PLAIN else f"{kind.__module__}.{kind.__qualname__}"
    # our own frame comes first; the author wants theirs
    frames = traceback.format_exception(kind, error, error.__traceback__.tb_next if error.__traceback__ else None)
    trace = _storable("".join(frames))
    return RowFailure(fragment_id, offset, name, _short(text(error)), trace[-_TRACEBACK_CHARS:], attempt)


def text(error: BaseException) -> str:
    """The message, also where the exception cannot say it."""
    try:
        return _storable(str(error))
    except Exception:  # noqa: BLE001 its class may be a user's
        return f"<no message: {type(error).__name__}.__str__ raised>"


def _storable(any_text: str) -> str:
    """Half of a surrogate pair is no text to anybody else."""
    return any_text.encode(errors="backslashreplace").decode()


def _short(long: str) -> str:
    return long if len(long) <= _MESSAGE_CHARS else long[: _MESSAGE_CHARS - 1] + "…"


def shown(value: object) -> str:
    """A value that a function returned, for a person."""
    try:
        return _short(_storable(repr(value)))
    except Exception:  # noqa: BLE001 likewise
        return "an object whose repr raised"
