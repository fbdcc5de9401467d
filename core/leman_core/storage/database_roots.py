"""The places where databases may lie: below configured roots, also after links, and outside of Leman's own places."""

from __future__ import annotations

import os
from collections.abc import Iterable

from leman_core.model.service_errors import InvalidArgument, LemanError, PermissionDenied, excerpt
from leman_core.model.view import SCRATCH_PREFIX
from leman_core.storage.locations import (
    MOVED_PREFIX,
    OWN_FOLDER,
    TABLE_ENDING,
    canonical_database,
    check_table_name,
    is_link,
)
from leman_core.storage.object_stores import checkpoint_places


class DatabaseRoots:
    """The places below which databases, tables and sources of views may lie; without any: everywhere.

    Errors show the text that the caller sent. Links are followed only to decide.

    Args:
        roots: The places.
        registry: The canonical folder of the registry of databases; empty: there is none.

    Raises:
        InvalidArgument: BAD_SETTING.
    """

    def __init__(self, roots: Iterable[str] = (), registry: str = "") -> None:
        self._registry = registry.rstrip("/")
        try:
            self._roots = tuple(canonical_database(root).rstrip("/") for root in roots)
        except InvalidArgument as error:
            raise InvalidArgument("BAD_SETTING", f"LEMAN_SERVER__DATABASE_ROOTS: {error.message}") from None

    def __bool__(self) -> bool:
        """Return whether there are any roots."""
        return bool(self._roots)

    def check(self, place: str, sent: str = "") -> str:
        """Return where a database or table lies. Refuse one that lies elsewhere, or is Leman's own.

        Leman's own folder in a database may not be a link to elsewhere either.

        Args:
            place: Its canonical form.
            sent: The caller's text, for the error; empty: the place.

        Raises:
            PermissionDenied: DATABASE_NOT_ALLOWED.
            InvalidArgument: RESERVED_DATABASE.
        """
        real = self._real(place)
        if not self._is_inside(real):
            raise not_allowed(sent or place)
        holder, _, last = place.rpartition("/")
        database = holder if last.endswith(TABLE_ENDING) else place.rstrip("/")
        if self._roots and is_link(own := f"{database}/{OWN_FOLDER}") and not self._is_inside(self._real(own)):
            raise not_allowed(sent or place)  # functions, jobs and notes would be stored there
        if self._is_own(real):
            raise InvalidArgument(
                "RESERVED_DATABASE",
                f"'{excerpt(sent or place)}' is a place of Leman's own, such as the registry of databases or "
                "checkpoints: name another place",
            )
        return real

    def check_table(self, database: str, table: str, sent: str = "") -> str:
        """Return where a table lies; empty for an invalid name, which other checks refuse. Refuse as `check` does.

        Args:
            database: The database.
            table: The table.
            sent: The caller's text for the database, for the error.

        Raises:
            PermissionDenied: DATABASE_NOT_ALLOWED.
            InvalidArgument: RESERVED_DATABASE.
        """
        if not table or any(character in table for character in "/\\\0"):
            return ""
        file = f"{table}{TABLE_ENDING}"
        return self.check(f"{database.rstrip('/')}/{file}", f"{(sent or database).rstrip('/')}/{file}")

    def allows_table(self, database: str, table: str) -> bool:
        """Return whether `check_table` accepts a table."""
        try:
            self.check_table(database, table)
        except LemanError:
            return False
        return True

    def _is_inside(self, real: str) -> bool:
        return not self._roots or any(real == root or real.startswith(f"{root}/") for root in self._roots)

    def _real(self, place: str) -> str:
        """Resolve a place. Without roots, only its last part can be a link that was not followed before."""
        if "://" in place or not (self._roots or os.path.islink(place)):  # noqa: PTH114 - for every call
            return place
        try:
            return os.path.realpath(place)
        except OSError:  # a link that only others may read
            return ""

    def _is_own(self, real: str) -> bool:
        *above, last = real.split("/")
        if above[-1:] == [OWN_FOLDER] and last.startswith(MOVED_PREFIX):
            return False  # a table that is being dropped: opening it fails
        if OWN_FOLDER in above or last == OWN_FOLDER or any(part.endswith(TABLE_ENDING) for part in above):
            return True
        holder = "/".join(above) if last.endswith(TABLE_ENDING) else real
        if self._registry and holder == self._registry:
            return True
        return "://" in real and any(real == own or real.startswith(f"{own}/") for own in checkpoint_places())


def check_not_own(table: str) -> None:
    """Refuse the names of Leman's own tables.

    Raises:
        InvalidArgument: RESERVED_NAME for a scratch table of a refresh; BAD_TABLE_NAME.
    """
    if table.startswith(SCRATCH_PREFIX):
        raise InvalidArgument(
            "RESERVED_NAME",
            f"'{excerpt(table)}': names that begin with {SCRATCH_PREFIX} are Leman's own, so name another table",
        )
    if table.startswith(OWN_FOLDER):
        check_table_name(table, "")


def not_allowed(sent: str) -> PermissionDenied:
    """Return the error of a place that does not lie below a root, with the caller's text."""
    return PermissionDenied(
        "DATABASE_NOT_ALLOWED",
        f"'{excerpt(sent)}' does not lie where this service may work: name a database below one of the places in "
        "LEMAN_SERVER__DATABASE_ROOTS, or ask the operator of the service",
    )


#: Allows every place.
EVERYWHERE = DatabaseRoots()
