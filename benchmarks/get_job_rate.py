"""JobService.GetJob of an ended job: calls a second for each core that the executor uses, and the latency at half of
its full load. The other side is a bare gRPC server of the same kind that answers with the same bytes."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.pool import Pool
from typing import Any

import grpc
import psutil
import uvloop

from benchmarks.common import Document, Options, Target, figures, interleaved, options_of, percentile, report, scratch
from benchmarks.leman_side import Caller, running
from benchmarks.practical_limit import SCALAR, even, make_table
from leman.v1 import jobs_pb2

_METHOD = "/leman.v1.JobService/GetJob"
_SECONDS = 3.0
_CLIENTS = 2
_CALLS_AT_ONCE = 32

Metadata = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Server:
    """What is called."""

    address: str
    pid: int
    metadata: Metadata


@dataclass(frozen=True, slots=True)
class Load:
    """One look at a server: full load first, then half of it."""

    calls_per_second: float
    calls_per_cpu_second: float
    p99_at_half_load: float


def look(pool: Pool, server: Server, request: bytes) -> Load:
    """Raises what a call raises."""
    process = psutil.Process(server.pid)
    before = process.cpu_times()
    full = [x for part in _from_clients(pool, server, request, 0.0) for x in part]
    after = process.cpu_times()
    cpu = after.user + after.system - before.user - before.system
    rate = len(full) / _SECONDS
    half = [x for part in _from_clients(pool, server, request, rate / 2 / _CLIENTS) for x in part]
    return Load(rate, len(full) / cpu, percentile(half, 99))


def _from_clients(pool: Pool, server: Server, request: bytes, rate: float) -> list[list[float]]:
    arguments = [(server.address, server.metadata, request, rate)] * _CLIENTS
    return pool.starmap(client, arguments, chunksize=1)


def client(address: str, metadata: Metadata, request: bytes, rate: float) -> list[float]:
    """In a process: latencies of the calls that it made. `rate`: calls a second; 0: as many as are answered."""
    return uvloop.run(_client(address, metadata, request, rate))


async def _client(address: str, metadata: Metadata, request: bytes, rate: float) -> list[float]:
    latencies: list[float] = []
    async with grpc.aio.insecure_channel(address) as channel:
        call: Any = channel.unary_unary(_METHOD)
        await call(request, metadata=metadata)  # connects
        end = time.perf_counter() + _SECONDS
        if rate:
            await _at_rate(call, request, metadata, rate, latencies, end)
        else:
            loops = (_closed_loop(call, request, metadata, latencies, end) for _ in range(_CALLS_AT_ONCE))
            await asyncio.gather(*loops)
    return latencies


async def _closed_loop(call: Any, request: bytes, metadata: Metadata, latencies: list[float], end: float) -> None:
    while time.perf_counter() < end:
        await _timed(call, request, metadata, latencies, time.perf_counter())


async def _at_rate(
    call: Any, request: bytes, metadata: Metadata, rate: float, latencies: list[float], end: float
) -> None:
    """Calls are due at fixed times and timed from then on, whether or not earlier ones are answered."""
    due = time.perf_counter()
    under_way: set[asyncio.Task[None]] = set()
    while due < end:
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        while due <= time.perf_counter():
            task = asyncio.create_task(_timed(call, request, metadata, latencies, due))
            under_way.add(task)
            task.add_done_callback(under_way.discard)
            due += 1 / rate
    await asyncio.gather(*under_way)


async def _timed(call: Any, request: bytes, metadata: Metadata, latencies: list[float], since: float) -> None:
    await call(request, metadata=metadata)
    latencies.append(time.perf_counter() - since)


@contextlib.contextmanager
def bare_server(answer: bytes) -> Iterator[Server]:
    """A process with nothing but gRPC."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve_bare, args=(theirs, answer), daemon=True)
    process.start()
    try:
        yield Server(f"127.0.0.1:{ours.recv()}", process.pid or 0, ())
    finally:
        process.terminate()
        process.join()


def _serve_bare(ready: Connection, answer: bytes) -> None:
    uvloop.run(_bare(ready, answer))


async def _bare(ready: Connection, answer: bytes) -> None:
    async def get_job(_request: bytes, _context: object) -> bytes:
        return answer

    server = grpc.aio.server()
    service, method = _METHOD.strip("/").split("/")
    handlers: dict[str, Any] = {method: grpc.unary_unary_rpc_method_handler(get_job)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    ready.send(server.add_insecure_port("127.0.0.1:0"))
    await server.start()
    await server.wait_for_termination()


def ended_job(caller: Caller) -> tuple[jobs_pb2.GetJobRequest, jobs_pb2.GetJobResponse]:
    """A job that is done, how to ask for it, and the answer."""
    make_table(caller.uri("t"), even(1000, 4))
    caller.add_column("t", "y", SCALAR)
    request = jobs_pb2.GetJobRequest(database=caller.database, job_id=caller.run("t", "y").job.job_id)
    return request, caller.jobs.GetJob(request, metadata=caller.metadata)


def measure(options: Options, caller: Caller) -> dict[str, list[Load]]:
    """Both servers in turn."""
    loads: dict[str, list[Load]] = {"leman": [], "bare_server": []}
    request, answer = ended_job(caller)
    context = multiprocessing.get_context("spawn")
    with bare_server(answer.SerializeToString()) as bare, context.Pool(_CLIENTS) as pool:
        servers = {
            "leman": Server(caller.service["executor"], caller.processes()["executor"], caller.metadata),
            "bare_server": bare,
        }

        def side(name: str, repetition: int) -> None:
            load = look(pool, servers[name], request.SerializeToString())
            if repetition:
                loads[name].append(load)

        interleaved(options.repetitions, lambda r: side("leman", r), lambda r: side("bare_server", r))
    return loads


def _document(loads: list[Load]) -> Document:
    return {
        "calls_per_second": figures([load.calls_per_second for load in loads]),
        "calls_per_cpu_second": figures([load.calls_per_cpu_second for load in loads]),
        "p99_at_half_load_seconds": figures([load.p99_at_half_load for load in loads]),
    }


def main() -> None:
    options = options_of(__doc__ or "", rows=1000, fragments=4)
    with scratch(options) as folder, running(folder / "lake") as caller:
        documents = {name: _document(loads) for name, loads in measure(options, caller).items()}
    rate = documents["leman"]["calls_per_cpu_second"]["median"]
    p99 = documents["leman"]["p99_at_half_load_seconds"]["median"]
    targets = [
        Target("calls/s for each core ≥ 3000", rate, 3000, at_least=True),
        Target("p99 at half load ≤ 0.025 s", p99, 0.025),
    ]
    report("get_job_rate", options, targets, clients=_CLIENTS, calls_at_once=_CLIENTS * _CALLS_AT_ONCE, **documents)


if __name__ == "__main__":
    main()
