"""Plans of real tables after what happens to tables."""

import dataclasses
import datetime as dt
import json
from pathlib import Path

import lance
import pyarrow as pa
import pytest
import structlog

from leman._format.stored_functions import CheckpointBounds
from leman_core.model import keys
from leman_core.model.plan import summarize_plan
from leman_core.model.row_positions import RowRange
from leman_core.model.service_errors import FailedPrecondition, InvalidArgument, NotFound
from leman_core.storage.lance_tables import LanceTables
from leman_planner.planning.plan_maker import PlanMaker
from tests.integration.planner.planner_lake import ROWS, UDF, Lake, rows, states, why

UDF_2 = dataclasses.replace(UDF, version="2")


@pytest.fixture
def filled(lake):
    lake.fill(lake.plan())
    return lake


def all_of(reason, count=3):
    return dict.fromkeys(range(count), reason)


# ------------------------------------------------------------------ what makes values stale, and what does not


def test_a_new_column_is_missing_everywhere(lake):
    made = lake.plan()
    assert why(made) == all_of("MISSING")
    header = made.header
    assert (header.uri, header.read_version, header.input_columns) == (lake.uri, lake.open().version, ("x",))
    assert header.incarnation == lake.open().config()["leman.incarnation"]
    assert header.output.field.field_ids == tuple(header.output.field.field_ids[:1])
    assert header.input_field_ids == (1,)
    assert header.udf == UDF


def test_a_filled_column_costs_one_manifest(filled):
    class NoStore:
        def __getattr__(self, name):
            raise AssertionError(f"the checkpoint store was asked: {name}")

    version = filled.open().version
    made = filled.plan(reader=PlanMaker(LanceTables(), checkpoints=lambda uri: NoStore()))
    assert made.tasks == ()
    assert summarize_plan(made) == "3 of 3 fragments are current: nothing to do"
    assert filled.open().version == version


def test_appended_rows_are_new_fragments(filled):
    lance.write_dataset(rows(7, start=30), filled.uri, mode="append")
    assert why(filled.plan()) == {3: "MISSING"}


def test_a_deletion_makes_nothing_stale(filled):
    filled.open().delete("id < 15 AND id != 3")
    assert filled.plan().tasks == ()


def test_an_unrelated_column_makes_nothing_stale(filled):
    filled.open().add_columns({"z": "id * 2"})
    filled.rewrite("body", 1)
    assert filled.plan().tasks == ()


def test_updated_rows_are_recomputed_with_their_fragment_mates_alone(filled):
    filled.open().update({"x": "x + 1"}, where="id IN (3, 12)")
    assert why(filled.plan()) == {3: "EXTERNAL_WRITE"}


def test_a_rewritten_input_makes_its_fragment_stale(filled):
    filled.rewrite("x", 1)
    assert why(filled.plan()) == {1: "INPUT_CHANGED"}


def test_a_rewritten_struct_is_seen_although_lance_lists_only_its_leaves(tmp_path):
    lake = Lake(tmp_path, inputs=("box",))
    lake.fill(lake.plan())
    assert lake.plan().tasks == ()
    lake.rewrite("box", 2)
    task = lake.plan().tasks[0]
    assert (task.fragment_id, task.reason.name) == (2, "INPUT_CHANGED")
    assert len(task.input_files) == 1


def test_a_struct_column_is_found_in_its_file(tmp_path):
    lake = Lake(tmp_path)
    pair = dataclasses.replace(UDF, name="g", output_type=pa.struct([("a", pa.int64()), ("b", pa.list_(pa.int64()))]))
    lake.registry.put(pair)
    lake.add_column("pair", udf=pair)
    made = lake.plan("pair")
    field = made.header.output.field.arrow
    for task in made.tasks:
        path = Path(lake.uri, "data", f"{task.fingerprint}-a.lance")
        writer = lance.file.LanceFileWriter(str(path), pa.schema([field.remove_metadata()]))
        writer.write_batch(pa.record_batch([pa.array([{"a": 1, "b": [1]}] * ROWS, field.type)], names=["pair"]))
        writer.close()
        lake.install(made, task, path.name)
    assert lake.plan("pair").tasks == ()


