"""What people look for when something is wrong is there, word by word: messages, files of checkpoints, settings of
conflicts and stalls. A stuck backfill is in tests/faults/test_stalls.py.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import leman
from leman import ErrorHandlingConfig, JobState, Skip, errors
from leman_core.settings import Settings
from tests.conftest import System
from tests.faults.lake import wait_for
from tests.integration.call_log import CallLog, numbers, values

pytestmark = pytest.mark.spark


@pytest.fixture
def table(db: leman.Database) -> leman.Table:
    return db.create_table("t", numbers(60), max_rows_per_file=20)


@leman.udf(data_type=pa.int64(), name="needs_y", version="1")
def needs_y(y: int) -> int:
    return y


@leman.udf(data_type=pa.int64(), name="length", version="1")
def length(x: pa.StringArray) -> pa.Array:
    return pa.array([len(v) for v in x.to_pylist()], pa.int64())


def logged(system: System, service: str, words: str) -> list[dict[str, object]]:
    """The lines of a service's log that begin with these words."""
    lines = (system.database / "_leman" / "logs" / f"{service}.log").read_text().splitlines()
    found = [json.loads(line) for line in lines if words in line and line.startswith("{")]
    return [line for line in found if str(line["event"]).startswith(words)]


# backfills.md, "Error Messages Reference"


def test_column_x_is_not_defined_in_this_table(table):
    with pytest.raises(ValueError, match=r"Column y is not defined in this table: .*add_columns\(\) first"):
        table.backfill("y")


def test_udf_expects_input_columns_x_which_are_not_found(table):
    with pytest.raises(errors.InputColumnMissing) as caught:
        table.add_columns({"z": needs_y})
    assert "UDF expects input columns ['y'] which are not found" in str(caught.value)
    assert "input_columns" in str(caught.value), "the resolution: map it"


def test_cannot_validate_generic_pa_array_type():
    with pytest.raises(ValueError, match=r"Cannot validate generic pa\.Array type: .*data_type="):

        @leman.udf
        def generic(x: pa.Array) -> pa.Array:
            return x


def test_type_mismatch_for_column_x(table):
    with pytest.raises(TypeError, match=r"Type mismatch for column x: .*Fix the type annotation, or cast the column"):
        table.add_columns({"z": length})


# backfills.md, "Common Issues and Resolution"


def test_backfill_running_slowly_names_what_bounds_it(db, table, call_log):
    table.add_columns({"y": call_log.double(seconds=0.005)})
    progress = db.job(table.backfill("y", concurrency=1, progress=False)).progress
    assert progress.bottleneck == "udf"
    assert progress.udf_seconds >= 60 * 0.005


def test_out_of_memory_errors_names_rows_and_likely_causes(table):
    @leman.udf(data_type=pa.int64(), name="killed", version="1")
    def killed(x: int) -> int:
        import os
        import signal

        if x == 25:
            os.kill(os.getpid(), signal.SIGKILL)  # as the kernel does
        return x

    table.add_columns({"y": killed})
    with pytest.raises(leman.JobFailed, match=r"row 5 of fragment 1: the function may use too much memory") as caught:
        table.backfill("y", progress=False)
    assert caught.value.reason == "WORKER_LOST"
    assert {x for x, y in values(table, "y").items() if y is not None} >= set(range(20)), "finished work is kept"


def test_out_of_memory_errors_smaller_batches_use_less(db, tmp_path):
    """The resolution: `checkpoint_size` bounds what a worker holds at once, `task_size` what it is given."""
    log = tmp_path / "batches"

    @leman.udf(data_type=pa.int64(), name="batches", version="1")
    def batches(x: pa.Int64Array) -> pa.Array:
        with log.open("a") as lines:
            lines.write(f"{len(x)}\n")
        return x

    table = db.create_table("large", numbers(1000))
    table.add_columns({"y": batches, "z": batches})
    table.backfill("y", checkpoint_size=25, task_size=100, progress=False)
    assert max(int(n) for n in log.read_text().split()) <= 25
    log.unlink()
    table.backfill("z", progress=False)
    assert max(int(n) for n in log.read_text().split()) > 25, "batches grow where no one asks"


