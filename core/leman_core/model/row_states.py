"""States of a column file's rows, and which rows may differ from the files that it replaced.

A NULL in a column file may be a computed NULL, a failed row, or a row that was never requested; only the states
distinguish them. They are stored in the file as a global buffer. Which rows are NULL is in another buffer, as Lance
would have to read all values. A column may keep values of earlier versions of its function
(`docs/decisions/0009-kept-values.md`); then a state includes the version: see `state_versions`.

A column file that extends another one keeps most of its values. What is computed from the column is stale only in the
other rows: so the file lists its predecessors, each with a bit for each row, as another global buffer. See
`docs/decisions/0054-stale-by-rows.md`.
"""

from __future__ import annotations

import enum
import json
import typing
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import xxhash

from leman._format import stored_documents
from leman._format.stored_documents import StoredFormat
from leman_core.model.service_errors import check_format

_LENGTH_BYTES = 4
_DIGEST_BYTES = 8


class RowState(enum.IntEnum):
    """State of one physical row."""

    UNTOUCHED = 0
    COMPUTED = 1  # deleted rows too: nothing is left to do
    FAILED = 2
    DELETED = 3  # in checkpoints only: the row is unknown, should a restore bring it back


States = npt.NDArray[np.uint8]

#: Earlier versions whose values a column may keep: the number has six bits.
MOST_KEPT = 60
_VERSION_SHIFT = 2
_STATE_MASK = 3


def with_version(state: RowState, version: int) -> int:
    """Return a state with the number of its version: 0 is the file's own, n the n-th earlier one."""
    return state | version << _VERSION_SHIFT


def state_kinds(states: States) -> States:
    """Return the states without their versions."""
    return states & np.uint8(_STATE_MASK)


def state_versions(states: States) -> States:
    """Return the versions' numbers."""
    return states >> np.uint8(_VERSION_SHIFT)


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSummary:
    """Rows by state, and md5 of the filters under which every matching row is settled.

    `failed` and `computed` are of the file's own version.
    """

    untouched: int
    failed: int
    computed: int
    filters: frozenset[str] = frozenset()
    #: Rows of earlier versions: (first half of the fingerprint, computed, failed).
    older: tuple[tuple[str, int, int], ...] = ()

    @property
    def kept(self) -> int:
        """Return the number of rows with a value of an earlier version."""
        return sum(computed for _, computed, _ in self.older)

    @property
    def failed_older(self) -> int:
        """Return the number of rows that failed under an earlier version and were not tried with the file's own."""
        return sum(failed for _, _, failed in self.older)


def summarize_states(states: States, filters: frozenset[str] = frozenset(), older: Sequence[str] = ()) -> StateSummary:
    """Count the states.

    Args:
        older: First halves of fingerprints, of the versions from 1 on.
    """
    counts = np.bincount(states, minlength=with_version(RowState.DELETED, len(older)) + 1)
    pairs = [
        (part, int(counts[with_version(RowState.COMPUTED, n)]), int(counts[with_version(RowState.FAILED, n)]))
        for n, part in enumerate(older, 1)
    ]
    listed = tuple(pair for pair in pairs if pair[1] or pair[2])
    return StateSummary(
        untouched=int(counts[0]), failed=int(counts[2]), computed=int(counts[1]), filters=filters, older=listed
    )


def summary_for_version(summary: StateSummary, own: str, accepted: Sequence[str]) -> StateSummary:
    """Return the counts of a file whose own version is `own`, as the version `accepted[0]` sees them.

    Rows of a version that is not in `accepted` count as untouched.
    """
    if own == accepted[0] and not summary.older:
        return summary
    counted = [(own, summary.computed, summary.failed), *summary.older]
    found = {part: (computed, failed) for part, computed, failed in counted}
    now = found.get(accepted[0], (0, 0))
    older = tuple((p, *found[p]) for p in accepted[1:] if p in found and any(found[p]))
    lost = sum(c + f for p, c, f in counted if p not in accepted)
    opened = lost or any(failed for _, _, failed in older)
    filters = frozenset[str]() if opened else summary.filters
    return StateSummary(
        untouched=summary.untouched + lost, failed=now[1], computed=now[0], filters=filters, older=older
    )


