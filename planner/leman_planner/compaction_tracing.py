"""Read what compaction tracing and checkpoint migration need, and no more.

Where a computed column that is an input got another file, that file tells which rows differ.

The history of compactions is read for two purposes. Where a fragment's file has a name that says nothing, it tells
which of its rows are computed (`compacted_rows` decides). Where checkpoints or finished files are stored under a
fragment that is gone, it tells where their rows went (`checkpoint_migration` decides). The history of a table that has
neither is not read.

What an earlier run recorded of a file comes first: then the history is not read for it, which may be cleaned by now.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property

import structlog

from leman_core.model import keys
from leman_core.model.changed_rows import Predecessor
from leman_core.model.compactions import CompactionHistory
from leman_core.model.errors import DataLoss, LemanError, NotFound
from leman_core.model.plan import MigratedRows, Plan, Reason
from leman_core.model.ports import CheckpointStore
from leman_core.model.ranges import RowRange
from leman_core.model.table import Fragment
from leman_core.storage import column_files, compactions
from leman_core.storage.checkpoints.lance_store import in_own_folder
from leman_core.storage.checkpoints.records import FragmentRecord, read_record, unpack
from leman_core.storage.locations import in_object_store
from leman_planner.checkpoint_migration import CheckpointMigrator, origin
from leman_planner.compacted_rows import Live, RowTracer, further
from leman_planner.resolved_request import ResolvedRequest
from leman_planner.reuse_decision import FragmentStatus, unnamed
from leman_planner.statuses import Statuses
from leman_planner.stored_work import Slot, StoredWork

_log = structlog.get_logger(__name__)

_READERS = 8


def trace_files(resolved: ResolvedRequest, statuses: Statuses, store: CheckpointStore) -> Statuses:
    """Return the statuses in the same order; those of which names do not tell enough with what is known of their rows.

    These are compacted fragments, and fragments whose inputs are computed columns that got other files.
    With files a.lance (recorded by an earlier run) and b.lance that compaction wrote, the history is read back to the
    commit that wrote b.lance, and on where the fragments that went into it were compacted too.
    """
    wanted = {at: status for at, status in statuses.having(Reason.EXTERNAL_WRITE) if unnamed(resolved, status)}
    stale = dict(statuses.having(Reason.INPUT_CHANGED))
    if not (wanted or stale):
        return statuses
    archive = _Archive(resolved, store)
    archive.read_ahead([status.fragment for status in (*wanted.values(), *stale.values())])
    files = {status.current_file for status in wanted.values() if archive.record(status) is None}
    more = further(resolved, lambda status: archive.record(status) is not None)
    compactions = _trace(resolved, more, files) if files else CompactionHistory()
    tracer = RowTracer(resolved, compactions, archive)
    return statuses.replaced({at: tracer.trace(status) for at, status in sorted({**wanted, **stale}.items())})


def is_compared(resolved: ResolvedRequest, store: CheckpointStore) -> Callable[[FragmentStatus], bool]:
    """Return what tells whether the rows of a fragment's file were compared with earlier versions already."""
    archive = _Archive(resolved, store)

    def compared(status: FragmentStatus) -> bool:
        record = archive.record(status)
        return record is not None and record.compared

    return compared


def _is_column_file(file: str) -> bool:
    return keys.parse_column_file_name(file) is not None


def migrated(
    resolved: ResolvedRequest,
    plan: Plan,
    statuses: Statuses,
    stored_work: StoredWork,
    store: CheckpointStore,
) -> tuple[MigratedRows, ...]:
    """Return what the plan's fragments lack and what is stored elsewhere."""
    reader = _CheckpointReader(resolved, store, stored_work.records)
    migrator = CheckpointMigrator(resolved, stored_work, reader)
    found = [*migrator.replaced(plan, statuses), *migrator.followed(plan, statuses)]
    if stored_work.gone:
        by_id = {fragment.fragment_id: fragment for fragment in resolved.table.fragments}
        waiting = [by_id[task.fragment_id] for task in plan.tasks if task.missing]
        reader.read_ahead(waiting)
        files = {migrator.made(fragment).file for fragment in waiting} - {""}
        compactions = (
            _trace(resolved, lambda fragment: origin(resolved, fragment), files) if files else CompactionHistory()
        )
        found += migrator.moved(plan, statuses, compactions)
    return tuple(sorted(found, key=lambda rows: (rows.source, rows.from_rows)))


def _trace(resolved: ResolvedRequest, more: Callable[[Fragment], str], files: set[str]) -> CompactionHistory:
    table = resolved.table
    most = compactions.versions_to_look_at(len(table.fragments))
    try:
        return compactions.trace(table.uri, table.version, files, more, most)
    except NotFound as error:
        _log.warning("history cannot be read", uri=table.uri, version=table.version, error=error.message)
        return CompactionHistory(lost=frozenset(files))


class _OldFiles:
    """Deletions in versions that compactions rewrote, and files that the inputs' files follow."""

    def __init__(self, resolved: ResolvedRequest) -> None:
        self._uri = resolved.table.uri
        self._input_ids = resolved.input_ids
        self._old: dict[int, compactions.OldVersion] = {}
        self._predecessors: dict[str, Sequence[Predecessor]] = {}

    def live(self, version: int, fragment: Fragment) -> Live | None:
        try:
            if version not in self._old:
                self._old[version] = compactions.OldVersion(self._uri, version)
            return self._old[version].live(fragment.fragment_id, RowRange(0, fragment.physical_rows))
        except LemanError as error:
            _log.warning("an old fragment cannot be read", version=version, error=str(error))
            return None

    def read_ahead(self, fragments: Iterable[Fragment]) -> None:
        """Read what `predecessors` returns for the inputs of some fragments, several at a time."""
        ids = self._input_ids
        files = sorted({file for fragment in fragments for file in fragment.files_of(ids) if _is_column_file(file)})
        if len(files) > 1 and in_object_store(self._uri):  # a local file takes 20 µs, which threads would make 100
            with ThreadPoolExecutor(_READERS, thread_name_prefix="plan") as pool:
                self._predecessors.update(zip(files, pool.map(self.predecessors, files), strict=True))

    def predecessors(self, file: str) -> Sequence[Predecessor]:
        """Return the files that an input's column file follows; none where that is not known."""
        if file not in self._predecessors:
            self._predecessors[file] = column_files.read_predecessors(self._uri, file)
        return self._predecessors[file]


class _CheckpointReader(_OldFiles):
    """See `leman_planner.checkpoint_migration.CheckpointReader`."""

    def __init__(self, resolved: ResolvedRequest, store: CheckpointStore, known: Mapping[str, FragmentRecord]) -> None:
        super().__init__(resolved)
        self._store = store
        self._known = known

    def record(self, key: str) -> FragmentRecord | None:
        return self._known[key] if key in self._known else read_record(self._store, key)


class _Archive(_OldFiles):
    """See `leman_planner.compacted_rows.Archive`."""

    def __init__(self, resolved: ResolvedRequest, store: CheckpointStore) -> None:
        super().__init__(resolved)
        self._resolved = resolved
        self._store = store
        self._records: dict[tuple[str, str], FragmentRecord] | None = None
        self._buffers: dict[str, bytes | None] = {}

    def record(self, status: FragmentStatus) -> FragmentRecord | None:
        """Return the record; None too where it is about another output column, or other inputs."""
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
        """Return row states from the file, or from the record that was stored with it."""
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
        """List the keys of fragment records, under any filter, for the request's version and those that are kept."""
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
                stored = unpack(self._store[keys.traced_key(part)])
                records |= {(record.file, record.fingerprint): record for record in stored}
        return records
