"""SQL that Lance's parser does not know, on a real table: CASE, and times as text."""

from __future__ import annotations

import datetime as dt
import zoneinfo
from decimal import Decimal

import lance
import pyarrow as pa
import pytest

from leman_core.model.row_positions import RowRange
from leman_core.model.service_errors import FailedPrecondition, InvalidArgument
from leman_core.sql import expressions, filters, time_values
from leman_core.storage.lance_tables import LanceTables
from leman_core.storage.scan import FragmentReader
from leman_core.storage.source_rows import SourceRows

MOMENTS = [dt.datetime(2024, 5, 1), dt.datetime(2024, 6, 1), dt.datetime(2024, 7, 1, 12), None]
TIMES = {
    "d": pa.date32(),
    "d64": pa.date64(),
    **{f"t{unit}": pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")},
    **{f"utc_{unit}": pa.timestamp(unit, "UTC") for unit in ("s", "ms", "us", "ns")},
}


@pytest.fixture(scope="module")
def uri(tmp_path_factory) -> str:
    """id 0 to 3; MOMENTS in all types of TIMES, `zurich` and `east` as instants; `clock` their times of day."""
    moments = {
        name: pa.array([m and (m.date() if name.startswith("d") else m) for m in MOMENTS], kind)
        for name, kind in TIMES.items()
    }
    data = {
        "id": pa.array(range(4), pa.int64()),
        "small": pa.array(range(4), pa.int8()),
        "s": pa.array(["a", "b", "1", None]),
        "flag": pa.array([True, False, None, True]),
        "raw": pa.array([b"a", b"b", b"c", None]),
        "zurich": pa.array(MOMENTS, pa.timestamp("ms", "Europe/Zurich")),
        "east": pa.array(MOMENTS, pa.timestamp("us", "+02:00")),
        "clock": pa.array([m and m.time() for m in MOMENTS], pa.time64("us")),
        "box": pa.array([{"at": m, "w": n, "in": {"d": m and m.date()}} for n, m in enumerate(MOMENTS)]),
        "end": pa.array([10, 11, 12, 13]),
        **moments,
    }
    where = str(tmp_path_factory.mktemp("dialect") / "t.lance")
    lance.write_dataset(pa.table(data), where, enable_stable_row_ids=True)
    return where


def matching(uri: str, where: str) -> list[int]:
    """By the check, a worker's reading and a view's, which have to agree."""
    LanceTables().check_filter(uri, where)
    reader = FragmentReader(uri, 1)
    chunks = reader.read(0, RowRange(0, 4), ["id"], deletions=False, where=where)
    found = [n for chunk in chunks for n in chunk.rows.column("id").to_pylist()]
    assert [n for ids in SourceRows(uri, 1).matching_ids(where) for n in ids.tolist()] == found
    return found


def values(uri: str, expression: str) -> list[object]:
    """By a worker's reading and a view's, which have to agree on values and on the type that was foretold."""
    names = [field.name for field in lance.dataset(uri).schema]
    expressions.check_expression(expression, names)
    kind = LanceTables().expression_type(uri, expression)
    chunks = FragmentReader(uri, 1).read(0, RowRange(0, 4), {"v": expression}, deletions=False)
    found = pa.concat_arrays([chunk.rows.column("v") for chunk in chunks])
    assert found.type == kind
    source = SourceRows(uri, 1)
    assert source.take(next(source.all_ids()), {"v": expression}).column("v").equals(found)
    return found.to_pylist()


@pytest.mark.parametrize("column", [*TIMES, "box.at", "box.`in`.d", "coalesce(tus, tus)"])
def test_text_is_compared_with_times_by_their_type(uri, column):
    for where, ids in {
        f"{column} > '2024-06-01'": [2],
        f"{column} >= '2024-06-01'": [1, 2],
        f"'2024-06-01' >= {column}": [0, 1],
        f"{column} = '2024-06-01' or id = 3": [1, 3],
        f"{column} between '2024-05-01' and '2024-06-01'": [0, 1],
        f"not {column} not between '2024-05-02' and '2024-06-02'": [1],
        f"{column} in ('2024-05-01', '2024-06-01')": [0, 1],
        f"{column} not in ('2024-05-01') and id < 9": [1, 2],
        f"({column}) <> '2024-06-01'": [0, 2],
    }.items():
        assert matching(uri, where) == ids, where


@pytest.mark.parametrize(
    ("where", "ids"),
    [
        ("tus > '2024-06-30 23:59:59.999999'", [2]),
        ("tns = '2024-07-01T12:00:00.000000000'", [2]),
        ("tus >= '2024-06-01T00:00Z'", [1, 2]),
        ("d > '2024-05-31 23:00:00'", [1, 2]),
        ("clock > '10:00:00'", [2]),
        ("clock in ('00:00', '12:00:00.000')", [0, 1, 2]),
        ("s > '2024-06-01' or s = '1'", [0, 1, 2]),
        ("date_trunc('month', tus) = '2024-07-01'", [2]),
        # an instant, however it is written; without a zone it is what clocks in the column's zone show
        ("zurich = '2024-06-01T02:00'", [1]),
        ("zurich = '2024-06-01T00:00Z'", [1]),
        ("zurich > '2024-06-01T00:00+00:00'", [2]),
        ("zurich > timestamp '2024-06-01T00:00:00+00:00'", [2]),
        ("zurich > timestamp '2024-06-01T00:00:00'", [1, 2]),
        ("zurich > date '2024-06-01'", [1, 2]),
        ("tus >= timestamp '2024-06-01 00:00'", [1, 2]),
        ("zurich = timestamp '2024-06-01T02:00'", [1]),
        ("coalesce(tus, timestamp '2024-06-01 00:00') = timestamp '2024-06-01 00:00'", [1, 3]),
        ("zurich > '2024-06-01'", [1, 2]),
        ("east = '2024-06-01 02:00:00'", [1]),
        ("east = '2024-05-31T20:00:00-0400'", [1]),
        ("utc_s > timestamp '2024-06-01T00:00:00.500+00:00'", [2]),
        # in brackets
        ("tus > ('2024-06-01')", [2]),
        ("not (('2024-06-01')) >= tus", [2]),
        ("tus in (('2024-06-01'), (('2024-07-01 12:00')))", [1, 2]),
        ("tus between ('2024-06-01') and ('2024-06-02')", [1]),
        ("zurich = ('2024-06-01T02:00')", [1]),
        ("zurich between (timestamp '2024-06-01T00:00:00+00:00') and (timestamp '2024-07-01T12:00:00+00:00')", [1, 2]),
        ("timestamp '2024-06-01T00:00:00+00:00' between zurich and utc_us", [1]),
        ("timestamp '2024-06-01T02:00:00' not between zurich and zurich", [0, 2]),
        # in calls, where nothing tells the type
        ("zurich >= greatest(timestamp '2024-06-01T00:00:00+00:00', timestamp '2020-01-01')", [1, 2]),
        ("zurich >= date_trunc('hour', timestamp '2024-06-01T00:59:00+00:00')", [1, 2]),
        ("zurich >= date_trunc('hour', (timestamp '2024-06-01T02:59:00+02:00'))", [1, 2]),
        ("tns >= greatest(timestamp '2024-06-01T00:00:00+00:00', timestamp '2020-01-01')", [1, 2]),
        ("d >= greatest(timestamp '2024-06-01T00:00:00+00:00', timestamp '2020-01-01')", [1, 2]),
        ("coalesce(east, timestamp '2024-06-01T00:00:00+00:00') = (timestamp '2024-06-01T00:00:00+00:00')", [1, 3]),
    ],
)
def test_moments(uri, where, ids):
    assert matching(uri, where) == ids


@pytest.mark.parametrize(
    "where",
    [
        "{} > now() - interval '6 hours'",
        "{} > (now() - interval '6 hours')",
        "{} between (now() - interval '6 hours') and now() + interval '1 day'",
        "{} > greatest(now() - interval '6 hours', timestamp '2020-01-01')",
        "{} > date_trunc('second', now() - interval '6 hours')",
        "now() - interval '6 hours' between timestamp '2020-01-01' and {}",
        "case when id >= 0 then now() - interval '6 hours' else {0} end < {0}",
    ],
)
@pytest.mark.parametrize("column", ["tus", "utc_ms", "zurich", "pacific"])
def test_now_is_an_instant_wherever_it_stands(tmp_path, where, column):
    now = dt.datetime(2024, 6, 1, 12, tzinfo=dt.UTC)
    moments = [now - dt.timedelta(hours=hours) for hours in (9, 7, 5, 3)]
    zones = {"tus": None, "utc_ms": "UTC", "zurich": "Europe/Zurich", "pacific": "America/Los_Angeles"}
    data = {"id": range(4), column: pa.array(moments, pa.timestamp("ms", zones[column]))}
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table(data), uri, enable_stable_row_ids=True)
    assert matching(uri, time_values.pin_relative_times(where.format(column), now)) == [2, 3]


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("tus > '2024-06-31'", "'2024-06-31' is not a valid time"),
        ("ts > '2024-06-01 00:00:00.5'", "compared with timestamp[s], which has whole seconds"),
        ("d > '2024-06-01T12:00Z'", "has a time zone"),
        ("tns > '9999-01-01'", "out of the range"),
        ("tus > 'soon'", "write times like timestamp '2024-06-01'"),
        ("clock > '25:00'", "is not a valid time"),
    ],
)
def test_a_time_that_the_type_cannot_have_is_refused(uri, where, said):
    with pytest.raises(InvalidArgument) as caught:
        LanceTables().check_filter(uri, where)
    assert said in caught.value.message


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("case when id > 1 then 'x' else 'y' end", ["y", "y", "x", "x"]),
        ("CASE WHEN id = 0 THEN 'a' WHEN id = 1 THEN s END", ["a", "b", None, None]),
        ("case id when 0 then 10 when 1 + 1 then 20 else id end", [10, 1, 20, 3]),
        ("case d when '2024-06-01' then 1 else 0 end", [0, 1, 0, 0]),
        ("case when flag then 1 else 0 end", [1, 0, 0, 1]),
        ("case when flag then flag end", [True, None, None, True]),
        ("case when id > 1 then 1.5 else 1 end", [1.0, 1.0, 1.5, 1.5]),
        ("case when id > 1 then null else d end", [dt.date(2024, 5, 1), dt.date(2024, 6, 1), None, None]),
        ("case when id = 2 then tus else zurich end is null", [False, False, False, True]),
        ("case when id > 0 then raw end", [None, b"b", b"c", None]),
        ("1 + case when id > 2 then case when flag then 5 else 6 end else 0 end * 2", [1, 1, 1, 11]),
        ("case when tus > '2024-06-01' then clock end", [None, None, dt.time(12), None]),
        ("upper(case when case when id = 1 then true else flag end then s else 'no' end)", ["A", "B", "NO", None]),
        ("case when `end` > 11 then `end` else box.w end", [0, 1, 12, 13]),
        ("case when small > 1 then small else 0 end", [0, 0, 2, 3]),
        # of what is not taken nothing is computed
        ("case when id <> 0 then 100 / id else 0 end", [0, 100, 50, 33]),
        ("case when id <> 0 then 100 / id > 40 else true end", [True, True, True, False]),
        ("case when s in ('1') then cast(s as int) end", [None, None, 1, None]),
    ],
)
def test_case(uri, expression, expected):
    assert values(uri, expression) == expected


