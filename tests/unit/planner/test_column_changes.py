"""Whether a column that is asked for is the one that is there, and what is said of the difference."""

import dataclasses

import pyarrow as pa
import pytest

from leman._format.column_bindings import FunctionVersion
from leman._format.stored_functions import UdfDefinition, UdfKind
from leman_core.functions import binding
from leman_core.functions.column_checks import NewColumn
from leman_core.model.plan import PlanHeader, Reason, ReasonCount
from leman_core.model.service_errors import FailedPrecondition
from leman_core.model.table import TableField
from leman_planner.catalog.column_changes import (
    ColumnOutcome,
    OnChange,
    Outcome,
    column_changed_error,
    difference_notes,
    inputs_asked,
    is_same,
    rows_by_need,
    rows_lost,
    source_diff,
)
from tests.unit.planner.planner_helpers import UDF, fragment, table

OLD = dataclasses.replace(UDF, source="def f(x):\n    y = x\n    return y * 2")
NEW = dataclasses.replace(UDF, version="2", source="def f(x):\n    y = x\n    return y * 3")
TABLE = table([fragment(0)])
BOUND = binding.read(TABLE.fields[2].arrow)
WITH_Y = dataclasses.replace(UDF, input_columns=("y",))


def asked(udf=UDF, inputs=(), snapshot=TABLE):
    return inputs_asked(NewColumn("c", udf.name, udf.version, inputs), udf, BOUND, snapshot)


def outcome(kind=Outcome.UPDATED, **more):
    return ColumnOutcome(
        column="score", outcome=kind, function=FunctionVersion("f", "2"), before=FunctionVersion("f", "1"), **more
    )


def test_the_same_function_and_inputs_are_the_same_whether_they_are_named_or_not():
    assert is_same(UDF, asked(), BOUND, TABLE)
    assert is_same(UDF, asked(inputs=("x",)), BOUND, TABLE)
    assert difference_notes(UDF, asked(), BOUND, TABLE) == ()


@pytest.mark.parametrize(
    ("udf", "inputs", "said"),
    [
        (NEW, (), ("f@1 → f@2",)),
        (UDF, ("y",), ("its inputs change from x to y",)),
        (dataclasses.replace(NEW, input_columns=("y",)), (), ("f@1 → f@2", "its inputs change from x to y")),
    ],
)
def test_another_version_or_other_inputs_are_a_change(udf, inputs, said):
    found = asked(udf, inputs)
    assert not is_same(udf, found, BOUND, TABLE)
    assert difference_notes(udf, found, BOUND, TABLE) == said


def test_two_versions_of_one_text_say_that_it_is_the_same():
    again = dataclasses.replace(OLD, version="2")
    found = difference_notes(again, asked(again), BOUND, TABLE, OLD)
    assert found == ("f@1 → f@2", "their sources are equal; values that they use may differ")
    assert difference_notes(NEW, asked(NEW), BOUND, TABLE, OLD) == ("f@1 → f@2",)


def test_a_program_may_go_on_to_call_an_input_as_it_was_called_when_the_column_was_made():
    x, *others = TABLE.fields
    renamed = dataclasses.replace(TABLE, fields=(TableField(x.arrow.with_name("price"), x.field_ids), *others))
    assert is_same(UDF, asked(snapshot=renamed), BOUND, renamed)
    again = dataclasses.replace(renamed, fields=(*renamed.fields, TableField(pa.field("x", pa.int64()), (9,))))
    assert not is_same(UDF, asked(snapshot=again), BOUND, again), "a new column of the old name is meant"
    with pytest.raises(FailedPrecondition, match="gone"):
        asked(inputs=("gone",), snapshot=renamed)


def test_what_cannot_compute_the_column_is_refused_first():
    with pytest.raises(FailedPrecondition) as caught:
        asked(inputs=("c",))
    assert caught.value.reason == "INPUT_IS_OUTPUT"


def test_the_difference_is_a_unified_diff_of_the_sources():
    assert source_diff(OLD, NEW).splitlines() == [
        "--- f@1",
        "+++ f@2",
        "@@ -1,3 +1,3 @@",
        " def f(x):",
        "     y = x",
        "-    return y * 2",
        "+    return y * 3",
    ]


def test_expressions_are_compared_as_they_are_written():
    before, after = (
        UdfDefinition("sql", version, UdfKind.SQL, ("x",), pa.int64(), sql_expression=text)
        for version, text in (("1", "x * 2"), ("2", "x * 3"))
    )
    assert source_diff(before, after).splitlines()[-2:] == ["-x * 2", "+x * 3"]


def test_without_two_texts_there_is_no_diff():
    assert source_diff(None, NEW) == source_diff(UDF, NEW) == source_diff(NEW, UDF) == source_diff(OLD, OLD) == ""


