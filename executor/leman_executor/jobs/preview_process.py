"""Run the pool of function processes for previews, as a program that the executor starts.

`python -m leman_executor.jobs.preview_process FD` reads requests from the file descriptor FD. Like Spark's daemon, it
opens no file and starts no thread before it has forked the functions' processes.
"""

from __future__ import annotations

import gc
import os
import socket
import sys
import warnings

warnings.filterwarnings("ignore", message="lance is not fork-safe")
os.environ.setdefault("LANCE_LOG", "error")

from leman_core.process import environment  # noqa: E402
from leman_core.process.blocked_imports import HEAVY, blocked_imports  # noqa: E402

with blocked_imports(*HEAVY):  # a function's own process may still import them
    from leman_executor.worker import preview_run
from leman_core.storage.opening import start_threads  # noqa: E402
from leman_executor.spark import daemon_startup  # noqa: E402
from leman_executor.worker.function_pool import FunctionPool  # noqa: E402


def main(requests: socket.socket, parent: int) -> None:
    """Serve requests until the executor ends this process or dies."""
    os.dup2(2, 1)
    environment.guard()
    os.environ.pop(environment.CORE_DUMPS, None)  # functions must not inherit it
    daemon_startup.expect_pandas()
    gc.collect()
    gc.freeze()
    # No reuse: a process keeps the code that it imported, but a changed function must be loaded again.
    FunctionPool(requests, preview_run.run_preview, lambda _state: None, (start_threads,), reuses=False).serve(parent)


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])), os.getppid())
