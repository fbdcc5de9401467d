"""Tables of very many fragments, made in the manifest alone: planning reads no data file.

Names of data files are those that real ones have. The files are not there, but for partial column files, of which the
row states are read: those are links to one real file. Checkpoints are empty files of the right name: planning only
lists them.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
from lance.fragment import DataFile, FragmentMetadata

from benchmarks.leman_side import Caller
from benchmarks.practical_limit import SCALAR, make_table
from leman_core.functions import binding
from leman_core.model import keys
from leman_core.model.row_positions import RowRange
from leman_core.model.row_states import RowState
from leman_core.storage.column_files import ColumnFileWriter

ROWS = 1000
_APPENDED_AT_ONCE = 100_000
_FILE_BYTES = 8192  # Lance would look for the file to learn it
COLUMN = "y"


@dataclass(frozen=True, slots=True)
class Layout:
    """`current`: share of the fragments that have their column file. Of the others, `keyed` have a checkpoint of half
    of their rows, and `partial` a column file with half of their rows."""

    current: float = 0.0
    keyed: bool = False
    partial: bool = False


@dataclass(frozen=True, slots=True)
class _Names:
    """How the planner names what belongs to a fragment."""

    uri: str
    version: str
    column_id: str
    ids: tuple[int, int]

    def fingerprint(self, source: str) -> str:
        return keys.fingerprint(SCALAR.name, self.version, self.column_id, [(self.ids[0], source)])

    def checkpoint(self, fragment_id: int, source: str) -> str:
        family = keys.KeyFamily(udf_name=SCALAR.name, udf_version=self.version, column=COLUMN, uri=self.uri)
        return keys.range_key(family.prefix("", [(self.ids[0], source)]), fragment_id, RowRange(0, ROWS // 2))


def make(caller: Caller, table: str, fragments: int, layout: Layout) -> None:
    """A table with an input column `x` and a computed column `y`."""
    uri = caller.uri(table)
    make_table(uri, [1])
    caller.add_column(table, COLUMN, SCALAR)
    dataset = lance.dataset(uri)
    dataset.delete("true")
    names = _names(dataset, uri)
    sources = [f"{i:08b}{uuid.uuid4().hex}.lance" for i in range(fragments)]
    current = round(layout.current * fragments)
    partial = _Partial(names) if layout.partial else None
    version = _format_of(dataset)
    made: list[FragmentMetadata] = []
    for at, source in enumerate(sources):
        if len(made) == _APPENDED_AT_ONCE:  # their objects take far more memory than they do in the table
            dataset = _append(dataset, made)
            made = []
        files = [_data_file(source, names.ids[0], version)]
        if at < current:
            name = keys.column_file_name(names.fingerprint(source), uuid.uuid4().hex[:12], partial=False)
            files.append(_data_file(name, names.ids[1], version))
        elif partial is not None:
            files.append(_data_file(partial.link(source), names.ids[1], version))
        made.append(FragmentMetadata(0, files, ROWS))
    _append(dataset, made)
    if layout.keyed:
        _touch_keys(names, sources[current:])


def _append(dataset: lance.LanceDataset, made: list[FragmentMetadata]) -> lance.LanceDataset:
    return lance.LanceDataset.commit(dataset, lance.LanceOperation.Append(made), read_version=dataset.version)


def _names(dataset: lance.LanceDataset, uri: str) -> _Names:
    ids = {field.name(): field.id() for field in dataset.lance_schema.fields()}
    bound = binding.read(dataset.schema.field(COLUMN))
    if bound is None:
        raise RuntimeError(f"column {COLUMN} of {uri} is not bound to a function")
    return _Names(uri, bound.udf_version, bound.column_id, (ids["x"], ids[COLUMN]))


def _format_of(dataset: lance.LanceDataset) -> tuple[int, int]:
    major, _, minor = str(dataset.data_storage_version).partition(".")
    return int(major), int(minor)


def _data_file(name: str, field_id: int, version: tuple[int, int]) -> DataFile:
    return DataFile(name, [field_id], [0], *version, file_size_bytes=_FILE_BYTES)


def _touch_keys(names: _Names, sources: list[str]) -> None:
    folder = Path(names.uri, "_checkpoints")
    folder.mkdir()
    for fragment_id, source in _with_ids(names.uri, set(sources)):
        (folder / f"{names.checkpoint(fragment_id, source)}.lance").touch()


def _with_ids(uri: str, sources: set[str]) -> Iterator[tuple[int, str]]:
    for fragment in lance.dataset(uri).get_fragments():
        source = fragment.metadata.files[0].path
        if source in sources:
            yield fragment.fragment_id, source


class _Partial:
    """Links to one partial column file in which every other row is computed."""

    def __init__(self, names: _Names) -> None:
        self._names = names
        self._field = pa.field(COLUMN, SCALAR.data_type)
        self._first = ""

    def link(self, source: str) -> str:
        name = keys.column_file_name(self._names.fingerprint(source), uuid.uuid4().hex[:12], partial=True)
        data = f"{self._names.uri}/data"
        if not self._first:
            self._write(name)
            self._first = name
        else:
            os.link(f"{data}/{self._first}", f"{data}/{name}")
        return name

    def _write(self, name: str) -> None:
        states = np.where(np.arange(ROWS) % 2 == 0, RowState.COMPUTED, RowState.UNTOUCHED).astype(np.uint8)
        writer = ColumnFileWriter(self._names.uri, self._field)
        writer.open(name)
        writer.write(pa.array(np.arange(ROWS), SCALAR.data_type))
        writer.close(states, frozenset(), name)
