"""`leman views` and `leman refresh`, against a made-up Leman on real gRPC."""

from __future__ import annotations

import json

import pytest

from leman.v1 import catalog_pb2, jobs_pb2, planner_pb2
from tests.unit.clients.fake_services import make_job, make_view, status
from tests.unit.clients.test_cli import db, fake, run, shared  # noqa: F401 - fixtures


@pytest.fixture
def views(fake):  # noqa: F811
    fake.views.clear()
    fake.views["adults"] = make_view()
    yield fake.views
    fake.views.clear()


def done(state="DONE", **numbers):
    result = jobs_pb2.RefreshResult(
        mode=planner_pb2.REFRESH_MODE_INCREMENTAL, reason=planner_pb2.REFRESH_REASON_SOURCE_CHANGED, **numbers
    )
    job = make_job("job-1", state, refresh_result=result)
    job.refresh.view.table = "adults"
    job.ClearField("udf")
    return [jobs_pb2.WatchJobResponse(sequence=1, job=job)]


def test_views_ls_names_views_only(run, db, views):  # noqa: F811
    code, out, _ = run("views", "ls", db)
    assert code == 0
    assert "adults" in out
    assert len(out.strip().splitlines()) == 2


def test_views_ls_as_json(run, db, views):  # noqa: F811
    found = json.loads(run("views", "ls", db, "--json")[1])
    assert [(v["name"], v["row_count"], v["rows_unset"], v["source_table"]) for v in found] == [
        ("adults", 7, 3, "docs")
    ]


def test_views_ls_says_what_it_leaves_out(run, db, fake, views):  # noqa: F811
    answer = catalog_pb2.ListMaterializedViewsResponse(warnings=["odd: damaged"])
    answer.views.add(name="compacted", row_reference=catalog_pb2.ROW_REFERENCE_ADDRESS)
    fake.scripts["ListMaterializedViews"] = answer
    _, out, err = run("views", "ls", db)
    assert "compacted" in out
    assert err == "leman: odd: damaged\n"


def test_alter_gives_a_column_another_function(run, db, fake, views):  # noqa: F811
    fake.udfs["words", "2"] = udf("words", "2")
    code, out, _ = run("views", "alter", db, "adults", "--column", "n=words@2(text)")
    assert code == 0
    assert "A refresh recomputes for every row: n" in out
    (function,) = fake.named("AlterMaterializedView")[0].functions
    assert (function.name, function.udf.version, list(function.input_columns)) == ("n", "2", ["text"])


@pytest.mark.parametrize("command", [("views", "show"), ("tables", "show")])
def test_show_tells_the_query(run, db, views, command):  # noqa: F811
    code, out, _ = run(*command, db, "adults")
    assert code == 0
    assert "SELECT text, words(text) AS n FROM docs WHERE size > 21" in out
    assert "7 rows, 3 wait for a refresh" in out
    assert "right for source version 5" in out


def test_show_of_a_table_says_what_it_is(run, db, views):  # noqa: F811
    code, _, err = run("views", "show", db, "docs")
    assert code == 1
    assert "NOT_A_VIEW" in err


def test_create_sends_the_query(run, db, fake, views):  # noqa: F811
    definition = fake.udfs["words", "1"] = udf("words")
    code, out, _ = run(
        *("views", "create", db, "new", "--source", "docs", "--where", "size > 1"),
        *("--select", "text", "--select", "big=size * 2", "--column", "n=words@1(text)"),
        *("--shuffle", "7", "--limit", "9", "--offset", "1", "--max-rows-per-fragment", "50"),
    )
    assert code == 0
    assert "new: 7 rows" in out
    request = fake.named("CreateMaterializedView")[0]
    query = request.query
    assert [(c.name, c.expression) for c in query.columns] == [("text", "`text`"), ("big", "size * 2")]
    assert [(f.name, f.udf.name, f.udf.version, list(f.input_columns)) for f in query.functions] == [
        ("n", definition.name, "1", ["text"])
    ]
    assert (query.where, query.shuffle_seed, query.limit, query.offset) == ("size > 1", 7, 9, 1)
    assert request.max_rows_per_fragment == 50


def test_create_tells_warnings_in_a_line(run, db, fake, views):  # noqa: F811
    fake.scripts["CreateMaterializedView"] = catalog_pb2.CreateMaterializedViewResponse(
        view=make_view(), warnings=["no stable row IDs"]
    )
    _, _, err = run("views", "create", db, "adults", "--source", "docs")
    assert err == "leman: no stable row IDs\n"


