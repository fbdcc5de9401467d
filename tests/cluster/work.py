"""The work that is done on the cluster: each call is written down, with the host on which it was made."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import pyarrow as pa

import leman
from tests.cluster.cluster import CORES, INTERVAL_SECONDS, WORKERS, Cluster

ROWS = 200_000
#: What a row costs at the least, and how many are handed to the function at once.
ROW_SECONDS, BATCH = 0.0003, 250
#: What a worker that dies takes with it: what it did in one interval, and the batch that it had.
ROWS_AT_RISK = round(INTERVAL_SECONDS / ROW_SECONDS) + BATCH
#: Of all workers of a host.
ROWS_AT_RISK_OF_A_HOST = CORES * ROWS_AT_RISK
#: Until a host has fetched and unpacked its Python environment.
UNPACKED_SECONDS = 400
#: Seconds in which a job has to end once something has gone, where a host may have to unpack its environment again.
END_SECONDS = 400


@dataclass
class CallLog:
    """A file on the share that functions append a line to for each call. Appends of a few bytes are atomic."""

    cluster: Cluster
    name: str

    def double(self) -> leman.UDF:
        """x → 2x, taking its time."""
        path, row_seconds = f"/data/{self.name}.calls", ROW_SECONDS

        def double(x: pa.Array) -> pa.Array:
            import os
            import time

            import pyarrow.compute as pc

            handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            os.write(handle, f"{os.uname().nodename} {len(x)}\n".encode())
            os.close(handle)
            time.sleep(len(x) * row_seconds)
            return pc.multiply(x, 2)

        return leman.udf(data_type=pa.int64(), name=f"double_{self.name}", version="1", batch_size=BATCH)(double)

    def rows(self) -> Counter[str]:
        """Rows that the function was called for, by host."""
        found: Counter[str] = Counter()
        for line in (self.cluster.data / f"{self.name}.calls").read_text().splitlines():
            host, rows = line.split()
            found[host] += int(rows)
        return found

    def table(self, db: leman.Database) -> leman.Table:
        """A table with the column `y` to be computed."""
        rows = pa.table({"x": pa.array(range(ROWS), pa.int64())})
        table = db.create_table(self.name, rows, max_rows_per_file=ROWS // 20)
        table.add_columns({"y": self.double()})
        return table


def check_values(table: leman.Table) -> None:
    """Each row is there once, with its value."""
    found = table.to_arrow(columns=["x", "y"]).sort_by("x")
    assert found["x"].to_pylist() == list(range(ROWS))
    assert found["y"].to_pylist() == list(range(0, 2 * ROWS, 2))


def meet(cluster: Cluster, name: str) -> None:
    """Wait until a process on each core of each host computes: none is through before the slowest host has unpacked
    what it was sent."""
    (cluster.data / name).mkdir()
    folder, expected, seconds = f"/data/{name}", cluster.cores * len(WORKERS), UNPACKED_SECONDS

    def where(x: int) -> str:
        import os
        import pathlib
        import threading
        import time

        pause, until = threading.Event(), time.monotonic() + seconds
        met = pathlib.Path(folder)
        (met / f"{os.uname().nodename}-{os.getpid()}").touch()
        while len(list(met.iterdir())) < expected and time.monotonic() < until:
            pause.wait(0.05)
        return os.uname().nodename

    with cluster.connect("meetings") as db:
        table = db.create_table(name, pa.table({"x": list(range(8 * expected))}), max_rows_per_file=1)
        table.add_columns({"host": leman.udf(data_type=pa.string(), name=f"where_{name}", version="1")(where)})
        table.backfill("host", task_size=1, progress=False)
        assert set(table.to_arrow(columns=["host"])["host"].to_pylist()) == set(WORKERS)
