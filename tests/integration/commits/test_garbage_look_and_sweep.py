"""The collector on real tables: what it finds, and what it must not touch."""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs
import pytest

from leman._format import stored_documents
from leman_coordinator.garbage.garbage_collector import GarbageCollector
from leman_coordinator.lance_io import table_files
from leman_core.model.garbage import DAY, Fate, Use
from leman_core.model.job import Job, JobState
from leman_core.model.plan import BackfillSpec
from leman_core.model.service_errors import InvalidArgument, NotFound, Unavailable
from leman_core.model.view import RefreshSpec
from leman_core.storage.append_log import AppendLog
from leman_core.storage.checkpoint_records import FragmentRecord
from leman_core.storage.checkpoint_store import LanceCheckpointStore
from leman_core.storage.column_files import digest_of
from leman_core.storage.stored_jobs import open_jobs
from leman_executor.history.job_history import _JOBS, JobHistory
from tests.integration.planner.planner_lake import ROWS, Lake, states

NO_TIME = timedelta(0)


@pytest.fixture
def lake(tmp_path):
    return Lake(tmp_path / "db", fragments=2)


def age(lake, days):
    """Make everything next to the table as old as if it had been written this long ago."""
    then = time.time() - days * DAY
    for folder in ("_checkpoints", "data"):
        for path in Path(lake.uri, folder).glob("*"):
            os.utime(path, (then, then))


def collect(lake, older_than=0.0):
    """What was removed, by use."""
    collector = GarbageCollector(lake.uri, older_than)
    _, decisions = collector.look()
    gone = set(collector.sweep(decisions))
    assert gone == {v.file for v in decisions if v.fate is Fate.GARBAGE}
    return sorted(v.use.name for v in decisions if v.file in gone)


def uses(lake):
    return sorted(v.use.name for v in GarbageCollector(lake.uri, 0).look()[1])


def data_files(lake):
    return {p.name for p in Path(lake.uri, "data").iterdir()}


def referenced(lake):
    dataset = lake.open()
    versions = [dataset.checkout_version(v["version"]) for v in dataset.versions()]
    return {f.path for d in versions for g in d.get_fragments() for f in g.metadata.files}


def test_a_finished_fragment_leaves_nothing_behind_and_keeps_its_file(lake):
    made = lake.plan()
    for task in made.tasks:
        lake.checkpoint(task, 0, 5)
        lake.checkpoint(task, 5, ROWS)
        staged = lake.write(made, task)
        lake.record(made, task, staged)
    assert uses(lake) == ["OPEN"] * 8
    assert collect(lake) == []
    lake.fill(made)
    assert set(uses(lake)) == {"SETTLED", "UNREFERENCED"}
    assert collect(lake) == ["SETTLED"] * 6 + ["UNREFERENCED"] * 2
    assert not list(Path(lake.uri, "_checkpoints").iterdir())
    assert data_files(lake) == referenced(lake)
    assert not lake.plan().tasks
    assert lake.open().to_table().num_rows == 2 * ROWS


def test_what_is_staged_survives_and_is_committed_with_its_digest(lake):
    made = lake.plan()
    staged = lake.write(made, made.tasks[0])
    lake.record(made, made.tasks[0], staged)
    lost = lake.write(made, made.tasks[1])
    age(lake, 100)
    assert collect(lake, 7 * DAY) == ["UNREFERENCED"]
    assert lost.file not in data_files(lake)
    again = lake.plan().tasks[0]
    assert again.staged == staged
    assert digest_of(lake.uri, staged.file)[1] == staged.digest


def test_old_versions_and_tags_keep_their_files(lake):
    lake.fill(lake.plan())
    first = lake.open()
    first.tags.create("keep", first.version)
    kept = first.to_table()
    lake.rewrite("x", 0)
    lake.rewrite("x", 1)
    lake.fill(lake.plan())
    before = data_files(lake)
    assert collect(lake) == []
    assert data_files(lake) == before
    lake.open().cleanup_old_versions(older_than=NO_TIME, error_if_tagged_old_versions=False)
    assert collect(lake) == []
    assert data_files(lake) == referenced(lake)
    assert lake.open().checkout_version("keep").to_table() == kept


