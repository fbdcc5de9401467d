"""Serve functions from a process of your own: the kind *remote* (docs/remote_functions.md).

A server calls a function of any kind with one batch at a time. Register the functions with `Database.register_remote`.

    import leman, leman.functions

    @leman.udf
    def word_count(text: str) -> int:
        return len(text.split())

    leman.functions.serve([word_count], port=7815)
"""

from __future__ import annotations

import base64
import contextlib
import datetime as dt
import decimal
import hmac
import json
import math
import operator
import os
import signal
import socket
import stat
import threading
import time
import traceback
from collections import abc
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

import pyarrow as pa
from pyarrow import flight

from leman._functions.udf_decorator import UDF
from leman._signature import Kind, type_of
from leman._wire.credentials import Pem, TlsFiles, checked_token
from leman.errors import InvalidArgument, UdfDefinitionError

__all__ = ["DEFAULT_PORT", "FunctionServer", "Served", "serve", "served"]

#: The port on which function servers listen by default.
DEFAULT_PORT = 7815
_AUTH = "authorization"
_LAST_PORT = 65_535

_PLAIN = frozenset({"builtins", "__main__"})
#: Immutable types, whose values need no copy.
_LASTING = (type(None), bool, int, float, str, bytes, decimal.Decimal, dt.date, dt.time, dt.timedelta)
_MOST_TEXT = 16_384


class Served:
    """A function with the types of its inputs. Made by `served`."""

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
        """Return the description of the function as JSON, for the action `describe`."""
        output = pa.schema([pa.field("value", self.output)])
        told = {
            "function": self.name,
            "version": self.version,
            "inputs": base64.b64encode(self.inputs.serialize()).decode(),
            "output": base64.b64encode(output.serialize()).decode(),
        }
        return json.dumps({**told, "description": self._description} if self._description else told).encode()

    def call(self, batch: pa.RecordBatch) -> pa.Array:
        """Return the values for a batch whose columns are those of `inputs`.

        Raises the function's errors, and ValueError or TypeError unless its result has one value of the declared type
        for each row.
        """
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
        return pa.concat_arrays([result, result.slice(0, 0)])  # a copy, as the function may reuse its memory

    def _from_python(self, result: Any) -> pa.Array:
        """Return the values of a batch in order. Raises TypeError unless the result has one for each row."""
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
    """Return values as an array. Convert mutable ones one by one, as a function may yield one object repeatedly."""
    results = [value if isinstance(value, _LASTING) else _array([_in_order(value, kind)], kind) for value in values]
    if not any(isinstance(value, pa.Array) for value in results):
        return _array(results, kind)
    arrays = [value if isinstance(value, pa.Array) else _array([value], kind) for value in results]
    return pa.concat_arrays(arrays)


def _is_frame(result: Any) -> bool:
    return hasattr(result, "columns") and type(result).__module__.partition(".")[0] != "numpy"


def _in_order(value: Any, kind: pa.DataType) -> Any:
    """Return a value with Python lists in place of other sequences. Raises TypeError for sets, mappings and frames.

    pyarrow would take the items of a pandas Series by label, the items of a set in any order, and the column names of a
    data frame as its items.
    """
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
        raise TypeError(f"a {what} is not a list, as its items have no order: return a list")
    if _is_frame(value):
        raise TypeError(f"a {what} is not a list, as it has columns: return one of its columns")
    if isinstance(value, pa.Array | pa.ChunkedArray):
        value = value.to_pylist()
    if getattr(value, "ndim", 0) == 1 and type(value).__module__.partition(".")[0] == "numpy":
        return value.tolist() if type(value).__name__ == "MaskedArray" else value
    return [_in_order(item, kind.value_type) for item in value] if hasattr(value, "__iter__") else value


def _array(values: Any, kind: pa.DataType) -> pa.Array:
    """Return Python values as an array.

    Raises an error for 1.5 as an integer, which pyarrow would truncate to 1.
    """
    made = pa.array(values).cast(kind) if pa.types.is_integer(kind) else pa.array(values, kind)
    made = made.combine_chunks() if isinstance(made, pa.ChunkedArray) else made
    if pa.types.is_float32(kind) or pa.types.is_float16(kind):
        _check_finite(values, made)
    return made


