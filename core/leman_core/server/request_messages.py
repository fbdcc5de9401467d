"""Request messages: bounds of their texts and lists, unreadable messages, idempotency, and digests that identify them.

Handlers copy, compare, hash and print texts and lists of requests on the event loop, so unbounded ones would block a
service. Only the size of a message bounds its `bytes` fields. Handlers check narrower rules of single fields. Names of
existing columns are not restricted.

gRPC accepts messages of twice the allowed size (`TRANSPORT_FACTOR`), so that services can refuse them with a reason,
which gRPC does not give.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor
from google.protobuf.message import DecodeError, Message

from leman.v1 import annotations_pb2
from leman_core.model.service_errors import (
    CONTROL_CHARACTERS,
    InvalidArgument,
    LemanError,
    ResourceExhausted,
    excerpt,
    reused_request_id,
    reused_with_other_rows,
)
from leman_core.model.table import SentRows

REQUEST_ID = "request_id"
#: Names of fields, at any depth of a request, that may not have control characters.
CHECKED = frozenset({"incarnation", "initiator", "job_id", "read_tag", REQUEST_ID, "tables", "tag"})
#: Messages whose field `name` may not have control characters either.
_NAMED = frozenset({"GetDatabaseRequest", "UnregisterDatabaseRequest"})
#: Most characters of such a field.
MOST_ID_CHARACTERS = 1_024
#: Most characters in all texts of a request together, and most entries in all its lists and maps together.
MOST_CHARACTERS = 1 << 20
MOST_ENTRIES = 10_000
#: Most entries of a list by the field's name, for lists that are compared with everything that exists.
_MOST_OF = {"tables": 1_000}
#: The package of messages that only services send. These are not bounded here.
_INTERNAL = "leman.internal."

_FEWER = "send several requests, or a shorter one"

Check = Callable[[Any], None]


@functools.cache
def text_check(kind: Descriptor) -> Check:
    """Return a check of messages of a type. It raises InvalidArgument (BAD_REQUEST) with the path of a bad field."""
    look = _Kind(kind, bounded=not kind.full_name.startswith(_INTERNAL), above={})

    def check(message: Any) -> None:
        look.check(message, _Budget())

    return check


class _Budget:
    """The characters and entries that the unchecked part of a request may have."""

    __slots__ = ("characters", "entries")

    def __init__(self) -> None:
        self.characters, self.entries = MOST_CHARACTERS, MOST_ENTRIES


@dataclass(slots=True)
class _Field:
    """A field that is checked."""

    name: str
    #: Whether its values are texts.
    is_text: bool = False
    #: Whether its texts are ids or names.
    is_id: bool = False
    is_list: bool = False
    is_map: bool = False
    #: The type of its messages; None if its values are not messages.
    below: _Kind | None = None


class _Kind:
    """The fields of a message type that are checked."""

    def __init__(self, kind: Descriptor, *, bounded: bool, above: Mapping[str, _Kind]) -> None:
        self._bounded = bounded
        self._fields: dict[str, _Field] = {}
        #: Whether the type has `bytes` fields, which `ListFields` would copy.
        self._has_data = any(field.type == FieldDescriptor.TYPE_BYTES for field in kind.fields)
        known = {**above, kind.full_name: self}
        for field in kind.fields:
            found = self._look(kind, field, known)
            if found is not None:
                self._fields[field.name] = found

    def _look(self, kind: Descriptor, field: FieldDescriptor, known: Mapping[str, _Kind]) -> _Field | None:
        name, inner, is_list = field.name, field.message_type, field.is_repeated
        if is_list and not self._bounded and inner is not None:
            return None
        if inner is not None and inner.GetOptions().map_entry:
            has_texts = inner.fields_by_name["value"].type == FieldDescriptor.TYPE_STRING
            return _Field(name, is_text=has_texts, is_map=True)
        if inner is not None:
            below = known.get(inner.full_name) or _Kind(inner, bounded=self._bounded, above=known)
            return _Field(name, is_list=is_list, below=below) if is_list or below.has_any(known) else None
        is_text = field.type == FieldDescriptor.TYPE_STRING
        is_id = is_text and (name in CHECKED or (name == "name" and kind.name in _NAMED))
        if is_id or (self._bounded and (is_text or is_list)):
            return _Field(name, is_text=is_text, is_id=is_id, is_list=is_list)
        return None

    def has_any(self, known: Mapping[str, _Kind]) -> bool:
        """Return whether the type has fields to check. A recursive type counts as having some."""
        return bool(self._fields) or self in known.values()

    def check(self, message: Any, left: _Budget, above: tuple[str, ...] = ()) -> None:
        """Refuse a message that exceeds the budget, or has a bad id. `above` is the message's path in the request."""
        for field, value in self._set_in(message):
            path = (*above, field.name)
            if field.is_map:
                self._count(len(value), left, path)
                for text in _texts_of(value, has_texts=field.is_text):
                    self._check_text(text, left, path, is_id=False)
            elif field.is_list:
                self._count(len(value), left, path)
                for part in value if field.is_text or field.below else ():
                    if field.below is None:
                        self._check_text(part, left, path, is_id=field.is_id)
                    else:
                        field.below.check(part, left, path)
            elif field.below is not None:
                field.below.check(value, left, path)
            else:
                self._check_text(value, left, path, is_id=field.is_id)

    def _set_in(self, message: Any) -> Iterator[tuple[_Field, Any]]:
        if not self._has_data:
            for described, value in message.ListFields():
                field = self._fields.get(described.name)
                if field is not None:
                    yield field, value
            return
        for name, field in self._fields.items():
            if field.below is None or field.is_list or message.HasField(name):
                value = getattr(message, name)
                if value or field.below is not None:
                    yield field, value

    def _count(self, entries: int, left: _Budget, path: tuple[str, ...]) -> None:
        if not self._bounded:
            return
        most = _MOST_OF.get(path[-1], MOST_ENTRIES)
        left.entries -= entries
        if entries > most:
            raise _bad(path, f"has {entries} entries, and may have at most {most}: send fewer at once")
        if left.entries < 0:
            raise _bad(
                path,
                f"has {entries} entries, and all lists of a request together may have at most {MOST_ENTRIES}: {_FEWER}",
            )

    def _check_text(self, text: str, left: _Budget, path: tuple[str, ...], *, is_id: bool) -> None:
        if self._bounded:
            left.characters -= len(text)
            if left.characters < 0:
                most = f"all texts of a request together may have at most {MOST_CHARACTERS}"
                raise _bad(path, f"has {len(text)} characters, and {most}: {_FEWER}")
        if is_id:
            self._check_id(text, path)

    def _check_id(self, text: str, path: tuple[str, ...]) -> None:
        if len(text) > MOST_ID_CHARACTERS and (self._bounded or path[-1] == REQUEST_ID):
            raise _bad(path, f"has {len(text)} characters, and may have at most {MOST_ID_CHARACTERS}: shorten it")
        found = CONTROL_CHARACTERS.search(text)
        if found:
            raise _bad(path, f"'{excerpt(text)}' has the control character {found[0]!a}: remove it")


