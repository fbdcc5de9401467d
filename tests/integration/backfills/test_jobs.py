"""Jobs: stopped in time, spread over all workers, never left RUNNING by an executor that died."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections import Counter
from pathlib import Path

import lance
import psutil
import pyarrow as pa
import pytest

import leman
from leman_core.model.job import Job
from leman_core.model.job import JobState as State
from leman_core.model.plan import BackfillSpec
from leman_core.storage.lance_tables import INCARNATION_KEY
from leman_executor.history.job_history import JobHistory
from tests.faults.lake import alive, wait_for
from tests.integration.backfills.test_pauses import paused
from tests.integration.call_log import CallLog, numbers, values

pytestmark = pytest.mark.spark

CANCEL_SECONDS = 5.0


def endless(folder: Path, kind: str) -> leman.UDF:
    """Each call writes down again and again that it still runs, and ends by itself only after minutes."""

    def run() -> int:
        import os
        import time

        for _ in range(6000):
            (folder / f"beat-{os.getpid()}").touch()
            time.sleep(0.02)
        return 0

    def scalar(x: int) -> int:
        return run()

    def array(x: pa.Int64Array) -> pa.Array:
        return pa.array([run()] * len(x), pa.int64())

    function = {"scalar": scalar, "array": array}[kind]
    return leman.udf(data_type=pa.int64(), name=f"endless_{kind}", version=folder.name)(function)


@pytest.mark.parametrize(("kind", "threads"), [("scalar", None), ("array", 2)])
def test_cancel_stops_calls_in_the_middle(db, tmp_path, kind, threads):
    """Within five seconds no call runs any more, however long it would have gone on."""
    table = db.create_table("t", numbers(100), max_rows_per_file=25)
    table.add_columns({"y": endless(tmp_path, kind)})
    future = table.backfill_async("y", concurrency=2, intra_applier_concurrency=threads)
    wait_for(lambda: len(list(tmp_path.glob("beat-*"))) == 2)
    workers = [psutil.Process(int(path.name.removeprefix("beat-"))) for path in tmp_path.glob("beat-*")]
    asked = time.time()
    future.cancel()
    with pytest.raises(leman.JobCancelled):
        future.result(timeout=60)
    wait_for(lambda: not any(alive(worker) for worker in workers))
    beats = [path.stat().st_mtime for path in tmp_path.glob("beat-*")]
    assert max(beats) - asked <= CANCEL_SECONDS
    assert time.time() - asked <= CANCEL_SECONDS, "it took longer than that to end"
    assert len(beats) == 2, "no other worker took up the work"


#: Jobs that are cancelled before anything is measured, and all of them.
WARM, CANCELLED = 40, 200
#: Megabytes that Python's processes together may have taken meanwhile: a tenth of a megabyte a job would be seen.
GROWN = 40.0


@pytest.mark.timeout(1200)
def test_two_hundred_cancelled_jobs_hold_no_more_memory_than_forty(system, db, tmp_path):
    """Each is cancelled while functions hold results of 8 MB."""
    beats = tmp_path / "beats"
    beats.mkdir()
    folder = str(beats)

    @leman.udf(data_type=pa.large_binary(), version="1")
    def pause(x: int) -> bytes:
        import os
        import pathlib
        import time

        held = b"x" * 8_000_000
        pathlib.Path(folder, str(os.getpid())).touch()
        time.sleep(600)
        return held

    table = db.create_table("t", numbers(8), max_rows_per_file=2)
    table.add_columns({"y": pause})
    sizes: list[dict[str, float]] = []
    for turn in range(CANCELLED):
        future = table.backfill_async("y", concurrency=2)
        wait_for(lambda: any(beats.iterdir()))
        future.cancel()
        with pytest.raises(leman.JobCancelled):
            future.result(timeout=60)
        for beat in beats.iterdir():
            beat.unlink()
        if turn + 1 in (WARM, CANCELLED):
            sizes.append(megabytes(system))
    assert sizes[1]["python"] - sizes[0]["python"] < GROWN, sizes
    assert table.row_states("y").computed == 0


def megabytes(system) -> dict[str, float]:
    """The memory of all processes of a system that nothing else has, by their program."""
    supervisor, found = psutil.Process(system.process.pid), Counter[str]()
    for process in [supervisor, *supervisor.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            name = next((known for known in ("python", "java") if process.name().startswith(known)), process.name())
            found[name] += round(process.memory_full_info().uss / 1e6)
    return dict(found)


def test_a_job_that_is_cancelled_as_it_begins_leaves_the_workers_of_others_alone(db):
    @leman.udf(data_type=pa.int64(), version="1")
    def slowly(x: int) -> int:
        import time

        time.sleep(0.05)
        return x

    tables = [db.create_table(name, numbers(count)) for name, count in (("long", 600), ("cut", 20_000))]
    for table in tables:
        table.add_columns({"y": slowly})
    long, cut = tables
    future = long.backfill_async("y", concurrency=4)
    for job, _ in future.watch(60):
        if job.progress.rows_evaluated:
            break
    for _ in range(5):
        begun = cut.backfill_async("y", concurrency=4)
        begun.cancel()
        with pytest.raises(leman.JobCancelled):
            begun.result(60)
    future.result(60)
    assert [event.message for event in future.events() if event.kind == "error"] == []


def test_a_fragment_with_nine_tenths_of_the_rows_is_spread_over_all_workers(db, tmp_path):
    """One of ten fragments is nearly all of the table: every worker computes a share of it."""
    log = tmp_path / "log"

    @leman.udf(data_type=pa.int64(), name="slow", version=tmp_path.name)
    def slow(x: int) -> int:
        import os
        import time

        with log.open("a") as lines:
            lines.write(f"{x} {os.getpid()}\n")
        time.sleep(0.005)
        return x

    large, small, workers = 900, 10, 4
    table = db.create_table("t", numbers(large))
    for n in range(10):
        table.add(numbers(small, start=large + n * small))
    assert [f.count_rows() for f in table.to_lance().get_fragments()] == [large] + [small] * 10
    table.add_columns({"y": slow})
    job = db.job(table.backfill("y", concurrency=workers, progress=False))
    calls = [line.split() for line in log.read_text().splitlines()]
    shares = Counter(pid for x, pid in calls if int(x) < large)
    assert len(shares) == workers
    assert min(shares.values()) >= large / workers / 3, "a fair share"
    assert len(calls) == job.progress.rows_evaluated == large + 10 * small
    assert values(table, "y") == {x: x for x in range(large + 10 * small)}


def abandoned(db: leman.Database, table: leman.Table, attempt: int, incarnation: str = "") -> str:
    """A job in history that an executor began and did not live to end; no one holds its lease. Returns its id."""
    database = str(Path(table.uri).parent)
    spec = BackfillSpec(database, table.name, "y")
    job_id = f"job-{uuid.uuid4().hex[:16]}"
    now = time.time()
    history = JobHistory(database)
    history.prepare()
    history.save(Job(job_id, "", State.RUNNING, spec, now, now, attempt=attempt, incarnation=incarnation))
    return job_id


def test_a_job_whose_executor_died_is_taken_over(db, tmp_path):
    call_log = CallLog(tmp_path)
    table = db.create_table("t", numbers(40), max_rows_per_file=10)
    table.add_columns({"y": call_log.double()})
    table.backfill("y", num_frags=2, progress=False)
    future = db.job_future(abandoned(db, table, attempt=1))
    assert future.result(timeout=60) == future.job_id
    job = future.job()
    assert (job.state, job.attempt, job.progress.rows_evaluated) == (leman.JobState.DONE, 2, 20)
    assert sorted(call_log.seen()) == list(range(40)), "what was finished is not computed again"


def test_a_job_of_which_executors_died_again_and_again_is_marked(db, tmp_path):
    table = db.create_table("t", numbers(40), max_rows_per_file=10)
    table.add_columns({"y": CallLog(tmp_path).double()})
    future = db.job_future(abandoned(db, table, attempt=3))
    with pytest.raises(leman.JobFailed, match="The executor died 3 times while it ran this job") as caught:
        future.result(timeout=60)
    assert caught.value.reason == "EXECUTOR_LOST"
    assert db.jobs()[0].state is leman.JobState.FAILED
    assert set(values(table, "y").values()) == {None}


def test_a_job_whose_table_is_dropped_leaves_another_one_of_that_name_alone(db, call_log):
    slow = call_log.double(seconds=0.05)
    table = db.create_table("t", numbers(200), max_rows_per_file=50)
    table.add_columns({"y": slow})
    future = table.backfill_async("y", concurrency=2)
    wait_for(call_log.seen)
    db.drop_table("t", force=True)
    other = db.create_table("t", numbers(20))
    other.add_columns({"y": slow})
    with pytest.raises(leman.JobFailed, match="dropped during the job") as failed:
        future.result(60)
    assert failed.value.reason == "TABLE_REPLACED"
    assert values(other, "y") == dict.fromkeys(range(20)), "no one asked for these"
    other.backfill("y", progress=False)
    assert values(other, "y") == {x: 2 * x for x in range(20)}


def table_without_the_column(db: leman.Database, _schema: pa.Schema) -> None:
    db.create_table("t", numbers(20))


def table_in_another_way(db: leman.Database, _schema: pa.Schema) -> None:
    db.create_table("t", pa.table({"y": ["plain data"]}))


def view(db: leman.Database, _schema: pa.Schema) -> None:
    db.create_materialized_view("t", db.create_table("other", numbers(20)).search(None).select({"y": "3 * x"}))


def table_that_leman_never_wrote_to(db: leman.Database, schema: pa.Schema) -> None:
    """The column says of itself that the job's function computes it."""
    made = numbers(81).append_column("y", pa.nulls(81, pa.int64())).cast(schema)
    lance.write_dataset(made, f"{db.uri}/t.lance", enable_stable_row_ids=True)


