"""The removal of views, with the scratch tables in which their refreshes compute."""

from __future__ import annotations

import re

from leman_coordinator.lance_io.folder_removal import remove_folder
from leman_core.model.errors import UNREADABLE, FailedPrecondition, NotFound
from leman_core.model.view import SCRATCH_PREFIX
from leman_core.model.view_metadata import is_view
from leman_core.storage.checkpoints.leftovers import remove_checkpoints_elsewhere
from leman_core.storage.incarnations import is_another
from leman_core.storage.locations import table_uri
from leman_core.storage.storage_errors import failed
from leman_core.storage.tables import LanceTables
from leman_core.storage.views import scratch_table
from leman_core.storage.views.definitions import definition_in

_SCRATCH_TABLE = SCRATCH_PREFIX + "{}_[0-9a-f]{{16}}"


def check(database: str, name: str, *, force: bool) -> None:
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


def drop(database: str, name: str, incarnation: str = "") -> None:
    """Remove a view, its scratch tables first; stopped anywhere, it is there with all its rows, or no table any more.

    Args:
        incarnation: of the view that is meant; empty: whichever is there. Another one stays.

    Raises:
        Unavailable: STORE_UNAVAILABLE – the storage cannot be used now.
        LemanError: what `is_another` gives.
    """
    uri = table_uri(database, name)
    if incarnation and is_another(uri, incarnation):
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
        raise failed(error, f"The view {uri} cannot be removed: {error}", uri) from None
