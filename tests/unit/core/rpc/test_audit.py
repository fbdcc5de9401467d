"""Audit lines: who asked for what, with which outcome, for each change and each refusal."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import logging

import grpc
import pytest
import structlog

from leman.v1 import catalog_pb2, commit_pb2, jobs_pb2, udf_pb2
from leman_core.model.service_errors import NotFound
from leman_core.server import interceptors
from leman_core.settings import Log, Server, Settings
from leman_core.telemetry import logs as telemetry
from leman_internal.v1 import submission_pb2
from tests.unit.core.rpc.http_helpers import CANCEL_JOB, JSON, http
from tests.unit.core.rpc.test_forwarding import front
from tests.unit.core.rpc_helpers import client, running

TOKENS = {"reader": "the-token-of-the-reader", "runner": "the-token-of-the-runner"}
OLD = "a-token-that-has-expired"


@pytest.fixture
def lines():
    """Everything that is logged, as JSON objects, at the level `error`."""
    stream = io.StringIO()
    telemetry.configure(Settings(log=Log(level="error")), "executor", stream)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    logging.basicConfig(level=logging.WARNING, handlers=[], force=True)
    structlog.reset_defaults()


@pytest.fixture
def server(tmp_path):
    path = tmp_path / "tokens.toml"
    entries = [f'[[token]]\nname = "{role}"\nroles = ["{role}"]\ntoken = "{token}"' for role, token in TOKENS.items()]
    entries.append(f'[[token]]\nname = "gone"\nroles = []\ntoken = "{OLD}"\nexpires = 2020-01-01T00:00:00Z')
    path.write_text("\n".join(entries))
    return Server(tokens_file=str(path))


async def call(method, request, token=""):
    metadata = [("x-request-id", "r1"), *([("authorization", f"Bearer {token}")] if token else [])]
    with contextlib.suppress(grpc.aio.AioRpcError):
        await method(request, metadata=metadata)


def test_a_change_has_one_line_whatever_comes_of_it_and_a_read_that_is_allowed_none(lines, server):
    async def scenario():
        async with running(server) as (up, service), client(up) as stub:
            await call(stub.GetJob, jobs_pb2.GetJobRequest(job_id="j1", database="/lake"), TOKENS["reader"])
            await call(stub.CancelJob, jobs_pb2.CancelJobRequest(job_id="j1", database="/lake/"), TOKENS["runner"])
            service.error = NotFound("JOB_NOT_FOUND", "there is no such job")
            await call(stub.GetJob, jobs_pb2.GetJobRequest(job_id="error", database="/lake"), TOKENS["reader"])

    asyncio.run(scenario())
    (line,) = lines()
    assert line.pop("duration_ms") > 0
    assert line.pop("timestamp")
    assert line.pop("peer").startswith("ipv4:127.0.0.1:")
    assert line == {
        "event": "audit",
        "level": "info",
        "service": "executor",
        "request_id": "r1",
        "method": "JobService/CancelJob",
        "caller": "runner",
        "shown_by": "token",
        "database": "/lake",
        "job_id": "j1",
        "code": "OK",
    }


def test_each_refusal_has_a_line_with_who_it_was_as_far_as_that_is_known(lines, server):
    async def scenario():
        async with running(server) as (up, _), client(up) as stub:
            get, cancel = jobs_pb2.GetJobRequest(database="/lake"), jobs_pb2.CancelJobRequest(job_id="j1")
            await call(stub.GetJob, get)
            await call(stub.GetJob, get, "nobody-has-this-token")
            await call(stub.GetJob, get, OLD)
            await call(stub.CancelJob, cancel, TOKENS["reader"])

    asyncio.run(scenario())
    told = [(line["event"], line.get("caller"), line["code"], line["reason"], line["request_id"]) for line in lines()]
    assert told == [
        ("audit", None, "UNAUTHENTICATED", "TOKEN_REQUIRED", "r1"),
        ("audit", None, "UNAUTHENTICATED", "TOKEN_INVALID", "r1"),
        ("audit", "gone", "UNAUTHENTICATED", "TOKEN_EXPIRED", "r1"),
        ("audit", "reader", "PERMISSION_DENIED", "ROLE_REQUIRED", "r1"),
    ]


def test_behind_a_front_there_is_one_line_where_the_call_was_answered_with_the_way_that_it_came(lines, server):
    async def scenario():
        async with (
            running(server) as (up, _),
            front(server=server, executor=f"127.0.0.1:{up.port}") as before,
            client(before) as stub,
        ):
            await call(stub.CancelJob, jobs_pb2.CancelJobRequest(job_id="j1"), TOKENS["reader"])
            await call(stub.CancelJob, jobs_pb2.CancelJobRequest(job_id="j1"), TOKENS["runner"])

    asyncio.run(scenario())
    refused, done = lines()
    assert (refused["code"], refused["caller"], refused["request_id"]) == ("PERMISSION_DENIED", "reader", "r1")
    assert "forwarded_by" not in refused
    assert (done["code"], done["caller"], done["forwarded_by"]) == ("OK", "runner", "planner")
    assert done["forwarded_for"].startswith("ipv4:127.0.0.1:")
    assert done["forwarded_for"] != done["peer"]


def test_over_http_the_line_tells_the_address_of_the_caller_and_not_one_that_the_caller_tells(lines, server):
    async def scenario():
        async with http({"tokens_file": server.tokens_file}) as (connect, _, _):
            caller = await connect()
            boast = {**JSON, "authorization": f"Bearer {TOKENS['runner']}", "x-leman-forwarded-for": "tcp:1.2.3.4:5"}
            assert (await caller.ask(CANCEL_JOB, b'{"jobId": "j1"}', boast)).status == 200
            return caller.writer.get_extra_info("sockname")

    host, port = asyncio.run(scenario())
    (line,) = lines()
    assert (line["caller"], line["job_id"], line["forwarded_for"]) == ("runner", "j1", f"tcp:{host}:{port}")


def test_a_bug_has_its_traceback_beside_the_line(lines):
    async def scenario():
        async with running() as (up, service), client(up) as stub:
            service.may_end = None
            await call(stub.CancelJob, jobs_pb2.CancelJobRequest(job_id="j1"))

    asyncio.run(scenario())
    audited, bug = lines()
    assert (audited["event"], audited["reason"], audited["caller"]) == ("audit", "INTERNAL_BUG", "anonymous")
    assert "AttributeError" in bug["exception"]


def test_a_line_names_what_a_request_is_about_and_none_of_what_it_carries():
    job = jobs_pb2.CreateJobRequest()
    job.backfill.table.database, job.backfill.table.table, job.backfill.where = "/lake", "docs", "secret = 'x'"
    assert interceptors.named_subjects(job) == {"database": "/lake", "table": "docs"}
    register = catalog_pb2.RegisterUdfRequest(database="/lake", bundle=b"secret")
    register.definition.name, register.definition.version = "f", "1"
    assert interceptors.named_subjects(register) == {"database": "/lake", "udf": "f", "udf_version": "1"}
    drop = commit_pb2.DropViewRequest(view=catalog_pb2.TableRef(database="/lake", table="v"))
    assert interceptors.named_subjects(drop) == {"database": "/lake", "table": "v"}
    get = catalog_pb2.GetUdfRequest(database="/lake", udf=udf_pb2.UdfRef(name="f", version="1"))
    assert interceptors.named_subjects(get) == {"database": "/lake", "udf": "f", "udf_version": "1"}
    commit = submission_pb2.SubmitCommitRequest(uri="/lake/t.lance", job_id="j1")
    assert interceptors.named_subjects(commit) == {"uri": "/lake/t.lance", "job_id": "j1"}
    long = catalog_pb2.ListTablesRequest(database="/" + "x" * 1000)
    assert len(interceptors.named_subjects(long)["database"]) == 256
