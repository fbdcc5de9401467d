"""Digests of plain values: the same on every machine, for values of different types never the same."""

from __future__ import annotations

import hashlib
import struct
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
else:
    from leman import _arrow as pa


def plain(value: Any) -> tuple[bytes, ...] | None:
    """Type and content of values that hold no others; None for anything else."""
    kind = type(value)
    if kind is int:
        return (b"int", hex(value).encode())  # repr refuses very long ones
    if value is None or value is ... or value is NotImplemented or kind in (bool, str, complex, range, slice):
        return (kind.__name__.encode(), repr(value).encode())
    if kind is float:
        return (b"float", struct.pack(">d", value))
    if kind in (bytes, bytearray):
        return (kind.__name__.encode(), bytes(value))
    if isinstance(value, pa.DataType | pa.Field | pa.Schema):
        return (kind.__name__.encode(), str(value).encode())
    return None


def of_tree(tree: Any) -> bytes:
    if isinstance(tree, list):
        return of_parts(b"tree", *(of_tree(item) for item in tree))
    return str(tree).encode()


def of_parts(*parts: bytes) -> bytes:
    """sha256 over the parts, each with its length before it."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(struct.pack(">Q", len(part)) + part)
    return digest.digest()
