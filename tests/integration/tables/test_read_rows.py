"""ReadRows: which rows and columns, of which version, in which order; what it refuses, and what it holds."""

from __future__ import annotations

import asyncio
import datetime as dt

import grpc
import lance
import numpy as np
import pyarrow as pa
import pytest

from leman.v1 import tables_pb2
from leman_coordinator.commits.commit_requests import ReadRequest
from leman_coordinator.lance_io import row_reading
from leman_coordinator.lance_io.row_reading import open_rows
from leman_coordinator.tables import arrow_streams
from leman_core.model.service_errors import DataLoss, NotFound
from leman_core.storage.lance_tables import LanceTables
from tests.integration.commits.test_commit_service import refusal, run
from tests.integration.commits.view_commit_helpers import View
from tests.integration.tables.table_helpers import coordinator, with_a_place

ROWS = 30


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    """`t` in three fragments, changed since its tag `before`; `wide` with rows of 3 MB; `blobs`, old and new."""
    path = tmp_path_factory.mktemp("lake")
    data = pa.table(
        {
            "id": pa.array(range(ROWS), pa.int64()),
            "s": [f"s{i % 3}" for i in range(ROWS)],
            "box": [{"w": i, "h": -i} for i in range(ROWS)],
            "d": pa.array([f"d{i % 2}" for i in range(ROWS)]).dictionary_encode(),
            "at": pa.array([dt.datetime(2020, 1, 1, tzinfo=dt.UTC)] * ROWS, pa.timestamp("us", "UTC")),
        }
    )
    table = lance.write_dataset(data, path / "t.lance", max_rows_per_file=10, enable_stable_row_ids=True)
    table.tags.create("before", table.version)
    table.delete("id >= 28")
    holes = lance.write_dataset(data, path / "holes.lance", max_rows_per_file=10, enable_stable_row_ids=True)
    holes.delete("id % 3 = 0 OR (id >= 10 AND id < 20)")
    wide = pa.table({"b": [bytes([i]) * 3_000_000 for i in range(5)]})  # highly compressible
    lance.write_dataset(wide, path / "wide.lance")
    old = pa.table([pa.array([b"a", None, b"c" * 100], pa.large_binary())], schema=blob_schema())
    lance.write_dataset(old, path / "old.lance", data_storage_version="2.1")
    view = View(str(path / "views"))
    (path / "views").mkdir()
    view.made()
    from tests.integration.commits.commit_helpers import submit

    submit(view.fill(0))
    return path


def blob_schema():
    return pa.schema([pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})])


def read(lake, table="t", **fields):
    async def scenario():
        async with coordinator(lake) as up:
            return await up.read(table, **fields)

    return run(scenario)


def ids(table):
    return table.column("id").to_pylist()


def test_a_tag_on_a_branch_is_refused_by_the_name_of_the_branch(tmp_path):
    main = lance.write_dataset(pa.table({"id": [0]}), tmp_path / "t.lance")
    branch = lance.write_dataset(pa.table({"id": [50]}), main.create_branch("exp", main.version), mode="append")
    main.tags.create("on-branch", ("exp", branch.version))
    lance.write_dataset(pa.table({"id": [9]}), tmp_path / "t.lance", mode="append")  # main has such a version, too
    with pytest.raises(NotFound, match="on branch 'exp'") as caught:
        LanceTables().tagged(str(tmp_path / "t.lance"), "on-branch")
    assert caught.value.reason == "TAG_NOT_FOUND"


def test_tags_of_any_name_that_lance_takes_are_read_alone(tmp_path):
    """Lance lists no tags at all where one of them has a name that is not ASCII."""
    uri = str(tmp_path / "t.lance")
    table = lance.write_dataset(pa.table({"id": [0]}), uri)
    for name in ("v1.0-a_b", "ü", "日本"):
        table.tags.create(name, 1)
        assert LanceTables().tagged(uri, name) == 1
    for name in ("nope", "../tags/ü", "", "x" * 300):
        with pytest.raises(NotFound, match=r"Its tags: v1\.0-a_b, ü, 日本") as caught:
            LanceTables().tagged(uri, name)
        assert caught.value.reason == "TAG_NOT_FOUND"
    with pytest.raises(NotFound) as missing:
        LanceTables().tagged(str(tmp_path / "other.lance"), "ü")
    assert missing.value.reason == "TABLE_NOT_FOUND"


