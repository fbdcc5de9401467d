"""A plan's tasks as they are sent and as they arrive: columns say what tasks say."""

import dataclasses

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leman_core.model import keys, plan_columns
from leman_core.model.row_positions import count_offsets
from leman_core.model.service_errors import InvalidArgument
from leman_core.model.table import DataFile
from leman_core.wire import convert_plans
from leman_planner import planner_service
from leman_planner.planner_service import plan_messages
from leman_planner.planning import fragment_tasks
from tests.shares import examples
from tests.unit.planner.planner_helpers import (
    X,
    Y,
    column_file,
    fragment,
    plan,
    prefix,
    range_key,
    record,
    resolved,
)
from tests.unit.planner.test_properties import UDF_2, worlds


def in_batches(made):
    return plan_messages(made, batches=True)


def arrived(made):
    """Return what the executor makes of a plan's messages."""
    _, *parts = in_batches(made)
    return convert_plans.tasks_from_bytes(part.task_batch for part in parts if part.HasField("task_batch"))


@settings(max_examples=examples(200))
@given(worlds(), st.sampled_from([1, 2, 100]))
def test_tasks_arrive_as_they_were_planned(world, at_once):
    made = world.plan()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(fragment_tasks, "BATCH_TASKS", at_once)
        tasks = arrived(world.plan())
    assert tasks == tuple(made.tasks)
    assert [tasks[at] for at in range(len(tasks))] == list(tasks)
    assert [tasks.of_fragment(task.fragment_id) for task in tasks] == list(tasks)
    assert tasks[1:3] == list(tasks)[1:3]
    assert tasks.rows_missing.tolist() == [count_offsets(task.missing) for task in tasks]
    assert tasks.live_rows == sum(task.physical_rows - task.deleted_rows for task in tasks)
    some = {task.fragment_id for task in tasks if task.fragment_id % 2} | {10**6}
    assert tasks.of_fragments(some) == tuple(task for task in tasks if task.fragment_id in some)


def columns_sent(**world):
    """Return the number of tasks and the columns of the one batch that is sent."""
    bare = [fragment(i, rows=10 + i, deleted=i % 2) for i in range(50)]
    made = plan(resolved(bare), **world)
    (batch,) = arrived(made).batches
    assert arrived(made) == tuple(made.tasks)
    return len(batch), {*batch.schema.names} - {*plan_columns._COLUMNS}


def test_a_batch_has_only_the_columns_that_say_something():
    assert columns_sent() == (50, {"sources"})
    found = [range_key(7, 0, 5), range_key(7, 3, 8), range_key(9, 2, 9)]
    assert columns_sent(found=found) == (50, {"sources", "missing", "checkpoints"})


def test_fragments_of_which_more_is_known_stand_between_the_others():
    finished = {keys.record_key(prefix(7), 7): record(7, column_file(7), rows=17)}
    assert columns_sent(found=[range_key(7, 0, 5)], records=finished) == (50, {"sources", "missing", "staged"})
    found = [range_key(7, 0, 5), range_key(7, 5, 9, "x > 1")]
    assert columns_sent(found=found) == (50, {"sources", "missing", "checkpoints"})


def test_a_batch_of_another_release_is_a_typed_error():
    batch = arrived(plan(resolved([fragment(1)]))).batches[0]
    unknown = pa.DictionaryArray.from_arrays(pa.array([0], pa.int32()), ["a reason of tomorrow"])
    renamed = batch.set_column(batch.schema.get_field_index("reason"), "reason", unknown)
    for stream in (convert_plans.tasks_to_bytes(renamed), convert_plans.tasks_to_bytes(batch.select([0])), b"no Arrow"):
        with pytest.raises(InvalidArgument) as caught:
            convert_plans.tasks_from_bytes([stream])
        assert caught.value.reason == "UNKNOWN_VALUE"


def test_inputs_in_several_files_or_none_and_a_stale_output_arrive():
    two = fragment(1)._replace(files=(DataFile("b.lance", (Y,)), DataFile("a.lance", (X,))))
    none = fragment(2)._replace(files=())
    stale = fragment(3, current=column_file(3, udf=UDF_2))
    asked = resolved([two, none, stale])
    for inputs in (asked.inputs, asked.table.fields[:2], ()):
        made = plan(type(asked)(table=asked.table, output=asked.output, udf=asked.udf, inputs=tuple(inputs)))
        assert arrived(made) == tuple(made.tasks)


def test_a_fragment_without_a_task_is_not_found():
    tasks = arrived(plan(resolved([fragment(1), fragment(5)])))
    for fragment_id in (0, 3, 9):
        with pytest.raises(KeyError):
            tasks.of_fragment(fragment_id)
    with pytest.raises(IndexError):
        tasks[2]
    assert len(arrived(plan(resolved([])))) == 0


def test_a_filter_over_another_column_gives_each_fragment_keys_of_its_own():
    made = plan(resolved([fragment(1), fragment(2)], "y = 'a'", names={"y"}))
    tasks = arrived(made)
    assert tasks == tuple(made.tasks)
    assert len({task.checkpoint_prefix for task in tasks}) == 2


@given(worlds())
def test_who_does_not_read_columns_is_sent_every_task(world):
    """An executor of an earlier release would take the plan for one without these fragments, and end the job."""
    made = world.plan()
    parts = list(plan_messages(made))[1:]
    assert [convert_plans.task_from_proto(task) for part in parts for task in part.tasks.tasks] == list(made.tasks)


def sizes_sent(made):
    """Return the size of each message with tasks, and the ids that it has."""
    sent = [message.task_batch for message in in_batches(made) if message.HasField("task_batch")]
    return [(len(data), convert_plans.tasks_from_bytes([data]).fragment_ids.tolist()) for data in sent]


@pytest.mark.parametrize("most_bytes", [1, 5000])
def test_messages_with_checkpoints_are_halved(most_bytes, monkeypatch):
    monkeypatch.setattr(planner_service, "MAX_BATCH_BYTES", most_bytes)
    found = [range_key(i, start, start + 2) for i in range(70) for start in range(0, 3 * i, 3)]
    made = plan(resolved([fragment(i, rows=300) for i in range(70)]), found=found)
    sent = sizes_sent(made)
    assert len(sent) > 1
    assert all(size <= most_bytes or len(ids) == 1 for size, ids in sent)
    assert [i for _, ids in sent for i in ids] == list(range(70))
    assert arrived(made) == tuple(made.tasks)


@pytest.mark.parametrize("most_bytes", [1, 5000])
def test_messages_are_halved_where_fragments_have_many_files_or_keys_of_their_own(most_bytes, monkeypatch):
    monkeypatch.setattr(planner_service, "MAX_BATCH_BYTES", most_bytes)
    fields = tuple(range(10, 40))
    files = [tuple(DataFile(f"{i}-{at}.lance", (at,)) for at in fields) for i in range(9)]
    fragments = [fragment(i)._replace(files=of[: 30 - i]) for i, of in enumerate(files)]
    asked = resolved(fragments)
    x = asked.inputs[0]
    many = dataclasses.replace(asked, inputs=tuple(dataclasses.replace(x, field_ids=(at,)) for at in fields))
    filtered = resolved([fragment(i) for i in range(40)], "y = 'a'", names={"y"})
    for made in (plan(many), plan(filtered)):
        sent = sizes_sent(made)
        assert len(sent) > 1
        assert all(size <= most_bytes or len(ids) == 1 for size, ids in sent)
        assert [i for _, ids in sent for i in ids] == made.tasks.fragment_ids.tolist()
        assert arrived(made) == tuple(made.tasks)
