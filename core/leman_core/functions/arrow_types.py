"""Arrow types of columns: which a table can have, nested types, JSON, blobs, and their names in SQL. Pure.

Which texts of JSON a column holds unchanged. Pure.

Lance stores JSON in a binary form: integers of 64 bits, numbers with a fraction or an exponent as doubles, and text as
UTF-8. Without an error it stores null for a number that a double cannot hold, a double for a longer integer, and a
backslash for half of a surrogate pair.

There are two copies of this module, `leman_core.functions.arrow_types` and `leman._local.value_casts`: the SDK writes
tables without the services.

Arrow types that others lie in. Pure.

There are two copies of this module, `leman_core.functions.arrow_types` and `leman._local.value_casts`: the SDK writes
tables without the services.

Which Arrow types a column of a Lance table can have. Pure; docs/types.md is made by a test that asks Lance.

Blob columns: bytes that Lance keeps apart from the rest of a row. Pure.

To a function they are plain bytes, as input and as output; `values_field` is what it and the checkpoints see.

Names of Arrow types as `arrow_cast` in SQL has them: `Timestamp(Microsecond, None)`.
"""

from __future__ import annotations

import json
import re
import zoneinfo
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.types as pt

from leman_core.model.service_errors import FailedPrecondition

#: Integers in between are stored as such.
_SMALLEST, _LARGEST = -(1 << 63), (1 << 64) - 1
_LONGEST_DIGITS = 20
#: Texts without these have no number that could change. All others are looked at number by number.
_NUMBERS = re.compile(r"\d{19}|\d[eE]")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_TOKEN = re.compile(
    r'"(?:[^"\\]|\\.)*"'
    r"|(?P<float>-?\d+(?:\.\d+(?:[eE][+-]?\d+)?|[eE][+-]?\d+))|(?P<integer>-?\d+)|(?P<constant>-?[A-Za-z]+)",
    re.DOTALL,
)
_CONSTANTS = frozenset({"true", "false", "null"})


def check_json_text(text: str) -> None:
    """Check that a text is JSON, and that a column holds its value unchanged.

    Raises:
        ValueError: It is no JSON, or storage would change it.
    """
    hooks: dict[str, Any] = {"parse_constant": _no_json}
    if _NUMBERS.search(text):
        hooks |= {"parse_int": _integer, "parse_float": _float}
    try:
        json.loads(text, strict=False, object_pairs_hook=_check_keys, **hooks)
    except RecursionError:  # Lance reads what is deeper than Python reads it
        _check_tokens(text)
    if _SURROGATE.search(text):
        _check_surrogates(text)


def _check_tokens(text: str) -> None:
    for token in _TOKEN.finditer(text):
        if token["float"]:
            _float(token["float"])
        elif token["integer"]:
            _integer(token["integer"])
        elif token["constant"] and token["constant"] not in _CONSTANTS:
            _no_json(token["constant"])


def _check_surrogates(text: str) -> None:
    for token in _TOKEN.finditer(text):
        if token[0][0] == '"' and _SURROGATE.search(token[0]):
            try:
                json.loads(token[0], strict=False).encode()
            except UnicodeEncodeError:
                raise ValueError(f"JSON holds half of a surrogate pair: {_short(token[0])}") from None


def _integer(digits: str) -> None:
    if len(digits.lstrip("-")) > _LONGEST_DIGITS or not _SMALLEST <= int(digits) <= _LARGEST:
        raise ValueError(f"JSON holds the integer {_short(digits)}, of more than 64 bits: write it as a string")


def _float(number: str) -> None:
    value = float(number)
    mantissa = re.split("[eE]", number)[0]
    if value in (float("inf"), float("-inf")) or (not value and re.search("[1-9]", mantissa)):
        raise ValueError(f"JSON holds the number {_short(number)}, which no double holds: write it as a string")


def _no_json(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


def _check_keys(pairs: list[tuple[str, Any]]) -> None:
    if len({key for key, _ in pairs}) < len(pairs):
        raise ValueError(f"an object of JSON has a key twice: {', '.join(key for key, _ in pairs)}")


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:39]}…"


