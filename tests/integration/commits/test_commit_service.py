"""CommitService over gRPC: answers, repeated requests, errors, deadlines, restart."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import threading
from collections.abc import AsyncIterator

import grpc
import lance
import pyarrow as pa
import pytest

from leman.v1 import commit_pb2, commit_pb2_grpc
from leman_coordinator.app import create
from leman_core.server.server import start_server
from leman_core.server.status import error_from_rpc
from leman_core.settings import Commit, Settings
from leman_core.wire import convert_plans, convert_values
from leman_internal.v1 import submission_pb2, submission_pb2_grpc
from tests.integration.commits.commit_helpers import DEADLINE, ROWS, Planner, make_table, new_field, ref_of

Outcome = submission_pb2.FragmentOutcome


class Stubs:
    """The methods of both services of a coordinator."""

    def __init__(self, channel: grpc.aio.Channel, draining: asyncio.Event) -> None:
        self.draining = draining
        for stub in (commit_pb2_grpc.CommitServiceStub, submission_pb2_grpc.CommitSubmissionServiceStub):
            vars(self).update(vars(stub(channel)))


@contextlib.asynccontextmanager
async def coordinator(**commit: int) -> AsyncIterator[Stubs]:
    """Stubs of a coordinator on loopback."""
    settings, draining = Settings(commit=Commit(**commit)), asyncio.Event()
    up = await start_server(settings, "commit_coordinator", create(settings, draining), draining)
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{up.port}") as channel:
            yield Stubs(channel, draining)
    finally:
        await up.stop()


def run(scenario):
    async def bounded():
        async with asyncio.timeout(DEADLINE):
            return await scenario()

    return asyncio.run(bounded())


def message(
    planner: Planner, *fragment_ids: int, request_id: str = "r1", **changes
) -> submission_pb2.SubmitCommitRequest:
    request = planner.request(*fragment_ids, request_id=request_id)
    return submission_pb2.SubmitCommitRequest(
        **{
            "uri": request.uri,
            "incarnation": request.incarnation,
            "request_id": request_id,
            "read_version": request.read_version,
            "job_id": "job1",
            "replace_column": submission_pb2.ReplaceColumn(
                output=convert_plans.output_to_proto(request.output),
                fragments=[
                    submission_pb2.FragmentReplacement(
                        fragment_id=r.fragment_id,
                        file=convert_plans.staged_to_proto(r.staged),
                        input_files=r.input_files,
                        replaces=r.replaces,
                    )
                    for r in request.replacements
                ],
            ),
            **changes,
        }
    )


async def refusal(call) -> tuple[grpc.StatusCode, str, str]:
    """Code, reason and field of the error that a call fails with."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    error = error_from_rpc(caught.value)
    return caught.value.code(), error.reason, error.field


async def give_up(call, reached: threading.Event) -> None:
    """Ends the call from the caller's side while its commit runs."""
    assert await asyncio.to_thread(reached.wait, DEADLINE)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


def test_commit_answers_each_fragment_and_the_version(table):
    async def scenario():
        async with coordinator() as stub:
            return await stub.SubmitCommit(message(Planner(table), 2, 0))

    answer = run(scenario)
    assert answer.version == table.open().version
    assert 0 < answer.manifest_seconds < DEADLINE
    assert [(o.fragment_id, o.status, o.reason) for o in answer.outcomes] == [
        (2, Outcome.STATUS_COMMITTED, ""),
        (0, Outcome.STATUS_COMMITTED, ""),
    ]
    assert table.fragment_values(2) == [10 * x for x in range(20, 30)]


def test_commit_says_whether_its_version_has_an_index(table):
    async def scenario():
        async with coordinator() as stub:
            without = await stub.SubmitCommit(message(Planner(table), 0))
            await asyncio.to_thread(lambda: table.open().create_scalar_index("x", "BTREE"))
            return without, await stub.SubmitCommit(message(Planner(table), 1, request_id="r2"))

    without, indexed = run(scenario)
    assert (without.without_indexes, indexed.without_indexes) == (True, False)


def test_rejection_has_a_reason_and_a_sentence(table):
    stale = message(Planner(table, scale=2), 0, request_id="stale")
    newer = message(Planner(table, version="v2"), 0, request_id="newer")

    async def scenario():
        async with coordinator() as stub:
            await stub.SubmitCommit(newer)
            return await stub.SubmitCommit(stale)

    answer = run(scenario)
    assert (answer.version, answer.manifest_seconds) == (0, 0)
    assert [(o.status, o.reason) for o in answer.outcomes] == [(Outcome.STATUS_REJECTED, "FRAGMENT_CHANGED")]
    assert "plan again" in answer.outcomes[0].message


