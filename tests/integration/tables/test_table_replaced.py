"""What is sent again after its table was dropped, renamed or made again: it is done there, not answered from memory."""

from __future__ import annotations

import shutil

import grpc
import lance
import pyarrow as pa
import pytest

from leman.v1 import commit_pb2, tables_pb2
from leman_core.storage.lance_tables import LanceTables
from leman_core.wire import convert_values
from leman_internal.v1 import submission_pb2
from tests.integration.commits.commit_helpers import new_field
from tests.integration.commits.test_commit_service import refusal, run
from tests.integration.tables.table_helpers import coordinator, ipc_schema

SCHEMA = pa.schema([("x", pa.int64())])
ROWS = pa.table({"x": [1, 2]}, schema=SCHEMA)


def plain(up):
    schema = ipc_schema(pa.schema([("n", pa.int8())]))
    return tables_pb2.AddPlainColumnsRequest(table=up.ref("t"), schema=schema, request_id="plain")


def computed(uri, name="c"):
    """As the planner sends it: for whichever table is there."""
    schema = pa.schema([new_field(LanceTables().snapshot(uri), name)])
    added = submission_pb2.AddNullColumns(schema=convert_values.schema_to_bytes(schema))
    return submission_pb2.SubmitCommitRequest(uri=uri, request_id="computed", add_null_columns=added)


async def dropped_here(up, uri):
    await up.drop()
    await up.create(SCHEMA, request_id="anew")


async def renamed_here(up, uri):
    await up.rename("other")
    await up.create(SCHEMA, request_id="anew")


async def dropped_by_others(up, uri):
    """A process of its own, as another coordinator is, or Lance in a caller's program."""
    shutil.rmtree(uri)
    async with coordinator(up.database) as other:
        await other.create(SCHEMA, request_id="anew")


@pytest.mark.parametrize("replaced", [dropped_here, renamed_here, dropped_by_others])
def test_what_was_done_to_a_table_is_done_to_the_one_that_takes_its_place(tmp_path, replaced):
    uri = str(tmp_path / "t.lance")

    async def scenario():
        async with coordinator(tmp_path) as up:
            await up.create(SCHEMA, request_id="first")
            add_computed = computed(uri)

            async def all_of_it():
                appended = await up.append(ROWS, request_id="load-1")
                await up.AddPlainColumns(plain(up))
                await up.SubmitCommit(add_computed)
                return appended.rows_added

            added = [await all_of_it(), await all_of_it()]
            before = LanceTables().snapshot(uri).version
            await replaced(up, uri)
            unknown = await refusal(up.GetCommit(commit_pb2.GetCommitRequest(table=up.ref("t"), request_id="computed")))
            added += [await all_of_it(), await all_of_it()]
            return added, unknown[1], before

    added, unknown, before = run(scenario)
    dataset = lance.dataset(uri)
    assert added == [2, 2, 2, 2]
    assert unknown == "COMMIT_NOT_FOUND"
    assert dataset.schema.names == ["x", "n", "c"]
    assert dataset.to_table(columns=["x"]).equals(ROWS)
    assert dataset.version <= before


def test_rows_of_a_table_without_an_incarnation_are_added_to_the_next_one(tmp_path):
    """Leman never wrote to it but for the rows, so that nothing in it tells it from others."""
    lance.write_dataset(SCHEMA.empty_table(), str(tmp_path / "t.lance"))

    async def scenario():
        async with coordinator(tmp_path) as up:
            await up.append(ROWS, request_id="load-1")
            await up.drop()
            await up.create(SCHEMA)
            await up.append(ROWS, request_id="load-1")

    run(scenario)
    assert lance.dataset(tmp_path / "t.lance").count_rows() == 2


def test_what_was_sent_to_a_table_that_is_gone_finds_none(tmp_path):
    async def scenario():
        async with coordinator(tmp_path) as up:
            await up.create(SCHEMA)
            await up.append(ROWS, request_id="load-1")
            await up.AddPlainColumns(plain(up))
            await up.drop()
            return [await refusal(c) for c in (up.append(ROWS, request_id="load-1"), up.AddPlainColumns(plain(up)))]

    assert run(scenario) == [(grpc.StatusCode.NOT_FOUND, "TABLE_NOT_FOUND", "")] * 2


@pytest.mark.parametrize("how", ["drop", "rename", "others"])
def test_a_table_that_is_gone_is_made_again_by_the_same_request(tmp_path, how):
    uri = str(tmp_path / "t.lance")

    async def scenario():
        async with coordinator(tmp_path) as up:
            first = await up.create(SCHEMA, request_id="daily")
            again = await up.create(SCHEMA, request_id="daily")
            if how == "drop":
                await up.drop()
            elif how == "rename":
                await up.rename("other")
            else:
                shutil.rmtree(uri)
            anew = await up.create(SCHEMA, request_id="daily")
            await up.append(ROWS)
            await up.create(SCHEMA, request_id="daily")
            return first, again, anew

    first, again, anew = run(scenario)
    assert first == again == anew
    assert lance.dataset(uri).count_rows() == 2


def test_a_request_whose_name_another_one_took_makes_no_table(tmp_path):
    async def scenario():
        async with coordinator(tmp_path) as up:
            await up.create(SCHEMA, request_id="daily")
            await up.drop()
            await up.create(SCHEMA, request_id="another")
            return (await refusal(up.create(SCHEMA, request_id="daily")))[1]

    assert run(scenario) == "TABLE_EXISTS"


@pytest.mark.parametrize("gone", ["rename", "drop", "others"])
def test_a_rename_is_known_for_as_long_as_the_table_has_the_new_name(tmp_path, gone):
    def table(name):
        return tmp_path / f"{name}.lance"

    async def scenario():
        async with coordinator(tmp_path) as up:
            await up.create(SCHEMA, "zz")
            await up.append(ROWS, "zz")
            version = await up.rename("yy", "zz", request_id="rn1")
            await up.create(SCHEMA, "zz")
            known = await up.rename("yy", "zz", request_id="rn1")
        async with coordinator(tmp_path) as up:  # another process: it is known from the table
            known = known, await up.rename("yy", "zz", request_id="rn1")
            assert table("zz").exists()
            if gone == "rename":
                await up.rename("xx", "yy", request_id="rn2")
            elif gone == "drop":
                await up.drop("yy")
            else:
                shutil.rmtree(table("yy"))
            await up.rename("yy", "zz", request_id="rn1")
            return version, known

    version, known = run(scenario)
    assert known == (version, version)
    assert not table("zz").exists()
    assert lance.dataset(table("yy")).count_rows() == 0
