"""Blocking work beside an event loop: bounds, context, errors."""

from __future__ import annotations

import asyncio
import threading

import pytest
import structlog

from core.errors import ResourceExhausted
from core.rpc import blocking
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


def test_fewer_run_at_once_while_the_event_loop_is_late(monkeypatch):
    async def scenario():
        with BlockingPool(8, gives_way=True) as pool:
            monkeypatch.setattr(blocking, "_LATE_SECONDS", -1.0)
            for expected in (4, 2, 1, 1):
                await pool.run(int)
                assert pool.at_once == expected
            under_way, most = set(), []

            def work(number: int) -> None:
                under_way.add(number)
                most.append(len(under_way))
                under_way.remove(number)

            await asyncio.gather(*(pool.run(work, number) for number in range(50)))
            assert (len(most), max(most)) == (50, 1)
            monkeypatch.setattr(blocking, "_LATE_SECONDS", 3600.0)
            for expected in (2, 3, 4):
                await pool.run(int)
                assert pool.at_once == expected

    asyncio.run(scenario())


def test_a_function_that_only_waits_holds_up_the_others_for_a_moment(monkeypatch):
    monkeypatch.setattr(blocking, "_LATE_SECONDS", -1.0)
    monkeypatch.setattr(blocking, "_PATIENCE_SECONDS", 0.01)

    async def scenario():
        gate = threading.Event()
        with BlockingPool(2, gives_way=True) as pool:
            await pool.run(int)
            assert pool.at_once == 1
            waiting = asyncio.ensure_future(pool.run(gate.wait, 20))
            assert await pool.run(int) == 0
            assert not waiting.done()
            gate.set()
            assert await waiting

    asyncio.run(scenario())


def test_who_goes_away_before_his_turn_leaves_it_to_the_next():
    async def scenario():
        gate, begun = threading.Event(), threading.Event()

        def hold() -> None:
            begun.set()
            assert gate.wait(20)

        with BlockingPool(1) as pool:
            first = asyncio.ensure_future(pool.run(hold))
            await asyncio.to_thread(begun.wait, 20)
            gone, next_one = (asyncio.ensure_future(pool.run(int)) for _ in range(2))
            await asyncio.sleep(0)
            gone.cancel()
            gate.set()
            await first
            assert await next_one == 0
            assert gone.cancelled()

    asyncio.run(scenario())
