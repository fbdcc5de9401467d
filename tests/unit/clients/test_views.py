"""Queries, views and refreshes of the SDK, against a made-up Leman on real gRPC."""

from __future__ import annotations

import copy
import io
import re

import lance
import pyarrow as pa
import pytest

import leman
from leman import errors
from leman._relation import Query
from leman._wire import conversions
from leman.progress import LineDisplay, result_line
from leman.v1 import catalog_pb2, jobs_pb2, planner_pb2
from tests.unit.clients.fake_services import make_job, make_view, status


@leman.udf
def words(text: str) -> int:
    return len(text.split())


@pytest.fixture
def docs(db):
    return db.open_table("docs")


@pytest.fixture
def asked(fake):
    """The query of the view that was asked for last."""
    return lambda: fake.named("CreateMaterializedView")[-1].query


def refreshed(state="DONE", **numbers):
    result = jobs_pb2.RefreshResult(
        mode=planner_pb2.REFRESH_MODE_INCREMENTAL, reason=planner_pb2.REFRESH_REASON_SOURCE_CHANGED, **numbers
    )
    job = make_job("job-1", state, refresh_result=result)
    job.refresh.view.table = "adults"
    return job


# queries


def test_everything_that_a_query_says_arrives(db, docs, asked):
    query = (
        docs.search(None)
        .where("size > 21")
        .select(["text", "size"])
        .add_column("n", words)
        .shuffle(seed=42)
        .limit(1000)
        .offset(5)
    )
    view = query.create_materialized_view(conn=db, view_name="adults")
    found = asked()
    assert (found.source.database, found.source.table) == (db.uri, "docs")
    assert [(c.name, c.expression) for c in found.columns] == [("text", ""), ("size", "")]
    assert [(f.name, f.udf.name, list(f.input_columns)) for f in found.functions] == [("n", "words", [])]
    assert found.where == "size > 21"
    assert (found.shuffle_seed, found.limit, found.offset) == (42, 1000, 5)
    assert isinstance(view, leman.View)
    assert view.uri == f"{db.uri}/adults.lance"


def test_a_query_of_nothing_special_is_all_of_the_table(db, docs, asked):
    db.create_materialized_view("copy", docs.search(None))
    found = asked()
    assert not found.columns
    assert not found.functions
    assert not found.HasField("shuffle_seed")
    assert not found.HasField("limit")


def test_limit_0_is_a_limit(db, docs, asked):
    db.create_materialized_view("none", docs.search(None).limit(0))
    assert asked().HasField("limit")
    assert asked().limit == 0


def test_a_query_is_never_changed(docs):
    first = docs.search(None).where("size > 1")
    assert first.where("size < 9").filter == "(size > 1) AND (size < 9)"
    assert first.filter == "size > 1"
    assert first.select(["text"]).columns
    assert not first.columns


def test_aliases_and_expressions(db, docs, asked):
    query = docs.search(None).select({"title": "upper(text)", "size": "size"}).add_column("twice", "size * 2")
    db.create_materialized_view("v", query)
    assert [(c.name, c.expression) for c in asked().columns] == [
        ("title", "upper(text)"),
        ("size", "size"),
        ("twice", "size * 2"),
    ]


def test_an_expression_comes_to_all_columns(db, docs, asked):
    db.create_materialized_view("v", docs.search(None).add_column("twice", "size * 2"))
    assert [(c.name, c.expression) for c in asked().columns] == [("text", ""), ("size", ""), ("twice", "size * 2")]


def test_function_over_another_column_is_registered_in_the_views_database(db, docs, fake, tmp_path):
    other = tmp_path / "other"
    with leman.connect(other, fake.address) as home:
        docs.search(None).add_column("n", (words, ["text"])).create_materialized_view(home, "v")
    request = fake.named("CreateMaterializedView")[0]
    assert request.view.database == str(other)
    assert request.query.source.database == db.uri
    assert list(request.query.functions[0].input_columns) == ["text"]
    assert fake.named("RegisterUdf")[0].database == str(other)


