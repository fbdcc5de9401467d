"""A function's signature: how it is called, which columns it reads, and the Arrow types of inputs and result."""

from __future__ import annotations

import datetime
import enum
import functools
import inspect
import sys
import types
import typing
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from dataclasses import fields as dataclass_fields
from typing import Any

from leman._arrow import pa
from leman.errors import InvalidArgument, UdfDefinitionError


@functools.cache
def _python_types() -> dict[Any, pa.DataType]:
    return {
        bool: pa.bool_(),
        int: pa.int64(),
        float: pa.float64(),
        str: pa.string(),
        bytes: pa.binary(),
        datetime.datetime: pa.timestamp("us"),
        datetime.date: pa.date32(),
        datetime.time: pa.time64("us"),
        datetime.timedelta: pa.duration("us"),
    }


@functools.cache
def _array_types() -> dict[Any, pa.DataType]:
    return {
        pa.BooleanArray: pa.bool_(),
        pa.Int8Array: pa.int8(),
        pa.Int16Array: pa.int16(),
        pa.Int32Array: pa.int32(),
        pa.Int64Array: pa.int64(),
        pa.UInt8Array: pa.uint8(),
        pa.UInt16Array: pa.uint16(),
        pa.UInt32Array: pa.uint32(),
        pa.UInt64Array: pa.uint64(),
        pa.HalfFloatArray: pa.float16(),
        pa.FloatArray: pa.float32(),
        pa.DoubleArray: pa.float64(),
        pa.StringArray: pa.string(),
        pa.LargeStringArray: pa.large_string(),
        pa.StringViewArray: pa.string_view(),
        pa.BinaryArray: pa.binary(),
        pa.LargeBinaryArray: pa.large_binary(),
        pa.BinaryViewArray: pa.binary_view(),
        pa.Date32Array: pa.date32(),
        pa.Date64Array: pa.date64(),
        pa.NullArray: pa.null(),
    }


@functools.cache
def _families() -> dict[Any, tuple[Callable[[pa.DataType], bool], ...]]:
    """Return, for each Python type, tests for the Arrow types whose values it can hold."""
    return {
        bool: (pa.types.is_boolean,),
        int: (pa.types.is_integer,),
        float: (pa.types.is_floating, pa.types.is_integer),
        str: (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
        bytes: (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary),
        datetime.datetime: (pa.types.is_timestamp,),
        datetime.date: (pa.types.is_date,),
        datetime.time: (pa.types.is_time,),
        datetime.timedelta: (pa.types.is_duration,),
    }


def _is_list(type_: pa.DataType) -> bool:
    is_variable = pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_)
    return bool(is_variable or pa.types.is_list_view(type_) or pa.types.is_large_list_view(type_))


#: Annotations that do not restrict the values.
_SAYS_NOTHING = (inspect.Parameter.empty, object, Any)
BLOB_KEY = b"lance-encoding:blob"
_EXTENSION_KEY = b"ARROW:extension:name"
_BLOB_EXTENSION = "lance.blob.v2"


def is_blob(field: pa.Field) -> bool:
    """Return whether a column holds blobs, in either of Lance's two encodings."""
    metadata = field.metadata or {}
    name = metadata.get(_EXTENSION_KEY, b"").decode() or getattr(field.type, "extension_name", "")
    return name == _BLOB_EXTENSION or metadata.get(BLOB_KEY) == b"true"


def values_type(field: pa.Field) -> pa.DataType:
    """Return the type in which a function gets a column's values. Blobs arrive as bytes."""
    return pa.large_binary() if is_blob(field) else field.type


def type_of(annotation: Any) -> pa.DataType | None:
    """Return the Arrow type for an annotation, or None if the annotation does not determine one."""
    try:
        known = _python_types().get(annotation) or _array_types().get(annotation)
    except TypeError:  # not hashable
        return None
    known = known or _numpy_type(annotation)
    if known is not None:
        return known
    others = _without_none(annotation)
    if others is not annotation:
        return type_of(others)
    if _is_list_annotation(annotation):
        inner = type_of(typing.get_args(annotation)[0])
        return None if inner is None else pa.list_(inner)
    return None


