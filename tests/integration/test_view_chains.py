"""A view on a view: what a splice of the one says to the other."""

from __future__ import annotations

import lance
import pyarrow as pa
import pytest

from commit_coordinator.view_requests import ViewFile
from core.domain.view import (
    IS_SET,
    SOURCE_ROW_ID,
    RefreshMode,
    RefreshPlan,
    RefreshReason,
    ViewColumn,
    ViewDefinition,
    ViewFormat,
    ViewQuery,
)
from core.lance_io import view_files
from core.lance_io.tables import LanceTables
from core.lance_io.view_changes import row_outcome
from planner.source_diff import changes
from tests.integration.view_commit_helpers import DATA, View, one, values


@pytest.fixture
def lower(tmp_path):
    return View(str(tmp_path)).filled(30)


class Upper:
    """The rows `s <> ''` of the lower view, as of a version of it."""

    def __init__(self, lower, column="x"):
        self.lower = lower
        self.base = lower.open().version
        self.query = ViewQuery("d", "v", (ViewColumn("c", f"`{column}`", column),), where="s <> ''")
        self.uri = f"{lower.database}/upper-{column}.lance"
        found = lower.open().scanner(columns=[], with_row_id=True, filter=IS_SET).to_table()["_rowid"].to_pylist()
        data = pa.table({SOURCE_ROW_ID: pa.array(found, pa.int64()), IS_SET: [True] * len(found)})
        lance.write_dataset(data, self.uri, enable_stable_row_ids=True)

    def outcome(self, base=0, target=0):
        """(appended, recomputed, evicted), as row ids of the lower view."""
        base, target = base or self.base, target or self.lower.open().version
        tables = LanceTables()
        found = changes(self.query, tables.snapshot(self.lower.uri, base), tables.snapshot(self.lower.uri, target))
        definition = ViewDefinition(self.query, self.lower.uri, base, "", ViewFormat.STABLE_ROW_IDS)
        plan = RefreshPlan(
            uri=self.uri,
            version=1,
            incarnation="",
            definition=definition,
            schema=lance.dataset(self.uri).schema,
            functions=(),
            target_version=target,
            target_incarnation="",
            mode=RefreshMode.INCREMENTAL,
            reason=RefreshReason.SOURCE_CHANGED,
            message="",
            changes=found,
        )
        done = row_outcome(plan)
        ids = lance.dataset(self.uri).to_table()[SOURCE_ROW_ID].to_pylist()
        return done.append.tolist(), done.recompute_ids.tolist(), [ids[a] for a in done.evict_addresses.tolist()]


def test_only_rows_that_a_splice_changed_are_computed_again(lower):
    upper = Upper(lower)
    one(lower.splice(swapped=[lower.swapped(1, -1, patch=[3, 7])]))
    assert upper.outcome() == ([], [13, 17], [])


def test_patches_add_up_and_back_again(lower):
    upper = Upper(lower)
    one(lower.splice(swapped=[lower.swapped(1, -1, patch=[3])]))
    middle = lower.open().version
    one(lower.splice(swapped=[lower.swapped(1, -2, patch=[8]), lower.swapped(0, 5, patch=[0])], evicted=[13 - 4]))
    assert upper.outcome() == ([], [0, 13, 18], [9])
    assert upper.outcome(base=middle) == ([], [0, 18], [9])
    assert upper.outcome(base=lower.open().version, target=middle) == ([9], [0, 18], [])
    lower.open().optimize.compact_files()
    assert upper.outcome(base=lower.open().version, target=middle) == ([9], [0, 18], [])


def test_a_compaction_after_splices_changes_nothing_more(lower):
    upper = Upper(lower)
    one(lower.splice(swapped=[lower.swapped(1, -1, patch=[3])]))
    one(lower.splice(swapped=[lower.swapped(1, -2, patch=[8])], evicted=[9]))
    lower.open().optimize.compact_files()
    assert upper.outcome() == ([], [13, 18], [9])
    compacted = lower.open().version
    one(lower.splice(swapped=[lower.swapped(max(lower.fragments()), -3, patch=[0])]))
    assert upper.outcome(base=compacted) == ([], [0], [])


def test_a_splice_that_does_not_say_which_rows_changed_changes_them_all(lower):
    upper = Upper(lower)
    one(lower.splice(swapped=[lower.swapped(1, -1, patch=[3])]))
    one(lower.splice(swapped=[lower.swapped(1, -1)]))
    assert upper.outcome() == ([], list(range(10, 20)), [])


def test_columns_have_chains_of_their_own(lower):
    x, s = Upper(lower), Upper(lower, "s")
    schema = pa.schema([DATA.field("s")])
    ids = list(range(10))
    one(lower.splice(swapped=[_columns(lower, 0, schema, ids)]))  # as where another function version computed it
    one(lower.splice(swapped=[lower.swapped(0, 4, patch=[2])]))
    assert s.outcome() == ([], ids, [])
    assert x.outcome() == ([], ids, [])  # the filter reads `s`
    x.query = ViewQuery("d", "v", x.query.columns)
    assert x.outcome() == ([], [2], [])


def test_rows_that_come_and_go_in_the_lower_view_do_so_in_the_upper(lower):
    upper = Upper(lower)
    one(lower.splice(appended=[lower.appended(100, 101)], evicted=[*range(10), (1 << 32) + 2]))
    lower.open().optimize.compact_files()
    assert upper.outcome() == ([30, 31], [], [*range(10), 12])


def test_rows_without_values_come_when_they_are_filled(tmp_path):
    lower = View(str(tmp_path)).made(30)
    one(lower.fill(1))
    upper = Upper(lower)
    one(lower.fill(0))
    assert upper.outcome() == (list(range(10)), [], [])


def test_a_lower_view_that_was_built_anew_is_computed_anew(lower):
    upper = Upper(lower)
    one(lower.splice(appended=[lower.appended(*range(5))], replace_all=True))
    assert upper.outcome() == (list(range(30, 35)), [], list(range(30)))


def _columns(lower, fragment_id, schema, ids):
    file = view_files.stage_columns(lower.uri, schema, [values(ids, schema)], fragment_id=fragment_id)
    return ViewFile(fragment_id, file)
