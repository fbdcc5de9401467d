"""Work that is done a few pieces at a time, and stands and falls together."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial

import pytest

from leman_core.model.service_errors import ResourceExhausted, Unavailable
from leman_executor.jobs.async_helpers import (
    SharedRead,
    gather_limited,
    retry_unavailable,
    wait_all,
    within_call_deadline,
)


def test_results_come_in_the_order_of_the_calls_and_no_more_run_than_allowed():
    under_way: set[int] = set()
    most = 0

    async def call(number: int) -> int:
        nonlocal most
        under_way.add(number)
        most = max(most, len(under_way))
        for _ in range(number % 3):
            await asyncio.sleep(0)
        under_way.remove(number)
        return number * 2

    calls = [partial(call, number) for number in range(20)]
    assert asyncio.run(gather_limited(3, calls)) == [number * 2 for number in range(20)]
    assert most == 3
    assert asyncio.run(gather_limited(3, calls[:0])) == []


def test_after_an_error_nothing_is_begun_and_what_is_under_way_ends_first():
    begun, ended = [], []

    async def main() -> None:
        failed = asyncio.Event()

        async def call(number: int) -> None:
            begun.append(number)
            if number == 1:
                failed.set()
                raise ValueError("the first")
            await failed.wait()
            await asyncio.sleep(0)
            ended.append(number)
            raise ValueError("a later one")

        with pytest.raises(ValueError, match="the first"):
            await gather_limited(2, [partial(call, number) for number in range(10)])
        assert (begun, ended) == ([0, 1], [0])

    asyncio.run(main())


def test_nothing_is_begun_after_it_was_cancelled():
    begun = []

    async def main() -> None:
        both = asyncio.Event()

        async def call(number: int) -> None:
            begun.append(number)
            if len(begun) == 2:
                both.set()
            await asyncio.Event().wait()

        work = asyncio.ensure_future(gather_limited(2, [partial(call, number) for number in range(10)]))
        await both.wait()
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work

    asyncio.run(main())
    assert begun == [0, 1]


def test_a_look_serves_all_who_asked_before_it_began_and_none_who_came_later():
    async def scenario() -> None:
        begun, may_end = asyncio.Queue(), asyncio.Queue()
        looks = 0

        async def look() -> int:
            nonlocal looks
            looks += 1
            mine = looks
            begun.put_nowait(mine)
            await may_end.get()
            return mine

        shared = SharedRead(look)
        first = [asyncio.ensure_future(shared()) for _ in range(5)]
        assert await begun.get() == 1
        later = [asyncio.ensure_future(shared()) for _ in range(5)]
        later[0].cancel()
        await asyncio.sleep(0)
        assert begun.empty(), "one at a time"
        may_end.put_nowait(None)
        assert await asyncio.gather(*first) == [1] * 5
        assert await begun.get() == 2
        may_end.put_nowait(None)
        assert await asyncio.gather(*later[1:]) == [2] * 4
        assert later[0].cancelled()

    asyncio.run(scenario())


def test_a_look_that_fails_fails_for_all_who_asked_and_the_next_one_is_made():
    async def scenario() -> None:
        answers: list[Exception | None] = [Unavailable("STORE_UNAVAILABLE", "away"), None]

        async def look() -> str:
            answer = answers.pop(0)
            if answer is not None:
                raise answer
            return "seen"

        shared = SharedRead(look)
        failed = await asyncio.gather(*(shared() for _ in range(3)), return_exceptions=True)
        assert [error.reason for error in failed] == ["STORE_UNAVAILABLE"] * 3
        assert await shared() == "seen"

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("first", "calls"),
    [
        (Unavailable("STORE_UNAVAILABLE", "away"), 2),
        (ResourceExhausted("QUEUE_FULL", "too much to do"), 2),
        (ResourceExhausted("MESSAGE_TOO_LARGE", "always", retry_after_seconds=0), 1),
        (ValueError("a bug"), 1),
    ],
)
def test_only_what_may_pass_is_tried_again(first, calls):
    made = []

    async def call() -> str:
        made.append(1)
        if len(made) == 1:
            raise first
        return "done"

    async def main() -> None:
        if calls == 1:
            with pytest.raises(type(first)):
                await retry_unavailable(call)
        else:
            assert await retry_unavailable(call) == "done"
        assert len(made) == calls

    asyncio.run(main())


@pytest.mark.parametrize("inside", [True, False])
def test_only_who_has_nobody_waiting_waits_for_a_peer_that_was_never_reached(inside):
    calls = 0

    async def call() -> str:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise Unavailable("PEER_UNAVAILABLE", "a wrong address?", never_reached=True)
        return "done"

    async def main() -> None:
        with within_call_deadline() if inside else contextlib.nullcontext():
            await retry_unavailable(call)

    with pytest.raises(Unavailable) if inside else contextlib.nullcontext():
        asyncio.run(main())
    assert calls == (1 if inside else 2)


def test_an_error_of_one_task_is_raised_when_no_other_one_is_under_way():
    async def main() -> None:
        failed = asyncio.Event()

        async def fails(message: str) -> None:
            failed.set()
            raise ValueError(message)

        async def goes_on() -> int:
            await failed.wait()
            await asyncio.sleep(0)
            return 7

        later, first, second = (asyncio.ensure_future(w) for w in (goes_on(), fails("the first"), fails("the second")))
        with pytest.raises(ValueError, match="the first"):
            await wait_all(later, first, second)
        assert later.result() == 7

    asyncio.run(main())


def test_who_waits_for_tasks_and_is_cancelled_leaves_none_under_way():
    async def main() -> None:
        begun, ended = asyncio.Event(), []

        async def waits() -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)
                ended.append(True)

        waiting = asyncio.ensure_future(wait_all(asyncio.ensure_future(waits())))
        await begun.wait()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert ended == [True]

    asyncio.run(main())
