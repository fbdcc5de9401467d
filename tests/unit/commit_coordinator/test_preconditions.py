"""Preconditions on hand-made snapshots: what each refuses, and what must pass."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from unittest import mock

import lance
import numpy as np
import pyarrow as pa
import pytest

from leman._format import column_bindings
from leman._format.column_bindings import ColumnBinding, ColumnInput
from leman_coordinator.commits import group_commit, preconditions, view_changes
from leman_coordinator.commits.commit_queue import CommitQueue
from leman_coordinator.commits.commit_requests import ReplaceRequest, Status
from leman_coordinator.commits.preconditions import Base, Item
from leman_coordinator.lance_io import column_definitions, row_commits, view_commits
from leman_coordinator.lance_io.row_staging import check_takes_rows
from leman_coordinator.lance_io.table_files import InstallableFile
from leman_coordinator.lance_io.table_handle import CommitConflict, CommitUnclear, update_of
from leman_coordinator.tables import drop_and_rename
from leman_core.model import keys
from leman_core.model.plan import FragmentReplacement, OutputField, StagedFile
from leman_core.model.service_errors import Aborted, FailedPrecondition, InvalidArgument, Unavailable
from leman_core.model.table import DataFile, Fragment, TableField, TableSnapshot
from leman_core.storage.lance_tables import LanceTables

FINGERPRINT = keys.fingerprint("f", "v1", "col-1", [(1, "data.lance")])
OTHER = keys.fingerprint("f", "v2", "col-1", [(1, "data.lance")])
OURS = keys.column_file_name(FINGERPRINT, "a", partial=False)
OURS_PARTIAL = keys.column_file_name(FINGERPRINT, "a", partial=True)
EQUAL = keys.column_file_name(FINGERPRINT, "b", partial=False)
EQUAL_PARTIAL = keys.column_file_name(FINGERPRINT, "b", partial=True)
NEWER = keys.column_file_name(OTHER, "c", partial=False)


INT64 = pa.int64()


def column(name="c", ids=(2,), type_=INT64, column_id="col-1", inputs=(("x", 1),)):
    bound = ColumnBinding(column_id, "f", "v1", tuple(ColumnInput(*pair) for pair in inputs))
    return TableField(column_bindings.bind(pa.field(name, type_), bound), ids)


def table(*files: DataFile, fields=(), rows=10, incarnation="inc"):
    own = fields or (column(),)
    data = (TableField(pa.field("id", pa.int64()), (0,)), TableField(pa.field("x", pa.int64()), (1,)))
    fragment = Fragment(7, rows, 0, (DataFile("data.lance", (0, 1)), *files))
    return TableSnapshot(
        uri="/t.lance", version=5, incarnation=incarnation, fields=(*data, *own), fragments=(fragment,)
    )


def item(file=OURS, rows=10, inputs=("data.lance",), replaces="", fragment_id=7, output=None, input_ids=()):
    staged = StagedFile(file=file, size_bytes=100, digest="d", physical_rows=rows, rows_computed=rows, rows_failed=0)
    request = ReplaceRequest(
        uri="/t.lance",
        incarnation="inc",
        request_id="r",
        job_id="j",
        read_version=4,
        output=OutputField(output or column(), "col-1"),
        replacements=(
            FragmentReplacement(fragment_id=fragment_id, staged=staged, input_files=inputs, replaces=replaces),
        ),
        input_field_ids=input_ids,
    )
    return Item(request, request.replacements[0])


def decide(snapshot, wanted):
    outcome = preconditions.decide(Base(snapshot), wanted)
    return outcome and (outcome.reason or outcome.status.value)


def test_unchanged_table_may_be_committed_to():
    assert preconditions.refuse_request(Base(table()), item()) is None
    assert decide(table(), item()) is None


@pytest.mark.parametrize(
    ("snapshot", "error", "reason"),
    [
        (table(incarnation="other"), Aborted, "TABLE_REPLACED"),
        (table(incarnation=""), Aborted, "TABLE_REPLACED"),
        (table(fields=(column("renamed"),)), FailedPrecondition, "COLUMN_NOT_DEFINED"),
        (table(fields=(column(column_id="col-2"),)), FailedPrecondition, "COLUMN_NOT_DEFINED"),
        (table(fields=(column(ids=(3,)),)), FailedPrecondition, "COLUMN_NOT_DEFINED"),
        (table(fields=(column(type_=pa.float32()),)), FailedPrecondition, "TYPE_MISMATCH"),
    ],
)
def test_another_table_or_column_fails_the_whole_request(snapshot, error, reason):
    refusal = preconditions.refuse_request(Base(snapshot), item())
    assert type(refusal) is error
    assert refusal.reason == reason


@pytest.mark.parametrize(
    ("snapshot", "wanted", "expected"),
    [
        pytest.param(table(), item(fragment_id=8), "FRAGMENT_GONE", id="gone"),
        pytest.param(table(rows=11), item(), "ROW_COUNT_MISMATCH", id="rows"),
        pytest.param(table(), item(inputs=("old.lance",)), "INPUT_CHANGED", id="input-rewritten"),
        pytest.param(table(), item(inputs=()), "INPUT_CHANGED", id="input-filled"),
        pytest.param(table(DataFile(NEWER, (2,))), item(), "FRAGMENT_CHANGED", id="target-written"),
        pytest.param(table(), item(replaces=NEWER), "FRAGMENT_CHANGED", id="target-gone"),
        pytest.param(table(DataFile(NEWER, (2,))), item(replaces=NEWER), None, id="target-as-planned"),
        pytest.param(table(DataFile(OURS, (2,))), item(), "committed", id="ours"),
        pytest.param(table(DataFile(OURS, (2,))), item(inputs=("old",)), "committed", id="ours-then-input"),
        pytest.param(table(DataFile(EQUAL, (2,))), item(), "already_current", id="equal"),
        pytest.param(table(DataFile(EQUAL, (2,))), item(OURS_PARTIAL), "already_current", id="partial-after-complete"),
        pytest.param(table(DataFile(EQUAL_PARTIAL, (2,))), item(), "FRAGMENT_CHANGED", id="partial-came-between"),
        pytest.param(table(DataFile(EQUAL_PARTIAL, (2,))), item(replaces=EQUAL_PARTIAL), None, id="partial-extended"),
        pytest.param(table(DataFile(EQUAL, (2,))), item(inputs=("old",)), "INPUT_CHANGED", id="equal-but-both-stale"),
        pytest.param(table(DataFile("external.lance", (2,))), item(), "FRAGMENT_CHANGED", id="external-values"),
    ],
)
def test_decisions_about_one_fragment(snapshot, wanted, expected):
    assert decide(snapshot, wanted) == expected


def of_then(pairs, version=3, **changes):
    """An item whose inputs were read from a version, of a fragment in which `data.lance` is `old.lance`."""
    file = keys.column_file_name(keys.fingerprint("f", "v1", "col-1", pairs), "a", partial=True)
    wanted = item(file, **{"inputs": ("old.lance",), "input_ids": (1,), **changes})
    request = replace(wanted.request, inputs_version=version)
    return Item(request, request.replacements[0])


THEN = replace(table(), version=3, stable_row_ids=True)
THEN = replace(THEN, fragments=(Fragment(7, 10, 0, (DataFile("id.lance", (0,)), DataFile("old.lance", (1,)))),))
NOW = replace(table(), stable_row_ids=True)
NOW = replace(NOW, fragments=(Fragment(7, 10, 0, (DataFile("id.lance", (0,)), DataFile("data.lance", (1,)))),))
MOVED = replace(NOW, fragments=(Fragment(7, 10, 0, (DataFile("data.lance", (0, 1)),)),))
OLD = [(1, "old.lance")]


@pytest.mark.parametrize(
    ("now", "then", "wanted", "expected"),
    [
        pytest.param(NOW, THEN, of_then(OLD), None, id="of-then"),
        pytest.param(NOW, THEN, item(inputs=("old.lance",)), "INPUT_CHANGED", id="not-asked-for"),
        pytest.param(NOW, THEN, of_then([(1, "data.lance")]), "INPUT_CHANGED", id="says-it-is-current"),
        pytest.param(NOW, THEN, of_then([(1, "older.lance")]), "INPUT_CHANGED", id="of-another-version"),
        pytest.param(NOW, THEN, of_then(OLD, inputs=("data.lance",)), "INPUT_CHANGED", id="other-files"),
        pytest.param(NOW, THEN, of_then(OLD, input_ids=()), "INPUT_CHANGED", id="no-inputs-named"),
        pytest.param(NOW, THEN, of_then(OLD, version=2), "VERSION_GONE", id="version-cleaned"),
        pytest.param(NOW, THEN, of_then(OLD, rows=11), "ROW_COUNT_MISMATCH", id="rows"),
        pytest.param(NOW, THEN, of_then(OLD, replaces=NEWER), "FRAGMENT_CHANGED", id="target"),
        pytest.param(MOVED, THEN, of_then(keys.moved_sources([1], 3), inputs=()), None, id="moved"),
        pytest.param(MOVED, THEN, of_then(keys.moved_sources([1], 2), inputs=()), "INPUT_CHANGED", id="moved-other"),
        pytest.param(MOVED, THEN, of_then([(1, "data.lance")], inputs=()), "INPUT_CHANGED", id="moved-says-current"),
        pytest.param(
            replace(MOVED, stable_row_ids=False),
            THEN,
            of_then(keys.moved_sources([1], 3), inputs=()),
            "FRAGMENT_GONE",
            id="moved-without-stable-ids",
        ),
    ],
)
def test_values_of_an_older_version_are_taken_if_they_say_so(now, then, wanted, expected):
    outcome = preconditions.decide(Base(now, {3: then}), wanted)
    assert (outcome and (outcome.reason or outcome.status.value)) == expected


def test_input_rewritten_in_place_is_seen_although_its_old_file_stays():
    """`update_columns` leaves the old file in the fragment, with the field's id struck out."""
    snapshot = table()
    fragment = snapshot.fragments[0]._replace(files=(DataFile("data.lance", (0, -2)), DataFile("new.lance", (1,))))
    assert decide(replace(snapshot, fragments=(fragment,)), item()) == "INPUT_CHANGED"