def _check_finite(values: Any, made: pa.Array) -> None:
    """Raise ValueError if a number became infinite because it is too large for its type."""
    for value, number in zip(values, made.cast(pa.float64()).to_pylist(), strict=True):
        if number is not None and math.isinf(number) and not math.isinf(float(value)):
            raise ValueError(f"{value} is too large for {made.type}")


def served(udf: UDF, *, input_types: Sequence[pa.DataType] | None = None, description: str = "") -> Served:
    """Prepare a function for a server.

    `input_types`: one Arrow type for each of its `input_columns`. Needed if the annotations do not determine the types,
    as with `pa.RecordBatch`. `description`: what the function does, for people. Raises UdfDefinitionError.
    """
    if not isinstance(udf, UDF):
        raise UdfDefinitionError(
            f"{_called(udf)} was not made by leman.udf or leman.functions.served: decorate it with @leman.udf"
        )
    if udf.blob:
        raise UdfDefinitionError(f"UDF '{udf.name}' returns blobs, which a remote function cannot")
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
    """Return the error of a batch on which the function raised, as JSON for its caller."""
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
    except Exception:  # noqa: BLE001 the class is the user's
        return f"<no message: {type(error).__name__}.__str__ raised>"


PROTOCOL = "leman.function.v1"
DESCRIBE = f"{PROTOCOL}.describe"
#: The maximum size of a batch in memory: the size limit of messages between Leman and function servers.
MOST_BATCH_BYTES = 256 << 20


class BearerTokens(flight.ServerMiddlewareFactory):  # type: ignore[misc]  # pyarrow has no types
    """Refuses calls that do not carry the token."""

    def __init__(self, token: str) -> None:
        super().__init__()
        self._expected = f"Bearer {token}".encode()

    def start_call(self, _info: flight.CallInfo, headers: dict[str, list[Any]]) -> None:
        """Raise FlightUnauthenticatedError for a call without the token."""
        sent = [value for name, values in headers.items() if name.lower() == "authorization" for value in values]
        told = (value.encode() if isinstance(value, str) else bytes(value) for value in sent)
        if not sum(hmac.compare_digest(each, self._expected) for each in told):
            raise flight.FlightUnauthenticatedError("send authorization: Bearer <token> with this server's token")


class FunctionFlight(flight.FlightServerBase):  # type: ignore[misc]  # pyarrow has no types
    """A Flight server of functions. It serves from its construction on."""

    def __init__(self, functions: Sequence[Served], **options: Any) -> None:
        self._functions = {function.name: function for function in functions}
        if len(self._functions) != len(functions):
            raise UdfDefinitionError("two functions have the same name")
        pa.array([])  # imports pandas, if installed, which takes seconds: now, before a caller waits
        #: Once set, no new stream begins, and each open one ends after its current batch.
        self.stopping = threading.Event()
        self.batches_at_work = 0
        self._counting = threading.Lock()
        super().__init__(**options)

    def list_actions(self, _context: flight.ServerCallContext) -> list[tuple[str, str]]:
        """List the one action."""
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
        """Answer each batch with a batch of values, or with the function's error."""
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
        with self._counting:
            self.batches_at_work += 1
        try:
            yield
        finally:
            with self._counting:
                self.batches_at_work -= 1

    def cut(self) -> None:
        """Break the connections of all callers. Flight has no other way to end an idle stream."""
        with contextlib.suppress(FileNotFoundError):  # the system does not list descriptors
            for path in list(Path("/dev/fd").iterdir()):
                with contextlib.suppress(OSError):
                    self._cut(int(path.name))

    def _cut(self, descriptor: int) -> None:
        """Break the connection if the descriptor belongs to a caller. Raises OSError for some other descriptors."""
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            return
        with socket.socket(fileno=os.dup(descriptor)) as connection:
            internet = connection.family in (socket.AF_INET, socket.AF_INET6)
            if internet and connection.getsockname()[1] == self.port and connection.getpeername():
                connection.shutdown(socket.SHUT_RDWR)

    def _asked(self, descriptor: flight.FlightDescriptor) -> Served:
        """Return the function of a stream. Raises pa.ArrowInvalid (INVALID_ARGUMENT), pa.ArrowKeyError (NOT_FOUND)."""
        try:
            asked = json.loads(descriptor.command)
            protocol, name, version = asked["protocol"], asked["function"], asked["version"]
        except (TypeError, ValueError, KeyError):
            raise pa.ArrowInvalid(f"the descriptor's command is not JSON of {PROTOCOL}") from None
        if protocol != PROTOCOL:
            raise pa.ArrowInvalid(f"the protocol is {PROTOCOL}, not {protocol}")
        if name not in self._functions:
            raise pa.ArrowKeyError(f"there is no function '{name}': there are {', '.join(self._functions)}")
        function = self._functions[name]
        if version != function.version:  # Flight in Python has no FAILED_PRECONDITION
            raise pa.ArrowInvalid(f"function '{name}' has version {function.version} here, not {version}")
        return function


