"""Tables and views that are removed or renamed: their folders, what refers to them, and notes for repeated requests.

The folder of a table or view that goes: it is there with all its rows, or no table any more.

The removal of views, with the scratch tables in which their refreshes compute.

Tables that go, or get another name: what refers to them, and the step itself.

Which table a request to drop one is about, for when the same request comes again.

A caller whose answer was lost sends the request again, perhaps to another coordinator, or to one that was restarted.
By then another table may have the name, which no one asked to drop. So a request notes in its database which table it
is about before it removes that, and afterwards that it has: `<database>/_leman/drops/<digest of place and request
id>.json`. A table without an incarnation, which Lance made, gets one for that. Notes are kept for a day.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import re
import shutil
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pyarrow.fs as pafs
import structlog

from leman._format.view_definitions import is_view
from leman_coordinator.lance_io.row_commits import first_version, table_exists_error
from leman_coordinator.lance_io.table_handle import CommitConflict, CommitUnclear, commit_outcomes
from leman_core.model.garbage import DAY
from leman_core.model.service_errors import UNREADABLE, FailedPrecondition, LemanError, NotFound
from leman_core.model.view import SCRATCH_PREFIX
from leman_core.process.crash_points import crash_point
from leman_core.server.request_messages import check_same_request
from leman_core.storage import scratch_table, whole_files
from leman_core.storage.checkpoint_store import remove_checkpoints_elsewhere
from leman_core.storage.filesystems import delete_folder, filesystem_of
from leman_core.storage.lance_tables import INCARNATION_KEY, LanceTables, incarnation_at, is_other_table, open_table
from leman_core.storage.locations import MOVED_PREFIX, OWN_FOLDER, TABLE_ENDING, in_object_store, is_link, table_uri
from leman_core.storage.storage_errors import storage_failed, translating_os_errors
from leman_core.storage.stored_jobs import open_jobs
from leman_core.storage.view_data_files import definition_in

#: Begins the name of a folder in `OWN_FOLDER` that was a table.
_DROPPED = "dropped-"
#: Begins that of one that was not the table that is meant (`MOVED_PREFIX`: it is being looked at, and no other drop
#: removes it), and whose own name someone has taken at the same moment.
_SET_ASIDE = "set-aside-"
#: Pauses before what is left of a table is tried again: workers of its jobs may still write there.
_PAUSES = (0.2, 1.0, 3.0)

_log = structlog.get_logger(__name__)


def remove_folder(uri: str, incarnation: str) -> None:
    """Remove a table's folder; where this raises, the table is still there.

    On a local disk it gets another name first, in one step: from then on the table's name is free, and what others make
    under it is not touched. In a store its versions go first: without them no one takes the rest for a table. What is
    left after that and cannot be removed is told in the log, as the table is gone. Of a link nothing but the link goes:
    what it leads to is another table, or has been put there by someone else.

    Args:
        incarnation: of the table that is meant; empty: that is not known. On a local disk another one gets its name
            back: anyone who freezes before the step may wake up when others have dropped the table and made another
            one.

    Raises:
        FileNotFoundError: there is no such folder, or another table has it.
        OSError: it cannot be removed.
        LemanError: which table it is cannot be read.
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
    """Give a table's folder a name of Leman's own, and return that; None where it cannot be moved there in one step."""
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
    """Give a folder its name back where it is not that of the table that is meant, and raise FileNotFoundError.

    One without versions is of a table that someone is about to make.
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
    except OSError as error:  # a third one has the name, or a writer of this one has made a file under it
        aside = moved.with_name(moved.name.replace(MOVED_PREFIX, _SET_ASIDE))
        moved.rename(aside)
        _log.error("a table is set aside: it has lost its name", table=str(folder), path=str(aside), why=str(error))


def _sweep(own: Path) -> None:
    """Remove what was dropped, also what someone left who was stopped amid it; what others look at, a day later."""
    looked_at = (moved for moved in own.glob(f"{MOVED_PREFIX}*") if moved.stat().st_ctime < time.time() - DAY)
    for dropped in (*own.glob(f"{_DROPPED}*"), *looked_at):
        shutil.rmtree(dropped, ignore_errors=True)
        if dropped.exists():
            _log.warning("files of a dropped table are left", path=str(dropped))


_SCRATCH_TABLE = SCRATCH_PREFIX + "{}_[0-9a-f]{{16}}"


def check_view_drop(database: str, name: str, *, force: bool) -> None:
    """Check that a view may be dropped.

    Raises:
        NotFound: TABLE_NOT_FOUND – there is no such table.
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
            f"View '{name}' is the source of {names}: drop what rests on it first, or force it. What rests on it then "
            "keeps its rows and cannot be refreshed any more",
            table=name,
            views=", ".join(above),
        )


