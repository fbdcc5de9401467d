"""The folder of a table or view that goes: it is there with all its rows, or no table any more."""

from __future__ import annotations

import errno
import shutil
import time
import uuid
from pathlib import Path

import structlog

from leman_core.model.errors import LemanError
from leman_core.model.garbage import DAY
from leman_core.process.crash_points import crash_point
from leman_core.storage.filesystems import delete_folder, filesystem_of
from leman_core.storage.incarnations import incarnation_at, is_another
from leman_core.storage.locations import MOVED_PREFIX, OWN_FOLDER, in_object_store, is_link

#: Begins the name of a folder in `OWN_FOLDER` that was a table.
_DROPPED = "dropped-"
#: Begins that of one that was not the table that is meant (`MOVED_PREFIX`: it is being looked at, and no other drop
#: removes it), and whose own name somebody has taken at the same moment.
_SET_ASIDE = "set-aside-"
#: Pauses before what is left of a table is tried again: workers of its jobs may still write there.
_PAUSES = (0.2, 1.0, 3.0)

_log = structlog.get_logger(__name__)


def remove_folder(uri: str, incarnation: str) -> None:
    """Remove a table's folder; where this raises, the table is still there.

    On a local disk it gets another name first, in one step: from then on the table's name is free, and what others make
    under it is not touched. In a store its versions go first: without them nobody takes the rest for a table. What is
    left after that and cannot be removed is told in the log, as the table is gone. Of a link nothing but the link goes:
    what it leads to is another table, or has been put there by somebody else.

    Args:
        incarnation: of the table that is meant; empty: that is not known. On a local disk another one gets its name
            back: whoever freezes before the step may wake up when others have dropped the table and made another one.

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

    One without versions is of a table that somebody is about to make.
    """
    if not incarnation:
        return
    try:
        if incarnation_at(str(moved)) is not None and not is_another(str(moved), incarnation):
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
    """Remove what was dropped, also what somebody left who was stopped amid it; what others look at, a day later."""
    looked_at = (moved for moved in own.glob(f"{MOVED_PREFIX}*") if moved.stat().st_ctime < time.time() - DAY)
    for dropped in (*own.glob(f"{_DROPPED}*"), *looked_at):
        shutil.rmtree(dropped, ignore_errors=True)
        if dropped.exists():
            _log.warning("files of a dropped table are left", path=str(dropped))
