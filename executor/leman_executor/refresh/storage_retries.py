"""Runs work on files of a refresh that may fail for passing reasons."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import structlog

from leman_core.model.errors import Aborted, Unavailable
from leman_core.server.blocking import in_job_thread
from leman_core.storage.storage_errors import STORE_UNAVAILABLE

_log = structlog.get_logger(__name__)

_Result = TypeVar("_Result")
_Arguments = ParamSpec("_Arguments")


async def in_thread(
    work: Callable[_Arguments, _Result], *args: _Arguments.args, **kwargs: _Arguments.kwargs
) -> _Result:
    """Run work on files in a thread.

    Raises:
        Aborted: STORAGE_ERROR, where the files cannot be read or written now. The source may have been cleaned up, or
            another refresh may have dropped the scratch table; a new plan finds that out.
        LemanError: whatever else the work raises, such as FailedPrecondition where the storage refuses.
    """
    try:
        return await in_job_thread(work, *args, **kwargs)
    except Unavailable as error:
        if error.reason != STORE_UNAVAILABLE:
            raise
        _log.warning("files of a refresh cannot be used", exc_info=True)
        raise Aborted("STORAGE_ERROR", error.message) from None
