"""AddPlainColumns, DropColumns, AlterPlainColumns: what becomes of columns, and of those that others read."""

from __future__ import annotations

import grpc
import lance
import pyarrow as pa
import pytest

from leman._format import view_definitions
from leman.v1 import tables_pb2
from leman_coordinator.lance_io.table_handle import CommitUnclear, TableHandle
from leman_core.functions import binding
from leman_core.model.job import Job, JobState
from leman_core.model.plan import BackfillSpec
from leman_core.server.status import error_from_rpc
from leman_core.wire.convert_types import schema_to_json
from leman_executor.history.job_history import JobHistory
from tests.integration.commits.commit_helpers import Planner, make_table
from tests.integration.commits.test_commit_service import message, refusal, run
from tests.integration.commits.view_commit_helpers import View
from tests.integration.tables.table_helpers import coordinator, ipc_schema, merged


@pytest.fixture
def world(tmp_path):
    """`t` with `id`, `x` and `c`, which is computed from `x` and has values in two of four fragments."""
    return make_table(str(tmp_path / "t.lance"))


def ask(world, *calls, before=None):
    """What each of the calls gives: a version, or the reason of its refusal and its facts."""

    async def scenario():
        async with coordinator(world.uri.rpartition("/")[0]) as up:
            if before is not None:
                await before(up)
            return [await answer(up, *call) for call in calls]

    return run(scenario)


async def answer(up, kind, fields):
    request = merged(getattr(tables_pb2, f"{kind}Request")(table=up.ref("t")), fields)
    try:
        return (await getattr(up, kind)(request)).version
    except grpc.aio.AioRpcError as error:
        return error_from_rpc(error).reason


def add(*fields):
    return "AddPlainColumns", {"schema": ipc_schema(pa.schema(list(fields)))}


def drop(*columns, **fields):
    return "DropColumns", {"columns": columns, **fields}


def alter(name, kind=None, *, force=False, **fields):
    column = tables_pb2.PlainColumnAlteration(name=name, **fields)
    if kind is not None:
        column.type.CopyFrom(schema_to_json(pa.schema([("x", kind)])).fields[0].type)
    return "AlterPlainColumns", {"columns": [column], "force": force}


def schema_of(world):
    return {field.name: field.type for field in world.open().schema}


def test_columns_are_added_without_values_and_take_rows(world):
    before = world.open().version
    found = ask(
        world, add(("a", pa.string()), pa.field("b", pa.float64(), metadata={"k": "v", "leman::udf_name": "f"}))
    )

    assert found == [before + 1]
    dataset = world.open()
    assert dataset.to_table(columns=["a", "b"]).to_pylist() == [{"a": None, "b": None}] * 40
    assert dataset.schema.field("b").metadata == {b"k": b"v"}
    assert all(len(fragment.metadata.files) == 1 for fragment in dataset.get_fragments()), "no data was written"


def test_columns_are_dropped_renamed_and_given_other_types(world):
    async def fill(up):
        await up.SubmitCommit(message(Planner(world), 0, 1))

    found = ask(
        world,
        alter("id", new_name="number"),
        alter("number", pa.int32(), nullable=True),
        add(("a", pa.int8())),
        drop("a"),
        alter("x", new_name="y"),
        before=fill,
    )

    assert all(isinstance(version, int) for version in found)
    assert schema_of(world) == {"number": pa.int32(), "y": pa.int64(), "c": pa.int64()}
    assert world.open().to_table(columns=["number"]).column("number").to_pylist() == [*range(40)]
    assert world.column("c") == [10 * i for i in range(20)] + [None] * 20
    (read,) = binding.read(world.snapshot().column("c").arrow).inputs
    assert read.field_id == world.snapshot().column("y").field_id, "the computed column follows its input"


def test_what_computed_columns_jobs_and_views_read_goes_by_force_only(tmp_path, world):
    history = JobHistory(str(tmp_path))
    history.prepare()
    spec = BackfillSpec(database=str(tmp_path), table="t", column="c")
    history.save(Job(job_id="job", request_id="", state=JobState.RUNNING, request=spec, created_at=1.0, updated_at=2.0))

    found = ask(world, drop("x"), drop("c"), alter("x", pa.int32()), drop("x", "c"), drop("x", force=True))

    assert found[:4] == ["COLUMN_IN_USE"] * 4
    assert isinstance(found[4], int)
    assert list(schema_of(world)) == ["id", "c"]


