"""JSON over HTTP, as curl and clients of the Connect protocol see it, against a real server."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import ssl
import struct
import subprocess
import tempfile
import urllib.parse

import grpc
import pytest
from google.protobuf import descriptor_pool
from google.rpc import error_details_pb2

from leman.v1 import catalog_pb2, jobs_pb2
from leman_core.http import exchange as exchange_module
from leman_core.http import http_calls
from leman_core.http import listener as listener_module
from leman_core.http.app import PageRules
from leman_core.http.exchange import _CODES, wire_error
from leman_core.http.http_calls import callable_methods
from leman_core.model.service_errors import FailedPrecondition, InvalidArgument, NotFound, Unavailable
from leman_core.process import temp_folders
from leman_core.server import status as status_map
from leman_core.server.server import start_server
from leman_core.settings import Server, Settings
from tests.unit.core.rpc.http_helpers import CANCEL_JOB, GET_JOB, JSON, LINES, PREVIEW_FUNCTION, WATCH_JOB, http
from tests.unit.core.rpc.test_forwarding import front
from tests.unit.core.rpc_helpers import FakeService, running

CONNECT = {"content-type": "application/connect+json", "connect-protocol-version": "1"}
DETAIL = "google.rpc.ErrorInfo"
GPUS = "definition.resources.numGpus"


def body(**fields) -> bytes:
    return json.dumps(fields).encode()


def envelope(message: bytes, flags: int = 0) -> bytes:
    return struct.pack(">BI", flags, len(message)) + message


def unpacked(content: bytes) -> list[tuple[int, dict]]:
    """(flags, message in JSON) of each envelope."""
    found = []
    while content:
        flags, size = struct.unpack_from(">BI", content)
        found.append((flags, json.loads(content[5 : 5 + size])))
        content = content[5 + size :]
    return found


def reason(answer) -> str:
    return next(d["debug"]["reason"] for d in answer.json()["details"] if d["type"] == DETAIL)


def scenario(**server):
    """Runs a test's coroutine `work(connect, up, service)` against a server."""

    def run(work):
        async def whole():
            async with http(server) as (connect, up, service):
                await work(connect, up, service)

        asyncio.run(whole())

    return run


# ------------------------------------------------------------------------------------- unary


def test_curl_asks_and_is_answered_in_json():
    @scenario()
    async def work(connect, up, service):
        curl = await connect()
        answer = await curl.ask(GET_JOB, body(jobId="größe"), {**JSON, "x-request-id": "r1", "authorization": "x"})
        assert answer.status == 200
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["x-request-id"] == answer.headers["trailer-x-request-id"] == "r1"
        assert answer.json() == {"job": {"jobId": "größe"}}
        assert service.seen[0]["x-request-id"] == "r1"
        assert service.seen[0]["authorization"] == "x"
        again = await curl.ask(GET_JOB, body(job_id="by its name in the proto"))
        assert again.json()["job"]["jobId"] == "by its name in the proto"
        assert len(again.headers["x-request-id"]) == 32


def test_messages_may_be_bytes_of_protobuf():
    @scenario()
    async def work(connect, up, service):
        request = jobs_pb2.GetJobRequest(job_id="j1").SerializeToString()
        answer = await (await connect()).ask(GET_JOB, request, {"content-type": "application/proto"})
        assert answer.headers["content-type"] == "application/proto"
        assert jobs_pb2.GetJobResponse.FromString(answer.body).job.job_id == "j1"


def test_what_changes_nothing_may_be_asked_for_with_get():
    @scenario()
    async def work(connect, up, service):
        curl = await connect()
        plain = urllib.parse.urlencode({"connect": "v1", "encoding": "json", "message": '{"jobId":"j1"}'})
        answer = await curl.ask(f"{GET_JOB}?{plain}", b"", {}, method="GET")
        assert answer.json() == {"job": {"jobId": "j1"}}
        packed = base64.urlsafe_b64encode(jobs_pb2.GetJobRequest(job_id="j2").SerializeToString()).decode().rstrip("=")
        answer = await curl.ask(f"{GET_JOB}?encoding=proto&base64=1&message={packed}", b"", {}, method="GET")
        assert jobs_pb2.GetJobResponse.FromString(answer.body).job.job_id == "j2"
        for query, word in (
            ("encoding=xml", "BAD_MESSAGE"),
            ("message=%7B", "BAD_MESSAGE"),
            ("base64=1&message=!!!!!", "BAD_MESSAGE"),
            ("message=%7B%7D&message=%7B%7D", "BAD_MESSAGE"),
            ("message=%7B%7D&jobId=j1", "BAD_MESSAGE"),
            ("message=%7B%7D&x", "BAD_MESSAGE"),
            ("message=%7B%22jobId%22:%22%FF%22%7D", "BAD_MESSAGE"),
            ("compression=gzip", "COMPRESSED"),
        ):
            refused = await curl.ask(f"{GET_JOB}?{query}", b"", {}, method="GET")
            assert (refused.status in (400, 501), reason(refused)) == (True, word), query
        for path in (CANCEL_JOB, PREVIEW_FUNCTION):
            refused = await curl.ask(f"{path}?{plain}", b"", {}, method="GET")
            assert (refused.status, refused.headers["allow"], reason(refused)) == (405, "post", "HTTP_METHOD")
        assert service.ended == []


