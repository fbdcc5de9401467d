"""The protocol `leman.function.v1` over Arrow Flight, the server's side (docs/remote_functions.md)."""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import socket
import stat
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import flight

from leman._function_calls import Served, error_metadata
from leman.errors import UdfDefinitionError

PROTOCOL = "leman.function.v1"
DESCRIBE = f"{PROTOCOL}.describe"
#: A batch may have so many bytes in memory: as many as messages may have between Leman and function servers.
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
        raise pa.ArrowInvalid(f"function '{function.name}' reads {_told(function.inputs)}, and is sent {_told(schema)}")


def _told(schema: pa.Schema) -> str:
    return ", ".join(str(type_) for type_ in schema.types) or "nothing"
