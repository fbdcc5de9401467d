"""Messages that are made ahead of their reader: what they are made of is free soon, and what waits is bounded."""

from __future__ import annotations

import asyncio
import contextlib
import weakref

import pytest

from leman.v1 import jobs_pb2
from leman_core.model.service_errors import ResourceExhausted
from leman_core.server.blocking import BlockingPool
from leman_core.server.call_streams import BufferedStream


class Plan:
    """Something large."""


def message(number: int) -> jobs_pb2.Job:
    return jobs_pb2.Job(job_id=f"{number:01000}")


SIZE = message(0).ByteSize()


def test_messages_come_in_order_and_what_they_are_made_of_is_free_while_they_wait():
    async def scenario():
        kept = []

        def make():
            plan = Plan()
            kept.append(weakref.ref(plan))
            for number in range(100):
                yield message(number)
            del plan

        with BlockingPool(2, name="test") as pool:
            streams = BufferedStream(pool, 1 << 30)
            async with contextlib.aclosing(streams.stream(make)) as stream:
                assert (await anext(stream)).job_id == message(0).job_id
                assert kept[0]() is None
                assert streams.unread_bytes == 100 * SIZE
                assert [one.job_id for one in [m async for m in stream]] == [message(n).job_id for n in range(1, 100)]
            assert streams.unread_bytes == 0

    asyncio.run(scenario())


def test_a_reader_that_goes_away_leaves_nothing_behind():
    async def scenario():
        with BlockingPool(1, name="test") as pool:
            streams = BufferedStream(pool, 1 << 30)
            async with contextlib.aclosing(streams.stream(lambda: map(message, range(1000)))) as stream:
                await anext(stream)
                assert streams.unread_bytes == 1000 * SIZE
            assert streams.unread_bytes == 0

    asyncio.run(scenario())


def test_where_too_much_waits_for_readers_no_stream_is_begun():
    async def scenario():
        with BlockingPool(2, name="test") as pool:
            streams = BufferedStream(pool, 10 * SIZE)
            first = streams.stream(lambda: map(message, range(20)))
            await anext(first)
            with pytest.raises(ResourceExhausted) as caught:
                await anext(streams.stream(lambda: map(message, range(20))))
            assert caught.value.reason == "QUEUE_FULL"
            await first.aclose()
            second = streams.stream(lambda: map(message, range(20)))
            assert len([m async for m in second]) == 20

    asyncio.run(scenario())


def test_an_error_of_the_maker_is_raised_to_the_reader():
    async def scenario():
        def make():
            yield message(0)
            raise KeyError("broken")

        with BlockingPool(1, name="test") as pool:
            streams = BufferedStream(pool, 1 << 20)
            with pytest.raises(KeyError, match="broken"):
                await anext(streams.stream(make))
            assert streams.unread_bytes == 0

    asyncio.run(scenario())
