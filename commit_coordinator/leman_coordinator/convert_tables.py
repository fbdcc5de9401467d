"""Convert requests and results of TableService from and to protobuf, and check the names and columns of new tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from leman._format.value_casts import check_utf8
from leman.v1 import catalog_pb2, tables_pb2
from leman_coordinator.commits.commit_requests import (
    AlteredColumn,
    ChangeColumnsRequest,
    CommitResult,
    CreateTableRequest,
    MergeRules,
    ReadRequest,
)
from leman_coordinator.convert_commits import required_text
from leman_coordinator.tables import arrow_streams
from leman_core.functions import arrow_types
from leman_core.functions.column_checks import check_column_name
from leman_core.model.service_errors import InvalidArgument, excerpt
from leman_core.model.view import SCRATCH_PREFIX
from leman_core.server.request_messages import body_digest
from leman_core.storage.locations import check_length, table_uri
from leman_core.wire.convert_types import schema_from_json, type_from_json
from leman_core.wire.convert_values import schema_from_bytes

#: The file format that can store all column types. Earlier formats lack some of them.
_LATEST_FORMAT = (2, 2)
_LEMAN = b"leman::"


def check_name(name: str, field: str) -> None:
    """Refuse an invalid table name.

    Raises:
        InvalidArgument: BAD_TABLE_NAME.
    """
    check_length(name, field)
    if not name[:1].isalnum():
        problem = "it must begin with a letter or digit"
    elif any(c in "/\\:" or not c.isprintable() for c in name):
        problem = "it may not contain '/', '\\', ':' or control characters"
    else:
        return
    raise InvalidArgument("BAD_TABLE_NAME", f"'{excerpt(name)}' is not a valid table name: {problem}", field=field)


def checked_schema(schema: pa.Schema, field: str) -> pa.Schema:
    """Check the schema of a new table, and return it without metadata that Leman wrote for another table.

    Args:
        field: The request's field, for the error.

    Raises:
        InvalidArgument: BAD_SCHEMA – no column; BAD_COLUMN – a repeated name; BAD_COLUMN_NAME.
        FailedPrecondition: TYPE_NOT_STORABLE.
    """
    checked = checked_names(schema, field)
    for column in schema:
        arrow_types.check_storable(column.name, column.type, _LATEST_FORMAT)
    return checked


def checked_names(schema: pa.Schema, field: str) -> pa.Schema:
    """Check new columns, and return them without metadata that Leman wrote for other columns.

    Args:
        schema: The requested columns.
        field: The request's field, for the error.

    Raises:
        InvalidArgument: BAD_SCHEMA – no column; BAD_COLUMN – a repeated name; BAD_COLUMN_NAME.
    """
    if not schema.names:
        raise InvalidArgument("BAD_SCHEMA", "There is no column", field=field)
    if len(set(schema.names)) < len(schema.names):
        raise InvalidArgument("BAD_COLUMN", "A column is listed more than once: list each once", field=field)
    for name in schema.names:
        check_column_name(name, field)
    fields = [column.with_metadata(_others(column.metadata)) for column in schema]
    return pa.schema(fields, _others(schema.metadata))


def _others(metadata: Mapping[bytes, bytes] | None) -> dict[bytes, bytes] | None:
    kept = {key: value for key, value in (metadata or {}).items() if not key.startswith(_LEMAN)}
    return kept or None


@dataclass(frozen=True, slots=True)
class Upload:
    """The header of an AppendRows."""

    uri: str
    request_id: str
    #: Digest of the request, to detect reuse of its id.
    body: str
    #: With 0 the coordinator chooses.
    max_rows_per_fragment: int


@dataclass(frozen=True, slots=True)
class Merge:
    """The header of a MergeRows."""

    uri: str
    request_id: str
    #: Digest of the request, to detect reuse of its id.
    body: str
    rules: MergeRules


def uri_of(table: catalog_pb2.TableRef, field: str = "table") -> str:
    """Return the uri of a request's table.

    Raises:
        InvalidArgument: BAD_DATABASE, RESERVED_DATABASE, BAD_TABLE_NAME; RESERVED_NAME – a scratch table.
    """
    if table.table.startswith(SCRATCH_PREFIX):
        raise InvalidArgument("RESERVED_NAME", f"names that begin with {SCRATCH_PREFIX} are Leman's own", field=field)
    return table_uri(table.database, table.table)


def read_from_proto(message: tables_pb2.ReadRowsRequest) -> ReadRequest:
    """Convert a ReadRows request.

    Raises:
        InvalidArgument: BAD_NUMBER, BAD_REQUEST; see also `uri_of`.
    """
    for name in ("limit", "offset", "version", "batch_size"):
        not_negative(getattr(message, name), name)
    if message.HasField("version") and not message.version:
        said = "version is 0: versions begin with 1; leave it out for the latest"
        raise InvalidArgument("BAD_NUMBER", said, field="version")
    if message.HasField("tag") and not message.tag.strip():
        raise InvalidArgument("BAD_REQUEST", "tag is empty: give a tag's name, or leave the field out", field="tag")
    if message.include_checkpointed and (at := message.WhichOneof("at")):
        said = f"include_checkpointed reads the latest version: leave {at} out"
        raise InvalidArgument("BAD_REQUEST", said, field=at)
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
        include_checkpointed=message.include_checkpointed,
    )


def create_from_proto(message: tables_pb2.CreateTableRequest) -> CreateTableRequest:
    """Convert a CreateTable request.

    Raises:
        InvalidArgument: MISSING_FIELD, BAD_SCHEMA, BAD_COLUMN, BAD_COLUMN_NAME, BAD_TABLE_NAME; see also `uri_of`.
        FailedPrecondition: TYPE_NOT_STORABLE.
    """
    check_name(message.table.table, "table.table")
    uri, request_id = uri_of(message.table), required_text(message.request_id, "request_id")
    schema, field = _schema(message)
    stable = message.stable_row_ids if message.HasField("stable_row_ids") else True
    return CreateTableRequest(uri, request_id, body_digest(message), checked_schema(schema, field), stable)


def upload_from_proto(message: tables_pb2.AppendRowsRequest | None) -> Upload:
    """Convert the first message of an AppendRows.

    Raises:
        InvalidArgument: MISSING_FIELD, BAD_NUMBER; see also `uri_of`.
    """
    if message is None or message.WhichOneof("part") != "header":
        raise InvalidArgument("MISSING_FIELD", "The first message must be the header", field="header")
    header = message.header
    rows = not_negative(header.max_rows_per_fragment, "header.max_rows_per_fragment")
    request_id = required_text(header.request_id, "header.request_id")
    return Upload(uri_of(header.table, "header.table"), request_id, body_digest(header), rows)


def merge_from_proto(message: tables_pb2.MergeRowsRequest | None) -> Merge:
    """Convert the first message of a MergeRows.

    Raises:
        InvalidArgument: MISSING_FIELD, BAD_COLUMN, BAD_REQUEST; see also `uri_of`.
    """
    if message is None or message.WhichOneof("part") != "header":
        raise InvalidArgument("MISSING_FIELD", "The first message must be the header", field="header")
    header = message.header
    _check_names(list(header.on), "header.on")
    if not (header.update_matched or header.insert_not_matched or header.delete_not_matched_by_source):
        done = "update_matched, insert_not_matched, delete_not_matched_by_source"
        raise InvalidArgument(
            "MISSING_FIELD", f"The merge would change nothing: set any of {done}", field="header.update_matched"
        )
    for condition, action in (("update_where", "update_matched"), ("delete_where", "delete_not_matched_by_source")):
        if getattr(header, condition) and not getattr(header, action):
            raise InvalidArgument(
                "BAD_REQUEST",
                f"{condition} limits {action}, which is not set: set it too, or leave {condition} out",
                field=f"header.{condition}",
            )
    rules = MergeRules(
        on=tuple(header.on),
        update_matched=header.update_matched,
        update_where=header.update_where,
        insert_not_matched=header.insert_not_matched,
        delete_not_matched_by_source=header.delete_not_matched_by_source,
        delete_where=header.delete_where,
    )
    request_id = required_text(header.request_id, "header.request_id")
    return Merge(uri_of(header.table, "header.table"), request_id, body_digest(header), rules)


def merged_to_proto(result: CommitResult) -> tables_pb2.MergeRowsResponse:
    """Convert the result of a merge."""
    inserted, updated, deleted = result.merged or (0, 0, 0)
    return tables_pb2.MergeRowsResponse(
        version=result.version, rows_inserted=inserted, rows_updated=updated, rows_deleted=deleted
    )


def new_values_from_proto(message: tables_pb2.UpdateRowsRequest) -> tuple[dict[str, str], pa.RecordBatch | None]:
    """Return the new values of an UpdateRows: SQL by column, and a row of values that apply to all rows.

    Raises:
        InvalidArgument: MISSING_FIELD, BAD_STREAM; BAD_COLUMN – a column has two new values.
    """
    values = _one_row(message.values) if message.values else None
    given = [] if values is None else values.schema.names
    expressions = {name: required_text(text, "expressions") for name, text in message.expressions.items()}
    _check_names([*expressions, *given], "expressions")
    return expressions, values


def _one_row(stream: bytes) -> pa.RecordBatch:
    try:
        if arrow_streams.is_compressed(stream):
            raise InvalidArgument("BAD_STREAM", "The values are compressed: send them uncompressed", field="values")
        rows = pa.ipc.open_stream(stream).read_all()
        check_utf8(rows.schema)
        rows.validate(full=True)
    except (pa.ArrowException, OSError, EOFError, ValueError) as error:
        raise InvalidArgument(
            "BAD_STREAM", f"The values are not an Arrow IPC stream: {error}", field="values"
        ) from None
    if rows.num_rows != 1 or not rows.num_columns:
        message = f"The values have {rows.num_rows} rows and {rows.num_columns} columns: send one row"
        raise InvalidArgument("BAD_STREAM", message, field="values")
    return rows.combine_chunks().to_batches()[0]


def added_from_proto(message: tables_pb2.AddPlainColumnsRequest) -> ChangeColumnsRequest:
    """Convert an AddPlainColumns request.

    Raises:
        InvalidArgument: MISSING_FIELD, BAD_SCHEMA, BAD_COLUMN, BAD_COLUMN_NAME; see also `uri_of`.
    """
    given, field = _schema(message)
    schema = checked_names(given, field)
    for column in schema:
        if not column.nullable:
            raise InvalidArgument(
                "BAD_COLUMN", f"Column '{column.name}' has only NULLs at first, so it must be nullable", field=field
            )
    return ChangeColumnsRequest(**_changing(message), added=tuple(schema))


def dropped_from_proto(message: tables_pb2.DropColumnsRequest) -> ChangeColumnsRequest:
    """Convert a DropColumns request.

    Raises:
        InvalidArgument: MISSING_FIELD, BAD_COLUMN; see also `uri_of`.
    """
    _check_names(list(message.columns))
    return ChangeColumnsRequest(**_changing(message), dropped=tuple(message.columns), force=message.force)


def altered_from_proto(message: tables_pb2.AlterPlainColumnsRequest) -> ChangeColumnsRequest:
    """Convert an AlterPlainColumns request.

    Raises:
        InvalidArgument: MISSING_FIELD, BAD_SCHEMA, BAD_COLUMN, BAD_COLUMN_NAME; see also `uri_of`.
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
        raise InvalidArgument(
            "BAD_COLUMN", f"The request does not say how to alter column '{column.name}'", field="columns"
        )
    if found.new_name is not None:
        check_column_name(found.new_name, "columns.new_name")
    return found


