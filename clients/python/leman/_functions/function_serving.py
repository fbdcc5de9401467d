"""Functions as a server calls them, over Arrow Flight.

A function as a server calls it: with a batch, whichever kind it is.

The protocol `leman.function.v1` over Arrow Flight, the server's side (docs/remote_functions.md).

What a function server listens with: Flight servers on one port, the last of which has the certificates as they are.

Flight takes its certificates when it starts. So renewed ones are a new Flight server in the place of the one before,
which takes no more connections, and serves those that it has until they end.
"""

from __future__ import annotations

import base64
import contextlib
import datetime as dt
import decimal
import hmac
import json
import math
import os
import socket
import stat
import threading
import time
import traceback
from collections import abc
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import flight

from leman._functions.udf_decorator import UDF
from leman._signature import Kind, type_of
from leman._wire.credentials import Pem, TlsFiles
from leman.errors import UdfDefinitionError

_PLAIN = frozenset({"builtins", "__main__"})
#: Types whose values nothing can change.
_LASTING = (type(None), bool, int, float, str, bytes, decimal.Decimal, dt.date, dt.time, dt.timedelta)
_MOST_TEXT = 16_384


class Served:
    """A function with the types that it reads, ready to be called. Made by `served`."""

    def __init__(self, udf: UDF, inputs: pa.Schema, description: str) -> None:
        self.name = udf.name
        self.version = udf.version
        self.inputs = inputs
        self.output = udf.data_type
        self._description = description
        self._kind = udf._signature.kind
        loaded: Any = udf.func
        self._function: Callable[..., Any] = loaded() if udf.stateful else loaded

    def described(self) -> bytes:
        """What the action `describe` answers of it, as JSON."""
        output = pa.schema([pa.field("value", self.output)])
        told = {
            "function": self.name,
            "version": self.version,
            "inputs": base64.b64encode(self.inputs.serialize()).decode(),
            "output": base64.b64encode(output.serialize()).decode(),
        }
        return json.dumps({**told, "description": self._description} if self._description else told).encode()

    def call(self, batch: pa.RecordBatch) -> pa.Array:
        """The values for a batch whose columns are those of `inputs`. Raises whatever the function raises, and
        ValueError or TypeError where its result is not one value of the declared type for each row."""
        if not batch.num_rows:
            return pa.array([], self.output)
        if self._kind is Kind.SCALAR:
            columns = [column.to_pylist() for column in batch.columns]
            return self._values(self._row_by_row(zip(*columns, strict=True)), batch.num_rows)
        if self._kind is Kind.ARRAY:
            return self._values(self._function(*batch.columns), batch.num_rows)
        named = pa.RecordBatch.from_arrays(batch.columns, names=self.inputs.names)
        return self._values(self._function(named), batch.num_rows)

    def _row_by_row(self, rows: Iterable[tuple[Any, ...]]) -> pa.Array:
        return _one_by_one((self._function(*row) for row in rows), self.output)

    def _values(self, result: Any, rows: int) -> pa.Array:
        if isinstance(result, pa.RecordBatch | pa.Table) and result.num_columns == 1:
            result = result.column(0)
        if hasattr(result, "__arrow_c_stream__") and not hasattr(result, "iloc") and not _is_frame(result):
            result = pa.chunked_array(result)
        if isinstance(result, pa.ChunkedArray):
            result = pa.concat_arrays(result.chunks) if result.chunks else pa.array([], result.type)
        if not isinstance(result, pa.Array):
            result = self._from_python(result)
        elif result.type != self.output:
            result = result.cast(self.output)
        if len(result) != rows:
            raise ValueError(f"function '{self.name}' returned {len(result)} values for {rows} rows")
        return pa.concat_arrays([result, result.slice(0, 0)])  # the function may write to its own memory meanwhile

    def _from_python(self, result: Any) -> pa.Array:
        """The values of a batch by their position. Raises TypeError where the result has none for each row."""
        what = "None" if result is None else f"a {type(result).__name__}"
        if _is_frame(result):
            raise TypeError(f"function '{self.name}' returned {what}, which has columns: return one of its columns")
        if isinstance(result, abc.Set):
            raise TypeError(f"function '{self.name}' returned {what}, whose values have no order: return a list")
        if isinstance(result, str | bytes | bytearray | abc.Mapping) or not hasattr(result, "__iter__"):
            raise TypeError(f"function '{self.name}' returned {what}, not one value for each row")
        if getattr(result, "ndim", 0) == 1 and getattr(getattr(result, "dtype", None), "kind", "") in "biufMm":
            return _array(result, self.output)
        if isinstance(result, list | tuple):
            return _array([_in_order(value, self.output) for value in result], self.output)
        return _one_by_one(iter(result), self.output)


