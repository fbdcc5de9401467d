"""Jobs whose table was dropped, with another one of that name in its place."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import AsyncMock

import lance
import pyarrow as pa
import pytest

from leman_core.model.job import Job, JobState
from leman_core.model.plan import BackfillSpec, StaleInput
from leman_core.model.service_errors import Aborted, FailedPrecondition, InvalidArgument
from leman_core.model.view import RefreshSpec
from leman_core.model.work import UnitFailure
from leman_core.storage.lance_tables import INCARNATION_KEY, LanceTables
from leman_executor.jobs import incarnation_check
from leman_executor.jobs.backfill_run import BackfillRun, InputColumns
from leman_executor.jobs.incarnation_check import Replaced, find_replaced
from leman_executor.jobs.job_status import JobStatus
from leman_executor.manager.job_admission import RetryOptions, retry_spec
from tests.unit.executor.jobs.test_plan_execution import JOB, Commits, SilentSpark, services_of


class Spark(SilentSpark):
    def forget(self, _: str) -> None:
        return


FAILED = UnitFailure("UDF_FAILED", "it takes no such value")


def ended(folder: Path, failure: UnitFailure | None) -> Job:
    """A backfill of `t` there, which is of incarnation `i` as far as its plan says."""

    async def main() -> Job:
        job = replace(JOB, request=BackfillSpec(str(folder), "t", "y"))
        run = BackfillRun(job, services_of(Spark(failure), Commits()), is_scratch=True)
        await run.run(await run.plan())
        return run.status.job

    return asyncio.run(asyncio.wait_for(main(), 10))


@pytest.mark.parametrize(
    ("incarnation", "reason"),
    [("i", "UDF_FAILED"), ("another", "TABLE_REPLACED"), ("", "TABLE_REPLACED"), (None, "UDF_FAILED")],
)
def test_a_function_that_was_given_values_of_another_table_is_not_to_blame(tmp_path, incarnation, reason):
    if incarnation is not None:
        table = lance.write_dataset(pa.table({"x": [1]}), tmp_path / "t.lance")
        if incarnation:
            table.update_config({INCARNATION_KEY: incarnation})
    job = ended(tmp_path, FAILED)
    assert job.state is JobState.FAILED
    assert job.error is not None
    assert job.error.reason == reason


def test_the_inputs_that_a_job_computes_first_are_those_of_its_table():
    """It was dropped after the job had its plan, and another one has such an input too."""

    async def main() -> Aborted:
        whole = JobStatus(replace(JOB, incarnation="of the job's plan"))
        inputs = InputColumns(whole, services_of(Spark(), Commits()), BackfillRun)
        table = BackfillSpec(JOB.request.database, JOB.request.table, "")
        with pytest.raises(Aborted) as caught:
            await inputs.compute([StaleInput("y", 20)], table, lambda: None, whole.job.incarnation)
        return caught.value

    assert asyncio.run(asyncio.wait_for(main(), 10)).reason == "TABLE_REPLACED"


@pytest.mark.parametrize(("reason", "is_raised"), [("INPUT_COLUMN_STALE", False), ("UDF_FAILED", True)])
def test_an_input_whose_own_inputs_become_stale_meanwhile_is_left_to_the_next_plan(monkeypatch, reason, is_raised):
    """Others may add rows at any time: the job then plans again, and does not fail with what the caller has asked
    for."""
    computed = AsyncMock(side_effect=[None, FailedPrecondition(reason, "y depends on x")])
    monkeypatch.setattr(InputColumns, "_column", computed)
    inputs = InputColumns(JobStatus(JOB), services_of(Spark(), Commits()), BackfillRun)
    table = BackfillSpec(JOB.request.database, JOB.request.table, "")
    stale = [StaleInput(name, 20) for name in ("x", "y", "z")]
    expected = pytest.raises(FailedPrecondition) if is_raised else contextlib.nullcontext()
    with expected:
        asyncio.run(inputs.compute(stale, table, lambda: None))
    assert [call.args[0].column for call in computed.await_args_list] == ["x", "y"]


@pytest.fixture
def source(tmp_path, monkeypatch):
    """The source of a view, at version 1; the view itself is named only."""
    lance.write_dataset(pa.table({"x": [1]}), tmp_path / "v.lance")
    uri = str(tmp_path / "t.lance")
    monkeypatch.setattr(incarnation_check, "definition_in", lambda _: SimpleNamespace(source_uri=uri))
    return lance.write_dataset(pa.table({"x": [1]}), uri)


def refresh_of(source: lance.LanceDataset, version: int, incarnation: str) -> Job:
    """One that began with a version of a table that had an incarnation."""
    spec = RefreshSpec(str(Path(source.uri).parent), "v", src_version=version)
    return replace(JOB, request=spec, source_incarnation=incarnation)


def has_other_source(job: Job) -> bool:
    return asyncio.run(find_replaced(job)) is Replaced.SOURCE


GONE = 9


@pytest.mark.parametrize(
    ("version", "began_with", "now", "expected"),
    [
        pytest.param(2, "i", "i", False, id="same"),
        pytest.param(2, "i", "other", True, id="another"),
        pytest.param(1, "i", "i", True, id="another's files, of before it had an incarnation"),
        pytest.param(GONE, "i", "i", False, id="gone, same"),
        pytest.param(GONE, "i", "other", True, id="gone, another"),
        pytest.param(GONE, "i", "", False, id="gone, and a restore took the incarnation along"),
        pytest.param(GONE, "files-0", "other", False, id="gone, with the files that told it"),
        pytest.param(GONE, "", "other", False, id="not known"),
    ],
)
def test_a_refresh_knows_the_source_that_it_began_with(source, version, began_with, now, expected):
    if now:
        source.update_config({INCARNATION_KEY: now})
    assert has_other_source(refresh_of(source, version, began_with)) == expected


def test_a_source_without_an_incarnation_is_known_by_the_files_of_the_very_version(source):
    known = LanceTables().snapshot(source.uri, 1).identity
    source.update_config({INCARNATION_KEY: "later"})
    assert not has_other_source(refresh_of(source, 1, known))
    lance.write_dataset(pa.table({"x": [1]}), source.uri, mode="overwrite")
    assert has_other_source(refresh_of(source, 3, known))


def test_a_retry_that_keeps_values_needs_the_function_for_the_others():
    with pytest.raises(InvalidArgument, match="keep_others and a version need") as refused:
        asyncio.run(retry_spec(None, replace(JOB, state=JobState.DONE), RetryOptions(job_id="j", keep_others=True)))
    assert refused.value.reason == "BAD_REQUEST"