def test_udf_execution_errors_show_row_address_message_and_traceback(table):
    @leman.udf(data_type=pa.int64(), name="picky", version="1", error_handling=ErrorHandlingConfig(on_error=[Skip()]))
    def picky(x: int) -> int:
        if x == 25:
            raise ValueError("malformed")
        return x

    table.add_columns({"y": picky})
    job_id = table.backfill("y", progress=False)
    (error,) = table.get_errors(job_id=job_id, column_name="y")
    assert str(error) == "y, fragment 1, row 5: ValueError: malformed"
    assert 'raise ValueError("malformed")' in error.traceback
    assert table.get_failed_row_addresses(job_id=job_id, column_name="y") == [1 << 32 | 5]


def test_failed_backfill_resumes_and_logs_what_it_found(db, system, tmp_path):
    """Or else it logs that the inputs are others than those the checkpoints were made from."""
    fixed = tmp_path / "fixed"

    @leman.udf(data_type=pa.int64(), name="fragile", version=tmp_path.name, batch_size=5)
    def fragile(x: int, k: int) -> int:
        if x == 13 and not fixed.exists():
            raise ConnectionError("no answer")
        return x + k

    rows = numbers(40).append_column("k", pa.array([0] * 40, pa.int64()))
    table = db.create_table("resumed", rows, max_rows_per_file=20)
    column = f"y {tmp_path.name}"
    table.add_columns({column: fragile})
    with pytest.raises(leman.JobFailed, match="no answer"):
        table.backfill(column, checkpoint_size=5, task_size=20, task_shuffle_diversity=1, concurrency=1, progress=False)
    assert len(list(Path(table.uri, "_checkpoints").glob("*.lance"))) == 3, "of 5, 5 and 3 rows"
    table.plan_backfill(column)
    wait_for(lambda: about(column, logged(system, "planner", "Collected 1 checkpointed fragments with 13 rows")))
    data = table.to_lance()
    data.update({"k": "1"}, where="x = 39")
    table.plan_backfill(column)
    rewrite(table, "k", 7)
    table.plan_backfill(column)
    # one of the two plans logs it; a line of the first would be there before that of the second
    (mismatch,) = wait_for(lambda: mismatches(system, column))
    assert mismatch["fragments"] == 1
    fixed.touch()
    table.backfill(column, progress=False)
    assert values(table, column) == {x: x + 7 for x in range(40)}


def mismatches(system: System, column: str) -> list[dict[str, object]]:
    return about(column, logged(system, "planner", "Checkpoint data files mismatch"))


def about(column: str, lines: list[dict[str, object]]) -> list[dict[str, object]]:
    return [line for line in lines if line["column"] == column]


def rewrite(table: leman.Table, column: str, value: int) -> None:
    """New data files for a column, all of one value."""
    data = table.to_lance()
    data.drop_columns([column])
    data.add_columns({column: f"cast({value} as bigint)"})


def test_type_mismatch_errors_show_the_schema(db, table):
    @leman.udf(data_type=pa.float32(), name="my_udf", version="1")
    def my_udf(x: pa.Array) -> pa.Array:
        return pa.array(["no number"] * len(x))

    table.add_columns({"y": my_udf})
    with pytest.raises(leman.JobFailed):
        table.backfill("y", progress=False)
    (error,) = table.get_errors(job_id=db.jobs()[0].job_id)
    lines = error.error_message.splitlines()
    assert lines[0].startswith("UDF 'my_udf' failed with type error: ")
    assert lines[1:] == [
        "Input batch schema: x: int64",
        "UDF expects input_columns: ['x']",
        "UDF output type: float",
    ]


