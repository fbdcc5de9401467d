"""1,000 calls of WatchJob follow one job that commits every fragment by itself: how many events any of them misses.

The watchers sit in two client processes. The other side is the same job without a watcher. `last_seen_after`: seconds
from the job's end, as it is in its record, to the moment at which a watcher has heard of it.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.pool import Pool

import grpc
import psutil
import uvloop

from benchmarks.common import Target, figures, interleaved, options_of, percentile, report, scratch
from benchmarks.leman_side import Caller, Run, running
from benchmarks.practical_limit import HEAVY, discard, even, make_table
from leman.v1 import jobs_pb2, jobs_pb2_grpc

WATCHERS = 1000
_CLIENTS = 2

Metadata = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Seen:
    """What one watcher received: sequences of events, and when it saw the end (seconds since the epoch)."""

    events: tuple[int, ...]
    ended_at: float
    done: bool


@dataclass(frozen=True, slots=True)
class Watched:
    """One job. `cpu_seconds`: of the executor's process while it ran."""

    seconds: float
    cpu_seconds: float
    events: int
    lost: int
    delays: Sequence[float]


def client(address: str, metadata: Metadata, request: bytes, watchers: int) -> list[Seen]:
    """In a process: follows a job from several calls."""
    return uvloop.run(_client(address, metadata, jobs_pb2.WatchJobRequest.FromString(request), watchers))


async def _client(address: str, metadata: Metadata, request: jobs_pb2.WatchJobRequest, watchers: int) -> list[Seen]:
    async with grpc.aio.insecure_channel(address) as channel:
        stub = jobs_pb2_grpc.JobServiceStub(channel)
        return await asyncio.gather(*(_watch(stub, metadata, request) for _ in range(watchers)))


async def _watch(stub: jobs_pb2_grpc.JobServiceStub, metadata: Metadata, request: jobs_pb2.WatchJobRequest) -> Seen:
    events: list[int] = []
    state = jobs_pb2.Job.STATE_UNSPECIFIED
    async for message in stub.WatchJob(request, metadata=metadata):
        events += [event.sequence for event in message.events]
        state = message.job.state
    return Seen(tuple(events), time.time(), state == jobs_pb2.Job.STATE_DONE)


def watched(caller: Caller, pool: Pool, column: str, cpu: Callable[[], float]) -> Watched:
    """Runs the job with all watchers."""
    spec = caller.spec("t", column, commit_granularity=1)
    before, begin = cpu(), time.perf_counter()
    job = caller.begin(spec)
    request = jobs_pb2.WatchJobRequest(database=caller.database, job_id=job.job_id)
    arguments = [(caller.service["executor"], caller.metadata, request.SerializeToString(), WATCHERS // _CLIENTS)]
    seen = [one for part in pool.starmap(client, arguments * _CLIENTS, chunksize=1) for one in part]
    seconds, spent = time.perf_counter() - begin, cpu() - before
    messages = list(caller.watch(job.job_id))
    all_events = {event.sequence for message in messages for event in message.events}
    lost = sum(len(all_events - set(one.events)) + (not one.done) for one in seen)
    end = messages[-1].job.updated_at.ToMicroseconds() / 1e6
    return Watched(seconds, spent, len(all_events), lost, [one.ended_at - end for one in seen])


def main() -> None:
    options = options_of(__doc__ or "", rows=HEAVY.rows, fragments=64, repetitions=3)
    jobs: list[Watched] = []
    alone: list[Run] = []
    context = multiprocessing.get_context("spawn")
    with scratch(options) as folder, running(folder / "lake") as caller, context.Pool(_CLIENTS) as pool:
        make_table(caller.uri("t"), even(options.rows, options.fragments))
        executor = psutil.Process(caller.processes()["executor"])

        def cpu() -> float:
            times = executor.cpu_times()
            return float(times.user + times.system)

        def with_watchers(repetition: int) -> None:
            caller.add_column("t", f"y{repetition}", HEAVY)
            job = watched(caller, pool, f"y{repetition}", cpu)
            if repetition:
                jobs.append(job)
            discard(caller.uri("t"), f"y{repetition}")

        def without(repetition: int) -> None:
            caller.add_column("t", f"z{repetition}", HEAVY)
            run = caller.run("t", f"z{repetition}", commit_granularity=1)
            if repetition:
                alone.append(run)
            discard(caller.uri("t"), f"z{repetition}")

        interleaved(options.repetitions, with_watchers, without)
    delays = [delay for job in jobs for delay in job.delays]
    report(
        "watchers",
        options,
        [Target("events that a watcher missed = 0", sum(job.lost for job in jobs), 0)],
        watchers=WATCHERS,
        leman={
            "seconds": figures([job.seconds for job in jobs]),
            "executor_cpu_seconds": figures([job.cpu_seconds for job in jobs]),
            "events": [job.events for job in jobs],
            "last_seen_after": {"median": percentile(delays, 50), "p99": percentile(delays, 99)},
        },
        without_watchers={"seconds": figures([run.seconds for run in alone])},
    )


if __name__ == "__main__":
    main()
