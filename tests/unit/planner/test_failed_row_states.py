"""Plans for failed rows, and for columns that keep values of earlier versions."""

from __future__ import annotations

import dataclasses

import lance
import numpy as np
import pyarrow as pa

from leman._format.column_bindings import FunctionVersion
from leman._format.stored_functions import ErrorPolicy
from leman_core.model import keys
from leman_core.model.plan import KeptRows, Reason, summarize_plan
from leman_core.model.row_positions import RowRange
from leman_core.model.row_states import RowState, StateSummary, with_version
from leman_planner.planning import stale_inputs
from leman_planner.planning.fragment_status import decide_reuse, inspect_fragments
from leman_planner.planning.plan_draft import draft_plan
from leman_planner.planning.request_resolution import ResolvedRequest
from leman_planner.planning.stored_work import StoredWork
from tests.unit.planner.planner_helpers import (
    COLUMN_ID,
    UDF,
    column_file,
    fragment,
    plan,
    range_key,
    reasons,
    record,
    resolved,
)

UDF_2 = dataclasses.replace(UDF, version="2")
V1 = keys.function_part("f", "1", COLUMN_ID)
OLD, OLD_PARTIAL = column_file(0), column_file(0, partial=True)
MIXED = column_file(0, udf=UDF_2, partial=True)


def failed_only(fragments, where="", **options) -> ResolvedRequest:
    return dataclasses.replace(resolved(fragments, where, **options), failed_only=True)


def keeping(fragments, where="", **options) -> ResolvedRequest:
    """The column has version 2 and keeps values of version 1."""
    asked = resolved(fragments, where, udf=UDF_2, **options)
    return dataclasses.replace(asked, kept=(FunctionVersion("f", "1"),))


def failed_key(file: str, start: int, end: int, where: str = "", **of: object) -> str:
    return range_key(0, start, end, keys.failed_identity(file, where), **of)


# only failed rows


def test_only_fragments_with_failed_rows_have_work():
    partial, clean = column_file(1, partial=True), column_file(2, partial=True)
    fragments = [fragment(0, current=OLD), fragment(1, current=partial), fragment(2, current=clean), fragment(3)]
    states = {
        partial: StateSummary(untouched=10, failed=3, computed=87),
        clean: StateSummary(untouched=10, failed=0, computed=90),
    }
    made = plan(failed_only(fragments), states=states)
    (task,) = made.tasks
    assert (task.fragment_id, task.reason, task.extend_current) == (1, Reason.PARTIAL, True)
    assert (made.header.rows_to_compute, made.header.rows_failed_before) == (3, 0)
    assert made.header.rows_not_computed == 10 + 10 + 100
    assert reasons(made) == {"REUSED": 1, "PARTIAL": 1, "REUSED_FILTER": 2}
    assert summarize_plan(made) == (
        "3 failed rows to try again in 1 of 4 fragments; 120 rows are not computed: a backfill computes them"
    )


def test_where_no_row_failed_nothing_is_to_do():
    made = plan(failed_only([fragment(0, current=OLD), fragment(1, current=column_file(1, source="old"))]))
    assert made.tasks == ()
    assert summarize_plan(made).startswith("no row is marked as failed: nothing to do; 100 rows are not computed")


def test_failures_in_a_stale_file_say_nothing():
    stale = column_file(0, source="old", partial=True)
    made = plan(
        failed_only([fragment(0, current=stale)]), states={stale: StateSummary(untouched=0, failed=5, computed=95)}
    )
    assert made.tasks == ()


def test_checkpoints_that_hold_the_failures_are_not_used():
    states = {OLD_PARTIAL: StateSummary(untouched=0, failed=3, computed=97)}
    asked = failed_only([fragment(0, current=OLD_PARTIAL)])
    (task,) = plan(asked, found=[range_key(0, 0, 50)], states=states).tasks
    assert (task.checkpoints, task.missing) == ((), (RowRange(0, 100),))
    own = failed_key(OLD_PARTIAL, 0, 50)
    (task,) = plan(asked, found=[own], states=states).tasks
    assert [ref.key for ref in task.checkpoints] == [own]
    assert task.missing == (RowRange(50, 100),)
    another = failed_key(column_file(0, "a0", partial=True), 0, 50)
    (task,) = plan(asked, found=[another], states=states).tasks
    assert task.checkpoints == (), "rows of that file failed again since"


