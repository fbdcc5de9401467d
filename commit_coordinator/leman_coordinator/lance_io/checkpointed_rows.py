"""Add uncommitted values, from checkpoints and finished files, to the rows of a table.

A stored value counts if it was computed from the row's current inputs, by the column's function or by an earlier
function whose values the column keeps. A committed value that counts by this rule is not replaced. If several outcomes
of a row are stored, a value takes precedence over a failure, and a later outcome over an earlier one.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from leman_coordinator.garbage.retention import Column, computed_column
from leman_coordinator.tables.schema_casting import bytes_beside_dictionaries
from leman_core.functions.arrow_values import concatenate
from leman_core.model import keys, row_states
from leman_core.model.plan_columns import RangeKeys, parse_range_keys
from leman_core.model.row_positions import RowAddress, RowRange, offsets_of
from leman_core.model.row_states import RowState, States
from leman_core.model.service_errors import DataLoss, LemanError, NotFound
from leman_core.model.table import Fragment, TableField, TableSnapshot
from leman_core.storage import column_files
from leman_core.storage.checkpoint_records import ROW_ADDRESS, FragmentRecord, Piece, from_checkpoint, read_record
from leman_core.storage.checkpoint_store import LanceCheckpointStore, checkpoint_root, in_own_folder
from leman_core.storage.column_files import ColumnFileReader
from leman_core.storage.scan import is_overflow

#: The maximum size of a part with several rows, and the number of rows in the first part.
_PART_BYTES, _FIRST_ROWS = 16 << 20, 1 << 12
#: The maximum bytes of one column's checkpoints that stay in memory. At least one checkpoint stays.
_KEPT_BYTES = 32 << 20
_NOTHING, _FAILED, _VALUE = np.uint8(0), np.uint8(1), np.uint8(2)

Offsets = npt.NDArray[np.int64]
Outcomes = npt.NDArray[np.uint8]


class CheckpointedRows:
    """The stored values of some columns of a version.

    Args:
        table: The version, with its fragments.
        names: The columns. Those without a function have no stored values.
    """

    def __init__(self, table: TableSnapshot, names: Collection[str]) -> None:
        store = LanceCheckpointStore(checkpoint_root(table.uri))
        self._columns: dict[str, _StoredColumn] = {}
        for name in names:
            column = table.column(name)
            computed = None if column is None else computed_column(table, column)
            if computed is not None and (found := _StoredColumn(table.uri, computed, store)).fragment_ids:
                self._columns[name] = found
        wanted = set[int]().union(*(column.fragment_ids for column in self._columns.values()))
        self._fragments = {f.fragment_id: f for f in table.fragments if f.fragment_id in wanted} if wanted else {}
        self._fragment_id = -1
        self._found: dict[str, _StoredFragment] = {}
        self._rows = _FIRST_ROWS

    def has(self, column: str) -> bool:
        """Return whether values of a column may be stored."""
        return column in self._columns

    def over(self, batch: pa.RecordBatch, fields: Sequence[TableField]) -> Iterator[pa.RecordBatch]:
        """Yield rows of one fragment with their stored values, in parts of bounded size.

        Args:
            batch: The committed rows, with their addresses.
            fields: The columns of the batch, or fields of structs, to replace. Other columns are unchanged.

        Raises the errors of `storage_failed`.
        """
        if not batch.num_rows:
            return
        offsets = batch.column(ROW_ADDRESS).to_numpy().astype(np.int64)
        found = self._of(RowAddress.from_int(int(offsets[0])).fragment_id)
        offsets = offsets_of(offsets)
        over = [(at, found[_root(field)], field) for at, field in enumerate(fields) if _root(field) in found]
        at = 0
        while over and at < batch.num_rows:
            rows = min(self._rows, batch.num_rows - at)
            part = _laid_over(batch.slice(at, rows), offsets[at : at + rows], over)
            if part is None:
                self._rows = max(1, rows // 2)
                continue
            yield part
            at += rows
            if rows == self._rows and bytes_beside_dictionaries(part) < _PART_BYTES // 4:
                self._rows *= 2
        if not over:
            yield batch

    def _of(self, fragment_id: int) -> dict[str, _StoredFragment]:
        if fragment_id != self._fragment_id:
            self._fragment_id = fragment_id
            fragment = self._fragments.get(fragment_id)
            stored = {} if fragment is None else {name: column.of(fragment) for name, column in self._columns.items()}
            self._found = {name: found for name, found in stored.items() if found is not None}
        return self._found


@dataclass(frozen=True, slots=True, eq=False)
class _Origin:
    """A place where outcomes of rows are stored."""

    key: str
    covered: RowRange
    #: The function that computed them, as an index into the list of functions that count.
    version: int = 0
    #: The finished file, if the key belongs to a fragment record.
    file: str = ""


class _StoredColumn:
    """The keys of one column's checkpoints and records, for its function and the functions whose values it keeps."""

    def __init__(self, uri: str, column: Column, store: LanceCheckpointStore) -> None:
        self.uri, self.column, self.store = uri, column, store
        bound, own = column.bound, column.family
        functions = (bound.function, *bound.kept)
        #: For each function, the first half of the fingerprints of its files.
        self.versions = tuple(keys.function_part(name, version, bound.values_id) for name, version in functions)
        self._ranges: list[RangeKeys] = []
        self._others: dict[int, list[tuple[int, keys.FamilyKey]]] = defaultdict(list)
        self.fragment_ids: set[int] = set()
        for number, (name, version) in enumerate(functions):
            family = dataclasses.replace(own, udf_name=name, udf_version=version)
            listed = store.list_keys(family.head)
            if in_own_folder(uri):  # keys from before a move of the table count too
                family = family.as_made(listed)
            ranges, others = parse_range_keys(family, listed)
            self._ranges.append(ranges.some(np.argsort(ranges.fragment_ids, kind="stable")))
            for key in family.parse_all(others):
                self._others[key.fragment_id].append((number, key))
            self.fragment_ids.update(np.unique(ranges.fragment_ids).tolist())
        self.fragment_ids.update(self._others)

    def of(self, fragment: Fragment) -> _StoredFragment | None:
        """Return a fragment's stored values that count, or None if there are none or its file has all values."""
        sources = keys.sources([(i, fragment.file_of(i)) for i in self.column.input_ids])
        current = _current(self, fragment, sources)
        if current is not None and (current == _VALUE).all():
            return None
        found = [*self._files(fragment, sources), *self._checkpoints(fragment, sources)]
        return _StoredFragment(self, fragment.physical_rows, current, found) if found else None

    def _checkpoints(self, fragment: Fragment, sources: str) -> list[_Origin]:
        """Return the checkpoints that count, the latest first."""
        found = []
        for number, ranges in enumerate(self._ranges):
            first, last = np.searchsorted(ranges.fragment_ids, [fragment.fragment_id, fragment.fragment_id + 1])
            found += [(number, key) for key in ranges.some(np.arange(first, last))]
        found += [entry for entry in self._others.get(fragment.fragment_id, ()) if entry[1].range is not None]
        origins = [
            _Origin(key.key, key.range, number)
            for number, key in found
            if key.sources == sources and key.range and key.range.start < key.range.end <= fragment.physical_rows
        ]
        origins.sort(key=lambda origin: (origin.covered, origin.key))
        ends = itertools.accumulate((origin.covered.end for origin in origins), max)
        if all(origin.covered.start >= end for origin, end in zip(origins[1:], ends, strict=False)):
            return origins
        modified = dict(zip(origins, self.store.modified([origin.key for origin in origins]), strict=True))
        return sorted(origins, key=lambda origin: (origin.version, -modified[origin], origin.key))

    def _files(self, fragment: Fragment, sources: str) -> Iterator[_Origin]:
        """Yield the finished files that no version refers to."""
        for number, key in self._others.get(fragment.fragment_id, ()):
            record = read_record(self.store, key.key) if key.range is None and key.sources == sources else None
            wanted = keys.fingerprint_of(self.versions[number], sources)
            if record is not None and self._counts(record, fragment, wanted):
                yield _Origin(key.key, RowRange(0, record.physical_rows), number, record.file)

    def _counts(self, record: FragmentRecord, fragment: Fragment, fingerprint: str) -> bool:
        name = keys.parse_column_file_name(record.file)
        return (
            name is not None
            and name.fingerprint == record.fingerprint == fingerprint
            and record.column_id == self.column.bound.column_id
            and set(record.output_field_ids) <= set(self.column.field_ids)
            and record.physical_rows == fragment.physical_rows
            and record.file not in fragment.files_of(self.column.field_ids)
        )


