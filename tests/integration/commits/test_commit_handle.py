"""The kept table handle: dropped and re-created tables, added columns, what Lance's failures mean, history."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from datetime import timedelta

import lance
import pyarrow as pa
import pytest

from leman_coordinator.lance_io import column_definitions, table_files, table_handle
from leman_coordinator.lance_io.table_files import Committed, StagedFiles
from leman_coordinator.lance_io.table_handle import CommitConflict, CommitUnclear, TableHandle
from leman_core.model.service_errors import FailedPrecondition, InvalidArgument, NotFound
from leman_core.storage import transactions
from leman_core.storage.lance_tables import INCARNATION_KEY
from tests.integration.commits.commit_helpers import (
    Planner,
    add_columns,
    flatten,
    make_table,
    new_field,
    reasons,
    submit,
    with_file,
)


def prepared(planner, fragment_id):
    replacement = planner.replacement(fragment_id)
    return fragment_id, StagedFiles(planner.table.uri).prepare(replacement.staged, planner.output)


def test_what_is_kept_of_a_table_does_not_grow_with_its_versions(tmp_path, monkeypatch):
    """Lance keeps the manifest of each version that a dataset was at: 0.5 MB where there are 200 columns."""
    bound = 256 << 10
    monkeypatch.setattr(table_handle, "_CACHE_BYTES", bound)
    uri = str(tmp_path / "wide.lance")
    lance.write_dataset(pa.table({f"c{n}": pa.array([n]) for n in range(300)}), uri)
    handle, unbound = TableHandle(uri), lance.dataset(uri)
    for _ in range(20):
        handle.latest()
        handle.commit(lance.LanceOperation.Append([]), {})
        unbound.checkout_latest()
    assert unbound.session().size_bytes() > 2 * bound
    assert handle.kept_bytes <= bound


# ------------------------------------------------------------------- dropped and created again


@pytest.mark.parametrize("versions", [-1, 0, 1])
def test_kept_handle_sees_the_table_that_took_the_place_of_its_own(table, versions):
    """With fewer, as many and more versions than the handle has seen."""
    handle = TableHandle(table.uri)
    before = handle.latest([0])
    for number in range(3):
        table.open().update_config({"k": str(number)})
    old_version = handle.latest([0]).version
    shutil.rmtree(table.uri)
    fresh = make_table(table.uri, fragments=2)
    for number in range(old_version + versions - fresh.open().version):
        fresh.open().update_config({"k": str(number)})

    after = handle.latest([0, 1, 2])

    assert after.incarnation == fresh.snapshot().incarnation != before.incarnation
    assert after.version == fresh.open().version == old_version + versions
    assert [f.fragment_id for f in after.fragments] == [0, 1]


def test_history_of_the_dropped_table_is_not_taken_for_that_of_the_new_one(table):
    planner = Planner(table)
    submit(planner.request(0, request_id="old"))
    handle = TableHandle(table.uri)
    version = handle.latest().version
    assert [r.request_ids for r in handle.records(0, 100)] == [("old",)]
    shutil.rmtree(table.uri)
    fresh = make_table(table.uri)
    while fresh.open().version < version:
        fresh.open().update_config({"k": str(fresh.open().version)})
    handle.latest()
    assert list(handle.records(0, 100)) == []


def test_control_without_a_look_right_before_the_commit(table):
    """Lance writes the old table's manifest over the new table, and says nothing."""
    planner = Planner(table)
    handle = TableHandle(table.uri)
    base, file = handle.latest([0]), prepared(planner, 0)
    shutil.rmtree(table.uri)
    fresh = make_table(table.uri, fragments=2)
    assert fresh.snapshot().version == base.version
    handle.replace_files(base, [file], {})
    assert fresh.snapshot().incarnation == base.incarnation
    assert len(fresh.open().get_fragments()) == 4


def test_handle_of_a_deleted_table_says_so(table):
    handle = TableHandle(table.uri)
    shutil.rmtree(table.uri)
    with pytest.raises(NotFound) as caught:
        handle.latest()
    assert caught.value.reason == "TABLE_NOT_FOUND"
    with pytest.raises(NotFound):
        TableHandle(table.uri)


def test_commit_needs_the_version_that_was_looked_at(table):
    planner = Planner(table)
    handle = TableHandle(table.uri)
    base = handle.latest([0])
    table.open().update_config({"k": "v"})
    handle.latest()
    with pytest.raises(RuntimeError):
        handle.replace_files(base, [prepared(planner, 0)], {})


# -------------------------------------------------------------------------------- null columns


