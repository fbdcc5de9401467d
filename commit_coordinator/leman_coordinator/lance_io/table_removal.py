"""Remove and rename tables and views, check what refers to them, and write notes for repeated requests.

A caller whose answer was lost repeats its request, perhaps to another coordinator. By then the name may belong to
another table, which must not be dropped. So a request keeps a note in its database, at `<database>/_leman/drops/<digest
of place and request id>.json`. Before the removal it writes the table's incarnation, which distinguishes the table from
later ones of its name; afterwards it writes that the table was removed. A table that was created without Leman has no
incarnation, and gets one before its removal. Notes are kept for a day.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import structlog

from leman._format.stored_documents import content_digest
from leman._format.view_definitions import is_view
from leman_coordinator.lance_io.row_commits import first_version, table_exists_error
from leman_coordinator.lance_io.table_handle import CommitConflict, CommitUnclear, commit_outcomes
from leman_core.model.garbage import DAY
from leman_core.model.service_errors import UNREADABLE, FailedPrecondition, LemanError, NotFound
from leman_core.model.view import SCRATCH_PREFIX
from leman_core.process.crash_points import crash_point
from leman_core.server.request_messages import check_same_request
from leman_core.storage import scratch_table
from leman_core.storage.checkpoint_store import remove_checkpoints_elsewhere
from leman_core.storage.documents import DocumentFolder
from leman_core.storage.filesystems import delete_folder, filesystem_of
from leman_core.storage.lance_tables import INCARNATION_KEY, LanceTables, incarnation_at, is_other_table, open_table
from leman_core.storage.locations import MOVED_PREFIX, OWN_FOLDER, TABLE_ENDING, in_object_store, is_link, table_uri
from leman_core.storage.storage_errors import error_text, storage_failed
from leman_core.storage.stored_jobs import open_jobs
from leman_core.storage.view_data_files import definition_in

#: Prefix of a folder in `OWN_FOLDER` that was a table.
_DROPPED = "dropped-"
#: Prefix of a folder that a drop moved, found to be another table than expected, and could not move back because its
#: name was taken. `MOVED_PREFIX`, in contrast, marks a folder that a drop is still checking, and that other drops leave
#: alone.
_SET_ASIDE = "set-aside-"
#: Seconds before each retry to remove remaining files, because workers of the table's jobs may still write there.
_PAUSES = (0.2, 1.0, 3.0)

_log = structlog.get_logger(__name__)


def remove_folder(uri: str, incarnation: str) -> None:
    """Remove a table's folder. If this raises an error, the table still exists.

    A local folder is first renamed, in one step. Then the name is free, and new data under it is safe. In a store, the
    versions are deleted first: without them the other files are not a table. If files then cannot be removed, that is
    only logged, as the table itself is gone. For a link, only the link is removed, not its target.

    Args:
        incarnation: The expected incarnation, or "" if unknown. A process that was frozen may wake up after others have
            dropped the table and created a new one. If a local folder turns out to have another incarnation, it is
            moved back.

    Raises:
        FileNotFoundError: The folder does not exist, or belongs to another table.
        OSError: The folder cannot be removed.
        LemanError: The table's incarnation cannot be read.
    """
    system, path = filesystem_of(uri)
    if is_link(uri):
        Path(path).unlink()
        return
    moved = None if in_object_store(uri) else _moved(Path(path))
    if moved is not None:
        _check_meant(moved, Path(path), incarnation)
        moved.rename(moved.with_name(moved.name.replace(MOVED_PREFIX, _DROPPED)))
        crash_point("coordinator.table_removed")
        _sweep(moved.parent)
        return
    delete_folder(system, f"{path}/_versions")
    crash_point("coordinator.table_removed")
    for pause in (*_PAUSES, None):
        try:
            delete_folder(system, path)
        except FileNotFoundError:
            return
        except OSError as error:
            if pause is None:
                _log.warning("files of a dropped table are left", uri=uri, why=str(error))
                return
            time.sleep(pause)
        else:
            return


def _moved(folder: Path) -> Path | None:
    """Move a table's folder into `OWN_FOLDER`, and return its new path, or None if one rename cannot do that."""
    moved = folder.parent / OWN_FOLDER / f"{MOVED_PREFIX}{uuid.uuid4().hex}"
    try:
        moved.parent.mkdir(exist_ok=True)
        folder.rename(moved)
    except FileNotFoundError:
        raise
    except OSError as error:
        if error.errno in (errno.EXDEV, errno.EBUSY, errno.ENOSPC, errno.EDQUOT):
            return None
        raise
    return moved


