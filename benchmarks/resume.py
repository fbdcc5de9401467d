"""kill -9 of the executor when half of the rows are computed: how many rows are computed twice.

The function appends the rows it saw to a file of its own. The supervisor starts the executor again, and that one takes
the job over. The other side is plain processes, which keep nothing before their one commit: at the same moment they
would lose all that was computed.
"""

from __future__ import annotations

import os
import signal
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import grpc
import pyarrow as pa

import leman
from benchmarks.common import CORES, Options, Target, figures, options_of, report, say, scratch
from benchmarks.leman_side import TERMINAL, Caller, running
from benchmarks.practical_limit import HEAVY, even, heavy, make_table
from leman.v1 import jobs_pb2

INTERVAL_SECONDS = 1.0
#: Rows are handed to the function for about a tenth of a second at a time; a checkpoint is due between two slices.
SLICE_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Recovery:
    """One kill. `seconds`: from the kill to the end of the job."""

    rows_at_kill: int
    rows_redone: int
    rows_allowed: int
    seconds: float


def noting(path: str) -> Callable[[int], int]:
    """`heavy`, noting each row that it is given. Appends of a few bytes are atomic."""

    def noted(x: int) -> int:
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(handle, f"{x}\n".encode())
        os.close(handle)
        return heavy(x)

    return noted


def kill_at_half(caller: Caller, seen_rows: Path, rows: int) -> Recovery:
    """Runs a job on table `t`, kills the executor in the middle and waits for the end."""
    column = f"y{uuid.uuid4().hex[:8]}"
    make = leman.udf(data_type=pa.int64(), name="noted", version=column, input_columns=["x"])
    caller.sdk.open_table("t").add_columns({column: make(noting(str(seen_rows)))})
    job = caller.begin(caller.spec("t", column))
    seconds_per_row = 0.0
    for message in caller.watch(job.job_id):
        progress = message.job.progress
        if progress.rows_evaluated >= rows // 2:
            seconds_per_row = progress.udf_seconds / progress.rows_evaluated
            break
    os.kill(caller.processes()["executor"], signal.SIGKILL)
    killed = time.perf_counter()
    rows_at_kill = len(seen_rows.read_text().split())
    _wait_for_end(caller, job.job_id)
    seen = seen_rows.read_text().split()
    if len(set(seen)) != rows:
        raise RuntimeError(f"{rows - len(set(seen))} rows were never computed")
    allowed = round(CORES * (INTERVAL_SECONDS + SLICE_SECONDS) / seconds_per_row)
    return Recovery(rows_at_kill, len(seen) - rows, allowed, time.perf_counter() - killed)


def _wait_for_end(caller: Caller, job_id: str) -> None:
    """Watches over the restart of the executor. Raises RuntimeError where the job does not end as DONE."""
    state = jobs_pb2.Job.STATE_RUNNING
    while state not in TERMINAL:
        try:
            for message in caller.watch(job_id):
                state = message.job.state
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE:
                raise
            time.sleep(0.05)
    if state != jobs_pb2.Job.STATE_DONE:
        raise RuntimeError(f"job {job_id} ended as {state}")


def measure(options: Options) -> list[Recovery]:
    """One kill for each repetition; no warm-up."""
    recoveries = []
    setting = {"LEMAN_EXECUTOR__CHECKPOINT_INTERVAL_SECONDS": str(INTERVAL_SECONDS)}
    with scratch(options) as folder, running(folder / "lake", **setting) as caller:
        make_table(caller.uri("t"), even(options.rows, options.fragments))
        for repetition in range(options.repetitions):
            recoveries.append(kill_at_half(caller, folder / f"seen{repetition}.txt", options.rows))
            say(f"repetition {repetition + 1} of {options.repetitions}: {recoveries[-1]}")
    return recoveries


def main() -> None:
    options = options_of(__doc__ or "", rows=HEAVY.rows, fragments=HEAVY.fragments)
    recoveries = measure(options)
    redone = figures([r.rows_redone for r in recoveries])
    allowed = figures([r.rows_allowed for r in recoveries])
    target = Target("rows redone ≤ one checkpoint interval per worker", redone["max"], allowed["min"])
    leman_side = {
        "rows_redone": redone,
        "rows_allowed": allowed,
        "seconds_from_kill_to_end": figures([r.seconds for r in recoveries]),
    }
    plain_side = {"rows_redone": figures([r.rows_at_kill for r in recoveries])}
    report(
        "resume",
        options,
        [target],
        checkpoint_interval_seconds=INTERVAL_SECONDS,
        leman=leman_side,
        plain_keeps_nothing=plain_side,
    )


if __name__ == "__main__":
    main()
