"""Remote functions on a worker: balancing, failover, versions at every connect, and batches that break connections."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import flight

import leman
from core.domain.udf import ErrorAction, ErrorPolicy, ErrorRule, UdfKind
from core.domain.work import InFlightRows, ProgressReport, RemoteRef, ServerAccess, UdfRef
from core.errors import FailedPrecondition, NotFound, Unavailable
from core.remote import servers
from executor.coordination.reservations import InProcessReservations
from executor.scheduling.server_breaks import MOST_LOST, ServerBreaks
from executor.worker import remote_server, user_errors
from executor.worker.answer_watch import AnswerWatch, AwaitedAnswer
from executor.worker.evaluator import Evaluator, JobFailing
from executor.worker.meter import Meter
from executor.worker.remote_errors import FunctionLost, NoServer, ServerError, ServerNotes
from executor.worker.remote_function import RemoteFunction
from executor.worker.suspect_turns import AllHosts, SuspectTurns
from executor.worker.unit_runner import never
from executor.worker.watchdog import Watchdog
from leman.functions import FunctionServer
from tests.certificates import Authority
from tests.unit.executor.worker.door import Door

TEXT = pa.schema([("text", pa.string())])
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
    return UdfRef(
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
    suspects: SuspectTurns | None = None,
    notes: ServerNotes | None = None,
    **more: Any,
) -> RemoteFunction:
    time = time or Time()
    return RemoteFunction(
        ref(*servers, **more), pa.int64(), suspects=suspects, notes=notes, clock=lambda: time.now, sleep=time.sleep
    )


def batch(*values: Any) -> pa.RecordBatch:
    return pa.record_batch([pa.array(values, pa.int64())], names=["any"])


def nowhere() -> str:
    """An address at which nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"grpc://127.0.0.1:{free.getsockname()[1]}"


def test_batches_go_to_the_servers_in_turn_over_one_stream_each():
    one, other = Server(), Server()
    with running(one, other), made(one.address, other.address) as function:
        for number in range(10):
            assert function(batch(number)).to_pylist() == [2 * number]
        assert (one.batches, other.batches) == (5, 5)
        assert (one.streams, other.streams) == (1, 1)
        assert one.seen == [pa.schema([("x", pa.int64())])]


def test_threads_have_streams_of_their_own():
    one, other = Server(), Server()
    with running(one, other), made(one.address, other.address) as function, ThreadPoolExecutor(8) as threads:
        values = threads.map(lambda number: function(batch(number)).to_pylist(), range(400))
        assert list(values) == [[2 * number] for number in range(400)]
    assert one.batches + other.batches == 400
    assert one.streams + other.streams <= 16


def test_an_answer_that_is_none_of_the_protocol_is_nobody_s_row():
    class Vague(Server):
        def do_exchange(self, context, descriptor, reader, writer):
            told = {"leman.function": "twice", "leman.version": "1"}
            writer.begin(pa.schema([("value", pa.int64())], metadata=told))
            for _ in reader:
                writer.write_metadata(b"well")

    server = Vague()
    with running(server), made(server.address) as function, pytest.raises(FailedPrecondition) as caught:
        evaluated(function, 1, policy=ErrorPolicy((ErrorRule(ErrorAction.SKIP),)))
    assert caught.value.reason == "FUNCTION_PROTOCOL"


def test_columns_arrive_as_the_function_declares_them():
    server = Server()
    with running(server), made(server.address) as function:
        of_dictionary = pa.record_batch([pa.array([4, 5, 4], pa.int64()).dictionary_encode()], names=["x"])
        assert function(of_dictionary).to_pylist() == [8, 10, 8]
        narrow = pa.record_batch([pa.array([3], pa.int32())], names=["x"])
        assert function(narrow).to_pylist() == [6]


def test_a_server_that_is_away_costs_nobody_a_batch():
    server, time = Server(), Time()
    with running(server), made(nowhere(), server.address, nowhere(), time=time) as function:
        assert [function(batch(n)).to_pylist() for n in range(4)] == [[0], [2], [4], [6]]
    assert time.slept == []
    assert server.batches == 4


