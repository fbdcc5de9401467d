"""Which server gets the next batch."""

from __future__ import annotations

from dataclasses import dataclass, field

from leman_executor.worker.remote_server import Pace, by_expected_time


@dataclass(eq=False)
class Server:
    name: str
    at_work: int = 0
    pace: Pace = field(default_factory=Pace)


def took(name: str, *seconds: float, at_work: int = 0, rows: int = 10) -> Server:
    server = Server(name, at_work)
    for each in seconds:
        server.pace.note(rows, each, 100.0)
    return server


def order(*servers: Server, now: float = 100.0, rows: int = 10) -> str:
    return "".join(server.name for server in by_expected_time(servers, rows, now))


def test_servers_of_which_nothing_is_known_and_equal_ones_stay_in_their_order():
    assert order(took("a"), took("b", 9.0), took("c")) == "abc"
    assert order(took("a", 1.0, 1.0), took("b", 1.2, 1.3)) == "ab"
    assert order(took("b", 0.009, 0.009), took("a", 0.001, 0.001)) == "ba", "milliseconds are nothing"
    assert order() == ""


def test_the_fast_come_first_and_of_these_the_idlest():
    assert order(took("a", 2.0, 2.0), took("b", 1.0, 1.0), took("c", 1.0, 1.0)) == "bca"
    assert order(took("a", at_work=2), took("b", at_work=1), took("c")) == "cba"


def test_a_fast_server_that_has_enough_to_do_leaves_batches_to_a_slow_one():
    assert order(took("a", 2.0, 2.0), took("b", 1.0, 1.0, at_work=1)) == "ab"
    assert order(took("a", 2.0, 2.0), took("b", 1.0, 1.0)) == "ba"


def test_a_server_that_never_answers_does_not_part_the_fast_ones():
    one, other = took("a", 1.0, 1.0), took("b", 1.01, 1.01)
    assert order(took("d"), one, other) == "dab"
    assert order(took("d"), other, one) == "dba", "they are in turn"


def test_one_slow_batch_tells_nothing():
    assert order(took("a", 60.0, 1.0), took("b", 1.0, 1.0)) == "ab"
    assert order(took("a", 60.0, 50.0), took("b", 1.0, 1.0)) == "ba"


def test_a_slow_server_is_tried_again_once_that_costs_little():
    slow, fast = took("a", 2.0, 2.0), took("b", 1.0, 1.0)
    assert order(slow, fast, now=119.0) == "ba"
    assert order(slow, fast, now=120.0) == "ab"
    slow.at_work = 1
    assert order(slow, fast, now=120.0) == "ba", "it is being tried"
