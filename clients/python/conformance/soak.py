"""`python -m conformance.soak FILE`: works with services that restart again and again, by what `leman` offers.

See "Restarts" in tests/conformance/cases/README.md.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa

import leman
from leman.v1 import info_pb2


class Soak:
    """Rounds of work, each over another service."""

    def __init__(self, told: dict[str, Any]) -> None:
        self._rows = told["rows"]
        self.databases = [
            leman.connect(told["database"], endpoint, token=told["token"], direct=False)
            for endpoint in told["endpoints"]
        ]
        self.rounds = 0

    def work(self, stop: threading.Event) -> None:
        """Do round after round, until it is asked to stop."""
        while True:
            try:
                say({"round": self._round()})
            except BaseException as error:  # noqa: BLE001 - the harness reports any error
                say({"failed": f"round {self.rounds}: {error!r}"})
                os._exit(1)
            self.rounds += 1
            if stop.is_set():
                return

    def call(self) -> None:
        """Use each connection."""
        for database in self.databases:
            database.stubs.info.GetInfo(info_pb2.GetInfoRequest())

    def _round(self) -> dict[str, Any]:
        """Append rows, have columns of them computed, by one job that is made in the usual way and by one that is asked
        for twice, cancel a third job, watch all three, list them, and read all rows."""
        database = self.databases[self.rounds % len(self.databases)]
        lines, endless = database.open_table("lines"), database.open_table("endless")
        first = self.rounds * self._rows
        lines.add(pa.table({"id": pa.array(range(first, first + self._rows), pa.int64())}))
        labels = {"round": str(self.rounds)}
        usual = lines.backfill_async("a", labels=labels).job_id
        asked = f"twice-{self.rounds}"
        twice, again = (lines.backfill_async("b", labels=labels, request_id=asked).job_id for _ in range(2))
        cancelled = endless.backfill_async("c", labels=labels).job_id
        jobs = {"usual": usual, "twice": twice, "cancelled": cancelled}
        with ThreadPoolExecutor(len(jobs)) as threads:
            watched = list(threads.map(lambda name: _watched(database, name, jobs[name]), jobs))
        watched[1]["again"] = again
        listed = [job.job_id for job in database.jobs(limit=None, labels=labels)]
        return {"number": self.rounds, "jobs": watched, "listed": listed, "sums": _sums(lines)}


def _watched(database: leman.Database, name: str, job_id: str) -> dict[str, Any]:
    """Watch a job to its end, cancel it once it runs where it is to be, and watch it again."""
    future = database.job_future(job_id)
    cancel = future.cancel if name == "cancelled" else lambda: None
    first, second = _watch(future, cancel), _watch(future, lambda: None)
    ended = future.job()
    return {
        "name": name,
        "job": job_id,
        "state": ended.state,
        "attempt": ended.attempt,
        "first": first,
        "second": second,
    }


def _watch(future: leman.JobFuture, when_running: Callable[[], object]) -> dict[str, Any]:
    found: dict[str, Any] = {"sequences": [], "events": [], "missing": False}
    ran = False
    for update in future.updates():
        found["sequences"].append(update.sequence)
        found["events"] += [event.sequence for event in update.events]
        found["missing"] |= update.events_missing
        found["end"] = update.job.state
        if update.job.state is leman.JobState.RUNNING and not ran:
            ran = True
            when_running()
    return found


def _sums(table: leman.Table) -> dict[str, int]:
    """Read all rows, and add up each column."""
    found = dict.fromkeys(("rows", "id", "a", "b"), 0)
    for batch in table.to_batches(["id", "a", "b"]):
        found["rows"] += batch.num_rows
        for name in batch.schema.names:
            found[name] += sum(batch.column(name).drop_null().to_pylist())
    return found


def say(what: dict[str, Any]) -> None:
    """Write a line."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def _obey(soak: Soak, lines: Iterator[str]) -> None:
    """Do what the lines say, until they end."""
    stop, working = threading.Event(), threading.Thread()
    for line in lines:
        if line.strip() == "work":
            stop.clear()
            working = threading.Thread(target=soak.work, args=(stop,))
            working.start()
        elif line.strip() == "rest":
            stop.set()
            if working.ident is not None:
                working.join()
            soak.call()
            say({"resting": {"threads": threading.active_count()}})
        else:
            raise ValueError(f"it is not known what {line!r} means")


def main(path: str) -> int:
    """Work until standard input ends."""
    before = threading.active_count()
    soak = Soak(json.loads(Path(path).read_text()))
    _obey(soak, sys.stdin)
    for database in soak.databases:
        database.close()
    say({"closed": {"threads": threading.active_count() - before}})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
