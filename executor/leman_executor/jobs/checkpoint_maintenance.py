"""Keep the checkpoints of a table usable: migrate them, record compactions, and compare rewritten inputs.

Migration (`MigratedRows`): plans find a checkpoint by the fragment and offsets of its rows, and compaction changes
both. Example: fragment 3 has 10 rows, of which row 2 is deleted, and a checkpoint has its rows 0 to 5. Compaction
writes the live rows 0, 1, 3, 4 and 5 to the beginning of fragment 9 (`at` is 0), where their offsets are 0 to 4. The
rows are stored as a checkpoint of fragment 9 with these offsets, and the next plan finds this checkpoint.

Comparison (`ComparedFile`): if a row was rewritten with equal inputs, the function is not called for it. If the row
still has its value, the row is recorded like a row of a compacted file. If the row has lost its value (Leman's merges
leave computed columns empty), the value from the earlier version is stored as a checkpoint.

The compaction watch records the new places of computed rows soon after each compaction, because the table's old
versions may be cleaned up before the next job.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import structlog

from leman._format.value_casts import relabel
from leman_core.functions import arrow_types
from leman_core.functions.arrow_values import Mask, concatenate, equal_rows
from leman_core.model import keys, row_states
from leman_core.model.plan import (
    BackfillSpec,
    CheckpointRef,
    ComparedFile,
    EarlierRows,
    FragmentTask,
    MigratedRows,
    Plan,
    StagedFile,
    TracedFile,
)
from leman_core.model.row_ids import isin
from leman_core.model.row_positions import RowRange, split_range
from leman_core.model.row_states import RowState, States
from leman_core.model.service_errors import DataLoss, LemanError
from leman_core.model.work import CheckpointStore, WorkContext
from leman_core.server.blocking import STORE, BlockingPool, run_in_job_thread
from leman_core.storage.checkpoint_records import (
    FragmentRecord,
    Piece,
    forget_file,
    from_checkpoint,
    pack_records,
    pieces_within,
    to_checkpoint,
    unpack_records,
)
from leman_core.storage.checkpoint_store import LanceCheckpointStore, checkpoint_root, remove_leftovers
from leman_core.storage.column_files import ColumnFileReader, digest_of
from leman_core.storage.compaction_history import OldVersion
from leman_core.storage.locations import store_of, table_uri
from leman_core.storage.scan import CHUNK_ROWS, FragmentReader, in_parts
from leman_executor.jobs.job_environment import CheckpointMaintenance, Comparison, Planner
from leman_executor.worker.fragment_writer import write_partial

_log = structlog.get_logger(__name__)

#: Older records beyond this number are dropped. Their fragments were compacted again long ago.
_MOST_RECORDS = 200_000


def store_traced(store: CheckpointStore, plan: Plan, files: Iterable[TracedFile] | None = None) -> None:
    """Add traced files to the record for their column and function version. By default, these are the plan's traced
    files.

    If two jobs do this at the same time, or the store fails, the next plan traces the files again, and no value is
    lost.
    """
    by_version: dict[str, list[TracedFile]] = defaultdict(list)
    for traced in plan.traced if files is None else files:
        by_version[keys.function_of(traced.fingerprint)].append(traced)
    try:
        for part, found in by_version.items():
            _add(store, keys.traced_key(part), found)
    except LemanError as error:
        _log.warning("traced compactions could not be recorded", uri=plan.header.uri, error=str(error))


def _add(store: CheckpointStore, key: str, found: Iterable[TracedFile]) -> None:
    try:
        known = unpack_records(store[key])
    except KeyError:
        known = []
    both = [*known, *map(FragmentRecord.of_traced, found)]
    records = {(record.file, record.fingerprint): record for record in both}
    store[key] = pack_records(list(records.values())[-_MOST_RECORDS:])


class _Source(Protocol):
    """A source of computed rows, by their old offsets."""

    def within(self, covered: RowRange) -> Piece | None: ...


def migrate_checkpoints(store: CheckpointStore, plan: Plan, stop: threading.Event) -> int:
    """Store the rows that moved as new checkpoints for their new places, until `stop` is set. Return how many.

    Rows that are unreadable or damaged are left out, and are computed again.
    """
    stored = 0
    for key, rows in itertools.groupby(plan.migrated, lambda migrated: migrated.source):
        try:
            for batch_key, batch in _migrated(store, plan, key, rows):
                if stop.is_set():
                    return stored
                store[batch_key] = batch
                stored += 1
        except (LemanError, KeyError) as error:
            _log.warning("stored rows could not be migrated", source=key, error=str(error))
    return stored


def _migrated(
    store: CheckpointStore, plan: Plan, key: str, wanted: Iterable[MigratedRows]
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the checkpoints to store. A range gets several checkpoints if one array cannot hold its values."""
    header = plan.header
    kind = arrow_types.values_field(header.output.field.arrow).type
    source: _Source | None = None
    versions: dict[int, OldVersion] = {}
    for migrated in wanted:
        if migrated.key in store:
            continue
        if source is None:
            source = _open(store, header.uri, key)
        live = np.ones(migrated.from_rows.rows, np.bool_)
        if migrated.before:
            old = versions.setdefault(migrated.before, OldVersion(header.uri, migrated.before))
            live = old.live(migrated.from_fragment, migrated.from_rows)
        for part, piece in in_parts(migrated.from_rows, source.within):
            covered, offsets = _new_places(migrated, part, live)
            if not covered.rows:
                continue
            piece = None if piece is None else _moved(piece, part, covered, offsets)  # noqa: PLW2901
            if piece is not None and migrated.left_out:
                piece = _without(piece, migrated)  # noqa: PLW2901
            if piece is not None and piece.values.type != kind:
                raise DataLoss("CHECKPOINT_DAMAGED", f"{key} does not hold {kind}", key=key)
            pieces = [] if piece is None else [piece]
            yield (
                migrated.key if part == migrated.from_rows else _part_key(migrated, covered),
                to_checkpoint(migrated.fragment_id, header.output.name, pieces, kind),
            )


