"""The content of checkpoints: rows of a fragment with their values, and records of finished fragments. No I/O.

A record says which column file was written for a fragment, and from which inputs. Records exist for files that are
staged but not committed, and for files that compaction wrote: the names of those say nothing, and the table's history
is cleaned up at some point.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from leman_core.functions.arrow_values import concatenate
from leman_core.model import keys, row_states
from leman_core.model.plan import StagedFile, TracedFile
from leman_core.model.row_ids import difference, isin
from leman_core.model.row_positions import RowRange, addresses_of, offsets_of
from leman_core.model.row_states import RowState, States
from leman_core.model.work import CheckpointStore


@dataclass(frozen=True, slots=True, kw_only=True)
class FragmentRecord:
    """A note that a fragment's column file is finished."""

    #: A name in the data folder.
    file: str
    src_data_files: tuple[str, ...]
    output_field_ids: tuple[int, ...]
    column_id: str
    fingerprint: str
    size_bytes: int
    digest: str
    physical_rows: int
    rows_computed: int
    rows_failed: int
    #: The column's file that this one replaces.
    replaces: str
    #: Those that a partial file carries too, for it is deleted some time after a compaction, or those of a file that
    #: compaction wrote (see `leman_core.model.row_states.encode_states`); empty where every row is computed.
    states: bytes = b""
    #: The number of rows of earlier versions of the function, which the column may stop keeping.
    rows_older: int = 0
    #: Whether rows were compared with earlier versions: see `TracedFile`.
    compared: bool = False

    @classmethod
    def of_traced(cls, traced: TracedFile) -> FragmentRecord:
        """Return the record of a file that compaction wrote, as a plan traced it.

        Only Lance knows its size and digest.
        """
        return cls(
            file=traced.file,
            src_data_files=traced.input_files,
            output_field_ids=traced.output_field_ids,
            column_id=traced.column_id,
            fingerprint=traced.fingerprint,
            size_bytes=0,
            digest="",
            physical_rows=traced.physical_rows,
            rows_computed=traced.rows_computed,
            rows_failed=traced.rows_failed,
            replaces="",
            states=traced.row_states,
            compared=traced.compared,
        )

    @property
    def staged(self) -> StagedFile:
        return StagedFile(
            file=self.file,
            size_bytes=self.size_bytes,
            digest=self.digest,
            physical_rows=self.physical_rows,
            rows_computed=self.rows_computed,
            rows_failed=self.rows_failed,
        )

    def may_replace(self, current_file: str) -> bool:
        """Return whether the file may replace a fragment's current one.

        That is the file that it was written for, or a partial file with some of the same values: the job commits such
        files as it goes, and this one has all rows.
        """
        if self.replaces == current_file:
            return True
        ours, theirs = keys.parse_column_file_name(self.file), keys.parse_column_file_name(current_file)
        if ours is None or theirs is None:
            return False
        return ours.fingerprint == theirs.fingerprint and theirs.partial and not ours.partial

    def to_batch(self) -> pa.RecordBatch:
        """Return the record in its stored form: one row."""
        return pack_records([self])

    @classmethod
    def from_batch(cls, batch: pa.RecordBatch) -> FragmentRecord | None:
        """Return the record of a batch; None for a legacy one (fields are missing), which is not reused."""
        return next(iter(unpack_records(batch.slice(0, 1))), None)


_MORE = "more"
_IN_MORE = tuple(
    name
    for name in FragmentRecord.__dataclass_fields__
    if name not in ("file", "src_data_files", "output_field_ids", "states")
)


def pack_records(records: Sequence[FragmentRecord]) -> pa.RecordBatch:
    """Return records in their stored form, one row each.

    Columns are expensive in a file of one row: the file, its inputs and the output field ids have one each, all other
    fields share one, and row states have one only if there are any.
    """
    columns = {
        "file": pa.array([r.file for r in records], pa.string()),
        "src_data_files": pa.array([json.dumps(sorted(r.src_data_files)) for r in records], pa.string()),
        "output_field_ids": pa.array([json.dumps(list(r.output_field_ids)) for r in records], pa.string()),
        _MORE: pa.array([json.dumps({name: getattr(r, name) for name in _IN_MORE}) for r in records], pa.string()),
    }
    if any(r.states for r in records):
        columns["states"] = pa.array([r.states for r in records], pa.large_binary())
    return pa.RecordBatch.from_pydict(columns)


def unpack_records(batch: pa.RecordBatch) -> list[FragmentRecord]:
    """Return the records of all rows, without legacy ones."""
    return [record for row in batch.to_pylist() if (record := _from_row(row)) is not None]