def test_another_column_of_the_input_file_may_be_rewritten():
    snapshot = table()
    fragment = snapshot.fragments[0]._replace(files=(DataFile("data.lance", (-2, 1)), DataFile("new.lance", (0,))))
    assert decide(replace(snapshot, fragments=(fragment,)), item()) is None


def test_inputs_of_the_request_go_before_those_of_the_column():
    assert decide(table(), item(input_ids=(0,))) is None
    assert decide(table(), item(input_ids=(0,), inputs=())) == "INPUT_CHANGED"


def test_dropped_input_is_a_changed_input():
    assert decide(table(fields=(column(inputs=(("gone", 9),)),)), item()) == "INPUT_CHANGED"
    assert decide(table(), item(input_ids=(9,), inputs=())) == "INPUT_CHANGED"


def test_function_without_inputs_has_none_to_check():
    no_inputs = column(inputs=())
    assert decide(table(fields=(no_inputs,)), item(inputs=(), output=no_inputs)) is None


def test_files_name_only_the_leaves_of_a_nested_column():
    nested = column(ids=(2, 3), type_=pa.list_(pa.float32()))
    wanted = item(output=nested)
    assert decide(table(DataFile(NEWER, (3,)), fields=(nested,)), wanted) == "FRAGMENT_CHANGED"
    assert decide(table(DataFile(OURS, (3,)), fields=(nested,)), wanted) == "committed"


