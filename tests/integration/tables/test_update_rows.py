"""UpdateRows: which rows get which values, what becomes of computed columns and row ids, how often, and beside whom."""

from __future__ import annotations

import datetime as dt
import re

import grpc
import lance
import pyarrow as pa
import pytest

from leman_coordinator.lance_io import row_rewrites
from leman_coordinator.lance_io.row_staging import RowFiles
from leman_core.model.service_errors import Unavailable
from leman_core.storage.scan import FragmentReader
from tests.integration.commits.commit_helpers import Planner, add_columns, between, make_table, submit
from tests.integration.commits.test_commit_queues import fail_after_commits, failing
from tests.integration.commits.test_commit_service import refusal, run
from tests.integration.tables.table_helpers import coordinator, data_files, referenced, stream_of
from tests.integration.types.type_cases import CASES

MEANWHILE = {
    "column files": lambda table: submit(Planner(table).request(0, 1)),
    "delete": lambda table: table.open().delete("id = 1"),
    "update": lambda table: table.open().update({"x": "99"}, where="id = 2"),
    "compaction": lambda table: table.open().optimize.compact_files(target_rows_per_fragment=100),
    "column": lambda table: add_columns(table.uri, ["late"]),
}


@pytest.fixture
def table(tmp_path):
    """Four fragments of ten rows; of the computed columns `c` has values, `far` rests on it, `other` on `id`."""
    table = make_table(str(tmp_path / "t.lance"))
    add_columns(table.uri, ["far"], inputs="c")
    add_columns(table.uri, ["other"], inputs="id")
    for column in ("c", "far", "other"):
        submit(Planner(table, column).request(0, 1, 2, 3))
    return table


def update(table, where, **fields):
    async def scenario():
        async with coordinator(table.uri.rpartition("/")[0]) as up:
            return await up.update(where, **fields)

    return run(scenario)


def one_row(**values):
    return b"".join(stream_of(pa.table({name: [value] for name, value in values.items()})))


NOT_UTF8 = one_row(zzzz=1).replace(b"zzzz", b"z\xc4zz")


def compressed(**values):
    rows, sink = pa.table({name: [value] for name, value in values.items()}), pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(rows)
    return sink.getvalue().to_pybytes()


def by_id(table, *columns):
    return {row.pop("id"): row for row in table.open().to_table(columns=["id", *columns]).to_pylist()}


@pytest.mark.parametrize(
    ("where", "fields", "changed"),
    [
        ("id IN (3, 15)", {"expressions": {"x": "x + 1000"}}, {3: 1003, 15: 1015}),
        ("id < 10", {"values": one_row(x=7)}, dict.fromkeys(range(10), 7)),
        ("true", {"expressions": {"x": "CASE WHEN x > 20 THEN 1 ELSE 0 END"}}, {i: int(i > 20) for i in range(40)}),
        ("id = 39", {"expressions": {"x": "cast(NULL as bigint)"}}, {39: None}),
    ],
)
def test_rows_get_values_keep_their_ids_and_leave_stale_ones_behind(table, where, fields, changed):
    before, ids = by_id(table, "x", "c", "far", "other"), by_id(table, "_rowid")
    version = table.open().version

    answer = update(table, where, **fields)

    assert (answer.version, answer.rows_updated) == (version + 1, len(changed))
    none = {"c": None, "far": None}  # what rests on `x` has no value until it is computed
    expected = {i: {**row, **({"x": changed[i], **none} if i in changed else {})} for i, row in before.items()}
    assert by_id(table, "x", "c", "far", "other") == expected
    assert by_id(table, "_rowid") == ids
    assert data_files(table.uri) >= referenced(table.uri)
    table.open().validate()


def test_nothing_to_update_makes_no_version_and_leaves_no_file(table):
    version, files = table.open().version, data_files(table.uri)
    answer = update(table, "id > 1000", expressions={"x": "1"})
    assert (answer.version, answer.rows_updated) == (version, 0)
    assert (table.open().version, data_files(table.uri)) == (version, files)