def _part_key(migrated: MigratedRows, covered: RowRange) -> str:
    key = keys.parse_range_key(migrated.key)
    if key is None:
        raise ValueError(f"{migrated.key} is not the key of a checkpoint")
    return keys.range_key(key.prefix, migrated.fragment_id, covered)


def _new_places(migrated: MigratedRows, part: RowRange, live: Mask) -> tuple[RowRange, Offsets]:
    """Return the range to which a part of the source moved, and the new offset of each row.

    The new offset is -1 for a deleted row.
    """
    first, last = part.start - migrated.from_rows.start, part.end - migrated.from_rows.start
    at = migrated.at + int(live[:first].sum())
    offsets = np.where(live[first:last], np.cumsum(live[first:last]) - 1 + at, -1)
    start, end = max(at, migrated.covered.start), min(at + int(live[first:last].sum()), migrated.covered.end)
    return RowRange(start, max(start, end)), offsets


def _moved(piece: Piece, part: RowRange, covered: RowRange, offsets: Offsets) -> Piece | None:
    """Return the rows with their new offsets. Leave out deleted rows, and rows that are now in other fragments."""
    moved = offsets[piece.offsets - part.start]
    kept = (moved >= covered.start) & (moved < covered.end)
    if not kept.any():
        return None
    states = None if piece.states is None else piece.states[kept]
    return Piece(moved[kept], piece.values.filter(pa.array(kept)), states)


def _without(piece: Piece, migrated: MigratedRows) -> Piece | None:
    """Return those rows whose inputs have not changed since they were computed."""
    left_out = np.unpackbits(np.frombuffer(migrated.left_out, np.uint8), count=migrated.covered.rows)
    return piece.without(np.flatnonzero(left_out) + migrated.covered.start)


def _open(store: CheckpointStore, uri: str, key: str) -> _Source:
    """Open the checkpoint with a key, or the column file that the record with this key names.

    Raises:
        KeyError: The checkpoint or file is missing or damaged.
    """
    batch = store[key]
    if keys.parse_record_key(key) is None:
        return from_checkpoint(batch)
    record = FragmentRecord.from_batch(batch)
    if record is None or digest_of(uri, record.file) != (record.size_bytes, record.digest):
        raise KeyError(key)
    return _File(ColumnFileReader(uri, record.file))