def test_a_server_that_is_started_again_is_connected_again():
    first, again = Server(), Server()
    with running(first, again), Door(first.port) as door, made(door.address) as function:
        assert function(batch(1)).to_pylist() == [2]
        door.shut()
        with Door(again.port, door.port):
            assert function(batch(2)).to_pylist() == [4]
        assert (first.batches, again.batches) == (1, 1)


def test_the_version_is_verified_at_every_connect():
    first, newer = Server(), Server(version="2")
    with running(first, newer), Door(first.port) as door, made(door.address) as function:
        function(batch(1))
        door.shut()
        with Door(newer.port, door.port), pytest.raises(NoServer) as caught:
            function(batch(2))
    assert isinstance(caught.value.error, FailedPrecondition)
    assert caught.value.error.reason == "FUNCTION_VERSION_MISMATCH"
    assert "serves version 2 of function 'twice', not 1" in caught.value.error.message
    assert newer.batches == 0


def test_a_server_of_another_version_is_passed_over():
    other, right, time = Server(version="2"), Server(), Time()
    with running(other, right), made(other.address, right.address, time=time) as function:
        assert [function(batch(n)).to_pylist() for n in range(3)] == [[0], [2], [4]]
    assert (other.batches, right.batches, time.slept) == (0, 3, [])


def test_a_stream_that_says_another_version_than_its_server_is_refused():
    class Sly(Server):
        def do_exchange(self, context, descriptor, reader, writer):
            writer.begin(pa.schema([("value", pa.int64())], metadata={"leman.function": "twice", "leman.version": "9"}))
            for _ in reader:
                pass

    server = Sly()
    with running(server), made(server.address) as function, pytest.raises(NoServer) as caught:
        function(batch(1))
    assert caught.value.error.reason == "FUNCTION_VERSION_MISMATCH"


def test_nobody_there_ends_after_the_patience_with_ever_longer_pauses():
    time = Time()
    with made(nowhere(), time=time, patience=20.0) as function, pytest.raises(NoServer) as caught:
        function(batch(1))
    error = caught.value.error
    assert isinstance(error, Unavailable)
    assert error.reason == "FUNCTION_UNAVAILABLE"
    assert "could be had for 20 s" in error.message
    assert "cannot be reached" in error.message
    for before, pause in zip(itertools.accumulate(time.slept, initial=0.0), time.slept, strict=False):
        assert pause == pytest.approx(max(0.1, before / 8), rel=0.05), "who comes back soon is found soon"
    assert len(time.slept) < 40


def test_a_server_that_died_over_batches_is_not_said_to_be_away_alone():
    server = Server()
    with running(server), Door(server.port) as door, made(door.address, patience=1.0) as function:
        function(batch(1))
        for _ in range(2):
            with pytest.raises(FunctionLost):
                function(batch(DEADLY))
        door.shut()
        with pytest.raises(NoServer) as caught:
            function(batch(2))
    assert "(it ended, or hung up, over batches 6 times since it answered one" in caught.value.error.message
    assert function.had_no_server


@pytest.mark.parametrize("opens", [False, True])
def test_a_server_that_is_silent_is_said_to_be_so(monkeypatch, opens):
    monkeypatch.setattr(servers, "DESCRIBE_SECONDS", 5.0 if opens else 0.2)
    monkeypatch.setattr(remote_server, "_OPEN_SECONDS", 0.2)

    class Frozen(Server):
        over = threading.Event()

        def do_exchange(self, context, descriptor, reader, writer):
            self.over.wait(30)

    with contextlib.ExitStack() as stack:
        if opens:
            server = Frozen()
            stack.enter_context(running(server))
            stack.callback(Frozen.over.set)
            address = server.address
        else:
            silent = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            address = f"grpc://127.0.0.1:{silent.getsockname()[1]}"
        with made(address, patience=0.0) as function, pytest.raises(NoServer) as caught:
            function(batch(1))
    assert "did not answer for 0.2 s" in caught.value.error.message


def test_who_is_to_stop_waits_for_no_server():
    time, stopped = Time(), iter([False, False, True])
    never_there = RemoteFunction(
        ref(nowhere()), pa.int64(), stopped=lambda: next(stopped), clock=lambda: time.now, sleep=time.sleep
    )
    with never_there as function, pytest.raises(NoServer):
        function(batch(1))
    assert len(time.slept) == 2


