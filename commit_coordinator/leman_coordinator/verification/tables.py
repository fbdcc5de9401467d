"""The verification of one table: its metadata, the files of its latest version, and the files beside them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import cached_property

from leman_coordinator.lance_io import committed_files
from leman_coordinator.lance_io.committed_files import Notes
from leman_coordinator.verification import source_records
from leman_coordinator.verification.installed import InstalledFiles
from leman_coordinator.verification.report import Finding, Flaw, Looked, Subject
from leman_core.functions import binding
from leman_core.model import keys, view_metadata
from leman_core.model.errors import UNREADABLE, DataLoss, LemanError, NotFound
from leman_core.model.garbage import StoredFile
from leman_core.model.table import TableSnapshot
from leman_core.model.udf import ColumnBinding
from leman_core.model.view import SCRATCH_PREFIX, FailedNote
from leman_core.storage.checkpoints import FragmentRecord, LanceCheckpointStore
from leman_core.storage.checkpoints.lance_store import checkpoint_root
from leman_core.storage.locations import TABLE_ENDING, table_uri
from leman_core.storage.row_ids import check_row_ids
from leman_core.storage.storage_errors import said
from leman_core.storage.tables import LanceTables
from leman_core.storage.udf_registry import UdfRegistry
from leman_core.storage.views import failed_rows_file as view_failed
from leman_core.storage.views.refresh_folder import REFRESH_FOLDER

Things = Iterator[tuple[str, Looked]]

_RECOMPUTED = "nothing is lost: its rows are computed again, and CommitService.CollectGarbage removes it"


def _name(thing: tuple[str, Looked]) -> str:
    return thing[0]


class TableCheck:
    """The parts of a table's verification; each yields the things that come after a name, by name.

    A hidden table in which a refresh computes may be incomplete: whoever refreshes the view next makes it anew then.
    Only what is there and wrong is a finding.
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
        return committed_files.read(self._uri)

    def metadata(self, _: str, after: str) -> Things:
        """Check the table itself, the binding of each computed column, and the view's definition."""
        yield from ((name, looked) for name, looked in sorted(self._metadata(), key=_name) if name > after)

    def _metadata(self) -> Things:
        snapshot = self._snapshot
        if isinstance(snapshot, LemanError):
            if self._may_be_incomplete:
                yield "table", Looked(Subject.TABLE, verifiable=False)
                return
            message = f"{snapshot.message}. Restore the newest file in _versions from a copy, or remove it"
            found = Finding(Subject.TABLE, Flaw.UNREADABLE, self._folder, message, self._table)
            yield "table", Looked(Subject.TABLE, 0, True, (found,))
            return
        yield "table", Looked(Subject.TABLE, verifiable=False, findings=self._row_ids(snapshot))
        for name, looked in self._bindings(snapshot):
            yield f"column {name}", looked
        view = self._view(snapshot)
        if view is not None:
            yield "view", view

    def _row_ids(self, snapshot: TableSnapshot) -> tuple[Finding, ...]:
        """Return what keeps the rows of a fragment from being told apart, by fragment."""
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
        """Check the notes of committed files, as one thing."""
        if after or not (self._notes.files or self._notes.damaged):
            return
        folder = f"{self._folder}/{committed_files.FOLDER}"
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
        yield "notes", Looked(Subject.NOTE, self._notes.bytes_read, True, findings)

    def files(self, _: str, after: str) -> Things:
        """Check the files of the latest version, and those of others that are noted."""
        if not isinstance(self._snapshot, LemanError):
            for name, looked in InstalledFiles(self._snapshot, self._table, self._notes.files).things(after):
                if not (self._may_be_incomplete and any(found.flaw is Flaw.MISSING for found in looked.findings)):
                    yield name, looked

    def checkpoints(self, _: str, after: str) -> Things:
        """Check checkpoints and fragment records.

        Those that were set aside as damaged, and unfinished ones, are left out: nothing reads them.
        """
        store = LanceCheckpointStore(checkpoint_root(self._uri))
        for file in store.files():
            if file.name > after and file.key:
                with contextlib.suppress(KeyError):  # gone since it was listed
                    yield file.name, self._checkpoint(store, file)

    def source_records(self, _: str, after: str) -> Things:
        """Check what a view keeps of its source."""
        if not isinstance(self._snapshot, LemanError):
            yield from source_records.things(self._snapshot, self._table, after)

    def _checkpoint(self, store: LanceCheckpointStore, file: StoredFile) -> Looked:
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
            return Looked(subject, file.size_bytes)
        return self._staged(record, path, file.size_bytes)

    def _staged(self, record: FragmentRecord, path: str, size: int) -> Looked:
        """Check a record whose column file is not committed yet, with that file."""
        staged = committed_files.Committed(record.size_bytes, record.digest)
        try:
            problem = committed_files.problem_of(self._uri, record.file, staged)
        except NotFound:  # collected: a record of a file that is gone is not believed
            return Looked(Subject.RECORD, size)
        except LemanError as error:
            problem = f"cannot be read ({said(error)})"
        if not problem:
            return Looked(Subject.RECORD, size + record.size_bytes)
        data = f"{self._folder}/data/{record.file}"
        return self._flawed(
            Subject.COLUMN_FILE, Flaw.DAMAGED, data, size, f"{data}, which {path} names, {problem}: {_RECOMPUTED}"
        )

    def _flawed(self, subject: Subject, flaw: Flaw, path: str, size: int, message: str) -> Looked:
        return Looked(subject, size, True, (Finding(subject, flaw, path, message, self._table),))

    def _bindings(self, snapshot: TableSnapshot) -> Things:
        for column in snapshot.fields:
            try:
                bound = binding.read(column.arrow)
            except UNREADABLE as error:
                found = self._about(Subject.COLUMN, _flaw(error), error.message, snapshot, column.name)
                yield column.name, Looked(Subject.COLUMN, findings=(found,))
                continue
            if bound is not None:
                yield column.name, Looked(Subject.COLUMN, findings=self._function(snapshot, column.name, bound))

    def _function(self, snapshot: TableSnapshot, column: str, bound: ColumnBinding) -> tuple[Finding, ...]:
        """Return what keeps a column from being computed: its function is damaged, or gone."""
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

    def _view(self, snapshot: TableSnapshot) -> Looked | None:
        try:
            definition = view_metadata.from_metadata(snapshot.metadata)
        except UNREADABLE as error:
            return Looked(Subject.VIEW, 0, True, (self._about(Subject.VIEW, _flaw(error), error.message, snapshot),))
        return None if definition is None else Looked(Subject.VIEW, findings=self._failed(snapshot, definition.failed))

    def _failed(self, snapshot: TableSnapshot, note: FailedNote) -> tuple[Finding, ...]:
        """Return what keeps the list of a view's failed rows from being read."""
        try:
            if view_failed.read(self._uri, note) is not None:
                return ()
            flaw, what = Flaw.DAMAGED, "is damaged or gone"
        except LemanError as error:
            flaw, what = Flaw.UNREADABLE, f"cannot be read ({said(error)})"
        path = f"{self._folder}/{REFRESH_FOLDER}/{note.file}"
        message = view_failed.lost(self._table, note, what)
        return (Finding(Subject.VIEW, flaw, path, message, self._table, tuple(note.rows), -1, snapshot.live_rows),)

    def _about(self, subject: Subject, flaw: Flaw, what: str, snapshot: TableSnapshot, *columns: str) -> Finding:
        return Finding(subject, flaw, self._folder, what, self._table, columns, -1, snapshot.live_rows)


def _flaw(error: LemanError) -> Flaw:
    """Return the flaw of what cannot be used: what another release stored is whole."""
    return Flaw.DAMAGED if isinstance(error, DataLoss) else Flaw.UNREADABLE