class _File:
    """The requested rows of a column file, without rows of earlier function versions."""

    def __init__(self, reader: ColumnFileReader) -> None:
        self._reader = reader

    def within(self, covered: RowRange) -> Piece | None:
        states = self._reader.states(covered)
        held = np.flatnonzero((states != RowState.UNTOUCHED) & (row_states.state_versions(states) == 0))
        if not len(held):
            return None
        values = self._reader.values(covered).take(pa.array(held))
        plain = bool((states == RowState.COMPUTED).all())
        return Piece(held + covered.start, values, None if plain else states[held])


Offsets = npt.NDArray[np.int64]


def compare_inputs(store: CheckpointStore, plan: Plan, stop: threading.Event) -> Comparison:
    """Compare the files that the plan lists with earlier versions, until `stop` is set. Store values that rows have
    lost.

    Unreadable files are left out, so that their rows are computed.
    """
    header = plan.header
    prefixes = {task.fragment_id: task.checkpoint_prefix for task in plan.tasks} if plan.compared else {}
    readers: dict[int, FragmentReader] = {}

    def reader(version: int) -> FragmentReader:
        if version not in readers:
            readers[version] = FragmentReader(header.uri, version)
        return readers[version]

    columns, types = (*header.input_columns, header.output.name), header.input_types
    files: list[TracedFile] = []
    kept = restored = 0
    for compared in plan.compared:
        try:
            now = _Rows(reader(header.read_version), compared.known.fragment_id, columns, types)
            before = [_Earlier(_Rows(reader(e.version), e.fragment_id, e.columns, types), e) for e in compared.earlier]
            lost = _LostValues(store, plan, compared, prefixes[compared.known.fragment_id])
            states = _compared(compared, now, before, lost, stop)
        except LemanError as error:
            _log.warning("rows could not be compared", uri=header.uri, file=compared.known.file, error=error.message)
            continue
        if stop.is_set():
            break
        files.append(_traced(compared.known, states, header.versions[1:]))
        kept += _settled(files[-1]) - _settled(compared.known)
        restored += lost.rows
    return Comparison(files, kept, restored)


def _settled(traced: TracedFile) -> int:
    return traced.rows_computed + traced.rows_failed


class _LostValues:
    """Store lost values of the rows of one fragment.

    The checkpoints have a filter of their own, so that they hold results for these rows only. Each checkpoint belongs
    to the function version that computed its values.
    """

    def __init__(self, store: CheckpointStore, plan: Plan, compared: ComparedFile, prefix: str) -> None:
        self._store = store
        self._column = plan.header.output.name
        self._kind = arrow_types.values_field(plan.header.output.field.arrow).type
        self._fragment_id = compared.known.fragment_id
        #: Whether every row lost its value, because the column has no file in the fragment, or a file of another
        #: function.
        self.has_all = not compared.known.file or _is_of_another(compared.known.file, plan)
        own = keys.under_filter(prefix, keys.md5(f"rows before {compared.known.file}"))
        function = plan.header.udf.name, plan.header.udf.version
        kept = [(other.name, other.version) for other in plan.header.kept_functions]
        self._prefixes = [own, *(keys.of_function(own, function, other) for other in kept)]
        #: By number of the function version; see `row_states.state_versions`.
        self._pieces: dict[int, list[Piece]] = defaultdict(list)
        self.rows = 0

    def add(self, offsets: Offsets, values: pa.Array, states: States) -> None:
        """Collect values. Leave out values of another type, so that their rows are computed."""
        if values.type != self._kind:
            return
        versions, kinds = row_states.state_versions(states), row_states.state_kinds(states)
        for version in np.unique(versions).tolist():
            of = versions == version
            found = None if (kinds[of] == RowState.COMPUTED).all() else kinds[of]
            self._pieces[version].append(Piece(offsets[of], values.filter(pa.array(of)), found))

    def flush(self) -> None:
        """Store the values that were collected since the last call."""
        for version, pieces in self._pieces.items():
            offsets = np.concatenate([piece.offsets for piece in pieces])
            for covered, batch in in_parts(RowRange(int(offsets.min()), int(offsets.max()) + 1), self._batch(pieces)):
                if batch.num_rows:
                    self._store[keys.range_key(self._prefixes[version], self._fragment_id, covered)] = batch
            self.rows += len(offsets)
        self._pieces.clear()

    def _batch(self, pieces: Sequence[Piece]) -> Callable[[RowRange], pa.RecordBatch]:
        return lambda part: to_checkpoint(self._fragment_id, self._column, pieces_within(pieces, part), self._kind)