def test_a_unit_that_is_to_stop_gives_back_what_no_server_computed(lab):
    asked: list[bool] = []
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.setblocking(False)

        def stopped() -> bool:
            with contextlib.suppress(BlockingIOError):
                silent.accept()[0].close()
                asked.append(True)
            return bool(asked)

        context = lab.context(ref(f"grpc://127.0.0.1:{silent.getsockname()[1]}", patience=3600.0))
        works = [lab.work(context, fragment, [(0, 20)]) for fragment in (0, 1)]
        outcome = lab.run(context, *works, stopped=stopped)
    assert outcome.failure is None
    assert [[(r.start, r.end) for r in result.left] for result in outcome.results] == [[(0, 20)]] * 2


def test_who_comes_back_within_the_patience_gets_the_batch():
    late: list[Server] = []
    port = int(nowhere().rpartition(":")[2])

    class Waking(Time):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            if not late and self.now > 1:
                late.append(Server(port=port))

    with made(f"grpc://127.0.0.1:{port}", time=Waking()) as function:
        assert function(batch(1)).to_pylist() == [2]
        function.__exit__(None, None, None)
        late[0].shutdown()


def test_a_function_that_a_server_lacks_is_named_with_those_that_it_has():
    server = Server(name="thrice")
    with running(server), made(server.address) as function, pytest.raises(NoServer) as caught:
        function(batch(1))
    assert isinstance(caught.value.error, NotFound)
    assert "has no function 'twice'. It has thrice" in caught.value.error.message


def test_other_types_are_refused():
    server = Server()
    with running(server), made(server.address, inputs=TEXT) as function, pytest.raises(NoServer) as caught:
        function(pa.record_batch([pa.array(["a"])], names=["text"]))
    assert caught.value.error.reason == "FUNCTION_SIGNATURE_MISMATCH"
    assert "is (int64) -> int64, not (string) -> int64" in caught.value.error.message


def test_a_token_is_sent_to_whom_it_is_for():
    server = Server(token="sesame")
    with running(server):
        with made(ServerAccess(server.address, "sesame")) as function:
            assert function(batch(1)).to_pylist() == [2]
        with made(ServerAccess(server.address, "other")) as function, pytest.raises(NoServer) as caught:
            function(batch(1))
    assert caught.value.error.reason == "FUNCTION_ACCESS_DENIED"
    assert "other" not in repr(ServerAccess(server.address, "other"))


def test_servers_are_shown_certificates_and_checked(tmp_path):
    @leman.udf(name="twice", version="1")
    def twice(x: int) -> int:
        return 2 * x

    authority = Authority(tmp_path)
    own, ours = authority.server(), authority.issue("leman")
    with FunctionServer([twice], port=0, tls_cert=own.cert, tls_key=own.key, tls_client_ca=authority.ca) as server:
        address = f"grpc+tls://localhost:{server.port}"
        ca, cert, key = (Path(path).read_text() for path in (authority.ca, ours.cert, ours.key))
        with made(ServerAccess(address, ca=ca, cert=cert, key=key)) as function:
            assert function(batch(3)).to_pylist() == [6]
        wrong = {ServerAccess(address, ca=ca): "UNAVAILABLE", ServerAccess(address, cert=cert, key=key): "TLS_FAILED"}
        for access, reason in wrong.items():
            with made(access, patience=0.0) as function, pytest.raises(NoServer) as caught:
                function(batch(3))
            assert caught.value.error.reason == f"FUNCTION_{reason}"


def test_a_server_with_which_tls_fails_is_not_waited_for_like_one_that_is_away():
    server, time = Server(), Time()
    with running(server):
        wrong = server.address.replace("grpc:", "grpc+tls:")
        with made(wrong, time=time) as function, pytest.raises(NoServer) as caught:
            function(batch(1))
        assert isinstance(caught.value.error, FailedPrecondition)
        assert caught.value.error.reason == "FUNCTION_TLS_FAILED"
        assert 5.0 <= time.now < 10.0, "certificates are renewed"
        with made(wrong, nowhere(), time=Time()) as function, pytest.raises(NoServer) as caught:
            function(batch(1))
        assert "TLS" in caught.value.error.message, "the other one did not come back"


