"""The first fill of a view, over files and a scratch table that fail."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from unittest.mock import AsyncMock

import numpy as np
import pytest

from leman_core.model.service_errors import Aborted, FailedPrecondition, Internal, Unavailable
from leman_executor.jobs.async_helpers import run_storage_work
from leman_executor.refresh import refresh_steps
from leman_executor.refresh.refresh_steps import FirstFill


@pytest.mark.parametrize(
    ("error", "kind", "reason"),
    [
        (Unavailable("STORE_UNAVAILABLE", "away"), Aborted, "STORAGE_ERROR"),
        (Unavailable("DRAINING", "stopping"), Unavailable, "DRAINING"),
        (FailedPrecondition("STORAGE_DENIED", "no"), FailedPrecondition, "STORAGE_DENIED"),
    ],
)
def test_storage_that_is_away_ends_an_attempt_at_a_refresh_and_nothing_else_does(error, kind, reason):
    def read() -> None:
        raise error

    with pytest.raises(kind) as caught:
        asyncio.run(run_storage_work(read))
    assert caught.value.reason == reason


def test_a_fill_that_leaves_rows_without_values_is_a_bug_and_keeps_the_scratch_table(monkeypatch):
    async def opened(*_: object) -> None:
        return None

    async def drop() -> None:
        raise AssertionError("what was computed is dropped")

    work = SimpleNamespace(
        metrics=SimpleNamespace(expect=lambda *_: None), scratch=SimpleNamespace(open=opened, drop=drop)
    )

    async def nothing(_: FirstFill) -> None:
        return

    plan = SimpleNamespace(
        uri="/v.lance",
        version=1,
        functions=(),
        unset=(SimpleNamespace(fragment_id=0),),
        definition=SimpleNamespace(base_version=1),
    )
    monkeypatch.setattr(refresh_steps, "work_digest", lambda *_: "digest")
    monkeypatch.setattr(refresh_steps.view_files, "source_row_ids", lambda *_: (np.arange(3), 3))
    monkeypatch.setattr(FirstFill, "_install", nothing)
    with pytest.raises(Internal, match="1 fragments of the scratch table") as caught:
        asyncio.run(FirstFill(work, plan).run())
    assert caught.value.reason == "SCRATCH_TABLE_INCOMPLETE"


PLAN = SimpleNamespace(
    uri="/v.lance",
    version=1,
    functions=(SimpleNamespace(column=SimpleNamespace(name="y")),),
    definition=SimpleNamespace(base_version=1, failed=SimpleNamespace(file="")),
)


def test_a_view_that_others_refresh_again_and_again_ends_the_job(monkeypatch):
    monkeypatch.setattr(refresh_steps, "run_storage_work", AsyncMock(return_value={"y": np.array([3])}))
    fill, commit = FirstFill(None, PLAN), AsyncMock(return_value=False)
    monkeypatch.setattr(fill, "_commit_failures", commit)
    fragment = SimpleNamespace(parts=[SimpleNamespace(ids=np.array([3, 4]))], needs=frozenset({0}))
    with pytest.raises(Aborted, match="other refreshes of the view committed first each time") as refused:
        asyncio.run(fill._note_failures(None, [fragment]))
    assert refused.value.reason == "VIEW_CHANGED"
    assert commit.await_count > 1


def test_a_fragment_that_is_refused_ends_the_fill(monkeypatch):
    refusal = SimpleNamespace(fragment_id=0, committed=False, reason="FRAGMENT_GONE", message="it was compacted")
    monkeypatch.setattr(refresh_steps, "retry_unavailable", AsyncMock(return_value=(None, [refusal])))
    work = SimpleNamespace(
        journal=SimpleNamespace(write_request=AsyncMock()),
        services=SimpleNamespace(commits=SimpleNamespace(fill_placeholders=None)),
        status=SimpleNamespace(job=SimpleNamespace(this_attempt=None)),
        metrics=SimpleNamespace(commit_seconds=0.0),
    )
    with pytest.raises(Aborted, match="it was compacted") as refused:
        asyncio.run(FirstFill(work, PLAN)._commit({0: SimpleNamespace(unset=3)}, ["file"]))
    assert refused.value.reason == "FRAGMENT_GONE"
