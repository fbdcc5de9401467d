"""The `udf` decorator, its options, and the UDF that it makes."""

from __future__ import annotations

import functools
import inspect
import math
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, overload

from leman._arrow import pa
from leman._functions.bundle import make_bundle
from leman._functions.source_code import constant, own_text
from leman._functions.version_digest import derive_version, source_text, unordered
from leman._message_text import Shown
from leman._signature import BLOB_KEY, Signature, accepts, blob_type, read_signature, values_type
from leman._wire.wire_values import duration_message
from leman.error_handling import ErrorHandlingConfig
from leman.errors import TypeMismatch, UdfDefinitionError
from leman.v1 import udf_pb2

_MEMORY = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[kmgt]?)(?:i?b)?", re.IGNORECASE)
_UNITS = ("", "k", "m", "g", "t")
#: Limits of the API: the number of cores, and of bytes and rows.
_MOST_CORES, _MOST = 2**31 - 1, 2**63 - 1
#: Spark lets tasks share a GPU only in equal parts.
_SHARED_GPU = 0.5


@dataclass(frozen=True, slots=True)
class UdfOptions:
    """The options of a function, as `udf` describes them. None means that an option was not given."""

    batch_size: int | None = None
    checkpoint_size: int | None = None
    min_checkpoint_size: int | None = None
    max_checkpoint_size: int | None = None
    error_handling: ErrorHandlingConfig = field(default_factory=ErrorHandlingConfig)
    timeout: float | None = None
    num_cpus: int | None = None
    num_gpus: float | None = None
    memory: int | str | None = None

    def proto(self) -> dict[str, Any]:
        """Return the options as fields of a UdfDefinition, without resources."""
        return {
            "checkpoint": udf_pb2.CheckpointBounds(
                checkpoint_size=self.checkpoint_size,
                min_checkpoint_size=self.min_checkpoint_size,
                max_checkpoint_size=self.max_checkpoint_size,
            ),
            "error_policy": self.error_handling.proto(),
            "batch_size": self.batch_size,
            "call_timeout": duration_message(self.timeout),
        }

    def resources(self) -> udf_pb2.Resources | None:
        """Return the resources for the wire, or None if none are given, so that the message is absent."""
        asked = udf_pb2.Resources(
            num_cpus=self.num_cpus,
            num_gpus=self.num_gpus,
            memory_bytes=None if self.memory is None else bytes_of(self.memory),
        )
        return asked if asked.ListFields() else None

    def __post_init__(self) -> None:
        _check_sizes(self.batch_size, self.checkpoint_size, self.min_checkpoint_size, self.max_checkpoint_size)
        _check_timeout(self.timeout)
        _check_resources(self.num_cpus, self.num_gpus)
        if self.memory is not None:
            bytes_of(self.memory)
        if not isinstance(self.error_handling, ErrorHandlingConfig):
            raise UdfDefinitionError("error_handling takes a leman.ErrorHandlingConfig")


def bytes_of(memory: Any) -> int:
    """Return a number of bytes. Text such as `512m` or `1.5 GiB` has units of 1024. Raises UdfDefinitionError."""
    found = _MEMORY.fullmatch(memory.strip()) if isinstance(memory, str) else None
    if found:
        asked = float(found["number"]) * 1024 ** _UNITS.index(found["unit"].lower())
        amount = int(asked) if asked <= _MOST else 0
    else:
        amount = memory
    if not _is_count(amount, _MOST):
        raise UdfDefinitionError(f"memory is a number of bytes, or a text like '2g' or '512 MiB', not {memory!r}")
    return amount