def _from_row(stored: Mapping[str, Any]) -> FragmentRecord | None:
    """Return the record of a row; None if a field is missing.

    Earlier releases gave each field a column, and at first wrote no states, `rows_older` and `compared`.
    """
    try:
        row = {"states": b"", "rows_older": 0, "compared": False, **stored, **json.loads(stored.get(_MORE, "{}"))}
        values = {name: row[name] for name in FragmentRecord.__dataclass_fields__}
        values["src_data_files"] = tuple(json.loads(row["src_data_files"]))
        values["output_field_ids"] = tuple(json.loads(row["output_field_ids"]))
        return FragmentRecord(**values)
    except (KeyError, TypeError, ValueError):
        return None


def read_record(store: CheckpointStore, key: str) -> FragmentRecord | None:
    """Return the record under a key; None if it is gone, damaged, or of an unknown kind."""
    try:
        return FragmentRecord.from_batch(store[key])
    except KeyError:
        return None


def forget_file(store: CheckpointStore, prefix: str, fragment_id: int, file: str) -> None:
    """Delete the fragment's records that name a file, under any filter, so that it is not found again.

    Args:
        store: The checkpoints.
        prefix: Of the fragment's checkpoints under any filter.
        fragment_id: The fragment.
        file: The file.
    """
    wanted = keys.any_filter(prefix)
    for key in store.list_keys(keys.before_filter(prefix)):
        parsed = keys.parse_record_key(key)
        if parsed is None or parsed[1] != fragment_id or keys.any_filter(parsed[0]) != wanted:
            continue
        try:
            record = FragmentRecord.from_batch(store[key])
        except KeyError:
            continue
        if record is None or record.file == file:
            del store[key]


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
        """Return the rows in a range; None: there are none."""
        first, last = np.searchsorted(self.offsets, [covered.start, covered.end])
        if first == last:
            return None
        states = None if self.states is None else self.states[first:last]
        return Piece(self.offsets[first:last], self.values.slice(first, last - first), states, self.kept)

    def only(self, offsets: npt.NDArray[np.int64]) -> Piece | None:
        """Return the rows that are among `offsets`; None: there are none."""
        wanted = isin(self.offsets, offsets)
        if not wanted.any():
            return None
        states = None if self.states is None else self.states[wanted]
        return Piece(self.offsets[wanted], self.values.filter(pa.array(wanted)), states, self.kept)

    def without(self, offsets: npt.NDArray[np.int64]) -> Piece | None:
        """Return the rows that are not among `offsets`; None: there are none."""
        return self.only(difference(self.offsets, offsets))

    def of_own_version(self) -> Piece | None:
        """Return the rows of this version only: the column may no longer keep earlier ones. None: there are none."""
        if self.states is None or not row_states.state_versions(self.states).any():
            return self
        return self.only(self.offsets[row_states.state_versions(self.states) == 0])

    def of_kept(self, version: int) -> Piece:
        """Return the rows of an earlier version's checkpoint that have its values, marked as such.

        Rows on which that version failed are left to the next one.
        """
        states = _computed(self) if self.states is None else self.states
        wanted = states == RowState.COMPUTED
        values = self.values if wanted.all() else self.values.filter(pa.array(wanted))
        offsets = self.offsets[wanted]
        marked = np.full(len(offsets), row_states.with_version(RowState.COMPUTED, version), np.uint8)
        return Piece(offsets, values, marked)

    def known(self) -> Piece | None:
        """Return the rows without those that were deleted when a checkpoint was stored; None: there are none."""
        if self.states is None or not (self.states == RowState.DELETED).any():
            return self
        return self.only(self.offsets[self.states != RowState.DELETED])


def pieces_within(pieces: Sequence[Piece], covered: RowRange) -> list[Piece]:
    """Return the rows of some pieces that are in a range."""
    return [held for piece in pieces if (held := piece.within(covered)) is not None]


def to_checkpoint(fragment_id: int, column: str, pieces: Iterable[Piece], kind: pa.DataType) -> pa.RecordBatch:
    """Return pieces as a checkpoint batch in physical order.

    The batch has the column, `_rowaddr`, and the states if a row failed or is deleted. If several pieces have a row,
    the first one counts. Extension types are stored as their storage type: Lance would write JSON again, and the digest
    would not match.
    """
    pieces = list(pieces)
    values = concatenate([p.values for p in pieces]) if pieces else pa.nulls(0, kind)
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
        batch: A batch of `to_checkpoint`.
        kind: The type of the column, if it differs from that of the stored values.
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
