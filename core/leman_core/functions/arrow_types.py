"""Arrow types of columns: which ones a Lance table can have, blobs, and their names in SQL. Pure.

A test compares this module with Lance and generates docs/types.md. Blobs are bytes that Lance stores apart from the
other values of a row. A function gets and returns them as plain bytes (see `values_field`). Types have the names of
`arrow_cast` in SQL, such as `Timestamp(Microsecond, None)`.
"""

from __future__ import annotations

import re
import zoneinfo
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.types as pt

from leman._format.value_casts import map_inner_fields
from leman_core.model.service_errors import FailedPrecondition

#: Integers in this range are stored as such.
_SMALLEST, _LARGEST = -(1 << 63), (1 << 64) - 1


#: The first file format in which structs can be NULL.
_NULL_STRUCTS = (2, 1)
#: The first file format with maps.
_MAPS = (2, 2)
_OFFSET = re.compile(r"[+-][0-9]{2}(:?[0-9]{2})?")
_PLAIN = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
#: Metadata with which Lance marks a column as a primary or clustering key (unenforced) of its table, at any depth.
_KEYS = b"lance-schema:"
#: Types whose values Lance stores in a form other than Arrow's.
_OWN_FORM = frozenset({"arrow.json", "lance.json"})
#: Marks a struct that Lance stores as one value for each row; inside of another type Lance ignores it.
_PACKED_KEYS = (b"packed", b"lance-encoding:packed")
_REWRITE = "Write the table again with data_storage_version='{}.{}' or later, or use another type"
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
    """Return the type that a column has after storage by Lance: no view types, and only unordered dictionaries.

    Marks of the table's keys are removed from its fields.
    """
    if pt.is_dictionary(kind):
        return pa.dictionary(kind.index_type, kind.value_type)
    return _PLAIN[kind] if pt.is_string_view(kind) or pt.is_binary_view(kind) else map_inner_fields(kind, _stored)


def _stored(field: pa.Field) -> pa.Field:
    return field.with_type(stored_type(field.type)).with_metadata(copied_metadata(field))


def copied_metadata(field: pa.Field) -> dict[bytes, bytes] | None:
    """Return a column's metadata for a copy of it, without the marks of keys.

    Lance refuses keys that may be NULL, and computed columns and columns of views may be NULL.
    """
    kept = {key: value for key, value in (field.metadata or {}).items() if not key.startswith(_KEYS)}
    return kept or None


