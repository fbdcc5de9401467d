"""Blocking work next to an event loop: bounds, context, errors."""

from __future__ import annotations

import asyncio
import contextlib
import threading

import grpc
import pytest
import structlog

from leman.v1 import jobs_pb2
from leman_core.model.service_errors import ResourceExhausted, Unavailable
from leman_core.server import blocking, status
from leman_core.server.admission import limit_store_calls
from leman_core.server.blocking import STORE, BlockingPool, PoolOfPlace, run_in_job_thread
from leman_core.settings import Server
from tests.unit.core.rpc_helpers import FakeService, client, running


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


# ------------------------------------------------------------------------------------- stores that do not answer

DEAD = "gs://dead"


class DeadStore:
    """Calls of a store that come back when the test says so."""

    def __init__(self, pool: BlockingPool) -> None:
        self._pool = pool
        self._gate = threading.Event()
        self.begun = asyncio.Semaphore(0)

    def ask(self, store: str = DEAD) -> asyncio.Task[None]:
        loop = asyncio.get_running_loop()

        def hold() -> None:
            loop.call_soon_threadsafe(self.begun.release)
            assert self._gate.wait(60)

        async def asked() -> None:
            STORE.set(store)
            await self._pool.run(hold)

        return asyncio.ensure_future(asked())

    def answer(self) -> None:
        self._gate.set()


async def answers(pool: BlockingPool, store: str) -> str:
    async def asked() -> str:
        STORE.set(store)
        return await pool.run(str, "here")

    return await asyncio.wait_for(asyncio.ensure_future(asked()), 20)


def test_other_places_are_answered_while_one_store_has_taken_all_threads():
    async def scenario():
        with BlockingPool(4) as pool:
            store = DeadStore(pool)
            waiting = [store.ask() for _ in range(30)]
            for _ in range(4):
                await store.begun.acquire()
            for other in ("", "s3://lake", "gs://living", ""):
                assert await answers(pool, other) == "here"
            store.answer()
            await asyncio.gather(*waiting)

    asyncio.run(scenario())


def test_calls_whose_callers_have_gone_take_no_turn_and_end_in_refusals_of_their_store_alone(monkeypatch):
    monkeypatch.setattr(blocking, "_STUCK_SECONDS", 0.0)

    async def scenario():
        with BlockingPool(2) as pool:
            store = DeadStore(pool)
            for _ in range(blocking._MOST_STUCK):
                call = store.ask()
                await store.begun.acquire()
                call.cancel()
                await asyncio.wait((call,))
            with pytest.raises(Unavailable) as caught:
                await store.ask()
            assert caught.value.reason == "STORE_UNAVAILABLE"
            assert f"The store of {DEAD} has not answered" in caught.value.message
            for other in ("", "gs://living", "s3://lake"):
                assert await asyncio.gather(*(answers(pool, other) for _ in range(5))) == ["here"] * 5
            store.answer()
            while pool._stuck:  # noqa: ASYNC110 - no one is notified when a call without a caller ends
                await asyncio.sleep(0.001)
            assert await answers(pool, DEAD) == "here"
            turns = pool._turns
            assert (turns.used, pool._pending.used, pool._without_turn, dict(turns._of_store)) == (0, 0, 0, {})

    asyncio.run(scenario())


def test_a_call_that_its_store_keeps_leaves_its_turn_also_while_its_caller_waits():
    async def scenario():
        with BlockingPool(1, slow_seconds=0.01) as pool:
            store = DeadStore(pool)
            waiting = [store.ask() for _ in range(6)]
            for _ in waiting:
                await store.begun.acquire()
            assert await answers(pool, DEAD) == "here"
            store.answer()
            await asyncio.gather(*waiting)
            assert (pool._turns.used, pool._pending.used, pool._without_turn) == (0, 0, 0)

    asyncio.run(scenario())


def test_jobs_over_a_dead_store_leave_threads_to_the_others():
    async def scenario():
        gate, begun, loop = threading.Event(), asyncio.Semaphore(0), asyncio.get_running_loop()

        def hold() -> None:
            loop.call_soon_threadsafe(begun.release)
            assert gate.wait(60)

        async def job(store, work):
            STORE.set(store)
            return await run_in_job_thread(work)

        waiting = [asyncio.ensure_future(job(DEAD, hold)) for _ in range(40)]
        for _ in range(4):
            await begun.acquire()
        for other in ("", "s3://lake", "gs://living", ""):
            assert await asyncio.wait_for(asyncio.ensure_future(job(other, STORE.get)), 20) == other
        assert await asyncio.to_thread(str, "free") == "free"
        gate.set()
        await asyncio.gather(*waiting)

    asyncio.run(scenario())