def test_same_request_again_gets_the_same_answer(table):
    """Also once its file was replaced, also a rejection, also by a coordinator that was started in between."""
    first = message(Planner(table), 0, 1)
    stale = message(Planner(table, scale=7, version="v7"), 0, request_id="r2")
    newer = message(Planner(table, scale=3, version="v3"), 2, request_id="r3")

    async def scenario():
        async with coordinator() as stub:
            answers = [await stub.SubmitCommit(r) for r in (first, stale, newer)]
            version = table.open().version
            again = [await stub.SubmitCommit(r) for r in (first, stale, newer)]
        async with coordinator() as restarted:
            late = [await restarted.SubmitCommit(r) for r in (first, stale, newer)]
        return answers, again, late, version

    answers, again, late, version = run(scenario)
    assert again == answers
    assert [a.outcomes for a in late] == [a.outcomes for a in answers]
    assert table.open().version == version


def test_request_id_of_another_request_is_refused(table):
    async def scenario():
        async with coordinator() as stub:
            await stub.SubmitCommit(message(Planner(table), 0))
            return await refusal(stub.SubmitCommit(message(Planner(table), 1)))

    assert run(scenario)[:2] == (grpc.StatusCode.ALREADY_EXISTS, "REQUEST_ID_REUSED")


def test_caller_that_gives_up_does_not_touch_the_commit(table, monkeypatch):
    """A deadline ends a call in the same way. The caller then asks GetCommit, and sends the request again."""
    request = message(Planner(table), 0)
    reached, go_on = threading.Event(), threading.Event()
    commit = lance.LanceDataset.commit

    def slow(*args, **kwargs):
        reached.set()
        assert go_on.wait(DEADLINE)
        return commit(*args, **kwargs)

    monkeypatch.setattr(lance.LanceDataset, "commit", slow)

    async def scenario():
        async with coordinator() as stub:
            await give_up(stub.SubmitCommit(request), reached)
            asked = asyncio.ensure_future(
                stub.GetCommit(commit_pb2.GetCommitRequest(table=ref_of(table.uri), request_id="r1"))
            )
            again = asyncio.ensure_future(stub.SubmitCommit(request))
            await asyncio.wait([asked], timeout=0.05)
            assert not asked.done()
            go_on.set()
            return await asked, await again

    before = table.open().version
    found, answer = run(scenario)
    assert found.commit.version == answer.version == table.open().version == before + 1
    assert found.commit.request_ids == ["r1"]
    assert found.commit.job_ids == ["job1"]
    assert found.commit.fragments == 1


def test_commit_is_finished_before_the_coordinator_stops(table, monkeypatch):
    request = message(Planner(table), 0)
    reached, go_on = threading.Event(), threading.Event()
    commit = lance.LanceDataset.commit

    def slow(*args, **kwargs):
        reached.set()
        assert go_on.wait(DEADLINE)
        return commit(*args, **kwargs)

    monkeypatch.setattr(lance.LanceDataset, "commit", slow)

    async def scenario():
        async with coordinator() as stub:
            await give_up(stub.SubmitCommit(request), reached)
            asyncio.get_running_loop().call_later(0.05, go_on.set)

    run(scenario)
    assert table.fragment_values(0) == [10 * x for x in range(ROWS)]


def test_draining_coordinator_takes_no_request(table):
    async def scenario():
        async with coordinator() as stub:
            stub.draining.set()
            return await refusal(stub.SubmitCommit(message(Planner(table), 0)))

    assert run(scenario)[:2] == (grpc.StatusCode.UNAVAILABLE, "DRAINING")


def test_errors_of_a_whole_request(table):
    planner = Planner(table)
    gone = message(planner, 0, uri=table.uri.replace("t.lance", "none.lance"))
    other_column = message(planner, 0, request_id="r2")
    other_column.replace_column.output.column_id = "another"
    other_type = message(planner, 0, request_id="r3")
    other_type.replace_column.output.schema = convert_values.schema_to_bytes(pa.schema([pa.field("c", pa.int8())]))
    replaced = message(planner, 0, request_id="r4", incarnation="another")

    async def scenario():
        async with coordinator() as stub:
            return [await refusal(stub.SubmitCommit(r)) for r in (gone, other_column, other_type, replaced)]

    assert [(code.name, reason) for code, reason, _ in run(scenario)] == [
        ("NOT_FOUND", "TABLE_NOT_FOUND"),
        ("FAILED_PRECONDITION", "COLUMN_NOT_DEFINED"),
        ("FAILED_PRECONDITION", "TYPE_MISMATCH"),
        ("ABORTED", "TABLE_REPLACED"),
    ]
    assert table.column() == [None] * 4 * ROWS


