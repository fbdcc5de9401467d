"""Request messages: bounds of their texts and lists, unreadable messages, idempotency, and digests that identify them.

Handlers copy, compare, hash and show on the event loop what callers send, so unbounded texts and lists would block a
service. Data fields are bounded by the size of a message. Many other fields have narrower rules, which handlers check;
names of existing columns may be anything.

gRPC accepts messages of twice the allowed size (`TRANSPORT_FACTOR`), so that the services refuse them with a reason
instead of gRPC without one.
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
#: Fields that are checked for control characters anywhere in a request.
CHECKED = frozenset({"incarnation", "initiator", "job_id", "read_tag", REQUEST_ID, "tables", "tag"})
#: Messages whose `name` is checked too.
_NAMED = frozenset({"GetDatabaseRequest", "UnregisterDatabaseRequest"})
#: The longest of these.
MOST_ID_CHARACTERS = 1_024
#: Characters of all texts of a request together, and entries of all its lists and maps together.
MOST_CHARACTERS = 1 << 20
MOST_ENTRIES = 10_000
#: Bounds of lists whose entries are compared with all existing ones.
_MOST_OF = {"tables": 1_000}
#: Messages that only services send, which bound them themselves.
_INTERNAL = "leman.internal."

_FEWER = "send several requests, or a shorter one"

Check = Callable[[Any], None]


@functools.cache
def text_check(kind: Descriptor) -> Check:
    """Return a check of messages of a kind; it raises InvalidArgument (BAD_REQUEST) with the path of a bad field."""
    look = _Kind(kind, bounded=not kind.full_name.startswith(_INTERNAL), above={})

    def check(message: Any) -> None:
        look.check(message, _Budget())

    return check


class _Budget:
    """Characters and entries that the rest of a request may have."""

    __slots__ = ("characters", "entries")

    def __init__(self) -> None:
        self.characters, self.entries = MOST_CHARACTERS, MOST_ENTRIES


@dataclass(slots=True)
class _Field:
    """A field with texts or entries."""

    name: str
    #: Whether it is a text or has texts.
    is_text: bool = False
    #: Whether its texts are ids or names.
    is_id: bool = False
    is_list: bool = False
    is_map: bool = False
    #: The kind of its messages; None: it has none.
    below: _Kind | None = None


class _Kind:
    """The fields with texts and lists of one kind of message."""

    def __init__(self, kind: Descriptor, *, bounded: bool, above: Mapping[str, _Kind]) -> None:
        self._bounded = bounded
        self._fields: dict[str, _Field] = {}
        #: `ListFields` would copy data.
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
        """Return whether there are such fields. A recursive kind counts as having some."""
        return bool(self._fields) or self in known.values()

    def check(self, message: Any, left: _Budget, above: tuple[str, ...] = ()) -> None:
        """Refuse a message at a path of its request that exceeds the budget, or has a bad id."""
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
            raise _bad(path, f"has {entries} entries, and may have {most}: send fewer at once")
        if left.entries < 0:
            raise _bad(path, f"has {entries} entries, and all lists of a request may have {MOST_ENTRIES}: {_FEWER}")

    def _check_text(self, text: str, left: _Budget, path: tuple[str, ...], *, is_id: bool) -> None:
        if self._bounded:
            left.characters -= len(text)
            if left.characters < 0:
                most = f"all texts of a request may have {MOST_CHARACTERS}"
                raise _bad(path, f"has {len(text)} characters, and {most}: {_FEWER}")
        if is_id:
            self._check_id(text, path)

    def _check_id(self, text: str, path: tuple[str, ...]) -> None:
        if len(text) > MOST_ID_CHARACTERS and (self._bounded or path[-1] == REQUEST_ID):
            raise _bad(path, f"has {len(text)} characters, and may have {MOST_ID_CHARACTERS}: choose a shorter one")
        found = CONTROL_CHARACTERS.search(text)
        if found:
            raise _bad(path, f"'{excerpt(text)}' has the control character {found[0]!a}: send it without")


def _texts_of(entries: Any, *, has_texts: bool) -> Iterable[str]:
    """Yield the text keys of a map, and its values if they are texts."""
    for key in entries:
        if isinstance(key, str):
            yield key
        if has_texts:
            yield entries[key]


def _bad(path: tuple[str, ...], what: str) -> InvalidArgument:
    name = ".".join(path)
    return InvalidArgument("BAD_REQUEST", f"{name} {what}", field=name)


#: gRPC refuses messages of more than this many times the allowed size, without a reason.
TRANSPORT_FACTOR = 2


class UnreadableMessage:
    """Stands for a message that cannot be read until its call can be answered with the error."""

    def __init__(self, error: LemanError) -> None:
        self.error = error


def message_too_large(size: int, largest: int) -> ResourceExhausted:
    """Return the error of a message above the bound."""
    return _above(largest, f"a message may have {largest} bytes here, not {size}: send less at once")


def check_response_size(answer: bytes, largest: int) -> None:
    """Raise ResourceExhausted (MESSAGE_TOO_LARGE) if an answer is too large to send."""
    if len(answer) > largest:
        raise _above(largest, f"the answer has {len(answer)} bytes, and may have {largest}: ask for less at once")


def request_subject(request: Any) -> Message | None:
    """Return the message that says what a request is about: itself, or the one that it carries, if any.

    A request that is no protobuf message has an attribute `carried`.
    """
    return request if request is None or isinstance(request, Message) else request.carried


def tolerant_reader(read: Callable[[bytes], Any], largest: int | None = None) -> Callable[[bytes], Any]:
    """Return a deserializer like `read` that returns `UnreadableMessage` instead of failing.

    Args:
        read: A message's `FromString`, or a function that raises LemanError.
        largest: Bytes that a message may have; None: unbounded, or checked before.
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
            return UnreadableMessage(InvalidArgument("BAD_MESSAGE", f"this is no {name}: generate the client again"))
        except LemanError as error:
            return UnreadableMessage(error)

    return readable