def test_a_long_diff_is_cut():
    before, after = (dataclasses.replace(UDF, source="\n".join(f"{i}{end}" for i in range(5000))) for end in "ab")
    assert 16_000 < len(source_diff(before, after)) < 17_000


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (outcome(rows_stale=4000, expected_seconds=720.0), "score changed: 4,000 rows stale, about 12 minutes"),
        (outcome(rows_stale=4000), "score changed: 4,000 rows stale"),
        (
            outcome(rows_stale=10, rows_compared=4, rows_found=20, on_change=OnChange.UPDATE),
            "score changed: up to 10 rows stale, computed again by the next backfill, 20 rows get back stored values "
            "of f@2",
        ),
        (
            outcome(rows_stored=10, rows_lost=10, rows_compared=10, rows_found=1, on_change=OnChange.UPDATE),
            "score changed: up to 10 finished rows will be computed again, 1 row gets back stored values of f@2",
        ),
        (outcome(rows_found=20), "score changed: 20 rows get back stored values of f@2"),
        (
            outcome(rows_stored=7, rows_lost=7, can_keep=True, rows_not_computed=9),
            "score changed: 7 finished rows would be computed again, 9 not computed yet; on_change='keep' keeps them",
        ),
        (
            outcome(rows_stale=30, rows_stored=7, rows_lost=37, can_keep=True),
            "score changed: 37 finished rows would be computed again; on_change='keep' keeps them",
        ),
        (outcome(rows_stored=7, rows_lost=7), "score changed: 7 finished rows would be computed again"),
        (
            outcome(rows_stored=7, rows_lost=7, can_keep=True, on_change=OnChange.UPDATE, expected_seconds=2.0),
            "score changed: 7 finished rows will be computed again, about 2 seconds",
        ),
        (
            outcome(rows_stale=30, rows_lost=20, can_keep=True, on_change=None, inputs_before=("x", "y")),
            "score changed: 20 finished rows will be computed again, 10 others that were not current; "
            "to keep them, give score f@1(x, y) again, then f@2 with keep_values",
        ),
        (
            outcome(rows_stale=30, rows_lost=30, on_change=None),
            "score changed: 30 finished rows will be computed again",
        ),
        (outcome(rows_stale=30, on_change=None), "score changed: 30 rows stale, computed again by the next backfill"),
        (
            outcome(rows_stale=30, rows_not_computed=10, expected_seconds=2.0),
            "score changed: 30 rows stale, 10 not computed yet, about 2 seconds",
        ),
        (outcome(Outcome.KEPT), "score changed: its values are kept"),
        (outcome(Outcome.KEPT, rows_not_computed=5), "score changed: its values are kept, 5 not computed yet"),
        (outcome(Outcome.ADDED, rows_not_computed=7), "score is new: 7 rows not computed yet"),
        (outcome(Outcome.UNCHANGED), "score is unchanged"),
        (dataclasses.replace(outcome(), before=None), "score changed"),
    ],
)
def test_it_is_said_in_a_sentence(told, said):
    assert told.summary == said


def test_the_refusal_names_the_ways_out_and_shows_the_diff():
    diff = source_diff(OLD, NEW)
    error = column_changed_error([outcome(rows_stale=4000, expected_seconds=720.0, diff=diff, notes=("f@1 → f@2",))])
    assert error.reason == "COLUMN_CHANGED"
    assert error.message.startswith(
        "score changed: 4,000 rows stale, about 12 minutes (f@1 → f@2). Nothing was changed"
    )
    assert all(f"'{word}'" in error.message for word in ("update", "keep"))
    assert error.message.endswith("+    return y * 3")
    assert (error.facts["columns"], error.facts["rows_stale"], error.facts["diff"]) == ("score", "4000", diff)


def test_rows_that_were_never_computed_are_told_apart_from_stale_ones():
    counts = (
        ReasonCount(Reason.MISSING, 1, 10),
        ReasonCount(Reason.UDF_CHANGED, 3, 30),
        ReasonCount(Reason.REUSED, 1, 5),
    )
    assert rows_by_need(plan(40, counts)) == (30, 10)
    assert rows_by_need(plan(4, counts)) == (0, 4), "the others are in checkpoints"


def plan(rows_to_compute, counts):
    return PlanHeader(
        uri="", read_version=1, incarnation="", output=None, input_columns=(), udf=UDF, bundle_uri="", where="",
        reasons=tuple(counts), rows_to_compute=rows_to_compute,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("before", "after", "lost"),
    [
        ((0, {Reason.REUSED: 30}), (30, {Reason.UDF_CHANGED: 30}), (30, 0)),
        ((10, {Reason.MISSING: 60}), (60, {Reason.MISSING: 60}), (50, 50)),
        ((10, {Reason.STAGED: 30, Reason.MISSING: 30}), (60, {Reason.MISSING: 60}), (50, 50)),
        ((20, {Reason.MISSING: 50, Reason.REUSED: 50}), (100, {Reason.MISSING: 50, Reason.UDF_CHANGED: 50}), (80, 30)),
        ((10, {Reason.INPUT_CHANGED: 10, Reason.REUSED: 20}), (30, {Reason.UDF_CHANGED: 30}), (20, 0)),
        ((30, {Reason.UDF_CHANGED: 30}), (30, {Reason.UDF_CHANGED: 30}), (0, 0)),
        ((30, {Reason.UDF_CHANGED: 30}), (0, {Reason.REUSED: 30}), (0, 0)),
    ],
    ids=["committed", "checkpointed", "staged", "both", "some stale", "all stale", "back"],
)
def test_rows_are_lost_that_were_finished_by_the_function_before(before, after, lost):
    plans = (plan(rows, [ReasonCount(r, 1, n) for r, n in counts.items()]) for rows, counts in (before, after))
    assert rows_lost(*plans) == lost