def _numpy_type(annotation: Any) -> pa.DataType | None:
    """Return the Arrow type of a numpy scalar class, or None for any other annotation or if numpy is not loaded."""
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(annotation, type) or not issubclass(annotation, numpy.generic):
        return None
    try:
        kind = numpy.dtype(annotation).kind
        if kind in "US":
            return pa.string() if kind == "U" else pa.binary()
        return pa.from_numpy_dtype(annotation) if kind in "biuf" else None
    except (TypeError, pa.ArrowNotImplementedError):  # no definite type, or numbers of more than 64 bits
        return None


def accepts(annotation: Any, actual: pa.DataType) -> bool:
    """Return whether a scalar function's parameter may be given values of an Arrow type.

    An annotation that does not restrict the values accepts every type.
    """
    if pa.types.is_dictionary(actual):
        return accepts(annotation, actual.value_type)
    if isinstance(actual, pa.BaseExtensionType):
        return _accepts_extension(annotation, actual)
    annotation = _without_none(annotation)
    if pa.types.is_map(actual) and (annotation is list or _is_list_annotation(annotation)):
        return _accepts_pairs(annotation, actual)
    if _is_list_annotation(annotation):
        is_list = _is_list(actual)
        return is_list and accepts(typing.get_args(annotation)[0], actual.value_type)
    if annotation is list:
        return _is_list(actual)
    families = _families().get(annotation) if isinstance(annotation, type) else None
    return families is None or any(is_kind(actual) for is_kind in families)


def gives(annotation: Any, output: pa.DataType) -> bool:
    """Return whether values that match a scalar function's return annotation can be stored as an Arrow type.

    `int` also fits floats and decimals. An annotation that does not restrict the values fits every type.
    """
    if _without_none(annotation) is int and (pa.types.is_floating(output) or pa.types.is_decimal(output)):
        return True
    if isinstance(output, pa.UuidType):
        return _without_none(annotation) is bytes or accepts(annotation, output)
    return accepts(annotation, output)


def _accepts_extension(annotation: Any, actual: pa.BaseExtensionType) -> bool:
    # Functions get JSON as text and a tensor as a list; any other extension value as its own or its storage's type.
    if isinstance(actual, pa.UuidType):
        annotation = _without_none(annotation)
        said = isinstance(annotation, type) and annotation not in _SAYS_NOTHING
        return not said or annotation is uuid.UUID
    if isinstance(actual, pa.Bool8Type):
        return accepts(annotation, pa.bool_())
    return accepts(annotation, actual.storage_type)


def _accepts_pairs(annotation: Any, actual: pa.MapType) -> bool:
    # Functions get a map as a list of pairs.
    pair = next(iter(typing.get_args(annotation)), Any)
    if typing.get_origin(pair) is not tuple:
        return pair is tuple or pair in _SAYS_NOTHING
    kinds = typing.get_args(pair)
    return len(kinds) == 2 and accepts(kinds[0], actual.key_type) and accepts(kinds[1], actual.item_type)


def _without_none(annotation: Any) -> Any:
    """Return `X` for `X | None`; anything else as it is."""
    if typing.get_origin(annotation) not in (typing.Union, types.UnionType):
        return annotation
    others = [argument for argument in typing.get_args(annotation) if argument is not types.NoneType]
    return others[0] if len(others) == 1 else annotation


def _is_list_annotation(annotation: Any) -> bool:
    return typing.get_origin(annotation) in (list, Sequence) and len(typing.get_args(annotation)) == 1


_DEFINITE = (
    "bool, int, float, str, bytes, a class of datetime, numpy's numbers such as numpy.float32, or list[...] of one"
)


class Kind(enum.Enum):
    """The argument form that a function takes."""

    SCALAR = "scalar"
    ARRAY = "array"
    RECORD_BATCH = "record_batch"


