"""What a job costs the history for good: next to nothing in each later version, whatever wrote the table before."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import lance
import pytest

from leman_core.model.job import Job, JobState
from leman_core.model.plan import BackfillSpec
from leman_core.storage import append_log
from leman_executor.history.job_history import JobHistory

JOBS = 200


def job(name: str, state: JobState = JobState.RUNNING) -> Job:
    return Job(name, f"request-{name}", state, BackfillSpec("/lake", "t", "y"), 1.0, 2.0)


def fill(history: JobHistory, begin: int, end: int) -> None:
    """Writes two states of each job; each in a version of its own would take a test too long."""
    jobs = [job(f"job-{n:04}") for n in range(begin, end)]
    history.save_all(jobs)
    history.save_all([dataclasses.replace(each, state=JobState.DONE) for each in jobs])


def manifest_bytes(database: Path) -> int:
    return min((database / "_leman/jobs.lance/_versions").glob("*.manifest")).stat().st_size


@pytest.fixture
def database(tmp_path: Path) -> Path:
    JobHistory(str(tmp_path)).prepare()
    return tmp_path


def test_a_version_does_not_say_of_each_row_when_it_came(database):
    history = JobHistory(str(database))
    fill(history, 0, 10)
    history.tidy()
    few = manifest_bytes(database)
    for begin in range(10, JOBS, 10):
        fill(history, begin, begin + 10)
    before = manifest_bytes(database)
    history.tidy()
    assert manifest_bytes(database) < few + 200 < before
    found = history.load()
    assert list(found) == [f"job-{n:04}" for n in range(JOBS)]
    assert JobHistory(str(database)).load() == found


def test_of_two_states_that_others_append_meanwhile_none_is_lost(database, monkeypatch):
    """Anyone who tidies goes last: its version is dropped where others changed what it is about."""
    history, other = JobHistory(str(database)), JobHistory(str(database))
    fill(history, 0, 10)
    drop = append_log.AppendLog._drop_row_versions

    def after_others(log: append_log.AppendLog) -> None:
        fill(other, 10, 20)
        drop(log)

    monkeypatch.setattr(append_log.AppendLog, "_drop_row_versions", after_others)
    history.tidy()
    fill(history, 20, 30)
    assert list(history.load()) == list(other.load()) == [f"job-{n:04}" for n in range(30)]


def test_many_full_fragments_become_few(database, monkeypatch):
    monkeypatch.setattr(append_log, "_FULL", 4)
    monkeypatch.setattr(append_log, "_LARGE", 1000)
    monkeypatch.setattr(append_log, "_MANY_FRAGMENTS", 8)
    history = JobHistory(str(database))
    for begin in range(0, 60, 4):
        fill(history, begin, begin + 4)
        history.tidy()
    assert len(lance.dataset(f"{database}/_leman/jobs.lance").get_fragments()) <= 9
    assert list(JobHistory(str(database)).load()) == [f"job-{n:04}" for n in range(60)]
