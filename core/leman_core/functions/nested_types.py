"""Arrow types that others lie in. Pure.

There are two copies of this module, `leman_core.functions.nested_types` and `leman._nested_types`: the SDK writes
tables without the services.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa
import pyarrow.types as pt

from leman_core.functions import json_texts


def rebuilt(kind: pa.DataType, change: Callable[[pa.Field], pa.Field]) -> pa.DataType:
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


def holds(kind: pa.DataType, wanted: Callable[[pa.DataType], bool]) -> bool:
    """Tell whether a type is of a sort, or has one in it at any depth. An extension type is one piece."""
    if wanted(kind):
        return True
    return pt.is_nested(kind) and any(holds(kind.field(at).type, wanted) for at in range(kind.num_fields))


def without_extensions(kind: pa.DataType) -> pa.DataType:
    """Return what a type is stored as: extension types at any depth are those that they rest on."""
    while isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    return rebuilt(kind, lambda field: field.with_type(without_extensions(field.type)))


def without_programs_own(kind: pa.DataType) -> pa.DataType:
    """Return a type without extension types that a Python package defines: others read it as what it is stored as.

    Such a type is there in a process that has imported its package, and in no other one.
    """
    while isinstance(kind, pa.ExtensionType):
        kind = kind.storage_type
    return rebuilt(kind, lambda field: field.with_type(without_programs_own(field.type)))


def check_text(schema: pa.Schema) -> None:
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


def relabelled(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return an array under a type that differs from its own in names of fields alone. Copies nothing."""
    if values.type == kind:
        return values
    _, content = values.__arrow_c_array__()
    return pa.Array._import_from_c_capsule(kind.__arrow_c_schema__(), content)


def differ_in_names(kind: pa.DataType, other: pa.DataType) -> bool:
    """Tell whether two types are not the same, and would be if all fields in them had no names."""
    return bool(kind != other and _nameless(kind) == _nameless(other))


def _nameless(kind: pa.DataType) -> pa.DataType:
    return rebuilt(kind, lambda field: pa.field("", _nameless(field.type), field.nullable))


def check_json(array: pa.Array) -> None:
    """Check the texts of JSON in an array, at any depth, by the rule of `json_texts.check`.

    Raises:
        ValueError: One is no JSON, or storage would change it.
    """
    kind = array.type
    if not holds(kind, lambda inner: isinstance(inner, pa.JsonType)):
        return
    if isinstance(kind, pa.JsonType):
        for text in array.storage.drop_null().to_pylist():
            json_texts.check(text)
    elif pt.is_struct(kind):
        for child in array.flatten():
            check_json(child)
    elif pt.is_map(kind):
        for child in (array.keys, array.items):
            check_json(child)
    else:  # pyarrow cannot leave out what is under a NULL where structs hold extension types
        check_json((array.drop_null() if array.null_count else array).flatten())
