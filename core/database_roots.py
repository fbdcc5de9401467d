"""Where databases may lie: below roots that the settings name, also after links are followed."""

from __future__ import annotations

import os
from collections.abc import Iterable

from core.errors import InvalidArgument, PermissionDenied
from core.locations import TABLE_ENDING, canonical_database


class DatabaseRoots:
    """The places below which databases, tables and what views are made from may lie; without any: everywhere.

    Raises:
        InvalidArgument: BAD_SETTING.
    """

    def __init__(self, roots: Iterable[str] = ()) -> None:
        try:
            self._roots = tuple(canonical_database(root).rstrip("/") for root in roots)
        except InvalidArgument as error:
            raise InvalidArgument("BAD_SETTING", f"LEMAN_SERVER__DATABASE_ROOTS: {error.message}") from None

    def __bool__(self) -> bool:
        """Tell whether there are any."""
        return bool(self._roots)

    def check(self, place: str) -> None:
        """Refuse a database or a table that lies elsewhere, or is a link to elsewhere.

        Args:
            place: in its canonical form.

        Raises:
            PermissionDenied: DATABASE_NOT_ALLOWED.
        """
        if not self._roots:
            return
        real = place if "://" in place else os.path.realpath(place)
        if not any(real == root or real.startswith(f"{root}/") for root in self._roots):
            raise PermissionDenied(
                "DATABASE_NOT_ALLOWED",
                f"'{place}' does not lie where this service may work: name a database below one of the places in "
                "LEMAN_SERVER__DATABASE_ROOTS, or ask whoever runs the service",
            )

    def check_table(self, database: str, table: str) -> None:
        """Refuse a table that is a link to elsewhere; what is no table's name is for others to refuse.

        Raises:
            PermissionDenied: DATABASE_NOT_ALLOWED.
        """
        if self._roots and not any(character in table for character in "/\\\0"):
            self.check(f"{database.rstrip('/')}/{table}{TABLE_ENDING}")


#: What nothing is outside of.
EVERYWHERE = DatabaseRoots()
