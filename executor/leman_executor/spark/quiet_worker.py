"""Spark's worker in its daemon, without the traceback that every cancelled job would leave in the executor's log."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any


def quiet_when_spark_is_gone(worker: Callable[..., int]) -> Callable[..., int]:
    """Return `pyspark.daemon.worker`, ending its process in silence where nobody takes its last bytes.

    Spark closes the connection of a worker that it cancels or gives up on. Any other error is the daemon's to print.
    """

    def run(*arguments: Any) -> int:
        try:
            return worker(*arguments)
        except BrokenPipeError as error:
            if error.__context__ is not None or not _own_flush(error):
                raise
            os._exit(1)  # as the daemon does once it has printed the traceback

    return run


def _own_flush(error: BrokenPipeError) -> bool:
    """Tell whether the worker itself raised an error, and nothing that it called."""
    ours = error.__traceback__
    return ours is not None and ours.tb_next is not None and ours.tb_next.tb_next is None
