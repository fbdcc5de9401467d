"""Leases of jobs in a real Redis: who has one, and what is no lease although it lies under its key."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import redis

from leman_core.model.keys import job_key
from leman_core.model.service_errors import InvalidArgument
from leman_executor.coordination.env_values import env_values_key
from leman_executor.coordination.leases import JobLeases, LeaseOutcome, check_accepted
from tests.redis_process import RedisProcess

KEY = "leman:job:j"


@pytest.fixture
def server(tmp_path) -> Iterator[RedisProcess]:
    with RedisProcess(tmp_path) as running:
        yield running


def connection(server: RedisProcess) -> redis.Redis:
    return redis.Redis.from_url(server.url)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Leases(JobLeases):
    """With a clock that the test moves."""

    def __init__(self, url: str, owner: str) -> None:
        self.time = Clock()
        super().__init__(url, owner, clock=self.time)


def asked(leases: Sequence[JobLeases], *questions: Any) -> list[Any]:
    """The answers, one after the other on one event loop; then the leases' connections are closed."""

    async def ask() -> list[Any]:
        try:
            return [await question() for question in questions]
        finally:
            for each in leases:
                await each.close()

    return asyncio.run(ask())


def test_it_is_kept_beside_what_is_done(server):
    """For twice as long as it lives by itself."""
    mine, another = JobLeases(server.url, "mine", 1.5), JobLeases(server.url, "another", 1.5)

    async def work() -> set[LeaseOutcome]:
        found = set()
        async with mine.kept("j"):
            end = time.monotonic() + 2 * mine.lease_seconds
            while time.monotonic() < end:
                found.add(await another.acquire("j"))
                await asyncio.sleep(0.02)
        return found

    answers = asked(
        [mine, another], lambda: mine.acquire("j"), work, lambda: mine.release("j"), lambda: another.acquire("j")
    )
    assert answers == [LeaseOutcome.OURS, {LeaseOutcome.HELD}, None, LeaseOutcome.OURS]


def test_one_has_it_until_it_is_given_up(server):
    first, second = JobLeases(server.url, "first"), JobLeases(server.url, "second")
    answers = asked(
        [first, second],
        lambda: first.acquire("j"),
        lambda: second.acquire("j"),
        lambda: first.acquire("j"),
        lambda: first.renew("j"),
        lambda: second.renew("j"),
        lambda: first.release("j"),
        lambda: second.acquire("j"),
        lambda: first.renew("j"),
    )
    ours, held = LeaseOutcome.OURS, LeaseOutcome.HELD
    assert answers == [ours, held, ours, True, False, None, ours, False]


def test_a_lease_says_where_its_holder_is_reached(server):
    known, unknown, asks = (JobLeases(server.url, name) for name in ("known", "unknown", "asks"))
    known.reached_at("127.0.0.1:7002")
    known.reached_at("127.0.0.1:7003")
    answers = asked(
        [known, unknown, asks],
        lambda: asks.holder("j"),
        lambda: known.acquire("j"),
        lambda: known.renew("j"),
        lambda: asks.holder("j"),
        lambda: known.holder("j"),
        lambda: unknown.acquire("other"),
        lambda: asks.holder("other"),
    )
    assert answers == [None, LeaseOutcome.OURS, True, "127.0.0.1:7003", None, LeaseOutcome.OURS, ""]


def test_a_lease_that_was_forgotten_is_taken_again_and_history_is_asked(server):
    leases = JobLeases(server.url, "me")
    client = connection(server)

    async def flush() -> None:
        client.flushall()

    assert asked(
        [leases], lambda: leases.acquire("j"), flush, lambda: leases.renew("j"), lambda: leases.renew("j")
    ) == [
        LeaseOutcome.OURS,
        None,
        False,
        True,
    ]
    assert client.get(KEY) == b"me"
    assert 0 < client.pttl(KEY) <= 10_000


@pytest.mark.parametrize("expiry", [{}, {"px": 3_600_000}], ids=["no expiry", "a clock that was set back"])
def test_what_does_not_expire_as_a_lease_does_is_taken_after_a_few_lifetimes(server, expiry):
    leases = Leases(server.url, "me")
    client = connection(server)
    client.set(KEY, "somebody", **expiry)

    async def wait(seconds: float) -> None:
        leases.time.now += seconds

    def ask() -> Any:
        return leases.acquire("j")

    answers = asked([leases], ask, lambda: wait(29), ask, lambda: wait(1.5), ask)
    assert answers == [LeaseOutcome.HELD, None, LeaseOutcome.HELD, None, LeaseOutcome.OURS]
    assert 0 < client.pttl(KEY) <= 10_000


def test_a_holder_that_renews_is_never_pushed_out(server):
    holder, leases = JobLeases(server.url, "holder"), Leases(server.url, "me")
    client = connection(server)

    async def wait() -> None:
        leases.time.now += 20

    async def set_back() -> None:
        client.pexpire(KEY, 3_600_000)

    def ask() -> Any:
        return leases.acquire("j")

    renew = [lambda: holder.renew("j"), ask, wait]
    answers = asked(
        [holder, leases], lambda: holder.acquire("j"), ask, set_back, ask, wait, *renew, *renew, set_back, ask
    )
    assert LeaseOutcome.OURS not in answers[1:]


def test_a_key_of_another_kind_is_no_lease(server):
    leases = Leases(server.url, "me")
    connection(server).hset(KEY, "a", "b")

    async def wait() -> None:
        leases.time.now += 31

    assert asked([leases], lambda: leases.acquire("j"), wait, lambda: leases.acquire("j")) == [
        LeaseOutcome.HELD,
        None,
        LeaseOutcome.OURS,
    ]