def test_get_is_for_methods_that_run_nothing_and_cost_little():
    """A new method that GET may ask for is to be judged, and added here: any web page can cause it."""
    got = {path.removeprefix("/leman.v1.") for path, method in callable_methods().items() if method.allows_get}
    assert got == {
        *("CatalogService/GetUdf", "CatalogService/ListUdfs", "CatalogService/DescribeTable"),
        *("CatalogService/ListTables", "CatalogService/GetMaterializedView", "CatalogService/ListMaterializedViews"),
        *("CommitService/GetCommit", "CommitService/ListCommits"),
        *("DatabaseService/GetDatabase", "DatabaseService/ListDatabases"),
        *("InfoService/GetInfo", "/grpc.health.v1.Health/Check"),
        *("JobService/GetJob", "JobService/ListJobs", "JobService/ListJobErrors"),
        "JobService/GroupJobErrors",
    }


def test_a_large_answer_comes_whole(monkeypatch):
    @scenario()
    async def work(connect, up, service):
        answer = await (await connect()).ask(GET_JOB, body(jobId="large"))
        assert answer.json()["job"]["planSummary"] == "x" * 3_000_000


def test_peers_are_asked_as_over_grpc():
    async def whole():
        async with (
            running() as (up, _),
            front(server=Server(http_port=0), executor=f"127.0.0.1:{up.port}") as before,
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", before.http.port)
            content = body(jobId="j1")
            head = f"POST {GET_JOB} HTTP/1.0\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            writer.write(f"{head}content-length: {len(content)}\r\n\r\n".encode() + content)
            answer = await reader.read()
            assert answer.endswith(b'{"job": {"jobId": "j1"}}')
            writer.close()

    asyncio.run(whole())


# ------------------------------------------------------------------------------------- errors


def test_an_error_has_connects_form_and_its_details_can_be_read():
    @scenario()
    async def work(connect, up, service):
        service.error = NotFound("JOB_NOT_FOUND", "there is no größe", job_id="j1")
        answer = await (await connect()).ask(GET_JOB, body(jobId="error"), {**JSON, "x-request-id": "r7"})
        assert (answer.status, answer.headers["x-request-id"]) == (404, "r7")
        told = answer.json()
        assert (told["code"], told["message"]) == ("not_found", "there is no größe")
        (detail,) = told["details"]
        assert detail["type"] == DETAIL
        assert detail["debug"] == {"reason": "JOB_NOT_FOUND", "domain": "leman", "metadata": {"job_id": "j1"}}
        packed = base64.b64decode(detail["value"] + "==")
        assert error_details_pb2.ErrorInfo.FromString(packed).reason == "JOB_NOT_FOUND"


def test_a_field_and_a_delay_are_told():
    @scenario()
    async def work(connect, up, service):
        curl = await connect()
        service.error = InvalidArgument("BAD_NUMBER", "no", field="job_id")
        told = (await curl.ask(GET_JOB, body(jobId="error"))).json()
        assert told["details"][1]["debug"]["fieldViolations"][0]["field"] == "job_id"
        service.error = Unavailable("STORE_DOWN", "no", retry_after_seconds=2.5)
        answer = await curl.ask(GET_JOB, body(jobId="error"))
        assert (answer.status, answer.headers["retry-after"]) == (503, "3")
        assert answer.json()["details"][1]["debug"] == {"retryDelay": "2.500s"}


def test_every_code_has_a_word_and_a_status_and_bugs_tell_nothing():
    assert set(_CODES) == set(grpc.StatusCode) - {grpc.StatusCode.OK}
    for error_class in set(status_map._CODES):
        wire = wire_error(error_class("A_REASON", "told"))
        assert wire.http_status >= 400
        assert wire.body["details"][0]["debug"]["reason"] == "A_REASON"

    @scenario()
    async def work(connect, up, service):
        service.error = KeyError("private")
        answer = await (await connect()).ask(GET_JOB, body(jobId="error"))
        assert (answer.status, reason(answer)) == (500, "INTERNAL_BUG")
        assert b"private" not in answer.body


def test_the_token_is_asked_for_as_over_grpc():
    @scenario(token="s3cret")
    async def work(connect, up, service):
        curl = await connect()
        wrong = {**JSON, "authorization": "Bearer wrong"}
        for headers, word in ((JSON, "TOKEN_REQUIRED"), (wrong, "TOKEN_INVALID")):
            refused = await curl.ask(GET_JOB, body(jobId="j1"), headers)
            assert (refused.status, reason(refused)) == (401, word)
            assert refused.headers["www-authenticate"] == "bearer"
        stream = await curl.ask(WATCH_JOB, body(jobId="j1"), LINES)
        assert (stream.status, reason(stream)) == (401, "TOKEN_REQUIRED")
        answer = await curl.ask(GET_JOB, body(jobId="j1"), {**JSON, "authorization": "Bearer s3cret"})
        assert answer.status == 200
        assert len(service.seen) == 1


@pytest.mark.parametrize(
    ("path", "content", "headers", "status", "word"),
    [
        (GET_JOB, b"{", JSON, 400, "BAD_MESSAGE"),
        (GET_JOB, b"\xff\xfe", JSON, 400, "BAD_MESSAGE"),
        (GET_JOB, b"null", JSON, 400, "BAD_MESSAGE"),
        (GET_JOB, b"[]", JSON, 400, "BAD_MESSAGE"),
        (GET_JOB, b"5", JSON, 400, "BAD_MESSAGE"),
        (GET_JOB, b"[1]", JSON, 400, "BAD_MESSAGE"),
        (GET_JOB, b'{"jobId": 5}', JSON, 400, "BAD_MESSAGE"),
        (GET_JOB, b'{"noSuchField": 5}', JSON, 400, "BAD_MESSAGE"),
        (GET_JOB, b'{"jobId": "a", "jobId": "b"}', JSON, 400, "BAD_MESSAGE"),
        (GET_JOB, b'{"jobId": "\\ud800"}', JSON, 400, "BAD_MESSAGE"),
        (GET_JOB, b"[" * 100_000, JSON, 400, "BAD_MESSAGE"),
        (GET_JOB, b'{"a":' * 50_000, JSON, 400, "BAD_MESSAGE"),
        (GET_JOB, b"\xff\xff\xff", {"content-type": "application/proto"}, 400, "BAD_MESSAGE"),
        (GET_JOB, b"{}", {"content-type": "application/x-www-form-urlencoded"}, 415, "CONTENT_TYPE"),
        (GET_JOB, b"{}", {"content-type": "text/plain"}, 415, "CONTENT_TYPE"),
        (GET_JOB, b"{}", {"content-type": "json"}, 415, "CONTENT_TYPE"),
        (GET_JOB, b"{}", {"content-type": "application/json; charset=latin1"}, 415, "CONTENT_TYPE"),
        (f"{GET_JOB}?jobId=j1", b"{}", JSON, 400, "BAD_MESSAGE"),
        (GET_JOB, b"{}", {}, 415, "CONTENT_TYPE"),
        (GET_JOB, b"{}", CONNECT, 415, "CONTENT_TYPE"),
        (WATCH_JOB, b"{}", JSON, 415, "CONTENT_TYPE"),
        (WATCH_JOB, b"{}", {"content-type": "application/proto"}, 415, "CONTENT_TYPE"),
        (GET_JOB, b"{}", {**JSON, "content-encoding": "gzip"}, 501, "COMPRESSED"),
        (GET_JOB, b"{}", {**JSON, "connect-timeout-ms": "soon"}, 400, "BAD_HEADER"),
        (GET_JOB, b"{}", {**JSON, "connect-timeout-ms": "-5"}, 400, "BAD_HEADER"),
        (GET_JOB, b"{}", {**JSON, "connect-timeout-ms": "12345678901"}, 400, "BAD_HEADER"),
        (GET_JOB, b"{}", {**JSON, "x-request-id": "x" * 8_000}, 400, "BAD_HEADER"),
        (GET_JOB, b"{}", {**JSON, **{f"x-some-{n}": "x" * 500 for n in range(20)}}, 400, "BAD_HEADER"),
        (GET_JOB, b"{}", {**JSON, "x-request-id": "gr\xf6\xdfe"}, 400, "BAD_HEADER"),
        (GET_JOB, b"{}", {**JSON, "x-some-bin": "no base64!"}, 400, "BAD_HEADER"),
        ("/", b"{}", JSON, 404, "NO_SUCH_METHOD"),
        ("/leman.v1.JobService", b"{}", JSON, 404, "NO_SUCH_METHOD"),
        ("/leman.v1.JobService/Nothing", b"{}", JSON, 404, "NO_SUCH_METHOD"),
        ("/leman.internal.v1.PlanningService/CreatePlan", b"{}", JSON, 404, "NO_SUCH_METHOD"),
        ("/%2e%2e/etc/passwd", b"{}", JSON, 404, "NO_SUCH_METHOD"),
        ("/leman.v1.CatalogService/ListTables", b"{}", JSON, 501, "NOT_SERVED_HERE"),
    ],
)
def test_garbage_is_refused_with_a_reason(path, content, headers, status, word):
    @scenario()
    async def work(connect, up, service):
        curl = await connect()
        answer = await curl.ask(path, content, headers)
        assert (answer.status, reason(answer)) == (status, word)
        assert service.seen == []
        assert (await curl.ask(GET_JOB, body(jobId="j1"))).status == 200, "the connection still works"


def parsed(kind, content):
    return kind.FromString(asyncio.run(http_calls.JSON.to_grpc(content.encode(), kind)))


@pytest.mark.parametrize(
    ("kind", "content", "field"),
    [
        (catalog_pb2.RegisterUdfRequest, '{"bundle": "@@@@"}', "bundle"),
        (catalog_pb2.RegisterUdfRequest, '{"bundle": "YQ="}', "bundle"),
        (catalog_pb2.RegisterUdfRequest, '{"bundle": "YQ==="}', "bundle"),
        (catalog_pb2.RegisterUdfRequest, '{"bundle": "YWJjZ"}', "bundle"),
        (catalog_pb2.RegisterUdfRequest, '{"bundle": "YW Jj"}', "bundle"),
        (catalog_pb2.RegisterUdfRequest, '{"bundle": [1]}', "bundle"),
        *(
            (catalog_pb2.RegisterUdfRequest, f'{{"definition": {{"resources": {{"numGpus": {value}}}}}}}', GPUS)
            for value in (
                "true",
                '" 1"',
                '"1_0"',
                '"+1"',
                '"01"',
                '"\u0661"',
                '"nan"',
                "NaN",
                "1e999",
                "1" * 400,
                "1" * 5000,
                "[1]",
            )
        ),
        *(
            (jobs_pb2.ListJobsRequest, f'{{"pageSize": {value}}}', "pageSize")
            for value in (
                "true",
                "1.5",
                '" 1"',
                '"1_0"',
                '"+1"',
                '"01"',
                '"\u0661"',
                '""',
                "NaN",
                "2147483648",
                "{}",
                "-" + "1" * 5000,
            )
        ),
        (jobs_pb2.ListJobsRequest, '{"filter": {"states": ["DONE"]}}', "filter.states[0]"),
        (jobs_pb2.ListJobsRequest, '{"filter": {"states": [true]}}', "filter.states[0]"),
        (jobs_pb2.ListJobsRequest, '{"filter": {"states": [1.5]}}', "filter.states[0]"),
        (jobs_pb2.ListJobsRequest, '{"filter": {"states": 1}}', "filter.states"),
        (jobs_pb2.ListJobsRequest, '{"filter": {"tables": [null]}}', "filter.tables[0]"),
        (jobs_pb2.ListJobsRequest, '{"filter": {"labels": {"a": 5}}}', "filter.labels.a"),
        (jobs_pb2.ListJobsRequest, '{"filter": {"labels": "sk-secret"}}', "filter.labels"),
        (jobs_pb2.ListJobsRequest, '{"filter": {"nothing": 5}}', "filter.nothing"),
        (jobs_pb2.ListJobsRequest, '{"filter": 5}', "filter"),
        *(
            (jobs_pb2.ListJobsRequest, f'{{"filter": {{"createTimeBefore": {value}}}}}', "filter.createTimeBefore")
            for value in ("5", '"2026-1-1T0:0:0Z"', '"2026-01-01 00:00:00Z"', '"2026-01-01T00:00:00"')
        ),
        *(
            (jobs_pb2.PreviewFunctionRequest, f'{{"timeout": {value}}}', "timeout")
            for value in ("5", '"5"', '" 5s"', '"+5s"', '"1_0s"', '"1.0000000001s"')
        ),
        (jobs_pb2.UpdateJobRequest, '{"updateMask": ["labels"]}', "updateMask"),
        (jobs_pb2.GetJobRequest, '{"jobId": "a", "jobId": "b"}', "jobId"),
        (jobs_pb2.ListJobsRequest, '{"page_size": 1, "pageSize": 1}', "pageSize"),
        (
            jobs_pb2.ListJobsRequest,
            '{"filter": {"createTimeFrom": null, "create_time_from": null}}',
            "filter.create_time_from",
        ),
    ],
)
def test_json_that_protobuf_does_not_have_is_refused_with_the_fields_path(kind, content, field):
    with pytest.raises(InvalidArgument) as caught:
        parsed(kind, content)
    assert (caught.value.reason, caught.value.field) == ("BAD_MESSAGE", field)
    assert f"in JSON: {field} " in caught.value.message
    assert "secret" not in caught.value.message


@pytest.mark.parametrize("depth", [150, 2000, 100_000])
def test_json_that_is_nested_too_deeply_is_refused_in_plain_words(depth):
    inner = '{"fields": [{"type": ' * depth + "{}" + "}]}" * depth
    content = f'{{"definition": {{"jsonOutputSchema": {{"fields": [{{"type": {inner}}}]}}}}}}'
    with pytest.raises(InvalidArgument, match="nested deeper than 100") as caught:
        parsed(catalog_pb2.RegisterUdfRequest, content)
    assert caught.value.reason == "BAD_MESSAGE"


def test_json_may_be_written_in_each_way_that_protobuf_has():
    for text in ("YWI+/w==", "YWI-_w==", "YWI-_w", "", "YWI+/w"):
        content = base64.b64decode("YWI+/w==") if text else b""
        assert parsed(catalog_pb2.RegisterUdfRequest, json.dumps({"bundle": text})).bundle == content
    for text in ("0.5", '"0.5"', "5e-1", '"5E-1"'):
        body = f'{{"definition": {{"resources": {{"num_gpus": {text}}}}}}}'
        assert parsed(catalog_pb2.RegisterUdfRequest, body).definition.resources.num_gpus == 0.5
    for text in ("20", '"20"', "20.0", "2e1", '"2e1"'):
        assert parsed(jobs_pb2.ListJobsRequest, f'{{"pageSize": {text}}}').page_size == 20
    for text in ('"STATE_DONE"', str(jobs_pb2.Job.STATE_DONE), f'"{jobs_pb2.Job.STATE_DONE}"'):
        found = parsed(jobs_pb2.ListJobsRequest, f'{{"filter": {{"states": [{text}], "labels": {{"a": "b"}}}}}}')
        assert (list(found.filter.states), dict(found.filter.labels)) == ([jobs_pb2.Job.STATE_DONE], {"a": "b"})
    for text in ("2026-01-31T12:00:00Z", "2026-01-31T13:00:00.000000000+01:00"):
        found = parsed(jobs_pb2.ListJobsRequest, f'{{"filter": {{"createTimeBefore": "{text}"}}}}')
        assert found.filter.create_time_before.ToJsonString() == "2026-01-31T12:00:00Z"
    assert parsed(jobs_pb2.PreviewFunctionRequest, '{"timeout": "1.5s"}').timeout.ToSeconds() == 1
    mask = parsed(jobs_pb2.UpdateJobRequest, '{"updateMask": "labels,priority"}').update_mask
    assert mask.paths == ["labels", "priority"]
    assert parsed(jobs_pb2.GetJobRequest, '{"jobId": null}') == jobs_pb2.GetJobRequest()


def test_the_port_knows_all_types_that_have_a_form_of_their_own_in_json():
    found, left = set(), [method.request.DESCRIPTOR for method in http_calls.callable_methods().values()]
    while left:
        message = left.pop()
        if message.full_name not in found:
            found.add(message.full_name)
            left += [field.message_type for field in message.fields if field.message_type is not None]
    own = {name for name in found if name.startswith("google.protobuf.")}
    assert own <= {*http_calls._TEXTS}


@pytest.mark.parametrize(
    "sent", [b"\x16\x03\x01" * 50, b"GET\r\n\r\n", b"POST / HTTP/9.9\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\n"]
)
def test_what_is_not_http_is_refused_and_harms_nobody(sent):
    @scenario()
    async def work(connect, up, service):
        stranger = await connect()
        stranger.writer.write(sent)
        assert (await stranger.reader.read(12)) in (b"HTTP/1.1 400", b"HTTP/1.1 404", b"HTTP/1.1 403")
        assert (await (await connect()).ask(GET_JOB, body(jobId="j1"))).status == 200


# ------------------------------------------------------------------------------------ streams


def test_curl_reads_a_stream_line_by_line():
    @scenario()
    async def work(connect, up, service):
        curl = await connect()
        curl.send(WATCH_JOB, body(jobId="j1"), LINES)
        head = await curl.head()
        assert (head.status, head.headers["content-type"]) == (200, "application/x-ndjson")
        assert json.loads(await curl.chunk()) == {"result": {"sequence": "1"}}
        service.draining.set()
        assert json.loads(await curl.chunk()) == {"result": {"sequence": "2"}}
        assert await curl.chunk() == b""


def test_a_stream_that_fails_says_so_in_its_last_line():
    @scenario()
    async def work(connect, up, service):
        service.error = FailedPrecondition("TYPE_MISMATCH", "no")
        answer = await (await connect()).ask(WATCH_JOB, body(jobId="error"), LINES)
        first, last = map(json.loads, answer.body.splitlines())
        assert first == {"result": {"sequence": "1"}}
        assert last["error"]["code"] == "failed_precondition"
        assert last["error"]["details"][0]["debug"]["reason"] == "TYPE_MISMATCH"


def test_clients_of_the_connect_protocol_read_envelopes():
    @scenario()
    async def work(connect, up, service):
        service.draining.set()
        client = await connect()
        answer = await client.ask(WATCH_JOB, envelope(body(jobId="j1")), {**CONNECT, "x-request-id": "r3"})
        assert (answer.status, answer.headers["content-type"]) == (200, "application/connect+json")
        first, second, last = unpacked(answer.body)
        assert (first, second) == ((0, {"sequence": "1"}), (0, {"sequence": "2"}))
        assert last == (2, {"metadata": {"x-request-id": ["r3"]}})
        service.error = NotFound("JOB_NOT_FOUND", "no")
        answer = await client.ask(WATCH_JOB, envelope(body(jobId="error")), CONNECT)
        assert answer.status == 200
        flags, last = unpacked(answer.body)[-1]
        assert (flags, last["error"]["code"]) == (2, "not_found")
        assert last["error"]["details"][0]["debug"]["reason"] == "JOB_NOT_FOUND"


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"", "BAD_ENVELOPE"),
        (b"\0\0", "BAD_ENVELOPE"),
        (envelope(b"{}")[:-1], "BAD_ENVELOPE"),
        (envelope(b"{}") * 2, "BAD_ENVELOPE"),
        (envelope(b"{}", flags=2), "BAD_ENVELOPE"),
        (envelope(b"{}", flags=1), "COMPRESSED"),
        (envelope(b"{"), "BAD_MESSAGE"),
        (struct.pack(">BI", 0, 1 << 31), "MESSAGE_TOO_LARGE"),
    ],
)
def test_bad_envelopes_are_refused_in_the_last_one(content, word):
    @scenario()
    async def work(connect, up, service):
        answer = await (await connect()).ask(WATCH_JOB, content, CONNECT)
        ((flags, last),) = unpacked(answer.body)
        assert (answer.status, flags) == (200, 2)
        assert last["error"]["details"][0]["debug"]["reason"] == word


