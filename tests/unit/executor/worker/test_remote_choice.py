"""Remote functions on a worker: which of several servers is asked, and when one that was slow is asked again."""

from __future__ import annotations

import itertools

import pytest

from leman_core.functions import function_servers
from leman_executor.worker import remote_server
from leman_executor.worker.user_errors import NoServer
from tests.unit.executor.worker.remote_servers import (
    Ends,
    Hung,
    Server,
    Silent,
    Time,
    Working,
    batch,
    evaluated,
    made,
    nowhere,
    running,
)


@pytest.fixture
def hung(monkeypatch):
    """A server that takes 5 s to fail, and when it was asked."""
    monkeypatch.setattr(remote_server, "_slow", {})
    server, describe = Hung(), function_servers.describe_function

    def slow(client, access, function):
        if access.address == server.address:
            server.asked.append(server.time.now)
            server.time.now += 5.0
            raise function_servers.server_unavailable("it hangs")
        return describe(client, access, function)

    monkeypatch.setattr(function_servers, "describe_function", slow)
    return server


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
    server, time, describe, failed = Server(), Time(), function_servers.describe_function, []

    def slow_once(client, access, function):
        if access.address == server.address and not failed:
            failed.append(time.now)
            time.now += 5.0
            raise function_servers.server_unavailable("it hangs")
        return describe(client, access, function)

    monkeypatch.setattr(function_servers, "describe_function", slow_once)
    with running(server):
        for _ in range(2):
            with made(server.address, nowhere(), time=time) as function:
                for n in range(5):
                    assert function(batch(n)).to_pylist() == [2 * n]
    assert failed == [0.0]
    assert sum(time.slept) < 1.0


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


def test_another_server_computes_what_one_does_not_answer():
    silent, server = Silent(), Server()
    with running(silent, server), made(silent.address, server.address, answer=0.2) as function:
        assert [function(batch(n)).to_pylist() for n in range(4)] == [[0], [2], [4], [6]]
    assert server.batches == 4


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
