"""The driver's JVM while it runs, and the Spark context in it.

The Spark context of an executor, without a session: nothing of Spark's SQL is used.

The JVM that Spark's driver runs in; without it this process ends.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
from collections.abc import Mapping
from typing import Any

import structlog
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql.pandas import utils

from leman_executor.spark import driver_launch
from leman_executor.spark.class_archive import ClassArchive
from leman_executor.spark.driver_launch import LaunchedJvm

#: How an application's id begins that no cluster has given.
_NO_MASTERS_ID = "spark-application-"


def open_context(chosen: Mapping[str, str], gateway: Any = None) -> SparkContext:
    """Open a context, or find the one that this process has. Blocks for seconds.

    Args:
        chosen: Made by `driver_launch.context_settings`.
        gateway: Of a JVM that runs; None: one is started, where this process has none.
    """
    # pyspark's bridge to the JVM imports its helpers for tests, and these pandas: a second of this process
    vars(utils)["require_minimum_pandas_version"] = _no_pandas
    shown = list(driver_launch.without_secrets(chosen).items())
    SparkContext._ensure_initialized(gateway=gateway, conf=SparkConf().setAll(shown))
    return SparkContext.getOrCreate(SparkConf().setAll(list(chosen.items())))


def is_registered(context: SparkContext) -> bool:
    """Tell whether a standalone cluster has taken the application in.

    Where no master has answered for a minute Spark makes a context all the same, and stops it by itself a moment
    later: its id is one that Spark chose, for want of a master's.
    """
    return not context.applicationId.startswith(_NO_MASTERS_ID)


def _no_pandas() -> None:
    raise ImportError("pandas is left out of this process")


def java_cause(error: Exception) -> str:
    """Return the line of a Java stack trace that names the cause."""
    lines = [line.strip().removeprefix(": ") for line in str(error).splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].startswith("An error occurred while calling "):
        del lines[0]  # of Py4J
    for line in lines:
        if "Python worker exited" in line or "Caused by" in line or "Error:" in line:
            return line[:500]
    return lines[0][:500] if lines else type(error).__name__


_log = structlog.get_logger(__name__)

_EXIT_JVM_LOST = 70
#: The JVM's sockets close a moment before it is dead.
_JVM_DIES_SECONDS = 0.5


def driver_process() -> subprocess.Popen[bytes] | None:
    """Return the JVM's process; None where somebody else started it, or there is none."""
    gateway: Any = SparkContext._gateway
    return getattr(gateway, "proc", None)


def driver_is_gone() -> bool:
    """Return whether pyspark still has the gateway of a JVM that has ended."""
    process = driver_process()
    return process is not None and process.poll() is not None


def connect(launched: LaunchedJvm) -> Any:
    """Wait until a JVM that was started before is up, and return pyspark's gateway to it; None where it has ended.

    pyspark connects to it as to one that it was started by, and then takes it for one that it has started.
    """
    address = launched.address()
    if address is None:
        return None
    variables = {"PYSPARK_GATEWAY_PORT": str(address[0]), "PYSPARK_GATEWAY_SECRET": address[1]}
    os.environ.update(variables)
    try:
        gateway: Any = launch_gateway()  # type: ignore[no-untyped-call]
    finally:
        for name in variables:
            del os.environ[name]
    gateway.proc = launched.process
    return gateway


def detach_driver() -> None:
    """Make pyspark forget a JVM that has ended, and its context: the next context starts in another JVM.

    Call it once the process is dead. `SparkContext.stop` raises then, and leaves what it should reset.
    """
    gateway: Any = SparkContext._gateway
    context: Any = SparkContext._active_spark_context
    SparkContext._active_spark_context = SparkContext._gateway = SparkContext._jvm = None
    accumulators = getattr(context, "_accumulatorServer", None)
    if accumulators is not None:
        with contextlib.suppress(Exception):
            accumulators.shutdown()
    if gateway is not None:
        with contextlib.suppress(Exception):  # of Py4J
            gateway.shutdown()


class DriverJvm:
    """The JVM of this process, for any number of threads.

    One that dies while Spark starts in it is replaced by another. Later, a JVM that died, or in which Spark has
    stopped, ends this process: whatever runs it starts it again, and its jobs are taken over.
    """

    def __init__(self) -> None:
        #: The archive that the JVM started with, or is to be made with it.
        self.archive: ClassArchive | None = None
        #: The first Spark job has run.
        self.warm = False
        #: Spark starts: the start replaces a JVM that dies.
        self.starting = False
        #: The JVM is to end.
        self.stopping = False

    def watch(self) -> None:
        """End the process when the JVM dies."""
        threading.Thread(target=self._until_gone, name="jvm", daemon=True).start()

    def _until_gone(self) -> None:
        process = driver_process()
        if process is not None:
            process.wait()
            self.end_if_gone()

    def end_if_gone(self) -> None:
        """End the process where the JVM is dying or dead."""
        process = driver_process()
        if process is None or self.stopping or self.starting:
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = process.wait(_JVM_DIES_SECONDS)
            _log.error("the Spark JVM is gone, and so goes this process", code=code)
            if self.archive is not None and not self.warm:
                self.archive.discard()  # it may be what the JVM died of
            os._exit(_EXIT_JVM_LOST)

    def end_if_spark_stopped(self, context: SparkContext) -> None:
        """End the process where Spark has stopped by itself in a JVM that lives on.

        It does so after an error of its own, or when its cluster drops it.
        """
        if self.starting:
            return
        stopped = False
        with contextlib.suppress(Exception):  # of Py4J: the JVM is going
            stopped = bool(context._jsc.sc().isStopped())
        if stopped and not self.stopping:
            _log.error("Spark has stopped, and so does this process", master=context.master)
            os._exit(_EXIT_JVM_LOST)