@pytest.mark.parametrize(
    ("fields", "code", "reason", "field"),
    [
        ({"where": ""}, "INVALID_ARGUMENT", "MISSING_FIELD", "where"),
        ({"where": "id ="}, "INVALID_ARGUMENT", "INVALID_FILTER", "where"),
        ({"where": "regexp_match('a', '(') is null"}, "INVALID_ARGUMENT", "INVALID_FILTER", "where"),
        ({"expressions": {}}, "INVALID_ARGUMENT", "MISSING_FIELD", "expressions"),
        ({"expressions": {"x": ""}}, "INVALID_ARGUMENT", "MISSING_FIELD", "expressions"),
        ({"expressions": {"x": "x +"}}, "INVALID_ARGUMENT", "INVALID_EXPRESSION", "expressions"),
        ({"expressions": {"x": "random()"}}, "INVALID_ARGUMENT", "INVALID_EXPRESSION", "expressions"),
        (
            {"expressions": {"x": "length(regexp_match('a', '(')[1])"}},
            "INVALID_ARGUMENT",
            "INVALID_EXPRESSION",
            "expressions",
        ),
        ({"expressions": {"x": "nope + 1"}}, "FAILED_PRECONDITION", "INPUT_COLUMN_MISSING", ""),
        ({"values": b"nonsense", "expressions": {}}, "INVALID_ARGUMENT", "BAD_STREAM", "values"),
        ({"values": NOT_UTF8, "expressions": {}}, "INVALID_ARGUMENT", "BAD_STREAM", "values"),
        ({"values": compressed(x=1), "expressions": {}}, "INVALID_ARGUMENT", "BAD_STREAM", "values"),
        ({"values": one_row(x=1)}, "INVALID_ARGUMENT", "BAD_COLUMN", "expressions"),
        ({"expressions": {"nope": "1"}}, "FAILED_PRECONDITION", "COLUMN_NOT_FOUND", ""),
        ({"expressions": {"c": "1"}}, "FAILED_PRECONDITION", "COLUMN_IS_COMPUTED", ""),
        ({"expressions": {"x": "'text'"}}, "FAILED_PRECONDITION", "TYPE_MISMATCH", ""),
        ({"expressions": {"x": "10 / (id - 5)"}}, "FAILED_PRECONDITION", "EXPRESSION_FAILED", ""),
        ({"where": "1 / (id - 5) > 0"}, "FAILED_PRECONDITION", "FILTER_FAILED", ""),
        ({"table": "nope"}, "NOT_FOUND", "TABLE_NOT_FOUND", ""),
    ],
)
def test_what_cannot_be_updated_is_refused_with_a_reason(table, fields, code, reason, field):
    before, version, files = by_id(table, "x", "c"), table.open().version, data_files(table.uri)

    async def scenario():
        async with coordinator(table.uri.rpartition("/")[0]) as up:
            return await refusal(up.update(**{"where": "true", "expressions": {"x": "x"}, **fields}))

    assert run(scenario) == (grpc.StatusCode[code], reason, field)
    assert (by_id(table, "x", "c"), table.open().version, data_files(table.uri)) == (before, version, files)


def test_a_repeated_request_updates_nothing_more_also_after_a_restart(table):
    again = {"expressions": {"x": "x + 100"}, "request_id": "mine"}

    async def scenario():
        database = table.uri.rpartition("/")[0]
        async with coordinator(database) as up:
            answers = [await up.update("id < 3", **again) for _ in range(2)]
        async with coordinator(database) as up:
            answers.append(await up.update("id < 3", **again))
            other = await refusal(up.update("id < 4", **again))
        return answers, other[1]

    answers, other = run(scenario)
    assert answers[0] == answers[1] == answers[2]
    assert (answers[0].rows_updated, other) == (3, "REQUEST_ID_REUSED")
    assert [by_id(table, "x")[i]["x"] for i in range(4)] == [100, 101, 102, 3]


@pytest.mark.parametrize("meanwhile", MEANWHILE.values(), ids=MEANWHILE)
def test_what_others_commit_between_look_and_commit_is_not_lost(table, monkeypatch, meanwhile):
    """Lance refuses an update over commits that touched its rows: it is tried again on what they made."""
    expected = {}

    def action():
        meanwhile(table)
        expected.update(by_id(table, "x"))

    between(monkeypatch, action)
    files = data_files(table.uri)
    answer = update(table, "id IN (0, 1, 2, 13)", expressions={"x": "x + 1000"})

    for i in {0, 1, 2, 13} & expected.keys():
        expected[i]["x"] += 1000
    assert by_id(table, "x") == expected
    assert answer.rows_updated == len({0, 1, 2, 13} & expected.keys())
    assert {name for name in data_files(table.uri) - files if name.startswith("rows-")} <= referenced(table.uri)
    table.open().validate()