def test_a_tag_that_cannot_be_read_is_named(tmp_path):
    table = lance.write_dataset(pa.table({"id": [0]}), tmp_path / "t.lance")
    table.tags.create("torn", 1)
    (tmp_path / "t.lance" / "_refs" / "tags" / "torn.json").write_text("{")
    with pytest.raises(DataLoss, match=r"_refs/tags/torn\.json") as caught:
        LanceTables().tagged(str(tmp_path / "t.lance"), "torn")
    assert caught.value.reason == "TABLE_DAMAGED"


@pytest.mark.parametrize("include_checkpointed", [False, True])
def test_all_rows_come_as_lance_has_them(lake, include_checkpointed):
    found = read(lake, include_checkpointed=include_checkpointed)
    assert found == lance.dataset(lake / "t.lance").to_table()
    assert read(lake, "old", include_checkpointed=include_checkpointed).column("b").to_pylist() == [
        b"a",
        None,
        b"c" * 100,
    ]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"where": "id % 7 = 0"}, [0, 7, 14, 21]),
        ({"where": "s = 's1' AND box.w > 15"}, [16, 19, 22, 25]),
        ({"where": "CASE WHEN id < 3 THEN true ELSE id = 20 END"}, [0, 1, 2, 20]),
        ({"where": "at < now() AND id < 2"}, [0, 1]),
        ({"limit": 3}, [0, 1, 2]),
        ({"limit": 0}, []),
        ({"offset": 26}, [26, 27]),
        ({"offset": 9, "limit": 3}, [9, 10, 11]),
        ({"offset": 2, "limit": 3, "where": "id % 2 = 1"}, [5, 7, 9]),
        ({"offset": 100}, []),
        ({"tag": "before", "offset": 27}, [27, 28, 29]),
        ({"version": 1, "where": "id > 27"}, [28, 29]),
    ],
)
def test_the_rows_that_are_asked_for_come_in_order(lake, fields, expected):
    assert ids(read(lake, **fields)) == expected


@pytest.mark.parametrize("window", [1, 3, 1 << 20])
@pytest.mark.parametrize("where", ["", "id > 3"])
def test_deleted_rows_are_left_out_whatever_the_windows_in_which_is_read(lake, monkeypatch, window, where):
    monkeypatch.setattr(row_reading, "_MOST_ROWS", window)
    monkeypatch.setattr(row_reading, "_BLOB_ROWS", window)
    left = [i for i in range(ROWS) if i % 3 and not 10 <= i < 20 and (not where or i > 3)]
    for offset, limit in ((0, 100), (1, 2), (3, 5), (5, 100), (len(left) - 1, 1)):
        assert ids(read(lake, "holes", where=where, offset=offset, limit=limit)) == left[offset:][:limit]
    assert ids(read(lake, "holes", where=where)) == left
    assert read(lake, "old").column("b").to_pylist() == [b"a", None, b"c" * 100]


def test_columns_come_in_the_order_asked_for_with_ids_and_addresses(lake):
    found = read(
        lake, columns=["box.w", "s", "d"], with_row_id=True, with_row_address=True, where="id IN (5, 25)", batch_size=1
    )

    assert found.column_names == ["box.w", "s", "d", "_rowid", "_rowaddr"]
    assert [column.to_pylist() for column in found.columns[:3]] == [[5, 25], ["s2", "s1"], ["d1", "d1"]]
    assert found.column("_rowaddr").to_pylist() == [5, (2 << 32) + 5]
    assert found.schema.field("d").type == pa.dictionary(pa.int32(), pa.string())


def test_batches_have_as_many_rows_as_asked_for(lake):
    found = read(lake, batch_size=4)
    assert max(len(chunk) for chunk in found.column("id").chunks) == 4
    assert ids(found) == list(range(28))


@pytest.mark.parametrize("where", ["", "n >= 0"])
def test_a_large_dictionary_makes_no_small_batches(tmp_path, where):
    rows = 3000
    texts = pa.array([f"{i:5000}" for i in range(rows)]).dictionary_encode()  # 15 MB, more than a window has
    inner = pa.StructArray.from_arrays([texts], ["t"])
    lance.write_dataset(pa.table({"n": pa.array(range(rows)), "s": texts, "in": inner}), tmp_path / "t.lance")

    found = read(tmp_path, where=where)

    assert found.column("s").num_chunks == 1
    assert (
        found.column("s").to_pylist() == texts.to_pylist() == found.column("in").combine_chunks().field("t").to_pylist()
    )


