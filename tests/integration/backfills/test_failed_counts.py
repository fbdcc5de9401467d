"""What a caller learns about failed rows: while the job runs, at its end, and from jobs that find them."""

from __future__ import annotations

import pyarrow as pa

import leman
from leman import ErrorHandlingConfig, Skip
from leman.progress import errors_command
from tests.integration.call_log import numbers


def not_three(x: int) -> int:
    if x % 10 == 3:
        raise ValueError(f"{x} ends in three")
    return x


def skipping(**options: int) -> leman.UDF:
    policy = ErrorHandlingConfig(on_error=[Skip()], **options)
    return leman.udf(data_type=pa.int64(), name="not_three", version="1", error_handling=policy)(not_three)


def test_a_job_that_finds_failed_rows_says_how_many_and_where_they_failed(db, capsys):
    table = db.create_table("t", numbers(40), max_rows_per_file=20)
    table.add_columns({"y": skipping()})
    seen: list[int] = []
    table.backfill("y", progress=lambda progress: seen.append(progress.rows_failed))
    assert seen == sorted(seen)
    assert seen[-1] == 4

    first = db.jobs("t")[0]
    assert (first.state.value, first.progress.rows_failed, first.progress.rows_failed_before) == (
        "DONE_WITH_ERRORS",
        4,
        0,
    )
    assert (first.progress.rows_evaluated, first.progress.rows_computed, first.failed_in) == (40, 36, ())

    table.backfill("y", progress=True)
    nothing = db.jobs("t")[0]
    assert (nothing.state.value, nothing.progress.rows_failed, nothing.progress.rows_failed_before) == (
        "DONE_WITH_ERRORS",
        0,
        4,
    )
    assert nothing.failed_in == (first.job_id,)
    assert f"4 rows that failed before stay NULL: {errors_command(first)}" in capsys.readouterr().err

    table.add({"x": [50, 53]})
    table.backfill("y", progress=True)
    more = db.jobs("t")[0]
    assert (more.progress.rows_failed, more.progress.rows_failed_before, more.failed_in) == (1, 4, (first.job_id,))
    assert "1 row computed" in capsys.readouterr().err


def test_a_partial_file_that_is_extended_brings_no_failed_rows_of_before(db):
    """Nor are they in the error budget."""
    table = db.create_table("t", numbers(40))
    table.add_columns({"y": skipping(max_errors=3)})
    table.backfill("y", where="x < 25", progress=False)
    table.backfill("y", progress=False)
    counts = [(job.progress.rows_failed, job.progress.rows_failed_before) for job in db.jobs("t")]
    assert counts == [(1, 3), (3, 0)]


def test_a_retry_counts_the_rows_that_fail_again(db):
    table = db.create_table("t", numbers(40))
    table.add_columns({"y": skipping()})
    table.backfill("y", progress=False)
    db.retry_job(db.jobs("t")[0].job_id, progress=False)
    job = db.jobs("t")[0]
    assert (job.progress.rows_failed, job.progress.rows_failed_before, job.progress.rows_computed) == (4, 0, 0)


def again(db: leman.Database, where: str | None = None) -> tuple[str, int, int]:
    """What a backfill of `t.y` tells; the plan before it says the same of what had failed."""
    made = db.open_table("t").plan_backfill("y", where=where)
    db.open_table("t").backfill("y", where=where, progress=False)
    job = db.jobs("t")[0]
    assert made.rows_failed_before == job.progress.rows_failed_before
    return job.state.value, job.progress.rows_failed, job.progress.rows_failed_before


def test_failed_rows_that_are_gone_or_not_asked_for_do_not_count(db):
    table = db.create_table("t", numbers(40), max_rows_per_file=20)
    table.add_columns({"y": skipping()})
    table.backfill("y", progress=False)
    assert again(db, "x > 100") == ("DONE", 0, 0)
    assert again(db, "x < 20") == ("DONE_WITH_ERRORS", 0, 2)
    table.to_lance().delete("x = 3")
    assert again(db) == ("DONE_WITH_ERRORS", 0, 3)
    assert again(db, "x < 20") == ("DONE_WITH_ERRORS", 0, 1)
    table.to_lance().update({"x": "5"}, where="x = 23")
    assert again(db) == ("DONE_WITH_ERRORS", 0, 2)
    table.to_lance().delete("x % 10 = 3")
    assert again(db) == ("DONE", 0, 0)


def test_a_file_that_is_extended_forgets_failed_rows_that_are_deleted(db):
    table = db.create_table("t", numbers(40))
    table.add_columns({"y": skipping()})
    table.backfill("y", where="x < 25", progress=False)
    table.to_lance().delete("x = 3")
    assert again(db, "x > 100") == ("DONE", 0, 0)
    assert again(db, "x > 30") == ("DONE_WITH_ERRORS", 1, 0)
    assert again(db) == ("DONE_WITH_ERRORS", 0, 3)
