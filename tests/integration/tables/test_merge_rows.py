"""MergeRows: what is updated, inserted and deleted, what becomes of computed columns and row ids, and how often."""

from __future__ import annotations

import datetime as dt
import tempfile

import grpc
import lance
import psutil
import pyarrow as pa
import pytest

from leman.v1 import tables_pb2
from leman_core.server.status import error_from_rpc
from tests.integration.commits.commit_helpers import Planner, add_columns, between, make_table, submit
from tests.integration.commits.test_commit_service import refusal, run
from tests.integration.tables.table_helpers import coordinator, data_files, referenced, stream_of
from tests.integration.tables.test_update_rows import MEANWHILE, by_id
from tests.integration.types.type_cases import CASES


@pytest.fixture(autouse=True)
def set_aside(tmp_path, monkeypatch):
    """Where rows are set aside: nothing is left there."""
    folder = tmp_path / "set-aside"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert list(folder.glob("leman-merge-*")) == []


@pytest.fixture
def table(tmp_path):
    """Two fragments of ten rows; of the computed columns `c` has values, `far` rests on it, `other` on `id`."""
    table = make_table(str(tmp_path / "t.lance"), 2)
    add_columns(table.uri, ["far"], inputs="c")
    add_columns(table.uri, ["other"], inputs="id")
    for column in ("c", "far", "other"):
        submit(Planner(table, column).request(0, 1))
    return table


def merge(table, rows, **header):
    async def scenario():
        async with coordinator(table.uri.rpartition("/")[0]) as up:
            return await up.merge(rows, **header)

    return run(scenario)


def given(*ids, x=1000):
    return pa.table({"id": pa.array(ids, pa.int64()), "x": pa.array([x + i for i in ids], pa.int64())})


UPDATE = {"update_matched": True, "insert_not_matched": False}
INSERT = {"update_matched": False, "insert_not_matched": True}
PATTERN = "regexp_match('a', '(') IS NULL"
DELETE = {"update_matched": False, "insert_not_matched": False, "delete_not_matched_by_source": True}


@pytest.mark.parametrize(
    ("rules", "updated", "inserted", "deleted"),
    [
        ({}, [3, 15], [100], []),
        (UPDATE, [3, 15], [], []),
        (INSERT, [], [100], []),
        (DELETE, [], [], [i for i in range(20) if i not in (3, 15)]),
        ({**DELETE, "update_matched": True, "delete_where": "id < 5"}, [3, 15], [], [0, 1, 2, 4]),
        ({"update_where": "source.x > target.x + 1000 AND target.id < 10"}, [], [100], []),
        ({"update_where": "target.id < 10"}, [3], [100], []),
    ],
)
def test_rows_are_brought_together(table, rules, updated, inserted, deleted):
    before, ids = by_id(table, "x", "c", "far", "other"), by_id(table, "_rowid")
    version = table.open().version

    answer = merge(table, given(3, 15, 100), **rules)

    counts = answer.rows_updated, answer.rows_inserted, answer.rows_deleted
    assert (answer.version, counts) == (version + 1, (len(updated), len(inserted), len(deleted)))
    new = {"c": None, "far": None}  # what rests on `x` has no value until it is computed
    expected = {i: {**row, **({"x": 1000 + i, **new} if i in updated else {})} for i, row in before.items()}
    expected |= {i: {"x": 1000 + i, **new, "other": None} for i in inserted}
    assert by_id(table, "x", "c", "far", "other") == {i: row for i, row in expected.items() if i not in deleted}
    assert {i: row for i, row in by_id(table, "_rowid").items() if i in ids}.items() <= ids.items()
    assert data_files(table.uri) >= referenced(table.uri)
    table.open().validate()


def test_a_merge_of_the_same_keys_is_done_again_and_again(table):
    for round_ in range(5):
        answer = merge(table, given(3, 15, 100, x=1000 * round_))
        assert (answer.rows_updated, answer.rows_inserted) == ((3, 0) if round_ else (2, 1))
        found = by_id(table, "x")
        assert [found[i]["x"] for i in (3, 15, 100)] == [1000 * round_ + i for i in (3, 15, 100)]
        assert table.open().count_rows() == 21


@pytest.mark.long
def test_many_merges_hold_no_more_memory_than_few(table):
    process = psutil.Process()

    async def scenario():
        held = []
        async with coordinator(table.uri.rpartition("/")[0]) as up:
            for round_ in range(400):
                await up.merge(given(3, 15, 100 + round_ % 5, x=1000 * round_))
                held.append(process.memory_info().rss)
        return held

    held = run(scenario)
    assert held[-1] < held[100] + (64 << 20)
    assert table.open().count_rows() == 25


