"""The databases that a service may use, and the places in a request, in their canonical form.

Before a handler sees a request, this module replaces each place in it, at any depth of the message. The name of a
string field says what it holds: `database` is the path, URI or registered name of a database, `root` is a folder that
is to become a database, and `uri` is a table's Lance dataset. As all spellings of a place become one, a request's
digest and everything that services keep by place do not depend on the spelling.

A place is refused if it is, directly or through a symbolic link, outside of where the service may work, or if it is
Leman's own: its folders, the registry of databases, the scratch tables of refreshes. Errors show places as the caller
sent them, and never reveal where links and names lead.

A table that is a link to a table of the same database is that table, except where a request creates, renames or removes
a name. If the link leads to a table of another database, its functions, jobs and claims would be in two databases, so
requests may only read through it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import time
import urllib.parse
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import structlog
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from leman_core.model.databases import Registrations
from leman_core.model.service_errors import FailedPrecondition, InvalidArgument, LemanError, PermissionDenied, excerpt
from leman_core.settings import Server
from leman_core.storage.database_roots import EVERYWHERE, DatabaseRoots, check_not_own, not_allowed
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

if TYPE_CHECKING:
    from leman_core.storage.database_registry import DatabaseRegistry

_log = structlog.get_logger(__name__)


class _StaleError(Exception):
    """The registrations in memory are too old for a decision: read the registry, and try again."""


class DatabaseLocations:
    """The roots below which databases may be, and the registered databases, for one event loop.

    While the registry cannot be read, names that are known stay valid, so that their databases stay usable.

    Args:
        roots: Where databases may be.
        registry: The registered names. None: callers name databases by path or URI only.
        seconds: How long registrations are used before they are read again. For an unknown name they are read at once.
        alone: Whether only registered databases are accepted.
        clock: Returns the time in seconds.
    """

    def __init__(
        self,
        roots: DatabaseRoots = EVERYWHERE,
        registry: DatabaseRegistry | None = None,
        *,
        seconds: float = 0.0,
        alone: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.roots = roots
        self.registry = registry
        self._seconds = seconds
        self._alone = alone
        self._clock = clock
        self._known: Registrations | None = None
        self._known_roots: frozenset[str] = frozenset()
        self._error: LemanError | None = None
        #: When the last read began.
        self._read_at = float("-inf")
        self._reading = asyncio.Lock()
        #: How many reads have begun.
        self._readings = 0

    def registrations(self) -> Registrations:
        """Read all registrations; none without a registry. It blocks, and any thread may call it.

        Raises:
            LemanError: The registry cannot be read.
        """
        return Registrations() if self.registry is None else self.registry.read()

    async def resolve(self, request: Any, *, from_peer: bool, reads: bool = False) -> ResolvedLocations:
        """Rewrite the places of a request in their canonical form. Empty fields stay empty.

        Args:
            request: The message, which is changed.
            from_peer: Whether another service makes the call. Services send places, not registered names, so that a
                running job continues if its database loses its name. They may also name scratch tables of refreshes.
                Links to tables are left as they are.
            reads: Whether the call only reads, so that a table may be a link to a table of another database.

        Raises:
            LemanError: What `canonicalize` raises, or the registry cannot be read and has never been read.
        """
        found = ResolvedLocations()
        try:
            return self.canonicalize(request, found, from_peer=from_peer, reads=reads)
        except _StaleError:  # canonical places stay the same if they are rewritten again
            await self._read_again()
            return self.canonicalize(request, found, from_peer=from_peer, reads=reads, read_now=True)

    def canonicalize(
        self,
        request: Any,
        found: ResolvedLocations | None = None,
        *,
        from_peer: bool = False,
        reads: bool = False,
        read_now: bool = False,
    ) -> ResolvedLocations:
        """Rewrite the places of a request, as `resolve` does, with the registrations in memory.

        Args:
            request: The message, which is changed.
            found: The result of an earlier pass over the request, which is extended and returned.
            from_peer: Whether another service makes the call.
            reads: Whether the call only reads.
            read_now: Whether the registrations were just read for this request.

        Raises:
            InvalidArgument: BAD_DATABASE, RESERVED_DATABASE, RESERVED_NAME, BAD_TABLE_URI, BAD_TABLE_NAME.
            NotFound: DATABASE_NOT_REGISTERED.
            DataLoss: REGISTRATION_DAMAGED.
            FailedPrecondition: STORAGE_DENIED.
            Unavailable: STORE_UNAVAILABLE.
            PermissionDenied: DATABASE_NOT_ALLOWED.
        """
        descriptor = request.DESCRIPTOR
        fields = _known.get(descriptor.full_name)
        if fields is None:
            fields = _known[descriptor.full_name] = location_fields_of(descriptor)
        found = ResolvedLocations() if found is None else found
        named = _NAMED.get(descriptor.full_name, "")
        _rewrite(request, fields, _Resolution(self, read_now, from_peer, reads, named, found))
        return found

    def root_of(self, text: str, *, read_now: bool) -> str:
        """Return the canonical place of the database with a name, path or URI. Whether it exists is not checked.

        Raises:
            _StaleError: The registry has to be read first. Not raised with `read_now`.
            LemanError: Callers may not use that database, or there is no such name; see `canonicalize`.
        """
        if self.registry is None or not is_database_name(text):
            place = resolved_database(text)
            self.check_registered(place, text, read_now=read_now)
            return place
        known = self._fresh(read_now=read_now)
        found = known.by_name.get(text)
        if found is not None:
            return found.root
        if not read_now:
            raise _StaleError
        if self._error is not None:  # it may be registered
            raise self._error
        return known.get(text).root

    def check_registered(self, place: str, sent: str, *, read_now: bool) -> None:
        """Refuse a place that is not a registered database, if only registered ones are accepted.

        Args:
            place: The canonical place.
            sent: The caller's text for it, which the error shows.
            read_now: Whether the registrations were just read for this request.

        Raises:
            _StaleError: The registry has to be read first. Not raised with `read_now`.
            LemanError: The place is not registered, or the registry cannot be read.
        """
        if not self._alone:
            return
        self._fresh(read_now=read_now)
        if place in self._known_roots:
            return
        if not read_now:
            raise _StaleError
        if self._error is not None:
            raise self._error
        raise PermissionDenied(
            "DATABASE_NOT_ALLOWED",
            f"'{excerpt(sent)}' is not a registered database, and this service accepts no others: use one that "
            "ListDatabases returns, or ask the operator of the service to register it",
        )

    async def _read_again(self) -> None:
        """Read the registry, unless another call has begun to read it since this one was made."""
        begun_before = self._readings
        async with self._reading:
            if self._readings > begun_before:
                return
            self._readings += 1
            begun = self._clock()
            try:
                known = await asyncio.to_thread(self.registrations)
            except LemanError as error:
                if self._known is None:
                    raise
                _log.warning("the registry of databases cannot be read", reason=error.reason, error=error.message)
                self._error, self._read_at = error, begun
                return
            self._known, self._error, self._read_at = known, None, begun
            self._known_roots = frozenset(database.root for database in known.by_name.values())

    def _fresh(self, *, read_now: bool) -> Registrations:
        old = self._clock() - self._read_at > self._seconds
        if self._known is None or (old and not read_now):
            raise _StaleError
        return self._known


def configured_locations(server: Server) -> DatabaseLocations:
    """Return the databases that the settings allow.

    Raises:
        InvalidArgument: BAD_SETTING.
    """
    if not server.registry:
        if server.registered_databases_only:
            raise InvalidArgument(
                "BAD_SETTING", "LEMAN_SERVER__REGISTERED_DATABASES_ONLY needs LEMAN_SERVER__REGISTRY: set both"
            )
        return DatabaseLocations(DatabaseRoots(server.database_roots))
    from leman_core.storage.database_registry import DatabaseRegistry  # noqa: PLC0415 - loads Lance

    try:
        place = canonical_database(server.registry)
    except InvalidArgument as error:
        raise InvalidArgument("BAD_SETTING", f"LEMAN_SERVER__REGISTRY: {error.message}") from None
    return DatabaseLocations(
        DatabaseRoots(server.database_roots, place),
        DatabaseRegistry(place),
        seconds=server.registry_seconds,
        alone=server.registered_databases_only,
    )


_PLACES = ("database", "uri", "root")
#: Names of fields that may hold a table's name, in the `database` of the same message.
_TABLES = ("table", "view", "name")
#: Those of them that name an existing table: if it is a link, they get the table's own name.
_FOLLOWED = ("table", "view")
#: Names of fields that hold a new name for the `table` of the same message.
_NEW_NAMES = ("new_name",)
#: Requests that create, rename or remove a name → the field with the name. If it is a link, they are about the link,
#: not about its target.
_NAMED = {
    "leman.v1.CreateMaterializedViewRequest": "view.table",
    "leman.v1.CreateTableRequest": "table.table",
    "leman.v1.DropTableRequest": "table.table",
    "leman.v1.DropViewRequest": "view.table",
    "leman.v1.RenameTableRequest": "table.table",
}


@dataclass(frozen=True, slots=True)
class LocationFields:
    """The fields of a message type that name places."""

    #: Fields that hold a place, to be rewritten.
    own: tuple[str, ...] = ()
    #: Fields that hold names of tables in the message's `database`.
    tables: tuple[str, ...] = ()
    #: Fields that hold names of tables in the database of the message's `table`.
    new_names: tuple[str, ...] = ()
    #: Whether its `filter` has `tables` of the message's `database`.
    filtered: bool = False
    #: Fields whose messages have such fields: name, whether it is repeated, and the fields of its message.
    below: tuple[tuple[str, bool, LocationFields], ...] = ()


_known: dict[str, LocationFields] = {}


@dataclass(slots=True)
class ResolvedLocations:
    """The places that a request names."""

    #: The caller's text for each place whose canonical form differs from it, because it is a name or contains a link.
    linked: dict[str, str] = field(default_factory=dict)
    #: The first object store among the places, such as `gs://bucket`; empty if all places are on this machine.
    store: str = ""


def hide_links(error: LemanError, linked: Mapping[str, str]) -> None:
    """Rewrite an error so that it shows places as the caller sent them.

    Args:
        error: The error, which is changed.
        linked: See `ResolvedLocations`.
    """
    places = sorted(linked.keys() - {"/"}, key=len, reverse=True)  # a place may contain another, so longest first
    if not places:
        return
    any_place = re.compile(rf"(?<![\w./-])(?:{'|'.join(map(_spellings, places))})(?![\w-]|\.\w)")

    def as_sent(found: re.Match[str]) -> str:
        return excerpt(linked[places[(found.lastindex or 1) - 1]])

    error.message = any_place.sub(as_sent, error.message)
    error.facts = {key: any_place.sub(as_sent, value) for key, value in error.facts.items()}


def _spellings(place: str) -> str:
    """Return a pattern with one group that matches a place as Lance, pyarrow and the operating system write it.

    Lance writes a path without its first `/`. If that leaves one word, it matches only if more of a path follows.
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


