"""Call one server of a remote function: manage its connection and streams, and measure how fast it answers.

If a server does not answer a batch in time, its stream is cancelled, because a server that hangs may still keep its
connection alive. The least busy of the fast servers gets the next batch. This module runs on Spark workers, and is
loaded only where a remote function runs.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

import pyarrow as pa
from pyarrow import flight

from leman_core.functions import function_servers
from leman_core.functions.function_servers import (
    FunctionDescription,
    ProtocolError,
    parse_error,
    parse_stream,
    stream_command,
)
from leman_core.model.service_errors import LemanError
from leman_core.model.work import ServerAccess
from leman_executor.worker.user_errors import AnswerTooLarge, NoAnswer, NoServer, ServerError, StreamBroken

_LONGEST_TICK, _TICKS = 1.0, 10


class AwaitedAnswer:
    """A batch that a server works on."""

    def __init__(self, cancel: Callable[[], None], until: float) -> None:
        self.cancel = cancel
        self.until = until
        #: Whether the batch's stream was cancelled because the time limit had passed.
        self.overdue = False


class AnswerWatch:
    """Watch, from a single thread, the batches of one function that servers work on.

    Args:
        seconds: How long a server may work on a batch; 0 for no limit.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._awaited: set[AwaitedAnswer] = set()
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    @contextlib.contextmanager
    def awaiting(self, cancel: Callable[[], None]) -> Iterator[AwaitedAnswer]:
        """Watch the call in this block. If it takes too long, call `cancel`, which ends the call."""
        answer = AwaitedAnswer(cancel, time.monotonic() + self.seconds)
        if not self.seconds:
            yield answer
            return
        with self._lock:
            self._awaited.add(answer)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="answers", daemon=True)
                self._thread.start()
        try:
            yield answer
        finally:
            with self._lock:
                self._awaited.discard(answer)

    def close(self) -> None:
        """Stop watching."""
        self._over.set()

    def _run(self) -> None:
        while not self._over.wait(min(self.seconds / _TICKS, _LONGEST_TICK)):
            now = time.monotonic()
            with self._lock:  # do not cancel a call that has ended: its stream may carry another batch
                for answer in self._awaited:
                    if now >= answer.until and not answer.overdue:
                        answer.overdue = True
                        answer.cancel()


#: Seconds after which a stream is cancelled that should end but does not.
_END_SECONDS = 5.0
#: The errors that Flight raises if a call fails.
FLIGHT_ERRORS = (pa.ArrowException, OSError, ValueError, KeyError, RuntimeError)


