"""Lance files that carry a digest of their own bytes, so that a changed one is told before Lance reads it.

Lance keeps no checksums, and some flipped bits make its Rust panic where a panic ends the process. The digest is the
file's first global buffer of our own: xxh3-128 of all bytes but its own 16, which are blank until everything else is
written. So the file stays one that Lance reads, in one piece, and no second file has to be read with it.
"""

from __future__ import annotations

import xxhash
from lance.file import LanceFileWriter

from leman_core.storage import footer

_BLANK = bytes(16)
#: The first buffer is Lance's description of the file.
_BUFFER = 1


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