def test_a_filter_over_the_column_itself_settles_as_the_file_is_known():
    states = {OLD_PARTIAL: StateSummary(untouched=0, failed=3, computed=97)}
    asked = failed_only([fragment(0, current=OLD_PARTIAL)], "c IS NULL", names={"c"})
    (task,) = plan(asked, found=[failed_key(OLD_PARTIAL, 0, 100, "c IS NULL")], states=states).tasks
    assert task.missing == ()


def test_only_a_file_that_a_retry_staged_is_installed():
    states = {OLD_PARTIAL: StateSummary(untouched=0, failed=3, computed=97)}
    asked = failed_only([fragment(0, current=OLD_PARTIAL)])
    staged = record(0, column_file(0, "b2"), replaces=OLD_PARTIAL)
    plain = keys.record_key(asked.family.prefix_for("", asked_sources(asked)), 0)
    own = keys.record_key(asked.family.prefix_for(keys.failed_identity(OLD_PARTIAL, ""), asked_sources(asked)), 0)
    assert plan(asked, records={plain: staged}, states=states).tasks[0].staged is None
    made = plan(asked, records={own: staged}, states=states)
    assert made.tasks[0].reason is Reason.STAGED
    assert (made.header.rows_to_compute, made.tasks[0].staged) == (0, staged.staged)


def asked_sources(asked: ResolvedRequest) -> str:
    return keys.sources(asked.input_pairs(asked.table.fragments[0]))


# kept values


def test_files_of_a_kept_version_are_current_and_named():
    made = plan(keeping([fragment(0, current=OLD), fragment(1, current=column_file(1, udf=UDF_2))]))
    assert made.tasks == ()
    assert made.header.kept == (KeptRows(FunctionVersion("f", "1"), 100),)
    assert summarize_plan(made) == "2 of 2 fragments are current: nothing to do; 100 rows keep values of f@1"
    assert reasons(plan(resolved([fragment(0, current=OLD)], udf=UDF_2))) == {"UDF_CHANGED": 1}


def test_a_kept_version_is_stale_where_its_inputs_changed():
    assert reasons(plan(keeping([fragment(0, current=column_file(0, source="old"))]))) == {"INPUT_CHANGED": 1}


def test_rows_that_failed_under_a_kept_version_are_open():
    made = plan(
        keeping([fragment(0, current=OLD_PARTIAL)]),
        states={OLD_PARTIAL: StateSummary(untouched=5, failed=3, computed=92)},
    )
    (task,) = made.tasks
    assert (task.reason, task.extend_current) == (Reason.PARTIAL, True)
    assert task.fingerprint.startswith(keys.function_part("f", "2", COLUMN_ID))
    assert (made.header.rows_to_compute, made.header.rows_failed_before) == (8, 0)
    assert made.header.kept[0].rows == 92
    asked = dataclasses.replace(keeping([fragment(0, current=OLD_PARTIAL)]), failed_only=True)
    again = plan(asked, states={OLD_PARTIAL: StateSummary(untouched=5, failed=3, computed=92)})
    assert (again.header.rows_to_compute, again.header.rows_not_computed) == (3, 5)


def test_rows_of_a_kept_version_in_a_file_and_in_checkpoints_count_once():
    """A partial commit made 34 of the rows visible that the checkpoints of that run hold."""
    states = {OLD_PARTIAL: StateSummary(untouched=66, failed=0, computed=34)}
    made = plan(keeping([fragment(0, current=OLD_PARTIAL)]), states=states, of_kept=[range_key(0, 0, 50)])
    assert made.header.rows_to_compute == 50
    assert made.header.kept == (KeptRows(FunctionVersion("f", "1"), 50),)