def test_without_redis_nothing_is_known_and_who_is_alone_need_not_wait(server):
    server.pause()
    leases = JobLeases(server.url, "me")
    assert asked([leases], lambda: leases.acquire("j"), lambda: leases.renew("j")) == [LeaseOutcome.UNKNOWN, False]
    server.resume()
    assert leases.patience(1, lost=False) == 60.0
    assert leases.patience(3, lost=False) == 240.0
    assert JobLeases(server.url, "me", alone=True).patience(1, lost=False) == 0.0
    assert JobLeases("", "me").patience(1, lost=False) == 0.0
    assert JobLeases("", "me").patience(1, lost=True) == 60.0
    none = JobLeases("", "me")
    calls = lambda: none.acquire("j"), lambda: none.renew("j"), lambda: none.release("j", ended=True)
    assert asked([none], *calls) == [LeaseOutcome.UNKNOWN, True, None]


def test_a_job_is_open_until_its_end_and_free_once_its_holder_is_gone(server):
    first, second, client = JobLeases(server.url, "first"), JobLeases(server.url, "second"), connection(server)

    async def dies() -> None:
        client.delete(KEY)

    async def flush() -> None:
        client.flushall()

    answers = asked(
        [first, second],
        lambda: first.acquire("j", "/lake"),
        second.open_jobs,
        lambda: second.without_holder(["j", "k"]),
        flush,
        lambda: first.renew("j"),
        second.open_jobs,
        dies,
        lambda: second.without_holder({"j"}),
        lambda: second.acquire("j", "/lake"),
        lambda: second.release("j"),
        second.open_jobs,
        lambda: second.acquire("j"),
        lambda: second.release("j", ended=True),
        first.open_jobs,
    )
    known = {"j": "/lake"}
    ours = LeaseOutcome.OURS
    assert answers == [ours, known, {"k"}, None, False, known, None, {"j"}, ours, None, known, ours, None, {}]


def test_what_an_earlier_release_noted_by_a_jobs_id_counts_for_the_job_of_the_database_that_it_noted(server):
    leases, client = JobLeases(server.url, "me"), connection(server)
    ours, copied = (job_key(database, "j") for database in ("/lake", "/copy"))
    client.set(KEY, "earlier")
    client.hset("leman:open-jobs", "j", "/lake")
    client.set(env_values_key("j"), "values")

    async def dies() -> None:
        client.delete(KEY)

    acquire = [functools.partial(leases.acquire, ours, "/lake"), functools.partial(leases.acquire, copied, "/copy")]
    answers = asked([leases], *acquire, dies, acquire[0], leases.open_jobs)
    assert answers == [LeaseOutcome.HELD, LeaseOutcome.OURS, None, LeaseOutcome.OURS, {ours: "/lake", copied: "/copy"}]
    assert (client.get(env_values_key(ours)), client.get(env_values_key(copied))) == (b"values", None)


def test_what_is_under_the_name_of_the_open_jobs_harms_nobody(server):
    leases, client = JobLeases(server.url, "me"), connection(server)
    client.set("leman:open-jobs", "no hash")

    end = functools.partial(leases.release, "j", ended=True)
    answers = asked([leases], leases.open_jobs, lambda: leases.acquire("j", "/lake"), leases.open_jobs, end)
    assert answers == [None, LeaseOutcome.OURS, None, None]
    assert client.get(KEY) is None


def test_of_many_jobs_the_free_ones_are_found(server):
    leases = JobLeases(server.url, "me")
    jobs = [f"j{i}" for i in range(1201)]
    held = {"j0", "j700", "j1200"}
    for job in held:
        connection(server).set(f"leman:job:{job}", "x")
    assert asked([leases], lambda: leases.without_holder(jobs)) == [set(jobs) - held]


def test_without_redis_nothing_is_known_of_open_jobs(tmp_path):
    with RedisProcess(tmp_path) as running:
        gone = JobLeases(running.url, "me")
    for leases in (JobLeases("", "me"), gone):
        calls = (
            leases.open_jobs,
            lambda leases=leases: leases.without_holder(["j"]),
            lambda leases=leases: leases.holder("j"),
        )
        assert asked([leases], *calls) == [None, None, ""]


@pytest.fixture
def refused(server) -> Iterator[list[str]]:
    """Urls that Redis refuses."""
    connection(server).config_set("requirepass", "right")
    connection_of(server, "right").acl_setuser("guest", enabled=True, passwords=["+guest"], keys=["*"])
    yield [server.url, server.url.replace("//", "//:wrong@"), server.url.replace("//", "//guest:guest@")]
    connection_of(server, "right").config_set("requirepass", "")


def connection_of(server: RedisProcess, password: str) -> redis.Redis:
    return redis.Redis.from_url(server.url.replace("//", f"//:{password}@"))


def test_a_redis_that_refuses_an_executor_may_have_the_leases_of_others(refused):
    for url in refused:
        assert asked([leases := JobLeases(url, "me")], functools.partial(leases.acquire, "j", "/lake")) == [
            LeaseOutcome.HELD
        ]
    alone = JobLeases(refused[0], "me", alone=True)
    assert asked([alone], functools.partial(alone.acquire, "j", "/lake")) == [LeaseOutcome.UNKNOWN]


def test_an_executor_that_redis_refuses_does_not_start(refused, server, tmp_path):
    for url in refused:
        with pytest.raises(InvalidArgument, match="LEMAN_REDIS__URL: Redis refuses its user or password") as caught:
            check_accepted(url)
        assert caught.value.reason == "BAD_SETTING"
        assert "wrong@" not in str(caught.value)
    check_accepted(server.url.replace("//", "//:right@"))
    check_accepted("")
    with RedisProcess(tmp_path) as running:
        gone = running.url
    check_accepted(gone)