@pytest.mark.parametrize(
    "take", [table_without_the_column, table_in_another_way, view, table_that_leman_never_wrote_to]
)
def test_a_job_says_that_its_table_was_replaced_whatever_has_the_name(db, call_log, take):
    table = db.create_table("t", numbers(200), max_rows_per_file=50)
    table.add_columns({"y": call_log.double(seconds=0.02)})
    schema = table.to_lance().schema
    future = table.backfill_async("y", concurrency=2)
    paused(future, call_log.seen)
    db.drop_table("t", force=True)
    take(db, schema)
    call_log.clear()
    version = lance.dataset(f"{db.uri}/t.lance").version
    future.resume()
    with pytest.raises(leman.JobFailed, match="Table 't' was dropped during the job") as failed:
        future.result(60)
    assert failed.value.reason == "TABLE_REPLACED"
    assert "What was finished is kept" not in str(failed.value)
    assert not call_log.seen()
    assert lance.dataset(f"{db.uri}/t.lance").version == version


@pytest.mark.parametrize(
    "take", [table_without_the_column, table_in_another_way, view, table_that_leman_never_wrote_to]
)
def test_who_takes_a_job_over_says_that_its_table_was_replaced_whatever_has_the_name(db, call_log, take):
    table = db.create_table("t", numbers(20))
    table.add_columns({"y": call_log.double()})
    schema = table.to_lance().schema
    incarnation = table.to_lance().config()[INCARNATION_KEY]
    db.drop_table("t")
    take(db, schema)
    version = lance.dataset(f"{db.uri}/t.lance").version
    future = db.job_future(abandoned(db, table, attempt=1, incarnation=incarnation))
    with pytest.raises(leman.JobFailed) as failed:
        future.result(60)
    assert failed.value.reason == "TABLE_REPLACED"
    assert not call_log.seen()
    assert lance.dataset(f"{db.uri}/t.lance").version == version


