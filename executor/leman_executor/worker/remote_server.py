"""One server of a remote function, as a worker has it: whether it is left alone, and the streams to it.

Loaded where a remote function runs only.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import pyarrow as pa
from pyarrow import flight

from leman_core.functions.remote import servers
from leman_core.functions.remote.protocol import (
    FunctionDescription,
    ProtocolError,
    command,
    parse_stream,
)
from leman_core.model.errors import LemanError
from leman_core.model.work import ServerAccess
from leman_executor.worker.answer_watch import AnswerWatch
from leman_executor.worker.remote_errors import NoAnswer
from leman_executor.worker.remote_stream import FLIGHT_ERRORS, Stream, cancelled_after
from leman_executor.worker.server_order import Pace

#: A server is asked again after this share of the time for which it has been away: who starts again soon is found soon.
_SHARE_OF_AWAY, _FIRST_PAUSE, _LONGEST_PAUSE = 1 / 8, 0.1, 5.0
#: A server that does not answer within so many seconds that it takes a stream cannot be reached.
_OPEN_SECONDS = 30.0
#: A server that took so long to fail is avoided for so many times as long: asking it keeps batches from others.
_SLOW_SECONDS, _SLOW_FACTOR, _LONGEST_AVOIDED = 1.0, 6.0, 30.0
#: Servers that took long to fail, for all units of this process: until when they are avoided, and why.
_slow: dict[str, tuple[float, LemanError]] = {}
#: How fast servers are with functions, for all units of this process.
_paces: dict[tuple[str, str, str], Pace] = {}


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
        #: Batches of this worker that it has at work.
        self.at_work = 0
        #: Connections to it that broke over batches of this worker since it answered one.
        self._breaks = 0
        #: Why it was left alone last; None: it answers.
        self.refusal: LemanError | None = None
        if access.address in _slow:
            self._avoided_until, self.refusal = _slow[access.address]

    @property
    def seen(self) -> str:
        """Return what was seen of it since it last answered, in words."""
        last = self.refusal.message if self.refusal is not None else ""
        if not self._breaks:
            return last
        times = "once" if self._breaks == 1 else f"{self._breaks} times"
        return f"{last} (it ended, or hung up, over batches {times} since it answered one: its own log may tell why)"

    @property
    def is_avoided(self) -> bool:
        """Tell whether it is to be asked only where there is no other one, as asking it takes long."""
        return self._avoided_until > self._clock()

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

    def call(self, stream: Stream, batch: pa.RecordBatch, watch: AnswerWatch) -> pa.Array:
        """Return the values for a batch, as `Stream.call` does."""
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
        """Take back a stream on which a batch was answered."""
        with self._lock:
            self._away_since = self.refusal = None
            self._breaks = 0
            if stream.client is self._client:  # of before it was avoided it tells nothing
                self._avoided_until = 0.0
                _slow.pop(self._access.address, None)
                if not stream.is_over:
                    self._free.append(stream)
                    return
        stream.close()

    def broke(self, stream: Stream) -> None:
        """Take back a stream that broke; others of the same connection are of no use either."""
        with self._lock:
            self._breaks += 1
        if stream.client is self._client:
            what = "ended, or hung up, while it computed a batch"
            self._leave_alone(servers.unavailable(f"The function server {self._access.address} {what}"))
        stream.close()

    def was_silent(self, stream: Stream, error: NoAnswer, seconds: float) -> None:
        """Take back a stream on which a batch was not answered for so long; the server is avoided, as it hangs."""
        self._leave_alone(servers.unavailable(f"The function server {error}"), seconds, _SLOW_FACTOR * seconds)
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
                raise self.refusal  # another thread has just tried
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
        with cancelled_after(_OPEN_SECONDS, reader) as cancelled:
            try:
                writer.begin(self._inputs)
                schema = reader.schema
            except FLIGHT_ERRORS as error:
                silent = f"it did not answer for {_OPEN_SECONDS:g} s" if cancelled.is_set() else ""
                what = silent or servers.shortened(error, self._access)
                raise servers.unavailable(
                    f"The function server {self._access.address} takes no stream: {what}"
                ) from None  # it says why when it is asked again
        return Stream(client, writer, reader, self._access), schema

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
