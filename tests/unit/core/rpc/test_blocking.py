"""Blocking work beside an event loop: bounds, context, errors."""

from __future__ import annotations

import asyncio
import threading

import pytest
import structlog

from core.errors import ResourceExhausted
from core.rpc.blocking import BlockingPool


def test_results_errors_and_context_come_through():
    async def scenario():
        with BlockingPool(2) as pool:
            assert await pool.run(divmod, 7, 2) == (3, 1)
            with pytest.raises(ZeroDivisionError):
                await pool.run(divmod, 1, 0)
            structlog.contextvars.bind_contextvars(request_id="r1")
            assert (await pool.run(structlog.contextvars.get_contextvars))["request_id"] == "r1"
            assert await pool.run(threading.get_ident) != threading.get_ident()

    asyncio.run(scenario())


def test_the_next_item_is_made_while_one_is_used():
    async def scenario():
        made = threading.Event()

        def items():
            yield 1
            made.set()
            yield 2

        with BlockingPool(1) as pool:
            seen = []
            async for item in pool.each(items()):
                assert await asyncio.to_thread(made.wait, 20)
                seen.append(item)
            assert seen == [1, 2]
            with pytest.raises(ZeroDivisionError):
                assert [item async for item in pool.each(1 // n for n in (1, 0))]

    asyncio.run(scenario())


def test_what_exceeds_the_queue_is_refused_until_there_is_room():
    async def scenario():
        gate, begun = threading.Event(), threading.Event()

        def hold() -> str:
            begun.set()
            assert gate.wait(20)
            return "done"

        with BlockingPool(1, max_queued=1, name="lance") as pool:
            first = asyncio.ensure_future(pool.run(hold))
            await asyncio.to_thread(begun.wait, 20)
            second = asyncio.ensure_future(pool.run(hold))
            await asyncio.sleep(0)
            with pytest.raises(ResourceExhausted) as caught:
                await pool.run(hold)
            assert caught.value.reason == "QUEUE_FULL"
            gate.set()
            assert await asyncio.gather(first, second) == ["done", "done"]
            assert await pool.run(hold) == "done"

    asyncio.run(scenario())


def test_a_cancelled_caller_gives_its_place_back_only_when_the_thread_is_free():
    async def scenario():
        gate, begun, ended = threading.Event(), threading.Event(), threading.Event()

        def hold() -> None:
            begun.set()
            gate.wait(20)
            ended.set()

        with BlockingPool(1, max_queued=0) as pool:
            call = asyncio.ensure_future(pool.run(hold))
            await asyncio.to_thread(begun.wait, 20)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            with pytest.raises(ResourceExhausted):
                await pool.run(hold)
            gate.set()
            await asyncio.to_thread(ended.wait, 20)
            async with asyncio.timeout(20):
                while True:
                    try:
                        await pool.run(int)
                        break
                    except ResourceExhausted:
                        await asyncio.sleep(0)

    asyncio.run(scenario())