# --------------------------------------------------------------------- deadlines, hanging up


#: On a busy machine the service may see a call only after the first of them.
DEADLINES = ("200", "1000", "5000")


def test_a_deadline_holds_for_calls_over_http():
    @scenario()
    async def work(connect, up, service):
        curl = await connect()
        for deadline in DEADLINES:
            answer = await curl.ask(GET_JOB, body(jobId="hang"), {**JSON, "connect-timeout-ms": deadline})
            assert (answer.status, answer.json()["code"]) == (504, "deadline_exceeded")
            if service.entered.is_set():
                break
        await service.cancelled.wait()
        for deadline in DEADLINES:
            lines = await curl.ask(WATCH_JOB, body(jobId="j1"), {**LINES, "connect-timeout-ms": deadline})
            if lines.status == 200:
                break
        assert json.loads(lines.body.splitlines()[-1])["error"]["code"] == "deadline_exceeded"


def test_whoever_hangs_up_ends_the_call():
    @scenario()
    async def work(connect, up, service):
        curl = await connect()
        curl.send(GET_JOB, body(jobId="hang"))
        await service.entered.wait()
        curl.close()
        await service.cancelled.wait()
        watcher = await connect()
        watcher.send(WATCH_JOB, body(jobId="j1"), LINES)
        await watcher.head()
        watcher.close()
        await up.activity.quiet()


