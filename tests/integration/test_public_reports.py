"""What people report of Lance and of tools like Leman, tried on Leman: docs/public_reports.md has all of them."""

from __future__ import annotations

import contextlib
import datetime as dt
import itertools
import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.optimize import Compaction

import leman
from leman._format.stored_functions import CheckpointBounds, UdfKind
from leman_core.model.row_positions import RowRange
from leman_core.model.service_errors import DataLoss, NotFound
from leman_core.storage.lance_tables import LanceTables
from leman_core.storage.scan import FragmentReader, check_row_ids
from tests.integration.types.types_pipeline import Pipeline
from tests.unit.core.lance_io.test_refused_values import overlay

#: What the functions below were called with.
CALLS: list[Any] = []


def double(x: int) -> int:
    CALLS.append(x)
    return 2 * x


def doubles(xs: pa.Array) -> pa.Array:
    CALLS.extend(xs.to_pylist())
    return pa.array([2 * x for x in xs.to_pylist()], pa.int64())


def triple(x: int) -> int:
    CALLS.append(x)
    return 3 * x


def doubled_batch(batch: pa.RecordBatch) -> pa.Array:
    return pa.array([2 * x for x in batch["x"].to_pylist()], pa.int64())


def tripled_batch(batch: pa.RecordBatch) -> pa.Array:
    return pa.array([3 * x for x in batch["x"].to_pylist()], pa.int64())


def vector(x: int) -> list[float]:
    return [float(x), float(x % 7)]


def shown(value: Any) -> str:
    return repr(value)


def entrypoint(name: str) -> str:
    return f"{__name__}:{name}"


def calls() -> list[Any]:
    """What was called since the last look, sorted."""
    found = sorted(CALLS)
    CALLS.clear()
    return found


def numbers(pipeline: Pipeline, rows: int = 30, **options: Any) -> str:
    """A table of `id` and `x`, with a computed column `y` that is twice x."""
    table = pipeline.table(pa.table({"id": range(rows), "x": range(rows)}), **{"rows_per_file": 10, **options})
    pipeline.add(table, "y", pipeline.function(pa.int64(), entrypoint=entrypoint("double")))
    CALLS.clear()
    return table


def check_doubled(pipeline: Pipeline, table: str) -> None:
    assert pipeline.values(table, "y").to_pylist() == [2 * x for x in pipeline.values(table, "x").to_pylist()]


# ---- overlays


@leman.udf(data_type=pa.int64(), version="1")
def letters(text: str) -> int:
    return len(text)


@pytest.mark.parametrize("column", ["text", "n"], ids=["of an input", "of the computed column"])
def test_a_table_that_gets_overlays_is_refused_by_every_call_and_keeps_its_files(db, column):
    table = db.create_table("t", {"id": [1, 2], "text": ["a", "bb"]})
    table.add_columns({"n": letters, "upper": "upper(text)"})
    table.backfill("n", progress=False)
    view = db.create_materialized_view("v", table.search(None).select(["id", "text", "n"]))
    view.refresh(progress=False)
    overlay(table.uri, {"text": "zzz"} if column == "text" else {"n": 7}, 1)
    before = {path for path in Path(table.uri).rglob("*") if path.is_file()}
    calls: dict[str, Callable[[], object]] = {
        "plan": lambda: table.plan_backfill("n"),
        "backfill": lambda: table.backfill("n", progress=False),
        "backfill of SQL": lambda: table.backfill("upper", progress=False),
        "plan of the view": view.plan_refresh,
        "view": lambda: view.refresh(progress=False),
        "read": table.to_arrow,
        "rows": lambda: table.to_batches().read_all(),
        "states": lambda: table.row_states("n"),
        "add": lambda: table.add({"id": [3], "text": ["c"]}),
        "update": lambda: table.update(where="id = 1", values={"text": "d"}),
        "delete": lambda: table.delete("id = 1"),
        "garbage": lambda: table.collect_checkpoints(older_than="0"),
    }
    reasons = {}
    for name, call in calls.items():
        with pytest.raises(leman.errors.LemanError) as refused:
            call()
        reasons[name] = refused.value.reason
    assert set(reasons.values()) == {"TABLE_NOT_SUPPORTED"}, reasons
    assert before <= {path for path in Path(table.uri).rglob("*") if path.is_file()}