def check_storable(column: str, kind: pa.DataType, file_format: tuple[int, int]) -> None:
    """Refuse a column's type that a table of this file format cannot store.

    The type comes from a function, from SQL, or from another table's column.

    Raises:
        FailedPrecondition: TYPE_NOT_STORABLE.
    """
    zone = next((part for part in (kind, *_parts(kind)) if pt.is_timestamp(part) and not _is_known_zone(part.tz)), None)
    if zone is not None:
        raise FailedPrecondition(
            "TYPE_NOT_STORABLE",
            f"Column '{column}' cannot have the type {kind}: the time zone {zone.tz!r} is unknown. Use one "
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
    """Return whether a column is a packed struct. Lance returns wrong values for its single fields."""
    metadata = column.metadata or {}
    return pt.is_struct(column.type) and any(metadata.get(key, b"").lower() == b"true" for key in _PACKED_KEYS)


def check_readable_path(path: str, column: pa.Field | None) -> None:
    """Refuse the dotted path of a struct field that Lance cannot read. `column` is the column that contains it.

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
    """Refuse a column that Lance has written but cannot read.

    Raises:
        FailedPrecondition: TYPE_NOT_STORABLE.
    """
    part = next((part for part in (kind, *_parts(kind)) if _of_structs(part)), None)
    if part is not None:
        raise FailedPrecondition(
            "TYPE_NOT_STORABLE",
            f"Column '{column}' of type {kind} cannot be read: Lance stores {part}, and then finds its values no more. "
            "Write the table again with pa.list_",
            column=column,
            type=kind,
        )


def _inside(kind: pa.DataType) -> tuple[pa.DataType, str] | None:
    """Return the part of a nested type whose values Lance changes or cannot read once stored, or None."""
    for part in (kind, *_parts(kind)):
        for child in _children(part):
            if isinstance(child, pa.BaseExtensionType) and child.extension_name in _OWN_FORM:
                return child, "Use text: Lance keeps JSON as such only where it is the column's own type"
            if pt.is_fixed_size_list(part) and isinstance(child, pa.BaseExtensionType):
                return part, "Use pa.list_, or the type that its values are stored as"
    return None


def _parts(kind: pa.DataType) -> Iterator[pa.DataType]:
    """Yield the nested types of a type, at any depth. An extension type has none."""
    for child in () if isinstance(kind, pa.BaseExtensionType) else _children(kind):
        yield child
        yield from _parts(child)


def _refusal(kind: pa.DataType, file_format: tuple[int, int]) -> tuple[pa.DataType, str] | None:
    """Return the part of a type that Lance does not store, with advice; None if Lance stores the whole type."""
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
    """Return the key in `_INSTEAD` of a type that no file format stores; empty for all others."""
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
    """Return whether values of a type differ in length. For structs see `_of_structs`."""
    if isinstance(kind, pa.BaseExtensionType):
        return _varies(kind.storage_type)
    if pt.is_fixed_size_list(kind):
        return _varies(kind.value_type)
    plain = pt.is_primitive(kind) or pt.is_decimal(kind) or pt.is_fixed_size_binary(kind) or pt.is_null(kind)
    return not (plain or pt.is_struct(kind))


def _of_structs(kind: pa.DataType) -> bool:
    """Return whether a type is a fixed-size list of structs, or of such lists.

    Lance writes such a column, but then it cannot read any column in the same file.
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
#: The storage type of Lance's blobs from file format 2.2 on. Processes that have not imported Lance see this struct.
_V2 = pa.struct([("data", pa.large_binary()), ("uri", pa.string()), ("position", pa.uint64()), ("size", pa.uint64())])
V2_FORMAT = (2, 2)
#: The file format of views with blobs. A view stores both kinds of blobs as the plain kind.
VIEW_FORMAT = (2, 1)


def is_blob(field: pa.Field) -> bool:
    """Return whether a column's values are blobs, of one of Lance's two kinds."""
    metadata = field.metadata or {}
    name = metadata.get(_EXTENSION_KEY, b"").decode() or getattr(field.type, "extension_name", "")
    return name == _EXTENSION or metadata.get(BLOB_KEY) == b"true"


def holds_blob(kind: pa.DataType) -> bool:
    """Return whether a type contains a blob at any depth."""
    inner = [kind.field(at) for at in range(kind.num_fields)] if pt.is_nested(kind) else []
    return any(is_blob(field) or holds_blob(field.type) for field in inner)


def values_field(field: pa.Field) -> pa.Field:
    """Return a column as functions see it: its name and type, with metadata only if it has blobs."""
    if is_blob(field):
        return pa.field(field.name, pa.large_binary(), metadata=_MARKED)
    return field.remove_metadata()


def given_type(column: pa.Field, kind: pa.DataType) -> pa.DataType:
    """Return the type in which functions get a column of type `kind`, with bytes in place of blobs."""
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
    """Return the SQL name of a type of numbers, text, bytes, dates or times."""
    if kind in _ARROW_CAST_NAMES:
        return _ARROW_CAST_NAMES[kind]
    if pt.is_decimal(kind):
        return f"Decimal{kind.bit_width}({kind.precision}, {kind.scale})"
    if pt.is_timestamp(kind):
        zone = f'Some("{kind.tz}")' if kind.tz else "None"
        return f"Timestamp({ARROW_CAST_UNITS[kind.unit]}, {zone})"
    name = "Duration" if pt.is_duration(kind) else "Time32" if pt.is_time32(kind) else "Time64"
    return f"{name}({ARROW_CAST_UNITS[kind.unit]})"
