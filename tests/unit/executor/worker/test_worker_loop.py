"""What a worker says to its executor."""

from __future__ import annotations

import os
import socket

from core.domain.store import StoreOptions
from core.domain.work import FragmentWork, WorkUnit
from core.stores import known
from executor.worker.messages import Alive, framed
from executor.worker.worker_loop import ExecutorConnection
from tests.unit.executor.manager_helpers import TASK


def test_a_forked_child_that_comes_back_ends_and_says_nothing():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        connection = ExecutorConnection(ours)
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
        connection = ExecutorConnection(ours)
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
        connection = ExecutorConnection(ours)
        unit = WorkUnit("next", (FragmentWork(TASK, (), finish=True),))
        theirs.sendall(framed(WorkUnit("", (), stores=(StoreOptions(root="gs://unused"),))) + framed(unit))
        assert not connection.asked_to_stop()
        assert connection.next_unit() == unit
        theirs.sendall(framed(None))
        assert connection.next_unit() is None
    known.use(known.GivenStores())
