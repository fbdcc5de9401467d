"""Casts of Arrow values, nested types and JSON texts that a column must store unchanged. Pure.

Lance stores JSON in a binary form: integers of 64 bits, numbers with a fraction or an exponent as doubles, and text as
UTF-8. It changes some values without an error: a number beyond the range of doubles becomes null, an integer of more
than 64 bits becomes a double, and half of a surrogate pair becomes a backslash.

Casts here lose only digits that a float has no room for. A plain Arrow cast also reads bytes as text, counts as times,
and times without a zone as UTC. It turns numbers that are too large for a type into infinities and rounds floats to
the scale of a decimal. It refuses integers for a decimal that cannot hold every integer of their type.

This module imports pyarrow, so the SDK imports it only when it writes rows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

#: JSON integers in this range are stored as integers.
_SMALLEST, _LARGEST = -(1 << 63), (1 << 64) - 1
_LONGEST_DIGITS = 20
#: A JSON text without a match has no number that storage could change. Otherwise each number is checked.
_NUMBERS = re.compile(r"\d{19}|\d[eE]")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_TOKEN = re.compile(
    r'"(?:[^"\\]|\\.)*"'
    r"|(?P<float>-?\d+(?:\.\d+(?:[eE][+-]?\d+)?|[eE][+-]?\d+))|(?P<integer>-?\d+)|(?P<constant>-?[A-Za-z]+)",
    re.DOTALL,
)
_CONSTANTS = frozenset({"true", "false", "null"})


def check_json_text(text: str) -> None:
    """Check that a text is JSON, and that a JSON column would store its value unchanged.

    Raises:
        ValueError: It is not JSON, or storage would change it.
    """
    hooks: dict[str, Any] = {"parse_constant": _no_json}
    if _NUMBERS.search(text):
        hooks |= {"parse_int": _integer, "parse_float": _float}
    try:
        json.loads(text, strict=False, object_pairs_hook=_check_keys, **hooks)
    except RecursionError:  # Lance can read deeper nesting than Python
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
        raise ValueError(f"a JSON object has a key more than once: {', '.join(key for key, _ in pairs)}")


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:39]}…"


def map_inner_fields(kind: pa.DataType, change: Callable[[pa.Field], pa.Field]) -> pa.DataType:
    """Apply a change to each direct field of a struct, list or map type. Any other type is returned unchanged."""
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
    """Return whether a type or one nested in it is `wanted`. Does not look inside extension types."""
    if wanted(kind):
        return True
    return pt.is_nested(kind) and any(holds_type(kind.field(at).type, wanted) for at in range(kind.num_fields))


def without_extensions(kind: pa.DataType) -> pa.DataType:
    """Return a type in which storage types replace all extension types, at any depth."""
    while isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    return map_inner_fields(kind, lambda field: field.with_type(without_extensions(field.type)))


def without_programs_own(kind: pa.DataType) -> pa.DataType:
    """Return a type in which storage types replace the extension types that Python packages define, at any depth.

    Such a type exists only in a process that has imported its package.
    """
    while isinstance(kind, pa.ExtensionType):
        kind = kind.storage_type
    return map_inner_fields(kind, lambda field: field.with_type(without_programs_own(field.type)))


def check_utf8(schema: pa.Schema) -> None:
    """Check that all names, metadata and time zones of a schema are UTF-8, at every depth. Arrow does not check them.

    Raises:
        ValueError: One of them is not UTF-8.
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
    """Return the same values with the type `kind`, which may differ only in field names. Copies nothing."""
    if values.type == kind:
        return values
    _, content = values.__arrow_c_array__()
    return pa.Array._import_from_c_capsule(kind.__arrow_c_schema__(), content)


def differ_in_names(kind: pa.DataType, other: pa.DataType) -> bool:
    """Return whether two types are different, but only in field names."""
    return bool(kind != other and _nameless(kind) == _nameless(other))


def _nameless(kind: pa.DataType) -> pa.DataType:
    return map_inner_fields(kind, lambda field: pa.field("", _nameless(field.type), field.nullable))


