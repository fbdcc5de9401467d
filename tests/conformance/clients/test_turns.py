"""Cases that kill are done alone."""

from __future__ import annotations

import queue
import threading

from tests.conformance.clients.case_files import load
from tests.conformance.clients.turns import Turns


def test_one_that_kills_waits_for_those_at_work_and_comes_before_those_that_wait():
    turns, begun = Turns(), queue.SimpleQueue()

    def take(name: str, alone: bool) -> threading.Thread:
        def wait() -> None:
            turns.take(alone)
            begun.put(name)

        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        return thread

    turns.take(alone=False)
    turns.take(alone=False)
    killer = take("killer", alone=True)
    while not turns.waits:
        threading.Event().wait(0.001)
    other = take("other", alone=False)
    turns.give(alone=False)
    assert begun.empty()
    turns.give(alone=False)
    assert begun.get(timeout=30) == "killer"
    killer.join(30)
    assert begun.empty()
    turns.give(alone=True)
    assert begun.get(timeout=30) == "other"
    other.join(30)


def test_cases_that_kill_are_known():
    cases = load()
    assert cases["restart/watch-over-a-restart"].kills
    assert {case.suite for case in cases.values() if case.kills} == {"faults", "restart"}