def _one_by_one(values: Iterable[Any], kind: pa.DataType) -> pa.Array:
    """Values as an array. The next one may be the same object, with other content: such values are converted before."""
    results = [value if isinstance(value, _LASTING) else _array([_in_order(value, kind)], kind) for value in values]
    if not any(isinstance(value, pa.Array) for value in results):
        return _array(results, kind)
    arrays = [value if isinstance(value, pa.Array) else _array([value], kind) for value in results]
    return pa.concat_arrays(arrays)


def _is_frame(result: Any) -> bool:
    return hasattr(result, "columns") and type(result).__module__.partition(".")[0] != "numpy"


def _in_order(value: Any, kind: pa.DataType) -> Any:
    """A value whose lists are Python's own: pyarrow takes the items of a pandas Series by their labels, those of a set
    in any order, and of a frame the names of its columns. Raises TypeError for the latter two."""
    if value is None or isinstance(value, pa.Scalar):
        return value
    if pa.types.is_struct(kind) and isinstance(value, abc.Mapping):
        types = {field.name: field.type for field in kind}
        return {name: _in_order(item, types[name]) if name in types else item for name, item in value.items()}
    is_list = pa.types.is_nested(kind) and hasattr(kind, "value_type")
    if not is_list or isinstance(value, str | bytes | bytearray):
        return value
    if isinstance(value, list | tuple) and not pa.types.is_nested(kind.value_type):
        return value
    what = type(value).__name__
    if isinstance(value, abc.Set | abc.Mapping):
        raise TypeError(f"a {what} is no list, as its items have no order: return a list")
    if _is_frame(value):
        raise TypeError(f"a {what} is no list, as it has columns: return one of its columns")
    if isinstance(value, pa.Array | pa.ChunkedArray):
        value = value.to_pylist()
    if getattr(value, "ndim", 0) == 1 and type(value).__module__.partition(".")[0] == "numpy":
        return value.tolist() if type(value).__name__ == "MaskedArray" else value
    return [_in_order(item, kind.value_type) for item in value] if hasattr(value, "__iter__") else value


def _array(values: Any, kind: pa.DataType) -> pa.Array:
    """Python values as an array; pyarrow by itself takes 1.5 for an integer as 1."""
    made = pa.array(values).cast(kind) if pa.types.is_integer(kind) else pa.array(values, kind)
    made = made.combine_chunks() if isinstance(made, pa.ChunkedArray) else made
    if pa.types.is_float32(kind) or pa.types.is_float16(kind):
        _check_finite(values, made)
    return made


def _check_finite(values: Any, made: pa.Array) -> None:
    """Raise ValueError where a number became infinite, as it is too large for its type."""
    for value, number in zip(values, made.cast(pa.float64()).to_pylist(), strict=True):
        if number is not None and math.isinf(number) and not math.isinf(float(value)):
            raise ValueError(f"{value} is too large for {made.type}")


