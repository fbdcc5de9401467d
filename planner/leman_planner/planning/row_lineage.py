"""Find out from the table's history where rows were before a compaction or a rewrite.

The history of compactions is read in two cases, which `compacted_rows` determines. First, the name of a fragment's file
may not show which job wrote it, so its rows must be traced. Second, checkpoints or finished files may belong to a
fragment that no longer exists. If an earlier run recorded where a file's rows came from, that record is used instead,
because the history may have been cleaned up since.

`UnchangedInputs` finds where rewritten rows were before. An upsert writes rows, even unchanged ones, to a new fragment
together with the values of computed columns. A merge by an indexed key rewrites an input of a fragment in place. In
both cases, the earlier values are still right for rows whose inputs are equal. A plan reads no values. Instead, it
lists the fragments of earlier versions in which the rows were current, and the executor compares the inputs
(`docs/decisions/0055-equal-inputs.md`). The walk goes back through the transactions that wrote files of the column or
of its inputs. If the rows were not current in the version before a transaction, it continues from the fragments that
had them then. If a column gets an earlier function back, the walk also goes through the files that the function in
between wrote, because rows may have moved before or after that.
"""

from __future__ import annotations

import contextlib
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np
import structlog

from leman._format.stored_functions import UdfKind
from leman_core.functions.arrow_values import Mask
from leman_core.model import keys, row_states
from leman_core.model.plan import ComparedFile, EarlierRows, MigratedRows, Plan, Reason
from leman_core.model.plan_columns import FragmentColumns, planned_tasks
from leman_core.model.row_positions import RowRange, subtract_ranges
from leman_core.model.row_states import Predecessor, RowState
from leman_core.model.service_errors import DataLoss, LemanError, NotFound
from leman_core.model.table import CompactionHistory, Fragment, TableSnapshot
from leman_core.model.work import CheckpointStore
from leman_core.storage import column_files, compaction_history
from leman_core.storage.checkpoint_records import FragmentRecord, read_record, unpack_records
from leman_core.storage.checkpoint_store import in_own_folder
from leman_core.storage.lance_tables import LanceTables
from leman_core.storage.locations import in_object_store
from leman_core.storage.transactions import Kind, Transaction, fragments_of
from leman_planner.planning.compacted_rows import CheckpointMigrator, Live, RowTracer, compaction_origin
from leman_planner.planning.fragment_status import (
    CODE,
    FragmentStatus,
    Moved,
    Statuses,
    inspect_fragments,
    unnamed_file,
)
from leman_planner.planning.plan_draft import traced_file
from leman_planner.planning.request_resolution import Filter, ResolvedRequest
from leman_planner.planning.stale_inputs import states_of
from leman_planner.planning.stored_work import Slot, StoredWork

_log = structlog.get_logger(__name__)

_READERS = 8


class FileTracer:
    """Finds the known row states of fragments whose file names do not show them.

    These are compacted fragments, and fragments whose inputs are computed columns with new files. Example: compaction
    wrote a.lance, which an earlier run has recorded, and b.lance. Then the history is read back to the commit of
    b.lance, and further if the fragments that it replaced were compacted too. The tracer caches the history that it has
    read, and reuses it for other versions of the table.

    Args:
        resolved: The request.
        store: The store with the records of earlier runs.
    """

    def __init__(self, resolved: ResolvedRequest, store: CheckpointStore) -> None:
        self._resolved = resolved
        self._archive = _Archive(resolved, store)
        self._rows = RowTracer(resolved, self._archive)

    def trace(self, table: TableSnapshot, statuses: Statuses) -> Statuses:
        """Return the statuses of fragments of a version of the table, with their known row states."""
        unnamed = statuses.having(Reason.EXTERNAL_WRITE)
        wanted = {at: status for at, status in unnamed if unnamed_file(self._resolved, status)}
        stale = dict(statuses.having(Reason.INPUT_CHANGED))
        if not (wanted or stale):
            return statuses
        self._archive.read_ahead([status.fragment for status in (*wanted.values(), *stale.values())])
        if files := set(self._open(wanted.values())):
            self._rows.add(_trace(table, self._files_of, files))
        return statuses.replaced({at: self._rows.trace(status) for at, status in sorted({**wanted, **stale}.items())})

    def _files_of(self, fragments: Sequence[Fragment]) -> Iterator[str]:
        return self._open(inspect_fragments(self._resolved, fragments))

    def _open(self, statuses: Iterable[FragmentStatus]) -> Iterator[str]:
        """Yield the files whose origin has to be found."""
        for status in statuses:
            file = unnamed_file(self._resolved, status)
            if file and not self._rows.knows(file) and self._archive.record(status) is None:
                yield file