# ---- values


@dataclass(frozen=True)
class Values:
    """A case: what a function gives for row 0, 1, …; `since`: the oldest file format that holds the type."""

    name: str
    kind: pa.DataType
    given: tuple[Any, ...]
    since: str = "2.0"


_STRUCTS = pa.list_(pa.struct([("a", pa.int32()), ("b", pa.string())]))
_DICTIONARY = pa.dictionary(pa.int8(), pa.string())
CASES = (
    Values(
        "34 a child that is all NULL", _STRUCTS, tuple([{"a": i, "b": None}, {"a": 0, "b": None}] for i in range(20))
    ),
    Values(
        "35 a NULL struct in a list", _STRUCTS, ([None, {"a": 1, "b": "x"}, None], [None], [{"a": None, "b": "y"}]) * 6
    ),
    Values("36 NULL structs and empty lists", _STRUCTS, ([], [None], None, [{"a": 1, "b": None}], []) * 4),
    Values("38 NULL vectors first", pa.list_(pa.float32(), 4), (None,) * 10 + tuple([float(i)] * 4 for i in range(10))),
    Values(
        "40 NULL items of int8",
        pa.list_(pa.int8(), 3),
        ([None] * 3, [1, None, -1]) * 10,
    ),
    Values("43 a dictionary without values", _DICTIONARY, (None,) * 10 + ("a", "b") * 5),
    Values("44 empty lists of dictionaries", pa.list_(_DICTIONARY), ([],) * 10 + (["a"], ["b", "a"]) * 5),
    Values("48 pages with and without NULL", pa.int64(), (*range(5), *(None, 1, None, 2, None)) * 2),
    Values("50 maps that are all NULL", pa.map_(pa.string(), pa.int32()), (None,) * 10, since="2.2"),
    Values("47 bits", pa.bool_(), (None, True, False, True, True) * 4),
    Values(
        "47 structs",
        pa.struct([("a", pa.int32()), ("l", pa.list_(pa.string()))]),
        ({"a": 1, "l": ["x", None]}, None, {"a": None, "l": []}, {"a": 2, "l": None}) * 5,
        since="2.1",
    ),
)
#: So that a fragment of ten rows is made of two pages.
HALVES = CheckpointBounds(5, 5, 5)
_CURRENT: list[Values] = []


def given_for(x: int) -> Any:
    return _CURRENT[-1].given[x]


def given_for_all(xs: pa.Array) -> pa.Array:
    return pa.array([given_for(x) for x in xs.to_pylist()], _CURRENT[-1].kind)


def given_as_a_slice(xs: pa.Array) -> pa.Array:
    """Arrow keeps the values before and behind a slice."""
    case = _CURRENT[-1]
    wide = [case.given[-1]] * 7 + [given_for(x) for x in xs.to_pylist()] + [case.given[0]]
    return pa.array(wide, case.kind)[7:-1]


def given_for_rows(batch: pa.RecordBatch) -> pa.Array:
    return given_for_all(batch["x"])


