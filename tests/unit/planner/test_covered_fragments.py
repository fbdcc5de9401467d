"""Fragments with checkpoints, all at once and one by one: both give the same plan."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leman_core.model import keys
from leman_core.model.plan import Reason
from leman_planner.planning import plan_draft
from leman_planner.planning.fragment_tasks import cover_fragments
from tests.shares import examples
from tests.unit.planner.planner_helpers import UDF, column_file, fragment, plan, range_key, record, resolved
from tests.unit.planner.test_properties import World, worlds

OLD_UDF = dataclasses.replace(UDF, version="0")


def one_by_one(resolved, statuses, found, others):
    """What `cover` says where nothing is decided about all at once."""
    return cover_fragments(resolved, statuses, None, others)


@st.composite
def covered_worlds(draw):
    """Fragments with many checkpoints, most of them under the request's own filter."""
    where = draw(st.sampled_from(["", "x > 1"]))
    others = st.sampled_from([where] * 9 + ["x > 2"])
    fragments, found = [], []
    for fragment_id in draw(st.lists(st.integers(0, 9), unique=True, max_size=6)):
        rows = draw(st.integers(1, 12))
        current = draw(st.sampled_from(["", "", column_file(fragment_id, udf=OLD_UDF)]))
        fragments.append(fragment(fragment_id, rows, deleted=draw(st.integers(0, rows)), current=current))
        for start, end, under in draw(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 13), others), max_size=5)):
            found.append(range_key(fragment_id, start, end, under))
    return World(fragments, where, {}, draw(st.permutations(found)), {}, {})


@settings(max_examples=examples(400))
@given(st.one_of(covered_worlds(), covered_worlds(), worlds()), st.sampled_from([0, 1, 2]))
def test_the_plan_is_the_same_as_one_by_one(world, num_frags):
    made = world.plan(num_frags=num_frags)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(plan_draft, "cover_fragments", one_by_one)
        wanted = world.plan(num_frags=num_frags)
    assert made.header == wanted.header
    assert list(made.tasks) == list(wanted.tasks)
    assert [made.tasks[at] for at in range(len(made.tasks))] == list(wanted.tasks)


def test_ranges_within_others_are_left_out_and_counted_once():
    bare = [fragment(1, rows=10), fragment(2, rows=10, deleted=4), fragment(3, rows=10)]
    found = [range_key(1, *r) for r in ((0, 4), (1, 3), (2, 6), (0, 2))] + [range_key(2, 0, 10), range_key(3, 9, 11)]
    made = plan(resolved(bare), found=found)
    assert [[tuple(ref.range) for ref in task.checkpoints] for task in made.tasks] == [[(0, 4), (2, 6)], [(0, 10)], []]
    assert [[tuple(r) for r in task.missing] for task in made.tasks] == [[(6, 10)], [], [(0, 10)]]
    assert [task.reason for task in made.tasks] == [Reason.PARTIAL, Reason.PARTIAL, Reason.MISSING]
    assert [ref.key for ref in made.tasks[0].checkpoints] == [found[0], found[2]]
    assert made.header.rows_to_compute == 4 + 0 + 10


def test_a_range_that_leman_would_not_write_so_is_found_all_the_same():
    zeros = range_key(1, 0, 5).replace("_range-0-5", "_range-00-05")
    made = plan(resolved([fragment(1, rows=10)]), found=[zeros, range_key(1, 5, 7)])
    assert [(ref.key, tuple(ref.range)) for ref in made.tasks[0].checkpoints] == [
        (zeros, (0, 5)),
        (range_key(1, 5, 7), (5, 7)),
    ]


def test_checkpoints_beside_a_finished_file_are_not_asked_for():
    finished = {range_key(1, 0, 5).partition("_range")[0] + "_file": record(1, column_file(1), rows=10)}
    made = plan(resolved([fragment(1, rows=10)]), found=[range_key(1, 0, 5)], records=finished)
    assert made.tasks[0].reason is Reason.STAGED
    assert keys.parse_record_key(next(iter(finished))) is not None
