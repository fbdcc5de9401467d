"""Environment variables for functions: by every call that starts a job, and by every command, and in no text."""

from __future__ import annotations

import contextlib
from typing import Any

import pyarrow as pa
import pytest

import leman
from leman.errors import InvalidArgument
from leman.v1 import jobs_pb2
from tests.unit.clients.fake_services import make_job, make_view, status
from tests.unit.clients.test_cli import db, fake, run, shared  # noqa: F401 - fixtures
from tests.unit.clients.test_cli_views import done, views  # noqa: F401 - fixtures

VALUE = "a-canary-of-the-environment"
ENV = {"API_KEY": VALUE}


@pytest.fixture
def database(fake, tmp_path):  # noqa: F811
    with leman.connect(tmp_path, endpoint=fake.address) as opened:
        yield opened


def last(fake, method: str) -> dict[str, str]:  # noqa: F811
    return dict(fake.named(method)[-1].env)


def test_each_call_that_runs_a_function_takes_them(fake, database, views):  # noqa: F811
    fake.scripts["CreateJob"] = jobs_pb2.CreateJobResponse(job=make_job("job-1", "DONE", env_names=["API_KEY"]))
    table = database.open_table("docs")
    future = table.backfill_async("n", env=ENV)
    assert last(fake, "CreateJob") == ENV
    assert future._ended is not None
    assert future._ended.env_names == ("API_KEY",)
    table.backfill("n", env=ENV, progress=False)
    assert last(fake, "CreateJob") == ENV
    future.retry(env=ENV)
    assert last(fake, "RetryJob") == ENV
    database.retry_job_async("job-1", env=ENV)
    assert last(fake, "RetryJob") == ENV
    output = pa.schema([("words", pa.int64())]).serialize().to_pybytes()
    fake.scripts["PreviewFunction"] = jobs_pb2.PreviewFunctionResponse(output_schema=output)
    table.preview("length(text)", env=ENV)
    assert last(fake, "PreviewFunction") == ENV
    database.open_view("adults").refresh_async(env=ENV)
    assert last(fake, "CreateJob") == ENV
    table.backfill_async("n")
    assert last(fake, "CreateJob") == {}


def unusable_for(*columns: str) -> Any:
    """Answers as services do where these columns are computed by SQL."""

    def answer(request: jobs_pb2.CreateJobRequest) -> Any:
        if request.env and (request.backfill.column or request.refresh.view.table) in columns:
            return status("FAILED_PRECONDITION", "ENV_NOT_USABLE", "no environment")
        job = make_job("job-1", "DONE")
        if request.HasField("refresh"):
            job = done()[0].job
        return jobs_pb2.CreateJobResponse(job=job)

    return answer


def test_of_several_columns_or_views_those_that_cannot_have_them_are_computed_without(fake, database, views):  # noqa: F811
    fake.scripts["CreateJob"] = unusable_for("n")
    table = database.open_table("docs")
    with pytest.warns(UserWarning, match="env has no effect"):
        table.backfill(["n"], env=ENV, progress=False)
    assert [dict(request.env) for request in fake.named("CreateJob")] == [ENV, {}]
    with pytest.raises(leman.errors.FailedPrecondition):
        table.backfill("n", env=ENV, progress=False)
    fake.calls.clear()
    fake.scripts["CreateJob"] = unusable_for("adults")
    views["top"] = make_view("top", source="adults")
    database.open_view("top").refresh(cascade=True, env=ENV, progress=False)
    sent = [(request.refresh.view.table, dict(request.env)) for request in fake.named("CreateJob")]
    assert sent == [("adults", ENV), ("adults", {}), ("top", ENV)]


@pytest.mark.parametrize(
    ("unusable", "envs"), [(["top"], [ENV, ENV, {}]), (["adults", "top"], [ENV, {}, ENV, {}])], ids=["some", "none"]
)
def test_a_cascade_goes_on_though_the_view_itself_cannot_have_them(fake, run, db, database, views, unusable, envs):  # noqa: F811
    fake.scripts["CreateJob"] = unusable_for(*unusable)
    views["top"] = make_view("top", source="adults")
    told = (
        contextlib.nullcontext() if "adults" not in unusable else pytest.warns(UserWarning, match="env has no effect")
    )
    with told:
        database.open_view("top").refresh(cascade=True, env=ENV, progress=False)
    assert [dict(request.env) for request in fake.named("CreateJob")] == envs
    fake.calls.clear()
    code, _, err = run("refresh", db, "top", "--cascade", "--env", f"API_KEY={VALUE}")
    assert code == 0
    assert [dict(request.env) for request in fake.named("CreateJob")] == envs
    assert ("env has no effect" in err) == ("adults" in unusable)
    assert VALUE not in err


@pytest.mark.parametrize("wrong", [VALUE, [("API_KEY", VALUE)], {"API_KEY": None}, {"API_KEY": 1}, {1: VALUE}])
def test_what_is_no_environment_is_refused_here_without_telling_a_value(fake, database, wrong):  # noqa: F811
    with pytest.raises(InvalidArgument) as caught:
        database.open_table("docs").backfill_async("n", env=wrong)
    assert VALUE not in repr(caught.value)
    assert not fake.named("CreateJob")


@pytest.mark.parametrize(
    ("command", "method"),
    [
        (("backfill", "{db}", "docs", "n", "--no-wait"), "CreateJob"),
        (("refresh", "{db}", "adults", "--no-wait"), "CreateJob"),
        (("preview", "{db}", "docs", "length(text)"), "PreviewFunction"),
        (("jobs", "retry", "{db}", "job-0", "--no-wait"), "RetryJob"),
    ],
)
def test_a_command_takes_the_value_that_its_own_environment_has(run, db, fake, views, monkeypatch, command, method):  # noqa: F811
    monkeypatch.setenv("API_KEY", VALUE)
    arguments = [part.format(db=db) for part in command]
    _, out, err = run(*arguments, "--env", "API_KEY", "--env", "MODEL=a=b", "--env", "EMPTY=")
    assert last(fake, method) == {**ENV, "MODEL": "a=b", "EMPTY": ""}
    assert VALUE not in out + err
    fake.calls.clear()
    for wrong in ("NO_SUCH_VARIABLE_HERE", "=x", ""):
        code, _, err = run(*arguments, "--env", wrong)
        assert code == 2
        assert not fake.named(method)
        assert VALUE not in err


def test_a_job_shows_their_names(run, db, fake):  # noqa: F811
    fake.scripts["GetJob"] = jobs_pb2.GetJobResponse(job=make_job("job-1", "DONE", env_names=["API_KEY", "B"]))
    _, out, _ = run("jobs", "show", db, "job-1")
    assert "environment" in out
    assert "API_KEY, B" in out
