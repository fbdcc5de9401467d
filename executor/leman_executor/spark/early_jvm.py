"""A JVM for Spark's driver that starts while the executor is imported, which takes half as long as the JVM's start.

A prelude of `leman_local.warm_process`.
"""

from __future__ import annotations

import contextlib

from leman_core import settings as config
from leman_core.model.service_errors import LemanError
from leman_core.process.process_secrets import guard
from leman_core.storage import store_file
from leman_executor.spark import driver_launch
from leman_executor.spark.driver_launch import LaunchedJvm
from leman_executor.spark.spark_conf import is_local

_launched: list[LaunchedJvm] = []


def begin() -> None:
    """Start the JVM if Spark runs on this machine. Errors are reported when Spark is started."""
    with contextlib.suppress(LemanError, OSError, ModuleNotFoundError):
        loaded = config.load()
        settings = loaded.spark.of_own_user()
        guard(core_dumps=loaded.log.core_dumps)  # before a JVM can inherit them
        store_file.use_store_file(loaded.storage.options_file)
        if is_local(settings):
            driver_launch.check_java()
            _launched.append(LaunchedJvm.begin(settings))


def forget() -> None:
    """Drop it in a process forked from its owner."""
    while _launched:
        _launched.pop().forget()


def end() -> None:
    """End it at once."""
    while _launched:
        _launched.pop().end()


def take() -> LaunchedJvm | None:
    """Return the started JVM, once; None if there is none."""
    return _launched.pop() if _launched else None
