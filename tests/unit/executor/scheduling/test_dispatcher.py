"""Workers connect with what `open` returned, until that is closed."""

from __future__ import annotations

import asyncio
from typing import Any

from executor.scheduling.dispatcher import Dispatcher
from executor.worker.messages import Hello


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