def translate_states(states: States, own: str, older: Sequence[str], accepted: Sequence[str]) -> States:
    """Apply `summary_for_version` row by row: versions become indexes into `accepted`."""
    if own == accepted[0] and not older:
        return states
    table = np.zeros(256, np.uint8)
    for number, part in enumerate((own, *older)):
        if part in accepted:
            for state in (RowState.COMPUTED, RowState.FAILED):
                table[with_version(state, number)] = with_version(state, accepted.index(part))
    return table[states]


def encode_states(states: States, filters: frozenset[str], older: Sequence[str] = ()) -> bytes:
    """Encode the states with their summary.

    The bytes are the header length (4 bytes, little endian), a JSON header, a digest of the rest (8 bytes), and zlib of
    the states at two bits a row, or at a byte a row if some are of earlier versions.

    Args:
        older: As in `summarize_states`.
    """
    summary = summarize_states(states, filters, older)
    fields: dict[str, typing.Any] = {
        "format": stored_documents.ROW_STATES.current,
        "rows": len(states),
        "untouched": summary.untouched,
        "failed": summary.failed,
        "computed": summary.computed,
        "filters": sorted(filters),
    }
    if summary.older:
        found = {part: (computed, failed) for part, computed, failed in summary.older}
        fields["older"] = [(part, *found.get(part, (0, 0))) for part in older]
        return _sealed(fields, states.tobytes())
    quads = np.zeros((len(states) + 3) // 4 * 4, np.uint8)
    quads[: len(states)] = states
    packed = quads[0::4] | quads[1::4] << 2 | quads[2::4] << 4 | quads[3::4] << 6
    return _sealed(fields, packed.tobytes())


def encode_nulls(nulls: npt.NDArray[np.bool_]) -> bytes:
    """Encode which rows of a column file are NULL, in the layout of `encode_states`, at a bit a row."""
    fields = {"format": stored_documents.NULL_ROWS.current, "rows": len(nulls), "nulls": int(np.count_nonzero(nulls))}
    return _sealed(fields, np.packbits(nulls, bitorder="little").tobytes())


def decode_nulls(buffer: bytes) -> npt.NDArray[np.int64]:
    """Return the physical offsets of the rows that are NULL.

    Raises:
        ValueError: the buffer is damaged.
    """
    header = _header(buffer, stored_documents.NULL_ROWS)
    if not header["nulls"]:
        return np.empty(0, np.int64)
    packed = np.frombuffer(zlib.decompress(buffer[_end_of_header(buffer) + _DIGEST_BYTES :]), np.uint8)
    return np.flatnonzero(np.unpackbits(packed, count=header["rows"], bitorder="little"))


def _sealed(fields: dict[str, typing.Any], states: bytes) -> bytes:
    header = json.dumps(fields).encode()
    head, packed = len(header).to_bytes(_LENGTH_BYTES, "little") + header, zlib.compress(states, 1)
    return head + _states_digest(head, packed) + packed


def _states_digest(head: bytes | memoryview, packed: bytes | memoryview) -> bytes:
    digest = xxhash.xxh3_64(head)
    digest.update(packed)
    return digest.digest()


def check_states(buffer: bytes) -> None:
    """Check that a buffer is intact; later calls rely on it.

    Raises:
        ValueError: the buffer is damaged.
    """
    _header(buffer)


def decode_state_summary(buffer: bytes) -> StateSummary:
    """Return the summary in the header.

    Raises:
        ValueError: the buffer is damaged.
    """
    header = _header(buffer)
    older = tuple((str(part), int(c), int(f)) for part, c, f in header.get("older", ()))
    return StateSummary(
        untouched=header["untouched"],
        failed=header["failed"],
        computed=header["computed"],
        filters=frozenset(header["filters"]),
        older=older,
    )


def decode_states(buffer: bytes) -> States:
    """Return one state for each physical row, with versions of the file: see `decode_states_for`.

    Raises:
        ValueError: the buffer is damaged.
    """
    header = _header(buffer)
    rows = header["rows"]
    packed = np.frombuffer(zlib.decompress(buffer[_end_of_header(buffer) + _DIGEST_BYTES :]), np.uint8)
    if "older" in header:
        return packed[:rows]
    states = np.empty(len(packed) * 4, np.uint8)
    for shift in range(4):
        states[shift::4] = packed >> (2 * shift) & 3
    return states[:rows]


def decode_states_for(buffer: bytes, own: str, accepted: Sequence[str]) -> States:
    """Return the states of a file whose own version is `own`, as the version `accepted[0]` sees them.

    See `translate_states`.
    """
    return translate_states(
        decode_states(buffer), own, [part for part, _, _ in decode_state_summary(buffer).older], accepted
    )


def _header(buffer: bytes, kind: StoredFormat | None = None) -> dict[str, typing.Any]:
    """Return the header of an intact buffer of a kind; None: that of `encode_states`."""
    kind = kind or stored_documents.ROW_STATES
    end = _end_of_header(buffer)
    packed = end + _DIGEST_BYTES
    whole = memoryview(buffer)
    if bytes(whole[end:packed]) != _states_digest(whole[:end], whole[packed:]):
        raise ValueError(f"the digest of the {kind.called} does not match")
    header: dict[str, typing.Any] = json.loads(buffer[_LENGTH_BYTES:end])
    check_format(kind, header.get("format"), "What a column file says of its rows")
    return header


def _end_of_header(buffer: bytes) -> int:
    return _LENGTH_BYTES + int.from_bytes(buffer[:_LENGTH_BYTES], "little")


Mask = npt.NDArray[np.bool_]

#: The longest list of predecessors: what was computed from an older file is computed again.
MOST_PREDECESSORS = 16


@dataclass(frozen=True, slots=True)
class Predecessor:
    """A file that held the column in the same fragment before."""

    file: str
    rows: int
    #: A bit for each physical row, as `numpy.packbits` packs them.
    bits: bytes

    @classmethod
    def of_mask(cls, file: str, changed: Mask) -> Predecessor:
        """Return a predecessor with a mask in the form of `changed`."""
        return cls(file, len(changed), np.packbits(changed).tobytes())

    @property
    def changed(self) -> Mask:
        """Return a mask of the physical rows whose value may have changed."""
        return np.unpackbits(np.frombuffer(self.bits, np.uint8), count=self.rows).astype(np.bool_)


def add_predecessor(file: str, changed: Mask, earlier: Sequence[Predecessor]) -> list[Predecessor]:
    """Return the predecessors of a file that replaces `file`, the latest first.

    Args:
        file: The replaced file.
        changed: Rows whose value may differ from the one in `file`.
        earlier: The predecessors of `file`.
    """
    older = [Predecessor.of_mask(p.file, p.changed | changed) for p in earlier if p.rows == len(changed)]
    return [Predecessor.of_mask(file, changed), *older][:MOST_PREDECESSORS]


def encode_predecessors(predecessors: Sequence[Predecessor]) -> bytes:
    """Encode the list: header length (4 bytes, little endian), JSON header, digest (8 bytes), zlib of bits."""
    rows = predecessors[0].rows if predecessors else 0
    header = json.dumps({"rows": rows, "files": [p.file for p in predecessors]}).encode()
    head = len(header).to_bytes(_LENGTH_BYTES, "little") + header
    packed = zlib.compress(b"".join(p.bits for p in predecessors), 1)
    return head + _predecessors_digest(head, packed) + packed


def decode_predecessors(buffer: bytes) -> list[Predecessor]:
    """Return the list.

    Raises:
        ValueError: the buffer is damaged.
    """
    end = _LENGTH_BYTES + int.from_bytes(buffer[:_LENGTH_BYTES], "little")
    begin = end + _DIGEST_BYTES
    if buffer[end:begin] != _predecessors_digest(buffer[:end], buffer[begin:]):
        raise ValueError("the digest of the changed rows does not match")
    header = json.loads(buffer[_LENGTH_BYTES:end])
    rows, files = int(header["rows"]), header["files"]
    bits, each = zlib.decompress(buffer[begin:]), (rows + 7) // 8
    return [Predecessor(str(file), rows, bits[at * each : (at + 1) * each]) for at, file in enumerate(files)]


def _predecessors_digest(head: bytes, packed: bytes) -> bytes:
    digest = xxhash.xxh3_64(head)
    digest.update(packed)
    return digest.digest()
