"""Convert Arrow schemas to messages of the Lance Namespace specification (protos/leman/v1/types.proto) and back."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import pyarrow as pa
import pyarrow.types as pt

from leman.v1 import types_pb2
from leman_core.model.service_errors import CONTROL_CHARACTERS, InvalidArgument, excerpt
from leman_core.wire.convert_values import schema_from_bytes

_PLAIN: dict[str, pa.DataType] = {
    "null": pa.null(),
    "bool": pa.bool_(),
    **{str(kind): kind for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())},
    **{str(kind): kind for kind in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())},
    "float16": pa.float16(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "date32": pa.date32(),
    "date64": pa.date64(),
    "utf8": pa.string(),
    "large_utf8": pa.large_string(),
    "binary": pa.binary(),
    "large_binary": pa.large_binary(),
}
_NAMES = {kind: name for name, kind in _PLAIN.items()} | {pa.string_view(): "utf8", pa.binary_view(): "binary"}
_ALIASES = {"boolean": "bool", "string": "utf8", "large_string": "large_utf8"}
_DECIMALS: dict[str, Callable[[int, int], pa.DataType]] = {
    "decimal32": pa.decimal32,
    "decimal64": pa.decimal64,
    "decimal128": pa.decimal128,
    "decimal256": pa.decimal256,
}
_LISTS: dict[str, Callable[[pa.Field], pa.DataType]] = {"list": pa.list_, "large_list": pa.large_list}
_TIMES: dict[str, Callable[[str], pa.DataType]] = {
    "time32": pa.time32,
    "time64": pa.time64,
    "duration": pa.duration,
}
_UNITS = ("s", "ms", "us", "ns")
#: The type's `length` has a decimal's precision and scale in one number. A negative scale is never below -128.
_PRECISION, _LOWEST_SCALE = 1000, 128
_EXTENSION_NAME, _EXTENSION_METADATA = b"ARROW:extension:name", b"ARROW:extension:metadata"


def schema_to_json(schema: pa.Schema) -> types_pb2.JsonArrowSchema:
    """Convert a schema to a message. Types that Lance does not store, such as unions, get only their Arrow name."""
    return types_pb2.JsonArrowSchema(
        fields=[_field_to_json(field) for field in schema], metadata=_text(schema.metadata or {})
    )


def schema_from_json(message: types_pb2.JsonArrowSchema, field: str) -> pa.Schema:
    """Convert a message to a schema.

    Args:
        field: The request's field, for the error.

    Raises:
        InvalidArgument: BAD_SCHEMA – the message is invalid.
    """
    try:
        fields = [_field_from_json(child) for child in message.fields]
        described = pa.schema(fields, _bytes(message.metadata) or None)
        return pa.ipc.read_schema(pa.BufferReader(described.serialize()))  # turns metadata into extension types
    except (pa.ArrowException, ValueError, TypeError, OverflowError, KeyError) as error:
        raise InvalidArgument(
            "BAD_SCHEMA", f"{field} does not describe an Arrow schema: {error}", field=field
        ) from None


def type_from_json(message: types_pb2.JsonArrowDataType, field: str) -> pa.DataType:
    """Convert a message to a type.

    Args:
        field: The request's field, for the error.

    Raises:
        InvalidArgument: BAD_SCHEMA – the message is invalid.
    """
    column = types_pb2.JsonArrowField(name="x", type=message)
    return schema_from_json(types_pb2.JsonArrowSchema(fields=[column]), field).field(0).type


def schema_from_either(raw: bytes, described: types_pb2.JsonArrowSchema | None, field: str) -> pa.Schema:
    """Return the schema of a request, which has it as an IPC schema message, as a readable message, or as both.

    Raises:
        InvalidArgument: BAD_SCHEMA – a message is invalid, or the two contradict each other.
    """
    json_field = f"json_{field}"
    if described is None:
        return schema_from_bytes(raw, field)
    if not raw:
        return schema_from_json(described, json_field)
    schema = schema_from_bytes(raw, field)  # this form is complete; the other has the same name for similar types
    if schema_to_json(schema) != described and _plain(schema_from_json(described, json_field)) != _plain(schema):
        message = f"{field} and {json_field} contradict each other: give one of them"
        raise InvalidArgument("BAD_SCHEMA", message, field=json_field)
    return schema


def _plain(schema: pa.Schema) -> list[tuple[str, pa.DataType]]:
    return [(field.name, field.type) for field in schema]


def _field_to_json(field: pa.Field) -> types_pb2.JsonArrowField:
    kind, metadata = field.type, dict(field.metadata or {})
    if isinstance(kind, pa.BaseExtensionType):
        metadata[_EXTENSION_NAME] = kind.extension_name.encode()
        metadata[_EXTENSION_METADATA] = _extension_metadata(kind)
        kind = kind.storage_type
    return types_pb2.JsonArrowField(
        name=field.name, type=_type_to_json(kind), nullable=field.nullable, metadata=_text(metadata)
    )


def _extension_metadata(kind: pa.BaseExtensionType) -> bytes:
    """Return an extension type's metadata in a stored schema. pyarrow has no call that returns it for its own types."""
    if isinstance(kind, pa.ExtensionType):
        return bytes(kind.__arrow_ext_serialize__())
    if isinstance(kind, pa.FixedShapeTensorType):
        noted = {"shape": kind.shape, "dim_names": kind.dim_names, "permutation": kind.permutation}
        return json.dumps({key: list(value) for key, value in noted.items() if value is not None}).encode()
    if isinstance(kind, pa.OpaqueType):
        return json.dumps({"type_name": kind.type_name, "vendor_name": kind.vendor_name}).encode()
    return b""


