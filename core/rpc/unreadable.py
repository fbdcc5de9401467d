"""Messages that are no messages: a caller hears of them as of any other error, and not of gRPC's own making."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.protobuf.message import DecodeError

from core.errors import InvalidArgument


class Unreadable:
    """Stands for a message that could not be read, until its call can be answered."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def error(self) -> InvalidArgument:
        """Return what its caller is told."""
        return InvalidArgument("BAD_MESSAGE", f"this is no {self._kind}: generate the client anew")


def reader(read: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """Return what reads as `read` does, a message's own `FromString`, and gives `Unreadable` where that fails."""
    kind: str = read.__self__.DESCRIPTOR.full_name  # type: ignore[attr-defined]

    def readable(message: bytes) -> Any:
        try:
            return read(message)
        except DecodeError:
            return Unreadable(kind)

    return readable