def test_nested_input_is_found_by_its_leaves():
    struct = TableField(pa.field("s", pa.struct([("a", pa.int32())])), (4, 5))
    bound = column(inputs=(("s", 4),))
    snapshot = table(DataFile("struct.lance", (5,)), fields=(bound, struct))
    assert decide(snapshot, item(inputs=("struct.lance",))) is None
    assert decide(snapshot, item(inputs=())) == "INPUT_CHANGED"


def test_committed_outcome_names_the_version_that_has_the_file():
    outcome = preconditions.decide(Base(table(DataFile(OURS, (2,)))), item())
    assert (outcome.status, outcome.version) == (Status.COMMITTED, 5)


def test_a_file_that_lacks_rows_which_a_restore_brought_back_is_not_installed():
    lacking = InstallableFile("f.lance", mock.Mock(), mock.Mock())
    request, replacement = mock.Mock(), mock.Mock(fragment_id=3)
    candidate = group_commit.Candidate(request, replacement, lacking)
    table = mock.Mock(are_still_deleted=lambda *_: False)
    refused = group_commit._file_rejection(table, candidate)
    assert refused is not None
    assert (refused.reason, "fragment 3" in refused.message) == ("FILE_LACKS_ROWS", True)
    still = mock.Mock(are_still_deleted=lambda *_: True)
    assert group_commit._file_rejection(still, candidate) is None


# what does not fit the table, though no other writer was there


@pytest.mark.parametrize(
    ("evicted", "swapped", "reason", "told"),
    [
        ([5 << 32], [], "FRAGMENT_GONE", "Fragment 5 is not in the view"),
        ([], [(5, 10)], "FRAGMENT_GONE", "Fragment 5 is not in the view"),
        ([3, 10], [], "ROW_COUNT_MISMATCH", "Fragment 0 has no row 10 to be evicted"),
        ([], [(0, 9)], "ROW_COUNT_MISMATCH", "9 rows"),
        ([9], [(0, 10)], "", ""),
    ],
)
def test_a_delta_of_rows_that_the_view_has_not_is_refused(evicted, swapped, reason, told):
    snapshot = SimpleNamespace(fragments=[Fragment(0, 10, 0, ())])
    view = SimpleNamespace(current=lambda _: snapshot)
    files = [SimpleNamespace(fragment_id=f, staged=SimpleNamespace(physical_rows=n, file="v")) for f, n in swapped]
    work = SimpleNamespace(evicted=np.array(evicted, np.int64))
    if not reason:
        view_changes._check_fragments(view, work, SimpleNamespace(swapped=files))
        return
    with pytest.raises(FailedPrecondition, match=told) as refused:
        view_changes._check_fragments(view, work, SimpleNamespace(swapped=files))
    assert refused.value.reason == reason


