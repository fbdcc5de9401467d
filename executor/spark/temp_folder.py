"""The folder in which Spark, its JVM and their libraries keep temporary files.

Each process has its own, which is removed when the process ends. What a killed process left is removed by the next one
that starts.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from core.errors import InvalidArgument

_PREFIX = "leman-spark-"
_LOCK = "in-use"
#: Spark splits options at spaces and folders at commas.
_PLAIN = re.compile(r"[\w./+@=-]+")
#: The longest path of a folder that leaves room for the name of a socket in it.
_LONGEST_FOLDER = 60


class TempFolder:
    """The folder of this process.

    A lock on a file in it says that its process still uses it; a killed process does not hold the lock.
    """

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self._lock = lock
        atexit.register(self.remove)

    @classmethod
    def make(cls, base: str) -> TempFolder | None:
        """Make a new folder in `base`, or in the system's temporary folder, after leftovers there were removed.

        None where the system's temporary folder has a name that Spark would misread.

        Raises:
            InvalidArgument: BAD_SETTING – `base` is not absolute, or has a name that Spark would misread.
            OSError: The folder cannot be made.
        """
        folder = Path(base or tempfile.gettempdir())
        if not folder.is_absolute() or not _PLAIN.fullmatch(str(folder)):
            if base:
                raise InvalidArgument(
                    "BAD_SETTING",
                    f"LEMAN_SPARK__SCRATCH_DIR={base}: Spark needs an absolute path without spaces and commas",
                )
            return None
        folder.mkdir(parents=True, exist_ok=True)
        with _alone(folder):
            sweep(folder)
            path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=folder))
            lock = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(lock, fcntl.LOCK_EX)
        return cls(path, lock)

    @property
    def jvm_options(self) -> list[str]:
        """The options for the JVM and the libraries that it loads."""
        return [f"-Djava.io.tmpdir={self.path}"]

    @property
    def settings(self) -> dict[str, str]:
        """The settings for Spark: sockets are made elsewhere where their path would be too long for one."""
        too_long = len(str(self.path).encode()) > _LONGEST_FOLDER
        return {"spark.python.unix.domain.socket.dir": tempfile.gettempdir()} if too_long else {}

    def forget(self) -> None:
        """Leave the folder to the process that this one was forked from."""
        atexit.unregister(self.remove)
        os.close(self._lock)
        self._lock = -1

    def remove(self) -> None:
        """Delete the folder, with all that is in it."""
        atexit.unregister(self.remove)
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def sweep(folder: Path) -> None:
    """Remove what processes left that are gone, as far as it is ours to remove."""
    for path in folder.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            if path.is_symlink() or path.stat().st_uid != os.getuid():
                continue
            lock = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(lock)


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep other processes out: between making a folder and locking it nobody else may sweep."""
    lock = os.open(folder / f".{_PREFIX}{os.getuid()}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
