"""One behaviour, two kinds of reservations; and what happens when Redis goes away."""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis as redis_py

from leman_core.model.row_positions import RowRange, merge_ranges
from leman_core.model.service_errors import InvalidArgument
from leman_executor.coordination.leases import check_workers_accepted
from leman_executor.coordination.reservations import InProcessReservations, RedisReservations, reservations_at
from tests.redis_process import RedisProcess

LEASE_SECONDS = 0.4
SECURITY = Path(__file__).parents[2] / "docs/security.md"


@pytest.fixture
def redis(tmp_path) -> Iterator[RedisProcess]:
    with RedisProcess(tmp_path) as server:
        yield server


@pytest.fixture(params=["memory", "redis"])
def reservations(request):
    if request.param == "memory":
        return InProcessReservations(LEASE_SECONDS)
    return RedisReservations(request.getfixturevalue("redis").url, LEASE_SECONDS)


def until_free(reservations, holder: str, wanted: RowRange) -> float:
    """Seconds until `wanted` is granted in full."""
    begin = time.monotonic()
    pause = threading.Event()
    while time.monotonic() - begin < 10:
        if reservations.reserve("s", [wanted], holder).granted == (wanted,):
            return time.monotonic() - begin
        pause.wait(0.02)
    raise AssertionError("never free")


def test_what_is_free_is_granted(reservations):
    grant = reservations.reserve("s", [RowRange(0, 10)], "a")
    assert grant.granted == (RowRange(0, 10),)
    assert grant.busy == ()
    assert not grant.others_finished


def test_what_is_held_is_busy_and_the_rest_is_granted(reservations):
    reservations.reserve("s", [RowRange(10, 20), RowRange(40, 50)], "a")
    grant = reservations.reserve("s", [RowRange(0, 15), RowRange(18, 60)], "b")
    assert grant.busy == (RowRange(10, 15), RowRange(18, 20), RowRange(40, 50))
    assert grant.granted == (RowRange(0, 10), RowRange(20, 40), RowRange(50, 60))
    third = reservations.reserve("s", [RowRange(0, 60)], "c")
    assert third.granted == ()
    assert merge_ranges(third.busy) == [RowRange(0, 60)]


def test_all_of_a_holder_is_given_back(reservations):
    for scope in ("s", "t", "u"):
        reservations.reserve(scope, [RowRange(0, 10), RowRange(20, 30)], "a")
    reservations.reserve("s", [RowRange(10, 20)], "b")
    reservations.release_all(["s", "t", "nothing reserved here"], "a")
    assert reservations.reserve("s", [RowRange(0, 30)], "c").busy == (RowRange(10, 20),)
    assert reservations.reserve("t", [RowRange(0, 30)], "c").granted == (RowRange(0, 30),)
    assert merge_ranges(reservations.reserve("u", [RowRange(0, 30)], "c").busy) == [RowRange(0, 10), RowRange(20, 30)]
    reservations.renew(["s"], "a")
    assert reservations.reserve("s", [RowRange(0, 10)], "c").granted == (RowRange(0, 10),), "nothing came back"


def test_scopes_do_not_meet(reservations):
    reservations.reserve("s", [RowRange(0, 10)], "a")
    assert reservations.reserve("t", [RowRange(0, 10)], "b").busy == ()


def test_the_holder_itself_may_ask_again(reservations):
    reservations.reserve("s", [RowRange(0, 10)], "a")
    assert reservations.reserve("s", [RowRange(5, 12)], "a").granted == (RowRange(5, 12),)


def test_release_frees_only_what_the_holder_has(reservations):
    reservations.reserve("s", [RowRange(0, 5)], "a")
    reservations.reserve("s", [RowRange(5, 9)], "b")
    reservations.release("s", [RowRange(0, 5)], "a", finished=False)
    grant = reservations.reserve("s", [RowRange(0, 9)], "c")
    assert grant.granted == (RowRange(0, 5),)
    assert not grant.others_finished


def test_release_leaves_other_ranges_of_the_holder(reservations):
    reservations.reserve("s", [RowRange(0, 5)], "a")
    reservations.reserve("s", [RowRange(5, 9)], "a")
    reservations.release("s", [RowRange(0, 5)], "a", finished=True)
    assert reservations.reserve("s", [RowRange(0, 9)], "b").busy == (RowRange(5, 9),)


def test_finished_work_of_another_job_is_announced(reservations):
    reservations.reserve("s", [RowRange(0, 5)], "a")
    reservations.release("s", [RowRange(0, 5)], "a", finished=True)
    assert not reservations.reserve("s", [RowRange(0, 5)], "a").others_finished
    assert reservations.reserve("s", [RowRange(0, 5)], "b").others_finished


def test_a_reservation_ends_unless_it_is_renewed(reservations):
    whole = RowRange(0, 5)
    reservations.reserve("s", [whole], "a")
    for _ in range(3):
        threading.Event().wait(LEASE_SECONDS / 2)
        reservations.renew(["s"], "a")
    assert reservations.reserve("s", [whole], "b").busy == (whole,)
    assert until_free(reservations, "b", whole) >= LEASE_SECONDS / 4


