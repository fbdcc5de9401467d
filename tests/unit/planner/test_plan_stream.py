"""A plan's tasks as they are sent and as they arrive: columns say what tasks say."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leman_core.model import keys
from leman_core.model.plan_columns import PlannedTasks
from leman_core.model.table import DataFile
from leman_core.wire import convert_plans
from leman_planner import planner_service
from leman_planner.planner_service import plan_messages
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


def in_columns(made):
    return plan_messages(made, untouched=True, checkpointed=True)


def arrived(made):
    """What the executor makes of a plan's messages."""
    header, *parts = in_columns(made)
    function = convert_plans.header_from_proto(header.header).versions[0]
    untouched = [convert_plans.untouched_from_proto(p.untouched, function) for p in parts if p.HasField("untouched")]
    checkpointed = [
        convert_plans.checkpointed_from_proto(p.checkpointed, function) for p in parts if p.HasField("checkpointed")
    ]
    stored = [convert_plans.task_from_proto(task) for part in parts for task in part.tasks.tasks]
    return PlannedTasks(untouched, stored, checkpointed)


@settings(max_examples=examples(200))
@given(worlds(), st.sampled_from([1, 2, 100]))
def test_tasks_arrive_as_they_were_planned(world, at_once):
    made = world.plan()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(planner_service, "MAX_BATCH_TASKS", at_once)
        tasks = arrived(made)
    assert tasks == tuple(made.tasks)
    assert [tasks[at] for at in range(len(tasks))] == list(tasks)
    assert [tasks.of_fragment(task.fragment_id) for task in tasks] == list(tasks)
    assert tasks[1:3] == list(tasks)[1:3]


def counts_sent(**world):
    """How many fragments each message says something of: in columns without checkpoints, with such, one by one."""
    bare = [fragment(i, rows=10 + i, deleted=i % 2) for i in range(50)]
    _, *parts = in_columns(plan(resolved(bare), **world))
    return [
        (len(p.untouched.fragment_ids), len(p.checkpointed.fragments.fragment_ids), len(p.tasks.tasks)) for p in parts
    ]


def test_untouched_and_checkpointed_fragments_are_not_sent_one_by_one():
    assert counts_sent(found=[range_key(7, 0, 5), range_key(7, 3, 8), range_key(9, 2, 9)]) == [(48, 0, 0), (0, 2, 0)]


def test_fragments_of_which_more_is_known_are_sent_one_by_one():
    finished = {keys.record_key(prefix(7), 7): record(7, column_file(7), rows=17)}
    assert counts_sent(found=[range_key(7, 0, 5)], records=finished) == [(49, 0, 0), (0, 0, 1)]
    assert counts_sent(found=[range_key(7, 0, 5), range_key(7, 5, 9, "x > 1")]) == [(49, 0, 0), (0, 0, 1)]


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


@given(worlds())
def test_who_reads_untouched_fragments_alone_is_sent_the_others_as_tasks(world):
    made = world.plan()
    header, *parts = plan_messages(made, untouched=True)
    assert not any(part.HasField("checkpointed") for part in parts)
    function = convert_plans.header_from_proto(header.header).versions[0]
    untouched = [convert_plans.untouched_from_proto(p.untouched, function) for p in parts if p.HasField("untouched")]
    tasks = [convert_plans.task_from_proto(task) for part in parts for task in part.tasks.tasks]
    assert PlannedTasks(untouched, tasks) == tuple(made.tasks)


@pytest.mark.parametrize("most_bytes", [1, 300])
def test_messages_with_checkpoints_are_halved(most_bytes, monkeypatch):
    monkeypatch.setattr(planner_service, "MAX_BATCH_BYTES", most_bytes)
    found = [range_key(i, start, start + 2) for i in range(7) for start in range(0, 3 * i, 3)]
    made = plan(resolved([fragment(i) for i in range(7)]), found=found)
    sent = [message.checkpointed for message in in_columns(made) if message.HasField("checkpointed")]
    assert all(columns.ByteSize() <= most_bytes or len(columns.fragments.fragment_ids) == 1 for columns in sent)
    assert [i for columns in sent for i in columns.fragments.fragment_ids] == list(range(1, 7))
    assert arrived(made) == tuple(made.tasks)


@pytest.mark.parametrize("most_bytes", [1, 300, 2000])
def test_messages_are_halved_where_fragments_have_many_files(most_bytes, monkeypatch):
    monkeypatch.setattr(planner_service, "MAX_BATCH_BYTES", most_bytes)
    fields = tuple(range(10, 40))
    files = [tuple(DataFile(f"{i}-{at}.lance", (at,)) for at in fields) for i in range(9)]
    fragments = [fragment(i)._replace(files=of[: 30 - i]) for i, of in enumerate(files)]
    asked = resolved(fragments)
    x = asked.inputs[0]
    made = plan(dataclasses.replace(asked, inputs=tuple(dataclasses.replace(x, field_ids=(at,)) for at in fields)))
    sent = [message.untouched for message in in_columns(made) if message.HasField("untouched")]
    assert all(columns.ByteSize() <= most_bytes or len(columns.fragment_ids) == 1 for columns in sent)
    assert [i for columns in sent for i in columns.fragment_ids] == list(range(9))
    assert arrived(made) == tuple(made.tasks)
