"""In a process of its own, for cold_start.py: a small table, a column, its values. Prints phases as JSON.

`python -m benchmarks.first_result leman|plain FOLDER ROWS`
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import time
from pathlib import Path


def double(x: int) -> int:
    """The function of the column. Here, as `practical_limit` imports more than a caller would."""
    return x * 2


def with_leman(folder: Path, rows: int) -> dict[str, float]:
    """Starts everything, as `leman.connect` does for anyone who calls it first."""
    begin = time.perf_counter()
    import leman  # noqa: PLC0415 - its import is part of the time

    imported = time.perf_counter()
    with leman.connect(folder) as database:
        connected = time.perf_counter()
        table = database.create_table("t", {"x": list(range(rows))})
        table.add_columns({"y": leman.udf(double)})
        added = time.perf_counter()
        table.backfill("y", progress=False)
        filled = time.perf_counter()
        _check(table.to_arrow(["y"]).column("y").to_pylist())
    return {
        "imports": imported - begin,
        "connect": connected - imported,
        "table_and_column": added - connected,
        "backfill": filled - added,
        "read": time.perf_counter() - filled,
    }


def with_processes(folder: Path, rows: int) -> dict[str, float]:
    """The same by hand."""
    begin = time.perf_counter()
    from benchmarks.practical_limit import SCALAR, PlainPool, even, make_table  # noqa: PLC0415

    imported = time.perf_counter()
    uri = str(folder / "t.lance")
    make_table(uri, even(rows, 1))
    with PlainPool(SCALAR, uri, multiprocessing.cpu_count()) as pool:
        pool.add_column("y")
        pool.fill("y")
        filled = time.perf_counter()
        import lance  # noqa: PLC0415

        _check(lance.dataset(uri).to_table(columns=["y"]).column("y").to_pylist())
    return {"imports": imported - begin, "fill": filled - imported}


def _check(values: list[int]) -> None:
    if sorted(values) != [2 * x for x in range(len(values))] or not values:
        raise RuntimeError("the values are wrong")


def main() -> None:
    side, folder, rows = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    folder.mkdir(parents=True, exist_ok=True)
    print(json.dumps({"leman": with_leman, "plain": with_processes}[side](folder, rows)), flush=True)


if __name__ == "__main__":
    main()
