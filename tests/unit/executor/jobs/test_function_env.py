"""Values of a job's environment are for the functions of its first plan."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import AsyncMock, MagicMock

import pytest

from leman._format.column_bindings import FunctionVersion
from leman_core.model.job import Job, JobState
from leman_core.model.service_errors import PermissionDenied
from leman_core.model.view import RefreshMode, RefreshSpec
from leman_executor.jobs.job_status import JobStatus
from leman_executor.jobs.work_context import check_functions_unchanged
from leman_executor.refresh import refresh_run
from tests.unit.executor.manager_helpers import UDF

ENV = {"API_KEY": "a-canary"}
ONE, TWO = FunctionVersion("f", "1"), FunctionVersion("f", "2")


@pytest.mark.parametrize(
    ("now", "told"),
    [
        ({"y": TWO}, "Column y had f@1 when the job was given environment variables (API_KEY). It now has f@2"),
        ({"y": ONE, "z": TWO}, "Column z was not there"),
    ],
)
def test_others_are_refused(now, told):
    with pytest.raises(PermissionDenied) as caught:
        check_functions_unchanged(ENV, {"y": ONE}, now)
    assert caught.value.reason == "ENV_NOT_ALLOWED"
    assert told in caught.value.message
    assert "canary" not in caught.value.message
    check_functions_unchanged({}, {"y": ONE}, now)


def test_the_same_ones_are_not():
    check_functions_unchanged(ENV, {"y": ONE, "z": TWO}, {"y": ONE})


def test_a_refresh_does_not_go_on_with_another_function(monkeypatch):
    spec = RefreshSpec("/lake", "v")
    job = Job("j", "", JobState.RUNNING, spec, 0.0, 0.0)

    def plan(version: str) -> SimpleNamespace:
        function = SimpleNamespace(column=SimpleNamespace(name="y"), udf=replace(UDF, version=version))
        query = SimpleNamespace(columns=(), functions=())
        definition = SimpleNamespace(failed=None, base_version=1, query=query, source_uri="/lake/t.lance")
        mode = RefreshMode.INCREMENTAL
        told = SimpleNamespace(incarnation="i", target_version=2, mode=mode, reason=None, rows=1, message="", version=1)
        told.stale_inputs = told.unset = ()
        told.create_placeholders_again = False
        made = {"uri": "/lake/v.lance", "target_incarnation": "s", **vars(told)}
        return SimpleNamespace(functions=[function], definition=definition, **made)

    async def planned(env: dict[str, str]) -> None:
        work = MagicMock(status=JobStatus(job))
        work.spec = spec
        work.metrics.planning_seconds = 0.0
        work.journal.look_back = AsyncMock()
        work.services.planner.plan_refresh = AsyncMock(side_effect=[plan("1"), plan("1"), plan("2")])
        work.status.take_env(env)
        monkeypatch.setattr(refresh_run, "RefreshWork", lambda *_: work)
        run = refresh_run.RefreshRun(job, MagicMock())
        for _ in range(3):
            await run.plan()

    asyncio.run(planned({}))
    with pytest.raises(PermissionDenied) as caught:
        asyncio.run(planned(ENV))
    assert caught.value.reason == "ENV_NOT_ALLOWED"
