"""Commits that are refused for good, by a full or read-only disk or by Lance: said at once, and possible afterwards."""

from __future__ import annotations

import lance
import pyarrow as pa
import pytest

from leman_coordinator.commits.commit_queue import Limits
from leman_coordinator.commits.commit_requests import AddColumnsRequest
from leman_coordinator.lance_io.table_handle import CommitConflict, CommitUnclear, commit_outcomes
from leman_core.model.service_errors import FailedPrecondition, LemanError
from tests.disks import small_disk
from tests.integration.commits.commit_helpers import Planner, make_table, new_field, reasons, submit

#: A retry of what was refused would wait so long that the test's deadline passes.
PATIENT = Limits(version_conflict_max_retries=1000)


@pytest.fixture
def disk(tmp_path):
    with small_disk(tmp_path / "disk") as made:
        yield made


@pytest.fixture
def table(disk):
    return make_table(str(disk.root / "t.lance"))


def refused(request):
    with pytest.raises(LemanError) as caught:
        submit(request, limits=PATIENT)
    return caught.value.reason


def test_a_commit_to_a_full_disk_is_refused_and_made_when_there_is_room(table, disk):
    request = Planner(table).request(0, 1)
    version = table.open().version
    disk.fill()
    assert refused(request) == "STORAGE_FULL"
    assert table.open().version == version
    disk.free()
    assert reasons(submit(request)[0]) == ["committed", "committed"]


def test_a_commit_to_a_disk_that_is_read_only(table, disk):
    request = Planner(table).request(0)
    with disk.read_only():
        assert refused(request) == "STORAGE_READ_ONLY"
    assert reasons(submit(request)[0]) == ["committed"]


@pytest.mark.parametrize("folder", ["_versions", "_transactions"])
def test_a_commit_to_a_table_of_which_a_folder_is_read_only(table, disk, folder):
    request = Planner(table).request(0)
    with disk.read_only(disk.root / "t.lance" / folder):
        assert refused(request) == "STORAGE_READ_ONLY"
    assert reasons(submit(request)[0]) == ["committed"]


def test_columns_are_added_once_the_disk_has_room(table, disk):
    base = table.snapshot()
    request = AddColumnsRequest(
        uri=table.uri, request_id="r", schema=pa.schema([new_field(base, "d")]), incarnation=base.incarnation
    )
    disk.fill()
    assert refused(request) == "STORAGE_FULL"
    disk.free()
    submit(request)
    assert "d" in table.open().schema.names


# ----------------------------------------------------------------------------------- Lance itself


def outcome(error):
    try:
        with commit_outcomes("t.lance"):
            raise error
    except BaseException as raised:  # noqa: BLE001 - a panic is no Exception
        return raised


class PanicException(BaseException):
    """As Lance's Rust raises it."""


@pytest.mark.parametrize(
    "error",
    [
        ValueError("Invalid user input: the schema has no such field"),
        NotImplementedError("Not supported: overlays"),
        OSError("Not supported: Cannot add all-null columns to legacy dataset version., /home/l/mod.rs:992:40"),
        OSError("LanceError(Schema): Field 'x' is twice in the schema"),
        PanicException("called `Option::unwrap()` on a `None` value"),
    ],
)
def test_what_lance_would_refuse_again_is_no_reason_to_try_again(error):
    found = outcome(error)
    assert (type(found), found.reason) == (FailedPrecondition, "COMMIT_REFUSED")
    assert "/home" not in found.message


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OSError("connection reset by peer"), CommitUnclear),
        (OSError("LanceError(IO): Generic S3 error: timed out"), CommitUnclear),
        (RuntimeError("?"), CommitUnclear),
        (OSError("Incompatible transaction: …"), CommitConflict),
        (OSError("LanceError(IO): Fragment being replaced not found"), CommitConflict),
    ],
)
def test_what_may_pass_is_tried_again(error, kind):
    assert type(outcome(error)) is kind


@pytest.mark.parametrize("commits", [True, False])
def test_a_panic_is_looked_after_and_not_tried_again(tmp_path, monkeypatch, commits):
    table = make_table(str(tmp_path / "t.lance"))
    request = Planner(table).request(0)
    commit, calls = lance.LanceDataset.commit, []

    def panics(*args, **kwargs):
        calls.append(1)
        if commits:
            commit(*args, **kwargs)
        raise PanicException("index out of bounds")

    monkeypatch.setattr(lance.LanceDataset, "commit", panics)
    if commits:
        assert reasons(submit(request, limits=PATIENT)[0]) == ["committed"]
    else:
        assert refused(request) == "COMMIT_REFUSED"
    assert len(calls) == 1


def test_columns_of_a_table_in_the_first_file_format(tmp_path):
    """A caller that does not ask the planner."""
    uri = str(tmp_path / "old.lance")
    lance.write_dataset(pa.table({"x": [1]}), uri, data_storage_version="0.1")
    request = AddColumnsRequest(uri=uri, request_id="r", schema=pa.schema([pa.field("c", pa.int64())]), incarnation="")
    assert refused(request) == "COMMIT_REFUSED"
