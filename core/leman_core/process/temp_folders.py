"""Temporary folders that are removed when their process ends, or earlier.

If the process is killed, its folder is removed when another process makes a folder with the same prefix.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Self

_LOCK = "in-use"
#: The longest path of a socket on Linux and macOS, without the zero at its end.
LONGEST_SOCKET_PATH = 103
#: Folders with short paths, for sockets if the path of the temporary folder is too long.
_SHORT_FOLDERS = ("/tmp", "/var/tmp", "/dev/shm")


class OwnFolder:
    """A folder of this process, which holds a lock on a file in it. A killed process holds no lock."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self._lock = lock
        atexit.register(self.remove)

    @classmethod
    def make_in(cls, folder: Path, prefix: str, *, patient: bool = True) -> Self:
        """Make a folder with this prefix in `folder`, after removing leftovers with the prefix.

        Args:
            patient: Whether to wait for other processes that make such a folder, and to remove leftovers. If not, raise
                BlockingIOError if another process is making one.

        Raises:
            OSError: The folder cannot be made.
        """
        with _alone(folder, prefix, patient=patient):
            if patient:
                sweep(folder, prefix)
            path = Path(tempfile.mkdtemp(prefix=prefix, dir=folder))
            lock = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(lock, fcntl.LOCK_EX)
        return cls(path, lock)

    def forget(self) -> None:
        """Leave the folder to the process that this one was forked from."""
        atexit.unregister(self.remove)
        os.close(self._lock)
        self._lock = -1

    def remove(self) -> None:
        """Delete the folder and its contents."""
        atexit.unregister(self.remove)
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def sweep(folder: Path, prefix: str) -> None:
    """Remove this user's leftover folders of processes that are gone."""
    for path in folder.glob(f"{prefix}*"):
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
def _alone(folder: Path, prefix: str, *, patient: bool) -> Iterator[None]:
    """Keep other processes from sweeping between making a folder and locking it."""
    lock = os.open(folder / f".{prefix}{os.getuid()}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX if patient else fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(lock)


def socket_folder(name_bytes: int, folder: str = "") -> str:
    """Return a writable folder whose path is short enough for a socket.

    Args:
        name_bytes: The longest path of the socket below the folder.
        folder: The preferred folder; empty: the system's temporary folder.

    Raises:
        OSError: There is no such folder.
    """
    wanted = folder or tempfile.gettempdir()
    for path in (wanted, os.environ.get("XDG_RUNTIME_DIR", ""), *_SHORT_FOLDERS):
        fits = len(os.fsencode(path)) + 1 + name_bytes <= LONGEST_SOCKET_PATH
        if Path(path).is_absolute() and fits and Path(path).is_dir() and os.access(path, os.W_OK | os.X_OK):
            return path
    why = f"no writable folder has a path short enough for a socket, not even {wanted}"
    raise OSError(errno.ENAMETOOLONG, why)
