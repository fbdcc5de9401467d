"""CatalogService, PlannerService and PlanningService over gRPC, with a real commit coordinator."""

import asyncio
import contextlib
import hashlib
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import grpc
import lance
import pyarrow as pa
import pytest

from leman.v1 import (
    catalog_pb2,
    catalog_pb2_grpc,
    commit_pb2_grpc,
    planner_pb2,
    planner_pb2_grpc,
    tables_pb2,
    tables_pb2_grpc,
    udf_pb2,
)
from leman_coordinator import app as coordinator_app
from leman_core.functions.function_definitions import PYTHON
from leman_core.model.plan import BackfillSpec
from leman_core.server.server import start_server
from leman_core.server.status import error_from_rpc
from leman_core.settings import Peers, Server, Settings
from leman_core.wire import convert_plans, convert_udfs, convert_values
from leman_executor.api.peers import PlannerClient
from leman_internal.v1 import planning_pb2, planning_pb2_grpc
from leman_planner import app as planner_app
from leman_planner.planning import fragment_tasks
from tests.integration.planner.planner_lake import ROWS, UDF, Lake, rows

DEADLINE = 30.0
BUNDLE = b"no pickle: nobody here opens it"


@contextlib.asynccontextmanager
async def planner():
    """Stubs of a planner whose commit coordinator runs with it."""
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(asyncio.timeout(DEADLINE))

        async def up(name, module, settings):
            draining = asyncio.Event()
            server = await start_server(settings, name, module.create(settings, draining), draining)
            stack.push_async_callback(server.stop)
            return server.port

        port = await up("commit_coordinator", coordinator_app, Settings(server=Server()))
        settings = Settings(server=Server(), peers=Peers(commit_coordinator=f"127.0.0.1:{port}"))
        theirs = await stack.enter_async_context(grpc.aio.insecure_channel(f"127.0.0.1:{port}"))
        port = await up("planner", planner_app, settings)
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(f"127.0.0.1:{port}"))
        yield SimpleNamespace(
            commit=commit_pb2_grpc.CommitServiceStub(theirs),
            tables=tables_pb2_grpc.TableServiceStub(theirs),
            catalog=catalog_pb2_grpc.CatalogServiceStub(channel),
            plans=planner_pb2_grpc.PlannerServiceStub(channel),
            planning=planning_pb2_grpc.PlanningServiceStub(channel),
            channel=channel,
        )


def served(work):
    async def run():
        async with planner() as stubs:
            return await work(stubs)

    return asyncio.run(run())


def functions_of(database, pattern="*.json"):
    return list(Path(database, "_leman", "udfs").glob(pattern))


async def error_of(call):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code(), error_from_rpc(caught.value)


def definition(name="f", version="1", **fields):
    udf = convert_udfs.udf_to_proto(UDF)
    udf.name, udf.version = name, version
    for field, value in fields.items():
        setattr(udf, field, value)
    return udf


NEWER = definition(version="2")


def add(database, request_id="", **column):
    new = catalog_pb2.NewColumn(**{"name": "n", "udf": udf_pb2.UdfRef(name="f", version="1"), **column})
    table = catalog_pb2.TableRef(database=database, table="t")
    return catalog_pb2.AddColumnsRequest(table=table, columns=[new], request_id=request_id)


def spec(database, **fields):
    table = catalog_pb2.TableRef(database=database, table="t")
    return planner_pb2.BackfillSpec(**{"table": table, "column": "c", **fields})


@pytest.fixture
def table(tmp_path):
    lance.write_dataset(rows(3 * ROWS), str(tmp_path / "t.lance"), max_rows_per_file=ROWS)
    return str(tmp_path)


