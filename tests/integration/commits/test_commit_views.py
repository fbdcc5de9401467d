"""Commits to views, through the coordinator's commit queues."""

from __future__ import annotations

import datetime
import os
import time
from dataclasses import replace
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

from leman._format import view_definitions
from leman._format.view_definitions import IS_SET, SOURCE_ROW_ID
from leman_coordinator.commits.commit_queue import Limits
from leman_coordinator.commits.commit_requests import Status, ViewFile
from leman_coordinator.garbage.garbage_collector import GarbageCollector
from leman_coordinator.verification.database_verification import verify
from leman_coordinator.verification.verification_report import Subject
from leman_core.model.service_errors import (
    Aborted,
    AlreadyExists,
    DataLoss,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    Unavailable,
)
from leman_core.storage import transactions
from leman_core.storage import view_data_files as view_files
from leman_core.storage.lance_tables import LanceTables
from leman_core.storage.source_rows import SourceRows, plain_columns
from leman_core.storage.view_data_files import in_view_order
from tests.integration.commits.commit_helpers import between, reasons, submit
from tests.integration.commits.test_commit_queues import fail_after_commits, failing
from tests.integration.commits.view_commit_helpers import DATA, SCHEMA, View, one, values

BLOB = {"lance-encoding:blob": "true"}
ONCE = Limits(version_conflict_max_retries=0)


def test_creation_makes_a_placeholder_for_each_matching_row_in_exact_fragments(view):
    view.make_source(20)
    result = one(view.make_placeholders(7, where="x >= 50"))
    dataset = view.open()
    assert result.version == dataset.version
    assert list(view.fragments().values()) == [7, 7, 1]
    assert view.rows()[SOURCE_ROW_ID] == list(range(5, 20))
    assert view.rows()[IS_SET] == [False] * 15
    assert view.rows()["x"] == view.rows()["s"] == [None] * 15
    assert LanceTables().snapshot(view.uri).incarnation
    assert dataset.has_stable_row_ids


def test_creation_is_one_version_and_then_its_identity(view):
    view.make_source()
    one(view.make_placeholders())
    assert view.open().checkout_version(1).count_rows() == 20
    assert view.open().version == 2


def test_a_shuffled_view_has_the_order_of_its_seed_whatever_the_layout(view):
    view.make_source(40)
    request = view.make_placeholders(9, shuffle=True, seed=7, limit=30, offset=4)
    one(request)
    query = view.definition(shuffle=True, seed=7).query
    assert view.rows()[SOURCE_ROW_ID] == in_view_order(np.arange(4, 34), query).tolist()
    assert view.rows()[SOURCE_ROW_ID] != list(range(4, 34))


def test_a_view_of_nothing_can_be_made_and_grow(view):
    view.make_source()
    one(view.make_placeholders(where="x < 0"))
    assert view.rows()[SOURCE_ROW_ID] == []
    one(view.delta(appended=[view.appended(1, 2)]))
    assert view.rows()["x"] == [10, 20]


def test_creation_sent_again_is_answered_and_another_is_refused(view):
    view.make_source()
    request = view.make_placeholders()
    version = one(request).version
    assert one(request).version == version  # other commit queues: nothing is remembered but in the table
    with pytest.raises(AlreadyExists) as caught:
        one(view.make_placeholders())
    assert caught.value.reason == "TABLE_EXISTS"
    assert view.open().version == version
    assert len(list(_data(view))) == 1  # no placeholders lie about


def test_a_fill_names_at_least_one_fragment(view):
    view.made()
    version = view.open().version
    with pytest.raises(InvalidArgument) as caught:
        one(replace(view.fill(0), fragments=()))
    assert (caught.value.reason, caught.value.field) == ("MISSING_FIELD", "fill_placeholders.fragments")
    assert view.open().version == version


