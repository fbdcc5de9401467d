"""The generator of load: calls from processes of their own, in a closed loop or at a rate, with what came of each."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.pool import Pool

import grpc
import uvloop

from benchmarks.common import Document, percentile
from leman.v1 import jobs_pb2

PROCESSES = 2
#: A call that is not answered by then counts as DEADLINE_EXCEEDED.
DEADLINE_SECONDS = 10.0
_DETAILS = "grpc-status-details-bin"
_EXPLAINED = {"RESOURCE_EXHAUSTED": b"google.rpc.RetryInfo", "UNAVAILABLE": b"google.rpc.RetryInfo"}
_LOOK_SECONDS = 0.01
Metadata = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Target:
    """What is called. A call takes the next one of the requests."""

    address: str
    method: str
    requests: tuple[bytes, ...]
    metadata: Metadata = ()
    #: The requests are CreateJob's: each call has a request id of its own.
    makes_jobs: bool = False
    #: What counts as an answer.
    answers: tuple[str, ...] = ("OK",)

    def message(self, number: int) -> bytes:
        """Return what a call sends."""
        request = self.requests[number % len(self.requests)]
        if not self.makes_jobs:
            return request
        message = jobs_pb2.CreateJobRequest.FromString(request)
        message.request_id = uuid.uuid4().hex
        return message.SerializeToString()


@dataclass(frozen=True, slots=True)
class Load:
    """How it is called. `rate`: calls a second of all processes together, 0: as many as are answered."""

    seconds: float
    callers: int = 0
    rate: float = 0.0


@dataclass(slots=True)
class Outcomes:
    """Seconds that calls took by their code, counted from when they were due; errors that do not say what to do.

    `seconds`: from the first call to the last answer; `late`: seconds by which the generator itself was late, looked at
    a hundred times a second: what is measured is as much its own where that is long.
    """

    took: dict[str, list[float]] = field(default_factory=dict)
    unexplained: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    late: list[float] = field(default_factory=list)

    def add(self, code: str, seconds: float, *, explained: bool = True) -> None:
        self.took.setdefault(code, []).append(seconds)
        if not explained:
            self.unexplained[code] += 1

    def merge(self, other: Outcomes) -> None:
        for code, seconds in other.took.items():
            self.took.setdefault(code, []).extend(seconds)
        self.unexplained += other.unexplained
        self.seconds = max(self.seconds, other.seconds)
        self.late += other.late

    def document(self, target: Target) -> Document:
        """Rates and percentiles of answers and of refusals."""
        answered = [one for code in target.answers for one in self.took.get(code, [])]
        others = {code: times for code, times in self.took.items() if code not in target.answers}
        return {
            "calls_per_second": sum(map(len, self.took.values())) / self.seconds,
            "answered_per_second": len(answered) / self.seconds,
            "answered": percentiles(answered),
            "others": {code: {"calls": len(times), **percentiles(times)} for code, times in sorted(others.items())},
            "unexplained": dict(self.unexplained),
            "generator_late": percentiles(self.late),
        }


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """In milliseconds."""
    marks = {"p50": 50, "p95": 95, "p99": 99, "p99.9": 99.9}
    return {name: percentile(values, mark) * 1000 for name, mark in marks.items()} if values else {}


class Generator:
    """Client processes; use it as a context."""

    def __init__(self, processes: int = PROCESSES) -> None:
        self._processes = processes
        self._pool: Pool = multiprocessing.get_context("spawn").Pool(processes)

    def __enter__(self) -> Generator:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.terminate()
        self._pool.join()

    def run(self, target: Target, load: Load) -> Outcomes:
        """Call until the time is over and all is answered."""
        return self.begin(target, load)()

    def begin(self, target: Target, load: Load) -> Callable[[], Outcomes]:
        """Begin to call; what is returned waits for the end."""
        processes = min(self._processes, load.callers or self._processes)
        share = Load(load.seconds, -(-load.callers // processes), load.rate / processes)
        result = self._pool.starmap_async(_client, [(target, share)] * processes, chunksize=1)
        return lambda: _merged(result.get())

    def begin_each(self, targets: Sequence[Target], load: Load) -> Callable[[], list[Outcomes]]:
        """Begin to call each of the targets at the whole rate, from a process of its own."""
        return self._pool.starmap_async(_client, [(target, load) for target in targets], chunksize=1).get


def _merged(parts: Sequence[Outcomes]) -> Outcomes:
    whole = Outcomes()
    for part in parts:
        whole.merge(part)
    return whole


def _client(target: Target, load: Load) -> Outcomes:
    return uvloop.run(_Client(target).run(load))


class _Client:
    """The calls of one process."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._outcomes = Outcomes()
        self._made = os.getpid()

    async def run(self, load: Load) -> Outcomes:
        options = [("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
        async with grpc.aio.insecure_channel(self._target.address, options) as channel:
            await asyncio.wait_for(channel.channel_ready(), DEADLINE_SECONDS)
            self._call = channel.unary_unary(self._target.method)
            looking = asyncio.ensure_future(self._look())
            begin = time.perf_counter()
            end = begin + load.seconds
            if load.rate:
                await self._at_rate(load.rate, end)
            else:
                await asyncio.gather(*(self._closed_loop(end) for _ in range(load.callers)))
            self._outcomes.seconds = time.perf_counter() - begin
            looking.cancel()
        return self._outcomes

    async def _look(self) -> None:
        """Note again and again by how much this process is late."""
        while True:
            due = time.perf_counter() + _LOOK_SECONDS
            await asyncio.sleep(_LOOK_SECONDS)
            self._outcomes.late.append(time.perf_counter() - due)

    async def _closed_loop(self, end: float) -> None:
        while (due := time.perf_counter()) < end:
            await self._one(due)

    async def _at_rate(self, rate: float, end: float) -> None:
        """Calls are due at fixed times, whether or not earlier ones are answered."""
        due = time.perf_counter()
        under_way: set[asyncio.Task[None]] = set()
        while due < end:
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            now = time.perf_counter()
            while due <= now and due < end:
                task = asyncio.create_task(self._one(due))
                under_way.add(task)
                task.add_done_callback(under_way.discard)
                due += 1 / rate
        await asyncio.gather(*under_way)

    async def _one(self, due: float) -> None:
        self._made += 1
        request = self._target.message(self._made)
        try:
            await self._call(request, metadata=self._target.metadata, timeout=DEADLINE_SECONDS)
            self._outcomes.add("OK", time.perf_counter() - due)
        except grpc.aio.AioRpcError as error:
            took = time.perf_counter() - due
            self._outcomes.add(error.code().name, took, explained=_is_explained(error))


def _is_explained(error: grpc.aio.AioRpcError) -> bool:
    """Return whether an error says why and, where it may pass, when to call again."""
    details = next((value for key, value in error.trailing_metadata() or () if key == _DETAILS), b"")
    raw = details if isinstance(details, bytes) else details.encode()
    return b"google.rpc.ErrorInfo" in raw and _EXPLAINED.get(error.code().name, b"") in raw