def test_a_certificate_may_be_renewed_meanwhile(monkeypatch):
    server, describe, failed = Server(), servers.describe, []

    def renewed(*asked):
        if len(failed) < 3:
            failed.append(FailedPrecondition("FUNCTION_TLS_FAILED", "it has ended"))
            raise failed[-1]
        return describe(*asked)

    with running(server), made(server.address) as function:
        monkeypatch.setattr(servers, "describe", renewed)
        assert function(batch(1)).to_pylist() == [2]


def test_others_compute_for_a_server_with_which_tls_fails_and_that_is_told_once():
    server, sent = Server(), []

    class Sink:
        def send(self, report: ProgressReport) -> None:
            sent.append(report.servers.refusals)

        def in_flight(self, in_flight: InFlightRows) -> None: ...

    with running(server):
        wrong, time = server.address.replace("grpc:", "grpc+tls:"), Time()
        with made(wrong, server.address, time=time, notes=Meter("u", Sink())) as function:
            for n in range(6):
                assert function(batch(n)).to_pylist() == [2 * n]
                time.sleep(10.0)
    assert [[wrong in text for text in refusals] for refusals in sent] == [[True]]


def test_what_is_no_function_server_is_said_to_be_none():
    class Other(flight.FlightServerBase):
        pass

    server = Other("grpc://127.0.0.1:0")
    with running(server), made(f"grpc://127.0.0.1:{server.port}") as function, pytest.raises(NoServer) as caught:
        function(batch(1))
    assert caught.value.error.reason == "FUNCTION_PROTOCOL"


def test_an_error_of_the_function_is_the_server_s_and_the_next_batch_is_computed():
    server = Server()
    with running(server), made(server.address) as function:
        with pytest.raises(ServerError, match="below") as caught:
            function(batch(-1))
        assert function(batch(1)).to_pylist() == [2]
    assert user_errors.names(caught.value) == {
        *("my.pack.BadValue", "BadValue", "ValueError", "Exception", "BaseException")
    }
    failure = user_errors.failure(caught.value, 0, 5, 1)
    assert (failure.error_type, failure.message, failure.traceback) == ("my.pack.BadValue", "below", "line 7")


def test_a_batch_that_breaks_the_connection_again_and_again_is_to_blame():
    one, other = Server(), Server()
    with running(one, other), made(one.address, other.address) as function:
        function(batch(1))
        with pytest.raises(FunctionLost, match="broke 3 times over this batch") as caught:
            function(batch(DEADLY))
        assert function(batch(2)).to_pylist() == [4]
    assert "servers' log" in str(caught.value)
    assert "a smaller `batch_size`" in str(caught.value)
    assert one.batches + other.batches == 5
    assert {"FunctionLost", "WorkerLost", "Exception"} <= user_errors.names(caught.value)
    assert user_errors.failure(caught.value, 0, 0, 1).error_type == "FunctionLost"


def test_a_whole_batch_that_the_policy_tries_again_has_as_many_chances_again():
    """Each retry was over with the first connection that broke, as if the batch was a part of one to blame."""
    server = Server()
    again = ErrorPolicy((ErrorRule(ErrorAction.RETRY, max_attempts=3), ErrorRule(ErrorAction.FAIL)))
    often = pytest.raises(JobFailing, match="broke 3 times over this batch")
    with running(server), made(server.address, policy=again) as function, often:
        evaluated(function, 1, DEADLY, policy=again)
    assert server.batches == 9


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


@pytest.mark.parametrize(("how", "values"), [("pieces", 2), ("error", 2)])
def test_no_row_gets_what_a_server_said_beyond_an_answer(how, values):
    """Each was a wrong value: what was left on the stream answered the next batch."""
    server = Talkative(how)
    with running(server), made(server.address) as function:
        for n in range(1, 4):
            with pytest.raises((NoServer, ServerError)):
                function(batch(*range(n, n + values)))


