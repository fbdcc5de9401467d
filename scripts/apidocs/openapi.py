"""The contract as an OpenAPI 3.1 document: what `leman_core.http` answers."""

from __future__ import annotations

import re
from typing import Any

from contract import Contract, Enum, Field, Message, Method
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, MethodOptions

Schema = dict[str, Any]

_INTRODUCTION = """\
Every RPC of Leman as a POST of JSON, by the [Connect protocol](https://connectrpc.com/docs/protocol/). The JSON is
[protobuf's](https://protobuf.dev/programming-guides/json/): 64-bit integers are strings, bytes are base64, fields
without a value are left out. Unknown fields are refused.

A deadline is the header `Connect-Timeout-Ms`. `X-Request-Id` comes back with every answer and stands in the logs."""

#: Kinds of scalar fields in JSON.
_SCALARS: dict[int, Schema] = {
    FieldDescriptorProto.TYPE_DOUBLE: {"type": "number", "format": "double"},
    FieldDescriptorProto.TYPE_FLOAT: {"type": "number", "format": "float"},
    FieldDescriptorProto.TYPE_INT64: {"type": "string", "format": "int64", "pattern": "^-?[0-9]+$"},
    FieldDescriptorProto.TYPE_UINT64: {"type": "string", "format": "uint64", "pattern": "^[0-9]+$"},
    FieldDescriptorProto.TYPE_INT32: {"type": "integer", "format": "int32"},
    FieldDescriptorProto.TYPE_UINT32: {"type": "integer", "format": "uint32", "minimum": 0},
    FieldDescriptorProto.TYPE_BOOL: {"type": "boolean"},
    FieldDescriptorProto.TYPE_STRING: {"type": "string"},
    FieldDescriptorProto.TYPE_BYTES: {"type": "string", "contentEncoding": "base64"},
}
#: Messages that have a form of their own in JSON.
_WELL_KNOWN: dict[str, Schema] = {
    "google.protobuf.Timestamp": {"type": "string", "format": "date-time"},
    "google.protobuf.Duration": {"type": "string", "pattern": r"^-?[0-9]+(\.[0-9]{1,9})?s$", "examples": ["1.5s"]},
    "google.protobuf.FieldMask": {"type": "string", "description": "Paths of fields, between commas."},
    "google.protobuf.Empty": {"type": "object"},
    "google.protobuf.Struct": {"type": "object"},
    "google.protobuf.Value": {},
    "google.protobuf.ListValue": {"type": "array"},
    "google.protobuf.Any": {
        "type": "object",
        "properties": {"@type": {"type": "string"}},
        "required": ["@type"],
        "description": "A message of the type that `@type` names, with its fields.",
    },
}
_CODES = (
    *("canceled", "unknown", "invalid_argument", "deadline_exceeded", "not_found", "already_exists"),
    *("permission_denied", "resource_exhausted", "failed_precondition", "aborted", "out_of_range"),
    *("unimplemented", "internal", "unavailable", "data_loss", "unauthenticated"),
)
_ERROR: Schema = {
    "type": "object",
    "description": "What went wrong. Of the details, `google.rpc.ErrorInfo` has the reason, a stable word.",
    "properties": {
        "code": {"type": "string", "enum": _CODES},
        "message": {"type": "string"},
        "details": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "type": {"type": "string", "description": "Full name of the detail's message."},
                    "value": {"type": "string", "description": "The message in base64, without padding."},
                    "debug": {"description": "The same message in JSON."},
                },
                "required": ["type", "value"],
            },
        },
    },
    "required": ["code"],
}


def document(contract: Contract) -> Schema:
    """Return the document."""
    schemas: dict[str, Schema] = {"connect.Error": _ERROR}
    for name in sorted(contract.used()):
        if name in contract.enums:
            schemas[name] = _enum(contract.enums[name])
        elif name in _WELL_KNOWN:
            schemas[name] = _WELL_KNOWN[name]
        elif not contract.messages[name].map:
            schemas[name] = _message(contract.messages[name], contract)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Leman", "version": "v1", "description": _INTRODUCTION, "license": _LICENSE},
        "servers": [{"url": "/"}],
        "security": [{"token": []}, {}],
        "tags": [{"name": service.name, "description": service.comment} for service in contract.services],
        "paths": {
            method.path: _path(method)
            for service in contract.services
            for method in service.methods
            if not method.proto.client_streaming
        },
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


