"""Side A: an embedded system of its own, and a caller that is timed as any caller would time it.

A run lasts from the call of CreateJob to the last message of WatchJob, both through plain generated stubs, so without
the SDK and its display. Tables, functions and columns are made with the SDK, before the clock runs.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

import leman
from benchmarks.practical_limit import Workload
from leman.v1 import catalog_pb2, jobs_pb2, jobs_pb2_grpc, planner_pb2

_START_SECONDS = 300.0
_STOP_SECONDS = 60.0
_JOB_SECONDS = 3600.0
TERMINAL = {
    jobs_pb2.Job.STATE_DONE,
    jobs_pb2.Job.STATE_DONE_WITH_ERRORS,
    jobs_pb2.Job.STATE_FAILED,
    jobs_pb2.Job.STATE_CANCELLED,
}
_BREAKDOWN = ("udf", "read", "checkpoint", "write", "commit")


@dataclass(frozen=True, slots=True)
class Run:
    """One job as its caller saw it. `phases`: seconds since CreateJob was called, in the order of time."""

    seconds: float
    job: jobs_pb2.Job
    phases: dict[str, float] = field(default_factory=dict)

    @property
    def bottleneck(self) -> str:
        """What bounds the job's speed, by its own account."""
        kinds = jobs_pb2.Progress.Bottleneck
        return kinds.Name(self.job.progress.bottleneck).removeprefix("BOTTLENECK_").lower()

    @property
    def breakdown(self) -> dict[str, float]:
        """Seconds summed over the workers."""
        durations = {name: getattr(self.job.progress, f"{name}_duration") for name in _BREAKDOWN}
        return {f"{name}_seconds": duration.ToMicroseconds() / 1e6 for name, duration in durations.items()}


class Caller:
    """A caller of one embedded system, with open channels to its services."""

    def __init__(self, database: Path, service: Mapping[str, Any]) -> None:
        self.database = str(database)
        self.service = service
        self._channels: list[grpc.Channel] = []
        self.jobs = jobs_pb2_grpc.JobServiceStub(self.channel("executor"))
        self.metadata = (("authorization", f"Bearer {service['token']}"),)
        self.sdk = leman.connect(database, endpoint=service["executor"], token=service["token"])

    def close(self) -> None:
        """Closes the channels."""
        self.sdk.close()
        for channel in self._channels:
            channel.close()

    def channel(self, service: str) -> grpc.Channel:
        """To one of the services; closed with the caller."""
        self._channels.append(grpc.insecure_channel(self.service[service]))
        return self._channels[-1]

    def processes(self) -> dict[str, int]:
        """Process ids by name, as they are now."""
        content = json.loads(Path(self.database, "_leman", "service.json").read_text())
        pids: dict[str, int] = content["pids"]
        return pids

    def uri(self, table: str) -> str:
        """Of the table's Lance dataset."""
        return f"{self.database}/{table}.lance"

    def add_column(self, table: str, column: str, workload: Workload, version: str = "") -> None:
        """A new column; without a version with a new one: nothing is known of its cost, nothing can be reused."""
        version = version or f"v{uuid.uuid4().hex[:12]}"
        make = leman.udf(data_type=workload.data_type, name=workload.name, version=version)
        self.sdk.open_table(table).add_columns({column: make(workload.function)})

    def spec(self, table: str, column: str, **parameters: Any) -> planner_pb2.BackfillSpec:
        """What CreateJob is asked."""
        ref = catalog_pb2.TableRef(database=self.database, table=table)
        return planner_pb2.BackfillSpec(table=ref, column=column, **parameters)

    def begin(self, spec: planner_pb2.BackfillSpec) -> jobs_pb2.Job:
        """Starts a job."""
        request = jobs_pb2.CreateJobRequest(backfill=spec, request_id=uuid.uuid4().hex)
        return self.jobs.CreateJob(request, metadata=self.metadata, wait_for_ready=True).job

    def watch(self, job_id: str) -> Iterator[jobs_pb2.WatchJobResponse]:
        """Follows a job to its end."""
        request = jobs_pb2.WatchJobRequest(database=self.database, job_id=job_id)
        yield from self.jobs.WatchJob(request, metadata=self.metadata, timeout=_JOB_SECONDS, wait_for_ready=True)

    def run(self, table: str, column: str, **parameters: Any) -> Run:
        """Runs a job to its end. Raises RuntimeError where it does not end as DONE."""
        spec = self.spec(table, column, **parameters)
        started = time.time()
        begin = time.perf_counter()
        job = self.begin(spec)
        phases = {"create_job_answered": time.perf_counter() - begin}
        events: list[jobs_pb2.JobEvent] = []
        if job.state not in TERMINAL:  # nothing was to do: the answer is the end
            for message in self.watch(job.job_id):
                events.extend(message.events)
                job = message.job
        seconds = time.perf_counter() - begin
        if job.state != jobs_pb2.Job.STATE_DONE:
            raise RuntimeError(f"job {job.job_id} ended as {job.state}: {job.error.message}")
        for event in events:
            name = event.message.lower() if event.kind == jobs_pb2.JobEvent.KIND_STATE else _event_kind(event)
            phases[f"{name}_noted"] = event.event_time.ToMicroseconds() / 1e6 - started  # of several commits, the last
        return Run(seconds, job, {**phases, "end_seen": seconds})


def _event_kind(event: jobs_pb2.JobEvent) -> str:
    return jobs_pb2.JobEvent.Kind.Name(event.kind).removeprefix("KIND_").lower()


class System:
    """A running embedded system. Ends only the process that it started."""

    def __init__(self, database: Path, settings: Mapping[str, str]) -> None:
        database.mkdir(parents=True, exist_ok=True)
        self.database = database
        environment = {k: v for k, v in os.environ.items() if not k.startswith("LEMAN_")} | dict(settings)
        command = [sys.executable, "-P", "-m", "leman_local", "--database", str(database), "--idle-seconds", "0"]
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=sys.stderr, start_new_session=True
        )

    def ready(self) -> dict[str, Any]:
        """The content of its service file, once that is there. Raises RuntimeError."""
        file = self.database / "_leman" / "service.json"
        end = time.monotonic() + _START_SECONDS
        while not file.exists():
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"the embedded system of {self.database} did not start")
            time.sleep(0.02)
        content: dict[str, Any] = json.loads(file.read_text())
        return content

    def stop(self) -> None:
        """Returns when it has ended."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@contextlib.contextmanager
def running(database: Path, **settings: str) -> Iterator[Caller]:
    """An embedded system with the given settings (`LEMAN_…`), and a caller of it."""
    system = System(database, settings)
    try:
        caller = Caller(database, system.ready())
        try:
            yield caller
        finally:
            caller.close()
    finally:
        system.stop()
