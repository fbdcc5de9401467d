"""A table of 144 bytes a row read and written over Arrow Flight: by the services, and by `pyarrow.flight`'s own server.

Both keep the same rows in Lance tables on the same disk, and both are asked by the same stock client. What is put is
durable on both sides when the client hears so; Leman has checked it by then, noted its digest, and would know it again.
For comparison: `pyarrow.flight`'s server with all rows in memory, where nothing but the transport is measured.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pyarrow.flight as fl

from benchmarks.common import Target, figures, interleaved, options_of, report, scratch
from benchmarks.flight_side import BATCH_ROWS, MEMORY
from benchmarks.leman_side import Caller, running

_LEAST = 0.6
_VECTOR = 16


def rows_of(count: int) -> pa.Table:
    """Numbers, text and vectors that no compression makes much smaller."""
    random = np.random.default_rng(1)
    vectors = pa.array(random.random(count * _VECTOR, dtype=np.float32))
    return pa.table(
        {
            "id": np.arange(count, dtype=np.int64),
            **{f"f{i}": random.random(count) for i in range(6)},
            "s": pa.array([f"name-{i % 1000:08d}-{i}" for i in range(count)]),
            "v": pa.FixedSizeListArray.from_arrays(vectors, _VECTOR),
        }
    )


@contextlib.contextmanager
def pyarrows_server(folder: Path) -> Iterator[fl.FlightClient]:
    """A client of the other side, in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.flight_side", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            with fl.connect(f"grpc://127.0.0.1:{int(process.stdout.readline())}") as client:
                yield client
        finally:
            process.kill()


def reading(client: fl.FlightClient, ticket: fl.Ticket, expected: int, options: fl.FlightCallOptions) -> float:
    """Seconds to read all rows."""
    begin = time.perf_counter()
    found = sum(chunk.data.num_rows for chunk in client.do_get(ticket, options))
    seconds = time.perf_counter() - begin
    if found != expected:
        raise RuntimeError(f"{found} rows came, {expected} are there")
    return seconds


def putting(
    client: fl.FlightClient, about: fl.FlightDescriptor, rows: pa.Table, options: fl.FlightCallOptions
) -> float:
    """Seconds until the client has heard that all rows are there."""
    begin = time.perf_counter()
    writer, answers = client.do_put(about, rows.schema, options)
    writer.write_table(rows, max_chunksize=BATCH_ROWS)
    writer.done_writing()
    answers.read()
    writer.close()
    return time.perf_counter() - begin


class Sides:
    """Both servers, and what was measured, by side and direction."""

    def __init__(
        self, caller: Caller, own: fl.FlightClient, other: fl.FlightClient, folder: Path, rows: pa.Table
    ) -> None:
        self._caller = caller
        self._own = own
        self._other = other
        self._folder = folder
        self._rows = rows
        self._shown = fl.FlightCallOptions(headers=[(k.encode(), v.encode()) for k, v in caller.metadata])
        self.seconds: dict[str, list[float]] = {}

    def measured(self, name: str, side: Callable[[], float]) -> Callable[[int], None]:
        """A side as `interleaved` calls it."""

        def run(repetition: int) -> None:
            seconds = side()
            if repetition:
                self.seconds.setdefault(name, []).append(seconds)

        return run

    def leman_get(self) -> float:
        ticket = fl.Ticket(json.dumps({"table": {"database": self._caller.database, "table": "t"}}))
        return reading(self._own, ticket, self._rows.num_rows, self._shown)

    def pyarrow_get(self, name: str = "t") -> float:
        return reading(self._other, fl.Ticket(name), self._rows.num_rows, fl.FlightCallOptions())

    def leman_put(self) -> float:
        about = {"table": {"database": self._caller.database, "table": "put"}, "createTable": True}
        seconds = putting(self._own, fl.FlightDescriptor.for_command(json.dumps(about)), self._rows, self._shown)
        self._removed(Path(self._caller.uri("put")))
        return seconds

    def pyarrow_put(self, name: str = "put") -> float:
        seconds = putting(self._other, fl.FlightDescriptor.for_path(name), self._rows, fl.FlightCallOptions())
        if name != MEMORY:
            self._removed(self._folder / f"{name}.lance")
        return seconds

    def _removed(self, table: Path) -> None:
        found = lance.dataset(table).count_rows()
        if found != self._rows.num_rows:
            raise RuntimeError(f"{found} of {self._rows.num_rows} rows are in {table}")
        shutil.rmtree(table)


def main() -> None:
    options = options_of(__doc__ or "", rows=1_000_000, fragments=4)
    rows = rows_of(options.rows)
    with scratch(options) as folder, running(folder / "lake") as caller:
        for place in (caller.uri("t"), folder / "t.lance"):
            lance.write_dataset(rows, place, max_rows_per_file=-(-options.rows // options.fragments))
        with (
            pyarrows_server(folder) as other,
            fl.connect(f"grpc://{caller.service['commit_coordinator']}") as own,
        ):
            sides = Sides(caller, own, other, folder, rows)
            interleaved(
                options.repetitions,
                sides.measured("leman_get", sides.leman_get),
                sides.measured("pyarrow_get", sides.pyarrow_get),
                sides.measured("leman_put", sides.leman_put),
                sides.measured("pyarrow_put", sides.pyarrow_put),
                sides.measured("memory_get", lambda: sides.pyarrow_get(MEMORY)),
                sides.measured("memory_put", lambda: sides.pyarrow_put(MEMORY)),
            )
    rates = {name: figures([rows.nbytes / 1e6 / value for value in taken]) for name, taken in sides.seconds.items()}
    of = {name: rate["median"] for name, rate in rates.items()}
    targets = [
        Target("DoGet ≥ 0.6 × pyarrow.flight's own server", of["leman_get"] / of["pyarrow_get"], _LEAST, at_least=True),
        Target("DoPut ≥ 0.6 × pyarrow.flight's own server", of["leman_put"] / of["pyarrow_put"], _LEAST, at_least=True),
    ]
    report(
        "flight",
        options,
        targets,
        megabytes=rows.nbytes / 1e6,
        leman={"get_mb_per_second": rates["leman_get"], "put_mb_per_second": rates["leman_put"]},
        pyarrow={"get_mb_per_second": rates["pyarrow_get"], "put_mb_per_second": rates["pyarrow_put"]},
        pyarrow_in_memory={"get_mb_per_second": rates["memory_get"], "put_mb_per_second": rates["memory_put"]},
    )


if __name__ == "__main__":
    main()