def _check_names(names: list[str], field: str = "columns") -> None:
    required_text("".join(names), field)
    if len(set(names)) < len(names) or not all(names):
        raise InvalidArgument(
            "BAD_COLUMN", "A column is listed more than once, or has no name: name each once", field=field
        )


def _changing(message: Any) -> dict[str, Any]:
    return {
        "uri": uri_of(message.table),
        "request_id": required_text(message.request_id, "request_id"),
        "body": body_digest(message),
    }


def _schema(message: tables_pb2.CreateTableRequest | tables_pb2.AddPlainColumnsRequest) -> tuple[pa.Schema, str]:
    """Return the schema of a request, and the name of its field."""
    given = required_text(message.WhichOneof("columns") or "", "schema")
    if given == "schema":
        return schema_from_bytes(message.schema, given), given
    return schema_from_json(message.json_schema, given), given


def bytes_of(message: tables_pb2.AppendRowsRequest | tables_pb2.MergeRowsRequest) -> bytes:
    """Return the bytes in a later message of an AppendRows or MergeRows, whose first message is a header.

    Raises:
        InvalidArgument: BAD_STREAM – a second header.
    """
    if message.WhichOneof("part") == "header":
        raise InvalidArgument("BAD_STREAM", "Only the first message may be a header", field="header")
    return message.arrow_ipc


def new_uri_of(message: tables_pb2.RenameTableRequest) -> str:
    """Return the new uri of a table.

    Raises:
        InvalidArgument: MISSING_FIELD, BAD_TABLE_NAME.
    """
    check_name(required_text(message.new_name, "new_name"), "new_name")
    new_uri = table_uri(message.table.database, message.new_name)
    if new_uri == uri_of(message.table):
        raise InvalidArgument("BAD_TABLE_NAME", f"The table is called '{message.new_name}' already", field="new_name")
    return new_uri


def not_negative(number: int, field: str) -> int:
    """Return the number, which must not be negative.

    Raises:
        InvalidArgument: BAD_NUMBER.
    """
    if number < 0:
        raise InvalidArgument("BAD_NUMBER", f"{field} is {number}; it cannot be negative", field=field)
    return number
