"""Measures: what calls and jobs leave in them, and the page that Prometheus reads."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path

import grpc
import lance
import pyarrow as pa
import pytest
from opentelemetry.sdk.resources import Resource

from leman.v1 import jobs_pb2
from leman_core.model.job import Job, JobState, Progress
from leman_core.model.plan import BackfillSpec
from leman_core.model.row_positions import RowRange
from leman_core.model.service_errors import FailedPrecondition, Unavailable
from leman_core.settings import Metrics, Server, Settings
from leman_core.storage.lance_tables import LanceTables
from leman_core.telemetry import instruments
from leman_core.telemetry.exporters import MetricsExport
from leman_core.telemetry.observability import Observability
from leman_executor.coordination.env_values import EnvValues
from leman_executor.coordination.leases import JobLeases, LeaseOutcome
from leman_executor.coordination.redis_clients import show_memory
from leman_executor.coordination.reservations import RedisReservations
from leman_executor.manager.job_databases import JobDatabase
from leman_executor.manager.job_telemetry import MeasuredJobs
from leman_planner.planning.plan_maker import PlanMaker
from tests.redis_process import RedisProcess
from tests.unit.core.observability.page import Page
from tests.unit.core.rpc_helpers import client, running
from tests.unit.executor.job_manager.test_job_manager import lives
from tests.unit.executor.manager_helpers import Executor

ROOT = Path(__file__).resolve().parents[4]
GET_JOB = "leman.v1.JobService/GetJob"
REDIS_CALLS = "db_client_operation_duration_seconds_count"


def test_calls_are_counted_by_method_and_by_what_became_of_them(page):
    async def scenario():
        async with running(Server(max_calls=1)) as (up, service), client(up) as stub:
            for name in ("a", "b"):
                await stub.GetJob(jobs_pb2.GetJobRequest(job_id=name))
            with pytest.raises(grpc.aio.AioRpcError):
                await stub.GetJob(jobs_pb2.GetJobRequest(job_id="error"))
            hanging = stub.GetJob(jobs_pb2.GetJobRequest(job_id="hang"))
            await service.entered.wait()
            used = await asyncio.to_thread(page.value, "leman_rpc_budget_used", rpc_method=GET_JOB)
            with pytest.raises(grpc.aio.AioRpcError):
                await stub.GetJob(jobs_pb2.GetJobRequest(job_id="c"))
            hanging.cancel()
            await service.cancelled.wait()
            return used

    assert asyncio.run(scenario()) == 1.0
    count = "rpc_server_call_duration_seconds_count"
    assert page.value(count, rpc_method=GET_JOB, rpc_response_status_code="OK") == 2
    assert page.value(count, rpc_method=GET_JOB, error_type="JOB_NOT_FOUND") == 1
    assert page.value(count, rpc_response_status_code="RESOURCE_EXHAUSTED", error_type="TOO_MANY_CALLS") == 1
    assert page.value(count, rpc_response_status_code="CANCELLED") == 1


def test_a_service_shows_its_own_processor_time_and_memory():
    observed = Observability(Settings(metrics=Metrics(port=0)), "planner")
    try:
        page = Page(observed.metrics_port)
        modes = [page.value("process_cpu_time_seconds_total", cpu_mode=mode) for mode in ("user", "system")]
        assert all(value is not None and value > 0 for value in modes)
        used = page.value("process_memory_usage_bytes")
        assert used is not None
        assert 10 << 20 < used < 64 << 30
    finally:
        observed.stop()
        instruments.PROCESS_CPU.show(None)
        instruments.PROCESS_MEMORY.show(None)


def test_calls_that_redis_does_not_answer_are_counted(page):
    leases = JobLeases("redis://127.0.0.1:1/0", "me")
    assert asyncio.run(leases.holder("job-1")) == ""
    assert page.value("leman_redis_failures_total") == 1
    assert page.value(REDIS_CALLS, db_operation_name="GET", error_type="ConnectionError") == 1


def test_redis_shows_how_fast_it_answers_and_its_memory(page, tmp_path):
    async def scenario(url: str) -> None:
        leases, env = JobLeases(url, "me"), EnvValues(url)
        assert await leases.acquire("job-1", "/lake") is LeaseOutcome.OURS
        assert await leases.renew("job-1")
        await env.keep("job-1", {"KEY": "value"})
        await leases.close()
        await env.close()

    with RedisProcess(tmp_path) as redis:
        asyncio.run(scenario(redis.url))
        for _ in range(2):  # the second one finds its scripts
            RedisReservations(redis.url, 5.0, 5.0).reserve("t", [RowRange(0, 9)], "job-1#1")
        show_memory(redis.url)
        assert page.value(REDIS_CALLS, db_operation_name="EVAL", db_system_name="redis") == 2
        assert page.value(REDIS_CALLS, db_operation_name="SET") == 1
        assert page.value(REDIS_CALLS, db_operation_name="EVALSHA") == 3, "the first one brings its script"
        assert page.value("leman_redis_failures_total") is None
        used, limit = (page.value("leman_redis_memory_bytes", leman_memory=kind) for kind in ("used", "limit"))
        assert used > 100_000
        assert limit == 0
        redis.pause()
        assert page.value("leman_redis_memory_bytes") is None, "a page does not wait for a Redis that hangs"
    instruments.REDIS_MEMORY.show(None)


def test_a_plan_is_measured_by_its_phases(page, tmp_path):
    table = pa.table({"x": range(3)}, pa.schema([pa.field("x", pa.int64())]))
    lance.write_dataset(table, tmp_path / "t.lance", enable_stable_row_ids=True)
    with pytest.raises(FailedPrecondition) as absent:
        PlanMaker(LanceTables()).plan(BackfillSpec(str(tmp_path), "t", "y"))
    assert absent.value.reason == "COLUMN_NOT_DEFINED"
    count = "leman_plan_duration_seconds_count"
    assert page.value(count, leman_phase="table", leman_job_kind="backfill") == 1, "a phase that fails took its time"
    assert page.value(count, leman_phase="files") is None


def test_no_name_of_a_job_a_table_or_a_caller_becomes_a_label(page):
    async def scenario():
        async with running() as (up, _), client(up) as stub:
            request = jobs_pb2.GetJobRequest(job_id="secret-job", database="/secret/lake")
            await stub.GetJob(request)

    asyncio.run(scenario())
    labels = {label for (name, labels) in page.values() if name.startswith("rpc_") for label in labels}
    assert labels
    assert not [label for label in labels if "secret" in label[1]]


def job(attempt: int = 1, **progress: float) -> Job:
    spec = BackfillSpec("/lake", "t", "y")
    return Job("j", "", JobState.RUNNING, spec, 100.0, 100.0, Progress(**progress), attempt=attempt)


def test_a_job_is_counted_up_to_its_end_and_never_down(page):
    jobs = MeasuredJobs()
    jobs.begin(job())
    for rows in (10, 4, 12):  # a worker died over some
        jobs.look(job(), Progress(rows_evaluated=rows, udf_seconds=rows / 10))
    ended = replace(job(rows_evaluated=20, rows_committed=20), state=JobState.DONE, started_at=101.0, ended_at=104.0)
    jobs.end(ended)
    jobs.end(ended)
    rows = "leman_job_rows_total"
    assert page.value(rows, leman_rows="evaluated", leman_job_kind="backfill") == 20
    assert page.value(rows, leman_rows="committed") == 20
    assert page.value("leman_job_work_time_seconds_total", leman_phase="udf") == pytest.approx(1.2)
    assert page.value("leman_job_duration_seconds_count", leman_job_state="DONE") == 1
    assert page.value("leman_job_duration_seconds_sum", leman_job_state="DONE") == 3.0
    assert page.value("leman_job_ends_total", leman_job_state="DONE", leman_job_kind="backfill") == 1
    assert page.value("leman_job_ends_total") == 1


def test_what_an_executor_did_before_it_died_is_not_counted_again(page):
    jobs = MeasuredJobs()
    jobs.begin(job(attempt=2, rows_evaluated=1000))
    jobs.look(job(attempt=2), Progress(rows_evaluated=1001))
    assert page.value("leman_job_rows_total", leman_rows="evaluated") == 1


@pytest.mark.parametrize("verb", ["GET", "POST", "OPTIONS", "HEAD"])
@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://a.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Host": "attacker.example"},
    ],
    ids=str,
)
def test_the_page_answers_no_web_page_and_no_borrowed_name(page, headers, verb):
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(urllib.request.Request(page.url, headers=headers, method=verb))
    caught.value.close()
    assert caught.value.code == 403
    with urllib.request.urlopen(urllib.request.Request(page.url, headers={"Sec-Fetch-Site": "none"})) as answer:
        assert answer.status == 200


def test_a_port_that_is_taken_ends_the_service_with_a_reason(page):
    taken = int(re.search(r":(\d+)/", page.url)[1])
    with pytest.raises(Unavailable, match="LEMAN_METRICS__PORT: another process listens there") as caught:
        MetricsExport(Metrics(port=taken), None, Resource.get_empty())
    assert caught.value.reason == "BIND_FAILED"
    with pytest.raises(Unavailable, match=r"cannot serve metrics on 192\.0\.2\.1:\d+: LEMAN_METRICS__HOST: that is no"):
        MetricsExport(Metrics(host="192.0.2.1", port=taken), None, Resource.get_empty())


def test_after_the_end_nothing_is_measured_and_the_port_is_free():
    export = MetricsExport(Metrics(port=0), None, Resource.get_empty())
    port = export.port
    export.stop()
    instruments.JOB_ROWS.add(1)
    assert not instruments.JOB_ROWS.is_bound
    again = MetricsExport(Metrics(port=port), None, Resource.get_empty())
    assert Page(port).value("leman_job_rows_total") is None
    again.stop()


def test_documents_list_every_measure_with_its_attributes():
    text = (ROOT / "docs/observability.md").read_text()
    listed = re.findall(r"^\| `([a-z_.]+)` \| ([^|]+) \|", text, re.MULTILINE)
    names = {name: set(re.findall(r"`([^`]+)`", attributes)) for name, attributes in listed}
    assert names == {about.name: set(about.attributes) for about in (i.description for i in instruments.ALL)}


def test_services_load_no_opentelemetry_where_nobody_asks_for_it():
    program = (
        "import sys\n"
        "from leman_core.process.blocked_imports import HEAVY, blocked_imports\n"
        "with blocked_imports(*HEAVY):\n"
        "    import leman_planner.app, leman_executor.app, leman_coordinator.app, leman_core.server.server\n"
        "from leman_core.settings import Settings\n"
        "from leman_core.telemetry.observability import Observability\n"
        "assert Observability(Settings(), 'planner').metrics_port is None\n"
        "print([name for name in sys.modules if name.startswith(('opentelemetry', 'prometheus_client'))])"
    )
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)}
    ran = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_a_job_with_nothing_to_do_is_counted_where_its_end_is_written_later(page, tmp_path, monkeypatch):
    monkeypatch.setattr(JobDatabase, "writes_are_dear", True)

    async def live() -> None:
        executor = Executor(tmp_path)
        executor.planner.tasks = ()
        await executor.jobs.create(BackfillSpec(str(tmp_path), "t", "y"), "")
        await executor.stop()

    (tmp_path / "_leman").mkdir()
    asyncio.run(live())
    assert page.value("leman_job_duration_seconds_count", leman_job_state="DONE") == 1


def test_a_job_that_executors_died_over_is_counted_where_it_is_given_up(page, tmp_path):
    (tmp_path / "_leman").mkdir()

    def is_counted() -> bool:
        return page.value("leman_job_ends_total", leman_job_state="FAILED", leman_job_kind="backfill") == 1

    lives(tmp_path, ["die"] * Settings().executor.job_attempts_max, is_counted)
    assert page.value("leman_job_duration_seconds_count", leman_job_state="FAILED") == 1