def test_columns_are_added_to_the_table_that_took_the_place_of_one_that_has_them(table):
    async def work(stubs):
        await stubs.catalog.RegisterUdf(catalog_pb2.RegisterUdfRequest(database=table, definition=definition()))
        await stubs.catalog.AddColumns(add(table, "one"))
        dropped = catalog_pb2.TableRef(database=table, table="t")
        await stubs.tables.DropTable(tables_pb2.DropTableRequest(table=dropped, request_id="drop"))
        lance.write_dataset(rows(ROWS), f"{table}/t.lance")
        first = await stubs.catalog.AddColumns(add(table, "one"))
        again = await stubs.catalog.AddColumns(add(table, "one"))
        return first, again

    first, again = served(work)
    dataset = lance.dataset(f"{table}/t.lance")
    assert "n" in dataset.schema.names
    assert first.version == again.version == dataset.version


def test_functions_are_registered_found_and_listed(tmp_path):
    bundled = definition("b")
    bundled.python_bundle.CopyFrom(
        udf_pb2.PythonBundle(sha256=hashlib.sha256(BUNDLE).hexdigest(), python_version=PYTHON, size_bytes=len(BUNDLE))
    )

    async def work(stubs):
        def register(udf, bundle=b""):
            request = catalog_pb2.RegisterUdfRequest(database=str(tmp_path), definition=udf, bundle=bundle)
            return stubs.catalog.RegisterUdf(request)

        assert (await register(bundled, BUNDLE)).created
        assert not (await register(bundled)).created
        for version in ("1", "2", "3"):
            assert (await register(definition(version=version))).created
        code, error = await error_of(register(definition(stateful=True)))
        assert (code, error.reason) == (grpc.StatusCode.ALREADY_EXISTS, "UDF_EXISTS")
        code, error = await error_of(register(bundled, b"other"))
        assert (code, error.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "UDF_DIGEST_MISMATCH")

        found = await stubs.catalog.GetUdf(
            catalog_pb2.GetUdfRequest(database=str(tmp_path), udf=udf_pb2.UdfRef(name="f"))
        )
        assert found.definition == definition(version="3")
        seen, token = [], ""
        while True:
            page = await stubs.catalog.ListUdfs(
                catalog_pb2.ListUdfsRequest(database=str(tmp_path), page_size=3, page_token=token)
            )
            seen += [(udf.name, udf.version) for udf in page.definitions]
            token = page.next_page_token
            if not token:
                break
        assert seen == [("b", "1"), ("f", "3"), ("f", "2"), ("f", "1")]

    served(work)


def test_a_damaged_expression_computes_nothing_until_it_is_registered_again(table):
    async def work(stubs):
        async def planned():
            request = planning_pb2.CreatePlanRequest(spec=spec(table, column="n"))
            return [message async for message in stubs.planning.CreatePlan(request)]

        await stubs.catalog.AddColumns(add(table, udf=None, sql_expression="x * 2 + 1"))
        (stored,) = functions_of(table)
        whole = stored.read_bytes()
        stored.write_bytes(whole.replace(b"x * 2 + 1", b"x * 3 + 1"))
        code, error = await error_of(planned())
        assert (code, error.reason, error.facts["path"]) == (grpc.StatusCode.DATA_LOSS, "UDF_DAMAGED", str(stored))
        column = catalog_pb2.NewColumn(name="n", sql_expression="x * 2 + 1")
        reference = catalog_pb2.TableRef(database=table, table="t")
        await stubs.catalog.AlterColumns(
            catalog_pb2.AlterColumnsRequest(table=reference, columns=[catalog_pb2.ColumnAlteration(column=column)])
        )
        (header, *_) = await planned()
        assert header.header.udf.sql_expression == "x * 2 + 1"

    served(work)