def test_a_branch_keeps_its_files(lake):
    lake.fill(lake.plan())
    filled = {f.path for g in lake.open().get_fragments() for f in g.metadata.files}
    branch = lake.open().create_branch("side")
    branch.delete("id = 3")
    kept = branch.to_table()
    lake.open().drop_columns(["c"])
    versions = Path(lake.uri, "_versions")
    latest = min(p.name for p in versions.glob("*.manifest"))  # they count down
    for path in versions.glob("*.manifest"):
        if path.name != latest:
            path.unlink()
    assert not filled <= referenced(lake), "only the branch refers to the column's files now"
    assert collect(lake) == []
    assert lake.open().checkout_version(("side", None)).to_table() == kept


def test_checkpoints_beside_a_partial_file(lake):
    made = lake.plan(where="x >= 0")
    task = made.tasks[0]
    inside = lake.checkpoint(task, 0, 4)
    lake.install(made, task, lake.write(made, task, states=states(untouched=5)).file)
    plain = next(t for t in lake.plan().tasks if t.fragment_id == task.fragment_id)
    outside = lake.checkpoint(plain, 4, 6)
    covered = lake.checkpoint(plain, 0, 4)
    assert collect(lake) == ["SETTLED", "SETTLED"]
    assert outside in lake.store
    assert inside not in lake.store
    assert covered not in lake.store


def test_a_dropped_column_is_reused_while_it_is_young_and_goes_later(lake):
    made = lake.plan()
    key = lake.checkpoint(made.tasks[0], 0, ROWS)
    staged = lake.write(made, made.tasks[0])
    lake.record(made, made.tasks[0], staged)
    lake.open().drop_columns(["c"])
    assert collect(lake, 7 * DAY) == []
    lake.add_column("c")
    task = lake.plan().tasks[0]
    assert [ref.key for ref in task.checkpoints] == [key]
    assert task.staged is None
    assert collect(lake) == ["NOT_INSTALLABLE", "UNREFERENCED"]
    assert key in lake.store
    lake.open().drop_columns(["c"])
    age(lake, 8)
    assert collect(lake, 7 * DAY) == ["NO_COLUMN"]


def test_what_was_computed_from_input_that_is_gone_goes_with_the_last_version_that_has_it(lake):
    task = lake.plan().tasks[0]
    lake.checkpoint(task, 0, 5)
    lake.rewrite("x", task.fragment_id)
    assert uses(lake) == ["OPEN"], "an older version has the input"
    lake.open().cleanup_old_versions(older_than=NO_TIME)
    assert collect(lake) == ["NO_SOURCES"]


def test_damaged_unfinished_legacy_and_external_files(lake):
    made = lake.plan()
    lake.checkpoint(made.tasks[0], 0, 5)
    folder = Path(lake.uri, "_checkpoints")
    (path,) = folder.iterdir()
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(KeyError):
        lake.store[path.name.removesuffix(".lance")]
    for name in (".tmpX1", f"{'a' * 64}.lance", "fragment_data_file:1_2.lance", "notes.txt", "else.lance"):
        (folder / name).write_bytes(b"x")
    lake.store["x" * 300] = pa.record_batch({"v": [1]})
    record = pa.record_batch({"file": ["gone.lance"]})
    lake.store[made.tasks[1].checkpoint_prefix + "_frag-1_file"] = record
    assert FragmentRecord.from_batch(record) is None
    assert collect(lake) == ["DAMAGED", "LEGACY", "LEGACY", "LEGACY", "UNFINISHED"]
    assert {p.name for p in folder.iterdir()} >= {"notes.txt", "else.lance"}
    assert uses(lake) == ["UNKNOWN"] * 3


def test_a_commit_between_look_and_sweep_keeps_its_file(lake):
    made = lake.plan()
    staged = lake.write(made, made.tasks[0])
    collector = GarbageCollector(lake.uri, 0)
    _, decisions = collector.look()
    assert [v.use for v in decisions] == [Use.UNREFERENCED]
    lake.install(made, made.tasks[0], staged.file)
    lake.rewrite("c", made.tasks[0].fragment_id)
    assert collector.sweep(decisions) == []
    assert staged.file in data_files(lake)


def test_what_is_written_anew_after_the_look_stays(lake):
    task = lake.plan().tasks[0]
    lake.fill(lake.plan())
    key = lake.checkpoint(task, 0, 5)
    collector = GarbageCollector(lake.uri, 0)
    _, decisions = collector.look()
    (path,) = Path(lake.uri, "_checkpoints").iterdir()
    os.utime(path, (time.time() + 1, time.time() + 1))
    assert collector.sweep(decisions) == []
    assert key in lake.store


