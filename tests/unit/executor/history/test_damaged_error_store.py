"""Damage of the table of failed rows: jobs run on, other jobs' rows can be read, and the damage is named."""

from __future__ import annotations

import dataclasses
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from leman_core.model.job import Job, JobState
from leman_core.model.plan import BackfillSpec
from leman_core.model.service_errors import Unavailable
from leman_core.model.work import RowError
from leman_executor.history.failed_row_pages import FailedRowPages
from leman_executor.history.job_history import JobHistory
from leman_executor.worker.error_store import JobErrors, errors_uri

JOBS, ROWS = 3, 5


def store(database: Path, job_id: str) -> None:
    failures = [
        RowError(row_address=n, error_type="ValueError", error_message="m", traceback="t", attempt=1)
        for n in range(ROWS)
    ]
    JobErrors(errors_uri(str(database)), job_id, "c", "1").store(failures)


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    database = tmp_path_factory.mktemp("whole")
    JobHistory(str(database)).prepare()
    for job in range(JOBS):
        store(database, f"job-{job}")
    return database


@pytest.fixture
def database(whole, tmp_path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "db"))


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def put_another(path: Path) -> None:
    name = "data" if path.suffix == ".manifest" else "_versions"
    other = next((path.parent.parent / name).iterdir())
    shutil.copy(other, path)


def zero(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def make_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


HARMS = [flip, cut, put_another, zero, make_folder, Path.unlink]


def rows_of(database: Path, job_id: str) -> int:
    return len(FailedRowPages(str(database)).page(job_id, "", None, 100)[0])


def check_serves(database: Path, lost: int) -> None:
    """Jobs begin and store failed rows; of the earlier ones a number at most is lost, and removing works."""
    history = JobHistory(str(database))
    history.prepare()
    store(database, "new")
    assert rows_of(database, "new") == ROWS
    left = [rows_of(database, f"job-{job}") for job in range(JOBS)]
    assert set(left) <= {0, ROWS}
    assert left.count(0) <= lost
    FailedRowPages(str(database)).remove("new")
    assert rows_of(database, "new") == 0


@pytest.mark.parametrize("harm", HARMS)
def test_a_damaged_latest_manifest_of_failed_rows_stops_no_job(database, harm: Callable[[Path], None]):
    harm(min((database / "_leman/errors.lance/_versions").glob("*.manifest")))
    check_serves(database, 1)
    if harm is not Path.unlink:
        assert any("errors.lance is damaged" in warning for warning in JobHistory(str(database)).warnings())


@pytest.mark.parametrize("harm", HARMS)
def test_a_damaged_file_of_failed_rows_costs_its_own_rows_alone(database, harm: Callable[[Path], None]):
    harm(max((database / "_leman/errors.lance/data").iterdir()))
    check_serves(database, 1)
    assert any("is damaged" in warning for warning in JobHistory(str(database)).warnings())


def test_a_file_in_the_place_of_the_failed_rows_is_set_aside(database):
    table = database / "_leman/errors.lance"
    shutil.rmtree(table)
    table.write_text("nothing")
    check_serves(database, JOBS)
    assert any("is a file, and no table" in warning for warning in JobHistory(str(database)).warnings())


def test_what_is_lost_of_a_job_s_failed_rows_is_told_of_jobs_that_may_have_lost_some(database):
    spec = BackfillSpec(str(database), "t", "c")
    earlier, later = (Job(i, "", JobState.DONE, spec, at, at) for i, at in (("job-0", 1.0), ("new", time.time() + 60)))
    failed = dataclasses.replace(earlier, progress=dataclasses.replace(earlier.progress, rows_failed=ROWS))
    flip(max((database / "_leman/errors.lance/data").iterdir()))
    errors = FailedRowPages(str(database))
    assert errors.warnings(failed) == []
    for job in range(JOBS):
        rows_of(database, f"job-{job}")
    (told,) = errors.warnings(failed)
    assert "is damaged" in told
    assert errors.warnings(later) == []
    for name in ("damaged", "errors.lance"):
        shutil.rmtree(database / "_leman" / name)
    (told,) = FailedRowPages(str(database)).warnings(failed)
    assert "errors.lance is gone" in told
    assert FailedRowPages(str(database)).warnings(earlier) == []


def test_failed_rows_that_cannot_be_stored_keep_no_job_from_running(database, monkeypatch):
    history = JobHistory(str(database))

    def refuse() -> None:
        raise Unavailable("STORE_UNAVAILABLE", "not now")

    monkeypatch.setattr(history._errors, "create", refuse)
    history.prepare()
    assert history.prepared
