"""Which rows a refresh touches, against a plain model of a source that anything may happen to."""

from __future__ import annotations

import dataclasses
import gc
import tempfile

import lance
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from leman._format.view_definitions import SOURCE_ROW_ID
from leman_core.model.row_ids import difference
from leman_core.model.view import RefreshMode
from leman_core.storage.source_rows import NO_ROWS, RowFacts, SourceRows
from leman_core.storage.view_data_files import in_view_order
from leman_executor.refresh import row_diff
from leman_executor.refresh.row_diff import every_row, row_outcome, view_row_ids
from tests.integration.commits.view_commit_helpers import View as CommittedView
from tests.integration.views.changing_source import Row, Source, View

SHAPES = {
    "all": (None, None, 0),
    "filter": (5, None, 0),
    "limit": (4, 6, 0),
    "window": (3, 5, 3),
    "tail": (2, None, 4),
    "unreached": (4, 1000, 2),
}
SMALL = st.integers(0, 12)
STEPS = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 6)),
    st.tuples(st.just("delete"), st.builds("id % 5 = {}".format, st.integers(0, 4))),
    st.tuples(st.just("delete"), st.builds("id < {}".format, SMALL)),
    st.tuples(
        st.just("update"), st.just("x"), st.sampled_from(["0", "9", "x + 1"]), st.builds("id % 7 = {}".format, SMALL)
    ),
    st.tuples(st.just("update"), st.just("y"), st.just("y + 1"), st.builds("id % 6 = {}".format, SMALL)),
    st.tuples(st.just("upsert"), st.lists(st.integers(0, 40), min_size=1, max_size=4, unique=True), SMALL),
    st.tuples(st.just("compact")),
    st.tuples(st.just("rewrite"), st.sampled_from(["x", "y"]), SMALL),
    st.tuples(st.just("evolve")),
    st.tuples(st.just("restore"), SMALL),
    st.tuples(st.just("overwrite"), st.integers(1, 9)),
)


@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(
    shape=st.sampled_from(sorted(SHAPES)),
    steps=st.lists(st.tuples(STEPS, st.booleans()), min_size=1, max_size=8),
    back=st.one_of(st.none(), SMALL),
    at_once=st.sampled_from([5, 1000]),
    history=st.booleans(),
)
def test_a_view_follows_any_history(shape, steps, back, at_once, history):
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_diff, "_AT_ONCE", at_once)
        source = Source.make(folder)
        least, limit, offset = SHAPES[shape]
        view = View(source, least, limit, offset, base=source.version, history=history)
        view.create_placeholders(view.should_hold(source.version))
        for (name, *arguments), refresh in steps:
            getattr(source, name)(*arguments)
            if refresh:
                view.refresh(source.version)
        view.refresh(source.version)
        if back is not None:
            versions = sorted(source.versions)
            view.refresh(versions[back % len(versions)])
            view.refresh(source.version)


@pytest.fixture
def source(tmp_path):
    return Source.make(str(tmp_path), 40)


@pytest.fixture(params=[True, False], ids=["history", "row ids"])
def view(source, request):
    view = View(source, 3, base=source.version, history=request.param)
    view.create_placeholders(view.should_hold(source.version))
    return view


@pytest.fixture
def row_id_reads(monkeypatch):
    """Fragments of the source whose row ids were read."""
    read, rows_of = [], SourceRows.rows_of

    def note(rows, fragments, *arguments):
        read.extend(fragments)
        return rows_of(rows, fragments, *arguments)

    monkeypatch.setattr(SourceRows, "rows_of", note)
    return read


def test_nothing_but_row_ids_is_read_where_nothing_changed(source, view, row_id_reads):
    """And not even they where the history tells that compaction alone was at work."""
    source.compact()
    assert source.open().get_fragments()[0].fragment_id > 4
    outcome = view.refresh(source.version)
    assert (len(outcome.append), len(outcome.recompute_ids), len(outcome.evict_addresses)) == (0, 0, 0)
    assert outcome.source_rows_read == 0
    assert bool(row_id_reads) is not view.history