def test_a_later_attempt_takes_over_what_an_earlier_one_holds_which_learns_it(reservations):
    whole = RowRange(0, 10)
    reservations.reserve("s", [whole], "job-1#1")
    assert reservations.renew(["s"], "job-1#1")
    taken = reservations.reserve("s", [whole], "job-1#2")
    assert (taken.granted, taken.busy, taken.overtaken) == ((whole,), (), False)
    assert not reservations.renew(["s"], "job-1#1")
    assert reservations.renew(["s"], "job-1#2")
    late = reservations.reserve("s", [whole, RowRange(20, 30)], "job-1#1")
    assert late.overtaken
    assert late.busy == (whole,)
    reservations.release("s", [whole], "job-1#1", finished=False)
    assert reservations.reserve("s", [whole], "job-2#1").busy == (whole,), "an earlier attempt gives nothing back"


def test_attempts_of_other_jobs_are_others(reservations):
    whole = RowRange(0, 10)
    reservations.reserve("s", [whole], "job-1#1")
    for other in ("job-10#2", "job#2", "job-1#1#2", "job-2"):
        grant = reservations.reserve("s", [whole], other)
        assert (grant.granted, grant.overtaken) == ((), False)
    assert reservations.renew(["s"], "job-1#1")


def test_a_hold_says_whose_it_is_and_changes_when_it_is_renewed(reservations):
    reservations.reserve("s", [RowRange(0, 10)], "job-1#1")
    reservations.reserve("s", [RowRange(20, 30)], "job-2#1")
    (hold,) = reservations.reserve("s", [RowRange(0, 15)], "job-3#1").holds
    assert hold.startswith("0-10-job-1#1=")
    assert reservations.reserve("s", [RowRange(5, 8)], "job-3#1").holds == (hold,)
    threading.Event().wait(0.01)
    reservations.renew(["s"], "job-1#1")
    assert reservations.reserve("s", [RowRange(0, 10)], "job-3#1").holds != (hold,)
    assert reservations.reserve("s", [RowRange(10, 20)], "job-4#1").busy == (RowRange(10, 15),)


def test_a_hold_that_is_ignored_is_nobodys_unless_it_was_renewed(reservations):
    whole = RowRange(0, 10)
    reservations.reserve("s", [whole], "job-1#1")
    (hold,) = reservations.reserve("s", [whole], "job-2#1").holds
    threading.Event().wait(0.01)
    reservations.renew(["s"], "job-1#1")
    (renewed,) = reservations.reserve("s", [whole], "job-2#1", [hold]).holds
    assert reservations.reserve("s", [whole], "job-2#1", [hold, renewed]).granted == (whole,)
    assert reservations.reserve("s", [whole], "job-3#1").busy == (whole,)


@pytest.mark.parametrize("field", ["0-60-somebody", "0-60-somebody#7", "0-60-"])
def test_a_field_that_never_expires_can_be_ignored(redis, field):
    """Written by someone else, or before the clock of Redis was set back; and it comes back again and again."""
    reservations, whole = RedisReservations(redis.url, LEASE_SECONDS), RowRange(0, 60)
    client = redis_client(redis)
    for _ in range(2):
        client.hset("leman:reservation:s", field, "99999999999999")
        (hold,) = reservations.reserve("s", [whole], "job#1").holds or (f"{field}=99999999999999",)
        assert reservations.reserve("s", [whole], "job#1", [hold]).granted == (whole,)


def test_fields_that_are_no_reservations_count_for_nothing(redis):
    reservations, whole = RedisReservations(redis.url, LEASE_SECONDS), RowRange(0, 60)
    client = redis_client(redis)
    for field, value in (("junk", "1"), ("0-60-job", "soon"), ("-", ""), ("a-b-c", "99999999999999")):
        client.hset("leman:reservation:s", field, value)
    assert reservations.reserve("s", [whole], "job#1").granted == (whole,)
    assert reservations.renew(["s"], "job#1")
    assert reservations.reserve("s", [whole], "other#1").busy == (whole,)


def redis_client(server: RedisProcess) -> redis_py.Redis:
    return redis_py.Redis.from_url(server.url)


def test_without_redis_everything_is_granted_and_quickly(redis):
    reservations = RedisReservations(redis.url, LEASE_SECONDS)
    whole = RowRange(0, 5)
    reservations.reserve("s", [whole], "a")
    redis.pause()
    begin = time.monotonic()
    for _ in range(50):
        grant = reservations.reserve("s", [whole], "b")
        assert grant.granted == (whole,)
        assert grant.others_finished, "look at the store: no one can say"
        reservations.renew(["s"], "b")
        reservations.release("s", [whole], "b", finished=True)
    assert time.monotonic() - begin < 5
    redis.resume()
    reservations.reserve("t", [whole], "a")
    assert until_busy(reservations, whole)


