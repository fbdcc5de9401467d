"""What a plan says about single fragments."""

import asyncio
import dataclasses
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leman.v1 import planner_pb2
from leman_core.model import keys
from leman_core.model.plan import OutputField, Reason, summarize_plan
from leman_core.model.row_positions import RowRange
from leman_core.model.row_states import StateSummary
from leman_core.model.service_errors import InvalidArgument
from leman_core.model.table import DataFile, TableField
from leman_planner.catalog.table_catalog import Catalog, NewColumn
from leman_planner.planner_service import PlannerServicer
from tests.unit.planner.planner_helpers import (
    OTHER,
    UDF,
    C,
    Y,
    column_file,
    fingerprint,
    fragment,
    plan,
    prefix,
    range_key,
    reasons,
    record,
    resolved,
)

EXTERNAL = "01110000000101101101100162ca4647239281dcf38e46ad17.lance"
UDF_2 = dataclasses.replace(UDF, version="2")


def only_task(made):
    assert len(made.tasks) == 1
    return made.tasks[0]


def test_a_fragment_without_the_column_is_missing():
    made = plan(resolved([fragment(3, 100, deleted=10)]))
    task = only_task(made)
    assert task.reason is Reason.MISSING
    assert task.missing == (RowRange(0, 100),)
    assert task.input_files == ("in3.lance",)
    assert task.fingerprint == fingerprint(3)
    assert task.checkpoint_prefix == prefix(3)
    assert (task.current_file, task.extend_current, task.staged) == ("", False, None)
    assert (made.header.rows_total, made.header.rows_to_compute) == (90, 90)


def test_a_current_fragment_needs_nothing():
    made = plan(resolved([fragment(0, current=column_file(0))]))
    assert made.tasks == ()
    assert reasons(made) == {"REUSED": 1}
    assert (made.header.rows_reused, made.header.rows_to_compute) == (100, 0)


def test_a_fragment_whose_rows_are_all_deleted_needs_nothing():
    assert reasons(plan(resolved([fragment(0, 10, deleted=10)]))) == {"REUSED": 1}


@pytest.mark.parametrize(
    ("current", "reason"),
    [
        (column_file(0, udf=UDF_2), Reason.UDF_CHANGED),
        (column_file(0, source="old"), Reason.INPUT_CHANGED),
        (column_file(0, column_id="d" * 32), Reason.UDF_CHANGED),
        (column_file(0, udf=UDF_2, partial=True), Reason.UDF_CHANGED),
        (EXTERNAL, Reason.EXTERNAL_WRITE),
    ],
)
def test_values_of_another_origin_are_computed_anew(current, reason):
    task = only_task(plan(resolved([fragment(0, current=current)])))
    assert (task.reason, task.current_file, task.extend_current) == (reason, current, False)
    assert task.missing == (RowRange(0, 100),)


def test_a_row_moving_update_leaves_inputs_and_column_in_one_external_file():
    moved = fragment(0)._replace(files=(DataFile(EXTERNAL, (0, Y, C)),))
    assert only_task(plan(resolved([moved]))).reason is Reason.EXTERNAL_WRITE


def test_an_input_without_any_data_file_is_all_null_and_still_has_an_identity():
    bare = fragment(0)._replace(files=(DataFile("y.lance", (Y,)),))
    task = only_task(plan(resolved([bare])))
    assert task.input_files == ()
    file = keys.column_file_name(task.fingerprint, "a", partial=False)
    filled = bare._replace(files=(*bare.files, DataFile(file, (C,))))
    assert plan(resolved([filled])).tasks == ()


# ------------------------------------------------------------------ partial files


def partial_plan(states, where="", **options):
    current = column_file(0, partial=True)
    asked = resolved([fragment(0, current=current)], where, **options)
    return plan(asked, states={} if states is None else {current: states})


def test_a_partial_file_without_open_rows_is_current_and_its_failed_rows_are_told():
    made = partial_plan(StateSummary(untouched=0, failed=4, computed=96))
    assert made.tasks == ()
    assert made.header.rows_failed_before == 4