def served(udf: UDF, *, input_types: Sequence[pa.DataType] | None = None, description: str = "") -> Served:
    """A function for a server.

    `input_types`: one for each of its `input_columns`; needed where its annotations are not definite, such as
    `pa.RecordBatch`. `description`: what the function does, for those who look for one.

    Raises UdfDefinitionError.
    """
    if not isinstance(udf, UDF):
        raise UdfDefinitionError(
            f"functions of a server are made by leman.udf, or by leman.functions.served: {_called(udf)} is"
            " not, decorate it with @leman.udf"
        )
    if udf.blob:
        raise UdfDefinitionError(f"UDF '{udf.name}' gives blobs, which a remote function cannot")
    types = list(input_types) if input_types is not None else _declared(udf)
    if len(types) != len(udf.input_columns) or not all(isinstance(each, pa.DataType) for each in types):
        raise UdfDefinitionError(f"UDF '{udf.name}': input_types are Arrow types, one for each of {udf.input_columns}")
    return Served(udf, pa.schema(list(zip(udf.input_columns, types, strict=True))), description)


def _called(given: object) -> str:
    name = getattr(given, "__name__", None)
    return f"'{name}'" if isinstance(name, str) else f"a {type(given).__name__}"


def _declared(udf: UDF) -> list[pa.DataType]:
    signature = udf._signature
    if signature.kind is Kind.ARRAY:
        types: list[pa.DataType | None] = list(signature.input_types)
    else:
        types = [type_of(annotation) for annotation in signature.input_values] or [None]
    if None in types:
        raise UdfDefinitionError(
            f"UDF '{udf.name}' does not say which Arrow types it reads: served(..., input_types=[...])"
        )
    return [type_ for type_ in types if type_ is not None]


def error_metadata(error: BaseException) -> bytes:
    """Return the error of a batch for which the function raised, as JSON for its caller."""
    kind = type(error)
    bases = [_name(base) for base in kind.__mro__[1:] if base not in (object, BaseException, Exception)]
    trace = "".join(traceback.format_exception(kind, error, error.__traceback__))
    told = {"type": _name(kind), "bases": bases, "message": _text(error), "traceback": trace[-_MOST_TEXT:]}
    return json.dumps({"error": told}).encode()


def _name(kind: type[BaseException]) -> str:
    return kind.__name__ if kind.__module__ in _PLAIN else f"{kind.__module__}.{kind.__qualname__}"


def _text(error: BaseException) -> str:
    try:
        return str(error)[:_MOST_TEXT]
    except Exception:  # noqa: BLE001 its class may be anybody's
        return f"<no message: {type(error).__name__}.__str__ raised>"


PROTOCOL = "leman.function.v1"
DESCRIBE = f"{PROTOCOL}.describe"
#: Most bytes of a batch in memory: the size limit of messages between Leman and function servers.
MOST_BATCH_BYTES = 256 << 20


class BearerTokens(flight.ServerMiddlewareFactory):  # type: ignore[misc]  # pyarrow has no types
    """Refuses calls that do not carry the token."""

    def __init__(self, token: str) -> None:
        super().__init__()
        self._expected = f"Bearer {token}".encode()

    def start_call(self, _info: flight.CallInfo, headers: dict[str, list[Any]]) -> None:
        """Raises FlightUnauthenticatedError."""
        sent = [value for name, values in headers.items() if name.lower() == "authorization" for value in values]
        told = (value.encode() if isinstance(value, str) else bytes(value) for value in sent)
        if not sum(hmac.compare_digest(each, self._expected) for each in told):
            raise flight.FlightUnauthenticatedError("send authorization: Bearer <token> with this server's token")


