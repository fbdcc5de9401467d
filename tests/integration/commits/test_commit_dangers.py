"""What Lance lets through or answers wrongly, each tried against the coordinator; and, as a control, what would happen
if one of its checks were missing."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance.file import LanceFileWriter

from leman_coordinator.commits import group_commit
from leman_coordinator.commits.commit_queue import Limits
from leman_coordinator.commits.preconditions import (
    FragmentExists,
    SameColumn,
    SameInputs,
    SameRowCount,
    SameTable,
    SameTarget,
)
from leman_core.model.plan import StagedFile
from leman_core.model.service_errors import Aborted, FailedPrecondition, NotFound, Unavailable
from leman_core.storage import column_files
from tests.integration.commits.commit_helpers import (
    ROWS,
    Planner,
    Table,
    add_columns,
    between,
    in_queues,
    make_table,
    reasons,
    submit,
    with_file,
    write_file,
)

RIGHT = [10 * x for x in range(ROWS)]


def one(request) -> str:
    """What became of a request for one fragment."""
    return reasons(submit(request)[0])[0]


def data(table: Table, file: str) -> Path:
    return Path(table.uri, "data", file)


def restage(table: Table, staged: StagedFile) -> StagedFile:
    """The file with size and digest of the bytes it has now, as a writer would announce that wrote it so."""
    size, digest = column_files.digest_of(table.uri, staged.file)
    return replace(staged, size_bytes=size, digest=digest)


# -------------------------------------------------------- danger 1: Lance takes any staged file


def test_file_of_another_type_is_refused(table):
    planner = Planner(table)
    request = planner.request(0)
    name = request.replacements[0].staged.file
    data(table, name).unlink()
    staged = write_file(table.uri, name, pa.field("c", pa.float64()), [0.5] * ROWS)
    assert one(with_file(request, staged)) == "TYPE_MISMATCH"
    assert table.fragment_values(0) == [None] * ROWS


def test_file_of_another_column_is_refused(table):
    request = Planner(table).request(0)
    name = request.replacements[0].staged.file
    data(table, name).unlink()
    staged = write_file(table.uri, name, pa.field("id", pa.int64()), RIGHT)
    assert one(with_file(request, staged)) == "TYPE_MISMATCH"


def test_file_with_a_column_more_is_refused(table):
    """It would replace `id` as well."""
    request = Planner(table).request(0)
    staged = request.replacements[0].staged
    data(table, staged.file).unlink()
    schema = pa.schema([pa.field("c", pa.int64()), pa.field("id", pa.int64())])
    with LanceFileWriter(str(data(table, staged.file)), schema) as writer:
        writer.write_batch(pa.record_batch([RIGHT, RIGHT], schema=schema))
    assert one(with_file(request, restage(table, staged))) == "TYPE_MISMATCH"


@pytest.mark.parametrize("rows", [0, ROWS - 1, ROWS + 1])
def test_file_with_too_few_or_too_many_rows_is_refused(table, rows):
    """Whether the request says so itself or claims that there are enough."""
    request = Planner(table).request(0, values=list(range(rows)))
    assert one(request) == "ROW_COUNT_MISMATCH"
    claim = replace(request.replacements[0].staged, physical_rows=ROWS)
    assert one(with_file(request, claim)) == "ROW_COUNT_MISMATCH"
    assert table.fragment_values(0) == [None] * ROWS


def test_rows_are_counted_with_the_deleted_ones(table):
    table.open().delete("id = 3")
    request = Planner(table).request(0)
    assert request.replacements[0].staged.physical_rows == ROWS
    assert one(request) == "committed"
    assert table.fragment_values(0) == [10 * x for x in range(ROWS) if x != 3]
    live_only = Planner(table, version="v2").request(0, values=list(range(ROWS - 1)))
    assert one(live_only) == "ROW_COUNT_MISMATCH"


def test_truncated_file_is_refused(table):
    request = Planner(table).request(0)
    staged = request.replacements[0].staged
    path = data(table, staged.file)
    path.write_bytes(path.read_bytes()[:-20])
    assert one(request) == "FILE_DAMAGED"


def test_missing_file_is_refused(table):
    request = Planner(table).request(0)
    data(table, request.replacements[0].staged.file).unlink()
    assert one(request) == "FILE_MISSING"


@pytest.mark.parametrize(
    "content", [b"", b"x", b"no lance file " * 40, bytes(4096), b"\xff" * 4096], ids=lambda b: f"{len(b)}-bytes"
)
def test_file_that_is_no_column_file_is_refused(table, content):
    """Also where its digest is what was announced."""
    request = Planner(table).request(0)
    staged = request.replacements[0].staged
    data(table, staged.file).write_bytes(content)
    assert one(with_file(request, restage(table, staged))) == "FILE_DAMAGED"


def test_footer_that_lies_is_refused(table):
    """Bytes cut out of the middle, with a digest to match."""
    request = Planner(table).request(0)
    staged = request.replacements[0].staged
    content = data(table, staged.file).read_bytes()
    data(table, staged.file).write_bytes(content[: len(content) // 3] + content[len(content) // 2 :])
    assert one(with_file(request, restage(table, staged))) == "FILE_DAMAGED"


def test_good_fragments_of_a_request_with_a_bad_one_are_committed(table):
    request = Planner(table).request(0, 1, 2)
    data(table, request.replacements[1].staged.file).unlink()
    assert reasons(submit(request)[0]) == ["committed", "FILE_MISSING", "committed"]
    assert [table.fragment_values(i) for i in (0, 1)] == [RIGHT, [None] * ROWS]


# ---------------------------------------------------------------- danger 2: no data checksums


def test_every_flipped_bit_is_refused(table):
    """Lance reads nearly all of these back as wrong values, without an error."""
    planner = Planner(table)
    requests = [planner.request(0, request_id=f"r{n}") for n in range(24)]
    for number, request in enumerate(requests):
        path = data(table, request.replacements[0].staged.file)
        content = bytearray(path.read_bytes())
        content[len(content) * number // 24] ^= 1 << number % 8
        path.write_bytes(content)
    assert {reasons(result)[0] for result in submit(*requests)} == {"FILE_DAMAGED"}
    assert table.fragment_values(0) == [None] * ROWS


# ----------------------------------------------- danger 3: a stale writer overwrites newer values


def test_stale_writer_does_not_overwrite_newer_values(table):
    stale = Planner(table, scale=1).request(0)
    newer = Planner(table, scale=2, version="v2").request(0)
    assert one(newer) == "committed"
    assert one(stale) == "FRAGMENT_CHANGED"
    assert table.fragment_values(0) == [2 * x for x in range(ROWS)]


def test_values_that_somebody_else_wrote_are_not_overwritten(table):
    request = Planner(table).request(0)
    external = write_file(table.uri, "external.lance", pa.field("c", pa.int64()), [7] * ROWS)
    dataset = table.open()
    group = lance.LanceOperation.DataReplacementGroup(0, lance.fragment.DataFile.create(dataset, external.file))
    lance.LanceDataset.commit(dataset, lance.LanceOperation.DataReplacement([group]), read_version=dataset.version)
    assert one(request) == "FRAGMENT_CHANGED"
    assert table.fragment_values(0) == [7] * ROWS


def test_equal_file_that_is_there_already_is_not_replaced(table):
    first, second = Planner(table).request(0), Planner(table).request(0)
    assert one(first) == "committed"
    version = table.open().version
    assert one(second) == "already_current"
    assert table.files(0) == (first.replacements[0].staged.file,)
    assert table.open().version == version


def test_partial_file_does_not_take_the_place_of_a_complete_one(table):
    assert one(Planner(table).request(0)) == "committed"
    assert one(Planner(table, scale=99).request(0, partial=True)) == "already_current"
    assert table.fragment_values(0) == RIGHT


def test_complete_file_follows_a_partial_one(table):
    assert one(Planner(table).request(0, partial=True, values=[None] * ROWS)) == "committed"
    assert one(Planner(table).request(0)) == "committed"
    assert table.fragment_values(0) == RIGHT


# --------------------------------------------------------------------- danger 4: no read set


def rewrite_x(table: Table, fragment_id: int) -> None:
    """Another value of the input column, in place: the old file stays in the fragment, for `id`."""
    dataset = table.open()
    changed = pa.table({"id": pa.array([fragment_id * ROWS], pa.int64()), "x": pa.array([777], pa.int64())})
    fragment, fields = dataset.get_fragment(fragment_id).update_columns(changed, left_on="id", right_on="id")
    update = lance.LanceOperation.Update(
        removed_fragment_ids=[],
        updated_fragments=[fragment],
        new_fragments=[],
        fields_modified=fields,
        update_mode="rewrite_columns",
    )
    lance.LanceDataset.commit(dataset, update, read_version=dataset.version)


def test_values_of_an_input_that_was_rewritten_in_place_are_refused(table):
    request = Planner(table).request(0, 1)
    rewrite_x(table, 0)
    assert reasons(submit(request)[0]) == ["INPUT_CHANGED", "committed"]
    assert one(Planner(table).request(0)) == "committed"
    assert table.fragment_values(0) == [7770, *RIGHT[1:]]


def test_input_column_that_was_filled_meanwhile_is_a_changed_input(table):
    """A column computed from a computed column that was still NULL."""
    add_columns(table.uri, ["d"], inputs="c")
    early = Planner(table, column="d").request(0)
    assert one(Planner(table).request(0)) == "committed"
    assert one(early) == "INPUT_CHANGED"
    assert one(Planner(table, column="d").request(0)) == "committed"
    assert table.fragment_values(0, "d") == [100 * x for x in range(ROWS)]


def test_input_that_changes_between_look_and_commit_is_noticed(table, monkeypatch):
    """Lance lets both pass; the answer makes the executor plan again at once."""
    request = Planner(table).request(0, 1)
    between(monkeypatch, lambda: rewrite_x(table, 0))
    assert reasons(submit(request)[0]) == ["INPUT_CHANGED", "committed"]
    assert one(Planner(table).request(0)) == "committed"
    assert table.fragment_values(0) == [7770, *RIGHT[1:]]


# ------------------------------------------------------------------------ danger 5: resending


def test_request_sent_again_is_committed_once(table):
    request = Planner(table).request(0, 1)
    first = submit(request)[0]
    version = table.open().version
    assert submit(request)[0].outcomes == first.outcomes  # other commit queues: a coordinator that was restarted
    assert table.open().version == version


@pytest.mark.parametrize("afterwards", ["newer", "compaction", "delete", "rewritten input"])
def test_request_sent_again_after_the_table_moved_on_is_still_committed(table, afterwards):
    """Its answer was lost, and its file is not in the table any more, or not current."""
    request = Planner(table).request(0, 1)
    first = submit(request)[0]
    if afterwards == "newer":
        assert one(Planner(table, scale=3, version="v2").request(0)) == "committed"
    elif afterwards == "compaction":
        table.open().optimize.compact_files()
    elif afterwards == "delete":
        table.open().delete(f"id < {ROWS}")
    else:
        rewrite_x(table, 0)
    values = table.column()
    again = submit(request)[0]
    assert reasons(again) == reasons(first) == ["committed", "committed"]
    assert table.column() == values


def test_another_request_with_an_old_file_is_not_taken_for_committed(table):
    request = Planner(table).request(0)
    assert one(request) == "committed"
    assert one(Planner(table, scale=3, version="v2").request(0)) == "committed"
    assert one(replace(request, request_id="another")) == "FRAGMENT_CHANGED"


# -------------------------------------------------------------- danger 6: cleanup hides conflicts


def test_conflict_is_seen_although_the_versions_between_were_cleaned(table):
    stale = Planner(table).request(0)
    assert one(Planner(table, scale=2, version="v2").request(0)) == "committed"
    table.open().cleanup_old_versions(older_than=timedelta(0))
    assert one(stale) == "FRAGMENT_CHANGED"
    assert table.fragment_values(0) == [2 * x for x in range(ROWS)]


def test_commit_from_a_version_that_was_cleaned_is_right(table):
    request = Planner(table).request(0)
    table.open().update_config({"k": "v"})
    table.open().cleanup_old_versions(older_than=timedelta(0))
    assert one(request) == "committed"
    assert table.fragment_values(0) == RIGHT


# ----------------------------------------------------------- danger 7: field ids are given again


@pytest.mark.parametrize("type_", [pa.int64(), pa.int32()], ids=str)
def test_file_of_a_dropped_column_is_not_installed_in_its_successor(table, type_):
    planner = Planner(table)
    request = planner.request(0)
    table.open().drop_columns(["c"])
    add_columns(table.uri, ["c"], type_)
    assert table.snapshot().column("c").field_ids == planner.output.field.field_ids
    with pytest.raises(FailedPrecondition) as caught:
        submit(request)
    assert caught.value.reason == ("TYPE_MISMATCH" if type_ == pa.int32() else "COLUMN_NOT_DEFINED")
    assert table.column() == [None] * 4 * ROWS


def test_file_of_a_dropped_column_is_not_installed_under_another_name(table):
    request = Planner(table).request(0)
    table.open().drop_columns(["c"])
    add_columns(table.uri, ["other"])
    with pytest.raises(FailedPrecondition) as caught:
        submit(request)
    assert caught.value.reason == "COLUMN_NOT_DEFINED"
    assert "Column c is not defined in this table" in caught.value.message


@pytest.mark.parametrize("exchanged", [False, True])
def test_a_column_that_was_renamed_meanwhile_is_not_said_to_be_dropped(table, exchanged):
    add_columns(table.uri, ["e"])
    request = Planner(table).request(0)
    names = [("c", "was c"), ("e", "c")] if exchanged else [("c", "was c")]
    for old, new in names:
        table.open().alter_columns({"path": old, "name": new})
    with pytest.raises(FailedPrecondition) as caught:
        submit(request)
    assert caught.value.reason == "COLUMN_NOT_DEFINED"
    assert "Column c was renamed to was c" in caught.value.message
    assert ("another column is called c" in caught.value.message) is exchanged


@pytest.mark.parametrize("again", [False, True], ids=["name is free", "name is another column's"])
@pytest.mark.parametrize(
    "value", [7, {"a": 1, "b": [{"c": 2}]}, [[1.5], []]], ids=["number", "struct of lists", "list of lists"]
)
def test_file_that_was_staged_before_a_rename_is_installed(table, value, again):
    type_ = pa.infer_type([value])
    add_columns(table.uri, ["old"], type_)
    before = Planner(table, "old")
    values = [value if i % 2 else None for i in range(ROWS)]
    staged = before.stage(before.fragments[0], values=values)
    table.open().alter_columns({"path": "old", "name": "new"})
    if again:
        add_columns(table.uri, ["old"], pa.string())
    request = with_file(Planner(table, "new").request(0, values=values), staged)
    files = sorted(Path(table.uri, "data").iterdir())
    submit(request)
    assert sorted(Path(table.uri, "data").iterdir()) == files
    assert table.fragment_values(0, "new") == values
    assert staged.file in table.files(0, "new")
    assert not again or table.column("old") == [None] * 4 * ROWS
    table.open().optimize.compact_files(target_rows_per_fragment=4 * ROWS)
    assert table.column("new")[:ROWS] == values


def test_file_of_a_dropped_column_changes_nothing(table):
    request = Planner(table).request(0)
    table.open().drop_columns(["c"])
    version = table.open().version
    with pytest.raises(FailedPrecondition):
        submit(request)
    assert table.open().version == version


# ------------------------------------------------------ danger 8: dropped and created at one path


def test_deleted_table_is_not_found(table):
    request = Planner(table).request(0)
    shutil.rmtree(table.uri)
    with pytest.raises(NotFound) as caught:
        submit(request)
    assert caught.value.reason == "TABLE_NOT_FOUND"
    assert not Path(table.uri, "_versions").exists()


def test_table_that_was_created_again_is_another(table):
    planner = Planner(table)
    request = planner.request(0)
    staged = data(table, request.replacements[0].staged.file).read_bytes()
    shutil.rmtree(table.uri)
    fresh = make_table(table.uri)
    data(fresh, request.replacements[0].staged.file).write_bytes(staged)
    with pytest.raises(Aborted) as caught:
        submit(request)
    assert caught.value.reason == "TABLE_REPLACED"
    assert fresh.column() == [None] * 4 * ROWS


def test_one_request_for_a_table_that_is_gone_does_not_harm_another(table):
    """Both wait in one commit queue: for the old and for the new table at the path."""
    old = Planner(table).request(0)
    shutil.rmtree(table.uri)
    make_table(table.uri)
    new = Planner(table).request(1)

    async def both(queues):
        return [await outcome(queues, request) for request in (old, new)]

    async def outcome(queues, request):
        try:
            return reasons(await queues.submit(request))
        except Aborted as error:
            return error.reason

    assert in_queues(both) == ["TABLE_REPLACED", ["committed"]]


# ------------------------------------------------------- controls: each check is what stops it


def switch_off(monkeypatch, check: type) -> None:
    monkeypatch.setattr(check, "check", lambda *_: None)


def test_control_without_same_table(table, monkeypatch):
    """Column id, fields, row counts and file names are as planned: the incarnation alone tells."""
    planner = Planner(table)
    request = planner.request(0)
    table.open().update_config({"leman.incarnation": "another table"})
    with pytest.raises(Aborted):
        submit(request)
    switch_off(monkeypatch, SameTable)
    assert one(request) == "committed"


def test_control_without_same_column(table, monkeypatch):
    planner = Planner(table)
    request = replace(planner.request(0), input_field_ids=planner.input_ids)
    table.open().drop_columns(["c"])
    add_columns(table.uri, ["c"])
    switch_off(monkeypatch, SameColumn)
    assert one(request) == "committed"
    assert table.fragment_values(0) == RIGHT  # values of the old column, in the new one


def test_control_without_fragment_exists(table, monkeypatch):
    request = Planner(table).request(0)
    table.open().delete(f"id < {ROWS}")
    assert one(request) == "FRAGMENT_GONE"
    switch_off(monkeypatch, FragmentExists)
    limits = Limits(version_conflict_max_retries=1)
    assert reasons(submit(request, limits=limits)[0]) == ["CONFLICT"]  # nothing says: plan again


@pytest.mark.parametrize("rows", [ROWS - 1, ROWS + 1])
def test_control_without_same_row_count(table, monkeypatch, rows):
    request = Planner(table).request(0, values=list(range(rows)))
    switch_off(monkeypatch, SameRowCount)
    assert one(request) == "committed"
    if rows > ROWS:
        assert table.fragment_values(0) == list(range(ROWS))  # silently the first ten
    else:
        with pytest.raises((OSError, ValueError)):
            table.fragment_values(0)


def test_control_without_same_inputs(table, monkeypatch):
    request = Planner(table).request(0)
    rewrite_x(table, 0)
    switch_off(monkeypatch, SameInputs)
    assert one(request) == "committed"
    assert table.fragment_values(0)[0] == 0  # 7770 would be right


def test_control_without_the_look_after_the_commit(table, monkeypatch):
    request = Planner(table).request(0)
    between(monkeypatch, lambda: rewrite_x(table, 0))
    monkeypatch.setattr(group_commit, "_recheck_inputs", lambda *_: None)
    assert one(request) == "committed"
    assert table.fragment_values(0)[0] == 0  # 7770 would be right, and no one was warned


def test_control_without_same_target(table, monkeypatch):
    stale = Planner(table, scale=1).request(0)
    assert one(Planner(table, scale=2, version="v2").request(0)) == "committed"
    switch_off(monkeypatch, SameTarget)
    assert one(stale) == "committed"
    assert table.fragment_values(0) == list(range(ROWS))  # the newer values are lost


def test_control_without_the_check_of_content(table, monkeypatch):
    request = Planner(table).request(0)
    staged = request.replacements[0].staged
    data(table, staged.file).unlink()
    wrong = write_file(table.uri, staged.file, pa.field("c", pa.int64()), RIGHT[::-1])
    assert wrong.digest != staged.digest
    assert one(request) == "FILE_DAMAGED"
    monkeypatch.setattr(column_files, "digest_of", lambda *_: (staged.size_bytes, staged.digest))
    assert one(replace(request, request_id="again")) == "committed"
    assert table.fragment_values(0) == RIGHT[::-1]


def test_control_without_the_history(table, monkeypatch):
    request = Planner(table).request(0)
    assert one(request) == "committed"
    assert one(Planner(table, scale=3, version="v2").request(0)) == "committed"
    monkeypatch.setattr("leman_coordinator.commits.group_commit.HISTORY_LIMIT", 0)
    assert one(request) == "FRAGMENT_CHANGED"


def test_unreadable_store_is_no_rejection(table, monkeypatch):
    """A rejection is for ever; a store that is away is not."""
    request = Planner(table).request(0)

    def away(*_):
        raise PermissionError("denied")

    monkeypatch.setattr(column_files, "filesystem_of", away)
    with pytest.raises(Unavailable) as caught:
        submit(request)
    assert caught.value.reason == "STORE_UNAVAILABLE"
