"""AppendRows: all rows or none, whatever happens on the way; and what does not fit."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import struct
from pathlib import Path

import grpc
import lance
import pyarrow as pa
import pytest

from leman.v1 import commit_pb2, tables_pb2
from leman_coordinator.garbage.garbage_collector import GarbageCollector
from leman_coordinator.tables import arrow_streams, row_uploads
from leman_core.model.garbage import Fate
from leman_core.server.status import error_from_rpc
from tests.integration.commits.commit_helpers import Planner, make_table
from tests.integration.commits.test_commit_service import message, refusal, run
from tests.integration.commits.view_commit_helpers import View
from tests.integration.tables.table_helpers import (
    coordinator,
    data_files,
    referenced,
    stream_of,
    wait_for_files,
    with_a_place,
)

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("s", pa.string()),
        ("v", pa.list_(pa.float32(), 2)),
        ("box", pa.struct([("w", pa.int32())])),
    ]
)


@pytest.fixture
def table(tmp_path):
    """`t` with one row."""
    lance.write_dataset(rows(1), tmp_path / "t.lance", enable_stable_row_ids=True)
    return tmp_path / "t.lance"


def rows(count, first=0):
    return pa.table(
        {
            "id": pa.array(range(first, first + count), pa.int64()),
            "s": [f"s{i}" for i in range(first, first + count)],
            "v": pa.array([[i, -i] for i in range(count)], pa.list_(pa.float32(), 2)),
            "box": pa.array([{"w": i} for i in range(count)], pa.struct([("w", pa.int32())])),
        },
        schema=SCHEMA,
    )


def in_batches(count):
    """The bytes of rows in batches of a hundred."""
    return stream_of(rows(count, 1).to_batches(100), 1 << 12, SCHEMA)


def whole_batches(pieces):
    """How many batches a stream has that was cut off."""
    reader, count = pa.ipc.open_stream(b"".join(pieces)), 0
    with contextlib.suppress(StopIteration, OSError, pa.ArrowInvalid):
        while True:
            reader.read_next_batch()
            count += 1
    return count


def ids(table):
    return lance.dataset(table).to_table(columns=["id"]).column("id").to_pylist()


def test_rows_come_in_one_version_in_their_order(table):
    async def scenario():
        async with coordinator(table.parent) as up:
            return await up.append(rows(1000, 1), max_rows_per_fragment=300)

    before = lance.dataset(table).version
    answer = run(scenario)
    dataset = lance.dataset(table)
    assert (answer.version, answer.rows_added) == (before + 1, 1000)
    assert dataset.version == before + 1
    assert [fragment.count_rows() for fragment in dataset.get_fragments()] == [1, 300, 300, 300, 100]
    assert dataset.to_table() == pa.concat_tables([rows(1), rows(1000, 1)])
    assert len(set(dataset.to_table(with_row_id=True).column("_rowid").to_pylist())) == 1001
    dataset.validate()


def test_pieces_may_end_anywhere_and_columns_come_in_any_order_or_not_at_all(table):
    given = rows(50, 1).select(["s", "id"])

    async def scenario():
        async with coordinator(table.parent) as up:
            for size in (1, 7, 4096):
                await up.AppendRows(up.upload(stream_of(given, size)))

    run(scenario)
    found = lance.dataset(table).to_table()
    assert found.num_rows == 151
    assert found.column("id").to_pylist() == [0, *[*range(1, 51)] * 3]
    assert found.column("v").null_count == found.column("box").null_count == 150


def test_values_are_converted_where_none_is_lost(table):
    given = pa.table(
        {
            "id": pa.array([7, 8], pa.int8()),
            "s": pa.array(["a", None]).dictionary_encode(),
            "v": pa.array([[1, 2], None], pa.list_(pa.int64(), 2)),
            "box": pa.array([{"w": 5}, None], pa.struct([("w", pa.int64())])),
        }
    )

    async def scenario():
        async with coordinator(table.parent) as up:
            await up.append(given)

    run(scenario)
    found = lance.dataset(table).to_table(filter="id > 6")
    assert found.to_pylist() == [
        {"id": 7, "s": "a", "v": [1.0, 2.0], "box": {"w": 5}},
        {"id": 8, "s": None, "v": None, "box": None},
    ]


def table_of(**columns):
    return pa.table(columns)


@pytest.mark.parametrize(
    ("given", "code", "reason"),
    [
        (table_of(id=[1], nope=[1]), "FAILED_PRECONDITION", "COLUMN_NOT_FOUND"),
        (table_of(s=["a"]), "FAILED_PRECONDITION", "COLUMN_REQUIRED"),
        (table_of(id=["1"]), "FAILED_PRECONDITION", "TYPE_MISMATCH"),
        (table_of(id=pa.array([1 << 63], pa.uint64())), "FAILED_PRECONDITION", "TYPE_MISMATCH"),
        (table_of(id=pa.array([None], pa.int64())), "FAILED_PRECONDITION", "NULL_VALUE"),
        (table_of(id=[1], s=[True]), "FAILED_PRECONDITION", "TYPE_MISMATCH"),
        (
            pa.table([[1], [2]], schema=pa.schema([("id", pa.int64()), ("id", pa.int64())])),
            "INVALID_ARGUMENT",
            "BAD_COLUMN",
        ),
        (pa.table({"id": pa.array([], pa.int64())}).select([]), "INVALID_ARGUMENT", "BAD_COLUMN"),
    ],
)
def test_rows_that_do_not_fit_are_refused_and_leave_nothing(table, given, code, reason):
    before = lance.dataset(table).version

    async def scenario():
        async with coordinator(table.parent) as up:
            return await refusal(up.append(given))

    assert run(scenario)[:2] == (grpc.StatusCode[code], reason)
    assert (lance.dataset(table).version, data_files(table)) == (before, referenced(table))


def test_a_value_that_does_not_fit_in_a_late_batch_takes_all_before_it_away(table):
    batches = [*rows(600, 1).select(["id"]).to_batches(max_chunksize=100)]
    wrong = pa.record_batch({"id": pa.array([None], pa.int64())})
    schema = pa.schema([("id", pa.int64())])
    given = [batch.cast(schema) for batch in batches] + [wrong]

    async def scenario():
        async with coordinator(table.parent) as up:
            return await refusal(up.AppendRows(up.upload(stream_of(given, schema=schema), max_rows_per_fragment=100)))

    assert run(scenario)[1] == "NULL_VALUE"
    assert ids(table) == [0]
    assert data_files(table) == referenced(table)


def whole(count=20):
    return b"".join(stream_of(rows(count, 1)))


def broken(content, at, value):
    return content[:at] + value + content[at + len(value) :]


def test_what_is_no_arrow_at_all_is_said_to_be_none(table):
    async def scenario():
        async with coordinator(table.parent) as up:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await up.AppendRows(up.upload([b'[{"id": 1}]']))
            return caught.value.details()

    assert run(scenario).startswith(
        "The bytes are not an Arrow IPC stream, which begins with a schema: write them with Arrow's"
    )


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"nonsense",
        whole()[:-8],  # its writer was not closed
        whole()[:-200],
        whole() + b"more",
        broken(whole(), 4, struct.pack("<i", 1 << 30)),
        broken(whole(), len(whole()) - 300, os.urandom(40)),
        b"".join(stream_of(pa.table({"zzzz": [1]}))).replace(b"zzzz", b"z\xc4zz"),
    ],
    ids=["nothing", "nonsense", "no end", "cut", "goes on", "no schema", "bad offsets", "name not UTF-8"],
)
def test_bytes_that_are_no_whole_stream_are_refused(table, content):
    async def scenario():
        async with coordinator(table.parent) as up:
            return await refusal(up.AppendRows(up.upload([content] if content else [])))

    assert run(scenario)[:2] == (grpc.StatusCode.INVALID_ARGUMENT, "BAD_STREAM")
    assert (ids(table), data_files(table)) == ([0], referenced(table))


def test_a_batch_that_is_too_large_is_refused_before_it_is_held(table, monkeypatch):
    monkeypatch.setattr(arrow_streams, "MAX_BATCH_BYTES", 1000)

    async def scenario():
        async with coordinator(table.parent) as up:
            return await refusal(up.append(rows(1000, 1)))

    assert run(scenario) == (grpc.StatusCode.INVALID_ARGUMENT, "BATCH_TOO_LARGE", "arrow_ipc")


def test_headers_that_are_missing_or_wrong_are_refused(table):
    async def scenario():
        async with coordinator(table.parent) as up:

            async def no_header():
                yield tables_pb2.AppendRowsRequest(arrow_ipc=whole())

            async def two_headers():
                async for part in up.upload([]):
                    yield part
                    yield part

            async def nothing():
                for part in ():
                    yield part

            calls = (
                no_header(),
                nothing(),
                two_headers(),
                up.upload([whole()], request_id=""),
                up.upload([whole()], max_rows_per_fragment=-1),
                up.upload([whole()], "nope"),
                up.upload([whole()], "__leman_scratch_x"),
            )
            return [(await refusal(up.AppendRows(call)))[1:] for call in calls]

    assert run(scenario) == [
        ("MISSING_FIELD", "header"),
        ("MISSING_FIELD", "header"),
        ("BAD_STREAM", "header"),
        ("MISSING_FIELD", "header.request_id"),
        ("BAD_NUMBER", "header.max_rows_per_fragment"),
        ("TABLE_NOT_FOUND", ""),
        ("RESERVED_NAME", "header.table"),
    ]


def test_a_view_takes_no_rows(tmp_path):
    view = View(str(tmp_path)).made()

    async def scenario():
        async with coordinator(tmp_path) as up:
            given = pa.table({"x": [1]})
            return [
                (await refusal(call))[1]
                for call in (
                    up.append(given, "v"),
                    up.delete("x > 1", "v"),
                    up.update("true", "v", expressions={"x": "1"}),
                    up.merge(given, "v", on=["x"]),
                    up.drop("v"),
                    up.rename("w", "v"),
                )
            ]

    assert run(scenario) == ["IS_A_VIEW"] * 6
    assert view.open().count_rows() == 20


def test_no_rows_make_no_version(table):
    async def scenario():
        async with coordinator(table.parent) as up:
            return await up.append(rows(0))

    answer = run(scenario)
    assert (answer.version, answer.rows_added) == (lance.dataset(table).version, 0)
    assert data_files(table) == referenced(table)


def test_rows_that_are_sent_again_are_added_once_also_after_a_restart(table):
    async def scenario():
        async with coordinator(table.parent) as up:
            first = await up.append(rows(5, 1), request_id="mine")
            again = await up.append(rows(5, 1), request_id="mine")
        async with coordinator(table.parent) as up:
            restarted = await up.append(rows(5, 1), request_id="mine")
            other = await refusal(up.append(rows(5, 1), request_id="mine", max_rows_per_fragment=2))
            known = await up.GetCommit(commit_pb2.GetCommitRequest(table=up.ref("t"), request_id="mine"))
        return first, again, restarted, other[1], known.commit

    first, again, restarted, other, known = run(scenario)
    assert first == again == restarted
    assert other == "REQUEST_ID_REUSED"
    assert (known.version, known.operation, known.fragments) == (first.version, "AppendRows", 1)
    assert (ids(table), data_files(table)) == ([*range(6)], referenced(table))


OTHERS = {
    "more rows": rows(6, 1),
    "other values": rows(5, 2),
    "no rows": rows(0),
    "fewer columns": rows(5, 1).select(["id", "s"]),
}


def test_other_rows_under_an_id_that_was_used_are_refused_also_after_a_restart(table):
    in_two = stream_of(rows(5, 1).to_batches(2), 7, SCHEMA)

    async def scenario():
        found = {}
        async with coordinator(table.parent) as up:
            first = await up.append(rows(5, 1), request_id="mine")
            cut = await up.AppendRows(up.upload(in_two, request_id="mine"))
            for name, others in OTHERS.items():
                found[name] = await refused(up.append(others, request_id="mine"))
        async with coordinator(table.parent) as up:
            again = [await refused(up.append(others, request_id="mine")) for others in OTHERS.values()]
            restarted = await up.AppendRows(
                up.upload(stream_of(rows(5, 1).to_batches(2), 7, SCHEMA), request_id="mine")
            )
            new = await up.append(OTHERS["more rows"], request_id="new")
        assert again == [*found.values()]
        assert first == cut == restarted
        return found, new

    found, new = run(scenario)
    assert {reason for reason, _ in found.values()} == {"REQUEST_ID_REUSED"}
    assert {name: said.partition("not taken: ")[2].partition(". ")[0] for name, (_, said) in found.items()} == {
        "more rows": "5 rows came with it first, now 6",
        "other values": "the 5 rows that came with it first had other values, or another order",
        "no rows": "5 rows came with it first, now 0",
        "fewer columns": "the 5 rows that came with it first had other columns, or other types",
    }
    assert (new.rows_added, ids(table)) == (6, [*range(6), *range(1, 7)])
    assert data_files(table) == referenced(table)


async def refused(call):
    """(reason, message)."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return error_from_rpc(caught.value).reason, caught.value.details()


