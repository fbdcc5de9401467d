"""Check the ids and names of requests that no other rule refuses: their characters, and how long request ids are.

They are kept with what was made under them, compared, and shown to people. Names of databases, tables, functions and
new columns have rules of their own; names of columns that are there are as whoever made the table wrote them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from leman_core.model.errors import InvalidArgument
from leman_core.model.shown_text import CONTROL, repeated

REQUEST_ID = "request_id"
_LONGEST = 1_024
#: Fields that are checked wherever they stand in a request.
CHECKED = frozenset({"incarnation", "initiator", "job_id", "read_tag", REQUEST_ID, "tables", "tag"})
#: Messages of which `name` is checked too.
_NAMED = frozenset({"GetDatabaseRequest", "UnregisterDatabaseRequest"})

_Path = tuple[FieldDescriptor, ...]


def check_of(kind: Any) -> Callable[[Any], None]:
    """Return what refuses messages of a kind whose ids or names cannot be any.

    What it returns raises InvalidArgument (BAD_REQUEST), with the path of the field.

    Args:
        kind: their descriptor.
    """
    paths = tuple(_checked(kind))

    def check(message: Any) -> None:
        for path in paths:
            for text in _texts(message, path):
                if text:
                    _check(text, path)

    return check


def _checked(kind: Any, above: _Path = ()) -> Iterator[_Path]:
    for field in kind.fields:
        path = (*above, field)
        if field.message_type is None:
            if field.name in CHECKED or (field.name == "name" and kind.name in _NAMED):
                yield path
        elif all(field.message_type is not outer.message_type for outer in above) and not field.is_repeated:
            yield from _checked(field.message_type, path)


def _texts(message: Any, path: _Path) -> Iterable[str]:
    *above, last = path
    for field in above:
        if not message.HasField(field.name):
            return ()
        message = getattr(message, field.name)
    value = getattr(message, last.name)
    return value if last.is_repeated else (value,)


def _check(text: str, path: _Path) -> None:
    name = ".".join(field.name for field in path)
    if path[-1].name == REQUEST_ID and len(text) > _LONGEST:
        message = f"{name} has {len(text)} characters, and may have {_LONGEST}: choose a shorter one"
        raise InvalidArgument("BAD_REQUEST", message, field=name)
    found = CONTROL.search(text)
    if found:
        message = f"{name} '{repeated(text)}' has the control character {found[0]!a}: send it without"
        raise InvalidArgument("BAD_REQUEST", message, field=name)
