"""The daemon that forks Spark's Python workers, with what a worker needs imported and frozen beforehand.

The stock daemon collects garbage over everything that was imported after every task; a frozen heap makes a task's
start cheap (measured: 127 ms a job down to 22 ms). Importing lance before the fork is safe, opening a dataset is not.
"""

import contextlib
import ctypes
import gc
import os
import sys
import warnings

from executor.spark.import_path import without_archives

sys.path[:] = without_archives(sys.path)

warnings.filterwarnings("ignore", message="lance is not fork-safe")
os.environ.setdefault("LANCE_LOG", "error")

import encodings.idna  # noqa: E402 the first connection by name imports it

import numpy  # noqa: E402
import pyarrow  # noqa: E402
import pyarrow.compute  # noqa: E402
import pyspark.worker  # noqa: E402
from pyspark import daemon  # noqa: E402

from core.absent_modules import without  # noqa: E402

with without("rich"):  # structlog asks for it; a function may still import it
    import executor.worker.worker_loop
from executor.spark import function_processes  # noqa: E402

__all__ = ["encodings", "executor", "numpy", "pyarrow", "pyspark"]

_M_ARENA_MAX = -8


def share_memory_between_threads() -> None:
    """Have all threads share two arenas of glibc's.

    Lance's many threads would each keep one, and wide rows that pass through all of them leave hundreds of megabytes
    behind. Other C libraries have no such setting.
    """
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 2)


if __name__ == "__main__":
    share_memory_between_threads()
    gc.collect()
    gc.freeze()
    function_processes.start()
    daemon.manager()
