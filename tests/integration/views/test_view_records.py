"""Refreshes of a view whose source's history was cleaned: by what the view recorded of it."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from leman._format.view_definitions import BASE_RECORD, SOURCE_ROW_ID, ViewFunction
from leman_coordinator.verification.database_verification import verify
from leman_coordinator.verification.verification_report import FindingCounts, Flaw, Subject
from leman_core.model.service_errors import NotFound, Unavailable
from leman_core.model.view import RefreshMode, RefreshPolicy, RefreshReason
from leman_core.model.view_metadata import read
from leman_core.storage import view_side_files
from leman_core.storage.lance_tables import LanceTables
from leman_core.storage.source_rows import SourceRows
from tests.integration.views.changing_source import Source, View
from tests.integration.views.test_view_changes import STEPS
from tests.integration.views.view_lake import ViewLake, column

#: Steps after which row ids, and names of files, tell everything.
PLAIN = {"append", "delete", "evolve"}


@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(
    bounds=st.sampled_from([(None, None), (5, None), (4, 6)]),
    steps=st.lists(st.tuples(STEPS, st.sampled_from(["", "refresh", "clean"])), min_size=1, max_size=7),
)
@pytest.mark.long
def test_a_view_follows_a_source_whose_history_is_cleaned(bounds, steps):
    """No row is missed, whatever happened; none is computed needlessly where names and row ids tell."""
    with tempfile.TemporaryDirectory() as folder:
        source = Source.make(folder)
        view = View(source, *bounds, base=source.version)
        view.create_placeholders(view.should_hold(source.version))
        view.keep()
        told = True
        for (name, *arguments), what in [*steps, (("append", 2), "clean")]:
            if name == "restore":
                continue  # to a version that may be gone
            getattr(source, name)(*arguments)
            told = told and name in PLAIN
            if what == "clean":
                source.clean()
            if what:
                view.refresh(source.version, exact=told)
                view.keep()
                told = True


@pytest.fixture
def source(tmp_path):
    return Source.make(str(tmp_path), 40)


@pytest.fixture
def view(source):
    view = View(source, 3, base=source.version)
    view.create_placeholders(view.should_hold(source.version))
    view.keep()
    return view


def touched(outcome) -> tuple[int, int, int]:
    return len(outcome.append), len(outcome.recompute_ids), len(outcome.evict_addresses)


def test_names_alone_tell_that_nothing_changed(source, view):
    source.evolve()
    source.clean()
    assert view.plan(source.version).changes == ()


def test_a_compaction_that_is_the_last_word_of_the_history_changes_nothing(source, view):
    source.delete("id = 5")
    view.refresh(source.version)
    view.keep()
    source.compact()
    source.clean()
    assert view.plan(source.version).changes == ()


def test_rows_that_came_before_the_compaction_are_the_only_ones(source, view):
    """What maintenance does: write, compact, clean."""
    source.append(8)
    source.update("x", "9", "id = 4")
    source.delete("id = 38")
    source.compact()
    source.clean()
    assert touched(view.refresh(source.version)) == (5, 1, 1)


def test_only_rows_of_fragments_of_which_nothing_is_known_are_computed(source, view):
    """The fragment that no one compacted, and rows that were deleted, are known by names and row ids."""
    source.open().optimize.compact_files(target_rows_per_fragment=16, max_source_fragments=2)
    source.touched(set())
    source.delete("id = 39")
    source.append(8)
    source.clean()
    outcome = view.refresh(source.version, exact=False)
    moved = sum(1 for i in view.should_hold(source.version) if i < 16)
    assert touched(outcome) == (5, moved, 1)


def test_a_row_of_the_record_is_a_row_of_the_version(source, view):
    source.delete("id IN (3, 9)")
    source.update("x", "1", "id IN (4, 30)")
    source.compact()
    source.delete("id > 36")
    view.refresh(source.version)
    view.keep()
    known = view_side_files.read_source_record(view.uri, view.record, source.uri)
    rows = SourceRows(source.uri, source.version)
    fragments = [f.fragment_id for f in rows.dataset.get_fragments()]
    for bounds in ((), (5, 20)):
        then, now = known.rows_of(fragments, *bounds).by_id(), rows.rows_of(fragments, *bounds).by_id()
        assert (then.ids.tolist(), then.addresses.tolist()) == (now.ids.tolist(), now.addresses.tolist())
    assert known.live_rows(fragments) == rows.live_rows(fragments)
    snapshot = LanceTables().snapshot(source.uri)
    assert [f.field_ids for f in known.snapshot.fields] == [f.field_ids for f in snapshot.fields]


def test_row_ids_that_the_manifest_does_not_have_are_kept_too(source, view, monkeypatch):
    source.delete("id = 3")
    monkeypatch.setattr(view_side_files, "inline_row_ids", lambda _: {})
    view.base = source.version
    view.keep()
    known = view_side_files.read_source_record(view.uri, view.record, source.uri)
    assert known.rows_of(range(9)).ids.tolist() == SourceRows(source.uri, source.version).rows_of(range(9)).ids.tolist()


def test_a_record_that_was_changed_is_none(source, view):
    file = Path(view.uri, "_refresh", view.record)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    assert view_side_files.read_source_record(view.uri, view.record, source.uri) is None
    with pytest.raises(NotFound, match="was cleaned up, and the view has no record of it") as refused:
        view_side_files.read_or_rebuild_source_record(view.uri, view.record, source.uri, view.base)
    assert refused.value.reason == "SOURCE_VERSION_NOT_FOUND"


def test_a_record_is_small(tmp_path):
    """Row ids are kept as ranges: 16 KB for a million rows."""
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"x": range(1_000_000)}), uri, enable_stable_row_ids=True, max_rows_per_file=10_000)
    view = View(Source(uri), None)
    name = view_side_files.write_source_record(str(tmp_path / "v.lance"), view.query, uri, 1)
    assert (tmp_path / "v.lance" / "_refresh" / name).stat().st_size < 16_000


# the planner


@pytest.fixture
def lake(tmp_path):
    lake = ViewLake(tmp_path)
    made = lake.create()
    lake.fill()
    keep(lake, made.uri)
    return lake


def keep(lake, uri):
    found = read(lake.open().schema)
    name = view_side_files.write_source_record(uri, found.query, found.source_uri, found.base_version)
    lake.record(found.base_version, record=name)


def clean(lake):
    Source(lake.uri).clean()


def test_a_plan_goes_by_the_record(lake):
    lake.source().update_config({"note": "1"})
    clean(lake)
    plan = lake.plan()
    assert (plan.mode, plan.changes, plan.only_version) == (RefreshMode.INCREMENTAL, (), True)
    assert "the view's record of it is compared" in plan.message
    assert lake.plan(policy=RefreshPolicy.INCREMENTAL).mode is RefreshMode.INCREMENTAL


def test_a_source_that_was_made_anew_is_no_other_version_of_the_recorded_one(lake):
    other = lance.write_dataset(lake.source().to_table(), f"{lake.database}/other.lance", enable_stable_row_ids=True)
    shutil.rmtree(lake.uri)
    shutil.copytree(other.uri, lake.uri)
    lake.source().update_config({"a": "1"})
    lake.source().update_config({"a": "2"})
    clean(lake)
    assert lake.plan().reason in (RefreshReason.SOURCE_HISTORY_LOST, RefreshReason.SOURCE_REPLACED)


def test_what_needs_values_of_the_recorded_version_is_built_anew(lake):
    found = read(lake.open().schema)
    assert found.query.functions == (ViewFunction("d", "double", "1", ("x",)),)
    lake.create(lake.query(column("id"), offset=2), "page")
    lake.fill(name="page")
    page = read(lake.open("page").schema)
    uri = f"{lake.database}/page.lance"
    lake.record(
        page.base_version,
        "page",
        record=view_side_files.write_source_record(uri, page.query, page.source_uri, page.base_version),
    )
    lance.write_dataset(lake.source().to_table(limit=3), lake.uri, mode="append")
    clean(lake)
    assert lake.plan("page").reason is RefreshReason.SOURCE_HISTORY_LOST
    assert lake.plan().mode is RefreshMode.INCREMENTAL
    assert SOURCE_ROW_ID in lake.open().schema.names
    assert BASE_RECORD.encode() in lake.open().schema.metadata


# the verification


def found_of_records(lake):
    total = FindingCounts()
    for report in verify(str(lake.database), None):
        total.findings += [f for f in report.counts.findings if f.subject is Subject.SOURCE_RECORD]
        count = report.counts.counts.get(Subject.SOURCE_RECORD)
        if count is not None:
            total.counts[Subject.SOURCE_RECORD] = count
    return total


def record_of(lake):
    (path,) = Path(lake.database, "v.lance", "_refresh").glob("source-*.arrow")
    return path


def test_a_verification_looks_at_the_record_too(lake):
    found = found_of_records(lake)
    assert found.findings == []
    count = found.counts[Subject.SOURCE_RECORD]
    assert (count.looked, count.unverifiable, count.size_bytes) == (1, 0, record_of(lake).stat().st_size)


@pytest.mark.parametrize("share", range(4))
def test_a_verification_finds_any_flipped_bit_of_it(lake, share):
    path = record_of(lake)
    content = bytearray(path.read_bytes())
    content[len(content) * share // 4] ^= 1
    path.write_bytes(content)
    (finding,) = found_of_records(lake).findings
    assert (finding.flaw, finding.table, finding.path) == (Flaw.DAMAGED, "v", f"v.lance/_refresh/{path.name}")
    assert "computes all rows" in finding.message


def test_a_verification_misses_a_record_that_the_view_names_and_no_other(lake):
    path = record_of(lake)
    path.rename(path.with_name("source-1-" + "0" * 32 + ".arrow"))
    missing, damaged = sorted(found_of_records(lake).findings, key=lambda f: f.flaw.value, reverse=True)
    assert (missing.flaw, missing.path) == (Flaw.MISSING, f"v.lance/_refresh/{path.name}")
    assert damaged.flaw is Flaw.DAMAGED
    assert "only older versions" in damaged.message


def test_a_record_that_cannot_be_read_is_not_taken_for_none(lake):
    """It may be whole: a plan that goes without it computes all rows."""
    lake.source().update_config({"note": "1"})
    clean(lake)
    path = record_of(lake)
    content = path.read_bytes()
    path.unlink()
    path.mkdir()
    with pytest.raises(Unavailable, match="cannot be used now"):
        lake.plan()
    path.rmdir()
    path.write_bytes(content)
    assert lake.plan().mode is RefreshMode.INCREMENTAL
