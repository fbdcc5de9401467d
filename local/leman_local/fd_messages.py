"""Exchange messages between processes of one machine. A message is a JSON document with open file descriptors."""

from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import Sequence
from typing import Any

_LENGTH = struct.Struct(">I")
_MOST_DESCRIPTORS = 4


def encoded(document: dict[str, Any]) -> bytes:
    """Encode a message without descriptors."""
    body = json.dumps(document).encode()
    return _LENGTH.pack(len(body)) + body


def send(connection: socket.socket, document: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
    """Send a message. The descriptors also stay open in this process.

    Raises:
        OSError: The other end is closed.
    """
    data = encoded(document)
    sent = socket.send_fds(connection, [data], descriptors) if descriptors else 0
    connection.sendall(data[sent:])


def receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Wait for a message. Return it with its descriptors.

    Return None if the other end is closed, or sends nothing for longer than the connection's timeout.

    Raises:
        ValueError: The data is not a message.
    """
    data, descriptors = bytearray(), list[int]()
    try:
        while len(data) < _LENGTH.size or len(data) < _LENGTH.size + _LENGTH.unpack_from(data)[0]:
            missing = _LENGTH.size + (_LENGTH.unpack_from(data)[0] if len(data) >= _LENGTH.size else 0) - len(data)
            chunk, more, _, _ = socket.recv_fds(connection, missing, _MOST_DESCRIPTORS)
            descriptors += more
            if not chunk:
                raise ConnectionError
            data += chunk
        document = json.loads(data[_LENGTH.size :])
        if not isinstance(document, dict):
            raise ValueError("a message is a JSON object")
        return document, descriptors
    except OSError:
        close(descriptors)
        return None
    except BaseException:
        close(descriptors)
        raise


def close(descriptors: Sequence[int]) -> None:
    """Close the descriptors."""
    for descriptor in descriptors:
        os.close(descriptor)
