"""Memory of an embedded system that has run a job and now waits: the proportional share (PSS) of all its processes, the
JVM, Redis and Python workers included. The other side: a bare Spark session and three plain Python processes that have
imported pylance and grpcio, so what the parts take before Leman does anything.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time

import psutil
import pyarrow as pa

import leman
from benchmarks.common import Target, figures, options_of, report, say, scratch
from benchmarks.leman_side import running
from benchmarks.practical_limit import double, even, make_table

_LIMIT = 600_000_000
#: Processes of functions end when they were idle for a minute.
_SETTLE_SECONDS = 75.0
_IMPORTS = "import sys, lance, grpc.aio, pyarrow; print('ready', flush=True); sys.stdin.read()"
_SPARK = """
import sys
from pyspark.sql import SparkSession
session = SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false").getOrCreate()
session.sparkContext.parallelize(range(8), 4).map(lambda x: x).collect()
print("ready", flush=True)
sys.stdin.read()
"""


def main() -> None:
    options = options_of(__doc__ or "", rows=1_000_000, repetitions=2)
    ours, parts = [], {}
    settings = {"LEMAN_SPARK__CLASS_ARCHIVE": "false"}  # another JVM would be making one meanwhile
    for repetition in range(options.repetitions):
        with scratch(options) as folder, running(folder / "lake", **settings) as caller:
            make_table(caller.uri("t"), even(options.rows, options.fragments))
            table = caller.sdk.open_table("t")
            table.add_columns({"y": leman.udf(data_type=pa.int64(), name="double", version="v1")(double)})
            table.backfill("y", progress=False)
            time.sleep(_SETTLE_SECONDS)
            parts = _by_name(caller.service["pid"])
            ours.append(float(sum(parts.values())))
        say(f"repetition {repetition + 1} of {options.repetitions}: {ours[-1] / 2**20:.0f} MB")
    bare = _bare()
    targets = [Target("idle ≤ 600 MB", figures(ours)["median"], _LIMIT)]
    report("idle_memory", options, targets, leman={"bytes": figures(ours), "by_process": parts}, bare={"bytes": bare})


def _by_name(pid: int) -> dict[str, int]:
    """Bytes of a process and all below it, by what they are."""
    root = psutil.Process(pid)
    found: dict[str, int] = {}
    for process in [root, *root.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):  # a zombie has no memory
            name = _name(process)
            found[name] = found.get(name, 0) + process.memory_full_info().pss
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def _name(process: psutil.Process) -> str:
    """Services and Spark's daemon have names of their own where they are forked, the daemon's forks the same."""
    if (name := process.name()).startswith("leman-"):
        return name.removeprefix("leman-")
    command = process.cmdline()
    if "java" in command[0]:
        return "jvm"
    if command == ["cat"]:  # it waits for the end of the daemon
        return "spark.daemon"
    text = " ".join(command)
    for name in ("spark.daemon", "redis", "planner", "executor", "commit_coordinator"):
        if name in text:
            return name
    return "supervisor"


def _bare() -> int:
    """Bytes of the parts alone."""
    children = [
        subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for code in (_SPARK, _IMPORTS, _IMPORTS, _IMPORTS)
    ]
    try:
        for child in children:
            while child.stdout is not None and (line := child.stdout.readline()) and "ready" not in line:
                pass
        return sum(sum(_by_name(child.pid).values()) for child in children)
    finally:
        for child in children:
            child.communicate("")


if __name__ == "__main__":
    main()
