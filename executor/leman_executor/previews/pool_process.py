"""The pool of the function processes that previews run in: a program that the executor starts.

`python -m leman_executor.previews.pool_process FD`: the descriptor is where requests come from. It is as clean as
Spark's daemon: nothing is opened, and no thread runs, before functions have processes of their own.
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
from leman_core.process.absent_modules import HEAVY, without  # noqa: E402

with without(*HEAVY):  # a function may still import them
    from leman_executor.worker import preview_run
from leman_core.storage.thread_startup import start_threads  # noqa: E402
from leman_executor.spark import late_pandas  # noqa: E402
from leman_executor.worker.processes.pool import Pool  # noqa: E402


def main(requests: socket.socket, parent: int) -> None:
    """Serve until the executor ends this process, or is gone."""
    os.dup2(2, 1)
    environment.guard()
    os.environ.pop(environment.CORE_DUMPS, None)  # not for functions
    late_pandas.expect()
    gc.collect()
    gc.freeze()
    # a process has imported what the code was like: whoever changes it and tries again is to see the new one
    Pool(requests, preview_run.run, lambda _state: None, (start_threads,), reuses=False).serve(parent)


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])), os.getppid())