def test_creation_needs_a_source_and_a_view(view):
    view.make_source()
    request = view.make_placeholders()
    with pytest.raises(InvalidArgument):
        one(replace(request, schema=SCHEMA))
    lance.dataset(view.source).delete("true")
    lance.dataset(view.source).cleanup_old_versions(older_than=_nothing(), delete_unverified=True)
    with pytest.raises(NotFound):
        one(request)
    assert "v" not in LanceTables().list_tables(view.database)


def test_creation_after_a_crash_is_completed_by_the_same_request(view, monkeypatch):
    view.make_source()
    request = view.make_placeholders()
    monkeypatch.setattr(lance.LanceDataset, "update_config", _die)
    with pytest.raises(Unavailable, match="died here"):
        submit(request, limits=ONCE)
    monkeypatch.undo()
    assert not LanceTables().snapshot(view.uri).incarnation
    one(request)
    assert LanceTables().snapshot(view.uri).incarnation
    assert view.open().count_rows() == 20


def test_a_view_without_identity_gets_one_and_its_refresh_is_planned_again(view, monkeypatch):
    view.make_source()
    monkeypatch.setattr(lance.LanceDataset, "update_config", _die)
    with pytest.raises(Unavailable, match="died here"):
        submit(view.make_placeholders(), limits=ONCE)
    monkeypatch.undo()
    with pytest.raises(Aborted) as caught:
        one(replace(view.fill(), incarnation="x"))
    assert caught.value.reason == "VIEW_CHANGED"
    assert LanceTables().snapshot(view.uri).incarnation


def test_placeholders_are_made_anew_where_no_row_is_set(view):
    view.made(20)
    lance.dataset(view.source).delete("x < 100")
    again = view.make_placeholders(3, create=False)
    version = one(again).version
    assert view.rows()[SOURCE_ROW_ID] == list(range(10, 20))
    assert list(view.fragments().values()) == [3, 3, 3, 1]
    assert one(again).version == version
    assert view.open().version == version


def test_placeholders_of_which_the_store_lost_the_answer_stay_whatever_the_next_look_finds(view, monkeypatch):
    view.make_source()
    one(view.make_placeholders())
    again = view.make_placeholders(3, create=False)
    failing(monkeypatch, commits=True)
    looks = fail_after_commits(monkeypatch, [FailedPrecondition("ATTEMPT_FENCED", "a later attempt has begun")])
    with pytest.raises(FailedPrecondition, match="a later attempt"):
        one(again)
    assert looks == []
    monkeypatch.undo()
    assert one(again).version == view.open().version
    assert view.rows()[IS_SET] == [False] * 20


def test_placeholders_are_not_made_over_values(view):
    view.made(20)
    stale = view.make_placeholders(create=False)
    one(view.fill(0))
    with pytest.raises(Aborted) as caught:
        one(stale)
    assert caught.value.reason == "VIEW_CHANGED"
    with pytest.raises(Aborted) as caught:
        one(view.make_placeholders(create=False))
    assert caught.value.reason == "VIEW_IS_SET"
    assert view.open().count_rows(IS_SET) == 10


def test_fills_install_values_in_parts(view):
    view.made(20)
    first = one(view.fill(1))
    assert [o.status for o in first.outcomes] == [Status.COMMITTED]
    assert view.rows()["x"] == [None] * 10 + [i * 10 for i in range(10, 20)]
    one(view.fill(0))
    assert view.rows()["x"] == [i * 10 for i in range(20)]
    assert view.rows()[IS_SET] == [True] * 20


def test_a_fill_sent_again_is_done_and_another_comes_too_late(view):
    view.made(20)
    request, rival = view.fill(), view.fill(0)
    version = one(request).version
    assert one(request).version == version
    assert reasons(one(rival)) == ["FRAGMENT_CHANGED"]
    one(view.delta(swapped=[view.swapped(0, 1)]))
    assert reasons(one(request)) == ["committed", "committed"]
    assert view.rows()["x"][:10] == [1] * 10