def views_on(tables: LanceTables, database: str, name: str) -> list[str]:
    """Return the names of the database's views whose source is that table."""
    source = table_uri(database, name)
    found = []
    for other in tables.list_tables(database):
        try:
            definition = definition_in(tables.snapshot(table_uri(database, other)))
        except (NotFound, *UNREADABLE):  # dropped meanwhile; damaged, and good for being dropped only
            continue
        if definition is not None and definition.source_uri == source:
            found.append(other)
    return found


def drop_view(database: str, name: str, incarnation: str = "") -> None:
    """Remove a view, its scratch tables first; stopped anywhere, it is there with all its rows, or no table any more.

    Args:
        incarnation: of the view that is meant; empty: whichever is there. Another one stays.

    Raises:
        Unavailable: STORE_UNAVAILABLE – the storage cannot be used now.
        LemanError: what `is_another` gives.
    """
    uri = table_uri(database, name)
    if incarnation and is_other_table(uri, incarnation):
        return
    pattern = re.compile(_SCRATCH_TABLE.format(re.escape(name)))
    for scratch in scratch_table.scratch_tables(database, pattern):
        scratch_table.drop(scratch)
    try:
        remove_checkpoints_elsewhere(uri)  # where that fails, there is still a view to be removed
        remove_folder(uri, incarnation)
    except FileNotFoundError:
        return
    except OSError as error:
        raise storage_failed(error, f"The view {uri} cannot be removed: {error}", uri) from None


#: Config of a table: the request that gave it its name, as its id and what tells its body apart.
RENAMED_BY_KEY = "leman.renamed_by"


def check_table_drop(uri: str, *, force: bool) -> None:
    """Check that a table may go from its name.

    Raises:
        NotFound: TABLE_NOT_FOUND.
        FailedPrecondition: IS_A_VIEW; TABLE_IN_USE – views rest on it or jobs of it have not ended, and `force` is not
            given.
        LemanError: what else `open_table` raises.
    """
    database, _, name = uri.rpartition("/")
    name = name.removesuffix(TABLE_ENDING)
    table = open_table(uri)
    if is_view(table.schema.metadata or {}):
        raise FailedPrecondition("IS_A_VIEW", f"'{name}' is a view, and no table", table=name)
    if force:
        return
    views = views_on(LanceTables(), database, name)
    incarnation = table.config().get(INCARNATION_KEY, "")
    # a paused job of another table that had the name fails when it is resumed
    jobs = [job.job_id for job in open_jobs(uri) if job.incarnation in ("", incarnation)]
    if views or jobs:
        users = [f"views {', '.join(views)}"] * bool(views) + [f"jobs {', '.join(jobs)}"] * bool(jobs)
        raise FailedPrecondition(
            "TABLE_IN_USE",
            f"Table '{name}' is used by {' and '.join(users)}: drop or end these first, or force it. What rests on it "
            "then keeps its rows and cannot be refreshed any more, and jobs that run fail",
            table=name,
            views=", ".join(views),
            jobs=", ".join(jobs),
        )


def remove_table(uri: str, incarnation: str = "") -> None:
    """Remove a table; stopped anywhere, it is there with all its rows, or no table any more.

    Args:
        incarnation: of the table that is meant; empty: whichever is there. Another one stays.

    Raises:
        LemanError: what `storage_errors.failed` and `is_another` give.
    """
    if incarnation and is_other_table(uri, incarnation):
        return
    try:
        remove_checkpoints_elsewhere(uri)  # where that fails, there is still a table to be removed
        remove_folder(uri, incarnation)
    except FileNotFoundError:
        return
    except OSError as error:
        raise storage_failed(error, f"The table {uri} cannot be removed: {error}", uri) from None


def check_renames(uri: str) -> None:
    """Check that a table is where one can be renamed in one step.

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
    """Return the version that a table had when this very request gave it its new name; 0: it did not.

    Raises:
        AlreadyExists: REQUEST_ID_REUSED.
        LemanError: what `open_table` raises, but for a table that is not there.
    """
    with contextlib.suppress(NotFound):  # another table may have the old name by now
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
    """Give a table of a file system another name, and return its version.

    Raises:
        AlreadyExists: TABLE_EXISTS.
        CommitConflict: Another writer came between.
        CommitUnclear: Whether its request was noted is not known.
        LemanError: what `open_table`, `commit_outcomes` and `storage_errors.failed` give.
    """
    if Path(new_uri).exists():
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
    """Return whether a request has removed its table: it noted so, or noted one, and there is none now, or another one.

    Args:
        incarnation: of the table that is there now; empty: it has none; None: there is no table.

    Raises:
        LemanError: what `storage_errors.failed` gives.
    """
    system, path = _note_of(uri, request_id)
    try:
        with translating_os_errors("What was dropped", uri), system.open_input_stream(path) as stream:
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
        return incarnation_at(uri) or ""  # someone may have given it another one at the same time
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
        whole_files.put_whole_file(system, path, json.dumps({"incarnation": incarnation, "removed": removed}).encode())
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
