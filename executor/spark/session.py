"""The Spark session of an executor."""

from __future__ import annotations

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from core import config
from core.config import Spark
from executor.spark import spark_conf
from executor.spark.address import CallbackAddress
from executor.spark.temp_folder import TempFolder


def open_session(
    settings: Spark, address: CallbackAddress, python: str, shared: list[str], folder: TempFolder | None
) -> SparkSession:
    """Open a session, or find the one that this process has. Blocks for seconds.

    Args:
        settings: What the operator chose; it wins over what is chosen here.
        address: Where workers call back.
        python: The interpreter of the workers.
        shared: Options of the JVM that have it share an archive of classes.
        folder: For the JVM's temporary files; None: it has one already.
    """
    ours = {**spark_conf.session(settings, shared, python), **address.spark_settings()}
    first = {"spark.app.name": "leman", "spark.master": spark_conf.master(settings)}
    chosen = {**first, **ours, **settings.conf}
    if folder is not None:
        chosen = {**folder.settings, **chosen}
        own = " ".join(folder.jvm_options)
        chosen[spark_conf.JVM_OPTIONS_KEY] = f"{own} {chosen[spark_conf.JVM_OPTIONS_KEY]}"
    # the JVM's command line is for all to read
    shown = [item for item in chosen.items() if not config.is_secret(item[0])]
    SparkContext._ensure_initialized(conf=SparkConf().setAll(shown))
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
