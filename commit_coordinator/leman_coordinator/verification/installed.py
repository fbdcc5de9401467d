"""The verification of data files: those of a table's latest version, and others that were noted at their commit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from leman_coordinator.lance_io import committed_files
from leman_coordinator.lance_io.committed_files import Committed
from leman_coordinator.lance_io.stored_files import is_elsewhere, is_lemans_data_file
from leman_coordinator.verification.report import Finding, Flaw, Looked, Subject
from leman_core.functions import binding
from leman_core.model.errors import LemanError, NotFound
from leman_core.model.table import DataFile, Fragment, TableSnapshot
from leman_core.storage import column_files
from leman_core.storage.locations import TABLE_ENDING
from leman_core.storage.storage_errors import said

_RESTORE = "restore it from a copy"
_FROM_IT = (
    ". What was computed from it since it was damaged stays as it is: give the functions of columns that read it "
    "another version and backfill them, and refresh views of the table with POLICY_FULL"
)


@dataclass(frozen=True, slots=True)
class InstalledFiles:
    """The data files of one table.

    Files without a note are not verifiable: others wrote them, Lance's compaction did, or the note is gone. For those
    it is checked that they are there and have their rows.
    """

    snapshot: TableSnapshot
    table: str
    #: What committed files hold, by name.
    noted: Mapping[str, Committed]

    def things(self, after: str) -> Iterator[tuple[str, Looked]]:
        """Check the files after a name, and yield them by name."""
        installed = {file.path: (fragment, file) for fragment in self.snapshot.fragments for file in fragment.files}
        for name in sorted({*installed, *self.noted}):
            if name <= after:
                continue
            fragment, file = installed.get(name, (None, None))
            noted = self.noted.get(name)
            looked = self._unnoted(name, fragment, file) if noted is None else self._noted(name, noted, fragment, file)
            if looked is not None:
                yield name, looked

    def _noted(self, name: str, noted: Committed, fragment: Fragment | None, file: DataFile | None) -> Looked | None:
        try:
            problem = committed_files.problem_of(self.snapshot.uri, name, noted)
        except NotFound:
            if fragment is None:  # of an older version, and collected; or never installed
                return None
            return self._flawed(name, Flaw.MISSING, "is missing", fragment, file, noted.size_bytes)
        except LemanError as error:
            problem = f"cannot be read ({said(error)})"
            return self._flawed(name, Flaw.UNREADABLE, problem, fragment, file, noted.size_bytes)
        if problem:
            return self._flawed(name, Flaw.DAMAGED, problem, fragment, file, noted.size_bytes)
        return Looked(Subject.COLUMN_FILE, noted.size_bytes)

    def _unnoted(self, name: str, fragment: Fragment | None, file: DataFile | None) -> Looked | None:
        if fragment is None:
            return None
        subject = Subject.COLUMN_FILE if is_lemans_data_file(name) else Subject.DATA_FILE
        try:
            rows = column_files.rows_of(self.snapshot.uri, name)
        except NotFound:
            if is_elsewhere(self.snapshot, fragment.fragment_id, name):
                return Looked(subject, verifiable=False)
            return self._flawed(name, Flaw.MISSING, "is missing", fragment, file, 0)
        except LemanError as error:
            return self._flawed(name, Flaw.UNREADABLE, f"cannot be read ({said(error)})", fragment, file, 0)
        if rows != fragment.physical_rows:
            problem = f"has {rows} rows, its fragment has {fragment.physical_rows}"
            return self._flawed(name, Flaw.DAMAGED, problem, fragment, file, 0)
        return Looked(subject, verifiable=False)

    def _flawed(
        self, name: str, flaw: Flaw, problem: str, fragment: Fragment | None, file: DataFile | None, size: int
    ) -> Looked:
        ids = set(file.field_ids) if file is not None else set[int]()
        fields = [field for field in self.snapshot.fields if ids.intersection(field.field_ids)]
        path = f"{self.table}{TABLE_ENDING}/data/{name}"
        subject = Subject.COLUMN_FILE if is_lemans_data_file(name) else Subject.DATA_FILE
        computed = bool(fields) and all(binding.COLUMN_ID in (field.arrow.metadata or {}) for field in fields)
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
        return Looked(subject, size, True, (found,))


def _remedy(*, computed: bool, is_view_file: bool, old: bool) -> str:
    if old:
        older = "the latest version does not refer to it, an older one may, unless its commit was refused"
        return f"{older}. {_RESTORE.capitalize()} in the former case; garbage collection removes it in the latter"
    if computed:
        return (
            f"{_RESTORE}, or give the column's function another version (CatalogService.AlterColumns) and backfill it"
        )
    if is_view_file:
        return f"{_RESTORE}, or drop the view and create it again"
    return _RESTORE
