"""The turns of suspects: one at a time, on a host and over all of them."""

from __future__ import annotations

import fcntl
import threading
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from leman_core.model.row_positions import RowRange
from leman_core.model.work import Grant
from leman_executor.coordination.reservations import GrantAll, InProcessReservations
from leman_executor.worker.remote_calls import SharedSuspectLock, SuspectLock, suspect_scope

SERVER, OTHER = "grpc://127.0.0.1:7815", "grpc://127.0.0.1:7816"


def never() -> bool:
    return False


class Asked(InProcessReservations):
    """Reports when a caller had to wait."""

    def __init__(self, ttl_seconds: float) -> None:
        super().__init__(ttl_seconds)
        self.refused = threading.Event()

    def reserve(self, scope: str, wanted: Sequence[RowRange], holder: str, ignored: Collection[str] = ()) -> Grant:
        grant = super().reserve(scope, wanted, holder, ignored)
        if grant.busy:
            self.refused.set()
        return grant


@pytest.mark.parametrize(
    ("first", "second"), [([SERVER], [SERVER]), ([SERVER, OTHER], [OTHER]), ([OTHER, SERVER], [SERVER, OTHER])]
)
def test_one_suspect_at_a_time_is_tried_on_a_server_whichever_host_and_function_it_is_of(tmp_path, first, second):
    reservations = Asked(6.0)
    one = SuspectLock(first, SharedSuspectLock(reservations, 6.0, never), tmp_path / "a")
    other = SuspectLock(second, SharedSuspectLock(reservations, 6.0, never), tmp_path / "b")
    tried = threading.Event()

    def try_other() -> None:
        with other.one():
            tried.set()

    with ThreadPoolExecutor(1) as threads:
        with one.one():
            waiting = threads.submit(try_other)
            assert reservations.refused.wait(20)
            assert not tried.is_set()
        waiting.result(20)


def test_suspects_of_other_servers_are_not_waited_for(tmp_path):
    reservations = InProcessReservations(6.0)
    one, other = (SuspectLock([at], SharedSuspectLock(reservations, 6.0, never), tmp_path) for at in (SERVER, OTHER))
    with ThreadPoolExecutor(1) as threads, one.one():

        def try_other() -> bool:
            with other.one():
                return True

        assert threads.submit(try_other).result(20)


def test_functions_that_share_some_of_their_servers_do_not_wait_for_each_other_for_ever(tmp_path):
    shared = [[SERVER, OTHER, "grpc://a:1"], ["grpc://a:1", OTHER], [OTHER, SERVER]]
    reservations = InProcessReservations(6.0)
    at_once, most = 0, 0

    def try_often(n: int) -> None:
        nonlocal at_once, most
        turns = SuspectLock(shared[n % 3], SharedSuspectLock(reservations, 6.0, never), tmp_path / str(n % 2))
        for _ in range(20):
            with turns.one():
                at_once += 1
                most = max(most, at_once)
                at_once -= 1

    with ThreadPoolExecutor(6) as threads:
        for done in [threads.submit(try_often, n) for n in range(6)]:
            done.result(60)
    assert most == 1  # all three have OTHER
    assert not [path for folder in tmp_path.iterdir() for path in folder.iterdir()]


def test_what_processes_left_that_died_is_removed_and_what_others_have_is_not(tmp_path):
    left, held, else_s = (tmp_path / name for name in ("left.turn", "held.turn", "notes.turn"))
    left.touch()
    else_s.write_text("someone's")
    with held.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with SuspectLock([SERVER], None, tmp_path).one():
            assert not left.exists()
    assert sorted(tmp_path.iterdir()) == [held, else_s]


def test_the_turn_of_a_host_that_died_is_over(tmp_path):
    reservations = InProcessReservations(0.05)
    reservations.reserve(suspect_scope(SERVER), (RowRange(0, 1),), "dead")
    with SuspectLock([SERVER], SharedSuspectLock(reservations, 0.05, never), tmp_path).one():
        pass


def test_a_reservation_that_never_ends_and_is_not_renewed_counts_for_nothing(tmp_path):
    """Redis's clock was set back."""
    reservations = InProcessReservations(3600.0)
    reservations.reserve(suspect_scope(SERVER), (RowRange(0, 1),), "dead")
    with SuspectLock([SERVER], SharedSuspectLock(reservations, 0.05, never), tmp_path).one():
        pass


def test_a_turn_is_kept_for_as_long_as_its_batch_takes(tmp_path):
    renewed = threading.Event()

    class Renewed(InProcessReservations):
        def renew(self, scopes, holder):
            renewed.set()
            return super().renew(scopes, holder)

    with SuspectLock([SERVER], SharedSuspectLock(Renewed(0.05), 0.05, never), tmp_path).one():
        assert renewed.wait(20)


def test_nobody_waits_for_another_host_without_redis_nor_once_the_unit_is_to_stop(tmp_path):
    with SuspectLock([SERVER], SharedSuspectLock(GrantAll(), 6.0, never), tmp_path).one():
        pass
    reservations = InProcessReservations(6.0)
    reservations.reserve(suspect_scope(SERVER), (RowRange(0, 1),), "somebody")
    with SuspectLock([SERVER], SharedSuspectLock(reservations, 6.0, lambda: True), tmp_path).one():
        pass