def is_compared(resolved: ResolvedRequest, store: CheckpointStore) -> Callable[[FragmentStatus], bool]:
    """Return a function that returns whether a fragment's rows were already compared with earlier versions."""
    archive = _Archive(resolved, store)

    def compared(status: FragmentStatus) -> bool:
        record = archive.record(status)
        return record is not None and record.compared

    return compared


def migrated_rows(
    resolved: ResolvedRequest,
    plan: Plan,
    statuses: Statuses,
    stored_work: StoredWork,
    store: CheckpointStore,
    existing_files: Callable[[Iterable[str]], set[str]],
) -> tuple[MigratedRows, ...]:
    """Return the missing rows of the plan's fragments that are stored elsewhere.

    Args:
        resolved: The request.
        plan: The plan without these rows.
        statuses: The statuses of all fragments.
        stored_work: The stored work. Only the files of its `records` are known to exist.
        store: The store with further records.
        existing_files: Returns which of the given data files exist. A cleanup may have deleted files of removed
            fragments.
    """
    reader = _CheckpointReader(resolved, store, stored_work.records)
    migrator = CheckpointMigrator(resolved, stored_work, reader)
    found = [*migrator.replaced(plan, statuses), *migrator.followed(plan, statuses)]
    if stored_work.gone:
        by_id = {fragment.fragment_id: fragment for fragment in resolved.table.fragments}
        waiting = [by_id[task.fragment_id] for task in plan.tasks if task.missing]
        reader.read_ahead(waiting)
        files = {migrator.made(fragment).file for fragment in waiting} - {""}
        origins = partial(map, partial(compaction_origin, resolved))
        compactions = _trace(resolved.table, origins, files) if files else CompactionHistory()
        found += migrator.moved(plan, statuses, compactions)
    if reader.files:
        lost = set(reader.files.values()) - existing_files(reader.files.values())
        found = [rows for rows in found if reader.files.get(rows.source) not in lost]
    return tuple(sorted(found, key=lambda rows: (rows.source, rows.from_rows)))


def _trace(
    table: TableSnapshot, more: Callable[[Sequence[Fragment]], Iterable[str]], files: set[str]
) -> CompactionHistory:
    most = compaction_history.versions_to_look_at(len(table.fragments))
    try:
        return compaction_history.trace_compactions(table.uri, table.version, files, more, most)
    except NotFound as error:
        _log.warning("history cannot be read", uri=table.uri, version=table.version, error=error.message)
        return CompactionHistory(lost=frozenset(files))


class _OldFiles:
    """Reads and caches deletions in versions before compactions, and predecessors of the inputs' files."""

    def __init__(self, resolved: ResolvedRequest) -> None:
        self._uri = resolved.table.uri
        self._input_ids = resolved.input_ids
        self._old: dict[int, compaction_history.OldVersion] = {}
        self._predecessors: dict[str, Sequence[Predecessor]] = {}

    def live(self, version: int, fragment: Fragment) -> Live | None:
        try:
            if version not in self._old:
                self._old[version] = compaction_history.OldVersion(self._uri, version)
            return self._old[version].live(fragment.fragment_id, RowRange(0, fragment.physical_rows))
        except LemanError as error:
            _log.warning("an old fragment cannot be read", version=version, error=str(error))
            return None

    def read_ahead(self, fragments: Iterable[Fragment]) -> None:
        """Read the predecessors of the inputs' files in some fragments, several at a time."""
        ids = self._input_ids
        files = sorted({file for fragment in fragments for file in fragment.files_of(ids) if not _is_foreign(file)})
        if len(files) > 1 and in_object_store(self._uri):  # a local file takes 20 µs, and in threads 100 µs
            with ThreadPoolExecutor(_READERS, thread_name_prefix="plan") as pool:
                self._predecessors.update(zip(files, pool.map(self.predecessors, files), strict=True))

    def predecessors(self, file: str) -> Sequence[Predecessor]:
        """Return the earlier files that a column file of an input replaced; an empty sequence if they are unknown."""
        if file not in self._predecessors:
            self._predecessors[file] = column_files.read_predecessors(self._uri, file)
        return self._predecessors[file]