def test_wrong_type_of_an_input_is_told_before_anything_is_registered(db, docs, fake):
    with pytest.raises(errors.TypeMismatch, match="size"):
        db.create_materialized_view("v", docs.search(None).add_column("n", (words, ["size"])))
    assert not fake.named("RegisterUdf")


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda q: q.where(" "), "where is a SQL"),
        (lambda q: q.select("text"), "select takes"),
        (lambda q: q.select([]), "select takes"),
        (lambda q: q.select([1]), "named by a str"),
        (lambda q: q.select({"a": ""}), "needs a SQL expression"),
        (lambda q: q.add_column("", words), "named by a str"),
        (lambda q: q.add_column("n", print), r"made by @leman\.udf"),
        (lambda q: q.add_column("n", " "), r"made by @leman\.udf"),
        (lambda q: q.add_column("n", "f@1"), r"give a registered function together with .*\('f@1', \['input column"),
        (lambda q: q.shuffle(seed="x"), "seed is a whole number"),
        (lambda q: q.shuffle(seed=True), "seed is a whole number"),
        (lambda q: q.limit(-1), "limit is a whole number"),
        (lambda q: q.limit(None), "limit is a whole number"),
        (lambda q: q.offset(None), "offset is a whole number"),
        (lambda q: q.offset(1.5), "offset is a whole number"),
    ],
)
def test_wrong_queries_are_refused_at_once(docs, build, message):
    with pytest.raises(ValueError, match=message):
        build(docs.search(None))


def test_search_is_no_vector_search(docs):
    with pytest.raises(NotImplementedError, match=r"search\(None\).* to_lance\(\)\.to_table\(nearest="):
        docs.search([1.0, 2.0])


def test_a_view_is_made_of_a_query(db, docs):
    with pytest.raises(ValueError, match="made of a query"):
        db.create_materialized_view("v", docs)


def test_source_without_stable_row_ids_warns_where_the_view_is_made(db, docs, fake):
    fake.scripts["CreateMaterializedView"] = catalog_pb2.CreateMaterializedViewResponse(
        view=make_view(), warnings=["Source table 'docs' does not have stable row IDs"]
    )
    with pytest.warns(UserWarning, match="stable row IDs") as caught:
        db.create_materialized_view("v", docs.search(None))
    assert caught[0].filename == __file__
    with pytest.warns(UserWarning, match="stable row IDs") as caught:
        docs.search(None).create_materialized_view(db, "v")
    assert caught[0].filename == __file__


def test_a_view_that_exists_is_an_error_of_its_own(db, docs, fake):
    fake.scripts["CreateMaterializedView"] = status("ALREADY_EXISTS", "TABLE_EXISTS", "'v' exists already")
    with pytest.raises(errors.TableExists):
        db.create_materialized_view("v", docs.search(None))


# views


@pytest.fixture
def view(db, fake):
    fake.views["adults"] = make_view()
    return db.open_view("adults")


def test_a_view_opened_as_a_table_is_a_view(db, view):
    assert isinstance(db.open_table("adults"), leman.View)
    assert not isinstance(db.open_table("docs"), leman.View)


def test_a_table_is_no_view(db):
    with pytest.raises(errors.FailedPrecondition, match="not a materialized view"):
        db.open_view("docs")


def test_describe_tells_query_and_rows_that_queries_show(view):
    found = view.describe()
    assert (found.row_count, found.rows_unset, found.source_version) == (7, 3, 5)
    assert found.row_reference == "stable_row_id"
    assert found.schema.names == ["text", "n"]
    assert view.schema.names == ["text", "n"]
    assert view.count_rows() == 7
    assert found.query.functions[0].input_columns == ("text",)
    assert str(found.query) == (
        "SELECT text, words(text) AS n FROM docs WHERE size > 21 LIMIT 100 OFFSET 2 SHUFFLE(42)"
    )


def test_to_arrow_shows_set_rows_and_no_internal_columns(view, tmp_path):
    rows = pa.table(
        {
            "__source_row_id": pa.array([1, 2, 3], pa.int64()),
            "__is_set": [True, None, True],
            "text": ["a", None, "c"],
        }
    )
    lance.write_dataset(rows, view.uri)
    assert view.to_arrow().to_pydict() == {"text": ["a", "c"]}
    assert view.to_arrow(where="text = 'a' OR text = 'b'").to_pydict() == {"text": ["a"]}
    with pytest.raises(ValueError, match="internal"):
        view.to_arrow(columns=["__is_set"])


def test_a_view_says_of_each_method_of_tables_what_to_do_instead(view, docs):
    only = [name for name in dir(docs) if not name.startswith("_") and not hasattr(view, name)]
    assert {"add", "add_columns", "backfill", "backfill_async"} <= set(only)
    for name in only:
        with pytest.raises(errors.FailedPrecondition, match=f"a view has no {name}: .*(view|View|query)") as refused:
            getattr(view, name)
        assert refused.value.reason == "IS_A_VIEW"
    with pytest.raises(errors.FailedPrecondition, match=r"query defines its columns: `View.alter_columns`"):
        view.add_columns({"n": words})
    with pytest.raises(AttributeError, match="no attribute 'refesh'"):
        view.refesh()
    assert copy.copy(view).name == view.name


def test_a_view_is_no_table(view, docs):
    assert not isinstance(view, leman.Table)
    assert not isinstance(docs, leman.View)


