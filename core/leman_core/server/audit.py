"""One line for each call that may change something and for each refusal: who asked for what, with which outcome.

Lines of the event `audit` are written whatever `LEMAN_LOG__LEVEL` says. What callers send is in them only as names of
places, functions and jobs, cut to a bounded length; tokens, values and bundles never are.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, TypeAlias

import grpc
import structlog
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from leman_core.server.auth.caller import Caller
from leman_core.server.auth.forwarded_identity import FORWARDED_BY, FORWARDED_FOR

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
#: The way to a message, and what of its fields is written under which name.
Named: TypeAlias = tuple[tuple[str, ...], tuple[tuple[str, str], ...]]

REFUSALS = ("UNAUTHENTICATED", "PERMISSION_DENIED")
_LONGEST = 256
_DEEPEST = 3
#: Fields by which a request names what it is about → what they are called in a line.
_NAMES = {"database": "database", "root": "root", "uri": "uri", "table": "table", "view": "table", "job_id": "job_id"}
#: What a service that passed the call on says of the way → what that is called in a line.
_WAY = {FORWARDED_BY: "forwarded_by", FORWARDED_FOR: "forwarded_for"}
_known: dict[str, tuple[Named, ...]] = {}
#: Bound anew for each line, with what logging is set up to, and never filtered by level.
_log = structlog.wrap_logger(None, wrapper_class=structlog.make_filtering_bound_logger(logging.INFO))


def write(context: Context, whom: Caller | None, about: dict[str, str], **facts: Any) -> None:
    """Write the line of one call.

    Args:
        whom: None where the caller is not known.
        about: what `subjects` gives.
        facts: the method, how long it took, and the outcome.
    """
    who = {} if whom is None else {"caller": whom.name, "shown_by": whom.shown_by}
    given = dict(context.invocation_metadata() or ())
    way = {name: str(given[key])[:_LONGEST] for key, name in _WAY.items() if key in given}
    _log.info("audit", **(who | way | about | facts), peer=context.peer())


def subjects(request: Any) -> dict[str, str]:
    """Return the database, table, job and function that a request names, each where it is given first.

    Nothing is told of a request that is None: it was not read.
    """
    if request is None:
        return {}
    kind = request.DESCRIPTOR
    named = _known.get(kind.full_name)
    if named is None:
        named = _known[kind.full_name] = tuple(_named_in(kind))
    found: dict[str, str] = {}
    for path, fields in named:
        message = _at(request, path)
        for field, name in fields if message is not None else ():
            value = getattr(message, field)
            if value:
                found.setdefault(name, value[:_LONGEST])
    return found


def _at(message: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        if not message.HasField(name):
            return None
        message = getattr(message, name)
    return message


def _named_in(kind: Descriptor, path: tuple[str, ...] = ()) -> Iterator[Named]:
    texts = [f.name for f in kind.fields if f.type == FieldDescriptor.TYPE_STRING and not f.is_repeated]
    fields = [(name, _NAMES[name]) for name in texts if name in _NAMES]
    if "name" in texts and "version" in texts:
        fields += [("name", "udf"), ("version", "udf_version")]
    elif "name" in texts:
        fields.append(("name", "name"))
    if fields:
        yield path, tuple(fields)
    for field in kind.fields if len(path) < _DEEPEST else ():
        if field.message_type is not None and not field.is_repeated:
            yield from _named_in(field.message_type, (*path, field.name))
