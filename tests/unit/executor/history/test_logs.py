"""Job history and failed rows, written by several processes and threads at once."""

from __future__ import annotations

import asyncio
import datetime
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import lance
import pytest

from leman_core.model.job import Job, JobState
from leman_core.model.plan import BackfillSpec
from leman_core.model.work import RowError
from leman_core.server.blocking import BlockingPool
from leman_core.storage.log_snapshot import Snapshot
from leman_executor.history import failed_row_pages
from leman_executor.history.failed_row_pages import FailedRowPages
from leman_executor.history.job_history import JobHistory
from leman_executor.history.job_index import JobRecord
from leman_executor.manager.job_databases import JobDatabases
from leman_executor.worker.error_store import JobErrors, errors_uri


def test_rows_that_fail_at_the_same_time_are_all_stored(tmp_path):
    database = str(tmp_path)
    JobHistory(database).prepare()
    uri = errors_uri(database)
    start = threading.Barrier(6)

    def fail(worker: int) -> None:
        errors = JobErrors(uri, "job-1", "y", "1")
        start.wait()
        for n in range(5):
            errors.store(
                [
                    RowError(
                        row_address=worker << 32 | n,
                        error_type="ValueError",
                        error_message="no",
                        traceback="",
                        attempt=1,
                    )
                ]
            )

    threads = [threading.Thread(target=fail, args=(w,)) for w in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = [(e.row_address >> 32, e.row_address & 0xFFFF) for e in all_of(database)]
    assert found == [(w, n) for w in range(6) for n in range(5)]


def test_a_row_that_failed_twice_is_reported_once_and_other_columns_stay_out(tmp_path):
    JobHistory(str(tmp_path)).prepare()
    uri = errors_uri(str(tmp_path))
    JobErrors(uri, "job-1", "y", "1").store(
        [RowError(row_address=3, error_type="ValueError", error_message="first", traceback="", attempt=1)]
    )
    JobErrors(uri, "job-1", "y", "1").store(
        [RowError(row_address=3, error_type="ValueError", error_message="second", traceback="", attempt=2)]
    )
    JobErrors(uri, "job-1", "z", "1").store(
        [RowError(row_address=3, error_type="KeyError", error_message="z", traceback="", attempt=1)]
    )
    JobErrors(uri, "job-2", "y", "1").store(
        [RowError(row_address=3, error_type="OSError", error_message="other", traceback="", attempt=1)]
    )
    errors = FailedRowPages(str(tmp_path))
    found, _ = errors.page("job-1", "y", None, 10)
    assert [(e.error_message, e.attempt) for e in found] == [("second", 2)]
    assert [(e.column, e.error_message) for e in all_of(str(tmp_path))] == [("y", "second"), ("z", "z")]


def all_of(database: str, size: int = 7, *, all_places: bool = False) -> list[RowError]:
    """All pages of one listing."""
    errors, found, after = FailedRowPages(database), [], None
    while True:
        page, after = errors.page("job-1", "", after, size, all_places=all_places)
        found += page
        assert len(page) == size or after is None
        if after is None:
            return found


@pytest.mark.parametrize("size", [1, 3, 50])
def test_pages_hold_every_failed_row_once_in_order(tmp_path, size):
    JobHistory(str(tmp_path)).prepare()
    uri = errors_uri(str(tmp_path))
    places = [(n * 7 % 20, column) for n in range(20) for column in "zy"]
    for offset, column in places:
        JobErrors(uri, "job-1", column, "1").store(
            [
                RowError(row_address=n << 32 | offset, error_type="E", error_message="m", traceback="", attempt=1)
                for n in (1, 0)
            ]
        )
        JobErrors(uri, "job-2", column, "1").store(
            [RowError(row_address=offset, error_type="E", error_message="other", traceback="", attempt=1)]
        )
    found = [(e.row_address, e.column) for e in all_of(str(tmp_path), size)]
    assert found == sorted((n << 32 | offset, column) for offset, column in places for n in (0, 1))


@pytest.fixture
def no_zones(monkeypatch):
    """However few rows a page has, they lie in too many zones."""
    monkeypatch.setattr(failed_row_pages, "_ROWS_NEAR", 0)


def test_a_page_reads_its_own_rows_and_the_listing_once(tmp_path, monkeypatch, no_zones):
    """However many pages there are, the rows of the store are looked through once, without what they say."""
    JobHistory(str(tmp_path)).prepare()
    failures = [
        RowError(row_address=n, error_type="E", error_message="m", traceback="t" * 100, attempt=1) for n in range(100)
    ]
    JobErrors(errors_uri(str(tmp_path)), "job-1", "y", "1").store(failures)
    scanned: list[str] = []
    read: list[int] = []
    scan, rows = Snapshot.scan, Snapshot.rows
    monkeypatch.setattr(Snapshot, "scan", lambda self, names, ids: scanned.extend(names) or scan(self, names, ids))
    monkeypatch.setattr(Snapshot, "rows", lambda self, places: read.append(len(places)) or rows(self, places))
    assert len(all_of(str(tmp_path), 10)) == 100
    assert read == [10] * 10
    assert sorted(scanned) == sorted([*("job_id", "row_address"), *("job_id", "column", "row_address", "error_type")])


@pytest.mark.parametrize("near", [True, False])
def test_groups_count_each_failed_row_once_and_read_no_traceback(tmp_path, monkeypatch, near):
    """A row counts as it was stored last. What is only a place counts in no group, and other jobs' rows neither."""
    JobHistory(str(tmp_path)).prepare()
    if not near:
        monkeypatch.setattr(failed_row_pages, "_ROWS_NEAR", 0)
    monkeypatch.setattr(failed_row_pages, "_GROUPED_AT_ONCE", 7)
    uri = errors_uri(str(tmp_path))
    JobErrors(uri, "job-1", "y", "1").store([failure(n, f"first {n}") for n in range(20)])
    JobErrors(uri, "job-1", "y", "1").store([failure(n, f"again {n}") for n in (19, 3, 4)])
    JobErrors(uri, "job-1", "z", "1").store([failure(0, "first 0")])
    JobErrors(uri, "job-1", "y", "1", store_messages=False).store([failure(30, "private")])
    JobErrors(uri, "job-2", "y", "1").store([failure(40, "first 40")])
    read: list[str] = []
    batch = Snapshot.batch
    monkeypatch.setattr(Snapshot, "batch", lambda self, names, places: read.extend(names) or batch(self, names, places))
    errors = FailedRowPages(str(tmp_path))
    page = errors.groups("job-1", "", 0, 10, 2)
    assert [(g.message, g.rows) for g in page.groups] == [("first …", 18), ("again …", 3)]
    assert [[e.row_address for e in g.examples] for g in page.groups] == [[0, 0], [3, 4]]
    assert (page.total, page.rows, page.ungrouped) == (2, 21, 0)
    assert "traceback" not in read
    assert [(g.message, g.rows) for g in errors.groups("job-1", "z", 0, 10, 2).groups] == [("first 0", 1)]
    JobErrors(uri, "job-1", "y", "1").store([failure(50, "new")])
    assert [g.message for g in errors.groups("job-1", "", 1, 10, 0).groups] == ["again …"], "as the first page was"
    assert [g.message for g in errors.groups("job-1", "", 0, 10, 0).groups] == ["first …", "again …", "new"]
    errors.remove("job-1")
    assert errors.groups("job-1", "", 0, 10, 2) == ([], 0, 0, 0)


def test_a_page_reads_the_zones_that_have_its_rows(tmp_path, monkeypatch):
    """Of many failed rows no listing is made: neither for the first page nor for one in their middle."""
    JobHistory(str(tmp_path)).prepare()
    sink = JobErrors(errors_uri(str(tmp_path)), "job-1", "y", "1")
    for part in (2, 0, 1):
        for fragment in (1, 0):
            sink.store([failure(n, str(n), fragment=fragment) for n in range(3000 * part, 3000 * (part + 1))])
    JobErrors(errors_uri(str(tmp_path)), "job-1", "y", "1").store([failure(5, "again")])
    errors = FailedRowPages(str(tmp_path))
    errors.look_ahead()
    read: list[int] = []
    batch = Snapshot.batch
    monkeypatch.setattr(Snapshot, "scan", None)
    monkeypatch.setattr(
        Snapshot, "batch", lambda self, names, places: read.append(len(places)) or batch(self, names, places)
    )
    first, after = errors.page("job-1", "", None, 10)
    assert [error.error_message for error in first] == [*"01234", "again", *"6789"]
    assert after == (9, "y")
    middle, after = errors.page("job-1", "", (1 << 32 | 4499, "y"), 10)
    assert [error.row_address - (1 << 32) for error in middle] == list(range(4500, 4510))
    last, after = errors.page("job-1", "", (1 << 32 | 8994, "y"), 10)
    assert ([error.row_address - (1 << 32) for error in last], after) == (list(range(8995, 9000)), None)
    assert sum(read) <= 5 * 1024, "of 18,001"


@pytest.mark.parametrize("near", [0, 1 << 20], ids=["listed", "by zones"])
def test_pages_are_the_same_whichever_way_they_are_made(tmp_path, monkeypatch, near):
    """Rows without any order, of two jobs and columns, some stored again, some of which only the place is stored."""
    monkeypatch.setattr(failed_row_pages, "_ROWS_NEAR", near)
    JobHistory(str(tmp_path)).prepare()
    chance = random.Random(7)
    expected: dict[tuple[int, str], str] = {}
    for append in range(12):
        job, column = f"job-{chance.randint(1, 2)}", chance.choice("yz")
        rows = chance.sample(range(4000), 300)
        told = append % 4 != 3
        sink = JobErrors(errors_uri(str(tmp_path)), job, column, "1", store_messages=told)
        sink.store([failure(n, f"{append} {n}", fragment=n % 3) for n in rows])
        if job == "job-1":
            expected |= {((n % 3) << 32 | n, column): f"{append} {n}" if told else "" for n in rows}
        if append == 6:
            lance.dataset(errors_uri(str(tmp_path))).optimize.compact_files()
    found = {(e.row_address, e.column): e.error_message for e in all_of(str(tmp_path), 100, all_places=True)}
    assert list(found.items()) == sorted(expected.items())


def test_of_one_column_a_page_goes_on_until_it_is_full(tmp_path):
    JobHistory(str(tmp_path)).prepare()
    for column in "yz":
        sink = JobErrors(errors_uri(str(tmp_path)), "job-1", column, "1")
        sink.store([failure(n, column) for n in range(0 if column == "y" else 2500, 3000)])
    errors = FailedRowPages(str(tmp_path))
    page, after = errors.page("job-1", "z", None, 10)
    assert ([error.row_address for error in page], after) == (list(range(2500, 2510)), (2509, "z"))


def test_a_listing_goes_on_when_rows_are_added_and_the_store_is_compacted_and_cleaned(tmp_path):
    JobHistory(str(tmp_path)).prepare()
    uri = errors_uri(str(tmp_path))
    for n in range(6):
        JobErrors(uri, "job-1", "y", "1").store(
            [RowError(row_address=n, error_type="E", error_message=str(n), traceback="", attempt=1)]
        )
    errors = FailedRowPages(str(tmp_path))
    first, after = errors.page("job-1", "", None, 3)
    JobErrors(uri, "job-1", "y", "1").store(
        [RowError(row_address=1, error_type="E", error_message="again", traceback="", attempt=2)]
    )
    dataset = lance.dataset(uri)
    dataset.optimize.compact_files()
    dataset.cleanup_old_versions(older_than=datetime.timedelta(0))
    rest, after = errors.page("job-1", "", after, 3)
    assert ([e.error_message for e in first + rest], after) == (["0", "1", "2", "3", "4", "5"], None)
    assert [e.error_message for e in all_of(str(tmp_path))] == ["0", "again", "2", "3", "4", "5"]


def failure(offset: int, message: str, fragment: int = 0) -> RowError:
    return RowError(row_address=fragment << 32 | offset, error_type="E", error_message=message, traceback="", attempt=1)


def test_a_first_page_reads_what_was_stored_since_the_last_and_nothing_where_that_is_nothing(tmp_path, monkeypatch):
    JobHistory(str(tmp_path)).prepare()
    uri = errors_uri(str(tmp_path))
    for n in range(4):
        JobErrors(uri, "job-1", "y", "1").store([failure(10 * n, str(n))])
    errors = FailedRowPages(str(tmp_path))
    scanned: list[int] = []
    scan = Snapshot.scan
    monkeypatch.setattr(Snapshot, "scan", lambda self, names, ids: scanned.append(len(ids)) or scan(self, names, ids))

    def told() -> list[str]:
        return [error.error_message for error in errors.page("job-1", "", None, 10)[0]]

    assert told() == told() == ["0", "1", "2", "3"]
    assert scanned == [4]
    JobErrors(uri, "job-1", "a", "1").store([failure(10, "of another column")])
    JobErrors(uri, "job-1", "y", "1").store([failure(10, "again"), failure(5, "5")])
    JobErrors(uri, "job-2", "y", "1").store([failure(6, "of another job")])
    assert told() == ["0", "5", "of another column", "again", "2", "3"]
    assert scanned == [4, 3]
    lance.dataset(uri).optimize.compact_files()
    assert told() == ["0", "5", "of another column", "again", "2", "3"]
    assert scanned == [4, 3, 1], "other fragments"


def test_pages_after_a_first_one_lack_nothing_that_was_stored_before_it(tmp_path, monkeypatch):
    """A listing was made for another caller, of whom one page lay in too many zones; then more rows failed."""
    JobHistory(str(tmp_path)).prepare()
    sink = JobErrors(errors_uri(str(tmp_path)), "job-1", "y", "1")
    sink.store([failure(n, "before") for n in range(6)])
    errors = FailedRowPages(str(tmp_path))
    _, others_after = errors.page("job-1", "", None, 2)
    with monkeypatch.context() as patched:
        patched.setattr(failed_row_pages, "_ROWS_NEAR", 0)
        others, others_after = errors.page("job-1", "", others_after, 2)
    sink.store([failure(n, "since") for n in range(6, 9)])
    found, after = errors.page("job-1", "", None, 5)
    rest, after = errors.page("job-1", "", after, 5)
    assert [error.row_address for error in found + rest] == list(range(9))
    others += errors.page("job-1", "", others_after, 9)[0]
    assert [error.row_address for error in others] == list(range(2, 9))


def test_listings_that_are_kept_are_bounded_by_their_rows(tmp_path, monkeypatch, no_zones):
    monkeypatch.setattr(failed_row_pages, "_ROWS_KEPT", 25)
    JobHistory(str(tmp_path)).prepare()
    uri = errors_uri(str(tmp_path))
    for job in range(5):
        failures = [failure(n, "m") for n in range(30 if job == 3 else 10)]
        JobErrors(uri, f"job-{job}", "y", "1").store(failures)
    errors = FailedRowPages(str(tmp_path))
    kept = []
    for job in range(5):
        assert len(errors.page(f"job-{job}", "", None, 50)[0]) == (30 if job == 3 else 10)
        kept.append([len(listing.places) for listing in errors._kept.values()])
    assert kept == [[10], [10, 10], [10, 10], [30], [10]]


def test_of_errors_that_are_not_told_the_places_are_stored_and_nothing_else(tmp_path):
    JobHistory(str(tmp_path)).prepare()
    uri = errors_uri(str(tmp_path))
    JobErrors(uri, "job-1", "y", "1", store_messages=False).store(
        [
            RowError(
                row_address=2 << 32 | 5,
                error_type="ValueError",
                error_message="no",
                traceback="at",
                attempt=1,
                row_id=9,
            )
        ]
    )
    JobErrors(uri, "job-1", "y", "1").store(
        [
            RowError(
                row_address=2 << 32 | 6,
                error_type="KeyError",
                error_message="told",
                traceback="at",
                attempt=1,
                row_id=10,
            )
        ]
    )
    assert [e.error_message for e in all_of(str(tmp_path))] == ["told"]
    places = all_of(str(tmp_path), all_places=True)
    assert [(e.row_address, e.row_id) for e in places] == [(2 << 32 | 5, 9), (2 << 32 | 6, 10)]
    assert (places[0].error_type, places[0].error_message, places[0].traceback) == ("", "", "")


def test_the_last_state_of_a_job_counts_and_an_end_is_final(tmp_path):
    history = JobHistory(str(tmp_path))
    assert history.load() == {}
    history.prepare()
    spec = BackfillSpec(str(tmp_path), "t", "y")
    for state in (JobState.RUNNING, JobState.DONE, JobState.RUNNING):
        history.save(Job("job-1", "r", state, spec, 1.0, 2.0))
    history.save(Job("job-2", "", JobState.RUNNING, spec, 1.0, 2.0))
    assert {i: j.state for i, j in history.load().items()} == {"job-1": JobState.DONE, "job-2": JobState.RUNNING}


def begun(folder: Path) -> tuple[JobHistory, JobHistory, Job]:
    """Histories of one database on two machines, and a job that the first one runs."""
    first, second = JobHistory(str(folder)), JobHistory(str(folder))
    first.prepare()
    job = Job("job-1", "r", JobState.RUNNING, BackfillSpec(str(folder), "t", "y"), 1.0, 2.0, executor="first")
    assert first.save(job) == job
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
    machines = [JobHistory(str(tmp_path)) for _ in range(4)]
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
    reads: list[int] = []
    read = Snapshot.rows_in
    monkeypatch.setattr(Snapshot, "rows_in", lambda *asked: reads.extend(asked[1]) or read(*asked))
    other = replace(job, job_id="job-2")
    for state in (other, replace(job, updated_at=3.0), replace(other, state=JobState.DONE)):
        assert first.save(state) is state
    first.tidy()
    assert first.find("job-2").state is JobState.DONE
    assert not reads
    second.save(replace(job, job_id="job-3"))
    reads.clear()
    assert first.save(replace(job, state=JobState.DONE)).state is JobState.DONE
    assert len(reads) == 2, "what the other process wrote, and what came after it"


def test_what_others_compacted_is_not_counted_again(tmp_path, monkeypatch):
    first, second, job = begun(tmp_path)
    for n in range(6):
        second.save(replace(job, job_id=f"job-{n}", state=JobState.DONE))
    first.save(replace(job, updated_at=3.0, table_version=7))
    assert len(first.load()) == len(second.load()) == 6
    counted: list[str] = []
    read = JobRecord.read
    monkeypatch.setattr(JobRecord, "read", lambda text, home: counted.append(text) or read(text, home))
    second.tidy()
    assert len(first.load()) == 6
    assert counted == []
    second.save(replace(job, job_id="job-7", state=JobState.DONE))
    counted.clear()
    second.tidy()
    third = JobHistory(str(tmp_path))
    third.save(replace(job, job_id="job-8"))
    counted.clear()
    assert list(first.load()) == [*(f"job-{n}" for n in (1, 0, 2, 3, 4, 5)), "job-7", "job-8"]
    assert len(counted) == 2
    assert first.load() == second.load() == JobHistory(str(tmp_path)).load()


def test_many_appends_are_compacted_and_nothing_is_lost(tmp_path):
    history, other = JobHistory(str(tmp_path)), JobHistory(str(tmp_path))
    history.prepare()
    spec = BackfillSpec(str(tmp_path), "t", "y")
    tidied = 0
    for n in range(80):
        history.save(Job(f"job-{n}", "", JobState.DONE, spec, float(n), float(n)))
        if history.untidy:
            history.tidy()
            tidied += 1
        if n == 40:
            assert len(other.load()) == 41
    assert tidied == 2
    assert list(history.load()) == list(other.load()) == list(JobHistory(str(tmp_path)).load())
    assert list(history.load()) == [f"job-{n}" for n in range(80)]
    dataset = lance.dataset(str(tmp_path / "_leman" / "jobs.lance"))
    assert len(dataset.get_fragments()) < 40


def test_where_failed_rows_are_is_learnt_before_somebody_asks(tmp_path, monkeypatch):
    """A database that is opened, as after a restart: its first page reads a zone, and looks through nothing."""
    JobHistory(str(tmp_path)).prepare()
    JobErrors(errors_uri(str(tmp_path)), "job-1", "y", "1").store([failure(n, str(n)) for n in range(3)])

    async def first_page() -> list[str]:
        with BlockingPool(1) as pool:
            databases = JobDatabases(pool)
            database = databases.at(str(tmp_path))
            database.look_ahead()
            await asyncio.to_thread(learnt.wait)
            monkeypatch.setattr(Snapshot, "scan", None)
            found, _ = await database.failed_rows("job-1", "", None, 10, all_places=False)
            await databases.close()
            return [error.error_message for error in found]

    learnt = threading.Event()
    look_ahead = FailedRowPages.look_ahead
    monkeypatch.setattr(FailedRowPages, "look_ahead", lambda self: (look_ahead(self), learnt.set()))
    assert asyncio.run(first_page()) == ["0", "1", "2"]
