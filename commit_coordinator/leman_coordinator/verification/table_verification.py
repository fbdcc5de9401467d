"""Verify one table: metadata, files of its latest version, older files with a recorded digest, and checkpoints."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from leman._format import column_bindings
from leman._format.column_bindings import ColumnBinding
from leman._format.view_definitions import BASE_RECORD, RECORD_PREFIX, FailedNote
from leman_coordinator.lance_io import table_files
from leman_coordinator.lance_io.table_files import Committed, Notes, is_elsewhere, is_lemans_data_file, refresh_folder
from leman_coordinator.verification.verification_report import Finding, Flaw, Inspection, Subject
from leman_core.functions import binding
from leman_core.model import keys, view_metadata
from leman_core.model.garbage import StoredFile
from leman_core.model.service_errors import UNREADABLE, DataLoss, LemanError, NotFound
from leman_core.model.table import DataFile, Fragment, TableSnapshot
from leman_core.model.view import SCRATCH_PREFIX
from leman_core.storage import column_files, view_side_files
from leman_core.storage.checkpoint_records import FragmentRecord
from leman_core.storage.checkpoint_store import LanceCheckpointStore, checkpoint_root
from leman_core.storage.lance_tables import LanceTables
from leman_core.storage.locations import TABLE_ENDING, table_uri
from leman_core.storage.scan import check_row_ids
from leman_core.storage.storage_errors import error_text
from leman_core.storage.udf_registry import UdfRegistry
from leman_core.storage.view_side_files import REFRESH_FOLDER

_RESTORE = "restore it from a copy"
_FROM_IT = (
    ". Values that were computed from it since it was damaged stay as they are: give the functions of columns that "
    "read it another version and backfill them, and refresh views of the table with POLICY_FULL"
)


@dataclass(frozen=True, slots=True)
class InstalledFiles:
    """The data files of one table.

    A note records the size and digest of a committed file. A file without a note is not verifiable: another writer or
    Lance's compaction wrote it, or its note is gone. Such a file is checked only for existence and number of rows.
    """

    snapshot: TableSnapshot
    table: str
    #: Size and digest of committed files, by name.
    noted: Mapping[str, Committed]

    def things(self, after: str) -> Iterator[tuple[str, Inspection]]:
        """Check the files whose names sort after `after`, and yield each with its result, ordered by name."""
        installed = {file.path: (fragment, file) for fragment in self.snapshot.fragments for file in fragment.files}
        for name in sorted({*installed, *self.noted}):
            if name <= after:
                continue
            fragment, file = installed.get(name, (None, None))
            noted = self.noted.get(name)
            looked = self._unnoted(name, fragment, file) if noted is None else self._noted(name, noted, fragment, file)
            if looked is not None:
                yield name, looked

    def _noted(
        self, name: str, noted: Committed, fragment: Fragment | None, file: DataFile | None
    ) -> Inspection | None:
        try:
            problem = table_files.problem_of(self.snapshot.uri, name, noted)
        except NotFound:
            if fragment is None:  # a file of an older version, or one that was collected or never installed
                return None
            return self._flawed(name, Flaw.MISSING, "is missing", fragment, file, noted.size_bytes)
        except LemanError as error:
            problem = f"cannot be read ({error_text(error)})"
            return self._flawed(name, Flaw.UNREADABLE, problem, fragment, file, noted.size_bytes)
        if problem:
            return self._flawed(name, Flaw.DAMAGED, problem, fragment, file, noted.size_bytes)
        return Inspection(Subject.COLUMN_FILE, noted.size_bytes)

    def _unnoted(self, name: str, fragment: Fragment | None, file: DataFile | None) -> Inspection | None:
        if fragment is None:
            return None
        subject = Subject.COLUMN_FILE if is_lemans_data_file(name) else Subject.DATA_FILE
        try:
            rows = column_files.rows_of(self.snapshot.uri, name)
        except NotFound:
            if is_elsewhere(self.snapshot, fragment.fragment_id, name):
                return Inspection(subject, verifiable=False)
            return self._flawed(name, Flaw.MISSING, "is missing", fragment, file, 0)
        except LemanError as error:
            return self._flawed(name, Flaw.UNREADABLE, f"cannot be read ({error_text(error)})", fragment, file, 0)
        if rows != fragment.physical_rows:
            problem = f"has {rows} rows, its fragment has {fragment.physical_rows}"
            return self._flawed(name, Flaw.DAMAGED, problem, fragment, file, 0)
        return Inspection(subject, verifiable=False)

    def _flawed(
        self, name: str, flaw: Flaw, problem: str, fragment: Fragment | None, file: DataFile | None, size: int
    ) -> Inspection:
        ids = set(file.field_ids) if file is not None else set[int]()
        fields = [field for field in self.snapshot.fields if ids.intersection(field.field_ids)]
        path = f"{self.table}{TABLE_ENDING}/data/{name}"
        subject = Subject.COLUMN_FILE if is_lemans_data_file(name) else Subject.DATA_FILE
        computed = bool(fields) and all(column_bindings.COLUMN_ID in (field.arrow.metadata or {}) for field in fields)
        found = Finding(
            subject,
            flaw,
            path,
            f"{path} {problem}: {_remedy(computed=computed, is_view_file=name.startswith('view-'), old=file is None)}"
            f"{_FROM_IT if flaw is Flaw.DAMAGED and file is not None else ''}",
            self.table,
            tuple(field.name for field in fields),
            -1 if fragment is None else fragment.fragment_id,
            0 if fragment is None else fragment.live_rows,
        )
        return Inspection(subject, size, True, (found,))


def _remedy(*, computed: bool, is_view_file: bool, old: bool) -> str:
    if old:
        older = "only an older version may refer to it"
        return f"{older}. If one does, {_RESTORE}; otherwise garbage collection removes it"
    if computed:
        return (
            f"{_RESTORE}, or give the column's function another version (CatalogService.AlterColumns) and backfill it"
        )
    if is_view_file:
        return f"{_RESTORE}, or drop the view and create it again"
    return _RESTORE


_HARM = (
    "nothing is lost while the source still has that version; once that is cleaned up, the next refresh computes all "
    "rows. Refresh the view before that: a refresh after any change of the source writes a new record"
)


def verify_source_records(snapshot: TableSnapshot, table: str, after: str) -> Iterator[tuple[str, Inspection]]:
    """Check a view's records of its source that sort after `after`, and yield each with its result, ordered by name.

    They are all records in the view's folder, and the record that the view's latest version names, even if it is
    missing.
    """
    named = snapshot.metadata.get(BASE_RECORD.encode(), b"").decode()
    sizes = {f.name: f.size_bytes for f in refresh_folder(snapshot.uri) if f.name.startswith(RECORD_PREFIX)}
    for name in sorted({*sizes, named} - {""}):
        if name > after:
            yield name, _verify_source_record(snapshot, table, name, sizes.get(name, 0), is_named=name == named)


def _verify_source_record(snapshot: TableSnapshot, table: str, name: str, size: int, *, is_named: bool) -> Inspection:
    path = f"{table}{TABLE_ENDING}/{REFRESH_FOLDER}/{name}"
    try:
        content = view_side_files.side_files(snapshot.uri).read(name)
    except LemanError as error:
        flaw, what = Flaw.UNREADABLE, error.message
    else:
        if content is None and not is_named:  # it was collected after the listing
            return Inspection(Subject.SOURCE_RECORD)
        if content is not None and view_side_files.is_whole_source_record(name, content):
            return Inspection(Subject.SOURCE_RECORD, size)
        flaw, what = (Flaw.MISSING, "is missing") if content is None else (Flaw.DAMAGED, "is not what was written")
        what = f"{path} {what}: {_HARM if is_named else 'only older versions of the view may name it'}"
    found = Finding(Subject.SOURCE_RECORD, flaw, path, what, table, rows=snapshot.live_rows if is_named else 0)
    return Inspection(Subject.SOURCE_RECORD, size, True, (found,))


Things = Iterator[tuple[str, Inspection]]

_RECOMPUTED = "nothing is lost: its rows are computed again, and CommitService.CollectGarbage removes it"


def _name(thing: tuple[str, Inspection]) -> str:
    return thing[0]


class TableCheck:
    """The parts of a table's verification. Each checks the things that sort after `after`, and yields them in order.

    A refresh may compute in a hidden table, which the next refresh recreates if it is incomplete. So the missing parts
    of a hidden table are not reported as findings, but its damaged parts are.
    """

    def __init__(self, database: str, table: str) -> None:
        self._registry = UdfRegistry(database)
        self._table = table
        self._uri = table_uri(database, table)
        self._folder = f"{table}{TABLE_ENDING}"
        self._may_be_incomplete = table.startswith(SCRATCH_PREFIX)

    @cached_property
    def _snapshot(self) -> TableSnapshot | LemanError:
        try:
            return LanceTables().snapshot(self._uri)
        except LemanError as error:
            return error

    @cached_property
    def _notes(self) -> Notes:
        return table_files.read_notes(self._uri)

    def metadata(self, _: str, after: str) -> Things:
        """Check the table itself, the binding of each computed column, and the view's definition."""
        yield from ((name, looked) for name, looked in sorted(self._metadata(), key=_name) if name > after)

    def _metadata(self) -> Things:
        snapshot = self._snapshot
        if isinstance(snapshot, LemanError):
            if self._may_be_incomplete:
                yield "table", Inspection(Subject.TABLE, verifiable=False)
                return
            message = f"{snapshot.message}. Restore the newest file in _versions from a copy, or remove it"
            found = Finding(Subject.TABLE, Flaw.UNREADABLE, self._folder, message, self._table)
            yield "table", Inspection(Subject.TABLE, 0, True, (found,))
            return
        yield "table", Inspection(Subject.TABLE, verifiable=False, findings=self._row_ids(snapshot))
        for name, looked in self._bindings(snapshot):
            yield f"column {name}", looked
        view = self._view(snapshot)
        if view is not None:
            yield "view", view

    def _row_ids(self, snapshot: TableSnapshot) -> tuple[Finding, ...]:
        """Return the problems with row ids and deleted rows, ordered by fragment."""
        try:
            problems = check_row_ids(self._uri)
        except LemanError as error:
            return (self._about(Subject.TABLE, Flaw.UNREADABLE, error.message, snapshot),)
        rows = {fragment.fragment_id: fragment.live_rows for fragment in snapshot.fragments}
        return tuple(
            Finding(
                Subject.TABLE,
                _flaw(error),
                self._folder,
                error.message,
                self._table,
                (),
                number,
                rows.get(number, 0),
            )
            for number, error in problems.items()
        )

    def notes(self, _: str, after: str) -> Things:
        """Check the notes of committed files. All notes together count as one thing."""
        if after or not (self._notes.files or self._notes.damaged):
            return
        folder = f"{self._folder}/{table_files.FOLDER}"
        findings = tuple(
            Finding(
                Subject.NOTE,
                Flaw.DAMAGED,
                f"{folder}/{name}",
                f"{folder}/{name} is damaged ({problem}): the files that it names count as not verifiable. Restore it "
                "from a copy, or remove it",
                self._table,
            )
            for name, problem in sorted(self._notes.damaged.items())
        )
        yield "notes", Inspection(Subject.NOTE, self._notes.bytes_read, True, findings)

    def files(self, _: str, after: str) -> Things:
        """Check the files of the latest version, and noted files of other versions."""
        if not isinstance(self._snapshot, LemanError):
            for name, looked in InstalledFiles(self._snapshot, self._table, self._notes.files).things(after):
                if not (self._may_be_incomplete and any(found.flaw is Flaw.MISSING for found in looked.findings)):
                    yield name, looked

    def checkpoints(self, _: str, after: str) -> Things:
        """Check checkpoints and fragment records.

        Files that were moved aside as damaged, and unfinished files, are skipped, because nothing reads them.
        """
        store = LanceCheckpointStore(checkpoint_root(self._uri))
        for file in store.files():
            if file.name > after and file.key:
                with contextlib.suppress(KeyError):  # it was deleted after the listing
                    yield file.name, self._checkpoint(store, file)

    def source_records(self, _: str, after: str) -> Things:
        """Check a view's records of its source."""
        if not isinstance(self._snapshot, LemanError):
            yield from verify_source_records(self._snapshot, self._table, after)

    def _checkpoint(self, store: LanceCheckpointStore, file: StoredFile) -> Inspection:
        is_record = keys.parse_record_key(file.key) is not None
        subject = Subject.RECORD if is_record else Subject.CHECKPOINT
        root = checkpoint_root(self._uri)
        within = root.startswith(f"{self._uri}/")
        path = f"{self._folder}/{file.folder}/{file.name}" if within else f"{root}/{file.name}"
        try:
            batch = store.check_file(file.name)
        except DataLoss as error:
            message = f"{path} is damaged ({error.message}): {_RECOMPUTED}"
            return self._flawed(subject, Flaw.DAMAGED, path, file.size_bytes, message)
        except LemanError as error:
            return self._flawed(subject, Flaw.UNREADABLE, path, file.size_bytes, error.message)
        record = FragmentRecord.from_batch(batch) if is_record and batch.num_rows else None
        if record is None or not record.digest or record.file in self._notes.files:
            return Inspection(subject, file.size_bytes)
        return self._staged(record, path, file.size_bytes)

    def _staged(self, record: FragmentRecord, path: str, size: int) -> Inspection:
        """Check a fragment record together with its column file, which is not committed yet."""
        staged = table_files.Committed(record.size_bytes, record.digest)
        try:
            problem = table_files.problem_of(self._uri, record.file, staged)
        except NotFound:  # garbage collection removed the file: a record without its file is ignored
            return Inspection(Subject.RECORD, size)
        except LemanError as error:
            problem = f"cannot be read ({error_text(error)})"
        if not problem:
            return Inspection(Subject.RECORD, size + record.size_bytes)
        data = f"{self._folder}/data/{record.file}"
        return self._flawed(
            Subject.COLUMN_FILE, Flaw.DAMAGED, data, size, f"{data}, which {path} names, {problem}: {_RECOMPUTED}"
        )

    def _flawed(self, subject: Subject, flaw: Flaw, path: str, size: int, message: str) -> Inspection:
        return Inspection(subject, size, True, (Finding(subject, flaw, path, message, self._table),))

    def _bindings(self, snapshot: TableSnapshot) -> Things:
        for column in snapshot.fields:
            try:
                bound = binding.read(column.arrow)
            except UNREADABLE as error:
                found = self._about(Subject.COLUMN, _flaw(error), error.message, snapshot, column.name)
                yield column.name, Inspection(Subject.COLUMN, findings=(found,))
                continue
            if bound is not None:
                yield column.name, Inspection(Subject.COLUMN, findings=self._function(snapshot, column.name, bound))

    def _function(self, snapshot: TableSnapshot, column: str, bound: ColumnBinding) -> tuple[Finding, ...]:
        """Return a finding if the column's function is damaged or missing, so that the column cannot be computed."""
        try:
            if self._registry.find(bound.udf_name, bound.udf_version) is not None:
                return ()
            flaw, what = Flaw.MISSING, f"it is not registered. Register {bound.function} again"
        except DataLoss as error:
            flaw, what = Flaw.DAMAGED, error.message
        except LemanError as error:
            flaw, what = Flaw.UNREADABLE, f"{error.message}. Make its definition readable"
        message = f"Column {column} of {self._table} cannot be computed by its function {bound.function}: {what}"
        return (self._about(Subject.FUNCTION, flaw, message, snapshot, column),)

    def _view(self, snapshot: TableSnapshot) -> Inspection | None:
        try:
            definition = view_metadata.from_metadata(snapshot.metadata)
        except UNREADABLE as error:
            return Inspection(
                Subject.VIEW, 0, True, (self._about(Subject.VIEW, _flaw(error), error.message, snapshot),)
            )
        return (
            None if definition is None else Inspection(Subject.VIEW, findings=self._failed(snapshot, definition.failed))
        )

    def _failed(self, snapshot: TableSnapshot, note: FailedNote) -> tuple[Finding, ...]:
        """Return a finding if the list of a view's failed rows cannot be read."""
        try:
            if view_side_files.read_failed_rows(self._uri, note) is not None:
                return ()
            flaw, what = Flaw.DAMAGED, "is damaged or gone"
        except LemanError as error:
            flaw, what = Flaw.UNREADABLE, f"cannot be read ({error_text(error)})"
        path = f"{self._folder}/{REFRESH_FOLDER}/{note.file}"
        message = view_side_files.lost_failed_rows(self._table, note, what)
        return (Finding(Subject.VIEW, flaw, path, message, self._table, tuple(note.rows), -1, snapshot.live_rows),)

    def _about(self, subject: Subject, flaw: Flaw, what: str, snapshot: TableSnapshot, *columns: str) -> Finding:
        return Finding(subject, flaw, self._folder, what, self._table, columns, -1, snapshot.live_rows)


def _flaw(error: LemanError) -> Flaw:
    """Return the flaw that an error indicates. Data that another release stored is unreadable, not damaged."""
    return Flaw.DAMAGED if isinstance(error, DataLoss) else Flaw.UNREADABLE
