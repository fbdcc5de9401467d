"""Many at once: streams that take every place there is, and jobs with real work that all come together."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import Counter
from collections.abc import Mapping

import grpc

from benchmarks.common import Document, say
from benchmarks.leman_side import TERMINAL, Caller
from benchmarks.load.generator import Generator, Load, Target
from benchmarks.load.subjects import new_table
from benchmarks.practical_limit import HEAVY
from leman.v1 import jobs_pb2, jobs_pb2_grpc

_WATCH = "/leman.v1.JobService/WatchJob"
_TOO_MANY = 50


def watchers(caller: Caller, prober: Generator, probes: Mapping[str, Target], count: int, seconds: float) -> Document:
    """Watch a job from so many streams, the most that there may be, and ask for other things meanwhile."""
    table = new_table(caller, 40_000, 8)
    caller.add_column(table, "y", HEAVY)
    job_id = caller.begin(caller.spec(table, "y")).job_id
    found = asyncio.run(_watch(caller, job_id, count, prober, probes, seconds))
    caller.jobs.CancelJob(jobs_pb2.CancelJobRequest(database=caller.database, job_id=job_id), metadata=caller.metadata)
    return found


async def _watch(
    caller: Caller, job_id: str, count: int, prober: Generator, probes: Mapping[str, Target], seconds: float
) -> Document:
    request = jobs_pb2.WatchJobRequest(database=caller.database, job_id=job_id)
    async with grpc.aio.insecure_channel(caller.service["executor"]) as channel:
        stub = jobs_pb2_grpc.JobServiceStub(channel)
        streams = [stub.WatchJob(request, metadata=caller.metadata) for _ in range(count)]
        await asyncio.gather(*(stream.read() for stream in streams))
        readers = [asyncio.ensure_future(_drain(stream)) for stream in streams]
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
    say(f"{still_open} of {count} streams open; {_TOO_MANY} more: {dict(more)}")
    say(f"  beside them: { {name: probe['answered'].get('p99') for name, probe in told.items()} }")
    return {"streams": count, "still_open": still_open, "further_streams": dict(more), "probes": told}


async def _drain(stream: grpc.aio.UnaryStreamCall) -> None:
    async for _ in stream:
        pass


async def _outcome(stream: grpc.aio.UnaryStreamCall) -> str:
    try:
        await stream.read()
    except grpc.aio.AioRpcError as error:
        explained = any(key == "grpc-status-details-bin" for key, _ in error.trailing_metadata() or ())
        return f"{error.code().name}{'' if explained else ' without a reason'}"
    stream.cancel()
    return "OK"


def real_work(caller: Caller, jobs: int, rows: int) -> Document:
    """Create so many jobs at once, each over a column of its own, and wait for all of them."""
    table = new_table(caller, rows, 4)
    columns = {f"c{n}": f"x + {n}" for n in range(jobs)}
    caller.sdk.open_table(table).add_columns(columns)
    found = asyncio.run(_create(caller, table, list(columns)))
    say(f"{jobs} jobs with work at once: {found}")
    return found


async def _create(caller: Caller, table: str, columns: list[str]) -> Document:
    begin = time.perf_counter()
    async with grpc.aio.insecure_channel(caller.service["executor"]) as channel:
        stub = jobs_pb2_grpc.JobServiceStub(channel)

        async def create(column: str) -> str:
            request = jobs_pb2.CreateJobRequest(backfill=caller.spec(table, column), request_id=uuid.uuid4().hex)
            return (await stub.CreateJob(request, metadata=caller.metadata)).job.job_id

        made = await asyncio.gather(*(create(column) for column in columns), return_exceptions=True)
        accepted = time.perf_counter() - begin
        refused = Counter(error.code().name for error in made if isinstance(error, grpc.aio.AioRpcError))
        states: Counter[str] = Counter()
        for job_id in (one for one in made if isinstance(one, str)):
            request = jobs_pb2.GetJobRequest(database=caller.database, job_id=job_id)
            while (job := (await stub.GetJob(request, metadata=caller.metadata)).job).state not in TERMINAL:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            states[jobs_pb2.Job.State.Name(job.state)] += 1
    seconds = time.perf_counter() - begin
    return {
        "all_accepted_seconds": accepted,
        "all_ended_seconds": seconds,
        "ended": dict(states),
        "refused": dict(refused),
    }