def map_inner_fields(kind: pa.DataType, change: Callable[[pa.Field], pa.Field]) -> pa.DataType:
    """Return the type with a change made to each field that lies in it directly: those of structs, lists and maps.

    Any other type is returned as it is.
    """
    if pt.is_struct(kind):
        return pa.struct([change(field) for field in kind])
    if pt.is_list(kind):
        return pa.list_(change(kind.value_field))
    if pt.is_large_list(kind):
        return pa.large_list(change(kind.value_field))
    if pt.is_fixed_size_list(kind):
        return pa.list_(change(kind.value_field), kind.list_size)
    if pt.is_map(kind):
        return pa.map_(change(kind.key_field), change(kind.item_field), kind.keys_sorted)
    return kind


def holds_type(kind: pa.DataType, wanted: Callable[[pa.DataType], bool]) -> bool:
    """Tell whether a type is of a sort, or has one in it at any depth. An extension type is one piece."""
    if wanted(kind):
        return True
    return pt.is_nested(kind) and any(holds_type(kind.field(at).type, wanted) for at in range(kind.num_fields))


def without_extensions(kind: pa.DataType) -> pa.DataType:
    """Return what a type is stored as: extension types at any depth are those that they rest on."""
    while isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    return map_inner_fields(kind, lambda field: field.with_type(without_extensions(field.type)))


def without_programs_own(kind: pa.DataType) -> pa.DataType:
    """Return a type without extension types that a Python package defines: others read it as what it is stored as.

    Such a type is there in a process that has imported its package, and in no other one.
    """
    while isinstance(kind, pa.ExtensionType):
        kind = kind.storage_type
    return map_inner_fields(kind, lambda field: field.with_type(without_programs_own(field.type)))


def check_utf8(schema: pa.Schema) -> None:
    """Check that names, metadata and time zones are UTF-8, at every depth: Arrow reads them from bytes unchecked.

    Raises:
        ValueError: Some are not.
    """
    try:
        _read_metadata(schema.metadata)
        for field in schema:
            _read_field(field)
    except UnicodeDecodeError as error:
        raise ValueError(f"a name, metadata or a time zone in the schema is not UTF-8: {error}") from None


def _read_field(field: pa.Field) -> None:
    _ = field.name
    _read_metadata(field.metadata)
    _read_type(field.type)


def _read_type(kind: pa.DataType) -> None:
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if pt.is_dictionary(kind):
        _read_type(kind.value_type)
    elif pt.is_timestamp(kind):
        _ = kind.tz
    for at in range(kind.num_fields):
        _read_field(kind.field(at))


def _read_metadata(metadata: Mapping[bytes, bytes] | None) -> None:
    for key, value in (metadata or {}).items():
        key.decode()
        value.decode()


