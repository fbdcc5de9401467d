"""Job history and failed rows, written by several processes and threads at once."""

from __future__ import annotations

import threading

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


def test_an_executor_that_was_taken_for_dead_has_no_say_but_of_the_end(tmp_path):
    history = History(str(tmp_path))
    history.prepare()
    spec = BackfillSpec(str(tmp_path), "t", "y")
    for state, attempt in ((JobState.RUNNING, 1), (JobState.RUNNING, 2), (JobState.CANCELLING, 1)):
        history.save(Job("job-1", "r", state, spec, 1.0, 2.0, attempt=attempt))
    found = history.load()["job-1"]
    assert (found.state, found.attempt) == (JobState.RUNNING, 2)
    history.save(Job("job-1", "r", JobState.DONE, spec, 1.0, 2.0, attempt=1))
    assert history.load()["job-1"].state is JobState.DONE


def test_many_appends_are_compacted_and_nothing_is_lost(tmp_path):
    history = History(str(tmp_path))
    history.prepare()
    spec = BackfillSpec(str(tmp_path), "t", "y")
    for n in range(300):
        history.save(Job(f"job-{n}", "", JobState.DONE, spec, float(n), float(n)))
    assert list(history.load()) == [f"job-{n}" for n in range(300)]
    assert len(list((tmp_path / "_leman" / "jobs.lance" / "data").iterdir())) < 400
