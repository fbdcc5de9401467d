"""Remote functions on a worker: their servers' addresses, versions, tokens and certificates, at every connect."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import flight

import leman
from leman.functions import FunctionServer
from leman_core.functions import function_servers
from leman_core.model.service_errors import FailedPrecondition, NotFound, Unavailable
from leman_core.model.work import InFlightRows, ProgressReport, ServerAccess
from leman_executor.worker import remote_server
from leman_executor.worker.remote_calls import RemoteFunction
from leman_executor.worker.unit_runtime import UnitMetrics
from leman_executor.worker.user_errors import FunctionLost, NoServer
from tests.certificates import Authority
from tests.unit.executor.worker.door import Door
from tests.unit.executor.worker.remote_servers import DEADLY, Server, Time, batch, made, nowhere, ref, running

TEXT = pa.schema([("text", pa.string())])


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
    assert "was available for 20 s" in error.message
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
    assert "(since its last answer, it broke connections 6 times" in caught.value.error.message
    assert function.had_no_server


@pytest.mark.parametrize("opens", [False, True])
def test_a_server_that_is_silent_is_said_to_be_so(monkeypatch, opens):
    monkeypatch.setattr(function_servers, "DESCRIBE_SECONDS", 5.0 if opens else 0.2)
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
    assert "has no function 'twice'. Its functions: thrice" in caught.value.error.message


def test_other_types_are_refused():
    server = Server()
    with running(server), made(server.address, inputs=TEXT) as function, pytest.raises(NoServer) as caught:
        function(pa.record_batch([pa.array(["a"])], names=["text"]))
    assert caught.value.error.reason == "FUNCTION_SIGNATURE_MISMATCH"
    assert "the types (int64) -> int64, not (string) -> int64" in caught.value.error.message


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
    server, describe, failed = Server(), function_servers.describe_function, []

    def renewed(*asked):
        if len(failed) < 3:
            failed.append(FailedPrecondition("FUNCTION_TLS_FAILED", "it has ended"))
            raise failed[-1]
        return describe(*asked)

    with running(server), made(server.address) as function:
        monkeypatch.setattr(function_servers, "describe_function", renewed)
        assert function(batch(1)).to_pylist() == [2]


def test_others_compute_for_a_server_with_which_tls_fails_and_that_is_told_once():
    server, sent = Server(), []

    class Sink:
        def send(self, report: ProgressReport) -> None:
            sent.append(report.servers.refusals)

        def in_flight(self, in_flight: InFlightRows) -> None: ...

    with running(server):
        wrong, time = server.address.replace("grpc:", "grpc+tls:"), Time()
        with made(wrong, server.address, time=time, notes=UnitMetrics("u", Sink())) as function:
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


def test_streams_that_were_answered_end_in_order():
    server = Server()
    with running(server), made(server.address) as function:
        function(batch(1))
        function.finish()
        assert not function.is_doubted
        assert function(batch(2)).to_pylist() == [4]
        assert server.streams == 2


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