class LikeAnObjectStore(pafs.FileSystemHandler):
    """A list of a folder says when files were written to the millisecond; asked for one of them it says the second."""

    def __init__(self) -> None:
        self._local = pafs.LocalFileSystem()

    def get_type_name(self):
        return "like an object store"

    def normalize_path(self, path):
        return self._local.normalize_path(path)

    def get_file_info(self, paths):
        return [self._at(info, 1_000_000_000) for info in self._local.get_file_info(paths)]

    def get_file_info_selector(self, selector):
        return [self._at(info, 1_000_000) for info in self._local.get_file_info(selector)]

    def _at(self, info, step):
        if not info.is_file:
            return info
        return pafs.FileInfo(info.path, info.type, size=info.size, mtime_ns=info.mtime_ns // step * step)

    def delete_file(self, path):
        self._local.delete_file(path)

    def _unused(self, *_):
        raise NotImplementedError

    create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = move = copy_file = _unused
    open_input_stream = open_input_file = open_output_stream = open_append_stream = _unused


def test_files_go_where_a_list_and_a_look_at_one_file_differ(lake, monkeypatch):
    made = lake.plan()
    for task in made.tasks:
        lake.checkpoint(task, 0, ROWS)
    lake.fill(made)
    for number, path in enumerate(sorted(Path(lake.uri, "_checkpoints").iterdir())):
        os.utime(path, ns=(0, 1_700_000_000_123_456_789 + number))
    system = pafs.PyFileSystem(LikeAnObjectStore())
    monkeypatch.setattr(table_files, "filesystem_of", lambda uri: (system, uri))
    monkeypatch.setattr(LanceCheckpointStore, "_filesystem", lambda store: (system, store._root))
    one = next(Path(lake.uri, "_checkpoints").iterdir())
    (alone,) = system.get_file_info([str(one)])
    assert alone.mtime_ns % 1_000_000_000 == 0
    assert [f.modified % 1 > 0 for f in lake.store.files()] == [True] * 2
    assert collect(lake) == ["SETTLED"] * 2
    assert not list(Path(lake.uri, "_checkpoints").iterdir())


def test_what_killed_writers_left_in_any_folder_of_the_table_goes(lake):
    """Anyone who writes to a table has half-written files in its folders: only those of yesterday are no one's."""
    lake.open().create_scalar_index("c", "BTREE")
    (index,) = Path(lake.uri, "_indices").iterdir()
    folders = [Path(lake.uri, name) for name in ("_versions", "_transactions", "_deletions", "data", "_committed")]
    left = [folder / ".tmpQ7x" for folder in (*folders, index)] + [index / "page_data.lance#1"]
    for path in left:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"half of it")
    before = {path for path in Path(lake.uri).rglob("*") if path.is_file()}
    assert collect(lake) == [], "they may be being written"
    then = time.time() - 2 * DAY
    for path in left:
        os.utime(path, (then, then))
    assert collect(lake) == ["UNFINISHED"] * 7
    assert {path for path in Path(lake.uri).rglob("*") if path.is_file()} == before - set(left)
    assert lake.open().to_table().num_rows == 2 * ROWS


def test_jobs_that_have_not_ended_are_found_in_the_history(lake):
    """Of this table; anyone who runs them, and if no one does."""
    task = lake.plan().tasks[0]
    lake.fill(lake.plan())
    lake.checkpoint(task, 0, 5)
    history = JobHistory(lake.database)
    history.prepare()
    now = time.time()
    spec = BackfillSpec(lake.database, "t", "c")
    other = Job("other", "", JobState.RUNNING, BackfillSpec(lake.database, "u", "c"), now, now)
    running = Job("job", "", JobState.RUNNING, spec, now - DAY, now)
    for job in (other, running):
        history.save(job)
    (found,) = open_jobs(lake.uri)
    assert (found.job_id, found.column, found.created_at) == ("job", "c", pytest.approx(now - DAY, abs=1e-3))
    assert collect(lake) == []
    history.save(replace(running, state=JobState.CANCELLING))
    assert collect(lake) == []
    taken_over = replace(running, attempt=2, executor="another")
    history.save(taken_over)
    history.save(replace(running, state=JobState.CANCELLED))
    assert collect(lake) == [], "the executor that lost the job has no say"
    history.save(replace(taken_over, state=JobState.CANCELLED))
    assert open_jobs(lake.uri) == []
    assert collect(lake) == ["SETTLED"]


