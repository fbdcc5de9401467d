"""The first fill of a view, over files and a scratch table that fail."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from unittest.mock import AsyncMock

import numpy as np
import pytest

from leman_core.model.service_errors import Aborted, FailedPrecondition, Internal, Unavailable
from leman_core.model.view import RefreshMode
from leman_executor.refresh import first_fill, refresh_work, view_writer
from leman_executor.refresh.first_fill import FirstFill
from leman_executor.refresh.refresh_run import RefreshRun
from leman_executor.refresh.refresh_work import FirstFailures


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
        asyncio.run(view_writer.retry_in_thread(read))
    assert caught.value.reason == reason


def test_a_fill_that_leaves_rows_without_values_is_a_bug_and_keeps_the_scratch_table(monkeypatch):
    class Work:
        metrics = SimpleNamespace(expect=lambda *_: None)

        async def scratch(self, *_: object) -> None:
            return None

        async def drop_scratch(self) -> None:
            raise AssertionError("what was computed is dropped")

    async def nothing(*_: object) -> list[int]:
        return []

    plan = SimpleNamespace(
        uri="/v.lance",
        version=1,
        functions=(),
        unset=(SimpleNamespace(fragment_id=0),),
        definition=SimpleNamespace(base_version=1),
    )
    monkeypatch.setattr(view_writer, "work_digest", lambda *_: "digest")
    monkeypatch.setattr(first_fill.view_files, "source_row_ids", lambda *_: (np.arange(3), 3))
    monkeypatch.setattr(first_fill, "FirstFailures", lambda *_: None)
    monkeypatch.setattr(FirstFill, "_complete", nothing)
    monkeypatch.setattr(FirstFill, "_install", nothing)
    with pytest.raises(Internal, match="1 fragments of the scratch table") as caught:
        asyncio.run(FirstFill(Work()).run(plan))
    assert caught.value.reason == "SCRATCH_TABLE_INCOMPLETE"


def test_a_view_that_others_refresh_again_and_again_ends_the_job(monkeypatch):
    monkeypatch.setattr(refresh_work, "retry_in_thread", AsyncMock(return_value={"y": np.array([3])}))
    functions = (SimpleNamespace(column=SimpleNamespace(name="y")),)
    plan = SimpleNamespace(functions=functions, definition=SimpleNamespace(failed=SimpleNamespace(file="")))
    failures = SimpleNamespace(_plan=plan, _commit=AsyncMock(return_value=False))
    with pytest.raises(Aborted, match="other refreshes of the view were faster again and again") as refused:
        asyncio.run(FirstFailures.note(failures, None, np.array([3, 4]), [0]))
    assert refused.value.reason == "VIEW_CHANGED"
    assert failures._commit.await_count > 1


def test_a_view_that_moves_on_at_each_step_ends_the_job():
    plan = SimpleNamespace(mode=RefreshMode.INCREMENTAL)
    run = SimpleNamespace(
        _work=SimpleNamespace(check=lambda: None),
        _after_inputs=AsyncMock(return_value=plan),
        _refused=False,
        _step=AsyncMock(side_effect=Aborted("VIEW_CHANGED", "another refresh was faster")),
        status=SimpleNamespace(replans=lambda _: None),
        plan=AsyncMock(return_value=plan),
    )
    with pytest.raises(Aborted, match="keeps changing under the refresh: another refresh was faster") as refused:
        asyncio.run(RefreshRun._bring_up_to_date(run, plan))
    assert refused.value.reason == "VIEW_CHANGED"


def test_a_fragment_that_is_refused_ends_the_fill(monkeypatch):
    refusal = SimpleNamespace(fragment_id=0, committed=False, reason="FRAGMENT_GONE", message="it was compacted")
    monkeypatch.setattr(first_fill, "retry_unavailable", AsyncMock(return_value=(None, [refusal])))
    work = SimpleNamespace(
        journal=SimpleNamespace(asking=AsyncMock()),
        services=SimpleNamespace(commits=SimpleNamespace(fill_placeholders=None)),
        status=SimpleNamespace(job=SimpleNamespace(this_attempt=None)),
        metrics=SimpleNamespace(commit_seconds=0.0),
    )
    fill = FirstFill(work)
    monkeypatch.setattr(fill, "_note", lambda *_: None)
    plan = SimpleNamespace(uri="/v.lance", version=1)
    with pytest.raises(Aborted, match="it was compacted") as refused:
        asyncio.run(fill._commit(plan, 1, [(0, SimpleNamespace(unset=3))], ["file"]))
    assert refused.value.reason == "FRAGMENT_GONE"
