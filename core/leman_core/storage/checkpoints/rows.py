"""Rows of a fragment with their values, and the batches that checkpoints store of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from leman_core.model import row_states
from leman_core.model.ranges import RowRange
from leman_core.model.row_address import addresses_of, offsets_of
from leman_core.model.row_states import RowState, States
from leman_core.model.sorted_sets import among, without
from leman_core.storage.concatenation import joined

ROW_ADDRESS = "_rowaddr"
ROW_STATE = "_leman_state"


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of one fragment with their values."""

    #: Physical offsets, ascending.
    offsets: npt.NDArray[np.int64]
    values: pa.Array
    #: The state of each row; None: all are computed.
    states: States | None = None
    #: Whether the values are those of the column's current file.
    kept: bool = False

    def within(self, covered: RowRange) -> Piece | None:
        """Return the rows in a range; None where there are none."""
        first, last = np.searchsorted(self.offsets, [covered.start, covered.end])
        if first == last:
            return None
        states = None if self.states is None else self.states[first:last]
        return Piece(self.offsets[first:last], self.values.slice(first, last - first), states, self.kept)

    def only(self, offsets: npt.NDArray[np.int64]) -> Piece | None:
        """Return the rows that are among `offsets`; None where there are none."""
        wanted = among(self.offsets, offsets)
        if not wanted.any():
            return None
        states = None if self.states is None else self.states[wanted]
        return Piece(self.offsets[wanted], self.values.filter(pa.array(wanted)), states, self.kept)

    def without(self, offsets: npt.NDArray[np.int64]) -> Piece | None:
        """Return the rows that are not among `offsets`; None where none are left."""
        return self.only(without(self.offsets, offsets))

    def of_own_version(self) -> Piece | None:
        """Return the rows without those of earlier versions, which the column may not keep any more.

        None where no others are left.
        """
        if self.states is None or not row_states.versions(self.states).any():
            return self
        return self.only(self.offsets[row_states.versions(self.states) == 0])

    def of_kept(self, version: int) -> Piece:
        """Return the rows of a checkpoint of an earlier version that have values of it, marked as such.

        Rows on which that version failed are left to the one that came after it.
        """
        states = _computed(self) if self.states is None else self.states
        wanted = states == RowState.COMPUTED
        values = self.values if wanted.all() else self.values.filter(pa.array(wanted))
        offsets = self.offsets[wanted]
        marked = np.full(len(offsets), row_states.of_version(RowState.COMPUTED, version), np.uint8)
        return Piece(offsets, values, marked)

    def known(self) -> Piece | None:
        """Return the rows without those that were deleted when a checkpoint was stored; None where none are left."""
        if self.states is None or not (self.states == RowState.DELETED).any():
            return self
        return self.only(self.offsets[self.states != RowState.DELETED])


def to_checkpoint(fragment_id: int, column: str, pieces: Iterable[Piece], kind: pa.DataType) -> pa.RecordBatch:
    """Return pieces as a checkpoint batch in physical order.

    The batch has the column, `_rowaddr`, and the states where a row failed or is deleted. Where several pieces have
    the same row, the first one is kept. Extension types are stored as their storage type: Lance would write JSON anew,
    and its digest would not match.
    """
    pieces = list(pieces)
    values = joined([p.values for p in pieces]) if pieces else pa.nulls(0, kind)
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    offsets = np.concatenate([p.offsets for p in pieces]) if pieces else np.empty(0, np.int64)
    columns = {
        column: values,
        ROW_ADDRESS: pa.array(addresses_of(fragment_id, offsets).astype(np.uint64)),
    }
    if any(p.states is not None for p in pieces):
        columns[ROW_STATE] = pa.array(
            np.concatenate([p.states if p.states is not None else _computed(p) for p in pieces])
        )
    batch = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
    if len(pieces) > 1 and not (np.diff(offsets) > 0).all():
        batch = batch.take(pa.array(np.unique(offsets, return_index=True)[1]))
    return batch


def from_checkpoint(batch: pa.RecordBatch, kind: pa.DataType | None = None) -> Piece:
    """Return the rows of a checkpoint batch.

    Args:
        batch: A batch that `to_checkpoint` made.
        kind: The type of the column, where it differs from that of the stored values.
    """
    offsets = offsets_of(batch.column(ROW_ADDRESS).to_numpy().astype(np.int64))
    states = None
    if ROW_STATE in batch.schema.names:
        states = batch.column(ROW_STATE).to_numpy()
    values = batch.column(0)
    if isinstance(kind, pa.BaseExtensionType):
        values = pa.ExtensionArray.from_storage(kind, values)
    return Piece(offsets, values, states)


def _computed(piece: Piece) -> States:
    return np.full(len(piece.offsets), RowState.COMPUTED, np.uint8)