@pytest.mark.parametrize(
    ("where", "ids"),
    [
        ("case when id > 1 then 1 else 0 end = 1", [2, 3]),
        ("case when id <> 0 then 100 / id > 40 else false end", [1, 2]),
        ("not case when id <> 0 then 100 / id > 40 else false end and id < 3", [0]),
        ("case when flag then tus else tns end >= '2024-05-01'", [0, 1, 2]),
        ("end > 11", [2, 3]),
    ],
)
def test_case_in_a_filter(uri, where, ids):
    assert matching(uri, where) == ids


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("case when id > 1 then 1", "CASE has no END"),
        ("case id end", "written like CASE WHEN"),
        ("case when id then 1 end", "WHEN needs a condition, but id is int64"),
        ("case when id > 1 then end", "nothing follows THEN"),
        ("case when (id > 1 then 1) end", "brackets do not match after WHEN"),
        ("case when id > 1 then box end", "which is not supported: numbers, text"),
        ("case when id > 1 else 2 then 1 end", "written like CASE WHEN"),
        ("case when id > 1 then null end", "all branches of CASE are NULL"),
        ("case when nope > 1 then 1 end", "Column 'nope' not found"),
    ],
)
def test_a_case_that_cannot_be_is_refused(uri, expression, said):
    with pytest.raises((InvalidArgument, FailedPrecondition)) as caught:
        LanceTables().expression_type(uri, expression)
    assert said in caught.value.message