def _above(largest: int, message: str) -> ResourceExhausted:
    return ResourceExhausted(
        "MESSAGE_TOO_LARGE", f"{message}, or raise LEMAN_SERVER__MAX_MESSAGE_MB", retry_after_seconds=0, largest=largest
    )


_OPTIONS = descriptor_pb2.MethodOptions


def allows_get(method: MethodDescriptor) -> bool:
    """Return whether a method can be called with HTTP's GET (`idempotency_level = NO_SIDE_EFFECTS`).

    Any web page can cause a GET, so such a method changes nothing, runs no code of its caller, and is cheap.
    """
    return bool(method.GetOptions().idempotency_level == _OPTIONS.NO_SIDE_EFFECTS)


def changes_nothing(method: MethodDescriptor) -> bool:
    """Return whether a method only reads, at any cost."""
    return allows_get(method) or bool(method.GetOptions().Extensions[annotations_pb2.access].reads)


def may_be_repeated(method: MethodDescriptor) -> bool:
    """Return whether a request may be retried without effect, given that it carries a request id if it can."""
    declared = method.GetOptions().idempotency_level != _OPTIONS.IDEMPOTENCY_UNKNOWN
    return declared or REQUEST_ID in method.input_type.fields_by_name


_Request = TypeVar("_Request", bound=Message)


def body_digest(request: Message) -> str:
    """Return a hex digest of a request's kind and all its fields, including unknown ones.

    Values of secret maps (`debug_redact`) are left out because digests are stored; their keys are included. Another
    release of protobuf may serialize a request differently: a retry after such an upgrade counts as another request.
    """
    kind = request.DESCRIPTOR.full_name.encode()
    request = without_secrets(request)
    return hashlib.blake2b(kind + b"\n" + request.SerializeToString(deterministic=True), digest_size=16).hexdigest()


def without_secrets(request: _Request, *, keys: bool = True) -> _Request:
    """Return a request without the values of its secret maps (`debug_redact`); a copy if it had any.

    Args:
        keys: Whether the maps' keys stay.
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
    """Return the identity of a request followed by rows, given the `body` digest of the request alone."""
    return f"{body} {rows}"


def rows_of(body: str) -> SentRows | None:
    """Return the rows in a request's identity; None if it has none, or has them in an unknown format."""
    try:
        return SentRows.parse(body.partition(" ")[2])
    except ValueError:
        return None


def same_but_for_rows(known: str, asked: str) -> bool:
    """Return whether two requests differ at most in their rows."""
    return known.partition(" ")[0] == asked.partition(" ")[0]


def check_same_request(request_id: str, known: str, asked: str) -> None:
    """Refuse a request id that was used with another body before.

    Rows are compared only if both identities have them. One that was made before the rows arrived has none, and neither
    have those of older releases.

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
