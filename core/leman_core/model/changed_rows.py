"""Which rows of a column file may differ from those of the files that it replaced, one after the other.

A column file that extends another one keeps most of its values. What is computed from the column is stale in the other
rows only, and the planner can tell which those are: the file lists its predecessors, each with a bit for each row. The
list travels inside the file as a global buffer. See `docs/decisions/0054-stale-by-rows.md`.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import xxhash

Mask = npt.NDArray[np.bool_]

#: The longest list of predecessors: what was computed from an older file is computed again.
MOST_PREDECESSORS = 16
_LENGTH_BYTES = 4
_DIGEST_BYTES = 8


@dataclass(frozen=True, slots=True)
class Predecessor:
    """A file that held the column in the same fragment before."""

    file: str
    rows: int
    #: A bit for each physical row, as `numpy.packbits` gives them.
    bits: bytes

    @classmethod
    def of_mask(cls, file: str, changed: Mask) -> Predecessor:
        """Return a predecessor with a mask as `changed` gives it."""
        return cls(file, len(changed), np.packbits(changed).tobytes())

    @property
    def changed(self) -> Mask:
        """Return for each physical row whether its value may be another one now. All other rows have the same value."""
        return np.unpackbits(np.frombuffer(self.bits, np.uint8), count=self.rows).astype(np.bool_)


def succeed(file: str, changed: Mask, earlier: Sequence[Predecessor]) -> list[Predecessor]:
    """Return the predecessors of a file that replaces `file`, the latest first.

    Args:
        file: what is replaced.
        changed: rows whose value may differ from the one in `file`.
        earlier: the predecessors of `file`.
    """
    older = [Predecessor.of_mask(p.file, p.changed | changed) for p in earlier if p.rows == len(changed)]
    return [Predecessor.of_mask(file, changed), *older][:MOST_PREDECESSORS]


def encode(predecessors: Sequence[Predecessor]) -> bytes:
    """Return the list as bytes: header length (4 bytes, little endian), JSON header, digest (8 bytes), zlib of bits."""
    rows = predecessors[0].rows if predecessors else 0
    header = json.dumps({"rows": rows, "files": [p.file for p in predecessors]}).encode()
    head = len(header).to_bytes(_LENGTH_BYTES, "little") + header
    packed = zlib.compress(b"".join(p.bits for p in predecessors), 1)
    return head + _digest(head, packed) + packed


def decode(buffer: bytes) -> list[Predecessor]:
    """Return the list.

    Raises:
        ValueError: the buffer is damaged.
    """
    end = _LENGTH_BYTES + int.from_bytes(buffer[:_LENGTH_BYTES], "little")
    begin = end + _DIGEST_BYTES
    if buffer[end:begin] != _digest(buffer[:end], buffer[begin:]):
        raise ValueError("the digest of the changed rows does not match")
    header = json.loads(buffer[_LENGTH_BYTES:end])
    rows, files = int(header["rows"]), header["files"]
    bits, each = zlib.decompress(buffer[begin:]), (rows + 7) // 8
    return [Predecessor(str(file), rows, bits[at * each : (at + 1) * each]) for at, file in enumerate(files)]


def _digest(head: bytes, packed: bytes) -> bytes:
    digest = xxhash.xxh3_64(head)
    digest.update(packed)
    return digest.digest()