@dataclass(frozen=True, slots=True)
class Signature:
    """How a function is called, and what it returns.

    `input_types` are the Arrow types of an array function's parameters; an item is None if its annotation does not
    determine a type. `input_values` are the annotations of a scalar function, each of which accepts several Arrow
    types.
    """

    kind: Kind
    input_columns: tuple[str, ...]
    output_type: pa.DataType
    input_types: tuple[pa.DataType | None, ...] = ()
    input_values: tuple[Any, ...] = ()


def read_signature(
    name: str,
    function: Callable[..., Any],
    data_type: pa.DataType | None,
    input_columns: Sequence[str] | None,
    *,
    method: bool = False,
) -> Signature:
    """Return the signature of a function.

    With `method`, `function` is a `__call__` whose first parameter is the object. A parameter with a default is an
    input only if `input_columns` is long enough to reach it. Raises UdfDefinitionError.
    """
    parameters, returned = _parameters(name, function)
    if method:
        parameters = parameters[1:]
    given = None if input_columns is None else check_columns(input_columns, f"UDF '{name}': input_columns")
    kind, inputs = _inputs(name, parameters, len(given or ()))
    columns = _columns(name, kind, inputs, given)
    output = _output(name, kind, data_type, returned)
    repeated = [*inputs, *(inputs[-1:] * len(columns))]  # *args takes all remaining columns
    annotations = tuple(p.annotation for p in repeated[: len(columns)])
    if kind == Kind.ARRAY:
        return Signature(kind, columns, output, input_types=tuple(type_of(a) for a in annotations))
    return Signature(kind, columns, output, input_values=annotations if kind == Kind.SCALAR else ())


def _parameters(name: str, function: Callable[..., Any]) -> tuple[list[inspect.Parameter], Any]:
    """Return the parameters that can be passed by position, and the return annotation."""
    try:
        signature = inspect.signature(function, eval_str=True)
    except NameError as error:
        raise UdfDefinitionError(f"UDF '{name}': an annotation cannot be read: {error}") from None
    except (TypeError, ValueError):
        raise UdfDefinitionError(f"UDF '{name}': its parameters cannot be read: wrap it in a def") from None
    parameters = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    required = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    if required:
        raise UdfDefinitionError(
            f"UDF '{name}': keyword-only parameter {required[0]!r} needs a default; columns are passed by position"
        )
    return [p for p in parameters if p.kind is not p.KEYWORD_ONLY], signature.return_annotation


def _inputs(name: str, parameters: list[inspect.Parameter], given: int) -> tuple[Kind, list[inspect.Parameter]]:
    """Return which argument form the function takes, and the parameters that take columns."""
    required = [p for p in parameters if p.default is p.empty]
    kinds = {_kind_of(name, p) for p in required}
    if Kind.RECORD_BATCH in kinds:
        if len(required) > 1:
            raise UdfDefinitionError(f"UDF '{name}': a function of a pa.RecordBatch takes no other parameter")
        return Kind.RECORD_BATCH, required
    inputs = [p for index, p in enumerate(parameters) if p in required or index < given]
    kinds = {_kind_of(name, p) for p in inputs}
    if len(kinds) > 1:
        raise UdfDefinitionError(
            f"UDF '{name}': the parameters must be all scalars, all pa.Array, or one pa.RecordBatch; these are mixed"
        )
    return (kinds.pop() if kinds else Kind.SCALAR), inputs


def _kind_of(name: str, parameter: inspect.Parameter) -> Kind:
    annotation = parameter.annotation
    if not isinstance(annotation, type):
        return Kind.SCALAR
    if issubclass(annotation, pa.RecordBatch):
        return Kind.RECORD_BATCH
    if issubclass(annotation, pa.Array):
        return Kind.ARRAY
    if issubclass(annotation, pa.ChunkedArray | pa.Table | pa.Scalar):
        raise UdfDefinitionError(
            f"UDF '{name}': {parameter.name}: pa.{annotation.__name__} is not supported; annotate pa.Array,"
            " pa.RecordBatch or a Python type"
        )
    return Kind.SCALAR


