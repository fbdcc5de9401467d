"""Servers of remote functions, each bad in its own way, and what asks them."""

from __future__ import annotations

import base64
import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import flight

from leman._format.stored_functions import ErrorAction, ErrorPolicy, ErrorRule, UdfKind
from leman_core.model.service_errors import Unavailable
from leman_core.model.work import FunctionSpec, InFlightRows, ProgressReport, RemoteRef, ServerAccess
from leman_executor.scheduling.crash_tracker import ServerBreaks
from leman_executor.worker.call_guards import Watchdog
from leman_executor.worker.evaluator import Evaluator
from leman_executor.worker.remote_calls import RemoteFunction, SuspectLock
from leman_executor.worker.remote_server import AnswerWatch, AwaitedAnswer
from leman_executor.worker.user_errors import BatchNotes

DEADLY = 666


class Server(flight.FlightServerBase):
    """Serves `twice`: int64 to int64. It fails for values below zero, breaks the stream at 666, and counts."""

    def __init__(self, version: str = "1", port: int = 0, token: str = "", name: str = "twice") -> None:
        self.version = version
        self.name = name
        self.token = token
        self.batches = 0
        self.streams = 0
        self.seen: list[pa.Schema] = []
        self.at_work = threading.Event()
        super().__init__(f"grpc://127.0.0.1:{port}", middleware={"auth": _Auth(token)} if token else None)
        self.address = f"grpc://127.0.0.1:{self.port}"

    def do_action(self, context, action):
        told = {
            "function": self.name,
            "version": self.version,
            "inputs": base64.b64encode(pa.schema([("x", pa.int64())]).serialize()).decode(),
            "output": base64.b64encode(pa.schema([("value", pa.int64())]).serialize()).decode(),
        }
        return iter([json.dumps(told).encode()])

    def do_exchange(self, context, descriptor, reader, writer):
        asked = json.loads(descriptor.command)
        if asked["version"] != self.version:
            raise pa.ArrowInvalid("another version")
        self.streams += 1
        self.seen.append(reader.schema)
        schema = pa.schema(
            [("value", pa.int64())], metadata={"leman.function": self.name, "leman.version": self.version}
        )
        writer.begin(schema)
        for chunk in reader:
            values = chunk.data.column(0).to_pylist()
            self.batches += 1
            if DEADLY in values:
                raise flight.FlightInternalError("gone")
            if min(values, default=0) < 0:
                told = {"type": "my.pack.BadValue", "bases": ["ValueError"], "message": "below", "traceback": "line 7"}
                writer.write_metadata(json.dumps({"error": told}).encode())
            else:
                writer.write_batch(pa.record_batch([pa.array([2 * v for v in values])], schema=schema))


class _Auth(flight.ServerMiddlewareFactory):
    def __init__(self, token: str) -> None:
        super().__init__()
        self.token = token

    def start_call(self, info, headers):
        if headers.get("authorization") != [f"Bearer {self.token}"]:
            raise flight.FlightUnauthenticatedError("no")


class Time:
    """A clock that sleeping moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds + 0.001


@contextlib.contextmanager
def running(*servers: Server) -> Iterator[None]:
    try:
        yield
    finally:
        endings = [threading.Thread(target=server.shutdown, daemon=True) for server in servers]
        for ending in endings:
            ending.start()
        for ending in endings:
            ending.join(20)
        assert not any(ending.is_alive() for ending in endings), "a stream was left open"


def ref(
    *servers: ServerAccess | str,
    version: str = "1",
    inputs: pa.Schema | None = None,
    policy: ErrorPolicy = ErrorPolicy(),
    **seconds: float,
):
    schema = pa.schema([("x", pa.int64())]) if inputs is None else inputs
    access = tuple(ServerAccess(s) if isinstance(s, str) else s for s in servers)
    remote = RemoteRef(
        function="twice",
        servers=access,
        input_schema=schema.serialize().to_pybytes(),
        patience_seconds=seconds.get("patience", 60.0),
        answer_seconds=seconds.get("answer", 0.0),
    )
    return FunctionSpec(
        name="twice",
        version=version,
        kind=UdfKind.REMOTE,
        input_columns=("x",),
        bundle_uri="",
        bundle_sha256="",
        bundle_python="",
        entrypoint="",
        stateful=False,
        batch_size=0,
        error_policy=policy,
        remote=remote,
        timeout_seconds=seconds.get("timeout", 0.0),
    )


def made(
    *servers: ServerAccess | str,
    time: Time | None = None,
    suspects: SuspectLock | None = None,
    notes: BatchNotes | None = None,
    **more: Any,
) -> RemoteFunction:
    time = time or Time()
    return RemoteFunction(
        ref(*servers, **more), pa.int64(), suspects=suspects, notes=notes, clock=lambda: time.now, sleep=time.sleep
    )


def batch(*values: Any) -> pa.RecordBatch:
    return pa.record_batch([pa.array(values, pa.int64())], names=["any"])


def nowhere() -> str:
    """An address at which no one listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"grpc://127.0.0.1:{free.getsockname()[1]}"


