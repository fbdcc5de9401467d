"""A view on a view: what a delta of the one says to the other."""

from __future__ import annotations

import tempfile

import lance
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from leman._format.view_definitions import IS_SET, SOURCE_ROW_ID, ViewColumn, ViewDefinition, ViewFormat, ViewQuery
from leman_coordinator.commits.commit_requests import ViewFile
from leman_core.model.view import RefreshMode, RefreshPlan, RefreshReason
from leman_core.storage import compaction_history
from leman_core.storage import view_data_files as view_files
from leman_core.storage.lance_tables import LanceTables
from leman_executor.refresh.row_diff import row_outcome
from leman_planner.views.source_changes import changed_fragments
from tests.integration.commits.view_commit_helpers import DATA, View, one, values


@pytest.fixture
def lower(tmp_path):
    return View(str(tmp_path)).filled(30)


class Upper:
    """The rows `s <> ''` of the lower view, as of a version of it."""

    def __init__(self, lower, column="x", held=None):
        self.lower = lower
        self.base = lower.open().version
        self.query = ViewQuery("d", "v", (ViewColumn("c", f"`{column}`", column),), where="s <> ''")
        self.uri = f"{lower.database}/upper-{column}.lance"
        rows = lower.open().scanner(columns=[], with_row_id=True, filter=IS_SET).to_table()
        found = rows["_rowid"].to_pylist() if held is None else held
        data = pa.table({SOURCE_ROW_ID: pa.array(found, pa.int64()), IS_SET: [True] * len(found)})
        lance.write_dataset(data, self.uri, enable_stable_row_ids=True)

    def outcome(self, base=0, target=0):
        """(appended, recomputed, evicted), as row ids of the lower view: the same whether the plan knows of compactions
        or not."""
        base, target = base or self.base, target or self.lower.open().version
        known = self._outcome(
            base, target, lambda: compaction_history.compactions_between(self.lower.uri, *sorted([base, target]))
        )
        assert known == self._outcome(base, target, tuple)
        return known

    def _outcome(self, base, target, compactions):
        tables = LanceTables()
        versions = [tables.snapshot(self.lower.uri, version) for version in (base, target)]
        found = changed_fragments(self.query, *versions, compactions)
        definition = ViewDefinition(
            query=self.query,
            source_uri=self.lower.uri,
            base_version=base,
            base_incarnation="",
            format=ViewFormat.STABLE_ROW_IDS,
        )
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


def test_only_rows_that_a_delta_changed_are_computed_again(lower):
    upper = Upper(lower)
    one(lower.delta(swapped=[lower.swapped(1, -1, patch=[3, 7])]))
    assert upper.outcome() == ([], [13, 17], [])


def test_patches_add_up_and_back_again(lower):
    upper = Upper(lower)
    one(lower.delta(swapped=[lower.swapped(1, -1, patch=[3])]))
    middle = lower.open().version
    one(lower.delta(swapped=[lower.swapped(1, -2, patch=[8]), lower.swapped(0, 5, patch=[0])], evicted=[13 - 4]))
    assert upper.outcome() == ([], [0, 13, 18], [9])
    assert upper.outcome(base=middle) == ([], [0, 18], [9])
    assert upper.outcome(base=lower.open().version, target=middle) == ([9], [0, 18], [])
    lower.open().optimize.compact_files()
    assert upper.outcome(base=lower.open().version, target=middle) == ([9], [0, 18], [])


def test_a_compaction_after_deltas_changes_nothing_more(lower):
    upper = Upper(lower)
    one(lower.delta(swapped=[lower.swapped(1, -1, patch=[3])]))
    one(lower.delta(swapped=[lower.swapped(1, -2, patch=[8])], evicted=[9]))
    lower.open().optimize.compact_files()
    assert upper.outcome() == ([], [13, 18], [9])
    compacted = lower.open().version
    one(lower.delta(swapped=[lower.swapped(max(lower.fragments()), -3, patch=[0])]))
    assert upper.outcome(base=compacted) == ([], [0], [])


def test_a_delta_that_does_not_say_which_rows_changed_changes_them_all(lower):
    upper = Upper(lower)
    one(lower.delta(swapped=[lower.swapped(1, -1, patch=[3])]))
    one(lower.delta(swapped=[lower.swapped(1, -1)]))
    assert upper.outcome() == ([], list(range(10, 20)), [])