def test_placeholders_need_the_schema_of_a_view():
    with pytest.raises(InvalidArgument, match="The schema is not that of a view") as refused:
        view_changes._definition(pa.schema({"x": pa.int64()}), "/v.lance")
    assert refused.value.reason == "BAD_SCHEMA"


@pytest.fixture
def dataset(tmp_path):
    return lance.write_dataset(pa.table({"x": range(4)}), tmp_path / "t.lance")


def test_files_of_a_fragment_that_is_gone_are_not_installed(dataset):
    with pytest.raises(Aborted, match="Fragment 7 is not in the table any more") as refused:
        update_of(dataset, [(7, InstallableFile("f.lance", mock.Mock(), mock.Mock()))])
    assert refused.value.reason == "FRAGMENT_GONE"
    with pytest.raises(FailedPrecondition, match="has rows to be evicted and is not there") as refused:
        view_commits._evict(dataset, {}, np.array([7 << 32]))
    assert refused.value.reason == "FRAGMENT_GONE"


@pytest.mark.parametrize("fields", [(), (0, 9)], ids=["none", "others"])
def test_a_file_of_other_columns_is_not_appended(dataset, monkeypatch, fields):
    layout = SimpleNamespace(fields=list(fields))
    monkeypatch.setattr(row_commits, "LanceDataFile", SimpleNamespace(create=lambda *_: layout))
    columns = [TableField(pa.field("x", pa.int64()), (0,))]
    with pytest.raises(FailedPrecondition, match="does not hold the columns of") as refused:
        row_commits.append_files(SimpleNamespace(dataset=dataset), [item().replacement.staged], columns, {})
    assert refused.value.reason == "TYPE_MISMATCH"


def test_rows_of_a_table_in_the_first_file_format_cannot_be_written(tmp_path):
    lance.write_dataset(pa.table({"x": [1]}), tmp_path / "old.lance", data_storage_version="0.1")
    with pytest.raises(FailedPrecondition, match=r"rewrite it with lance\.write_dataset") as refused:
        check_takes_rows(LanceTables().snapshot(str(tmp_path / "old.lance")))
    assert refused.value.reason == "FILE_FORMAT_NOT_SUPPORTED"


# what other writers and the store decide


@pytest.mark.parametrize(
    ("error", "kind", "reason", "told"),
    [
        (CommitConflict("an append"), Aborted, "CONFLICT", "came first: an append. Send the call again"),
        (CommitUnclear("timeout"), Unavailable, "COMMIT_UNKNOWN", "was not renamed: timeout. Send the same call again"),
    ],
)
def test_a_rename_that_may_not_have_been_made_is_sent_again(monkeypatch, error, kind, reason, told):
    def rename(*_: object) -> int:
        raise error

    monkeypatch.setattr(drop_and_rename.table_removal, "rename_table", rename)
    with pytest.raises(kind, match=told) as refused:
        drop_and_rename._renamed("/a.lance", "/b.lance", "r", "body")
    assert refused.value.reason == reason


@pytest.mark.parametrize(
    ("error", "kind", "reason", "told"),
    [
        (CommitConflict("an append"), Aborted, "CONFLICT", "changed the table at every try: an append"),
        (CommitUnclear("timeout"), Unavailable, "COMMIT_UNKNOWN", "It is unknown whether the indexes were updated"),
    ],
)
def test_indexes_that_may_not_be_up_to_date_are_asked_for_again(monkeypatch, error, kind, reason, told):
    def optimize(*_: object) -> None:
        raise error

    monkeypatch.setattr(column_definitions, "optimize_once", optimize)
    monkeypatch.setattr(column_definitions, "_TRIES", 1)
    with pytest.raises(kind, match=told) as refused:
        column_definitions.optimize_indices("/t.lance", (), ())
    assert refused.value.reason == reason


def test_a_change_that_others_overtook_each_time_is_a_conflict():
    answered = []

    async def work():
        raise CommitConflict("an append")

    asyncio.run(CommitQueue._do(None, SimpleNamespace(fail=answered.append), work()))
    (error,) = answered
    assert error.reason == "CONFLICT"
    assert "Other writers changed the table at every try: an append" in error.message
