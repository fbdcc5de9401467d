"""Jobs that no one has are found by an executor that no one asks; those that someone has are left to them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable

from leman_core.model.databases import RegisteredDatabase, Registrations
from leman_core.model.job import JobState
from leman_core.model.service_errors import LemanError, Unavailable
from leman_core.server.database_locations import DatabaseLocations
from leman_core.storage.database_roots import EVERYWHERE, DatabaseRoots
from leman_executor.manager import takeovers as abandoned_jobs
from leman_executor.manager.takeovers import AbandonedJobs
from tests.unit.executor.job_manager.test_takeover import Pair, idle, until, with_two


class Leases:
    """What Redis says; None: nothing."""

    def __init__(self, noted: dict[str, str] | None = None, held: Collection[str] | None = ()) -> None:
        self.noted, self.held = noted if noted is not None else {}, held

    async def open_jobs(self) -> dict[str, str] | None:
        return None if self.held is None else dict(self.noted)

    async def without_holder(self, jobs: Collection[str]) -> set[str] | None:
        return None if self.held is None else set(jobs) - set(self.held)


class TakesOver:
    """Notes what is taken over; `failing` databases cannot be read."""

    def __init__(self, left: dict[str, list[str]] | None = None) -> None:
        self.left, self.failing = left or {}, set[str]()
        self.taken: list[tuple[str, list[str]]] = []
        self.asked: list[str] = []

    async def take_over_abandoned(self, path: str, keys: Iterable[str]) -> None:
        self.asked.append(path)
        self._check(path)
        self.taken.append((path, list(keys)))

    async def left_in(self, path: str) -> list[str]:
        self.asked.append(path)
        self._check(path)
        return self.left.get(path, [])

    def _check(self, path: str) -> None:
        if path in self.failing:
            raise Unavailable("STORE_UNAVAILABLE", "away")


class Registry:
    def __init__(self, *roots: str, error: LemanError | None = None) -> None:
        self._roots, self.error = roots, error

    def read(self) -> Registrations:
        if self.error is not None:
            raise self.error
        made = [
            RegisteredDatabase(name=f"d{i}", root=root, created_at=0, updated_at=0)
            for i, root in enumerate(self._roots)
        ]
        return Registrations(by_name={database.name: database for database in made})


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def search(
    takes_over: TakesOver,
    leases: Leases,
    registry: Registry | None = None,
    roots: DatabaseRoots = EVERYWHERE,
    clock: Callable[[], float] | None = None,
) -> AbandonedJobs:
    return AbandonedJobs(takes_over, leases, DatabaseLocations(roots, registry), clock or Clock())


def histories(search: AbandonedJobs) -> None:
    asyncio.run(search.look_into_histories())


def look(search: AbandonedJobs, times: int = 1) -> None:
    for _ in range(times):
        asyncio.run(search.look())


def test_a_job_is_taken_over_that_nobody_had_twice():
    takes_over, leases = TakesOver(), Leases({"a": "/x", "b": "/y", "c": "/x"}, held=["b"])
    searching = search(takes_over, leases)
    look(searching)
    assert takes_over.taken == []
    look(searching)
    assert takes_over.taken == [("/x", ["a", "c"])]


def test_who_was_late_with_a_lease_keeps_the_job():
    takes_over, leases = TakesOver(), Leases({"a": "/x"})
    searching = search(takes_over, leases)
    look(searching)
    leases.held = ["a"]
    look(searching)
    leases.held = []
    look(searching)
    assert takes_over.taken == []
    look(searching)
    assert takes_over.taken == [("/x", ["a"])]


def test_while_redis_says_nothing_nobody_is_dead():
    takes_over, leases = TakesOver({"/x": ["a"]}), Leases({"a": "/x"})
    searching = search(takes_over, leases, Registry("/x"))
    histories(searching)
    look(searching)
    leases.held = None
    look(searching, 3)
    leases.held = []
    look(searching)
    assert takes_over.taken == [], "what was seen before counts needlessly any more"
    look(searching)
    assert takes_over.taken == [("/x", ["a"])]


def test_what_redis_forgot_is_in_the_histories_of_registered_databases():
    takes_over = TakesOver({"/x": ["a", "b"], "/y": []})
    searching = search(takes_over, Leases(held=["b"]), Registry("/x", "/y"))
    histories(searching)
    look(searching, 7)
    assert takes_over.taken == [("/x", ["a"])], "it was taken over: it is not done again"
    assert takes_over.asked == ["/x", "/y", "/x"], "a look reads no history"


def test_a_database_that_cannot_be_read_leaves_the_others_in_peace_and_is_tried_again_later():
    takes_over, clock = TakesOver(), Clock()
    takes_over.failing = {"/x"}
    searching = search(takes_over, Leases({"a": "/x", "b": "/y"}), clock=clock)
    look(searching, 3)
    assert takes_over.asked.count("/x") == 1
    assert ("/y", ["b"]) in takes_over.taken
    takes_over.failing = set()
    clock.now = 121.0
    look(searching)
    assert ("/x", ["a"]) in takes_over.taken


def test_a_registry_that_cannot_be_read_keeps_nothing_up():
    takes_over = TakesOver()
    searching = search(takes_over, Leases({"a": "/x"}), Registry("/x", error=Unavailable("STORE_UNAVAILABLE", "away")))
    histories(searching)
    look(searching, 2)
    assert takes_over.taken == [("/x", ["a"])]


def test_a_database_that_takes_long_or_meets_a_bug_keeps_no_other_up(monkeypatch):
    class Slow(TakesOver):
        async def left_in(self, path: str) -> list[str]:
            if path == "/slow":
                await asyncio.Event().wait()
            if path == "/bug":
                raise RuntimeError("a bug")
            return await super().left_in(path)

    monkeypatch.setattr(abandoned_jobs, "_PLACE_SECONDS", 0.05)
    takes_over = Slow({"/x": ["a"]})
    searching = search(takes_over, Leases(), Registry("/bug", "/slow", "/x"))
    histories(searching)
    look(searching, 2)
    assert takes_over.taken == [("/x", ["a"])]


def test_databases_elsewhere_are_for_others(tmp_path):
    takes_over = TakesOver({"/elsewhere": ["b"]})
    roots = DatabaseRoots([str(tmp_path)])
    searching = search(takes_over, Leases({"a": "/elsewhere"}), Registry("/elsewhere"), roots=roots)
    histories(searching)
    look(searching, 3)
    assert takes_over.asked == []


def test_the_look_goes_on_after_a_bug():
    class Broken(Leases):
        def __init__(self) -> None:
            super().__init__()
            self.looks, self.again = 0, asyncio.Event()

        async def open_jobs(self) -> dict[str, str] | None:
            self.looks += 1
            if self.looks == 1:
                raise RuntimeError("a bug")
            self.again.set()
            return {}

    async def scenario() -> None:
        leases = Broken()
        following = asyncio.create_task(search(TakesOver(), leases).follow(0.001))
        async with asyncio.timeout(20):
            await leases.again.wait()
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)

    asyncio.run(scenario())


def test_a_killed_executors_job_goes_on_elsewhere_though_nobody_asks(database):
    async def scenario(pair: Pair) -> None:
        job_id = await pair.begin()
        assert pair.open_jobs == {pair.key(job_id): pair.database}
        searching = asyncio.create_task(pair.second.jobs.follow_abandoned(DatabaseLocations(), 0.05))
        pair.leases[0].frozen = True
        del pair.keys[pair.key(job_id)]
        await pair.second.works()
        seen = await pair.second.job(job_id)
        assert (seen.state, seen.attempt) == (JobState.RUNNING, 2)
        await pair.second.jobs.cancel(pair.database, job_id)
        await until(lambda: idle(pair.second))
        assert pair.open_jobs == {}, "what has ended is not looked for"
        searching.cancel()
        pair.leases[0].wake()

    with_two(database, scenario)


def test_who_looks_into_histories_waits_for_no_lease_that_somebody_holds(database):
    async def scenario(pair: Pair) -> None:
        job_id = await pair.begin()
        takeovers = pair.second.jobs._takeovers
        assert await takeovers.left_in(pair.database) == [pair.key(job_id)]
        assert not takeovers.waiting
        await pair.second.jobs.open_database(pair.database)
        assert set(takeovers.waiting) == {pair.key(job_id)}, "who is asked for its jobs waits, as ever"

    with_two(database, scenario)
