"""Calls of a refresh that may fail for reasons that pass."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

import pyarrow as pa
import structlog
import tenacity

from core.errors import Aborted, Unavailable
from executor.unit import STORAGE_ERROR

_log = structlog.get_logger(__name__)

_PATIENCE_SECONDS = 120.0

_Result = TypeVar("_Result")
_Arguments = ParamSpec("_Arguments")


async def patiently(
    call: Callable[_Arguments, Awaitable[_Result]], *args: _Arguments.args, **kwargs: _Arguments.kwargs
) -> _Result:
    """The same call again while the service cannot be reached: an unknown outcome is not a failure."""
    async for attempt in tenacity.AsyncRetrying(
        retry=tenacity.retry_if_exception_type(Unavailable),
        stop=tenacity.stop_after_delay(_PATIENCE_SECONDS),
        wait=tenacity.wait_random_exponential(multiplier=0.2, max=3),
        reraise=True,
    ):
        with attempt:
            return await call(*args, **kwargs)
    raise AssertionError("the loop returns or raises")


async def in_thread(
    work: Callable[_Arguments, _Result], *args: _Arguments.args, **kwargs: _Arguments.kwargs
) -> _Result:
    """For work on files. Raises Aborted (STORAGE_ERROR) where they cannot be read or written: the source may have been
    cleaned up, or another refresh be done with the stage. A new plan knows."""
    try:
        return await asyncio.to_thread(work, *args, **kwargs)
    except (OSError, ValueError, RuntimeError, pa.ArrowException) as error:
        _log.warning("files of a refresh cannot be used", exc_info=True)
        raise Aborted(STORAGE_ERROR, f"{type(error).__name__}: {error}") from None
