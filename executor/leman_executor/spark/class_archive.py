"""Manage the archive of the classes that Spark loads (class data sharing), which halves the start time of its JVM.

The archive is in the user's cache folder. A running JVM makes one archive for each combination of Java and Spark's
jars. To make the archive immediately, for a container image, run `python -m leman_executor.spark.class_archive`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from leman_core.process import class_archives

_KEPT_SECONDS = 30 * 86400.0
_KEPT = 3  # including the one being made
_DRAFT_SECONDS = 86400.0
#: An option in the command line of the process that a JVM starts to write its archive.
_DUMPS = "-Xshare:dump"
_ENDS_SECONDS = 5.0
#: Spark splits its options at spaces, so an option cannot have a path with a space.
_PLAIN = re.compile(r"[\w./+@,=-]+")


class ClassArchive:
    """One archive, which may not exist yet.

    The file name has the size, because a truncated file would crash the JVM.
    """

    def __init__(self, folder: Path, key: str) -> None:
        self._folder = folder
        self._key = key

    @classmethod
    def of(cls, spark_home: Path, jvm_options: Sequence[str], chosen: str = "") -> ClassArchive | None:
        """Return the archive for the Java that Spark will run on, in the `chosen` folder or the user's cache.

        Returns None if that Java cannot be found, or if Spark would misread the folder's name.
        """
        folder, java = class_archives.folder(chosen), _java_home()
        if folder is None or java is None or not _PLAIN.fullmatch(str(folder)):
            return None
        digest = hashlib.sha256(repr((str(java), str(spark_home), *jvm_options)).encode())
        try:
            for file in (java / "lib" / "modules", *sorted((spark_home / "jars").glob("*.jar"))):
                stat = file.stat()
                digest.update(f"\0{file.name}\0{stat.st_size}\0{stat.st_mtime_ns}".encode())
        except OSError:
            return None
        return cls(folder, digest.hexdigest()[:24])

    @property
    def file(self) -> Path | None:
        """The archive's file; None if there is no complete file."""
        for path in self._folder.glob(f"{class_archives.PREFIX}{self._key}-*.jsa"):
            with contextlib.suppress(OSError):
                if path.stem == self._stem(path.stat().st_size):
                    return path
        return None

    def _stem(self, size: int) -> str:
        return f"{class_archives.PREFIX}{self._key}-{size}"

    def use(self) -> list[str]:
        """Return the JVM options that use the archive, and mark it as used. If there is no archive, return no options.

        If a JVM's classes differ from the archive, the JVM starts without the archive and reports that on stderr.
        """
        path = self.file
        if path is None:
            return []
        with contextlib.suppress(OSError):
            os.utime(path)
        self.sweep()
        return [
            f"-XX:SharedArchiveFile={path}",
            "-Xshare:auto",
            "-Xlog:disable",
            "-Xlog:all=warning:stderr",
        ]

    def make(self, gateway: Any, pid: int) -> Path:
        """Make the archive from a running JVM. This blocks for half a minute, or longer on a busy machine.

        Args:
            gateway: The Py4J gateway to the JVM.
            pid: The JVM's process id.

        Raises:
            OSError: The file cannot be written.
            Exception: Py4J raises errors of many classes.
        """
        draft, ended = self.draft(), threading.Event()
        threading.Thread(target=_yield_cores, args=(pid, ended), name="archive", daemon=True).start()
        try:
            _diagnose(gateway, "vmCds", "static_dump", str(draft))
            return self.publish(draft)
        finally:
            ended.set()
            _sweep(draft)

    def draft(self) -> Path:
        """Return a path for a new archive, and delete old archives and drafts.

        Old archives are those not used for a month, except the most recent ones. Old drafts are older than a day.

        Raises:
            OSError: The folder cannot be made.
        """
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.sweep(kept=_KEPT - 1)
        return self._draft

    @property
    def _draft(self) -> Path:
        return self._folder / f"{class_archives.PREFIX}{self._key}.{os.getpid()}.draft"

    def abandon(self) -> None:
        """End the process that writes the archive for a JVM of this process, and delete its draft.

        The JVM starts that process but does not end it. The process would continue for minutes after the JVM has ended.
        """
        for process in psutil.process_iter(["cmdline"]):
            arguments = process.info["cmdline"] or ()
            if _DUMPS in arguments and any(str(self._draft) in argument for argument in arguments):
                with contextlib.suppress(psutil.Error):
                    process.kill()
                    process.wait(_ENDS_SECONDS)
        for path in self._folder.glob(f"{self._draft.name}*"):
            with contextlib.suppress(OSError):
                path.unlink()

    def sweep(self, *, kept: int = _KEPT) -> None:
        """Delete old archives and drafts. A JVM that uses a deleted archive keeps its mapping of the file."""
        archives: list[tuple[float, Path]] = []
        for path in class_archives.files(self._folder):
            with contextlib.suppress(OSError):
                used = path.stat().st_mtime
                if time.time() - used > (_KEPT_SECONDS if path.suffix == ".jsa" else _DRAFT_SECONDS):
                    path.unlink()
                elif path.suffix == ".jsa":
                    archives.append((used, path))
        for _, path in sorted(archives, reverse=True)[kept:]:
            path.unlink(missing_ok=True)

    def publish(self, draft: Path) -> Path:
        """Rename a complete draft to the archive, and return the archive's file.

        Raises:
            OSError: The draft cannot be moved.
        """
        self.discard()
        path = self._folder / f"{self._stem(draft.stat().st_size)}.jsa"
        draft.replace(path)
        return path

    def discard(self) -> None:
        """Delete the archive, because it is damaged or is being replaced."""
        for path in self._folder.glob(f"{class_archives.PREFIX}{self._key}-*.jsa"):
            with contextlib.suppress(OSError):
                path.unlink()


