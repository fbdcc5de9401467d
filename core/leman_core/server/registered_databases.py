"""The names of databases, as one service knows them: read from the registry, and kept for some seconds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

import structlog

from leman_core.model.database import Registrations
from leman_core.model.errors import InvalidArgument, LemanError, PermissionDenied
from leman_core.model.shown_text import repeated
from leman_core.settings import Server
from leman_core.storage.locations import canonical_database, is_database_name, resolved_database

_log = structlog.get_logger(__name__)


class Registry(Protocol):
    """Where registrations are kept."""

    def read(self) -> Registrations:
        """Return all registrations.

        Raises:
            LemanError: the registry cannot be read.
        """
        ...


class LookAgainError(Exception):
    """What is known of the registry is too old to answer: have it read, and ask again."""


class DatabaseNames(Protocol):
    """What the `database` of a request may be, and where that is."""

    def place_of(self, text: str, *, read_now: bool) -> str:
        """Return the canonical place of a database that is given by name, path or uri; whether it can be a folder
        is not looked at.

        Args:
            read_now: what is known was read for this very request.

        Raises:
            LookAgainError: not where it was read for this request.
            LemanError: the text names no database that callers may name.
        """
        ...

    def check(self, place: str, sent: str = "", *, read_now: bool) -> None:
        """Refuse a canonical place that callers may not name; raises as `place_of`.

        Args:
            sent: how the caller named it, for the error.
        """
        ...

    async def read_anew(self) -> None:
        """Read what is known anew, if nobody has done so since this was called."""
        ...


class PathsAlone:
    """No names: databases are named by path or uri."""

    def place_of(self, text: str, *, read_now: bool) -> str:  # noqa: ARG002 - see DatabaseNames
        """Return the canonical place of a path or uri."""
        return resolved_database(text)

    def check(self, place: str, sent: str = "", *, read_now: bool) -> None:
        """Refuse nothing."""

    async def read_anew(self) -> None:
        """Do nothing: nothing is known."""


class RegisteredDatabases:
    """Names from a registry. For one event loop.

    What was read holds for `seconds`; a name that is not known then is looked for at once. Where the registry cannot be
    read, names that are known go on to hold: databases do not stop because the registry does.

    Args:
        alone: refuse paths and uris that are not the root of a registered database.
    """

    def __init__(
        self, registry: Registry, *, seconds: float, alone: bool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._registry = registry
        self._seconds = seconds
        self._alone = alone
        self._clock = clock
        self._known: Registrations | None = None
        self._roots: frozenset[str] = frozenset()
        self._error: LemanError | None = None
        #: When the last reading began.
        self._read_at = float("-inf")
        self._reading = asyncio.Lock()
        #: How many readings have begun.
        self._readings = 0

    def place_of(self, text: str, *, read_now: bool) -> str:
        """Return the root of a name, or the canonical place of a path or uri; see `DatabaseNames`.

        Raises:
            NotFound: DATABASE_NOT_REGISTERED.
            DataLoss: REGISTRATION_DAMAGED.
            InvalidArgument: BAD_DATABASE, RESERVED_DATABASE.
            PermissionDenied: DATABASE_NOT_ALLOWED.
        """
        if not is_database_name(text):
            place = resolved_database(text)
            self.check(place, text, read_now=read_now)
            return place
        known = self._fresh(read_now=read_now)
        found = known.by_name.get(text)
        if found is not None:
            return found.root
        if not read_now:
            raise LookAgainError
        if self._error is not None:  # it may be registered
            raise self._error
        return known.get(text).root

    def check(self, place: str, sent: str = "", *, read_now: bool) -> None:
        """Refuse a place that is no root of a registered database, where only these may be named.

        Raises:
            PermissionDenied: DATABASE_NOT_ALLOWED.
        """
        if not self._alone:
            return
        self._fresh(read_now=read_now)
        if place in self._roots:
            return
        if not read_now:
            raise LookAgainError
        if self._error is not None:
            raise self._error
        raise PermissionDenied(
            "DATABASE_NOT_ALLOWED",
            f"'{repeated(sent or place)}' is no registered database, and this service takes no other: name one that "
            "ListDatabases has, "
            "or ask the operator of the service to register it",
        )

    async def read_anew(self) -> None:
        """Read the registry, if nobody has begun to since this was called.

        Raises:
            LemanError: it cannot be read, and never was.
        """
        begun_before = self._readings
        async with self._reading:
            if self._readings > begun_before:
                return
            self._readings += 1
            begun = self._clock()
            try:
                known = await asyncio.to_thread(self._registry.read)
            except LemanError as error:
                if self._known is None:
                    raise
                _log.warning("the registry of databases cannot be read", reason=error.reason, error=error.message)
                self._error, self._read_at = error, begun
                return
            self._known, self._error, self._read_at = known, None, begun
            self._roots = frozenset(database.root for database in known.by_name.values())

    def _fresh(self, *, read_now: bool) -> Registrations:
        old = self._clock() - self._read_at > self._seconds
        if self._known is None or (old and not read_now):
            raise LookAgainError
        return self._known


def names_of(server: Server) -> DatabaseNames:
    """Return the names that the settings give databases.

    Raises:
        InvalidArgument: BAD_SETTING.
    """
    if not server.registry:
        if server.registered_databases_only:
            raise InvalidArgument(
                "BAD_SETTING", "LEMAN_SERVER__REGISTERED_DATABASES_ONLY needs LEMAN_SERVER__REGISTRY: set both"
            )
        return PathsAlone()
    from leman_core.storage.database_registry import DatabaseRegistry  # noqa: PLC0415 - loads Lance

    return RegisteredDatabases(
        DatabaseRegistry(registry_place(server)),
        seconds=server.registry_seconds,
        alone=server.registered_databases_only,
    )


def registry_place(server: Server) -> str:
    """Return where registrations are kept, in its canonical form.

    Raises:
        InvalidArgument: BAD_SETTING.
    """
    try:
        return canonical_database(server.registry)
    except InvalidArgument as error:
        raise InvalidArgument("BAD_SETTING", f"LEMAN_SERVER__REGISTRY: {error.message}") from None
