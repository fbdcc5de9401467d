"""Row ids and deletions of a table: whether they can be read, and are as many as its manifest says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import lance

from leman_core.model.errors import DataLoss, LemanError
from leman_core.storage import deletion_files, manifest
from leman_core.storage.error_translation import LANCE_ERRORS
from leman_core.storage.opening import open_checked
from leman_core.storage.panics import is_panic, panics_as_errors
from leman_core.storage.storage_errors import failed
from leman_core.storage.table_errors import lost_file, table_error


@contextmanager
def reading_row_ids(uri: str, version: int) -> Iterator[None]:
    """Raise Leman's errors where the row ids of a version cannot be read.

    Read no columns in it.

    Raises:
        DataLoss: TABLE_DAMAGED, where nothing can be made of them.
        LemanError: what `storage_errors.failed` gives, where they are out of reach.
    """
    try:
        with panics_as_errors():
            yield
    except LANCE_ERRORS as error:
        raise _error(uri, version, error) from error


def check_row_ids(uri: str) -> dict[int, LemanError]:
    """Return what keeps row ids of the latest version from being read, or deletions from being believed, by fragment.

    Lance keeps no digest of a deletion file, but the manifest says how many rows it deletes.

    Raises:
        LemanError: what `table_error` gives.
    """
    try:
        dataset = open_checked(uri)
    except (OSError, ValueError) as error:
        raise table_error(uri, error) from None
    found: dict[int, LemanError] = {}
    stable, version = dataset.has_stable_row_ids, int(dataset.version)
    for fragment in dataset.get_fragments():
        if not stable and fragment.metadata.deletion_file is None:
            continue
        deleted = 0
        try:
            with reading_row_ids(uri, version):
                scanner = fragment.scanner(columns=[], with_row_id=True, include_deleted_rows=True)
                for batch in scanner.to_batches():
                    deleted += batch.column("_rowid").null_count
            _check_deletions(uri, fragment, deleted)
        except LemanError as error:
            found[int(fragment.fragment_id)] = error
    return found


def _check_deletions(uri: str, fragment: lance.LanceFragment, deleted: int) -> None:
    file = fragment.metadata.deletion_file
    known: int | None = None if file is None else file.num_deleted_rows  # None: written by an old Lance
    if file is None or known is None or known == deleted:
        return
    path = f"{uri}/{deletion_files.path_of(fragment.fragment_id, file)}"
    raise DataLoss(
        "TABLE_DAMAGED",
        f"Table {uri} is damaged: {path} deletes {deleted} rows of fragment {fragment.fragment_id}, and the manifest "
        f"says {known}. Rows that were deleted are there again, or others are gone. Restore the file from a copy; "
        "where there is none, restore a version before it",
        uri=uri,
        path=path,
    )


def _error(uri: str, version: int, error: Exception) -> LemanError:
    text = str(error).partition("\n")[0].partition(", /")[0]
    what = f"row ids of table {uri} cannot be read from version {version}: {text}"
    if isinstance(error, OSError) and not is_panic(error):
        return lost_file(uri, error) or failed(error, f"The {what}", uri)
    path = f"{uri}/_versions/{manifest.file_name(version)}"
    return DataLoss(
        "TABLE_DAMAGED",
        f"Table {uri} is damaged: {what}. CommitService.VerifyDatabase names the fragments. Put {path} back "
        "from a backup; where there is none, restore a version before it",
        uri=uri,
        path=path,
    )
