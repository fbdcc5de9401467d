"""Start the JVM of Spark's driver while the executor's modules are imported.

Importing takes half as long as starting the JVM. `leman_local.warm_process` runs this module as a prelude.
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
    """Start the JVM if Spark runs on this machine. An error here is ignored; starting Spark then reports it."""
    with contextlib.suppress(LemanError, OSError, ModuleNotFoundError):
        loaded = config.load()
        settings = loaded.spark.of_own_user()
        guard(core_dumps=loaded.log.core_dumps)  # before a JVM can inherit them
        store_file.use_store_file(loaded.storage.options_file)
        if is_local(settings):
            driver_launch.check_java()
            _launched.append(LaunchedJvm.begin(settings))


def forget() -> None:
    """Forget the JVM in a process that was forked from the JVM's owner."""
    while _launched:
        _launched.pop().forget()


def end() -> None:
    """End the JVM at once."""
    while _launched:
        _launched.pop().end()


def take() -> LaunchedJvm | None:
    """Return the started JVM to the first caller. Return None to later callers, or if no JVM was started."""
    return _launched.pop() if _launched else None