def test_of_an_updated_row_columns_that_are_not_sent_stay(tmp_path):
    made = pa.table({"a": [1, 2], "b": ["x", "y"], "s": ["one", "two"], "n": [1.5, None]})
    lance.write_dataset(made, tmp_path / "t.lance", enable_stable_row_ids=True)

    async def scenario():
        async with coordinator(tmp_path) as up:
            sent = pa.table({"n": pa.array([9], pa.int8()), "b": ["y"], "a": pa.array([2], pa.int8())})
            await up.merge(sent, on=["a", "b"])
            await up.merge(pa.table({"a": [1], "b": ["z"]}), on=["a", "b"])
            return (await up.read()).to_pylist()

    assert run(scenario) == [
        {"a": 1, "b": "x", "s": "one", "n": 1.5},
        {"a": 2, "b": "y", "s": "two", "n": 9.0},
        {"a": 1, "b": "z", "s": None, "n": None},
    ]


def test_a_condition_on_times_holds_as_they_are_or_is_refused(tmp_path):
    """Half an hour before the call and after it, in a column with a time zone and in one without."""
    now = dt.datetime.now(dt.UTC)
    times = pa.array([now - dt.timedelta(minutes=30), now + dt.timedelta(minutes=30)], pa.timestamp("us", "UTC"))
    columns = {"local": times.cast(pa.timestamp("us", "Europe/Zurich")), "plain": times.cast(pa.timestamp("us"))}
    lance.write_dataset(pa.table({"id": [1, 2], **columns}), tmp_path / "t.lance", enable_stable_row_ids=True)

    async def scenario():
        async with coordinator(tmp_path) as up:
            refused = [
                await refusal(up.merge(pa.table({"id": [1, 2]}), update_where=f"{side}.local {compared}"))
                for side in ("source", "target")
                for compared in ("< now()", "< '2024-06-01'", "between now() and now()")
            ]
            number = f"cast(target.local as bigint) < {int(now.timestamp() * 1e6)}"
            done = [
                (await up.merge(pa.table({"id": [1, 2]}), update_where=where)).rows_updated
                for where in ("target.plain < now()", "target.plain > timestamp '2024-06-01'", number)
            ]
            return refused, done

    refused, done = run(scenario)
    assert set(refused) == {(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FILTER", "header.update_where")}
    assert done == [1, 2, 1]


def test_a_key_that_is_null_is_the_same_as_no_other(table):
    answer = merge(table, pa.table({"id": pa.array([None, 3], pa.int64()), "x": [1, 2]}))
    assert (answer.rows_inserted, answer.rows_updated) == (1, 1)


def test_nothing_to_do_makes_no_version_and_leaves_no_file(table):
    version, files = table.open().version, data_files(table.uri)
    for rows, rules in ((given(100), UPDATE), (given(3), INSERT), (given(), {}), (given(*range(20)), DELETE)):
        answer = merge(table, rows, **rules)
        assert (answer.version, table.open().version, data_files(table.uri)) == (version, version, files)


@pytest.mark.parametrize(
    ("rows", "header", "code", "reason", "field"),
    [
        (given(3), {"on": []}, "INVALID_ARGUMENT", "MISSING_FIELD", "header.on"),
        (given(3), {"on": ["id", "id"]}, "INVALID_ARGUMENT", "BAD_COLUMN", "header.on"),
        (given(3), {"on": ["c"]}, "INVALID_ARGUMENT", "BAD_COLUMN", "header.on"),
        (given(3), {"request_id": ""}, "INVALID_ARGUMENT", "MISSING_FIELD", "header.request_id"),
        (given(3), {**UPDATE, "update_matched": False}, "INVALID_ARGUMENT", "MISSING_FIELD", "header.update_matched"),
        (given(3), {**DELETE, "update_where": "true"}, "INVALID_ARGUMENT", "BAD_REQUEST", "header.update_where"),
        (given(3), {**UPDATE, "delete_where": "true"}, "INVALID_ARGUMENT", "BAD_REQUEST", "header.delete_where"),
        (given(3), {"update_where": "x >"}, "INVALID_ARGUMENT", "INVALID_FILTER", "header.update_where"),
        (given(3), {"update_where": "true; drop"}, "INVALID_ARGUMENT", "INVALID_FILTER", "header.update_where"),
        (
            given(3),
            {"update_where": "source.x > 1 LIMIT 1"},
            "INVALID_ARGUMENT",
            "INVALID_FILTER",
            "header.update_where",
        ),
        (given(3), {"update_where": "source.nope > 1"}, "INVALID_ARGUMENT", "INVALID_FILTER", "header.update_where"),
        (given(3), {**DELETE, "delete_where": "nope > 1"}, "INVALID_ARGUMENT", "INVALID_FILTER", "header.delete_where"),
        (given(3), {**DELETE, "delete_where": PATTERN}, "INVALID_ARGUMENT", "INVALID_FILTER", "header.delete_where"),
        (
            given(3),
            {"update_matched": True, "update_where": PATTERN},
            "INVALID_ARGUMENT",
            "INVALID_FILTER",
            "header.update_where",
        ),
        (given(5), {"update_where": "1 / (source.id - 5) > 0"}, "FAILED_PRECONDITION", "FILTER_FAILED", ""),
        (given(3, 3), {}, "FAILED_PRECONDITION", "DUPLICATE_KEY", ""),
        (pa.table({"id": [3], "c": [1]}), {}, "FAILED_PRECONDITION", "COLUMN_IS_COMPUTED", ""),
        (pa.table({"id": [3], "no": [1]}), {}, "FAILED_PRECONDITION", "COLUMN_NOT_FOUND", ""),
        (pa.table({"id": ["3"]}), {}, "FAILED_PRECONDITION", "TYPE_MISMATCH", ""),
        (given(*range(200)), {}, "INVALID_ARGUMENT", "MERGE_TOO_LARGE", "arrow_ipc"),
        (pa.table({"id": pa.nulls(300)}), {}, "INVALID_ARGUMENT", "MERGE_TOO_LARGE", "arrow_ipc"),
        (given(3), {"table": "nope"}, "NOT_FOUND", "TABLE_NOT_FOUND", ""),
    ],
)
def test_what_cannot_be_merged_is_refused_with_a_reason(table, rows, header, code, reason, field):
    before, version, files = by_id(table, "x", "c"), table.open().version, data_files(table.uri)

    async def scenario():
        async with coordinator(table.uri.rpartition("/")[0], max_merge_bytes=2000) as up:
            name = header.pop("table", "t") if "table" in header else "t"
            return await refusal(up.merge(rows, name, **header))

    assert run(scenario) == (grpc.StatusCode[code], reason, field)
    assert (by_id(table, "x", "c"), table.open().version, data_files(table.uri)) == (before, version, files)


def test_keys_that_cannot_be_matched_are_refused_at_once_by_name(tmp_path):
    keys = {
        "json": pa.array(["1", "2"]).cast(pa.json_()),
        "list": pa.array([[1], [2]]),
        "struct": pa.array([{"a": 1}, {"a": 2}]),
        "blob": pa.array([b"a", b"b"], pa.large_binary()),
        'quo"te': pa.array([1, 2]),
    }
    blob = pa.field("blob", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    fields = [blob if name == "blob" else pa.field(name, values.type) for name, values in keys.items()]
    rows = pa.table(list(keys.values()), schema=pa.schema(fields))
    lance.write_dataset(rows, tmp_path / "t.lance")

    async def scenario():
        async with coordinator(str(tmp_path)) as up:
            for name in (*keys, "struct.a", "nope"):
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await up.merge(rows, on=[name])
                error = error_from_rpc(caught.value)
                assert (error.reason, error.field) == ("BAD_COLUMN", "header.on"), name
                assert f"'{name}'" in error.message

    run(scenario)


def test_a_stream_that_is_cut_off_changes_nothing(table):
    async def scenario():
        async with coordinator(table.uri.rpartition("/")[0]) as up:
            header = tables_pb2.MergeRowsHeader(table=up.ref("t"), on=["id"], update_matched=True, request_id="cut")
            pieces = stream_of(given(*range(20)), 64)
            messages = [tables_pb2.MergeRowsRequest(header=header)]
            messages += [tables_pb2.MergeRowsRequest(arrow_ipc=piece) for piece in pieces[:-1]]
            return await refusal(up.MergeRows(iter(messages)))

    assert run(scenario)[1] == "BAD_STREAM"
    assert [row["x"] for row in by_id(table, "x").values()] == [*range(20)]


def test_a_repeated_request_merges_nothing_more_also_after_a_restart(table):
    async def scenario():
        database = table.uri.rpartition("/")[0]
        async with coordinator(database) as up:
            answers = [await up.merge(given(3, 100), request_id="mine") for _ in range(2)]
            others = [await refusal(up.merge(given(3, 101), request_id="mine"))]
            await up.delete("id = 100")
        async with coordinator(database) as up:
            others.append(await refusal(up.merge(given(3, 101), request_id="mine")))
            answers.append(await up.merge(given(3, 100), request_id="mine"))
            others.append(await refusal(up.merge(given(3), request_id="mine", on=["x"])))
        return answers, {other[1] for other in others}

    answers, others = run(scenario)
    assert answers[0] == answers[1] == answers[2]
    assert (answers[0].rows_inserted, answers[0].rows_updated, others) == (1, 1, {"REQUEST_ID_REUSED"})
    assert not {100, 101} & by_id(table, "x").keys()


@pytest.mark.parametrize("meanwhile", MEANWHILE.values(), ids=MEANWHILE)
def test_what_others_commit_between_look_and_commit_is_not_lost(table, monkeypatch, meanwhile):
    expected = {}

    def action():
        meanwhile(table)
        expected.update(by_id(table, "x"))

    between(monkeypatch, action)
    merge(table, given(0, 1, 2, 13))

    assert by_id(table, "x") == {**expected, **{i: {"x": 1000 + i} for i in (0, 1, 2, 13)}}
    table.open().validate()


def test_all_types_of_columns_are_merged(tmp_path):
    """Each type once in an unmerged column, and once merged."""
    columns = {f"f{i}": case.make() for i, case in enumerate(CASES) if case.array is None}
    made = pa.table({"id": pa.array(range(5), pa.int64()), **columns})
    sent = made.set_column(0, "id", pa.array([5, 6, 7, 1, 0], pa.int64()))

    async def scenario():
        async with coordinator(tmp_path) as up:
            await up.create(made.schema)
            await up.append(made)
            await up.merge(made.select(["id"]), insert_not_matched=False)  # nothing but keys: all rows move
            moved = (await up.read()).sort_by("id")
            await up.merge(sent)
            return moved, (await up.read()).sort_by("id")

    moved, merged = run(scenario)
    assert moved.to_pylist() == made.to_pylist()
    expected = {row["id"]: row for row in [*made.to_pylist(), *sent.to_pylist()]}
    assert merged.to_pylist() == [expected[i] for i in range(8)]


def test_json_can_be_asked_whatever_way_it_came(tmp_path):
    """Lance stores JSON in a binary form: text in its place would fail each filter of the table."""

    def rows(ids, texts):
        return pa.table({"id": ids, "j": pa.array(texts, pa.string()).cast(pa.json_())})

    first = rows([0, 1, 2, 3], ['{"k":1}', None, "[]", '{"k":1}'])
    value = b"".join(stream_of(rows([0], ['{"k": 2}']).select(["j"])))

    async def scenario():
        async with coordinator(tmp_path) as up:
            await up.create(first.schema)
            await up.append(first)
            await up.update("id = 1", values=value)
            await up.merge(rows([2, 9], ['{"k":2}', '{"k":2}']))
            twos = await up.read(where="json_get_int(j, 'k') = 2")
            await up.merge(rows(range(4), ['{"k":3}'] * 4))  # all rows that a fragment has
            threes = await up.read(where="json_get_int(j, 'k') = 3")
            return sorted(twos["id"].to_pylist()), sorted(threes["id"].to_pylist())

    assert run(scenario) == ([1, 2, 9], [0, 1, 2, 3])


@pytest.mark.parametrize("file_format", ["2.1", "2.2"])
def test_blobs_are_updated_and_merged_of_either_kind(tmp_path, file_format):
    field = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    field = field if file_format == "2.1" else lance.blob_field("b")
    values = [b"zero", None, b"two", b"three"]
    blobs = pa.array(values, pa.large_binary()) if file_format == "2.1" else lance.blob_array(values)
    made = pa.table(
        [pa.array(range(4)), pa.array([0] * 4), blobs], schema=pa.schema([("id", pa.int64()), ("n", pa.int64()), field])
    )
    lance.write_dataset(made, tmp_path / "t.lance", enable_stable_row_ids=True, data_storage_version=file_format)

    async def scenario():
        async with coordinator(tmp_path) as up:
            await up.update("id < 2", expressions={"n": "n + 1"})
            await up.update("id = 3", values=b"".join(stream_of(pa.table({"b": [b"new"]}))))
            await up.merge(pa.table({"id": [2, 9], "b": [b"merged", b"added"]}))
            await up.merge(pa.table({"id": [0], "n": [7]}))
            return (await up.read()).sort_by("id").to_pydict()

    found = run(scenario)
    assert found["id"] == [0, 1, 2, 3, 9]
    assert found["n"] == [7, 1, 0, 0, None]
    assert found["b"] == [b"zero", None, b"merged", b"new", b"added"]


def test_what_is_set_aside_is_removed_where_the_caller_goes(table, set_aside):
    """The call is cancelled while its rows are sent."""

    async def scenario():
        async with coordinator(table.uri.rpartition("/")[0]) as up:
            call = up.MergeRows()
            header = tables_pb2.MergeRowsHeader(table=up.ref("t"), on=["id"], update_matched=True, request_id="gone")
            await call.write(tables_pb2.MergeRowsRequest(header=header))
            await call.write(tables_pb2.MergeRowsRequest(arrow_ipc=b"".join(stream_of(given(1))[:1])))
            call.cancel()

    run(scenario)
    assert list(set_aside.glob("leman-merge-*")) == []
