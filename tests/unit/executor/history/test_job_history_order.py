"""Which state of a job counts: all who read agree, whatever compaction and repair make of the order of rows."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import lance
import pytest
from lance.optimize import Compaction

from leman_core.model.job import Job, JobState
from leman_core.model.plan import BackfillSpec
from leman_core.storage.log_snapshot import Snapshot
from leman_core.storage.stored_jobs import open_jobs
from leman_executor.history.job_history import _JOBS, JobHistory

RUNNING, CANCELLED, DONE = JobState.RUNNING, JobState.CANCELLED, JobState.DONE


@pytest.fixture
def database(tmp_path: Path) -> str:
    JobHistory(str(tmp_path)).prepare()
    return str(tmp_path)


def state(database: str, of: JobState, attempt: int = 1, name: str = "job-1", where: str = "") -> Job:
    spec = BackfillSpec(database, "t", "y", where=where)
    return Job(name, f"r-{name}", of, spec, 1.0, 2.0, attempt=attempt, executor=f"e{attempt}")


def planned_compaction(database: str) -> Callable[[], object]:
    """A compaction of what is there now; the call commits it."""
    dataset = lance.dataset(JobHistory(database).uri)
    plan = Compaction.plan(dataset, options={"target_rows_per_fragment": 1024})
    done = [task.execute(dataset) for task in plan.tasks]
    return lambda: Compaction.commit(dataset, done)


def damage_record(database: str, word: bytes) -> None:
    """One letter of a word that one data file of the latest version has."""
    uri = JobHistory(database).uri
    files = [Path(uri) / "data" / f.metadata.files[0].path for f in lance.dataset(uri).get_fragments()]
    (path,) = (file for file in files if word in file.read_bytes())
    data = path.read_bytes()
    assert data.count(word) == 1
    path.write_bytes(data.replace(word, word[:-1] + b"#"))


def agree(database: str, *readers: JobHistory, expected: JobState, attempt: int) -> None:
    """Those that read before, two that did not, and what garbage collection asks."""
    for history in (*readers, JobHistory(database), JobHistory(database)):
        found = history.find("job-1")
        assert (found.state, found.attempt) == (expected, attempt)
    assert [job.job_id for job in open_jobs(f"{database}/t.lance")] == ([] if expected.terminal else ["job-1"])


def test_a_compaction_beside_an_append_leaves_the_first_end(database):
    first, second = JobHistory(database), JobHistory(database)
    first.save(state(database, RUNNING, 1))
    second.save(state(database, RUNNING, 2))
    second.save(state(database, CANCELLED, 2))
    commit = planned_compaction(database)
    assert first.save(state(database, DONE, 1)).state is CANCELLED
    commit()
    rows = lance.dataset(first.uri).to_table().column("state").to_pylist()
    assert rows == ["DONE", "RUNNING", "RUNNING", "CANCELLED"], "the late row stands first now"
    agree(database, first, second, expected=CANCELLED, attempt=2)
    second.tidy()
    agree(database, first, second, expected=CANCELLED, attempt=2)


def test_of_two_that_began_the_same_attempt_the_first_keeps_it_through_compactions(database):
    first, second = JobHistory(database), JobHistory(database)
    first.save(state(database, RUNNING, 2))
    first.save(state(database, RUNNING, 2))
    commit = planned_compaction(database)
    second.save(state(database, CANCELLED, 1))
    commit()
    agree(database, first, second, expected=RUNNING, attempt=2)


def with_two_ends(database: str) -> tuple[JobHistory, JobHistory]:
    """The end that counts is in one file with a record that is damaged then, and a late one stands behind it."""
    writer, reader = JobHistory(database), JobHistory(database)
    other = state(database, DONE, 1, "job-other", where="unlike")
    writer.save_all([state(database, RUNNING, 2), state(database, CANCELLED, 2), other])
    assert writer.save(state(database, DONE, 3)).state is CANCELLED
    reader.load()
    damage_record(database, b"unlike")
    return writer, reader


def test_rows_that_are_saved_of_a_damaged_file_keep_their_place(database):
    writer, reader = with_two_ends(database)
    agree(database, writer, reader, expected=CANCELLED, attempt=2)
    rows = lance.dataset(writer.uri).to_table().column("state").to_pylist()
    assert rows == ["DONE", "RUNNING", "CANCELLED"], "they were appended"
    writer.tidy()
    agree(database, writer, reader, expected=CANCELLED, attempt=2)


def test_rows_that_are_saved_twice_keep_their_place(database):
    writer, reader = with_two_ends(database)
    writer.save(state(database, DONE, 1, "job-more", where="another"))
    JobHistory(database).load()
    writer.tidy()
    damage_record(database, b"another")
    agree(database, writer, reader, expected=CANCELLED, attempt=2)
    assert len(writer.warnings()) == 2


def test_a_repair_that_stops_half_way_changes_nothing(database, monkeypatch):
    """The saved rows stand behind later ones, and the damaged file is still there."""
    writer, reader = JobHistory(database), JobHistory(database)
    other = state(database, DONE, 1, "job-other", where="unlike")
    writer.save_all([state(database, JobState.PENDING), other])
    writer.save(state(database, RUNNING))
    reader.load()
    damage_record(database, b"unlike")
    with monkeypatch.context() as patch:
        patch.setattr(Snapshot, "without", _refuse)
        assert JobHistory(database).find("job-1").state is RUNNING
        assert lance.dataset(writer.uri).count_rows() == 4
        assert reader.find("job-1").state is writer.find("job-1").state is RUNNING
    agree(database, writer, reader, expected=RUNNING, attempt=1)


def _refuse(*_: object) -> None:
    raise OSError("someone else is in the way")


def test_machines_that_race_all_see_the_end_that_was_first(database):
    """Four end the same jobs at once, each in its own way, while two of them compact."""
    ends = (DONE, CANCELLED, JobState.FAILED, JobState.DONE_WITH_ERRORS)
    together = threading.Barrier(len(ends))

    def race(number: int) -> list[JobState]:
        history, answers = JobHistory(database), []
        for job in range(6):
            together.wait(60)
            answers.append(history.save(state(database, ends[number], name=f"job-{job}")).state)
            if number % 2:
                history.tidy()
        return answers

    with ThreadPoolExecutor(len(ends)) as pool:
        answers = list(pool.map(race, range(len(ends))))
    final = [job.state for _, job in sorted(JobHistory(database).load().items())]
    assert answers == [final] * len(ends)
    assert open_jobs(f"{database}/t.lance") == []


def test_a_history_of_an_earlier_release_is_written_read_compacted_and_repaired(tmp_path):
    database = str(tmp_path)
    writer = JobHistory(database)
    Path(writer.uri).parent.mkdir(parents=True)
    lance.write_dataset(_JOBS.empty_table(), writer.uri, mode="create")
    writer.prepare()
    writer.save_all([state(database, DONE, 1, "job-other", where="unlike"), state(database, RUNNING, 1)])
    writer.save(state(database, CANCELLED, 2))
    agree(database, writer, expected=CANCELLED, attempt=2)
    writer.tidy()
    agree(database, writer, expected=CANCELLED, attempt=2)
    damage_record(database, b"unlike")
    agree(database, writer, expected=CANCELLED, attempt=2)
    assert list(JobHistory(database).load()) == ["job-1"]
    assert len(writer.warnings()) == 1
