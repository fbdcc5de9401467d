"""Commits of an attempt at a job that another executor has taken over: refused, no matter who is asked, for good."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import replace

import lance
import pytest

from leman_coordinator.commits.commit_queue import CommitQueues, Limits
from leman_coordinator.commits.commit_requests import BeginAttemptRequest, Status
from leman_coordinator.lance_io import table_handle
from leman_core.model.service_errors import Aborted, FailedPrecondition
from leman_core.storage.lance_tables import LanceTables
from tests.integration.commits.commit_helpers import (
    ROWS,
    Planner,
    between,
    flatten,
    in_queues,
    reasons,
    submit,
)
from tests.integration.commits.view_commit_helpers import View, one


def begin(uri: str, attempt: int, job_id: str = "job") -> BeginAttemptRequest:
    return BeginAttemptRequest(uri=uri, incarnation="", request_id=uuid.uuid4().hex, job_id=job_id, attempt=attempt)


def kept(uri: str) -> dict[str, int]:
    return table_handle.read_attempts(lance.dataset(uri).config())


def test_an_earlier_attempt_installs_nothing_whichever_coordinator_it_asks(table):
    """One that knew the table before, one that wrote the attempt down, and one that was started since."""
    planner = Planner(table)
    late = [replace(planner.request(i), attempt=1) for i in (1, 2, 3)]

    async def two(mine: CommitQueues) -> list[BaseException | object]:
        theirs = CommitQueues(Limits())
        try:
            await mine.submit(replace(planner.request(0), attempt=1))
            await theirs.submit(begin(table.uri, 2))
            return [await answer(mine, late[0]), await answer(theirs, late[1])]
        finally:
            await theirs.close()

    async def answer(queues: CommitQueues, request: object) -> str:
        with pytest.raises(FailedPrecondition) as caught:
            await queues.submit(request)
        return caught.value.reason

    assert in_queues(two) == ["ATTEMPT_FENCED"] * 2
    version = table.open().version
    with pytest.raises(FailedPrecondition, match="attempt 2 has begun, this is attempt 1"):
        submit(late[2])
    with pytest.raises(FailedPrecondition, match="attempt 2 has begun"):
        submit(replace(late[2], attempt=0))
    assert table.open().version == version
    assert table.column()[ROWS:] == [None] * 3 * ROWS
    assert flatten(submit(replace(late[0], attempt=2))) == ["committed"]


def test_of_a_group_only_the_earlier_attempt_is_refused(table):
    submit(begin(table.uri, 3))
    planner = Planner(table)
    requests = [replace(planner.request(i), attempt=i) for i in (2, 3)]
    requests.append(planner.request(1, job_id="another"))

    async def at_once(queues: CommitQueues) -> list[object]:
        return await asyncio.gather(*map(queues.submit, requests), return_exceptions=True)

    refused, *made = in_queues(at_once)
    assert refused.reason == "ATTEMPT_FENCED"
    assert flatten(made) == ["committed", "committed"]


def test_beginning_again_changes_nothing_and_never_goes_back(table):
    (first,) = submit(begin(table.uri, 2))
    assert submit(begin(table.uri, 2))[0].version == first.version == table.open().version
    with pytest.raises(FailedPrecondition) as caught:
        submit(begin(table.uri, 1))
    assert caught.value.reason == "ATTEMPT_FENCED"
    submit(begin(table.uri, 5))
    assert kept(table.uri) == {"job": 5}


def test_attempts_that_begin_at_once_at_two_coordinators_are_all_kept(table):
    jobs = [f"job-{n}" for n in range(6)]

    async def both(mine: CommitQueues) -> None:
        theirs = CommitQueues(Limits())
        try:
            queues = [mine, theirs] * 3
            await asyncio.gather(*(a.submit(begin(table.uri, 2, job)) for a, job in zip(queues, jobs, strict=True)))
        finally:
            await theirs.close()

    in_queues(both)
    assert kept(table.uri) == dict.fromkeys(jobs, 2)


def test_a_commit_that_was_being_made_when_the_attempt_began_is_the_last(table, monkeypatch):
    """Lance orders the two; what it lets pass was right when it was looked at, and the next plan sees it."""
    planner = Planner(table)
    between(monkeypatch, lambda: submit(begin(table.uri, 2)))
    assert reasons(submit(replace(planner.request(0), attempt=1))[0]) == ["committed"]
    with pytest.raises(FailedPrecondition, match="attempt 2 has begun"):
        submit(replace(planner.request(1), attempt=1))


def test_what_is_no_record_counts_as_none(table):
    for fragment_id, junk in enumerate(("", "no json", "[1]", '{"job": "two"}')):
        table.open().update_config({table_handle.ATTEMPTS_KEY: junk})
        assert kept(table.uri) == {}
        assert flatten(submit(replace(Planner(table).request(fragment_id), attempt=1))) == ["committed"]


def test_the_record_stays_small_and_keeps_the_latest():
    known: dict[str, int] = {}
    for n in range(200):
        known = table_handle.read_attempts({table_handle.ATTEMPTS_KEY: table_handle.with_attempt(known, f"job-{n}", 2)})
    assert list(known) == [f"job-{n}" for n in range(136, 200)]
    again = table_handle.read_attempts({table_handle.ATTEMPTS_KEY: table_handle.with_attempt(known, "job-136", 3)})
    assert (list(again)[-1], again["job-136"], len(again)) == ("job-136", 3, 64)


def test_a_table_that_was_made_anew_knows_no_attempts(table):
    with pytest.raises(Aborted):
        submit(replace(begin(table.uri, 2), incarnation="of an earlier table"))
    assert kept(table.uri) == {}


def refused(view: View, request: object) -> None:
    version = view.open().version
    with pytest.raises(FailedPrecondition) as caught:
        one(request)
    assert caught.value.reason == "ATTEMPT_FENCED"
    assert view.open().version == version


def test_placeholders_of_an_earlier_attempt_are_neither_made_nor_filled(view):
    view.made(rows=20, most=10)
    one(begin(view.uri, 2))
    refused(view, replace(view.fill(), attempt=1))
    refused(view, replace(view.make_placeholders(create=False), attempt=1))
    assert {outcome.status for outcome in one(replace(view.fill(), attempt=2)).outcomes} == {Status.COMMITTED}


def test_an_earlier_attempt_neither_deltas_nor_evicts(view):
    view.filled(rows=20, most=10)
    before = view.rows()
    one(begin(view.uri, 2))
    fragment = min(view.fragments())
    refused(view, replace(view.delta(evicted=[fragment << 32]), attempt=1))
    refused(view, replace(view.delta(appended=[view.appended(99)]), attempt=1))
    refused(view, replace(view.delta(replace_all=True), attempt=1))
    assert view.rows() == before
    assert LanceTables().snapshot(view.uri).version == one(begin(view.uri, 2)).version
    one(replace(view.delta(evicted=[fragment << 32]), attempt=2))
    assert len(view.rows()["x"]) == len(before["x"]) - 1
