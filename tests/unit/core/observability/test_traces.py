"""Spans: what begins a trace, what is part of one, and what it costs where no one takes them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from leman._wire import channel as _channel
from leman.v1 import jobs_pb2, jobs_pb2_grpc
from leman_core.model.job import JobState
from leman_core.model.plan import BackfillSpec
from leman_core.model.work import FragmentResult, UnitFailure, UnitOutcome, WorkSpan, WorkUnit
from leman_core.server.channels import open_peer
from leman_core.telemetry import tracing
from leman_core.telemetry.tracing import Parent
from leman_executor.jobs.unit_source import UnitSpans
from leman_executor.worker.unit_runtime import SpanRecorder
from tests.conftest import ROOT
from tests.unit.core.rpc_helpers import client, peers, running
from tests.unit.executor.manager_helpers import Executor

TRACE, ABOVE = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED, NOT_SAMPLED = f"00-{TRACE}-{ABOVE}-01", f"00-{TRACE}-{ABOVE}-00"


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracing.start_tracing(provider.get_tracer("test"))
    yield exporter
    tracing.stop_tracing()


def trace_of(span) -> str:
    return f"{span.context.trace_id:032x}"


def calls(*traceparents: str) -> list[dict[str, str]]:
    """Make a call that reads and one that changes something, with each of these; return what the first was sent."""

    async def scenario():
        async with running() as (up, service), client(up) as stub:
            for given in traceparents:
                metadata = (("traceparent", given),) if given else ()
                await stub.GetJob(jobs_pb2.GetJobRequest(job_id="a"), metadata=metadata)
                await stub.CancelJob(jobs_pb2.CancelJobRequest(job_id="a"), metadata=metadata)
            async with open_peer(peers(up.port), "executor") as channel:
                with tracing.span("outer", Parent({"traceparent": SAMPLED})):
                    await jobs_pb2_grpc.JobServiceStub(channel).GetJob(jobs_pb2.GetJobRequest(job_id="b"))
            return service.seen

    return asyncio.run(scenario())


def test_calls_are_part_of_their_callers_trace_and_reads_begin_none(spans):
    seen = calls(SAMPLED, "", "nonsense")
    found = [(s.name.rpartition("/")[2], trace_of(s) == TRACE) for s in spans.get_finished_spans()]
    assert found[:3] == [("GetJob", True), ("CancelJob", True), ("CancelJob", False)]
    *_, peers_call, outer = spans.get_finished_spans()
    assert (outer.name, trace_of(peers_call)) == ("outer", TRACE)
    assert peers_call.parent.span_id == outer.context.span_id
    assert seen[-1]["traceparent"].split("-")[1] == TRACE


def test_what_its_caller_does_not_sample_is_not_sampled(spans):
    calls(NOT_SAMPLED)
    assert [s.name.rpartition("/")[2] for s in spans.get_finished_spans()] == ["GetJob", "outer"]  # that of the peer


def test_without_traces_calls_carry_nothing():
    assert "traceparent" not in calls("")[-1]


def test_a_job_keeps_its_trace_over_the_lives_of_executors(spans, tmp_path):
    async def live() -> str:
        executor = Executor(tmp_path)
        with tracing.span("asked", Parent({"traceparent": SAMPLED})):
            job = await executor.jobs.create(BackfillSpec(str(tmp_path), "t", "y"), "")
        await executor.works()
        await executor.die()
        executor = Executor(tmp_path)
        await executor.jobs.open_database(str(tmp_path))
        await executor.works()
        await executor.jobs.cancel(str(tmp_path), job.job_id)
        await asyncio.gather(*executor.running.tasks.values())
        found = await executor.job(job.job_id)
        await executor.stop()
        assert found.state is JobState.CANCELLED
        return found.traceparent

    (tmp_path / "_leman").mkdir()
    traceparent = asyncio.run(live())
    found = {s.name: s for s in spans.get_finished_spans()}
    assert traceparent.split("-")[1] == TRACE
    assert trace_of(found["backfill"]) == TRACE
    assert found["backfill"].attributes["leman.attempt"] == 2
    assert found["backfill"].attributes["leman.job.state"] == "CANCELLED"
    assert found["backfill"].parent.span_id == found["asked"].context.span_id
    assert trace_of(found["queue"]) == TRACE


def unit(name: str = "u1") -> WorkUnit:
    return WorkUnit(name, ())


def test_a_unit_carries_its_span_to_the_worker_and_brings_back_what_was_done(spans):
    job = tracing.start_span("backfill", Parent({"traceparent": SAMPLED}))
    units = UnitSpans(job)
    given = units.begin(unit(), "worker 1")
    assert given.traceparent.split("-")[1] == TRACE
    done = (WorkSpan("read", 1_000, 2_000, 5e-7, 2), WorkSpan("call", 1_500, 3_000, 1e-6, 2))
    units.end(UnitOutcome("u1", (FragmentResult(0, rows_evaluated=7),), spans=done))
    units.end(UnitOutcome("u1", ()))
    read, call, whole = spans.get_finished_spans()
    assert [(s.name, s.start_time, s.end_time, s.attributes["leman.times"]) for s in (read, call)] == [
        ("read", 1_000, 2_000, 2),
        ("call", 1_500, 3_000, 2),
    ]
    assert {s.parent.span_id for s in (read, call)} == {whole.context.span_id}
    assert (whole.name, whole.attributes["leman.rows"]) == ("unit", 7)


def test_units_that_fail_or_lose_their_worker_say_so(spans):
    units = UnitSpans(tracing.start_span("backfill", Parent({"traceparent": SAMPLED})))
    for name in ("failed", "lost"):
        units.begin(unit(name), "worker 1")
    units.end(UnitOutcome("failed", (), UnitFailure("UDF_FAILED", "no")))
    units.lost("lost")
    units.lost("lost")
    assert [s.attributes["error.type"] for s in spans.get_finished_spans()] == ["UDF_FAILED", "WorkerLost"]


@pytest.mark.parametrize("given", [NOT_SAMPLED, ""])
def test_workers_are_told_nothing_where_the_job_is_not_traced(spans, given):
    job = tracing.start_span("backfill", Parent({"traceparent": given})) if given else None
    assert UnitSpans(job).begin(unit(), "worker 1") == unit()


def test_what_a_unit_does_many_times_is_one_stretch_until_the_next_checkpoint():
    recorder = SpanRecorder()
    begun = time.perf_counter()
    for n in range(1_000):
        recorder.add("read", begun + n, 0.25)
        recorder.add("call", begun + n + 0.25, 0.5)
    recorder.cut()
    recorder.add("read", begun + 2_000, 0.25)
    read, call, last = recorder.spans
    assert (read.name, read.times, read.seconds) == ("read", 1_000, 250.0)
    assert (call.name, call.times, call.seconds) == ("call", 1_000, 500.0)
    assert call.end - read.begin == pytest.approx(999.75e9, rel=1e-6)
    assert (last.name, last.times) == ("read", 1)
    assert abs(read.begin - time.time_ns()) < 60e9


def test_a_unit_of_many_checkpoints_tells_of_so_many():
    recorder = SpanRecorder()
    for n in range(10_000):
        recorder.add("read", float(n), 0.5)
        recorder.cut()
    assert len(recorder.spans) == 256


def test_a_collector_that_is_away_holds_nothing_up():
    """In a process of its own, which ends with its exporter: that goes on for half a minute."""
    program = (
        "import time\n"
        "from opentelemetry.sdk.resources import Resource\n"
        "from leman_core.telemetry import tracing\n"
        "from leman_core.telemetry.otlp import Collector\n"
        "from leman_core.telemetry.exporters import TracesExport\n"
        "export = TracesExport(Collector('http://127.0.0.1:9', ''), Resource.get_empty())\n"
        "begun = time.monotonic()\n"
        "for _ in range(10_000):  # five times what may wait\n"
        f"    tracing.record_span('read', tracing.Parent({{'traceparent': '{SAMPLED}'}}), 1, 2, {{}})\n"
        "print(time.monotonic() - begun)\n"
    )
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)}
    ran = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert float(ran.stdout) < 9.0  # an export that is waited for takes ten


def test_the_python_client_carries_the_span_of_a_program_that_is_traced():
    with TracerProvider().get_tracer("program").start_as_current_span("pipeline") as span:
        carried = dict(_channel.metadata("t"))
    assert carried["traceparent"].split("-")[1] == f"{span.get_span_context().trace_id:032x}"
    assert "traceparent" not in dict(_channel.metadata("t"))