def _texts_of(entries: Any, *, has_texts: bool) -> Iterable[str]:
    """Yield the keys of a map that are texts, and its values if they are."""
    for key in entries:
        if isinstance(key, str):
            yield key
        if has_texts:
            yield entries[key]


def _bad(path: tuple[str, ...], what: str) -> InvalidArgument:
    name = ".".join(path)
    return InvalidArgument("BAD_REQUEST", f"{name} {what}", field=name)


#: gRPC refuses messages above the allowed size times this factor, without a reason.
TRANSPORT_FACTOR = 2


class UnreadableMessage:
    """A stand-in for a message that cannot be read. `check_rights` raises its error."""

    def __init__(self, error: LemanError) -> None:
        self.error = error


def message_too_large(size: int, largest: int) -> ResourceExhausted:
    """Return the error for a message of more than `largest` bytes."""
    return _above(largest, f"the message has {size} bytes, and may have at most {largest}: send less at once")


def check_response_size(answer: bytes, largest: int) -> None:
    """Raise ResourceExhausted (MESSAGE_TOO_LARGE) if an answer is too large to send."""
    if len(answer) > largest:
        raise _above(largest, f"the answer has {len(answer)} bytes, more than {largest}: ask for less at once")


def request_subject(request: Any) -> Message | None:
    """Return the protobuf message that says what a request is about, or None.

    It is the request itself or, if that is not a protobuf message, its attribute `carried`.
    """
    return request if request is None or isinstance(request, Message) else request.carried


