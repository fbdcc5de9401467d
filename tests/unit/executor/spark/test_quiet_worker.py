"""A worker of Spark's whose connection Spark closed: it ends in silence, and any other one as before."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.conftest import ROOT

#: As Spark's daemon runs a worker on a connection; `main` is what the worker does on it.
PROGRAM = """
import os, socket, sys, traceback
from types import ModuleType

os.environ["PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE"] = "1"
from pyspark import daemon
from leman_executor.spark.daemon_startup import quiet_worker

def main(infile, outfile):
    outfile.write(b"the end of a task")
    {does}

sys.modules["pyspark.worker"] = stand_in = ModuleType("pyspark.worker")
stand_in.main = main
ours, theirs = socket.socketpair()
theirs.close()
try:
    quiet_worker(daemon.worker)(ours, True)
except BaseException:
    traceback.print_exc()
    os._exit(2)
"""


@pytest.mark.parametrize(
    ("does", "told"),
    [
        ("pass", None),
        ("raise ValueError('a bug')", "ValueError: a bug"),
        ("outfile.raw.write(b'x'); outfile.flush()", "During handling of the above"),
    ],
)
def test_a_worker_whose_connection_spark_closed_ends_in_silence_and_others_do_not(does, told):
    program = PROGRAM.format(does=does)
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if told is None:
        assert (ended.returncode, ended.stderr) == (1, "")
    else:
        assert ended.returncode == 2
        assert told in ended.stderr