class Stream:
    """A stream of batches to a server. The server works on one batch at a time."""

    def __init__(
        self,
        client: flight.FlightClient,
        writer: flight.FlightStreamWriter,
        reader: flight.FlightStreamReader,
        access: ServerAccess,
    ) -> None:
        self.client = client
        self._writer = writer
        self._reader = reader
        self._access = access
        self._address = access.address
        #: Whether the stream cannot be used again, because it was cancelled just as the last answer arrived.
        self.is_over = False

    def call(self, batch: pa.RecordBatch, watch: AnswerWatch) -> pa.Array:
        """Return the values for a batch.

        Args:
            batch: The rows.
            watch: Limits how long the server may take.

        Raises:
            ServerError: The function failed for the batch.
            StreamBroken: The stream has ended.
            AnswerTooLarge: The answer is too large. This ends the stream.
            NoAnswer: The server did not answer in time.
            NoServer: The answer violates the protocol.
        """
        with watch.awaiting(self._reader.cancel) as awaited:
            try:
                self._writer.write_batch(batch)
                answer = self._reader.read_chunk()
            except (StopIteration, *FLIGHT_ERRORS) as error:
                if awaited.overdue:
                    raise NoAnswer(f"{self._address} did not answer for {watch.seconds:g} s") from None
                if isinstance(error, StopIteration):
                    raise StreamBroken(f"{self._address} ended the stream") from None
                raise StreamBroken(f"{self._address}: {self._why(error)}") from None
        self.is_over = awaited.overdue
        if answer.data is not None:
            self._check_size(answer.data)
            return self._values(answer.data, batch.num_rows)
        try:
            told = parse_error(b"" if answer.app_metadata is None else answer.app_metadata.to_pybytes())
        except ProtocolError as error:
            raise NoServer(function_servers.broken_protocol(self._address, str(error))) from None
        raise ServerError(told.kind, told.bases, told.message, told.traceback)

    def _check_size(self, answer: pa.RecordBatch) -> None:
        """Reject an answer that is too large once it is decompressed, and free its memory at once. gRPC limits only the
        compressed size.
        """
        if answer.get_total_buffer_size() > function_servers.MOST_MESSAGE_BYTES:
            most = function_servers.MOST_MESSAGE_BYTES >> 20
            raise AnswerTooLarge(f"{self._address}: its answer has more than {most} MiB, decompressed")

    def _why(self, error: Exception) -> str:
        """Return why a call ended. If an answer is too large, gRPC itself says only that the call was cancelled."""
        if isinstance(error, flight.FlightCancelledError):
            most = function_servers.MOST_MESSAGE_BYTES >> 20
            return f"the call was cancelled, by the server, or because its answer has more than {most} MiB"
        return function_servers.short_error_text(error, self._access)

    def finish(self) -> None:
        """End a stream after all its batches were answered.

        Raises:
            NoServer: The server sent more answers than batches, so values may belong to other rows.
        """
        left: object = None
        with contextlib.suppress(StopIteration, *FLIGHT_ERRORS), cancelled_after(_END_SECONDS, self._reader):
            self._writer.done_writing()
            left = self._reader.read_chunk()
        self.close()
        if left is not None:
            raise NoServer(function_servers.broken_protocol(self._address, "it answers a batch more than once"))

    def _values(self, answer: pa.RecordBatch, rows: int) -> pa.Array:
        if answer.num_columns != 1 or answer.num_rows != rows:
            what = f"{answer.num_rows} values in {answer.num_columns} columns answer a batch of {rows} rows"
            raise NoServer(function_servers.broken_protocol(self._address, what))
        values: pa.Array = answer.column(0)
        return values

    def close(self) -> None:
        """End the stream. Ignore errors."""
        with contextlib.suppress(*FLIGHT_ERRORS):
            self._reader.cancel()
            self._writer.close()


@contextlib.contextmanager
def cancelled_after(seconds: float, reader: flight.FlightStreamReader) -> Iterator[threading.Event]:
    """Cancel a stream if its server sends nothing for too long in this block. The yielded event is then set."""
    cancelled = threading.Event()

    def cancel() -> None:
        cancelled.set()
        reader.cancel()

    timer = threading.Timer(seconds, cancel)
    timer.daemon = True
    timer.start()
    try:
        yield cancelled
    finally:
        timer.cancel()


#: A server counts as fast if its time is at most this multiple of the fastest server's time, plus this number of
#: seconds.
_TIMES, _SECONDS = 1.5, 0.01
#: A slow server is tried again after this multiple of its time for a batch, because it may have become faster.
_TRIED_AGAIN = 10


class Pace:
    """The speed with which a server answers a worker: the better of the last two measurements, because a single
    measurement may be an outlier.
    """

    def __init__(self) -> None:
        self._seconds_per_row: deque[float] = deque(maxlen=2)
        self._noted = 0.0

    def note(self, rows: int, seconds: float, now: float) -> None:
        """Record that a batch of `rows` was answered after `seconds`."""
        self._seconds_per_row.append(seconds / max(rows, 1))
        self._noted = now

    def expected(self, rows: int) -> float:
        """Return the expected seconds for a batch; 0 before two batches were measured."""
        return min(self._seconds_per_row) * rows if len(self._seconds_per_row) == 2 else 0.0

    def is_outdated(self, rows: int, now: float) -> bool:
        """Return whether to measure the server's speed again."""
        return now - self._noted >= _TRIED_AGAIN * self.expected(rows)


class Paced(Protocol):
    """A server that may get a batch."""

    pace: Pace
    #: Number of batches of this worker that the server works on.
    at_work: int


ServerT = TypeVar("ServerT", bound=Paced)


