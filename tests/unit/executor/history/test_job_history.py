"""The job history of a database: many writers, few versions, and what is left of it when files of it are damaged."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import shutil
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import lance
import msgspec
import pytest

from leman._format import stored_documents
from leman_core.model.job import Job, JobError, JobState, Progress
from leman_core.model.plan import BackfillSpec
from leman_core.model.service_errors import DataLoss, Unavailable
from leman_core.model.view import RefreshSpec
from leman_core.server.blocking import BlockingPool
from leman_core.storage import append_log, stored_jobs
from leman_core.storage.log_snapshot import Snapshot
from leman_executor.history import job_history
from leman_executor.history.job_history import HistoryWriter, JobHistory
from leman_executor.history.job_index import JobFilter, JobRecord, KnownJobs, job_age

SPEC = BackfillSpec("/lake", "t", "y", where="x > 1")


def job(
    name: str, state: JobState = JobState.RUNNING, request: BackfillSpec | RefreshSpec = SPEC, **changes: object
) -> Job:
    return Job(name, f"request-{name}", state, request, 1.0, 2.0, **changes)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    JobHistory(str(tmp_path)).prepare()
    return tmp_path / "_leman" / "jobs.lance"


def history_of(folder: Path) -> JobHistory:
    return JobHistory(str(folder.parent.parent))


def test_records_hold_what_was_said_and_are_refused_where_they_do_not():
    full = job(
        "job-1",
        JobState.FAILED,
        progress=Progress(rows_total=5, udf_seconds=0.5),
        error=JobError(kind="Internal", reason="BUG", message="", facts={"a": "b c"}),
        request=RefreshSpec("/lake", "v"),
        attempt=3,
    )
    text = stored_jobs.encode_job(full)
    assert stored_jobs.decode_job(text) == full
    assert stored_jobs.decode_job(stored_jobs.encode_job(job("job-1"))) == job("job-1")
    assert len(stored_jobs.encode_job(job("job-1"))) < 300
    assert stored_jobs.decode_job(stored_documents.unseal_text(text)) == full, "without a digest"
    for requests in ({}, {"backfill": SPEC, "refresh": full.request}):
        record = {"job_id": "job-1", "request_id": "", "state": "DONE", "created_at": 1, "updated_at": 2, **requests}
        plain = msgspec.json.encode(record).decode()
        for read, damaged in (
            (stored_jobs.decode_job, plain),
            (stored_jobs.job_head, stored_documents.seal_text(plain)),
        ):
            with pytest.raises(DataLoss, match=r"a job with [02] requests") as caught:
                read(damaged)
            assert caught.value.reason == "RECORD_DAMAGED"
    for at in range(0, len(text), 7):
        flipped = text[:at] + chr(ord(text[at]) ^ 1) + text[at + 1 :]
        with pytest.raises(DataLoss) as caught:
            stored_jobs.decode_job(flipped)
        assert caught.value.reason == "RECORD_DAMAGED"
    cut = text[: len(text) // 2]
    with pytest.raises(DataLoss) as caught:
        stored_jobs.job_head(cut)
    assert caught.value.reason == "RECORD_DAMAGED"


def test_the_jobs_of_a_copied_history_are_of_the_database_that_it_lies_in(tmp_path):
    history = JobHistory(str(tmp_path / "first"))
    history.prepare()
    request = dataclasses.replace(SPEC, database=str(tmp_path / "first"))
    history.save(job("job-1", request=request))
    history.save(job("job-2", JobState.DONE, request))
    shutil.copytree(tmp_path / "first", tmp_path / "second")
    copied = JobHistory(str(tmp_path / "second")).load()
    assert {found.request.database for found in copied.values()} == {str(tmp_path / "second")}


def test_what_comes_together_goes_out_together_and_in_order(folder):
    async def scenario() -> list[Job]:
        with BlockingPool(2, name="test") as pool:
            writer = HistoryWriter(history_of(folder), pool)
            states = (JobState.PENDING, JobState.RUNNING, JobState.DONE)
            return await asyncio.gather(*(writer.save(job(f"job-{n}", state)) for state in states for n in range(100)))

    before = lance.dataset(str(folder)).version
    kept = asyncio.run(scenario())
    assert all(one.state is JobState.DONE for one in kept[200:])
    assert {one.state for one in history_of(folder).load().values()} == {JobState.DONE}
    assert lance.dataset(str(folder)).version - before <= 3


def test_a_state_that_may_wait_goes_out_with_the_next_one(folder):
    async def scenario() -> None:
        with BlockingPool(2, name="test") as pool:
            writer = HistoryWriter(history_of(folder), pool)
            for n in range(3):
                writer.save_with_others(job(f"job-rested-{n}", JobState.DONE))
            assert not history_of(folder).load()
            assert (await writer.save(job("job-1"))).job_id == "job-1"
            await writer.written()

    before = lance.dataset(str(folder)).version
    asyncio.run(scenario())
    assert list(history_of(folder).load()) == ["job-rested-0", "job-rested-1", "job-rested-2", "job-1"]
    assert lance.dataset(str(folder)).version == before + 1


def test_a_state_that_may_wait_is_written_after_a_while_or_at_the_end(folder):
    async def scenario(rest_seconds: float, *, end: bool) -> None:
        with BlockingPool(2, name="test") as pool:
            written = asyncio.Event()
            loop = asyncio.get_running_loop()
            history = history_of(folder)
            save_all = history.save_all

            def noted(jobs: Sequence[Job]) -> list[Job]:
                kept = save_all(jobs)
                loop.call_soon_threadsafe(written.set)
                return kept

            history.save_all = noted  # type: ignore[method-assign]
            writer = HistoryWriter(history, pool, rest_seconds)
            writer.save_with_others(job(f"job-{rest_seconds}", JobState.DONE))
            if end:
                await writer.written()
            await asyncio.wait_for(written.wait(), 20)
            await writer.written()

    asyncio.run(scenario(0.01, end=False))
    asyncio.run(scenario(3600.0, end=True))
    assert list(history_of(folder).load()) == ["job-0.01", "job-3600.0"]


def test_a_state_that_waits_outlasts_a_store_that_is_away(folder):
    async def scenario() -> None:
        with BlockingPool(2, name="test") as pool:
            history = history_of(folder)
            save_all, fails = history.save_all, [True]

            def away(jobs: Sequence[Job]) -> list[Job]:
                if fails.pop() if fails else False:
                    raise Unavailable("STORE_UNAVAILABLE", "it is away")
                return save_all(jobs)

            history.save_all = away  # type: ignore[method-assign]
            writer = HistoryWriter(history, pool)
            writer.save_with_others(job("job-rested", JobState.DONE))
            with pytest.raises(Unavailable):
                await writer.save(job("job-1"))
            await writer.save(job("job-2"))
            writer.save_with_others(job("job-gone", JobState.DONE))
            writer.leave_unwritten()
            writer.save_with_others(job("job-late", JobState.DONE))
            await writer.written()

    asyncio.run(scenario())
    assert list(history_of(folder).load()) == ["job-rested", "job-2"]


def test_a_state_that_comes_while_the_history_is_tidied_is_written_all_the_same(folder, monkeypatch):
    tidying, may_go_on = threading.Event(), threading.Event()

    def tidy(self: JobHistory) -> None:
        self._appended = 0
        tidying.set()
        assert may_go_on.wait(20)

    monkeypatch.setattr(JobHistory, "tidy", tidy)
    monkeypatch.setattr(job_history, "_TIDY_AFTER", 1)

    async def scenario() -> None:
        with BlockingPool(2, name="test") as pool:
            writer = HistoryWriter(history_of(folder), pool)
            await writer.save(job("job-1"))
            assert await asyncio.to_thread(tidying.wait, 20)
            writer.save_with_others(job("job-rested", JobState.DONE))
            may_go_on.set()
            await writer.written()

    asyncio.run(scenario())
    assert list(history_of(folder).load()) == ["job-1", "job-rested"]


def test_a_state_is_written_and_read_while_files_of_the_history_are_merged(folder, monkeypatch):
    """A caller waited for it: a second in every hundred jobs or so."""
    monkeypatch.setattr(job_history, "_TIDY_AFTER", 4)
    merging, gate = threading.Event(), threading.Event()
    tidy = append_log.AppendLog.tidy

    def slow(log):
        merging.set()
        assert gate.wait(60)
        return tidy(log)

    monkeypatch.setattr(append_log.AppendLog, "tidy", slow)

    async def scenario():
        history = history_of(folder)
        with BlockingPool(4) as pool:
            writer = HistoryWriter(history, pool)
            for n in range(4):
                await writer.save(job(f"a{n}"))
            assert await asyncio.to_thread(merging.wait, 60)
            for n in range(6):
                await asyncio.wait_for(writer.save(job(f"b{n}")), 60)
            assert len(history.load()) == 10
            gate.set()
            await writer.written()
        return history

    history = asyncio.run(scenario())
    wanted = [*(f"a{n}" for n in range(4)), *(f"b{n}" for n in range(6))]
    assert list(history.load()) == list(history_of(folder).load()) == wanted
    assert history.save(job("c")).job_id == "c"
    assert len(history_of(folder).load()) == 11


def test_versions_are_removed_beside_what_is_written_and_one_look_at_a_time(folder, monkeypatch):
    """It takes longer than all else about a history: no one is to wait for it."""
    removing, may_go_on = threading.Event(), threading.Event()
    asked: list[JobHistory] = []

    def forget_past(self: JobHistory) -> None:
        asked.append(self)
        removing.set()
        assert may_go_on.wait(20)

    monkeypatch.setattr(JobHistory, "forget_past", forget_past)
    monkeypatch.setattr(job_history, "_TIDY_AFTER", 2)

    async def scenario() -> None:
        with BlockingPool(2, name="test") as pool:
            writer = HistoryWriter(history_of(folder), pool)
            for n in range(2):
                await writer.save(job(f"job-{n}"))
            await asyncio.to_thread(removing.wait, 20)
            for n in range(6):
                assert (await writer.save(job(f"job-{n}", JobState.DONE))).state is JobState.DONE
            assert len(asked) == 1
            may_go_on.set()
            await writer.written()
            for n in range(2):
                await writer.save(job(f"job-late-{n}"))
            await writer.written()
            assert len(asked) >= 2

    asyncio.run(scenario())


def test_versions_that_are_no_longer_needed_go(folder, monkeypatch):
    monkeypatch.setattr(append_log, "_KEEP_LITTLE", datetime.timedelta(0))
    history = history_of(folder)
    for n in range(5):
        history.save(job(f"job-{n}"))
    history.tidy()
    assert len(lance.dataset(str(folder)).versions()) > 5
    history.forget_past()
    assert len(lance.dataset(str(folder)).versions()) == 1
    assert len(history_of(folder).load()) == 5


def test_several_executors_write_at_once_and_none_is_refused(folder):
    together = threading.Barrier(6)

    def write(executor: int) -> None:
        history = history_of(folder)
        together.wait(20)
        for n in range(8):
            history.save(job(f"job-{executor}-{n}"))
            if n == 4:
                history.tidy()

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(write, range(6)))
    assert len(history_of(folder).load()) == 6 * 8


def test_a_history_that_another_executor_makes_after_the_first_look_is_opened(tmp_path, monkeypatch):
    opened, seen = append_log.open_checked, set()

    def late(uri: str, **options: int) -> lance.LanceDataset:
        if uri not in seen:
            seen.add(uri)
            JobHistory(str(tmp_path)).prepare()
            raise ValueError("it was not there")
        return opened(uri, **options)

    monkeypatch.setattr(append_log, "open_checked", late)
    history = JobHistory(str(tmp_path))
    history.prepare()
    assert history.save(job("job-1")).job_id == "job-1"
    assert len(seen) == 2


def test_a_writer_that_is_refused_says_so_and_goes_on(folder, monkeypatch):
    async def scenario() -> None:
        with BlockingPool(2, name="test") as pool:
            writer = HistoryWriter(history_of(folder), pool)
            with monkeypatch.context() as patch:
                patch.setattr(lance, "write_dataset", _refuse)
                with pytest.raises(Unavailable) as caught:
                    await writer.save(job("job-1"))
                assert caught.value.reason == "STORE_UNAVAILABLE"
            assert (await writer.save(job("job-1"))).job_id == "job-1"

    asyncio.run(scenario())


def _refuse(*_: object, **__: object) -> None:
    raise OSError("No space left on device")


def test_a_job_costs_little_capacity(folder):
    history = history_of(folder)
    for n in range(40):
        history.save(job(f"job-{n}"))
        history.save(job(f"job-{n}", JobState.DONE))
        if history.untidy:
            history.tidy()
    history.tidy()
    lance.dataset(str(folder)).cleanup_old_versions(older_than=datetime.timedelta(0))
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    assert size / 40 < 4096


def test_a_job_is_looked_up_without_reading_the_others(folder, monkeypatch):
    writer, reader = history_of(folder), history_of(folder)
    for n in range(30):
        writer.save(job(f"job-{n}"))
    assert len(reader.news()) == 30
    read: list[int] = []
    rows_in = Snapshot.rows_in
    monkeypatch.setattr(Snapshot, "rows_in", lambda *asked: read.extend(asked[1]) or rows_in(*asked))
    assert reader.find("job-7").job_id == "job-7"
    assert reader.find("job-unknown") is None
    assert reader.news() == {}
    assert read == []
    writer.save(job("job-7", JobState.DONE))
    assert list(reader.news()) == ["job-7"]
    assert len(read) == 1


# ---------------------------------------------------------------- damage


def filled(folder: Path) -> None:
    history = history_of(folder)
    for n in range(5):
        history.save(job(f"job-{n}", JobState.DONE))


def zeros(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def no_text(path: Path) -> None:
    """In the middle of a record: a byte that no text holds."""
    data = path.read_bytes()
    at = data.index(b'"where"')
    path.write_bytes(data[:at] + b"\xff" + data[at + 1 :])


def other_letter(path: Path) -> None:
    """As `no_text`, but it is still text, and still JSON."""
    data = path.read_bytes()
    at = data.index(b"x > 1")
    path.write_bytes(data[:at] + b"z" + data[at + 1 :])


def gone(path: Path) -> None:
    path.unlink()


def data_file(folder: Path, number: int) -> Path:
    fragment = lance.dataset(str(folder)).get_fragments()[number]
    return folder / "data" / fragment.metadata.files[0].path


def manifests(folder: Path) -> list[Path]:
    """The latest first."""
    return [folder / path for _, path in append_log.manifest_versions(str(folder))]


@pytest.mark.parametrize("harm", [zeros, cut_short, no_text, other_letter, gone])
def test_a_damaged_file_costs_its_jobs_and_no_others(folder, harm: Callable[[Path], None]):
    filled(folder)
    broken = data_file(folder, 2)
    harm(broken)
    history = history_of(folder)
    assert sorted(history.load()) == ["job-0", "job-1", "job-3", "job-4"]
    (warning,) = history.warnings()
    assert broken.name in warning
    assert not broken.exists()
    assert harm is gone or list((folder.parent / "damaged").glob("*.lance"))
    history.save(job("job-5"))
    again = history_of(folder)
    assert sorted(again.load()) == ["job-0", "job-1", "job-3", "job-4", "job-5"]
    assert again.warnings() == [warning], "it is said once, and for good"


def test_of_a_damaged_file_the_jobs_that_can_be_read_are_kept(folder):
    filled(folder)
    history = history_of(folder)
    history.tidy()
    (path,) = (folder / "data" / f.metadata.files[0].path for f in lance.dataset(str(folder)).get_fragments())
    data = path.read_bytes()
    at = data.index(b"x > 1")
    path.write_bytes(data[:at] + b"z" + data[at + 1 :])
    found = history_of(folder)
    assert len(found.load()) == 4
    assert "4 rows of it were saved" in found.warnings()[0]
    assert len(history_of(folder).load()) == 4


@pytest.mark.parametrize("harm", [zeros, cut_short])
@pytest.mark.parametrize("opened", [True, False])
def test_a_damaged_latest_manifest_leaves_the_version_before(folder, harm, opened):
    filled(folder)
    history = history_of(folder)
    if opened:
        history.load()
    harm(manifests(folder)[0])
    history.save(job("job-5"))
    found = history_of(folder)
    assert sorted(found.load()) == sorted(history.load()) == ["job-0", "job-1", "job-2", "job-3", "job-5"]
    assert "Version 6" in found.warnings()[0]


def test_a_history_of_which_nothing_can_be_opened_is_set_aside_as_a_whole(folder):
    filled(folder)
    for path in manifests(folder):
        zeros(path)
    history = history_of(folder)
    assert history.load() == {}
    assert "No version" in history.warnings()[0]
    history.prepare()
    history.save(job("job-9"))
    assert list(history_of(folder).load()) == ["job-9"]


def test_a_store_that_cannot_be_read_is_not_taken_for_damage(folder, monkeypatch):
    filled(folder)
    broken = data_file(folder, 2)
    whole = broken.read_bytes()
    zeros(broken)

    def refuse(*_: object) -> None:
        raise OSError("Connection reset")

    with monkeypatch.context() as patch:
        patch.setattr(append_log, "check_file_whole", refuse)
        with pytest.raises(Unavailable, match="Connection reset"):
            history_of(folder).load()
    broken.write_bytes(whole)
    history = history_of(folder)
    assert (len(history.load()), history.warnings()) == (5, [])


# ---------------------------------------------------------------- the jobs that an executor knows


def test_jobs_are_found_by_request_and_listed_by_age_in_pages():
    known = KnownJobs()
    for n in (3, 1, 4, 2, 0):
        known.put(dataclasses.replace(job(f"job-{n}"), created_at=float(n)))
    known.put(dataclasses.replace(job("job-2", JobState.DONE), created_at=2.0))
    first, _ = known.listed(JobFilter(), most=2)
    assert [j.job_id for j in first] == ["job-4", "job-3"]
    rest, _ = known.listed(JobFilter(matches=lambda j: j.state is not JobState.DONE), job_age(first[-1].job()))
    assert [j.job_id for j in rest] == ["job-1", "job-0"]
    assert known.of_request("request-job-2").state is JobState.DONE
    known.drop("job-2")
    assert known.get("job-2") is known.of_request("request-job-2") is None
    assert len(list(known)) == len(known) == 4


@pytest.fixture(scope="module")
def many() -> tuple[KnownJobs, list[Job]]:
    """Jobs of three tables in all states, as they are after each was moved there from another state, in no order."""
    known, jobs = KnownJobs(), []
    states = list(JobState)
    for n in range(200):
        at = n * 67 % 200
        spec = dataclasses.replace(SPEC, table=f"t{at % 3}")
        jobs.append(
            dataclasses.replace(job(f"job-{at:03}", states[at % 8], spec), created_at=float(at // 2), request_id="")
        )
        known.put(dataclasses.replace(jobs[-1], state=states[(at + 3) % 4]))
        known.put(jobs[-1])
    return known, sorted(jobs, key=job_age, reverse=True)


FILTERS = [
    JobFilter(
        tables=frozenset(tables), states=frozenset(states), accepted_from=begin, accepted_before=end, matches=matches
    )
    for tables in ((), ("t1",), ("none",), ("t0", "t2"))
    for states in ((), (JobState.DONE,), (JobState.RUNNING, JobState.FAILED, JobState.PENDING))
    for begin, end in ((None, None), (10_000_000, None), (None, 60_000_000), (30_000_000, 31_000_000))
    for matches in (None, lambda record: record.job_id.endswith("5"))
]


@pytest.mark.parametrize("oldest_first", [False, True])
@pytest.mark.parametrize("looks", [None, 7])
def test_a_filter_finds_what_a_look_at_every_job_finds(many, looks, oldest_first):
    known, jobs = many
    jobs = jobs[::-1] if oldest_first else jobs

    def wants(wanted: JobFilter, one: Job) -> bool:
        micros = one.created_at * 1e6
        return (
            (not wanted.tables or one.request.table in wanted.tables)
            and (not wanted.states or one.state in wanted.states)
            and (wanted.accepted_from is None or micros >= wanted.accepted_from)
            and (wanted.accepted_before is None or micros < wanted.accepted_before)
            and (wanted.matches is None or wanted.matches(JobRecord.of(one)))
        )

    for wanted in FILTERS:
        expected = [one.job_id for one in jobs if wants(wanted, one)]
        found, after = [], None
        while True:  # in pages of 3, each from as many parts as it takes
            part, go_on = known.listed(wanted, after, 3, looks, oldest_first=oldest_first)
            found += [record.job_id for record in part]
            if go_on is None and len(part) < 3:
                break
            after = go_on or part[-1].age
        assert found == expected, wanted
    examined = [known.listed(wanted, looks=10, oldest_first=oldest_first) for wanted in FILTERS]
    assert all(len(part) <= 10 for part, _ in examined)


def test_jobs_are_found_by_column_and_labels():
    known = KnownJobs()
    view = dataclasses.replace(job("job-v"), request=RefreshSpec("/lake", "v"))
    red = dataclasses.replace(job("job-red"), labels={"team": "red", "run": "7"})
    blue = dataclasses.replace(job("job-blue", JobState.DONE), labels={"team": "blue"})
    for one in (view, red, blue):
        known.put(one)

    def found(**wanted: object) -> set[str]:
        return {record.job_id for record in known.listed(JobFilter(**wanted))[0]}

    assert found(column=red.column) == {"job-red", "job-blue"}
    assert found(labels={"team": "blue"}) == {"job-blue"}
    assert found(labels={"team": "red", "run": "7"}) == {"job-red"}
    assert found(labels={"team": "red", "run": "8"}) == set()
    assert known.get("job-blue") == blue


def test_a_filter_looks_at_the_shortest_list_that_has_all_it_wants(many):
    known, jobs = many
    looked: list[str] = []
    see = lambda record: bool(looked.append(record.job_id))  # noqa: E731
    known.listed(JobFilter(tables=frozenset({"t1"}), states=frozenset({JobState.DONE}), matches=see))
    done = [one for one in jobs if one.state is JobState.DONE]
    assert looked == [one.job_id for one in done if one.request.table == "t1"]
    looks = len(done)
    assert (
        known.listed(JobFilter(tables=frozenset({"t1"}), states=frozenset({JobState.DONE})), looks=looks + 1)[1] is None
    )


def test_records_of_ended_jobs_are_small_and_give_the_whole_job_again():
    ended = job("job-1", JobState.DONE, progress=Progress(rows_evaluated=4, rows_failed=1, udf_seconds=2.0))
    record = JobRecord.of(ended)
    assert record.job() == ended
    assert record.job() is record.job(), "while it is asked for"
    assert (record.seconds_per_row, record.rows_failed, record.table, record.column) == (0.5, 1, "t", "y")
    running = job("job-2")
    assert JobRecord.of(running).job() is running
    view = JobRecord.of(job("job-3", JobState.DONE, RefreshSpec("/lake", "v")))
    assert (view.table, view.column) == ("v", None)
    fields = [JobRecord.of(dataclasses.replace(ended, job_id=f"job-{n}")) for n in range(2)]
    assert fields[0].table is fields[1].table


def test_damage_in_the_tail_is_told_and_not_taken_for_its_end(monkeypatch):
    entries = [SimpleNamespace(damage="", records=["a"]), SimpleNamespace(damage="3.bin is damaged", records=[])]
    monkeypatch.setattr(stored_jobs, "tail_of", lambda _: SimpleNamespace(since=lambda: entries))
    with pytest.raises(DataLoss, match=r"3\.bin is damaged") as refused:
        stored_jobs.tail_records("/lake")
    assert refused.value.reason == "RECORD_DAMAGED"