@pytest.mark.parametrize(
    "damaged",
    [
        pa.StringArray.from_buffers(2, pa.py_buffer(b"\0\0\0\0\1\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe")),
        pa.StringArray.from_buffers(2, pa.py_buffer(b"\0\0\0\0\x32\0\0\0\1\0\0\0"), pa.py_buffer(b"ab")),
    ],
    ids=["no UTF-8", "offsets out of bounds"],
)
def test_values_that_would_damage_the_table_are_an_error_of_their_rows(damaged):
    evaluate = Evaluator(lambda rows: damaged, UdfKind.RECORD_BATCH, "f", pa.string(), ("x",), ErrorPolicy())
    with pytest.raises(JobFailing, match="failed with type error"):
        evaluate(0, np.arange(2, dtype=np.int64), batch(1, 2))


@pytest.fixture
def hung(monkeypatch):
    """A server that takes 5 s to fail, and when it was asked."""
    monkeypatch.setattr(remote_server, "_slow", {})
    server, describe = Hung(), servers.describe

    def slow(client, access, function):
        if access.address == server.address:
            server.asked.append(server.time.now)
            server.time.now += 5.0
            raise servers.unavailable("it hangs")
        return describe(client, access, function)

    monkeypatch.setattr(servers, "describe", slow)
    return server


class Hung:
    def __init__(self) -> None:
        self.address, self.time = nowhere(), Time()
        self.asked: list[float] = []


def test_a_server_that_takes_long_to_fail_is_avoided_by_the_units_that_follow(hung):
    """Else each unit of a job waits for it again: two of four servers that hung took all the time there was."""
    server = Server()
    with running(server):
        for _ in range(5):
            with made(hung.address, server.address, time=hung.time) as function:
                assert [function(batch(n)).to_pylist() for n in range(4)] == [[0], [2], [4], [6]]
        assert len(hung.asked) == 1
        hung.time.now += 30.0
        with made(hung.address, server.address, time=hung.time) as function:
            for n in range(4):
                function(batch(n))
        assert len(hung.asked) == 2, "it is asked again in the end"


@pytest.mark.parametrize("others", [0, 1])
def test_where_there_is_no_other_one_it_is_asked_all_the_same(hung, others):
    """After its death a server may hang while it starts, and others may have gone for longer."""
    addresses = [hung.address, *[nowhere()] * others]
    with made(*addresses, time=hung.time, patience=30.0) as function, pytest.raises(NoServer):
        function(batch(1))
    assert len(hung.asked) >= 4
    assert all(later - earlier < 5.0 + 5.1 for earlier, later in itertools.pairwise(hung.asked))


def test_a_server_that_answers_again_is_avoided_no_more(monkeypatch):
    """Where the other one was away every batch waited five seconds for that, as long as it was avoided."""
    monkeypatch.setattr(remote_server, "_slow", {})
    server, time, describe, failed = Server(), Time(), servers.describe, []

    def slow_once(client, access, function):
        if access.address == server.address and not failed:
            failed.append(time.now)
            time.now += 5.0
            raise servers.unavailable("it hangs")
        return describe(client, access, function)

    monkeypatch.setattr(servers, "describe", slow_once)
    with running(server):
        for _ in range(2):
            with made(server.address, nowhere(), time=time) as function:
                for n in range(5):
                    assert function(batch(n)).to_pylist() == [2 * n]
    assert failed == [0.0]
    assert sum(time.slept) < 1.0


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


def test_a_slow_server_gets_fewer_batches_than_a_fast_one():
    """They had as many, so that the fast one had nothing to do half the time and more."""
    time = Time()
    fast, slow = Working(0.1, time), Working(2.0, time)
    with running(fast, slow):
        for _ in range(10):
            with made(fast.address, slow.address, time=time) as function:  # as each unit does
                for n in range(20):
                    assert function(batch(n)).to_pylist() == [2 * n]
        assert (fast.batches, slow.batches) == (198, 2)
        slow.seconds = 0.0
        with made(fast.address, slow.address, time=time) as function:
            for n in range(100):
                function(batch(n))
        assert slow.batches > 30, "it has become faster"