def _columns(name: str, kind: Kind, inputs: list[inspect.Parameter], given: list[str] | None) -> tuple[str, ...]:
    variadic = any(p.kind is p.VAR_POSITIONAL for p in inputs)
    if given is None and kind == Kind.RECORD_BATCH:
        raise UdfDefinitionError(f"UDF '{name}' takes a pa.RecordBatch: give input_columns=[...]")
    if given is None and variadic:
        generic = "Cannot validate generic pa.Array type: " if kind == Kind.ARRAY else ""
        raise UdfDefinitionError(f"{generic}UDF '{name}' takes any number of columns (*args): give input_columns=[...]")
    names = [p.name for p in inputs if p.kind is not p.VAR_POSITIONAL]
    columns = tuple(names if given is None else given)
    if not columns:
        raise UdfDefinitionError(f"UDF '{name}' reads no column: give it a parameter without a default")
    if len(set(columns)) < len(columns):
        raise UdfDefinitionError(f"UDF '{name}': input_columns lists a column more than once: list each once")
    fits = len(columns) == len(names) or (variadic and len(columns) > len(names))
    if kind != Kind.RECORD_BATCH and not fits:
        raise UdfDefinitionError(
            f"UDF '{name}' takes {len(names)} columns ({', '.join(names)}), and input_columns lists {len(columns)}"
        )
    return columns


def blob_type(name: str, data_type: Any) -> pa.DataType:
    """Return the Arrow type of a function that returns blobs. Raises UdfDefinitionError if `data_type` is not bytes."""
    if data_type not in (None, pa.binary(), pa.large_binary()):
        raise UdfDefinitionError(f"UDF '{name}': a blob is bytes: leave data_type out, or give pa.large_binary()")
    return pa.large_binary()


def check_columns(given: Any, what: str, refusal: type[InvalidArgument] = UdfDefinitionError) -> list[str]:
    """Return `given` as a list of column names. Raises `refusal` if it is not one; a single str is not a list."""
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise refusal(f"{what} is a list of column names, not {given!r}")
    if not all(isinstance(column, str) and column for column in given):
        raise refusal(f"{what} is a list of column names, not {list(given)!r}")
    return list(given)


def _output(name: str, kind: Kind, data_type: Any, returned: Any) -> pa.DataType:
    if data_type is not None:
        if not isinstance(data_type, pa.DataType):
            raise UdfDefinitionError(f"UDF '{name}': data_type is a pyarrow type such as pa.int32(), not {data_type!r}")
        if kind == Kind.SCALAR and not gives(returned, data_type):
            wanted = _shown(returned)
            raise UdfDefinitionError(
                f"Type mismatch: UDF '{name}' is annotated to return {wanted}, and its data_type is {data_type}."
                " Change one of them"
            )
        return data_type
    found = type_of(returned)
    if found is not None:
        return found
    if kind != Kind.SCALAR:
        raise UdfDefinitionError(
            f"Cannot validate generic pa.Array type: UDF '{name}' does not say what it returns;"
            " give data_type=, for example @leman.udf(data_type=pa.float32())"
        )
    if returned is not inspect.Signature.empty:
        raise UdfDefinitionError(_no_type(name, returned))
    raise UdfDefinitionError(
        f"UDF '{name}' does not say what it returns: annotate it (-> int) or give data_type=, for example"
        " @leman.udf(data_type=pa.float32())"
    )


def _shown(annotation: Any) -> str:
    if not inspect.isclass(annotation) or typing.get_args(annotation):
        return str(annotation)
    module = "" if annotation.__module__ == "builtins" else f"{annotation.__module__}."
    return f"{module}{annotation.__name__}"


