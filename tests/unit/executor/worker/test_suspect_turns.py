"""The turns of suspects: one at a time, on a host and over all of them."""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor

from core.domain.ranges import RowRange
from core.ports import Grant
from executor.coordination.reservations import GrantAll, InProcessReservations
from executor.worker.suspect_turns import AllHosts, SuspectTurns, scope_of

FUNCTION = "twice@1"


def never() -> bool:
    return False


class Asked(InProcessReservations):
    """Tells when somebody was told to wait."""

    def __init__(self, ttl_seconds: float) -> None:
        super().__init__(ttl_seconds)
        self.refused = threading.Event()

    def reserve(self, scope: str, wanted: Sequence[RowRange], holder: str, ignored: Collection[str] = ()) -> Grant:
        grant = super().reserve(scope, wanted, holder, ignored)
        if grant.busy:
            self.refused.set()
        return grant


def test_one_suspect_at_a_time_is_tried_whichever_host_it_is_on(tmp_path):
    reservations = Asked(6.0)
    one, other = (SuspectTurns(FUNCTION, AllHosts(reservations, 6.0, never), tmp_path / name) for name in "ab")
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


def test_the_turn_of_a_host_that_died_is_over(tmp_path):
    reservations = InProcessReservations(0.05)
    reservations.reserve(scope_of(FUNCTION), (RowRange(0, 1),), "dead")
    with SuspectTurns(FUNCTION, AllHosts(reservations, 0.05, never), tmp_path).one():
        pass


def test_a_reservation_that_never_ends_and_is_not_renewed_counts_for_nothing(tmp_path):
    """Redis's clock was set back."""
    reservations = InProcessReservations(3600.0)
    reservations.reserve(scope_of(FUNCTION), (RowRange(0, 1),), "dead")
    with SuspectTurns(FUNCTION, AllHosts(reservations, 0.05, never), tmp_path).one():
        pass


def test_a_turn_is_kept_for_as_long_as_its_batch_takes(tmp_path):
    renewed = threading.Event()

    class Renewed(InProcessReservations):
        def renew(self, scopes, holder):
            renewed.set()
            return super().renew(scopes, holder)

    with SuspectTurns(FUNCTION, AllHosts(Renewed(0.05), 0.05, never), tmp_path).one():
        assert renewed.wait(20)


def test_nobody_waits_for_another_host_without_redis_nor_once_the_unit_is_to_stop(tmp_path):
    with SuspectTurns(FUNCTION, AllHosts(GrantAll(), 6.0, never), tmp_path).one():
        pass
    reservations = InProcessReservations(6.0)
    reservations.reserve(scope_of(FUNCTION), (RowRange(0, 1),), "somebody")
    with SuspectTurns(FUNCTION, AllHosts(reservations, 6.0, lambda: True), tmp_path).one():
        pass
