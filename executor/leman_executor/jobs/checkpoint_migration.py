"""Checkpoint migration: rows of a fragment that is gone, or whose file was replaced, are stored again.

See `MigratedRows`.

A checkpoint is found by the fragment and the offsets of its rows, and compaction changes both: live rows of several
fragments are written into a new one, one after the other, and deleted ones are left out.

Example: fragment 3 has 10 rows, of which row 2 is deleted, and a checkpoint has rows 0 to 5 of it. After it was
compacted into fragment 9, together with others, the plan says that those rows begin at offset 0 there (`at`). The live
ones, 0, 1, 3, 4 and 5, take the places 0 to 4: so the values are stored as a checkpoint of fragment 9 with offsets 0 to
4, and the next plan finds them.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Iterator
from typing import Protocol

import numpy as np
import pyarrow as pa
import structlog

from leman_core.functions import blobs
from leman_core.model import keys, row_states
from leman_core.model.errors import DataLoss, LemanError
from leman_core.model.plan import MigratedRows, Plan
from leman_core.model.ports import CheckpointStore
from leman_core.model.ranges import RowRange
from leman_core.model.row_states import RowState
from leman_core.storage.checkpoints.records import FragmentRecord
from leman_core.storage.checkpoints.rows import Piece, from_checkpoint, to_checkpoint
from leman_core.storage.column_files import ColumnFileReader, digest_of
from leman_core.storage.compactions import OldVersion

_log = structlog.get_logger(__name__)


class _Source(Protocol):
    """Computed rows, by their old offsets."""

    def within(self, covered: RowRange) -> Piece | None: ...


def migrate_checkpoints(store: CheckpointStore, plan: Plan, stop: threading.Event) -> int:
    """Store anew what the plan says is stored elsewhere, until `stop` is set; return how many checkpoints that were.

    Rows that cannot be read any more, or are damaged, are left out: they are computed.
    """
    stored = 0
    for key, rows in itertools.groupby(plan.migrated, lambda migrated: migrated.source):
        try:
            for batch_key, batch in _batches(store, plan, key, rows):
                if stop.is_set():
                    return stored
                store[batch_key] = batch
                stored += 1
        except (LemanError, KeyError) as error:
            _log.warning("stored rows cannot be migrated", source=key, error=str(error))
    return stored


def _batches(
    store: CheckpointStore, plan: Plan, key: str, wanted: Iterable[MigratedRows]
) -> Iterator[tuple[str, pa.RecordBatch]]:
    header = plan.header
    kind = blobs.values_field(header.output.field.arrow).type
    source: _Source | None = None
    versions: dict[int, OldVersion] = {}
    for migrated in wanted:
        if migrated.key in store:
            continue
        if source is None:
            source = _open(store, header.uri, key)
        piece = source.within(migrated.from_rows)
        if piece is not None and migrated.from_fragment != migrated.fragment_id:
            old = versions.setdefault(migrated.before, OldVersion(header.uri, migrated.before))
            piece = _moved(piece, migrated, old)
        if piece is not None and migrated.left_out:
            piece = _without(piece, migrated)
        pieces = [] if piece is None else [piece]
        if any(p.values.type != kind for p in pieces):
            raise DataLoss("CHECKPOINT_DAMAGED", f"{key} does not hold {kind}", key=key)
        yield migrated.key, to_checkpoint(migrated.fragment_id, header.output.name, pieces, kind)


def _moved(piece: Piece, migrated: MigratedRows, old: OldVersion) -> Piece | None:
    """Return the rows by their new offsets, without those that went elsewhere or were deleted."""
    at = piece.offsets - migrated.from_rows.start
    if migrated.before:
        live = old.live(migrated.from_fragment, migrated.from_rows)
        offsets = np.where(live, np.cumsum(live) - 1 + migrated.at, -1)[at]
    else:
        offsets = at + migrated.at
    kept = (offsets >= migrated.covered.start) & (offsets < migrated.covered.end)
    if not kept.any():
        return None
    states = None if piece.states is None else piece.states[kept]
    return Piece(offsets[kept], piece.values.filter(pa.array(kept)), states)


def _without(piece: Piece, migrated: MigratedRows) -> Piece | None:
    """Return the rows whose inputs are still those that they were computed from."""
    left_out = np.unpackbits(np.frombuffer(migrated.left_out, np.uint8), count=migrated.covered.rows)
    return piece.without(np.flatnonzero(left_out) + migrated.covered.start)


def _open(store: CheckpointStore, uri: str, key: str) -> _Source:
    """Open the checkpoint of a key, or the column file that its record names.

    Raises:
        KeyError: It is gone or damaged.
    """
    batch = store[key]
    if keys.parse_record_key(key) is None:
        return from_checkpoint(batch)
    record = FragmentRecord.from_batch(batch)
    if record is None or digest_of(uri, record.file) != (record.size_bytes, record.digest):
        raise KeyError(key)
    return _File(ColumnFileReader(uri, record.file))


class _File:
    """The rows of a column file, without those that nobody asked for and those of earlier function versions."""

    def __init__(self, reader: ColumnFileReader) -> None:
        self._reader = reader

    def within(self, covered: RowRange) -> Piece | None:
        states = self._reader.states(covered)
        held = np.flatnonzero((states != RowState.UNTOUCHED) & (row_states.versions(states) == 0))
        if not len(held):
            return None
        values = self._reader.values(covered).take(pa.array(held))
        plain = bool((states == RowState.COMPUTED).all())
        return Piece(held + covered.start, values, None if plain else states[held])