@dataclass(slots=True, eq=False)
class _StoredFragment:
    """The stored values of one column in one fragment."""

    column: _StoredColumn
    rows: int
    #: The committed outcomes that count, or None.
    current: Outcomes | None
    #: For each row, the first origin with a value of it provides its outcome.
    origins: list[_Origin]
    _pieces: dict[str, Piece | None] = field(default_factory=dict)
    _bytes: int = 0
    _files: dict[str, tuple[ColumnFileReader, States | None] | None] = field(default_factory=dict)

    def over(self, offsets: Offsets, shown: pa.Array, wanted: TableField, most: int) -> pa.Array | None:
        """Return the values of rows, or None if the stored ones take more than `most` bytes.

        Args:
            offsets: The rows, ascending.
            shown: Their committed values.
            wanted: The column, or a field of it.
            most: The maximum size.
        """
        known = np.zeros(len(offsets), np.uint8) if self.current is None else self.current[offsets]
        places, parts, size = np.arange(len(offsets)), [shown], 0
        asked = RowRange(int(offsets[0]), int(offsets[-1]) + 1)
        for origin in self.origins:
            covered = asked.intersect(origin.covered)
            if covered is None:
                continue
            # If the function itself failed on a row, values of earlier functions do not count for it.
            left = np.flatnonzero(known < (_FAILED if origin.version else _VALUE))
            piece = self._read(origin, covered) if len(left) else None
            if piece is None or not len(piece.offsets):
                continue
            at = np.minimum(np.searchsorted(piece.offsets, offsets[left]), len(piece.offsets) - 1)
            held = piece.offsets[at] == offsets[left]
            outcomes = np.full(len(at), _VALUE) if piece.states is None else _outcomes(piece.states[at])
            known[left[held & (outcomes == _FAILED)]] = _FAILED
            valued = held & (outcomes == _VALUE)
            taken = piece.values.take(pa.array(at[valued]))
            size += bytes_beside_dictionaries(pa.record_batch([taken], names=["values"]))
            if size > most and len(offsets) > 1:
                return None
            known[left[valued]] = _VALUE
            places[left[valued]] = sum(map(len, parts)) + np.arange(len(taken))
            parts.append(_as(_inside(taken, self.column.column.name, wanted), shown.type))
        if len(parts) == 1 and not (known == _FAILED).any():
            return shown
        return concatenate(parts).take(pa.array(places, mask=known == _FAILED))

    def _read(self, origin: _Origin, covered: RowRange) -> Piece | None:
        if origin.file:
            return self._from_file(origin, covered)
        if origin.key not in self._pieces:
            while self._pieces and self._bytes > _KEPT_BYTES:
                self._bytes -= _bytes_of(self._pieces.pop(next(iter(self._pieces))))
            piece = self._pieces[origin.key] = self._from_checkpoint(origin)
            self._bytes += _bytes_of(piece)
        return self._pieces[origin.key]

    def _from_checkpoint(self, origin: _Origin) -> Piece | None:
        try:
            piece = from_checkpoint(self.column.store[origin.key])
        except KeyError:  # it was removed, or is damaged
            return None
        # Failures of an earlier function do not count: `of_kept` returns only the rows with values.
        return piece.of_kept(0) if origin.version else piece

    def _from_file(self, origin: _Origin, covered: RowRange) -> Piece | None:
        if origin.file not in self._files:
            self._files[origin.file] = self._opened(origin)
        opened = self._files[origin.file]
        if opened is None:
            return None
        reader, states = opened
        offsets = np.arange(covered.start, covered.end)
        return Piece(offsets, reader.values(covered), None if states is None else states[covered.start : covered.end])

    def _opened(self, origin: _Origin) -> tuple[ColumnFileReader, States | None] | None:
        uri = self.column.uri
        try:
            return ColumnFileReader(uri, origin.file), _states_of(self.column.versions, uri, origin.file)
        except (NotFound, DataLoss):
            return None