class _CheckpointReader(_OldFiles):
    """See `leman_planner.planning.compacted_rows.CheckpointReader`."""

    def __init__(self, resolved: ResolvedRequest, store: CheckpointStore, known: Mapping[str, FragmentRecord]) -> None:
        super().__init__(resolved)
        self._store = store
        self._known = known
        #: The files of the records that were read here, by key.
        self.files: dict[str, str] = {}

    def record(self, key: str) -> FragmentRecord | None:
        if key in self._known:
            return self._known[key]
        found = read_record(self._store, key)
        if found is not None:
            self.files[key] = found.file
        return found


class _Archive(_OldFiles):
    """See `leman_planner.planning.compacted_rows.Archive`."""

    def __init__(self, resolved: ResolvedRequest, store: CheckpointStore) -> None:
        super().__init__(resolved)
        self._resolved = resolved
        self._store = store
        self._records: dict[tuple[str, str], FragmentRecord] | None = None
        self._buffers: dict[str, bytes | None] = {}

    def record(self, status: FragmentStatus) -> FragmentRecord | None:
        """Return the record of the fragment's file, if it is about this output column and these inputs."""
        output = self._resolved.output
        if self._records is None:
            self._records = self._read_records()
        inputs = status.fingerprint[16:]
        found = [self._records.get((status.current_file, part + inputs)) for part in self._resolved.versions]
        record = next((r for r in found if r is not None), None)
        if (
            record is None
            or (record.column_id, record.output_field_ids) != (output.column_id, output.field.field_ids)
            or record.physical_rows != status.fragment.physical_rows
            or tuple(sorted(record.src_data_files)) != self._resolved.input_files(status.fragment)
        ):
            return None
        return record

    def states(self, status: FragmentStatus) -> bytes | None:
        """Return the row states from the file, or else from the record that was stored with it."""
        file = status.current_file
        if file not in self._buffers:
            try:
                self._buffers[file] = column_files.read_states_buffer(self._resolved.table.uri, file)
            except (NotFound, DataLoss) as error:
                self._buffers[file] = self._stored_states(status)
                if self._buffers[file] is None:
                    _log.warning("row states cannot be read", file=file, error=error.message)
        return self._buffers[file]

    def _stored_states(self, status: FragmentStatus) -> bytes | None:
        slot = (status.sources, status.fragment.fragment_id)
        for key in self._record_keys.get(slot, ()):
            record = read_record(self._store, key)
            if record is not None and record.file == status.current_file and record.states:
                return record.states
        return None

    @cached_property
    def _record_keys(self) -> dict[Slot, list[str]]:
        """The keys of fragment records of the request's version and of kept ones, under any filter."""
        found: dict[Slot, list[str]] = defaultdict(list)
        for family in self._resolved.families:
            listed = self._store.list_keys(family.head)
            for parsed in family.parse_all(listed, anywhere=in_own_folder(self._resolved.table.uri)):
                if parsed.range is None:
                    found[parsed.sources, parsed.fragment_id].append(parsed.key)
        return found

    def _read_records(self) -> dict[tuple[str, str], FragmentRecord]:
        records: dict[tuple[str, str], FragmentRecord] = {}
        for part in self._resolved.versions:
            with contextlib.suppress(KeyError):
                stored = unpack_records(self._store[keys.traced_key(part)])
                records |= {(record.file, record.fingerprint): record for record in stored}
        return records


#: The maximum number of transactions that the walk reads. `_MOST_OPENED` limits the versions that it opens, and
#: `_MOST_FRAGMENTS` the fragments that a plan compares.
_MOST_VERSIONS = 500
#: The maximum number of transactions if no fragment has a file of the column: most were appended, perhaps long ago.
_MOST_IF_MISSING = 50
_MOST_OPENED = 50
_MOST_FRAGMENTS = 4096
_MOST_MISSING = 128
#: The maximum number of earlier fragments with which one fragment is compared.
_MOST_EARLIER = 64
#: Reasons that writes by others cause. An update by Leman leaves computed columns without a file.
_WRITTEN = frozenset({Reason.EXTERNAL_WRITE, Reason.INPUT_CHANGED, Reason.HISTORY_LOST, Reason.MISSING})
_WITH_FILE = _WRITTEN - {Reason.MISSING}
_CHANGES = frozenset({Kind.UPDATE, Kind.DATA_REPLACEMENT, Kind.REWRITE, Kind.MERGE, Kind.UNKNOWN})


