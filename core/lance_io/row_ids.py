"""Row ids of a table, which its manifest keeps: whether those of every fragment can be read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from core.errors import DataLoss, LemanError
from core.lance_io import manifest
from core.lance_io.error_translation import LANCE_ERRORS
from core.lance_io.opening import open_checked
from core.lance_io.panics import is_panic, panics_as_errors
from core.lance_io.table_errors import table_error
from core.storage_errors import failed


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
    """Return what keeps row ids of the latest version from being read, by fragment.

    Raises:
        LemanError: what `table_error` gives.
    """
    try:
        dataset = open_checked(uri)
    except (OSError, ValueError) as error:
        raise table_error(uri, error) from None
    found: dict[int, LemanError] = {}
    if dataset.has_stable_row_ids:
        for fragment in dataset.get_fragments():
            try:
                with reading_row_ids(uri, int(dataset.version)):
                    for _ in fragment.scanner(columns=[], with_row_id=True, include_deleted_rows=True).to_batches():
                        pass
            except LemanError as error:
                found[int(fragment.fragment_id)] = error
    return found


def _error(uri: str, version: int, error: Exception) -> LemanError:
    text = str(error).partition("\n")[0].partition(", /")[0]
    what = f"row ids of table {uri} cannot be read from version {version}: {text}"
    if isinstance(error, OSError) and not is_panic(error):
        return failed(error, f"The {what}", uri)
    path = f"{uri}/_versions/{manifest.file_name(version)}"
    return DataLoss(
        "TABLE_DAMAGED",
        f"Table {uri} is damaged: {what}. CommitService.VerifyDatabase names the fragments. Put {path} back "
        "from a backup; where there is none, restore a version before it",
        uri=uri,
        path=path,
    )
