"""The daemon that forks Spark's Python workers, with what a worker needs imported and frozen beforehand.

The stock daemon collects garbage over everything that was imported after every task; a frozen heap makes a task's
start cheap (measured: 127 ms a job down to 22 ms). Importing lance before the fork is safe, opening a dataset is not.
"""

import gc
import os
import sys
import warnings

from executor.spark.import_path import without_archives

sys.path[:] = without_archives(sys.path)

warnings.filterwarnings("ignore", message="lance is not fork-safe")
os.environ.setdefault("LANCE_LOG", "error")

import numpy  # noqa: E402
import pyarrow  # noqa: E402
import pyarrow.compute  # noqa: E402
import pyspark.worker  # noqa: E402
from pyspark import daemon  # noqa: E402

from core.startup import without  # noqa: E402

with without("rich"):  # structlog asks for it; a function may still import it
    import executor.worker.lane

__all__ = ["executor", "numpy", "pyarrow", "pyspark"]

if __name__ == "__main__":
    gc.collect()
    gc.freeze()
    daemon.manager()