@dataclass(slots=True)
class _Resolution:
    """What one pass over the places of a request uses, and what it has found."""

    locations: DatabaseLocations
    read_now: bool
    from_peer: bool
    reads: bool
    #: The path of the field that names no table, but a name to create, rename or remove; empty: there is none.
    named: str
    found: ResolvedLocations
    #: The database of the first table, which is that of a view's source by default.
    home: str = ""

    def canonical(self, name: str, sent: str) -> str:
        """Return the canonical form of the place `sent` in the field `name`. Raise if the service may not use it."""
        database, table = database_and_table(sent) if name == "uri" else (sent, "")
        try:
            place = self._resolved(name, database)
        except FailedPrecondition:
            if self.locations.roots:
                raise not_allowed(sent) from None
            raise
        uri = place
        if table:
            check_table_name(table, name)
            uri = f"{place.rstrip('/')}/{table}{TABLE_ENDING}"
        self.locations.roots.check(uri, sent)
        check_folder(place, sent, name)
        if in_object_store(place):
            self.found.store = self.found.store or store_of(place)
        if leads_elsewhere(database, place) or (name == "root" and database != place):
            self.found.linked[place] = database.rstrip("/")
        return uri

    def _resolved(self, name: str, database: str) -> str:
        if name == "database" and not self.from_peer:
            return self.locations.root_of(database, read_now=self.read_now)
        place = resolved_database(database, name)
        if name == "uri" and not self.from_peer:
            self.locations.check_registered(place, database, read_now=self.read_now)
        return place

    def checked_table(self, database: str, table: str, *, follow: bool) -> str:
        """Return the own name of a table that a request may name; without `follow`, the name as it is."""
        if not self.from_peer:
            check_not_own(table)
        real = self.locations.roots.check_table(database, table, self.found.linked.get(database, ""))
        own = self._own_name(database, table, real) if follow and not self.from_peer else table
        if own != table:
            check_not_own(own)
            sent = self.found.linked.get(database, database)
            self.found.linked[real] = f"{sent.rstrip('/')}/{table}{TABLE_ENDING}"
        return own

    def other_names(self, database: str, tables: Sequence[str]) -> list[str]:
        """Return the own names of those tables of a filter that are links."""
        own: dict[str, None] = {}
        for table in () if self.from_peer else tables:
            with contextlib.suppress(LemanError):  # a filter may name what does not exist
                real = self.locations.roots.check_table(database, table)
                own[self._own_name(database, table, real)] = None
        return [name for name in own if name not in tables]

    def _own_name(self, database: str, table: str, real: str) -> str:
        """Return the name of the table that a name leads to.

        Args:
            real: Where the name leads. If that does not exist, or is no `*.lance`, the table keeps the link's name.
        """
        holder, _, last = real.rpartition("/")
        is_link = real and not in_object_store(real) and real != f"{database.rstrip('/')}/{table}{TABLE_ENDING}"
        if not is_link or not last.endswith(TABLE_ENDING) or not os.path.isdir(real):  # noqa: PTH112 - for every call
            return table
        if holder == database.rstrip("/"):
            return last.removesuffix(TABLE_ENDING)
        if self.reads:
            return table
        raise InvalidArgument(
            "BAD_TABLE_NAME",
            f"'{excerpt(table)}' is a link to a table of another database, and is read-only here. To change it or "
            "run jobs on it, use the table's own database and name",
        )