def test_no_answer_is_larger_than_a_mebibyte_and_the_first_names_the_version(lake):
    async def scenario():
        async with coordinator(lake) as up:
            call = up.ReadRows(tables_pb2.ReadRowsRequest(table=up.ref("wide")))
            answers = [answer async for answer in call]
        rows = pa.ipc.open_stream(b"".join(answer.arrow_ipc for answer in answers)).read_all()
        values = [(len(value), set(value)) for value in rows.column("b").to_pylist()]
        return max(len(answer.arrow_ipc) for answer in answers), [answer.version for answer in answers], values

    largest, versions, values = run(scenario)
    assert largest == arrow_streams.PIECE_BYTES
    assert versions == [1] + [0] * (len(versions) - 1)
    assert values == [(3_000_000, {i}) for i in range(5)]


@pytest.mark.parametrize("where", ["", "id >= 0"])
def test_a_read_that_stalls_holds_few_wide_rows_among_narrow_ones(tmp_path, where):
    texts = ["x"] * 2000 + [str(i) * 4_000_000 for i in range(10)] + ["y"] * 2000
    data = pa.table({"id": range(len(texts)), "t": texts})
    lance.write_dataset(data, tmp_path / "t.lance")
    request = ReadRequest(str(tmp_path / "t.lance"), where=where, batch_bytes=1 << 20)
    rows = []
    for window in open_rows(request, dt.datetime.now(dt.UTC)).windows:
        buffers = {b.address: b.size for part in window for column in part for b in column.buffers() if b is not None}
        assert sum(buffers.values()) < 20 << 20
        rows += [pa.record_batch([part["id"], [len(str(t)) for t in part["t"]]], ["id", "n"]) for part in window]
    read = pa.Table.from_batches(rows)
    assert read["id"].to_pylist() == list(range(len(texts)))
    assert read["n"].to_pylist() == [len(text) for text in texts]


@pytest.mark.long
def test_a_value_that_is_larger_than_any_message_comes_whole(tmp_path):
    values = pa.array([b"x" * 300_000_000, b"y"], pa.large_binary())
    lance.write_dataset(pa.table({"b": values}), tmp_path / "t.lance", enable_stable_row_ids=True)
    found = read(tmp_path)["b"]
    assert [len(value.as_buffer()) for value in found] == [300_000_000, 1]


def test_blobs_come_as_their_bytes(lake):
    assert read(lake, "old").column("b").to_pylist() == [b"a", None, b"c" * 100]


def test_of_a_view_rows_with_values_and_public_columns_come(lake):
    found = read(lake / "views", "v")
    assert found.column_names == ["x", "s"]
    assert found.column("x").to_pylist() == [10 * i for i in range(10)]
    assert found.schema.metadata is None
    assert read(lake / "views", "v", where="x > 70", limit=1).column("x").to_pylist() == [80]


