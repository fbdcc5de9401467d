"""Conditions of a merge: what Lance's merge would misread is refused, and times in them are what their columns say."""

from __future__ import annotations

import datetime as dt
from types import SimpleNamespace

import lance
import pyarrow as pa
import pytest

from leman_coordinator.commits.commit_requests import MergeRowsRequest, MergeRules
from leman_coordinator.lance_io import row_rewrites, row_staging
from leman_coordinator.lance_io.row_rewrites import prepared_merge, update_condition
from leman_coordinator.lance_io.table_handle import TableHandle
from leman_core.model.service_errors import FailedPrecondition, InvalidArgument, LemanError, Unavailable

ZONED = pa.timestamp("us", "Europe/Zurich")
PLAIN = pa.timestamp("us")
SCHEMA = pa.schema(
    {
        "local": ZONED,
        "plain": PLAIN,
        "day": pa.date32(),
        "text": pa.string(),
        "json": pa.json_(),
        "both": pa.struct({"local": ZONED, "plain": PLAIN}),
    }
)
TIME = "timestamp '2026-01-01T00:00:00+00:00'"


@pytest.mark.parametrize(
    "where",
    [
        f"target.local < {TIME}",
        f"target.LOCAL < {TIME}",
        f"{TIME} > source.`local`",
        f"source.both.local = {TIME}",
        f"source.plain < {TIME} OR target.local < {TIME}",
        "target.local < '2026-01-01'",
        "target.local < arrow_cast(1, 'Timestamp(Microsecond, None)')",
        'target.text <> "text"',
        "target.json = source.json",
        "CASE WHEN source.text = 'a' THEN true ELSE false END",
    ],
)
def test_what_lance_would_misread_is_refused(where):
    with pytest.raises(InvalidArgument) as refused:
        update_condition(SCHEMA, where)
    assert (refused.value.reason, refused.value.field) == ("INVALID_FILTER", "header.update_where")


@pytest.mark.parametrize(
    ("where", "spoken"),
    [
        (f"target.plain < {TIME}", f"target.plain < {TIME}"),
        (f"{TIME} > source.both.plain", f"{TIME} > source.both.plain"),
        ("target.day < '2026-01-01'", "target.day < date '2026-01-01'"),
        ("target.text = '2026-01-01'", "target.text = '2026-01-01'"),
        ("source.json IS NULL AND target.local < source.local", "source.json IS NULL AND target.local < source.local"),
    ],
)
def test_what_it_reads_right_stays(where, spoken):
    assert update_condition(SCHEMA, where) == spoken


@pytest.fixture
def merge(tmp_path):
    """Merges two rows into a table of four as the coordinator does."""
    uri, file = str(tmp_path / "t.lance"), tmp_path / "rows.arrow"
    rows = pa.table({"x": range(4), "s": ["a", "b", "1", "2"], "n": [0, 0, 1, 2]})
    lance.write_dataset(rows, uri, enable_stable_row_ids=True)
    with pa.ipc.new_stream(file, rows.schema) as sink:
        sink.write_table(rows.slice(1, 2))

    def merge(update="", delete=""):
        rules = MergeRules(
            on=("x",),
            update_matched=bool(update),
            update_where=update,
            insert_not_matched=False,
            delete_not_matched_by_source=bool(delete),
            delete_where=delete,
        )
        rules = row_rewrites.pinned_rules(uri, rules, dt.datetime.now(dt.UTC))
        request = MergeRowsRequest(
            uri=uri, request_id="r", body="", incarnation="", columns=(), rules=rules, rows=str(file)
        )
        with prepared_merge(TableHandle(uri), request) as ready:
            return ready.counts

    return merge


@pytest.mark.parametrize(
    ("side", "where", "said"),
    [
        ("update", "target.x.y > 1", "type Int64 is not Struct"),
        ("update", "source.x.y > 1", "type Int64 is not Struct"),
        ("update", "target.s.a.b = 'a'", "type Utf8 is not Struct"),
        ("update", "target.x between 1 and target.x between 1 and 2", "condition"),
        ("update", "n <> 1", "write source.n or target.n"),
        ("update", "target.nope > 1", "there is no target.nope"),
        ("update", "target._row_created_at_version > 1", "there is no target._row_created_at_version"),
        ("update", "cast(target.n as decimal(99, 2)) > 1", r"decimal\(99, 2\) is not a valid type"),
        ("delete", "cast(n as decimal(99, 2)) > 1", r"decimal\(99, 2\) is not a valid type"),
        ("delete", "x.y > 1", "type Int64 is not Struct"),
        ("delete", "x = 3 and _rowid > 1", "_rowid is Lance's own"),
        ("delete", "`_rowaddr` > 1", "_rowaddr` is Lance's own"),
        ("delete", "_row_created_at_version > 1", "is Lance's own"),
        ("delete", "_rowoffset > 1", "Lance's own|_rowoffset"),
    ],
)
def test_a_condition_that_lance_cannot_plan_is_the_callers_to_correct(merge, side, where, said):
    with pytest.raises(InvalidArgument, match=said) as refused:
        merge(**{side: where})
    assert (refused.value.reason, refused.value.field) == ("INVALID_FILTER", f"header.{side}_where")


@pytest.mark.parametrize(
    ("side", "where"),
    [
        ("update", "10 / target.n > 1"),
        ("update", "cast(target.s as bigint) > 1"),
        ("update", "cast(target.n as decimal(2, 2)) > 0"),
        ("delete", "10 / n > 1"),
    ],
)
def test_a_condition_that_fails_for_a_row_is_no_fault_of_the_store(merge, side, where):
    with pytest.raises(LemanError) as refused:
        merge(**{side: where})
    assert (type(refused.value), refused.value.reason) == (FailedPrecondition, "FILTER_FAILED")


def test_what_lance_can_plan_is_merged(merge):
    assert merge(update="target._rowid > 0 and target.x <> 1") == (0, 1, 0)
    assert merge(delete="x = 3") == (0, 0, 1)


def test_a_merge_that_lance_would_refuse_again_is_no_fault_of_the_store():
    request = SimpleNamespace(uri="/t.lance", rules=SimpleNamespace(on=("x",), update_where="", delete_where=""))
    error = row_rewrites._failure(OSError("Not supported: overlays"), request, "")
    assert (type(error), error.reason) == (FailedPrecondition, "COMMIT_REFUSED")
    assert "Lance refuses this merge into /t.lance, and would again" in error.message


def test_values_that_lance_would_refuse_again_are_no_fault_of_the_store(tmp_path):
    file = row_staging._RowsFile.__new__(row_staging._RowsFile)
    file._uri, file._schema = str(tmp_path), pa.schema({"x": pa.int64(), "y": pa.int64()})
    told = "Lance cannot store values of the columns x, y"
    with pytest.raises(FailedPrecondition, match=told) as refused, file._writing():
        raise OSError("Not supported: nested maps")
    assert refused.value.reason == "COMMIT_REFUSED"
    with pytest.raises(Unavailable), file._writing():
        raise OSError("connection reset by peer")