def test_a_server_that_answers_twice_is_found_out_before_its_values_count():
    server = Talkative("twice")
    with running(server), made(server.address) as function:
        function(batch(1, 2))
        with pytest.raises(FailedPrecondition) as caught:
            function.finish()
        assert (caught.value.reason, function.is_doubted) == ("FUNCTION_PROTOCOL", True)


def test_streams_that_were_answered_end_in_order():
    server = Server()
    with running(server), made(server.address) as function:
        function(batch(1))
        function.finish()
        assert not function.is_doubted
        assert function(batch(2)).to_pylist() == [4]
        assert server.streams == 2


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


@pytest.mark.parametrize("hosts", [1, 4])
def test_batches_that_were_at_work_beside_a_deadly_one_are_not_to_blame(tmp_path, hosts):
    """Nor where they are so again and again while it is isolated; workers are processes of their own elsewhere."""
    server, over = Ended(), threading.Event()
    reservations = InProcessReservations(6.0)

    def on_host(n: int) -> RemoteFunction:
        everywhere = AllHosts(reservations, 6.0, over.is_set) if hosts > 1 else None
        return made(server.address, suspects=SuspectTurns([server.address], everywhere, tmp_path / str(n % hosts)))

    def innocent(n: int) -> None:
        with on_host(n) as function:
            while not over.is_set():
                assert function(batch(n)).to_pylist() == [2 * n]

    def deadly() -> list[int]:
        try:
            with on_host(3) as function:
                skip = ErrorPolicy((ErrorRule(ErrorAction.SKIP),))
                return [f.offset for f in evaluated(function, *range(20), DEADLY, *range(20), policy=skip).failures]
        finally:
            over.set()

    with running(server), ThreadPoolExecutor(4) as threads:
        others = [threads.submit(innocent, n) for n in range(3)]
        assert threads.submit(deadly).result(60) == [20]
        for other in others:
            other.result(20)


def test_a_broken_connection_takes_all_its_streams_with_it():
    """Else each of them would count against the batch that comes next."""
    first, again = Server(), Server()
    with running(first, again), Door(first.port) as door, made(door.address) as function:
        for server, stream in [function._stream(1) for _ in range(4)]:
            server.give_back(stream)
        door.shut()
        with Door(again.port, door.port):
            assert function(batch(1)).to_pylist() == [2]
        assert again.streams == 1


def evaluated(
    function: RemoteFunction,
    *values: int,
    policy: ErrorPolicy = ErrorPolicy(),
    notes: ServerNotes | None = None,
    watchdog: Watchdog | None = None,
):
    evaluate = Evaluator(
        function, UdfKind.REMOTE, "twice", pa.int64(), ("x",), policy, watchdog=watchdog, servers=notes
    )
    return evaluate(0, np.arange(len(values), dtype=np.int64), batch(*values))


def test_rows_are_isolated_as_those_of_any_function():
    server = Server()
    skip = ErrorPolicy((ErrorRule(ErrorAction.SKIP, ("BadValue", "WorkerLost")),))
    with running(server), made(server.address) as function:
        result = evaluated(function, 1, -5, 3, DEADLY, 5, policy=skip)
    assert result.values.to_pylist() == [2, None, 6, None, 10]
    assert [(f.offset, f.error_type) for f in result.failures] == [(1, "my.pack.BadValue"), (3, "FunctionLost")]


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


def test_servers_that_take_batches_and_answer_none_end_the_job_and_no_row_is_to_blame():
    """A function without a timeout waited for ever."""
    server, heard = Silent(), Heard()
    skip = ErrorPolicy((ErrorRule(ErrorAction.SKIP),))
    with running(server), made(server.address, answer=0.2) as function, pytest.raises(Unavailable) as caught:
        evaluated(function, 1, 2, policy=skip, notes=Meter("u", heard))
    assert caught.value.reason == "FUNCTION_UNAVAILABLE"
    assert f"2 times in succession: {server.address} did not answer for 0.2 s" in caught.value.message
    assert "LEMAN_UDF__REMOTE_ANSWER_SECONDS" in caught.value.message
    assert heard.sums == []


def test_another_server_computes_what_one_does_not_answer():
    silent, server = Silent(), Server()
    with running(silent, server), made(silent.address, server.address, answer=0.2) as function:
        assert [function(batch(n)).to_pylist() for n in range(4)] == [[0], [2], [4], [6]]
    assert server.batches == 4


