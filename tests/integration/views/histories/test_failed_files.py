"""A file of a refresh that cannot be written, among many."""

from __future__ import annotations

import threading

import pytest

from leman_core.model.job import JobState
from leman_core.model.service_errors import Unavailable
from leman_core.storage.storage_errors import STORE_UNAVAILABLE
from leman_executor.refresh import refresh_work
from leman_executor.refresh.view_writer import ViewWriter
from tests.integration.views.histories.shapes import SHAPES, query
from tests.integration.views.histories.source import ROWS, Source

SQL = SHAPES[0]


class Writing:
    """Counts files that are begun; the fourth one fails."""

    def __init__(self) -> None:
        self.begun = 0
        self._lock = threading.Lock()

    def begin(self) -> None:
        with self._lock:
            self.begun += 1
            if self.begun == 4:
                raise Unavailable(STORE_UNAVAILABLE, "no space left")


@pytest.fixture
def writing(monkeypatch):
    counted = Writing()

    class Counting(ViewWriter):
        def append(self, *args):
            counted.begin()
            return super().append(*args)

    monkeypatch.setattr(refresh_work, "ViewWriter", Counting)
    return counted


def test_no_file_is_written_after_one_failed(views_system, quick_folder, writing):
    """The refresh plans again, and writes each file once."""
    database = str(quick_folder)
    source = Source(f"{database}/t.lance")
    views_system.create(database, "v", query(SQL, database, "t"))
    assert views_system.refresh(database, "v").state is JobState.DONE
    for number in range(4):
        source.append(number)
    job = views_system.refresh(database, "v", max_rows_per_fragment=1)
    files = len(SQL.ids(source.state)) - sum(SQL.matches(source.state.rows[i].values) for i in range(ROWS))
    assert job.state is JobState.DONE, job.error
    assert job.refresh_result.rows_added == files > 3 * views_system.services.slots
    assert files + 4 <= writing.begun <= files + 4 + views_system.services.slots - 1
