"""Many at once: streams that take every place there is, and jobs with real work that all come together."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence

import grpc
import lance
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.common import Document, say
from benchmarks.leman_side import TERMINAL, Caller
from benchmarks.load.generator import Generator, Load, Target
from benchmarks.load.sampling import Sampler
from benchmarks.load.subjects import new_table
from benchmarks.practical_limit import Workload
from leman.v1 import jobs_pb2, jobs_pb2_grpc

_TOO_MANY = 50
_ROWS = 200_000
#: What is not over by then has failed.
_PATIENCE_SECONDS = 600.0
#: As many jobs at a time as may run at once: none waits.
_FEW = 16
_READ_AT_ONCE = 20
_LOOK_SECONDS = 0.2


def wait(x: int) -> int:
    """Take a while, and nothing of the machine: the job that is watched is to go on for minutes."""
    time.sleep(0.01)
    return x


_WAITING = Workload("waiting", _ROWS, 8, pa.int64(), wait, lambda x: x)


def watchers(caller: Caller, prober: Generator, probes: Mapping[str, Target], count: int, seconds: float) -> Document:
    """Watch a job from so many streams, and ask for other things meanwhile, among them for more streams."""
    table = new_table(caller, _WAITING.rows, _WAITING.fragments)
    caller.add_column(table, "y", _WAITING)
    job_id = caller.begin(caller.spec(table, "y")).job_id
    found = asyncio.run(_watch(caller, job_id, count, prober, probes, seconds))
    caller.jobs.CancelJob(jobs_pb2.CancelJobRequest(database=caller.database, job_id=job_id), metadata=caller.metadata)
    return found


async def _watch(
    caller: Caller, job_id: str, count: int, prober: Generator, probes: Mapping[str, Target], seconds: float
) -> Document:
    request = jobs_pb2.WatchJobRequest(database=caller.database, job_id=job_id)
    async with grpc.aio.insecure_channel(caller.service["executor"]) as channel, asyncio.timeout(_PATIENCE_SECONDS):
        stub = jobs_pb2_grpc.JobServiceStub(channel)
        begun = time.perf_counter()
        streams = [stub.WatchJob(request, metadata=caller.metadata) for _ in range(count)]
        await asyncio.gather(*(stream.read() for stream in streams))
        opened = time.perf_counter() - begun
        messages: Counter[int] = Counter()
        readers = [asyncio.ensure_future(_drain(stream, messages, n)) for n, stream in enumerate(streams)]
        beside = prober.begin_each(list(probes.values()), Load(seconds, rate=20))
        more: Counter[str] = Counter()
        for _ in range(_TOO_MANY):
            more[await _outcome(stub.WatchJob(request, metadata=caller.metadata))] += 1
        answers = await asyncio.to_thread(beside)
        still_open = sum(not reader.done() for reader in readers)
        for stream in streams:
            stream.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
    told = {name: outcomes.document(target) for (name, target), outcomes in zip(probes.items(), answers, strict=True)}
    say(f"{still_open} of {count} streams open, after {opened:.1f} s; {_TOO_MANY} more: {dict(more)}")
    say(f"  probes meanwhile, p99: { {name: probe['answered'].get('p99') for name, probe in told.items()} } ms")
    return {
        "streams": count,
        "opened_seconds": opened,
        "still_open": still_open,
        "messages_of_each": {"min": min(messages.values(), default=0), "max": max(messages.values(), default=0)},
        "further_streams": dict(more),
        "probes": told,
    }


async def _drain(stream: grpc.aio.UnaryStreamCall, messages: Counter[int], number: int) -> None:
    while await stream.read() is not grpc.aio.EOF:
        messages[number] += 1


async def _outcome(stream: grpc.aio.UnaryStreamCall) -> str:
    try:
        await stream.read()
    except grpc.aio.AioRpcError as error:
        explained = any(key == "grpc-status-details-bin" for key, _ in error.trailing_metadata() or ())
        return f"{error.code().name}{'' if explained else ' without a reason'}"
    stream.cancel()
    return "OK"


def real_work(caller: Caller, jobs: int, rows: int) -> Document:
    """Run n jobs a few at a time, then create n more at once; each over a column of its own.

    Jobs that wait for their turn are to take no memory to speak of: those that come at once are to need as much as
    those that came a few at a time. What is kept of jobs that are done is the same for both.
    """
    table = new_table(caller, rows, 4)
    columns = [f"c{n}" for n in range(2 * jobs)]
    caller.sdk.open_table(table).add_columns({name: f"x + {n}" for n, name in enumerate(columns)})
    with Sampler(caller.processes(), seconds=0.1) as idle:
        time.sleep(1.0)
    found: Document = {"before_mb": _peak(idle), "few_at_a_time": _FEW}
    for name, some, at_once in (("few", columns[:jobs], _FEW), ("many", columns[jobs:], jobs)):
        with Sampler(caller.processes(), seconds=0.1) as sampler:
            told = asyncio.run(_create(caller, table, some, at_once))
        right = _right(caller, table, some, columns)
        found[name] = {"jobs": len(some), **told, "right": right, "peak_mb": _peak(sampler)}
        say(f"{len(some)} jobs with work, {at_once} at once: {found[name]}")
    return found


def _peak(sampler: Sampler) -> float:
    """Return the most that all processes took together, in megabytes."""
    looks = zip(*(rows for rows in sampler.rows.values() if rows), strict=False)
    return max(sum(row["mb"] for row in look) for look in looks)


def _right(caller: Caller, table: str, some: Sequence[str], columns: Sequence[str]) -> int:
    """Count the columns that hold what they are to hold, in every row."""
    dataset, right = lance.dataset(caller.uri(table)), 0
    for at in range(0, len(some), _READ_AT_ONCE):
        part = list(some[at : at + _READ_AT_ONCE])
        read = dataset.to_table(columns=["x", *part])
        for name in part:
            expected = pc.add(read["x"], columns.index(name))
            right += read[name].null_count == 0 and bool(pc.all(pc.equal(read[name], expected)).as_py())
    return right


async def _create(caller: Caller, table: str, columns: Sequence[str], at_once: int) -> Document:
    """Create jobs and wait for their ends; the next one comes where fewer than `at_once` have not ended."""
    begin = time.perf_counter()
    accepted = 0.0
    refused: Counter[str] = Counter()
    states: Counter[str] = Counter()
    sent_again: Counter[str] = Counter()
    async with grpc.aio.insecure_channel(caller.service["executor"]) as channel, asyncio.timeout(_PATIENCE_SECONDS):
        stub = jobs_pb2_grpc.JobServiceStub(channel)
        places = asyncio.Semaphore(at_once)

        async def create(column: str) -> jobs_pb2.Job:
            request = jobs_pb2.CreateJobRequest(backfill=caller.spec(table, column), request_id=uuid.uuid4().hex)
            while True:
                try:
                    return (await stub.CreateJob(request, metadata=caller.metadata)).job
                except grpc.aio.AioRpcError as error:
                    if error.code() != grpc.StatusCode.RESOURCE_EXHAUSTED:
                        raise
                    sent_again[column] += 1
                    await asyncio.sleep(1.0)  # as RetryInfo says

        async def have_done(column: str) -> None:
            nonlocal accepted
            async with places:
                try:
                    job = await create(column)
                except grpc.aio.AioRpcError as error:
                    refused[str(error)] += 1
                    return
                accepted = time.perf_counter() - begin
                request = jobs_pb2.GetJobRequest(database=caller.database, job_id=job.job_id)
                while (job := (await stub.GetJob(request, metadata=caller.metadata)).job).state not in TERMINAL:  # noqa: ASYNC110
                    await asyncio.sleep(_LOOK_SECONDS)
                states[jobs_pb2.Job.State.Name(job.state)] += 1

        await asyncio.gather(*(have_done(column) for column in columns))
    return {
        "all_accepted_seconds": accepted,
        "all_ended_seconds": time.perf_counter() - begin,
        "ended": dict(states),
        "sent_again": {"jobs": len(sent_again), "calls": sent_again.total()},
        "refused": dict(refused),
    }