class Ends(Watchdog):
    """Lets silent servers go where it would end the process."""

    def __init__(self, seconds: float, *silent: Silent) -> None:
        super().__init__(seconds)
        self.silent, self.ends = silent, 0

    def _end(self, call):
        self.ends += 1
        for server in self.silent:
            server.over.set()


def test_a_batch_that_takes_one_server_too_long_is_tried_at_another_before_it_is_to_blame():
    """A server that froze failed the job, although the other one was there."""
    silent, server = Silent(), Server()
    with running(silent, server), Ends(0.3, silent) as watchdog:
        with made(silent.address, server.address, timeout=0.3) as function:
            for n in range(4):
                assert evaluated(function, n, watchdog=watchdog).values.to_pylist() == [2 * n]
        assert (silent.batches, server.batches, watchdog.ends) == (0, 4, 0)


@pytest.mark.parametrize("others", [0, 1])
def test_a_batch_that_takes_all_too_long_is_to_blame(others):
    silent = [Silent() for _ in range(1 + others)]
    with running(*silent), Ends(0.3, *silent) as watchdog:
        with made(*(each.address for each in silent), timeout=0.3) as function:
            evaluated(function, 1, watchdog=watchdog)
        assert watchdog.ends > 0
        assert sum(each.streams for each in silent) == 1 + others


def test_an_answer_that_is_too_large_is_not_read_and_comes_in_parts(monkeypatch):
    """A server had its callers take whatever it sent, of which they died."""
    options = [(name, 20_000 if "receive" in name else value) for name, value in servers._OPTIONS]
    monkeypatch.setattr(servers, "_OPTIONS", options)
    server = Server()
    with running(server):
        with made(server.address) as function, pytest.raises(FunctionLost, match="its answer has more than 256 MiB"):
            function(batch(*range(1000, 4000)))
        with made(server.address, policy=SKIP) as function:
            result = evaluated(function, *range(1000, 4000), policy=SKIP)
    assert result.values.to_pylist() == [2 * n for n in range(1000, 4000)]
    assert result.failures == ()


class Compressing(Server):
    """Answers every value with 0, compressed."""

    def do_exchange(self, context, descriptor, reader, writer):
        told = {"leman.function": "twice", "leman.version": "1"}
        schema = pa.schema([("value", pa.int64())], metadata=told)
        writer.begin(schema, options=pa.ipc.IpcWriteOptions(compression="zstd"))
        for chunk in reader:
            writer.write_batch(pa.record_batch([pa.array([0] * chunk.data.num_rows, pa.int64())], schema=schema))


def test_an_answer_that_is_large_once_it_is_decompressed_comes_in_parts_as_one_that_is_sent_so(monkeypatch):
    """It went on as values of any size."""
    monkeypatch.setattr(servers, "MOST_MESSAGE_BYTES", 1 << 20)
    server, rows = Compressing(), range(1 << 17, 2 << 17)
    with running(server):
        with made(server.address) as function, pytest.raises(FunctionLost, match="answered too much for") as lost:
            function(batch(*rows, 1))
        assert "more than 1 MiB, decompressed. Give the function a smaller" in str(lost.value)
        with made(server.address, policy=SKIP) as function:
            result = evaluated(function, *rows, 1, policy=SKIP)
    assert result.values.equals(pa.array([0] * (len(rows) + 1), pa.int64()))
    assert result.failures == ()


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


@pytest.mark.parametrize(("policy", "of_whole"), [(SKIP, 2), (ErrorPolicy(), 3)], ids=["isolates", "ends"])
def test_a_row_that_breaks_connections_is_found_by_few_of_them(policy, of_whole):
    """Two rows took thirty of them, by halves; where a death takes seconds that took minutes."""
    server, heard = Server(), Heard()
    with running(server), made(server.address, policy=policy, notes=(meter := Meter("u", heard))) as function:
        result = evaluated(function, *range(1000, 1400), DEADLY, *range(1400, 2000), DEADLY, policy=SKIP, notes=meter)
    assert [f.offset for f in result.failures] == [400, 1001]
    assert heard.error is None
    assert heard.broken == (of_whole - 1) + 2 * (1 + 3), "the whole one's first break was beside others"
    assert server.batches < 100