def _check_meant(moved: Path, folder: Path, incarnation: str) -> None:
    """If a moved folder is not that of the expected table, move it back and raise FileNotFoundError.

    A folder without versions belongs to a table that is being created.
    """
    if not incarnation:
        return
    try:
        if incarnation_at(str(moved)) is not None and not is_other_table(str(moved), incarnation):
            return
    except LemanError:
        _put_back(moved, folder)
        raise
    _put_back(moved, folder)
    raise FileNotFoundError(errno.ENOENT, "another table has its name", str(folder))


def _put_back(moved: Path, folder: Path) -> None:
    try:
        moved.rename(folder)
    except OSError as error:  # another table has the name by now, or a writer has created a file under it
        aside = moved.with_name(moved.name.replace(MOVED_PREFIX, _SET_ASIDE))
        moved.rename(aside)
        _log.error("a table is set aside: it has lost its name", table=str(folder), path=str(aside), why=str(error))


def _sweep(own: Path) -> None:
    """Remove dropped folders, including those of interrupted drops.

    Folders that another process is still checking stay for a day.
    """
    looked_at = (moved for moved in own.glob(f"{MOVED_PREFIX}*") if moved.stat().st_ctime < time.time() - DAY)
    for dropped in (*own.glob(f"{_DROPPED}*"), *looked_at):
        shutil.rmtree(dropped, ignore_errors=True)
        if dropped.exists():
            _log.warning("files of a dropped table are left", path=str(dropped))


_SCRATCH_TABLE = SCRATCH_PREFIX + "{}_[0-9a-f]{{16}}"


def check_view_drop(database: str, name: str, *, force: bool) -> None:
    """Check that a view may be dropped.

    Raises:
        NotFound: TABLE_NOT_FOUND – the view does not exist.
        FailedPrecondition: NOT_A_VIEW – it is an ordinary table; VIEW_IN_USE – it is the source of other views, and
            `force` is not given.
    """
    tables = LanceTables()
    if not is_view(tables.snapshot(table_uri(database, name)).metadata):
        raise FailedPrecondition(
            "NOT_A_VIEW", f"Table '{name}' is not a materialized view, and is not dropped", table=name
        )
    above = [] if force else views_on(tables, database, name)
    if above:
        names = ", ".join(f"'{view}'" for view in above)
        raise FailedPrecondition(
            "VIEW_IN_USE",
            f"View '{name}' is the source of {names}: drop these first, or force it. They then "
            "keep their rows and cannot be refreshed any more",
            table=name,
            views=", ".join(above),
        )


def views_on(tables: LanceTables, database: str, name: str) -> list[str]:
    """Return the names of the database's views that read the table."""
    source = table_uri(database, name)
    found = []
    for other in tables.list_tables(database):
        try:
            definition = definition_in(tables.snapshot(table_uri(database, other)))
        except (NotFound, *UNREADABLE):  # the view was dropped meanwhile, or is damaged and can only be dropped
            continue
        if definition is not None and definition.source_uri == source:
            found.append(other)
    return found


def drop_view(database: str, name: str, incarnation: str = "") -> None:
    """Remove a view, after its scratch tables. After an interruption, the view exists with all its rows, or not at all.

    Args:
        incarnation: The expected incarnation, or "" for any. A view with another one stays.

    Raises:
        Unavailable: STORE_UNAVAILABLE – the storage cannot be used now.
        LemanError: raised by `is_another`.
    """
    uri = table_uri(database, name)
    if incarnation and is_other_table(uri, incarnation):
        return
    pattern = re.compile(_SCRATCH_TABLE.format(re.escape(name)))
    for scratch in scratch_table.scratch_tables(database, pattern):
        scratch_table.drop(scratch)
    _remove(uri, incarnation, "view")


