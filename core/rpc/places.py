"""Bring the places that a request names into their canonical form, before any handler sees it.

By the name of the field: a text `database` is a database, by path, uri or registered name, `root` what is to be one,
and `uri` a table's Lance dataset, wherever in the request they stand. So a request's body, and what is remembered by
it, is the same for all spellings of a place. A place that does not lie where the service may work is refused here, and
so is a table beside a `database` that is a link to elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from core.config import Server
from core.database_roots import DatabaseRoots
from core.errors import InvalidArgument
from core.locations import canonical_database, canonical_table
from core.rpc.registered_databases import DatabaseNames, LookAgainError, PathsAlone, names_of

_PLACES = ("database", "uri", "root")
#: Fields that may name a table of the `database` beside them.
_TABLES = ("table", "view", "name")


@dataclass(frozen=True, slots=True)
class Places:
    """Where a message names places."""

    #: Fields to rewrite.
    own: tuple[str, ...] = ()
    #: Fields with names of tables in the message's database.
    tables: tuple[str, ...] = ()
    #: Fields whose messages have places, and whether they are repeated.
    below: tuple[tuple[str, bool, Places], ...] = ()


_known: dict[str, Places] = {}


class RequestPlaces:
    """What settles the places of requests to one service.

    Raises:
        InvalidArgument: BAD_SETTING.
    """

    def __init__(self, server: Server) -> None:
        self._roots = DatabaseRoots(server.database_roots)
        self._names = names_of(server)
        self._any_place = PathsAlone()

    async def settle(self, request: Any, *, from_peer: bool) -> None:
        """Rewrite the places of a request in their canonical form; an empty field stays empty.

        Args:
            from_peer: it is a call that only services make: they name places, and a job that runs may go on although
                its database has lost its name.

        Raises:
            LemanError: what `canonicalise` raises.
        """
        names = self._any_place if from_peer else self._names
        try:
            canonicalise(request, self._roots, names)
        except LookAgainError:  # what was rewritten so far stays as it is when it is looked at again
            await names.read_anew()
            canonicalise(request, self._roots, names, read_now=True)


def canonicalise(
    request: Any, roots: DatabaseRoots, names: DatabaseNames | None = None, *, read_now: bool = False
) -> None:
    """Rewrite the places of a request in their canonical form; an empty field stays empty.

    Args:
        names: None: there are none.
        read_now: the names were read for this very request.

    Raises:
        LookAgainError: names are to be read first; not with `read_now`.
        InvalidArgument: BAD_DATABASE, RESERVED_DATABASE, BAD_TABLE_URI, BAD_TABLE_NAME.
        NotFound: DATABASE_NOT_REGISTERED.
        DataLoss: REGISTRATION_DAMAGED.
        Unavailable: STORE_UNAVAILABLE.
        PermissionDenied: DATABASE_NOT_ALLOWED.
    """
    descriptor = request.DESCRIPTOR
    places = _known.get(descriptor.full_name)
    if places is None:
        places = _known[descriptor.full_name] = places_of(descriptor)
    _rewrite(request, places, _Look(roots, names or PathsAlone(), read_now))


@dataclass(frozen=True, slots=True)
class _Look:
    """One look at the places of a request."""

    roots: DatabaseRoots
    names: DatabaseNames
    read_now: bool

    def canonical(self, field: str, given: str) -> str:
        if field == "database":
            return self.names.place_of(given, read_now=self.read_now)
        if field == "uri":
            uri = canonical_table(given)
            self.names.check(uri.rpartition("/")[0], read_now=self.read_now)
            return uri
        try:
            return canonical_database(given)
        except InvalidArgument as error:
            raise InvalidArgument(error.reason, error.message, field=field) from None


def places_of(descriptor: Descriptor, above: tuple[str, ...] = ()) -> Places:
    """Return where a message type names places."""
    if descriptor.full_name in above:
        return Places()  # no message of ours contains itself and a place
    texts = {f.name for f in descriptor.fields if f.type == FieldDescriptor.TYPE_STRING and not f.is_repeated}
    own = tuple(name for name in _PLACES if name in texts)
    tables = tuple(name for name in _TABLES if name in texts) if "database" in texts else ()
    below = []
    for field in descriptor.fields:
        if field.message_type is None:
            continue
        found = places_of(field.message_type, (*above, descriptor.full_name))
        if found.own or found.below:
            below.append((field.name, field.is_repeated, found))
    return Places(own, tables, tuple(below))


def _rewrite(message: Any, places: Places, look: _Look, above: str = "") -> None:
    roots = look.roots
    for name in places.own:
        given = getattr(message, name)
        if not given:
            continue
        try:
            canonical = look.canonical(name, given)
        except InvalidArgument as error:
            raise InvalidArgument(error.reason, error.message, field=f"{above}{error.field}") from None
        if canonical != given:
            setattr(message, name, canonical)
        roots.check(canonical)
    if roots and places.tables and message.database:
        for name in places.tables:
            roots.check_table(message.database, getattr(message, name))
    for name, repeated, inner in places.below:
        for part in _parts(message, name, repeated=repeated):
            _rewrite(part, inner, look, f"{above}{name}.")


def _parts(message: Any, name: str, *, repeated: bool) -> Iterable[Any]:
    if repeated:
        return getattr(message, name)  # type: ignore[no-any-return]
    return (getattr(message, name),) if message.HasField(name) else ()