@dataclass(slots=True, eq=False)
class _Compared:
    """A fragment of the plan, with the earlier fragments in which its rows were current."""

    status: FragmentStatus
    earlier: list[EarlierRows] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class _FilePosition:
    """A fragment of an earlier version. It has rows of a compared fragment, but the rows were not current in it."""

    compared: _Compared
    fragment: Fragment
    same_offsets: bool
    files: frozenset[str]


class _FilePositions:
    """The positions from which the walk continues, by the files that matter to them."""

    def __init__(self, places: Iterable[_FilePosition]) -> None:
        self._all: dict[_FilePosition, None] = {}
        self._by_file: dict[str, list[_FilePosition]] = {}
        self.add(places)

    def __bool__(self) -> bool:
        return bool(self._all)

    @property
    def have_values(self) -> bool:
        """Return whether one of the fragments has a file of the column."""
        return any(place.compared.status.reason is not Reason.MISSING for place in self._all)

    def add(self, places: Iterable[_FilePosition]) -> None:
        """Add positions."""
        for place in places:
            self._all[place] = None
            for file in place.files:
                self._by_file.setdefault(file, []).append(place)

    def pop(self, files: frozenset[str] | None) -> list[_FilePosition]:
        """Remove and return the positions that any of the files may change. None stands for all files."""
        found = list(self._all) if files is None else [p for file in files for p in self._by_file.get(file, ())]
        hit = [place for place in dict.fromkeys(found) if place in self._all]
        for place in hit:
            del self._all[place]
        return hit