def test_another_function_for_a_column(view, fake):
    assert view.alter_columns({"n": (words, ["text"])}) == 5
    request = fake.named("AlterMaterializedView")[0]
    (function,) = request.functions
    assert (request.view.table, function.name, function.udf.name) == ("adults", "n", "words")
    assert list(function.input_columns) == ["text"]
    assert list(request.update_mask.paths) == ["functions"]
    assert request.request_id
    assert view.describe().stale_columns == ("n",)
    with pytest.raises(ValueError, match="part of its query"):
        view.alter_columns({"n": "upper(text)"})


def test_views_of_a_database(db, fake):
    plain = catalog_pb2.MaterializedViewSummary(name="compacted", row_count=9, source_version=2)
    plain.row_reference = catalog_pb2.ROW_REFERENCE_ADDRESS
    answers = [
        catalog_pb2.ListMaterializedViewsResponse(next_page_token="more", warnings=["odd: damaged"]),
        catalog_pb2.ListMaterializedViewsResponse(views=[plain]),
    ]
    fake.scripts["ListMaterializedViews"] = lambda request: answers[bool(request.page_token)]
    with pytest.warns(UserWarning, match="odd: damaged"):
        (found,) = db.views()
    assert (found.name, found.row_count, found.rows_unset, found.row_reference) == ("compacted", None, None, "address")


# refreshes


def test_refresh_waits_and_tells_what_it_did(view, fake):
    fake.scripts["WatchJob"] = [jobs_pb2.WatchJobResponse(sequence=1, job=refreshed(rows_added=3, source_version=9))]
    result = view.refresh(src_version=9, max_rows_per_fragment=50, policy="incremental", concurrency=2, progress=False)
    assert (result.mode, result.reason, result.rows_added) == ("incremental", "source_changed", 3)
    spec = fake.named("CreateJob")[0].refresh
    assert (spec.view.table, spec.src_version, spec.max_rows_per_fragment) == ("adults", 9, 50)
    assert (spec.policy, spec.concurrency) == (spec.POLICY_INCREMENTAL, 2)


def test_result_is_one_line(view, fake, capsys):
    job = refreshed(rows_added=3, rows_evicted=1, rows_reused=1000, source_version=9)
    fake.scripts["WatchJob"] = [jobs_pb2.WatchJobResponse(sequence=1, job=job)]
    view.refresh()
    assert "adults: incremental (source changed): 3 rows added, 1 row evicted, 1,000 rows reused; source version 9" in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("counts", "inputs", "told"),
    [
        ({"rows_recomputed": 50}, 0, "50 rows updated; no calls"),
        ({"rows_recomputed": 50, "rows_evaluated": 1}, 0, "50 rows updated; functions called for 1 row"),
        ({"rows_added": 2}, 30, "2 rows added; 30 rows of inputs computed first"),
    ],
)
def test_a_result_tells_calls_from_written_rows(counts, inputs, told):
    job = refreshed(**counts)
    job.progress.input_rows_evaluated = inputs
    assert str(conversions.refresh_result(job)) == f"incremental (source changed): {told}; source version 0"


def test_result_tells_of_rows_that_failed(view, fake, caplog):
    job = refreshed("DONE_WITH_ERRORS", rows_added=10, source_version=9)
    job.progress.rows_failed, job.progress.rows_failed_before = 5, 1
    job.failed_in.append("job-0")
    fake.scripts["WatchJob"] = [jobs_pb2.WatchJobResponse(sequence=1, job=job)]
    result = view.refresh(progress=False)
    assert (result.rows_failed, result.rows_failed_before) == (5, 1)
    assert (result.job_id, result.failed_in, result.state) == ("job-1", ("job-0",), leman.JobState.DONE_WITH_ERRORS)
    assert str(result) == (
        "incremental (source changed): 10 rows added; source version 9; "
        "5 rows failed and stay NULL: get_errors(job_id='job-1'); "
        "1 row that failed before stays NULL: failed_in=('job-0',)"
    )
    assert caplog.messages[0].count("failed and stay NULL") == caplog.messages[0].count("failed before") == 1


def test_result_of_a_refresh_that_changed_nothing_tells_of_rows_that_failed_before(view, fake):
    job = refreshed("DONE_WITH_ERRORS", source_version=9)
    job.refresh_result.mode = planner_pb2.REFRESH_MODE_NO_OP
    job.progress.rows_failed_before = 3
    fake.scripts["WatchJob"] = [jobs_pb2.WatchJobResponse(sequence=1, job=job)]
    assert str(view.refresh(progress=False)) == (
        "nothing to do, it is right for source version 9; 3 rows that failed before stay NULL"
    )


