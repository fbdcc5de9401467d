"""Which step of a refresh a plan asks for, and how often one is taken."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import AsyncMock, MagicMock

import pyarrow as pa
import pytest

from leman_core.model.job import Job, JobState
from leman_core.model.plan import OnStaleInput, StaleInput
from leman_core.model.service_errors import Aborted
from leman_core.model.view import RefreshMode, RefreshPlan, RefreshReason, RefreshSpec, UnsetFragment
from leman_executor.jobs.job_status import JobStatus
from leman_executor.refresh import refresh_run
from leman_executor.refresh.refresh_run import RefreshRun, Step, next_step

PLAN = RefreshPlan(
    uri="/lake/v.lance",
    version=3,
    incarnation="i",
    definition=SimpleNamespace(base_version=1),
    schema=pa.schema([]),
    functions=(),
    target_version=2,
    target_incarnation="s",
    mode=RefreshMode.INCREMENTAL,
    reason=RefreshReason.SOURCE_CHANGED,
    message="",
)
UNSET = (UnsetFragment(0, 10, 0),)
STALE = (StaleInput("y", 20),)
NO_OP, FULL = RefreshMode.NO_OP, RefreshMode.FULL


@pytest.mark.parametrize(
    ("changes", "step"),
    [
        ({"mode": NO_OP}, Step.NOTHING),
        ({"mode": NO_OP, "stale_inputs": STALE}, Step.INPUTS),
        ({"mode": FULL, "unset": UNSET, "create_placeholders_again": True, "stale_inputs": STALE}, Step.INPUTS),
        ({"mode": FULL, "unset": UNSET, "create_placeholders_again": True}, Step.PLACEHOLDERS),
        ({"mode": FULL, "unset": UNSET}, Step.FILL),
        ({"unset": UNSET, "stale": ("score",)}, Step.FILL),
        ({"mode": FULL}, Step.DELTA),
        ({"stale": ("score",)}, Step.DELTA),
        ({}, Step.DELTA),
    ],
)
def test_the_plan_names_the_next_step(changes, step):
    assert next_step(replace(PLAN, **changes), OnStaleInput.FIRST) is step


@pytest.mark.parametrize("on_stale_input", [OnStaleInput.ERROR, OnStaleInput.WARN])
def test_stale_inputs_are_computed_only_for_a_job_that_asks_for_it(on_stale_input):
    assert next_step(replace(PLAN, stale_inputs=STALE), on_stale_input) is Step.DELTA


@pytest.mark.parametrize(
    ("stale", "reason", "why"),
    [
        ((), "VIEW_CHANGED", "keeps changing under the refresh: another refresh was faster"),
        (STALE, "NO_PROGRESS", r"What the view reads \(y\) becomes stale again"),
    ],
)
def test_a_refresh_does_not_chase_writers_for_ever(monkeypatch, stale, reason, why):
    plan, faster = replace(PLAN, stale_inputs=stale), Aborted("VIEW_CHANGED", "another refresh was faster")
    spec = RefreshSpec("/lake", "v", on_stale_input=OnStaleInput.FIRST)

    async def refreshed() -> None:
        job = Job("j", "", JobState.RUNNING, spec, 0.0, 0.0)
        work = MagicMock(status=JobStatus(job))
        work.spec = spec
        monkeypatch.setattr(refresh_run, "RefreshWork", lambda *_: work)
        run = RefreshRun(job, MagicMock())
        monkeypatch.setattr(run, "plan", AsyncMock(return_value=plan))
        monkeypatch.setattr(run, "_compute_inputs", AsyncMock())
        monkeypatch.setattr(run, "_step", AsyncMock(side_effect=faster))
        await run._refreshed(plan)

    with pytest.raises(Aborted, match=why) as refused:
        asyncio.run(refreshed())
    assert refused.value.reason == reason
