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
    if value is None or value is ... or value is NotImplemented or kind in (bool, str, complex, range):
        return (kind.__name__.encode(), repr(value).encode())
    if kind is slice and {type(part) for part in (value.start, value.stop, value.step)} <= {int, type(None)}:
        return (kind.__name__.encode(), repr(value).encode())
    if kind is float:
        return (b"float", struct.pack(">d", value))
    if kind in (bytes, bytearray):
        return (kind.__name__.encode(), bytes(value))
    if isinstance(value, pa.DataType | pa.Field | pa.Schema):
        return (kind.__name__.encode(), str(value).encode(), *_arrow_notes(value))
    return None


def _arrow_notes(value: Any) -> list[bytes]:
    """What the text of an Arrow type, field or schema leaves out: metadata, and parameters of extension types."""
    found = []
    if not isinstance(value, pa.DataType) and value.metadata:
        found.append(of_parts(*(part for pair in value.metadata.items() for part in pair)))
    if isinstance(value, pa.BaseExtensionType):
        serialize = getattr(value, "__arrow_ext_serialize__", bytes)  # the text of Arrow's own types leaves nothing out
        found += [type(value).__name__.encode(), serialize(), *_arrow_notes(value.storage_type)]
    inner: list[Any] = []
    if isinstance(value, pa.Schema):
        inner = list(value)
    elif isinstance(value, pa.Field):
        inner = [value.type]
    elif pa.types.is_nested(value):
        inner = [value.field(index) for index in range(value.num_fields)]
    for index, item in enumerate(inner):
        notes = _arrow_notes(item)
        if notes:
            found.append(of_parts(str(index).encode(), *notes))
    return found


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