_LICENSE = {"name": "Apache-2.0", "identifier": "Apache-2.0"}


def _path(method: Method) -> Schema:
    operations = {"post": _post(method)}
    if _changes_nothing(method) and not method.proto.server_streaming:
        operations["get"] = _get(method)
    return operations


def _changes_nothing(method: Method) -> bool:
    return method.proto.options.idempotency_level == MethodOptions.NO_SIDE_EFFECTS


def _post(method: Method) -> Schema:
    content = {"application/json": {"schema": _ref(method.proto.input_type)}}
    return _operation(method, "") | {"requestBody": {"required": True, "content": content}}


def _get(method: Method) -> Schema:
    message = {
        "name": "message",
        "in": "query",
        "required": True,
        "content": {"application/json": {"schema": _ref(method.proto.input_type)}},
    }
    encoding = {"name": "encoding", "in": "query", "schema": {"type": "string", "enum": ["json"]}}
    return _operation(method, "_get") | {"parameters": [message, encoding]}


def _operation(method: Method, suffix: str) -> Schema:
    told = method.comment.split("\n\n", 1)[0].replace("\n", " ")
    summary = re.split(r"(?<=[.:]) ", told, maxsplit=1)[0].rstrip(".:")
    return {
        "operationId": f"{method.service}_{method.proto.name}{suffix}",
        "tags": [method.service],
        "summary": summary,
        "description": method.comment + (f"\n\nAsks for the role {method.rights}." if method.rights else ""),
        "responses": {"200": _answer(method), "default": _failure()},
    }


def _answer(method: Method) -> Schema:
    result = _ref(method.proto.output_type)
    if not method.proto.server_streaming:
        return {"description": "The answer.", "content": {"application/json": {"schema": result}}}
    line = {"oneOf": [_line("result", result), _line("error", _ref("connect.Error"))]}
    return {
        "description": "With `Accept: application/x-ndjson` a line for each message, and at a failure a last one with "
        "the error. With the Content-Type `application/connect+json` the envelopes of the Connect protocol.",
        "content": {"application/x-ndjson": {"schema": line}},
    }


def _line(name: str, schema: Schema) -> Schema:
    return {"type": "object", "properties": {name: schema}, "required": [name], "additionalProperties": False}


def _failure() -> Schema:
    content = {"application/json": {"schema": _ref("connect.Error")}}
    return {"description": "An error, as the description lists them.", "content": content}


def _message(message: Message, contract: Contract) -> Schema:
    schema: Schema = {"type": "object", "description": message.comment, "additionalProperties": False}
    schema["properties"] = {field.proto.json_name: _field(field, contract) for field in message.fields}
    choices: dict[str, list[str]] = {}
    for field in message.fields:
        if field.oneof:
            choices.setdefault(field.oneof, []).append(field.proto.json_name)
    for names in choices.values():
        schema["description"] += f"\n\nAt most one of: {', '.join(names)}."
    schema["description"] = schema["description"].strip()
    return schema


def _field(field: Field, contract: Contract) -> Schema:
    proto = field.proto
    entry = contract.messages.get(proto.type_name.removeprefix("."))
    told = {"description": field.comment} if field.comment else {}
    if entry is not None and entry.map:
        value = next(f for f in entry.fields if f.proto.name == "value")
        return {"type": "object", "additionalProperties": _kind(value.proto), **told}
    kind = _kind(proto)
    if proto.label == FieldDescriptorProto.LABEL_REPEATED:
        return {"type": "array", "items": kind, **told}
    return kind | told


def _kind(proto: FieldDescriptorProto) -> Schema:
    return _ref(proto.type_name) if proto.type_name else dict(_SCALARS[proto.type])


def _enum(enum: Enum) -> Schema:
    values = "\n".join(f"* `{name}`: {comment.replace(chr(10), ' ')}" for name, comment in enum.values)
    return {
        "type": "string",
        "enum": [name for name, _ in enum.values],
        "description": f"{enum.comment}\n\n{values}".strip(),
    }


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name.removeprefix('.')}"}
