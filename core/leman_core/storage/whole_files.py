"""Files that appear whole or not at all, whatever becomes of who writes them.

Objects do so by themselves. On a local disk a file is written under another name first, which garbage collection knows
(`leman_core.model.garbage.UNFINISHED_NAME`): a process that is killed leaves it, one whose disk is full takes it away.
"""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow.fs as pafs

from leman_core.model.garbage import DAY, UNFINISHED_NAME


def put(filesystem: pafs.FileSystem, path: str, content: bytes) -> None:
    """Write a file, in place of another one if there is one.

    Raises:
        OSError: it cannot be written.
    """
    if not isinstance(filesystem, pafs.LocalFileSystem):
        _write(filesystem, path, content)
        return
    with _unfinished(filesystem, path, content) as unfinished:
        filesystem.move(unfinished, path)


def create(path: str, content: bytes) -> bool:
    """Write a file of a local disk that is not there yet; False: someone else was faster.

    Raises:
        OSError: it cannot be written.
    """
    with _unfinished(pafs.LocalFileSystem(), path, content) as unfinished:
        try:
            os.link(unfinished, path)
        except FileExistsError:
            return False
        return True


class UnfinishedFile:
    """A file that is written piece by piece; nobody sees it before `finish`, and nobody ever after `discard`.

    In an object store, too, it is written under another name first: a stream that is given up there may leave an
    object of what was written.

    Raises:
        OSError: it cannot be written; so do all methods but `discard`.
    """

    def __init__(self, filesystem: pafs.FileSystem, path: str) -> None:
        folder = path.rpartition("/")[0]
        self._filesystem = filesystem
        self._path = path
        self._unfinished = f"{folder}/.tmp{uuid.uuid4().hex}"
        try:
            self._stream = filesystem.open_output_stream(self._unfinished)
        except FileNotFoundError:
            filesystem.create_dir(folder, recursive=True)
            self._stream = filesystem.open_output_stream(self._unfinished)

    def write(self, data: bytes) -> None:
        """Add bytes."""
        self._stream.write(data)

    def finish(self) -> None:
        """Give the file its name, in place of another one if there is one."""
        self._stream.close()
        self._filesystem.move(self._unfinished, self._path)

    def discard(self) -> None:
        """Leave nothing of it."""
        with contextlib.suppress(OSError, ValueError):
            self._stream.close()
        with contextlib.suppress(OSError):
            self._filesystem.delete_file(self._unfinished)


def sweep(folder: str, older_than: float = DAY) -> None:
    """Delete what killed writers left in a folder of a local disk, once nobody has written to it for so long."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):  # its writer may be there, and faster
                if UNFINISHED_NAME.fullmatch(entry.name) and time.time() - entry.stat().st_mtime > older_than:
                    Path(entry.path).unlink()


@contextlib.contextmanager
def unfinished_beside(path: str) -> Iterator[str]:
    """Yield a name for a file that is to become that of `path`.

    Whatever is still there under it in the end is deleted.
    """
    unfinished = f"{path.rpartition('/')[0]}/.tmp{uuid.uuid4().hex}"
    try:
        yield unfinished
    finally:
        with contextlib.suppress(OSError):
            Path(unfinished).unlink()


@contextlib.contextmanager
def _unfinished(filesystem: pafs.FileSystem, path: str, content: bytes) -> Iterator[str]:
    with unfinished_beside(path) as unfinished:
        try:
            _write(filesystem, unfinished, content)
        except FileNotFoundError:
            filesystem.create_dir(path.rpartition("/")[0], recursive=True)
            _write(filesystem, unfinished, content)
        yield unfinished


def _write(filesystem: pafs.FileSystem, path: str, content: bytes) -> None:
    with filesystem.open_output_stream(path) as stream:
        stream.write(content)