def test_a_function_of_another_python_is_not_registered(tmp_path):
    external = definition("b")
    external.python_bundle.CopyFrom(
        udf_pb2.PythonBundle(sha256=hashlib.sha256(BUNDLE).hexdigest(), python_version="2.7", size_bytes=len(BUNDLE))
    )

    async def work(stubs):
        request = catalog_pb2.RegisterUdfRequest(database=str(tmp_path), definition=external, bundle=BUNDLE)
        code, error = await error_of(stubs.catalog.RegisterUdf(request))
        assert (code, error.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "UDF_PYTHON_MISMATCH")
        request.definition.python_bundle.python_version = PYTHON
        assert (await stubs.catalog.RegisterUdf(request)).created
        asked = catalog_pb2.GetUdfRequest(database=str(tmp_path), udf=udf_pb2.UdfRef(name="b"))
        assert not (await stubs.catalog.GetUdf(asked)).needs_bundle
        (stored,) = functions_of(tmp_path, "*.bundle")
        stored.unlink()
        assert (await stubs.catalog.GetUdf(asked)).needs_bundle

    served(work)


def test_a_column_is_added_described_and_not_added_twice(table):
    async def work(stubs):
        await stubs.catalog.RegisterUdf(catalog_pb2.RegisterUdfRequest(database=table, definition=definition()))
        first = await stubs.catalog.AddColumns(add(table, "r1", input_columns=["id"]))
        again = await stubs.catalog.AddColumns(add(table, "r1", input_columns=["id"]))
        assert again.version == first.version == lance.dataset(f"{table}/t.lance").version
        code, error = await error_of(stubs.catalog.AddColumns(add(table, "r2")))
        assert (code, error.reason) == (grpc.StatusCode.ALREADY_EXISTS, "COLUMN_EXISTS")
        ref = catalog_pb2.TableRef(database=table, table="t")
        return await stubs.catalog.DescribeTable(catalog_pb2.DescribeTableRequest(table=ref))

    described = served(work)
    assert (described.row_count, described.fragment_count) == (3 * ROWS, 3)
    assert list(described.computed_columns) == [
        catalog_pb2.ComputedColumn(name="n", udf=udf_pb2.UdfRef(name="f", version="1"), input_columns=["id"])
    ]
    assert convert_values.schema_from_bytes(described.schema, "schema").field("n").type == pa.int64()
    dataset = lance.dataset(described.uri)
    assert dataset.to_table(columns=["n"]).column("n").null_count == 3 * ROWS
    assert all(len(fragment.metadata.files) == 1 for fragment in dataset.get_fragments())


def test_on_change_holds_for_those_too_who_are_overtaken(table):
    """All ask for the same column at the same moment, each in a request of its own."""

    def asked(number, on_change):
        request = add(table, f"r{number}", udf=None, sql_expression="x * 2")
        request.on_change = on_change
        return request

    async def work(stubs):
        ways = (catalog_pb2.ON_CHANGE_ERROR, catalog_pb2.ON_CHANGE_UPDATE, catalog_pb2.ON_CHANGE_KEEP)
        told = await asyncio.gather(*(stubs.catalog.AddColumns(asked(n, ways[n % 3])) for n in range(9)))
        code, error = await error_of(stubs.catalog.AddColumns(asked(9, catalog_pb2.ON_CHANGE_UNSPECIFIED)))
        assert (code, error.reason) == (grpc.StatusCode.ALREADY_EXISTS, "COLUMN_EXISTS")
        return [answer.columns[0].outcome for answer in told]

    outcomes = served(work)
    outcome = catalog_pb2.ColumnOutcome
    assert sorted(outcomes) == [outcome.OUTCOME_ADDED, *[outcome.OUTCOME_UNCHANGED] * 8]
    assert lance.dataset(f"{table}/t.lance").schema.names.count("n") == 1


