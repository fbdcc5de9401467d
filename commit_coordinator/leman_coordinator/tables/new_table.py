"""Whether a table can be made under a name, with such columns. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from leman_core.functions import storable_types
from leman_core.functions.validation import check_column_name
from leman_core.model.errors import InvalidArgument
from leman_core.model.shown_text import repeated
from leman_core.storage.locations import check_length

#: File format of a table of which each column's type can be stored; one that needs an earlier one has none of these.
_LATEST_FORMAT = (2, 2)
_LEMAN = b"leman::"


def check_name(name: str, field: str) -> None:
    """Refuse a name that files, uris or people would trip over.

    Raises:
        InvalidArgument: BAD_TABLE_NAME.
    """
    check_length(name, field)
    if not name[:1].isalnum():
        problem = "it begins with a letter or digit"
    elif any(c in "/\\:" or not c.isprintable() for c in name):
        problem = "it has no '/', '\\', ':' or control character"
    else:
        return
    raise InvalidArgument("BAD_TABLE_NAME", f"'{repeated(name)}' is no name for a table: {problem}", field=field)


def checked_schema(schema: pa.Schema, field: str) -> pa.Schema:
    """Return the schema of a new table, without what Leman noted of the table that it was read from.

    Args:
        field: names the request's field in the error.

    Raises:
        InvalidArgument: BAD_SCHEMA – no column; BAD_COLUMN – one that stands there twice; BAD_COLUMN_NAME.
        FailedPrecondition: TYPE_NOT_STORABLE.
    """
    checked = checked_names(schema, field)
    for column in schema:
        storable_types.check(column.name, column.type, _LATEST_FORMAT)
    return checked


def checked_names(schema: pa.Schema, field: str) -> pa.Schema:
    """Return new columns, without what Leman noted of those that they were read from.

    Args:
        field: names the request's field in the error.

    Raises:
        InvalidArgument: BAD_SCHEMA – no column; BAD_COLUMN – one that stands there twice; BAD_COLUMN_NAME.
    """
    if not schema.names:
        raise InvalidArgument("BAD_SCHEMA", "There is no column", field=field)
    if len(set(schema.names)) < len(schema.names):
        raise InvalidArgument("BAD_COLUMN", "A column is named twice", field=field)
    for name in schema.names:
        check_column_name(name, field)
    fields = [column.with_metadata(_others(column.metadata)) for column in schema]
    return pa.schema(fields, _others(schema.metadata))


def _others(metadata: Mapping[bytes, bytes] | None) -> dict[bytes, bytes] | None:
    kept = {key: value for key, value in (metadata or {}).items() if not key.startswith(_LEMAN)}
    return kept or None