def until_busy(reservations, whole: RowRange) -> bool:
    """Redis is back: what is reserved is seen again."""
    begin = time.monotonic()
    pause = threading.Event()
    while time.monotonic() - begin < 10:
        reservations.reserve("u", [whole], "a")
        if reservations.reserve("u", [whole], "b").busy == (whole,):
            return True
        pause.wait(0.05)
    return False


def test_ranges_are_given_out_once_under_contention(redis):
    owners: dict[int, str] = {}
    clashes: list[int] = []

    def worker(name: str) -> None:
        reservations = RedisReservations(redis.url, 30, timeout_seconds=5)
        for start in range(0, 200, 7):
            for granted in reservations.reserve("s", [RowRange(start, start + 20)], name).granted:
                for row in range(*granted):
                    if owners.setdefault(row, name) != name:
                        clashes.append(row)

    threads = [threading.Thread(target=worker, args=(f"job{i}",)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not clashes
    assert set(owners) == set(range(216))


def test_one_connection_outlives_a_redis_that_was_started_again(tmp_path):
    server = RedisProcess(tmp_path)
    with server:
        reservations = RedisReservations(server.url, LEASE_SECONDS)
        assert reservations.reserve("s", [RowRange(0, 10)], "a").granted
        assert reservations.reserve("s", [RowRange(0, 10)], "b").granted == ()
    with RedisProcess(tmp_path, server.sockets):
        assert reservations.reserve("s", [RowRange(0, 10)], "b").granted, "what was held is forgotten"
        assert reservations.reserve("s", [RowRange(0, 10)], "a").granted == (), "and it is asked again, not bypassed"


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_fork_has_a_connection_of_its_own(redis):
    reservations = RedisReservations(redis.url, 60)
    reservations.reserve("s", [RowRange(0, 10)], "a")
    context = multiprocessing.get_context("fork")
    child = context.Process(target=reservations.reserve, args=("s", [RowRange(10, 20)], "child"))
    child.start()
    child.join(10)
    assert child.exitcode == 0
    grant = reservations.reserve("s", [RowRange(0, 30)], "b")
    assert grant.granted == (RowRange(20, 30),)


def test_jobs_of_one_process_share_a_connection():
    assert reservations_at("redis://127.0.0.1:1/0", 6) is reservations_at("redis://127.0.0.1:1/0", 6)
    assert reservations_at("redis://127.0.0.1:1/0", 6) is not reservations_at("redis://127.0.0.1:2/0", 6)


WORKERS_ACL = (
    "on >limited resetkeys ~leman:reservation:* resetchannels -@all +eval +evalsha +script|load +time +hgetall \
+hkeys +hset +hdel +pexpire +expire +smembers +sadd"
)


def test_a_user_of_redis_that_may_touch_reservations_alone_is_enough_for_workers(redis):
    """The rights are those of docs/security.md."""
    assert " ".join(WORKERS_ACL.split()).replace(">limited", ">PASSWORD") in " ".join(SECURITY.read_text().split())
    with redis_py.Redis.from_url(redis.url) as admin:
        admin.execute_command("ACL", "SETUSER", "workers", *WORKERS_ACL.split())
        admin.set("leman:job-env:job-1", "sealed")
        limited = redis.url.replace("unix://", "unix://workers:limited@")
        check_workers_accepted(limited)
        ours = RedisReservations(limited, LEASE_SECONDS)
        ours.check()
        assert ours.reserve("s", [RowRange(0, 10)], "a#1").granted == (RowRange(0, 10),)
        theirs = RedisReservations(redis.url, LEASE_SECONDS).reserve("s", [RowRange(0, 10)], "b#1")
        assert theirs.busy == (RowRange(0, 10),), "it was reserved, and not granted as if Redis were away"
        with redis_py.Redis.from_url(limited) as client:
            for refused in (
                lambda: client.get("leman:job-env:job-1"),
                lambda: client.keys("*"),
                lambda: client.eval("return redis.call('get', KEYS[1])", 1, "leman:job-env:job-1"),
                lambda: client.eval("return redis.call('hgetall', KEYS[1])", 1, "leman:job:job-1"),
                lambda: client.config_get("*"),
                client.flushall,
            ):
                with pytest.raises(redis_py.RedisError, match=r"(?i)permission|can't access|can't run"):
                    refused()


def test_workers_that_may_not_reserve_rows_are_a_wrong_setting(redis):
    with redis_py.Redis.from_url(redis.url) as admin:
        admin.execute_command("ACL", "SETUSER", "workers", "on", ">limited", "~leman:*", "-@all", "+eval", "+evalsha")
    limited = redis.url.replace("unix://", "unix://workers:limited@")
    for url in (limited, limited.replace(":limited", ":wrong")):
        with pytest.raises(InvalidArgument, match="WORKERS_URL: Redis does not let its user reserve rows") as refused:
            check_workers_accepted(url)
        assert refused.value.reason == "BAD_SETTING"
