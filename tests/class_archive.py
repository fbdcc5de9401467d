"""An archive of Spark's classes for the systems that tests start: each start takes a quarter less of the processors.

It is next to the environment's packages; those in the user's cache folder are left alone.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

from leman_executor.spark import spark_conf
from leman_executor.spark.class_archive import ClassArchive
from leman_executor.spark.driver_launch import spark_home

FOLDER = Path(sys.prefix) / "leman-test-classes"
_ROOT = Path(__file__).resolve().parent.parent
_OF_FOLDER = {"LEMAN_SPARK__CLASS_ARCHIVE_DIR": str(FOLDER)}


def is_there() -> bool:
    """Whether there is one that fits the Java and the Spark that are here."""
    archive = ClassArchive.of(spark_home(), spark_conf.JVM_OPTIONS, str(FOLDER))
    return archive is not None and archive.file is not None


def settings() -> dict[str, str]:
    """What a system uses it by, or leaves all archives alone where there is none yet."""
    return _OF_FOLDER if is_there() else {"LEMAN_SPARK__CLASS_ARCHIVE": "false"}


def make() -> None:
    """Make it in the background where there is none: it takes a quarter of a minute."""
    if not is_there():
        kept = {name: value for name, value in os.environ.items() if not name.startswith("LEMAN_")}
        command = [sys.executable, "-m", "leman_executor.spark.class_archive"]
        quiet = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
        how = {"cwd": _ROOT, "env": kept | _OF_FOLDER, "check": False, **quiet}
        threading.Thread(target=subprocess.run, args=[command], kwargs=how, daemon=True).start()