class FunctionFlight(flight.FlightServerBase):  # type: ignore[misc]  # pyarrow has no types
    """A Flight server of functions. It serves from the moment it is made."""

    def __init__(self, functions: Sequence[Served], **options: Any) -> None:
        self._functions = {function.name: function for function in functions}
        if len(self._functions) != len(functions):
            raise UdfDefinitionError("two functions have one name")
        pa.array([])  # imports pandas where it is installed, which takes seconds: not while the first caller waits
        #: Set: no stream begins, and each ends after the batch at work.
        self.stopping = threading.Event()
        self.batches_at_work = 0
        self._counting = threading.Lock()
        super().__init__(**options)

    def list_actions(self, _context: flight.ServerCallContext) -> list[tuple[str, str]]:
        """The one action."""
        return [(DESCRIBE, "The functions of this server: one JSON object for each")]

    def do_action(self, _context: flight.ServerCallContext, action: flight.Action) -> Iterator[bytes]:
        """Describe all functions."""
        if action.type != DESCRIBE:
            raise pa.ArrowNotImplementedError(f"there is no action '{action.type}': there is {DESCRIBE}")
        return iter([function.described() for function in self._functions.values()])

    def do_exchange(
        self,
        _context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.MetadataRecordBatchWriter,
    ) -> None:
        """Answer each batch with one of values, or with the error of the function."""
        if self.stopping.is_set():
            raise flight.FlightUnavailableError("the server is stopping")
        function = self._asked(descriptor)
        _check_types(function, reader.schema)
        answer = pa.schema(
            [pa.field("value", function.output)],
            metadata={"leman.function": function.name, "leman.version": function.version},
        )
        writer.begin(answer)
        for chunk in reader:
            if chunk.data is None:
                continue
            _check_size(chunk.data)
            with self._at_work():
                self._answer(function, chunk.data, answer, writer)
            if self.stopping.is_set():
                raise flight.FlightUnavailableError("the server is stopping")

    @staticmethod
    def _answer(
        function: Served, batch: pa.RecordBatch, schema: pa.Schema, writer: flight.MetadataRecordBatchWriter
    ) -> None:
        try:
            values = function.call(batch)
        except BaseException as error:  # noqa: BLE001 whatever the function raises
            writer.write_metadata(pa.py_buffer(error_metadata(error)))
        else:
            writer.write_batch(pa.record_batch([values], schema=schema))

    @contextlib.contextmanager
    def _at_work(self) -> Iterator[None]:
        """Count a batch as at work in this block."""
        with self._counting:
            self.batches_at_work += 1
        try:
            yield
        finally:
            with self._counting:
                self.batches_at_work -= 1

    def cut(self) -> None:
        """Break the connections of all callers: nothing else ends a stream on which nothing comes."""
        with contextlib.suppress(FileNotFoundError):  # such a system has no descriptors to look at
            for path in list(Path("/dev/fd").iterdir()):
                with contextlib.suppress(OSError):
                    self._cut(int(path.name))

    def _cut(self, descriptor: int) -> None:
        """Break a connection, where the descriptor is one of a caller's. Raises OSError where it is something else."""
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            return
        with socket.socket(fileno=os.dup(descriptor)) as connection:
            internet = connection.family in (socket.AF_INET, socket.AF_INET6)
            if internet and connection.getsockname()[1] == self.port and connection.getpeername():
                connection.shutdown(socket.SHUT_RDWR)

    def _asked(self, descriptor: flight.FlightDescriptor) -> Served:
        """The function that a stream is for.

        Raises pa.ArrowInvalid (INVALID_ARGUMENT), and pa.ArrowKeyError (NOT_FOUND).
        """
        try:
            asked = json.loads(descriptor.command)
            protocol, name, version = asked["protocol"], asked["function"], asked["version"]
        except (TypeError, ValueError, KeyError):
            raise pa.ArrowInvalid(f"the descriptor's command is no JSON of {PROTOCOL}") from None
        if protocol != PROTOCOL:
            raise pa.ArrowInvalid(f"the protocol is {PROTOCOL}, not {protocol}")
        if name not in self._functions:
            raise pa.ArrowKeyError(f"there is no function '{name}': there are {', '.join(self._functions)}")
        function = self._functions[name]
        if version != function.version:  # Flight in Python has no FAILED_PRECONDITION
            raise pa.ArrowInvalid(f"function '{name}' has version {function.version} here, not {version}")
        return function