def test_another_version_of_the_function_makes_all_stale(filled):
    filled.registry.put(UDF_2)
    assert why(filled.plan(udf_name="f", udf_version="2")) == all_of("UDF_CHANGED")
    filled.fill(filled.plan(udf_name="f", udf_version="2"))
    assert filled.plan(udf_name="f").tasks == ()  # the one registered last
    assert why(filled.plan()) == all_of("UDF_CHANGED")


def test_a_renamed_input_is_the_same_input(filled):
    filled.open().alter_columns({"path": "x", "name": "x2"})
    made = filled.plan()
    assert (made.tasks, made.header.input_columns) == ((), ("x2",))


def test_a_cast_input_is_another_input(filled):
    filled.open().alter_columns({"path": "x", "data_type": pa.int32()})
    made = filled.plan()
    assert why(made) == all_of("INPUT_CHANGED")
    assert made.header.input_field_ids == (filled.open().lance_schema.field("x").id(),)


def test_a_column_that_was_dropped_and_added_again_is_empty_and_uses_its_checkpoints(filled):
    filled.rewrite("x", 0)
    task = filled.plan().tasks[0]
    filled.checkpoint(task, 0, ROWS)
    filled.open().drop_columns(["c"])
    filled.add_column("c")
    made = filled.plan()
    assert why(made) == {0: "PARTIAL", 1: "MISSING", 2: "MISSING"}
    assert made.tasks[0].missing == ()


def test_other_inputs_of_a_column_of_the_same_name_do_not_share_checkpoints(filled):
    """Both inputs lie in one file: the file's name alone would not tell them apart."""
    filled.rewrite("body", 0)
    filled.open().drop_columns(["c"])
    filled.add_column("c", ("x",))
    task = filled.plan().tasks[1]
    filled.checkpoint(task, 0, ROWS)
    filled.open().drop_columns(["c"])
    filled.add_column("c", ("id",))
    assert filled.plan().tasks[1].checkpoints == ()


# ------------------------------------------------------------------ what earlier runs left behind


def test_checkpoints_are_found_and_legacy_ones_left_alone(lake):
    task = lake.plan().tasks[1]
    lake.checkpoint(task, 0, 4)
    lake.checkpoint(task, 6, 8)
    store, batch = lake.store, pa.record_batch([[1]], names=["c"])
    store[f"udf-f_ver-1_col-c_where-{keys.md5('')}_uri-{keys.md5(lake.uri)}_ver-2_frag-1_range-0-10"] = batch
    made = lake.plan()
    assert why(made) == {0: "MISSING", 1: "PARTIAL", 2: "MISSING"}
    assert made.tasks[1].missing == (RowRange(4, 6), RowRange(8, 10))
    assert made.header.rows_to_compute == 24


def test_what_was_stored_is_found_where_the_table_was_moved(lake):
    """Also what was added under the second name, after a third; and what a filter left unfinished."""
    made = lake.plan()
    lake.checkpoint(made.tasks[1], 0, 4)
    lake.record(made, made.tasks[2], lake.write(made, made.tasks[2]))
    lake.checkpoint(lake.plan(where="id >= 0").tasks[0], 2, 6)
    second = lake.moved_to("second")
    made = second.plan()
    assert made.tasks[1].missing == (RowRange(4, ROWS),)
    assert made.tasks[2].missing == ()
    assert second.plan(where="id >= 0").tasks[0].missing == (RowRange(0, 2), RowRange(6, ROWS))
    second.checkpoint(made.tasks[1], 4, 6)
    third = second.moved_to("third")
    assert third.plan().tasks[1].missing == (RowRange(6, ROWS),)


def test_what_was_stored_of_a_version_s_rows_is_not_taken_over_by_a_copy(lake):
    """Once a copy resumes by itself, its version 3 has other rows."""
    version = lake.open().version
    lake.rewrite("x", 1)
    lake.checkpoint(lake.plan(read_version=version).tasks[1], 0, 4)
    assert lake.plan(read_version=version).tasks[1].missing == (RowRange(4, ROWS),)
    assert lake.moved_to("second").plan(read_version=version).tasks[1].missing == (RowRange(0, ROWS),)