def test_a_stop_ends_streams_over_http_too():
    @scenario(grace_seconds=3600)
    async def work(connect, up, service):
        curl = await connect()
        curl.send(WATCH_JOB, body(jobId="j1"), LINES)
        await curl.head()
        assert json.loads(await curl.chunk()) == {"result": {"sequence": "1"}}
        idle = await connect()
        stopping = asyncio.ensure_future(up.stop())
        assert json.loads(await curl.chunk()) == {"result": {"sequence": "2"}}
        await stopping
        assert await idle.reader.read() == b""
        with pytest.raises(ConnectionRefusedError):
            await connect()


# ------------------------------------------------------------------------------------- bounds


def test_a_body_that_is_too_large_is_refused_before_it_is_read():
    @scenario(max_message_mb=1)
    async def work(connect, up, service):
        curl = await connect()
        curl.send(GET_JOB, b"", {**JSON, "content-length": str(3 << 20)})
        told = await curl.answer()
        assert (told.status, reason(told)) == (429, "MESSAGE_TOO_LARGE")
        unsaid = await connect()
        unsaid.send(GET_JOB, b"", {**JSON, "transfer-encoding": "chunked"})
        for _ in range(3):
            unsaid.writer.write(b"100000\r\n" + b"x" * (1 << 20) + b"\r\n")
        found = await unsaid.answer()
        assert (found.status, reason(found)) == (429, "MESSAGE_TOO_LARGE")