class UnchangedInputs:
    """The walk through the history for one request.

    Args:
        resolved: The request.
        tables: Opens earlier versions.
        store: The store with records of files whose names do not show their function.
        was_used: Whether the function computed the column before. If so, rows that another function has replaced since
            may have values in earlier versions.
    """

    def __init__(
        self, resolved: ResolvedRequest, tables: LanceTables, store: CheckpointStore, *, was_used: bool
    ) -> None:
        self._resolved = resolved
        self._tables = tables
        self._store = store
        self._was_used = was_used
        self._opened = 0
        self._tracer = FileTracer(replace(resolved, filter=Filter()), store)

    def compared(self, plan: Plan, statuses: Statuses) -> tuple[ComparedFile, ...]:
        """Return the fragments of a plan whose values may still be right."""
        resolved = self._resolved
        if resolved.past is not None or resolved.source is not None or resolved.failed_only:
            return ()
        if resolved.udf.kind is UdfKind.SQL:  # computing an expression costs no more than a comparison
            return ()
        found = [_Compared(status) for status in self._candidates(plan, statuses)]
        if not found:
            return ()
        try:
            self._walk(found)
        except (LemanError, OSError, ValueError) as error:
            _log.warning("earlier versions cannot be read", uri=resolved.table.uri, error=str(error))
        return tuple(self._file(compared) for compared in found if compared.earlier)

    def _candidates(self, plan: Plan, statuses: Statuses) -> Iterator[FragmentStatus]:
        written = np.zeros(len(statuses), np.bool_)
        for reason in _WITH_FILE:
            written |= statuses.reasons == CODE[reason]
        for at, status in statuses.others.items():
            if status.moved is not None:
                written[at] = unnamed_file(self._resolved, status._replace(reason=Reason.EXTERNAL_WRITE)) != ""
        missing_file = statuses.reasons == CODE[Reason.MISSING]
        # If all fragments lack a file, nothing was ever computed. If very many do, they were probably appended.
        if not missing_file.all() and np.count_nonzero(missing_file) <= _MOST_MISSING:
            written |= missing_file & _may_have_older_rows(statuses.fragments, missing_file)
        if self._was_used:  # in fragments with unmoved rows, the values are migrated instead
            replaced = statuses.reasons == CODE[Reason.UDF_CHANGED]
            replaced &= ~statuses.fragments.with_ids(_migrated_fragments(plan))
            written |= replaced & _may_have_older_rows(statuses.fragments, replaced)
        if not written.any():
            return
        ids = set(statuses.fragments.ids[written][:_MOST_FRAGMENTS].tolist())
        tasks = planned_tasks(plan.tasks).of_fragments(ids)
        missing = set(tasks.fragment_ids[tasks.rows_missing > 0].tolist())
        is_done = is_compared(self._resolved, self._store)
        open_ = (s for s in statuses.take(np.flatnonzero(statuses.fragments.with_ids(missing))) if not is_done(s))
        yield from open_

    def _walk(self, found: Sequence[_Compared]) -> None:
        table = self._resolved.table
        places = _FilePositions(
            self._place(compared, compared.status.fragment, same_offsets=True) for compared in found
        )
        history = compaction_history.transactions_up_to(table.uri, table.version, _MOST_VERSIONS)
        for steps, transaction in enumerate(history, start=1):
            if transaction is None or transaction.kind is Kind.OVERWRITE:
                return
            if steps > _MOST_IF_MISSING and not places.have_values:
                return
            hit = places.pop(_files_in(transaction))
            # Before a transaction of any other kind, the rows did not exist.
            if hit and transaction.kind in _CHANGES and self._opened < _MOST_OPENED:
                self._opened += 1
                places.add(self._before(transaction, hit))
            if not places:  # no positions are left, so stop before reading the next transaction
                return

    def _before(self, transaction: Transaction, hit: Sequence[_FilePosition]) -> Iterator[_FilePosition]:
        """Record which rows were current before a transaction, and yield the positions where the walk continues."""
        table = self._resolved.table
        moved = {place: _rewritten_ids(transaction, place.fragment) for place in hit if table.stable_row_ids}
        wanted = {*(place.fragment.fragment_id for place in hit), *itertools.chain.from_iterable(moved.values())}
        before = self._tables.snapshot(table.uri, transaction.version - 1, wanted)
        fragments = FragmentColumns.from_fragments(before.fragments)
        found = fragments.take(np.flatnonzero(fragments.with_ids(wanted)))
        by_id = {fragment.fragment_id: fragment for fragment in found}
        earlier: list[tuple[_FilePosition, Fragment, bool]] = []
        for place in hit:
            same = by_id.get(place.fragment.fragment_id)
            if same is not None and same.has_rows_of(place.fragment):
                if self._files(same) == place.files:  # the transaction changed other files
                    yield place
                else:
                    earlier.append((place, same, place.same_offsets))
            else:
                earlier += [(place, by_id[i], False) for i in moved.get(place, ()) if i in by_id]
        statuses = self._statuses(before, {fragment.fragment_id: fragment for _, fragment, _ in earlier}.values())
        columns = self._columns(before)
        for place, fragment, same_offsets in earlier:
            status = statuses[fragment.fragment_id]
            states = states_of(self._resolved, status)
            compared = place.compared
            useful = states.any() and columns and transaction.kind is not Kind.REWRITE
            if useful and len(compared.earlier) < _MOST_EARLIER:
                whole = bool((states == RowState.COMPUTED).all())
                compared.earlier.append(
                    EarlierRows(
                        version=before.version,
                        fragment_id=fragment.fragment_id,
                        physical_rows=fragment.physical_rows,
                        row_states=b"" if whole else self._encoded(states),
                        columns=columns,
                        same_offsets=same_offsets,
                    )
                )
            if not states.all() and (status.moved is not None or self._others_wrote(status)):
                yield self._place(compared, fragment, same_offsets=same_offsets)

    def _others_wrote(self, status: FragmentStatus) -> bool:
        """Return whether another writer or function wrote the rows, perhaps before a partial file that lacks them."""
        if status.reason is Reason.UDF_CHANGED:
            return self._was_used
        if status.reason is not Reason.PARTIAL:
            return status.reason in _WRITTEN
        earlier = column_files.read_predecessors(self._resolved.table.uri, status.current_file)
        return any(keys.parse_column_file_name(predecessor.file) is None for predecessor in earlier)

    def _statuses(self, table: TableSnapshot, fragments: Iterable[Fragment]) -> dict[int, FragmentStatus]:
        then = replace(self._resolved, table=replace(table, fragments=tuple(fragments)), filter=Filter(), num_frags=0)
        found = self._tracer.trace(table, inspect_fragments(then))
        return {status.fragment.fragment_id: status for status in found}

    def _columns(self, table: TableSnapshot) -> tuple[str, ...]:
        """Return the names of inputs and output in a version, or nothing if one was missing or had another type."""
        wanted = [*self._resolved.inputs, self._resolved.output.field]
        found = [table.find_id(column.field_id) for column in wanted]
        pairs = zip(wanted, found, strict=True)
        names = self._resolved.names
        if any(then is None or then.type_under(names) != column.type_under(names) for column, then in pairs):
            return ()
        return tuple(column.name for column in found if column is not None)

    def _place(self, compared: _Compared, fragment: Fragment, *, same_offsets: bool) -> _FilePosition:
        return _FilePosition(compared, fragment, same_offsets, self._files(fragment))

    def _files(self, fragment: Fragment) -> frozenset[str]:
        """Return the files whose origin matters: the inputs', and the output's unless this function's jobs wrote it.

        If the fragment has no such file, return the files with which its rows were written: an update writes no
        computed columns.
        """
        output = filter(self._is_of_others, fragment.files_of(self._resolved.output.field.field_ids))
        matter = [*output, *fragment.files_of(self._resolved.input_ids)]
        return frozenset(matter or filter(_is_foreign, (file.path for file in fragment.files)))

    def _is_of_others(self, file: str) -> bool:
        name = keys.parse_column_file_name(file)
        return name is None or (self._was_used and name.function_part not in self._resolved.versions)

    def _encoded(self, states: row_states.States) -> bytes:
        return row_states.encode_states(states, frozenset(), self._resolved.versions[1:])

    def _file(self, compared: _Compared) -> ComparedFile:
        status, older = compared.status, self._resolved.versions[1:]
        states = states_of(self._resolved, status)
        moved = status.moved
        if moved is None:
            moved = Moved(
                row_states.summarize_states(states, frozenset(), older), self._encoded(states), recorded=False
            )
        rows = min(int(np.count_nonzero(states == RowState.UNTOUCHED)), status.fragment.live_rows)
        known = traced_file(self._resolved, status, moved)
        return ComparedFile(known=known, earlier=tuple(compared.earlier), rows=rows)


