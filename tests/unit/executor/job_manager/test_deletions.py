"""Jobs that are deleted: gone for all who ask, for good, and their ids stay taken."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import lance
import pytest

from leman._format.stored_logs import newer_state
from leman_core.model.job import Job, JobState, deleted_job
from leman_core.model.plan import BackfillSpec
from leman_core.model.service_errors import AlreadyExists, FailedPrecondition, LemanError, NotFound
from leman_core.model.work import RowError
from leman_core.settings import Settings
from leman_core.storage.stored_jobs import open_jobs
from leman_executor.history.failed_row_pages import FailedRowPages
from leman_executor.history.job_history import JobHistory
from leman_executor.history.job_index import JobFilter
from leman_executor.manager import job_queries
from leman_executor.worker.error_store import JobErrors, errors_uri
from tests.unit.executor.manager_helpers import Executor, with_executor

RUNNING, DONE = JobState.RUNNING, JobState.DONE


def state(database: str, of: JobState, name: str = "job-1", attempt: int = 1, **more: Any) -> Job:
    spec = BackfillSpec(database, "t", "y", where="secret = 1")
    return Job(name, f"request-{name}", of, spec, 1.0, 2.0, attempt=attempt, executor=f"e{attempt}", **more)


@pytest.fixture
def history(tmp_path: Path) -> JobHistory:
    made = JobHistory(str(tmp_path))
    made.prepare()
    return made


def failed_row(offset: int, message: str) -> RowError:
    return RowError(row_address=offset, error_type="ValueError", error_message=message, traceback="", attempt=1)


def rows(database: Path) -> list[tuple[str, str]]:
    """What the table has, as (job, state)."""
    table = lance.dataset(JobHistory(str(database)).uri).to_table(columns=["job_id", "state"])
    return list(zip(table["job_id"].to_pylist(), table["state"].to_pylist(), strict=True))


def test_after_a_deletion_nothing_counts_and_before_an_end_no_deletion():
    ended, gone = state("/lake", DONE), deleted_job(state("/lake", DONE), 3.0)
    assert newer_state(ended, gone) is gone
    assert newer_state(gone, state("/lake", RUNNING, attempt=7)) is gone
    assert newer_state(gone, deleted_job(ended, 4.0)) is gone
    later = state("/lake", RUNNING, attempt=2)
    assert newer_state(later, gone) is later, "someone has it again"
    assert (gone.request.table, gone.request.where, gone.request_id, gone.labels) == ("", "", "", {})


def test_a_compaction_makes_a_deletion_final_and_all_who_read_agree(tmp_path, history):
    database = str(tmp_path)
    other = JobHistory(database)
    for name in ("job-1", "job-2", "job-3"):
        history.save(state(database, RUNNING, name, labels={"team": "red"}))
        history.save(state(database, DONE, name, labels={"team": "red"}))
    assert len(other.news()) == 3
    history.save(deleted_job(history.find("job-2"), 3.0))
    assert list(history.load()) == list(other.load()) == ["job-1", "job-3"]
    assert rows(tmp_path).count(("job-2", "DONE")) == 1, "still in the files"
    history.tidy()
    left = [("job-1", "RUNNING"), ("job-1", "DONE"), ("job-2", "DELETED"), ("job-3", "RUNNING"), ("job-3", "DONE")]
    assert sorted(rows(tmp_path)) == sorted(left)
    folder = tmp_path / "_leman" / "jobs.lance"
    dataset = lance.dataset(str(folder))
    assert [fragment.metadata.deletion_file for fragment in dataset.get_fragments()] == [None], "rewritten"
    texts = dataset.to_table(columns=["record"], filter="job_id = 'job-2'")["record"].to_pylist()
    assert not any(word in texts[0] for word in ("secret", "red", "request-job-2"))
    late = state(database, RUNNING, "job-2", attempt=9)  # of an executor that was frozen all the while
    assert other.save(late).deleted
    history.save(state(database, RUNNING, "job-4"))
    for reader in (history, other, JobHistory(database)):
        assert list(reader.load()) == ["job-1", "job-3", "job-4"]
    assert [job.job_id for job in open_jobs(f"{database}/t.lance")] == ["job-4"]
    other.tidy()
    assert [row for row in rows(tmp_path) if row[0] == "job-2"] == [("job-2", "DELETED")]
    history.save(state(database, DONE, "job-4"))
    for reader in (history, other, JobHistory(database)):
        assert list(reader.load()) == ["job-1", "job-3", "job-4"]


def test_who_removes_what_is_left_reads_nothing_again(tmp_path, history, monkeypatch):
    database = str(tmp_path)
    for number in range(4):
        history.save(state(database, DONE, f"job-{number}"))
    history.save(deleted_job(history.find("job-1"), 3.0))
    monkeypatch.setattr(JobHistory, "_forget", lambda _: pytest.fail("it read all of it again"))
    history.tidy()
    history.save(state(database, DONE, "job-5"))
    history.tidy()
    assert list(history.load()) == ["job-0", "job-2", "job-3", "job-5"]


async def reason(call: Coroutine[Any, Any, Any], kind: type[LemanError]) -> str:
    with pytest.raises(kind) as caught:
        await call
    return caught.value.reason


async def ended(executor: Executor, request_id: str = "") -> str:
    """A job that had nothing to do."""
    executor.planner.tasks = ()
    spec = BackfillSpec(executor.database, "t", "y")
    job = await executor.jobs.create(spec, request_id, body="body")
    assert job.state is DONE
    return job.job_id


def test_a_job_that_has_ended_is_deleted_with_its_failed_rows_and_its_request_id_stays_taken(tmp_path):
    async def work(executor: Executor) -> None:
        jobs, database = executor.jobs, executor.database
        running = (await jobs.create(BackfillSpec(database, "t", "y"), "")).job_id
        job_id, kept = await ended(executor, "r-1"), await ended(executor, "r-2")
        failure = failed_row(3, "bad")
        for of in (job_id, kept):
            errors = JobErrors(errors_uri(database), of, "y", "1")
            await asyncio.to_thread(errors.store, [failure])
        assert await reason(jobs.delete(database, running), FailedPrecondition) == "JOB_RUNNING"
        assert await reason(jobs.delete(database, "job-0"), NotFound) == "JOB_NOT_FOUND"
        for _ in range(2):  # it may be sent again
            await jobs.delete(database, job_id)
            assert await reason(jobs.get(database, job_id), NotFound) == "JOB_NOT_FOUND"
            call = jobs.errors(database, job_id, "", None, 10, all_places=False)
            assert await reason(call, NotFound) == "JOB_NOT_FOUND"
            assert [job.job_id for job in await jobs.list_jobs(database)] == [kept, running]
            assert await jobs.count_jobs(database, JobFilter()) == 2
        stored = lance.dataset(errors_uri(database)).to_table()
        assert stored["job_id"].to_pylist() == [kept]
        (found, _), _ = await jobs.errors(database, kept, "", None, 10, all_places=False)
        assert [error.error_message for error in found] == ["bad"]
        again = jobs.create(BackfillSpec(database, "t", "y"), "r-1", body="body")
        assert await reason(again, AlreadyExists) == "REQUEST_ID_REUSED"

        after = Executor(tmp_path, Settings())
        assert await reason(after.jobs.get(database, job_id), NotFound) == "JOB_NOT_FOUND"
        again = after.jobs.create(BackfillSpec(database, "t", "y"), "r-1", body="body")
        assert await reason(again, AlreadyExists) == "REQUEST_ID_REUSED"
        await after.jobs.delete(database, job_id)
        await after.stop()

    with_executor(tmp_path, work, Settings())


def test_other_executors_hear_of_it(tmp_path, monkeypatch):
    monkeypatch.setattr(job_queries, "_DELETED_SECONDS", 0.0)

    async def work(executor: Executor) -> None:
        job_id, database = await ended(executor), executor.database
        other = Executor(tmp_path, Settings())
        assert (await other.jobs.get(database, job_id)).state is DONE
        await executor.jobs.delete(database, job_id)
        assert await reason(other.jobs.get(database, job_id), NotFound) == "JOB_NOT_FOUND"
        assert await other.jobs.list_jobs(database) == []
        second = await ended(executor)
        await other.jobs.delete(database, second)
        assert await reason(executor.jobs.get(database, second), NotFound) == "JOB_NOT_FOUND", "it ran there"
        await other.stop()

    with_executor(tmp_path, work, Settings())


def test_listings_of_other_jobs_are_right_after_a_deletion(tmp_path):
    database = str(tmp_path)
    JobHistory(database).prepare()
    errors = FailedRowPages(database)
    for begin in (0, 3):  # two appends of both jobs
        for name in ("job-1", "job-2"):
            failures = [failed_row(n, f"{name} {n}") for n in range(begin, begin + 3)]
            JobErrors(errors_uri(database), name, "y", "1").store(failures)
    first, after = errors.page("job-2", "", None, 2)
    errors.remove("job-1")
    rest, _ = errors.page("job-2", "", after, 10)
    assert [error.error_message for error in (*first, *rest)] == [f"job-2 {n}" for n in range(6)]
    listed, _ = errors.page("job-2", "", None, 10)
    assert [error.error_message for error in listed] == [f"job-2 {n}" for n in range(6)]
    assert errors.page("job-1", "", None, 10) == ([], None)