#: Config of a table with the id and the digest of the request that renamed it.
RENAMED_BY_KEY = "leman.renamed_by"


def check_table_drop(uri: str, *, force: bool) -> None:
    """Check that a table may be dropped or renamed.

    Raises:
        NotFound: TABLE_NOT_FOUND.
        FailedPrecondition: IS_A_VIEW; TABLE_IN_USE – views read it, or its jobs have not ended, and `force` is not
            given.
        LemanError: raised by `open_table`.
    """
    database, _, name = uri.rpartition("/")
    name = name.removesuffix(TABLE_ENDING)
    table = open_table(uri)
    if is_view(table.schema.metadata or {}):
        raise FailedPrecondition("IS_A_VIEW", f"'{name}' is a view, not a table", table=name)
    if force:
        return
    views = views_on(LanceTables(), database, name)
    incarnation = table.config().get(INCARNATION_KEY, "")
    # A paused job of an earlier table with this name is no obstacle: it fails when it is resumed.
    jobs = [job.job_id for job in open_jobs(uri) if job.incarnation in ("", incarnation)]
    if views or jobs:
        users = [f"views {', '.join(views)}"] * bool(views) + [f"jobs {', '.join(jobs)}"] * bool(jobs)
        raise FailedPrecondition(
            "TABLE_IN_USE",
            f"Table '{name}' is used by {' and '.join(users)}: drop or end these first, or force it. Views "
            "then keep their rows and cannot be refreshed any more, and running jobs fail",
            table=name,
            views=", ".join(views),
            jobs=", ".join(jobs),
        )


def remove_table(uri: str, incarnation: str = "") -> None:
    """Remove a table. After an interruption, the table exists with all its rows, or not at all.

    Args:
        incarnation: The expected incarnation, or "" for any. A table with another one stays.

    Raises:
        LemanError: see `storage_failed` and `is_another`.
    """
    if not (incarnation and is_other_table(uri, incarnation)):
        _remove(uri, incarnation, "table")


def _remove(uri: str, incarnation: str, what: str) -> None:
    try:
        remove_checkpoints_elsewhere(uri)  # if that fails, the table still exists
        remove_folder(uri, incarnation)
    except FileNotFoundError:
        return
    except OSError as error:
        raise storage_failed(error, f"The {what} {uri} cannot be removed: {error}", uri) from None


def check_renames(uri: str) -> None:
    """Check that a table's storage can rename it in one step.

    Raises:
        FailedPrecondition: RENAME_NOT_SUPPORTED – it is in an object store.
    """
    if in_object_store(uri):
        raise FailedPrecondition(
            "RENAME_NOT_SUPPORTED",
            f"{uri} is in an object store, which cannot rename in one step: make a table of the new name, and append "
            "the rows of this one",
            uri=uri,
        )


def renamed_version(new_uri: str, request_id: str, body: str) -> int:
    """Return the version in which this request renamed the table, or 0 if it did not.

    Raises:
        AlreadyExists: REQUEST_ID_REUSED.
        LemanError: raised by `open_table`, except for a missing table.
    """
    with contextlib.suppress(NotFound):  # another table may have the old name now
        dataset = open_table(new_uri)
        known, _, its_body = str(dataset.config().get(RENAMED_BY_KEY, "")).rpartition(" ")
        if known == request_id:
            check_same_request(request_id, its_body, body)
            by = f"{request_id} {its_body}"
            return first_version(
                new_uri, int(dataset.version), lambda past: past.config().get(RENAMED_BY_KEY, "") == by
            )
    return 0