def test_a_fill_is_refused_fragment_by_fragment(view):
    view.made(25)
    request = view.fill()
    damaged = view.fill(1)
    _flip(f"{view.uri}/data/{damaged.fragments[0].staged.file}")
    short = replace(view.fill(2).fragments[0], fragment_id=1)
    one(view.delta(evicted=list(range(10))))  # fragment 0 goes
    assert reasons(one(damaged)) == ["FILE_DAMAGED"]
    assert reasons(one(replace(request, request_id="short", fragments=(short,)))) == ["ROW_COUNT_MISMATCH"]
    assert reasons(one(request)) == ["FRAGMENT_GONE", "committed", "committed"]
    assert view.rows()["x"] == [i * 10 for i in range(10, 25)]


def test_a_fill_must_hold_all_data_columns(view):
    view.made(20)
    lacking = view.fill(0, fragments=(replace(view.fill(0).fragments[0], staged=_some(view)),))
    assert reasons(one(lacking)) == ["TYPE_MISMATCH"]
    assert view.rows()[IS_SET] == [False] * 20


def test_a_compacted_view_is_filled_where_rows_lack_values(view):
    view.made(20)
    one(view.fill(0))
    view.open().optimize.compact_files()
    (fragment,) = view.fragments()
    assert reasons(one(view.fill(fragment))) == ["committed"]
    assert view.rows()["x"] == [i * 10 for i in range(20)]
    view.open().optimize.compact_files()
    view.open().delete("x = 0")
    view.open().optimize.compact_files()
    (fragment,) = view.fragments()
    assert reasons(one(view.fill(fragment))) == ["FRAGMENT_CHANGED"]


def test_a_delta_is_one_version_with_everything(view):
    view.filled(30)
    before = view.open().version
    request = view.delta(
        appended=[view.appended(100, 101), view.appended(102)],
        swapped=[view.swapped(1, -1, patch=[3])],
        evicted=[0, 2, *((2 << 32) + i for i in range(10))],
    )
    assert one(request).version == before + 1 == view.open().version
    rows = view.rows()
    assert rows[SOURCE_ROW_ID] == [1, *range(3, 20), 100, 101, 102]
    assert rows["x"] == [10, *(i * 10 for i in range(3, 10)), *[-1] * 10, 1000, 1010, 1020]
    assert rows["s"] == [f"s{i}" for i in rows[SOURCE_ROW_ID]]
    assert view.open().schema.metadata[b"leman::view::base_table_version"] == b"7"
    assert b"leman::view::query" in view.open().schema.metadata
    assert LanceTables().snapshot(view.uri).incarnation == request.incarnation
    view.open().validate()
    view.open().optimize.compact_files()
    assert view.rows() == rows


def test_every_file_of_a_view_can_be_verified(view):
    view.filled(30)
    told = view_definitions.updates(view.definition())
    one(view.delta(appended=[view.appended(100, 101)], swapped=[view.swapped(1, -1)], evicted=[0], metadata=told))
    counts, findings = verified(view.database)
    assert findings == []
    installed = {file.path for f in LanceTables().snapshot(view.uri).fragments for file in f.files}
    assert counts[Subject.COLUMN_FILE].unverifiable == 0
    assert counts[Subject.COLUMN_FILE].looked >= len(installed)
    assert counts[Subject.VIEW].looked == 1
    damaged = Path(view.uri, "data", min(installed))
    damaged.write_bytes(damaged.read_bytes().replace(b"LANC", b"LANG"))
    (finding,) = verified(view.database)[1]
    assert (finding.subject, finding.path) == (Subject.COLUMN_FILE, f"v.lance/data/{damaged.name}")


def verified(database):
    counts, findings = {}, []
    for report in verify(database, None):
        counts |= report.counts.counts
        findings += report.counts.findings
    return counts, findings


