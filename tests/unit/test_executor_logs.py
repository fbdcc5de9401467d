"""Job history and failed rows, written by several processes and threads at once."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from core.domain.job import Job, JobState
from core.domain.plan import BackfillSpec
from core.domain.work import RowFailure
from executor.jobs.history import History
from executor.worker.error_store import JobErrors, errors_of, errors_uri


def test_rows_that_fail_at_the_same_time_are_all_stored(tmp_path):
    database = str(tmp_path)
    History(database).prepare()
    uri = errors_uri(database)
    start = threading.Barrier(6)

    def fail(worker: int) -> None:
        errors = JobErrors(uri, "job-1", "y", "1")
        start.wait()
        for n in range(5):
            errors.store([RowFailure(worker, n, "ValueError", "no", "", 1)])

    threads = [threading.Thread(target=fail, args=(w,)) for w in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = [(e.row_address >> 32, e.row_address & 0xFFFF) for e in errors_of(uri, "job-1")]
    assert found == [(w, n) for w in range(6) for n in range(5)]


def test_a_row_that_failed_twice_is_reported_once_and_other_columns_stay_out(tmp_path):
    History(str(tmp_path)).prepare()
    uri = errors_uri(str(tmp_path))
    JobErrors(uri, "job-1", "y", "1").store([RowFailure(0, 3, "ValueError", "first", "", 1)])
    JobErrors(uri, "job-1", "y", "1").store([RowFailure(0, 3, "ValueError", "second", "", 2)])
    JobErrors(uri, "job-1", "z", "1").store([RowFailure(0, 3, "KeyError", "z", "", 1)])
    JobErrors(uri, "job-2", "y", "1").store([RowFailure(0, 3, "OSError", "other", "", 1)])
    assert [(e.error_message, e.attempt) for e in errors_of(uri, "job-1", "y")] == [("second", 2)]
    assert len(errors_of(uri, "job-1")) == 1


def test_the_last_state_of_a_job_counts_and_an_end_is_final(tmp_path):
    history = History(str(tmp_path))
    assert history.load() == {}
    history.prepare()
    spec = BackfillSpec(str(tmp_path), "t", "y")
    for state in (JobState.RUNNING, JobState.DONE, JobState.RUNNING):
        history.save(Job("job-1", "r", state, spec, 1.0, 2.0))
    history.save(Job("job-2", "", JobState.RUNNING, spec, 1.0, 2.0))
    assert {i: j.state for i, j in history.load().items()} == {"job-1": JobState.DONE, "job-2": JobState.RUNNING}


def begun(folder: Path) -> tuple[History, History, Job]:
    """Histories of one database on two machines, and a job that the first one runs."""
    first, second = History(str(folder)), History(str(folder))
    first.prepare()
    job = Job("job-1", "r", JobState.RUNNING, BackfillSpec(str(folder), "t", "y"), 1.0, 2.0, executor="first")
    assert first.save(job) is job
    return first, second, job


def test_who_ends_a_job_second_sees_the_first_end_and_it_stays(tmp_path):
    first, second, job = begun(tmp_path)
    mine = replace(job, attempt=2, executor="second")
    assert second.save(mine) == mine
    cancelled = replace(mine, state=JobState.CANCELLED)
    assert second.save(cancelled) == cancelled
    for attempt in (1, 2, 3):
        assert first.save(replace(job, state=JobState.DONE, attempt=attempt)) == cancelled
    assert first.load() == second.load() == {"job-1": cancelled}
    assert first.save(replace(job, state=JobState.FAILED)) == cancelled, "however often it says so"


def test_an_executor_that_was_taken_for_dead_has_no_say_not_even_of_the_end(tmp_path):
    first, second, job = begun(tmp_path)
    mine = replace(job, attempt=2, executor="second")
    second.save(mine)
    for state in (JobState.RUNNING, JobState.CANCELLING, JobState.DONE):
        assert first.save(replace(job, state=state)) == mine
    done = replace(mine, state=JobState.DONE)
    assert second.save(done) == done == first.find("job-1")


def test_an_end_before_the_takeover_counts(tmp_path):
    first, second, job = begun(tmp_path)
    done = replace(job, state=JobState.DONE)
    assert first.save(done) == done
    assert second.save(replace(job, attempt=2, executor="second")) == done


def test_of_two_that_take_a_job_over_at_once_all_agree_on_one(tmp_path):
    first, _, job = begun(tmp_path)
    machines = [History(str(tmp_path)) for _ in range(4)]
    together = threading.Barrier(len(machines))

    def take(n: int) -> list[Job]:
        together.wait(10)
        answers = [machines[n].save(replace(job, attempt=2, executor=str(n)))]
        together.wait(10)
        answers.append(machines[n].save(replace(job, attempt=2, executor=str(n), state=JobState.DONE)))
        return answers

    with ThreadPoolExecutor(len(machines)) as pool:
        answers = list(pool.map(take, range(len(machines))))
    owner = first.load()["job-1"]
    assert (owner.state, owner.attempt) == (JobState.DONE, 2)
    assert {claimed.executor for claimed, _ in answers} == {owner.executor}
    assert answers[int(owner.executor)][1] == owner


def test_what_this_process_alone_wrote_is_not_read_back(tmp_path, monkeypatch):
    first, second, job = begun(tmp_path)
    reads: list[str] = []
    find = History.find
    monkeypatch.setattr(History, "find", lambda history, job_id: reads.append(job_id) or find(history, job_id))
    other = replace(job, job_id="job-2")
    for state in (other, replace(job, updated_at=3.0), replace(other, state=JobState.DONE)):
        assert first.save(state) is state
    assert not reads
    second.save(replace(job, job_id="job-3"))
    assert first.save(replace(job, state=JobState.DONE)).state is JobState.DONE
    assert reads == ["job-1"], "another process wrote in between"


def test_many_appends_are_compacted_and_nothing_is_lost(tmp_path):
    history = History(str(tmp_path))
    history.prepare()
    spec = BackfillSpec(str(tmp_path), "t", "y")
    for n in range(300):
        history.save(Job(f"job-{n}", "", JobState.DONE, spec, float(n), float(n)))
    assert list(history.load()) == [f"job-{n}" for n in range(300)]
    assert len(list((tmp_path / "_leman" / "jobs.lance" / "data").iterdir())) < 400