def _check_size(batch: pa.RecordBatch) -> None:
    """Refuse a batch that is too large after decompression, as Flight has no limit."""
    size = batch.get_total_buffer_size()
    if size > MOST_BATCH_BYTES:
        raise pa.ArrowInvalid(
            f"a batch has {size} bytes decompressed, and at most {MOST_BATCH_BYTES} are accepted: send fewer rows"
        )


def _check_types(function: Served, schema: pa.Schema) -> None:
    """Refuse batches whose columns have other types than the function's inputs. Column names do not matter."""
    if schema.types != function.inputs.types:
        raise pa.ArrowInvalid(
            f"function '{function.name}' reads {_types_text(function.inputs)}, and is sent {_types_text(schema)}"
        )


def _types_text(schema: pa.Schema) -> str:
    return ", ".join(str(type_) for type_ in schema.types) or "nothing"


#: A stopping server ends after this many seconds without a batch being computed, so that answers can be sent; the
#: second number is the seconds between its checks.
_IDLE_SECONDS, _LOOK_SECONDS = 0.5, 0.05
_LOOK_AT_FILES_SECONDS = 1.0
#: Seconds between attempts to listen while a stopping server still occupies the port.
_PORT_SECONDS = 0.02


class Listener:
    """Listens on one port until `stop`, with a new Flight server whenever the certificates are renewed.

    Flight reads certificates only at its start, so renewed ones need a new server. The earlier server accepts no more
    connections, and serves its open ones until they end. `listen` starts a server at a port, with certificates if
    `files` are given. Errors of `listen` are raised to the caller.
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
            except pa.ArrowException:  # "did not start properly": the earlier server is about to leave the port
                self._over.wait(_PORT_SECONDS)
            else:
                return

    def stop(self, grace_seconds: float) -> bool:
        """Accept no more streams, end each after its current batch, and return whether all ended in time."""
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
    """Have a server accept no more connections. Return a thread that ends with the server's last stream."""
    ending = threading.Thread(target=flight.shutdown, name="function-server-stop", daemon=True)
    ending.start()
    return ending


