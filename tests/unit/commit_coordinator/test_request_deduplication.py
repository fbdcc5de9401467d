"""The memory of requests: joins, repeats, refuses other bodies, forgets failures."""

from __future__ import annotations

import asyncio

import pytest

from leman_coordinator.commits.commit_requests import CommitResult, Outcome, RequestMemory, Status
from leman_core.model.service_errors import AlreadyExists, Unavailable
from leman_core.model.table import SentRows
from leman_core.server.request_messages import with_rows

KEY = ("/t.lance", "r1")


class Work:
    """Ends when it is released; counts its calls."""

    def __init__(self, error: Exception | None = None, result: CommitResult | None = None) -> None:
        self.calls = 0
        self.go = asyncio.Event()
        self.error = error
        self.result = result

    async def __call__(self) -> CommitResult:
        self.calls += 1
        await self.go.wait()
        if self.error is not None:
            raise self.error
        return self.result or CommitResult(self.calls)


def run(coroutine):
    async def bounded():
        async with asyncio.timeout(10):
            return await coroutine

    return asyncio.run(bounded())


def test_same_request_again_is_answered_without_work():
    async def scenario():
        memory, work = RequestMemory(4), Work()
        work.go.set()
        first = await memory.once(KEY, "body", work)
        return first, await memory.once(KEY, "body", work), work.calls

    first, second, calls = run(scenario())
    assert first == second == CommitResult(1)
    assert calls == 1


def test_same_request_joins_the_one_in_work():
    async def scenario():
        memory, work = RequestMemory(4), Work()
        both = asyncio.gather(memory.once(KEY, "body", work), memory.once(KEY, "body", work))
        await asyncio.sleep(0)
        work.go.set()
        return await both, work.calls

    results, calls = run(scenario())
    assert results == [CommitResult(1)] * 2
    assert calls == 1


@pytest.mark.parametrize("ended", [True, False])
def test_another_body_under_the_same_id_is_refused(ended):
    async def scenario():
        memory, work = RequestMemory(4), Work()
        first = asyncio.ensure_future(memory.once(KEY, "body", work))
        await asyncio.sleep(0)
        if ended:
            work.go.set()
            await first
        try:
            with pytest.raises(AlreadyExists) as caught:
                await memory.once(KEY, "other", work)
        finally:
            work.go.set()
            await first
        return caught.value.reason, work.calls

    assert run(scenario()) == ("REQUEST_ID_REUSED", 1)


def behind(rows: int) -> str:
    """The body of a request behind which this many rows came."""
    return with_rows("body", SentRows(rows, "columns", "values"))


def test_other_rows_under_an_id_wait_for_those_in_work_and_are_refused():
    async def scenario():
        memory, work = RequestMemory(4), Work()
        first = asyncio.ensure_future(memory.once(KEY, behind(1), work))
        await asyncio.sleep(0)
        same, other = (asyncio.ensure_future(memory.once(KEY, behind(rows), work)) for rows in (1, 2))
        await asyncio.sleep(0)
        assert not other.done(), "what becomes of the first rows is not known"
        work.go.set()
        with pytest.raises(AlreadyExists, match="1 rows came with it first, now 2") as caught:
            await other
        return await first, await same, caught.value.reason, work.calls, await memory.known(KEY, "body")

    first, same, reason, calls, known = run(scenario())
    assert first == same == CommitResult(1)
    assert (reason, calls, known) == ("REQUEST_ID_REUSED", 1, (behind(1), first))


def test_other_rows_count_where_the_first_ones_failed():
    async def scenario():
        memory, fails, work = RequestMemory(4), Work(Unavailable("STORE_UNAVAILABLE", "away")), Work()
        work.go.set()
        first = asyncio.ensure_future(memory.once(KEY, behind(1), fails))
        await asyncio.sleep(0)
        other = asyncio.ensure_future(memory.once(KEY, behind(2), work))
        await asyncio.sleep(0)
        fails.go.set()
        with pytest.raises(Unavailable):
            await first
        return await other, await memory.known(KEY, "body")

    other, known = run(scenario())
    assert (other, known) == (CommitResult(1), (behind(2), CommitResult(1)))


