"""Each parameter of a backfill does what docs/parameters.md says of it, and without it its default holds."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pyarrow as pa
import pytest

import leman
from leman import JobState
from tests.integration.call_log import CallLog, numbers, values

pytestmark = pytest.mark.spark

CORES = os.cpu_count() or 1
#: Of the services' settings: work after which a worker stores what it has (`executor.checkpoint_interval_seconds`).
INTERVAL_SECONDS = 5.0


def checkpoints(table: leman.Table, column: str) -> list[tuple[int, int, int]]:
    """(fragment, start, end) of the range checkpoints of a column that were stored next to the table."""
    return sorted(
        (f.fragment_id or 0, f.start or 0, f.end or 0)
        for f in table.checkpoints()
        if f.kind == "checkpoint" and f.column == column
    )


def full(size: int, rows: int) -> list[tuple[int, int, int]]:
    """Checkpoints of a fragment of this many rows: what is left at its end is in the column file alone."""
    return [(0, start, start + size) for start in range(0, rows - size + 1, size)]


class Crowd:
    """Counts from what the function itself writes down how many of its calls run at once, in how many processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "crowd"
        self.folder.mkdir()

    def udf(self, expected: int) -> leman.UDF:
        """Its calls wait until this many of them are inside at the same time."""
        folder = self.folder

        @leman.udf(data_type=pa.int64(), name="crowd", version=folder.parent.name)
        def crowd(x: int) -> int:
            import os
            import time

            def log(step: int) -> None:
                handle = os.open(folder / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
                os.write(handle, f"{time.monotonic_ns()} {step} {os.getpid()}\n".encode())
                os.close(handle)

            log(1)
            inside = folder / f"inside-{x}"
            inside.touch()
            deadline, met = time.monotonic() + 30, folder / "met"
            while not met.exists():
                if len(list(folder.glob("inside-*"))) >= expected:
                    met.touch()
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{expected} calls never ran at the same time")
                threading.Event().wait(0.005)
            threading.Event().wait(0.005)
            inside.unlink()
            log(-1)
            return x

        return crowd

    def _log(self) -> list[tuple[int, int, int]]:
        lines = (self.folder / "log").read_text().splitlines()
        return sorted(tuple(map(int, line.split())) for line in lines)  # type: ignore[misc]

    def most(self) -> int:
        """Calls at once, at the most."""
        inside = most = 0
        for _, step, _ in self._log():
            inside += step
            most = max(most, inside)
        return most

    def processes(self) -> int:
        return len({pid for _, _, pid in self._log()})


def test_parameter_col_name(db, tmp_path):
    """The column that is filled, and no other; without it all that are computed."""
    table = db.create_table("t", numbers(10))
    table.add_columns({"y": CallLog(tmp_path, "y").double(), "z": CallLog(tmp_path, "z").double()})
    table.backfill("z", progress=False)
    assert set(values(table, "y").values()) == {None}
    assert values(table, "z") == {x: 2 * x for x in range(10)}
    table.backfill(progress=False)
    assert values(table, "y") == {x: 2 * x for x in range(10)}


def test_parameter_udf(db, call_log, tmp_path):
    """Computes with this function; by default with the column's own, for which the values are stale then."""

    @leman.udf(data_type=pa.int64(), name="triple", version="1")
    def triple(x: int) -> int:
        return 3 * x

    table = db.create_table("t", numbers(10), max_rows_per_file=5)
    table.add_columns({"y": call_log.double()})
    job = db.job(table.backfill("y", udf=triple, progress=False))
    assert job.udf_name == "triple"
    assert values(table, "y") == {x: 3 * x for x in range(10)}
    assert call_log.seen() == []
    own = db.job(table.backfill("y", progress=False))
    assert [r.reason for r in own.reasons] == ["UDF_CHANGED"]
    assert values(table, "y") == {x: 2 * x for x in range(10)}
    by_name = db.job(table.backfill("y", udf="triple@1", progress=False))
    assert (by_name.udf_name, by_name.udf_version) == ("triple", "1")
    assert values(table, "y") == {x: 3 * x for x in range(10)}


def test_parameter_where(db, call_log):
    """The function is called for rows that match, the others keep what they have; by default for all."""
    table = db.create_table("t", numbers(40), max_rows_per_file=10)
    table.add_columns({"y": call_log.double()})
    job = db.job(table.backfill("y", where="x % 2 = 0 AND x < 25", progress=False))
    matching = [x for x in range(25) if x % 2 == 0]
    assert sorted(call_log.seen()) == matching
    assert job.where == "x % 2 = 0 AND x < 25"
    assert values(table, "y") == {x: 2 * x if x in matching else None for x in range(40)}
    assert db.job(table.backfill("y", progress=False)).where == ""
    assert sorted(call_log.seen()) == list(range(40))
    assert values(table, "y") == {x: 2 * x for x in range(40)}


@pytest.mark.parametrize("concurrency", [None, 1, 2, CORES + 2])
def test_parameter_concurrency(db, tmp_path, concurrency):
    """So many worker processes call the function at once, more than there are slots too; by default one for each."""
    expected = concurrency or CORES
    crowd = Crowd(tmp_path)
    rows = 5 * max(CORES + 2, 12)
    table = db.create_table("t", numbers(rows), max_rows_per_file=5)
    table.add_columns({"y": crowd.udf(expected)})
    table.backfill("y", concurrency=concurrency, progress=False)
    assert values(table, "y") == {x: x for x in range(rows)}
    assert crowd.most() == crowd.processes() == expected


@pytest.mark.parametrize("threads", [None, 3])
def test_parameter_intra_applier_concurrency(db, tmp_path, threads):
    """This many calls at once in each of the processes; by default one."""
    expected = 2 * (threads or 1)
    crowd = Crowd(tmp_path)
    table = db.create_table("t", numbers(60), max_rows_per_file=10)
    table.add_columns({"y": crowd.udf(expected)})
    table.backfill("y", concurrency=2, intra_applier_concurrency=threads, progress=False)
    assert values(table, "y") == {x: x for x in range(60)}
    assert (crowd.most(), crowd.processes()) == (expected, 2)


def test_parameter_checkpoint_size(db, tmp_path):
    """This many rows a checkpoint; by default the column file of cheap work is one itself."""
    sizes = {"none": None, "own": 10, "call": 10}
    table = db.create_table("t", numbers(50))
    table.add_columns({name: CallLog(tmp_path, name).double(checkpoint_size=own) for name, own in sizes.items()})
    for column in sizes:
        table.backfill(column, checkpoint_size=7 if column == "call" else None, progress=False)
    assert checkpoints(table, "none") == []
    assert checkpoints(table, "own") == full(10, 50)
    assert checkpoints(table, "call") == full(7, 50), "the call wins"


def test_parameter_min_checkpoint_size(db, tmp_path):
    """The interval may be over: fewer rows are not stored; by default even one is. The call wins over the function."""
    gate = {"none": (None, None), "own": (10, None), "call": (10, 6)}
    table = db.create_table("t", numbers(20))
    table.add_columns({name: slow_once(tmp_path, name, own) for name, (own, _) in gate.items()})
    futures = [
        table.backfill_async(name, min_checkpoint_size=call, task_size=20, concurrency=1)
        for name, (_, call) in gate.items()
    ]
    for future in futures:
        future.result(timeout=60)
    first = {name: checkpoints(table, name)[0] for name in gate}
    assert first == {"none": (0, 0, 4), "own": (0, 0, 10), "call": (0, 0, 6)}
    assert all(values(table, name) == {x: x for x in range(20)} for name in gate)


def slow_once(folder: Path, name: str, smallest: int | None) -> leman.UDF:
    """Its fourth row takes as long as the interval between checkpoints."""
    seconds = INTERVAL_SECONDS

    @leman.udf(data_type=pa.int64(), name=name, version=folder.name, min_checkpoint_size=smallest, batch_size=1)
    def slow(x: int) -> int:

        if x == 3:
            threading.Event().wait(seconds)
        return x

    return slow


def test_parameter_max_checkpoint_size(db, tmp_path):
    """No checkpoint holds more rows, nor more than `checkpoint_size`; by default that and the interval bound it."""
    wanted = {"none": {}, "most": {"max_checkpoint_size": 8}, "both": {"max_checkpoint_size": 9, "checkpoint_size": 6}}
    table = db.create_table("t", numbers(20))
    table.add_columns({name: CallLog(tmp_path, name).double(max_checkpoint_size=None) for name in wanted})
    table.add_columns({"own": CallLog(tmp_path, "own").double(max_checkpoint_size=5)})
    for name, parameters in wanted.items():
        table.backfill(name, progress=False, **parameters)
    table.backfill("own", progress=False)
    assert checkpoints(table, "none") == []
    assert checkpoints(table, "most") == full(8, 20)
    assert checkpoints(table, "both") == full(6, 20)
    assert checkpoints(table, "own") == full(5, 20)


def test_min_and_max_checkpoint_size_fix_it(db, tmp_path):
    """min = max: checkpoints of exactly this many rows."""
    table = db.create_table("t", numbers(30))
    table.add_columns({"y": CallLog(tmp_path).double()})
    table.backfill("y", min_checkpoint_size=4, max_checkpoint_size=4, progress=False)
    assert checkpoints(table, "y") == full(4, 30)


def test_parameter_task_size(db, tmp_path):
    """This many rows a unit of work, each of which stores what it did but for the one that writes the column file; by
    default cheap fragments go out whole."""
    table = db.create_table("t", numbers(50))
    table.add_columns({"y": CallLog(tmp_path, "y").double(), "z": CallLog(tmp_path, "z").double()})
    table.backfill("y", task_size=20, concurrency=1, progress=False)
    assert checkpoints(table, "y") == [(0, 0, 20), (0, 20, 40)]
    table.backfill("z", concurrency=1, progress=False)
    assert checkpoints(table, "z") == []


@pytest.mark.parametrize(
    ("diversity", "fragments"),
    [(1, "000011112222"), (2, "010101012222"), (None, "012012012012")],
)
def test_parameter_task_shuffle_diversity(db, call_log, diversity, fragments):
    """Units of so many fragments are handed out in turn; by default of the fragment that has most rows left."""
    table = db.create_table("t", numbers(60), max_rows_per_file=20)
    table.add_columns({"y": call_log.double()})
    table.backfill("y", task_size=5, task_shuffle_diversity=diversity, concurrency=1, progress=False)
    seen = call_log.seen()
    units = [seen[i : i + 5] for i in range(0, 60, 5)]
    assert all(unit == list(range(unit[0], unit[0] + 5)) for unit in units)
    assert "".join(str(unit[0] // 20) for unit in units) == fragments
    assert values(table, "y") == {x: 2 * x for x in range(60)}


@pytest.mark.parametrize(("granularity", "commits"), [(2, 4), (3, 3), (100, 1), (None, 1)])
def test_parameter_commit_granularity(db, call_log, granularity, commits):
    """So many fragments a commit, the last one the rest; by default a cheap job is one commit."""
    table = db.create_table("t", numbers(70), max_rows_per_file=10)
    table.add_columns({"y": call_log.double()})
    before = table.version
    job = db.job(table.backfill("y", commit_granularity=granularity, progress=False))
    assert job.progress.commits == table.version - before == commits
    assert values(table, "y") == {x: 2 * x for x in range(70)}


def test_parameter_commit_rows(db, call_log):
    """A job that is done before it may commit rows makes one commit; test_partial_commits.py has slow ones."""
    table = db.create_table("t", numbers(20))
    table.add_columns({"y": call_log.double()})
    job = db.job(table.backfill("y", commit_rows=1000, progress=False))
    assert job.progress.commits == 1
    assert values(table, "y") == {x: 2 * x for x in range(20)}


def test_parameter_read_version(db, call_log):
    """Fills what that version has; by default the latest."""
    table = db.create_table("t", numbers(20), max_rows_per_file=10)
    table.add_columns({"y": call_log.double()})
    old = table.version
    table.add(numbers(10, start=20))
    job = db.job(table.backfill("y", read_version=old, progress=False))
    assert (job.state, job.progress.rows_total) == (JobState.DONE, 20)
    assert values(table, "y") == {x: 2 * x if x < 20 else None for x in range(30)}
    table.backfill("y", progress=False)
    assert sorted(call_log.seen()) == list(range(30)), "each once"
    with pytest.raises(leman.LemanError, match="version") as caught:
        table.backfill("y", read_version=10_000)
    assert caught.value.reason == "VERSION_NOT_FOUND"


def test_parameter_num_frags(db, call_log):
    """At most so many fragments, a sample; by default all."""
    table = db.create_table("t", numbers(50), max_rows_per_file=10)
    table.add_columns({"y": call_log.double()})
    assert "3 left for later by num_frags" in table.plan_backfill("y", num_frags=2).summary
    job = db.job(table.backfill("y", num_frags=2, progress=False))
    assert job.progress.fragments_committed == 2
    assert values(table, "y") == {x: 2 * x if x < 20 else None for x in range(50)}
    table.backfill("y", num_frags=2, progress=False)
    assert sorted(call_log.seen()) == list(range(40)), "the next ones"
    table.backfill("y", progress=False)
    assert values(table, "y") == {x: 2 * x for x in range(50)}


def test_parameter_optimize_indices(db, call_log):
    table = db.create_table("t", numbers(200), max_rows_per_file=50)
    table.add_columns({"y": call_log.double()})
    table.backfill("y", progress=False)
    table.to_lance().create_scalar_index("y", "BTREE")
    assert db.job(table.backfill("y", progress=False)).stale_indices == ()
    table.add(numbers(50, 200))
    job = db.job(table.backfill("y", progress=False))
    [stale] = job.stale_indices
    assert (stale.name, stale.columns, stale.is_stale) == ("y_idx", ("y",), True)
    assert (stale.fragments, stale.fragments_covered, stale.rows_left_out) == (5, 4, 50)
    job = db.job(table.backfill("y", optimize_indices=True, progress=False))  # nothing to compute
    assert (job.progress.rows_evaluated, job.stale_indices) == (0, ())
    table.add(numbers(50, 250))
    assert db.job(table.backfill("y", optimize_indices=True, progress=False)).stale_indices == ()
    assert [str(index) for index in table.optimize_indices()] == ["index y_idx covers 6 of 6 fragments"]


def test_parameter_on_stale_input(db):
    """By default refused, like "error"; see test_dependent_columns.py for the rest."""
    table = db.create_table("t", numbers(10))
    table.add_columns({"a": "x * 2", "b": "a + 1"})
    for given in ({}, {"on_stale_input": "error"}):
        with pytest.raises(leman.errors.InputColumnStale):
            table.backfill("b", **given)
    table.backfill("b", on_stale_input="first", progress=False)
    assert values(table, "b") == {x: 2 * x + 1 for x in range(10)}


def test_parameter_progress(db, call_log, capsys):
    """None shows it, False does not, a function is called with it."""
    table = db.create_table("t", numbers(10))
    table.add_columns({"y": call_log.double(), "z": call_log.double()})
    table.backfill("y", progress=False)
    assert capsys.readouterr().err == ""
    seen: list[leman.Progress] = []
    table.backfill("z", progress=seen.append)
    assert seen[-1].rows_committed == 10
    table.backfill("z")
    assert "nothing to do" in capsys.readouterr().err


def test_every_parameter_has_a_test():
    tested = {name.removeprefix("test_parameter_") for name in globals() if name.startswith("test_parameter_")}
    assert set(leman.BackfillParameters.__annotations__) | {"col_name", "udf", "progress"} == tested
    table = (Path(__file__).parents[3] / "docs" / "parameters.md").read_text()
    assert all(f"| `{name}` |" in table for name in leman.BackfillParameters.__annotations__)
