"""Fragment records: which column file was written for a fragment, and what it was computed from.

Kept for files that are staged but not committed yet, and for files that compaction wrote: their names say nothing, and
the table's history is cleaned one day.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from leman_core.model import keys
from leman_core.model.plan import StagedFile, TracedFile
from leman_core.model.ports import CheckpointStore


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
    #: The column's file that this one was to take the place of.
    replaces: str
    #: Those that a partial file carries too, for it is deleted some time after a compaction, or those of a file that
    #: compaction wrote (see `leman_core.model.row_states.encode`); empty where every row is computed.
    states: bytes = b""
    #: How many rows are of earlier versions of the function, which the column may cease to keep.
    rows_older: int = 0
    #: Whether rows were compared with earlier versions: see `TracedFile`.
    compared: bool = False

    @classmethod
    def of_traced(cls, traced: TracedFile) -> FragmentRecord:
        """Return what a plan found out about a file that compaction wrote. Only Lance knows its size and digest."""
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
        """Tell whether the file is right in place of a fragment's current one.

        That is the one that it was written for, or a partial file with some of the same values: the job commits such
        files while it goes on, and this one has all rows.
        """
        if self.replaces == current_file:
            return True
        ours, theirs = keys.parse_column_file_name(self.file), keys.parse_column_file_name(current_file)
        if ours is None or theirs is None:
            return False
        return ours.fingerprint == theirs.fingerprint and theirs.partial and not ours.partial

    def to_batch(self) -> pa.RecordBatch:
        """Return the record as it is stored: one row."""
        return pack([self])

    @classmethod
    def from_batch(cls, batch: pa.RecordBatch) -> FragmentRecord | None:
        """Return the record of a batch; None for a legacy one (fields are missing): it is recognised and not reused."""
        return next(iter(unpack(batch.slice(0, 1))), None)


_MORE = "more"
_IN_MORE = tuple(
    name
    for name in FragmentRecord.__dataclass_fields__
    if name not in ("file", "src_data_files", "output_field_ids", "states")
)


def pack(records: Sequence[FragmentRecord]) -> pa.RecordBatch:
    """Return records as they are stored: a row each.

    A column is dear in a file of one row: the file, its inputs and the output field ids have one each, all other fields
    share one, and row states have theirs only where there are any.
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


def unpack(batch: pa.RecordBatch) -> list[FragmentRecord]:
    """Return the records of all rows, legacy ones left out."""
    return [record for row in batch.to_pylist() if (record := _from_row(row)) is not None]


def _from_row(stored: Mapping[str, Any]) -> FragmentRecord | None:
    """Return the record of a row; None where a field is missing.

    Earlier releases gave each field a column of its own, and wrote no states, `rows_older` and `compared` at first.
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
    """Return the record under a key; None where it is gone, damaged, or no record that this release knows."""
    try:
        return FragmentRecord.from_batch(store[key])
    except KeyError:
        return None


def forget_file(store: CheckpointStore, prefix: str, fragment_id: int, file: str) -> None:
    """Delete the fragment's records that name a file, under any filter, so that it is not found again.

    Args:
        prefix: that of the fragment's checkpoints under any filter.
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