def check_json(array: pa.Array) -> None:
    """Check all JSON texts in an array, at any depth, with `check_json_text`.

    Raises:
        ValueError: One is not JSON, or storage would change it.
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
    else:  # pyarrow cannot skip the values below a NULL in structs of extension types
        check_json((array.drop_null() if array.null_count else array).flatten())


#: Tests for lists of any kind.
LISTS = (pt.is_list, pt.is_large_list, pt.is_fixed_size_list)
#: Enough digits for every 64-bit integer.
_INTEGER_DIGITS = 20


def castable(source: pa.DataType, target: pa.DataType) -> bool:
    """Return whether two types hold the same kind of values, so that `source` may be cast to `target`.

    Different kinds are: text and bytes, counts and times, times with and without a zone, truth values and numbers.
    Floats and decimals cannot be cast to each other. A date can become its midnight in a timestamp without a zone.
    """
    if pt.is_null(source) or source == target:
        return True
    if isinstance(source, pa.BaseExtensionType):
        return castable(source.storage_type, target)
    if isinstance(target, pa.BaseExtensionType):
        return castable(source, target.storage_type)
    if pt.is_dictionary(source) or pt.is_dictionary(target):
        inner = source.value_type if pt.is_dictionary(source) else source
        return castable(inner, target.value_type if pt.is_dictionary(target) else target)
    if _is_list(target):
        return _is_list(source) and castable(source.value_type, target.value_type)
    if pt.is_struct(target):
        fields = {field.name: field.type for field in target}
        return pt.is_struct(source) and all(f.name in fields and castable(f.type, fields[f.name]) for f in source)
    if pt.is_map(target):
        inside = pt.is_map(source) and castable(source.key_type, target.key_type)
        return bool(inside and castable(source.item_type, target.item_type))
    return _same_sort(source, target)


def _same_sort(source: pa.DataType, target: pa.DataType) -> bool:
    if pt.is_timestamp(target):
        zoned = pt.is_timestamp(source) and (source.tz is None) == (target.tz is None)
        return zoned or (pt.is_date(source) and target.tz is None)
    if pt.is_decimal(target):
        return bool(pt.is_decimal(source) or pt.is_integer(source))
    if pt.is_integer(target):
        return bool(pt.is_integer(source) or pt.is_floating(source) or pt.is_decimal(source))
    if pt.is_floating(target):
        return bool(pt.is_integer(source) or pt.is_floating(source))
    return any(sort(source) and sort(target) for sort in (pt.is_date, pt.is_time, pt.is_duration, is_text, is_binary))


def cast_advice(source: pa.DataType, target: pa.DataType) -> str:
    """Return how to convert values that are not castable, as ": ..." to end a sentence, or "" if no way is known."""
    return next((f": {how}" for have, want, how in _ADVICE if have(source) and want(target)), "")


def is_text(kind: pa.DataType) -> bool:
    return bool(pt.is_string(kind) or pt.is_large_string(kind) or pt.is_string_view(kind))


def is_binary(kind: pa.DataType) -> bool:
    wide = pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_binary_view(kind)
    return bool(wide or pt.is_fixed_size_binary(kind))


def _is_list(kind: pa.DataType) -> bool:
    return any(is_list(kind) for is_list in LISTS)


def convertible(source: pa.DataType, target: pa.DataType) -> bool:
    """Return whether `exact_cast` supports these types. It may still refuse values that the cast would change."""
    if source == target or pt.is_null(source):
        return True
    if not castable(source, target):
        return False
    plain = source.value_type if pt.is_dictionary(source) and not pt.is_dictionary(target) else source
    try:
        exact_cast(pa.array([], plain), target)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        return False
    return True


def _is_number(kind: pa.DataType) -> bool:
    return bool(pt.is_integer(kind) or pt.is_floating(kind) or pt.is_decimal(kind))


def _is_clock_time(kind: pa.DataType) -> bool:
    return bool(pt.is_date(kind) or (pt.is_timestamp(kind) and kind.tz is None))


def _is_moment(kind: pa.DataType) -> bool:
    return bool(pt.is_timestamp(kind) and kind.tz is not None)


_ADVICE: list[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType], bool], str]] = [
    (is_binary, is_text, "decode the bytes"),
    (is_text, is_binary, "encode the text"),
    (pt.is_boolean, _is_number, "convert the truth values to numbers"),
    (pt.is_floating, pt.is_decimal, "convert floats to decimals first, because a cast would round them"),
    (pt.is_decimal, pt.is_floating, "convert decimals to floats first, because a cast would round them"),
    (_is_clock_time, _is_moment, "add a time zone to the times"),
    (_is_moment, pt.is_timestamp, "remove the time zone from the times"),
    (pt.is_timestamp, pt.is_date, "remove the time of day"),
]


def exact_cast(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast an array to another type without changing a value, apart from floats, which may be rounded.

    Raises:
        pa.ArrowException, OverflowError, ValueError: The types do not fit, or the cast would change a value.
    """
    if isinstance(values, pa.DictionaryArray) and not pt.is_dictionary(kind):
        return exact_cast(values.dictionary, kind).take(values.indices)  # each value is converted once
    way = _on_the_way(values.type, kind)
    may_round = has_floats(kind) and _has_integers(values.type)
    is_checked = not may_round
    try:
        made = values.cast(way).cast(kind)
        is_checked |= pt.is_float32(kind) or pt.is_float64(kind)  # Arrow checks only casts to these two
    except pa.ArrowInvalid:  # Arrow also refuses integers that a float could hold exactly, if they are large
        if not may_round:
            raise
        made = values.cast(way, safe=False).cast(kind)
    if not is_checked and not _are_same_numbers(values, made):
        raise ValueError(f"{kind} cannot hold one of the integers exactly: send floats, which may be rounded")
    if infinities(made) > infinities(values):
        raise OverflowError(f"a number is too large for {kind}")
    return made