def test_missing_input_columns_are_mapped_to_actual_ones(db, table):
    with pytest.raises(ValueError, match="Column 'y' not found in table schema"):
        table.add_columns({"output": needs_y})
    table.add_columns({"output": (needs_y, ["x"])})
    table.backfill("output", progress=False)
    assert values(table, "output") == {x: x for x in range(60)}
    data = table.to_lance()
    data.drop_columns(["x"])
    with pytest.raises(ValueError, match="Column 'x' not found in table schema"):
        table.backfill("output")


# checkpointing.md, "Debugging tips"


def test_checkpoints_are_human_readable_keys(table, call_log):
    """`_range-` keys are checkpoints; the others are records of fragments whose column file can be reused."""
    table.add_columns({"y": call_log.double()})
    table.backfill("y", checkpoint_size=10, progress=False)
    names = sorted(path.stem for path in Path(table.uri, "_checkpoints").iterdir())
    prefix = r"udf-double_seen_ver-\w+_col-y_where-[0-9a-f]{32}_uri-[0-9a-f]{32}_srcfiles-[0-9a-f]{32}_frag-"
    found = {kind: [f.key for f in table.checkpoints() if f.kind == kind] for kind in ("checkpoint", "record")}
    assert sorted([*found["checkpoint"], *found["record"]]) == names
    assert len(found["checkpoint"]) == 6
    assert len(found["record"]) == 3
    assert all(re.fullmatch(prefix + r"\d+_range-\d+-\d+", key) for key in found["checkpoint"])
    assert all(re.match(prefix + r"\d+", key) and "_range-" not in key for key in found["record"])


@pytest.mark.parametrize("where", [None, "x % 2 = 0"])
def test_logical_and_physical_rows_never_hang_a_job(db, table, call_log, where):
    """Deleted rows at the start, in the middle, at the end, and a fragment without any row; filters on top."""
    table.to_lance().delete("x < 3 OR x IN (10, 11, 19) OR x BETWEEN 20 AND 39 OR x = 59")
    table.add_columns({"y": call_log.double()})
    job = db.job(table.backfill("y", where=where, checkpoint_size=4, task_size=7, progress=False))
    assert job.state is JobState.DONE
    live = [x for x in range(60) if not (x < 3 or x in (10, 11, 19, 59) or 20 <= x <= 39)]
    asked = [x for x in live if where is None or x % 2 == 0]
    assert sorted(call_log.seen()) == asked
    assert values(table, "y") == {x: 2 * x if x in asked else None for x in live}
    for fragment in table.to_lance().get_fragments():
        (file,) = [f.path for f in fragment.metadata.files if len(f.fields) == 1 and f.path != first_file(fragment)]
        rows = lance.file.LanceFileReader(str(Path(table.uri, "data", file))).metadata().num_rows
        assert rows == fragment.physical_rows


def first_file(fragment: lance.LanceFragment) -> str:
    return str(fragment.metadata.files[0].path)


# fragment_writers.md


def test_concurrent_backfill_version_conflicts(db, tmp_path):
    """Four columns at once, each of whose commits meets versions of the others: all are there in the end."""
    columns = {name: CallLog(tmp_path, name).double() for name in "abcd"}
    table = db.create_table("wide", numbers(80), max_rows_per_file=5)
    table.add_columns(columns)
    futures = [table.backfill_async(name, commit_granularity=2) for name in columns]
    assert [db.job(f.result(timeout=60)).state for f in futures] == [JobState.DONE] * 4
    for name in columns:
        assert values(table, name) == {x: 2 * x for x in range(80)}
        assert sorted(CallLog(tmp_path, name).seen()) == list(range(80)), "no conflict cost a computation"


def test_related_configuration():
    """How long a worker may stand still, and how often a commit is tried."""
    settings = Settings()
    assert (settings.writer.stall_idle_checks, settings.writer.stall_check_seconds) == (6, 5.0)
    assert settings.commit.version_conflict_max_retries == 10