def test_failed_refresh_is_told_as_one(view, fake):
    failed = refreshed("FAILED")
    failed.error.CopyFrom(status("FAILED_PRECONDITION", "EXTERNAL_WRITES", "the view was written by someone else"))
    fake.scripts["WatchJob"] = [jobs_pb2.WatchJobResponse(sequence=1, job=failed)]
    with pytest.raises(leman.JobFailed, match="the refresh of adults failed") as caught:
        view.refresh(progress=False)
    assert caught.value.reason == "EXTERNAL_WRITES"


def test_refresh_that_cannot_start_says_why(view, fake):
    fake.scripts["CreateJob"] = status(
        "FAILED_PRECONDITION", "STABLE_ROW_IDS_REQUIRED", "Cannot refresh materialized view to version 7: …"
    )
    with pytest.raises(errors.FailedPrecondition, match="Cannot refresh materialized view to version 7"):
        view.refresh(progress=False)


@pytest.mark.parametrize(
    "asked", [{"policy": "sometimes"}, {"src_version": 0}, {"max_rows_per_fragment": -1}, {"concurrency": 1.5}]
)
def test_wrong_parameters_are_refused_at_once(view, fake, asked):
    with pytest.raises(ValueError, match=r"policy is one of|whole number|is an int, not a float"):
        view.refresh(**asked)
    assert not fake.named("CreateJob")


def test_a_job_in_the_background_tells_its_result(view, fake):
    future = view.refresh_async()
    fake.scripts["GetJob"] = jobs_pb2.GetJobResponse(job=refreshed(rows_recomputed=2))
    assert future.job().refresh_result.rows_recomputed == 2
    assert future.job().target == "adults"


def test_plan_shows_what_would_be_done(view):
    plan = view.plan_refresh()
    assert (plan.mode, plan.source_version, plan.target_version) == ("incremental", 5, 9)
    assert plan.changes == {"appeared": 2, "deletions": 1}
    assert "2 appeared, 1 deletions" in str(plan)
    assert "source version 5 to 9" in str(plan)
    assert plan.calls == {"n": 1200}
    assert "functions to call: n for up to 1,200 rows" in str(plan)


def test_cascade_refreshes_the_nearest_to_the_table_first(db, fake):
    fake.views["first"] = make_view("first", source="docs")
    fake.views["second"] = make_view("second", source="first")
    fake.views["third"] = make_view("third", source="second")
    fake.scripts["WatchJob"] = [jobs_pb2.WatchJobResponse(sequence=1, job=refreshed())]
    db.open_view("third").refresh(cascade=True, max_rows_per_fragment=10, policy="full", progress=False)
    specs = [request.refresh for request in fake.named("CreateJob")]
    assert [(s.view.table, s.max_rows_per_fragment) for s in specs] == [("first", 0), ("second", 0), ("third", 10)]
    assert {s.policy for s in specs} == {planner_pb2.RefreshSpec.POLICY_FULL}


def test_cascade_goes_to_other_databases(db, fake):
    fake.views["first"] = make_view("first", source="docs", database="/elsewhere")
    fake.views["second"] = make_view("second", source="first", database="/else")
    assert [v.uri for v in db.open_view("second").sources()] == ["/else/first.lance"]


def test_views_that_rest_on_each_other_do_not_hang(db, fake):
    fake.views["a"] = make_view("a", source="b", database=db.uri)
    fake.views["b"] = make_view("b", source="a", database=db.uri)
    with pytest.raises(errors.FailedPrecondition, match="reads itself"):
        db.open_view("a").refresh(cascade=True)


def test_cascade_goes_to_the_latest_version_only(view):
    with pytest.raises(ValueError, match="src_version"):
        view.refresh(3, cascade=True)


def test_lines_name_the_view():
    out = io.StringIO()
    job = conversions.job(refreshed(rows_added=1))
    LineDisplay("adults", out).update(job, [])
    assert out.getvalue().startswith("adults: incremental")
    assert result_line(job).startswith("adults: ")


@pytest.mark.parametrize(
    ("name", "way"),
    [
        ("join", "reads one table. Add the other table's columns by key with merge_insert"),
        ("group_by", "to_arrow().group_by"),
        ("order_by", "to_arrow().sort_by"),
    ],
)
def test_what_a_query_does_not_have_names_the_way_there_is(name, way):
    query = Query(object())
    with pytest.raises(AttributeError, match=re.escape(way)):
        getattr(query, name)
    assert not hasattr(query, name)
    assert copy.copy(query) == query
    with pytest.raises(AttributeError, match=r"^a leman\.Query has no nosuch$"):
        query.nosuch  # noqa: B018