def test_a_body_that_does_not_come_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(exchange_module, "_BODY_SECONDS", 0.2)

    @scenario()
    async def work(connect, up, service):
        curl = await connect()
        curl.send(GET_JOB, b"{", {**JSON, "content-length": "100"})
        answer = await curl.answer()
        assert (answer.status, reason(answer)) == (408, "BODY_TOO_SLOW")


def test_a_connection_that_asks_nothing_is_cut(monkeypatch):
    monkeypatch.setattr(listener_module, "_HEAD_SECONDS", 0.2)

    @scenario()
    async def work(connect, up, service):
        silent, slow, second = [await connect() for _ in range(3)]
        slow.writer.write(b"POST / HTTP/1.1\r\nhost: loc")
        assert (await second.ask(GET_JOB, body(jobId="j1"))).status == 200
        second.writer.write(b"POST / HTTP/1.1\r\nhost: loc")
        for caller in (silent, slow, second):
            with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
                await caller.reader.readuntil(b"never")


def test_a_caller_who_does_not_read_is_cut_and_costs_little(monkeypatch):
    monkeypatch.setattr(listener_module, "_READ_SECONDS", 0.5)
    sent = 0

    async def watch(self, request, context):
        nonlocal sent
        while True:
            sent += 1
            yield jobs_pb2.WatchJobResponse(sequence=sent, job=jobs_pb2.Job(job_id="x" * (1 << 20)))

    monkeypatch.setattr(FakeService, "WatchJob", watch)

    @scenario()
    async def work(connect, up, service):
        curl = await connect()
        curl.send(WATCH_JOB, body(jobId="j1"), LINES)
        await curl.reader.read(1)
        await up.activity.quiet()
        assert sent < 60


