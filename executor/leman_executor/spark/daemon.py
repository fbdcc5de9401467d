"""Fork Spark's Python workers from a daemon that has already imported a worker's modules and frozen its heap.

After every task, Spark's own daemon runs a garbage collection over all imported objects. A frozen heap avoids that
(measured: a job's start takes 22 ms instead of 127 ms). Importing lance before the fork is safe; opening a dataset is
not. In an embedded system, this daemon is itself forked from the process that the services were forked from
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
    daemon_startup.relay_to_warm_process()  # returns only if this process must be the daemon

sys.path[:] = without_archives(sys.path)

warnings.filterwarnings("ignore", message="lance is not fork-safe")
os.environ.setdefault("LANCE_LOG", "error")

import encodings.idna  # noqa: E402 else the first connection to a host name imports it

from leman_core.process import environment  # noqa: E402
from leman_core.process.blocked_imports import HEAVY, blocked_imports  # noqa: E402

with blocked_imports(*HEAVY):  # a worker's function may still import them
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

    Otherwise each of Lance's many threads keeps an arena of its own, and wide rows leave hundreds of megabytes in these
    arenas. Only glibc has this setting.
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
