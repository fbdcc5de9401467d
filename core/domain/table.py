"""A table as the manifest describes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa


class DataFile(NamedTuple):
    """One data file of a fragment: its name in the table's data folder and the Lance field ids that it holds."""

    path: str
    field_ids: tuple[int, ...]


class Fragment(NamedTuple):
    """One fragment. `physical_rows` counts deleted rows; `deleted_rows` is how many of them are deleted, and
    `deletion_file` tells one set of them from another (empty: not known, or none)."""

    fragment_id: int
    physical_rows: int
    deleted_rows: int
    files: tuple[DataFile, ...]
    deletion_file: str = ""

    @property
    def live_rows(self) -> int:
        return self.physical_rows - self.deleted_rows

    def file_of(self, field_id: int) -> str:
        """Name of the data file that holds the field; empty where the fragment has none for it (all NULL)."""
        for data_file in self.files:
            if field_id in data_file.field_ids:
                return data_file.path
        return ""

    def files_of(self, field_ids: Iterable[int]) -> tuple[str, ...]:
        """Names of the data files that hold any of the fields, sorted, each once."""
        wanted = frozenset(field_ids)
        found = [f.path for f in self.files if not wanted.isdisjoint(f.field_ids)]
        return tuple(found) if len(found) < 2 else tuple(sorted(set(found)))


@dataclass(frozen=True, slots=True)
class TableField:
    """A top-level column: Arrow field (with metadata) and the Lance ids of it and its children, in file order."""

    arrow: pa.Field
    field_ids: tuple[int, ...]

    @property
    def name(self) -> str:
        return str(self.arrow.name)

    @property
    def field_id(self) -> int:
        return self.field_ids[0]


@dataclass(frozen=True, slots=True)
class TableSnapshot:
    """One version of a table, as far as planning needs it.

    `incarnation` tells this table from another one made later under the same uri (see facts: a drop and re-create at
    the same path goes unnoticed by Lance). It is empty on a table that Leman never touched. `file_format`: version of
    the Lance file format that its data is to be written in. `metadata` is the schema's. `attempts`: the last
    attempt that has begun, by job, of those that were taken over.
    """

    uri: str
    version: int
    incarnation: str
    fields: tuple[TableField, ...]
    fragments: tuple[Fragment, ...] = field(repr=False)
    stable_row_ids: bool = False
    file_format: tuple[int, int] = (2, 2)
    metadata: Mapping[bytes, bytes] = field(default_factory=dict, repr=False, hash=False)
    attempts: Mapping[str, int] = field(default_factory=dict, repr=False, hash=False)

    def column(self, name: str) -> TableField | None:
        return next((f for f in self.fields if f.name == name), None)

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([f.arrow for f in self.fields], dict(self.metadata) or None)

    @property
    def live_rows(self) -> int:
        return sum(f.live_rows for f in self.fragments)