def test_a_partial_file_with_open_rows_is_extended():
    made = partial_plan(StateSummary(untouched=30, failed=1, computed=69))
    task = only_task(made)
    assert (task.reason, task.extend_current, task.current_file) == (
        Reason.PARTIAL,
        True,
        column_file(0, partial=True),
    )
    assert (made.header.rows_to_compute, made.header.rows_reused) == (30, 70)


def test_a_filter_that_was_covered_before_needs_nothing():
    states = StateSummary(untouched=30, failed=2, computed=68, filters=frozenset({keys.md5("x > 1")}))
    made = partial_plan(states, "x > 1", names={"x"})
    assert (made.tasks, reasons(made)) == ((), {"REUSED_FILTER": 1})
    assert made.header.rows_failed_before == 2
    assert only_task(partial_plan(states, "x > 2", names={"x"})).reason is Reason.PARTIAL
    assert only_task(partial_plan(states)).reason is Reason.PARTIAL
    everything = dataclasses.replace(states, filters=frozenset({keys.md5("")}))
    assert only_task(partial_plan(everything)).reason is Reason.PARTIAL


def test_a_column_whose_children_lie_in_two_files_was_put_there_by_somebody_else():
    asked = resolved([fragment(0, current=column_file(0), more=(DataFile(column_file(0, "b2"), (9,)),))])
    field = TableField(asked.output.field.arrow, (C, 9))
    both = dataclasses.replace(asked, output=OutputField(field, asked.output.column_id))
    assert plan(asked).tasks == ()
    assert only_task(plan(both)).reason is Reason.EXTERNAL_WRITE


def test_a_partial_file_whose_states_cannot_be_read_is_worth_nothing():
    task = only_task(partial_plan(None))
    assert (task.reason, task.extend_current) == (Reason.EXTERNAL_WRITE, False)


# ------------------------------------------------------------------ checkpoints


def test_checkpoints_leave_the_ranges_between_them():
    found = [range_key(0, 50, 60), range_key(0, 0, 20), range_key(0, 10, 30), range_key(0, 12, 15)]
    task = only_task(plan(resolved([fragment(0)]), found=found))
    assert task.reason is Reason.PARTIAL
    assert [ref.range for ref in task.checkpoints] == [(0, 20), (10, 30), (50, 60)]
    assert all(ref.settles for ref in task.checkpoints)
    assert task.missing == (RowRange(30, 50), RowRange(60, 100))


def test_a_fragment_that_is_covered_by_checkpoints_only_has_to_be_written():
    made = plan(resolved([fragment(0)]), found=[range_key(0, 0, 100)])
    assert only_task(made).missing == ()
    assert (made.header.rows_to_compute, made.header.rows_reused) == (0, 100)


@pytest.mark.parametrize(
    "key",
    [
        range_key(1, 0, 50),
        range_key(0, 0, 50, udf=UDF_2),
        range_key(0, 0, 50, source="old"),
        range_key(0, 0, 50, column="d"),
        range_key(0, 0, 101),
        range_key(0, 50, 50),
        range_key(0, 60, 50),
        f"udf-f_ver-1_col-c_where-{keys.md5('')}_uri-{keys.md5('/data/t.lance')}_ver-3_frag-0_range-0-50",
    ],
)
def test_a_checkpoint_of_something_else_is_not_used(key):
    task = only_task(plan(resolved([fragment(0)]), found=[key]))
    assert (task.checkpoints, task.missing) == ((), (RowRange(0, 100),))


def test_rows_of_another_filter_are_known_but_settle_nothing():
    found = [range_key(0, 0, 40, "x > 1"), range_key(0, 0, 20)]
    task = only_task(plan(resolved([fragment(0)]), found=found))
    assert [(ref.range, ref.settles) for ref in task.checkpoints] == [((0, 20), True), ((0, 40), False)]
    assert task.missing == (RowRange(20, 100),)


def test_rows_of_another_filter_in_settled_ranges_are_named_for_what_a_restore_brings_back():
    found = [range_key(0, 0, 20), range_key(0, 5, 15, "x > 1"), range_key(0, 20, 30, "x > 1")]
    task = only_task(plan(resolved([fragment(0)]), found=found))
    assert [(ref.range, ref.settles) for ref in task.checkpoints] == [
        ((0, 20), True),
        ((5, 15), False),
        ((20, 30), False),
    ]


