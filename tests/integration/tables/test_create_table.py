"""CreateTable: what a new table has, which ones are refused, and what a repeated request is answered."""

from __future__ import annotations

import grpc
import lance
import pyarrow as pa
import pytest

from leman_coordinator.lance_io import row_commits
from leman_coordinator.lance_io.table_handle import CommitUnclear
from leman_core.storage.lance_tables import LanceTables
from tests.integration.commits.test_commit_service import refusal, run
from tests.integration.tables.table_helpers import coordinator, ipc_schema

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("s", pa.string())])


def test_a_table_has_its_columns_no_rows_stable_row_ids_and_an_incarnation(tmp_path):
    async def scenario():
        async with coordinator(tmp_path) as up:
            await up.create(SCHEMA.with_metadata({"mine": "1", "leman::view::query": "{}"}))
            await up.create(SCHEMA, "plain", stable_row_ids=False)

    run(scenario)
    dataset = lance.dataset(tmp_path / "t.lance")
    assert dataset.schema == SCHEMA
    assert dataset.schema.metadata == {b"mine": b"1"}
    assert (dataset.count_rows(), dataset.has_stable_row_ids) == (0, True)
    assert LanceTables().snapshot(str(tmp_path / "t.lance")).incarnation
    assert not lance.dataset(tmp_path / "plain.lance").has_stable_row_ids


@pytest.mark.parametrize(
    "field",
    [
        pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"}),
        pa.field("m", pa.map_(pa.string(), pa.int32())),
        pa.field("p", pa.struct([("m", pa.map_(pa.string(), pa.int32()))])),
        pa.field("j", pa.json_()),
        pa.field("d", pa.dictionary(pa.int8(), pa.string())),
    ],
    ids=lambda field: field.name,
)
def test_types_that_need_a_file_format_of_their_own_get_it(tmp_path, field):
    rows = {
        "b": [b"x" * 100, None],
        "m": [[("a", 1)], None],
        "p": [{"m": [("a", 1)]}, None],
        "j": ['{"a":1}', None],
        "d": ["a", None],
    }
    values = pa.array(rows[field.name], field.type)

    async def scenario():
        async with coordinator(tmp_path) as up:
            await up.create(pa.schema([field]))
            await up.append(pa.table([values], schema=pa.schema([field])))
            return await up.read()

    assert run(scenario).column(0).to_pylist() == rows[field.name]


@pytest.mark.parametrize(
    ("name", "schema", "code", "reason", "field"),
    [
        ("_t", SCHEMA, "INVALID_ARGUMENT", "BAD_TABLE_NAME", "table.table"),
        ("-x", SCHEMA, "INVALID_ARGUMENT", "BAD_TABLE_NAME", "table.table"),
        ("a:b", SCHEMA, "INVALID_ARGUMENT", "BAD_TABLE_NAME", "table.table"),
        ("a\nb", SCHEMA, "INVALID_ARGUMENT", "BAD_TABLE_NAME", "table.table"),
        ("x" * 300, SCHEMA, "INVALID_ARGUMENT", "BAD_TABLE_NAME", "table.table"),
        ("t", pa.schema([]), "INVALID_ARGUMENT", "BAD_SCHEMA", "schema"),
        ("t", pa.schema([("a", pa.int8()), ("a", pa.int8())]), "INVALID_ARGUMENT", "BAD_COLUMN", "schema"),
        ("t", pa.schema([("a.b", pa.int8())]), "INVALID_ARGUMENT", "BAD_COLUMN_NAME", "schema"),
        ("t", pa.schema([("_rowid", pa.int8())]), "INVALID_ARGUMENT", "BAD_COLUMN_NAME", "schema"),
        ("t", pa.schema([("u", pa.list_view(pa.int8()))]), "FAILED_PRECONDITION", "TYPE_NOT_STORABLE", ""),
        ("there", SCHEMA, "ALREADY_EXISTS", "TABLE_EXISTS", ""),
    ],
)
def test_what_can_be_no_table_is_refused_with_a_reason(tmp_path, name, schema, code, reason, field):
    lance.write_dataset(pa.table({"a": [1]}), tmp_path / "there.lance")

    async def scenario():
        async with coordinator(tmp_path) as up:
            return await refusal(up.create(schema, name))

    assert run(scenario) == (grpc.StatusCode[code], reason, field)
    assert lance.dataset(tmp_path / "there.lance").count_rows() == 1


def test_no_schema_a_bad_one_and_no_request_id_are_refused(tmp_path):
    from leman.v1 import tables_pb2

    async def scenario():
        async with coordinator(tmp_path) as up:
            ref = up.ref("t")
            wrong = (
                tables_pb2.CreateTableRequest(table=ref, request_id="1"),
                tables_pb2.CreateTableRequest(table=ref, request_id="1", schema=b"nonsense"),
                tables_pb2.CreateTableRequest(table=ref, schema=ipc_schema(SCHEMA)),
            )
            return [(await refusal(up.CreateTable(request)))[1:] for request in wrong]

    assert run(scenario) == [("MISSING_FIELD", "schema"), ("BAD_SCHEMA", "schema"), ("MISSING_FIELD", "request_id")]


def test_a_repeated_request_is_answered_with_the_table_also_after_a_restart(tmp_path):
    async def scenario():
        async with coordinator(tmp_path) as up:
            first = await up.create(SCHEMA, request_id="mine")
            again = await up.create(SCHEMA, request_id="mine")
        lance.dataset(tmp_path / "t.lance").update_config({"something": "else"})
        async with coordinator(tmp_path) as up:
            restarted = await up.create(SCHEMA, request_id="mine")
            other = await refusal(up.create(pa.schema([("x", pa.int8())]), request_id="mine"))
            foreign = await refusal(up.create(SCHEMA, request_id="theirs"))
        return first, again, restarted, other[1], foreign[1]

    first, again, restarted, other, foreign = run(scenario)
    assert first == again == restarted == lance.dataset(tmp_path / "t.lance").version - 1
    assert (other, foreign) == ("REQUEST_ID_REUSED", "TABLE_EXISTS")


def test_a_creation_that_was_cut_short_is_completed_by_its_own_request_alone(tmp_path, monkeypatch):
    """The table is there, and nothing says yet who made it but the history."""
    complete = row_commits.complete_creation
    monkeypatch.setattr(row_commits, "complete_creation", _unclear)

    async def scenario():
        async with coordinator(tmp_path, version_conflict_max_retries=0) as up:
            unknown = await refusal(up.create(SCHEMA, request_id="mine"))
        monkeypatch.setattr(row_commits, "complete_creation", complete)
        async with coordinator(tmp_path) as up:
            foreign = await refusal(up.create(SCHEMA, request_id="theirs"))
            await up.create(SCHEMA, request_id="mine")
        return unknown[1], foreign[1]

    assert run(scenario) == ("COMMIT_UNKNOWN", "TABLE_EXISTS")
    assert LanceTables().snapshot(str(tmp_path / "t.lance")).incarnation


def _unclear(*_arguments):
    raise CommitUnclear("the process died")
