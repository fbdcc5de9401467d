"""What a view says of itself where it lies now: a database may have been copied or moved with its views."""

from __future__ import annotations

import contextlib
from dataclasses import replace

from leman_core.model.errors import LemanError
from leman_core.model.table import TableSnapshot
from leman_core.model.view import ViewDefinition
from leman_core.model.view_metadata import from_metadata, identity, outlives_versions
from leman_core.storage.incarnations import incarnation_at
from leman_core.storage.locations import TABLE_ENDING
from leman_core.storage.tables import LanceTables


def definition_in(view: TableSnapshot) -> ViewDefinition | None:
    """Return the definition of a view where it lies; None where the table is no view.

    Raises:
        DataLoss: VIEW_DAMAGED.
    """
    definition = from_metadata(view.metadata, view.uri)
    return None if definition is None else placed(definition, view.uri, view.incarnation)


def placed(definition: ViewDefinition, uri: str, incarnation: str) -> ViewDefinition:
    """Return the definition with its source in the view's own database, where the source it names was there before.

    Views of earlier releases name their source by an absolute place, also in their own database. In a copy that
    database is the former one if the copy has the source, by its identity, and the view lies in the former database
    too, or its source is not there any more.

    Args:
        uri: Where the view lies.
        incarnation: Of the view.
    """
    home, _, name = uri.rpartition("/")
    source = f"{home}/{definition.query.table}{TABLE_ENDING}"
    if definition.in_own_database or source == definition.source_uri or not _is_source(source, definition):
        return definition
    with contextlib.suppress(LemanError):
        former = definition.source_uri.rpartition("/")[0]
        there = incarnation_at(f"{former}/{name}")
        if incarnation == there if there is not None else incarnation_at(definition.source_uri) is None:
            query = replace(definition.query, database=home)
            return replace(definition, query=query, source_uri=source, in_own_database=True)
    return definition


def _is_source(uri: str, definition: ViewDefinition) -> bool:
    """Return whether a table is the source of a view, or a copy of it."""
    tables, known = LanceTables(), definition.base_incarnation
    for version in (definition.base_version, 0):  # the first may have been cleaned
        with contextlib.suppress(LemanError):
            found = tables.snapshot(uri, version)
            return identity(found) == known if version or outlives_versions(known) else False
    return False
