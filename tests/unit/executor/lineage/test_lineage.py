"""Events of lineage: what they say, when they are sent, and what happens where no one takes them."""

from __future__ import annotations

import asyncio
import http.server
import json
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace

import pytest
import structlog.testing
from pydantic import ValidationError

from leman_core.model.job import Job, JobError, JobState, Progress
from leman_core.model.plan import BackfillSpec
from leman_core.settings import Lineage as Settings
from leman_executor.jobs import lineage
from leman_executor.jobs.lineage import LineageFacts, LineageSender, dataset_of, run_ended_event, run_started_event
from leman_executor.manager.job_store import LineageReporter
from tests.unit.executor.manager_helpers import Executor

DEADLINE = 20.0
MADE = LineageFacts("/lake/t.lance", 7, "/lake/t.lance", {"y": ("x", "z")})


def job(state: JobState = JobState.RUNNING, **more) -> Job:
    spec = BackfillSpec("/lake", "t", "y")
    return replace(Job("job-1", "", state, spec, 100.0, 100.0, Progress(rows_committed=5)), **more)


def test_a_run_says_what_is_made_of_what():
    event = run_started_event(job(labels={"team": "a"}), MADE, "prod", 0.0)
    assert (event["eventType"], event["eventTime"]) == ("START", "1970-01-01T00:00:00+00:00")
    assert (event["job"]["namespace"], event["job"]["name"]) == ("prod", "t.y")
    assert event["inputs"][0]["namespace"] == "file"
    assert event["inputs"][0]["name"] == event["outputs"][0]["name"] == "/lake/t.lance"
    assert event["inputs"][0]["facets"]["version"]["datasetVersion"] == "7"
    fields = event["outputs"][0]["facets"]["columnLineage"]["fields"]
    assert [f["field"] for f in fields["y"]["inputFields"]] == ["x", "z"]
    assert event["run"]["facets"]["leman_job"]["labels"] == {"team": "a"}
    uuid.UUID(event["run"]["runId"])


def test_all_events_of_a_job_are_of_one_run_and_every_facet_says_who_made_it():
    events = [
        run_started_event(job(), MADE, "n", 0.0),
        run_started_event(job(attempt=2), MADE, "n", 1.0),
        run_ended_event(job(JobState.DONE), MADE, "n"),
    ]
    assert [event["eventType"] for event in events] == ["START", "RUNNING", "COMPLETE"]
    assert len({event["run"]["runId"] for event in events}) == 1
    other = run_started_event(replace(job(), job_id="job-2"), MADE, "n", 0.0)
    assert other["run"]["runId"] != events[0]["run"]["runId"]

    def facets(node) -> Iterator[dict]:
        for key, value in node.items() if isinstance(node, dict) else ():
            yield from value.values() if key in ("facets", "outputFacets") else facets(value)
            for one in value if isinstance(value, list) else ():
                yield from facets(one)

    found = [facet for event in events for facet in facets(event)]
    assert len(found) >= 10
    assert all({"_producer", "_schemaURL"} <= facet.keys() for facet in found)


@pytest.mark.parametrize(
    ("state", "kind"),
    [(JobState.DONE, "COMPLETE"), (JobState.DONE_WITH_ERRORS, "COMPLETE"), (JobState.CANCELLED, "ABORT")],
)
def test_ends_are_told_as_openlineage_has_them(state, kind):
    event = run_ended_event(job(state, table_version=9, ended_at=60.0), MADE, "n")
    assert (event["eventType"], event["eventTime"]) == (kind, "1970-01-01T00:01:00+00:00")
    (output,) = event["outputs"]
    assert output["facets"]["version"]["datasetVersion"] == "9"
    assert output["outputFacets"]["outputStatistics"]["rowCount"] == 5


def test_a_failure_tells_its_reason_and_no_value_of_a_row():
    error = JobError(kind="Aborted", reason="UDF_FAILED", message="ValueError: no such card 4711")
    event = run_ended_event(job(JobState.FAILED, error=error), MADE, "n")
    assert event["eventType"] == "FAIL"
    assert "UDF_FAILED" in event["run"]["facets"]["errorMessage"]["message"]
    assert "4711" not in json.dumps(event)


@pytest.mark.parametrize(
    ("uri", "namespace", "name"),
    [
        ("/a/lake/t.lance", "file", "/a/lake/t.lance"),
        ("s3://bucket/lake/t.lance", "s3://bucket", "lake/t.lance"),
        ("gs://bucket/t.lance", "gs://bucket", "t.lance"),
    ],
)
def test_tables_are_named_as_others_name_them(uri, namespace, name):
    assert dataset_of(uri) == {"namespace": namespace, "name": name}


