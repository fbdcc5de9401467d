"""Tables that go, or get another name: what refers to them, and the step itself."""

from __future__ import annotations

import contextlib
import errno
from pathlib import Path

from leman_coordinator.lance_io.commit_outcomes import commit_outcomes
from leman_coordinator.lance_io.first_version import first_version
from leman_coordinator.lance_io.folder_removal import remove_folder
from leman_coordinator.lance_io.row_commits import exists
from leman_coordinator.lance_io.view_drop import views_on
from leman_core.model.errors import FailedPrecondition, NotFound
from leman_core.model.view_metadata import is_view
from leman_core.process.crash_points import crash_point
from leman_core.server.request_digest import check_body
from leman_core.storage.checkpoints.leftovers import remove_checkpoints_elsewhere
from leman_core.storage.incarnations import is_another
from leman_core.storage.locations import TABLE_ENDING, in_object_store
from leman_core.storage.open_jobs import open_jobs
from leman_core.storage.storage_errors import failed
from leman_core.storage.tables import INCARNATION_KEY, LanceTables, open_table

#: Config of a table: the request that gave it its name, as its id and what tells its body apart.
RENAMED_BY_KEY = "leman.renamed_by"


def check(uri: str, *, force: bool) -> None:
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


def remove(uri: str, incarnation: str = "") -> None:
    """Remove a table; stopped anywhere, it is there with all its rows, or no table any more.

    Args:
        incarnation: of the table that is meant; empty: whichever is there. Another one stays.

    Raises:
        LemanError: what `storage_errors.failed` and `is_another` give.
    """
    if incarnation and is_another(uri, incarnation):
        return
    try:
        remove_checkpoints_elsewhere(uri)  # where that fails, there is still a table to be removed
        remove_folder(uri, incarnation)
    except FileNotFoundError:
        return
    except OSError as error:
        raise failed(error, f"The table {uri} cannot be removed: {error}", uri) from None


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


def renamed(new_uri: str, request_id: str, body: str) -> int:
    """Return the version that a table had when this very request gave it its new name; 0: it did not.

    Raises:
        AlreadyExists: REQUEST_ID_REUSED.
        LemanError: what `open_table` raises, but for a table that is not there.
    """
    with contextlib.suppress(NotFound):  # another table may have the old name by now
        dataset = open_table(new_uri)
        known, _, its_body = str(dataset.config().get(RENAMED_BY_KEY, "")).rpartition(" ")
        if known == request_id:
            check_body(request_id, its_body, body)
            by = f"{request_id} {its_body}"
            return first_version(
                new_uri, int(dataset.version), lambda past: past.config().get(RENAMED_BY_KEY, "") == by
            )
    return 0


def rename(uri: str, new_uri: str, request_id: str, body: str) -> int:
    """Give a table of a file system another name, and return its version.

    Raises:
        AlreadyExists: TABLE_EXISTS.
        CommitConflict: Another writer came between.
        CommitUnclear: Whether its request was noted is not known.
        LemanError: what `open_table`, `commit_outcomes` and `storage_errors.failed` give.
    """
    if Path(new_uri).exists():
        raise exists(new_uri)
    dataset = open_table(uri)
    with commit_outcomes(uri):
        dataset.update_config({RENAMED_BY_KEY: f"{request_id} {body}"})
    crash_point("coordinator.before_rename")
    try:
        Path(uri).rename(new_uri)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise exists(new_uri) from None
        raise failed(error, f"The table {uri} cannot be renamed: {error}", uri) from None
    return int(dataset.version)
