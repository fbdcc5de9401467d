"""What travels between Leman and a function server, in words: JSON and Arrow schemas. Pure."""

from __future__ import annotations

import base64
import binascii
import json
import re
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from leman_core.functions.nested_types import check_text

PROTOCOL = "leman.function.v1"
#: The action that asks a server for its functions.
DESCRIBE = f"{PROTOCOL}.describe"
#: Keys in the metadata of the schema that answers a stream.
FUNCTION_KEY, VERSION_KEY = b"leman.function", b"leman.version"
_VERSION = re.compile(r"[A-Za-z0-9_.-]{1,128}")
#: Letters of a name that a server gives to an error.
_LONGEST_NAME = 200
_MOST_BASES = 64


class ProtocolError(ValueError):
    """A server does not say what the protocol has it say."""


@dataclass(frozen=True, slots=True)
class FunctionDescription:
    """What a server says of one of its functions."""

    function: str
    version: str
    #: Its parameters, in order.
    inputs: pa.Schema
    output: pa.DataType

    @property
    def input_types(self) -> tuple[pa.DataType, ...]:
        return tuple(self.inputs.types)


@dataclass(frozen=True, slots=True)
class BatchError:
    """What a server says of a batch for which its function failed."""

    #: Name of the error's class, or of what the language has in its place, and of those that it derives from.
    kind: str
    bases: tuple[str, ...]
    message: str
    traceback: str


def parse_stream(schema: pa.Schema) -> tuple[str, str]:
    """Return the function and the version that the schema at the beginning of a stream names.

    Raises:
        ProtocolError: It names none, or has not one column.
    """
    told = schema.metadata or {}
    if len(schema) != 1 or FUNCTION_KEY not in told or VERSION_KEY not in told:
        raise ProtocolError("a stream begins without its function, its version or its one column")
    try:
        return told[FUNCTION_KEY].decode(), told[VERSION_KEY].decode()
    except UnicodeDecodeError:
        raise ProtocolError("a stream begins with a function or a version that is no UTF-8") from None


def command(function: str, version: str) -> bytes:
    """Return what a stream begins with: the function that its batches are for."""
    return json.dumps({"protocol": PROTOCOL, "function": function, "version": version}).encode()


def parse_description(body: bytes) -> FunctionDescription:
    """Return one answer of `DESCRIBE`.

    Raises:
        ProtocolError: It is none.
    """
    told = _object(body)
    output = _schema(told, "output")
    if len(output) != 1:
        raise ProtocolError(f"'output' has {len(output)} fields, not one")
    inputs, version = _schema(told, "inputs"), _text(told, "version")
    if not _VERSION.fullmatch(version):
        raise ProtocolError("'version' is not 1 to 128 letters, digits, '_', '.' and '-'")
    if len(set(inputs.names)) < len(inputs):
        raise ProtocolError("two fields of 'inputs' have one name")
    if pa.types.is_null(output.field(0).type):
        raise ProtocolError("'output' is of type null: no value could be stored")
    return FunctionDescription(_text(told, "function"), version, inputs, output.field(0).type)


def parse_error(metadata: bytes) -> BatchError:
    """Return the error that came in place of a batch.

    Raises:
        ProtocolError: It is none.
    """
    told = _object(metadata).get("error")
    if not isinstance(told, dict):
        raise ProtocolError("neither a batch nor an error answers a batch")
    bases = told.get("bases", [])
    return BatchError(
        kind=_name(_text(told, "type")),
        bases=tuple(_name(str(base)) for base in bases[:_MOST_BASES]) if isinstance(bases, list) else (),
        message=str(told.get("message", "")),
        traceback=str(told.get("traceback", "")),
    )


def _object(body: bytes) -> dict[str, Any]:
    try:
        told = json.loads(body)
    except (ValueError, RecursionError):
        raise ProtocolError("an answer is no JSON") from None
    if not isinstance(told, dict):
        raise ProtocolError("an answer is no JSON object")
    return told


def _name(told: str) -> str:
    """Return a name as it can be stored and shown: without what moves a cursor, and not of any length."""
    return "".join(letter if letter.isprintable() else "?" for letter in told[:_LONGEST_NAME])


def _text(told: dict[str, Any], key: str) -> str:
    value = told.get(key)
    if not isinstance(value, str) or not value:
        raise ProtocolError(f"'{key}' is missing, or no text")
    return value


def _schema(told: dict[str, Any], key: str) -> pa.Schema:
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(_text(told, key), validate=True)))
        check_text(schema)
    except (binascii.Error, pa.ArrowException, OSError, ValueError) as error:
        raise ProtocolError(f"'{key}' is no Arrow schema in base64: {error}") from None
    return schema