def test_added_columns_are_null_without_a_file_and_keep_their_metadata(tmp_path):
    uri = str(tmp_path / "a table with spaces é.lance")
    lance.write_dataset(pa.table({"x": [1, 2, 3]}), uri)
    handle = TableHandle(uri)
    base = handle.latest()
    names = ["with space", 'quo"te', "ünï", "list", "UPPER"]
    types = [pa.int32(), pa.string(), pa.float64(), pa.list_(pa.float32()), pa.bool_()]
    schema = pa.schema([new_field(base, n, t) for n, t in zip(names, types, strict=True)])

    version = column_definitions.add_null_columns(handle, base, schema)

    dataset = lance.dataset(uri)
    assert dataset.version == version
    assert dataset.schema.names == ["x", *names]
    assert [dataset.schema.field(n).metadata for n in names] == [f.metadata for f in schema]
    assert [len(f.metadata.files) for f in dataset.get_fragments()] == [1]
    assert dataset.to_table().column("list").null_count == 3
    assert handle.latest().incarnation == dataset.config()["leman.incarnation"] != ""


def test_a_table_gets_its_incarnation_in_the_version_that_binds_a_column(table):
    table.open().delete_config_keys([INCARNATION_KEY])
    handle = TableHandle(table.uri)
    base = handle.latest()
    assert not base.incarnation
    handle.update_fields({base.fields[0].field_id: lance.LanceOperation.UpdateMap({"k": "v"})})
    after = table.snapshot()
    assert (after.version, after.fields[0].arrow.metadata[b"k"]) == (base.version + 1, b"v")
    assert after.incarnation == handle.incarnation != ""


def test_what_is_known_of_a_dropped_table_s_versions_is_forgotten_with_it(table):
    handle = TableHandle(table.uri)
    version = handle.latest().version
    assert len(handle.past(version).fragments) == 4
    shutil.rmtree(table.uri)
    make_table(table.uri, fragments=2)
    assert handle.latest().version == version
    assert len(handle.past(version).fragments) == 2


def test_incarnation_is_kept_when_further_columns_come(table):
    first = table.snapshot().incarnation
    add_columns(table.uri, ["d"])
    assert table.snapshot().incarnation == first


def test_same_columns_again_change_nothing(table):
    handle = TableHandle(table.uri)
    base = handle.latest()
    schema = pa.schema([new_field(base, "d"), new_field(base, "e")])
    version = column_definitions.add_null_columns(handle, base, schema)
    again = TableHandle(table.uri)
    assert column_definitions.add_null_columns(again, again.latest(), schema) == version
    assert table.open().version == version


def test_all_columns_are_added_or_none(table):
    handle = TableHandle(table.uri)
    base = handle.latest()
    with pytest.raises(FailedPrecondition) as caught:
        column_definitions.add_null_columns(handle, base, pa.schema([new_field(base, "d"), new_field(base, "c")]))
    assert caught.value.reason == "COLUMN_EXISTS"
    assert "c" in caught.value.message
    assert table.open().version == base.version


@pytest.mark.parametrize(
    "field",
    [
        pa.field("a.b", pa.int64()),
        pa.field("", pa.int64()),
        pa.field("_rowid", pa.int64()),
        pa.field("_rowaddr", pa.int64()),
        pa.field("not_null", pa.int64(), nullable=False),
        pa.field("view", pa.list_view(pa.int64())),
    ],
    ids=str,
)
def test_columns_that_lance_cannot_hold_are_refused(table, field):
    """Lance itself takes `_rowid` and an empty name, and cannot delete from or compact the table afterwards."""
    handle = TableHandle(table.uri)
    base = handle.latest()
    with pytest.raises(InvalidArgument) as caught:
        column_definitions.add_null_columns(handle, base, pa.schema([field]))
    assert caught.value.reason == "BAD_COLUMN"
    assert table.open().version == base.version


def test_column_named_twice_is_refused(table):
    handle = TableHandle(table.uri)
    base = handle.latest()
    with pytest.raises(InvalidArgument):
        column_definitions.add_null_columns(handle, base, pa.schema([new_field(base, "d"), new_field(base, "d")]))


def test_two_first_additions_at_once_agree_on_one_incarnation(tmp_path):
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"x": [1]}), uri)
    first, second = TableHandle(uri), TableHandle(uri)
    bases = first.latest(), second.latest()
    column_definitions.add_null_columns(first, bases[0], pa.schema([new_field(bases[0], "a")]))
    incarnation = first.latest().incarnation
    schema = pa.schema([new_field(bases[1], "b")])
    with pytest.raises(CommitConflict):
        column_definitions.add_null_columns(second, bases[1], schema)
    column_definitions.add_null_columns(second, second.latest(), schema)
    assert second.latest().incarnation == incarnation
    assert lance.dataset(uri).schema.names == ["x", "a", "b"]


# -------------------------------------------------------------------- what Lance's failures mean


def test_conflict_says_that_nothing_was_committed(table):
    planner = Planner(table)
    handle = TableHandle(table.uri)
    base = handle.latest([0])
    submit(Planner(table, scale=2).request(0))
    with pytest.raises(CommitConflict):
        handle.replace_files(base, [prepared(planner, 0)], {})
    assert table.fragment_values(0) == [2 * x for x in range(10)]