def test_views_know_columns_by_name(tmp_path):
    View(str(tmp_path)).made()

    async def scenario():
        async with coordinator(tmp_path) as up:
            return [
                await answer(up, *call)
                for call in (drop("s"), alter("s", new_name="r"), add(("n", pa.int8())), drop("n"))
            ]

    found = run(scenario)
    assert found[:2] == ["COLUMN_IN_USE"] * 2
    assert all(isinstance(version, int) for version in found[2:])


@pytest.mark.parametrize("left", [view_definitions.QUERY, view_definitions.DIGEST])
def test_columns_of_a_view_are_its_querys_also_where_it_is_damaged(world, left):
    """`left`: what is left of what the view said of itself."""
    world.open().update_schema_metadata({left: "?"})
    found = ask(world, add(("n", pa.int8())), drop("x", force=True), alter("x", new_name="r", force=True))
    assert found == ["IS_A_VIEW"] * 3
    assert list(schema_of(world)) == ["id", "x", "c"]


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (add(("x", pa.int8())), "COLUMN_EXISTS"),
        (add(pa.field("n", pa.int8(), nullable=False)), "BAD_COLUMN"),
        (add(("a.b", pa.int8())), "BAD_COLUMN_NAME"),
        (add(("n", pa.list_view(pa.int8()))), "TYPE_NOT_STORABLE"),
        (("AddPlainColumns", {}), "MISSING_FIELD"),
        (drop(), "MISSING_FIELD"),
        (drop("x", "x"), "BAD_COLUMN"),
        (drop("nope"), "COLUMN_NOT_FOUND"),
        (drop("id", "x", "c"), "LAST_COLUMN"),
        (alter("nope", new_name="n"), "COLUMN_NOT_FOUND"),
        (alter("id", new_name="x"), "COLUMN_EXISTS"),
        (alter("id", new_name="a.b"), "BAD_COLUMN_NAME"),
        (alter("id"), "BAD_COLUMN"),
        (alter("c", pa.int32()), "COLUMN_IS_COMPUTED"),
        (alter("id", pa.int8(), force=True), None),
        (alter("x", pa.string(), force=True), "COMMIT_REFUSED"),
        (alter("c", nullable=False), "COMMIT_REFUSED"),
    ],
)
def test_what_cannot_be_done_is_refused_and_leaves_the_table_as_it_was(world, call, reason):
    before = world.open()
    (found,) = ask(world, call)
    assert found == reason if reason is not None else isinstance(found, int)
    if reason is not None:
        assert (world.open().version, world.open().schema) == (before.version, before.schema)


def test_a_repeated_request_is_answered_like_the_first_time(world):
    async def scenario():
        async with coordinator(world.uri.rpartition("/")[0]) as up:
            request = tables_pb2.DropColumnsRequest(table=up.ref("t"), columns=["id"], request_id="mine")
            first = await up.DropColumns(request)
            again = await up.DropColumns(request)
            request.columns.append("x")
            return first, again, (await refusal(up.DropColumns(request)))[1]

    first, again, other = run(scenario)
    assert first == again
    assert other == "REQUEST_ID_REUSED"


@pytest.mark.parametrize(
    ("method", "call"),
    [
        ("drop_columns", drop("id")),
        ("alter_columns", alter("id", new_name="n")),
        ("add_plain_columns", add(("n", pa.int8()))),
    ],
)
def test_a_change_whose_outcome_was_unclear_is_found_and_not_made_twice(world, monkeypatch, method, call):
    make, failed = getattr(TableHandle, method), []

    def unclear(self, *arguments):
        version = make(self, *arguments)
        if not failed:
            failed.append(version)
            raise CommitUnclear("the answer was lost")
        return version

    monkeypatch.setattr(TableHandle, method, unclear)
    before = world.open().version
    assert ask(world, call) == [before + 1]
    assert (lance.dataset(world.uri).version, len(failed)) == (before + 1, 1)