def test_more_requests_than_allowed_are_refused_at_once():
    @scenario(max_calls=1, max_streams=1)
    async def work(connect, up, service):
        first, second, third = [await connect() for _ in range(3)]
        first.send(GET_JOB, body(jobId="hang"))
        await service.entered.wait()
        refused = await second.ask(GET_JOB, body(jobId="j1"))
        assert (refused.status, reason(refused), refused.headers["retry-after"]) == (429, "TOO_MANY_CALLS", "1")
        second.send(CANCEL_JOB, b"", {**JSON, "content-length": "5"})  # its body never comes
        while up.http.running < 2:  # noqa: ASYNC110 - no one is notified of a request that is read
            await asyncio.sleep(0)
        refused = await third.ask(CANCEL_JOB, body(jobId="j1"))
        assert (refused.status, reason(refused)) == (429, "TOO_MANY_CALLS")
        assert service.ended == []


# ------------------------------------------------------------------------- browsers, TLS, port


#: Headers with which browsers send what a page causes that no setting names.
FOREIGN = (
    {"origin": "https://c.example"},
    {"origin": "null"},
    {"origin": "http://localhost:1"},
    {"origin": "https://a.example.evil.example"},
    {"origin": "https://a.example, https://c.example"},
    {"origin": "http://localhost", "sec-fetch-site": "none", "host": "127.0.0.1"},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"},
    {"sec-fetch-site": "unheard-of"},
)
PLAIN = {"content-type": "text/plain"}


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
@pytest.mark.parametrize("token", ["", "s3cret"])
def test_whatever_its_verb_a_request_of_a_foreign_page_is_refused(headers, token):
    @scenario(http_origins="https://a.example", token=token)
    async def work(connect, up, service):
        curl = await connect()
        known = {"authorization": f"Bearer {token}"}
        query = urllib.parse.urlencode({"encoding": "json", "message": '{"jobId":"j1"}'})
        form = {"content-type": "application/x-www-form-urlencoded"}
        upgrade = {"connection": "upgrade, http2-settings", "upgrade": "h2c", "http2-settings": "AAMAAABkAAQAAP__"}
        for verb, path, more in (
            ("GET", f"{GET_JOB}?{query}", {}),
            ("GET", f"{GET_JOB}?{query}", upgrade),
            ("GET", "/openapi.json", {}),
            ("GET", "/grpc.health.v1.Health/Check?message=%7B%7D", {}),
            ("GET", "/", {}),
            *(("POST", path, {**JSON, **more}) for path in (GET_JOB, CANCEL_JOB, WATCH_JOB) for more in ({}, LINES)),
            *(("POST", CANCEL_JOB, kind) for kind in (PLAIN, form, {}, {"content-type": "application/grpc-web+proto"})),
            ("POST", "/arrow.flight.protocol.FlightService/DoGet", JSON),
            *((verb, GET_JOB, JSON) for verb in ("OPTIONS", "PUT", "DELETE", "PATCH", "TRACE", "NONSENSE")),
        ):
            refused = await curl.ask(path, body(jobId="j1"), {**known, **more, **headers}, method=verb)
            assert (refused.status, reason(refused)) == (403, "ORIGIN_NOT_ALLOWED"), (verb, path, more)
            assert verb == "HEAD" or refused.json()["code"] == "permission_denied"
            assert not [name for name in refused.headers if name.startswith("access-control")]
        curl.send(GET_JOB, b"", {**known, **headers}, method="HEAD")
        assert (await curl.head()).status == 403
        assert (service.seen, service.ended) == ([], [])


