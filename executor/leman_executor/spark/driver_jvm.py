"""Open the Spark context, and watch the driver's JVM, in which it runs.

There is a context but no session, because Spark SQL is not used. If the JVM ends, this process ends too.
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

#: The prefix of an application id that Spark chose itself because no master answered.
_NO_MASTERS_ID = "spark-application-"


def open_context(chosen: Mapping[str, str], gateway: Any = None) -> SparkContext:
    """Open a context, or return the one of this process. Blocks for seconds.

    Args:
        chosen: The settings, as returned by `driver_launch.context_settings`.
        gateway: The gateway to a running JVM. If None, start a JVM, unless this process has one.
    """
    # pyspark's JVM bridge imports its test helpers, which import pandas. That would take a second.
    vars(utils)["require_minimum_pandas_version"] = _no_pandas
    shown = list(driver_launch.without_secrets(chosen).items())
    SparkContext._ensure_initialized(gateway=gateway, conf=SparkConf().setAll(shown))
    return SparkContext.getOrCreate(SparkConf().setAll(list(chosen.items())))


def is_registered(context: SparkContext) -> bool:
    """Return whether a standalone cluster has registered the application.

    If no master answers for a minute, Spark first makes a context anyway, with an application id that it chose itself,
    and then stops it.
    """
    return not context.applicationId.startswith(_NO_MASTERS_ID)


def _no_pandas() -> None:
    raise ImportError("pandas is left out of this process")


def java_cause(error: Exception) -> str:
    """Return the line of a Java stack trace that names the cause."""
    lines = [line.strip().removeprefix(": ") for line in str(error).splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].startswith("An error occurred while calling "):
        del lines[0]  # added by Py4J
    for line in lines:
        if "Python worker exited" in line or "Caused by" in line or "Error:" in line:
            return line[:500]
    return lines[0][:500] if lines else type(error).__name__


_log = structlog.get_logger(__name__)

_EXIT_JVM_LOST = 70
#: Seconds between the closing of the JVM's sockets and its death.
_JVM_DIES_SECONDS = 0.5


def driver_process() -> subprocess.Popen[bytes] | None:
    """Return the JVM's process; None if there is no JVM, or another process started it."""
    gateway: Any = SparkContext._gateway
    return getattr(gateway, "proc", None)


def driver_is_gone() -> bool:
    """Return whether the JVM to which pyspark has a gateway has ended."""
    process = driver_process()
    return process is not None and process.poll() is not None


def connect(launched: LaunchedJvm) -> Any:
    """Wait until a launched JVM is up, and return pyspark's gateway to it; None if it has ended.

    pyspark connects as if the JVM had started Python. Afterwards pyspark's state is changed, so that it owns the JVM's
    process.
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
    """Make pyspark forget a dead JVM and its context, so that the next context starts a new JVM.

    Call this only after the JVM's process has died. `SparkContext.stop` would then raise without resetting its state.
    """
    gateway: Any = SparkContext._gateway
    context: Any = SparkContext._active_spark_context
    SparkContext._active_spark_context = SparkContext._gateway = SparkContext._jvm = None
    accumulators = getattr(context, "_accumulatorServer", None)
    if accumulators is not None:
        with contextlib.suppress(Exception):
            accumulators.shutdown()
    if gateway is not None:
        with contextlib.suppress(Exception):  # raised by Py4J
            gateway.shutdown()


class DriverJvm:
    """The JVM of this process; any thread may use it.

    A JVM that dies while Spark starts in it is replaced. If the JVM dies later, or Spark stops by itself, this process
    ends. Its supervisor restarts it, and its jobs are taken over.
    """

    def __init__(self) -> None:
        #: The class archive that the JVM uses, or that will be made from it.
        self.archive: ClassArchive | None = None
        #: Whether the first Spark job has run.
        self.warm = False
        #: Whether Spark is starting. If the JVM dies then, the start replaces it.
        self.starting = False
        #: Whether the JVM is being stopped on purpose.
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
        """End the process if the JVM is dying or dead."""
        process = driver_process()
        if process is None or self.stopping or self.starting:
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = process.wait(_JVM_DIES_SECONDS)
            _log.error("the Spark JVM has ended, so this process ends too", code=code)
            if self.archive is not None and not self.warm:
                self.archive.discard()  # the archive may have crashed the JVM
            os._exit(_EXIT_JVM_LOST)

    def end_if_spark_stopped(self, context: SparkContext) -> None:
        """End the process if Spark has stopped by itself in a live JVM.

        Spark does so after an error of its own, or when its cluster drops it.
        """
        if self.starting:
            return
        stopped = False
        with contextlib.suppress(Exception):  # raised by Py4J: the JVM is ending
            stopped = bool(context._jsc.sc().isStopped())
        if stopped and not self.stopping:
            _log.error("Spark has stopped by itself, so this process ends too", master=context.master)
            os._exit(_EXIT_JVM_LOST)
