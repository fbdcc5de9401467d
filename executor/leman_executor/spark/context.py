"""The Spark context of an executor, without a session: nothing of Spark's SQL is used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.sql.pandas import utils

from leman_executor.spark import driver_launch

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
    shown = list(driver_launch.shown(chosen).items())
    SparkContext._ensure_initialized(gateway=gateway, conf=SparkConf().setAll(shown))
    return SparkContext.getOrCreate(SparkConf().setAll(list(chosen.items())))


def was_taken_in(context: SparkContext) -> bool:
    """Tell whether a standalone cluster has taken the application in.

    Where no master has answered for a minute Spark makes a context all the same, and stops it by itself a moment
    later: its id is one that Spark chose, for want of a master's.
    """
    return not context.applicationId.startswith(_NO_MASTERS_ID)


def _no_pandas() -> None:
    raise ImportError("pandas is left out of this process")


def cause(error: Exception) -> str:
    """Return the line of a Java stack trace that names the cause."""
    lines = [line.strip().removeprefix(": ") for line in str(error).splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].startswith("An error occurred while calling "):
        del lines[0]  # of Py4J
    for line in lines:
        if "Python worker exited" in line or "Caused by" in line or "Error:" in line:
            return line[:500]
    return lines[0][:500] if lines else type(error).__name__