def test_fragment_that_is_gone_is_a_conflict_too(table):
    """With the latest version as base Lance raises a plain OSError."""
    planner = Planner(table)
    file = prepared(planner, 1)
    table.open().delete("id >= 10 and id < 20")
    handle = TableHandle(table.uri)
    with pytest.raises(CommitConflict):
        handle.replace_files(handle.latest(), [file], {})


def test_anything_else_is_unclear(table, monkeypatch):
    planner = Planner(table)
    handle = TableHandle(table.uri)
    base = handle.latest([0])
    file = prepared(planner, 0)

    class Panic(BaseException):
        """No Exception, and none of Lance's panics."""

    for error in (OSError("connection reset"), RuntimeError("?"), Panic("unwrap on None")):

        def fail(*_args, error=error, **_kwargs):
            raise error

        monkeypatch.setattr(lance.LanceDataset, "commit", fail)
        with pytest.raises(CommitUnclear):
            handle.replace_files(base, [file], {})


# ------------------------------------------------------------------------------------- history


def test_commit_tells_in_the_history_what_it_was_for(table):
    planner = Planner(table)
    result = submit(planner.request(0, 1, request_id="r 'é\"", job_id="j1"))[0]
    assert reasons(result) == ["committed", "committed"]
    record = transactions.find_commit(table.uri, "r 'é\"")
    assert (record.version, record.request_ids, record.job_ids) == (result.version, ("r 'é\"",), ("j1",))
    assert record.operation == "DataReplacement"
    assert record.files == {0: [table.files(0)[0]], 1: [table.files(1)[0]]}
    raw = table.open().read_transaction(result.version).transaction_properties
    assert json.loads(raw["leman.request_ids"]) == ["r 'é\""]
    assert transactions.find_commit(table.uri, "unknown") is None


def test_history_ends_where_old_versions_were_cleaned(table):
    submit(Planner(table).request(0, request_id="cleaned"))
    submit(Planner(table).request(1, request_id="kept"))
    table.open().cleanup_old_versions(older_than=timedelta(0))
    assert transactions.find_commit(table.uri, "cleaned") is None
    assert transactions.find_commit(table.uri, "kept").files.keys() == {1}
    records, go_on = transactions.list_commits(table.uri, 0, 10)
    assert ([r.request_ids for r in records], go_on) == ([("kept",)], 0)


def test_listing_goes_on_where_it_stopped(table):
    for fragment_id in range(4):
        submit(Planner(table).request(fragment_id, request_id=f"r{fragment_id}"))
        table.open().update_config({"k": str(fragment_id)})
    pages, before = [], 0
    while True:
        records, before = transactions.list_commits(table.uri, before, 2)
        pages.append([r.request_ids[0] for r in records])
        if not before:
            break
    assert pages[:2] == [["r3", "r2"], ["r1", "r0"]]
    assert not any(pages[2:])


def test_one_listing_looks_at_a_bounded_number_of_versions(table, monkeypatch):
    submit(Planner(table).request(0, request_id="deep"))
    for number in range(6):
        table.open().update_config({"k": str(number)})
    monkeypatch.setattr(transactions, "SCAN_LIMIT", 4)
    records, go_on = transactions.list_commits(table.uri, 0, 10)
    assert records == []
    assert go_on > 0
    assert [r.request_ids for r in transactions.list_commits(table.uri, go_on, 10)[0]] == [("deep",)]


@pytest.mark.parametrize("stored", ["no json", "{}", "[1, 2]", "null"])
def test_external_properties_are_no_commit_of_ours(table, stored):
    planner = Planner(table)
    handle = TableHandle(table.uri)
    handle.replace_files(handle.latest([0]), [prepared(planner, 0)], {"leman.request_ids": stored})
    assert transactions.list_commits(table.uri, 0, 10)[0] == []


# ------------------------------------------------------------------- what committed files hold is noted


def test_what_was_committed_is_known_after_the_history_is_cleaned(table):
    planner = Planner(table)
    request = planner.request(0, 1)
    submit(request)
    table.open().cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)
    known = table_files.read_notes(table.uri).files
    for replacement in request.replacements:
        staged = replacement.staged
        assert known[staged.file] == Committed(staged.size_bytes, staged.digest)


def test_a_file_that_is_refused_is_not_noted_and_a_missing_table_gets_no_folder(table, tmp_path):
    planner = Planner(table)
    request = planner.request(0)
    staged = replace(request.replacements[0].staged, digest="0" * 32)
    assert flatten(submit(with_file(request, staged))) == ["FILE_DAMAGED"]
    assert not table_files.read_notes(table.uri).files
    with pytest.raises(NotFound):
        submit(replace(request, uri=str(tmp_path / "none.lance")))
    assert not (tmp_path / "none.lance").exists()
