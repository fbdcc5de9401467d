"""`where` for each kind of function: alone, with a resume, and over checkpoints of other filters."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import leman
from tests.integration.call_log import numbers, values

pytestmark = pytest.mark.spark

KINDS = ("scalar", "array", "record_batch")
ROWS, PER_FRAGMENT = 60, 20


class Kind:
    """x → factor · x as a function of some kind, which writes down what it is given and fails at x = 33 until fixed."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.folder = folder
        self.log = folder / "seen"
        self.broken = folder / "broken"

    def seen(self) -> list[int]:
        """Rows that it was called with, once it did not fail."""
        return sorted(int(x) for x in self.log.read_text().split()) if self.log.exists() else []

    def udf(self, factor: int = 2) -> leman.UDF:
        log, broken = self.log, self.broken

        def take(given: list[int]) -> list[int]:
            if 33 in given and broken.exists():
                raise ConnectionError("not now")
            with log.open("a") as lines:
                lines.write("".join(f"{x}\n" for x in given))
            return [factor * x for x in given]

        def scalar(x: int) -> int:
            return take([x])[0]

        def array(x: pa.Int64Array) -> pa.Array:
            return pa.array(take(x.to_pylist()), pa.int64())

        def record_batch(rows: pa.RecordBatch) -> pa.Array:
            assert rows.schema.names == ["x"]
            return pa.array(take(rows["x"].to_pylist()), pa.int64())

        function = {"scalar": scalar, "array": array, "record_batch": record_batch}[self.kind]
        return leman.udf(
            data_type=pa.int64(),
            name=self.kind,
            version=str(factor),
            input_columns=["x"],
            batch_size=1 if self.kind == "scalar" else 4,
        )(function)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Kind:
    return Kind(request.param, tmp_path)


@pytest.fixture
def table(db: leman.Database, kind: Kind) -> leman.Table:
    table = db.create_table("t", numbers(ROWS), max_rows_per_file=PER_FRAGMENT)
    table.add_columns({"y": kind.udf()})
    return table


def test_others_keep_their_values_and_are_not_evaluated(table, kind):
    """Those of another version of the function: they are stale, and no one asked for them."""
    table.backfill("y", progress=False)
    kind.log.unlink()
    asked = [x for x in range(ROWS) if x % 7 == 0]
    table.backfill("y", udf=kind.udf(3), where="x % 7 = 0", progress=False)
    assert kind.seen() == asked
    assert values(table, "y") == {x: 3 * x if x in asked else 2 * x for x in range(ROWS)}


def test_a_selective_backfill_is_resumed(db, table, kind):
    kind.broken.touch()
    where = "x % 3 = 0"
    asked = [x for x in range(ROWS) if x % 3 == 0]
    parameters = {"checkpoint_size": 2, "task_size": 20, "task_shuffle_diversity": 1, "concurrency": 1}
    with pytest.raises(leman.JobFailed, match="not now"):
        table.backfill("y", where=where, progress=False, **parameters)
    before = kind.seen()
    assert before[: len(range(0, 20, 3))] == list(range(0, 20, 3))
    kind.broken.unlink()
    table.backfill("y", where=where, progress=False)
    assert kind.seen() == asked, "each once"
    both = [job.progress for job in db.jobs("t")]
    assert sum(progress.rows_committed for progress in both) == len(asked), "and not those that were left out"
    assert sum(progress.rows_skipped for progress in both) == ROWS - len(asked)
    assert values(table, "y") == {x: 2 * x if x in asked else None for x in range(ROWS)}


def test_rows_of_other_filters_are_not_evaluated_again(table, kind):
    """Neither those that are committed nor those that only a checkpoint of a failed run holds."""
    table.backfill("y", where="x BETWEEN 5 AND 25", progress=False)
    kind.broken.touch()
    with pytest.raises(leman.JobFailed, match="not now"):
        table.backfill(
            "y", where="x >= 20", checkpoint_size=2, task_size=20, task_shuffle_diversity=1, concurrency=1,
            progress=False,
        )  # fmt: skip
    kind.broken.unlink()
    table.backfill("y", where="x % 2 = 1", progress=False)
    assert all(kind.seen().count(x) == 1 for x in range(1, ROWS, 2))
    known = {*range(5, 26), *range(1, ROWS, 2)}
    now = values(table, "y")
    assert {x: now[x] for x in known} == {x: 2 * x for x in known}
    assert all(now[x] is None for x in range(0, 5, 2)), "no one asked for them"
    table.backfill("y", progress=False)
    assert kind.seen() == list(range(ROWS)), "each once, over all four runs"
    assert values(table, "y") == {x: 2 * x for x in range(ROWS)}


def test_a_filter_over_two_columns_and_null(db, kind):
    data = numbers(ROWS).append_column("tag", pa.array(["a", None, "b"] * (ROWS // 3)))
    table = db.create_table("tagged", data, max_rows_per_file=PER_FRAGMENT)
    table.add_columns({"y": kind.udf()})
    table.backfill("y", where="tag = 'a' OR x > 50", progress=False)
    asked = [x for x in range(ROWS) if x % 3 == 0 or x > 50]
    assert kind.seen() == asked
    table.backfill("y", where="tag IS NULL", progress=False)
    assert kind.seen() == sorted({*asked, *range(1, ROWS, 3)}), "NULL is not true for the first filter"