def _is_of_another(file: str, plan: Plan) -> bool:
    """Return whether a job wrote a file with values of a function that the plan does not use."""
    name = keys.parse_column_file_name(file)
    return name is not None and name.function_part not in plan.header.versions


class _Rows:
    """Inputs and values of rows in one fragment of one version. The inputs have the types that the function expects."""

    def __init__(
        self, reader: FragmentReader, fragment_id: int, columns: Sequence[str], types: Sequence[pa.DataType]
    ) -> None:
        self.reader = reader
        self.fragment_id = fragment_id
        self._columns = columns
        self._types = types

    def read(self, covered: RowRange, offsets: Offsets) -> Iterator[tuple[Offsets, list[pa.Array]]]:
        """Yield the offsets and columns of those live rows of a range whose offsets are in `offsets`, in pieces."""
        distinct = list(dict.fromkeys(self._columns))
        for chunk in self.reader.read(self.fragment_id, covered, distinct, deletions=True):
            wanted = isin(chunk.offsets, offsets)
            if wanted.any():
                rows = chunk.rows.filter(pa.array(wanted))
                columns = [rows.column(distinct.index(name)) for name in self._columns]
                given = [relabel(*pair) for pair in zip(columns, self._types, strict=False)]
                yield chunk.offsets[wanted], [*given, *columns[len(given) :]]

    def row_ids(self, offsets: Offsets) -> Offsets:
        """Return the stable row ids of the rows at some offsets. If the table has none, each is -1."""
        return np.array(self.reader.row_ids(self.fragment_id, offsets.tolist()), np.int64)


class _Earlier:
    """The rows of a fragment in an earlier version, looked up from the current rows."""

    def __init__(self, rows: _Rows, earlier: EarlierRows) -> None:
        self._rows = rows
        self._earlier = earlier
        count = earlier.physical_rows
        computed = np.full(count, RowState.COMPUTED, np.uint8)
        self.states: States = row_states.decode_states(earlier.row_states) if earlier.row_states else computed
        self._by_id: tuple[Offsets, Offsets] | None = None

    def offsets_of(self, now: _Rows, offsets: Offsets) -> Offsets:
        """Return the earlier offsets of some rows.

        The offset is -1 for a row that was not in the fragment, or not live there.
        """
        if self._earlier.same_offsets:
            found = offsets.copy()
        else:
            ids, places = self._known_ids()
            wanted = now.row_ids(offsets)
            if not len(ids):
                return np.full(len(offsets), -1, np.int64)
            at = np.searchsorted(ids, wanted)
            at[at == len(ids)] = 0
            found = np.where((ids[at] == wanted) & (wanted >= 0), places[at], -1)
        there = (found >= 0) & (found < len(self.states))
        there[there] = self.states[found[there]] != RowState.UNTOUCHED
        return np.where(there, found, -1)

    def _known_ids(self) -> tuple[Offsets, Offsets]:
        if self._by_id is None:
            offsets = np.flatnonzero(self.states != RowState.UNTOUCHED).astype(np.int64)
            ids = self._rows.row_ids(offsets)
            order = np.argsort(ids)
            self._by_id = ids[order], offsets[order]
        return self._by_id

    def read(self, offsets: Offsets) -> tuple[Offsets, list[pa.Array]] | None:
        """Return the live rows at some offsets, in ascending order."""
        pieces = []
        for part in split_range(RowRange(int(offsets.min()), int(offsets.max()) + 1), CHUNK_ROWS):
            inside = offsets[(offsets >= part.start) & (offsets < part.end)]
            if len(inside):
                pieces += list(self._rows.read(RowRange(int(inside.min()), int(inside.max()) + 1), inside))
        if not pieces:
            return None
        columns = [concatenate(parts) for parts in zip(*(columns for _, columns in pieces), strict=True)]
        return np.concatenate([found for found, _ in pieces]), columns


