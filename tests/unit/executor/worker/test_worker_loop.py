"""What a worker says to its executor."""

from __future__ import annotations

import os
import socket
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

from leman_core.model.databases import StoreOptions
from leman_core.model.service_errors import FailedPrecondition
from leman_core.model.work import FragmentWork, UnitOutcome, WorkUnit
from leman_core.storage import object_stores
from leman_executor.worker import process_environment, worker_loop
from leman_executor.worker.worker_link import Alive, PlainLink, TlsLink, executor_tls, framed
from leman_executor.worker.worker_loop import ExecutorConnection, WorkerState
from tests.unit.executor.manager_helpers import TASK


def test_a_forked_child_that_comes_back_ends_and_says_nothing():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        connection = ExecutorConnection(PlainLink(ours))
        child = os.fork()
        if child == 0:
            connection.say(Alive())
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 125
        connection.say(Alive())
        theirs.setblocking(False)
        assert theirs.recv(1 << 16) == framed(Alive())


def test_a_worker_at_work_hears_that_there_are_no_more_units():
    ours, theirs = socket.socketpair()
    with ours:
        connection = ExecutorConnection(PlainLink(ours))
        assert not connection.asked_to_stop()
        theirs.sendall(framed(None))
        assert connection.asked_to_stop()
        assert connection.asked_to_stop(), "it takes nothing away"
        assert connection.next_unit() is None
        theirs.close()
        assert not connection.asked_to_stop(), "that the executor is gone is noticed elsewhere"


def test_a_unit_that_came_early_is_not_taken_for_the_end():
    """The thread that says that the worker lives may see it before the worker asks for it."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        connection = ExecutorConnection(PlainLink(ours))
        unit = WorkUnit("next", (FragmentWork(TASK, (), finish=True),))
        theirs.sendall(framed(WorkUnit("", (), stores=(StoreOptions(root="gs://unused"),))) + framed(unit))
        assert not connection.asked_to_stop()
        assert connection.next_unit() == unit
        theirs.sendall(framed(None))
        assert connection.next_unit() is None
    object_stores.set_store_source(object_stores.GivenStores())


def test_a_link_over_tls_sends_while_it_waits_and_carries_large_messages():
    """The watchdog sends while another thread waits for a unit."""
    context, certificate = executor_tls()
    ours, theirs = socket.socketpair()
    large = os.urandom(3 << 20)
    heard: list[bytes] = []

    def executor() -> None:
        with context.wrap_socket(theirs, server_side=True) as served:
            while sum(map(len, heard)) < 2 * len(large):
                heard.append(served.recv(1 << 20))
            served.sendall(large)

    def read() -> bytes:
        parts = []
        while sum(map(len, parts)) < len(large):
            parts.append(link.receive(1 << 20))
        return b"".join(parts)

    with ours, ThreadPoolExecutor(2) as threads:
        served = threads.submit(executor)
        link = TlsLink(ours, certificate)
        waiting = threads.submit(read)
        link.send(large)
        link.send(large)
        assert waiting.result(20) == large
        served.result(20)
        assert b"".join(heard) == large * 2
        assert link.receive(1) == b"", "the end"


def test_a_unit_whose_function_closed_the_worker_s_descriptors_has_failed(monkeypatch):
    outcome = UnitOutcome("u", ())
    monkeypatch.setattr(worker_loop, "UnitRunner", lambda *_, **__: SimpleNamespace(run=lambda: outcome))
    state = SimpleNamespace(_context=None, _store=None, _reservations=None, _errors=None)
    unit = SimpleNamespace(unit_id="u")
    assert WorkerState.run(state, unit, None) is outcome

    def closed() -> None:
        raise FailedPrecondition("WORKER_LOST", "descriptor 1 is closed")

    monkeypatch.setattr(process_environment, "check_descriptors", closed)
    failure = WorkerState.run(state, unit, None).failure
    assert (failure.reason, failure.message) == ("WORKER_LOST", "descriptor 1 is closed")
