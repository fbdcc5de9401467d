"""A remote function over a million rows, compared with the same as a vectorised Python function in the workers.

`--server` is the command that starts a function server with a function `double` (int64 to int64); `--port 0` is
added, and it prints `{"port": …}`. By itself it is the example in Python.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import lance
import pyarrow as pa
import pyarrow.compute as pc

import leman
from benchmarks.common import Options, Target, figures, interleaved, report, scratch
from benchmarks.leman_side import Run, running

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = f"{sys.executable} {ROOT / 'clients' / 'python' / 'examples' / 'function_server.py'}"
MOST_TIMES = 2.0


@leman.udf(data_type=pa.int64(), version="1", input_columns=["x"])
def double(batch: pa.RecordBatch) -> pa.Array:
    return pc.multiply(batch.column(0), 2)


@contextlib.contextmanager
def served(command: str) -> Iterator[str]:
    """The address of a function server, which ends with the block."""
    process = subprocess.Popen([*shlex.split(command), "--port", "0"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield f"grpc://127.0.0.1:{json.loads(process.stdout.readline())['port']}"
    finally:
        process.terminate()
        process.wait(30)
        process.stdout.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--fragments", type=int, default=16)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--folder", default="")
    parser.add_argument("--server", default=EXAMPLE)
    given = parser.parse_args()
    options = Options(given.rows, given.fragments, given.repetitions, given.folder)
    remote: list[Run] = []
    local: list[Run] = []
    with scratch(options) as folder, served(given.server) as address, running(folder / "lake") as system:
        rows = pa.table({"x": pa.array(range(options.rows), pa.int64())})
        lance.write_dataset(
            rows,
            f"{system.database}/t.lance",
            max_rows_per_file=-(-options.rows // options.fragments),
            enable_stable_row_ids=True,
        )
        table = system.sdk.open_table("t")
        known = system.sdk.register_remote("remote_double", function="double", addresses=[address])

        def side(name: str, repetition: int, runs: list[Run]) -> None:
            column = f"{name}_{repetition}"
            function = (f"{known.name}@{known.version}", ["x"]) if name == "remote" else double
            table.add_columns({column: function})
            run = system.run("t", column)
            if repetition:
                runs.append(run)

        interleaved(
            options.repetitions,
            lambda repetition: side("remote", repetition, remote),
            lambda repetition: side("local", repetition, local),
        )
        check = table.to_arrow(["x", "remote_0"])
        assert check["remote_0"].equals(pc.multiply(check["x"], 2))
    seconds = {name: figures([run.seconds for run in runs]) for name, runs in (("remote", remote), ("python", local))}
    times = seconds["remote"]["median"] / seconds["python"]["median"]
    report(
        "remote_functions",
        options,
        [Target(f"a remote function takes at most {MOST_TIMES:g} times a vectorised one in Python", times, MOST_TIMES)],
        server=given.server.rpartition("/")[2],
        seconds=seconds,
        breakdown={"remote": remote[-1].breakdown, "python": local[-1].breakdown},
    )


if __name__ == "__main__":
    main()
