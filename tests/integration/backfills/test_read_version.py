"""`read_version`: rows as they were in an older version, by their place or by their row ids, in one process."""

from __future__ import annotations

import datetime as dt
import secrets
from typing import Any

import lance
import pyarrow as pa
import pytest

from leman._format.stored_functions import UdfDefinition, UdfKind
from leman_core.model.plan import Plan, summarize_plan
from leman_core.model.service_errors import FailedPrecondition, InvalidArgument, NotFound
from leman_core.storage.column_files import ColumnFileWriter
from tests.integration.types.types_pipeline import Pipeline

ROWS = 9


class Past:
    """`t`: id, x = 10 * id in three fragments of three rows; y is x as it is computed. `version`: the one before what a
    test changes."""

    def __init__(self, pipeline: Pipeline, *, stable: bool = True, sql: bool = False) -> None:
        self.pipeline = pipeline
        self.name = pipeline.table(data(range(ROWS)), stable=stable)
        expression = UdfDefinition("twice", "1", UdfKind.SQL, ("x",), pa.int64(), sql_expression="x * 1")
        pipeline.add(self.name, "y", pipeline.sql(expression) if sql else pipeline.function(pa.int64()))
        self.version = self.table.version

    @property
    def table(self) -> lance.LanceDataset:
        return self.pipeline.open(self.name)

    def backfill(self, **spec: Any) -> Plan:
        return self.pipeline.backfill(self.name, "y", **spec)

    def then(self, **spec: Any) -> Plan:
        return self.backfill(read_version=self.version, **spec)

    def values(self) -> dict[int, int | None]:
        rows = self.table.to_table(columns=["id", "y"]).to_pylist()
        return {row["id"]: row["y"] for row in rows}

    def replace_x(self, fragment_id: int) -> None:
        """Writes x of a fragment again, in place: x + 1."""
        dataset = self.table
        values = dataset.get_fragment(fragment_id).to_table(columns={"x": "x + 1"}).column("x").combine_chunks()
        writer = ColumnFileWriter(dataset.uri, dataset.schema.field("x"))
        name = f"{secrets.token_hex(8)}.lance"
        writer.open(name)
        writer.write(values)
        writer.close(None, frozenset(), name)
        file = lance.fragment.DataFile.create(dataset, name)
        group = lance.LanceOperation.DataReplacementGroup(fragment_id, file)
        operation = lance.LanceOperation.DataReplacement([group])
        lance.LanceDataset.commit(dataset, operation, read_version=dataset.version)


def data(ids: range) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "x": pa.array([10 * i for i in ids], pa.int64())})


def reasons(plan: Plan) -> dict[str, tuple[int, int]]:
    """(fragments, rows) of each."""
    return {count.reason.name: (count.fragments, count.rows) for count in plan.header.reasons}


OF_THEN = {i: 10 * i for i in range(ROWS)}


@pytest.fixture(params=["stable", "not stable", "sql"])
def past(pipeline: Pipeline, request: pytest.FixtureRequest) -> Past:
    return Past(pipeline, stable=request.param != "not stable", sql=request.param == "sql")


def test_an_input_that_was_written_in_place_is_read_as_it_was(past):
    past.replace_x(1)
    plan = past.then()
    assert reasons(plan) == {"MISSING": (2, 6), "PAST_INPUT": (1, 3)}
    assert plan.header.inputs_version == past.version
    assert "3 rows get the values of version" in summarize_plan(plan)
    assert past.values() == OF_THEN
    assert not past.then().tasks, "all of it is of then"

    now = past.backfill()
    assert reasons(now) == {"REUSED": (2, 6), "INPUT_CHANGED": (1, 3)}
    assert past.values() == {**OF_THEN, 3: 31, 4: 41, 5: 51}
    assert not past.backfill().tasks


def test_values_of_now_give_way_to_those_of_then(past):
    past.replace_x(0)
    past.backfill()
    assert reasons(past.then()) == {"REUSED": (2, 6), "PAST_INPUT": (1, 3)}
    assert past.values() == OF_THEN


def test_rows_that_were_deleted_or_added_since(past):
    past.table.delete("id = 4")
    past.replace_x(2)
    lance.write_dataset(data(range(20, 22)), past.table.uri, mode="append")
    plan = past.then()
    assert plan.header.rows_total == 8
    there = {i: x for i, x in OF_THEN.items() if i != 4}
    assert past.values() == {**there, 20: None, 21: None}
    assert past.backfill().header.rows_to_compute == 5
    assert past.values() == {**there, 6: 61, 7: 71, 8: 81, 20: 200, 21: 210}


