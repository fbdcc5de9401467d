"""What a function's annotations say: how it is called, what it reads, what it returns."""

from __future__ import annotations

import enum
import inspect
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass, is_dataclass
from typing import TYPE_CHECKING, Any

from leman._types import gives, type_of
from leman.errors import InvalidArgument, UdfDefinitionError

if TYPE_CHECKING:
    import pyarrow as pa
else:
    from leman import _arrow as pa

_DEFINITE = (
    "bool, int, float, str, bytes, a class of datetime, numpy's numbers such as numpy.float32, or list[...] of one"
)
_PLAIN_TYPES = {bool: "pa.bool_()", int: "pa.int64()", float: "pa.float64()", str: "pa.string()", bytes: "pa.binary()"}


class Kind(enum.Enum):
    """What the function is handed in one call."""

    SCALAR = "scalar"
    ARRAY = "array"
    RECORD_BATCH = "record_batch"


@dataclass(frozen=True, slots=True)
class Signature:
    """How a function is called.

    `input_types` are the Arrow types that an array function declares, None where it says nothing definite.
    `input_values` are the annotations of a scalar function: a Python type stands for a family of Arrow types.
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
    """The signature of a function, or (`method`) of a `__call__` whose first parameter is the object.

    Parameters with a default are no inputs unless `input_columns` reaches them. Raises UdfDefinitionError.
    """
    parameters, returned = _parameters(name, function)
    if method:
        parameters = parameters[1:]
    given = None if input_columns is None else check_columns(input_columns, f"UDF '{name}': input_columns")
    kind, inputs = _inputs(name, parameters, len(given or ()))
    columns = _columns(name, kind, inputs, given)
    output = _output(name, kind, data_type, returned)
    repeated = [*inputs, *(inputs[-1:] * len(columns))]  # *args stands for all columns that are left
    annotations = tuple(p.annotation for p in repeated[: len(columns)])
    if kind == Kind.ARRAY:
        return Signature(kind, columns, output, input_types=tuple(type_of(a) for a in annotations))
    return Signature(kind, columns, output, input_values=annotations if kind == Kind.SCALAR else ())


def _parameters(name: str, function: Callable[..., Any]) -> tuple[list[inspect.Parameter], Any]:
    """The parameters that can be passed by position, and the annotation of the result."""
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
    """How the function is called, and the parameters that take columns."""
    required = [p for p in parameters if p.default is p.empty]
    kinds = {_kind_of(name, p) for p in required}
    if Kind.RECORD_BATCH in kinds:
        if len(required) > 1:
            raise UdfDefinitionError(f"UDF '{name}': with a pa.RecordBatch there is no other parameter")
        return Kind.RECORD_BATCH, required
    inputs = [p for index, p in enumerate(parameters) if p in required or index < given]
    kinds = {_kind_of(name, p) for p in inputs}
    if len(kinds) > 1:
        raise UdfDefinitionError(
            f"UDF '{name}': parameters are all scalars, all pa.Array, or one pa.RecordBatch; these are mixed"
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
        raise UdfDefinitionError(f"UDF '{name}': input_columns names a column twice")
    fits = len(columns) == len(names) or (variadic and len(columns) > len(names))
    if kind != Kind.RECORD_BATCH and not fits:
        raise UdfDefinitionError(
            f"UDF '{name}' takes {len(names)} columns ({', '.join(names)}), input_columns names {len(columns)}"
        )
    return columns


def blob_type(name: str, data_type: Any) -> pa.DataType:
    """The type of a function's values that are blobs. Raises UdfDefinitionError where another is given."""
    if data_type not in (None, pa.binary(), pa.large_binary()):
        raise UdfDefinitionError(f"UDF '{name}': a blob is bytes: leave data_type out, or give pa.large_binary()")
    return pa.large_binary()


def check_columns(given: Any, what: str, refusal: type[InvalidArgument] = UdfDefinitionError) -> list[str]:
    """`given` as a list of column names. Raises `refusal` for anything else, be it a lone string."""
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
                f"Type mismatch: UDF '{name}' is annotated to return {wanted}, its data_type is {data_type}. Fix one"
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
    if (typing.get_origin(returned) or returned) in (set, frozenset):
        raise UdfDefinitionError(
            f"UDF '{name}' is annotated to return {_shown(returned)}, which has no order: return sorted(...), with"
            f" data_type={_example(returned)}"
        )
    if returned is not inspect.Signature.empty:
        raise UdfDefinitionError(
            f"UDF '{name}' is annotated to return {_shown(returned)}, which is no definite column type: give"
            f" data_type=, for example @leman.udf(data_type={_example(returned)}), or annotate it with {_DEFINITE}"
            f"{_how_to_return(returned)}"
        )
    raise UdfDefinitionError(
        f"UDF '{name}' does not say what it returns: annotate it (-> int) or give data_type=, for example"
        " @leman.udf(data_type=pa.float32())"
    )


def _shown(annotation: Any) -> str:
    if not inspect.isclass(annotation) or typing.get_args(annotation):
        return str(annotation)
    module = "" if annotation.__module__ == "builtins" else f"{annotation.__module__}."
    return f"{module}{annotation.__name__}"


def _example(annotation: Any) -> str:
    """A data type for what an annotation names, as one may write it. The items of a tuple become fields of a struct."""
    kind, items = typing.get_origin(annotation) or annotation, typing.get_args(annotation)
    fields = _fields_of(annotation)
    if fields:
        named = (f'("{name}", {_PLAIN_TYPES.get(hint, "pa.string()")})' for name, hint in fields.items())
        return f"pa.struct([{', '.join(named)}])"
    if kind is dict:
        return 'pa.struct([("name", pa.string())])'
    if kind is tuple and items and Ellipsis not in items:
        numbered = (f'("field_{n}", {_PLAIN_TYPES.get(item, "pa.string()")})' for n, item in enumerate(items))
        return f"pa.struct([{', '.join(numbered)}])"
    if kind in (list, tuple, set, frozenset):
        return f"pa.list_({_PLAIN_TYPES.get(items[0], 'pa.float32()') if items else 'pa.float32()'})"
    return "pa.float32()"


def _fields_of(annotation: Any) -> dict[str, Any]:
    """The fields of a class whose objects are records, with their annotations; empty of any other."""
    if not (typing.is_typeddict(annotation) or _how_to_return(annotation)):
        return {}
    try:
        return typing.get_type_hints(annotation)
    except Exception:  # noqa: BLE001 - an annotation may be any expression
        return {}


def _how_to_return(annotation: Any) -> str:
    """How an object of a class with fields becomes the dict of a struct, as a sentence; empty of any other."""
    if not inspect.isclass(annotation):
        return ""
    if hasattr(annotation, "model_dump"):
        return ". Return the model's model_dump(): the value of a struct is a dict"
    if is_dataclass(annotation):
        return ". Return dataclasses.asdict(...): the value of a struct is a dict"
    return ""
