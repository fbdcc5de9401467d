"""Which databases and tables there are, for whoever browses them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from leman_coordinator.lance_io import row_reading
from leman_coordinator.tables.requests import ReadRequest
from leman_coordinator.tables.row_reads import now
from leman_core.model.database import Registrations
from leman_core.model.errors import LemanError
from leman_core.model.view import SCRATCH_PREFIX
from leman_core.storage.database_roots import DatabaseRoots
from leman_core.storage.locations import table_uri
from leman_core.storage.tables import LanceTables

_NOTHING = pa.schema([])


class Registry(Protocol):
    """Where registrations are kept."""

    def read(self) -> Registrations:
        """Return all registrations."""
        ...


@dataclass(frozen=True, slots=True)
class Listed:
    """A table or view. One that cannot be read has no columns, and counts as a table."""

    name: str
    is_view: bool
    schema: pa.Schema


class Catalogs:
    """All databases that callers may browse.

    Args:
        registry: None: no database has a name.
        roots: where databases may lie.
    """

    def __init__(self, registry: Registry | None, roots: DatabaseRoots) -> None:
        self._registry = registry
        self._roots = roots

    def named(self) -> dict[str, str]:
        """Return the databases that have names, and their places, in the order of their names.

        Raises:
            LemanError: the registry cannot be read.
        """
        if self._registry is None:
            return {}
        known = self._registry.read().by_name
        return {name: known[name].root for name in sorted(known) if self._is_allowed(known[name].root)}

    def tables(self, place: str, wanted: Callable[[str], bool]) -> Iterator[Listed]:
        """Yield the tables and views of a database, in the order of their names.

        Args:
            place: of the database, in its canonical form.
            wanted: tells by its name whether a table is to be looked at.

        Raises:
            LemanError: what `LanceTables.list_tables` raises.
        """
        for name in LanceTables().list_tables(place):
            if not name.startswith(SCRATCH_PREFIX) and wanted(name):
                yield self._look(place, name)

    def check_table(self, place: str, name: str) -> None:
        """Refuse a table that is a link to where callers may read nothing.

        Raises:
            LemanError: what `DatabaseRoots.check_table` raises.
        """
        self._roots.check_table(place, name)

    def _look(self, place: str, name: str) -> Listed:
        try:
            self.check_table(place, name)
            found = row_reading.look_at_rows(ReadRequest(table_uri(place, name)), now())
        except LemanError:
            return Listed(name, is_view=False, schema=_NOTHING)
        return Listed(name, found.is_view, found.schema)

    def _is_allowed(self, place: str) -> bool:
        try:
            self._roots.check(place)
        except LemanError:
            return False
        return True