WAYS = (
    ("given_for", UdfKind.SCALAR),
    ("given_for_all", UdfKind.ARRAY),
    ("given_as_a_slice", UdfKind.ARRAY),
    ("given_for_rows", UdfKind.RECORD_BATCH),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_values_stay_whatever_way_they_come_and_through_compaction(pipeline, case):
    _CURRENT.append(case)
    expected = pa.array(case.given, case.kind).to_pylist()
    for file_format in ("2.1", "2.2"):
        if file_format < case.since:
            continue
        rows = pa.table({"x": range(len(expected)), "plain": pa.array(case.given, case.kind)})
        table = pipeline.table(rows, file_format, rows_per_file=10)
        for name, kind in WAYS:
            pipeline.add(table, name, pipeline.function(case.kind, kind, entrypoint(name)))
            pipeline.backfill(table, name, checkpoint=HALVES)
        seen = pipeline.function(pa.string(), entrypoint=entrypoint("shown"))
        pipeline.add(table, "seen", seen, ("given_for",))
        for compacted in (False, True):
            if compacted:
                pipeline.open(table).optimize.compact_files()
            pipeline.backfill(table, "seen")
            for name in ("plain", *(name for name, _ in WAYS)):
                assert pipeline.values(table, name).to_pylist() == expected, (file_format, name, compacted)
            assert pipeline.values(table, "seen").to_pylist() == [repr(value) for value in expected]


def lists_behind_other_values(xs: pa.Array) -> pa.Array:
    """Offsets that begin behind the first value, and end before the last."""
    return pa.ListArray.from_arrays(pa.array(range(1, len(xs) + 2), pa.int32()), pa.concat_arrays([xs[:1], xs, xs[:1]]))


def test_offsets_of_lists_may_leave_values_out(pipeline):
    table = pipeline.table(pa.table({"x": range(20)}), rows_per_file=5)
    udf = pipeline.function(pa.list_(pa.int64()), UdfKind.ARRAY, entrypoint("lists_behind_other_values"))
    pipeline.add(table, "y", udf)
    pipeline.backfill(table, "y")
    pipeline.open(table).optimize.compact_files()
    assert pipeline.values(table, "y").to_pylist() == [[x] for x in range(20)]


def test_bfloat16_is_given_as_its_two_bytes_whatever_a_process_has_imported(pipeline):
    from lance.arrow import bfloat16_array

    values = bfloat16_array([1.5, None, -2.0, 0.5])
    vectors = pa.FixedSizeListArray.from_arrays(bfloat16_array([1.5, 0.5, -2.0, 1.5]), 2)
    for rows, given in (
        (values, [b"\xc0?", None, b"\x00\xc0", b"\x00?"]),
        (vectors, [[b"\xc0?", b"\x00?"], [b"\x00\xc0", b"\xc0?"]]),
    ):
        table = pipeline.table(pa.table({"x": rows}))
        pipeline.add(table, "y", pipeline.function(pa.string(), entrypoint=entrypoint("shown")))
        pipeline.backfill(table, "y")
        assert pipeline.values(table, "y").to_pylist() == [repr(value) for value in given]


@pytest.mark.parametrize("file_format", ["2.0", "2.2"])
def test_json_inside_of_lists_is_given_as_text(pipeline, file_format):
    texts = pa.ExtensionArray.from_storage(pa.json_(), pa.array(['{"k":1}', None, "[]"]))
    structs = pa.StructArray.from_arrays([texts], fields=[pa.field("j", pa.json_())])
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 1, 3], pa.int32()), structs)
    table = pipeline.table(pa.table({"x": lists}), file_format)
    pipeline.add(table, "y", pipeline.function(pa.string(), entrypoint=entrypoint("shown")))
    pipeline.backfill(table, "y")
    given = [[{"j": '{"k":1}'}], [], [{"j": None}, {"j": "[]"}]]
    assert pipeline.values(table, "y").to_pylist() == [repr(value) for value in given]


