"""Failed rows: told apart from others, tried again, with a fixed function and without."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest

import leman
from leman import ErrorHandlingConfig, JobState, Skip
from tests.integration.call_log import CallLog, numbers, values

SKIP = ErrorHandlingConfig(on_error=[Skip()])


class Flaky(CallLog):
    """A function that fails on some numbers, and writes down what it was called with."""

    def function(self, version: str, bad: range | list[int], factor: int = 2, *, name: str = "flaky") -> leman.UDF:
        """x → factor · x, NULL for 1; raises for what is in `bad`."""
        path = str(self.path)

        def flaky(x: int) -> int | None:
            import os

            handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            os.write(handle, f"{x}\n".encode())
            os.close(handle)
            if x in bad:
                raise ValueError(f"no number: {x}")
            return None if x == 1 else factor * x

        return leman.udf(data_type=pa.int64(), name=name, version=version, error_handling=SKIP)(flaky)


@pytest.fixture
def flaky(tmp_path: Path) -> Flaky:
    return Flaky(tmp_path)


BAD = [3, 13, 14, 25]


def filled(db: leman.Database, flaky: Flaky, bad: list[int] = BAD, **options: object) -> tuple[leman.Table, str]:
    """A table of 40 rows in four fragments, computed by version 1."""
    table = db.create_table("t", numbers(40), max_rows_per_file=10)
    table.add_columns({"y": flaky.function("1", bad)})
    job_id = table.backfill("y", progress=False, **options)
    flaky.clear()
    return table, job_id


def expected(rows: int = 40, bad: list[int] | None = None, fixed: list[int] | None = None) -> dict[int, int | None]:
    """By version 1; `fixed` rows by version 2, which multiplies by 10."""
    doubled = {x: None if x == 1 or x in (bad or ()) else 2 * x for x in range(rows)}
    return doubled | {x: 10 * x for x in fixed or ()}


def counts(table: leman.Table) -> tuple[int, int, int, int, int]:
    """Computed, NULL, kept, failed and not computed rows."""
    states = table.row_states("y")
    return states.computed, states.null, sum(k.rows for k in states.kept), states.failed, states.not_computed


def test_failed_rows_are_tried_again_and_no_others(db, flaky):
    table, job_id = filled(db, flaky)
    assert db.job(job_id).state is JobState.DONE_WITH_ERRORS
    job = db.job(db.retry_job(job_id, progress=False))
    assert (job.state, job.retry_of) == (JobState.DONE_WITH_ERRORS, job_id)
    assert sorted(flaky.seen()) == BAD
    assert (job.progress.rows_evaluated, job.progress.rows_failed) == (4, 4)
    assert "4 failed rows to try again in 3 of 4 fragments" in job.plan_summary
    assert values(table, "y") == expected(bad=BAD)
    assert [e.error_message for e in table.get_errors(job_id=job.job_id)] == [f"no number: {x}" for x in BAD]


@pytest.mark.parametrize("fixed", [False, True], ids=["same", "fixed"])
def test_a_retry_leaves_another_table_of_that_name_alone(db, flaky, fixed):
    _, job_id = filled(db, flaky)
    db.drop_table("t")
    other, _ = filled(db, flaky)
    version = other.version
    again = flaky.function("2", [], 10) if fixed else None
    with pytest.raises(leman.errors.LemanError, match=r"Table 't' of job .* was dropped, and another one") as caught:
        db.retry_job(job_id, udf=again, progress=False)
    assert caught.value.reason == "TABLE_REPLACED"
    assert not flaky.seen()
    assert other.version == version
    assert [job.retry_of for job in db.jobs()] == ["", ""]


def test_a_fixed_function_that_keeps_the_others(db, flaky):
    table, job_id = filled(db, flaky)
    fixed = flaky.function("2", [], 10)
    told = []
    job = db.job(db.retry_job(job_id, udf=fixed, keep_others=True, progress=False, report=told.append))
    assert (job.state, told) == (JobState.DONE, [])
    assert sorted(flaky.seen()) == BAD
    assert job.progress.rows_evaluated == 4
    assert values(table, "y") == expected(fixed=BAD)
    (column,) = table.describe().computed_columns
    assert (column.udf_version, column.kept_versions) == ("2", ("flaky@1",))
    assert counts(table) == (40, 1, 36, 0, 0)

    version = table.version
    plain = db.job(table.backfill("y", progress=False))
    assert (plain.state, plain.progress.rows_evaluated, table.version) == (JobState.DONE, 0, version)
    plan = table.plan_backfill("y")
    assert plan.kept == (leman.KeptRows("flaky", "1", 36),)
    assert "36 rows keep values of flaky@1" in str(plan)
    table.add(numbers(5, start=40))
    assert db.job(table.backfill("y", progress=False)).progress.rows_evaluated == 5
    assert values(table, "y")[42] == 420

    table.alter_columns({"y": fixed})
    flaky.clear()
    assert db.job(table.backfill("y", progress=False)).progress.rows_evaluated == 36
    assert sorted(flaky.seen()) == [x for x in range(40) if x not in BAD]
    assert values(table, "y") == {x: None if x == 1 else 10 * x for x in range(45)}
    assert table.plan_backfill("y").kept == ()


def test_a_fixed_function_without_keeping_makes_the_column_stale(db, flaky):
    table, job_id = filled(db, flaky)
    told = []
    job = db.job(db.retry_job(job_id, udf=flaky.function("2", [], 10), progress=False, report=told.append))
    assert [(change.rows_lost, change.udf_before, change.udf) for change in told] == [(40, "flaky@1", "flaky@2")]
    assert "40 finished rows will be computed again" in told[0].summary
    assert (job.state, job.progress.rows_evaluated) == (JobState.DONE, 40)
    assert values(table, "y") == {x: None if x == 1 else 10 * x for x in range(40)}
    assert counts(table) == (40, 1, 0, 0, 0)


def test_a_fix_that_fixes_only_some(db, flaky):
    table, job_id = filled(db, flaky)
    second = db.retry_job(job_id, udf=flaky.function("2", [14], 10), keep_others=True, progress=False)
    assert db.job(second).state is JobState.DONE_WITH_ERRORS
    assert counts(table) == (39, 1, 36, 1, 0)
    assert table.get_failed_row_addresses(column_name="y") == [(1 << 32) + 4]
    third = db.retry_job(second, udf=flaky.function("3", [], 100), keep_others=True, progress=False)
    assert db.job(third).state is JobState.DONE
    assert sorted(flaky.seen()) == sorted([*BAD, 14])
    assert values(table, "y") == expected(fixed=[3, 13, 25]) | {14: 1400}
    kept = {(k.udf_version, k.rows) for k in table.row_states("y").kept}
    assert kept == {("1", 36), ("2", 3)}
    assert db.job(table.backfill("y", progress=False)).progress.rows_evaluated == 0


def test_failed_rows_are_found_after_compaction_update_and_delete(db, flaky):
    table, job_id = filled(db, flaky)
    data = table.to_lance()
    data.delete("x = 3")
    data.update({"x": "113"}, where="x = 13")  # another input: not failed any more, but not computed
    data.optimize.compact_files(target_rows_per_fragment=1000)
    rows = table.to_arrow(["x"])["x"].to_pylist()
    fragments = data.get_fragments()
    addresses = table.get_failed_row_addresses(job_id=job_id)
    assert addresses == table.get_failed_row_addresses(column_name="y")
    assert [address >> 32 for address in addresses] == [fragments[0].fragment_id] * 2
    assert [rows[address & 0xFFFFFFFF] for address in addresses] == [14, 25]
    assert counts(table) == (36, 1, 0, 2, 1)

    job = db.job(db.retry_job(job_id, udf=flaky.function("2", [], 10), keep_others=True, progress=False))
    assert (job.state, sorted(flaky.seen())) == (JobState.DONE, [14, 25])
    assert "1 rows are not computed" in job.plan_summary
    flaky.clear()
    assert db.job(table.backfill("y", progress=False)).state is JobState.DONE
    assert flaky.seen() == [113]
    found = values(table, "y")
    assert found == {x: v for x, v in expected(fixed=[14, 25]).items() if x not in (3, 13)} | {113: 1130}


def test_kept_values_survive_compaction(db, flaky):
    table, job_id = filled(db, flaky)
    fixed = flaky.function("2", [], 10)
    db.retry_job(job_id, udf=fixed, keep_others=True, progress=False)
    flaky.clear()
    table.to_lance().optimize.compact_files(target_rows_per_fragment=1000)
    assert db.job(table.backfill("y", progress=False)).progress.rows_evaluated == 0
    assert counts(table) == (40, 1, 36, 0, 0)
    table.to_lance().delete("x = 7")
    table.to_lance().optimize.compact_files(target_rows_per_fragment=1000, materialize_deletions_threshold=0.0)
    assert db.job(table.backfill("y", progress=False)).progress.rows_evaluated == 0
    assert counts(table) == (39, 1, 35, 0, 0)
    table.alter_columns({"y": fixed})
    assert db.job(table.backfill("y", progress=False)).progress.rows_evaluated == 35
    assert sorted(flaky.seen()) == [x for x in range(40) if x not in [*BAD, 7]]


def test_the_filter_of_the_job_holds_for_its_retry(db, flaky):
    table, job_id = filled(db, flaky, where="x < 14")
    assert counts(table) == (12, 1, 0, 2, 26)
    flaky.clear()
    later = table.backfill("y", progress=False)
    assert counts(table) == (36, 1, 0, 4, 0)
    flaky.clear()
    job = db.job(db.retry_job(job_id, udf=flaky.function("2", [], 10), keep_others=True, progress=False))
    assert sorted(flaky.seen()) == [3, 13]
    assert job.state is JobState.DONE_WITH_ERRORS, "row 14 of fragment 1 is failed still"
    flaky.clear()
    assert db.job(db.retry_job(later, progress=False)).state is JobState.DONE
    assert sorted(flaky.seen()) == [14, 25]
    assert values(table, "y") == expected(fixed=BAD)


def test_rows_that_nobody_asked_for_stay_uncomputed(db, flaky):
    table, job_id = filled(db, flaky, where="x < 14")
    job = db.job(db.retry_job(job_id, udf=flaky.function("2", [], 10), keep_others=True, progress=False))
    assert (job.state, sorted(flaky.seen())) == (JobState.DONE, [3, 13])
    assert "26 rows are not computed: a backfill computes them" in job.plan_summary
    assert counts(table) == (14, 1, 12, 0, 26)
    flaky.clear()
    assert db.job(table.backfill("y", progress=False)).state is JobState.DONE
    assert sorted(flaky.seen()) == list(range(14, 40))
    assert values(table, "y") == expected(fixed=[3, 13, *range(14, 40)])


def test_a_null_a_failed_and_a_missing_row_are_told_apart(db, flaky):
    table, _ = filled(db, flaky, where="x < 14")
    table.add(numbers(2, start=40))
    last = 4 << 32
    assert table.rows_in_state("y", "null") == [1]
    assert table.rows_in_state("y", "failed") == [3, (1 << 32) + 3]
    missing = [(1 << 32) + i for i in range(4, 10)] + [(f << 32) + i for f in (2, 3) for i in range(10)]
    assert table.rows_in_state("y", "not_computed") == [*missing, last, last + 1]
    assert len(table.rows_in_state("y", "computed")) == 12
    with pytest.raises(leman.errors.InvalidArgument, match="state must be one of"):
        table.rows_in_state("y", "broken")


def test_a_deleted_failed_row_is_failed_no_more(db, flaky):
    table, job_id = filled(db, flaky)
    table.to_lance().delete("x in (3, 13, 14, 25)")
    assert counts(table)[3] == 0
    job = db.job(db.retry_job(job_id, progress=False))
    assert (job.state, job.progress.rows_evaluated, flaky.seen()) == (JobState.DONE, 0, [])


def test_nothing_is_left_to_retry(db, flaky):
    table, job_id = filled(db, flaky)
    done = db.retry_job(job_id, udf=flaky.function("2", [], 10), keep_others=True, progress=False)
    version = table.version
    flaky.clear()
    again = db.job(db.retry_job(job_id, udf=flaky.function("2", [], 10), keep_others=True, progress=False))
    assert (again.state, again.progress.rows_evaluated, table.version) == (JobState.DONE, 0, version)
    assert "no row is marked as failed" in db.job(db.retry_job(done, progress=False)).plan_summary
    assert flaky.seen() == []


def test_what_cannot_be_retried(db, flaky):
    table = db.create_table("t", numbers(40).append_column("z", pa.array(range(40), pa.int64())), max_rows_per_file=10)

    @leman.udf(data_type=pa.int64(), name="strict", version="1")
    def strict(x: int) -> int:
        raise ValueError("always")

    @leman.udf(data_type=pa.int64(), name="other", version="1")
    def other(z: int) -> int:
        return z

    table.add_columns({"y": strict})
    with pytest.raises(leman.JobFailed):
        table.backfill("y", progress=False)
    job_id = db.jobs()[0].job_id
    with pytest.raises(leman.errors.FailedPrecondition, match="run the backfill again") as caught:
        db.retry_job(job_id)
    assert caught.value.reason == "NOTHING_TO_RETRY"
    with pytest.raises(leman.errors.FailedPrecondition, match="cannot keep its values") as caught:
        db.retry_job(job_id, udf=other, keep_others=True)
    assert caught.value.reason == "KEPT_INPUTS_DIFFER"
    with pytest.raises(leman.errors.InvalidArgument, match="needs udf"):
        db.retry_job(job_id, keep_others=True)
    with pytest.raises(leman.errors.JobNotFound):
        db.retry_job("job-0")
    slow = flaky.double(seconds=0.05)
    table.add_columns({"w": slow})
    future = table.backfill_async("w", concurrency=1)
    with pytest.raises(leman.errors.FailedPrecondition, match="has not ended") as caught:
        future.retry()
    assert caught.value.reason == "JOB_RUNNING"
    future.cancel()


def test_two_retries_at_once_and_a_backfill_beside_them(db, flaky):
    table, job_id = filled(db, flaky)
    table.add(numbers(10, start=40))
    fixed = flaky.function("2", [], 10)
    futures = [db.retry_job_async(job_id, udf=fixed, keep_others=True) for _ in range(2)]
    for future in futures:
        future.result(timeout=60)
        assert future.status() is JobState.DONE
    assert sorted(flaky.seen()) == BAD, "two retries share the work"
    db.retry_job_async(job_id).result(timeout=60)
    flaky.clear()
    futures = [table.backfill_async("y"), db.retry_job_async(job_id)]
    for future in futures:
        future.result(timeout=60)
        assert future.status() is JobState.DONE
    assert sorted(flaky.seen()) == list(range(40, 50))
    assert values(table, "y") == expected(fixed=[*BAD, *range(40, 50)])
    assert counts(table) == (50, 1, 36, 0, 0)


def test_a_table_without_stable_row_ids(db, flaky):
    with pytest.warns(UserWarning, match="no stable row ids"):
        table = db.create_table("t", numbers(40), max_rows_per_file=10, enable_stable_row_ids=False)
    table.add_columns({"y": flaky.function("1", BAD)})
    job_id = table.backfill("y", progress=False)
    assert [a & 0xFFFFFFFF for a in table.get_failed_row_addresses(job_id=job_id)] == [3, 3, 4, 5]
    lance.dataset(table.uri).optimize.compact_files(target_rows_per_fragment=1000)
    assert [a & 0xFFFFFFFF for a in table.get_failed_row_addresses(column_name="y")] == BAD
    flaky.clear()
    db.retry_job(job_id, udf=flaky.function("2", [], 10), keep_others=True, progress=False)
    assert sorted(flaky.seen()) == BAD
    assert values(table, "y") == expected(fixed=BAD)


def test_a_job_with_a_function_that_is_not_the_columns(db, flaky):
    table, _ = filled(db, flaky)
    other = flaky.function("1", [3], 5, name="other")
    job_id = table.backfill("y", udf=other, progress=False)
    assert values(table, "y")[4] == 20
    with pytest.raises(leman.errors.FailedPrecondition, match="cannot be kept") as caught:
        db.retry_job(job_id, udf=flaky.function("2", [], 10), keep_others=True)
    assert caught.value.reason == "KEEP_OTHERS_FUNCTION"
    flaky.clear()
    db.retry_job(job_id, progress=False)
    assert flaky.seen() == [3]


def test_the_columns_own_function_given_by_name_is_its_own(db, flaky):
    table = db.create_table("t", numbers(40), max_rows_per_file=10)
    table.add_columns({"y": flaky.function("1", BAD)})
    job_id = table.backfill("y", udf="flaky@1", progress=False)
    flaky.clear()
    db.retry_job(job_id, udf=flaky.function("2", [14], 10), keep_others=True, progress=False)
    again = db.job(db.retry_job(job_id, progress=False))
    assert (again.udf_version, sorted(flaky.seen())) == ("2", sorted([*BAD, 14]))
    flaky.clear()
    again = db.job(db.retry_job(again.job_id, udf="flaky@2", keep_others=True, progress=False))
    assert (again.state, flaky.seen()) == (JobState.DONE_WITH_ERRORS, [14])


def test_alter_columns_that_keeps_the_values(db, flaky):
    table, _ = filled(db, flaky, where="x < 14")
    table.alter_columns({"y": flaky.function("2", [], 10)}, keep_values=True)
    assert table.plan_backfill("y").rows_to_compute == 28
    assert db.job(table.backfill("y", progress=False)).state is JobState.DONE
    assert sorted(flaky.seen()) == [3, 13, *range(14, 40)]
    assert values(table, "y") == expected(fixed=[3, 13, *range(14, 40)])


def test_more_errors_than_a_fraction_allows(db, tmp_path):
    @leman.udf(
        data_type=pa.int64(),
        version="1",
        error_handling=ErrorHandlingConfig(on_error=[Skip(ValueError, match="odd")], max_errors=0.05),
    )
    def picky(x: int) -> int:
        if x in (3, 7, 11):
            raise ValueError(f"odd: {x}")
        return x

    table = db.create_table("t", numbers(40))
    table.add_columns({"y": picky})
    with pytest.raises(leman.JobFailed, match="failed on 3 rows, 2 are allowed"):
        table.backfill("y", progress=False)
    few = db.create_table("few", numbers(15))
    few.add_columns({"y": picky})
    with pytest.raises(leman.JobFailed, match="failed on 3 rows, 0 are allowed"):
        few.backfill("y", progress=False)


def test_rules_by_type_and_message(db, tmp_path):
    @leman.udf(
        data_type=pa.int64(),
        version="1",
        error_handling=ErrorHandlingConfig(
            on_error=[leman.Fail(ValueError, match="fatal"), Skip(LookupError), Skip(ValueError, match="^bad")]
        ),
    )
    def choosy(x: int) -> int:
        if x == 3:
            raise KeyError("three")
        if x == 5:
            raise ValueError("bad five")
        if x == 77:
            raise ValueError("bad and fatal")
        return x

    table = db.create_table("t", numbers(40))
    table.add_columns({"y": choosy})
    job_id = table.backfill("y", progress=False)
    assert [e.error_type for e in table.get_errors(job_id=job_id)] == ["KeyError", "ValueError"]
    table.add(numbers(1, start=77))
    with pytest.raises(leman.JobFailed, match="fatal"):
        table.backfill("y", progress=False)
