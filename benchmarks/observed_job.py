"""What it costs to be seen from outside: the same jobs by a system that exports nothing, and by one that sends measures
and traces of everything to a collector every five seconds, and whose pages for Prometheus are read as often.

The collector, in a process of its own, takes what it is sent and keeps nothing. Wall time is noisy; the processor time
of the services is less so: what they spend more is compared with what all cores have while the job runs. `--rows` is
for the heavy function; the scalar one gets fifty times as many.
"""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import socket
import statistics
import threading
import urllib.request
from collections.abc import Iterator
from concurrent import futures
from multiprocessing.connection import Connection

import grpc
import psutil

from benchmarks.common import CORES, Document, Options, Target, figures, interleaved, options_of, report, scratch
from benchmarks.leman_side import Caller, running
from benchmarks.practical_limit import HEAVY, SCALAR, Workload, discard, even, make_table
from leman_core.process.release import SERVICES

_MORE_ROWS = 50
_EVERY_SECONDS = 5.0


def collect(told: Connection) -> None:
    """In a process: a collector that says yes to everything, until it is ended."""

    class Takes(grpc.GenericRpcHandler):
        def service(self, _details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes]:
            return grpc.unary_unary_rpc_method_handler(lambda _request, _context: b"")

    server = grpc.server(futures.ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((Takes(),))
    told.send(server.add_insecure_port("127.0.0.1:0"))
    server.start()
    server.wait_for_termination()


@contextlib.contextmanager
def observers() -> Iterator[dict[str, str]]:
    """A collector, and who reads the pages; the settings of a system that they see."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    collector = context.Process(target=collect, args=(there,), daemon=True)
    collector.start()
    over, first = threading.Event(), _free_ports(len(SERVICES))
    scraper = threading.Thread(target=_scrape, args=(over, first), daemon=True)
    scraper.start()
    interval = str(int(_EVERY_SECONDS * 1000))
    try:
        yield {
            "LEMAN_METRICS__PORT": str(first),
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{here.recv()}",
            "OTEL_METRIC_EXPORT_INTERVAL": interval,
            "OTEL_BSP_SCHEDULE_DELAY": interval,
        }
    finally:
        over.set()
        scraper.join()
        collector.terminate()


def _free_ports(count: int) -> int:
    """The first of so many ports in a row that are free now."""
    for first in range(21_000, 31_000, count):
        with contextlib.ExitStack() as held, contextlib.suppress(OSError):
            for port in range(first, first + count):
                held.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first
    raise RuntimeError(f"no {count} ports in a row are free")


def _scrape(over: threading.Event, first: int) -> None:
    while not over.wait(_EVERY_SECONDS):
        for number in range(len(SERVICES)):
            with (
                contextlib.suppress(OSError),
                urllib.request.urlopen(f"http://127.0.0.1:{first + number}/metrics") as page,
            ):
                page.read()


def _spent(caller: Caller) -> float:
    """Processor seconds of the three services so far; workers come and go, and export nothing."""
    pids = caller.processes()
    times = [psutil.Process(pids[name]).cpu_times() for name in SERVICES]
    return float(sum(one.user + one.system for one in times))


def _measure(workload: Workload, rows: int, options: Options, callers: dict[str, Caller]) -> Document:
    seconds: dict[str, list[float]] = {name: [] for name in callers}
    spent: dict[str, list[float]] = {name: [] for name in callers}
    for caller in callers.values():
        make_table(caller.uri(workload.name), even(rows, options.fragments))

    def side(name: str, repetition: int) -> None:
        caller, column = callers[name], f"{name}{repetition}"
        caller.add_column(workload.name, column, workload)
        before = _spent(caller)
        run = caller.run(workload.name, column)
        if repetition:
            seconds[name].append(run.seconds)
            spent[name].append(_spent(caller) - before)
        discard(caller.uri(workload.name), column)

    interleaved(options.repetitions, *(functools.partial(side, name) for name in callers))
    return {
        "rows": rows,
        **{name: {"seconds": figures(seconds[name]), "cpu_seconds": figures(spent[name])} for name in callers},
        "extra_wall": _median(seconds, "observed") / _median(seconds, "alone") - 1,
        # of the time that all cores have while the job runs
        "extra_cpu": (_median(spent, "observed") - _median(spent, "alone")) / _median(seconds, "alone") / CORES,
    }


def _median(values: dict[str, list[float]], name: str) -> float:
    return statistics.median(values[name])


def main() -> None:
    options = options_of(__doc__ or "", rows=HEAVY.rows, fragments=8)
    sides: Document = {}
    targets: list[Target] = []
    with (
        scratch(options) as folder,
        observers() as settings,
        running(folder / "alone") as alone,
        running(folder / "observed", **settings) as observed,
    ):
        callers = {"alone": alone, "observed": observed}
        for workload, rows in ((HEAVY, options.rows), (SCALAR, options.rows * _MORE_ROWS)):
            sides[workload.name] = _measure(workload, rows, options, callers)
        targets.append(Target("heavy: extra wall ≤ 2 %", sides[HEAVY.name]["extra_wall"], 0.02))
        targets.append(
            Target(
                "heavy: extra processor time of the services ≤ 2 % of all cores'", sides[HEAVY.name]["extra_cpu"], 0.02
            )
        )
    report("observed_job", options, targets, **sides)


if __name__ == "__main__":
    main()