def _no_type(name: str, returned: Any) -> str:
    """Return the error text for a return annotation that determines no Arrow type.

    The text suggests a `data_type` that fits, or lists the parts of the annotation that have no type.
    """
    said = f"UDF '{name}' is annotated to return {_shown(returned)}, which"
    if (kind := typing.get_origin(returned) or returned) in (set, frozenset):
        code, gaps = _type_code(list[typing.get_args(returned) or (Any,)])  # type: ignore[misc]
        return f"{said} has no order: return sorted(...), with data_type={_PLACEHOLDERS[list] if gaps else code}"
    code, gaps = _type_code(returned)
    plain = _without_none(returned)
    record = next(iter(typing.get_args(plain)), None) if _is_list_annotation(plain) else plain
    how = f"{_how_to_dict(record)} of each" if record is not plain and _how_to_dict(record) else _how_to_dict(record)
    advice = f". Return {how}: the value of a struct is a dict" if how else ""
    if _fields_of(record):
        advice += "" if gaps else ". Table.preview tries it on a few rows first"
    if not gaps:
        other = "" if _fields_of(record) else f", or annotate it with {_DEFINITE}"
        return (
            f"{said} is not a definite column type: give data_type=, here @leman.udf(data_type={code}){other}{advice}"
        )
    places = [f"{place} ({_shown(annotation)})" for place, annotation in gaps if place[:1] not in "[{"]
    if places:
        return (
            f"{said} has no column type because of {', '.join(places)}: annotate that as {_DEFINITE}, a dict[...] of"
            f" these or a class with such fields, or give data_type={advice}"
        )
    example = _PLACEHOLDERS.get(kind, "pa.float32()")
    return (
        f"{said} is not a definite column type: give data_type=, for example @leman.udf(data_type={example}),"
        f" or annotate it with {_DEFINITE}{advice}"
    )


#: Example data types for containers whose annotation does not give the type of their items.
_PLACEHOLDERS: dict[Any, str] = {
    dict: 'pa.struct([("name", pa.string())])',
    list: "pa.list_(pa.float32())",
    tuple: "pa.list_(pa.float32())",
}
_NAMED_TYPES = (
    *("bool_", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "string", "binary", "date32"),
)

#: `msgspec.to_builtins` turns values of these types into text.
_TEXTS_OF_MSGSPEC = ("pa.binary", "pa.date", "pa.time", "pa.duration", "pa.uuid")


def _type_code(annotation: Any) -> tuple[str, list[tuple[str, Any]]]:
    """Return the source code of the data type for an annotation, and the parts of the annotation that have none.

    Each part is a path of fields such as `verdict.tags[]`, with its annotation. The path is empty for the annotation
    itself.
    """
    gaps: list[tuple[str, Any]] = []
    return _code(annotation, "", gaps, ()), gaps


def _code(annotation: Any, place: str, gaps: list[tuple[str, Any]], around: tuple[Any, ...]) -> str:
    annotation = _without_names(annotation)
    kind, items = typing.get_origin(annotation) or annotation, typing.get_args(annotation)
    if fields := {} if annotation in around else _fields_of(annotation):
        inner = (*around, annotation)
        codes = [
            f'("{name}", {_code(hint, f"{place}.{name}" if place else name, gaps, inner)})'
            for name, hint in fields.items()
        ]
        return f"pa.struct([{', '.join(codes)}])"
    if getattr(annotation, "__pydantic_root_model__", False) and annotation not in around:
        return _code(annotation.model_fields["root"].annotation, place, gaps, (*around, annotation))
    if kind is tuple and items and Ellipsis not in items:  # the items become fields of a struct
        codes = [f'("field_{n}", {_code(item, f"{place}[{n}]", gaps, around)})' for n, item in enumerate(items)]
        return f"pa.struct([{', '.join(codes)}])"
    if (kind in (list, Sequence) and len(items) == 1) or (kind is tuple and items):
        return f"pa.list_({_code(items[0], f'{place}[]', gaps, around)})"
    if kind in (dict, Mapping) and len(items) == 2:
        key, item = (_code(one, f"{place}{{}}", gaps, around) for one in items)
        return f"pa.map_({key}, {item})"
    if not (code := _atom_code(annotation)):
        gaps.append((place, annotation))
    is_text = code.startswith(_TEXTS_OF_MSGSPEC) and any(hasattr(one, "__struct_fields__") for one in around)
    return "pa.string()" if is_text else code


