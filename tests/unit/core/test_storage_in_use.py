"""Anyone who cannot look says so: what is there may be whole."""

from __future__ import annotations

import lance
import pyarrow as pa
import pytest

from leman._format.stored_functions import UdfDefinition, UdfKind
from leman_coordinator.lance_io.table_files import data_folder, refresh_folder, unfinished_elsewhere
from leman_coordinator.verification.database_verification import verify
from leman_coordinator.verification.verification_report import Flaw
from leman_core.model.service_errors import FailedPrecondition, Unavailable
from leman_core.storage import append_log, view_side_files
from leman_core.storage.lance_tables import LanceTables
from leman_core.storage.udf_registry import UdfRegistry
from leman_executor.history.failed_row_pages import FailedRowPages
from leman_executor.history.job_history import JobHistory
from tests.disks import without_descriptors, without_rights

UDF = UdfDefinition("f", "1", UdfKind.SCALAR, ("x",), pa.int64(), entrypoint="m:f")

ASKED = {
    "function": lambda db: UdfRegistry(db).get("f", "1"),
    "functions": lambda db: UdfRegistry(db).list(),
    "names of functions": lambda db: UdfRegistry(db).names(),
    "to register": lambda db: UdfRegistry(db).put(UDF),
    "data files": lambda db: data_folder(f"{db}/t.lance"),
    "data files by name": lambda db: LanceTables().existing_data_files(f"{db}/t.lance", ["a"]),
    "evictions": lambda db: refresh_folder(f"{db}/t.lance"),
    "half-written files": lambda db: unfinished_elsewhere(f"{db}/t.lance"),
    "record of a source": lambda db: view_side_files.side_files(f"{db}/t.lance").read("source-1.arrow"),
    "failed rows": lambda db: FailedRowPages(db).page("job", "", None, 10),
    "what was set aside": lambda db: append_log.damage_notes(f"{db}/_leman/jobs.lance"),
    "database": lambda db: list(verify(db, None)),
}


@pytest.fixture
def database(tmp_path):
    """A database that is root's alone."""
    folder = tmp_path / "lake"
    uri = str(folder / "t.lance")
    lance.write_dataset(pa.table({"x": [1]}), uri)
    (folder / "t.lance" / "_refresh").mkdir()
    (folder / "t.lance" / "_refresh" / "source-1.arrow").write_bytes(b"1")
    UdfRegistry(str(folder)).put(UDF)
    JobHistory(str(folder)).prepare()
    folder.chmod(0o700)
    return str(folder)


@pytest.mark.parametrize("ask", ASKED.values(), ids=ASKED)
def test_without_rights(database, ask):
    with without_rights(), pytest.raises(FailedPrecondition) as caught:
        ask(database)
    assert caught.value.reason == "STORAGE_DENIED"
    ask(database)


@pytest.mark.parametrize("name", ["function", "functions", "record of a source", "failed rows"])
def test_without_descriptors(database, name):
    with without_descriptors(), pytest.raises(Unavailable) as caught:
        ASKED[name](database)
    assert caught.value.reason == "STORE_UNAVAILABLE"


def test_a_verification_goes_on_where_a_folder_cannot_be_looked_into(database, tmp_path):
    """It names the folder, and looks at all others."""
    uri = str(tmp_path / "lake" / "u.lance")
    lance.write_dataset(pa.table({"x": [1]}), uri)
    (tmp_path / "lake" / "t.lance" / "_checkpoints").write_bytes(b"no folder")
    found = [finding for report in verify(database, None) for finding in report.counts.findings]
    assert [(f.flaw, f.path) for f in found] == [
        (Flaw.UNREADABLE, "t.lance"),
        (Flaw.DAMAGED, "t.lance/_refresh/source-1.arrow"),
    ]
    assert "_checkpoints" in found[0].message