@pytest.fixture
def far_west(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine in Los Angeles."""
    monkeypatch.setenv("TZ", "America/Los_Angeles")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("far_west")
def test_times_are_not_moved_by_the_zone_of_the_machine(pipeline):
    assert time.tzname[0] == "PST"
    moments = [dt.datetime(1969, 12, 31, 23, 59, 59, tenth * 100_000) for tenth in range(10)]
    for kind in (pa.timestamp("us"), pa.timestamp("us", tz="UTC"), pa.timestamp("ns", tz="Asia/Tokyo")):
        given = [at.replace(tzinfo=dt.UTC) for at in moments] if kind.tz else moments
        table = pipeline.table(pa.table({"x": pa.array(given, kind)}))
        expected = pipeline.values(table, "x")
        pipeline.add(table, "same", pipeline.function(kind))
        pipeline.add(table, "seen", pipeline.function(pa.string(), entrypoint=entrypoint("shown")))
        late = "1969-12-31 23:59:59.5" + ("+00:00" if kind.tz else "")
        pipeline.backfill(table, "same", where=f"x >= timestamp '{late}'")
        assert pipeline.values(table, "same").to_pylist() == [None] * 5 + expected.to_pylist()[5:]
        pipeline.backfill(table, "same")
        pipeline.backfill(table, "seen")
        assert pipeline.values(table, "same").equals(expected)
        assert pipeline.values(table, "seen").to_pylist() == [repr(value) for value in expected.to_pylist()]


@pytest.mark.usefixtures("far_west")
def test_updates_are_not_moved_by_the_zone_of_the_machine(db):
    noon = dt.datetime(1969, 7, 20, 12)
    columns = {"plain": pa.timestamp("us"), "utc": pa.timestamp("us", tz="UTC")}
    table = db.create_table(
        "t", pa.table([pa.array([1, 2]), *(pa.nulls(2, kind) for kind in columns.values())], ["id", *columns])
    )
    table.update(where="id = 1", values={"plain": noon, "utc": noon.replace(tzinfo=dt.timezone(dt.timedelta(hours=2)))})
    with pytest.raises(leman.errors.TypeMismatch):
        table.update(where="id = 2", values={"utc": noon})
    assert table.to_arrow(where="utc = timestamp '1969-07-20 10:00:00+00:00'")["id"].to_pylist() == [1]
    assert table.to_arrow(["plain"], "id = 1")["plain"].to_pylist() == [noon]


# ---- rows that move, go and come


def test_a_shallow_clone_and_its_original_are_computed_apart(pipeline):
    table = numbers(pipeline)
    pipeline.backfill(table, "y", where="x < 10")
    original = pipeline.open(table)
    original.shallow_clone(original.uri.replace(f"{table}.lance", "clone.lance"), original.version)
    CALLS.clear()
    for name in ("clone", table):
        pipeline.backfill(name, "y")
        assert set(calls()) >= set(range(10, 30))
        check_doubled(pipeline, name)
    pipeline.open(table).update({"x": "x + 1000"}, where="id = 3")
    pipeline.backfill(table, "y")
    assert calls() == [1003]
    assert not pipeline.backfill("clone", "y").tasks
    for name in ("clone", table):
        check_doubled(pipeline, name)


@pytest.mark.parametrize("tagged", [False, True])
def test_a_clone_loses_what_its_original_cleans_up_unless_the_version_is_tagged(pipeline, tagged):
    original = pipeline.open(numbers(pipeline))
    original.delete("x = 3")
    clone = original.uri.replace(".lance", "_cloned.lance")
    if tagged:
        original.tags.create("cloned", original.version)
    original.shallow_clone(clone, original.version)
    original.optimize.compact_files(materialize_deletions_threshold=0.0)
    original.cleanup_old_versions(dt.timedelta(0), error_if_tagged_old_versions=False)
    reader = FragmentReader(clone, lance.dataset(clone).version)
    rows = reader.read(0, RowRange(0, 10), ["x"], deletions=True)
    if tagged:
        assert sum(len(chunk.offsets) for chunk in rows) == 9
    else:
        with pytest.raises(DataLoss, match="of the table that it was cloned from is missing"):
            list(rows)


def test_an_address_is_that_of_one_row(pipeline):
    table = numbers(pipeline)
    pipeline.backfill(table, "y", where=f"_rowaddr = {(1 << 32) + 3}")
    assert calls() == [13]
    pipeline.open(table).delete(f"_rowaddr = {(2 << 32) + 3}")
    assert [x for x in range(30) if x not in pipeline.values(table, "x").to_pylist()] == [23]


def test_deleted_rows_before_the_live_ones_cost_nothing(pipeline):
    for file_format in ("2.0", "2.1", "2.2"):
        table = pipeline.table(pa.table({"x": range(20_000)}), file_format, rows_per_file=20_000)
        pipeline.open(table).delete("x < 10000")
        udf = pipeline.function(pa.int64(), UdfKind.ARRAY, entrypoint("doubles"))
        CALLS.clear()
        pipeline.add(table, "y", udf)
        pipeline.backfill(table, "y")
        assert calls() == list(range(10_000, 20_000))
        check_doubled(pipeline, table)


def test_lance_refuses_a_compaction_that_would_bring_deleted_rows_back(pipeline):
    table = numbers(pipeline)
    pipeline.backfill(table, "y", where="x < 15")
    CALLS.clear()
    dataset = pipeline.open(table)
    done = [task.execute(dataset) for task in Compaction.plan(dataset, {"target_rows_per_fragment": 1000}).tasks]
    pipeline.open(table).delete("x in (3, 13, 23)")
    with pytest.raises(OSError, match="preempted by concurrent transaction Delete"):
        Compaction.commit(pipeline.open(table), done)
    pipeline.backfill(table, "y")
    assert calls() == [x for x in range(15, 30) if x != 23]
    assert not {3, 13, 23} & set(pipeline.values(table, "x").to_pylist())
    check_doubled(pipeline, table)


def test_a_new_version_of_a_compacted_column_is_written_apart_from_the_others(pipeline):
    """Compaction puts the column into one file with all others."""
    wide = pa.table({"x": range(3000), "w": ["w" * 100] * 3000})
    table = pipeline.table(wide, rows_per_file=1000)
    pipeline.add(table, "y", pipeline.function(pa.int64(), UdfKind.RECORD_BATCH, entrypoint("doubled_batch")))
    pipeline.backfill(table, "y")
    data = Path(pipeline.open(table).uri, "data")
    for gone, factor in enumerate((3, 2, 3)):
        pipeline.open(table).delete(f"x = {gone}")
        pipeline.open(table).optimize.compact_files(materialize_deletions_threshold=0.0)
        assert [len(fragment.data_files()) for fragment in pipeline.open(table).get_fragments()] == [1]
        name = "doubled_batch" if factor == 2 else "tripled_batch"
        pipeline.alter(table, "y", pipeline.function(pa.int64(), UdfKind.RECORD_BATCH, entrypoint(name)))
        before = set(data.iterdir())
        pipeline.backfill(table, "y")
        assert sum(file.stat().st_size for file in set(data.iterdir()) - before) < 50_000
        left = range(gone + 1, 3000)
        assert pipeline.values(table, "y").to_pylist() == [factor * x for x in left]
        assert pipeline.values(table, "x").to_pylist() == list(left)
        assert pipeline.values(table, "w").to_pylist() == ["w" * 100] * len(left)


def test_rows_that_follow_a_table_without_any_are_computed(pipeline):
    table = numbers(pipeline)
    pipeline.backfill(table, "y")
    for column in ("id", "y"):
        pipeline.open(table).create_scalar_index(column, "BTREE")
    for begin in (1000, 2000):
        pipeline.open(table).delete("true")
        rows = pa.table({"id": range(30), "x": range(begin, begin + 30)})
        lance.write_dataset(rows, pipeline.open(table).uri, mode="append", max_rows_per_file=10)
        CALLS.clear()
        pipeline.backfill(table, "y")
        assert calls() == list(range(begin, begin + 30))
        check_doubled(pipeline, table)
        found = pipeline.open(table).to_table(filter="id = 5").to_pylist()
        assert [row["x"] for row in found] == [begin + 5]
        assert pipeline.open(table).count_rows("y = 10") == 0


def test_row_lineage_moves_with_the_fragment_not_with_the_row(pipeline):
    """As docs/public_reports.md says: who follows `ds.delta()` sees more rows than got values."""
    table = numbers(pipeline)

    def versions() -> list[int]:
        asked = pipeline.open(table).to_table(columns=["_row_last_updated_at_version"])
        return asked.column(0).to_pylist()

    before = versions()
    pipeline.backfill(table, "y", where="x < 5")
    moved = {row for row, (old, new) in enumerate(zip(before, versions(), strict=True)) if old != new}
    assert set(range(10)) <= moved


# ---- indexes and NULL


INDEXES = (None, "BTREE", "BITMAP", "ZONEMAP")
_NULLS = (
    *("NOT (lang = 'en')", "lang != 'en'", "lang IS NULL OR lang != 'en'", "NOT (lang IN ('en', NULL))"),
    *("(a != 0) OR (a < 5)", "a IN (1, NULL)", "NOT (a IN (1, 2))", "NOT (a BETWEEN 2 AND 4)"),
    *("NOT (lang = 'en' OR a = 1)", "NOT (a >= 3) OR lang IS NOT NULL", "a = 1 OR NULL"),
)
_MOMENTS = (
    *("at >= timestamp '1970-01-01T00:00:00Z'", "at > timestamp '1969-01-01 00:00:00'"),
    *("at < timestamp '1970-01-01 00:00:00'", "NOT (at < timestamp '1970-01-01')", "at = timestamp '1970-01-01'"),
)


def nullable(rows: int = 40) -> pa.Table:
    moments = [dt.datetime(2024, 1, 1, tzinfo=dt.UTC) + dt.timedelta(hours=hour) for hour in range(rows)]
    moments[7:11] = [None, dt.datetime(1969, 5, 1, tzinfo=dt.UTC), dt.datetime(1970, 1, 1, tzinfo=dt.UTC), None]
    return pa.table(
        {
            "x": range(rows),
            "lang": list(itertools.islice(itertools.cycle(["en", "de", None, "fr"]), rows)),
            "a": [None if row % 5 == 0 else row % 7 for row in range(rows)],
            "at": pa.array(moments, pa.timestamp("us", tz="UTC")),
        }
    )


def rows_by_sqlite(rows: pa.Table, where: str) -> list[int]:
    """The rows that another database finds."""
    with contextlib.closing(sqlite3.connect(":memory:")) as database:
        database.execute("CREATE TABLE t (x INTEGER, lang TEXT, a INTEGER)")
        asked = rows.select(["x", "lang", "a"]).to_pylist()
        database.executemany("INSERT INTO t VALUES (:x, :lang, :a)", asked)
        return [x for (x,) in database.execute(f"SELECT x FROM t WHERE {where} ORDER BY x")]


def test_a_filter_means_the_same_rows_with_any_index(pipeline):
    """A job reads the rows that match; a delete and a view have Lance find them."""
    rows = nullable()
    moments = rows["at"].to_pylist()
    since = {row for row, at in enumerate(moments) if at and at >= dt.datetime(1970, 1, 1, tzinfo=dt.UTC)}
    expected: dict[str, set[int]] = {where: set(rows_by_sqlite(rows, where)) for where in _NULLS}
    expected |= dict(zip(_MOMENTS, (since, since | {8}, {8}, since, {9}), strict=True))
    found: dict[tuple[str, str | None], tuple[set[int], int]] = {}
    for kind in INDEXES:
        table = pipeline.table(rows, rows_per_file=10)
        for column in ("lang", "a", "at") if kind else ():
            pipeline.open(table).create_scalar_index(column, kind)
        dataset = pipeline.open(table)
        reader = FragmentReader(dataset.uri, dataset.version)
        for where in expected:
            offsets = reader.rows_matching(range(4), where)
            matched = {10 * fragment + at for fragment, each in offsets.items() for at in each.tolist()}
            found[where, kind] = matched, dataset.count_rows(where)
    wrong = {asked: rows for asked, rows in found.items() if rows != (expected[asked[0]], len(expected[asked[0]]))}
    assert wrong == {}
    assert [len(rows) for rows in expected.values()] == [20, 20, 30, 0, 32, 5, 22, 17, 14, 33, 5, 37, 38, 1, 37, 1]


@pytest.mark.parametrize("kind", ["BTREE", "BITMAP", "ZONEMAP"])
def test_an_index_finds_rows_where_an_update_moved_them(pipeline, kind):
    table = pipeline.table(pa.table({"x": range(40), "cat": ["A", "B"] * 20}), rows_per_file=10)
    pipeline.add(table, "y", pipeline.function(pa.int64(), entrypoint=entrypoint("double")))
    pipeline.open(table).create_scalar_index("cat", kind)
    pipeline.open(table).create_scalar_index("x", "ZONEMAP")
    for column in range(2):
        pipeline.open(table).update({"cat": "'C'"}, where=f"x < {10 + column}")
        pipeline.open(table).optimize.optimize_indices()
    CALLS.clear()
    pipeline.backfill(table, "y", where="cat = 'A'")
    assert calls() == list(range(12, 40, 2))
    pipeline.backfill(table, "y", where="x = 0")
    assert calls() == [0]
    assert pipeline.open(table).count_rows("x = 0") == 1
    pipeline.open(table).delete("x = 0")
    assert 0 not in pipeline.values(table, "x").to_pylist()


_APPENDED_BITMAP = pytest.mark.xfail(
    strict=True, reason="pylance finds a replaced value by a BITMAP that was brought up to date in append mode"
)


@pytest.mark.parametrize(
    ("kind", "merged"),
    [
        *itertools.product(["BTREE", "BITMAP", "ZONEMAP"], [1]),
        ("BTREE", 0),
        pytest.param("BITMAP", 0, marks=_APPENDED_BITMAP),
    ],
)
def test_an_index_on_a_computed_column_forgets_replaced_values(pipeline, kind, merged):
    table = numbers(pipeline)
    pipeline.backfill(table, "y")
    pipeline.open(table).create_scalar_index("y", kind)
    pipeline.open(table).update({"x": "x + 1000"}, where="id < 10")
    pipeline.backfill(table, "y")
    lance.write_dataset(pa.table({"id": [50], "x": [50]}), pipeline.open(table).uri, mode="append")
    for _ in range(2):
        pipeline.backfill(table, "y")
        pipeline.open(table).optimize.optimize_indices(num_indices_to_merge=merged)
        asked = [pipeline.open(table).count_rows(f"y = {value}") for value in (10, 2010, 30, 100)]
        assert asked == [0, 1, 1, 1]


@pytest.mark.parametrize("merged", [0, 1])
def test_a_vector_search_gives_each_row_once_by_its_new_vector(pipeline, merged):
    """Lance adds rows to a vector index in append mode (0), or writes it again (1)."""
    table = pipeline.table(pa.table({"id": range(300), "x": range(300)}), rows_per_file=100)
    kind = pa.list_(pa.float32(), 2)
    pipeline.add(table, "emb", pipeline.function(kind, entrypoint=entrypoint("vector")))
    pipeline.backfill(table, "emb")
    pipeline.open(table).create_index("emb", "IVF_FLAT", num_partitions=2)
    for moved in (1, 2):
        pipeline.open(table).update({"x": f"id + {moved * 1000}"}, where="id < 10")
        pipeline.backfill(table, "emb")
        pipeline.open(table).optimize.optimize_indices(num_indices_to_merge=merged)
        for fast in (False, True):
            for row, x in ((3, 3 + 1000 * moved), (50, 50)):
                query = {"column": "emb", "q": np.array(vector(x), np.float32), "k": 300, "nprobes": 2}
                near = pipeline.open(table).to_table(["id", "_distance"], nearest=query, fast_search=fast)
                assert (near["id"][0].as_py(), near["_distance"][0].as_py()) == (row, 0.0)
                assert sorted(near["id"].to_pylist()) == list(range(300)), (moved, fast, row)


# ---- versions and files that go


def test_a_version_that_others_clean_up_is_read_by_its_manifest_or_told(pipeline):
    table = numbers(pipeline)
    uri = pipeline.open(table).uri
    planned = LanceTables().snapshot(uri)
    pipeline.open(table).update_config({"a": "b"})
    pipeline.open(table).cleanup_old_versions(dt.timedelta(0))
    reader = FragmentReader(uri, planned.version, planned.manifest)
    rows = [row for chunk in reader.read(1, RowRange(0, 10), ["x"], deletions=False) for row in chunk.rows.to_pylist()]
    assert [row["x"] for row in rows] == list(range(10, 20))
    with pytest.raises(NotFound, match="has no version") as gone:
        FragmentReader(uri, planned.version)
    assert gone.value.reason == "VERSION_NOT_FOUND"


@pytest.mark.parametrize("folder", ["data", "_deletions"])
def test_a_lost_file_is_data_loss_unless_its_version_was_cleaned_up(pipeline, folder):
    table = numbers(pipeline)
    pipeline.open(table).delete("x % 10 = 3")
    uri, version = pipeline.open(table).uri, pipeline.open(table).version
    readers = [FragmentReader(uri, version) for _ in range(2)]
    lost = Path(uri, folder)
    aside = lost.rename(f"{lost}-aside")

    def read(reader: FragmentReader) -> list[Any]:
        return list(reader.read(1, RowRange(0, 10), ["x"], deletions=True))

    with pytest.raises(DataLoss, match=rf"{folder}/.* is missing") as damaged:
        read(readers[0])
    assert damaged.value.reason == "TABLE_DAMAGED"
    if folder == "_deletions":
        assert {error.reason for error in check_row_ids(uri).values()} == {"TABLE_DAMAGED"}
    aside.rename(lost)
    assert sum(len(chunk.offsets) for chunk in read(FragmentReader(uri, version))) == 9, "nothing wrong was kept"
    pipeline.open(table).optimize.compact_files(materialize_deletions_threshold=0.0)
    pipeline.open(table).cleanup_old_versions(dt.timedelta(0), delete_unverified=True)
    with pytest.raises(Exception) as cleaned:  # noqa: PT011 - by its type below
        read(readers[1])
    assert not isinstance(cleaned.value, DataLoss)
