"""Commits to views over gRPC."""

from __future__ import annotations

import grpc
import pytest

from leman._format import view_definitions
from leman.v1 import commit_pb2
from leman_core.storage.lance_tables import LanceTables
from leman_core.wire import convert_plans, convert_values
from leman_internal.v1 import plan_pb2, submission_pb2
from tests.integration.commits.commit_helpers import ref_of
from tests.integration.commits.test_commit_service import Outcome, coordinator, refusal, run
from tests.integration.commits.view_commit_helpers import SCHEMA, View


@pytest.fixture
def view(tmp_path):
    return View(str(tmp_path)).make_source(20)


def make_placeholders(view, **changes):
    schema = convert_values.schema_to_bytes(view_definitions.write(SCHEMA, view.definition()))
    placeholders = submission_pb2.CreatePlaceholders(schema=schema, max_rows_per_fragment=12, create=True)
    fields = {"uri": view.uri, "request_id": "make", "create_placeholders": placeholders}
    return submission_pb2.SubmitCommitRequest(**{**fields, **changes})


def files(some):
    return [
        submission_pb2.ViewFile(fragment_id=f.fragment_id, file=convert_plans.staged_to_proto(f.staged)) for f in some
    ]


def about(view, request_id, **operation):
    known = LanceTables().snapshot(view.uri)
    return submission_pb2.SubmitCommitRequest(
        uri=view.uri,
        incarnation=known.incarnation,
        read_version=known.version,
        request_id=request_id,
        job_id="job",
        **operation,
    )


def delta(view, request_id="delta", **changes):
    change = view.delta(appended=[view.appended(100)], swapped=[view.swapped(0, 1, patch=[2])], evicted=[3])
    fields = {
        "appended": files(change.appended),
        "swapped": files(change.swapped),
        "evictions_file": change.evictions_file,
        "evictions_digest": change.evictions_digest,
        "metadata": change.metadata,
    }
    return about(view, request_id, apply_view_delta=submission_pb2.ApplyViewDelta(**{**fields, **changes}))


def test_a_view_is_made_filled_changed_and_its_history_told(view):
    async def scenario():
        async with coordinator() as stub:
            made = await stub.SubmitCommit(make_placeholders(view))
            fragments = files(view.fill().fragments)
            fill = about(view, "fill", fill_placeholders=submission_pb2.FillPlaceholders(fragments=fragments))
            filled = await stub.SubmitCommit(fill)
            applied = await stub.SubmitCommit(delta(view))
            asked = commit_pb2.GetCommitRequest(table=ref_of(view.uri), request_id="delta")
            one = (await stub.GetCommit(asked)).commit
            commits = (await stub.ListCommits(commit_pb2.ListCommitsRequest(table=ref_of(view.uri)))).commits
        async with coordinator() as stub:  # one that remembers nothing
            again = (await stub.GetCommit(asked)).commit
        return made, filled, applied, one, again, commits

    made, filled, applied, one, again, commits = run(scenario)
    assert (made.version, list(made.outcomes)) == (2, [])
    assert [o.status for o in filled.outcomes] == [Outcome.STATUS_COMMITTED] * 2
    assert one.version == again.version == applied.version == view.open().version
    assert one.operation == again.operation == "ApplyViewDelta"
    assert [(c.operation, c.fragments, list(c.request_ids)) for c in commits] == [
        ("ApplyViewDelta", 2, ["delta"]),
        ("DataReplacement", 2, ["fill"]),
        ("CreatePlaceholders", 2, ["make"]),
    ]
    assert view.rows()["x"] == [1, 1, 1, *[1] * 8, *(i * 10 for i in range(12, 20)), 1000]


def test_a_request_that_is_sent_twice_is_done_once(view):
    async def scenario():
        async with coordinator() as stub:
            await stub.SubmitCommit(make_placeholders(view))
            request = delta(view)
            return [await stub.SubmitCommit(request) for _ in range(2)]

    first, second = run(scenario)
    assert first.version == second.version == view.open().version


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"evictions_file": "../../x.arrow"}, "BAD_FILE_NAME"),
        ({"metadata": {"a": "b"}}, "BAD_METADATA"),
        ({"appended": [submission_pb2.ViewFile(file=plan_pb2.StagedFile(file="../x.lance"))]}, "BAD_FILE_NAME"),
        (
            {"swapped": [submission_pb2.ViewFile(file=plan_pb2.StagedFile(file=f"view-{'a' * 32}.lance"))] * 2},
            "FRAGMENT_TWICE",
        ),
    ],
)
def test_what_no_delta_can_be_is_refused_at_once(view, changes, reason):
    async def scenario():
        async with coordinator() as stub:
            await stub.SubmitCommit(make_placeholders(view))
            return await refusal(stub.SubmitCommit(delta(view, **changes)))

    code, found, _ = run(scenario)
    assert (code, found) == (grpc.StatusCode.INVALID_ARGUMENT, reason)


def test_errors_have_their_codes(view):
    async def scenario():
        async with coordinator() as stub:
            await stub.SubmitCommit(make_placeholders(view))
            stale = delta(view, "stale")
            await stub.SubmitCommit(delta(view))
            return [
                await refusal(stub.SubmitCommit(make_placeholders(view, request_id="other"))),
                await refusal(stub.SubmitCommit(stale)),
                await refusal(
                    stub.SubmitCommit(about(view, "none", fill_placeholders=submission_pb2.FillPlaceholders()))
                ),
            ]

    assert run(scenario) == [
        (grpc.StatusCode.ALREADY_EXISTS, "TABLE_EXISTS", ""),
        (grpc.StatusCode.ABORTED, "VIEW_CHANGED", ""),
        (grpc.StatusCode.INVALID_ARGUMENT, "MISSING_FIELD", "fill_placeholders.fragments"),
    ]