def location_fields_of(descriptor: Descriptor, above: tuple[str, ...] = ()) -> LocationFields:
    """Return the fields of a message type that name places, at any depth."""
    if descriptor.full_name in above:
        return LocationFields()  # no message of a recursive type has a place
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
    chosen = descriptor.fields_by_name.get("filter")
    kind = chosen.message_type if chosen is not None and "database" in texts else None
    filtered = kind is not None and "tables" in kind.fields_by_name
    return LocationFields(own, tables, new_names, filtered, tuple(below))


def _rewrite(message: Any, places: LocationFields, look: _Resolution, above: str = "") -> None:
    for name in places.own:
        _rewrite_place(message, name, look, above)
    if places.tables and (database := message.database or look.home):
        look.home = look.home or database
        for name in places.tables:
            _rewrite_table(message, name, look, database, f"{above}{name}")
    if places.filtered and message.database and message.filter.tables:
        tables = message.filter.tables
        tables.extend(look.other_names(message.database, tables))
    for name, many, inner in places.below:
        for part in _parts(message, name, repeated=many):
            _rewrite(part, inner, look, f"{above}{name}.")
    for name in places.new_names:
        _rewrite_table(message, name, look, message.table.database, f"{above}{name}")


def _rewrite_place(message: Any, name: str, look: _Resolution, above: str) -> None:
    sent = getattr(message, name)
    if not sent:
        return
    try:
        canonical = look.canonical(name, sent)
    except InvalidArgument as error:
        raise InvalidArgument(error.reason, error.message, field=f"{above}{error.field or name}") from None
    if canonical != sent:
        setattr(message, name, canonical)


def _rewrite_table(message: Any, name: str, look: _Resolution, database: str, path: str) -> None:
    table = getattr(message, name)
    if not (database and table):
        return
    try:
        own = look.checked_table(database, table, follow=name in _FOLLOWED and path != look.named)
    except InvalidArgument as error:
        holder = path.rpartition(".")[0]  # only a name and its database together are reserved, so blame their TableRef
        field = holder if holder and error.reason != "BAD_TABLE_NAME" else path
        raise InvalidArgument(error.reason, error.message, field=field) from None
    if own != table:
        setattr(message, name, own)


def _parts(message: Any, name: str, *, repeated: bool) -> Iterable[Any]:
    if repeated:
        return getattr(message, name)  # type: ignore[no-any-return]
    return (getattr(message, name),) if message.HasField(name) else ()