def rename_table(uri: str, new_uri: str, request_id: str, body: str) -> int:
    """Rename a table of a file system, and return its version.

    Raises:
        AlreadyExists: TABLE_EXISTS.
        CommitConflict: Another writer committed first.
        CommitUnclear: The request may have been recorded.
        LemanError: see `open_table`, `commit_outcomes` and `storage_failed`.
    """
    if os.path.lexists(new_uri):  # a link that leads nowhere is a name, too
        raise table_exists_error(new_uri)
    dataset = open_table(uri)
    with commit_outcomes(uri):
        dataset.update_config({RENAMED_BY_KEY: f"{request_id} {body}"})
    crash_point("coordinator.before_rename")
    try:
        Path(uri).rename(new_uri)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise table_exists_error(new_uri) from None
        raise storage_failed(error, f"The table {uri} cannot be renamed: {error}", uri) from None
    return int(dataset.version)


_FOLDER = "drops"


def drop_once(uri: str, request_id: str, check: Callable[[], None], remove: Callable[[str], None]) -> None:
    """Remove a table, unless an earlier call of this request did. A later table of that name is kept.

    Args:
        check: Raises an error if the table may not be removed.
        remove: Called with the incarnation of the table, or "" if it has none.

    Raises:
        LemanError: raised by `check` and `remove`; see also `open_table` and `storage_failed`.
    """
    incarnation = incarnation_at(uri)
    if not _is_done(uri, request_id, incarnation):
        check()
        about = incarnation or _given_incarnation(uri)
        _write(uri, request_id, about, removed=False)
        remove(about)
        _write(uri, request_id, about, removed=True)


def _is_done(uri: str, request_id: str, incarnation: str | None) -> bool:
    """Return whether a request has removed its table: its note says so, or the noted table is missing or replaced.

    Args:
        incarnation: That of the existing table, "" if it has none, or None if there is no table.

    Raises the errors of `storage_failed`.
    """
    content = _notes(uri).read(_note_name(uri, request_id))
    try:
        note = {} if content is None else json.loads(content)
        noted, removed = note["incarnation"], note.get("removed", False)  # earlier releases do not write `removed`
    except (ValueError, KeyError, TypeError, AttributeError):
        return False  # the note is incomplete, so its writer did not get as far as the removal
    return bool(removed) or incarnation is None or (bool(noted) and incarnation != noted)


def _given_incarnation(uri: str) -> str:
    """Return a table's incarnation. Give it one if it has none.

    Return "" if it cannot get one, because the disk is full, or because only a link to the table is removed.
    """
    if is_link(uri):
        return ""
    try:
        table = open_table(uri)
        if not table.config().get(INCARNATION_KEY):
            with commit_outcomes(uri):
                table.update_config({INCARNATION_KEY: uuid.uuid4().hex})
        return incarnation_at(uri) or ""  # another process may have given it one meanwhile
    except (LemanError, CommitConflict, CommitUnclear) as error:
        _log.warning("a dropped table gets no incarnation", uri=uri, why=str(error))
        return ""


def _write(uri: str, request_id: str, incarnation: str, *, removed: bool) -> None:
    """Write a note of the table that a request is about to remove, or has removed.

    If the note cannot be written, for example on a full disk, the table is removed anyway. Then only the coordinator's
    memory can answer the repeated request.
    """
    notes = _notes(uri)
    try:
        notes.put(_note_name(uri, request_id), json.dumps({"incarnation": incarnation, "removed": removed}).encode())
        if not removed:
            old = (note for note in notes.entries() if note.is_file and 0 < note.modified < time.time() - DAY)
            notes.delete(*(note.name for note in old))
            notes.delete_unfinished()
    except LemanError as error:
        _log.warning("it is not noted which table is dropped", uri=uri, why=error_text(error))


def _notes(uri: str) -> DocumentFolder:
    return DocumentFolder(f"{uri.rpartition('/')[0]}/{OWN_FOLDER}/{_FOLDER}", f"What was dropped of {uri}")


def _note_name(uri: str, request_id: str) -> str:
    return content_digest(f"{uri}\n{request_id}".encode()) + ".json"