class Talkative(Server):
    """Answers each batch as `how` says: twice, in two pieces, or with an error before the values."""

    def __init__(self, how: str) -> None:
        self.how = how
        super().__init__()

    def do_exchange(self, context, descriptor, reader, writer):
        schema = pa.schema(
            [("value", pa.int64())], metadata={"leman.function": self.name, "leman.version": self.version}
        )
        writer.begin(schema)
        for chunk in reader:
            values = [2 * v for v in chunk.data.column(0).to_pylist()]
            half = len(values) // 2
            if self.how == "error":
                writer.write_metadata(b'{"error": {"type": "E", "message": "no"}}')
            parts = {"twice": [values, values], "pieces": [values[:half], values[half:]], "error": [values]}
            for part in parts[self.how]:
                writer.write_batch(pa.record_batch([pa.array(part, pa.int64())], schema=schema))


class Hung:
    def __init__(self) -> None:
        self.address, self.time = nowhere(), Time()
        self.asked: list[float] = []


class Working(Server):
    """Takes some seconds for each batch."""

    def __init__(self, seconds: float, time: Time) -> None:
        self.seconds, self.time = seconds, time
        super().__init__()

    def do_exchange(self, context, descriptor, reader, writer):
        def chunks():
            for chunk in reader:
                self.time.now += self.seconds
                yield chunk

        super().do_exchange(context, descriptor, chunks_of(reader, chunks()), writer)


class Ended(Server):
    """A server that a deadly batch ends, with whatever else it has at work: that takes it 20 ms."""

    def __init__(self) -> None:
        self.ends = 0
        self.ended = threading.Condition()
        super().__init__()

    def do_exchange(self, context, descriptor, reader, writer):
        def chunks():
            for chunk in reader:
                with self.ended:
                    if DEADLY in chunk.data.column(0).to_pylist():
                        self.ends += 1
                        self.ended.notify_all()
                    elif self.ended.wait_for(lambda before=self.ends: self.ends > before, timeout=0.02):
                        raise flight.FlightInternalError("gone")
                yield chunk

        super().do_exchange(context, descriptor, chunks_of(reader, chunks()), writer)


class chunks_of:  # noqa: N801 -- a reader with other chunks
    def __init__(self, reader, chunks) -> None:
        self.schema, self._chunks = reader.schema, chunks

    def __iter__(self):
        return self._chunks


def evaluated(
    function: RemoteFunction,
    *values: int,
    policy: ErrorPolicy = ErrorPolicy(),
    notes: BatchNotes | None = None,
    watchdog: Watchdog | None = None,
):
    evaluate = Evaluator(function, UdfKind.REMOTE, "twice", pa.int64(), ("x",), policy, watchdog=watchdog, notes=notes)
    return evaluate(0, np.arange(len(values), dtype=np.int64), batch(*values))


class Silent(Server):
    """Takes batches, and answers none until it is let go."""

    def __init__(self) -> None:
        self.over = threading.Event()
        super().__init__()

    def do_exchange(self, context, descriptor, reader, writer):
        def chunks():
            for chunk in reader:
                self.over.wait(30)
                yield chunk

        super().do_exchange(context, descriptor, chunks_of(reader, chunks()), writer)

    def shutdown(self) -> None:
        self.over.set()
        super().shutdown()


class Ends(Watchdog):
    """Lets silent servers go where it would end the process."""

    def __init__(self, seconds: float, *silent: Silent) -> None:
        super().__init__(seconds)
        self.silent, self.ends = silent, 0

    def _end(self, call):
        self.ends += 1
        for server in self.silent:
            server.over.set()


class Compressing(Server):
    """Answers every value with 0, compressed."""

    def do_exchange(self, context, descriptor, reader, writer):
        told = {"leman.function": "twice", "leman.version": "1"}
        schema = pa.schema([("value", pa.int64())], metadata=told)
        writer.begin(schema, options=pa.ipc.IpcWriteOptions(compression="zstd"))
        for chunk in reader:
            writer.write_batch(pa.record_batch([pa.array([0] * chunk.data.num_rows, pa.int64())], schema=schema))


class Breaking(Server):
    """Breaks the stream over some values."""

    def __init__(self, deadly: frozenset[int]) -> None:
        self.deadly = deadly
        super().__init__()

    def do_exchange(self, context, descriptor, reader, writer):
        def chunks():
            for chunk in reader:
                if not self.deadly.isdisjoint(chunk.data.column(0).to_pylist()):
                    raise flight.FlightInternalError("gone")
                yield chunk

        super().do_exchange(context, descriptor, chunks_of(reader, chunks()), writer)


SKIP = ErrorPolicy((ErrorRule(ErrorAction.SKIP),))


class Heard:
    """Takes the reports of a unit, and says what its executor does about them."""

    def __init__(self) -> None:
        self.breaks = ServerBreaks("twice@1")
        self.error: Unavailable | None = None
        self.sums: list[tuple[int, int]] = []
        self.broken = 0

    def send(self, report: ProgressReport) -> None:
        sums, self.broken = (report.servers.answered, report.servers.lost), report.servers.broken
        if sums not in self.sums[-1:]:
            self.sums.append(sums)
        self.error = self.error or self.breaks.heard(report)

    def in_flight(self, in_flight: InFlightRows) -> None: ...


class EndsLate(AnswerWatch):
    """Ends each call in the moment in which its answer is there."""

    @contextlib.contextmanager
    def awaiting(self, cancel):
        answer = AwaitedAnswer(cancel, 0.0)
        yield answer
        answer.overdue = True
        cancel()