def _java_home() -> Path | None:
    if os.environ.get("JAVA_HOME"):
        return Path(os.environ["JAVA_HOME"]).resolve()
    java = shutil.which("java")
    return Path(java).resolve().parent.parent if java else None


def _yield_cores(pid: int, ended: threading.Event) -> None:
    """Lower the priority of the process that the JVM starts to write its archive."""
    while not ended.wait(0.2):
        with contextlib.suppress(psutil.Error):
            for child in psutil.Process(pid).children(recursive=True):
                if _DUMPS in child.cmdline():
                    child.nice(19)
                    return


def _sweep(draft: Path) -> None:
    """Delete the output of the archive-writing process.

    The JVM leaves it in the working directory under varying names.
    """
    for path in Path().glob("java_pid*_std???"):
        with contextlib.suppress(OSError):
            if str(draft) in path.read_text(errors="replace"):
                path.unlink()


def _diagnose(gateway: Any, command: str, *arguments: str) -> None:
    """Call one of the JVM's diagnostic commands, as `jcmd` does.

    Uses reflection, because Py4J cannot access the bean server's own class.
    """
    java = gateway.jvm.java.lang
    server = java.management.ManagementFactory.getPlatformMBeanServer()
    methods = java.Class.forName("javax.management.MBeanServer").getMethods()
    invoke = next(method for method in methods if method.getName() == "invoke")
    bean = gateway.jvm.javax.management.ObjectName("com.sun.management:type=DiagnosticCommand")
    parameters = _array(gateway, java.Object, [_array(gateway, java.String, arguments)])
    signature = _array(gateway, java.String, ["[Ljava.lang.String;"])
    invoke.invoke(server, _array(gateway, java.Object, [bean, command, parameters, signature]))


def _array(gateway: Any, kind: Any, items: Sequence[object]) -> Any:
    array = gateway.new_array(kind, len(items))
    for index, item in enumerate(items):
        array[index] = item
    return array


def _make() -> int:
    from leman_core import settings as config  # noqa: PLC0415
    from leman_executor.spark.spark_runner import SparkRunner  # noqa: PLC0415

    spark = SparkRunner(config.load().spark)
    spark.start()
    try:
        made = spark.archive_classes()
    finally:
        spark.stop()
    sys.stdout.write(f"{made or 'no archive was made'}\n")
    return 0 if made else 1


if __name__ == "__main__":
    sys.exit(_make())
