"""The edge of the SDK: a caller's traceback ends at the call they made."""

from __future__ import annotations

import functools
import inspect
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any, ParamSpec, TypeVar, cast

from leman._arguments import Arguments
from leman.errors import LemanError

P = ParamSpec("P")
R = TypeVar("R")


def boundary(function: Callable[P, R]) -> Callable[P, R]:
    """Raises the errors that Leman raises on purpose, and interrupts, without the frames and causes inside the SDK, and
    InvalidArgument for arguments that are not as the function's annotations have them.

    Other exceptions are bugs and keep their whole traceback. Also for generator functions.
    """
    if inspect.isgeneratorfunction(function):
        return cast("Callable[P, R]", _generator(function))
    arguments = Arguments(function)

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            arguments.check(args, kwargs)
            return function(*args, **kwargs)
        except (LemanError, KeyboardInterrupt) as error:
            failure = error
        raise failure.with_traceback(None) from None

    return call


def warn(text: str) -> None:
    """Warn at the line outside the SDK that called it."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("leman."):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, UserWarning, stacklevel=level)


def _generator(function: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    arguments = Arguments(function)

    @functools.wraps(function)
    def iterate(*args: Any, **kwargs: Any) -> Iterator[Any]:
        try:
            arguments.check(args, kwargs)
            yield from function(*args, **kwargs)
            return
        except (LemanError, KeyboardInterrupt) as error:
            failure = error
        raise failure.with_traceback(None) from None

    return iterate
