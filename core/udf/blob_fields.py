"""Which columns hold blobs, in either form that Lance has. Pure."""

from __future__ import annotations

import pyarrow as pa

_KEY = b"lance-encoding:blob"
_EXTENSION_KEY = b"ARROW:extension:name"
_EXTENSION = "lance.blob"


def is_blob(field: pa.Field) -> bool:
    """Whether Lance keeps the column's values apart from its rows."""
    metadata = field.metadata or {}
    extension = metadata.get(_EXTENSION_KEY, b"").decode() or str(getattr(field.type, "extension_name", ""))
    return metadata.get(_KEY) == b"true" or extension.startswith(_EXTENSION)


def plain_blob(name: str) -> pa.Field:
    """How a view keeps a blob of its source, of whatever form."""
    return pa.field(name, pa.large_binary(), metadata={_KEY: b"true"})