def test_under_a_filter_an_unfiltered_checkpoint_settles_nothing():
    """Its rows outside the filter must keep their values."""
    found = [range_key(0, 0, 20), range_key(0, 0, 50, "x > 1")]
    task = only_task(plan(resolved([fragment(0)], "x > 1", names={"x"}), found=found))
    assert [(ref.range, ref.settles) for ref in task.checkpoints] == [((0, 20), False), ((0, 50), True)]
    assert task.missing == (RowRange(50, 100),)


def test_a_filter_over_a_column_that_was_rewritten_matches_other_rows():
    def asked(y_file):
        changed = fragment(0)._replace(files=(DataFile("in0.lance", (0,)), DataFile(y_file, (Y,))))
        return resolved([changed], "y = 'a'", names={"y"})

    first = only_task(plan(asked("y1.lance")))
    key = keys.range_key(first.checkpoint_prefix, 0, RowRange(0, 60))
    assert only_task(plan(asked("y1.lance"), found=[key])).missing == (RowRange(60, 100),)
    later = only_task(plan(asked("y2.lance"), found=[key]))
    assert later.missing == (RowRange(0, 100),)
    assert [ref.settles for ref in later.checkpoints] == [False]
    assert later.fingerprint == first.fingerprint


def test_a_filter_over_the_output_settles_no_range_but_is_remembered_by_the_file():
    asked = resolved([fragment(0)], "c IS NULL", names={"c"})
    task = only_task(plan(asked, found=[range_key(0, 0, 60, "c IS NULL")]))
    assert (task.missing, [ref.settles for ref in task.checkpoints]) == ((RowRange(0, 100),), [False])
    states = StateSummary(
        untouched=10, failed=0, computed=90, filters=frozenset({keys.filter_id(task.checkpoint_prefix)})
    )
    assert reasons(partial_plan(states, "c IS NULL", names={"c"})) == {"REUSED_FILTER": 1}


def test_a_filter_over_update_versions_is_asked_again_at_every_version():
    def identity(version):
        asked = resolved(
            [fragment(0)],
            "_row_last_updated_at_version > 3",
            names={"_row_last_updated_at_version"},
            version=version,
        )
        return only_task(plan(asked)).checkpoint_prefix

    assert identity(5) == identity(5)
    assert identity(5) != identity(6)


# ------------------------------------------------------------------ staged files


def staged_plan(made_record, key=None, current="", states=None, where="", **options):
    asked = resolved([fragment(0, current=current)], where, **options)
    return plan(asked, records={key or keys.record_key(prefix(0, where), 0): made_record}, states=states)


def test_a_staged_file_only_has_to_be_committed():
    made = staged_plan(record(0, column_file(0)))
    task = only_task(made)
    assert (task.reason, task.missing, task.checkpoints) == (Reason.STAGED, (), ())
    assert task.staged is not None
    assert task.staged.file == column_file(0)
    assert (made.header.rows_to_compute, made.header.rows_reused) == (0, 100)


@pytest.mark.parametrize(
    "bad",
    [
        {"replaces": EXTERNAL},
        {"column_id": "d" * 32},
        {"output_field_ids": (OTHER,)},
        {"output_field_ids": ()},
        {"physical_rows": 99},
        {"src_data_files": ("old0.lance",)},
        {"fingerprint": fingerprint(0, udf=UDF_2)},
        {"file": column_file(0, udf=UDF_2)},
        {"file": EXTERNAL},
        {"file": column_file(0, partial=True)},
    ],
    ids="-".join,
)
def test_a_record_that_does_not_fit_is_not_used(bad):
    broken = dataclasses.replace(record(0, column_file(0)), **bad)
    assert only_task(staged_plan(broken)).reason is Reason.MISSING


def test_a_partial_staged_file_is_used_where_nothing_is_left_to_do_in_it():
    file = column_file(0, partial=True)
    open_rows = {file: StateSummary(untouched=5, failed=0, computed=95, filters=frozenset({keys.md5("x > 1")}))}
    done = {file: StateSummary(untouched=0, failed=5, computed=95)}
    assert only_task(staged_plan(record(0, file), states=open_rows)).reason is Reason.MISSING
    assert only_task(staged_plan(record(0, file), states=done)).reason is Reason.STAGED
    filtered = staged_plan(record(0, file), states=open_rows, where="x > 1", names={"x"})
    assert only_task(filtered).reason is Reason.STAGED


