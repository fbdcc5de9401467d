"""The tail of a job history in an object store: one request for a state, and the same word on it as the table's."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from leman._format.stored_logs import newer_state
from leman_coordinator.verification import database_verification
from leman_core.model.databases import StoreOptions
from leman_core.model.job import Job, JobState, Progress, deleted_job
from leman_core.model.plan import BackfillSpec
from leman_core.model.service_errors import DataLoss, FailedPrecondition, LemanError, Unavailable
from leman_core.storage import object_stores, stored_jobs, whole_files
from leman_core.storage.append_log import AppendLog
from leman_core.storage.storage_errors import STORE_UNAVAILABLE
from leman_core.storage.stored_jobs import HistoryTail, open_jobs, open_jobs_of
from leman_executor.history import job_history
from leman_executor.history.job_history import _JOBS, JobHistory
from leman_planner.catalog.column_requests import last_run_time
from tests.shares import LONG
from tests.unit.core.lance_io import small_store
from tests.unit.core.lance_io.small_store import SmallStore, known_store

DATABASE = "s3://lake/db"
RUNNING, DONE, FAILED, PAUSED = JobState.RUNNING, JobState.DONE, JobState.FAILED, JobState.PAUSED
OBJECTS = "db/_leman/jobs_tail/"


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[SmallStore]:
    """A store that this process knows, with a history in which nothing is."""
    monkeypatch.setattr(small_store, "_LATENCY_SECONDS", 0.0)
    with known_store(atomic=True) as running:
        AppendLog(f"{DATABASE}/_leman/jobs.lance", _JOBS, ordered=True).create()
        yield running


def history(*, has_tail: bool = True) -> JobHistory:
    found = JobHistory(DATABASE, has_tail=has_tail)
    found.load()
    return found


def state(name: str, of: JobState = RUNNING, attempt: int = 1, by: str = "e1", **changes: object) -> Job:
    spec = BackfillSpec(DATABASE, "t", "y")
    return Job(name, f"r-{name}", of, spec, 1.0, 2.0, attempt=attempt, executor=by, **changes)


def in_table() -> list[tuple[object, object]]:
    """Job and state of each row, as an earlier release reads it."""
    rows = AppendLog(f"{DATABASE}/_leman/jobs.lance", _JOBS, ordered=True).read(["job_id", "state"])
    return [(row["job_id"], row["state"]) for row in rows]


def objects(store: SmallStore) -> list[int]:
    return sorted(int(key.removeprefix(OBJECTS).removesuffix(".json")) for key in store.objects if OBJECTS in key)


def agree(*readers: JobHistory, **expected: JobState) -> None:
    """Those that read before, some that did not, and what garbage collection asks."""
    for reader in (*readers, history(), history(has_tail=False)):
        found = {job_id: job.state for job_id, job in reader.load().items()}
        assert found == {name.replace("_", "-"): of for name, of in expected.items()}
    going_on = sorted(name.replace("_", "-") for name, of in expected.items() if not of.terminal)
    assert sorted(job.job_id for job in open_jobs(f"{DATABASE}/t.lance")) == going_on
    assert sorted(open_jobs_of(DATABASE)) == going_on


def test_a_state_is_one_request_and_all_who_read_know_it(store):
    mine = history()
    before = store.requests
    for of in (RUNNING, PAUSED, DONE):
        assert mine.save(state("job-1", of)).state is of
    mine.save(state("job-2"))
    assert store.requests - before == 4
    assert not in_table()
    agree(mine, job_1=DONE, job_2=RUNNING)


def test_who_has_the_first_word_has_the_job(store):
    mine, other = history(), history()
    mine.save(state("job-1"))
    assert other.find("job-1") is not None
    assert mine.find("job-1") is not None
    taken = other.save(state("job-1", attempt=2, by="e2"))
    assert (taken.attempt, taken.executor) == (2, "e2")
    late = mine.save(state("job-1", attempt=2, by="e3"))
    assert (late.attempt, late.executor) == (2, "e2"), "who is late hears who has it"
    ended = mine.save(state("job-1", DONE))
    assert (ended.state, ended.executor) == (RUNNING, "e2"), "an earlier attempt has nothing to say any more"
    assert other.save(state("job-1", DONE, attempt=2, by="e2")).state is DONE
    agree(mine, other, job_1=DONE)


def test_of_many_who_write_at_once_each_has_its_place(store):
    count = 8
    together = threading.Barrier(count)
    writers = [history() for _ in range(count)]
    for at, writer in enumerate(writers):
        writer.save(state(f"job-{at}"))

    def take_over(at: int) -> str:
        together.wait()
        return writers[at].save(state("job-0", attempt=2, by=f"e{at + 10}")).executor

    for writer in writers:
        writer.find("job-0")
    with ThreadPoolExecutor(count) as threads:
        found = set(threads.map(take_over, range(count)))
    assert len(found) == 1, "all name the same one"
    assert history().find("job-0").executor in found
    assert objects(store) == list(range(1, 2 * count + 1))


def test_a_long_tail_is_folded_and_what_goes_on_stays_in_it(store, monkeypatch):
    monkeypatch.setattr(job_history, "_FOLD_AFTER", 6)
    mine, other = history(), history()
    mine.save(state("job-open"))
    while not mine.untidy:
        mine.save_all([state(f"job-{len(objects(store))}", of) for of in (RUNNING, DONE)])
    count = len(objects(store))
    assert count == job_history._FOLD_AFTER
    mine.tidy()
    ended = {f"job_{at}": DONE for at in range(1, count)}
    assert [job_id for job_id, _ in in_table()] == [f"job-{at}" for at in range(1, count) for _ in (RUNNING, DONE)]
    assert not mine.untidy
    agree(mine, other, job_open=RUNNING, **ended)
    assert other.save(state("job-open", DONE)).state is DONE
    agree(mine, other, job_open=DONE, **ended)
    mine.fold()
    assert ("job-open", "DONE") in in_table()
    agree(mine, other, job_open=DONE, **ended)


def test_a_writer_that_knows_nothing_of_a_fold_hears_what_came_of_its_job(store):
    mine, other = history(), history()
    mine.save(state("job-1"))
    other.find("job-1")
    other.save(state("job-1", attempt=2, by="e2"))
    other.save(state("job-1", FAILED, attempt=2, by="e2"))
    other.fold()
    assert mine.save(state("job-1", DONE)).state is FAILED
    agree(mine, other, job_1=FAILED)


def test_who_is_killed_between_the_table_and_the_tail_leaves_the_same_word(store, monkeypatch):
    mine = history()
    mine.save_all([state("job-1"), state("job-2"), state("job-1", DONE), state("job-3"), state("job-3", DONE)])
    mine.save(deleted_job(state("job-3", DONE), 3.0))
    with monkeypatch.context() as patched:
        patched.setattr(HistoryTail, "put", lambda *_, **__: False)
        mine.fold()
    assert in_table() == [("job-1", "RUNNING"), ("job-1", "DONE"), ("job-3", "DELETED")]
    agree(mine, job_1=DONE, job_2=RUNNING)
    after = history()
    after.fold()
    agree(mine, after, job_1=DONE, job_2=RUNNING)
    assert history().find("job-3").deleted
    assert len(in_table()) == 6, "said twice"


def test_an_object_is_deleted_when_it_has_not_counted_for_long(store, monkeypatch):
    mine = history()
    mine.save_all([state("job-1", DONE), state("job-2")])
    mine.fold()
    mine.save(state("job-3"))
    mine.forget_past()
    assert objects(store) == [1, 2, 3]
    monkeypatch.setattr(stored_jobs, "KEPT_SECONDS", -1.0)  # the store says one time of all objects
    mine.forget_past()
    assert objects(store) == [2, 3]
    agree(mine, job_1=DONE, job_2=RUNNING, job_3=RUNNING)


def test_who_was_away_for_long_looks_before_it_writes(store, monkeypatch):
    """Else it would put the number of an object that was deleted, and take that for the last word."""
    clock = [0.0, 0.0]
    monkeypatch.setattr(job_history.HistoryTailCache.__init__, "__kwdefaults__", {"now": lambda: tuple(clock)})
    monkeypatch.setattr(stored_jobs, "KEPT_SECONDS", -1.0)
    mine = history()
    mine.save(state("job-1"))
    other = history()
    other.save(state("job-1", attempt=2, by="e2"))
    other.save(state("job-1", FAILED, attempt=2, by="e2"))
    other.fold()
    other.forget_past()
    assert objects(store) == [4], "2, which is the next one that the first executor knows of, is gone"
    clock[1] += job_history._SEEN_SECONDS
    assert mine.save(state("job-1", DONE)).state is FAILED
    agree(mine, job_1=FAILED)


def test_who_rested_for_long_folds_all_the_same_and_says_nothing_twice(store, monkeypatch):
    clock = [0.0, 0.0]
    monkeypatch.setattr(job_history.HistoryTailCache.__init__, "__kwdefaults__", {"now": lambda: tuple(clock)})
    mine = history()
    mine.save_all([state("job-1"), state("job-open")])
    mine.save(state("job-1", DONE))
    clock[1] += 10 * job_history._SEEN_SECONDS
    mine.fold()
    assert in_table() == [("job-1", "RUNNING"), ("job-1", "DONE")]
    agree(mine, job_1=DONE, job_open=RUNNING)
    history().fold()
    assert len(in_table()) == 2
    assert [entry.begins for entry in HistoryTail(DATABASE).since()] == [True]


def test_a_table_that_does_not_answer_loses_nothing_that_the_tail_has_told(store, monkeypatch):
    mine = history()
    mine.save(state("job-1"))
    real, asked = AppendLog.snapshot, []

    def fails_once(self: AppendLog) -> object:
        asked.append(self)
        if len(asked) == 1:
            raise Unavailable(STORE_UNAVAILABLE, "the store does not answer")
        return real(self)

    other = JobHistory(DATABASE, has_tail=True)
    with monkeypatch.context() as failing:
        failing.setattr(AppendLog, "snapshot", fails_once)
        with pytest.raises(Unavailable):
            other.load()
        assert {job_id: job.state for job_id, job in other.load().items()} == {"job-1": RUNNING}
    assert set(other.news()) == {"job-1"}
    assert other.save(state("job-1", DONE)).state is DONE
    other.fold()
    agree(mine, other, job_1=DONE)


def test_what_was_put_while_the_machine_stood_still_counts_only_where_it_has_its_place(store, monkeypatch):
    clock = [0.0, 0.0]
    monkeypatch.setattr(job_history.HistoryTailCache.__init__, "__kwdefaults__", {"now": lambda: tuple(clock)})
    monkeypatch.setattr(stored_jobs, "KEPT_SECONDS", -1.0)
    mine = history()
    mine.save(state("job-1"))
    real, frozen = HistoryTail.put, []

    def put(self: HistoryTail, number: int, *said: object, **how: object) -> bool:
        if not frozen:
            frozen.append(number)
            other = history()
            other.save(state("job-1", attempt=2, by="e2"))
            other.save(state("job-1", FAILED, attempt=2, by="e2"))
            other.fold()
            other.forget_past()
            clock[0] += job_history._SEEN_SECONDS
        return real(self, number, *said, **how)

    monkeypatch.setattr(HistoryTail, "put", put)
    assert mine.save(state("job-1", DONE)).state is FAILED
    assert frozen == [2]
    agree(job_1=FAILED)


def test_an_object_whose_answer_was_lost_is_ones_own(store, monkeypatch):
    real = whole_files.create_object
    monkeypatch.setattr(whole_files, "create_object", lambda *put: real(*put) and False)
    mine = history()
    assert mine.save(state("job-1")).state is RUNNING
    assert mine.save(state("job-1", DONE)).state is DONE
    assert objects(store) == [1, 2]
    agree(mine, job_1=DONE)


def test_a_state_whose_put_failed_may_be_there_and_is_said_again(store, monkeypatch):
    real = whole_files.create_object

    def create(*put: object) -> bool:
        real(*put)
        raise OSError("the connection was lost")

    mine = history()
    with monkeypatch.context() as patched:
        patched.setattr(whole_files, "create_object", create)
        with pytest.raises(LemanError) as raised:
            mine.save(state("job-1"))
    assert raised.value.reason == "STORE_UNAVAILABLE"
    assert mine.save(state("job-1", DONE)).state is DONE
    agree(mine, job_1=DONE)


def test_who_may_not_begin_jobs_here_goes_on_with_those_that_began(store):
    embedded = history()
    embedded.save(state("job-tail"))
    mine = history(has_tail=False)
    mine.save(state("job-table"))
    mine.save(state("job-tail", attempt=2, by="e2"))
    assert in_table() == [("job-table", "RUNNING")]
    assert embedded.find("job-table") is not None
    embedded.save(state("job-table", attempt=2, by="e1"))
    assert in_table() == [("job-table", "RUNNING")] * 2, "all states of a job are in one place"
    assert embedded.save(state("job-tail", DONE)).executor == "e2"
    mine.save(state("job-tail", DONE, attempt=2, by="e2"))
    mine.save(state("job-table", DONE, attempt=2, by="e1"))
    agree(embedded, mine, job_tail=DONE, job_table=DONE)


@pytest.mark.parametrize(("allows", "answered"), [("true", True), ("", False)])
def test_a_store_in_the_clear_that_the_environment_names_is_answered_where_it_allows_that(
    store, monkeypatch, allows, answered
):
    folder = f"{DATABASE}/_leman/jobs_tail"
    said = {"AWS_ENDPOINT_URL": store.endpoint, "AWS_REGION": "us-east-1", "AWS_ALLOW_HTTP": allows}
    for name, value in (said | {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}).items():
        monkeypatch.setenv(name, value)
    object_stores.set_store_source(object_stores.GivenStores())
    whole_files._store.cache_clear()
    assert whole_files.objects_are_supported(folder)
    assert whole_files.store_answers(folder) is answered
    whole_files._store.cache_clear()


def test_where_the_store_does_not_answer_who_would_put_objects_the_table_is_written(store, monkeypatch):
    assert whole_files.store_answers(f"{DATABASE}/_leman/jobs_tail")
    store.refusal = (403, "AccessDenied", "Access Denied.")
    assert not whole_files.store_answers(f"{DATABASE}/_leman/jobs_tail")
    store.refusal = None
    monkeypatch.setattr(whole_files, "store_answers", lambda _: False)
    mine = history()
    mine.save(state("job-1"))
    assert in_table() == [("job-1", "RUNNING")]
    agree(mine, job_1=RUNNING)


@pytest.mark.parametrize(
    ("changed", "may"),
    [
        ({}, True),
        ({"access_key_id": ""}, False),
        ({"region": ""}, True),
        ({"endpoint": ""}, True),
        ({"region": "", "endpoint": ""}, False),
    ],
)
def test_objects_are_put_where_the_options_say_all_that_it_takes(changed, may):
    given = {"access_key_id": "a", "secret_access_key": "b", "region": "r", "endpoint": "http://h", **changed}
    object_stores.set_store_source(object_stores.GivenStores([StoreOptions(root="s3://lake", **given)]))
    try:
        assert whole_files.objects_are_supported("s3://lake/db") is may
        assert not whole_files.objects_are_supported("gs://lake/db")
        assert not whole_files.objects_are_supported("/lake/db")
    finally:
        object_stores.set_store_source(object_stores.GivenStores())


def test_what_is_damaged_is_said_and_the_rest_counts(store):
    mine = history()
    mine.save(state("job-1"))
    mine.save(state("job-2"))
    key = f"{OBJECTS}{1:020d}.json"
    store.objects[key] = store.objects[key].replace(b"RUNNING", b"RUNNINF")
    found = history()
    assert list(found.load()) == ["job-2"]
    assert [key in warning for warning in found.warnings()] == [True]
    with pytest.raises(DataLoss, match="is damaged"):
        open_jobs(f"{DATABASE}/t.lance")
    looked = dict(database_verification.verify_histories(DATABASE, ""))["jobs.lance"]
    assert [finding.rows for finding in looked.findings] == [1]


def test_a_store_that_refuses_says_so(store):
    mine = history()
    store.refusal = (403, "AccessDenied", "Access Denied.")
    with pytest.raises(FailedPrecondition) as raised:
        mine.save(state("job-1"))
    assert raised.value.reason == "STORAGE_DENIED"


def test_the_planner_knows_what_a_job_took_that_is_in_the_tail(store):
    mine = history()
    progress = Progress(rows_evaluated=100, udf_seconds=10.0, rows_total=100, rows_planned=100)
    mine.save(state("job-1", DONE, progress=progress, started_at=1.0, ended_at=11.0))
    mine.save(replace(state("job-2", DONE, progress=progress), request=BackfillSpec(DATABASE, "t", "z")))
    assert last_run_time(DATABASE, "t", "y") is not None
    assert last_run_time(DATABASE, "t", "x") is None


@pytest.mark.parametrize("seed", range(40 if LONG else 1))
def test_whatever_is_done_in_whichever_order_all_agree(store, monkeypatch, seed):
    """Executors of both kinds write, fold, forget and start again: the first word on a job counts, as in the table."""
    chance = random.Random(seed)
    monkeypatch.setattr(job_history, "_FOLD_AFTER", 5)
    monkeypatch.setattr(job_history, "_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(job_history, "_TIDY_AFTER", 4)
    writers = {f"e{at}": history(has_tail=at < 2) for at in range(3)}
    expected: dict[str, Job] = {}
    for step in range(100 if LONG else 15):
        by = chance.choice(list(writers))
        mine = writers[by]
        doing = chance.random()
        if doing < 0.25 or not expected:
            said = state(f"job-{step}", by=by)
        elif doing < 0.85:
            known = mine.find(chance.choice(list(expected)))
            attempt = known.attempt + (chance.random() < 0.3)
            said = replace(known, state=chance.choice([RUNNING, PAUSED, DONE, FAILED]), attempt=attempt, executor=by)
            if known.state.terminal and chance.random() < 0.5:
                said = deleted_job(known, 3.0)
            other = writers[chance.choice(list(writers))]
            if chance.random() < 0.3:  # behind its back
                other.find(known.job_id)
                word = replace(known, attempt=known.attempt + 1, executor="other")
                expected[known.job_id] = newer_state(expected[known.job_id], word)
                assert seen(other.save(word)) == seen(expected[known.job_id])
        else:
            chance.choice([mine.fold, mine.tidy, mine.forget_past])()
            if chance.random() < 0.3:
                writers[by] = history(has_tail=chance.random() < 0.6)
            continue
        expected[said.job_id] = newer_state(expected.get(said.job_id), said)
        assert seen(mine.save(said)) == seen(expected[said.job_id])
        if mine.untidy:
            mine.tidy()
    for reader in (*writers.values(), history(), history(has_tail=False)):
        assert {name: seen(reader.find(name)) for name in expected} == {n: seen(job) for n, job in expected.items()}
    assert sorted(open_jobs_of(DATABASE)) == sorted(n for n, job in expected.items() if not job.state.terminal)


def seen(job: Job | None) -> tuple[object, ...]:
    assert job is not None
    return job.state, job.attempt, job.executor, job.deleted
