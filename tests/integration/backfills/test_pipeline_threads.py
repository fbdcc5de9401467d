"""`concurrency` times `intra_applier_concurrency` calls at once: that many, and no more."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import leman
from tests.integration.call_log import numbers, values

pytestmark = pytest.mark.spark


def crowd(folder: Path) -> leman.UDF:
    """Records how many calls of its process run at the same time."""
    import threading

    path = folder / "inside.txt"

    @leman.udf(data_type=pa.int64(), name="crowd", version=folder.name, batch_size=5)
    class Crowd:
        def __init__(self) -> None:
            self.inside = 0
            self.lock = threading.Lock()

        def __call__(self, x: pa.Int64Array) -> pa.Array:
            import os
            import time

            with self.lock:
                self.inside += 1
                with path.open("a") as log:
                    log.write(f"{os.getpid()} {self.inside} {len(x)}\n")
            time.sleep(0.02)
            with self.lock:
                self.inside -= 1
            return pa.array([2 * v for v in x.to_pylist()], pa.int64())

        def __getstate__(self) -> dict[str, object]:
            return {}

    return Crowd


@pytest.mark.parametrize(("threads", "most"), [(None, 1), (3, 3)])
def test_calls_at_once(db, tmp_path, threads, most):
    table = db.create_table("t", numbers(200), max_rows_per_file=100)
    table.add_columns({"y": crowd(tmp_path)})
    table.backfill("y", concurrency=2, intra_applier_concurrency=threads, progress=False)
    assert values(table, "y") == {x: 2 * x for x in range(200)}
    lines = [[int(n) for n in line.split()] for line in (tmp_path / "inside.txt").read_text().splitlines()]
    assert max(inside for _, inside, _ in lines) == most
    assert len({pid for pid, _, _ in lines}) <= 2
    assert max(rows for _, _, rows in lines) <= 5
    assert sum(rows for _, _, rows in lines) == 200