def test_rows_count_under_an_id_with_which_none_came_into_the_table_before(table):
    """The first stream was empty, that of the second breaks, a row of the third is refused half-way."""

    async def scenario():
        async with coordinator(table.parent) as up:
            nothing = await up.append(rows(0), request_id="mine")
            broken = (await refused(up.AppendRows(up.upload(in_batches(500)[:-1], request_id="mine"))))[0]
            loose = stream_of([pa.record_batch({"id": pa.array([i], pa.int64())}) for i in (1, 2, None)])
            late = (await refused(up.AppendRows(up.upload(loose, request_id="mine"))))[0]
            return nothing.rows_added, broken, late, (await up.append(rows(5, 1), request_id="mine")).rows_added

    assert run(scenario) == (0, "BAD_STREAM", "NULL_VALUE", 5)
    assert (ids(table), data_files(table)) == ([*range(6)], referenced(table))


def test_a_request_of_a_release_that_did_not_look_at_rows_is_known_by_its_header(table, monkeypatch):
    monkeypatch.setattr(row_uploads, "with_rows", lambda body, _: body)

    async def scenario(*given):
        async with coordinator(table.parent) as up:
            return [await up.append(each, request_id="mine") for each in given]

    before = run(lambda: scenario(rows(5, 1)))
    monkeypatch.undo()
    assert run(lambda: scenario(rows(6, 1), rows(6, 1))) == before * 2
    assert ids(table) == [*range(6)]


