"""A function of a millisecond a row over a table in an object store: what 50 ms of latency a request cost.

20,000 rows in 4 fragments, the same job in turn with no latency and with 50 ms for each request. The store is
`gofakes3` (`go install github.com/johannesboyne/gofakes3/cmd/gofakes3@latest`; looked for on PATH, or given with the
variable GOFAKES3), behind a proxy that waits and counts. Latency is 50 ms, or what LATENCY_MS says.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

import leman
from benchmarks.common import CORES, Options, Target, figures, interleaved, medians, options_of, report, scratch
from benchmarks.delaying_proxy import DelayingProxy
from benchmarks.leman_side import TERMINAL, Caller, Run, running
from leman.v1 import catalog_pb2, jobs_pb2, planner_pb2
from leman_core.model import keys

BUCKET = "lake"
_SECONDS_PER_ROW = 1e-3
_START_SECONDS = 30.0


def slow(x: int) -> int:
    """A millisecond that is no work for the processor."""
    time.sleep(_SECONDS_PER_ROW)
    return x + 1


@contextlib.contextmanager
def object_store() -> Iterator[int]:
    """An S3-compatible server in memory; gives its port."""
    program = os.environ.get("GOFAKES3") or shutil.which("gofakes3")
    if program is None:
        raise SystemExit("there is no gofakes3 on PATH: see python -m benchmarks.storage_latency --help")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    command = [program, "-backend", "memory", "-host", f"127.0.0.1:{port}", "-initialbucket", BUCKET, "-quiet"]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_for(port)
        yield port
    finally:
        process.terminate()
        process.wait()


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1.0).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def access(port: int) -> dict[str, str]:
    """Environment for anyone who reads and writes through a port."""
    return {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "bench",
        "AWS_SECRET_ACCESS_KEY": "bench",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",
    }


@dataclass(frozen=True, slots=True)
class Stored:
    """A job, and what it asked of the store."""

    run: Run
    requests: int
    checkpoints_written: list[int]
    checkpoints_read: int

    def document(self) -> dict[str, Any]:
        rows = self.checkpoints_written
        return {
            "seconds": self.run.seconds,
            "requests": self.requests,
            "checkpoints_written": len(rows),
            "checkpoint_rows_median": statistics.median(rows) if rows else 0,
            "checkpoint_requests_read": self.checkpoints_read,
            **self.run.breakdown,
        }


class Store:
    """The caller, its table in the store, and the proxy in front of that."""

    def __init__(self, caller: Caller, proxy: DelayingProxy, options: Options) -> None:
        self._caller = caller
        self._proxy = proxy
        self.database = f"s3://{BUCKET}/{uuid.uuid4().hex[:8]}"
        self._sdk = leman.connect(self.database, endpoint=caller.service["executor"], token=caller.service["token"])
        rows = pa.table({"x": pa.array(range(options.rows), pa.int64())})
        self._sdk.create_table("t", rows, max_rows_per_file=-(-options.rows // options.fragments))

    def job(self, column: str, delay_seconds: float) -> Stored:
        """A new column, filled with so much latency."""
        make = leman.udf(data_type=pa.int64(), name="slow", version=f"v{uuid.uuid4().hex[:12]}")
        self._sdk.open_table("t").add_columns({column: make(slow)})
        self._proxy.delay_seconds = delay_seconds
        self._proxy.requests.clear()
        run = self._run(column)
        self._proxy.delay_seconds = 0.0
        seen = dict(self._proxy.requests)
        written, read = [], 0
        for (method, path), count in seen.items():
            name = path.rpartition("/")[2]
            parsed = keys.parse_range_key(name.removesuffix(".lance")) if "/_checkpoints/" in path else None
            if parsed is None or parsed.range is None:
                continue
            written += [parsed.range.rows] * (method == "PUT")
            read += count if method == "GET" else 0
        return Stored(run, sum(seen.values()), written, read)

    def _run(self, column: str) -> Run:
        ref = catalog_pb2.TableRef(database=self.database, table="t")
        spec = planner_pb2.BackfillSpec(table=ref, column=column, concurrency=CORES)
        begin = time.perf_counter()
        job = self._caller.begin(spec)
        phases = {"create_job_answered": time.perf_counter() - begin}
        request = jobs_pb2.WatchJobRequest(database=self.database, job_id=job.job_id)
        if job.state not in TERMINAL:
            for message in self._caller.jobs.WatchJob(request, metadata=self._caller.metadata, timeout=600.0):
                job = message.job
        if job.state != jobs_pb2.Job.STATE_DONE:
            raise RuntimeError(f"job {job.job_id} ended as {job.state}: {job.error.message}")
        return Run(time.perf_counter() - begin, job, phases)


def main() -> None:
    options = options_of(__doc__ or "", rows=20_000, fragments=4, repetitions=3)
    latency = float(os.environ.get("LATENCY_MS", "50")) / 1000
    runs: dict[float, list[Stored]] = {0.0: [], latency: []}
    with scratch(options) as folder, object_store() as port, DelayingProxy(port) as proxy:
        environment = access(proxy.port)
        os.environ.update(environment)
        with running(Path(folder / "lake"), **environment) as caller:
            store = Store(caller, proxy, options)

            def side(delay: float, repetition: int) -> None:
                done = store.job(f"y{repetition}_{int(delay * 1000)}", delay)
                sys.stderr.write(f"{delay * 1000:g} ms: {done.document()} {done.run.phases}\n")
                if repetition:
                    runs[delay].append(done)

            interleaved(options.repetitions, lambda r: side(0.0, r), lambda r: side(latency, r))
    sides = {f"at_{delay * 1000:g}_ms": medians([run.document() for run in runs[delay]]) for delay in runs}
    near, far = (figures([run.run.seconds for run in found]) for found in runs.values())
    slowest = sides[f"at_{latency * 1000:g}_ms"]
    targets = [
        Target("with latency / without ≤ 1.3", far["median"] / near["median"], 1.3),
        Target("rows of the median checkpoint ≥ 100", slowest["checkpoint_rows_median"], 100, at_least=True),
        Target(
            "checkpoints read / written ≤ 2",
            slowest["checkpoint_requests_read"] / max(1, slowest["checkpoints_written"]),
            2.0,
        ),
    ]
    report("storage_latency", options, targets, latency_ms=latency * 1000, seconds={"near": near, "far": far}, **sides)


if __name__ == "__main__":
    main()
