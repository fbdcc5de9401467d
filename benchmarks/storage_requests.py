"""What jobs ask of an object store: requests of a job with nothing to do, of one more fragment, of many.

Prints one JSON document: for each job how many requests there were, how many of them had to wait for one another, and
what they were about. The store is `gofakes3`, as for `benchmarks.storage_latency`, behind a proxy that counts, and
waits LATENCY_MS (50) for each request; `--fragments` says how many the many are.
"""

from __future__ import annotations

import os
import re
import sys
import time
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa

import leman
from benchmarks.common import CORES, Options, Target, options_of, report, scratch
from benchmarks.delaying_proxy import DelayingProxy, Request
from benchmarks.leman_side import Caller, running
from benchmarks.storage_latency import BUCKET, access, object_store

_ROWS = 100
_KINDS = re.compile(r"/_leman/(jobs|errors|udfs)|/(_versions|_transactions|_checkpoints|_committed|data|_indices)\b")


def plus(x: int) -> int:
    """Add one."""
    return x + 1


class Counted:
    """A database in the store, and the proxy in front of that."""

    def __init__(self, caller: Caller, proxy: DelayingProxy) -> None:
        self._proxy = proxy
        service = caller.service
        self._db = leman.connect(
            f"s3://{BUCKET}/{uuid.uuid4().hex[:8]}", endpoint=service["executor"], token=service["token"], direct=False
        )
        self._function = leman.udf(data_type=pa.int64(), name="plus", version="1")(plus)

    def table(self, fragments: int) -> leman.Table:
        """A table with a column that nothing has computed."""
        rows = pa.table({"x": pa.array(range(_ROWS * fragments), pa.int64())})
        table = self._db.create_table(f"t{uuid.uuid4().hex[:8]}", rows, max_rows_per_file=_ROWS)
        table.add_columns({"y": self._function})
        return table

    def job(self, table: leman.Table) -> dict[str, Any]:
        """Run a backfill, and tell what it asked."""
        before, begin = self._proxy.answered(), time.perf_counter()
        table.backfill("y", concurrency=CORES, progress=False)
        seconds = time.perf_counter() - begin
        asked = self._proxy.log[before : self._proxy.answered()]
        return {
            "seconds": round(seconds, 3),
            "requests": len(asked),
            "in_sequence": in_sequence(asked),
            "by_kind": dict(Counter(kind_of(request) for request in asked).most_common()),
        }

    def all(self, many: int) -> dict[str, Any]:
        """Count each of the jobs."""
        self.job(self.table(1))
        table = self.table(1)
        first = self.job(table)
        nothing = self.job(table)
        table.add(pa.table({"x": pa.array(range(_ROWS), pa.int64())}))
        return {
            "first_fragment": first,
            "nothing_to_do": nothing,
            "one_more_fragment": self.job(table),
            f"fragments_{many}": self.job(self.table(many)),
        }


def kind_of(request: Request) -> str:
    """Return the method and what it is about."""
    found = _KINDS.search(request.path)
    about = next((part for part in found.groups() if part), "") if found else "listing" if request.query else "other"
    return f"{request.method} {about}"


def in_sequence(asked: list[Request]) -> int:
    """Return the most requests of which each began when the one before had ended."""
    count, ended = 0, 0.0
    for request in sorted(asked, key=lambda request: request.ended):
        if request.begun >= ended:
            count, ended = count + 1, request.ended
    return count


def main() -> None:
    options = options_of(__doc__ or "", rows=0, fragments=64, repetitions=1)
    latency = float(os.environ.get("LATENCY_MS", "50")) / 1000
    with scratch(options) as folder, object_store() as port, DelayingProxy(port) as proxy:
        environment = access(proxy.port)
        with running(Path(folder / "lake"), **environment) as caller:
            sides: dict[str, Any] = {}
            for delay in (0.0, latency):
                proxy.delay_seconds = delay
                sides[f"at_{delay * 1000:g}_ms"] = Counted(caller, proxy).all(options.fragments)
                sys.stderr.write(f"{delay * 1000:g} ms: {sides}\n")
    report("storage_requests", options, targets_of(sides, options), **sides)


def targets_of(sides: dict[str, Any], options: Options) -> list[Target]:
    """Return what the jobs are to keep to."""
    far = sides[next(reversed(sides))]
    many = far[f"fragments_{options.fragments}"]["requests"] / options.fragments
    return [
        Target("requests of a job with nothing to do ≤ 5", far["nothing_to_do"]["requests"], 5),
        Target("requests of one more fragment ≤ 16", far["one_more_fragment"]["requests"], 16),
        Target("requests of each of many fragments ≤ 5", many, 5),
    ]


if __name__ == "__main__":
    main()
