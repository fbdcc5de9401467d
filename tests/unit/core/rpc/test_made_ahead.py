"""Messages that are made ahead of their reader: what they are made of is free soon, and what waits is bounded."""

from __future__ import annotations

import asyncio
import contextlib
import threading
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
        made, kept = asyncio.Event(), []
        loop = asyncio.get_running_loop()

        def make():
            plan = Plan()
            kept.append(weakref.ref(plan))
            for number in range(100):
                yield message(number)
            del plan
            loop.call_soon_threadsafe(made.set)

        with BlockingPool(2, name="test") as pool:
            streams = BufferedStream(pool, 1 << 30)
            async with contextlib.aclosing(streams.stream(make)) as stream:
                assert (await anext(stream)).job_id == message(0).job_id
                await made.wait()
                assert kept[0]() is None
                assert streams.unread_bytes == 100 * SIZE
                assert [one.job_id for one in [m async for m in stream]] == [message(n).job_id for n in range(1, 100)]
            assert streams.unread_bytes == 0

    asyncio.run(scenario())


def test_a_reader_that_goes_away_leaves_nothing_behind():
    async def scenario():
        begun, gone, counts = threading.Event(), threading.Event(), []

        def make():
            for number in range(1000):
                counts.append(number)
                yield message(number)
                begun.set()
                if number == 10:
                    gone.wait(20)

        with BlockingPool(1, name="test") as pool:
            streams = BufferedStream(pool, 1 << 30)
            async with contextlib.aclosing(streams.stream(make)) as stream:
                await anext(stream)
                await asyncio.to_thread(begun.wait)
            assert streams.unread_bytes == 0
            gone.set()
            await pool.run(lambda: None)  # the thread is free again
            assert streams.unread_bytes == 0
            assert len(counts) <= 12

    asyncio.run(scenario())


def test_where_too_much_waits_for_readers_no_stream_is_begun():
    async def scenario():
        with BlockingPool(2, name="test") as pool:
            streams = BufferedStream(pool, 10 * SIZE)
            first = streams.stream(lambda: map(message, range(20)))
            await anext(first)
            await pool.run(lambda: None)
            while streams.unread_bytes < 10 * SIZE:  # noqa: ASYNC110 - it tells no one
                await asyncio.sleep(0)
            with pytest.raises(ResourceExhausted) as caught:
                await anext(streams.stream(lambda: map(message, range(20))))
            assert caught.value.reason == "QUEUE_FULL"
            await first.aclose()
            second = streams.stream(lambda: map(message, range(20)))
            assert len([m async for m in second]) == 20

    asyncio.run(scenario())


def test_an_error_comes_after_the_messages_that_were_made():
    async def scenario():
        def make():
            yield message(0)
            raise KeyError("broken")

        with BlockingPool(1, name="test") as pool:
            stream = BufferedStream(pool, 1 << 20).stream(make)
            assert (await anext(stream)).job_id == message(0).job_id
            with pytest.raises(KeyError, match="broken"):
                await anext(stream)

    asyncio.run(scenario())
