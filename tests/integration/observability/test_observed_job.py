"""A real job, seen from outside: its measures on the pages of three services, and one trace of it at a collector."""

from __future__ import annotations

import contextlib
import json
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from opentelemetry.sdk.trace import TracerProvider

import leman
from tests.conftest import System, start_system, stop_system
from tests.integration.observability.collector import Collector, Sent, collecting

SERVICES = ("planner", "executor", "commit_coordinator")


def three_ports() -> int:
    """The first of three ports in a row that are free now."""
    for first in range(21_000, 31_000, 7):
        with contextlib.ExitStack() as held, contextlib.suppress(OSError):
            for port in range(first, first + 3):
                held.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first
    raise AssertionError("no three ports in a row are free")


@pytest.fixture(scope="module")
def observed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[System, Collector, dict[str, str]]]:
    """A system that tells of itself; its collector; the pages of its services."""
    first = three_ports()
    with collecting() as (collector, endpoint):
        system = start_system(
            tmp_path_factory.mktemp("observed") / "lake",
            LEMAN_METRICS__PORT=str(first),
            LEMAN_EXECUTOR__CHECKPOINT_INTERVAL_SECONDS="0.001",
            OTEL_EXPORTER_OTLP_ENDPOINT=endpoint,
            OTEL_METRIC_EXPORT_INTERVAL="200",
            OTEL_BSP_SCHEDULE_DELAY="200",
            LEMAN_LINEAGE__FILE=str(tmp_path_factory.getbasetemp() / "lineage.jsonl"),
        )
        pages = {name: f"http://127.0.0.1:{first + n}/metrics" for n, name in enumerate(SERVICES)}
        yield system, collector, pages
        stop_system(system)


