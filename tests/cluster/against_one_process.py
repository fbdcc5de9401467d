"""200,000 rows on two Spark hosts of one core each, and in one Spark process of two cores: what the network costs.

    python -m tests.cluster.against_one_process [--rows N] [--repetitions N]

The cluster is that of the tests of this folder: hosts with addresses of their own, all connections encrypted, an
environment that was packed. The other side is an embedded system. Both take jobs in turn, of a function that keeps a
processor busy; it runs on them when nothing else does, and needs a core for each side's worker. Prints one JSON
document, in which the parts of the hosts stand, too.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Callable

import pyarrow as pa

import leman
from benchmarks.common import Target, figures, interleaved, options_of, report, say, scratch
from benchmarks.leman_side import running as embedded
from tests.cluster.cluster import WORKERS, running
from tests.cluster.work import meet

_ROWS, _FRAGMENTS = 200_000, 20
#: What a row costs at the least.
_ROW_SECONDS = 0.00015


def _where(x: int) -> str:
    """Say on which host a row was computed, having kept its processor busy."""
    import os
    import time

    until = time.thread_time() + _ROW_SECONDS
    while time.thread_time() < until:
        pass
    return os.uname().nodename


class Side:
    """One of the two."""

    def __init__(self, db: leman.Database, rows: int, fragments: int) -> None:
        self._db, self._rows, self._fragments = db, rows, fragments
        self.seconds: list[float] = []
        self.hosts: Counter[str] = Counter()

    def run(self, repetition: int) -> None:
        """Time one job, from the call to its end as the caller sees it; the first one warms up."""
        rows = pa.table({"x": pa.array(range(self._rows), pa.int64())})
        table = self._db.create_table(f"t{repetition}", rows, max_rows_per_file=self._rows // self._fragments)
        table.add_columns({"host": leman.udf(data_type=pa.string(), name="where", version=str(repetition))(_where)})
        begin = time.perf_counter()
        table.backfill("host", progress=False)
        seconds = time.perf_counter() - begin
        if repetition:
            self.seconds.append(seconds)
            self.hosts.update(table.to_arrow(columns=["host"])["host"].to_pylist())


def main() -> None:
    options = options_of(__doc__ or "", rows=_ROWS, fragments=_FRAGMENTS, repetitions=3)
    with scratch(options) as folder, running(folder, cores=1) as cluster, embedded(folder / "lake") as caller:
        say("both run; the hosts unpack the environment")
        meet(cluster, "first")
        with cluster.connect("lake") as db:
            hosts, process = (Side(d, options.rows, options.fragments) for d in (db, caller.sdk))
            turns: list[Callable[[int], None]] = [hosts.run, process.run]
            interleaved(options.repetitions, *turns)
    least = min(hosts.hosts[name] for name in WORKERS) / hosts.hosts.total()
    ratio = statistics.median(hosts.seconds) / statistics.median(process.seconds)
    report(
        "against_one_process",
        options,
        [
            Target("two hosts of one core / one process of two ≤ 1.15", ratio, 1.15),
            Target("rows of each host ≥ 45 %", least, 0.45, at_least=True),
        ],
        two_hosts={"seconds": figures(hosts.seconds), "rows": dict(hosts.hosts)},
        one_process={"seconds": figures(process.seconds)},
    )


if __name__ == "__main__":
    main()