def test_checkpoints_elsewhere_are_those_of_the_place_where_they_were_made(lake, monkeypatch):
    """Two tables of two installations may share that place."""
    lake.checkpoint(lake.plan().tasks[1], 0, 4)
    monkeypatch.setattr("leman_planner.planning.plan_maker.in_own_folder", lambda uri: False)
    assert lake.moved_to("second").plan().tasks[1].missing == (RowRange(0, ROWS),)


def test_the_log_lines_that_people_look_for_are_written(lake):
    lake.checkpoint(lake.plan().tasks[1], 0, 4)
    with structlog.testing.capture_logs() as lines:
        lake.plan()
    assert [line["event"] for line in lines] == ["Collected 1 checkpointed fragments with 4 rows"]
    lake.rewrite("x", 1)
    with structlog.testing.capture_logs() as lines:
        lake.plan()
    assert [line["event"] for line in lines] == ["Checkpoint data files mismatch"]


def test_a_staged_file_is_committed_and_not_computed_again(lake):
    made = lake.plan()
    task = made.tasks[2]
    staged = lake.write(made, task)
    lake.record(made, task, staged)
    again = lake.plan()
    assert why(again) == {0: "MISSING", 1: "MISSING", 2: "STAGED"}
    assert again.tasks[2].staged == staged
    Path(lake.uri, "data", staged.file).unlink()
    assert why(lake.plan()) == all_of("MISSING")


def test_a_record_of_an_older_release_is_not_used(lake):
    made = lake.plan()
    task = made.tasks[0]
    staged = lake.write(made, task)
    key = keys.record_key(task.checkpoint_prefix, 0)
    lake.store[key] = pa.RecordBatch.from_pydict({"file": [staged.file]})
    assert why(lake.plan()) == all_of("MISSING")
    lake.store[key] = pa.RecordBatch.from_pydict({"file": [staged.file], "output_field_ids": [json.dumps([4])]})
    assert why(lake.plan()) == all_of("MISSING")


def test_a_damaged_record_is_not_used(lake):
    made = lake.plan()
    lake.record(made, made.tasks[0], lake.write(made, made.tasks[0]))
    for file in Path(lake.uri, "_checkpoints").iterdir():
        file.write_bytes(file.read_bytes()[:-40])
    assert why(lake.plan()) == all_of("MISSING")


def test_states_of_partial_files_are_read(lake):
    lake.fill(lake.plan(num_frags=1), states=states(untouched=4, failed=1))
    made = lake.plan()
    assert why(made) == {0: "PARTIAL", 1: "MISSING", 2: "MISSING"}
    assert made.tasks[0].extend_current
    assert (made.header.rows_to_compute, made.header.rows_failed_before) == (24, 1)
    lake.fill(made, states=states(failed=2))
    made = lake.plan()
    assert (made.tasks, made.header.rows_failed_before) == ((), 6)


def test_a_partial_staged_file_is_used_where_it_answers_the_request(lake):
    made = lake.plan()
    lake.record(made, made.tasks[0], lake.write(made, made.tasks[0], states=states(untouched=1)))
    lake.record(made, made.tasks[1], lake.write(made, made.tasks[1], states=states(failed=1)))
    assert why(lake.plan()) == {0: "MISSING", 1: "STAGED", 2: "MISSING"}


# ------------------------------------------------------------------ filters and versions


def test_a_filter_that_was_answered_is_answered_until_its_columns_change(lake):
    where = "body LIKE 'text 1%'"
    lake.fill(lake.plan(where=where), states=states(untouched=9))
    assert lake.plan(where=where).tasks == ()
    assert why(lake.plan(where="body LIKE 'text 2%'")) == all_of("PARTIAL")
    assert why(lake.plan()) == all_of("PARTIAL")
    lake.rewrite("body", 1)
    assert why(lake.plan(where=where)) == {1: "PARTIAL"}


def test_a_filter_over_the_column_itself_is_answered_once(lake):
    lake.fill(lake.plan(where="c IS NULL"), states=states(untouched=3))
    assert lake.plan(where="c IS NULL").tasks == ()