def test_a_job_whose_record_is_damaged_counts_as_what_lies_beside_it(lake, monkeypatch):
    history = JobHistory(lake.database)
    history.prepare()
    now = time.time()
    jobs = [Job(f"job-{state.value}", "", state, BackfillSpec(lake.database, "t", "c"), now, now) for state in JobState]
    for job in jobs:
        history.save(job)
    monkeypatch.setattr(stored_documents, "is_whole", lambda _: False)
    found = open_jobs(lake.uri)
    assert {job.job_id for job in found} == {job.job_id for job in jobs if not job.state.terminal}
    assert all((job.column, job.created_at) == ("c", pytest.approx(now, abs=1e-3)) for job in found)


def test_a_refresh_is_open_and_fills_no_column(lake, monkeypatch):
    history = JobHistory(lake.database)
    history.prepare()
    history.save(Job("job", "", JobState.RUNNING, RefreshSpec(lake.database, "v"), 1.0, 2.0))
    view = f"{lake.database}/v.lance"
    assert [(job.job_id, job.column) for job in open_jobs(view)] == [("job", None)]
    monkeypatch.setattr(stored_documents, "is_whole", lambda _: False)
    assert [(job.job_id, job.column) for job in open_jobs(view)] == [("job", None)], "its record is damaged"


def test_a_job_is_of_the_table_that_its_record_names(lake):
    """What is next to a record carries no digest."""
    history = JobHistory(lake.database)
    history.prepare()
    history.save(Job("job", "", JobState.RUNNING, BackfillSpec(lake.database, "t", "c"), 1.0, 2.0))
    log = AppendLog(history.uri, _JOBS)
    (row,) = log.read()
    shutil.rmtree(history.uri)
    log.create()
    log.append([{**row, "table": "u", "state": "DONE"}])
    (found,) = open_jobs(lake.uri)
    assert found.job_id == "job"
    assert open_jobs(f"{lake.database}/u.lance") == []


def test_a_job_whose_record_and_state_are_damaged_counts_as_open(lake):
    history = JobHistory(lake.database)
    history.prepare()
    now = time.time()
    log = AppendLog(history.uri, _JOBS)
    spec = BackfillSpec(lake.database, "t", "c")
    history.save(Job("job-1", "", JobState.DONE, spec, now, now))
    (row,) = log.read()
    log.append([{**row, "job_id": "job-2", "state": "DOME", "record": str(row["record"])[:-1]}])
    (found,) = open_jobs(lake.uri)
    assert (found.job_id, found.column, found.created_at) == ("job-2", "c", pytest.approx(now, abs=1e-3))


def test_a_table_is_not_collected_by_the_name_of_a_link_to_it(lake):
    """A job that has the table's own name is not known by the link's."""
    lost = lake.write(lake.plan(), lake.plan().tasks[0])
    link = Path(lake.database, "link.lance")
    link.symlink_to(lake.uri)
    with pytest.raises(InvalidArgument, match=r"'link' is a link .* by its own database and name") as refused:
        GarbageCollector(str(link), 0).look()
    assert (refused.value.reason, refused.value.field) == ("BAD_TABLE_NAME", "table")
    assert lost.file in data_files(lake)


def test_nothing_is_removed_by_a_collector_that_has_not_looked(lake):
    """It knows no version after which a commit may have referred to a file."""
    lake.write(lake.plan(), lake.plan().tasks[0])
    _, decisions = GarbageCollector(lake.uri, 0).look()
    before = data_files(lake)
    with pytest.raises(RuntimeError, match="sweep before look"):
        GarbageCollector(lake.uri, 0).sweep(decisions)
    assert data_files(lake) == before


def test_no_table_and_an_unreadable_history(lake, tmp_path):
    with pytest.raises(NotFound):
        GarbageCollector(str(tmp_path / "db" / "nope.lance"), 0).look()
    versions = tmp_path / "db" / "_leman" / "jobs.lance" / "_versions"
    versions.mkdir(parents=True)
    with pytest.raises(Unavailable):
        GarbageCollector(lake.uri, 0).look()
