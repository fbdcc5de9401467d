"""The verification of source records: a view's notes of the source versions that it was right for."""

from __future__ import annotations

from collections.abc import Iterator

from leman_coordinator.lance_io.stored_files import refresh_folder
from leman_coordinator.verification.report import Finding, Flaw, Looked, Subject
from leman_core.model.errors import LemanError
from leman_core.model.table import TableSnapshot
from leman_core.model.view_metadata import BASE_RECORD, RECORD_PREFIX
from leman_core.storage.locations import TABLE_ENDING
from leman_core.storage.views import source_records
from leman_core.storage.views.refresh_folder import REFRESH_FOLDER

_HARM = (
    "nothing is lost while the source still has that version; once that is cleaned up, the next refresh computes all "
    "rows. Refresh the view before: a refresh after any change of the source writes a new record"
)


def things(snapshot: TableSnapshot, table: str, after: str) -> Iterator[tuple[str, Looked]]:
    """Check the records after a name, and yield them by name.

    They are those in the folder, and the one that the latest version of the view names.
    """
    named = snapshot.metadata.get(BASE_RECORD.encode(), b"").decode()
    sizes = {f.name: f.size_bytes for f in refresh_folder(snapshot.uri) if f.name.startswith(RECORD_PREFIX)}
    for name in sorted({*sizes, named} - {""}):
        if name > after:
            yield name, _looked(snapshot, table, name, sizes.get(name, 0), is_named=name == named)


def _looked(snapshot: TableSnapshot, table: str, name: str, size: int, *, is_named: bool) -> Looked:
    path = f"{table}{TABLE_ENDING}/{REFRESH_FOLDER}/{name}"
    try:
        content = source_records.content_of(snapshot.uri, name)
    except LemanError as error:
        flaw, what = Flaw.UNREADABLE, error.message
    else:
        if content is None and not is_named:  # collected since it was listed
            return Looked(Subject.SOURCE_RECORD)
        if content is not None and source_records.is_whole(name, content):
            return Looked(Subject.SOURCE_RECORD, size)
        flaw, what = (Flaw.MISSING, "is missing") if content is None else (Flaw.DAMAGED, "is not what was written")
        what = f"{path} {what}: {_HARM if is_named else 'only older versions of the view may name it'}"
    found = Finding(Subject.SOURCE_RECORD, flaw, path, what, table, rows=snapshot.live_rows if is_named else 0)
    return Looked(Subject.SOURCE_RECORD, size, True, (found,))