def test_relative_times_are_pinned_in_the_header(lake):
    moment = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
    reader = PlanMaker(LanceTables(), now=lambda: moment)
    header = lake.plan(reader=reader, where="id > 3 AND now() - interval '1 day' IS NOT NULL").header
    assert header.where == "id > 3 AND timestamp '2024-04-30T00:00:00.000000+00:00' IS NOT NULL"


def test_an_older_version_means_its_fragments(filled):
    version = filled.open().version
    lance.write_dataset(rows(5, start=30), filled.uri, mode="append")
    assert filled.plan(read_version=version).tasks == ()
    filled.add_column("d")
    made = filled.plan("d", read_version=version)
    assert why(made) == all_of("MISSING")
    assert made.header.read_version == filled.open().version
    assert made.header.rows_total == 30


def test_an_older_version_of_inputs_that_moved_on_is_read(filled):
    version = filled.open().version
    filled.open().update({"x": "x + 1"}, where="id = 3")  # moves the row away, the others stay
    assert why(filled.plan(read_version=version)) == {3: "PAST_INPUT"}
    filled.rewrite("x", 1)
    made = filled.plan(read_version=version)
    assert why(made) == {3: "PAST_INPUT"}, "the values in fragment 1 are of then"
    assert made.header.rows_to_compute == 1
    assert made.header.inputs_version == version


# ------------------------------------------------------------------ requests that cannot be planned


@pytest.mark.parametrize(
    ("kind", "reason", "said", "spec"),
    [
        (
            FailedPrecondition,
            "COLUMN_NOT_DEFINED",
            "Column d is not defined in this table: .*CatalogService.AddColumns first",
            {"column": "d"},
        ),
        (FailedPrecondition, "COLUMN_NOT_DEFINED", "Column x is not defined in this table", {"column": "x"}),
        (NotFound, "UDF_NOT_FOUND", "No function g@1 is registered", {"udf_name": "g", "udf_version": "1"}),
        (NotFound, "VERSION_NOT_FOUND", "has no version 99", {"read_version": 99}),
        (InvalidArgument, "INVALID_FILTER", "Column 'y' not found in table schema", {"where": "y > 1"}),
        (InvalidArgument, "INVALID_FILTER", "it is empty", {"where": " "}),
        (InvalidArgument, "BAD_NUMBER", "above max_checkpoint_size", {"checkpoint": CheckpointBounds(0, 5, 2)}),
        (InvalidArgument, "BAD_REQUEST", "column is empty", {"column": ""}),
        (InvalidArgument, "BAD_REQUEST", "set its name", {"udf_version": "1"}),
    ],
)
def test_what_cannot_be_planned_says_why(lake, kind, reason, said, spec):
    with pytest.raises(kind, match=said) as caught:
        lake.plan(**spec)
    assert caught.value.reason == reason


def test_a_dropped_input_is_named(filled):
    filled.open().drop_columns(["x"])
    with pytest.raises(FailedPrecondition, match=r"UDF expects input columns \['x'\] which are not found") as caught:
        filled.plan()
    assert caught.value.reason == "INPUT_COLUMN_MISSING"


def test_another_function_of_another_type_is_refused(lake):
    lake.registry.put(dataclasses.replace(UDF, name="g", output_type=pa.string()))
    with pytest.raises(FailedPrecondition, match="Type mismatch for column c") as caught:
        lake.plan(udf_name="g")
    assert caught.value.reason == "TYPE_MISMATCH"


def test_another_function_reads_its_own_columns_and_one_of_the_same_parameters_the_mapped_ones(tmp_path):
    lake = Lake(tmp_path, inputs=("id",))
    assert lake.plan().header.input_columns == ("id",)
    lake.registry.put(UDF_2)
    assert lake.plan(udf_name="f", udf_version="2").header.input_columns == ("id",)
    lake.registry.put(dataclasses.replace(UDF, name="g", input_columns=("x", "body")))
    assert lake.plan(udf_name="g").header.input_columns == ("x", "body")


def test_a_function_that_is_gone_is_asked_for(lake):
    (Path(lake.database) / "_leman" / "udfs" / "f@1.json").unlink()
    with pytest.raises(NotFound, match="register it again") as caught:
        lake.plan()
    assert caught.value.reason == "UDF_NOT_FOUND"
