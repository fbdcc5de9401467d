"""Work on files of a refresh that may fail for reasons that pass."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import pyarrow as pa
import structlog

from core.errors import Aborted
from core.storage import refusal
from executor.worker.unit_runner import STORAGE_ERROR

_log = structlog.get_logger(__name__)

_Result = TypeVar("_Result")
_Arguments = ParamSpec("_Arguments")


async def in_thread(
    work: Callable[_Arguments, _Result], *args: _Arguments.args, **kwargs: _Arguments.kwargs
) -> _Result:
    """For work on files. Raises FailedPrecondition where the storage refuses (see `core.storage`), and Aborted
    (STORAGE_ERROR) where they cannot be read or written: the source may have been
    cleaned up, or another refresh be done with the scratch table. A new plan knows."""
    try:
        return await asyncio.to_thread(work, *args, **kwargs)
    except (OSError, ValueError, RuntimeError, pa.ArrowException) as error:
        refused = refusal(error, "")
        if refused is not None:
            raise refused from error
        _log.warning("files of a refresh cannot be used", exc_info=True)
        raise Aborted(STORAGE_ERROR, f"{type(error).__name__}: {error}") from None
