"""Bring the places that a request names into their canonical form, before any handler sees it.

By name: a string field `database` is a database, `uri` a table's Lance dataset, wherever in the request they stand. So
a request's body, and what is remembered by it, is the same for all spellings of a place. A place that does not lie
where the service may work is refused here, and so is a table beside a `database` that is a link to elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from core.database_roots import DatabaseRoots
from core.locations import canonical_database, canonical_table

_RULES: dict[str, Callable[[str], str]] = {"database": canonical_database, "uri": canonical_table}
#: Fields that may name a table of the `database` beside them.
_TABLES = ("table", "view", "name")


@dataclass(frozen=True, slots=True)
class Places:
    """Where a message names places."""

    #: Fields to rewrite, and how.
    own: tuple[tuple[str, Callable[[str], str]], ...] = ()
    #: Fields with names of tables in the message's database.
    tables: tuple[str, ...] = ()
    #: Fields whose messages have places, and whether they are repeated.
    below: tuple[tuple[str, bool, Places], ...] = ()


_known: dict[str, Places] = {}


def canonicalise(request: Any, roots: DatabaseRoots) -> None:
    """Rewrite the places of a request in their canonical form; an empty field stays empty.

    Raises:
        InvalidArgument: BAD_DATABASE, RESERVED_DATABASE, BAD_TABLE_URI, BAD_TABLE_NAME.
        PermissionDenied: DATABASE_NOT_ALLOWED.
    """
    descriptor = request.DESCRIPTOR
    places = _known.get(descriptor.full_name)
    if places is None:
        places = _known[descriptor.full_name] = places_of(descriptor)
    _rewrite(request, places, roots)


def places_of(descriptor: Descriptor, above: tuple[str, ...] = ()) -> Places:
    """Return where a message type names places."""
    if descriptor.full_name in above:
        return Places()  # no message of ours contains itself and a place
    texts = {f.name for f in descriptor.fields if f.type == FieldDescriptor.TYPE_STRING and not f.is_repeated}
    own = tuple((name, rule) for name, rule in _RULES.items() if name in texts)
    tables = tuple(name for name in _TABLES if name in texts) if "database" in texts else ()
    below = []
    for field in descriptor.fields:
        if field.message_type is None:
            continue
        found = places_of(field.message_type, (*above, descriptor.full_name))
        if found.own or found.below:
            below.append((field.name, field.is_repeated, found))
    return Places(own, tables, tuple(below))


def _rewrite(message: Any, places: Places, roots: DatabaseRoots) -> None:
    for name, rule in places.own:
        given = getattr(message, name)
        if not given:
            continue
        if (canonical := rule(given)) != given:
            setattr(message, name, canonical)
        roots.check(canonical)
    if roots and places.tables and message.database:
        for name in places.tables:
            roots.check_table(message.database, getattr(message, name))
    for name, repeated, inner in places.below:
        for part in _parts(message, name, repeated=repeated):
            _rewrite(part, inner, roots)


def _parts(message: Any, name: str, *, repeated: bool) -> Iterable[Any]:
    if repeated:
        return getattr(message, name)  # type: ignore[no-any-return]
    return (getattr(message, name),) if message.HasField(name) else ()