def _bytes_of(piece: Piece | None) -> int:
    return 0 if piece is None else int(piece.values.nbytes)


def _current(stored: _StoredColumn, fragment: Fragment, sources: str) -> Outcomes | None:
    """Return the committed outcomes of rows that count, or None if there are none or the file is unknown."""
    files = fragment.files_of(stored.column.field_ids)
    name = keys.parse_column_file_name(files[0]) if len(files) == 1 else None
    if name is None or name.sources_part != keys.fingerprint_of("", sources):
        return None
    if not name.partial:
        return np.full(fragment.physical_rows, _VALUE) if name.function_part in stored.versions else None
    try:
        states = _states_of(stored.versions, stored.uri, files[0])
    except (NotFound, DataLoss):
        return None
    return None if states is None else _outcomes(states)


def _outcomes(states: States) -> Outcomes:
    return np.where(states == RowState.COMPUTED, _VALUE, np.where(states == RowState.FAILED, _FAILED, _NOTHING))


def _states_of(versions: Sequence[str], uri: str, file: str) -> States | None:
    """Return the states of a column file's rows, or None. States of functions that do not count become untouched.

    Raises:
        NotFound: the file is gone.
        DataLoss: it is damaged.
    """
    name = keys.parse_column_file_name(file)
    buffer = column_files.read_states_buffer(uri, file)
    if buffer is None or name is None:
        return None
    states = row_states.decode_states_for(buffer, name.function_part, versions)
    failed_older = (row_states.state_kinds(states) == RowState.FAILED) & (row_states.state_versions(states) > 0)
    return np.where(failed_older, np.uint8(RowState.UNTOUCHED), row_states.state_kinds(states))


def _laid_over(
    batch: pa.RecordBatch, offsets: Offsets, over: Sequence[tuple[int, _StoredFragment, TableField]]
) -> pa.RecordBatch | None:
    """Return the rows with their stored values, or None if they would take too many bytes."""
    columns, left = list(batch.columns), _PART_BYTES
    for at, stored, wanted in over:
        try:
            made = stored.over(offsets, columns[at], wanted, left)
        except (LemanError, pa.ArrowException) as error:  # the values may be more than one array can hold
            if len(offsets) < 2 or not is_overflow(error):
                raise
            return None
        if made is None:
            return None
        left -= 0 if made is columns[at] else made.nbytes
        columns[at] = made
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _root(column: TableField) -> str:
    return column.name.partition(".")[0]


def _inside(values: pa.Array, column: str, wanted: TableField) -> pa.Array:
    """Return a field of a struct, found by its path, or the values themselves."""
    path = wanted.name.removeprefix(column).split(".")[1:]
    return pc.struct_field(values, path) if path else values


def _as(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return values in the type in which a read of the table returns them."""
    if values.type == kind:
        return values
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, _as(values, kind.storage_type))
    return values.cast(kind)
