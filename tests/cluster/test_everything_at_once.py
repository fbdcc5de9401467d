"""Restarts, cut links and a store that is far, busy and loses answers, while callers backfill, refresh and write."""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import leman
from benchmarks.delaying_proxy import DelayingProxy, Harm
from leman import JobState
from tests.cluster.cluster import Cluster
from tests.cluster.pairs import Fault, Pairs
from tests.faults.lake import CallLog, wait_for
from tests.faults.rolling_load import SPARK_SECONDS, Functions, Program, Writer, goes_on, refreshes, sql_backfills
from tests.integration.call_log import numbers, values
from tests.object_store.options import FAR, FAR_SECONDS
from tests.object_store.store_server import BUCKET

#: How long it goes on.
SECONDS = float(os.environ.get("LEMAN_LOAD_SECONDS", "0"))
NEXT_ROUND_SECONDS = 300.0
#: Of a job of `functions`, and what one costs at the least.
ROWS, ROW_SECONDS = 800, 0.02
#: Jobs in a round of each program.
JOBS = {"sql_backfills": 2, "refreshes": 1, "writes": 0, "led_jobs": 2, "functions": 2}

pytestmark = [
    pytest.mark.spark,
    pytest.mark.long,
    pytest.mark.faults,
    pytest.mark.timeout(SECONDS + 1800),
    pytest.mark.skipif(not SECONDS, reason="takes as many seconds as LEMAN_LOAD_SECONDS says, and three minutes"),
]


@pytest.fixture(scope="module")
def pairs(cluster: Cluster, store: DelayingProxy) -> Iterator[Pairs]:
    """Two of each service."""
    made = Pairs(cluster)
    made.start()
    yield made
    made.alone()


def functions(db: leman.Database, number: int) -> None:
    """A column of a Python function, and a view with one, on Spark's workers."""
    name = f"p{number}"
    table = db.create_table(name, numbers(ROWS), max_rows_per_file=ROWS // 4)
    table.add_columns({"y": CallLog(Path("/data"), name).double(seconds=ROW_SECONDS)})
    future = table.backfill_async("y", task_size=ROWS // 20)
    assert db.job(future.result(timeout=SPARK_SECONDS)).state is JobState.DONE
    assert values(table, "y") == {x: 2 * x for x in range(ROWS)}
    double = CallLog(Path("/data"), f"{name}_view").double(seconds=ROW_SECONDS)
    view = db.create_materialized_view(f"{name}_view", table.search().select(["x"]).add_column("y", double))
    assert db.job(view.refresh_async().result(timeout=SPARK_SECONDS)).state is JobState.DONE
    assert values(view, "y") == {x: 2 * x for x in range(ROWS)}


def test_no_call_fails_no_job_and_no_value_is_lost(cluster: Cluster, store: DelayingProxy, pairs: Pairs) -> None:
    """Each fault is over, and each program is through another round, before the next one comes."""

    def connect() -> leman.Database:
        return cluster.connect("all", root=f"s3://{BUCKET}")

    led = Functions(Path("/data"), connect)
    turns = [sql_backfills, refreshes, Writer().writes, led.led_jobs, functions]
    struck: list[tuple[Fault, float]] = []
    store.harm, store.delay_seconds = FAR, FAR_SECONDS
    try:
        began = time.monotonic()
        programs = [Program(connect(), turn) for turn in turns]
        goes_on(programs, NEXT_ROUND_SECONDS, rounds=1)
        for fault in pairs.faults():
            wait_for_calls(cluster)
            struck.append((fault, suffered(fault, programs)))
            if time.monotonic() - began >= SECONDS:
                break
        for program in programs:
            program.end(NEXT_ROUND_SECONDS)
        lasted = time.monotonic() - began
    finally:
        store.harm, store.delay_seconds = Harm(), 0.0
    led.check_led()
    with connect() as db:
        told = figures(lasted, struck, programs, store) | checked(db, cluster, programs)
    told |= {"jobs_led": led.led, "jobs_that_ended_before_their_caller_got_through": led.ended_before}
    sys.stdout.write(json.dumps(told, indent=2) + "\n")


def wait_for_calls(cluster: Cluster) -> None:
    """Until functions compute, so that there is a job for the fault to break."""
    before = called(cluster)
    wait_for(lambda: called(cluster) > before, seconds=NEXT_ROUND_SECONDS)


def called(cluster: Cluster) -> int:
    """Bytes that functions wrote down."""
    return sum(file.stat().st_size for file in cluster.data.glob("*.txt"))


def suffered(fault: Fault, programs: list[Program]) -> float:
    """Let it happen; return the seconds until it was over and each program had ended a round."""
    began = time.monotonic()
    sys.stdout.write(f"{time.strftime('%X')} {fault}\n")
    sys.stdout.flush()
    fault.strike()
    fault.heal()
    goes_on(programs, NEXT_ROUND_SECONDS, rounds=1)
    return time.monotonic() - began


def figures(
    lasted: float, struck: list[tuple[Fault, float]], programs: list[Program], store: DelayingProxy
) -> dict[str, Any]:
    """What happened."""
    return {
        "seconds": round(lasted),
        "faults": dict(Counter(str(fault) for fault, _ in struck)),
        "longest_until_all_went_on": {
            kind: round(max(seconds for fault, seconds in struck if fault.kind == kind), 1)
            for kind in sorted({fault.kind for fault, _ in struck})
        },
        "requests": {"answered": len(store.log), **store.struck},
        "rounds": {
            program.name: {
                "number": program.rounds,
                "median_seconds": round(statistics.median(program.lasted), 1),
                "longest_seconds": round(program.longest, 1),
            }
            for program in programs
        },
    }


def checked(db: leman.Database, cluster: Cluster, programs: list[Program]) -> dict[str, Any]:
    """Look at all jobs and all values again; return how many there are."""
    jobs = db.jobs(limit=None)
    expected = sum(JOBS[program.name] * program.rounds for program in programs)
    states = Counter(job.state.name for job in jobs)
    assert len({job.job_id for job in jobs}) == len(jobs) == expected, "a job was lost, or there twice"
    cancelled = next(program.rounds for program in programs if program.name == "led_jobs")
    assert states["DONE"] == expected - states["CANCELLED"], states
    assert states["CANCELLED"] <= cancelled
    logs = [CallLog(cluster.data, file.stem) for file in cluster.data.glob("*.txt")]
    return {
        "jobs": dict(states),
        "jobs_taken_over": sum(job.attempt > 1 for job in jobs),
        "rows_of_functions": {
            "called": sum(len(log.seen()) for log in logs),
            "called_again": sum(log.again() for log in logs),
        },
        "values_checked": sum(values_of(db, name) for name in db.table_names()),
        "sound": db.verify().sound,
    }


def values_of(db: leman.Database, name: str) -> int:
    """Return how many values a table has, which are what they should be."""
    rows = db.open_table(name).to_arrow()
    if "y" not in rows.column_names:
        return 0
    pairs = list(zip(rows["x"].to_pylist(), rows["y"].to_pylist(), strict=True))
    assert len({x for x, _ in pairs}) == len(pairs)
    factor, may_miss = 3 if name == "v" else 2, name.endswith("_cancelled")
    wrong = [(x, y) for x, y in pairs if y != factor * x and not (may_miss and y is None)]
    assert wrong == [], name
    return len(pairs)