def _type_to_json(kind: pa.DataType) -> types_pb2.JsonArrowDataType:
    found = types_pb2.JsonArrowDataType
    if kind in _NAMES:
        return found(type=_NAMES[kind])
    if pt.is_dictionary(kind):
        values = _type_to_json(kind.value_type)
        values.dictionary_index_type = _NAMES[kind.index_type]
        return values
    if pt.is_decimal(kind):
        name = f"decimal{kind.bit_width}"
        return found(type=name, length=kind.precision * _PRECISION + kind.scale)
    if pt.is_time(kind) or pt.is_duration(kind) or pt.is_timestamp(kind):
        name = str(kind).partition("[")[0]
        return found(type=name, unit=kind.unit, timezone=getattr(kind, "tz", None) or "")
    if pt.is_fixed_size_binary(kind):
        return found(type="fixed_size_binary", length=kind.byte_width)
    return _nested_to_json(kind)


def _nested_to_json(kind: pa.DataType) -> types_pb2.JsonArrowDataType:
    found = types_pb2.JsonArrowDataType
    if pt.is_struct(kind):
        return found(type="struct", fields=[_field_to_json(child) for child in kind])
    if pt.is_fixed_size_list(kind):
        return found(type="fixed_size_list", fields=[_field_to_json(kind.value_field)], length=kind.list_size)
    if pt.is_list(kind) or pt.is_large_list(kind):
        name = "list" if pt.is_list(kind) else "large_list"
        return found(type=name, fields=[_field_to_json(kind.value_field)])
    if pt.is_map(kind):
        entries = pa.field("entries", pa.struct([kind.key_field, kind.item_field]), nullable=False)
        return found(type="map", fields=[_field_to_json(entries)])
    return found(type=str(kind))


def _field_from_json(message: types_pb2.JsonArrowField) -> pa.Field:
    nullable = message.nullable if message.HasField("nullable") else True
    return pa.field(message.name, _type_from_json(message.type), nullable, _bytes(message.metadata) or None)


