"""Arrow schemas and enum values of messages ↔ domain values.

Raises InvalidArgument: UNKNOWN_VALUE for an enum value that this release does not know, BAD_SCHEMA for bytes that are
no Arrow schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import pyarrow as pa

from leman_core.functions.nested_types import check_text, rebuilt
from leman_core.model.errors import InvalidArgument

Number = TypeVar("Number", bound=int)
Value = TypeVar("Value")


def schema_to_bytes(schema: pa.Schema) -> bytes:
    """Return an Arrow IPC schema message.

    Of equal schemas it is the same one: metadata is in order, at every depth. Lance has it in another order each time
    that it opens a table.
    """
    fields = [_in_order(field) for field in schema]
    return bytes(pa.schema(fields, _sorted(schema.metadata)).serialize())


def schema_from_bytes(raw: bytes, field: str) -> pa.Schema:
    """Return the schema of an IPC schema message; `field` names the request's field in the error."""
    try:
        schema = pa.ipc.read_schema(pa.BufferReader(raw))
        check_text(schema)
    except (pa.ArrowException, OSError, EOFError, ValueError) as error:
        raise InvalidArgument(
            "BAD_SCHEMA", f"{field} is not an Arrow IPC schema message: {error}", field=field
        ) from None
    return schema


def field_from_bytes(raw: bytes, field: str) -> pa.Field:
    """Return the one field of an IPC schema message."""
    return only_field(schema_from_bytes(raw, field), field)


def only_field(schema: pa.Schema, field: str) -> pa.Field:
    """Return the one field of a schema; `field` names the request's field in the error."""
    if len(schema) != 1:
        raise InvalidArgument("BAD_SCHEMA", f"{field} must hold exactly one field, it holds {len(schema)}", field=field)
    return schema.field(0)


def known(table: Mapping[Number, Value], number: Number, field: str) -> Value:
    """Return the value of an enum's number; `field` names the request's field in the error."""
    value = table.get(number)
    if value is None:
        listed = ", ".join(str(n) for n in sorted(table))
        raise InvalidArgument("UNKNOWN_VALUE", f"{field} is {number}; known are {listed}", field=field)
    return value


def _in_order(field: pa.Field) -> pa.Field:
    return field.with_type(rebuilt(field.type, _in_order)).with_metadata(_sorted(field.metadata))


def _sorted(metadata: Mapping[bytes, bytes] | None) -> dict[bytes, bytes] | None:
    return dict(sorted(metadata.items())) if metadata else None
