"""Bindings of columns to functions and to the requests that made them; see `leman._format.column_bindings`."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable

import pyarrow as pa

from leman._format import column_bindings
from leman._format.column_bindings import NOT_YET, REQUEST, ColumnBinding, ColumnInput, InputNames, bind
from leman._format.stored_documents import Damaged, OtherFormat
from leman_core.model.keys import md5
from leman_core.model.service_errors import DataLoss, reused_request_id, unknown_format
from leman_core.model.table import TableField, TableSnapshot

_SINCE_DIGITS = 16


def mark(field: pa.Field, request_id: str, body: str) -> pa.Field:
    """Return the field with a request's id and body in its metadata, or without these if the id is empty.

    They are not part of the binding. `check_request` uses them to detect, even after a restart, that the same id comes
    with another body.
    """
    stored = {key: value for key, value in (field.metadata or {}).items() if key != REQUEST}
    if request_id:
        stored[REQUEST] = f"{md5(request_id)} {body}".encode()
    return field.with_metadata(stored)


def check_request(fields: Iterable[pa.Field], request_id: str, body: str) -> None:
    """Refuse a request id that was used with another body for one of the fields.

    Raises:
        AlreadyExists: REQUEST_ID_REUSED.
    """
    for field in fields:
        known, _, its_body = (field.metadata or {}).get(REQUEST, b"").decode().partition(" ")
        if known == md5(request_id) and its_body != body:
            raise reused_request_id(request_id)


def settled(field: pa.Field, table: TableSnapshot) -> pa.Field | None:
    """Return the field with the Lance ids of its inputs, and the names of struct fields in these.

    Inputs that are added together with the column have no ids before that commit. None: the field has all ids already.

    Raises:
        DataLoss: BINDING_DAMAGED.
    """
    bound = read(field)
    if bound is None or all(column.field_id != NOT_YET for column in bound.inputs):
        return None
    inputs = ((column, table.find(column.name) if column.field_id == NOT_YET else None) for column in bound.inputs)
    pairs = list(inputs)
    known = tuple(column if found is None else ColumnInput(column.name, found.field_id) for column, found in pairs)
    names = names_in(found for _, found in pairs if found is not None)
    if bound.input_names is not None:
        names = InputNames((*bound.input_names.names, *(names.names if names else ())), bound.input_names.since)
    return bind(field, dataclasses.replace(bound, inputs=known, input_names=names))


def names_of(
    inputs: Iterable[TableField], before: ColumnBinding | None = None, *, keep: bool = False
) -> InputNames | None:
    """Return the current names of struct fields in a column's inputs, for its new binding to a function.

    Args:
        before: The column's old binding. If it has other names, the values that were computed with it are stale.
        keep: Whether those values stay current nevertheless.
    """
    found = names_in(inputs)
    if found is None or before is None or before.input_names is None:
        return found
    since, known = before.input_names.since, before.names
    if not keep and any(known.get(i, name) != name for i, name in found.names):
        since = md5(json.dumps(found.names))[:_SINCE_DIGITS]
    return InputNames(found.names, since)


def names_in(inputs: Iterable[TableField]) -> InputNames | None:
    """Return the names of struct fields in some inputs; None if there is no struct field that has an id."""
    found = {i: name for column in inputs for i, name in column.inner_names() if i != NOT_YET}
    return InputNames(tuple(found.items())) if found else None


def was_made_by(field: pa.Field, request_id: str) -> bool:
    """Return whether the field was made by the request with this id; see `mark`."""
    known, _, _ = (field.metadata or {}).get(REQUEST, b"").decode().partition(" ")
    return bool(known == md5(request_id))


def read(field: pa.Field) -> ColumnBinding | None:
    """Return the binding of a computed column, or None.

    Raises:
        DataLoss: BINDING_DAMAGED.
        UnknownFormat: FORMAT_TOO_OLD, FORMAT_TOO_NEW.
    """
    try:
        return column_bindings.read(field)
    except OtherFormat as error:
        raise unknown_format(error) from None
    except Damaged as error:
        raise DataLoss(
            "BINDING_DAMAGED",
            f"The metadata of column '{field.name}' does not say which function fills it ({error}): "
            "restore the previous version; without one, drop the column and add it again",
            column=field.name,
        ) from None
