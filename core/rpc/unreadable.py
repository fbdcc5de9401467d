"""Messages that are too large, or are none: callers hear of them as of any other error, and not of gRPC's own making.

gRPC lets in twice as much as a message may have (`TRANSPORT_FACTOR`), so that it is for us to refuse what is larger.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.protobuf.message import DecodeError

from core.errors import InvalidArgument, LemanError, ResourceExhausted

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


def reader(read: Callable[[bytes], Any], largest: int | None = None) -> Callable[[bytes], Any]:
    """Return what reads as `read` does, a message's own `FromString`, and gives `Unreadable` where that fails.

    Args:
        largest: Bytes that a message may have; None: it was looked at before.
    """
    kind: str = read.__self__.DESCRIPTOR.full_name  # type: ignore[attr-defined]

    def readable(message: bytes) -> Any:
        if largest is not None and len(message) > largest:
            return Unreadable(too_large(len(message), largest))
        try:
            return read(message)
        except DecodeError:
            return Unreadable(InvalidArgument("BAD_MESSAGE", f"this is no {kind}: generate the client anew"))

    return readable


def _above(largest: int, message: str) -> ResourceExhausted:
    return ResourceExhausted(
        "MESSAGE_TOO_LARGE", f"{message}, or raise LEMAN_SERVER__MAX_MESSAGE_MB", retry_after_seconds=0, largest=largest
    )
