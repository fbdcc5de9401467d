"""Functions of a local database, and rows for which they failed, without services: as the services tell them."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
import sys

import lance
import pyarrow as pa
import pytest

import leman
from leman import cli
from leman._format import stored_documents
from leman._format.stored_functions import (
    CheckpointBounds,
    ErrorAction,
    ErrorPolicy,
    ErrorRule,
    RemoteFunction,
    Resources,
    UdfDefinition,
    UdfKind,
)
from leman._local import local_reads
from leman._wire import conversions
from leman_core.model.job import Job, JobState
from leman_core.model.plan import BackfillSpec
from leman_core.model.work import RowError
from leman_core.storage.udf_registry import UdfRegistry
from leman_core.wire.convert_udfs import udf_to_proto
from leman_executor.api.convert_jobs import error_group_to_proto, row_error_to_proto
from leman_executor.history.failed_row_pages import FailedRowPages
from leman_executor.history.job_history import JobHistory
from leman_executor.worker.error_store import JobErrors, errors_uri

DEFINITIONS = (
    UdfDefinition("plain", "1", UdfKind.SCALAR, ("x",), pa.int64(), entrypoint="m:f"),
    UdfDefinition("plain", "2", UdfKind.ARRAY, ("x", "y"), pa.list_(pa.float32(), 3), entrypoint="m:g", source="def g"),
    UdfDefinition("sql", "1", UdfKind.SQL, ("x",), pa.int64(), sql_expression="x + 1"),
    UdfDefinition("far", "1", UdfKind.REMOTE, ("x",), pa.string(), input_types=(pa.int64(),),
                  remote=RemoteFunction(("grpc://127.0.0.1:9",), "f")),
    UdfDefinition("full", "1", UdfKind.RECORD_BATCH, ("x",), pa.large_binary(), entrypoint="m:h",
                  stateful=True, blob=True, checkpoint=CheckpointBounds(5, 2, 9), batch_size=7, timeout_seconds=1.5,
                  error_policy=ErrorPolicy((ErrorRule(ErrorAction.SKIP, ("ValueError",)),)),
                  resources=Resources(2, 0.5, 1 << 20)),
)  # fmt: skip


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
def registry(lake):
    made = UdfRegistry(str(lake))
    for udf in DEFINITIONS:
        assert made.put(udf)
    return made


def test_functions_are_told_as_the_services_tell_them(lake, registry):
    told = [conversions.udf_info(udf_to_proto(entry.udf)) for entry in registry.list()]
    assert [(udf.name, udf.version) for udf in told][:2] == [("far", "1"), ("full", "1")]
    with leman.connect(lake) as db:
        assert db.udfs() == told
        for name in ("plain", "plain@1", "full"):
            assert db.udf(name) == conversions.udf_info(udf_to_proto(registry.get(*name.split("@")), with_source=True))
        assert db.udf("plain").source == "def g"


def test_a_database_without_functions(lake):
    with leman.connect(lake) as db:
        assert db.udfs() == []


def test_what_is_no_definition_the_services_are_asked_about(lake, registry):
    (file,) = (lake / "_leman" / "udfs").glob("sql@*")
    whole = file.read_bytes()
    later = stored_documents.seal({**stored_documents.unseal(whole), "format": 9})
    for damaged in (whole[:-1], whole.replace(b"x + 1", b"x + 2"), b"[]", b"{}", later):
        file.write_bytes(damaged)
        assert local_reads.local_udfs(str(lake)) is None
    file.rename(file.with_name("sql@9.json")).write_bytes(whole)
    assert local_reads.local_udfs(str(lake)) is None


def failure(row, message):
    known = {"error_type": "ValueError", "error_message": message, "traceback": "Traceback", "attempt": 1}
    return RowError(row_address=row, row_id=-1 if row == 9 else row + 5, **known)


@pytest.fixture
def failed(lake):
    """Rows that failed in two columns; one of them twice."""
    history = JobHistory(str(lake))
    history.prepare()
    for name in ("job-1", "job-2"):
        spec = BackfillSpec(str(lake), "docs", "y")
        history.save_all([Job(name, f"r-{name}", JobState.FAILED, spec, 1_700_000_000.5, 1_700_000_001.5)])
    uri = errors_uri(str(lake))
    JobErrors(uri, "job-1", "y", "1").store([failure(9, "later"), failure(1, "first")])
    JobErrors(uri, "job-1", "x", "1").store([failure(1, "of another column")])
    JobErrors(uri, "job-1", "y", "1").store([failure(1, "last")])
    JobErrors(uri, "job-1", "y", "1", store_messages=False).store([failure(4, "kept for oneself")])
    JobErrors(uri, "job-2", "y", "1").store([failure(2, "of another job")])
    return FailedRowPages(str(lake))


@pytest.mark.parametrize(("column", "limit"), [(None, None), ("y", None), (None, 2), ("none's", None)])
def test_failed_rows_are_told_as_the_services_tell_them(lake, failed, column, limit):
    rows, _ = failed.page("job-1", column or "", None, limit or 10)
    told = [conversions.row_error(row_error_to_proto(row)) for row in rows]
    with leman.connect(lake) as db:
        assert list(db.get_errors("job-1", column, limit)) == told
        found = db.open_table("docs").get_errors(job_id="job-1", column_name=column, limit=limit)
    assert list(found) == told
    assert len(told) == {None: 3, "y": 2, "none's": 0}[column] if limit is None else limit


@pytest.mark.parametrize(("column", "limit"), [(None, None), ("y", None), (None, 1), ("none's", None)])
def test_failed_rows_are_grouped_as_the_services_group_them(lake, failed, column, limit):
    page = failed.groups("job-1", column or "", 0, limit or 10, 5)
    told = [conversions.row_error_group(error_group_to_proto(group)) for group in page.groups]
    with leman.connect(lake) as db:
        found = db.error_groups("job-1", column, limit, examples=5)
        assert list(found) == told
        assert (found.total, found.rows, found.rows_ungrouped) == (page.total, page.rows, page.ungrouped)
        assert [group.examples for group in db.error_groups("job-1", examples=0)] == [(), (), ()]
        with pytest.raises(leman.errors.InvalidArgument, match="0 to 5"):
            db.error_groups("job-1", examples=6)


def test_a_job_that_nobody_knows_the_services_are_asked_about(lake, failed, monkeypatch):
    assert local_reads.local_errors(str(lake), "job-3", "", None) is None
    monkeypatch.setattr(local_reads, "_MANY", 2)
    assert local_reads.local_errors(str(lake), "job-1", "", None) is None
    assert len(local_reads.local_errors(str(lake), "job-2", "", None)) == 1


def test_failed_rows_that_are_gone_the_services_are_asked_about(lake, failed):
    job = Job("job-4", "", JobState.DONE, BackfillSpec(str(lake), "docs", "y"), 1_700_000_000.5, 1_700_000_001.5)
    JobHistory(str(lake)).save(dataclasses.replace(job, progress=dataclasses.replace(job.progress, rows_failed=1)))
    shutil.rmtree(errors_uri(str(lake)))
    assert local_reads.local_errors(str(lake), "job-4", "", None) is None
    assert local_reads.local_errors(str(lake), "job-2", "", None) == []


@pytest.mark.parametrize("command", [["udfs", "ls"], ["udfs", "show", "full"], ["errors", "job-1"]])
def test_commands(lake, registry, failed, command, monkeypatch, capsys):
    where = 1 if command[0] == "errors" else 2
    monkeypatch.setattr(sys, "argv", ["leman", *command[:where], str(lake), *command[where:]])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 0
    assert {"udfs": "full", "errors": "ValueError"}[command[0]] in capsys.readouterr().out