@pytest.mark.parametrize("others", [0, 3])
def test_rows_sent_at_once_under_one_id_are_added_once(table, others):
    """All the same, or some of them other ones: those of one call are in the table, as its answer says."""

    async def scenario():
        async with coordinator(table.parent) as up:
            calls = [up.append(rows(5 + (at < others), 1), request_id="mine") for at in range(6)]
            return await asyncio.gather(*calls, return_exceptions=True)

    answers = run(scenario)
    done = [answer for answer in answers if not isinstance(answer, Exception)]
    reasons = {error_from_rpc(answer).reason for answer in answers if isinstance(answer, Exception)}
    assert len(done) == (3 if others else 6)
    assert len({(answer.version, answer.rows_added) for answer in done}) == 1
    assert reasons == ({"REQUEST_ID_REUSED"} if others else set())
    assert (ids(table), data_files(table)) == ([*range(1 + done[0].rows_added)], referenced(table))


def test_rows_may_bring_values_of_a_computed_column(tmp_path):
    """Such as embeddings that were made elsewhere: a backfill of the rows without keeps them."""
    world = make_table(str(tmp_path / "t.lance"))

    async def scenario():
        async with coordinator(tmp_path) as up:
            return (await up.append(pa.table({"id": [100], "x": [7], "c": [-5]}))).rows_added

    assert run(scenario) == 1
    assert lance.dataset(world.uri).to_table(["c"], filter="id = 100").column("c").to_pylist() == [-5]


