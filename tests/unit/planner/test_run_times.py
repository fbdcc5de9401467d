"""Estimates of how long a backfill takes, from the job history."""

import dataclasses

import pyarrow as pa
import pytest

from leman_core.model.job import Job, JobState, Progress
from leman_core.model.plan import BackfillSpec
from leman_core.storage import stored_jobs
from leman_core.storage.append_log import AppendLog
from leman_planner.catalog.column_changes import estimate_text, run_time
from leman_planner.catalog.column_requests import expected_seconds, last_run_time

SCHEMA = pa.schema([("job_id", pa.string()), ("table", pa.string()), ("column", pa.string()), ("record", pa.string())])


def job(job_id="j1", *, rows=100, udf=10.0, wall=12.0, state=JobState.DONE, table="t", column="c"):
    return Job(
        job_id=job_id,
        request_id="",
        state=state,
        request=BackfillSpec("/data", table, column),
        created_at=90.0,
        updated_at=100.0 + wall,
        started_at=100.0,
        ended_at=100.0 + wall if state.terminal else 0.0,
        progress=Progress(rows_evaluated=rows, udf_seconds=udf),
    )


def test_what_workers_did_counts_and_starting_them_does_not():
    found = run_time(job(rows=100, udf=10.0, wall=30.0))
    assert found.of(100) == pytest.approx(10.0)
    assert found.of(1000) == pytest.approx(100.0)


def test_workers_that_were_at_work_at_once_share_the_rows():
    found = run_time(job(rows=100, udf=40.0, wall=10.0))
    assert found.of(1000) == pytest.approx(100.0)


@pytest.mark.parametrize(
    "told",
    [
        job(rows=0),
        job(state=JobState.RUNNING),
        job(udf=0.0),
        job(wall=0.0),
        dataclasses.replace(job(), started_at=0.0),
    ],
)
def test_a_job_that_called_no_function_says_nothing(told):
    assert run_time(told) is None


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.2, "less than a second"),
        (1.2, "about 1 second"),
        (40, "about 40 seconds"),
        (100, "about 2 minutes"),
        (720, "about 12 minutes"),
        (2.6 * 3600, "about 3 hours"),
        (60 * 3600, "about 2 days"),
    ],
)
def test_times_are_said_as_estimates(seconds, said):
    assert estimate_text(seconds) == said


def test_the_last_backfill_of_the_column_that_called_its_function_counts(tmp_path):
    assert expected_seconds(str(tmp_path), "t", "c", 10) is None, "there is no history"
    log = AppendLog(f"{tmp_path}/_leman/jobs.lance", SCHEMA, ordered=True)
    log.create()
    for told in (
        job("j1", rows=100, udf=1.0, wall=1.0),
        job("j2", rows=100, udf=10.0, wall=10.0, state=JobState.RUNNING),
        job("j2", rows=100, udf=10.0, wall=10.0),
        job("j3", rows=0, udf=0.0),
        job("j4", rows=1, udf=99.0, wall=99.0, column="o'c"),
        job("j5", rows=100, udf=99.0, wall=99.0, table="other"),
    ):
        record = stored_jobs.encode_job(told)
        log.append([{"job_id": told.job_id, "table": told.request.table, "column": told.column, "record": record}])
    assert expected_seconds(str(tmp_path), "t", "c", 1000) == pytest.approx(100.0)
    assert expected_seconds(str(tmp_path), "t", "c", 0) is None
    assert last_run_time(str(tmp_path), "t", "o'c").of(2) == pytest.approx(198.0)


def write_history(folder, *records):
    log = AppendLog(f"{folder}/_leman/jobs.lance", SCHEMA, ordered=True)
    log.create()
    for record in records:
        log.append([{"job_id": "j", "table": "t", "column": "c", "record": record}])


@pytest.mark.parametrize(
    ("jobs", "seconds"),
    [
        ([job(rows=1, udf=2.0)], None),
        ([job(rows=19, udf=29.0, wall=50.0)], None),
        ([job(rows=1, udf=30.0, wall=50.0)], 3000.0),
        ([job(rows=99, udf=9.0), job(rows=1, udf=1.0)], 10.0),
        ([job(rows=50, udf=500.0, wall=900.0), job(rows=99, udf=9.0), job(rows=1, udf=1.0)], 10.0),
    ],
)
def test_an_estimate_needs_twenty_rows_or_half_a_minute(tmp_path, jobs, seconds):
    """A job of one row took the time of its files: it made 8 minutes of 20 seconds."""
    write_history(tmp_path, *map(stored_jobs.encode_job, jobs))
    found = expected_seconds(str(tmp_path), "t", "c", 100)
    assert found == (None if seconds is None else pytest.approx(seconds))


def test_a_damaged_record_is_passed_over(tmp_path):
    write_history(tmp_path, stored_jobs.encode_job(job()), "0123 nonsense")
    assert last_run_time(str(tmp_path), "t", "c") is not None