def test_a_job_is_told_of_once_when_it_begins_and_once_when_it_ends():
    sent: list[dict] = []
    told = LineageReporter(sent.append, "n")
    told.runs(job(), MADE)
    told.runs(job(), MADE)
    told.ends(job(JobState.DONE), MADE)
    told.ends(replace(job(JobState.DONE), job_id="had-nothing-to-do"), None)
    assert [event["eventType"] for event in sent] == ["START", "COMPLETE", "START", "COMPLETE"]
    assert sent[-1]["inputs"] == []
    assert sent[-1]["outputs"][0]["name"] == "/lake/t.lance"


def test_jobs_of_an_executor_are_told_of(tmp_path):
    sent: list[dict] = []

    async def live() -> None:
        executor = Executor(tmp_path)
        executor.store.lineage = LineageReporter(sent.append, "n")
        spec = BackfillSpec(str(tmp_path), "t", "y")
        cancelled = await executor.jobs.create(spec, "")
        await executor.works()
        await executor.jobs.cancel(str(tmp_path), cancelled.job_id)
        await asyncio.gather(*executor.running.tasks.values())
        executor.planner.tasks = ()
        await executor.jobs.create(spec, "")
        await executor.stop()

    (tmp_path / "_leman").mkdir()
    asyncio.run(live())
    assert [event["eventType"] for event in sent] == ["START", "ABORT", "START", "COMPLETE"]
    assert {event["outputs"][0]["name"] for event in sent} == {"/lake/t.lance"}  # as the plan has it
    fields = sent[0]["outputs"][0]["facets"]["columnLineage"]["fields"]
    assert [one["field"] for one in fields["y"]["inputFields"]] == ["x"]


# ------------------------------------------------------------------------------------ the way out


class Receiver:
    """An HTTP endpoint that gives these answers, 0 for none that makes sense, then 201."""

    def __init__(self, *answers: int) -> None:
        self.got: list[tuple[str | None, dict]] = []
        self.asked = threading.Semaphore(0)
        self.refusals = len(answers)
        left = list(answers)
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                code = left.pop(0) if left else 201
                if code == 201:
                    receiver.got.append((self.headers["Authorization"], body))
                if not code:
                    self.wfile.write(b"no answer of HTTP\r\n\r\n")
                    receiver.asked.release()
                    return
                self.send_response(code)
                if code == 307:
                    self.send_header("Location", "http://127.0.0.1:9/elsewhere")
                self.end_headers()
                receiver.asked.release()

            def log_message(self, *_: object) -> None: ...

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/api/v1/lineage"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def receiver(request) -> Iterator[Receiver]:
    receiver = Receiver(*getattr(request, "param", ()))
    yield receiver
    receiver.close()


@pytest.mark.parametrize("receiver", [(), (503, 503), (0, 0)], indirect=True)
def test_events_are_posted_with_the_key_and_again_where_the_endpoint_is_busy(receiver, monkeypatch):
    monkeypatch.setattr(lineage, "_PAUSE_SECONDS", 0.001)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    sending = LineageSender(Settings(url=receiver.url, api_key="k3y"))
    sending.send({"n": 1})
    sending.send({"n": 2})
    assert all(receiver.asked.acquire(timeout=DEADLINE) for _ in range(receiver.refusals + 2))
    sending.stop()
    assert receiver.got == [("Bearer k3y", {"n": 1}), ("Bearer k3y", {"n": 2})]


@pytest.mark.parametrize("receiver", [(307,) * 6], indirect=True)
def test_the_key_follows_no_redirect(receiver, monkeypatch):
    monkeypatch.setattr(lineage, "_PAUSE_SECONDS", 0.001)
    sending = LineageSender(Settings(url=receiver.url, api_key="k3y"))
    with structlog.testing.capture_logs() as lines:
        sending.send({"n": 1})
        assert all(receiver.asked.acquire(timeout=DEADLINE) for _ in range(3))
        sending.stop()
    assert "307" in lines[0]["error"]


def test_events_are_appended_to_a_file(tmp_path):
    sending = LineageSender(Settings(file=str(tmp_path / "events.jsonl")))
    for n in range(3):
        sending.send({"n": n})
    sending.stop()
    assert [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()] == [
        {"n": 0},
        {"n": 1},
        {"n": 2},
    ]


def test_where_nobody_takes_events_nothing_waits_and_the_log_tells_once(tmp_path):
    with structlog.testing.capture_logs() as lines:
        sending = LineageSender(Settings(file=str(tmp_path / "no folder" / "events.jsonl")))
        begin = time.monotonic()
        for n in range(5_000):
            sending.send({"n": n})
        assert time.monotonic() - begin < 5.0
        sending.stop()
    assert len(lines) == 1


def test_a_url_and_a_file_are_not_both_given():
    with pytest.raises(ValidationError, match="not both"):
        Settings(url="http://a", file="b")
    with pytest.raises(ValidationError):
        Settings(url="ftp://a")