def test_a_call_that_is_cancelled_leaves_nothing_and_gives_its_place_back(table):
    async def scenario():
        async with coordinator(table.parent, max_uploads=1) as up:
            sent, never = asyncio.Event(), asyncio.Event()

            async def half():
                async for part in up.upload(in_batches(5000)[:-1], max_rows_per_fragment=100):
                    yield part
                sent.set()
                await never.wait()

            call = up.AppendRows(half())
            await sent.wait()
            refused = await refusal(up.append(rows(1, 1)))
            call.cancel()
            await with_a_place(lambda: up.append(rows(1, 1)))
            return refused

    assert run(scenario) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "TOO_MANY_UPLOADS", "")
    assert (ids(table), data_files(table)) == ([0, 1], referenced(table))


def test_a_call_that_sends_nothing_for_too_long_is_ended(table):
    async def scenario():
        async with coordinator(table.parent, upload_idle_seconds=0.05) as up:

            async def stalling():
                async for part in up.upload(in_batches(500)[:-1], max_rows_per_fragment=100):
                    yield part
                await asyncio.Event().wait()

            return await refusal(up.AppendRows(stalling()))

    assert run(scenario)[:2] == (grpc.StatusCode.ABORTED, "UPLOAD_STALLED")
    assert (ids(table), data_files(table)) == ([0], referenced(table))