def test_an_index_finds_what_a_column_has_now(table):
    table.open().create_scalar_index("x", "BTREE")
    update(table, "id = 3", expressions={"x": "5000"})
    found = {x: table.open().to_table(filter=f"x = {x}").column("id").to_pylist() for x in (3, 5000, 4)}
    assert found == {3: [], 5000: [3], 4: [4]}


@pytest.mark.parametrize("stable", [True, False])
def test_without_stable_row_ids_rows_are_updated_too(tmp_path, stable):
    rows = pa.table({"id": pa.array(range(20), pa.int64())})
    lance.write_dataset(rows, tmp_path / "t.lance", max_rows_per_file=7, enable_stable_row_ids=stable)

    async def scenario():
        async with coordinator(tmp_path) as up:
            return await up.update("id % 7 = 3", expressions={"id": "-id"})

    assert run(scenario).rows_updated == 3
    assert sorted(lance.dataset(tmp_path / "t.lance").to_table()["id"].to_pylist())[:4] == [-17, -10, -3, 0]


def test_all_types_of_columns_move_with_their_rows_and_get_values(tmp_path):
    """Each type once in a column that is not updated, and once updated, by a value and by an expression."""
    cases = [case for case in CASES if case.array is None]
    names = {f"f{i}": case for i, case in enumerate(cases)}
    columns = {name: case.make() for name, case in names.items()}
    made = pa.table({"id": pa.array(range(5), pa.int64()), **columns})
    given = {name: array.slice(0, 1) for name, array in columns.items()}

    async def scenario():
        async with coordinator(tmp_path) as up:
            await up.create(made.schema)
            await up.append(made)
            await up.update("id < 3", expressions={"id": "id + 100"})
            moved = (await up.read()).sort_by("id")
            await up.update("id >= 3", values=b"".join(stream_of(pa.table(given))))
            return moved, await up.read(where="id >= 3")

    moved, updated = run(scenario)
    before = made.drop_columns("id").to_pylist()
    assert moved.drop_columns("id").to_pylist() == [*before[3:], *before[:3]]
    first = made.slice(0, 1).drop_columns("id").to_pylist()[0]
    assert updated.drop_columns("id").to_pylist() == [first] * 5


def test_a_large_value_for_many_rows_is_held_a_few_times(tmp_path, monkeypatch):
    lance.write_dataset(pa.table({"id": range(64), "text": ["x"] * 64}), tmp_path / "t.lance")
    written, write = [], RowFiles.write
    monkeypatch.setattr(RowFiles, "write", lambda self, batch: written.append(batch.nbytes) or write(self, batch))

    async def scenario():
        async with coordinator(tmp_path) as up:
            return await up.update("id > 0", values=one_row(text="ü" * (1 << 19)))

    assert run(scenario).rows_updated == 63
    assert (len(written), max(written) <= 17 << 20) == (5, True)
    texts = lance.dataset(tmp_path / "t.lance").to_table()["text"].to_pylist()
    assert (texts[0], set(texts[1:])) == ("x", {"ü" * (1 << 19)})


@pytest.mark.parametrize(
    ("where", "expression", "reason"),
    [("b > 0", "a", "INVALID_FILTER"), ("a > 0", "b + 1", "INPUT_COLUMN_MISSING"), ("b > 0", "", "INVALID_FILTER")],
    ids=["filter", "expression", "filter of a deletion"],
)
def test_a_column_that_goes_after_the_call_was_checked_is_named(tmp_path, monkeypatch, where, expression, reason):
    made = lance.write_dataset(pa.table({"a": [1, 2], "b": [1, 2]}), tmp_path / "t.lance")
    name = "pinned_values" if expression else "pinned_condition"
    check = getattr(row_rewrites, name)

    def checked(*args):
        found = check(*args)
        made.drop_columns(["b"])
        return found

    monkeypatch.setattr(row_rewrites, name, checked)

    async def scenario():
        async with coordinator(tmp_path) as up:
            return await refusal(up.update(where, expressions={"a": expression}) if expression else up.delete(where))

    assert run(scenario)[1] == reason