def test_table_deleted_while_a_job_runs(table):
    planner = Planner(table)
    first, second = message(planner, 0), message(planner, 1, request_id="r2")

    async def scenario():
        async with coordinator() as stub:
            await stub.SubmitCommit(first)
            shutil.rmtree(table.uri)
            codes = [(await refusal(stub.SubmitCommit(second)))[:2]]
            make_table(table.uri)
            codes.append((await refusal(stub.SubmitCommit(second)))[:2])
            return codes

    assert run(scenario) == [
        (grpc.StatusCode.NOT_FOUND, "TABLE_NOT_FOUND"),
        (grpc.StatusCode.ABORTED, "TABLE_REPLACED"),
    ]


def no_fragment(request):
    del request.replace_column.fragments[:]


def fragment_twice(request):
    request.replace_column.fragments.append(request.replace_column.fragments[0])


def external_file(request):
    request.replace_column.fragments[0].file.file = "../../etc/passwd"


def no_schema(request):
    request.replace_column.output.schema = b"rubbish"


def no_operation(request):
    request.ClearField("replace_column")


@pytest.mark.parametrize(
    ("change", "reason", "field"),
    [
        (lambda r: r.ClearField("uri"), "MISSING_FIELD", "uri"),
        (lambda r: r.ClearField("request_id"), "MISSING_FIELD", "request_id"),
        (lambda r: r.ClearField("incarnation"), "MISSING_FIELD", "incarnation"),
        (no_operation, "MISSING_FIELD", ""),
        (no_fragment, "MISSING_FIELD", "replace_column.fragments"),
        (fragment_twice, "FRAGMENT_TWICE", "replace_column.fragments"),
        (external_file, "BAD_FILE_NAME", "replace_column.fragments.file.file"),
        (no_schema, "BAD_SCHEMA", "replace_column.output.schema"),
        (
            lambda r: r.add_null_columns.CopyFrom(submission_pb2.AddNullColumns()),
            "BAD_SCHEMA",
            "add_null_columns.schema",
        ),
    ],
)
def test_malformed_requests(table, change, reason, field):
    request = message(Planner(table), 0)
    change(request)

    async def scenario():
        async with coordinator() as stub:
            return await refusal(stub.SubmitCommit(request))

    assert run(scenario) == (grpc.StatusCode.INVALID_ARGUMENT, reason, field)


def test_columns_are_added_once(table):
    base = table.snapshot()
    schema = pa.schema([new_field(base, "d"), new_field(base, "e", pa.list_(pa.float32()))])
    request = submission_pb2.SubmitCommitRequest(
        uri=table.uri,
        request_id="add1",
        add_null_columns=submission_pb2.AddNullColumns(schema=convert_values.schema_to_bytes(schema)),
    )
    clash = submission_pb2.SubmitCommitRequest()
    clash.CopyFrom(request)
    clash.request_id = "add2"
    clash.add_null_columns.schema = convert_values.schema_to_bytes(pa.schema([new_field(base, "d")]))

    async def scenario():
        async with coordinator() as stub:
            answers = [await stub.SubmitCommit(request), await stub.SubmitCommit(request)]
            found = await stub.GetCommit(commit_pb2.GetCommitRequest(table=ref_of(table.uri), request_id="add1"))
            return answers, found.commit, await refusal(stub.SubmitCommit(clash))

    answers, found, refused = run(scenario)
    assert answers[0] == answers[1]
    assert answers[0].version == found.version == table.open().version == base.version + 1
    assert (found.operation, found.request_ids) == ("AddColumns", ["add1"])
    assert table.open().schema.field("e").metadata == schema.field("e").metadata
    assert refused[:2] == (grpc.StatusCode.FAILED_PRECONDITION, "COLUMN_EXISTS")


def test_commits_are_listed_newest_first_in_pages(table):
    planner = Planner(table)

    async def scenario():
        async with coordinator() as stub:
            for i in range(4):
                await stub.SubmitCommit(message(planner, i, request_id=f"r{i}"))
                table.open().update_config({"k": str(i)})
            found, token = [], ""
            while True:
                page = await stub.ListCommits(
                    commit_pb2.ListCommitsRequest(table=ref_of(table.uri + "/"), page_size=3, page_token=token)
                )
                found.append([commit.request_ids[0] for commit in page.commits])
                token = page.next_page_token
                if not token:
                    return found, await refusal(
                        stub.ListCommits(commit_pb2.ListCommitsRequest(table=ref_of(table.uri), page_token="x"))
                    )

    pages, refused = run(scenario)
    assert pages[:2] == [["r3", "r2", "r1"], ["r0"]]
    assert refused == (grpc.StatusCode.INVALID_ARGUMENT, "BAD_PAGE_TOKEN", "page_token")


