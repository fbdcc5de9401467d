"""A plain generated client without the SDK: what a caller in any other language does."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path

import cloudpickle
import grpc
import lance
import pyarrow as pa
import pytest
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from leman.v1 import (
    catalog_pb2,
    catalog_pb2_grpc,
    info_pb2,
    info_pb2_grpc,
    jobs_pb2,
    jobs_pb2_grpc,
    planner_pb2,
    udf_pb2,
)
from tests.integration.call_log import numbers


@pytest.fixture
def metadata(system) -> list[tuple[str, str]]:
    return [("authorization", f"Bearer {system.service['token']}")]


@pytest.fixture
def executor(system) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(str(system.service["executor"])) as channel:
        yield channel


def test_create_job_and_watch_it_to_the_end(executor, metadata, tmp_path: Path):
    lance.write_dataset(numbers(500), str(tmp_path / "t.lance"), max_rows_per_file=100)
    info = info_pb2_grpc.InfoServiceStub(executor).GetInfo(info_pb2.GetInfoRequest(), metadata=metadata)
    with grpc.insecure_channel(info.planner_address) as planner:
        catalog = catalog_pb2_grpc.CatalogServiceStub(planner)
        bundle = cloudpickle.dumps(lambda x: x + 1)
        definition = udf_pb2.UdfDefinition(
            name="inc",
            version="1",
            kind=udf_pb2.UdfDefinition.KIND_SCALAR,
            input_columns=["x"],
            output_schema=pa.schema([pa.field("y", pa.int64())]).serialize().to_pybytes(),
            python_bundle=udf_pb2.PythonBundle(
                sha256=hashlib.sha256(bundle).hexdigest(),
                python_version=f"{sys.version_info.major}.{sys.version_info.minor}",
                size_bytes=len(bundle),
            ),
        )
        database = str(tmp_path)
        catalog.RegisterUdf(
            catalog_pb2.RegisterUdfRequest(database=database, definition=definition, bundle=bundle), metadata=metadata
        )
        table = catalog_pb2.TableRef(database=database, table="t")
        column = catalog_pb2.NewColumn(name="y", udf=udf_pb2.UdfRef(name="inc", version="1"))
        catalog.AddColumns(
            catalog_pb2.AddColumnsRequest(table=table, columns=[column], request_id="a"), metadata=metadata
        )
    jobs = jobs_pb2_grpc.JobServiceStub(executor)
    spec = planner_pb2.BackfillSpec(table=table, column="y")
    job = jobs.CreateJob(jobs_pb2.CreateJobRequest(backfill=spec, request_id="b"), metadata=metadata).job
    sequences, events = [], []
    watch = jobs_pb2.WatchJobRequest(database=database, job_id=job.job_id)
    for message in jobs.WatchJob(watch, metadata=metadata, timeout=60):
        sequences.append(message.sequence)
        events.extend(message.events)
        last = message.job
    assert last.state == jobs_pb2.Job.STATE_DONE
    assert last.progress.rows_committed == 500
    assert sequences == sorted(set(sequences))
    assert events[0].kind == jobs_pb2.JobEvent.KIND_PLAN
    late = jobs_pb2.WatchJobRequest(database=database, job_id=job.job_id, after_sequence=sequences[-1])
    (only,) = jobs.WatchJob(late, metadata=metadata, timeout=60)
    assert only.job.state == jobs_pb2.Job.STATE_DONE
    assert not only.events
    rows = lance.dataset(str(tmp_path / "t.lance")).to_table().to_pylist()
    assert all(r["y"] == r["x"] + 1 for r in rows)


@pytest.mark.parametrize(
    ("service", "expected"),
    [
        ("planner", {"leman.v1.CatalogService", "leman.v1.PlannerService", "leman.internal.v1.PlanningService"}),
        ("executor", {"leman.v1.JobService"}),
        ("commit_coordinator", {"leman.v1.CommitService", "leman.internal.v1.CommitSubmissionService"}),
    ],
)
def test_reflection_and_health_need_no_token(system, service, expected):
    with grpc.insecure_channel(str(system.service[service])) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        (answer,) = stub.ServerReflectionInfo(iter([request]))
        names = {s.name for s in answer.list_services_response.service}
        assert expected | {"leman.v1.InfoService", "grpc.health.v1.Health"} <= names
        health = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
        assert health.status == health_pb2.HealthCheckResponse.SERVING


def test_errors_carry_code_and_error_info(executor, metadata):
    jobs = jobs_pb2_grpc.JobServiceStub(executor)
    with pytest.raises(grpc.RpcError) as caught:
        jobs.GetJob(jobs_pb2.GetJobRequest(database="/nowhere", job_id="job-0"), metadata=metadata)
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    trailers = dict(caught.value.trailing_metadata())
    status = status_pb2.Status.FromString(trailers["grpc-status-details-bin"])
    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    assert (info.domain, info.reason) == ("leman", "JOB_NOT_FOUND")


def test_without_a_token_nothing_is_told(executor):
    jobs = jobs_pb2_grpc.JobServiceStub(executor)
    with pytest.raises(grpc.RpcError) as caught:
        jobs.ListJobs(jobs_pb2.ListJobsRequest(database="/nowhere"))
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
