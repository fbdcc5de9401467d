"""The daemon that forks Spark's Python workers, with a worker's modules imported and the heap frozen in advance.

After every task the stock daemon collects garbage over everything imported; a frozen heap makes starting a task cheap
(measured: from 127 ms a job to 22 ms). Importing lance before the fork is safe; opening a dataset is not. In an
embedded system the daemon itself is forked from the process that the services are forked from
(`daemon_startup.relay_to_warm_process`).
"""

import contextlib
import ctypes
import gc
import os
import sys
import warnings

from leman_executor.spark import daemon_startup
from leman_executor.spark.daemon_startup import without_archives

if __name__ == "__main__":
    daemon_startup.relay_to_warm_process()  # does not return if another process is the daemon

sys.path[:] = without_archives(sys.path)

warnings.filterwarnings("ignore", message="lance is not fork-safe")
os.environ.setdefault("LANCE_LOG", "error")

import encodings.idna  # noqa: E402 imported by the first connection by name

from leman_core.process import environment  # noqa: E402
from leman_core.process.blocked_imports import HEAVY, blocked_imports  # noqa: E402

with blocked_imports(*HEAVY):  # a function may still import them
    import numpy
    import pyarrow
    import pyarrow.compute
    import pyspark.worker
    from pyspark import daemon

    import leman_executor.worker.worker_loop
    from leman_executor.spark import daemon_startup, function_processes

__all__ = ["encodings", "leman_executor", "numpy", "pyarrow", "pyspark"]

_M_ARENA_MAX = -8


def share_memory_between_threads() -> None:
    """Let all threads share two glibc arenas.

    Lance's many threads would each keep one, and wide rows that pass through all of them leave hundreds of megabytes
    behind. Other C libraries have no such setting.
    """
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 2)


if __name__ == "__main__":
    environment.guard()
    share_memory_between_threads()
    daemon_startup.expect_pandas()
    gc.collect()
    gc.freeze()
    function_processes.start()
    daemon.worker = daemon_startup.quiet_worker(daemon.worker)
    daemon.manager()