def test_same_id_on_another_table_is_another_request():
    async def scenario():
        memory, work = RequestMemory(4), Work()
        work.go.set()
        await memory.once(KEY, "body", work)
        return await memory.once(("/u.lance", "r1"), "other", work)

    assert run(scenario()) == CommitResult(2)


def test_work_goes_on_when_its_caller_is_cancelled():
    async def scenario():
        memory, work = RequestMemory(4), Work()
        caller = asyncio.ensure_future(memory.once(KEY, "body", work))
        await asyncio.sleep(0)
        caller.cancel()
        await asyncio.wait([caller])
        settled = asyncio.ensure_future(memory.settled())
        await asyncio.sleep(0)
        assert not settled.done()
        work.go.set()
        await settled
        return await memory.ended(KEY), work.calls

    assert run(scenario()) == (CommitResult(1), 1)


def test_failure_reaches_all_and_is_forgotten():
    async def scenario():
        memory, work = RequestMemory(4), Work(Unavailable("STORE_UNAVAILABLE", "away"))
        work.go.set()
        joined = await asyncio.gather(
            memory.once(KEY, "body", work), memory.once(KEY, "body", work), return_exceptions=True
        )
        work.error = None
        return joined, await memory.once(KEY, "other body", work)

    joined, after = run(scenario())
    assert [type(error) for error in joined] == [Unavailable, Unavailable]
    assert after == CommitResult(2)


def test_ended_waits_for_a_request_in_work():
    async def scenario():
        memory, work = RequestMemory(4), Work()
        first = asyncio.ensure_future(memory.once(KEY, "body", work))
        await asyncio.sleep(0)
        asked = asyncio.ensure_future(memory.ended(KEY))
        await asyncio.sleep(0)
        assert not asked.done()
        work.go.set()
        await first
        return await asked, await memory.ended(("/t.lance", "unknown"))

    assert run(scenario()) == (CommitResult(1), None)


def test_an_answer_about_a_table_that_is_another_one_by_now_is_forgotten():
    """Callers that come together get one new answer."""

    async def scenario():
        there = {1}

        async def holds(_uri, result):
            await asyncio.sleep(0)
            return result.version in there

        memory, work = RequestMemory(4, holds), Work()
        work.go.set()
        first = [await memory.once(KEY, "body", work), await memory.once(KEY, "body", work)]
        there.clear()
        there.add(2)
        unknown = await memory.ended(KEY)
        after = await asyncio.gather(*(memory.once(KEY, "other body", work) for _ in range(3)))
        return first, unknown, after

    first, unknown, after = run(scenario())
    assert first == [CommitResult(1)] * 2
    assert unknown is None
    assert after == [CommitResult(2)] * 3


def test_what_is_forgotten_of_a_place_is_what_was_about_the_table_there():
    answers = {
        "added": ("/t.lance", CommitResult(1)),
        "to": ("/s.lance", CommitResult(1, operation="RenameTable", place="/t.lance")),
        "from": ("/t.lance", CommitResult(1, operation="RenameTable", place="/u.lance")),
        "dropped": ("/t.lance", CommitResult(0, operation="DropTable")),
        "view": ("/t.lance", CommitResult(0, operation="DropView")),
        "other": ("/u.lance", CommitResult(1)),
    }

    async def scenario():
        memory = RequestMemory(6)
        for name, (uri, result) in answers.items():
            work = Work(result=result)
            work.go.set()
            await memory.once((uri, name), "", work)
        memory.forget("/t.lance")
        return [name for name, (uri, _) in answers.items() if await memory.ended((uri, name))]

    assert run(scenario()) == ["from", "dropped", "view", "other"]


def test_memory_is_bounded_by_the_fragments_of_its_requests():
    """The newest request is remembered whatever its size."""
    outcomes = tuple(Outcome(fragment_id=i, status=Status.COMMITTED) for i in range(3))

    async def scenario():
        memory = RequestMemory(4)
        for name, size in (("a", 1), ("b", 3), ("c", 0), ("d", 3), ("e", 3)):
            work = Work(result=CommitResult(1, outcomes[:size]))
            work.go.set()
            await memory.once(("/t", name), "", work)
            yield [known for known in "abcde" if await memory.ended(("/t", known))]

    async def collected():
        return [known async for known in scenario()]

    assert run(collected()) == [["a"], ["a", "b"], ["b", "c"], ["c", "d"], ["e"]]
