"""A plan's tasks as they are sent and as they arrive: columns say what tasks say."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.domain.table import DataFile
from core.rpc import convert
from core.task_columns import PlannedTasks
from planner import plan_stream
from planner.plan_stream import messages
from tests.unit.planner.planner_helpers import X, Y, column_file, fragment, plan, range_key, resolved
from tests.unit.planner.test_properties import UDF_2, worlds


def arrived(made):
    """What the executor makes of a plan's messages."""
    header, *parts = messages(made, in_columns=True)
    function = convert.header_from_proto(header.header).versions[0]
    untouched = [convert.untouched_from_proto(p.untouched, function) for p in parts if p.HasField("untouched")]
    stored = [convert.task_from_proto(task) for part in parts for task in part.tasks.tasks]
    return PlannedTasks(untouched, stored)


@settings(max_examples=200)
@given(worlds(), st.sampled_from([1, 2, 100]))
def test_tasks_arrive_as_they_were_planned(world, at_once):
    made = world.plan()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(plan_stream, "MAX_BATCH_TASKS", at_once)
        tasks = arrived(made)
    assert tasks == tuple(made.tasks)
    assert [tasks[at] for at in range(len(tasks))] == list(tasks)
    assert [tasks.of_fragment(task.fragment_id) for task in tasks] == list(tasks)
    assert tasks[1:3] == list(tasks)[1:3]


def test_untouched_fragments_are_not_sent_one_by_one():
    bare = [fragment(i, rows=10 + i, deleted=i % 2) for i in range(50)]
    one = [
        message.tasks.tasks for message in messages(plan(resolved(bare), found=[range_key(7, 0, 5)]), in_columns=True)
    ]
    assert [len(tasks) for tasks in one] == [0, 0, 1]


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
    parts = list(messages(made, in_columns=False))[1:]
    assert [convert.task_from_proto(task) for part in parts for task in part.tasks.tasks] == list(made.tasks)


@pytest.mark.parametrize("most_bytes", [1, 300, 2000])
def test_messages_are_halved_where_fragments_have_many_files(most_bytes, monkeypatch):
    monkeypatch.setattr(plan_stream, "MAX_BATCH_BYTES", most_bytes)
    fields = tuple(range(10, 40))
    files = [tuple(DataFile(f"{i}-{at}.lance", (at,)) for at in fields) for i in range(9)]
    fragments = [fragment(i)._replace(files=of[: 30 - i]) for i, of in enumerate(files)]
    asked = resolved(fragments)
    x = asked.inputs[0]
    made = plan(dataclasses.replace(asked, inputs=tuple(dataclasses.replace(x, field_ids=(at,)) for at in fields)))
    sent = [message.untouched for message in messages(made, in_columns=True) if message.HasField("untouched")]
    assert all(columns.ByteSize() <= most_bytes or len(columns.fragment_ids) == 1 for columns in sent)
    assert [i for columns in sent for i in columns.fragment_ids] == list(range(9))
    assert arrived(made) == tuple(made.tasks)
