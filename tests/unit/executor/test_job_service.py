"""JobService as its callers see it, over a Spark whose workers end on request."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.timestamp_pb2 import Timestamp

import leman_executor
from leman.v1 import catalog_pb2, jobs_pb2, jobs_pb2_grpc, planner_pb2
from leman_core.model.plan import BackfillSpec
from leman_core.model.service_errors import InvalidArgument
from leman_core.model.work import RowError
from leman_core.server.callers import ANONYMOUS, CURRENT, UNNAMED, make_caller
from leman_core.server.server import start_server
from leman_core.server.status import error_from_rpc
from leman_core.settings import Executor as ExecutorSettings
from leman_core.settings import Server, Settings
from leman_executor.api import job_service
from leman_executor.api.job_service import JobServicer
from leman_executor.worker.error_store import JobErrors, errors_uri
from tests.unit.executor.manager_helpers import NO_OTHERS, NO_PREVIEWS, Executor

State = jobs_pb2.Job.State
DEADLINE = 60.0
TOKEN = "0123456789abcdef"
EXECUTOR = ExecutorSettings(max_running_jobs=1, max_waiting_jobs=60)


class _Service:
    """JobService alone, as a process has it."""

    def __init__(self, executor: Executor, draining: asyncio.Event) -> None:
        self.servicer = JobServicer(executor.jobs, draining, NO_PREVIEWS, NO_OTHERS)

    async def start(self, server: grpc.aio.Server, _locations: object) -> list[str]:
        return self.servicer.add_to(server)

    async def stop(self) -> None: ...


class Caller:
    """A caller with stubs from the protos alone."""

    def __init__(self, executor: Executor, stub: jobs_pb2_grpc.JobServiceStub, draining: asyncio.Event) -> None:
        self.executor = executor
        self.database = executor.database
        self.stub: Any = stub
        self.draining = draining

    async def create(self, table: str = "t", **fields: Any) -> jobs_pb2.Job:
        ref = catalog_pb2.TableRef(database=self.database, table=table)
        spec = planner_pb2.BackfillSpec(table=ref, column="y")
        return (await self.stub.CreateJob(jobs_pb2.CreateJobRequest(backfill=spec, **fields))).job

    async def ids(self, **fields: Any) -> list[str]:
        wanted = jobs_pb2.JobFilter(**fields)
        answer = await self.stub.ListJobs(jobs_pb2.ListJobsRequest(database=self.database, filter=wanted))
        return [job.job_id for job in answer.jobs]

    async def refused(self, call: Any) -> tuple[str, str]:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        return caught.value.code().name, error_from_rpc(caught.value).reason


@contextlib.asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[Caller]:
    (folder / "_leman").mkdir()
    tokens = folder / "tokens.toml"
    tokens.write_text(f'[[token]]\nname = "me"\ntoken = "{TOKEN}"\nroles = ["admin"]\n')
    settings = Settings(server=Server(tokens_file=str(tokens)), executor=EXECUTOR)
    executor, draining = Executor(folder, settings), asyncio.Event()
    running = await start_server(settings, "executor", _Service(executor, draining), draining)
    try:
        credentials = grpc.aio.insecure_channel(f"127.0.0.1:{running.port}", interceptors=[_Token()])
        async with credentials as channel, asyncio.timeout(DEADLINE):
            yield Caller(executor, jobs_pb2_grpc.JobServiceStub(channel), draining)
    finally:
        await executor.stop()
        await running.stop()


class _Token(grpc.aio.UnaryUnaryClientInterceptor):
    async def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        metadata = grpc.aio.Metadata(("authorization", f"Bearer {TOKEN}"))
        return await continuation(details._replace(metadata=metadata), request)


def test_jobs_are_found_by_what_is_known_of_them(tmp_path):
    async def scenario() -> None:
        async with serving(tmp_path) as caller:
            one = await caller.create(labels={"team": "red"}, priority=5)
            two = await caller.create("u", labels={"team": "blue", "run": "7"})
            assert (one.labels["team"], one.priority, one.initiator) == ("red", 5, "me")
            assert await caller.ids() == [two.job_id, one.job_id]
            assert await caller.ids(labels={"run": "7"}) == await caller.ids(tables=["u"]) == [two.job_id]
            assert await caller.ids(states=[State.STATE_RUNNING]) == [one.job_id]
            assert await caller.ids(create_time_before=two.create_time) == [one.job_id]
            assert await caller.ids(create_time_from=two.create_time) == [two.job_id]
            assert await caller.ids(initiator="me", column="y") == [two.job_id, one.job_id]
            assert await caller.ids(initiator="somebody") == await caller.ids(column="z") == []
            assert one.HasField("start_time")
            assert not two.HasField("start_time")
            assert not one.HasField("end_time")

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("name", "shown_by", "initiator"),
    [("me", "token", "me"), (UNNAMED, "token", ""), (ANONYMOUS, ANONYMOUS, "")],
)
def test_a_caller_without_a_name_is_no_initiator(name, shown_by, initiator):
    before = CURRENT.set(make_caller(name, shown_by, ["admin"]))
    try:
        assert job_service._initiator() == initiator
    finally:
        CURRENT.reset(before)


def test_pages_keep_their_order_and_their_filter_and_tell_how_many_there_are(tmp_path):
    async def scenario() -> None:
        async with serving(tmp_path) as caller:
            made = [(await caller.create(labels={"n": str(n % 2)})).job_id for n in range(6)]
            for order, expected in (
                (jobs_pb2.JOB_ORDER_UNSPECIFIED, made[::-1]),
                (jobs_pb2.JOB_ORDER_NEWEST_FIRST, made[::-1]),
                (jobs_pb2.JOB_ORDER_OLDEST_FIRST, made),
            ):
                request = jobs_pb2.ListJobsRequest(
                    database=caller.database, page_size=4, order=order, include_total_size=True
                )
                first = await caller.stub.ListJobs(request)
                request.page_token = first.next_page_token
                rest = await caller.stub.ListJobs(request)
                assert [job.job_id for job in (*first.jobs, *rest.jobs)] == expected
                assert (first.total_size, rest.total_size, rest.next_page_token) == (6, 6, "")
                request.filter.labels["n"] = "0"
                assert (await caller.refused(caller.stub.ListJobs(request)))[1] == "BAD_PAGE_TOKEN"
                request.page_token = ""
                assert (await caller.stub.ListJobs(request)).total_size == 3
            plain = await caller.stub.ListJobs(jobs_pb2.ListJobsRequest(database=caller.database))
            assert not plain.HasField("total_size")

    asyncio.run(scenario())


def test_of_jobs_that_wait_those_with_a_higher_priority_are_next(tmp_path):
    async def scenario() -> None:
        async with serving(tmp_path) as caller:
            running, low, usual, high = [await caller.create(priority=p) for p in (0, -1, 0, 7)]
            assert not running.HasField("queue_position")
            places = {}
            for job in (low, usual, high):
                got = await caller.stub.GetJob(jobs_pb2.GetJobRequest(database=caller.database, job_id=job.job_id))
                places[job.job_id] = got.job.queue_position
            assert places == {high.job_id: 1, usual.job_id: 2, low.job_id: 3}
            request = jobs_pb2.UpdateJobRequest(
                database=caller.database, job_id=low.job_id, priority=50, update_mask=FieldMask(paths=["priority"])
            )
            changed = (await caller.stub.UpdateJob(request)).job
            assert (changed.queue_position, changed.priority) == (1, 50)
            await caller.stub.CancelJob(jobs_pb2.CancelJobRequest(database=caller.database, job_id=running.job_id))
            async for _, job, *_ in caller.executor.jobs.watch(caller.database, low.job_id, 0, 10.0):
                if job.started_at:
                    break
            assert await caller.ids(states=[State.STATE_PENDING]) == [high.job_id, usual.job_id]

    asyncio.run(scenario())


def test_a_job_is_paused_resumed_and_deleted_once_it_has_ended(tmp_path):
    async def scenario() -> None:
        async with serving(tmp_path) as caller:
            running, waiting = await caller.create(), await caller.create()
            of_running, of_waiting = ({"database": caller.database, "job_id": job.job_id} for job in (running, waiting))
            paused = (await caller.stub.PauseJob(jobs_pb2.PauseJobRequest(**of_waiting))).job
            assert (paused.state, paused.HasField("queue_position")) == (State.STATE_PAUSED, False)
            assert await caller.ids(states=[State.STATE_PAUSED]) == [waiting.job_id]
            wait = jobs_pb2.WaitJobRequest(**of_waiting, timeout=Duration(nanos=1))
            assert (await caller.stub.WaitJob(wait)).job.state == State.STATE_PAUSED
            resumed = (await caller.stub.ResumeJob(jobs_pb2.ResumeJobRequest(**of_waiting))).job
            assert (resumed.state, resumed.queue_position) == (State.STATE_PENDING, 1)
            delete = jobs_pb2.DeleteJobRequest(**of_running)
            assert await caller.refused(caller.stub.DeleteJob(delete)) == ("FAILED_PRECONDITION", "JOB_RUNNING")
            await caller.stub.CancelJob(jobs_pb2.CancelJobRequest(**of_running))
            assert (await caller.stub.WaitJob(jobs_pb2.WaitJobRequest(**of_running))).job.HasField("end_time")
            pause = caller.stub.PauseJob(jobs_pb2.PauseJobRequest(**of_running))
            assert await caller.refused(pause) == ("FAILED_PRECONDITION", "JOB_ENDED")
            await caller.stub.DeleteJob(delete)
            await caller.stub.DeleteJob(delete)
            get = caller.stub.GetJob(jobs_pb2.GetJobRequest(**of_running))
            assert await caller.refused(get) == ("NOT_FOUND", "JOB_NOT_FOUND")
            assert await caller.ids() == [waiting.job_id]

    asyncio.run(scenario())


def test_an_update_changes_what_its_mask_names_until_the_job_has_ended(tmp_path):
    async def scenario() -> None:
        async with serving(tmp_path) as caller:
            job = await caller.create(labels={"a": "1"}, priority=3)

            async def update(*paths: str, **fields: Any) -> jobs_pb2.Job:
                request = jobs_pb2.UpdateJobRequest(
                    database=caller.database, job_id=job.job_id, update_mask=FieldMask(paths=paths), **fields
                )
                return (await caller.stub.UpdateJob(request)).job

            changed = await update("labels", labels={"b": "2"}, priority=99)
            assert (dict(changed.labels), changed.priority) == ({"b": "2"}, 3)
            assert await caller.ids(labels={"b": "2"}) == [job.job_id]
            for paths in ((), ("state",), ("labels", "job_id")):
                assert await caller.refused(update(*paths)) == ("INVALID_ARGUMENT", "BAD_UPDATE_MASK")
            await caller.stub.CancelJob(jobs_pb2.CancelJobRequest(database=caller.database, job_id=job.job_id))
            ended = await caller.stub.WaitJob(jobs_pb2.WaitJobRequest(database=caller.database, job_id=job.job_id))
            assert (ended.job.state, ended.job.HasField("end_time")) == (State.STATE_CANCELLED, True)
            assert await caller.refused(update("priority")) == ("FAILED_PRECONDITION", "JOB_ENDED")

    asyncio.run(scenario())


def test_a_wait_ends_with_the_job_or_with_its_time_or_with_the_service(tmp_path):
    async def scenario() -> None:
        async with serving(tmp_path) as caller:
            job = await caller.create()
            wait = jobs_pb2.WaitJobRequest(
                database=caller.database, job_id=job.job_id, timeout=Duration(nanos=50_000_000)
            )
            assert (await caller.stub.WaitJob(wait)).job.state == State.STATE_RUNNING
            wait.ClearField("timeout")
            waiting = asyncio.ensure_future(caller.stub.WaitJob(wait))
            await asyncio.wait([waiting], timeout=0.1)
            assert not waiting.done()
            caller.draining.set()
            assert await caller.refused(waiting) == ("UNAVAILABLE", "DRAINING")
            wait.timeout.seconds = -1
            assert await caller.refused(caller.stub.WaitJob(wait)) == ("INVALID_ARGUMENT", "BAD_NUMBER")
            wait.job_id = "job-none"
            wait.ClearField("timeout")
            assert await caller.refused(caller.stub.WaitJob(wait)) == ("NOT_FOUND", "JOB_NOT_FOUND")

    asyncio.run(scenario())


def test_many_jobs_are_cancelled_at_once(tmp_path):
    async def scenario() -> None:
        async with serving(tmp_path) as caller:
            mine = [(await caller.create(labels={"team": "red"})).job_id for _ in range(3)]
            other = await caller.create()
            wanted = jobs_pb2.JobFilter(labels={"team": "red"})
            request = jobs_pb2.CancelJobsRequest(database=caller.database, filter=wanted)
            answer = await caller.stub.CancelJobs(request)
            assert {job.job_id for job in answer.jobs} == set(mine)
            assert not answer.jobs_elsewhere
            for job_id in mine:
                wait = jobs_pb2.WaitJobRequest(database=caller.database, job_id=job_id)
                assert (await caller.stub.WaitJob(wait)).job.state == State.STATE_CANCELLED
            assert list((await caller.stub.CancelJobs(request)).jobs) == []
            ended = jobs_pb2.JobFilter(states=[State.STATE_CANCELLED, State.STATE_DONE])
            request = jobs_pb2.CancelJobsRequest(database=caller.database, filter=ended)
            assert list((await caller.stub.CancelJobs(request)).jobs) == [], "nor is another one taken for them"
            unfinished = [State.STATE_PENDING, State.STATE_PLANNING, State.STATE_RUNNING]
            assert await caller.ids(states=unfinished) == [other.job_id]
            none = jobs_pb2.CancelJobsRequest(database=caller.database)
            assert await caller.refused(caller.stub.CancelJobs(none)) == ("INVALID_ARGUMENT", "MISSING_FIELD")

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"priority": 101}, "BAD_NUMBER"),
        ({"priority": -101}, "BAD_NUMBER"),
        ({"labels": {"": "x"}}, "BAD_LABEL"),
        ({"labels": {"two words": "x"}}, "BAD_LABEL"),
        ({"labels": {"k" * 64: "x"}}, "BAD_LABEL"),
        ({"labels": {"k": "ä" * 128}}, "BAD_LABEL"),
        ({"labels": {"k": "\x1b[31mred"}}, "BAD_LABEL"),
        ({"labels": {"k": "two\nlines"}}, "BAD_LABEL"),
        ({"labels": {str(n): "" for n in range(33)}}, "BAD_LABEL"),
    ],
)
def test_what_no_job_can_have_is_refused(tmp_path, fields, reason):
    async def scenario() -> None:
        async with serving(tmp_path) as caller:
            assert await caller.refused(caller.create(**fields)) == ("INVALID_ARGUMENT", reason)
            assert await caller.ids() == []

    asyncio.run(scenario())


def test_a_filter_that_makes_no_sense_is_refused(tmp_path):
    async def scenario() -> None:
        async with serving(tmp_path) as caller:
            for fields, reason in (
                ({"states": [99]}, "UNKNOWN_VALUE"),
                ({"states": [0]}, "UNKNOWN_VALUE"),
                ({"create_time_from": Timestamp(seconds=1 << 60)}, "BAD_TIME"),
                ({"create_time_before": Timestamp(nanos=-1)}, "BAD_TIME"),
            ):
                assert await caller.refused(caller.ids(**fields)) == ("INVALID_ARGUMENT", reason)
            request = jobs_pb2.ListJobsRequest(database=caller.database, order=9)
            assert await caller.refused(caller.stub.ListJobs(request)) == ("INVALID_ARGUMENT", "UNKNOWN_VALUE")
            empty = jobs_pb2.CreateJobRequest()
            assert await caller.refused(caller.stub.CreateJob(empty)) == ("INVALID_ARGUMENT", "BAD_REQUEST")

    asyncio.run(scenario())


def test_failed_rows_are_grouped_page_by_page(tmp_path):
    async def scenario() -> None:
        async with serving(tmp_path) as caller:
            job = await caller.create()
            sink = JobErrors(errors_uri(caller.database), job.job_id, "y", "1")
            messages = ["few", *("some" for _ in range(2)), *(f"most {n}" for n in range(3))]
            sink.store(
                [
                    RowError(row_address=n, error_type="E", error_message=text, traceback=f"at {n}", attempt=1)
                    for n, text in enumerate(messages)
                ]
            )
            request = jobs_pb2.GroupJobErrorsRequest(database=caller.database, job_id=job.job_id, page_size=2)
            first = await caller.stub.GroupJobErrors(request)
            assert [(group.error_message, group.rows) for group in first.groups] == [("most …", 3), ("some", 2)]
            assert [(e.row_address, e.traceback, e.column) for e in first.groups[0].examples] == [(3, "at 3", "y")]
            assert (first.total_size, first.rows, first.rows_ungrouped) == (3, 6, 0)
            request.page_token, request.examples = first.next_page_token, 0
            (last,) = (rest := await caller.stub.GroupJobErrors(request)).groups
            assert (last.error_message, len(last.examples), rest.next_page_token) == ("few", 0, "")
            request.column = "z"
            assert (await caller.refused(caller.stub.GroupJobErrors(request)))[1] == "BAD_PAGE_TOKEN"
            request.page_token = ""
            assert (await caller.stub.GroupJobErrors(request)).rows == 0
            for examples in (-1, 6):
                request.examples = examples
                refused = await caller.refused(caller.stub.GroupJobErrors(request))
                assert refused == ("INVALID_ARGUMENT", "BAD_NUMBER")
            request = jobs_pb2.GroupJobErrorsRequest(database=caller.database, job_id="none")
            assert await caller.refused(caller.stub.GroupJobErrors(request)) == ("NOT_FOUND", "JOB_NOT_FOUND")

    asyncio.run(scenario())


def test_every_kind_of_event_that_a_job_has_is_one_of_the_contract():
    noted = {
        kind
        for path in Path(leman_executor.__file__).parent.rglob("*.py")
        for kind in re.findall(r"\bnote\(\s*\"(\w+)\"", path.read_text())
    }
    assert {"plan", "resources"} <= noted
    assert {f"KIND_{kind.upper()}" for kind in noted} <= set(jobs_pb2.JobEvent.Kind.keys())


@pytest.mark.parametrize("part", [{"where": "x > 1"}, {"failed_only": True}, {"read_version": 3}, {"read_tag": "t"}])
def test_rows_are_committed_before_their_fragment_only_where_all_rows_are_computed(part):
    with pytest.raises(InvalidArgument) as caught:
        job_service._check_commit_rows(BackfillSpec("/lake", "t", "c", commit_rows=5, **part))
    assert caught.value.reason == "BAD_REQUEST"
    job_service._check_commit_rows(BackfillSpec("/lake", "t", "c", **part))


def test_an_executor_that_stops_takes_no_job(tmp_path):
    async def scenario():
        async with serving(tmp_path) as caller:
            caller.draining.set()
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await caller.create()
            return error_from_rpc(refused.value)

    error = asyncio.run(scenario())
    assert error.reason == "DRAINING"
    assert "This executor is shutting down: try again" in error.message
