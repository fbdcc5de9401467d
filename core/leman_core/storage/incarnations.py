"""Which of all tables and views that had one place is there now."""

from __future__ import annotations

import contextlib

from leman_core.model.errors import NotFound
from leman_core.storage.tables import INCARNATION_KEY, LanceTables, open_table

#: Versions that are looked through for one from before a restore.
_LOOKED_BACK = 50


def incarnation_at(uri: str) -> str | None:
    """Return the incarnation of the table or view at a place; empty: it has none; None: there is no table.

    Raises:
        LemanError: what else `open_table` raises.
    """
    try:
        return str(open_table(uri).config().get(INCARNATION_KEY, ""))
    except NotFound:
        return None


def is_another(uri: str, incarnation: str) -> bool:
    """Tell whether another table or view than that of an incarnation has its place; where there is none, nothing has.

    Lance restores a table's settings with its rows. So one that was restored to a version from before it had its
    incarnation has none, and is the same all the same: versions before say so.

    Raises:
        LemanError: what `table_errors.table_error` gives, but for a table that is not there.
    """
    tables = LanceTables()
    try:
        latest = tables.dataset(uri)
    except NotFound:
        return False
    now = latest.config().get(INCARNATION_KEY, "")
    if now:
        return bool(now != incarnation)
    for version in range(latest.version - 1, max(0, latest.version - 1 - _LOOKED_BACK), -1):
        with contextlib.suppress(NotFound):  # it was cleaned away
            if tables.dataset(uri, version).config().get(INCARNATION_KEY, "") == incarnation:
                return False
    return True