def test_pages_of_named_origins_call_and_read_answers():
    preflight = {"origin": "https://a.example", "access-control-request-method": "POST"}

    @scenario(http_origins="https://a.example, https://b.example:8443")
    async def named(connect, up, service):
        curl = await connect()
        allowed = await curl.ask(GET_JOB, b"", preflight, method="OPTIONS")
        assert allowed.status == 204
        assert allowed.headers["access-control-allow-origin"] == "https://a.example"
        assert "authorization" in allowed.headers["access-control-allow-headers"]
        page = {"origin": "https://b.example:8443", "sec-fetch-site": "cross-site"}
        answer = await curl.ask(GET_JOB, body(jobId="j1"), {**JSON, **page})
        assert (answer.status, answer.headers["access-control-allow-origin"]) == (200, "https://b.example:8443")

    @scenario(http_origins="*", token="s3cret")
    async def all_of_them(connect, up, service):
        curl = await connect()
        known = {**JSON, "authorization": "Bearer s3cret"}
        assert (await curl.ask(GET_JOB, body(jobId="j1"), {**known, "origin": "https://c.example"})).status == 200
        assert (await curl.ask(GET_JOB, body(jobId="j1"), {**known, "origin": "null"})).status == 403


def test_people_and_pages_of_the_port_itself_are_no_foreigners():
    @scenario()
    async def work(connect, up, service):
        curl = await connect()
        for headers in (
            {"sec-fetch-site": "none"},
            {"sec-fetch-site": "same-origin"},
            {"host": "127.0.0.1:7480", "origin": "http://127.0.0.1:7480", "sec-fetch-site": "same-origin"},
        ):
            assert (await curl.ask(GET_JOB, body(jobId="j1"), {**JSON, **headers})).status == 200