def by_expected_time(servers: Sequence[ServerT], rows: int, now: float) -> list[ServerT]:
    """Return the servers in the order in which to try them for a batch. Equal servers keep their order.

    If one server needs 0.1 s for a batch and another needs 2 s, the fast server gets all batches, except one every 20
    s, which measures the slow server again. If all workers together slow down the fast server, the slow server gets
    more.
    """
    expected = [server.pace.expected(rows) * (server.at_work + 1) for server in servers]
    known = [seconds for seconds in expected if seconds]  # a server that never answered has no measurement
    good = _TIMES * min(known, default=0.0) + _SECONDS

    def rank(at: int) -> tuple[int, float]:
        server = servers[at]
        if expected[at] <= good:
            return 1, server.at_work
        if not server.at_work and server.pace.is_outdated(rows, now):
            return 0, 0.0
        return 2, expected[at]

    return [servers[at] for at in sorted(range(len(servers)), key=rank)]


#: A server that does not answer is tried again after this share of the time since it last answered, so that a quick
#: restart is noticed soon.
_SHARE_OF_AWAY, _FIRST_PAUSE, _LONGEST_PAUSE = 1 / 8, 0.1, 5.0
#: A server counts as unreachable if it does not accept a stream within this many seconds.
_OPEN_SECONDS = 30.0
#: A server that took long to fail is avoided for this multiple of the time that it took, because trying it delays
#: batches.
_SLOW_SECONDS, _SLOW_FACTOR, _LONGEST_AVOIDED = 1.0, 6.0, 30.0
#: Servers that took long to fail → until when they are avoided, and why. All units of this process share this.
_slow: dict[str, tuple[float, LemanError]] = {}
#: The pace of servers for functions. All units of this process share this.
_paces: dict[tuple[str, str, str], Pace] = {}


