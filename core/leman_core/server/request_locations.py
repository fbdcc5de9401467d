"""The databases and tables that a request names, by place or registered name, in their canonical form.

The names of databases, as one service knows them: read from the registry, and kept for some seconds.

Bring the places that a request names into their canonical form, before any handler sees it.

By the name of the field: a text `database` is a database, by path, uri or registered name, `root` what is to be one,
and `uri` a table's Lance dataset, wherever in the request they stand. So a request's body, and what is remembered by
it, is the same for all spellings of a place. A place that does not lie where the service may work is refused here, a
table beside a `database` that is a link to elsewhere, and what is Leman's own: its folders, the registry of databases,
the tables that refreshes compute in. Errors show what the caller sent, and nothing of where links and names lead.
"""

from __future__ import annotations

import asyncio
import re
import time
import urllib.parse
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import structlog
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from leman_core.model.databases import Registrations
from leman_core.model.service_errors import FailedPrecondition, InvalidArgument, LemanError, PermissionDenied, excerpt
from leman_core.settings import Server
from leman_core.storage.database_roots import DatabaseRoots, check_not_own, not_allowed
from leman_core.storage.locations import (
    TABLE_ENDING,
    canonical_database,
    check_folder,
    check_table_name,
    database_and_table,
    in_object_store,
    is_database_name,
    leads_elsewhere,
    resolved_database,
    store_of,
)

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
        """Read what is known again, if no one has done so since this was called."""
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
    read, names that are known continue to hold: databases do not stop because the registry does.

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
            f"'{excerpt(sent or place)}' is no registered database, and this service takes no other: name one that "
            "ListDatabases has, "
            "or ask the operator of the service to register it",
        )

    async def read_anew(self) -> None:
        """Read the registry, if no one has begun to since this was called.

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


def configured_names(server: Server) -> DatabaseNames:
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


_PLACES = ("database", "uri", "root")
#: Fields that may name a table of the `database` beside them.
_TABLES = ("table", "view", "name")
#: Fields that name what the `table` beside them is to be called.
_NEW_NAMES = ("new_name",)


@dataclass(frozen=True, slots=True)
class LocationFields:
    """Where a message names places."""

    #: Fields to rewrite.
    own: tuple[str, ...] = ()
    #: Fields with names of tables in the message's database.
    tables: tuple[str, ...] = ()
    #: Fields with names of tables in the database of the message's `table`.
    new_names: tuple[str, ...] = ()
    #: Fields whose messages have places, and whether they are repeated.
    below: tuple[tuple[str, bool, LocationFields], ...] = ()


_known: dict[str, LocationFields] = {}


@dataclass(slots=True)
class ResolvedLocations:
    """What is known of the places of a request once they are settled."""

    #: Of places that were given by name, or lead through links: canonical form → as the caller sent it.
    linked: dict[str, str] = field(default_factory=dict)
    #: The first store that it names, such as `gs://bucket`; empty: all lie on this machine.
    store: str = ""


class RequestLocations:
    """What settles the places of requests to one service.

    Raises:
        InvalidArgument: BAD_SETTING.
    """

    def __init__(self, server: Server) -> None:
        self._roots = configured_roots(server)
        self._names = configured_names(server)
        self._any_place = PathsAlone()

    async def settle(self, request: Any, *, from_peer: bool) -> ResolvedLocations:
        """Rewrite the places of a request in their canonical form; an empty field stays empty.

        Args:
            from_peer: it is a call that only services make: they name places, and a job that runs may go on although
                its database has lost its name. It may name the tables that a refresh computes in.

        Raises:
            LemanError: what `canonicalise` raises.
        """
        names, settled = self._any_place if from_peer else self._names, ResolvedLocations()
        try:
            return canonicalize_request(request, self._roots, names, from_peer=from_peer, settled=settled)
        except LookAgainError:  # what was rewritten so far stays as it is when it is looked at again
            await names.read_anew()
            return canonicalize_request(
                request, self._roots, names, read_now=True, from_peer=from_peer, settled=settled
            )


def configured_roots(server: Server) -> DatabaseRoots:
    """Return where the settings let databases lie.

    Raises:
        InvalidArgument: BAD_SETTING.
    """
    return DatabaseRoots(server.database_roots, registry_place(server) if server.registry else "")


def canonicalize_request(
    request: Any,
    roots: DatabaseRoots,
    names: DatabaseNames | None = None,
    *,
    read_now: bool = False,
    from_peer: bool = False,
    settled: ResolvedLocations | None = None,
) -> ResolvedLocations:
    """Rewrite the places of a request in their canonical form; an empty field stays empty.

    Args:
        names: None: there are none.
        read_now: the names were read for this very request.
        from_peer: as for `RequestPlaces.settle`.
        settled: what an earlier call found, which rewrote a part of the request; it is added to, and returned.

    Raises:
        LookAgainError: names are to be read first; not with `read_now`.
        InvalidArgument: BAD_DATABASE, RESERVED_DATABASE, RESERVED_NAME, BAD_TABLE_URI, BAD_TABLE_NAME.
        NotFound: DATABASE_NOT_REGISTERED.
        DataLoss: REGISTRATION_DAMAGED.
        FailedPrecondition: STORAGE_DENIED.
        Unavailable: STORE_UNAVAILABLE.
        PermissionDenied: DATABASE_NOT_ALLOWED.
    """
    descriptor = request.DESCRIPTOR
    places = _known.get(descriptor.full_name)
    if places is None:
        places = _known[descriptor.full_name] = location_fields_of(descriptor)
    look = _Look(roots, names or PathsAlone(), read_now, from_peer, settled or ResolvedLocations())
    _rewrite(request, places, look)
    return look.found


def hide_links(error: LemanError, linked: Mapping[str, str]) -> None:
    """Have an error show places as the caller sent them, in place of where links and names lead.

    Args:
        linked: as in `Settled`.
    """
    places = sorted(linked.keys() - {"/"}, key=len, reverse=True)  # the place of one may lie below that of another
    if not places:
        return
    any_place = re.compile(rf"(?<![\w./-])(?:{'|'.join(map(_spellings, places))})(?![\w-]|\.\w)")

    def as_sent(found: re.Match[str]) -> str:
        return excerpt(linked[places[(found.lastindex or 1) - 1]])

    error.message = any_place.sub(as_sent, error.message)
    error.facts = {key: any_place.sub(as_sent, value) for key, value in error.facts.items()}


def _spellings(place: str) -> str:
    """Return a pattern, with one group, of a place as Lance, pyarrow and the operating system write it.

    Lance writes a path without its first `/`; a single word is only taken for one where more of the path follows.
    """
    forms = []
    for form in dict.fromkeys((place, urllib.parse.quote(place, safe="/:@"))):
        if in_object_store(form):
            forms.append(re.escape(form))
        else:
            bare = form.removeprefix("/")
            forms.append(f"(?:file:(?://)?)?{re.escape(form)}")
            forms.append(re.escape(bare) if "/" in bare else rf"{re.escape(bare)}(?=/)")
    return f"({'|'.join(forms)})"


@dataclass(frozen=True, slots=True)
class _Look:
    """One look at the places of a request."""

    roots: DatabaseRoots
    names: DatabaseNames
    read_now: bool
    from_peer: bool
    found: ResolvedLocations

    def canonical(self, name: str, sent: str) -> str:
        """Return the canonical form of a place, which lies where the service may work."""
        database, table = database_and_table(sent) if name == "uri" else (sent, "")
        try:
            place = self._resolved(name, database)
        except FailedPrecondition:
            if self.roots:
                raise not_allowed(sent) from None
            raise
        uri = place
        if table:
            check_table_name(table, name)
            uri = f"{place.rstrip('/')}/{table}{TABLE_ENDING}"
        self.roots.check(uri, sent)
        check_folder(place, sent, name)
        if in_object_store(place):
            self.found.store = self.found.store or store_of(place)
        if leads_elsewhere(database, place) or (name == "root" and database != place):
            self.found.linked[place] = database.rstrip("/")
        return uri

    def _resolved(self, name: str, database: str) -> str:
        if name == "database":
            return self.names.place_of(database, read_now=self.read_now)
        place = resolved_database(database, name)
        if name == "uri":
            self.names.check(place, database, read_now=self.read_now)
        return place

    def check_table(self, database: str, table: str) -> None:
        """Refuse a table in a request that names a database."""
        if not self.from_peer:
            check_not_own(table)
        self.roots.check_table(database, table, self.found.linked.get(database, ""))


def location_fields_of(descriptor: Descriptor, above: tuple[str, ...] = ()) -> LocationFields:
    """Return where a message type names places."""
    if descriptor.full_name in above:
        return LocationFields()  # no message of ours contains itself and a place
    texts = {f.name for f in descriptor.fields if f.type == FieldDescriptor.TYPE_STRING and not f.is_repeated}
    own = tuple(name for name in _PLACES if name in texts)
    tables = tuple(name for name in _TABLES if name in texts) if "database" in texts else ()
    table = descriptor.fields_by_name.get("table")
    in_a_database = table is not None and table.message_type is not None
    new_names = tuple(name for name in _NEW_NAMES if name in texts) if in_a_database else ()
    below = []
    for inner in descriptor.fields:
        if inner.message_type is None:
            continue
        found = location_fields_of(inner.message_type, (*above, descriptor.full_name))
        if found.own or found.below:
            below.append((inner.name, inner.is_repeated, found))
    return LocationFields(own, tables, new_names, tuple(below))


def _rewrite(message: Any, places: LocationFields, look: _Look, above: str = "") -> None:
    for name in places.own:
        _rewrite_place(message, name, look, above)
    if places.tables and message.database:
        for name in places.tables:
            _check_table(look, message.database, getattr(message, name), f"{above}{name}")
    for name, many, inner in places.below:
        for part in _parts(message, name, repeated=many):
            _rewrite(part, inner, look, f"{above}{name}.")
    for name in places.new_names:
        _check_table(look, message.table.database, getattr(message, name), f"{above}{name}")


def _rewrite_place(message: Any, name: str, look: _Look, above: str) -> None:
    sent = getattr(message, name)
    if not sent:
        return
    try:
        canonical = look.canonical(name, sent)
    except InvalidArgument as error:
        raise InvalidArgument(error.reason, error.message, field=f"{above}{error.field or name}") from None
    if canonical != sent:
        setattr(message, name, canonical)


def _check_table(look: _Look, database: str, table: str, path: str) -> None:
    if not (database and table):
        return
    try:
        look.check_table(database, table)
    except InvalidArgument as error:
        holder = path.rpartition(".")[0]  # the whole TableRef is what is reserved
        field = holder if holder and error.reason != "BAD_TABLE_NAME" else path
        raise InvalidArgument(error.reason, error.message, field=field) from None


def _parts(message: Any, name: str, *, repeated: bool) -> Iterable[Any]:
    if repeated:
        return getattr(message, name)  # type: ignore[no-any-return]
    return (getattr(message, name),) if message.HasField(name) else ()