def test_a_mixed_file_is_current_while_its_versions_are_kept():
    states = {MIXED: StateSummary(untouched=0, failed=1, computed=9, older=((V1, 90, 0),))}
    made = plan(keeping([fragment(0, current=MIXED)]), states=states)
    assert (made.tasks, made.header.kept[0].rows, made.header.rows_failed_before) == ((), 90, 1)
    made = plan(resolved([fragment(0, current=MIXED)], udf=UDF_2), states=states)
    assert (made.tasks[0].reason, made.header.rows_to_compute) == (Reason.PARTIAL, 90)
    assert made.header.kept == ()
    assert reasons(plan(resolved([fragment(0, current=MIXED)]), states=states)) == {"UDF_CHANGED": 1}


def test_kept_rows_that_are_deleted_do_not_count(tmp_path, monkeypatch):
    uri = f"{tmp_path}/t.lance"
    lance.write_dataset(pa.table({"x": range(100)}), uri).delete("x < 30 OR x = 95")
    asked = keeping([fragment(0, current=MIXED, deleted=31)])
    asked = dataclasses.replace(asked, table=dataclasses.replace(asked.table, uri=uri, version=2))
    rows = np.full(100, RowState.COMPUTED, np.uint8)
    rows[:90] = with_version(RowState.COMPUTED, 1)
    monkeypatch.setattr(stale_inputs, "states_of", lambda *_: rows)
    states = {MIXED: StateSummary(untouched=0, failed=0, computed=10, older=((V1, 90, 0),))}
    statuses = inspect_fragments(asked)
    decisions = decide_reuse(asked, statuses, states)
    stored = StoredWork(states=states, kept_rows=stale_inputs.kept_now(asked, statuses, decisions))
    assert draft_plan(asked, statuses, stored).plan.header.kept == (KeptRows(FunctionVersion("f", "1"), 60),)
    monkeypatch.setattr(stale_inputs, "MOST_LOOKED_INTO", 0)
    assert stale_inputs.kept_now(asked, statuses, decisions) == {}, "then the header of the file tells"
    whole = keeping([fragment(0, current=MIXED)])
    statuses = inspect_fragments(whole)
    assert stale_inputs.kept_now(whole, statuses, decide_reuse(whole, statuses, states)) == {}, "nothing is read"


def test_a_filter_is_settled_no_more_once_its_failed_rows_are_open():
    asked = keeping([fragment(0, current=OLD_PARTIAL)], "y = 'a'", names={"y"})
    filters = frozenset({keys.md5(asked.filter_identity(asked.table.fragments[0]))})
    settled = {OLD_PARTIAL: StateSummary(untouched=50, failed=0, computed=50, filters=filters)}
    assert reasons(plan(asked, states=settled)) == {"REUSED_FILTER": 1}
    opened = {OLD_PARTIAL: StateSummary(untouched=50, failed=1, computed=49, filters=filters)}
    assert reasons(plan(asked, states=opened)) == {"PARTIAL": 1}


def test_checkpoints_settle_only_under_the_same_kept_versions():
    states = {MIXED: StateSummary(untouched=50, failed=0, computed=9, older=((V1, 41, 0),))}
    asked = keeping([fragment(0, current=MIXED)])
    own = keys.range_key(
        asked.family.prefix_for(asked.filter_identity(fragment(0)), asked_sources(asked)), 0, RowRange(0, 50)
    )
    (task,) = plan(asked, found=[own], states=states).tasks
    assert task.missing == (RowRange(50, 100),)
    (task,) = plan(resolved([fragment(0, current=MIXED)], udf=UDF_2), found=[own], states=states).tasks
    assert task.missing == (RowRange(0, 100),)
    assert [ref.settles for ref in task.checkpoints] == [False]


# the budget of errors


def test_a_fraction_of_few_rows_allows_none():
    assert ErrorPolicy().errors_allowed(10) is None
    assert ErrorPolicy(max_errors=3).errors_allowed(10) == 3
    assert ErrorPolicy(max_error_fraction=0.25).errors_allowed(10) == 2
    assert ErrorPolicy(max_error_fraction=0.01).errors_allowed(10) == 0
