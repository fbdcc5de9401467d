"""Jobs of a local database where no services run: read from its history, as the services tell them."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings

import lance
import pyarrow as pa
import pytest
from lance.optimize import Compaction

import leman
from leman import cli
from leman._format import stored_documents
from leman._local import local_reads
from leman._wire import conversions
from leman.errors import JobNotFound
from leman_core.model.job import Job, JobError, JobState, Progress, Stall, deleted_job
from leman_core.model.plan import BackfillSpec, Reason, ReasonCount
from leman_core.model.row_positions import RowRange
from leman_core.model.table import IndexCoverage
from leman_core.model.view import RefreshMode, RefreshReason, RefreshResult, RefreshSpec
from leman_executor.api.job_service import job_message
from leman_executor.history.job_history import JobHistory

_FULL = {
    "progress": Progress(rows_total=9, rows_failed=2, udf_seconds=0.5, eta_seconds=3.0, bottleneck="udf", commits=1),
    "udf_name": "f",
    "udf_version": "1",
    "reasons": (ReasonCount(Reason.UDF_CHANGED, 2, 9),),
    "plan_summary": "2 fragments",
    "stalls": (
        Stall(worker="w", fragment_id=-1, rows=RowRange(0, 0), idle_seconds=9.0, silent=True, message="waits"),
        Stall(worker="w", fragment_id=3, rows=RowRange(2, 5), idle_seconds=9.0, silent=False, message="waits"),
    ),
    "labels": {"team": "search"},
    "priority": 3,
    "initiator": "me",
    "queue_position": 2,
    "expected_start_at": 1_700_000_009.5,
    "started_at": 1_700_000_002.25,
    "env_names": ("API_KEY",),
}


@pytest.fixture
def lake(tmp_path, monkeypatch):
    """A database with a table; services must not be started."""
    folder = tmp_path / "lake"
    lance.write_dataset(pa.table({"n": [1, 2, 3]}), f"{folder}/docs.lance")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def start(*arguments, **options):
        raise AssertionError(arguments)

    monkeypatch.setattr(subprocess, "Popen", start)
    return folder


@pytest.fixture
def history(lake):
    made = JobHistory(str(lake))
    made.prepare()
    return made


def job(lake, name: str, state: JobState, at: float = 1_700_000_000.5, **fields) -> Job:
    request = fields.pop("request", BackfillSpec(str(lake), "docs", "y", where="n > 1"))
    return Job(f"job-{name}", f"r-{name}", state, request, at, at + 1, **fields)


def told_by_services(history: JobHistory) -> list[leman.Job]:
    found = [conversions.job(job_message(job)) for job in history.load().values()]
    return sorted(found, key=lambda job: (job.create_time, job.job_id), reverse=True)


def test_what_is_told_is_what_the_services_tell(lake, history):
    index = IndexCoverage(name="by_y", kind="BTREE", columns=("y",), fragments=4, fragments_covered=3, rows_left_out=9)
    error = JobError(kind="FailedPrecondition", reason="TOO_MANY_ERRORS", message="JobService.ListJobErrors tells")
    result = RefreshResult(RefreshMode.FULL, RefreshReason.FIRST_FILL, rows_added=4, source_version=2)
    history.save_all(
        [
            job(lake, "runs", JobState.RUNNING, **_FULL),
            job(lake, "done", JobState.DONE, stale_indices=(index,), table_version=4, ended_at=1_700_000_003.0),
            job(lake, "failed", JobState.FAILED, 1_700_000_001.0, error=error, retry_of="job-done", attempt=2),
            job(lake, "view", JobState.DONE_WITH_ERRORS, request=RefreshSpec(str(lake), "v"), refresh_result=result,
                progress=Progress(rows_failed=1, rows_failed_before=2), failed_in=("job-done",)),
            job(lake, "nothing", JobState.DONE, request=RefreshSpec(str(lake), "v"), refresh_result=RefreshResult()),
        ]
    )  # fmt: skip
    told = told_by_services(history)
    assert local_reads.local_jobs(str(lake)) == told
    assert [job.job_id for job in told] == ["job-failed", "job-view", "job-runs", "job-nothing", "job-done"]


def test_the_state_that_counts_is_told_whatever_was_compacted(lake, history):
    gone = job(lake, "gone", JobState.DONE)
    history.save_all([gone, job(lake, "a", JobState.PENDING), job(lake, "late", JobState.RUNNING, executor="one")])
    dataset = lance.dataset(history.uri)
    compaction = Compaction.plan(dataset, options={"target_rows_per_fragment": 1024})
    done = [task.execute(dataset) for task in compaction.tasks]
    history.save_all([job(lake, "a", JobState.RUNNING), deleted_job(gone, 1_700_000_009.0)])
    history.save_all([job(lake, "late", JobState.RUNNING, executor="two", attempt=2)])
    history.save_all([job(lake, "late", JobState.FAILED, executor="one"), job(lake, "a", JobState.DONE)])
    history.save_all([job(lake, "a", JobState.FAILED)])
    Compaction.commit(lance.dataset(history.uri), done)
    history.tidy()
    found = local_reads.local_jobs(str(lake))
    assert found == told_by_services(JobHistory(str(lake)))
    assert {job.job_id: (job.state, job.attempt) for job in found} == {
        "job-late": ("RUNNING", 2),
        "job-a": ("DONE", 1),
    }


@pytest.mark.parametrize("harm", ["digest", "field", "format", "password", "noted"])
def test_what_makes_no_sense_is_asked_of_the_services(lake, history, harm):
    error = JobError(kind="Unavailable", reason="X", message="no way to redis://me:secret@host")
    history.save_all([job(lake, "a", JobState.FAILED, error=error if harm == "password" else None)])
    table = lance.dataset(history.uri)
    if harm == "digest":
        table.update({"record": "replace(record, 'docs', 'dogs')"})
    elif harm == "field":
        table.update({"record": "'{}'"})
    elif harm == "format":
        text = stored_documents.unseal_text(table.to_table(["record"])["record"][0].as_py())
        later = stored_documents.seal_text(json.dumps({**json.loads(text), "format": 9}))
        table.update({"record": f"'{later}'"})
    elif harm == "noted":
        (lake / "_leman" / "damaged").mkdir()
    assert local_reads.local_jobs(str(lake)) is None


def test_listing_and_finding_jobs_starts_nothing_and_tells_of_those_that_wait(lake, history):
    history.save_all(
        [
            job(lake, "done", JobState.DONE, labels={"team": "search"}),
            job(lake, "paused", JobState.PAUSED, 1_700_000_001.0),
            job(lake, "open", JobState.RUNNING, 1_700_000_002.0),
            job(lake, "view", JobState.DONE, 1_700_000_003.0, request=RefreshSpec(str(lake), "v")),
        ]
    )
    with leman.connect(lake) as db:
        with pytest.warns(
            UserWarning, match=r"job-open has not ended and continues once services run: `leman up .*lake`"
        ):
            assert [job.job_id for job in db.jobs()] == ["job-view", "job-open", "job-paused", "job-done"]
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # nothing that was asked for waits
            assert [job.job_id for job in db.jobs(labels={"team": "search"})] == ["job-done"]
            assert [job.job_id for job in db.jobs("v")] == ["job-view"]
            assert [job.job_id for job in db.jobs(limit=1)] == ["job-view"]
            assert [job.job_id for job in db.jobs(states=["PAUSED", "DONE"], limit=2)] == ["job-view", "job-paused"]
            assert db.job("job-done").labels == {"team": "search"}


def test_a_job_that_is_not_there_is_asked_of_the_services(lake, history, monkeypatch):
    def locate(_self):
        raise JobNotFound("asked")

    monkeypatch.setattr("leman._local.embedded_services.Embedded.locate_first", locate)
    with leman.connect(lake) as db, pytest.raises(JobNotFound, match="asked"):
        db.job("job-nowhere")


def test_a_database_without_a_history_has_no_jobs(lake):
    with leman.connect(lake) as db:
        assert db.jobs() == []
        assert db.open_table("docs").head(2).to_pylist() == [{"n": 1}, {"n": 2}]
    assert not (lake / "_leman").exists()


@pytest.mark.parametrize("command", [["ls"], ["show", "job-open"]])
def test_commands_that_look_at_jobs_start_nothing(lake, history, monkeypatch, capsys, command):
    history.save_all([job(lake, "open", JobState.PLANNING)])
    monkeypatch.setattr(sys, "argv", ["leman", "jobs", command[0], str(lake), *command[1:]])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert not caught.value.code
    out, told = capsys.readouterr()
    assert "job-open" in out
    assert "PLANNING" in out
    assert told.startswith("leman: job-open has not ended and continues once services run")
