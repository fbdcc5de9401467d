"""The Spark session of an executor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession, udf
from pyspark.sql.pandas import functions as vectorised
from pyspark.sql.pandas import utils

from executor.spark import driver_launch


def open_session(chosen: Mapping[str, str], gateway: Any = None) -> SparkSession:
    """Open a session, or find the one that this process has. Blocks for seconds.

    Args:
        chosen: Made by `driver_launch.session_settings`.
        gateway: Of a JVM that runs; None: one is started, where this process has none.
    """
    # pyspark wants pandas for all vectorised functions, also for those that see Arrow alone: a second of this process
    for module in (utils, udf, vectorised):
        vars(module)["require_minimum_pandas_version"] = lambda: None
    shown = list(driver_launch.shown(chosen).items())
    SparkContext._ensure_initialized(gateway=gateway, conf=SparkConf().setAll(shown))
    builder = SparkSession.builder
    for key, value in chosen.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def cause(error: Exception) -> str:
    """Return the line of a Java stack trace that names the cause."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    for line in lines:
        if "Python worker exited" in line or "Caused by" in line or "Error:" in line:
            return line[:500]
    return lines[0][:500] if lines else type(error).__name__