def test_unknown_request_and_table(table):
    async def scenario():
        async with coordinator() as stub:
            none = table.uri.replace("t.lance", "none.lance")
            calls = [
                stub.GetCommit(commit_pb2.GetCommitRequest(table=ref_of(table.uri), request_id="r")),
                stub.GetCommit(commit_pb2.GetCommitRequest(table=ref_of(none), request_id="r")),
                stub.ListCommits(commit_pb2.ListCommitsRequest(table=ref_of(none))),
            ]
            return [(await refusal(call))[:2] for call in calls]

    assert run(scenario) == [
        (grpc.StatusCode.NOT_FOUND, "COMMIT_NOT_FOUND"),
        (grpc.StatusCode.NOT_FOUND, "TABLE_NOT_FOUND"),
        (grpc.StatusCode.NOT_FOUND, "TABLE_NOT_FOUND"),
    ]


def test_paths_of_one_table_are_one_queue(table, tmp_path):
    (tmp_path / "link").symlink_to(tmp_path, target_is_directory=True)
    planner = Planner(table)
    uris = [
        table.uri,
        table.uri + "/",
        f"{tmp_path}/x/../t.lance",
        str(tmp_path / "link" / "t.lance"),
        "file://" + table.uri,
    ]
    requests = [message(planner, 0, uri=uri) for uri in uris]

    async def scenario():
        async with coordinator() as stub:
            first = await stub.SubmitCommit(requests[0])
            found = [
                await stub.GetCommit(commit_pb2.GetCommitRequest(table=ref_of(uri), request_id="r1")) for uri in uris
            ]
            return first.version, {f.commit.version for f in found}

    version, found = run(scenario)
    assert found == {version}


def test_full_queue_is_resource_exhausted(table, monkeypatch):
    planner = Planner(table)
    requests = [message(planner, i, request_id=f"r{i}") for i in range(2)]
    reached, go_on = threading.Event(), threading.Event()
    commit = lance.LanceDataset.commit

    def slow(*args, **kwargs):
        reached.set()
        assert go_on.wait(DEADLINE)
        return commit(*args, **kwargs)

    monkeypatch.setattr(lance.LanceDataset, "commit", slow)

    async def scenario():
        async with coordinator(max_queued_requests=1) as stub:
            first = asyncio.ensure_future(stub.SubmitCommit(requests[0]))
            await asyncio.to_thread(reached.wait, DEADLINE)
            refused = await refusal(stub.SubmitCommit(requests[1]))
            go_on.set()
            await first
            return refused, await stub.SubmitCommit(requests[1])

    refused, later = run(scenario)
    assert refused[:2] == (grpc.StatusCode.RESOURCE_EXHAUSTED, "COMMIT_QUEUE_FULL")
    assert later.outcomes[0].status == Outcome.STATUS_COMMITTED


# ------------------------------------------------------------------- verification


def test_a_database_is_verified_over_grpc_and_gone_on_with(table, tmp_path, monkeypatch):
    monkeypatch.setattr("leman_coordinator.verification.database_verification.REPORT_THINGS", 1)
    planner = Planner(table)

    async def scenario():
        async with coordinator() as stub:
            await stub.SubmitCommit(message(planner, 0, 1))
            asked = commit_pb2.VerifyDatabaseRequest(database=str(tmp_path))
            whole = [answer async for answer in stub.VerifyDatabase(asked)]
            asked.resume_token = whole[2].resume_token
            rest = [answer async for answer in stub.VerifyDatabase(asked)]
            codes = []
            for database, token in ((str(tmp_path), "bad"), (f"{tmp_path}/none", ""), ("", ""), ("relative", "")):
                request = commit_pb2.VerifyDatabaseRequest(database=database, resume_token=token)
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await stub.VerifyDatabase(request).read()
                codes.append(error_from_rpc(caught.value).reason)
            return whole, rest, codes

    whole, rest, codes = run(scenario)
    assert rest == whole[3:]
    assert [bool(answer.resume_token) for answer in whole] == [True] * (len(whole) - 1) + [False]
    kinds = commit_pb2.VerificationFinding
    missing = [f for answer in whole for f in answer.findings]
    assert [(f.subject, f.flaw, list(f.columns)) for f in missing] == [
        (kinds.SUBJECT_FUNCTION, kinds.FLAW_MISSING, ["c"])  # no one registered it here
    ]
    assert codes == ["BAD_PAGE_TOKEN", "DATABASE_NOT_FOUND", "BAD_DATABASE", "BAD_DATABASE"]
