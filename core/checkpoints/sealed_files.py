"""Lance files that carry a digest of their own bytes, so that a changed one is told before Lance reads it.

Lance keeps no checksums, and some flipped bits make its Rust panic where a panic ends the process. The digest is the
file's first global buffer of our own: xxh3-128 of all bytes but its own 16, which are blank until everything else is
written. So the file stays one that Lance reads, in one piece, and no second file has to be read with it.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import xxhash
from lance.file import LanceFileWriter

from core.lance_io import footer

_BLANK = bytes(16)
#: The first buffer is Lance's description of the file.
_BUFFER = 1
#: Files in memory have no name, so that nothing is left of them whenever the process ends. Elsewhere than on Linux they
#: are temporary ones.
_IN_MEMORY = hasattr(os, "memfd_create") and Path("/proc/self/fd").is_dir()


def make_room(writer: LanceFileWriter) -> None:
    """Put a blank digest into a file that is being written and has no other buffer yet."""
    if writer.add_global_buffer(_BLANK) != _BUFFER:
        raise RuntimeError("the file has buffers already")


def seal(content: bytes) -> tuple[int, bytes]:
    """Return the digest of a written file, and where in it to put it.

    Raises:
        ValueError: where it has no room for one.
    """
    at = _place(content)
    return at, _digest(content, at)


def problem_of(content: bytes) -> str:
    """Return what is wrong with the bytes of a sealed file; empty: they are as they were written."""
    try:
        at = _place(content)
    except ValueError as error:
        return f"no digest is found in its {len(content)} bytes: {error}"
    if content[at : at + len(_BLANK)] != _digest(content, at):
        return "its bytes do not have the digest that they carry"
    return ""


@contextlib.contextmanager
def as_file(content: bytes) -> Iterator[str]:
    """Yield the path of a file with these bytes, for as long as the context is open.

    Raises:
        OSError: the file cannot be written.
    """
    if not _IN_MEMORY:
        with tempfile.NamedTemporaryFile(prefix="leman-", suffix=".lance") as file:
            file.write(content)
            file.flush()
            yield file.name
        return
    with open(os.memfd_create("leman"), "wb", buffering=0) as file:  # noqa: PTH123 -- there is no path
        left = memoryview(content)
        while left:
            left = left[file.write(left) :]
        yield f"/proc/self/fd/{file.fileno()}"


def _place(content: bytes) -> int:
    start, length = footer.place_of_buffer(content, _BUFFER)
    if length != len(_BLANK):
        raise ValueError(f"its buffer {_BUFFER} has {length} bytes")
    return start


def _digest(content: bytes, at: int) -> bytes:
    """Return the digest of all but the digest at a place."""
    digest, whole = xxhash.xxh3_128(), memoryview(content)
    digest.update(whole[:at])
    digest.update(whole[at + len(_BLANK) :])
    return digest.digest()