def _check_size(batch: pa.RecordBatch) -> None:
    """Refuse what is too large for a message. Flight bounds none, and has decompressed it when it is seen here."""
    size = batch.get_total_buffer_size()
    if size > MOST_BATCH_BYTES:
        raise pa.ArrowInvalid(
            f"a batch has {size} bytes decompressed, at most {MOST_BATCH_BYTES} are taken: send fewer rows at once"
        )


def _check_types(function: Served, schema: pa.Schema) -> None:
    """Refuse batches of other types; their columns may be called what they like."""
    if schema.types != function.inputs.types:
        raise pa.ArrowInvalid(
            f"function '{function.name}' reads {_types_text(function.inputs)}, and is sent {_types_text(schema)}"
        )


def _types_text(schema: pa.Schema) -> str:
    return ", ".join(str(type_) for type_ in schema.types) or "nothing"


#: A server that stops and has no batch at work waits so long for answers to be on their way.
_IDLE_SECONDS, _LOOK_SECONDS = 0.5, 0.05
_LOOK_AT_FILES_SECONDS = 1.0
#: Until the port is free again, once a server takes no more connections.
_PORT_SECONDS = 0.02


class Listener:
    """Listens from the moment it is made until `stop`.

    `listen` makes a Flight server at a port, with certificates where there are `files`. Raises what it raises.
    """

    def __init__(self, port: int, files: TlsFiles | None, listen: Callable[[int, Pem | None], FunctionFlight]) -> None:
        self._listen = listen
        self._flight = listen(port, files.current() if files is not None else None)
        self.port = int(self._flight.port)
        self._before: list[tuple[FunctionFlight, threading.Thread]] = []
        self._over = threading.Event()
        self._looking: threading.Thread | None = None
        if files is not None:
            self._looking = threading.Thread(target=self._look, args=(files,), name="certificates", daemon=True)
            self._looking.start()

    def _look(self, files: TlsFiles) -> None:
        shown = files.current()
        while not self._over.wait(_LOOK_AT_FILES_SECONDS):
            found = files.current()
            if found is not shown:
                shown = found
                self._renew(found)

    def _renew(self, pem: Pem) -> None:
        self._before = [(flight, ending) for flight, ending in self._before if ending.is_alive()]
        self._before.append((self._flight, _shut_down(self._flight)))
        while not self._over.is_set():
            try:
                self._flight = self._listen(self.port, pem)
            except pa.ArrowException:  # "did not start properly": the other one is about to leave the port
                self._over.wait(_PORT_SECONDS)
            else:
                return

    def stop(self, grace_seconds: float) -> bool:
        """Take no more streams, end each one after the batch at work, and return whether all of these ended in time."""
        self._over.set()
        if self._looking is not None:
            self._looking.join()
        before = [server for server, _ in self._before]
        for server in (*before, self._flight):
            server.stopping.set()
        if self._flight not in before:
            self._before.append((self._flight, _shut_down(self._flight)))
        end = time.monotonic() + grace_seconds
        idle_since = math.inf
        while self._open and (now := time.monotonic()) < end and now - idle_since < _IDLE_SECONDS:
            self._open[0].join(_LOOK_SECONDS)
            idle_since = math.inf if self._at_work else min(idle_since, now)
        in_time = not self._at_work
        if self._open:
            self._flight.cut()
            for ending in self._open:
                ending.join(_IDLE_SECONDS)
        return in_time

    @property
    def _at_work(self) -> int:
        return sum(flight.batches_at_work for flight, _ in self._before)

    @property
    def _open(self) -> list[threading.Thread]:
        return [ending for _, ending in self._before if ending.is_alive()]


def _shut_down(flight: FunctionFlight) -> threading.Thread:
    """Have a server take no more connections; the thread ends with the last stream."""
    ending = threading.Thread(target=flight.shutdown, name="function-server-stop", daemon=True)
    ending.start()
    return ending