def test_a_call_about_a_place_is_one_of_its_store_whoever_makes_it():
    async def scenario():
        STORE.set("s3://of-the-caller")
        with BlockingPool(1) as pool:
            assert await PoolOfPlace(pool, "gs://bucket/lake/deep").run(STORE.get) == "gs://bucket"
            assert await PoolOfPlace(pool, "/lake").run(STORE.get) == ""
        assert STORE.get() == "s3://of-the-caller"

    asyncio.run(scenario())


def test_reads_over_a_dead_store_leave_places_to_other_stores():
    reads = limit_store_calls(3, "TOO_MANY_READS", "reads")
    with contextlib.ExitStack() as held:
        for _ in range(3):
            held.enter_context(reads.acquire(DEAD))
        with pytest.raises(ResourceExhausted, match="3 reads are running already"):
            held.enter_context(reads.acquire(DEAD))
        for other in ("", "s3://lake"):
            held.enter_context(reads.acquire(other))
        with pytest.raises(ResourceExhausted):
            held.enter_context(reads.acquire("s3://lake"))
    assert reads.used == 0
    with contextlib.ExitStack() as held:
        for _ in range(3):
            held.enter_context(reads.acquire())


class OverStores(FakeService):
    """GetJob and WatchJob ask the store of their database, in a pool like a service's; WatchJob as its job id says."""

    def __init__(self, draining: asyncio.Event) -> None:
        super().__init__(draining)
        self.pool = BlockingPool(4)
        self.gate = threading.Event()

    async def GetJob(self, request, context):
        await self.pool.run(self.gate.wait if request.database.startswith(DEAD) else bool)
        return jobs_pb2.GetJobResponse()

    async def WatchJob(self, request, context):
        if request.job_id != "at first":
            yield jobs_pb2.WatchJobResponse()
        if request.job_id == "quiet":
            await asyncio.Event().wait()
        await self.pool.run(self.gate.wait)
        yield jobs_pb2.WatchJobResponse()

    async def stop(self) -> None:
        self.gate.set()
        self.pool.close()


def test_a_call_over_a_dead_store_is_refused_before_its_deadline_and_others_go_on(tmp_path):
    async def scenario():
        async with running(Server(), kind=OverStores) as (up, _), client(up) as stub:
            dead = jobs_pb2.GetJobRequest(database=f"{DEAD}/lake", job_id="j")
            calls = [asyncio.ensure_future(stub.GetJob(dead, timeout=2)) for _ in range(8)]
            await asyncio.wait(calls, timeout=0.05)
            for place in (str(tmp_path), "gs://living/lake"):
                await stub.GetJob(jobs_pb2.GetJobRequest(database=place, job_id="j"), timeout=20)
            for refused in await asyncio.gather(*calls, return_exceptions=True):
                error = status.error_from_rpc(refused)
                assert (refused.code().name, error.reason) == ("UNAVAILABLE", "STORE_UNAVAILABLE")
                assert f"The store of {DEAD} has not answered within the deadline of" in error.message

    asyncio.run(scenario())


def test_a_stream_over_a_dead_store_is_refused_before_its_deadline_and_one_that_is_quiet_is_not(tmp_path):
    async def scenario():
        async with running(Server(), kind=OverStores) as (up, _), client(up) as stub:

            async def ending(job_id: str, place: str) -> tuple[str, str]:
                try:
                    async for _ in stub.WatchJob(jobs_pb2.WatchJobRequest(database=place, job_id=job_id), timeout=2):
                        pass
                except grpc.aio.AioRpcError as error:
                    known = status.error_from_rpc(error)
                    return error.code().name, known.reason
                return "OK", ""

            dead = f"{DEAD}/lake"
            watches = (("at first", dead), ("later", dead), ("quiet", dead), ("at first", str(tmp_path)))
            ends = await asyncio.gather(*(ending(*watch) for watch in watches))
            assert ends[:2] == [("UNAVAILABLE", "STORE_UNAVAILABLE")] * 2
            assert [code for code, _ in ends[2:]] == ["DEADLINE_EXCEEDED"] * 2

    asyncio.run(scenario())
