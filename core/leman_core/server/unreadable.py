"""Messages that are too large, or are none: callers hear of them as of any other error, and not of gRPC's own making.

gRPC lets in twice as much as a message may have (`TRANSPORT_FACTOR`), so that it is for us to refuse what is larger.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.protobuf.message import DecodeError, Message

from leman_core.model.errors import InvalidArgument, LemanError, ResourceExhausted
from leman_core.server import request_texts

#: What is larger than so many times the largest message, gRPC does not keep, and refuses without a reason.
TRANSPORT_FACTOR = 2


class Unreadable:
    """Stands for a message that was not read, until its call can be answered."""

    def __init__(self, error: LemanError) -> None:
        #: What its caller is told.
        self.error = error


def too_large(size: int, largest: int) -> ResourceExhausted:
    """Return the error for a message above the bound."""
    return _above(largest, f"a message may have {largest} bytes here, not {size}: send less at once")


def check_answer(answer: bytes, largest: int) -> None:
    """Refuse to send an answer that is too large.

    Raises:
        ResourceExhausted: MESSAGE_TOO_LARGE.
    """
    if len(answer) > largest:
        raise _above(largest, f"the answer has {len(answer)} bytes, and may have {largest}: ask for less at once")


def subject(request: Any) -> Message | None:
    """Return what says what a request is about: the message itself, or the one that it carries, if any.

    A handler may have requests that are none of protobuf; those have an attribute `carried`.
    """
    return request if request is None or isinstance(request, Message) else request.carried


def reader(read: Callable[[bytes], Any], largest: int | None = None) -> Callable[[bytes], Any]:
    """Return what reads as `read` does, and gives `Unreadable` where that fails.

    Args:
        read: A message's own `FromString`, or what raises LemanError.
        largest: Bytes that a message may have; None: it was looked at before.
    """
    kind = getattr(getattr(read, "__self__", None), "DESCRIPTOR", None)
    name = kind.full_name if kind is not None else "message of this call"
    check = None if kind is None else request_texts.check_of(kind)

    def readable(message: bytes) -> Any:
        if largest is not None and len(message) > largest:
            return Unreadable(too_large(len(message), largest))
        try:
            found = read(message)
            if check is not None:
                check(found)
            return found
        except DecodeError:
            return Unreadable(InvalidArgument("BAD_MESSAGE", f"this is no {name}: generate the client anew"))
        except LemanError as error:
            return Unreadable(error)

    return readable


def _above(largest: int, message: str) -> ResourceExhausted:
    return ResourceExhausted(
        "MESSAGE_TOO_LARGE", f"{message}, or raise LEMAN_SERVER__MAX_MESSAGE_MB", retry_after_seconds=0, largest=largest
    )