def _compared(
    compared: ComparedFile, now: _Rows, before: Sequence[_Earlier], lost: _LostValues, stop: threading.Event
) -> States:
    rows = compared.known.physical_rows
    known = compared.known.row_states
    states = row_states.decode_states(known).copy() if known else np.full(rows, RowState.COMPUTED, np.uint8)
    for part in split_range(RowRange(0, rows), CHUNK_ROWS):
        open_ = np.flatnonzero(states[part.start : part.end] == RowState.UNTOUCHED) + part.start
        if not len(open_) or stop.is_set():
            continue
        for offsets, columns in now.read(RowRange(int(open_[0]), int(open_[-1]) + 1), open_):
            at_hand, left = _AtHand(states, offsets, columns), np.ones(len(offsets), np.bool_)
            for earlier in before:
                left &= ~at_hand.take_over(left, now, earlier, lost)
            lost.flush()
    return states


@dataclass(frozen=True, slots=True)
class _AtHand:
    """The rows that are compared: their offsets, inputs and values, and the states of all rows of the fragment."""

    states: States
    offsets: Offsets
    columns: Sequence[pa.Array]

    def take_over(self, left: Mask, now: _Rows, earlier: _Earlier, lost: _LostValues) -> Mask:
        """Restore the earlier states of rows with equal inputs and values, and the values of rows with only equal
        inputs.

        Args:
            left: The rows to compare.
            now: Reads the current inputs and values of these rows.
            earlier: The fragment in which these rows may have been.
            lost: Stores values that rows have lost.

        Returns:
            The rows that need no function call.
        """
        settled = np.zeros(len(self.offsets), np.bool_)
        then = earlier.offsets_of(now, self.offsets) if left.any() else np.full(len(self.offsets), -1, np.int64)
        there = np.flatnonzero(left & (then >= 0))
        if not len(there):
            return settled
        there = there[np.argsort(then[there])]

        def read(part: RowRange) -> tuple[Offsets, list[pa.Array]] | None:
            return earlier.read(then[there[part.start : part.end]])

        for part, found in in_parts(RowRange(0, len(there)), read):
            if found is not None:
                at = np.sort(there[part.start : part.end])
                settled[self._settle(at, then, *found, earlier, lost)] = True
        return settled

    def _settle(
        self, at: Offsets, then: Offsets, places: Offsets, values: list[pa.Array], earlier: _Earlier, lost: _LostValues
    ) -> Offsets:
        """Compare the rows `at` with the earlier rows at `places`. Return the rows that need no function call."""
        at = at[isin(then[at], places)]
        took = pa.array(np.searchsorted(places, then[at]))
        same = np.ones(len(at), np.bool_)
        for mine, other in zip(self.columns[:-1], values[:-1], strict=True):
            same &= equal_rows(mine.take(pa.array(at)), other.take(took))
        value = values[-1].take(took)
        mine = self.columns[-1].take(pa.array(at))
        has_value = np.zeros(len(at), np.bool_) if lost.has_all else same & equal_rows(mine, value)
        before = earlier.states[then[at]]
        self.states[self.offsets[at[has_value]]] = before[has_value]
        has_had_value = row_states.state_kinds(before) == RowState.COMPUTED  # also of an earlier, kept function
        lacks_value = same & ~has_value & (has_had_value | (lost.has_all & (before == RowState.FAILED)))
        if lacks_value.any():
            lost.add(self.offsets[at[lacks_value]], value.filter(pa.array(lacks_value)), before[lacks_value])
        done: Offsets = at[has_value | lacks_value]
        return done