def change_type(dataset):
    dataset.alter_columns({"path": "s", "data_type": pa.large_string()})


def drop_and_add(dataset):
    dataset.drop_columns(["box"])
    dataset.add_columns(pa.field("box", pa.struct([("w", pa.int32())])))


def replace(dataset):
    shutil.rmtree(dataset.uri)
    lance.write_dataset(rows(1), dataset.uri).update_config({"leman.incarnation": "another"})


def add_required(dataset):
    dataset.add_columns({"r": "id + 1"})
    dataset.alter_columns({"path": "r", "nullable": False})


def collect(dataset):
    collector = GarbageCollector(dataset.uri, 0)
    _, decisions = collector.look()
    assert {d.fate for d in decisions} == {Fate.GARBAGE}
    collector.sweep(decisions)


@pytest.mark.parametrize(
    ("meanwhile", "reason"),
    [
        (change_type, "SCHEMA_CHANGED"),
        (drop_and_add, "SCHEMA_CHANGED"),
        (add_required, "SCHEMA_CHANGED"),
        (replace, "TABLE_REPLACED"),
        (collect, "FILES_GONE"),
    ],
)
def test_a_table_that_changed_under_an_upload_gets_none_of_its_rows(table, meanwhile, reason):
    async def scenario():
        async with coordinator(table.parent) as up:
            written, go = asyncio.Event(), asyncio.Event()

            async def slow():
                pieces = in_batches(500)
                async for part in up.upload(pieces[:-1], max_rows_per_fragment=100):
                    yield part
                written.set()
                await go.wait()
                yield tables_pb2.AppendRowsRequest(arrow_ipc=pieces[-1])

            call = asyncio.ensure_future(refusal(up.AppendRows(slow())))
            await written.wait()
            # a file for each batch that has come as a whole, in addition to the table's own; nothing is being written
            # then
            await asyncio.to_thread(wait_for_files, table, 1 + whole_batches(in_batches(500)[:-1]), ".tmp")
            await asyncio.to_thread(meanwhile, lance.dataset(table))
            go.set()
            return await call

    assert run(scenario)[:2] == (grpc.StatusCode.ABORTED, reason)
    assert lance.dataset(table).to_table(columns=["id"]).column("id").to_pylist() == [0]
    assert not any(Path(name).name.startswith("rows-") for name in data_files(table))


def test_appends_and_deletes_beside_commits_of_computed_values_lose_none(tmp_path):
    """Column files, appends and deletes arrive at once; each fragment's values are right in the end."""
    world = make_table(str(tmp_path / "t.lance"))

    async def scenario():
        async with coordinator(tmp_path) as up:
            planner = Planner(world)
            given = pa.table({"id": pa.array(range(100, 110), pa.int64()), "x": pa.array([7] * 10, pa.int64())})
            calls = [
                up.SubmitCommit(message(planner, 0, request_id="a")),
                up.append(given),
                up.delete("id IN (3, 13, 23, 33)"),
                up.SubmitCommit(message(planner, 1, 2, request_id="b")),
                up.append(given),
                up.delete("id >= 30 AND id < 35"),
                up.SubmitCommit(message(planner, 3, request_id="c")),
            ]
            return await asyncio.gather(*calls)

    answers = run(scenario)
    outcomes = [outcome.status for answer in (answers[0], answers[3], answers[6]) for outcome in answer.outcomes]
    assert outcomes == [1] * 4
    found = world.open().to_table(columns=["id", "x", "c"])
    kept = [i for i in range(40) if i not in (3, 13, 23, 33) and not 30 <= i < 35]
    assert found.column("id").to_pylist() == [*kept, *[*range(100, 110)] * 2]
    assert found.column("c").to_pylist() == [10 * i for i in kept] + [None] * 20
    world.open().validate()