def test_columns_that_a_table_is_to_have_are_added_changed_and_left_alone(table):
    def asked(request_id, on_change, *columns):
        request = add(table, request_id, name="n", udf=None, sql_expression=columns[0])
        for name, expression in zip("mo", columns[1:], strict=False):
            request.columns.add(name=name, sql_expression=expression)
        request.on_change = on_change
        return request

    async def work(stubs):
        first = await stubs.catalog.AddColumns(asked("r1", catalog_pb2.ON_CHANGE_ERROR, "x * 2"))
        same = await stubs.catalog.AddColumns(asked("r2", catalog_pb2.ON_CHANGE_ERROR, "x * 2"))
        lake = Lake.at(table)
        lake.fill(lake.plan("n"))
        code, error = await error_of(stubs.catalog.AddColumns(asked("r3", catalog_pb2.ON_CHANGE_ERROR, "x * 3")))
        assert (code, error.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "COLUMN_CHANGED")
        assert error.facts["diff"].splitlines()[-2:] == ["-x * 2", "+x * 3"]
        changed = asked("r4", catalog_pb2.ON_CHANGE_UPDATE, "x * 3", "x * 4")
        both = [await stubs.catalog.AddColumns(changed) for _ in range(2)]
        changed.on_change = 9
        code, error = await error_of(stubs.catalog.AddColumns(changed))
        assert (code, error.reason, error.field) == (grpc.StatusCode.INVALID_ARGUMENT, "UNKNOWN_VALUE", "on_change")
        return first, same, *both

    first, same, changed, again = served(work)
    outcome = catalog_pb2.ColumnOutcome
    assert [(c.outcome, c.rows_not_computed, c.udf.name) for c in first.columns] == [
        (outcome.OUTCOME_ADDED, 3 * ROWS, "sql")
    ]
    assert (same.version, [c.outcome for c in same.columns]) == (first.version, [outcome.OUTCOME_UNCHANGED])
    n, m = changed.columns
    assert (n.outcome, n.rows_stale, n.rows_not_computed, m.outcome) == (
        outcome.OUTCOME_UPDATED, 3 * ROWS, 0, outcome.OUTCOME_ADDED,
    )  # fmt: skip
    assert n.udf_before.version != n.udf.version
    assert not n.HasField("expected_duration")
    assert again.version == changed.version == lance.dataset(f"{table}/t.lance").version
    assert [c.outcome for c in again.columns] == [n.outcome, m.outcome]


def test_a_repetition_after_the_coordinator_forgot_the_first_is_answered_alike(table):
    async def register_and_add(stubs):
        await stubs.catalog.RegisterUdf(catalog_pb2.RegisterUdfRequest(database=table, definition=definition()))
        return (await stubs.catalog.AddColumns(add(table, "r1"))).version

    first = served(register_and_add)
    assert served(register_and_add) == first
    assert lance.dataset(f"{table}/t.lance").version == first
    for _ in range(4):
        written = lance.write_dataset(rows(ROWS), f"{table}/t.lance", mode="append")
    assert served(register_and_add) == first, "and not the latest version"
    assert lance.dataset(f"{table}/t.lance").version == written.version == first + 4
    written.cleanup_old_versions(timedelta())
    assert served(register_and_add) == written.version, "the oldest one that is left"


@pytest.mark.parametrize("first", ["add", "alter"])
def test_a_request_id_with_another_body_is_refused_also_after_a_restart(tmp_path, first):
    """What the id was used for stands in the columns that it made."""
    lake = Lake(tmp_path)

    def adding(**column):
        return add(lake.database, "r1", **column)

    def altering(**column):
        request = adding(**{"name": "c", "udf": udf_pb2.UdfRef(name="f", version="2"), **column})
        columns = [catalog_pb2.ColumnAlteration(column=column) for column in request.columns]
        return catalog_pb2.AlterColumnsRequest(table=request.table, columns=columns, request_id="r1")

    def one(stubs):
        return stubs.catalog.AddColumns(adding()) if first == "add" else stubs.catalog.AlterColumns(altering())

    async def begin(stubs):
        await stubs.catalog.RegisterUdf(catalog_pb2.RegisterUdfRequest(database=lake.database, definition=NEWER))
        return (await one(stubs)).version

    async def go_on(stubs):
        others = (
            stubs.catalog.AddColumns(adding(name="other")),
            stubs.catalog.AddColumns(adding(input_columns=["id"])),
            stubs.catalog.AlterColumns(altering(input_columns=["id"])),
        )
        for call in others:
            code, error = await error_of(call)
            assert (code, error.reason) == (grpc.StatusCode.ALREADY_EXISTS, "REQUEST_ID_REUSED")
        return (await one(stubs)).version

    made = served(begin)
    assert served(go_on) == made == lake.open().version
    lake.open().update_config({"something": "else"})
    assert served(go_on) == made < lake.open().version