def test_columns_have_chains_of_their_own(lower):
    x, s = Upper(lower), Upper(lower, "s")
    schema = pa.schema([DATA.field("s")])
    ids = list(range(10))
    one(lower.delta(swapped=[_columns(lower, 0, schema, ids)]))  # as where another function version computed it
    one(lower.delta(swapped=[lower.swapped(0, 4, patch=[2])]))
    assert s.outcome() == ([], ids, [])
    assert x.outcome() == ([], ids, [])  # the filter reads `s`
    x.query = ViewQuery("d", "v", x.query.columns)
    assert x.outcome() == ([], [2], [])


def test_rows_that_come_and_go_in_the_lower_view_do_so_in_the_upper(lower):
    upper = Upper(lower)
    one(lower.delta(appended=[lower.appended(100, 101)], evicted=[*range(10), (1 << 32) + 2]))
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
    one(lower.delta(appended=[lower.appended(*range(5))], replace_all=True))
    assert upper.outcome() == (list(range(30, 35)), [], list(range(30)))


def _columns(lower, fragment_id, schema, ids):
    file = view_files.stage_columns(lower.uri, schema, [values(ids, schema)], fragment_id=fragment_id)
    return ViewFile(fragment_id, file)


NUMBER = st.integers(0, 40)
STEPS = st.one_of(
    st.tuples(st.just("swap"), NUMBER, st.sets(st.integers(0, 9), min_size=1, max_size=3)),
    st.tuples(st.just("append"), st.integers(1, 4)),
    st.tuples(st.just("evict"), NUMBER),
    st.tuples(st.just("compact")),
    st.tuples(st.just("restore"), NUMBER),
)


class Stamped:
    """The rows of a lower view, and for each version who wrote which row."""

    def __init__(self, folder):
        self.view = View(folder).filled(30)
        self.versions = {}
        self.touch({})

    def facts(self):
        """Row id to address."""
        table = self.view.open().scanner(columns=[], with_row_id=True, with_row_address=True).to_table()
        return dict(zip(table["_rowid"].to_pylist(), table["_rowaddr"].to_pylist(), strict=True))

    def touch(self, touched):
        """Records the latest version: rows at `touched` (fragment → offsets) have a new stamp, and so have new rows."""
        old = self.versions[max(self.versions)] if self.versions else {}
        stamp = len(self.versions)
        self.versions[self.view.open().version] = {
            i: stamp if i not in old or (a & 0xFFFF) in touched.get(a >> 32, ()) else old[i]
            for i, a in self.facts().items()
        }

    def do(self, name, *arguments):
        view = self.view
        fragments = sorted(view.fragments())
        touched = {}
        if name == "swap" and fragments:
            fragment_id = fragments[arguments[0] % len(fragments)]
            rows = view.open().get_fragment(fragment_id).metadata.physical_rows
            offsets = sorted(o for o in arguments[1] if o < rows)
            touched = {fragment_id: offsets}
            one(view.delta(swapped=[view.swapped(fragment_id, len(self.versions), patch=offsets)]))
        elif name == "append":
            one(view.delta(appended=[view.appended(*range(100, 100 + arguments[0]))]))
        elif name == "evict" and fragments:
            addresses = sorted(self.facts().values())
            one(view.delta(evicted=addresses[:: arguments[0] + 2]))
        elif name == "compact":
            view.open().optimize.compact_files(target_rows_per_fragment=25)
        elif name == "restore":
            version = sorted(self.versions)[arguments[0] % len(self.versions)]
            view.open().checkout_version(version).restore()
            self.versions[view.open().version] = self.versions[version]
            return
        self.touch(touched)


@settings(max_examples=15, suppress_health_check=list(HealthCheck))
@given(steps=st.lists(STEPS, min_size=1, max_size=7), pair=st.tuples(NUMBER, NUMBER))
def test_no_changed_row_of_a_lower_view_is_missed(steps, pair):
    with tempfile.TemporaryDirectory() as folder:
        lower = Stamped(folder)
        for step in steps:
            lower.do(*step)
        versions = sorted(lower.versions)
        base, target = (versions[n % len(versions)] for n in pair)
        before, after = lower.versions[base], lower.versions[target]
        upper = Upper(lower.view, held=sorted(before))
        appended, again, evicted = upper.outcome(base=base, target=target)
        assert appended == sorted(after.keys() - before.keys())
        assert evicted == sorted(before.keys() - after.keys())
        assert {i for i in before.keys() & after.keys() if before[i] != after[i]} <= set(again)