def test_row_ids_are_read_of_what_more_than_compaction_changed(source, view, row_id_reads):
    source.delete("id = 3")
    source.compact()
    assert len(view.refresh(source.version).evict_addresses) == 1
    assert row_id_reads
    row_id_reads.clear()
    source.append(8)
    view.refresh(source.version)
    assert not row_id_reads, "all rows of a fragment that came are new where nothing else changed"


def test_the_filter_is_read_for_rows_that_are_new_or_other(source, view):
    source.append(6)
    assert view.refresh(source.version).source_rows_read == 6
    source.delete("id < 9")
    assert view.refresh(source.version).source_rows_read == 0
    source.update("x", "9", "id IN (20, 21)")
    source.compact()
    assert view.refresh(source.version).source_rows_read == 2


def test_the_view_is_not_read_where_rows_only_came(source, view, monkeypatch):
    source.append(6)
    plan = view.plan(source.version)
    monkeypatch.setattr(row_diff, "view_row_ids", lambda *_: pytest.fail("the view was read"))
    assert row_outcome(plan).append.tolist() == [43, 44, 45]


def test_an_unrelated_backfill_and_a_compaction_recompute_nothing(source, view):
    for fragment in range(5):
        source.rewrite("y", fragment)
    source.evolve()
    source.compact()
    outcome = view.refresh(source.version)
    assert len(outcome.recompute_ids) == outcome.source_rows_read == 0


def test_rows_that_were_updated_on_their_way_are_found(source, view):
    source.rewrite("y", 0)
    source.update("x", "7", "id = 5")
    source.compact()
    source.rewrite("y", 0)
    source.compact()
    assert view.refresh(source.version).source_rows_read == 1


def test_a_column_that_was_dropped_and_came_back_empty_is_another(source, view):
    """Its rows keep the version in which they were updated last."""
    source.open().drop_columns(["x"])
    source.open().add_columns(pa.field("x", pa.int64()))
    source.open().optimize.compact_files()
    source.versions[source.version] = {i: Row(None, 99) for i in source.versions[1]}
    outcome = view.refresh(source.version)
    assert len(outcome.evict_addresses) == 28


def test_an_update_in_place_that_does_not_say_of_which_rows_changes_all_of_its_fragment(source, view):
    dataset = source.open()
    fragment = dataset.get_fragment(0)
    new, fields = fragment.update_columns(
        pa.table({"_rowid": pa.array([4], pa.uint64()), "x": [0]}), left_on="_rowid", right_on="_rowid"
    )
    operation = lance.LanceOperation.Update(updated_fragments=[new], fields_modified=fields)
    lance.LanceDataset.commit(dataset, operation, read_version=dataset.version)
    source.open().optimize.compact_files()
    before = source.versions[1]
    source.versions[source.version] = {i: Row(0 if i == 4 else row.x, 7) if i < 8 else row for i, row in before.items()}
    view.refresh(source.version)


def test_nothing_that_was_read_is_kept_until_the_collector_runs(source, view):
    source.update("x", "9", "id IN (20, 21)")
    source.rewrite("y", 0)
    source.compact()
    source.update("x", "9", "id IN (3, 4)")
    plan = view.plan(source.version)
    gc.collect()
    gc.disable()
    try:
        row_outcome(plan)
        kept = [o for o in gc.get_objects() if isinstance(o, SourceRows | lance.LanceDataset | RowFacts)]
    finally:
        gc.enable()
    assert [o for o in kept if o is not NO_ROWS] == []


def test_a_full_refresh_takes_every_matching_row_in_order(source, view):
    source.delete("id < 9")
    plan = dataclasses.replace(view.plan(source.version), mode=RefreshMode.FULL)
    outcome = row_outcome(plan)
    assert outcome.append.tolist() == view.should_hold(source.version)
    assert len(outcome.recompute_ids) == len(outcome.evict_addresses) == 0
    assert outcome.source_rows_read == 31


