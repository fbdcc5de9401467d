"""Spark stops, its JVM lives on: an executor that went on so would fail every job. Nor does one begin so."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.faults, pytest.mark.spark]

EXECUTOR = """
import asyncio
from leman_core.settings import Spark
from leman._format.stored_functions import CheckpointBounds, ErrorPolicy, UdfKind
from leman_core.model.work import FunctionSpec, WorkContext
from leman_executor.scheduling.dispatcher import ExecutorEndpoint
from leman_executor.spark.spark_runner import SparkRunner

udf = FunctionSpec(
    name="f", version="1", kind=UdfKind.SCALAR, input_columns=("x",), bundle_uri="", bundle_sha256="", bundle_python="",
    entrypoint="m:f", stateful=False, batch_size=0, error_policy=ErrorPolicy(),
)
context = WorkContext(
    job_id="job", uri="t", read_version=1, output_schema=b"", output_field_ids=(1,), column_id="c",
    input_columns=("x",), udf=udf, where="",
    checkpoint=CheckpointBounds(), checkpoint_seconds=1.0, checkpoint_max_bytes=1,
)
runner = SparkRunner(Spark())
runner.start()
print("started", flush=True)
runner._context._jsc.sc().stop()
asyncio.run(runner.run_workers(ExecutorEndpoint("127.0.0.1", 1, "job", "secret"), context, 1))
"""


@pytest.mark.long
def test_the_executor_ends(tmp_path):
    """Anyone who runs it starts it again, as after the death of the JVM, and its jobs are taken over."""
    command = [sys.executable, "-c", EXECUTOR]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path, check=False)
    assert "started" in ended.stdout
    assert ended.returncode == 70, ended.stderr
    assert "Spark has stopped" in ended.stdout + ended.stderr


KILLED_STARTS = """
import os, signal, threading
from leman_core.settings import Spark
from leman_core.model.service_errors import Unavailable
from leman_executor.spark import spark_runner

moments, connect = [1.0, 4.0], spark_runner.connect


def connect_to_one_that_is_killed(launched):
    if moments:
        threading.Timer(moments.pop(0), os.kill, (launched.process.pid, signal.SIGKILL)).start()
    return connect(launched)


spark_runner.connect = connect_to_one_that_is_killed
runner = spark_runner.SparkRunner(Spark())
try:
    runner.start()
except Unavailable as error:
    print(error.reason, flush=True)
runner.start()
runner._run_spark_job(("job",), "null", 2)
print("a job ran", flush=True)
runner.stop()
"""


@pytest.mark.long
def test_spark_starts_again_although_its_jvms_were_killed_while_it_started(tmp_path):
    """One executor, two starts: the second one finds nothing that the killed JVMs have left."""
    command = [sys.executable, "-c", KILLED_STARTS]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=240, cwd=tmp_path, check=False)
    said = [line for line in ended.stdout.splitlines() if line in ("SPARK_NOT_STARTED", "a job ran")]  # not the log
    assert said == ["SPARK_NOT_STARTED", "a job ran"], ended.stderr
    assert ended.returncode == 0, ended.stderr


@pytest.mark.long
def test_an_executor_whose_master_does_not_answer_never_says_that_it_is_ready(tmp_path):
    """Spark itself tries for a minute; what waits for the ready line would send jobs to a process that ends."""
    with socket.socket() as nobody:  # bound, and not listening
        nobody.bind(("127.0.0.1", 0))
        master = f"spark://127.0.0.1:{nobody.getsockname()[1]}"
        settings = {"LEMAN_SPARK__MASTER": master, "LEMAN_SPARK__CLASS_ARCHIVE": "false"}
        environment = {k: v for k, v in os.environ.items() if not k.startswith("LEMAN_")} | settings
        ended = subprocess.run(
            [sys.executable, "-m", "leman_executor"],
            capture_output=True,
            text=True,
            timeout=240,
            cwd=tmp_path,
            env=environment,
            check=False,
        )
    assert ended.returncode == 1, ended.stderr
    assert ended.stdout == "", "no ready line"
    said = [json.loads(line) for line in ended.stderr.splitlines() if line.startswith("{")]
    failed = next(line for line in said if line["event"] == "failed")
    assert failed["reason"] == "SPARK_NOT_STARTED"
    assert master in failed["message"]
    assert "LEMAN_SPARK__MASTER" in failed["message"]
    assert not [line for line in said if line["event"] == "serving"]