def relabel(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return an array under a type that differs from its own in names of fields alone. Copies nothing."""
    if values.type == kind:
        return values
    _, content = values.__arrow_c_array__()
    return pa.Array._import_from_c_capsule(kind.__arrow_c_schema__(), content)


def differ_in_names(kind: pa.DataType, other: pa.DataType) -> bool:
    """Tell whether two types are not the same, and would be if all fields in them had no names."""
    return bool(kind != other and _nameless(kind) == _nameless(other))


def _nameless(kind: pa.DataType) -> pa.DataType:
    return map_inner_fields(kind, lambda field: pa.field("", _nameless(field.type), field.nullable))


def check_json(array: pa.Array) -> None:
    """Check the texts of JSON in an array, at any depth, by the rule of `json_texts.check`.

    Raises:
        ValueError: One is no JSON, or storage would change it.
    """
    kind = array.type
    if not holds_type(kind, lambda inner: isinstance(inner, pa.JsonType)):
        return
    if isinstance(kind, pa.JsonType):
        for text in array.storage.drop_null().to_pylist():
            check_json_text(text)
    elif pt.is_struct(kind):
        for child in array.flatten():
            check_json(child)
    elif pt.is_map(kind):
        for child in (array.keys, array.items):
            check_json(child)
    else:  # pyarrow cannot leave out what is under a NULL where structs hold extension types
        check_json((array.drop_null() if array.null_count else array).flatten())


#: From this file format on structs can be NULL.
_NULL_STRUCTS = (2, 1)
#: From this file format on there are maps.
_MAPS = (2, 2)
_OFFSET = re.compile(r"[+-][0-9]{2}(:?[0-9]{2})?")
_PLAIN = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
#: What Lance notes of a column for its table's sake, at any depth: unenforced primary and clustering keys.
_KEYS = b"lance-schema:"
#: Types whose values Lance writes in another form than Arrow's.
_OWN_FORM = frozenset({"arrow.json", "lance.json"})
#: Marks a column whose fields Lance keeps together, as one value for each row; inside of another type Lance ignores it.
_PACKED_KEYS = (b"packed", b"lance-encoding:packed")
_REWRITE = "Write the table anew with data_storage_version='{}.{}' or later, or use another type"
_INSTEAD = {
    "decimal32": "Use pa.decimal128 with the same precision and scale",
    "decimal64": "Use pa.decimal128 with the same precision and scale",
    "interval": "Use pa.duration, or three integers in a struct",
    "list view": "Use pa.list_",
    "union": "Use a struct with one nullable field for each alternative",
    "run-end encoded": "Use the type of its values: Lance encodes runs by itself",
    "empty struct": "Give the struct a field",
    "map with sorted keys": "Use pa.map_ without keys_sorted",
    "fixed-size list of values of varying length": "Use pa.list_",
    "fixed-size list of structs": "Use pa.list_",
    "fixed-size list of size 0": "Use pa.list_",
    "dictionary of other values than text, bytes, numbers": "Use the type of its values",
    "dictionary of float16": "Use the type of its values: Arrow garbles these when it joins two of them",
}


def stored_type(kind: pa.DataType) -> pa.DataType:
    """Return the type that a column of this type has once Lance stored it: views become plain, dictionaries unordered.

    Fields in it are no keys of a table.
    """
    if pt.is_dictionary(kind):
        return pa.dictionary(kind.index_type, kind.value_type)
    return _PLAIN[kind] if pt.is_string_view(kind) or pt.is_binary_view(kind) else map_inner_fields(kind, _stored)


def _stored(field: pa.Field) -> pa.Field:
    return field.with_type(stored_type(field.type)).with_metadata(copied_metadata(field))


def copied_metadata(field: pa.Field) -> dict[bytes, bytes] | None:
    """Return what a copy of a column keeps of its metadata: it is no key of the table that it is in.

    Lance refuses keys that may be NULL, as computed columns and those of views may be.
    """
    kept = {key: value for key, value in (field.metadata or {}).items() if not key.startswith(_KEYS)}
    return kept or None


def check_storable(column: str, kind: pa.DataType, file_format: tuple[int, int]) -> None:
    """Refuse a type that a table of this file format cannot hold.

    It may be what a function or SQL gives, or that of a copy of another table's column.

    Raises:
        FailedPrecondition: TYPE_NOT_STORABLE.
    """
    zone = next((part for part in (kind, *_parts(kind)) if pt.is_timestamp(part) and not _is_known_zone(part.tz)), None)
    if zone is not None:
        raise FailedPrecondition(
            "TYPE_NOT_STORABLE",
            f"Column '{column}' cannot have the type {kind}: nothing is known of the time zone {zone.tz!r}. Name one "
            "of the IANA database, like Europe/Zurich, or an offset, like +02:00",
            column=column,
            type=kind,
        )
    found = _refusal(kind, file_format) or _inside(kind)
    if found is None:
        return
    part, advice = found
    inside = "" if part == kind else f" ({part} in {kind})"
    raise FailedPrecondition(
        "TYPE_NOT_STORABLE",
        f"Column '{column}' cannot have the type {kind}: Lance does not store it{inside}. {advice}",
        column=column,
        type=kind,
    )


def _is_known_zone(zone: str | None) -> bool:
    return not zone or zone == "UTC" or _OFFSET.fullmatch(zone) is not None or _has_zone(zone) or not _has_zone("UTC")


def _has_zone(zone: str) -> bool:
    try:
        zoneinfo.ZoneInfo(zone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True


def is_packed(column: pa.Field) -> bool:
    """Return whether a column is a packed struct. Lance reads one only as a whole: of single fields it gives others."""
    metadata = column.metadata or {}
    return pt.is_struct(column.type) and any(metadata.get(key, b"").lower() == b"true" for key in _PACKED_KEYS)


def check_readable_path(path: str, column: pa.Field | None) -> None:
    """Refuse a field of a struct, by names with dots between, that Lance cannot read; `column`: what it lies in.

    Raises:
        FailedPrecondition: TYPE_NOT_STORABLE.
    """
    if column is not None and path != column.name and is_packed(column):
        raise FailedPrecondition(
            "TYPE_NOT_STORABLE",
            f"'{path}' cannot be read: Lance gives wrong values for single fields of a packed struct. "
            f"Read the whole column '{column.name}', or rewrite the table without the metadata 'packed'",
            column=path,
            type=column.type,
        )


def check_readable(column: str, kind: pa.DataType) -> None:
    """Refuse a column that Lance wrote and cannot read.

    Raises:
        FailedPrecondition: TYPE_NOT_STORABLE.
    """
    part = next((part for part in (kind, *_parts(kind)) if _of_structs(part)), None)
    if part is not None:
        raise FailedPrecondition(
            "TYPE_NOT_STORABLE",
            f"Column '{column}' of type {kind} cannot be read: Lance stores {part}, and then finds its values no more. "
            "Write the table anew with pa.list_",
            column=column,
            type=kind,
        )


def _inside(kind: pa.DataType) -> tuple[pa.DataType, str] | None:
    """Return the part of a nested type that Lance takes, and then keeps as something else or cannot read."""
    for part in (kind, *_parts(kind)):
        for child in _children(part):
            if isinstance(child, pa.BaseExtensionType) and child.extension_name in _OWN_FORM:
                return child, "Use text: Lance keeps JSON as such only where it is the column's own type"
            if pt.is_fixed_size_list(part) and isinstance(child, pa.BaseExtensionType):
                return part, "Use pa.list_, or the type that its values are stored as"
    return None


def _parts(kind: pa.DataType) -> Iterator[pa.DataType]:
    """Yield what a type is made of, at any depth, without itself. An extension type is one piece."""
    for child in () if isinstance(kind, pa.BaseExtensionType) else _children(kind):
        yield child
        yield from _parts(child)


def _refusal(kind: pa.DataType, file_format: tuple[int, int]) -> tuple[pa.DataType, str] | None:
    """Return the part of a type that Lance does not store, and what to do; None where it stores all."""
    if isinstance(kind, pa.BaseExtensionType):
        if kind.extension_name == "lance.blob.v2":
            return (
                kind,
                "Declare it as large_binary with the metadata lance-encoding:blob = true: the function returns bytes",
            )
        return _refusal(kind.storage_type, file_format)
    name = _not_stored(kind)
    if name:
        return kind, _INSTEAD[name]
    if pt.is_struct(kind) and file_format < _NULL_STRUCTS:
        return kind, "Its file format knows no NULL struct. " + _REWRITE.format(*_NULL_STRUCTS)
    if pt.is_map(kind) and file_format < _MAPS:
        return kind, _REWRITE.format(*_MAPS)
    parts = (_refusal(child, file_format) for child in _children(kind))
    return next((part for part in parts if part is not None), None)


def _not_stored(kind: pa.DataType) -> str:
    """Return the name under which `_INSTEAD` has a type that no file format holds; empty for all others."""
    found = {
        "decimal32": pt.is_decimal32(kind),
        "decimal64": pt.is_decimal64(kind),
        "interval": pt.is_interval(kind),
        "list view": pt.is_list_view(kind) or pt.is_large_list_view(kind),
        "union": pt.is_union(kind),
        "run-end encoded": pt.is_run_end_encoded(kind),
        "empty struct": pt.is_struct(kind) and kind.num_fields == 0,
        "map with sorted keys": pt.is_map(kind) and kind.keys_sorted,
        "fixed-size list of values of varying length": pt.is_fixed_size_list(kind) and _varies(kind.value_type),
        "fixed-size list of structs": _of_structs(kind),
        "fixed-size list of size 0": pt.is_fixed_size_list(kind) and kind.list_size == 0,
        "dictionary of other values than text, bytes, numbers": (
            pt.is_dictionary(kind) and not _in_dictionary(kind.value_type)
        ),
        "dictionary of float16": pt.is_dictionary(kind) and pt.is_float16(kind.value_type),
    }
    return next((name for name, holds in found.items() if holds), "")


def _varies(kind: pa.DataType) -> bool:
    """Tell whether values of a type differ in length. Structs are told by themselves: see `_of_structs`."""
    if isinstance(kind, pa.BaseExtensionType):
        return _varies(kind.storage_type)
    if pt.is_fixed_size_list(kind):
        return _varies(kind.value_type)
    plain = pt.is_primitive(kind) or pt.is_decimal(kind) or pt.is_fixed_size_binary(kind) or pt.is_null(kind)
    return not (plain or pt.is_struct(kind))


def _of_structs(kind: pa.DataType) -> bool:
    """Tell whether a type is a fixed-size list of structs, or of such lists.

    Lance writes it, and then reads no column that shares a file with it.
    """
    if not pt.is_fixed_size_list(kind):
        return False
    inner = kind.value_type
    while isinstance(inner, pa.BaseExtensionType):
        inner = inner.storage_type
    return pt.is_struct(inner) or _of_structs(inner)


def _in_dictionary(kind: pa.DataType) -> bool:
    plain = pt.is_string(kind) or pt.is_large_string(kind) or pt.is_binary(kind) or pt.is_large_binary(kind)
    return bool(plain or pt.is_integer(kind) or pt.is_floating(kind) or pt.is_boolean(kind))


def _children(kind: pa.DataType) -> list[pa.DataType]:
    if pt.is_struct(kind):
        return [field.type for field in kind]
    if pt.is_map(kind):
        return [kind.key_type, kind.item_type]
    if pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind):
        return [kind.value_type]
    if pt.is_dictionary(kind):
        return [kind.value_type]
    return []


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
    return map_inner_fields(kind, lambda field: field.with_type(given_type(field, field.type)))


def blob_field(name: str, file_format: tuple[int, int]) -> pa.Field:
    """Return a new blob column in a table of that file format."""
    if file_format >= V2_FORMAT:
        return pa.field(name, _V2, metadata={_EXTENSION_KEY: _EXTENSION.encode()})
    return pa.field(name, pa.large_binary(), metadata=_MARKED)


ARROW_CAST_UNITS = {"s": "Second", "ms": "Millisecond", "us": "Microsecond", "ns": "Nanosecond"}
_ARROW_CAST_NAMES = {
    **{
        pa.type_for_alias(f"{sign}int{bits}"): f"{sign.upper()}Int{bits}"
        for sign in ("", "u")
        for bits in (8, 16, 32, 64)
    },
    pa.float16(): "Float16",
    pa.float32(): "Float32",
    pa.float64(): "Float64",
    pa.string(): "Utf8",
    pa.large_string(): "LargeUtf8",
    pa.string_view(): "Utf8View",
    pa.binary(): "Binary",
    pa.large_binary(): "LargeBinary",
    pa.binary_view(): "BinaryView",
    pa.date32(): "Date32",
    pa.date64(): "Date64",
}


def arrow_cast_name(kind: pa.DataType) -> str:
    """Return the name of a type of numbers, text, bytes, dates or times."""
    if kind in _ARROW_CAST_NAMES:
        return _ARROW_CAST_NAMES[kind]
    if pt.is_decimal(kind):
        return f"Decimal{kind.bit_width}({kind.precision}, {kind.scale})"
    if pt.is_timestamp(kind):
        zone = f'Some("{kind.tz}")' if kind.tz else "None"
        return f"Timestamp({ARROW_CAST_UNITS[kind.unit]}, {zone})"
    name = "Duration" if pt.is_duration(kind) else "Time32" if pt.is_time32(kind) else "Time64"
    return f"{name}({ARROW_CAST_UNITS[kind.unit]})"
