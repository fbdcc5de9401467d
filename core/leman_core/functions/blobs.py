"""Blob columns: bytes that Lance keeps apart from the rest of a row. Pure.

To a function they are plain bytes, as input and as output; `values_field` is what it and the checkpoints see.
"""

from __future__ import annotations

import pyarrow as pa

from leman_core.functions.nested_types import rebuilt

BLOB_KEY = b"lance-encoding:blob"
_EXTENSION_KEY = b"ARROW:extension:name"
_EXTENSION = "lance.blob.v2"
_MARKED = {BLOB_KEY: b"true"}
#: What Lance calls a blob from file format 2.2 on. Without Lance in the process it is a struct with a name.
_V2 = pa.struct([("data", pa.large_binary()), ("uri", pa.string()), ("position", pa.uint64()), ("size", pa.uint64())])
V2_FORMAT = (2, 2)
#: That of views with blobs: they are plain ones there, whatever their kind in the source.
VIEW_FORMAT = (2, 1)


def is_blob(field: pa.Field) -> bool:
    """Tell whether a column's values are blobs, of either kind that Lance has."""
    metadata = field.metadata or {}
    name = metadata.get(_EXTENSION_KEY, b"").decode() or getattr(field.type, "extension_name", "")
    return name == _EXTENSION or metadata.get(BLOB_KEY) == b"true"


def values_field(field: pa.Field) -> pa.Field:
    """Return name and type of a column as functions see it, marked where it is a blob; other metadata is left out."""
    if is_blob(field):
        return pa.field(field.name, pa.large_binary(), metadata=_MARKED)
    return field.remove_metadata()


def given_type(column: pa.Field, kind: pa.DataType) -> pa.DataType:
    """Return the type, `kind` or one with bytes for the blobs in it, that functions are given for a column."""
    return values_field(column).type if is_blob(column) else _with_bytes(kind)


def _with_bytes(kind: pa.DataType) -> pa.DataType:
    return rebuilt(kind, lambda field: field.with_type(given_type(field, field.type)))


def blob_field(name: str, file_format: tuple[int, int]) -> pa.Field:
    """Return a new blob column in a table of that file format."""
    if file_format >= V2_FORMAT:
        return pa.field(name, _V2, metadata={_EXTENSION_KEY: _EXTENSION.encode()})
    return pa.field(name, pa.large_binary(), metadata=_MARKED)
