"""Workers connect with what `open` returned, until that is closed."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from core.domain.store import StoreOptions
from core.domain.work import FragmentWork, UnitOutcome, WorkUnit
from core.stores import known
from executor.scheduling.dispatcher import Dispatcher
from executor.worker.messages import Alive, Done, Hello
from executor.worker.worker_loop import ExecutorConnection
from tests.unit.executor.manager_helpers import TASK


class Units:
    """A source that is asked for nothing."""


def test_who_opened_earlier_does_not_close_what_was_opened_after():
    """A job that was given up closes late: the attempt that has it by then keeps its workers."""

    async def scenario() -> None:
        dispatcher = Dispatcher("127.0.0.1")
        await dispatcher.start()
        first_units, second_units = Units(), Units()
        first = dispatcher.open("job", first_units)  # type: ignore[arg-type]
        second = dispatcher.open("job", second_units)  # type: ignore[arg-type]
        worker = asyncio.ensure_future(asyncio.Event().wait())
        workers: dict[str, set[Any]] = dispatcher._workers
        workers[second.secret] = {worker}
        await dispatcher.close(first)
        assert dispatcher._unit_source(Hello("job", second.secret)) is second_units
        assert dispatcher._unit_source(Hello("job", first.secret)) is None
        assert not worker.cancelled()
        worker.cancel()
        await dispatcher.close(second)
        assert dispatcher._unit_source(Hello("job", second.secret)) is None
        await dispatcher.stop()

    asyncio.run(asyncio.wait_for(scenario(), 10))


class OneUnit(Units):
    """A source with one unit, and with options of stores that are renewed while a worker has it."""

    def __init__(self) -> None:
        self.stores: tuple[StoreOptions, ...] = ()
        self.units = [WorkUnit("u", (FragmentWork(TASK, (), finish=True),))]
        self.outcomes: list[UnitOutcome] = []

    async def next_unit(self, _worker: str, *, heartbeats: bool) -> WorkUnit | None:
        assert heartbeats
        return self.units.pop() if self.units else None

    def on_alive(self, _unit: WorkUnit) -> None:
        self.stores = (StoreOptions(root="gs://lake", token="renewed"),)

    def renewed_stores(self) -> tuple[StoreOptions, ...]:
        return self.stores

    def on_outcome(self, outcome: UnitOutcome) -> None:
        self.outcomes.append(outcome)


def test_a_worker_hears_of_renewed_credentials_amid_its_unit():
    """What a long call gives is stored with the new ones."""
    before = known._source

    def work(host: str, port: int, secret: str) -> tuple[list[str], list[bool]]:
        tokens, stops = [], []
        with socket.create_connection((host, port), timeout=10) as link:
            link.settimeout(None)
            connection = ExecutorConnection(link)
            connection.say(Hello("job", secret))
            unit = connection.next_unit()
            assert unit is not None
            for _ in range(2):  # it is told once
                connection.say(Alive())
                while known.options_of("gs://lake/t.lance") is None:
                    connection.take_in()
                stops.append(connection.asked_to_stop())
                options = known.options_of("gs://lake/t.lance")
                tokens.append(options.token if options else "")
            connection.say(Done(UnitOutcome("u", ())))
            assert connection.next_unit() is None
        return tokens, stops

    async def scenario() -> None:
        dispatcher, source = Dispatcher("127.0.0.1"), OneUnit()
        await dispatcher.start()
        endpoint = dispatcher.open("job", source)  # type: ignore[arg-type]
        tokens, stops = await asyncio.to_thread(work, endpoint.host, endpoint.port, endpoint.secret)
        assert (tokens, stops) == (["renewed"] * 2, [False] * 2)
        assert [outcome.unit_id for outcome in source.outcomes] == ["u"]
        await dispatcher.close(endpoint)
        await dispatcher.stop()

    known.use(known.GivenStores())
    try:
        asyncio.run(asyncio.wait_for(scenario(), 20))
    finally:
        known.use(before)
