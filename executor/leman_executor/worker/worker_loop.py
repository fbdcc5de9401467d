"""Run one worker in the process of its function: run units until none are left. Imports neither gRPC nor Spark."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import msgspec
import pyarrow as pa

from leman_core.model.service_errors import FailedPrecondition
from leman_core.model.work import (
    InFlightRows,
    ProgressReport,
    ProgressSink,
    UnitFailure,
    UnitOutcome,
    WorkContext,
    WorkUnit,
)
from leman_core.storage import object_stores
from leman_core.storage.checkpoint_store import LanceCheckpointStore, checkpoint_root
from leman_core.storage.scan import FragmentReader
from leman_executor.coordination.reservations import reservations_at
from leman_executor.worker import process_environment
from leman_executor.worker.error_store import JobErrors
from leman_executor.worker.process_environment import kept_environment
from leman_executor.worker.unit_runner import UnitRunner, never_stopped
from leman_executor.worker.worker_link import (
    LENGTH_BYTES,
    Alive,
    Done,
    InFlight,
    Link,
    Running,
    WorkerMessage,
    WorkerTask,
    connect_to_executor,
    framed,
)

_STRAY = 125
#: Made at import, in one thread: msgspec crashes if two threads are the first to decode a type.
_worker_tasks, _contexts = msgspec.json.Decoder(WorkerTask), msgspec.json.Decoder(WorkContext)
_units: msgspec.json.Decoder[WorkUnit | None] = msgspec.json.Decoder(WorkUnit | None)


@dataclass(frozen=True, slots=True)
class ExecutorConnection:
    """A blocking connection to the executor; also a `leman_core.model.work.ProgressSink`."""

    _link: Link
    _saying: threading.Lock = field(default_factory=threading.Lock)
    _at_work: threading.Event = field(default_factory=threading.Event)
    _over: threading.Event = field(default_factory=threading.Event)
    _reading: threading.Lock = field(default_factory=threading.Lock)
    #: Messages that were received while the worker was not waiting for a unit.
    _held: deque[WorkUnit | None] = field(default_factory=deque)
    _pid: int = field(default_factory=os.getpid)

    def say(self, message: WorkerMessage) -> None:
        """Send a message.

        Raises:
            OSError: The executor has died, so the worker should end.
        """
        self._check_process()
        data = framed(message)
        with self._saying:  # the watchdog sends from a thread of its own
            self._link.send(data)

    def send(self, report: ProgressReport) -> None:
        """Send a progress report."""
        self.say(Running(report))

    def in_flight(self, in_flight: InFlightRows) -> None:
        """Report which rows are being computed, or were stored."""
        self.say(InFlight(in_flight))

    def asked_to_stop(self) -> bool:
        """Return whether the executor has asked the worker, during a unit, to return the unit and end."""
        self.take_in()
        return bool(self._held) and self._held[0] is None

    def take_in(self) -> None:
        """Receive all messages that have arrived, without waiting."""
        self._check_process()
        with self._reading:
            while self._is_there():
                unit = self._receive()
                if unit is None or unit.works:
                    self._held.append(unit)

    def context(self) -> WorkContext:
        """Wait for the executor's first message: the context that all units share.

        Raises:
            OSError: The executor has died, or rejects the worker.
        """
        data = self._message()
        if data is None:
            raise ConnectionAbortedError(
                "the executor closed the connection: the job is over, or the worker is another job's"
            )
        return _contexts.decode(data)

    def next_unit(self) -> WorkUnit | None:
        """Wait for a unit. Return None if the job is done or the executor has died."""
        with self._reading:
            unit = self._held.popleft() if self._held else self._receive()
            while unit is not None and not unit.works:
                unit = self._receive()
            return unit

    def _receive(self) -> WorkUnit | None:
        """Wait for a unit; apply updates of store access. Return None if no units are left or the executor has died."""
        data = self._message()
        unit = None if data is None else _units.decode(data)
        if unit is not None and unit.stores:
            object_stores.set_store_source(object_stores.GivenStores(unit.stores))
        return unit

    def _message(self) -> bytes | None:
        """Wait for the executor's next message. Return None if the executor has died."""
        head = self._read(LENGTH_BYTES)
        return None if head is None else self._read(int.from_bytes(head, "big"))

    def _is_there(self) -> bool:
        try:
            return self._link.has_data()
        except OSError:  # no data yet, or the executor died, which the next send notices
            return False

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            os._exit(_STRAY)  # this is a child that the function forked; its parent is the worker

    @contextlib.contextmanager
    def beating(self, seconds: float) -> Iterator[None]:
        """Send a sign of life every `seconds`, from a thread, while the worker is at work. 0 disables this."""
        heartbeats = threading.Thread(target=self._say_alive, args=(seconds,), name="heartbeats", daemon=True)
        if seconds:
            heartbeats.start()
        try:
            yield
        finally:
            self._over.set()
            if seconds:
                heartbeats.join()

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        """Mark the worker as at work in this block."""
        self._at_work.set()
        try:
            yield
        finally:
            self._at_work.clear()

    def _say_alive(self, seconds: float) -> None:
        with contextlib.suppress(OSError):  # the next send notices that the executor has died
            while not self._over.wait(seconds):
                if self._at_work.is_set():
                    self.take_in()
                    self.say(Alive())

    def _read(self, length: int) -> bytes | None:
        parts = []
        while length:
            part = self._link.receive(min(length, 1 << 20))
            if not part:
                return None
            parts.append(part)
            length -= len(part)
        return b"".join(parts)


