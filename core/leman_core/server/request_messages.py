"""Request messages: unreadable ones, ids and names, idempotency, and digests that tell requests apart.

Check the ids and names of requests that no other rule refuses: their characters, and how long request ids are.

They are kept with what was made under them, compared, and shown to people. Names of databases, tables, functions and
new columns have rules of their own; names of columns that are there are as whoever made the table wrote them.

Messages that are too large, or are none: callers hear of them as of any other error, and not of gRPC's own making.

gRPC lets in twice as much as a message may have (`TRANSPORT_FACTOR`), so that it is for us to refuse what is larger.

Which methods change nothing, may be asked for with GET, or may be sent again, as the protos say.

What tells two requests under one request id apart: their whole bodies, and the rows behind them.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterable, Iterator
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
_LONGEST = 1_024
#: Fields that are checked wherever they stand in a request.
CHECKED = frozenset({"incarnation", "initiator", "job_id", "read_tag", REQUEST_ID, "tables", "tag"})
#: Messages of which `name` is checked too.
_NAMED = frozenset({"GetDatabaseRequest", "UnregisterDatabaseRequest"})

_Path = tuple[FieldDescriptor, ...]


def text_check(kind: Any) -> Callable[[Any], None]:
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
    found = CONTROL_CHARACTERS.search(text)
    if found:
        message = f"{name} '{excerpt(text)}' has the control character {found[0]!a}: send it without"
        raise InvalidArgument("BAD_REQUEST", message, field=name)


#: What is larger than so many times the largest message, gRPC does not keep, and refuses without a reason.
TRANSPORT_FACTOR = 2


class UnreadableMessage:
    """Stands for a message that was not read, until its call can be answered."""

    def __init__(self, error: LemanError) -> None:
        #: What its caller is told.
        self.error = error


def message_too_large(size: int, largest: int) -> ResourceExhausted:
    """Return the error for a message above the bound."""
    return _above(largest, f"a message may have {largest} bytes here, not {size}: send less at once")


def check_response_size(answer: bytes, largest: int) -> None:
    """Refuse to send an answer that is too large.

    Raises:
        ResourceExhausted: MESSAGE_TOO_LARGE.
    """
    if len(answer) > largest:
        raise _above(largest, f"the answer has {len(answer)} bytes, and may have {largest}: ask for less at once")


def request_subject(request: Any) -> Message | None:
    """Return what says what a request is about: the message itself, or the one that it carries, if any.

    A handler may have requests that are none of protobuf; those have an attribute `carried`.
    """
    return request if request is None or isinstance(request, Message) else request.carried


def tolerant_reader(read: Callable[[bytes], Any], largest: int | None = None) -> Callable[[bytes], Any]:
    """Return what reads as `read` does, and gives `Unreadable` where that fails.

    Args:
        read: A message's own `FromString`, or what raises LemanError.
        largest: Bytes that a message may have; None: it was looked at before.
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
            return UnreadableMessage(InvalidArgument("BAD_MESSAGE", f"this is no {name}: generate the client anew"))
        except LemanError as error:
            return UnreadableMessage(error)

    return readable


def _above(largest: int, message: str) -> ResourceExhausted:
    return ResourceExhausted(
        "MESSAGE_TOO_LARGE", f"{message}, or raise LEMAN_SERVER__MAX_MESSAGE_MB", retry_after_seconds=0, largest=largest
    )


_OPTIONS = descriptor_pb2.MethodOptions


def allows_get(method: MethodDescriptor) -> bool:
    """Return whether HTTP's GET may ask for a method (`idempotency_level = NO_SIDE_EFFECTS`).

    A web page can cause a GET unasked: such a method changes nothing, runs nothing of its caller's, and costs little.
    """
    return bool(method.GetOptions().idempotency_level == _OPTIONS.NO_SIDE_EFFECTS)


def changes_nothing(method: MethodDescriptor) -> bool:
    """Return whether a method only reads, whatever that costs."""
    return allows_get(method) or bool(method.GetOptions().Extensions[annotations_pb2.access].reads)


def may_be_repeated(method: MethodDescriptor) -> bool:
    """Tell whether a request that is sent again does nothing more, if it carries a request id where it can."""
    declared = method.GetOptions().idempotency_level != _OPTIONS.IDEMPOTENCY_UNKNOWN
    return declared or REQUEST_ID in method.input_type.fields_by_name


_Request = TypeVar("_Request", bound=Message)


def body_digest(request: Message) -> str:
    """Return the identity of a request as it was sent, as hex: its kind and every field, unknown ones too.

    The values of a map of secrets (`debug_redact`) are left out, as digests are stored; its keys are in it.
    It is that of a serialisation, which another release of protobuf may write otherwise: a request that is sent again
    over such an upgrade counts as another one.
    """
    kind = request.DESCRIPTOR.full_name.encode()
    request = without_secrets(request)
    return hashlib.blake2b(kind + b"\n" + request.SerializeToString(deterministic=True), digest_size=16).hexdigest()


def without_secrets(request: _Request, *, keys: bool = True) -> _Request:
    """Return a request with no value in its maps of secrets (`debug_redact`), which is a copy where there was one.

    Args:
        keys: whether their keys stay.
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
    """Return the identity of a request behind which rows were sent; `body` is that of the request alone."""
    return f"{body} {rows}"


def rows_of(body: str) -> SentRows | None:
    """Return the rows behind a request; None where its body does not tell them, or in a way that is not known here."""
    try:
        return SentRows.parse(body.partition(" ")[2])
    except ValueError:
        return None


def same_but_for_rows(known: str, asked: str) -> bool:
    """Tell whether two requests differ in the rows behind them at the most."""
    return known.partition(" ")[0] == asked.partition(" ")[0]


def check_same_request(request_id: str, known: str, asked: str) -> None:
    """Refuse a request id that came with another body before.

    Rows are compared where both sides tell them: who asks before they have come cannot, nor can what a release noted
    that did not look at them.

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