def _is_count(value: Any, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most


def _check_resources(num_cpus: Any, num_gpus: Any) -> None:
    if num_cpus is not None and not _is_count(num_cpus, _MOST_CORES):
        raise UdfDefinitionError(f"num_cpus is a whole number of cores, 1 to {_MOST_CORES}, not {num_cpus!r}")
    if num_gpus is None:
        return
    number = isinstance(num_gpus, int | float) and not isinstance(num_gpus, bool)
    if not number or not (0 < num_gpus <= _SHARED_GPU or (num_gpus >= 1 and num_gpus == num_gpus // 1 < math.inf)):
        raise UdfDefinitionError(
            f"num_gpus is a whole number of GPUs, or a fraction of at most 0.5 of one to share, not {num_gpus!r}"
        )


def _check_timeout(timeout: Any) -> None:
    if timeout is None:
        return
    number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
    if not number or not 0 < timeout < math.inf:
        raise UdfDefinitionError(f"timeout is a number of seconds above 0, not {timeout!r}")


def _check_sizes(batch_size: Any, checkpoint_size: Any, smallest: Any, largest: Any) -> None:
    named = {
        "batch_size": batch_size,
        "checkpoint_size": checkpoint_size,
        "min_checkpoint_size": smallest,
        "max_checkpoint_size": largest,
    }
    for key, value in named.items():
        if value is not None and not _is_count(value, _MOST):
            raise UdfDefinitionError(f"{key} is a number of rows, 1 or more, not {value!r}")
    if smallest is not None and largest is not None and smallest > largest:
        raise UdfDefinitionError(f"min_checkpoint_size ({smallest}) is above max_checkpoint_size ({largest})")


_NAME = re.compile(r"(?!.*_(ver|col)-)[A-Za-z0-9_][A-Za-z0-9_.\-]{0,127}")
_NO_VALUE = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
_NAME_RULE = "1 to 128 letters, digits, '_', '.' and '-', not beginning with '.' or '-'; no '_ver-', no '_col-'"


class UDF(Shown):
    """A function that computes one column. Made by `leman.udf`. Immutable.

    Call it like the function it was made from. If it was made from a class, call it with the constructor's arguments:
    this returns a UDF with these arguments, which can be called with values.
    """

    def __init__(
        self,
        target: Callable[..., Any],
        name: str,
        signature: Signature,
        options: UdfOptions,
        *,
        explicit_version: str = "",
        bound: tuple[tuple[Any, ...], dict[str, Any]] | None = None,
        blob: bool = False,
    ) -> None:
        self.name = name
        self.blob = blob
        self.options = options
        self._target = target
        self._signature = signature
        self._explicit_version = explicit_version
        self._bound = bound
        self._instance: Any = None
        functools.update_wrapper(self, target, updated=())

    @property
    def stateful(self) -> bool:
        """True for a class, which each worker process instantiates once."""
        return isinstance(self._target, type)

    @property
    def func(self) -> Callable[..., Any]:
        """The callable that workers load: the function, or for a class a function that builds its object."""
        args, kwargs = self._bound or ((), {})
        return functools.partial(self._target, *args, **kwargs) if args or kwargs else self._target

    @property
    def kind(self) -> str:
        """`scalar`, `array` or `record_batch`."""
        return self._signature.kind.value

    @property
    def data_type(self) -> pa.DataType:
        """Type of the values that it returns."""
        return self._signature.output_type

    @property
    def input_columns(self) -> tuple[str, ...]:
        """The columns it reads, in the order of its parameters."""
        return self._signature.input_columns

    @property
    def version(self) -> str:
        """The given version, or one derived from the current code. Raises VersionRequired if it cannot be derived."""
        return self._explicit_version or derive_version(*self._identity)

    @property
    def source(self) -> str:
        """The function's source text. If a column's function changes, users see a diff of the sources.

        For a derived version, it includes the user's own helpers and the constants that the code reads.
        """
        text = own_text(self._target) if self._explicit_version else source_text(*self._identity)
        return text if self._bound is None else f"{self._called()}\n\n{text}"

    @property
    def _identity(self) -> tuple[Any, ...]:
        s = self._signature
        interface: tuple[Any, ...] = (self.kind, s.input_columns, s.input_types, s.output_type)
        if self.blob:  # without blobs, versions stay as they were before blobs existed
            interface = (*interface, "blob")
        return interface, self._target, self._bound_identity

    @property
    def _bound_identity(self) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """The constructor's arguments. If the constructor takes `**kwargs`, the order of keywords counts."""
        if self._bound is None:
            return None
        parameters = inspect.signature(self._target).parameters.values()
        takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
        args, kwargs = self._bound
        return args, kwargs if takes_any else unordered(kwargs)

    def _called(self) -> str:
        args, kwargs = self._bound or ((), {})
        listed = [constant(value) for value in args] + [f"{key}={constant(value)}" for key, value in kwargs.items()]
        return f"{self._target.__name__}({', '.join(listed)})"

    @property
    def has_explicit_version(self) -> bool:
        """True when the version was given, not derived."""
        return bool(self._explicit_version)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self.stateful:
            return self._target(*args, **kwargs)
        if self._bound is None:
            return self._bind(args, kwargs)
        if self._instance is None:
            self._instance = self._target(*self._bound[0], **self._bound[1])
        return self._instance(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<leman.UDF {self.name}({', '.join(self.input_columns)}) -> {self.data_type}>"

    def __getattr__(self, name: str) -> Any:
        # In a class body, the class's own name now refers to this UDF.
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._target, name)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_instance": None}

    def __leman_identity__(self) -> object:
        """The part of this UDF that counts for the version of another function that calls it."""
        return [self.name, self._explicit_version] if self._explicit_version else [self._target, self._bound_identity]

    def check_inputs(self, table: pa.Schema, columns: Sequence[str]) -> None:
        """Raise TypeMismatch if the annotation of a scalar function's parameter contradicts its column's type.

        The services report columns that the table does not have.
        """
        for annotation, column in zip(self._signature.input_values, columns, strict=False):
            if column in table.names and not accepts(annotation, values_type(table.field(column))):
                wanted = getattr(annotation, "__name__", str(annotation))
                raise TypeMismatch(
                    f"Type mismatch for column {column}: UDF '{self.name}' declares {wanted}, and the column is"
                    f" {values_type(table.field(column))}. Fix the annotation or cast the column."
                )

    def describe(self) -> udf_pb2.UdfDefinition:
        """Return the definition for the wire, without its code."""
        s, o = self._signature, self.options
        types = s.input_types or (None,) * len(s.input_columns)
        fields = [pa.field(column, type_ or pa.null()) for column, type_ in zip(s.input_columns, types, strict=True)]
        output = pa.field("value", s.output_type, metadata={BLOB_KEY: b"true"} if self.blob else None)
        return udf_pb2.UdfDefinition(
            name=self.name,
            version=self.version,
            kind=udf_pb2.UdfDefinition.Kind.Value(f"KIND_{s.kind.name}"),
            input_columns=s.input_columns,
            input_schema=pa.schema(fields).serialize().to_pybytes(),
            output_schema=pa.schema([output]).serialize().to_pybytes(),
            stateful=self.stateful,
            resources=o.resources(),
            source=self.source,
            **o.proto(),
        )

    def bundle(self) -> tuple[udf_pb2.PythonBundle, bytes]:
        """Return the pickled callable and its description. For a class, calling the callable builds the object.

        Raises UdfDefinitionError if it cannot be pickled.
        """
        self._check_constructible()
        made = make_bundle(self.func)
        described = udf_pb2.PythonBundle(
            sha256=made.sha256, python_version="{}.{}".format(*sys.version_info[:2]), size_bytes=len(made.data)
        )
        return described, made.data

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> UDF:
        try:
            inspect.signature(self._target).bind(*args, **kwargs)
        except TypeError as error:
            raise UdfDefinitionError(f"UDF '{self.name}': {error}") from None
        return UDF(
            self._target,
            self.name,
            self._signature,
            self.options,
            explicit_version=self._explicit_version,
            bound=(args, kwargs),
            blob=self.blob,
        )

    def _check_constructible(self) -> None:
        if self.stateful and self._bound is None:
            try:
                inspect.signature(self._target).bind()
            except TypeError as error:
                raise UdfDefinitionError(
                    f"UDF '{self.name}': {error}; use {self.name}(...) with the constructor's arguments"
                ) from None


@overload
def udf(target: Callable[..., Any], /) -> UDF: ...
@overload
def udf(
    target: None = None,
    /,
    *,
    data_type: pa.DataType | None = ...,
    name: str | None = ...,
    version: str | None = ...,
    input_columns: Sequence[str] | None = ...,
    batch_size: int | None = ...,
    checkpoint_size: int | None = ...,
    min_checkpoint_size: int | None = ...,
    max_checkpoint_size: int | None = ...,
    error_handling: ErrorHandlingConfig | None = ...,
    timeout: float | None = ...,
    num_cpus: int | None = ...,
    num_gpus: float | None = ...,
    memory: int | str | None = ...,
    blob: bool = ...,
) -> Callable[[Callable[..., Any]], UDF]: ...
def udf(  # noqa: PLR0913 - the options of a UDF, all by name
    target: Callable[..., Any] | None = None,
    /,
    *,
    data_type: pa.DataType | None = None,
    name: str | None = None,
    version: str | None = None,
    input_columns: Sequence[str] | None = None,
    batch_size: int | None = None,
    checkpoint_size: int | None = None,
    min_checkpoint_size: int | None = None,
    max_checkpoint_size: int | None = None,
    error_handling: ErrorHandlingConfig | None = None,
    timeout: float | None = None,
    num_cpus: int | None = None,
    num_gpus: float | None = None,
    memory: int | str | None = None,
    blob: bool = False,
) -> UDF | Callable[[Callable[..., Any]], UDF]:
    """Turn a function, or a class with `__call__`, into one that computes a column.

    Its annotations say how it is called. A *scalar* function has Python types or no annotations. It is called once for
    each row, with Python values. An *array* function has parameters of `pa.Array` or a subclass. It is called once for
    each batch, with an array for each column, and returns an array of the same length. A *record batch* function has
    one parameter of `pa.RecordBatch`, gets the batch itself, and needs `input_columns`. A class is built once in each
    worker process: use `Embed` for its default arguments, or `Embed(dim=64)`.

    - `data_type`: Arrow type of the values; may be left out if the return annotation is definite (`-> int` is int64,
      `float` float64, `list[float]`, `pa.Int32Array`, …).
    - `name`: at most 128 letters, digits, `_`, `.` and `-`. Default: the function's.
    - `version`: identifies the code. Default: derived from the source of the function and of everything that it uses;
      give a version if that source cannot be read. If you give one, change it whenever the code changes: the code that
      is registered under a version stays.
    - `input_columns`: the columns to read, in the order of the parameters. Default: the names of the parameters without
      a default value.
    - `batch_size`: at most this many rows in one call of an array or record-batch function, and in a checkpoint.
    - `checkpoint_size`, `min_checkpoint_size`, `max_checkpoint_size`: rows between checkpoints. Default: about five
      seconds of work. A call of `backfill` may override them.
    - `error_handling`: what to do with rows for which the function raises. Default: the job fails. A row that
      repeatedly ends its worker process counts as raising `WorkerLost`.
    - `timeout`: seconds that one call may take (for a row if the function is scalar, else for a batch). If a call takes
      longer, its process is ended, and its row counts as raising `UdfTimeout`.
    - `num_cpus`, `num_gpus`, `memory` (bytes, or a text like '2g'): what each process that calls the function needs. A
    Spark cluster provides these resources. On a single machine, fewer processes run at once, and GPUs are refused.
    - `blob`: the function returns bytes that Lance keeps as blobs, read through `take_blobs`.

    Raises UdfDefinitionError (a ValueError and TypeError).
    """
    options = UdfOptions(
        batch_size,
        checkpoint_size,
        min_checkpoint_size,
        max_checkpoint_size,
        error_handling or ErrorHandlingConfig(),
        timeout,
        num_cpus,
        num_gpus,
        memory,
    )

    def decorate(function: Callable[..., Any]) -> UDF:
        return _make(function, name, version, data_type, input_columns, options, blob=blob)

    return decorate if target is None else decorate(target)


def _make(
    target: Any,
    name: Any,
    version: Any,
    data_type: pa.DataType | None,
    input_columns: Sequence[str] | None,
    options: UdfOptions,
    *,
    blob: bool,
) -> UDF:
    if isinstance(target, UDF):
        raise UdfDefinitionError(f"{target.name} is a UDF already")
    if not inspect.isfunction(target) and not _is_callable_class(target):
        raise UdfDefinitionError(f"leman.udf takes a function or a class with __call__, not {target!r}")
    function = target.__call__ if isinstance(target, type) else target  # unbound: the class's own method
    if any(check(function) for check in _NO_VALUE):
        raise UdfDefinitionError(
            f"{target.__name__} is a generator or a coroutine, and a UDF must return its value: write a plain def."
            " It may await with asyncio.run(...)"
        )
    if name is None and target.__name__ == "<lambda>":
        raise UdfDefinitionError(
            "a lambda has neither a name nor a result type: leman.udf(name='score', data_type=pa.int64())(lambda …)"
        )
    chosen = target.__name__ if name is None else name
    if not isinstance(chosen, str) or not _NAME.fullmatch(chosen):
        raise UdfDefinitionError(f"name={chosen!r}: a UDF's name is 1 to 128 letters, digits, '_', '.' or '-'")
    if version is not None and (not isinstance(version, str) or not _NAME.fullmatch(version)):
        raise UdfDefinitionError(f"version={version!r}: a version is 1 to 128 letters, digits, '_', '.' or '-'")
    method = isinstance(target, type)
    if blob:
        data_type = blob_type(chosen, data_type)
    signature = read_signature(chosen, function, data_type, input_columns, method=method)
    return UDF(target, chosen, signature, options, explicit_version=version or "", blob=bool(blob))


def _is_callable_class(target: Any) -> bool:
    return isinstance(target, type) and any("__call__" in vars(base) for base in target.__mro__)
