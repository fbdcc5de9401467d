"""Files that appear whole or not at all, whatever becomes of who writes them.

Objects do so by themselves. On a local disk a file is written under another name first, which garbage collection knows
(`core.domain.garbage.UNFINISHED_NAME`): a process that is killed leaves it, one whose disk is full takes it away.
"""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow.fs as pafs

from core.domain.garbage import DAY, UNFINISHED_NAME


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


def create(filesystem: pafs.FileSystem, path: str, content: bytes) -> bool:
    """Write a file that is not there yet; False: someone else was faster.

    Exact on local disks. Object stores have no such call here: there two writers at the same instant are told apart by
    what is stored afterwards.

    Raises:
        OSError: it cannot be written.
    """
    if not isinstance(filesystem, pafs.LocalFileSystem):
        _write(filesystem, path, content)
        with filesystem.open_input_stream(path) as stream:
            return bytes(stream.read()) == content
    with _unfinished(filesystem, path, content) as unfinished:
        try:
            os.link(unfinished, path)
        except FileExistsError:
            return False
        return True


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