def samples(page: str) -> dict[str, float]:
    with urllib.request.urlopen(page) as answer:
        lines = [line for line in answer.read().decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def total(page: str, name: str, *labels: str) -> float:
    return sum(v for s, v in samples(page).items() if s.split("{")[0] == name and all(one in s for one in labels))


def traced_backfill(table: leman.Table, column: str) -> str:
    """A backfill in a program that is traced by OpenTelemetry; the id of its trace."""
    tracer = TracerProvider().get_tracer("test")
    with tracer.start_as_current_span("pipeline") as span:
        table.backfill(column)
    return f"{span.get_span_context().trace_id:032x}"


@pytest.mark.spark
def test_a_job_is_seen_on_the_pages_of_the_services_and_at_a_collector(observed, tmp_path: Path, tmp_path_factory):
    system, collector, pages = observed

    @leman.udf(data_type=pa.int64())
    def double(x: int) -> int:
        return 2 * x

    with system.connect(tmp_path) as db:
        table = db.create_table("t", pa.table({"x": range(5_000)}))
        table.add_columns({"y": double})
        trace_id = traced_backfill(table, "y")
        assert [job.trace_id for job in db.jobs()] == [trace_id]
        table.search(None).add_column("z", double).create_materialized_view(conn=db, view_name="v").refresh()

    executor, coordinator = pages["executor"], pages["commit_coordinator"]
    assert total(executor, "leman_job_rows_total", 'leman_rows="computed"', 'leman_job_kind="backfill"') == 5_000
    assert total(executor, "leman_job_rows_total", 'leman_rows="committed"', 'leman_job_kind="refresh"') == 5_000
    for kind in ("backfill", "refresh"):
        done = total(executor, "leman_job_duration_seconds_count", 'leman_job_state="DONE"', f'leman_job_kind="{kind}"')
        assert done == 1, kind
    assert total(executor, "leman_job_stored_bytes_total", 'leman_file_kind="column"') > 5_000
    # a fragment's record is all that is stored of a job that takes no time
    assert total(executor, "leman_job_stored_bytes_total", 'leman_file_kind="checkpoint"') > 500
    assert total(executor, "leman_job_events_total", 'leman_event="commit"') >= 1
    assert total(executor, "rpc_server_call_duration_seconds_count", "JobService/CreateJob") == 2
    assert total(executor, "leman_jobs", 'leman_job_state="RUNNING"') == 0
    assert total(pages["planner"], "rpc_server_call_duration_seconds_count", "PlanningService/") >= 1
    phases, refreshed = ("table", "files", "stored", "decide", "inputs"), 'leman_job_kind="refresh"'
    for phase in phases:
        labels = f'leman_phase="{phase}"'
        assert total(pages["planner"], "leman_plan_duration_seconds_count", labels, 'leman_job_kind="backfill"') >= 1
        assert total(pages["planner"], "leman_plan_duration_seconds_count", labels, refreshed) >= 1
    assert total(pages["planner"], "leman_plan_duration_seconds_count", 'leman_phase="send"') >= 1
    assert total(executor, "db_client_operation_duration_seconds_count", 'db_operation_name="EVAL"') >= 1
    assert total(executor, "leman_redis_memory_bytes", 'leman_memory="used"') > 100_000
    assert total(coordinator, "leman_commit_fragments_total", 'leman_commit_outcome="committed"') >= 1
    assert total(coordinator, "leman_commit_duration_seconds_count", 'leman_commit_operation="Replace"') >= 1
    collector.until(lambda: "leman.job.rows" in collector.metrics.get("leman-executor", ()))
    assert set(collector.metrics) >= {f"leman-{name}" for name in SERVICES}

    lines = (tmp_path_factory.getbasetemp() / "lineage.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    assert [(event["eventType"], event["job"]["name"]) for event in events] == [
        ("START", "t.y"),
        ("COMPLETE", "t.y"),
        ("START", "v"),
        ("COMPLETE", "v"),
    ]
    assert columns_of(events[1]) == {"y": ["x"]}
    assert columns_of(events[3]) == {"x": ["x"], "y": ["y"], "z": ["x"]}
    assert events[3]["inputs"][0]["name"] == events[1]["outputs"][0]["name"] == str(tmp_path / "t.lance")

    collector.until(lambda: "backfill" in {span.name for span in collector.trace(trace_id)})
    is_one_trace(collector.trace(trace_id))


def columns_of(event: dict) -> dict[str, list[str]]:
    """Each column of the output, with those that it is computed from."""
    fields = event["outputs"][0]["facets"]["columnLineage"]["fields"]
    return {column: [one["field"] for one in given["inputFields"]] for column, given in fields.items()}


def is_one_trace(spans: list[Sent]) -> None:
    """Check that the spans of a job are one tree below the span of the program that asked for it."""
    by_id = {span.span_id: span for span in spans}
    way = {(span.name, by_id[span.parent].name if span.parent in by_id else "") for span in spans}
    create, plan, commit = (
        "leman.v1.JobService/CreateJob",
        "leman.internal.v1.PlanningService/CreatePlan",
        "leman.internal.v1.CommitSubmissionService/SubmitCommit",
    )
    assert way >= {
        (create, ""),
        ("backfill", create),
        ("plan", "backfill"),
        (plan, "plan"),
        *((phase, plan) for phase in ("table", "files", "stored", "decide", "inputs", "send")),
        ("unit", "backfill"),
        ("load", "unit"),
        ("read", "unit"),
        ("call", "unit"),
        ("checkpoint", "unit"),
        ("write", "unit"),
        ("commit", "backfill"),
        (commit, "commit"),
        ("check files", commit),
        ("queue", commit),
        ("install", commit),
    }
    assert {span.service for span in spans} == {f"leman-{name}" for name in SERVICES}
    job = next(span for span in spans if span.name == "backfill")
    assert job.attributes["leman.job.state"] == "DONE"
    inside = [span for span in spans if span.parent in by_id and by_id[span.parent].name in ("unit", "backfill")]
    assert all(job.begin <= span.begin <= span.end <= job.end for span in inside)
    assert sum(span.attributes["leman.rows"] for span in spans if span.name == "unit") == 5_000