def test_columns_altered_again_by_the_same_request_are_answered_like_the_first_time(tmp_path):
    """Also where they had the function before. Lance has the metadata of a field in another order at each opening."""
    lake = Lake(tmp_path)

    async def scenario(stubs):
        await stubs.catalog.RegisterUdf(catalog_pb2.RegisterUdfRequest(database=lake.database, definition=NEWER))
        await stubs.catalog.AddColumns(add(lake.database, "r1"))
        answers = []
        for request_id in ("r2", "nothing to change"):
            new = add(lake.database, request_id, name="c", udf=udf_pb2.UdfRef(name="f", version="2"))
            columns = [catalog_pb2.ColumnAlteration(column=column) for column in new.columns]
            request = catalog_pb2.AlterColumnsRequest(table=new.table, columns=columns, request_id=request_id)
            answers.append({(await stubs.catalog.AlterColumns(request)).version for _ in range(8)})
        return answers

    assert served(scenario) == [{lake.open().version}, {lake.open().version}]


@pytest.mark.parametrize(
    ("column", "code", "reason", "said"),
    [
        ({"input_columns": ["idd"]}, "FAILED_PRECONDITION", "INPUT_COLUMN_MISSING", "Did you mean id?"),
        ({"input_columns": ["n"]}, "FAILED_PRECONDITION", "INPUT_IS_OUTPUT", "itself"),
        ({"udf": udf_pb2.UdfRef(name="g", version="1")}, "NOT_FOUND", "UDF_NOT_FOUND", "No function g@1"),
        ({"name": "id"}, "ALREADY_EXISTS", "COLUMN_EXISTS", "choose another name"),
        ({"name": "a.b"}, "INVALID_ARGUMENT", "BAD_COLUMN_NAME", "no '.'"),
        ({"udf": None}, "INVALID_ARGUMENT", "BAD_UDF", "set a function or a SQL expression"),
    ],
)
def test_what_cannot_be_added_says_why_and_changes_nothing(table, column, code, reason, said):
    async def work(stubs):
        await stubs.catalog.RegisterUdf(catalog_pb2.RegisterUdfRequest(database=table, definition=definition()))
        both = add(table, **column)
        both.columns.add(name="fine", udf=udf_pb2.UdfRef(name="f", version="1"))
        return await error_of(stubs.catalog.AddColumns(both))

    status, error = served(work)
    assert (status.name, error.reason) == (code, reason)
    assert said in error.message
    assert lance.dataset(f"{table}/t.lance").version == 1


def test_tables_are_listed_in_pages(tmp_path):
    for name in ("b", "a", "c"):
        lance.write_dataset(rows(1), str(tmp_path / f"{name}.lance"))

    async def work(stubs):
        first = await stubs.catalog.ListTables(catalog_pb2.ListTablesRequest(database=str(tmp_path), page_size=2))
        rest = await stubs.catalog.ListTables(
            catalog_pb2.ListTablesRequest(database=str(tmp_path), page_size=2, page_token=first.next_page_token)
        )
        return list(first.tables), list(rest.tables), rest.next_page_token

    assert served(work) == (["a", "b"], ["c"], "")


def test_a_plan_comes_as_a_header_and_batches(tmp_path, monkeypatch):
    monkeypatch.setattr(fragment_tasks, "BATCH_TASKS", 2)
    lake = Lake(tmp_path, fragments=5)

    async def work(stubs):
        async def planned(**fields):
            request = planning_pb2.CreatePlanRequest(spec=spec(str(tmp_path)), **fields)
            return [message async for message in stubs.planning.CreatePlan(request)]

        return await planned(reads_batches=True), await planned()

    (header, *parts), (_, *of_earlier_release) = served(work)
    wanted = lake.plan()
    assert convert_plans.header_from_proto(header.header) == wanted.header
    tasks = convert_plans.tasks_from_bytes(message.task_batch for message in parts)
    assert [len(batch) for batch in tasks.batches] == [2, 2, 1]
    assert tasks == tuple(wanted.tasks)
    one_by_one = [convert_plans.task_from_proto(task) for message in of_earlier_release for task in message.tasks.tasks]
    assert tuple(one_by_one) == tuple(wanted.tasks)


