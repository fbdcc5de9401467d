"""Spark stops, its JVM lives on: an executor that went on so would fail every job."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = [pytest.mark.faults, pytest.mark.spark]

EXECUTOR = """
import asyncio
from core.config import Spark
from core.domain.udf import CheckpointBounds, ErrorPolicy, UdfKind
from core.domain.work import UdfRef, WorkContext
from executor.scheduling.dispatcher import ExecutorEndpoint
from executor.spark.spark_runner import SparkRunner

udf = UdfRef("f", "1", UdfKind.SCALAR, ("x",), "", "", "", "m:f", False, 0, ErrorPolicy())
context = WorkContext("job", "t", 1, b"", (1,), "c", ("x",), udf, "", CheckpointBounds(), 1.0, 1)
runner = SparkRunner(Spark())
runner.start()
print("started", flush=True)
runner._session.sparkContext._jsc.sc().stop()
asyncio.run(runner.run_workers(ExecutorEndpoint("127.0.0.1", 1, "job", "secret"), context, 1))
"""


def test_the_executor_ends(tmp_path):
    """Whoever runs it starts it again, as after the death of the JVM, and its jobs are taken over."""
    command = [sys.executable, "-c", EXECUTOR]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path, check=False)
    assert "started" in ended.stdout
    assert ended.returncode == 70, ended.stderr
    assert "Spark has stopped" in ended.stdout + ended.stderr
