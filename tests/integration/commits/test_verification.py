"""A database is compared with the digests of what was written; nothing is changed by it."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from leman._format import stored_documents
from leman._format.stored_functions import UdfDefinition, UdfKind
from leman_coordinator.verification import database_verification
from leman_coordinator.verification.database_verification import verify
from leman_coordinator.verification.verification_report import FindingCounts, Flaw, Subject
from leman_core.functions.function_definitions import PYTHON
from leman_core.model import keys
from leman_core.model.job import Job, JobState
from leman_core.model.plan import BackfillSpec
from leman_core.model.row_positions import RowRange
from leman_core.model.service_errors import DataLoss, LemanError, NotFound
from leman_core.storage import append_log
from leman_core.storage.append_log import AppendLog
from leman_core.storage.checkpoint_records import FragmentRecord
from leman_core.storage.checkpoint_store import LanceCheckpointStore, checkpoint_root
from leman_core.storage.database_roots import DatabaseRoots
from leman_core.storage.scan import FragmentReader
from leman_core.storage.udf_registry import UdfRegistry
from leman_executor.history.job_history import _JOBS, JobHistory
from leman_planner.catalog import table_catalog
from tests.integration.commits.commit_helpers import ROWS, Planner, make_table, submit

BUNDLE = b"not unpickled here"
PREFIX = keys.KeyFamily(udf_name="f", udf_version="v1", column="c", uri="t").prefix("", [(1, "a.lance")])


class World:
    """A database with one table of four fragments, two of them filled, and one of everything else that is kept."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.database = str(folder)
        self.table = make_table(f"{folder}/t.lance")
        digest = hashlib.sha256(BUNDLE).hexdigest()
        self.udf = UdfDefinition(
            "f",
            "v1",
            UdfKind.SCALAR,
            ("x",),
            pa.int64(),
            bundle_sha256=digest,
            bundle_python=PYTHON,
            bundle_size=len(BUNDLE),
        )
        registry = UdfRegistry(self.database)
        registry.put(self.udf, BUNDLE)
        registry.put(table_catalog.sql_function_definition("x * 2 + 1", ("x",), pa.int64()))
        self.planner = Planner(self.table)
        submit(self.planner.request(0, 1))
        self.staged = self.planner.replacement(2).staged
        self.store = LanceCheckpointStore(checkpoint_root(self.table.uri))
        values = pa.record_batch({"c": pa.array(range(ROWS), pa.int64())})
        self.store[keys.range_key(PREFIX, 3, RowRange(0, ROWS))] = values
        self.store[keys.record_key(PREFIX, 2)] = self.record().to_batch()
        history = JobHistory(self.database)
        history.prepare()
        history.save(Job("job-1", "r", JobState.DONE, BackfillSpec(self.database, "t", "c"), 1.0, 2.0))

    def record(self) -> FragmentRecord:
        s = self.staged
        return FragmentRecord(
            file=s.file,
            src_data_files=(),
            output_field_ids=(2,),
            column_id="id",
            fingerprint="f" * 32,
            size_bytes=s.size_bytes,
            digest=s.digest,
            physical_rows=ROWS,
            rows_computed=ROWS,
            rows_failed=0,
            replaces="",
        )

    def only(self, pattern: str) -> Path:
        (found,) = self.folder.glob(pattern)
        return found

    def installed(self, fragment_id: int = 0) -> Path:
        (file,) = self.table.files(fragment_id)
        return self.folder / "t.lance" / "data" / file

    def data(self) -> Path:
        (file,) = self.table.files(0, "x")
        return self.folder / "t.lance" / "data" / file

    def checkpoint(self) -> Path:
        return self.only("t.lance/_checkpoints/*_range-*.lance")


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def flip(path: Path, place: int = -1) -> None:
    content = bytearray(path.read_bytes())
    content[place if place >= 0 else len(content) // 2] ^= 4
    path.write_bytes(bytes(content))


def everything(database, after=None) -> FindingCounts:
    total = FindingCounts()
    for report in verify(str(database), after):
        gather(total, report.counts)
    return total


def gather(total: FindingCounts, metrics: FindingCounts) -> None:
    total.findings.extend(metrics.findings)
    for subject, count in metrics.counts.items():
        known = total.counts.setdefault(subject, type(count)())
        known.looked += count.looked
        known.unverifiable += count.unverifiable
        known.flawed += count.flawed
        known.size_bytes += count.size_bytes


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def folders(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_dir())


def test_a_sound_database_has_no_findings_and_is_left_as_it_was(world):
    before = contents(world.folder), folders(world.folder)
    found = everything(world.folder)
    assert found.findings == []
    looked = {subject: (count.looked, count.unverifiable) for subject, count in found.counts.items()}
    assert looked == {
        Subject.FUNCTION: (2, 0),
        Subject.BUNDLE: (1, 0),
        Subject.ERROR_STORE: (1, 1),
        Subject.JOB_HISTORY: (1, 0),
        Subject.TABLE: (1, 1),
        Subject.COLUMN: (1, 0),
        Subject.NOTE: (1, 0),
        Subject.COLUMN_FILE: (2, 0),
        Subject.DATA_FILE: (4, 4),
        Subject.CHECKPOINT: (1, 0),
        Subject.RECORD: (1, 0),
    }
    assert found.counts[Subject.COLUMN_FILE].size_bytes == sum(world.installed(i).stat().st_size for i in (0, 1))
    assert (contents(world.folder), folders(world.folder)) == before


def one(found: FindingCounts):
    (finding,) = found.findings
    return finding


@pytest.mark.parametrize("share", range(8))
def test_a_flipped_bit_of_an_installed_file_is_found_wherever_it_is(world, share):
    path = world.installed()
    flip(path, path.stat().st_size * share // 8)
    finding = one(everything(world.folder))
    assert (finding.subject, finding.flaw) == (Subject.COLUMN_FILE, Flaw.DAMAGED)
    assert (finding.path, finding.table, finding.columns) == (f"t.lance/data/{path.name}", "t", ("c",))
    assert (finding.fragment_id, finding.rows) == (0, ROWS)
    assert "AlterColumns" in finding.message
    assert "computed from it since it was damaged stay as they are" in finding.message


def test_an_installed_file_that_is_gone_is_missing(world):
    world.installed(1).unlink()
    finding = one(everything(world.folder))
    assert (finding.subject, finding.flaw, finding.fragment_id) == (Subject.COLUMN_FILE, Flaw.MISSING, 1)


def test_files_swapped_for_one_another_are_found(world):
    one_, other = world.installed(0), world.installed(1)
    mine, its = one_.read_bytes(), other.read_bytes()
    one_.write_bytes(its)
    other.write_bytes(mine)
    assert [f.fragment_id for f in sorted(everything(world.folder).findings, key=lambda f: f.fragment_id)] == [0, 1]


def test_data_of_others_is_missed_and_its_rows_are_counted(world):
    other = world.folder / "t.lance" / "data" / world.table.files(1, "x")[0]
    lance.file.LanceFileWriter(str(other), pa.schema([("id", pa.int64())])).close()
    world.data().unlink()
    found = {f.fragment_id: (f.subject, f.flaw) for f in everything(world.folder).findings}
    assert found == {0: (Subject.DATA_FILE, Flaw.MISSING), 1: (Subject.DATA_FILE, Flaw.DAMAGED)}


@pytest.mark.parametrize(
    ("pattern", "subject"),
    [
        ("_leman/udfs/sql@*.json", Subject.FUNCTION),
        ("_leman/udfs/*.bundle", Subject.BUNDLE),
        ("t.lance/_committed/*.files", Subject.NOTE),
        ("t.lance/_checkpoints/*_range-*.lance", Subject.CHECKPOINT),
        ("t.lance/_checkpoints/*_file.lance", Subject.RECORD),
    ],
)
def test_what_lies_beside_the_tables_is_compared_too(world, pattern, subject):
    path = world.only(pattern)
    flip(path)
    before = contents(world.folder)
    finding = one(everything(world.folder))
    assert (finding.subject, finding.flaw) == (subject, Flaw.DAMAGED)
    assert finding.path == str(path.relative_to(world.folder))
    assert contents(world.folder) == before


def test_a_checkpoint_that_cannot_be_read_is_not_said_to_be_damaged(world, monkeypatch):
    path, read = world.checkpoint(), LanceCheckpointStore._bytes_of

    def denied(store, name):
        if name == path.name:
            raise PermissionError(13, "Permission denied", name)
        return read(store, name)

    monkeypatch.setattr(LanceCheckpointStore, "_bytes_of", denied)
    finding = one(everything(world.folder))
    assert (finding.subject, finding.flaw) == (Subject.CHECKPOINT, Flaw.UNREADABLE)
    assert finding.path == str(path.relative_to(world.folder))
    assert "denies this to the user" in finding.message


def test_a_damaged_function_is_told_with_the_columns_that_it_computes(world):
    flip(world.only("_leman/udfs/f@v1.json"))
    first, second = everything(world.folder).findings
    assert (first.path, first.flaw, first.columns) == ("_leman/udfs/f@v1.json", Flaw.DAMAGED, ())
    assert (second.table, second.columns, second.flaw, second.rows) == ("t", ("c",), Flaw.DAMAGED, 4 * ROWS)
    assert "Register the function again" in second.message


def test_a_bundle_that_is_gone_is_missed_by_its_function(world):
    world.only("_leman/udfs/*.bundle").unlink()
    finding = one(everything(world.folder))
    assert (finding.subject, finding.flaw) == (Subject.BUNDLE, Flaw.MISSING)
    assert "f@v1" in finding.message


def test_a_staged_file_is_compared_with_its_record(world):
    flip(world.folder / "t.lance" / "data" / world.staged.file)
    assert one(everything(world.folder)).subject is Subject.COLUMN_FILE
    (world.folder / "t.lance" / "data" / world.staged.file).unlink()
    assert everything(world.folder).findings == []  # a record of a file that was collected is not believed


def test_failed_rows_that_were_set_aside_or_removed_are_told(world):
    errors = world.folder / "_leman/errors.lance"
    append_log.set_aside(str(errors), "data/a.lance", "data/a.lance is damaged.")
    finding = one(everything(world.folder))
    assert (finding.subject, finding.flaw) == (Subject.ERROR_STORE, Flaw.DAMAGED)
    assert "data/a.lance is damaged. It was set aside as" in finding.message
    shutil.rmtree(world.folder / "_leman/damaged")
    shutil.rmtree(errors)
    assert everything(world.folder).findings == []
    failed = Job("job-2", "r2", JobState.DONE, BackfillSpec(world.database, "t", "c"), 1.0, 2.0)
    JobHistory(world.database).save(replace(failed, progress=replace(failed.progress, rows_failed=1)))
    assert not errors.exists()
    finding = one(everything(world.folder))
    assert (finding.subject, finding.flaw) == (Subject.ERROR_STORE, Flaw.MISSING)


def test_a_column_whose_function_is_gone_is_told(world):
    world.only("_leman/udfs/f@v1.json").unlink()
    finding = one(everything(world.folder))
    assert (finding.subject, finding.flaw, finding.columns) == (Subject.FUNCTION, Flaw.MISSING, ("c",))


def test_a_column_bound_to_something_else_is_told(world):
    dataset = world.table.open()
    field = world.table.snapshot().column("c")
    update = lance.LanceOperation.UpdateMap({"leman::inputs": '[["id", 0]]'})
    operation = lance.LanceOperation.UpdateConfig(field_metadata_updates={field.field_id: update})
    lance.LanceDataset.commit(dataset, operation, read_version=dataset.version)
    finding = one(everything(world.folder))
    assert (finding.subject, finding.flaw, finding.columns) == (Subject.COLUMN, Flaw.DAMAGED, ("c",))
    assert finding.rows == 4 * ROWS


def test_a_damaged_record_of_a_job_is_told_and_not_believed(world):
    log = AppendLog(f"{world.database}/_leman/jobs.lance", _JOBS)
    (row,) = log.read()
    log.append([{**row, "record": row["record"].replace('"job-1"', '"job-2"')}])
    finding = one(everything(world.folder))
    assert (finding.subject, finding.flaw, finding.rows) == (Subject.JOB_HISTORY, Flaw.DAMAGED, 1)
    assert list(JobHistory(world.database).load()) == ["job-1"]
    assert all(stored_documents.is_whole(str(row["record"])) for row in log.read()), "it was set aside"


def commit_and_lose(world, incarnation: str) -> int:
    """Note in the history what a job committed, remove the manifest of that, and return its version."""
    table = lance.dataset(world.table.uri)
    table.update_config({"leman.incarnation": "one"})
    table.add_columns({"later": "x + 1"})
    job = Job("job-2", "r2", JobState.DONE, BackfillSpec(world.database, "t", "later"), 1.0, 2.0)
    JobHistory(world.database).save(replace(job, table_version=table.version, incarnation=incarnation))
    assert everything(world.folder).findings == []
    min((world.folder / "t.lance" / "_versions").iterdir()).unlink()
    assert lance.dataset(world.table.uri).version == table.version - 1
    return table.version


def test_a_table_below_the_version_that_a_job_committed_is_rolled_back(world):
    committed = commit_and_lose(world, "one")
    found = one(everything(world.folder))
    assert (found.subject, found.flaw, found.path) == (Subject.TABLE, Flaw.MISSING, "t.lance/_versions")
    assert f"at version {committed - 1}, but job job-2 committed version {committed}" in found.message


def test_another_table_of_the_name_is_not_rolled_back(world):
    commit_and_lose(world, "that of a table that was dropped")
    assert everything(world.folder).findings == []


def test_records_of_jobs_from_an_earlier_release_are_not_verifiable_and_no_error(world):
    log = AppendLog(f"{world.database}/_leman/jobs.lance", _JOBS)
    (row,) = log.read()
    unsealed = stored_documents.unseal_text(str(row["record"]))
    log.append([{**row, "record": unsealed}])
    found = everything(world.folder)
    assert found.findings == []
    assert (found.counts[Subject.JOB_HISTORY].looked, found.counts[Subject.JOB_HISTORY].unverifiable) == (1, 1)
    log.append([{**row, "record": unsealed[:-9]}])
    finding = one(everything(world.folder))
    assert (finding.subject, finding.flaw, finding.rows) == (Subject.JOB_HISTORY, Flaw.DAMAGED, 1)


@pytest.mark.parametrize("name", ["jobs", "errors"])
def test_a_history_that_cannot_be_read_is_told(world, name):
    for manifest in (world.folder / "_leman" / f"{name}.lance" / "_versions").iterdir():
        manifest.write_bytes(b"")
    assert one(everything(world.folder)).flaw is Flaw.UNREADABLE


def test_a_history_whose_latest_version_is_another_one_is_told_and_goes_on(world):
    """Lance would read the one and write behind the other: every append conflicted for ever."""
    log = AppendLog(f"{world.database}/_leman/jobs.lance", _JOBS)
    history = JobHistory(world.database)
    (job,) = history.load().values()
    log.append(log.read())
    latest, before = sorted((world.folder / "_leman" / "jobs.lance" / "_versions").iterdir())[:2]
    latest.write_bytes(before.read_bytes())
    finding = one(everything(world.folder))
    assert (finding.subject, finding.flaw) == (Subject.JOB_HISTORY, Flaw.UNREADABLE)
    with pytest.raises(DataLoss, match="another version"):  # anyone who does not repair does not try for ever
        log.append([])
    assert history.save(job) == job
    assert "damaged" in history.warnings()[0]
    assert everything(world.folder).findings == []


def test_a_table_that_cannot_be_read_does_not_hide_the_others(world):
    make_table(f"{world.folder}/u.lance", fragments=1)
    for manifest in (world.folder / "t.lance" / "_versions").iterdir():
        manifest.write_bytes(b"")
    found = everything(world.folder)
    assert [(f.subject, f.flaw, f.table) for f in found.findings] == [(Subject.TABLE, Flaw.UNREADABLE, "t")]
    assert found.counts[Subject.TABLE].looked == 2


def test_a_hidden_table_of_a_refresh_may_be_incomplete_and_not_wrong(world):
    """Its drop may have been cut short, anywhere: the next refresh makes it again."""
    scratch = make_table(f"{world.folder}/__leman_scratch_v_0123456789abcdef.lance")
    submit(Planner(scratch).request(0, 1))
    folder = Path(scratch.uri)
    assert everything(world.database).findings == []
    installed, other = (folder / "data" / scratch.files(fragment)[0] for fragment in (0, 1))
    whole = installed.read_bytes()
    flip(installed)
    (found,) = everything(world.database).findings
    assert (found.flaw, found.path) == (Flaw.DAMAGED, f"{folder.name}/data/{installed.name}")
    installed.write_bytes(whole)
    other.unlink()
    assert everything(world.database).findings == []
    for file in (folder / "data").iterdir():
        file.unlink()
    assert everything(world.database).findings == []
    for manifest in (folder / "_versions").iterdir():
        manifest.write_bytes(b"")
    assert everything(world.database).findings == []


def test_row_ids_that_cannot_be_read_are_told_by_verification_and_to_whoever_reads_them(tmp_path):
    uri = tmp_path / "t.lance"
    for x in range(2):
        rows = pa.table({"x": [x] * ROWS})
        lance.write_dataset(rows, str(uri), mode="append" if x else "create", enable_stable_row_ids=True)
    path = min((uri / "_versions").iterdir())
    content, told = path.read_bytes(), 0
    for bit in range(0, len(content) * 8, 3):
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        error = said_of_row_ids(str(uri))
        if error is not None:
            assert (error.reason, error.facts["path"]) == ("TABLE_DAMAGED", str(path))
            assert [f.fragment_id for f in everything(tmp_path).findings if f.subject is Subject.TABLE]
            told += 1
    assert told


@pytest.mark.parametrize("stable_row_ids", [True, False])
def test_a_deletion_file_of_other_rows_is_found_by_their_number(tmp_path, stable_row_ids):
    """It is a sound file to Lance, which shows the rows: one of another version, or one with an offset out of range."""
    files = []
    for name, deleted in (("t", "x < 7"), ("other", "x < 3")):
        data = pa.table({"x": list(range(100))})
        table = lance.write_dataset(data, f"{tmp_path}/{name}.lance", enable_stable_row_ids=stable_row_ids)
        table.delete(deleted)
        files += list(Path(tmp_path, f"{name}.lance", "_deletions").iterdir())
    assert everything(str(tmp_path)).findings == []
    files[0].write_bytes(files[1].read_bytes())
    assert lance.dataset(f"{tmp_path}/t.lance").count_rows() == 93, "Lance counts by the manifest"
    found = one(everything(str(tmp_path)))
    assert (found.table, found.flaw, found.fragment_id) == ("t", Flaw.DAMAGED, 0)
    assert f"_deletions/{files[0].name} deletes 3 rows of fragment 0, and the manifest states 7" in found.message
    assert "deleted rows are back, or others are lost" in found.message


def said_of_row_ids(uri: str) -> LemanError | None:
    """What is said of the row ids of a table that opens, and has its second fragment."""
    try:
        reader = FragmentReader(uri, 2)
        there = reader.fragment(1) is not None
    except LemanError:
        return None
    try:
        if there:
            reader.live(1, RowRange(0, ROWS))
            reader.row_ids(1, [0])
    except LemanError as error:
        return error
    return None


def test_what_compaction_wrote_is_not_verifiable_and_no_error(world):
    submit(world.planner.request(2, 3))
    world.table.open().optimize.compact_files()
    found = everything(world.folder)
    assert found.findings == []
    assert found.counts[Subject.DATA_FILE].unverifiable == found.counts[Subject.DATA_FILE].looked == 1
    world.table.open().cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)
    assert everything(world.folder).findings == []


def test_a_verification_that_is_stopped_anywhere_goes_on_from_there(world, monkeypatch):
    make_table(f"{world.folder}/u.lance", fragments=2)
    flip(world.installed())
    whole = everything(world.folder)
    monkeypatch.setattr(database_verification, "REPORT_THINGS", 1)
    total, place, steps = FindingCounts(), None, 0
    while steps == 0 or place is not None:
        report = next(verify(world.database, place))
        gather(total, report.counts)
        place, steps = report.place, steps + 1
    assert steps == sum(count.looked for count in whole.counts.values()) + 1
    assert total == whole


def test_of_a_table_that_is_a_link_out_of_the_roots_nothing_is_told(world, tmp_path_factory):
    """Also where the verification continues after it: it is reported once."""
    away = tmp_path_factory.mktemp("away") / "secret.lance"
    lance.write_dataset(pa.table({"password": [1]}), str(away))
    (world.folder / "a.lance").symlink_to(away)
    roots, total, place = DatabaseRoots([world.database]), FindingCounts(), None
    ticks = iter(range(1000))
    while (report := next(verify(world.database, place, lambda: float(next(ticks)), roots))).place is not None:
        gather(total, report.counts)
        place = report.place
    (found,) = total.findings
    assert (found.flaw, found.path) == (Flaw.UNREADABLE, "a.lance")
    assert "is a link to where this service may not work: remove the link" in found.message
    assert str(away.parent) not in found.message
    total.counts[Subject.TABLE].looked -= 1
    total.counts[Subject.TABLE].flawed -= 1
    (world.folder / "a.lance").unlink()
    known = everything(world.folder).counts
    assert {kind: count.looked for kind, count in total.counts.items()} == {k: c.looked for k, c in known.items()}


def test_reports_come_while_it_works(world):
    ticks = iter(range(1000))
    reports = list(verify(world.database, None, clock=lambda: float(next(ticks))))
    assert len(reports) == sum(count.looked for count in everything(world.folder).counts.values()) + 1


def test_a_database_that_is_not_there_is_not_made(tmp_path):
    with pytest.raises(NotFound) as caught:
        list(verify(str(tmp_path / "none"), None))
    assert caught.value.reason == "DATABASE_NOT_FOUND"
    assert list(tmp_path.iterdir()) == []
    assert everything(tmp_path).counts == {}
