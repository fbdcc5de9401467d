"""One server of a remote function, and the streams to it, as a worker has them.

Loaded where a remote function runs only.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

import pyarrow as pa
from pyarrow import flight

from core.domain.work import ServerAccess
from core.errors import LemanError
from core.remote import servers
from core.remote.protocol import (
    FunctionDescription,
    ProtocolError,
    command,
    parse_error,
    parse_stream,
)
from executor.worker.answer_watch import AnswerWatch
from executor.worker.remote_errors import NoAnswer, NoServer, ServerError, StreamBroken

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
#: A server that does not answer within so many seconds that it takes a stream cannot be reached.
_OPEN_SECONDS = 30.0
#: A stream that does not end within so many seconds is cancelled.
_END_SECONDS = 5.0
#: A server that took so long to fail is left alone for so many times as long: asking it keeps batches from others.
#: Where there are no others that would only cost.
_SLOW_SECONDS, _SLOW_FACTOR, _SLOWEST_PAUSE = 1.0, 6.0, 30.0
#: Servers that took long to fail, for all units of this process: until when they are left alone, and why.
_slow: dict[str, tuple[float, LemanError]] = {}
_FLIGHT_ERRORS = (pa.ArrowException, OSError, ValueError, KeyError, RuntimeError)


class Stream:
    """A stream of batches to a server, of which one at a time is at work."""

    def __init__(
        self,
        client: flight.FlightClient,
        writer: flight.FlightStreamWriter,
        reader: flight.FlightStreamReader,
        access: ServerAccess,
        watch: AnswerWatch,
    ) -> None:
        self.client = client
        self._watch = watch
        self._writer = writer
        self._reader = reader
        self._access = access
        self._address = access.address

    def call(self, batch: pa.RecordBatch) -> pa.Array:
        """Return the values for a batch.

        Raises:
            ServerError: The function failed for it.
            StreamBroken: The stream ended.
            NoAnswer: The server was silent for as long as it may be.
            NoServer: The answer is none of the protocol.
        """
        with self._watch.awaiting(self._reader.cancel) as awaited:
            try:
                self._writer.write_batch(batch)
                answer = self._reader.read_chunk()
            except (StopIteration, *_FLIGHT_ERRORS) as error:
                if awaited.overdue:
                    raise NoAnswer(f"{self._address} did not answer for {self._watch.seconds:g} s") from None
                if isinstance(error, StopIteration):
                    raise StreamBroken(f"{self._address} ended the stream") from None
                raise StreamBroken(f"{self._address}: {servers.shortened(error, self._access)}") from None
        if answer.data is not None:
            return self._values(answer.data, batch.num_rows)
        try:
            told = parse_error(b"" if answer.app_metadata is None else answer.app_metadata.to_pybytes())
        except ProtocolError as error:
            raise NoServer(servers.broken_protocol(self._address, str(error))) from None
        raise ServerError(told.kind, told.bases, told.message, told.traceback)

    def finish(self) -> None:
        """End the stream in order, on which all batches were answered.

        Raises:
            NoServer: The server answered more than it was asked: values may stand at wrong rows.
        """
        left: object = None
        with contextlib.suppress(StopIteration, *_FLIGHT_ERRORS), _cancelled_after(_END_SECONDS, self._reader):
            self._writer.done_writing()
            left = self._reader.read_chunk()
        self.close()
        if left is not None:
            raise NoServer(servers.broken_protocol(self._address, "it answers a batch more than once"))

    def _values(self, answer: pa.RecordBatch, rows: int) -> pa.Array:
        if answer.num_columns != 1 or answer.num_rows != rows:
            what = f"{answer.num_rows} values in {answer.num_columns} columns answer a batch of {rows} rows"
            raise NoServer(servers.broken_protocol(self._address, what))
        values: pa.Array = answer.column(0)
        return values

    def close(self) -> None:
        """End the stream; what goes wrong with that does not matter any more."""
        with contextlib.suppress(*_FLIGHT_ERRORS):
            self._reader.cancel()
            self._writer.close()


class RemoteServer:
    """A server: how to reach it, whether it is left alone, and the streams that nobody uses now."""

    def __init__(
        self,
        access: ServerAccess,
        function: str,
        version: str,
        inputs: pa.Schema,
        output: pa.DataType,
        *,
        clock: Callable[[], float],
        watch: AnswerWatch,
        has_others: bool,
    ) -> None:
        self._access = access
        self._slowest_pause = _SLOWEST_PAUSE if has_others else _LONGEST_PAUSE
        self._watch = watch
        self._function, self._version = function, version
        self._inputs, self._output = inputs, output
        self._clock = clock
        self._client: flight.FlightClient | None = None
        self._free: list[Stream] = []
        self._lock, self._connecting = threading.Lock(), threading.Lock()
        self._pause = 0.0
        self._until = 0.0
        #: Why it was left alone last; None: it answers.
        self.refusal: LemanError | None = None
        if access.address in _slow:
            self._until, self.refusal = _slow[access.address]

    def left_alone_for(self) -> float:
        """Return for how many seconds it is not to be asked."""
        return self._until - self._clock()

    def stream(self) -> Stream:
        """Return a stream that nobody uses, or a new one; after an error the server is left alone for a while.

        Raises:
            LemanError: It cannot be reached, or does not serve this version of the function.
        """
        with self._lock:
            if self._free:
                return self._free.pop()
        began = self._clock()
        try:
            return self._opened()
        except LemanError as error:
            if error is not self.refusal:
                self._leave_alone(error, self._clock() - began)
            raise

    def give_back(self, stream: Stream) -> None:
        """Take back a stream on which a batch was answered."""
        with self._lock:
            self._pause, self.refusal = 0.0, None
            if stream.client is self._client:
                self._free.append(stream)
                return
        stream.close()

    def broke(self, stream: Stream) -> None:
        """Take back a stream that broke; others of the same connection are of no use either."""
        if stream.client is self._client:
            self._leave_alone(servers.unavailable(f"The function server {self._access.address} broke the connection"))
        stream.close()

    def was_silent(self, stream: Stream, error: NoAnswer) -> None:
        """Take back a stream on which a batch was not answered; the server is left alone for long, as it hangs."""
        self._leave_alone(servers.unavailable(f"The function server {error}"), self._watch.seconds)
        stream.close()

    def finish(self) -> None:
        """End all streams that nobody uses in order.

        Raises:
            NoServer: see `Stream.finish`.
        """
        with self._lock:
            streams, self._free = self._free, []
        for stream in streams:
            stream.finish()

    def close(self) -> None:
        """Close all streams that nobody uses, and the connection."""
        with self._lock:
            streams, client = self._free, self._client
            self._free, self._client = [], None
        for stream in streams:
            stream.close()
        if client is not None:
            client.close()

    def _leave_alone(self, error: LemanError, took: float = 0.0) -> None:
        with self._lock:
            self._pause = min(max(2 * self._pause, _FIRST_PAUSE), _LONGEST_PAUSE)
            self._until = self._clock() + self._pause
            self.refusal = error
            if took >= _SLOW_SECONDS:
                self._until = self._clock() + min(_SLOW_FACTOR * took, self._slowest_pause)
                _slow[self._access.address] = self._until, error
            streams, self._free, self._client = self._free, [], None
        for stream in streams:
            stream.close()

    def _opened(self) -> Stream:
        with self._connecting:
            client = self._client
            if client is None and self.refusal is not None and self.left_alone_for() > 0:
                raise self.refusal  # another thread has just tried
            if client is None:
                client = self._client = self._connected()
        try:
            stream, schema = self._begun(client)
        except (StopIteration, *_FLIGHT_ERRORS) as error:  # it says why when it is asked again
            raise servers.unavailable(
                f"The function server {self._access.address} takes no stream: {servers.shortened(error, self._access)}"
            ) from None
        try:
            self._check_answer(schema)
        except LemanError:
            stream.close()
            raise
        with self._lock:
            self._pause = 0.0
        return stream

    def _connected(self) -> flight.FlightClient:
        """Return a connection to the server, which has said that it serves this function."""
        client = servers.connect(self._access)
        try:
            told = servers.describe(client, self._access, self._function)
            self._check(told)
        except LemanError:
            client.close()
            raise
        return client

    def _check(self, told: FunctionDescription) -> None:
        servers.check_version(self._access.address, told, self._version)
        servers.check_signature(self._access.address, told, tuple(self._inputs.types), self._output)

    def _begun(self, client: flight.FlightClient) -> tuple[Stream, pa.Schema]:
        asked = flight.FlightDescriptor.for_command(command(self._function, self._version))
        writer, reader = client.do_exchange(asked, servers.call_options(self._access))
        with _cancelled_after(_OPEN_SECONDS, reader):
            writer.begin(self._inputs)
            schema = reader.schema
        return Stream(client, writer, reader, self._access, self._watch), schema

    def _check_answer(self, schema: pa.Schema) -> None:
        """Refuse a stream that is not of this version, or gives no column of the type.

        Raises:
            FailedPrecondition: FUNCTION_PROTOCOL, FUNCTION_VERSION_MISMATCH, FUNCTION_SIGNATURE_MISMATCH.
        """
        try:
            function, version = parse_stream(schema)
        except ProtocolError as error:
            raise servers.broken_protocol(self._access.address, str(error)) from None
        said = FunctionDescription(function, version, self._inputs, schema.field(0).type)
        self._check(said)


@contextlib.contextmanager
def _cancelled_after(seconds: float, reader: flight.FlightStreamReader) -> Iterator[None]:
    """Cancel a stream whose server says nothing for too long in this block."""
    timer = threading.Timer(seconds, reader.cancel)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