@pytest.mark.parametrize("deadly", [range(5, 100), range(5, 9)], ids=["all that come", "some"])
def test_rows_are_failed_nowhere_while_the_servers_may_be_to_blame(lab, deadly):
    """They were, in checkpoints: the next job found them failed, and did not compute them."""
    server = Breaking(frozenset(deadly))
    stopped = lambda: any(report.servers.lost >= 4 for report in lab.reports)  # noqa: E731
    with running(server):
        skip = ErrorPolicy((ErrorRule(ErrorAction.SKIP),))
        udf = replace(ref(server.address), error_policy=skip, batch_size=1)
        context = lab.context(udf, checkpoint_seconds=0.0)
        outcome = lab.run(context, lab.work(context, 0, [(0, 20)]), stopped=stopped if len(deadly) > 4 else never)
    (result,) = outcome.results
    if len(deadly) > 4:
        assert [(r.start, r.end) for r in result.left] == [(5, 20)]
        assert lab.errors == []
    else:
        assert (result.rows_computed, result.rows_failed) == (16, 4)
        assert [row.offset for row in lab.errors] == [*deadly]


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


def test_servers_that_break_every_connection_are_found_out_after_some_rows():
    """A whole table was tried row by row, at half a second for each."""
    server, heard = Server(), Heard()
    retry = ErrorRule(ErrorAction.RETRY, ("FunctionLost",), max_attempts=2)
    policy = ErrorPolicy((retry, ErrorRule(ErrorAction.SKIP)))
    with running(server), made(server.address) as function:
        evaluated(function, *[DEADLY] * (MOST_LOST - 1), policy=policy, notes=Meter("u", heard))
        assert heard.error is None
        assert heard.sums == [(0, n) for n in range(1, MOST_LOST)]
        evaluated(function, DEADLY, policy=policy, notes=Meter("v", heard))
    assert heard.error is not None
    assert "broke 3 times over this batch: " + server.address in heard.error.message


def test_rows_that_break_connections_among_others_end_no_job():
    server, heard = Server(), Heard()
    skip = ErrorPolicy((ErrorRule(ErrorAction.SKIP),))
    values = [*[DEADLY] * (MOST_LOST - 1), -1, DEADLY, 4]  # an error is an answer, too
    with running(server), made(server.address) as function:
        result = evaluated(function, *values, policy=skip, notes=Meter("u", heard))
    assert result.values.to_pylist() == [None] * (MOST_LOST + 1) + [8]
    assert heard.sums[-1][1] == MOST_LOST
    assert heard.error is None


def test_no_policy_skips_rows_because_no_server_is_there():
    skip = ErrorPolicy((ErrorRule(ErrorAction.SKIP),))
    with made(nowhere(), patience=0.0) as function, pytest.raises(Unavailable):
        evaluated(function, 1, 2, policy=skip)


def test_without_a_policy_the_row_that_fails_fails_the_job():
    server = Server()
    with running(server), made(server.address) as function, pytest.raises(JobFailing) as caught:
        evaluated(function, 1, -2)
    assert caught.value.failure.error_type == "my.pack.BadValue"


class EndsLate(AnswerWatch):
    """Ends each call in the moment in which its answer is there."""

    @contextlib.contextmanager
    def awaiting(self, cancel):
        answer = AwaitedAnswer(cancel, 0.0)
        yield answer
        answer.overdue = True
        cancel()


def test_a_stream_that_is_ended_in_the_moment_of_its_answer_is_given_no_other_batch():
    """That one broke with it, and was held for one that breaks connections."""
    server = Server()
    with running(server), made(server.address) as function:
        at, stream = function._stream(1)
        assert at.call(stream, batch(1).rename_columns(["x"]), EndsLate(1.0)).to_pylist() == [2]
        at.give_back(stream)
        again, other = function._stream(1)
        assert other is not stream
        again.give_back(other)
        assert function(batch(2)).to_pylist() == [4]
    assert (server.streams, server.batches) == (2, 2)
