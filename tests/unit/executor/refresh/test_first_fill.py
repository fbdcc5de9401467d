"""The first fill of a view, over files and a scratch table that fail."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import numpy as np
import pytest

from leman_core.model.service_errors import Aborted, FailedPrecondition, Internal, Unavailable
from leman_executor.refresh import first_fill, view_writer
from leman_executor.refresh.first_fill import FirstFill


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
