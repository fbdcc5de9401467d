"""Requests and answers of TableService, from and to protobuf."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from commit_coordinator.convert_commits import required
from commit_coordinator.tables import new_table
from commit_coordinator.tables.requests import AlteredColumn, ChangeColumnsRequest, CreateTableRequest, ReadRequest
from core.domain.view import SCRATCH_PREFIX
from core.errors import InvalidArgument
from core.locations import table_uri
from core.rpc.convert import schema_from_bytes
from core.rpc.convert_types import schema_from_json, type_from_json
from core.rpc.request_digest import body_digest
from core.udf.validation import check_column_name
from leman.v1 import catalog_pb2, tables_pb2


@dataclass(frozen=True, slots=True)
class Upload:
    """The header of an AppendRows."""

    uri: str
    request_id: str
    #: Tells it from another one under the same id.
    body: str
    #: 0: as the coordinator chooses.
    max_rows_per_fragment: int


def uri_of(table: catalog_pb2.TableRef, field: str = "table") -> str:
    """Return the uri of the Lance dataset of the table that a request names.

    Raises:
        InvalidArgument: BAD_DATABASE, RESERVED_DATABASE, BAD_TABLE_NAME; RESERVED_NAME – a scratch table.
    """
    if table.table.startswith(SCRATCH_PREFIX):
        raise InvalidArgument("RESERVED_NAME", f"names that begin with {SCRATCH_PREFIX} are Leman's own", field=field)
    return table_uri(table.database, table.table)


def read_from_proto(message: tables_pb2.ReadRowsRequest) -> ReadRequest:
    """Return what a ReadRows asks for.

    Raises:
        InvalidArgument: BAD_NUMBER, and what `uri_of` raises.
    """
    for name in ("limit", "offset", "version", "batch_size"):
        not_negative(getattr(message, name), name)
    return ReadRequest(
        uri=uri_of(message.table),
        columns=tuple(message.columns),
        where=message.where,
        limit=message.limit if message.HasField("limit") else None,
        offset=message.offset,
        version=message.version,
        tag=message.tag,
        batch_size=message.batch_size,
        with_row_id=message.with_row_id,
        with_row_address=message.with_row_address,
        incarnation=message.incarnation,
    )


def create_from_proto(message: tables_pb2.CreateTableRequest) -> CreateTableRequest:
    """Return what a CreateTable asks for.

    Raises:
        InvalidArgument: MISSING_FIELD, BAD_SCHEMA, BAD_COLUMN, BAD_COLUMN_NAME, BAD_TABLE_NAME; what `uri_of` raises.
        FailedPrecondition: TYPE_NOT_STORABLE.
    """
    new_table.check_name(message.table.table, "table.table")
    uri, request_id = uri_of(message.table), required(message.request_id, "request_id")
    schema, field = _schema(message)
    stable = message.stable_row_ids if message.HasField("stable_row_ids") else True
    return CreateTableRequest(uri, request_id, body_digest(message), new_table.checked_schema(schema, field), stable)


def upload_from_proto(message: tables_pb2.AppendRowsRequest | None) -> Upload:
    """Return what the first message of an AppendRows says.

    Raises:
        InvalidArgument: MISSING_FIELD, BAD_NUMBER, and what `uri_of` raises.
    """
    if message is None or message.WhichOneof("part") != "header":
        raise InvalidArgument("MISSING_FIELD", "The first message is the header", field="header")
    header = message.header
    rows = not_negative(header.max_rows_per_fragment, "header.max_rows_per_fragment")
    request_id = required(header.request_id, "header.request_id")
    return Upload(uri_of(header.table, "header.table"), request_id, body_digest(header), rows)


def added_from_proto(message: tables_pb2.AddPlainColumnsRequest) -> ChangeColumnsRequest:
    """Return what an AddPlainColumns asks for.

    Raises:
        InvalidArgument: MISSING_FIELD, BAD_SCHEMA, BAD_COLUMN, BAD_COLUMN_NAME, and what `uri_of` raises.
    """
    given, field = _schema(message)
    schema = new_table.checked_names(given, field)
    for column in schema:
        if not column.nullable:
            raise InvalidArgument("BAD_COLUMN", f"'{column.name}' begins with NULLs, and may be NULL", field=field)
    return ChangeColumnsRequest(**_changing(message), added=tuple(schema))


def dropped_from_proto(message: tables_pb2.DropColumnsRequest) -> ChangeColumnsRequest:
    """Return what a DropColumns asks for.

    Raises:
        InvalidArgument: MISSING_FIELD, BAD_COLUMN, and what `uri_of` raises.
    """
    _check_names(list(message.columns))
    return ChangeColumnsRequest(**_changing(message), dropped=tuple(message.columns), force=message.force)


def altered_from_proto(message: tables_pb2.AlterPlainColumnsRequest) -> ChangeColumnsRequest:
    """Return what an AlterPlainColumns asks for.

    Raises:
        InvalidArgument: MISSING_FIELD, BAD_SCHEMA, BAD_COLUMN, BAD_COLUMN_NAME, and what `uri_of` raises.
    """
    _check_names([column.name for column in message.columns])
    altered = tuple(_altered(column) for column in message.columns)
    return ChangeColumnsRequest(**_changing(message), altered=altered, force=message.force)


def _altered(column: tables_pb2.PlainColumnAlteration) -> AlteredColumn:
    found = AlteredColumn(
        column.name,
        column.new_name if column.HasField("new_name") else None,
        type_from_json(column.type, "columns.type") if column.HasField("type") else None,
        column.nullable if column.HasField("nullable") else None,
    )
    if found == AlteredColumn(column.name):
        raise InvalidArgument("BAD_COLUMN", f"Nothing is to happen to '{column.name}'", field="columns")
    if found.new_name is not None:
        check_column_name(found.new_name, "columns.new_name")
    return found


def _check_names(names: list[str]) -> None:
    required("".join(names), "columns")
    if len(set(names)) < len(names) or not all(names):
        raise InvalidArgument("BAD_COLUMN", "A column is named twice, or has no name", field="columns")


def _changing(message: Any) -> dict[str, Any]:
    return {
        "uri": uri_of(message.table),
        "request_id": required(message.request_id, "request_id"),
        "body": body_digest(message),
    }


def _schema(message: tables_pb2.CreateTableRequest | tables_pb2.AddPlainColumnsRequest) -> tuple[pa.Schema, str]:
    """Return the schema that a request gives, and the field that it stands in."""
    given = required(message.WhichOneof("columns") or "", "schema")
    if given == "schema":
        return schema_from_bytes(message.schema, given), given
    return schema_from_json(message.json_schema, given), given


def bytes_of(message: tables_pb2.AppendRowsRequest) -> bytes:
    """Return what any other message of an AppendRows brings.

    Raises:
        InvalidArgument: BAD_STREAM – a second header.
    """
    if message.WhichOneof("part") == "header":
        raise InvalidArgument("BAD_STREAM", "Only the first message is a header", field="header")
    return message.arrow_ipc


def new_uri_of(message: tables_pb2.RenameTableRequest) -> str:
    """Return the uri that a table is to get.

    Raises:
        InvalidArgument: MISSING_FIELD, BAD_TABLE_NAME.
    """
    new_table.check_name(required(message.new_name, "new_name"), "new_name")
    new_uri = table_uri(message.table.database, message.new_name)
    if new_uri == uri_of(message.table):
        raise InvalidArgument("BAD_TABLE_NAME", f"The table is called '{message.new_name}' already", field="new_name")
    return new_uri


def not_negative(number: int, field: str) -> int:
    """Return a number that a request gives.

    Raises:
        InvalidArgument: BAD_NUMBER.
    """
    if number < 0:
        raise InvalidArgument("BAD_NUMBER", f"{field} is {number}; it cannot be negative", field=field)
    return number
