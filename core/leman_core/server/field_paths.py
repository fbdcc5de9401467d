"""Say which field of a request an error is about, as the path that its caller knows it by. Pure.

What checks a value knows the field by the message that it looks at: `where` of a backfill, or of another service's
request. The caller sent it in a message around that, so that the error names `backfill.where`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor import Descriptor

#: Messages that have a form of their own: no path goes into them.
_WHOLE = "google.protobuf."


def path_in(request: Any, field: str) -> str:
    """Return the path from a request to the field that an error names; empty: the request has no such field.

    Args:
        request: The request; of a stream any message of it.
        field: As the error has it: names with dots between, which may begin in a message around the request's, or
            inside of it.

    Example: of a CreateJobRequest with a backfill both `where` and `spec.where` are `backfill.where`.
    """
    names = field.split(".")
    for first in range(len(names)):
        tail = names[first:]
        if _has(request.DESCRIPTOR, tail):
            return ".".join(tail)
        found = [path for path in _messages(request.DESCRIPTOR) if _has(path[-1][1], tail)]
        if found:
            best = min(found, key=lambda path: (len(path) - _set_in(request, [name for name, _ in path]), len(path)))
            return ".".join([*(name for name, _ in best), *tail])
    return ""


_Path = tuple[tuple[str, Descriptor], ...]


def _messages(descriptor: Descriptor, above: _Path = (), within: tuple[str, ...] = ()) -> Iterator[_Path]:
    """Yield the paths to all messages in one: names of fields with what they hold; none within itself again."""
    for field in descriptor.fields:
        inner = field.message_type
        if inner is None or inner.full_name.startswith(_WHOLE) or inner.full_name in within:
            continue
        if inner.GetOptions().map_entry:
            continue
        path = (*above, (field.name, inner))
        yield path
        yield from _messages(inner, path, (*within, inner.full_name))


def _has(descriptor: Descriptor, names: list[str]) -> bool:
    """Tell whether a message type has the field at a path."""
    *outer, last = names
    for name in outer:
        field = descriptor.fields_by_name.get(name)
        if field is None or field.message_type is None:
            return False
        descriptor = field.message_type
    return last in descriptor.fields_by_name


def _set_in(message: Any, names: list[str]) -> int:
    """Return how many messages of a path a request holds; in lists the first one stands for all."""
    for depth, name in enumerate(names):
        value = getattr(message, name)
        if message.DESCRIPTOR.fields_by_name[name].is_repeated:
            if not value:
                return depth
            message = value[0]
        elif message.HasField(name):
            message = value
        else:
            return depth
    return len(names)