def test_as_many_whens_as_are_allowed(uri):
    whens = [f"when id = {n} then {n}" for n in range(expressions.MAX_WHENS)]
    assert values(uri, f"case {' '.join(whens)} else -1 end") == [0, 1, 2, 3]
    with pytest.raises(InvalidArgument, match="33 WHENs"):
        LanceTables().expression_type(uri, f"case {' '.join([*whens, 'when id = 9 then 9'])} end")


def test_its_words_name_no_columns():
    columns = ["end", "when", "x", "case"]
    assert expressions.columns_of_expression("case when x > 1 then `case` else x end", columns) == ("x", "case")
    assert expressions.columns_of_expression("end + x.when", columns) == ("end", "x")
    assert (
        expressions.rename_columns("case when x > 1 then x end", {"x": "end"}) == "case when `end` > 1 then `end` end"
    )
    filters.check_filter("case when (x > 1) then (x) else (2) end = 2", columns)


@pytest.mark.parametrize(
    ("expression", "read"),
    [
        ("timestamp > date '2024-06-01'", ["timestamp"]),
        ("date > timestamp '2024-06-01'", ["date"]),
        ("`date` = date '2024-06-01' and `true`", ["date", "true"]),
        ("x > 3 and true or not false", ["x"]),
        ("coalesce(x, null, TRUE)", ["x"]),
        ("x is not null and x is true", ["x"]),
        ("x not in (1, 2) and x not like 'a' escape 'b'", ["x"]),
        ("x is not distinct from is", ["x", "is"]),
        ("x between like and between", ["x", "like", "between"]),
        ("in in (in, 1) and box.in = 2", ["in", "box"]),
        ("cast(x as date) > from and distinct = 1", ["x", "from", "distinct"]),
        ("x::date = cast(y as int unsigned)", ["x", "y"]),
        ("array_has(array['a'], array)", ["array"]),
        ("case when x then date else date '2024-06-01' end in (1)", ["x", "date"]),
        ("when > '2024-05-31' and end = 1", ["when", "end"]),
    ],
)
def test_columns_may_be_called_as_words_of_sql(expression, read):
    words = "date timestamp true false null not and or in is like between from distinct array unsigned escape case"
    columns = [*words.split(), "x", "y", "box", "when", "end"]
    assert expressions.columns_of_expression(expression, columns) == tuple(read)