def test_a_delta_can_replace_everything(view):
    view.filled(20)
    one(view.delta(appended=[view.appended(5, 6)], replace_all=True))
    assert view.rows()[SOURCE_ROW_ID] == [5, 6]
    assert min(view.fragments()) > 1
    one(view.delta(replace_all=True))
    assert view.rows()[SOURCE_ROW_ID] == []
    assert view.open().schema.names == SCHEMA.names


def test_a_delta_sent_again_is_answered_also_much_later(view):
    view.filled(20)
    request = view.delta(appended=[view.appended(100)], evicted=[3])
    version = one(request).version
    assert one(request).version == version
    later = one(view.delta(appended=[view.appended(101)])).version
    assert one(request).version == version
    assert later == view.open().version
    assert view.rows()[SOURCE_ROW_ID].count(100) == 1


def test_a_delta_is_refused_as_a_whole_when_the_view_moved_on(view):
    view.filled(20)
    request = view.delta(appended=[view.appended(100)], evicted=[3])
    view.open().optimize.compact_files()
    before = view.rows()
    with pytest.raises(Aborted) as caught:
        one(request)
    assert caught.value.reason == "VIEW_CHANGED"
    assert view.rows() == before


def test_a_compaction_between_look_and_commit_refuses_the_delta_and_loses_nothing(view, monkeypatch):
    view.filled(20)
    request = view.delta(appended=[view.appended(100)], evicted=[3])
    between(monkeypatch, view.open().optimize.compact_files)
    with pytest.raises(Aborted) as caught:
        one(request)
    assert caught.value.reason == "VIEW_CHANGED"
    assert view.rows()[SOURCE_ROW_ID] == list(range(20))


def test_of_two_deltas_at_once_one_is_planned_again(view):
    view.filled(20)
    requests = [view.delta(appended=[view.appended(100 + i)]) for i in range(2)]
    one(requests[0])
    with pytest.raises(Aborted):
        submit(requests[1])
    assert view.rows()[SOURCE_ROW_ID][20:] == [100]


def test_a_delta_into_a_view_that_was_made_anew_is_refused(view):
    view.filled(20)
    request = view.delta(appended=[view.appended(100)])
    with pytest.raises(Aborted) as caught:
        one(replace(request, incarnation="another"))
    assert caught.value.reason == "TABLE_REPLACED"


@pytest.mark.parametrize("damage", ["file", "evictions", "missing", "rows", "offset", "fragment"])
def test_a_delta_with_something_wrong_changes_nothing(view, damage):
    view.filled(20)
    request = view.delta(appended=[view.appended(100)], swapped=[view.swapped(0, 1)], evicted=[3])
    before = view.open().version
    if damage == "file":
        _flip(f"{view.uri}/data/{request.swapped[0].staged.file}")
    elif damage == "evictions":
        _flip(f"{view.uri}/_refresh/{request.evictions_file}")
    elif damage == "missing":
        view_files.remove_staged(view.uri, [request.appended[0].staged.file])
    elif damage == "rows":
        request = replace(request, swapped=(replace(request.appended[0], fragment_id=0),))
    elif damage == "offset":
        request = view.delta(evicted=[10])
    else:
        request = view.delta(evicted=[9 << 32])
    with pytest.raises((DataLoss, NotFound, FailedPrecondition)):
        one(request)
    assert view.open().version == before


def test_history_shows_what_was_done(view):
    view.filled(20)
    one(view.delta(appended=[view.appended(100)], swapped=[view.swapped(0, 1)], evicted=[1 << 32]))
    records, _ = transactions.list_commits(view.uri, 0, 10)
    assert [(r.operation, r.fragments) for r in records] == [
        ("ApplyViewDelta", 2),
        ("DataReplacement", 2),
        ("CreatePlaceholders", 2),
    ]
    assert records[0].job_ids == ("job",)