@pytest.mark.parametrize("column", ["n", "n=", "=f", "n=f(a"])
def test_wrong_column_is_wrong_usage(run, db, views, column):  # noqa: F811
    code, _, err = run("views", "create", db, "new", "--source", "docs", "--column", column)
    assert code == 2
    assert "NAME=UDF" in err


def test_drop_removes_a_view(run, db, fake, views):  # noqa: F811
    code, out, _ = run("views", "drop", db, "adults", "--force")
    assert (code, out.strip(), list(views)) == (0, "adults is dropped", [])
    assert [r.force for r in fake.named("DropView")] == [True]


def test_drop_of_a_table_is_refused(run, db, views):  # noqa: F811
    code, out, err = run("views", "drop", db, "docs")
    assert (code, out) == (1, "")
    assert "NOT_A_VIEW" in err


def test_refresh_tells_what_it_did(run, db, fake, views):  # noqa: F811
    fake.scripts["WatchJob"] = done(rows_added=3, source_version=9)
    code, _, err = run("refresh", db, "adults", "--src-version", "9", "--policy", "incremental")
    assert code == 0
    assert "adults: incremental (source changed): 3 rows added; source version 9" in err
    spec = fake.named("CreateJob")[0].refresh
    assert (spec.src_version, spec.policy) == (9, spec.POLICY_INCREMENTAL)


def test_refresh_as_json_has_the_result(run, db, fake, views):  # noqa: F811
    fake.scripts["WatchJob"] = done("DONE_WITH_ERRORS", rows_added=3)
    code, out, _ = run("refresh", db, "adults", "--json", "--quiet")
    assert code == 3
    assert json.loads(out)["refresh_result"]["rows_added"] == 3


def test_refresh_plan_is_a_dry_run(run, db, fake, views):  # noqa: F811
    code, out, _ = run("refresh", db, "adults", "--plan")
    assert code == 0
    assert "2 appeared, 1 deletions" in out
    assert json.loads(run("refresh", db, "adults", "--plan", "--json")[1])["mode"] == "incremental"
    assert not fake.named("CreateJob")


def test_refresh_cascade_begins_at_the_table(run, db, fake, views):  # noqa: F811
    views["top"] = make_view("top", source="adults")
    fake.scripts["WatchJob"] = done()
    assert run("refresh", db, "top", "--cascade", "--quiet")[0] == 0
    assert [r.refresh.view.table for r in fake.named("CreateJob")] == ["adults", "top"]


def test_cascade_with_a_version_is_wrong_usage(run, db, views):  # noqa: F811
    assert run("refresh", db, "adults", "--cascade", "--src-version", "3")[0] == 2


def test_unknown_policy_is_wrong_usage(run, db, views):  # noqa: F811
    code, _, err = run("refresh", db, "adults", "--policy", "sometimes")
    assert code == 2
    assert "auto, incremental, full" in err


def test_refresh_that_is_refused_says_why(run, db, fake, views):  # noqa: F811
    fake.scripts["CreateJob"] = status(
        "FAILED_PRECONDITION", "STABLE_ROW_IDS_REQUIRED", "Cannot refresh materialized view to version 7"
    )
    code, _, err = run("refresh", db, "adults")
    assert code == 1
    assert "Cannot refresh materialized view to version 7 [STABLE_ROW_IDS_REQUIRED]" in err


def test_no_wait_prints_the_job(run, db, fake, views):  # noqa: F811
    code, out, _ = run("refresh", db, "adults", "--no-wait")
    assert (code, out) == (0, "job-1\n")


def udf(name, version="1"):
    from leman.v1 import udf_pb2

    return udf_pb2.UdfDefinition(name=name, version=version, input_columns=["text"])


def test_states_of_a_views_rows_are_not_kept(run, db, views):  # noqa: F811
    code, _, err = run("tables", "show", db, "adults", "--states")
    assert code == 1
    assert "is a view and keeps no states of its rows" in err


@pytest.mark.parametrize("command", ["backfill", "plan"])
def test_columns_of_a_view_are_not_backfilled(run, db, fake, views, command):  # noqa: F811
    code, _, err = run(command, db, "adults", "n")
    assert code == 1
    assert "`leman refresh` computes its columns" in err
    assert not fake.named("CreateJob")