def test_a_renamed_column_takes_no_word_of_sql_along():
    renamed = {"date": "day", "true": "flag", "x": "x"}
    after = "x > date '2024-06-01' and `day` > 1 and true = `flag`"
    assert expressions.rename_columns("x > date '2024-06-01' and date > 1 and true = `true`", renamed) == after


def test_a_column_called_when_is_compared(tmp_path):
    uri = str(tmp_path / "t.lance")
    moments = pa.array(MOMENTS, pa.timestamp("us", "America/Los_Angeles"))
    lance.write_dataset(pa.table({"id": range(4), "when": moments}), uri, enable_stable_row_ids=True)
    assert matching(uri, "when > '2024-05-31 16:59'") == [1, 2]
    assert matching(uri, "id < 9 and '2024-05-31 17:00' >= when") == [0, 1]
    assert matching(uri, "case when `when` > '2024-05-31 16:59' then id else 0 end = 2") == [2]


KINDS = [
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    *(pa.float32(), pa.float64(), pa.decimal128(5, 5), pa.decimal128(38, 38), pa.decimal128(38, 2)),
    *(pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns"), pa.date32(), pa.date64()),
    *(pa.timestamp("s"), pa.timestamp("ns"), pa.timestamp("ms", "America/Los_Angeles"), pa.duration("ms")),
    *(pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.bool_()),
]


@pytest.fixture(scope="module")
def typed(tmp_path_factory) -> str:
    """`id` 0 to 3, and a column for each of KINDS: `c0`, `c1`, …; `far`: the year 3000, `most`: the highest uint64."""
    numbers = pa.array([0, 0, None, 0], pa.int32())
    columns = {}
    for at, kind in enumerate(KINDS):
        text = pa.array(["0", "1", None, "0"], pa.string())
        by_text = pa.types.is_decimal(kind) or pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
        by_text |= kind in {pa.string(), pa.binary()}
        source = pa.array(["0", "0", None, "0"]) if pa.types.is_decimal(kind) else text if by_text else numbers
        wide = pa.types.is_time64(kind) or pa.types.is_date64(kind) or pa.types.is_timestamp(kind)
        wide |= pa.types.is_duration(kind)
        columns[f"c{at}"] = (source.cast(pa.int64()) if wide else source).cast(kind)
    columns["far"] = pa.array([dt.date(3000, 1, 1)] * 4)
    columns["most"] = pa.array([2**64 - 1] * 4, pa.uint64())
    columns["fine"] = pa.array([dt.datetime(2024, 6, 1, 0, 0, 0, 5)] * 4, pa.timestamp("us"))
    columns["seconds"] = pa.array(MOMENTS, pa.timestamp("s"))
    columns["pacific"] = pa.array(MOMENTS, pa.timestamp("ms", "America/Los_Angeles"))
    columns["short"] = pa.array([1, 2, 3, 4], pa.int8())
    columns["high"] = pa.array([127] * 4, pa.int8())
    columns["highest"] = pa.array([2**63 - 1] * 4)
    columns["cents"] = pa.array([Decimal("999.99")] * 4, pa.decimal128(5, 2))
    columns["tiny"] = pa.array([Decimal("0.5")] * 4, pa.decimal128(38, 38))
    columns["real"] = pa.array([0.5] * 4, pa.float32())
    columns["word"] = pa.array(["a", "b", "a", None]).dictionary_encode()
    columns["flag"] = pa.array([True, False, None, True])
    where = str(tmp_path_factory.mktemp("typed") / "t.lance")
    lance.write_dataset(pa.table({"id": range(4), **columns}), where, enable_stable_row_ids=True)
    return where


@pytest.mark.parametrize("at", range(len(KINDS)), ids=map(str, KINDS))
def test_a_case_keeps_the_type_of_its_branches(typed, at):
    stored = lance.dataset(typed).to_table([f"c{at}"]).column(0).to_pylist()
    for expression in (f"case when id > 0 then c{at} end", f"case when id < 1 then null else c{at} end"):
        assert LanceTables().expression_type(typed, expression) == KINDS[at]
        assert values(typed, expression) == [None, *stored[1:]]


@pytest.mark.parametrize(
    ("expression", "kind", "expected"),
    [
        ("case when id > 2 then most else 0 end", pa.uint64(), [0, 0, 0, 2**64 - 1]),
        ("case when id > 2 then most else -1 end", pa.decimal128(20, 0), [-1, -1, -1, 2**64 - 1]),
        ("case when id > 2 then short else (7) end", pa.int8(), [7, 7, 7, 4]),
        ("case when id > 2 then short else 200 end", pa.int64(), [200, 200, 200, 4]),
        ("case when id > 2 then 1 when id > 1 then 2 end", pa.int64(), [None, None, 2, 1]),
        ("case when id > 2 then cents else 5 end", pa.decimal128(5, 2), [5, 5, 5, Decimal("999.99")]),
        ("case when id > 2 then tiny end", pa.decimal128(38, 38), [None, None, None, Decimal("0.5")]),
        ("case when id > 2 then cents else real end", pa.float64(), [0.5, 0.5, 0.5, 999.99]),
        ("case when id > 2 then short else 'x' end", pa.string(), ["x", "x", "x", "4"]),
        ("case when id > 0 then word else 'x' end", pa.string(), ["x", "b", "a", None]),
        (
            "case when id > 2 then far else fine end",
            pa.timestamp("us"),
            [*[dt.datetime(2024, 6, 1, 0, 0, 0, 5)] * 3, dt.datetime(3000, 1, 1)],
        ),
        (
            "case when id > 0 then fine else seconds end",
            pa.timestamp("us"),
            [MOMENTS[0], *[dt.datetime(2024, 6, 1, 0, 0, 0, 5)] * 3],
        ),
    ],
)
def test_branches_of_several_types_have_one_that_holds_all(typed, expression, kind, expected):
    assert LanceTables().expression_type(typed, expression) == kind
    assert values(typed, expression) == expected


def test_a_date_begins_in_the_zone_of_the_other_branch(typed):
    found = values(typed, "case when id < 9 then far else pacific end")
    assert found == [dt.datetime(3000, 1, 1, tzinfo=zoneinfo.ZoneInfo("America/Los_Angeles"))] * 4


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        (
            "case when id > 2 then tiny else id end",
            "hold all branches of CASE, decimal128(38, 38) and int64: cast them",
        ),
        ("case when id > 2 then flag else 1 end", "branches of CASE are numbers and truth values: cast"),
        ("case when id > 2 then fine else 'x' end", "branches of CASE are dates and timestamps and text: cast"),
        ("case when id > 2 then fine else id end", "branches of CASE are dates and timestamps and numbers: cast"),
    ],
)
def test_branches_that_no_type_holds_are_refused(typed, expression, said):
    with pytest.raises(InvalidArgument) as caught:
        LanceTables().expression_type(typed, expression)
    assert said in caught.value.message