def tolerant_reader(read: Callable[[bytes], Any], largest: int | None = None) -> Callable[[bytes], Any]:
    """Return a deserializer like `read` that returns `UnreadableMessage` instead of failing.

    Args:
        read: A message's `FromString`, or a function that raises LemanError.
        largest: Most bytes of a message; None if it is unbounded, or checked elsewhere.
    """
    kind = getattr(getattr(read, "__self__", None), "DESCRIPTOR", None)
    name = kind.full_name if kind is not None else "message of this call"
    check = None if kind is None else text_check(kind)

    def readable(message: bytes) -> Any:
        if largest is not None and len(message) > largest:
            return UnreadableMessage(message_too_large(len(message), largest))
        try:
            found = read(message)
            if check is not None:
                check(found)
            return found
        except DecodeError:
            return UnreadableMessage(
                InvalidArgument("BAD_MESSAGE", f"the message is not a {name}: regenerate the client from the protos")
            )
        except LemanError as error:
            return UnreadableMessage(error)

    return readable


def _above(largest: int, message: str) -> ResourceExhausted:
    return ResourceExhausted(
        "MESSAGE_TOO_LARGE", f"{message}, or raise LEMAN_SERVER__MAX_MESSAGE_MB", retry_after_seconds=0, largest=largest
    )


_OPTIONS = descriptor_pb2.MethodOptions


def allows_get(method: MethodDescriptor) -> bool:
    """Return whether a method may be called with HTTP's GET (`idempotency_level = NO_SIDE_EFFECTS`).

    Any web page can cause a GET. So such a method changes nothing, does not run code of its caller, and is cheap.
    """
    return bool(method.GetOptions().idempotency_level == _OPTIONS.NO_SIDE_EFFECTS)


def changes_nothing(method: MethodDescriptor) -> bool:
    """Return whether a method only reads, even if it is expensive."""
    return allows_get(method) or bool(method.GetOptions().Extensions[annotations_pb2.access].reads)


def may_be_repeated(method: MethodDescriptor) -> bool:
    """Return whether a retry of a request has no further effect, if the request has an id where it can have one."""
    declared = method.GetOptions().idempotency_level != _OPTIONS.IDEMPOTENCY_UNKNOWN
    return declared or REQUEST_ID in method.input_type.fields_by_name


_Request = TypeVar("_Request", bound=Message)


def body_digest(request: Message) -> str:
    """Return a hex digest of a request's type and all its fields, including unknown ones.

    Of secret maps (`debug_redact`) it covers only the keys, because digests are stored. Another release of protobuf may
    serialize a request differently, so a retry after such an upgrade counts as another request.
    """
    kind = request.DESCRIPTOR.full_name.encode()
    request = without_secrets(request)
    return hashlib.blake2b(kind + b"\n" + request.SerializeToString(deterministic=True), digest_size=16).hexdigest()


def without_secrets(request: _Request, *, keys: bool = True) -> _Request:
    """Return a request without the values of its secret maps (`debug_redact`). It is a copy if there are any.

    Args:
        request: The request.
        keys: Whether to keep the maps' keys.
    """
    given = [field.name for field in _secret_maps(request.DESCRIPTOR) if getattr(request, field.name)]
    if not given:
        return request
    copy = type(request)()
    copy.CopyFrom(request)
    for name in given:
        secrets = getattr(copy, name)
        names = list(secrets) if keys else []
        secrets.clear()
        secrets.update(dict.fromkeys(names, ""))
    return copy


@functools.cache
def _secret_maps(kind: Descriptor) -> tuple[FieldDescriptor, ...]:
    return tuple(field for field in kind.fields if field.GetOptions().debug_redact)


def with_rows(body: str, rows: SentRows) -> str:
    """Return the identity of a request that is followed by rows: its `body_digest`, and the identity of the rows."""
    return f"{body} {rows}"


def rows_of(body: str) -> SentRows | None:
    """Return the rows in a request's identity; None if it has none, or their format is unknown."""
    try:
        return SentRows.parse(body.partition(" ")[2])
    except ValueError:
        return None


def same_but_for_rows(known: str, asked: str) -> bool:
    """Return whether two requests differ at most in their rows."""
    return known.partition(" ")[0] == asked.partition(" ")[0]


def check_same_request(request_id: str, known: str, asked: str) -> None:
    """Refuse a request id that was used for another request before.

    Rows are compared only if both identities have them. Those from before the rows arrived, and those of older
    releases, have none.

    Args:
        request_id: The id.
        known: The identity of the request that used it before.
        asked: The identity of the present request.

    Raises:
        AlreadyExists: REQUEST_ID_REUSED.
    """
    if known == asked:
        return
    if not same_but_for_rows(known, asked):
        raise reused_request_id(request_id)
    first, now = rows_of(known), rows_of(asked)
    if first is not None and now is not None:
        raise reused_with_other_rows(request_id, first.difference(now))