class RemoteServer:
    """One server: its connection, its idle streams and, after an error, how long it is not called."""

    def __init__(
        self,
        access: ServerAccess,
        function: str,
        version: str,
        inputs: pa.Schema,
        output: pa.DataType,
        *,
        clock: Callable[[], float],
    ) -> None:
        self._access = access
        self._function, self._version = function, version
        self._inputs, self._output = inputs, output
        self._clock = clock
        self._client: flight.FlightClient | None = None
        self._free: list[Stream] = []
        self._lock, self._connecting = threading.Lock(), threading.Lock()
        self._away_since: float | None = None
        self._until = self._avoided_until = 0.0
        self.pace = _paces.setdefault((access.address, function, version), Pace())
        #: Number of batches of this worker that the server works on.
        self.at_work = 0
        #: Number of the server's connections that broke, since its last answer, while it computed batches of this
        #: worker.
        self._breaks = 0
        #: The error because of which the server is not called, or was not called most recently. None if the server
        #: answers.
        self.refusal: LemanError | None = None
        if access.address in _slow:
            self._avoided_until, self.refusal = _slow[access.address]

    @property
    def seen(self) -> str:
        """Describe the server's last error, and how often connections broke since its last answer."""
        last = self.refusal.message if self.refusal is not None else ""
        if not self._breaks:
            return last
        times = "once" if self._breaks == 1 else f"{self._breaks} times"
        return f"{last} (since its last answer, it broke connections {times} while computing: its own log may say why)"

    @property
    def is_avoided(self) -> bool:
        """Return whether to call this server only if no other server is available, because it may take long to fail."""
        return self._avoided_until > self._clock()

    def left_alone_for(self) -> float:
        """Return the seconds for which the server must not be called."""
        return self._until - self._clock()

    def stream(self) -> Stream:
        """Return an idle or new stream. After an error, the server is not called for a while.

        Raises:
            LemanError: The server cannot be reached, or does not serve this version of the function.
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

    def call(self, stream: Stream, batch: pa.RecordBatch, watch: AnswerWatch) -> pa.Array:
        """Return the values for a batch; see `Stream.call`."""
        began = self._clock()
        with self._lock:
            self.at_work += 1
        try:
            values = stream.call(batch, watch)
        finally:
            with self._lock:
                self.at_work -= 1
        now = self._clock()
        self.pace.note(len(batch), now - began, now)
        return values

    def give_back(self, stream: Stream) -> None:
        """Take back a stream whose batch was answered."""
        with self._lock:
            self._away_since = self.refusal = None
            self._breaks = 0
            if stream.client is self._client:  # a connection from before the error says nothing about the server
                self._avoided_until = 0.0
                _slow.pop(self._access.address, None)
                if not stream.is_over:
                    self._free.append(stream)
                    return
        stream.close()

    def broke(self, stream: Stream) -> None:
        """Take back a stream that broke. Drop all other streams of its connection."""
        with self._lock:
            self._breaks += 1
        if stream.client is self._client:
            what = "ended, or hung up, while it computed a batch"
            self._leave_alone(function_servers.server_unavailable(f"The function server {self._access.address} {what}"))
        stream.close()

    def was_silent(self, stream: Stream, error: NoAnswer, seconds: float) -> None:
        """Take back a stream whose batch was not answered for `seconds`. Avoid the server, because it hangs."""
        self._leave_alone(
            function_servers.server_unavailable(f"The function server {error}"), seconds, _SLOW_FACTOR * seconds
        )
        stream.close()

    def finish(self) -> None:
        """End all idle streams, in order.

        Raises:
            NoServer: See `Stream.finish`.
        """
        with self._lock:
            streams, self._free = self._free, []
        for stream in streams:
            stream.finish()

    def close(self) -> None:
        """Close all idle streams and the connection."""
        with self._lock:
            streams, client = self._free, self._client
            self._free, self._client = [], None
        for stream in streams:
            stream.close()
        if client is not None:
            client.close()

    def _leave_alone(self, error: LemanError, took: float = 0.0, longest: float = _LONGEST_AVOIDED) -> None:
        now = self._clock()
        with self._lock:
            self._away_since = now if self._away_since is None else self._away_since
            pause = _SHARE_OF_AWAY * (now - self._away_since)
            self._until = now + min(max(pause, _FIRST_PAUSE), _LONGEST_PAUSE)
            self.refusal = error
            if took >= _SLOW_SECONDS:
                self._avoided_until = now + min(_SLOW_FACTOR * took, longest)
                _slow[self._access.address] = self._avoided_until, error
            streams, self._free, self._client = self._free, [], None
        for stream in streams:
            stream.close()

    def _opened(self) -> Stream:
        with self._connecting:
            client = self._client
            if client is None and self.refusal is not None and self.left_alone_for() > 0:
                raise self.refusal  # another thread has just tried to connect
            if client is None:
                client = self._client = self._connected()
        stream, schema = self._begun(client)
        try:
            self._check_answer(schema)
        except LemanError:
            stream.close()
            raise
        self._away_since = None
        return stream

    def _connected(self) -> flight.FlightClient:
        """Return a connection to the server, which has confirmed that it serves this function."""
        client = function_servers.connect_server(self._access)
        try:
            told = function_servers.describe_function(client, self._access, self._function)
            self._check(told)
        except LemanError:
            client.close()
            raise
        return client

    def _check(self, told: FunctionDescription) -> None:
        function_servers.check_version(self._access.address, told, self._version)
        function_servers.check_signature(self._access.address, told, tuple(self._inputs.types), self._output)

    def _begun(self, client: flight.FlightClient) -> tuple[Stream, pa.Schema]:
        asked = flight.FlightDescriptor.for_command(stream_command(self._function, self._version))
        writer, reader = client.do_exchange(asked, function_servers.call_options(self._access))
        with cancelled_after(_OPEN_SECONDS, reader) as cancelled:
            try:
                writer.begin(self._inputs)
                schema = reader.schema
            except FLIGHT_ERRORS as error:
                silent = f"it did not answer for {_OPEN_SECONDS:g} s" if cancelled.is_set() else ""
                what = silent or function_servers.short_error_text(error, self._access)
                raise function_servers.server_unavailable(
                    f"The function server {self._access.address} did not accept a stream: {what}"
                ) from None  # the next attempt will report the reason
        return Stream(client, writer, reader, self._access), schema

    def _check_answer(self, schema: pa.Schema) -> None:
        """Reject a stream that is for another version, or that does not return exactly one column of the right type.

        Raises:
            FailedPrecondition: FUNCTION_PROTOCOL, FUNCTION_VERSION_MISMATCH, FUNCTION_SIGNATURE_MISMATCH.
        """
        try:
            function, version = parse_stream(schema)
        except ProtocolError as error:
            raise function_servers.broken_protocol(self._access.address, str(error)) from None
        said = FunctionDescription(function, version, self._inputs, schema.field(0).type)
        self._check(said)