@pytest.mark.parametrize(
    ("expression", "kind", "expected"),
    [
        ("high + high", pa.int8(), -2),
        ("high * 2", pa.int8(), -2),
        ("highest + 1", pa.int64(), -(2**63)),
        ("cast(high as bigint) * 2", pa.int64(), 254),
        ("cast(highest as decimal(38, 0)) * 2", pa.decimal128(38, 0), Decimal(2**64 - 2)),
    ],
)
def test_whole_numbers_wrap_as_the_docs_say(typed, expression, kind, expected):
    assert LanceTables().expression_type(typed, expression) == kind
    assert values(typed, expression) == [expected] * 4


@pytest.mark.parametrize(
    ("where", "ids"),
    [
        ("pacific >= to_timestamp('2024-06-01T00:00:00Z')", [2]),
        ("pacific = seconds", []),
        ("pacific >= timestamp '2024-06-01 00:00:00Z'", [1, 2]),
        ("pacific = arrow_cast(seconds, 'Timestamp(Microsecond, Some(\"UTC\"))')", [0, 1, 2]),
    ],
)
def test_clock_times_and_instants_are_compared_as_the_docs_say(typed, where, ids):
    assert matching(typed, where) == ids


@pytest.mark.parametrize(("deletions", "where"), [(False, ""), (True, ""), (False, "x >= 0")])
def test_no_more_than_8192_rows_of_an_expression_wait_for_each_other(tmp_path, deletions, where):
    """What is evaluated can be stored, and told of, before a whole fragment is."""
    lance.write_dataset(pa.table({"x": pa.array(range(40_000), pa.int64())}), tmp_path / "wide.lance")
    reader = FragmentReader(str(tmp_path / "wide.lance"), 1)
    chunks = list(reader.read(0, RowRange(0, 40_000), {"y": "(x * 2)"}, deletions=deletions, where=where))
    assert max(chunk.covered.rows for chunk in chunks) == 8192
    assert [y for chunk in chunks for y in chunk.rows.column("y").to_pylist()] == list(range(0, 80_000, 2))
