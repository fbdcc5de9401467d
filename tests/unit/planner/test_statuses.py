"""Fragments and statuses in columns say what they say one by one, and cost what their number says."""

import sys
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leman._format.column_bindings import FunctionVersion
from leman_core.model import keys, plan_columns
from leman_core.model.plan import FragmentTask, Reason
from leman_core.model.plan_columns import FragmentColumns
from leman_core.model.row_positions import RowRange
from leman_core.model.row_states import StateSummary
from leman_core.model.table import DataFile
from leman_planner.planning.fragment_status import REASONS, Moved, decide_reuse, inspect_fragments
from leman_planner.planning.plan_draft import draft_plan
from leman_planner.planning.request_resolution import Past
from leman_planner.planning.row_lineage import migrated_rows
from leman_planner.planning.stored_work import OpenInputs, StoredWork
from tests.shares import examples
from tests.unit.planner.decision_oracle import decide_one, inspect_one
from tests.unit.planner.planner_helpers import C, X, Y, column_file, fragment, prefix, record, resolved
from tests.unit.planner.test_properties import UDF_2, worlds


def several_files(one):
    return one._replace(files=(*one.files, DataFile("z.lance", (C,))))


@settings(max_examples=examples(200))
@given(worlds(), st.data())
def test_statuses_in_columns_are_those_of_one_fragment_after_the_other(world, data):
    chosen = data.draw(st.sets(st.sampled_from(world.fragments))) if world.fragments else set()
    world.fragments = [several_files(one) if one in chosen else one for one in world.fragments]
    asked = world.asked()
    found = inspect_fragments(asked)
    assert list(found) == [inspect_one(asked, one) for one in world.fragments]
    assert [found[at] for at in range(len(found))] == list(found)


@settings(max_examples=examples(300))
@given(
    st.sampled_from(["", "x > 1"]),
    st.booleans(),
    st.booleans(),
    st.lists(st.tuples(st.integers(0, 5), *[st.integers(0, 1)] * 3, *[st.booleans()] * 3), min_size=4, max_size=8),
)
def test_all_fragments_are_decided_as_one_after_the_other(where, failed_only, keeps, drawn):
    """Also fragments that compaction moved, requests for failed rows, and rows of kept versions."""
    files, fragments = {}, []
    for at, (kind, *_) in enumerate(drawn):
        current = ["", column_file(at), column_file(at, udf=UDF_2)][kind] if kind < 3 else column_file(at, partial=True)
        fragments.append(fragment(at, deleted=100 * (kind == 5), current=current))
        files[at] = current
    asked = replace(resolved(fragments, where, names={"x"}), failed_only=failed_only)
    asked = replace(asked, kept=(FunctionVersion("f", "0"),) if keeps else ())
    statuses = inspect_fragments(asked)
    states, moved = {}, {}
    for at, (_, untouched, failed, failed_older, is_asked, is_known, is_moved) in enumerate(drawn):
        filters = frozenset({keys.md5(asked.filter_identity(fragments[at]))} if is_asked else ())
        older = (("0" * 16 if at % 2 else asked.versions[-1], 1, failed_older),) if keeps else ()
        summary = StateSummary(untouched=untouched, failed=failed, computed=9, filters=filters, older=older)
        if is_moved:
            reason = [Reason.PARTIAL, Reason.REUSED, Reason.REUSED_COMPACTED, Reason.HISTORY_LOST][at % 4]
            moved[at] = statuses[at]._replace(reason=reason, moved=Moved(summary, b"", recorded=False))
        if is_known:
            states[files[at]] = summary
    statuses = statuses.replaced(moved)
    codes, known = decide_reuse(asked, statuses, states)
    found = [(REASONS[code], known.get(at)) for at, code in enumerate(codes.tolist())]
    assert found == [decide_one(asked, status, states) for status in statuses]


@settings(max_examples=examples(100))
@given(worlds(), st.data())
def test_also_of_an_older_version(world, data):
    ids = [one.fragment_id for one in world.fragments]
    kept = data.draw(st.sets(st.sampled_from(ids))) if ids else set()
    same = {i: fragment(i, source=data.draw(st.sampled_from(["in", "then"]))) for i in kept}
    past = Past(version=3, same=same, moved=dict.fromkeys(set(ids) - kept, 1), inputs=())
    asked = replace(world.asked(), past=past)
    assert list(inspect_fragments(asked)) == [inspect_one(asked, one) for one in world.fragments]


