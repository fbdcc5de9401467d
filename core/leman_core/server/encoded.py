"""Answers that are bytes already, made of parts that many answers share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar, cast

from google.protobuf.message import Message

_Answer = TypeVar("_Answer", bound=Message)


def encoded(_kind: type[_Answer], parts: Iterable[bytes]) -> _Answer:
    """Return an answer of a handler as bytes, which the server sends as they are.

    Args:
        parts: Messages of this kind as bytes. One behind the other they are one message: protobuf merges them.

    Returns:
        bytes. Its type is that of the message, as generated servicers want it.
    """
    return cast("_Answer", b"".join(parts))
