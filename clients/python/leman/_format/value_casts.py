"""Casts of Arrow values, nested types and JSON texts: what a column holds unchanged. Pure.

Lance stores JSON in a binary form: integers of 64 bits, numbers with a fraction or an exponent as doubles, and text as
UTF-8. Without an error it stores null for a number that a double cannot hold, a double for a longer integer, and a
backslash for half of a surrogate pair.

Casts lose nothing but what lies beyond the precision of a float. Arrow alone takes bytes for text, counts for times and
times without a zone for UTC. It makes numbers that are too large for a type infinite, rounds floats to the scale of a
decimal, and converts no integer to a decimal without room for every integer.

It imports pyarrow: the SDK imports it where rows are written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

#: Integers in between are stored as such.
_SMALLEST, _LARGEST = -(1 << 63), (1 << 64) - 1
_LONGEST_DIGITS = 20
#: Texts without these have no number that could change. In all others, each number is checked.
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
        ValueError: It is not JSON, or storage would change it.
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
    """Return a struct, list or map with a change made to each of its direct fields; any other type as it is."""
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
    """Return whether a type, or one in it at any depth, is wanted. An extension type is one piece."""
    if wanted(kind):
        return True
    return pt.is_nested(kind) and any(holds_type(kind.field(at).type, wanted) for at in range(kind.num_fields))


def without_extensions(kind: pa.DataType) -> pa.DataType:
    """Return a type with the storage types of extension types at any depth."""
    while isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    return map_inner_fields(kind, lambda field: field.with_type(without_extensions(field.type)))


def without_programs_own(kind: pa.DataType) -> pa.DataType:
    """Return a type with the storage types of extension types that a Python package defines.

    Such a type exists only in a process that has imported its package.
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
    """Return an array under a type that differs from its own only in names of fields. Copies nothing."""
    if values.type == kind:
        return values
    _, content = values.__arrow_c_array__()
    return pa.Array._import_from_c_capsule(kind.__arrow_c_schema__(), content)


def differ_in_names(kind: pa.DataType, other: pa.DataType) -> bool:
    """Return whether two types differ, but only in names of fields."""
    return bool(kind != other and _nameless(kind) == _nameless(other))


def _nameless(kind: pa.DataType) -> pa.DataType:
    return map_inner_fields(kind, lambda field: pa.field("", _nameless(field.type), field.nullable))


def check_json(array: pa.Array) -> None:
    """Check the texts of JSON in an array, at any depth, by the rule of `check_json_text`.

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
    else:  # pyarrow cannot leave out what is under a NULL in structs of extension types
        check_json((array.drop_null() if array.null_count else array).flatten())


#: Tests for lists of any kind.
LISTS = (pt.is_list, pt.is_large_list, pt.is_fixed_size_list)
#: Digits of the longest 64-bit integer.
_INTEGER_DIGITS = 20


def castable(source: pa.DataType, target: pa.DataType) -> bool:
    """Return whether two types hold the same sort of values, so that `source` may be cast to `target`.

    Text and bytes are two sorts, and so are counts and times, times with and without a zone, and truth values and
    numbers. Floats and decimals are not cast to each other; a date is cast to its midnight where there is no zone.
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
    """Return how to convert values that are not castable, as the end of a sentence; empty: no way is known."""
    return next((f": {how}" for have, want, how in _ADVICE if have(source) and want(target)), "")


def is_text(kind: pa.DataType) -> bool:
    """Return whether a type holds text."""
    return bool(pt.is_string(kind) or pt.is_large_string(kind) or pt.is_string_view(kind))


def is_binary(kind: pa.DataType) -> bool:
    """Return whether a type holds bytes."""
    wide = pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_binary_view(kind)
    return bool(wide or pt.is_fixed_size_binary(kind))


def _is_list(kind: pa.DataType) -> bool:
    return any(is_list(kind) for is_list in LISTS)


def convertible(source: pa.DataType, target: pa.DataType) -> bool:
    """Return whether `exact_cast` can cast `source` to `target`, apart from values that this would change."""
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
    (pt.is_floating, pt.is_decimal, "floats would be rounded, make decimals of them"),
    (pt.is_decimal, pt.is_floating, "decimals would be rounded, make floats of them"),
    (_is_clock_time, _is_moment, "give the times a zone"),
    (_is_moment, pt.is_timestamp, "take the zone off the times"),
    (pt.is_timestamp, pt.is_date, "take the time of day off"),
]


def exact_cast(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return an array as another type.

    Raises:
        pa.ArrowException, OverflowError, ValueError: The types have nothing in common, or a value would be changed.
    """
    if isinstance(values, pa.DictionaryArray) and not pt.is_dictionary(kind):
        return exact_cast(values.dictionary, kind).take(values.indices)  # each value is converted once
    way = _on_the_way(values.type, kind)
    may_round = has_floats(kind) and _has_integers(values.type)
    is_checked = not may_round
    try:
        made = values.cast(way).cast(kind)
        is_checked |= pt.is_float32(kind) or pt.is_float64(kind)  # by Arrow, which checks no other types
    except pa.ArrowInvalid:  # also for integers beyond the range in which all are floats
        if not may_round:
            raise
        made = values.cast(way, safe=False).cast(kind)
    if not is_checked and not _are_same_numbers(values, made):
        raise ValueError(f"an integer is no number that {kind} holds: send floats, which are rounded")
    if infinities(made) > infinities(values):
        raise OverflowError(f"a number is too large for {kind}")
    return made


def _has_integers(kind: pa.DataType) -> bool:
    return holds_type(
        without_extensions(kind), lambda inner: pt.is_integer(inner.value_type if pt.is_dictionary(inner) else inner)
    )


def _are_same_numbers(values: pa.Array, made: pa.Array) -> bool:
    """Return whether integers that became floats are the same numbers, at any depth."""
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
    except pa.ArrowInvalid:  # rounded beyond the range of the integers
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
        # pyarrow cannot leave out what is under a NULL in structs of extension types
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
    """Return a type to cast values to first: integers become decimals with enough digits, or floats."""
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
