"""Fragment records: which column file was written for a fragment, and what it rests on (seed: fragment data-file
checkpoint). Kept for files that are staged but not committed yet, and for files that compaction wrote: their names say
nothing, and the table's history is cleaned one day."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pyarrow as pa

from core.domain.plan import FollowedFile, OutputField, StagedFile


@dataclass(frozen=True, slots=True)
class FragmentRecord:
    """`replaces` is the column's file that this one was to take the place of; `file` is a name in the data folder.
    `states` (see `core.row_states.encode`): of a file that compaction wrote; empty where every row is computed."""

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
    replaces: str
    states: bytes = b""

    @classmethod
    def of_followed(cls, followed: FollowedFile, output: OutputField) -> FragmentRecord:
        """What a plan found out about a file that compaction wrote. Only Lance knows its size and digest."""
        return cls(
            file=followed.file,
            src_data_files=followed.input_files,
            output_field_ids=output.field.field_ids,
            column_id=output.column_id,
            fingerprint=followed.fingerprint,
            size_bytes=0,
            digest="",
            physical_rows=followed.physical_rows,
            rows_computed=followed.rows_computed,
            rows_failed=followed.rows_failed,
            replaces="",
            states=followed.row_states,
        )

    @property
    def staged(self) -> StagedFile:
        return StagedFile(
            self.file, self.size_bytes, self.digest, self.physical_rows, self.rows_computed, self.rows_failed
        )

    def to_batch(self) -> pa.RecordBatch:
        """As it is stored: one row."""
        return pa.RecordBatch.from_pydict(
            {
                "file": [self.file],
                "src_data_files": [json.dumps(sorted(self.src_data_files))],
                "output_field_ids": [json.dumps(list(self.output_field_ids))],
                "column_id": [self.column_id],
                "fingerprint": [self.fingerprint],
                "size_bytes": pa.array([self.size_bytes], pa.int64()),
                "digest": [self.digest],
                "physical_rows": pa.array([self.physical_rows], pa.int64()),
                "rows_computed": pa.array([self.rows_computed], pa.int64()),
                "rows_failed": pa.array([self.rows_failed], pa.int64()),
                "replaces": [self.replaces],
                "states": pa.array([self.states], pa.large_binary()),
            }
        )

    @classmethod
    def from_batch(cls, batch: pa.RecordBatch) -> FragmentRecord | None:
        """None for a legacy record (fields are missing): it is recognised and not reused."""
        rows = batch.to_pylist()
        try:
            row = {"states": b""} | rows[0]  # a field that older releases did not write
            return cls(
                **{
                    **{name: row[name] for name in cls.__dataclass_fields__},
                    "src_data_files": tuple(json.loads(row["src_data_files"])),
                    "output_field_ids": tuple(json.loads(row["output_field_ids"])),
                }
            )
        except (KeyError, IndexError, TypeError, ValueError):
            return None