def test_a_job_whose_table_is_restored_is_told_what_it_lacks(db, call_log):
    """A restore takes the table's incarnation along, which it had no earlier than the column."""
    lance.write_dataset(numbers(200), f"{db.uri}/t.lance", enable_stable_row_ids=True)
    table = db.open_table("t")
    table.add_columns({"y": call_log.double(seconds=0.02)})
    future = table.backfill_async("y", concurrency=2)
    paused(future, call_log.seen)
    lance.dataset(f"{db.uri}/t.lance", version=1).restore()
    future.resume()
    with pytest.raises(leman.JobFailed) as failed:
        future.result(60)
    assert failed.value.reason == "COLUMN_NOT_DEFINED"


def test_a_job_tells_that_its_table_lost_what_a_job_had_committed(db):
    table = db.create_table("t", numbers(10))
    table.add_columns({"y": leman.sql("x + 1"), "z": leman.sql("x + 2")})
    lost = table.backfill_async("y")
    lost.result(60)
    version = table.version
    min(Path(table.uri, "_versions").iterdir()).unlink()
    again = table.backfill_async("z")
    again.result(60)
    (told,) = [event.message for event in again.events() if event.kind == "error"]
    assert f"at version {version - 1}, but job {lost.job_id} committed version {version}" in told
    third = table.backfill_async("y")
    third.result(60)
    assert [event.message for event in third.events() if event.kind == "error"] == [], "the version is there again"
    assert values(table, "y") == {x: x + 1 for x in range(10)}


def test_who_takes_a_job_over_knows_which_table_it_is_about(db, call_log):
    table = db.create_table("t", numbers(20))
    table.add_columns({"y": call_log.double()})
    before = table.version
    future = db.job_future(abandoned(db, table, attempt=1, incarnation="of one that was dropped"))
    with pytest.raises(leman.JobFailed, match="another one has its name now"):
        future.result(60)
    assert not call_log.seen()
    assert table.version == before
