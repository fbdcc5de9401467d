"""Files of Lance that are written and read in memory, and are put into or come from elsewhere as bytes."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
from lance.file import LanceFileSession, LanceFileWriter

#: Files in memory have no name, so that nothing is left of them whenever the process ends. Elsewhere than on Linux they
#: are temporary ones.
_IN_MEMORY = hasattr(os, "memfd_create") and Path("/proc/self/fd").is_dir()


def made_in_memory(
    name: str, schema: pa.Schema, write: Callable[[LanceFileWriter], None], version: str | None = None
) -> bytes:
    """Return the bytes of a file of Lance that `write` writes and closes.

    Raises:
        OSError: what Lance raises; so do other errors of it.
    """
    memory = LanceFileSession("memory://")
    writer = memory.open_writer(name, schema=schema, version=version)
    write(writer)
    return bytes(memory.read_range(name, 0, writer.size_bytes or 0))


@contextlib.contextmanager
def as_file(content: bytes, start: int = 0) -> Iterator[str]:
    """Yield the path of a file with these bytes, for as long as the context is open.

    Args:
        content: Its bytes from `start` on.
        start: How many bytes, all of them zero, come before; they take no memory.

    Raises:
        OSError: the file cannot be written.
    """
    if not _IN_MEMORY:
        with tempfile.NamedTemporaryFile(prefix="leman-", suffix=".lance") as file:
            file.seek(start)
            file.write(content)
            file.flush()
            yield file.name
        return
    with open(os.memfd_create("leman"), "wb", buffering=0) as file:  # noqa: PTH123 -- there is no path
        file.seek(start)
        left = memoryview(content)
        while left:
            left = left[file.write(left) :]
        yield f"/proc/self/fd/{file.fileno()}"