def test_names_that_are_nearly_those_of_column_files():
    right = column_file(1)
    names = [
        right,
        right.replace("-", "-partial-"),
        right.upper(),
        f"x{right}",
        f"{right}x",
        f"{right}\n",
        right.replace(".lance", "-lance"),
        right.replace("-", "-A"),
        right.replace("-", "--"),
        f"{right[:31]}{right[32:]}",
        f"{right[:16]}{'é' * 16}{right[32:]}",
        f"{right[:20]}0123{right[24:]}",
        "",
    ]
    fragments = [
        fragment(at)._replace(files=(DataFile("in1.lance", (X,)), DataFile(name, (C,))))
        for at, name in enumerate(names)
    ]
    asked = resolved(fragments)
    found = list(inspect_fragments(asked))
    assert found == [inspect_one(asked, one) for one in fragments]
    assert {status.reason for status in found} >= {
        Reason.REUSED,
        Reason.PARTIAL,
        Reason.EXTERNAL_WRITE,
        Reason.INPUT_CHANGED,
    }


def test_inputs_of_several_files_and_of_none():
    files = [DataFile("a.lance", (Y,)), DataFile("b.lance", (X,)), DataFile(column_file(1), (C,))]
    fragments = [fragment(1)._replace(files=tuple(files)), fragment(2)._replace(files=tuple(files[:1])), fragment(3)]
    for inputs in ((X,), (X, Y), (Y, X), ()):
        asked = resolved(fragments)
        columns = tuple(next(f for f in asked.table.fields if f.field_id == i) for i in inputs)
        asked = replace(asked, inputs=columns)
        assert list(inspect_fragments(asked)) == [inspect_one(asked, one) for one in fragments]


def test_columns_are_a_sequence_of_fragments():
    known = (
        fragment(4, deleted=3),
        fragment(2)._replace(files=(), deletion_file="1-7"),
        fragment(9, current="c.lance"),
    )
    columns = FragmentColumns.from_fragments(known)
    assert columns == known
    assert (columns[-1], columns[:2], len(columns)) == (known[2], list(known[:2]), 3)
    assert FragmentColumns.from_fragments(()) == ()
    assert columns != known[:2]
    with pytest.raises(IndexError):
        columns[3]
    assert FragmentColumns.from_fragments(columns) is columns


def calls_of(fragments):
    """Python functions that are called to plan a table."""
    asked = replace(
        resolved([]), table=replace(resolved([]).table, fragments=FragmentColumns.from_fragments(fragments))
    )
    count = 0

    def counted(_frame, event, _what):
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(counted)
    try:
        statuses = inspect_fragments(asked)
        wanted = OpenInputs(statuses, decide_reuse(asked, statuses, {}))
        made = draft_plan(asked, statuses, StoredWork()) if wanted else None
    finally:
        sys.setprofile(before)
    return count, made


def test_planning_a_fragment_makes_few_calls_and_no_objects():
    """Fragments of which nothing is stored are decided about a column at a time: the calls grow with chunks."""
    few, _ = calls_of([fragment(i) for i in range(1000)])
    many, made = calls_of([fragment(i) for i in range(10_000)])
    assert made is not None
    assert len(made.plan.tasks) == 10_000
    assert made.plan.tasks[9_999].reason is Reason.MISSING
    assert many <= few + 500  # two more record batches
    stale, _ = calls_of([fragment(i, current=column_file(i, udf=UDF_2)) for i in range(10_000)])
    assert stale <= few + 10 * 10_000


def test_rows_that_are_stored_elsewhere_are_looked_for_in_their_fragments_alone(monkeypatch):
    """A job that goes on has records: every fragment that was left became objects, 700 bytes and 10 us each."""
    asked = resolved([fragment(i) for i in range(100)])
    replaced = record(5, column_file(5, "s1"), replaces="another.lance")
    work = StoredWork(records={keys.record_key(prefix(5), 5): replaced})
    statuses = inspect_fragments(asked)
    made = draft_plan(asked, statuses, work).plan
    looked_at = []

    def noted(fragment_id, *rest):
        looked_at.append(fragment_id)
        return FragmentTask(fragment_id, *rest)

    monkeypatch.setattr(plan_columns, "FragmentTask", noted)
    found = migrated_rows(asked, made, statuses, work, store=None, existing_files=set)
    assert [(rows.fragment_id, rows.covered) for rows in found] == [(5, RowRange(0, 100))]
    assert looked_at == [5]