def _type_from_json(message: types_pb2.JsonArrowDataType) -> pa.DataType:
    values = _values_from_json(message)
    if not message.dictionary_index_type:
        return values
    index = _PLAIN.get(message.dictionary_index_type.lower())
    if index is None or not pt.is_integer(index):
        raise ValueError(f"'{message.dictionary_index_type}' is not an integer type")
    return pa.dictionary(index, values)


def _values_from_json(message: types_pb2.JsonArrowDataType) -> pa.DataType:
    name = message.type.lower()
    name = _ALIASES.get(name, name)
    _check_needless(name, message)
    if name in _PLAIN:
        return _PLAIN[name]
    if name in _DECIMALS:
        precision = (message.length + _LOWEST_SCALE) // _PRECISION
        return _DECIMALS[name](precision, message.length - precision * _PRECISION)
    if name == "timestamp":
        return pa.timestamp(_unit(message, "us"), _timezone(message) or None)
    if name in _TIMES:
        return _TIMES[name](_unit(message, "ms" if name == "time32" else "us"))
    if name == "fixed_size_binary":
        return pa.binary(_length(message))
    return _nested_from_json(name, message)


def _check_needless(name: str, message: types_pb2.JsonArrowDataType) -> None:
    """Refuse a message with a field that has no meaning for its type."""
    wanted = {
        "fields": name in _LISTS or name in ("fixed_size_list", "struct", "map"),
        "length": name in _DECIMALS or name in ("fixed_size_binary", "fixed_size_list"),
        "unit": name in _TIMES or name == "timestamp",
        "timezone": name == "timestamp",
    }
    for field, is_wanted in wanted.items():
        if not is_wanted and getattr(message, field):
            raise ValueError(f"'{message.type}' has no {field}: leave it out")


def _nested_from_json(name: str, message: types_pb2.JsonArrowDataType) -> pa.DataType:
    if name in _LISTS:
        return _LISTS[name](_only_field(message))
    if name == "fixed_size_list":
        return pa.list_(_only_field(message), _length(message))
    if name == "struct":
        return pa.struct([_field_from_json(child) for child in message.fields])
    if name == "map":
        return _map_of(_only_field(message).type)
    raise ValueError(f"'{message.type}' is not a known type")


def _map_of(entries: pa.DataType) -> pa.DataType:
    if not pt.is_struct(entries) or entries.num_fields != 2:
        raise ValueError("a map has one field, a struct of key and value")
    return pa.map_(entries.field(0), entries.field(1))


def _only_field(message: types_pb2.JsonArrowDataType) -> pa.Field:
    if len(message.fields) != 1:
        raise ValueError(f"'{message.type}' has exactly one field, not {len(message.fields)}")
    return _field_from_json(message.fields[0])


def _length(message: types_pb2.JsonArrowDataType) -> int:
    if message.length < 1:
        raise ValueError(f"'{message.type}' has a length of 1 or more")
    return int(message.length)


def _unit(message: types_pb2.JsonArrowDataType, otherwise: str) -> str:
    unit = message.unit or otherwise
    if unit not in _UNITS:
        raise ValueError(f"'{unit}' is not a unit of time; use one of {', '.join(_UNITS)}")
    return unit


def _timezone(message: types_pb2.JsonArrowDataType) -> str:
    if CONTROL_CHARACTERS.search(message.timezone):
        raise ValueError(f"'{excerpt(message.timezone)}' is not a time zone")
    return str(message.timezone)


def _text(metadata: Mapping[bytes, bytes]) -> dict[str, str]:
    """Return the entries of metadata that are text. Other entries are only in the schema's IPC form."""
    found = {}
    for key, value in metadata.items():
        try:
            found[key.decode()] = value.decode()
        except UnicodeDecodeError:
            continue
    return found


def _bytes(metadata: Mapping[str, str]) -> dict[bytes, bytes]:
    return {key.encode(): value.encode() for key, value in metadata.items()}
