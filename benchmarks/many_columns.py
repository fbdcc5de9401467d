"""Many SQL columns over one table: as one job, and as a job for each of them.

Both sides fill the same columns of two tables with the same rows, in turns.
"""

from __future__ import annotations

import argparse
import functools
import time

import numpy as np
import pyarrow as pa

import leman
from benchmarks.common import Document, Options, Target, figures, interleaved, report, scratch

COUNTS = (20, 100)


class Side:
    """One way of filling columns."""

    def __init__(self, db: leman.Database, name: str, options: Options, *, together: bool) -> None:
        rows = options.rows
        data = pa.table({"x": np.arange(rows, dtype=np.int64), "text": [f"{i:064}" for i in range(rows)]})
        self._table = db.create_table(name, data, max_rows_per_file=-(-rows // options.fragments))
        self._together = together
        self.seconds: list[float] = []
        self.versions: list[float] = []

    def run(self, count: int, repetition: int) -> None:
        """Fill that many new columns."""
        names = [f"c{repetition}_{number}" for number in range(count)]
        self._table.add_columns({name: f"length(text) + x + {number}" for number, name in enumerate(names)})
        version, begin = self._table.describe().version, time.perf_counter()
        if self._together:
            self._table.backfill(names, progress=False)
        else:
            for name in names:
                self._table.backfill(name, progress=False)
        if repetition:
            self.seconds.append(time.perf_counter() - begin)
            self.versions.append(self._table.describe().version - version)
        self._table.drop_columns(names)

    def document(self) -> Document:
        return {"seconds": figures(self.seconds), "versions": figures(self.versions)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--fragments", type=int, default=4)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--folder", default="", help="where the tables are made")
    options = Options(**vars(parser.parse_args()))
    sides: Document = {}
    targets: list[Target] = []
    for count in COUNTS:
        with scratch(options) as folder, leman.connect(str(folder / "lake")) as db:
            one = Side(db, "one", options, together=True)
            many = Side(db, "many", options, together=False)
            interleaved(options.repetitions, functools.partial(one.run, count), functools.partial(many.run, count))
        sides[f"columns_{count}"] = {"one_job": one.document(), "job_for_each": many.document()}
        measured, limit = one.document()["seconds"]["median"], many.document()["seconds"]["median"]
        targets.append(Target(f"{count} columns: one job ≤ 0.7 × a job for each", measured, 0.7 * limit))
    report("many_columns", options, targets, **sides)


if __name__ == "__main__":
    main()