def test_a_view_that_has_no_version_yet_is_not_there(view):
    view.make_source()
    Path(view.uri, "data").mkdir(parents=True)
    Path(view.uri, "data", f"placeholders-{'a' * 32}.lance").write_text("left by one that died")
    assert LanceTables().list_tables(view.database) == ["t"]
    one(view.make_placeholders())
    assert LanceTables().list_tables(view.database) == ["t", "v"]
    assert view.open().count_rows() == 20


def test_indexes_of_a_view_follow_its_deltas(view):
    view.filled(30)
    view.open().create_scalar_index("x", "BTREE")
    request = view.delta(appended=[view.appended(100)], swapped=[view.swapped(1, -1, patch=[3])], evicted=[4])
    one(request)
    assert _where(view, "x = 130") == _where(view, "x = 40") == []
    assert _where(view, "x = -1") == list(range(10, 20))
    assert _where(view, "x = 1000") == [100]
    assert _where(view, "x = 30") == [3]


def test_views_keep_blobs_of_both_kinds_as_blobs(tmp_path):
    kinds = [pa.field("old", pa.large_binary(), metadata=BLOB), lance.blob_field("new")]
    blobs = [pa.array([b"a", None], pa.large_binary()), lance.blob_array([None, b"b"])]
    lance.write_dataset(pa.table(blobs, schema=pa.schema(kinds)), f"{tmp_path}/t.lance", enable_stable_row_ids=True)
    view = View(str(tmp_path))
    request = view.make_placeholders()
    fields = [SCHEMA.field(SOURCE_ROW_ID), SCHEMA.field(IS_SET), *kinds]
    one(replace(request, schema=pa.schema(fields, metadata=request.schema.metadata)))
    schema = pa.schema([field for field in view.open().schema if field.name != SOURCE_ROW_ID])
    batch = SourceRows(view.source, 1).take(np.arange(2), plain_columns(["old", "new"]))
    data = pa.record_batch([pa.array([True, True]), *batch.columns], names=schema.names)
    file = view_files.stage_columns(view.uri, schema, [data], fragment_id=0)
    one(view.fill(fragments=(ViewFile(0, file),)))
    assert [value for _, value in view.open().read_blobs("old", indices=[0, 1])] == [b"a", None]
    assert [value for _, value in view.open().read_blobs("new", indices=[0, 1])] == [None, b"b"]


def test_garbage_of_refreshes_goes_when_it_is_old_and_nothing_else_does(view):
    view.filled(20)
    staged, request = view.appended(100), view.delta(evicted=[3], swapped=[view.swapped(0, 1)])
    one(view.delta(swapped=[view.swapped(1, 5)]))
    rows = view.rows()
    assert _collect(view, 86400.0) == []
    names = {staged.staged.file, request.swapped[0].staged.file, request.evictions_file}
    assert {file.name for file in _collect(view, 0.0)} == names - {request.evictions_file}
    evictions = Path(view.uri, "_refresh", request.evictions_file)
    os.utime(evictions, (time.time() - 600,) * 2)  # until then someone may be about to name it
    assert [file.name for file in _collect(view, 0.0)] == [request.evictions_file]
    assert view.rows() == rows
    for version in view.open().versions():
        view.open().checkout_version(version["version"]).to_table()


def _where(view, condition):
    return view.open().to_table(columns=[SOURCE_ROW_ID], filter=condition)[SOURCE_ROW_ID].to_pylist()


def _collect(view, age):
    collector = GarbageCollector(view.uri, age)
    return collector.sweep(collector.look()[1])


def _data(view):
    return Path(view.uri, "data").iterdir()


def _some(view):
    schema = pa.schema([DATA.field(IS_SET), DATA.field("x")])
    return view_files.stage_columns(view.uri, schema, [values(range(10), schema)], fragment_id=0)


def _flip(path):
    with Path(path).open("r+b") as file:
        file.seek(20)
        byte = file.read(1)
        file.seek(20)
        file.write(bytes([byte[0] ^ 1]))


def _die(*_args, **_kwargs):
    raise RuntimeError("died here")


def _nothing():
    return datetime.timedelta(0)