def test_an_executor_gets_the_plan_that_was_made_and_checkpoints_in_columns(tmp_path):
    lake = Lake(tmp_path, fragments=5)
    tasks = lake.plan().tasks
    lake.checkpoint(tasks[1], 0, 4)
    lake.checkpoint(tasks[3], 2, 6)
    lake.checkpoint(tasks[3], 8, 10)
    lake.record(lake.plan(), tasks[4], lake.write(lake.plan(), tasks[4]))

    async def work(stubs):
        return await PlannerClient(stubs.channel).create_plan(BackfillSpec(str(tmp_path), "t", "c"))

    made, wanted = served(work), lake.plan()
    assert (made.header, tuple(made.tasks)) == (wanted.header, tuple(wanted.tasks))
    assert [len(task.checkpoints) for task in made.tasks] == [0, 1, 0, 2, 0]
    assert made.tasks.rows_missing.tolist() == [10, 6, 10, 4, 0]
    assert (made.tasks.from_checkpoints, len(made.tasks.staged)) == (2, 1)
    assert made.tasks.without_staged() == tuple(made.tasks)[:4]


def test_a_plan_is_explained_without_its_bulk(tmp_path):
    lake = Lake(tmp_path, fragments=5)

    async def work(stubs):
        request = planner_pb2.ExplainPlanRequest(spec=spec(str(tmp_path)), max_decisions=2)
        before = await stubs.plans.ExplainPlan(request)
        lake.fill(lake.plan())
        after = await stubs.plans.ExplainPlan(request)
        refused = []
        for request.max_decisions in (1_000_000_000, -1):
            refused.append(await error_of(stubs.plans.ExplainPlan(request)))
        return before, after, *refused

    before, after, (_, too_many), (code, error) = served(work)
    assert (too_many.reason, too_many.field) == ("BAD_NUMBER", "max_decisions")
    assert before.summary == "5 of 5 fragments to do (5 missing); about 50 rows to compute; 0 rows reused"
    assert [decision.reason for decision in before.decisions] == [planner_pb2.REASON_MISSING] * 2
    assert after.summary == "5 of 5 fragments are current: nothing to do"
    assert [(c.reason, c.fragments) for c in after.reasons] == [(planner_pb2.REASON_REUSED, 5)]
    assert (code, error.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "BAD_NUMBER")


@pytest.mark.parametrize(
    ("fields", "code", "reason"),
    [
        ({"column": "d"}, "FAILED_PRECONDITION", "COLUMN_NOT_DEFINED"),
        ({"where": "nope > 1"}, "INVALID_ARGUMENT", "INVALID_FILTER"),
        ({"table": catalog_pb2.TableRef(database="/nowhere", table="t")}, "NOT_FOUND", "TABLE_NOT_FOUND"),
        ({"table": catalog_pb2.TableRef(database="/nowhere", table="../t")}, "INVALID_ARGUMENT", "BAD_TABLE_NAME"),
        ({"read_version": 99}, "NOT_FOUND", "VERSION_NOT_FOUND"),
        ({"task_size": -1}, "INVALID_ARGUMENT", "BAD_NUMBER"),
    ],
)
def test_a_plan_that_cannot_be_made_is_a_typed_error(tmp_path, fields, code, reason):
    Lake(tmp_path)

    async def work(stubs):
        request = planning_pb2.CreatePlanRequest(spec=spec(str(tmp_path), **fields))

        async def drain():
            return [message async for message in stubs.planning.CreatePlan(request)]

        return await error_of(drain())

    status, error = served(work)
    assert (status.name, error.reason) == (code, reason)