@pytest.mark.parametrize(
    ("table", "fields", "code", "reason", "field"),
    [
        ("t", {"columns": ["nope"]}, "FAILED_PRECONDITION", "COLUMN_NOT_FOUND", ""),
        ("t", {"columns": ["box.nope"]}, "FAILED_PRECONDITION", "COLUMN_NOT_FOUND", ""),
        ("views/v", {"columns": ["__is_set"]}, "FAILED_PRECONDITION", "COLUMN_NOT_FOUND", ""),
        ("t", {"columns": ["id", "id"]}, "INVALID_ARGUMENT", "BAD_COLUMN", "columns"),
        ("t", {"where": "nope = 1"}, "INVALID_ARGUMENT", "INVALID_FILTER", "where"),
        ("t", {"where": "id > 0; drop table t"}, "INVALID_ARGUMENT", "INVALID_FILTER", "where"),
        ("t", {"where": "1 / (id - 5) > 0"}, "FAILED_PRECONDITION", "FILTER_FAILED", ""),
        ("t", {"limit": -1}, "INVALID_ARGUMENT", "BAD_NUMBER", "limit"),
        ("t", {"offset": -1}, "INVALID_ARGUMENT", "BAD_NUMBER", "offset"),
        ("t", {"batch_size": -1}, "INVALID_ARGUMENT", "BAD_NUMBER", "batch_size"),
        ("t", {"version": -1}, "INVALID_ARGUMENT", "BAD_NUMBER", "version"),
        ("t", {"version": 99}, "NOT_FOUND", "VERSION_NOT_FOUND", ""),
        ("t", {"tag": ""}, "INVALID_ARGUMENT", "BAD_REQUEST", "tag"),
        ("t", {"tag": " "}, "INVALID_ARGUMENT", "BAD_REQUEST", "tag"),
        ("t", {"tag": "nope"}, "NOT_FOUND", "TAG_NOT_FOUND", ""),
        ("t", {"tag": "before", "include_checkpointed": True}, "INVALID_ARGUMENT", "BAD_REQUEST", "tag"),
        ("t", {"version": 1, "include_checkpointed": True}, "INVALID_ARGUMENT", "BAD_REQUEST", "version"),
        ("t", {"columns": ["nope"], "include_checkpointed": True}, "FAILED_PRECONDITION", "COLUMN_NOT_FOUND", ""),
        ("views/v", {"include_checkpointed": True}, "FAILED_PRECONDITION", "IS_A_VIEW", ""),
        ("nope", {}, "NOT_FOUND", "TABLE_NOT_FOUND", ""),
        ("", {}, "INVALID_ARGUMENT", "BAD_TABLE_NAME", "table.table"),
        ("__leman_scratch_x", {}, "INVALID_ARGUMENT", "RESERVED_NAME", "table"),
    ],
)
def test_what_cannot_be_read_is_refused_with_a_reason(lake, table, fields, code, reason, field):
    folder, _, name = table.rpartition("/")

    async def scenario():
        async with coordinator(lake / folder) as up:
            return await refusal(up.read(name, **fields))

    assert run(scenario) == (grpc.StatusCode[code], reason, field)


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """32 MB of rows that no compression makes smaller."""
    path = tmp_path_factory.mktemp("large")
    numbers = np.random.default_rng(0).integers(0, 1 << 62, 1 << 22)
    lance.write_dataset(pa.table({"x": numbers}), path / "t.lance", max_rows_per_file=1 << 20)
    return path


def test_a_reader_that_reads_nothing_is_not_read_ahead_for(large, monkeypatch):
    made = []
    pieces = arrow_streams.stream_pieces

    def counted(*arguments):
        mine = [0]
        made.append(mine)
        for piece in pieces(*arguments):
            mine[0] += len(piece)
            yield piece

    monkeypatch.setattr(arrow_streams, "stream_pieces", counted)

    async def scenario():
        async with coordinator(large) as up:
            idle = up.ReadRows(tables_pb2.ReadRowsRequest(table=up.ref("t")))
            assert (await idle.read()).version == 1
            rows = await up.read()
            held = made[0][0]
            idle.cancel()
            return rows.num_rows, held

    rows, held = run(scenario)
    assert rows == 1 << 22
    assert made[1][0] > 32 << 20
    assert held < 16 << 20, "an idle reader's rows wait in storage, not in memory"


def test_more_reads_than_there_are_places_are_refused_and_a_cancelled_one_gives_its_place_back(large):
    async def scenario():
        async with coordinator(large, max_reads=1) as up:
            first = up.ReadRows(tables_pb2.ReadRowsRequest(table=up.ref("t")))
            await first.read()
            refused = await refusal(up.read(limit=1))
            first.cancel()
            return refused, (await with_a_place(lambda: up.read(limit=1))).num_rows

    refused, rows = run(scenario)
    assert refused == (grpc.StatusCode.RESOURCE_EXHAUSTED, "TOO_MANY_READS", "")
    assert rows == 1


def test_a_coordinator_that_stops_says_so_to_its_readers(large):
    async def scenario():
        async with coordinator(large) as up:
            call = up.ReadRows(tables_pb2.ReadRowsRequest(table=up.ref("t")))
            await call.read()
            up.draining.set()

            async def rest():
                while await call.read() is not grpc.aio.EOF:
                    pass

            return await refusal(asyncio.ensure_future(rest()))

    assert run(scenario) == (grpc.StatusCode.UNAVAILABLE, "DRAINING", "")
