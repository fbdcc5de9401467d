"""Commits together, removal alone."""

from __future__ import annotations

import asyncio

from leman_coordinator.commits.commit_queue import Gate


def test_whoever_wants_to_be_alone_waits_for_those_inside_and_keeps_later_ones_out():
    seen: list[str] = []

    async def together(gate, name, leave):
        async with gate.together():
            seen.append(name)
            await leave.wait()
        seen.append(f"{name} left")

    async def alone(gate, entered, leave):
        async with gate.alone():
            seen.append("alone")
            entered.set()
            await leave.wait()
            seen.append("alone left")

    async def scenario():
        gate, go, entered, done = Gate(), asyncio.Event(), asyncio.Event(), asyncio.Event()
        tasks = [asyncio.create_task(together(gate, name, go)) for name in "ab"]
        await asyncio.sleep(0)
        tasks.append(asyncio.create_task(alone(gate, entered, done)))
        await asyncio.sleep(0)
        tasks.append(asyncio.create_task(together(gate, "late", go)))
        await asyncio.sleep(0)
        assert seen == ["a", "b"]
        go.set()
        await asyncio.gather(*tasks[:2])
        await entered.wait()
        assert "late" not in seen
        done.set()
        await asyncio.gather(*tasks)
        assert seen.index("late") > seen.index("alone left")

    asyncio.run(asyncio.wait_for(scenario(), 10))


def test_one_that_gives_up_waiting_leaves_the_way_free():
    async def scenario():
        gate = Gate()
        async with gate.together():
            waiting = asyncio.create_task(gate.alone().__aenter__())
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            async with gate.together():
                pass
        async with gate.alone():
            pass

    asyncio.run(asyncio.wait_for(scenario(), 10))