def _without_names(annotation: Any) -> Any:
    """Return an annotation without `None`, aliases (NewType, `type X = ...`), `Annotated` and `Literal`."""
    for _ in range(10):
        inner = _without_none(annotation)
        inner = getattr(inner, "__supertype__", inner)
        if typing.get_origin(inner) is typing.Annotated:
            inner = typing.get_args(inner)[0]
        elif typing.get_origin(inner) is typing.Literal:
            kinds = {type(value) for value in typing.get_args(inner) if value is not None}
            inner = kinds.pop() if len(kinds) == 1 else inner
        elif type(inner).__name__ == "TypeAliasType":
            inner = inner.__value__
        if inner is annotation:
            break
        annotation = inner
    return annotation


def _atom_code(annotation: Any) -> str:
    """Return the source code of a single value's type, or "" if the annotation does not determine one."""
    if annotation is uuid.UUID:
        return "pa.uuid()"
    kind = None if pa.Array in getattr(annotation, "__mro__", ()) else type_of(annotation)
    if kind is None and isinstance(annotation, type):  # also the members of an enum.StrEnum or IntEnum
        kind = next((type_of(base) for base in (int, float, str, bytes) if issubclass(annotation, base)), None)
    if kind is None:
        return ""
    named = (f"pa.{name}()" for name in _NAMED_TYPES if getattr(pa, name)() == kind)
    return next(named, "") or f"pa.{kind}".replace("[", '("').replace("]", '")')  # pa.timestamp("us")


def _fields_of(annotation: Any) -> dict[str, Any]:
    """Return a record class's fields with their annotations, or {} for any other annotation."""
    kind: Any = annotation
    if not inspect.isclass(annotation) or getattr(annotation, "__pydantic_root_model__", False):
        return {}
    try:
        hints = typing.get_type_hints(annotation)
    except Exception:  # noqa: BLE001 - an annotation may be any expression
        hints = {}
    if (models := getattr(kind, "model_fields", None)) is not None and hasattr(annotation, "model_dump"):
        by_alias = kind.model_config.get("serialize_by_alias")
        found = {
            (by_alias and field.serialization_alias) or name: hints.get(name, field.annotation)
            for name, field in models.items()
            if not field.exclude
        }
        return found | {name: field.return_type for name, field in kind.model_computed_fields.items()}
    if typing.is_typeddict(annotation):
        return hints
    if is_dataclass(annotation):
        names = [field.name for field in dataclass_fields(annotation)]
    elif hasattr(annotation, "__attrs_attrs__"):
        names = [field.name for field in kind.__attrs_attrs__]
        hints = {field.name: field.type for field in kind.__attrs_attrs__} | hints
    elif hasattr(annotation, "__struct_fields__"):
        names = list(kind.__struct_fields__)
        encoded = dict(zip(names, kind.__struct_encode_fields__, strict=True))
        return {encoded[name]: hints.get(name, Any) for name in names}
    elif issubclass(annotation, tuple):
        names = list(getattr(annotation, "_fields", ()))
    else:
        names = []
    return {name: hints.get(name, Any) for name in names}


def _how_to_dict(annotation: Any) -> str:
    """Return the code that turns a record into the dict of a struct, or "" if it needs no conversion."""
    if not inspect.isclass(annotation):
        return ""
    if hasattr(annotation, "model_dump"):
        return "" if getattr(annotation, "__pydantic_root_model__", False) else "value.model_dump()"
    if is_dataclass(annotation):
        return "dataclasses.asdict(value)"
    if hasattr(annotation, "__attrs_attrs__"):
        return "attrs.asdict(value)"
    return "msgspec.to_builtins(value)" if hasattr(annotation, "__struct_fields__") else ""