def test_a_filter_is_that_of_then(past):
    past.replace_x(0)
    past.then(where="x = 10")
    assert past.values() == {**dict.fromkeys(range(ROWS)), 1: 10}
    past.then()
    assert past.values() == OF_THEN
    with pytest.raises(InvalidArgument, match="Leave out read_version, or remove the column"):
        past.then(where="y is null")


@pytest.mark.parametrize("sql", [False, True])
def test_rows_that_an_update_moved_are_found_by_their_ids(pipeline, sql):
    past = Past(pipeline, sql=sql)
    past.backfill()
    past.table.update({"x": "x + 5"}, where="id in (1, 7)")
    lance.write_dataset(data(range(20, 23)), past.table.uri, mode="append")
    plan = past.then()
    assert reasons(plan) == {"REUSED": (3, 7), "PAST_INPUT": (1, 2)}
    assert past.values() == {**OF_THEN, **dict.fromkeys(range(20, 23))}
    assert not past.then().tasks
    assert reasons(past.backfill())["INPUT_CHANGED"] == (1, 2)
    assert past.values() == {**OF_THEN, 1: 15, 7: 75, 20: 200, 21: 210, 22: 220}


@pytest.mark.parametrize("where", ["", "x > 20"])
def test_rows_that_compaction_moved_together_with_new_ones(pipeline, where):
    past = Past(pipeline)
    past.table.delete("id = 2")
    lance.write_dataset(data(range(20, 22)), past.table.uri, mode="append")
    past.table.update({"x": "-1"}, where="id = 3")
    past.table.optimize.compact_files()
    assert len(past.table.get_fragments()) == 1
    plan = past.then(where=where)
    assert reasons(plan) == {"PAST_INPUT": (1, 8)}
    there = {i: x for i, x in OF_THEN.items() if i != 2}
    found = past.values()
    assert found == {**{i: x if not where or x > 20 else None for i, x in there.items()}, 20: None, 21: None}
    assert not past.then(where=where).tasks
    past.then()
    assert past.values() == {**there, 20: None, 21: None}
    past.backfill()
    assert past.values() == {**there, 3: -1, 20: 200, 21: 210}


def test_rows_that_moved_are_not_found_without_stable_ids(pipeline):
    past = Past(pipeline, stable=False)
    past.table.optimize.compact_files()
    with pytest.raises(FailedPrecondition, match="without stable row ids") as caught:
        past.then()
    assert caught.value.reason == "READ_VERSION_ROWS_MOVED"


def test_an_overwritten_table_has_no_rows_of_then(pipeline):
    past = Past(pipeline)
    lance.write_dataset(past.table.to_table(), past.table.uri, mode="overwrite")
    plan = past.then()
    assert (len(plan.tasks), plan.header.rows_total) == (0, 0)


def test_a_column_that_was_called_otherwise_or_was_not_there(pipeline):
    past = Past(pipeline)
    past.table.alter_columns({"path": "x", "name": "was x"})
    assert past.then().header.input_columns == ("x",)
    assert past.values() == OF_THEN
    past.table.add_columns({"later": "id + 1"})
    pipeline.add(past.name, "z", pipeline.function(pa.int64()), ("later",))
    with pytest.raises(FailedPrecondition, match="does not have the input column 'later'") as caught:
        pipeline.backfill(past.name, "z", read_version=past.version)
    assert caught.value.reason == "READ_VERSION_INPUT_MISSING"


def test_a_tag_stands_for_its_version(pipeline):
    past = Past(pipeline)
    past.table.tags.create("v1-tag", past.version)
    past.replace_x(1)
    assert past.backfill(read_tag="v1-tag").header.inputs_version == past.version
    assert past.values() == OF_THEN
    with pytest.raises(NotFound, match=r"no tag 'v2'\. Its tags: v1-tag") as caught:
        past.backfill(read_tag="v2")
    assert caught.value.reason == "TAG_NOT_FOUND"
    with pytest.raises(InvalidArgument, match="either read_version or read_tag"):
        past.backfill(read_tag="v1-tag", read_version=1)


def test_a_version_that_was_cleaned_up(pipeline):
    past = Past(pipeline)
    past.replace_x(1)
    past.table.cleanup_old_versions(older_than=dt.timedelta(0), delete_unverified=True)
    with pytest.raises(NotFound) as caught:
        past.then()
    assert caught.value.reason == "VERSION_NOT_FOUND"
