"""States of the rows of a column file of which not all rows are computed.

A NULL in a column file may be a computed NULL, a row that failed, or a row that nobody asked for yet; only the states
tell them apart. They travel inside the file as a global buffer (decision 1 of the architecture).
"""

from __future__ import annotations

import enum
import json
import typing
import zlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

_LENGTH_BYTES = 4


class RowState(enum.IntEnum):
    """State of one physical row."""

    UNTOUCHED = 0
    COMPUTED = 1  # deleted rows too: nothing is left to do about them
    FAILED = 2
    DELETED = 3  # in checkpoints only: nothing is known of the row, should a restore bring it back


States = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class StateSummary:
    """Rows by state, and md5 of the filters under which every matching row is settled."""

    untouched: int
    failed: int
    computed: int
    filters: frozenset[str] = frozenset()


def summarize(states: States, filters: frozenset[str] = frozenset()) -> StateSummary:
    """Counts the states."""
    counts = np.bincount(states, minlength=3)
    return StateSummary(int(counts[0]), int(counts[2]), int(counts[1]), filters)


def encode(states: States, filters: frozenset[str]) -> bytes:
    """Header length (4 bytes, little endian), JSON header, zlib of the states at two bits a row."""
    summary = summarize(states, filters)
    header = json.dumps(
        {
            "rows": len(states),
            "untouched": summary.untouched,
            "failed": summary.failed,
            "computed": summary.computed,
            "filters": sorted(filters),
        }
    ).encode()
    quads = np.zeros((len(states) + 3) // 4 * 4, np.uint8)
    quads[: len(states)] = states
    packed = quads[0::4] | quads[1::4] << 2 | quads[2::4] << 4 | quads[3::4] << 6
    return len(header).to_bytes(_LENGTH_BYTES, "little") + header + zlib.compress(packed.tobytes(), 1)


def decode_summary(buffer: bytes) -> StateSummary:
    """The header alone."""
    header = _header(buffer)
    return StateSummary(header["untouched"], header["failed"], header["computed"], frozenset(header["filters"]))


def decode(buffer: bytes) -> States:
    """One state for each physical row."""
    rows = _header(buffer)["rows"]
    start = _LENGTH_BYTES + int.from_bytes(buffer[:_LENGTH_BYTES], "little")
    packed = np.frombuffer(zlib.decompress(buffer[start:]), np.uint8)
    states = np.empty(len(packed) * 4, np.uint8)
    for shift in range(4):
        states[shift::4] = packed >> (2 * shift) & 3
    return states[:rows]


def _header(buffer: bytes) -> dict[str, typing.Any]:
    length = int.from_bytes(buffer[:_LENGTH_BYTES], "little")
    header: dict[str, typing.Any] = json.loads(buffer[_LENGTH_BYTES : _LENGTH_BYTES + length])
    return header
