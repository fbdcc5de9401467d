"""DeleteRows: which rows go, how often, and beside whom."""

from __future__ import annotations

import grpc
import lance
import pyarrow as pa
import pytest

from leman_coordinator.lance_io import row_commits
from tests.integration.commits.commit_helpers import Planner, add_columns, between, make_table, submit
from tests.integration.commits.test_commit_service import refusal, run
from tests.integration.tables.table_helpers import coordinator


@pytest.fixture
def table(tmp_path):
    """Four fragments of ten rows, with an empty computed column `c`."""
    return make_table(str(tmp_path / "t.lance"))


def ids(uri):
    return lance.dataset(uri).to_table(columns=["id"]).column("id").to_pylist()


def delete(table, where, **fields):
    async def scenario():
        async with coordinator(table.uri.rpartition("/")[0]) as up:
            return await up.delete(where, **fields)

    return run(scenario)


@pytest.mark.parametrize("most", [1 << 24, 5], ids=["by address", "by filter"])
@pytest.mark.parametrize(
    ("where", "gone"),
    [
        ("id IN (1, 2, 35)", {1, 2, 35}),
        ("id >= 5 AND id < 20", set(range(5, 20))),
        ("id < 10", set(range(10))),
        ("true", set(range(40))),
        ("CASE WHEN id < 3 THEN true ELSE id = 20 END", {0, 1, 2, 20}),
    ],
)
def test_matching_rows_go_and_are_counted(table, monkeypatch, most, where, gone):
    monkeypatch.setattr(row_commits, "_MOST_ADDRESSES", most)
    before = table.open().version

    answer = delete(table, where)

    assert (answer.version, answer.rows_deleted) == (before + 1, len(gone))
    assert ids(table.uri) == [i for i in range(40) if i not in gone]
    assert delete(table, where).rows_deleted == 0
    assert table.open().version == before + 1, "nothing to delete makes no version"
    table.open().validate()


@pytest.mark.parametrize(
    ("fields", "code", "reason", "field"),
    [
        ({"where": ""}, "INVALID_ARGUMENT", "MISSING_FIELD", "where"),
        ({"where": "id ="}, "INVALID_ARGUMENT", "INVALID_FILTER", "where"),
        ({"where": "id > 0; drop table t"}, "INVALID_ARGUMENT", "INVALID_FILTER", "where"),
        ({"where": "1 / (id - 5) > 0"}, "FAILED_PRECONDITION", "FILTER_FAILED", ""),
        ({"where": "true", "table": "nope"}, "NOT_FOUND", "TABLE_NOT_FOUND", ""),
    ],
)
def test_what_cannot_be_deleted_is_refused_with_a_reason(table, fields, code, reason, field):
    async def scenario():
        async with coordinator(table.uri.rpartition("/")[0]) as up:
            return await refusal(up.delete(**fields))

    assert run(scenario) == (grpc.StatusCode[code], reason, field)
    assert ids(table.uri) == [*range(40)]


def test_a_repeated_request_deletes_nothing_more_also_after_a_restart(table):
    async def scenario():
        database = table.uri.rpartition("/")[0]
        async with coordinator(database) as up:
            first = await up.delete("id < 3", request_id="mine")
            await up.append(pa.table({"id": pa.array([0, 1], pa.int64()), "x": pa.array([0, 1], pa.int64())}))
            again = await up.delete("id < 3", request_id="mine")
        async with coordinator(database) as up:
            restarted = await up.delete("id < 3", request_id="mine")
            other = await refusal(up.delete("id < 4", request_id="mine"))
        return first, again, restarted, other[1]

    first, again, restarted, other = run(scenario)
    assert first == again == restarted
    assert (first.rows_deleted, other) == (3, "REQUEST_ID_REUSED")
    assert ids(table.uri) == [*range(3, 40), 0, 1]


@pytest.mark.parametrize(
    "meanwhile",
    [
        lambda table: submit(Planner(table).request(0, 1)),
        lambda table: table.open().delete("id = 1"),
        lambda table: table.open().update({"x": "99"}, where="id = 2"),
        lambda table: table.open().optimize.compact_files(target_rows_per_fragment=100),
        lambda table: add_columns(table.uri, ["late"]),
    ],
    ids=["column files", "delete", "update", "compaction", "column"],
)
def test_what_others_commit_between_look_and_commit_is_not_lost(table, monkeypatch, meanwhile):
    """Lance rebases a delete over some commits, and refuses it over others: then it is tried on what they made."""
    expected = table.open().to_table(filter="id < 5 OR id > 12")

    def action():
        meanwhile(table)
        nonlocal expected
        expected = table.open().to_table(filter="id < 5 OR id > 12")

    between(monkeypatch, action)
    answer = delete(table, "id >= 5 AND id <= 12")

    assert answer.rows_deleted == 8
    found = table.open().to_table()
    assert found.sort_by("id") == expected.sort_by("id")
    table.open().validate()