def _has_integers(kind: pa.DataType) -> bool:
    return holds_type(
        without_extensions(kind), lambda inner: pt.is_integer(inner.value_type if pt.is_dictionary(inner) else inner)
    )


def _are_same_numbers(values: pa.Array, made: pa.Array) -> bool:
    """Return whether integers kept their values when they became floats, at any depth."""
    values, made = (array.storage if isinstance(array, pa.ExtensionArray) else array for array in (values, made))
    values, made = (a.dictionary_decode() if isinstance(a, pa.DictionaryArray) else a for a in (values, made))
    if not has_floats(made.type) or not _has_integers(values.type):
        return True
    if pt.is_struct(made.type):
        names = [field.name for field in values.type]
        pairs = zip(names, values.flatten(), strict=True)
        return all(_are_same_numbers(child, made.flatten()[made.type.get_field_index(name)]) for name, child in pairs)
    if pt.is_nested(made.type):
        values, made = (array.drop_null() if array.null_count else array for array in (values, made))
    if pt.is_map(made.type):
        return _are_same_numbers(values.keys, made.keys) and _are_same_numbers(values.items, made.items)
    if pt.is_nested(made.type):
        return _are_same_numbers(values.flatten(), made.flatten())
    try:
        return bool(made.cast(values.type).equals(values))
    except pa.ArrowInvalid:  # a value was rounded out of the integers' range
        return False


def has_floats(kind: pa.DataType) -> bool:
    """Return whether a type holds floats, at any depth of lists, maps, structs and dictionaries."""
    return holds_type(
        without_extensions(kind), lambda inner: pt.is_floating(inner.value_type if pt.is_dictionary(inner) else inner)
    )


def infinities(array: pa.Array) -> int:
    """Count the infinite numbers in an array, at any depth of lists, maps, structs and dictionaries."""
    if isinstance(array, pa.ExtensionArray):
        return infinities(array.storage)
    if not has_floats(array.type):
        return 0
    if isinstance(array, pa.DictionaryArray):
        return infinities(array.dictionary_decode())
    if _is_list(array.type):
        # pyarrow cannot skip the values below a NULL in structs of extension types
        return infinities((array.drop_null() if array.null_count else array).flatten())
    if pt.is_map(array.type):
        present = array.drop_null() if array.null_count else array
        return infinities(present.keys) + infinities(present.items)
    if pt.is_struct(array.type):
        return sum(infinities(child) for child in array.flatten())
    if not pt.is_floating(array.type):
        return 0
    wide = array.cast(pa.float32()) if pt.is_float16(array.type) else array
    return int(pc.sum(pc.is_inf(wide)).as_py() or 0)


def _on_the_way(have: pa.DataType, want: pa.DataType) -> pa.DataType:
    """Return the type for a first cast, after which Arrow can cast to `want`.

    For decimals, integers become decimals with enough digits. For floats, they become floats.
    """
    if pt.is_integer(have) and pt.is_decimal(want):
        return pa.decimal128(_INTEGER_DIGITS, 0)
    if pt.is_integer(have) and pt.is_floating(want):
        return want
    if pt.is_struct(have) and pt.is_struct(want):
        kinds = {field.name: field.type for field in want}
        return map_inner_fields(have, lambda field: _field_on_the_way(field, kinds.get(field.name, field.type)))
    if pt.is_map(have) and pt.is_map(want):
        key, item = have.key_field, have.item_field
        return pa.map_(_field_on_the_way(key, want.key_type), _field_on_the_way(item, want.item_type), have.keys_sorted)
    if _is_list(have) and _is_list(want):
        return map_inner_fields(have, lambda field: _field_on_the_way(field, want.value_type))
    return have


def _field_on_the_way(field: pa.Field, want: pa.DataType) -> pa.Field:
    return field.with_type(_on_the_way(field.type, want))
