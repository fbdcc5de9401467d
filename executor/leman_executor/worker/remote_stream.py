"""A stream of batches to a server of a remote function. Loaded where a remote function runs only."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import pyarrow as pa
from pyarrow import flight

from leman_core.functions.remote import servers
from leman_core.functions.remote.protocol import ProtocolError, parse_error
from leman_core.model.work import ServerAccess
from leman_executor.worker.answer_watch import AnswerWatch
from leman_executor.worker.remote_errors import AnswerTooLarge, NoAnswer, NoServer, ServerError, StreamBroken

#: A stream that does not end within so many seconds is cancelled.
_END_SECONDS = 5.0
#: What Flight raises where a call fails.
FLIGHT_ERRORS = (pa.ArrowException, OSError, ValueError, KeyError, RuntimeError)


class Stream:
    """A stream of batches to a server, of which one at a time is at work."""

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
        #: Whether it is of no further use: it was cancelled in the moment in which the last answer came.
        self.is_over = False

    def call(self, batch: pa.RecordBatch, watch: AnswerWatch) -> pa.Array:
        """Return the values for a batch.

        Args:
            batch: The rows.
            watch: Says how long the server may be silent.

        Raises:
            ServerError: The function failed for it.
            StreamBroken: The stream ended.
            AnswerTooLarge: It is to end.
            NoAnswer: The server was silent for as long as it may be.
            NoServer: The answer is none of the protocol.
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
            raise NoServer(servers.broken_protocol(self._address, str(error))) from None
        raise ServerError(told.kind, told.bases, told.message, told.traceback)

    def _check_size(self, answer: pa.RecordBatch) -> None:
        """Refuse what gRPC let pass as it was compressed: by now it is read, but nobody holds it any longer."""
        if answer.get_total_buffer_size() > servers.MOST_MESSAGE_BYTES:
            most = servers.MOST_MESSAGE_BYTES >> 20
            raise AnswerTooLarge(f"{self._address}: its answer has more than {most} MiB, decompressed")

    def _why(self, error: Exception) -> str:
        """Return why a call ended. Of an answer that is too large gRPC says only that the call was cancelled."""
        if isinstance(error, flight.FlightCancelledError):
            most = servers.MOST_MESSAGE_BYTES >> 20
            return f"the call was cancelled, by the server, or because its answer has more than {most} MiB"
        return servers.shortened(error, self._access)

    def finish(self) -> None:
        """End the stream in order, on which all batches were answered.

        Raises:
            NoServer: The server answered more than it was asked: values may stand at wrong rows.
        """
        left: object = None
        with contextlib.suppress(StopIteration, *FLIGHT_ERRORS), cancelled_after(_END_SECONDS, self._reader):
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
        with contextlib.suppress(*FLIGHT_ERRORS):
            self._reader.cancel()
            self._writer.close()


@contextlib.contextmanager
def cancelled_after(seconds: float, reader: flight.FlightStreamReader) -> Iterator[threading.Event]:
    """Cancel a stream whose server says nothing for too long in this block; the event tells whether that was so."""
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
