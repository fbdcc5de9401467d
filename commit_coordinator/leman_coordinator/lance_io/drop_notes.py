"""Which table a request to drop one is about, for when the same request comes again.

A caller whose answer was lost sends the request again, perhaps to another coordinator, or to one that was started anew.
By then another table may have the name, which nobody asked to drop. So a request notes in its database which table it
is about before it removes that, and afterwards that it has: `<database>/_leman/drops/<digest of place and request
id>.json`. A table without an incarnation, which Lance made, gets one for that. Notes are kept for a day.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
import uuid
from collections.abc import Callable

import pyarrow.fs as pafs
import structlog

from leman_coordinator.lance_io.commit_outcomes import CommitConflict, CommitUnclear, commit_outcomes
from leman_core.model.errors import LemanError
from leman_core.model.garbage import DAY
from leman_core.storage import whole_files
from leman_core.storage.filesystems import filesystem_of
from leman_core.storage.incarnations import incarnation_at
from leman_core.storage.locations import OWN_FOLDER, is_link
from leman_core.storage.storage_errors import in_use
from leman_core.storage.tables import INCARNATION_KEY, open_table

_FOLDER = "drops"

_log = structlog.get_logger(__name__)


def once(uri: str, request_id: str, check: Callable[[], None], remove: Callable[[str], None]) -> None:
    """Have a table removed, unless this very request has done so: what has the name since then stays.

    Args:
        check: raises where it may not be removed.
        remove: is given the incarnation of the table; empty: it has none.

    Raises:
        LemanError: what `check` and `remove` raise, or `open_table` and `storage_errors.failed` give.
    """
    incarnation = incarnation_at(uri)
    if not _is_done(uri, request_id, incarnation):
        check()
        about = incarnation or _given_incarnation(uri)
        _write(uri, request_id, about, removed=False)
        remove(about)
        _write(uri, request_id, about, removed=True)


def _is_done(uri: str, request_id: str, incarnation: str | None) -> bool:
    """Tell whether a request has removed its table: it noted so, or noted one, and there is none now, or another one.

    Args:
        incarnation: of the table that is there now; empty: it has none; None: there is no table.

    Raises:
        LemanError: what `storage_errors.failed` gives.
    """
    system, path = _note_of(uri, request_id)
    try:
        with in_use("What was dropped", uri), system.open_input_stream(path) as stream:
            note = json.loads(stream.readall())
            noted, removed = note["incarnation"], note.get("removed", False)  # which earlier releases do not write
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
        return False  # a part of a note is of who did not come to remove
    return bool(removed) or incarnation is None or (bool(noted) and incarnation != noted)


def _given_incarnation(uri: str) -> str:
    """Give a table its incarnation, unless it has got one since, which a job may know; return the one that it has.

    Empty: it cannot be written to, as a disk is full, or is to stay as it is, as only a link to it goes.
    """
    if is_link(uri):
        return ""
    try:
        table = open_table(uri)
        if not table.config().get(INCARNATION_KEY):
            with commit_outcomes(uri):
                table.update_config({INCARNATION_KEY: uuid.uuid4().hex})
        return incarnation_at(uri) or ""  # somebody may have given it another one at the same time
    except (LemanError, CommitConflict, CommitUnclear) as error:
        _log.warning("a table that is dropped cannot be told from others", uri=uri, why=str(error))
        return ""


def _write(uri: str, request_id: str, incarnation: str, *, removed: bool) -> None:
    """Note which table a request is about to remove, or has removed.

    Where a note cannot be written, as a disk is full, the table goes all the same: then the coordinator's memory alone
    knows of the request.
    """
    system, path = _note_of(uri, request_id)
    folder = path.rpartition("/")[0]
    try:
        if isinstance(system, pafs.LocalFileSystem):
            system.create_dir(folder)
        whole_files.put(system, path, json.dumps({"incarnation": incarnation, "removed": removed}).encode())
        if removed:
            return
        for note in system.get_file_info(pafs.FileSelector(folder, allow_not_found=True)):
            if note.is_file and note.mtime is not None and note.mtime.timestamp() < time.time() - DAY:
                with contextlib.suppress(FileNotFoundError):
                    system.delete_file(note.path)
    except OSError as error:
        _log.warning("it is not noted which table is dropped", uri=uri, why=str(error))


def _note_of(uri: str, request_id: str) -> tuple[pafs.FileSystem, str]:
    database = uri.rpartition("/")[0]
    digest = hashlib.sha256(f"{uri}\n{request_id}".encode()).hexdigest()[:32]
    return filesystem_of(f"{database}/{OWN_FOLDER}/{_FOLDER}/{digest}.json")