def test_under_a_filter_a_staged_file_of_another_filter_is_not_used():
    """It would change rows that the filter leaves alone."""
    complete = record(0, column_file(0))
    made = staged_plan(complete, key=keys.record_key(prefix(0), 0), where="x > 1", names={"x"})
    assert only_task(made).reason is Reason.MISSING


def test_of_several_staged_files_the_fullest_is_used():
    other = keys.record_key(prefix(0, "x > 1"), 0)
    few = record(0, column_file(0, "a9"), computed=10)
    records = {keys.record_key(prefix(0), 0): few, other: record(0, column_file(0, "a1"))}
    task = only_task(plan(resolved([fragment(0)]), records=records))
    assert task.staged is not None
    assert task.staged.file == column_file(0, "a1")


# ------------------------------------------------------------------ the plan as a whole


def test_num_frags_cuts_the_tasks_and_not_the_count():
    made = plan(resolved([fragment(i, 10) for i in range(5)], num_frags=2))
    assert [task.fragment_id for task in made.tasks] == [0, 1]
    assert reasons(made) == {"MISSING": 5}
    assert made.header.rows_to_compute == 20


def test_tasks_are_in_the_order_of_fragment_ids():
    made = plan(resolved([fragment(i) for i in (5, 1, 3)]))
    assert [task.fragment_id for task in made.tasks] == [1, 3, 5]


@given(st.integers(0, 6), st.integers(0, 6))
def test_an_unrelated_column_and_a_deletion_change_nothing(column_files, deleted):
    before = plan(resolved([fragment(0, 10, current=column_file(0)), fragment(1, 10)]))
    more = tuple(DataFile(f"z{i}.lance", (OTHER + i,)) for i in range(column_files))
    later = plan(
        resolved(
            [
                fragment(0, 10, deleted=deleted, current=column_file(0), more=more),
                fragment(1, 10, deleted=deleted, more=more),
            ]
        )
    )
    assert reasons(later) == reasons(before)
    assert [t._replace(deleted_rows=0) for t in later.tasks] == list(before.tasks)


@pytest.mark.parametrize(
    ("fragments", "options", "said"),
    [
        ([], {}, "the table has no rows: nothing to do"),
        (
            [fragment(i, current=column_file(i)) for i in range(16)],
            {},
            "16 of 16 fragments are current: nothing to do",
        ),
        (
            [
                fragment(0, current=column_file(0, source="old")),
                fragment(1),
                fragment(2, current=column_file(2)),
            ],
            {},
            "2 of 3 fragments to do (1 missing, 1 input changed); about 200 rows to compute; 100 rows reused",
        ),
        (
            [fragment(0, rows=1), fragment(1, rows=1, current=column_file(1))],
            {},
            "1 of 2 fragments to do (1 missing); about 1 row to compute; 1 row reused",
        ),
        (
            [fragment(0), fragment(1)],
            {"num_frags": 1},
            "1 of 2 fragments to do (2 missing); about 100 rows to compute; 1 left for later by num_frags; "
            "0 rows reused",
        ),
    ],
)
def test_a_plan_in_one_sentence(fragments, options, said):
    assert summarize_plan(plan(resolved(fragments, **options))) == said


def test_a_plan_is_explained_of_one_column():
    asked = planner_pb2.ExplainPlanRequest(spec={"table": {"database": "/db", "table": "t"}, "columns": ["y", "z"]})
    with pytest.raises(InvalidArgument, match="A plan has one column: set column") as refused:
        asyncio.run(PlannerServicer(SimpleNamespace(), None, None).ExplainPlan(asked, None))
    assert (refused.value.reason, refused.value.field) == ("BAD_REQUEST", "spec.columns")


@pytest.mark.parametrize(
    ("names", "told"),
    [([], "columns is empty: set at least one column"), (["y", "y"], "columns has a column more than once")],
)
def test_columns_are_added_by_name_each_once(names, told):
    with pytest.raises(InvalidArgument, match=told) as refused:
        Catalog(None).addition("/db", "t", [NewColumn(name, "f", "1") for name in names], "")
    assert (refused.value.reason, refused.value.field) == ("BAD_REQUEST", "columns")