def test_new_rows_of_a_shuffled_view_are_shuffled_among_themselves(source, view):
    source.append(30)
    plan = view.plan(source.version)
    query = dataclasses.replace(plan.definition.query, shuffle=True, seed=5)
    found = row_outcome(dataclasses.replace(plan, definition=dataclasses.replace(plan.definition, query=query)))
    wanted = difference(np.array(view.should_hold(source.version)), np.array(view.rows))
    assert found.append.tolist() == in_view_order(wanted, query).tolist() != wanted.tolist()


def test_all_rows_of_a_view_by_address(source, view):
    lance.dataset(view.uri).delete(f"{SOURCE_ROW_ID} = 7")
    outcome = every_row(view.plan(source.version))
    placed = view.by_address()
    assert outcome.recompute_addresses.tolist() == sorted(placed)
    assert outcome.recompute_ids.tolist() == [placed[a] for a in sorted(placed)]
    assert outcome.source_rows_read == 0


def test_deletions_are_told_without_row_ids_of_the_rows_that_stay(source, view, row_id_reads):
    source.delete("id % 9 = 5")
    view.refresh(source.version)
    source.delete("id % 9 = 7")
    assert len(view.refresh(source.version).evict_addresses)
    assert not row_id_reads


def test_rows_that_a_restore_brings_back_are_found_without_the_others(source, view, row_id_reads):
    before = source.version
    source.delete("id % 9 = 5")
    view.refresh(source.version)
    assert len(view.refresh(before).append)
    assert not row_id_reads


def test_few_updated_rows_are_told_without_row_ids_of_the_rows_that_stay(tmp_path, row_id_reads):
    source = Source.make(str(tmp_path), 300)
    lance.dataset(source.uri).optimize.compact_files(target_rows_per_fragment=1000)
    source.touched([])
    view = View(source, None, base=source.version)
    view.create_placeholders(view.should_hold(source.version))
    source.update("x", "x + 1", "id = 17")
    old = {f.fragment_id for f in lance.dataset(source.uri, version=source.version - 1).get_fragments()}
    assert view.refresh(source.version).recompute_ids.tolist() == [17]
    assert not old & set(row_id_reads)


@pytest.mark.parametrize("deleted", ["false", f"{SOURCE_ROW_ID} in (0, 9, 14, 29)"])
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("wanted", [[], [0], [9], [10], [3, 29], [13, 14, 15], [40], list(range(40))])
def test_the_view_is_searched_where_the_wanted_rows_are(tmp_path, monkeypatch, deleted, shuffle, wanted):
    made = CommittedView(str(tmp_path)).made(rows=30, most=10, shuffle=shuffle, seed=3)
    lance.dataset(made.uri).delete(deleted)
    dataset = lance.dataset(made.uri)
    placed = dataset.scanner(columns=[SOURCE_ROW_ID], with_row_address=True).to_table()
    there = dict(zip(placed[SOURCE_ROW_ID].to_pylist(), placed["_rowaddr"].to_pylist(), strict=True))
    ids, addresses = view_row_ids(made.uri, dataset.version, np.array(wanted, np.int64))
    assert ids.tolist() == [i for i in wanted if i in there]
    assert addresses.tolist() == [there[i] for i in ids.tolist()]
    looked_at = row_diff._fragments_with(dataset, np.array(wanted, np.int64))
    if shuffle:
        assert looked_at is None
    else:
        ends = {f: [i for i, a in there.items() if a >> 32 == f] for f in range(3)}
        assert [f.fragment_id for f in looked_at] == [
            f for f, own in ends.items() if any(min(own) <= i <= max(own) for i in wanted)
        ]


def test_every_fragment_is_searched_of_a_view_that_was_compacted(tmp_path):
    made = CommittedView(str(tmp_path)).made(rows=30, most=10)
    lance.dataset(made.uri).optimize.compact_files(target_rows_per_fragment=20)
    dataset = lance.dataset(made.uri)
    assert row_diff._fragments_with(dataset, np.array([3])) in (None, dataset.get_fragments())
    assert view_row_ids(made.uri, dataset.version, np.array([3]))[0].tolist() == [3]
