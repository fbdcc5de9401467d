"""Where databases may lie: below roots that the settings name, also after links are followed.

And where none may: the folders and tables that Leman keeps for itself, wherever the roots are.
"""

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
    """The places below which databases, tables and what views are made from may lie; without any: everywhere.

    What a caller is told shows the text that the caller sent: links are followed only to decide.

    Args:
        registry: The folder of the registry of databases, in its canonical form; empty: there is none.

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
        """Return whether there are any."""
        return bool(self._roots)

    def check(self, place: str, sent: str = "") -> None:
        """Refuse a database or a table that lies elsewhere, is a link to elsewhere, or is Leman's own.

        What Leman keeps beside the tables of a database may be no link to elsewhere either.

        Args:
            place: in its canonical form.
            sent: how the caller named it, for the error; empty: by the place.

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
            raise not_allowed(sent or place)  # functions, jobs and notes would be read and written there
        if self._is_own(real):
            raise InvalidArgument(
                "RESERVED_DATABASE",
                f"'{excerpt(sent or place)}' is what Leman keeps for itself, such as the registry of databases or "
                "checkpoints: name another place",
            )

    def check_table(self, database: str, table: str, sent: str = "") -> None:
        """Refuse a table that is a link to elsewhere, or Leman's own; what is no table's name is for others to refuse.

        Args:
            sent: how the caller named the database, for the error.

        Raises:
            PermissionDenied: DATABASE_NOT_ALLOWED.
            InvalidArgument: RESERVED_DATABASE.
        """
        if table and not any(character in table for character in "/\\\0"):
            file = f"{table}{TABLE_ENDING}"
            self.check(f"{database.rstrip('/')}/{file}", f"{(sent or database).rstrip('/')}/{file}")

    def allows_table(self, database: str, table: str) -> bool:
        """Return whether `check_table` lets a table pass."""
        try:
            self.check_table(database, table)
        except LemanError:
            return False
        return True

    def _is_inside(self, real: str) -> bool:
        return not self._roots or any(real == root or real.startswith(f"{root}/") for root in self._roots)

    def _real(self, place: str) -> str:
        """Return where a place leads. Without roots only its last part may be a link that was not followed before."""
        if "://" in place or not (self._roots or os.path.islink(place)):  # noqa: PTH114 - for every call
            return place
        try:
            return os.path.realpath(place)
        except OSError:  # a link that only others may read
            return ""

    def _is_own(self, real: str) -> bool:
        *above, last = real.split("/")
        if above[-1:] == [OWN_FOLDER] and last.startswith(MOVED_PREFIX):
            return False  # a table that is dropped: others say that there is none
        if OWN_FOLDER in above or last == OWN_FOLDER or any(part.endswith(TABLE_ENDING) for part in above):
            return True
        holder = "/".join(above) if last.endswith(TABLE_ENDING) else real
        if self._registry and holder == self._registry:
            return True
        return "://" in real and any(real == own or real.startswith(f"{own}/") for own in checkpoint_places())


def check_not_own(table: str) -> None:
    """Refuse the names of Leman's own tables.

    Raises:
        InvalidArgument: RESERVED_NAME, where a refresh computes in the table; BAD_TABLE_NAME.
    """
    if table.startswith(SCRATCH_PREFIX):
        raise InvalidArgument(
            "RESERVED_NAME",
            f"'{excerpt(table)}': names that begin with {SCRATCH_PREFIX} are Leman's own, so name another table",
        )
    if table.startswith(OWN_FOLDER):
        check_table_name(table, "")


def not_allowed(sent: str) -> PermissionDenied:
    """Return the refusal of a place that does not lie below a root, by what the caller sent."""
    return PermissionDenied(
        "DATABASE_NOT_ALLOWED",
        f"'{excerpt(sent)}' does not lie where this service may work: name a database below one of the places in "
        "LEMAN_SERVER__DATABASE_ROOTS, or ask the operator of the service",
    )


#: What nothing is outside of.
EVERYWHERE = DatabaseRoots()