@pytest.mark.parametrize("origins", ["null", "https://a.example/", "a.example", "https://A.example", "*"])
def test_origins_that_no_browser_sends_or_every_page_has_are_no_setting(origins):
    with pytest.raises(InvalidArgument, match="HTTP_ORIGINS") as caught:
        PageRules(Settings(server=Server(http_origins=origins)))
    assert caught.value.reason == "BAD_SETTING"


@pytest.mark.parametrize("host", ["attacker.example", "attacker.example:80", "", "[", "192.0.2.1"])
def test_without_a_token_only_names_of_this_machine_are_answered(host):
    """A web page's own name may be made to point here; the page cannot send another one."""

    @scenario()
    async def work(connect, up, service):
        curl = await connect()
        answer = await curl.ask(GET_JOB, body(jobId="j1"), {**JSON, "host": host})
        assert (answer.status, reason(answer)) == (403, "HOST_NOT_LOCAL")
        for name in ("localhost:80", "127.0.0.1:5", "[::1]:7"):
            assert (await curl.ask(GET_JOB, body(jobId="j1"), {**JSON, "host": name})).status == 200

    @scenario(http_hosts="proxy.example, Other.example")
    async def named(connect, up, service):
        curl = await connect()
        for name in ("proxy.example", "other.example:80", "OTHER.example."):
            assert (await curl.ask(GET_JOB, body(jobId="j1"), {**JSON, "host": name})).status == 200

    @scenario(token="s3cret")
    async def with_a_token(connect, up, service):
        answer = await (await connect()).ask(GET_JOB, body(), {**JSON, "host": "proxy.example"})
        assert answer.status == 401


def test_where_others_reach_it_without_a_token_it_is_called_by_address():
    @scenario(host="0.0.0.0", allow_insecure_bind=True, allow_anonymous=True)
    async def work(connect, up, service):
        curl = await connect()
        for host, status in (
            ("attacker.example", 403),
            ("192.0.2.1:5", 200),
            ("[2001:db8::1]", 200),
            ("localhost", 200),
        ):
            assert (await curl.ask(GET_JOB, body(jobId="j1"), {**JSON, "host": host})).status == status, host


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes its certificate with openssl")
def test_the_port_has_the_servers_tls(tmp_path):
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    make = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost"
    alternative = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
    subprocess.run([*make.split(), *alternative], check=True, capture_output=True)
    token = "no-one-guesses-this"
    trusted = ssl.create_default_context(cafile=str(cert))

    async def whole():
        server = {"tls_cert": str(cert), "tls_key": str(key), "token": token}
        async with http(server, ssl=trusted) as (connect, up, _):
            answer = await (await connect()).ask(
                GET_JOB, body(jobId="j1"), {**JSON, "authorization": f"Bearer {token}"}
            )
            assert answer.json() == {"job": {"jobId": "j1"}}
            reader, writer = await asyncio.open_connection("127.0.0.1", up.http.port)
            writer.write(b"POST / HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert not (await reader.read()).startswith(b"HTTP")
            writer.close()

    asyncio.run(whole())


def test_there_is_no_port_unless_asked_for_and_one_in_use_is_named():
    async def whole():
        async with running() as (up, _):
            assert up.http is None
        async with http() as (_, up, _service):
            taken = Settings(server=Server(http_port=up.http.port))
            with pytest.raises(Unavailable) as caught:
                await start_server(taken, "executor", FakeService(asyncio.Event()), asyncio.Event())
            assert caught.value.reason == "BIND_FAILED"
            assert "LEMAN_SERVER__HTTP_PORT: another process listens there" in caught.value.message

    asyncio.run(whole())


def test_a_machine_without_a_temporary_folder_is_told_what_to_see_to(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "file"))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(temp_folders, "_SHORT_FOLDERS", ())
    asked = Settings(server=Server(http_port=0))
    with pytest.raises(Unavailable, match="Check TMPDIR") as caught:
        asyncio.run(start_server(asked, "executor", FakeService(asyncio.Event()), asyncio.Event()))
    assert caught.value.reason == "BIND_FAILED"


def test_health_can_be_asked_for():
    @scenario(token="s3cret")
    async def work(connect, up, service):
        answer = await (await connect()).ask("/grpc.health.v1.Health/Check", b"{}")
        assert answer.json() == {"status": "SERVING"}


def test_the_openapi_document_is_served_and_has_every_method():
    @scenario(token="s3cret")
    async def work(connect, up, service):
        answer = await (await connect()).ask("/openapi.json", b"", {}, method="GET")
        assert answer.headers["content-type"] == "application/json"
        paths = answer.json()["paths"]
        service = descriptor_pool.Default().FindServiceByName("leman.v1.JobService")
        assert {f"/leman.v1.JobService/{m.name}" for m in service.methods} <= set(paths)

    @scenario(reflection=False)
    async def without(connect, up, service):
        assert (await (await connect()).ask("/openapi.json", b"", {}, method="GET")).status == 404


def test_a_stream_of_requests_is_for_grpc():
    @scenario()
    async def work(connect, up, service):
        answer = await (await connect()).ask("/leman.v1.TableService/AppendRows", b"{}")
        assert (answer.status, reason(answer)) == (501, "CLIENT_STREAM")