class FunctionServer:
    """Serves functions from its construction until `stop`, or the end of its `with` block.

    Args:
        functions: Made by `leman.udf`, or by `served` if a function's annotations do not determine its input types.
        host: Address to listen on. Use a token and TLS unless it is a loopback address.
        port: Port to listen on. With 0 the system chooses a free one, which the property `port` returns.
        token: Callers must send it as `authorization: Bearer <token>`. With None, anyone who reaches the server may
            call.
        tls_cert: Path of the certificate chain (PEM). TLS needs it and `tls_key`.
        tls_key: Path of its private key (PEM).
        tls_client_ca: Path of the CA certificates (PEM) that callers' certificates are checked with. If empty, callers
            need no certificate.

    The three files may be renewed in place. After a second, new connections use the new files; running streams
    continue. While the files do not match, such as a new certificate with the old key, the earlier ones stay in use.

    Raises:
        UdfDefinitionError: There is no function, two have the same name, or one is not made by `leman.udf` or does not
            determine its input types.
        InvalidArgument: The token is empty or cannot be sent, the port is not possible, or options contradict.
        OSError: The port is taken, the host is not of this machine, or a file cannot be read.
    """

    def __init__(
        self,
        functions: Iterable[UDF | Served],
        *,
        host: str = "127.0.0.1",
        port: int = DEFAULT_PORT,
        token: str | None = None,
        tls_cert: str = "",
        tls_key: str = "",
        tls_client_ca: str = "",
    ) -> None:
        port, expected = _checked_port(port), _checked_token(token)
        if not isinstance(host, str):
            raise InvalidArgument(f"host is a str, not a {type(host).__name__}")
        if bool(tls_cert) != bool(tls_key):
            raise InvalidArgument("TLS needs both tls_cert and tls_key")
        if tls_client_ca and not tls_cert:
            raise InvalidArgument("tls_client_ca needs tls_cert and tls_key")
        bracketed = f"[{host}]" if ":" in host else host
        held = _checked_functions(functions)
        files = TlsFiles(tls_client_ca, tls_cert, tls_key) if tls_cert else None
        scheme = "grpc+tls" if files is not None else "grpc"

        def listen(at: int, pem: Pem | None) -> FunctionFlight:
            return FunctionFlight(
                held,
                location=f"{scheme}://{bracketed}:{at}",
                tls_certificates=[(pem.cert, pem.key)] if pem is not None else None,
                verify_client=bool(tls_client_ca),
                root_certificates=pem.ca if pem is not None else None,
                middleware={_AUTH: BearerTokens(expected)} if expected is not None else None,
            )

        try:
            self._listener = Listener(port, files, listen)
        except pa.ArrowException:  # "did not start properly"
            _check_free(host, port)
            raise

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return self._listener.port

    def stop(self, grace_seconds: float = 10.0) -> bool:
        """Accept no more streams, end each after its current batch, and return whether all ended in time.

        Connections on which no batch is being computed are cut. Their callers then send the next batch to another
        server.
        """
        return self._listener.stop(grace_seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _checked_port(port: object) -> int:
    number = -1 if isinstance(port, bool) or not hasattr(port, "__index__") else operator.index(port)
    if not 0 <= number <= _LAST_PORT:
        raise InvalidArgument(f"port is an int from 0 (any free one) to {_LAST_PORT}, not {port!r}")
    return number


def _checked_token(token: object) -> str | None:
    """Return the token, or None. Raises InvalidArgument, without the token in its text, if calls cannot carry it."""
    if token is None:
        return None
    if not isinstance(token, str):
        raise InvalidArgument(f"token is a str, or None for a server that asks for none, not a {type(token).__name__}")
    if not token:
        raise InvalidArgument("token is empty: give the token that callers have to send, or None to let anyone call it")
    return checked_token(token)


def _checked_functions(functions: object) -> list[Served]:
    if not isinstance(functions, Iterable) or isinstance(functions, UDF | Served):
        raise UdfDefinitionError(f"functions is a list of functions, not a {type(functions).__name__}")
    held = [each if isinstance(each, Served) else served(each) for each in functions]
    if not held:
        raise UdfDefinitionError("functions is empty: a function server needs one to serve")
    return held


def _check_free(host: str, port: int) -> None:
    """Raise an OSError if this process cannot listen on the host and port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((host, port))
        except OSError as error:
            told = f"{error.strerror}; give another port, or 0 for any free one"
            raise OSError(error.errno, f"a function server cannot listen on {host}:{port}: {told}") from None


def serve(functions: Sequence[UDF | Served], **options: Any) -> None:
    """Serve functions until SIGTERM or Ctrl-C. Call it in the main thread.

    `options`: as for `FunctionServer`, which also lists the errors.
    """
    asked = threading.Event()

    def ask(_number: int, _frame: FrameType | None) -> None:
        asked.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        with FunctionServer(functions, **options):
            asked.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