def test_a_storage_that_fails_once_is_no_fault_of_an_expression(table, monkeypatch):
    failures, read = [Unavailable("STORE_UNAVAILABLE", "gone for a moment")], FragmentReader.read

    def failing(self, *args, **options):
        if failures:
            raise failures.pop()
        yield from read(self, *args, **options)

    monkeypatch.setattr(FragmentReader, "read", failing)

    async def scenario():
        async with coordinator(table.uri.rpartition("/")[0]) as up:
            return await refusal(up.update("id = 3", expressions={"x": "x + 1"}))

    assert run(scenario)[1] == "STORE_UNAVAILABLE"


CHANGES = {
    "append": lambda up: up.append(pa.table({"id": [900], "x": [1]})),
    "update": lambda up: up.update("id < 5", expressions={"x": "x + 1"}),
    "delete": lambda up: up.delete("id < 5"),
    "merge": lambda up: up.merge(pa.table({"id": [1, 901], "x": [70, 80]})),
}


@pytest.mark.parametrize("commits", [True, False], ids=["stored", "not stored"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_which_the_store_lost_the_answer_is_made_once(table, monkeypatch, change, commits):
    async def scenario(make):
        async with coordinator(table.uri.rpartition("/")[0]) as up:
            await make(up)

    def content():
        return table.open().to_table(["id", "x"]).sort_by("id").to_pylist()

    before = content()
    version = table.open().version
    calls = failing(monkeypatch, commits=commits)
    run(lambda: scenario(CHANGES[change]))
    monkeypatch.undo()
    assert (table.open().version, len(calls)) == (version + 1, 1 if commits else 2)
    expected = {
        "append": [*before, {"id": 900, "x": 1}],
        "update": [{**row, "x": row["x"] + (row["id"] < 5)} for row in before],
        "delete": [row for row in before if row["id"] >= 5],
        "merge": [{**row, "x": 70} if row["id"] == 1 else row for row in before] + [{"id": 901, "x": 80}],
    }
    assert content() == expected[change]


@pytest.mark.parametrize("looks", [1, 99], ids=["once", "for long"])
def test_rows_of_which_the_store_lost_the_answer_stay_where_it_cannot_be_read_after_that(table, monkeypatch, looks):
    """Their files went, although the table referred to them."""

    async def scenario():
        async with coordinator(table.uri.rpartition("/")[0], version_conflict_max_retries=3) as up:
            return (await refusal(CHANGES["append"](up)))[1] if looks > 1 else await CHANGES["append"](up)

    before = table.open().count_rows()
    failing(monkeypatch, commits=True)
    left = fail_after_commits(monkeypatch, [Unavailable("STORE_UNAVAILABLE", "gone for a moment")] * looks)
    answer = run(scenario)
    monkeypatch.undo()
    if looks > 1:
        assert answer == "COMMIT_UNKNOWN"
    else:
        assert (left, answer.rows_added) == ([], 1)
    assert table.open().to_table()["id"].to_pylist()[before:] == [900]


def test_now_is_the_time_of_the_call(tmp_path):
    lance.write_dataset(pa.table({"id": [1], "at": pa.array([None], pa.timestamp("us"))}), tmp_path / "t.lance")

    async def scenario():
        async with coordinator(tmp_path) as up:
            await up.update("true", expressions={"at": "now()"})
            return (await up.read())["at"][0].as_py()

    began = dt.datetime.now(dt.UTC).replace(tzinfo=None)
    assert began <= run(scenario) <= dt.datetime.now(dt.UTC).replace(tzinfo=None)


def test_expressions_change_no_number_and_no_moment_on_the_way_into_their_column(tmp_path):
    """A double that would be rounded, a time that would get a zone, lose one, or lose its time of day is refused."""
    ten, long, zurich = pa.decimal128(10, 2), pa.decimal128(38, 0), pa.timestamp("us", "Europe/Zurich")
    columns = {
        "d": ten,
        "l": long,
        "n": pa.int64(),
        "at": pa.timestamp("us"),
        "tz": zurich,
        "day": pa.date32(),
        "f": pa.float64(),
    }
    nulls = pa.table([pa.array([1]), *(pa.nulls(1, kind) for kind in columns.values())], names=["id", *columns])
    lance.write_dataset(nulls, tmp_path / "t.lance")
    noon, zone = "2024-07-01 12:00:00", "'Timestamp(Microsecond, Some(\"Europe/Zurich\"))'"
    digits = "123456789012345678901234567890"
    mismatch = (grpc.StatusCode.FAILED_PRECONDITION, "TYPE_MISMATCH", "")
    invalid = (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_EXPRESSION", "expressions")
    refusals = [
        *(({"d": sql}, mismatch) for sql in ("1.239", "1.25", "cast(1 as double)", "100000000")),
        *(({"l": sql}, invalid) for sql in (digits, f"-{digits}", f"l + {digits}", "1" * 39, "12345678901234567.89")),
        ({"l": f"cast({digits} as decimal(38, 0))"}, invalid),
        ({"n": "9007199254740993.0"}, invalid),
        ({"n": "1.5"}, mismatch),
        *(({"f": sql}, invalid) for sql in ("1e400", "f - 1e309")),
        *(({"tz": sql}, mismatch) for sql in ("at", f"timestamp '{noon}'", "date '2024-07-01'")),
        *(({"at": "tz"}, mismatch), ({"day": "at"}, mismatch), ({"day": "tz"}, mismatch)),
    ]
    taken = {
        "d": "5",
        "l": f"cast('{digits}' as decimal(38, 0))",
        "n": "9223372036854775807",
        "at": "timestamp '2024-07-01 12:00'",
        "tz": f"arrow_cast('{noon}', {zone})",
        "day": f"cast(timestamp '{noon}' as date)",
    }
    clocks = {"tz": "now()", "at": "now() - interval '1 day'", "day": "now()"}

    async def scenario():
        async with coordinator(tmp_path) as up:
            for expressions, _ in refusals:
                yield expressions, await refusal(up.update("true", expressions=expressions))
            await up.update("true", expressions=taken)
            yield "taken", (await up.read()).to_pylist()[0]
            await up.update("true", expressions=clocks)
            yield "clocks", (await up.read()).to_pylist()[0]

    async def collected():
        return [pair async for pair in scenario()]

    *refused, (_, row), (_, then) = run(collected)
    assert refused == refusals
    moment = dt.datetime(2024, 7, 1, 12)
    assert (row["d"], row["l"], row["n"]) == (5, int(digits), 2**63 - 1)
    assert (row["at"], row["tz"].astimezone(dt.UTC), row["day"]) == (
        moment,
        (moment - dt.timedelta(hours=2)).replace(tzinfo=dt.UTC),
        moment.date(),
    )
    assert then["tz"].replace(tzinfo=None) != then["at"]
    assert then["tz"].astimezone(dt.UTC).replace(tzinfo=None) - then["at"] == dt.timedelta(days=1)


def test_the_cast_that_a_refusal_of_an_expression_advises_is_taken(tmp_path):
    columns = {"b": pa.binary(), "s": pa.string(), "f": pa.float64(), "n": pa.int32(), "d": pa.decimal128(10, 2)}
    columns["at"] = pa.timestamp("us")
    nulls = pa.table([pa.array([1]), *(pa.nulls(1, kind) for kind in columns.values())], names=["id", *columns])
    lance.write_dataset(nulls, tmp_path / "t.lance")
    asked = {
        "b": ("'abc'", b"abc"),
        "s": ("b", "abc"),
        "f": ("cast('1.25' as decimal(10, 2))", 1.25),
        "n": ("id = 1", 1),
        "d": ("id = 1", 1),
        "at": ("5", dt.datetime(1970, 1, 1, microsecond=5)),
    }

    async def scenario():
        async with coordinator(tmp_path) as up:
            for column, (expression, _) in asked.items():
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await up.update("true", expressions={column: expression})
                advice = re.search(r"Convert it: (.*)", refused.value.details())
                assert advice, refused.value.details()
                await up.update("true", expressions={column: advice[1].replace("…", expression)})
            return (await up.read()).to_pylist()[0]

    assert run(scenario) == {"id": 1, **{column: value for column, (_, value) in asked.items()}}
