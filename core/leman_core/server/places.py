"""Bring the places that a request names into their canonical form, before any handler sees it.

By the name of the field: a text `database` is a database, by path, uri or registered name, `root` what is to be one,
and `uri` a table's Lance dataset, wherever in the request they stand. So a request's body, and what is remembered by
it, is the same for all spellings of a place. A place that does not lie where the service may work is refused here, a
table beside a `database` that is a link to elsewhere, and what is Leman's own: its folders, the registry of databases,
the tables that refreshes compute in. Errors show what the caller sent, and nothing of where links and names lead.
"""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from leman_core.model.errors import FailedPrecondition, InvalidArgument, LemanError
from leman_core.model.shown_text import repeated
from leman_core.server.registered_databases import DatabaseNames, LookAgainError, PathsAlone, names_of, registry_place
from leman_core.settings import Server
from leman_core.storage.database_roots import DatabaseRoots, check_not_own, not_allowed
from leman_core.storage.locations import (
    TABLE_ENDING,
    check_folder,
    check_table_name,
    database_and_table,
    in_object_store,
    leads_elsewhere,
    resolved_database,
    store_of,
)

_PLACES = ("database", "uri", "root")
#: Fields that may name a table of the `database` beside them.
_TABLES = ("table", "view", "name")
#: Fields that name what the `table` beside them is to be called.
_NEW_NAMES = ("new_name",)


@dataclass(frozen=True, slots=True)
class Places:
    """Where a message names places."""

    #: Fields to rewrite.
    own: tuple[str, ...] = ()
    #: Fields with names of tables in the message's database.
    tables: tuple[str, ...] = ()
    #: Fields with names of tables in the database of the message's `table`.
    new_names: tuple[str, ...] = ()
    #: Fields whose messages have places, and whether they are repeated.
    below: tuple[tuple[str, bool, Places], ...] = ()


_known: dict[str, Places] = {}


@dataclass(slots=True)
class Settled:
    """What is known of the places of a request once they are settled."""

    #: Of places that were given by name, or lead through links: canonical form → as the caller sent it.
    linked: dict[str, str] = field(default_factory=dict)
    #: The first store that it names, such as `gs://bucket`; empty: all lie on this machine.
    store: str = ""


class RequestPlaces:
    """What settles the places of requests to one service.

    Raises:
        InvalidArgument: BAD_SETTING.
    """

    def __init__(self, server: Server) -> None:
        self._roots = roots_of(server)
        self._names = names_of(server)
        self._any_place = PathsAlone()

    async def settle(self, request: Any, *, from_peer: bool) -> Settled:
        """Rewrite the places of a request in their canonical form; an empty field stays empty.

        Args:
            from_peer: it is a call that only services make: they name places, and a job that runs may go on although
                its database has lost its name. It may name the tables that a refresh computes in.

        Raises:
            LemanError: what `canonicalise` raises.
        """
        names, settled = self._any_place if from_peer else self._names, Settled()
        try:
            return canonicalise(request, self._roots, names, from_peer=from_peer, settled=settled)
        except LookAgainError:  # what was rewritten so far stays as it is when it is looked at again
            await names.read_anew()
            return canonicalise(request, self._roots, names, read_now=True, from_peer=from_peer, settled=settled)


def roots_of(server: Server) -> DatabaseRoots:
    """Return where the settings let databases lie.

    Raises:
        InvalidArgument: BAD_SETTING.
    """
    return DatabaseRoots(server.database_roots, registry_place(server) if server.registry else "")


def canonicalise(
    request: Any,
    roots: DatabaseRoots,
    names: DatabaseNames | None = None,
    *,
    read_now: bool = False,
    from_peer: bool = False,
    settled: Settled | None = None,
) -> Settled:
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
        places = _known[descriptor.full_name] = places_of(descriptor)
    look = _Look(roots, names or PathsAlone(), read_now, from_peer, settled or Settled())
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
        return repeated(linked[places[(found.lastindex or 1) - 1]])

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
    found: Settled

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


def places_of(descriptor: Descriptor, above: tuple[str, ...] = ()) -> Places:
    """Return where a message type names places."""
    if descriptor.full_name in above:
        return Places()  # no message of ours contains itself and a place
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
        found = places_of(inner.message_type, (*above, descriptor.full_name))
        if found.own or found.below:
            below.append((inner.name, inner.is_repeated, found))
    return Places(own, tables, new_names, tuple(below))


def _rewrite(message: Any, places: Places, look: _Look, above: str = "") -> None:
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
