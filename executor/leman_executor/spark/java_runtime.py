"""The Java that Spark's driver would run on: looked at before anything is started, in its own description of itself."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from leman_core.model.errors import Unavailable

_LEAST = 17
#: Spark does not start without it, and some small runtimes lack it.
_MODULE = "jdk.incubator.vector"
_INSTALL = (
    "install one (apt-get install openjdk-17-jre-headless, dnf install java-17-openjdk-headless,"
    " brew install openjdk@17, or adoptium.net), or set JAVA_HOME"
)


def check() -> None:
    """Look whether there is a Java that Spark can run on.

    Raises:
        Unavailable: SPARK_NOT_STARTED – there is none; the message says what to install.
    """
    home = os.environ.get("JAVA_HOME", "")
    program = shutil.which(str(Path(home, "bin", "java")) if home else "java")
    if program is None:
        where = f"JAVA_HOME={home} has no bin/java" if home else "there is no java on PATH, and JAVA_HOME is not set"
        raise Unavailable("SPARK_NOT_STARTED", f"Spark needs Java {_LEAST} or newer, and {where}: {_INSTALL}")
    version, modules = _described(Path(program).resolve().parent.parent)
    if version and version < _LEAST:
        raise Unavailable(
            "SPARK_NOT_STARTED", f"Spark needs Java {_LEAST} or newer, and {program} is Java {version}: {_INSTALL}"
        )
    if modules and _MODULE not in modules:
        raise Unavailable("SPARK_NOT_STARTED", f"Spark needs Java with {_MODULE}, which {program} lacks: {_INSTALL}")


def _described(home: Path) -> tuple[int, set[str]]:
    """Return the version and the modules that a Java has by its file `release`; 0 and none where that does not say."""
    try:
        text = (home / "release").read_text(errors="replace")
    except OSError:
        return 0, set()
    version = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', text, re.MULTILINE)
    modules = re.search(r'^MODULES="([^"]*)"', text, re.MULTILINE)
    return int(version[1]) if version else 0, set(modules[1].split()) if modules else set()
