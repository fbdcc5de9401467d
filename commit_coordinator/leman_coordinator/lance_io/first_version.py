"""Which version of a table made it what it is: the answer for a request that is sent again when nobody remembers it."""

from __future__ import annotations

from collections.abc import Callable

import lance

from leman_core.model.errors import NotFound
from leman_core.storage.tables import LanceTables


def first_version(uri: str, latest: int, is_so: Callable[[lance.LanceDataset], bool]) -> int:
    """Return the first version since which a table has been as it is in the latest one.

    Looks at few of the versions, and takes those that were cleaned away for ones that were not so: where the one that
    made it so is gone, it is the oldest one that is left.

    Args:
        uri: The table.
        latest: Its latest version, which is so.
        is_so: Whether a version is.

    Raises:
        LemanError: what `table_errors.table_error` gives, but for a version that is gone.
    """
    tables = LanceTables()
    before, found = 0, latest
    while found - before > 1:
        middle = (before + found) // 2
        try:
            so = is_so(tables.dataset(uri, middle))
        except NotFound:
            so = False
        before, found = (before, middle) if so else (middle, found)
    return found