def _may_have_older_rows(fragments: FragmentColumns, wanted: Mask) -> Mask:
    """Return which of the wanted fragments may have rows that are older than the fragment, without reading the store.

    A write that moves rows to a new fragment deletes them in a fragment with a lower id, or removes that fragment. A
    write in place adds a file. If a table has no such traces, an appended fragment has only new rows.
    """
    order = np.argsort(fragments.ids, kind="stable")
    changed_before = np.zeros(len(fragments), np.bool_)
    deleted = np.cumsum(fragments.deleted_rows[order] > 0) > 0
    changed_before[order] = deleted | (fragments.ids[order] != np.arange(len(fragments)))
    found = wanted & changed_before
    others = np.flatnonzero(wanted & ~changed_before)
    for at, fragment in zip(others.tolist(), fragments.take(others), strict=True):
        found[at] = sum(_is_foreign(file.path) for file in fragment.files) > 1
    return found


def _migrated_fragments(plan: Plan) -> set[int]:
    """Return the fragments whose missing rows are all among the plan's migrated rows."""
    migrated: dict[int, list[RowRange]] = defaultdict(list)
    for rows in plan.migrated:
        if not rows.left_out:
            migrated[rows.fragment_id].append(rows.covered)
    tasks = planned_tasks(plan.tasks).of_fragments(set(migrated)) if migrated else ()
    return {task.fragment_id for task in tasks if not subtract_ranges(task.missing, migrated[task.fragment_id])}


def _is_foreign(file: str) -> bool:
    """Return whether something other than a job wrote a data file."""
    return keys.parse_column_file_name(file) is None


def _files_in(transaction: Transaction) -> frozenset[str] | None:
    """Return the files that a transaction may have written, or None if it may be any."""
    operation = transaction.operation
    if transaction.kind is Kind.UPDATE:
        fragments = (*fragments_of(operation.new_fragments), *fragments_of(operation.updated_fragments))
    elif transaction.kind is Kind.REWRITE:
        fragments = tuple(new for rewrite in compaction_history.rewrites_of(transaction) for new in rewrite.new)
    elif transaction.kind is Kind.APPEND:
        fragments = fragments_of(operation.fragments)
    elif transaction.kind is Kind.DATA_REPLACEMENT:
        return frozenset(group.new_file.path for group in operation.replacements)
    else:
        return None if transaction.kind in (Kind.MERGE, Kind.UNKNOWN) else frozenset()
    return frozenset(file.path for fragment in fragments for file in fragment.files)


def _rewritten_ids(transaction: Transaction, made: Fragment) -> list[int]:
    """Return the ids of the fragments in which rows of a new fragment may have been before the transaction."""
    operation = transaction.operation
    if transaction.kind is Kind.UPDATE:
        return [*operation.removed_fragment_ids, *(raw.id for raw in operation.updated_fragments)]
    if transaction.kind is not Kind.REWRITE:
        return []
    files = {file.path for file in made.files}
    return [
        old.fragment_id
        for rewrite in compaction_history.rewrites_of(transaction)
        if any(file.path in files for new in rewrite.new for file in new.files)
        for old in rewrite.old
    ]