def _traced(known: TracedFile, states: States, older: Sequence[str]) -> TracedFile:
    filters = row_states.decode_state_summary(known.row_states).filters if known.row_states else frozenset[str]()
    summary = row_states.summarize_states(states, filters, older)
    whole = summary.computed == len(states)
    return dataclasses.replace(
        known,
        row_states=b"" if whole else row_states.encode_states(states, filters, older),
        rows_computed=summary.computed,
        rows_failed=summary.failed,
        compared=True,
    )


class LanceCheckpointMaintenance:
    """The `leman_executor.jobs.job_environment.CheckpointMaintenance` of Lance files, in threads."""

    def __init__(self, pool: BlockingPool) -> None:
        self._pool = pool

    async def migrate(self, plan: Plan, stop: threading.Event) -> int:
        return await self._pool.run(migrate_checkpoints, _store(plan.header.uri), plan, stop)

    async def save_traced(self, plan: Plan) -> None:
        await self._pool.run(store_traced, _store(plan.header.uri), plan)

    async def compare(self, plan: Plan, stop: threading.Event) -> Comparison:
        def compared() -> Comparison:
            store = _store(plan.header.uri)
            found = compare_inputs(store, plan, stop)
            store_traced(store, plan, found.files)
            return found

        return await self._pool.run(compared)

    async def write_partial(
        self, context: WorkContext, task: FragmentTask, checkpoints: Sequence[CheckpointRef], stop: threading.Event
    ) -> StagedFile | None:
        return await self._pool.run(write_partial, context, task, checkpoints, _store(context.uri), stop)

    async def forget_file(self, uri: str, task: FragmentTask, file: str) -> None:
        await self._pool.run(forget_file, _store(uri), task.checkpoint_prefix, task.fragment_id, file)

    async def remove_leftovers(self, uri: str) -> None:
        try:
            await self._pool.run(remove_leftovers, uri)
        except (LemanError, OSError) as error:
            _log.warning("the stored work of a deleted table could not be removed", uri=uri, error=str(error))


def _store(uri: str) -> LanceCheckpointStore:
    return LanceCheckpointStore(checkpoint_root(uri))


#: Database, table and column.
ColumnKey = tuple[str, str, str]


class KnownColumns(Protocol):
    """Lists the known columns."""

    def columns(self) -> Iterable[ColumnKey]:
        """Return all computed columns in open databases."""
        ...


class TableVersions(Protocol):
    """Reads the versions of tables."""

    def latest_version(self, uri: str) -> int:
        """Return the latest version of a table. Blocks."""
        ...


class CompactionWatch:
    """Plan each column whose table has a new version, to record compactions before old versions are cleaned up."""

    def __init__(
        self, planner: Planner, checkpoints: CheckpointMaintenance, known: KnownColumns, tables: TableVersions
    ) -> None:
        self._planner = planner
        self._checkpoints = checkpoints
        self._known = known
        self._tables = tables
        self._seen: dict[ColumnKey, int] = {}

    async def run(self, interval_seconds: float) -> None:
        """Check every `interval_seconds`, until cancelled."""
        while True:
            await asyncio.sleep(interval_seconds)
            await self.look()

    async def look(self) -> None:
        """Make plans for columns whose tables have new versions. Record the traced files of the plans."""
        for column in sorted(self._known.columns()):
            try:
                await self._look_at(column)
            except LemanError as error:  # the table is dropped or unreachable: a job would report it
                _log.info("a column could not be checked for compactions", column=column, error=str(error))
            except Exception:  # noqa: BLE001 - the other columns must still be checked
                _log.exception("a column could not be checked for compactions", column=column)

    async def _look_at(self, column: ColumnKey) -> None:
        database, table, name = column
        STORE.set(store_of(database))
        version = await run_in_job_thread(self._tables.latest_version, table_uri(database, table))
        if self._seen.get(column) == version:
            return
        plan = await self._planner.create_plan(BackfillSpec(database, table, name))
        if plan.traced:
            await self._checkpoints.save_traced(plan)
            _log.info("compaction recorded", table=table, version=version, files=len(plan.traced))
        if plan.compared:
            found = await self._checkpoints.compare(plan, threading.Event())
            _log.info("rewritten rows compared", table=table, version=version, files=len(found.files))
        self._seen[column] = version
