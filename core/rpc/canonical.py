"""Bring the places that a request names into their canonical form, before any handler sees it.

By name: a string field `database` is a database, `uri` a table's Lance dataset, wherever in the request they stand. So
a request's body, and what is remembered by it, is the same for all spellings of a place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from core.locations import canonical_database, canonical_table

_RULES: dict[str, Callable[[str], str]] = {"database": canonical_database, "uri": canonical_table}
#: Fields to rewrite, and fields whose messages have some, with the same for these.
Places: TypeAlias = tuple[tuple[tuple[str, Callable[[str], str]], ...], tuple[tuple[str, bool, "Places"], ...]]

_known: dict[str, Places] = {}


def canonicalise(request: Any) -> None:
    """Rewrite the places of a request in their canonical form; an empty field stays empty.

    Raises:
        InvalidArgument: BAD_DATABASE, RESERVED_DATABASE, BAD_TABLE_URI, BAD_TABLE_NAME.
    """
    descriptor = request.DESCRIPTOR
    places = _known.get(descriptor.full_name)
    if places is None:
        places = _known[descriptor.full_name] = places_of(descriptor)
    _rewrite(request, places)


def places_of(descriptor: Descriptor, above: tuple[str, ...] = ()) -> Places:
    """Return where a message type names places."""
    if descriptor.full_name in above:
        return (), ()  # no message of ours contains itself and a place
    own = tuple((f.name, _RULES[f.name]) for f in descriptor.fields if _is_place(f))
    below = []
    for field in descriptor.fields:
        if field.message_type is None:
            continue
        found = places_of(field.message_type, (*above, descriptor.full_name))
        if any(found):
            below.append((field.name, field.is_repeated, found))
    return own, tuple(below)


def _is_place(field: FieldDescriptor) -> bool:
    return field.name in _RULES and field.type == FieldDescriptor.TYPE_STRING and not field.is_repeated


def _rewrite(message: Any, places: Places) -> None:
    own, below = places
    for name, rule in own:
        given = getattr(message, name)
        if given and (canonical := rule(given)) != given:
            setattr(message, name, canonical)
    for name, repeated, inner in below:
        for part in _parts(message, name, repeated=repeated):
            _rewrite(part, inner)


def _parts(message: Any, name: str, *, repeated: bool) -> Iterable[Any]:
    if repeated:
        return getattr(message, name)  # type: ignore[no-any-return]
    return (getattr(message, name),) if message.HasField(name) else ()