class WorkerState:
    """The state that the units of one worker share."""

    def __init__(self, context: WorkContext) -> None:
        self._context = context
        self._store = LanceCheckpointStore(checkpoint_root(context.uri))
        self._reservations = reservations_at(context.redis_url, context.reservation_ttl)
        column = pa.ipc.read_schema(pa.py_buffer(context.output_schema)).field(0).name
        self._errors = JobErrors(
            context.errors_uri, context.job_id, column, context.udf.version, store_messages=context.store_messages
        )

    def run(
        self,
        unit: WorkUnit,
        sink: ProgressSink,
        stopped: Callable[[], bool] = never_stopped,
        reader: FragmentReader | None = None,
    ) -> UnitOutcome:
        """Run a unit; see `UnitRunner`."""
        outcome = UnitRunner(
            self._context,
            unit,
            store=self._store,
            reservations=self._reservations,
            sink=sink,
            errors=self._errors,
            stopped=stopped,
            reader=reader,
        ).run()
        try:
            process_environment.check_descriptors()
        except FailedPrecondition as error:
            return UnitOutcome(unit.unit_id, (), UnitFailure(error.reason, error.message), outcome.timings)
        return outcome


def run_task(worker_task_json: str) -> int:
    """Run the task of a worker; return the number of its units."""
    worker_task = _worker_tasks.decode(worker_task_json)
    return run_worker(worker_task)


def run_worker(task: WorkerTask) -> int:
    """Run units until there are none; return their number."""
    units = 0
    with connect_to_executor(task.host, task.port, task.certificate) as link:
        connection = ExecutorConnection(link)
        connection.say(msgspec.structs.replace(task.hello, worker=f"worker {os.getpid()} on {socket.gethostname()}"))
        context = connection.context()
        kept_environment.give(context.env)
        object_stores.set_store_source(object_stores.GivenStores(context.stores))
        worker_state = WorkerState(context)  # meanwhile the executor looks for a unit
        with process_environment.keep_descriptor(link.fileno()), connection.beating(context.heartbeat_seconds):
            while (unit := connection.next_unit()) is not None:
                with connection.working():
                    outcome = worker_state.run(unit, connection, stopped=connection.asked_to_stop)
                connection.say(Done(outcome))
                units += 1
    return units
