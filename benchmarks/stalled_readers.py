"""Memory of the commit coordinator while readers of a table stall: over ReadRows, and over Arrow Flight.

Most rows of the table are small, and one in two hundred is of 5 MB: spread over the table, or one after the other. Each
reader takes the first message and then reads nothing. No other side.
"""

from __future__ import annotations

import contextlib
import json
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import lance
import psutil
import pyarrow as pa
import pyarrow.flight as fl

from benchmarks.common import Document, Target, options_of, report, say, scratch
from benchmarks.leman_side import Caller, running
from leman.v1 import catalog_pb2, tables_pb2, tables_pb2_grpc

_READERS = 20
_SMALL_BYTES, _WIDE_BYTES = 100, 5_000_000
_ONE_IN = 200
#: What a reader may hold: docs of `LEMAN_COMMIT__MAX_READS`.
_MOST_BYTES = 30_000_000
#: The memory is settled when it has not changed by a megabyte for this time.
_SETTLED_SECONDS, _WAIT_SECONDS = 2.0, 60.0
_SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])


def spread(row: int, rows: int) -> bool:
    """Whether a row is wide: each two hundredth."""
    del rows
    return row % _ONE_IN == 0


def together(row: int, rows: int) -> bool:
    """The same number of rows, one after the other, behind a few small ones."""
    return 100 <= row < 100 + rows // _ONE_IN


def _batches(rows: int, is_wide: Callable[[int, int], bool]) -> Iterator[pa.RecordBatch]:
    for at in range(0, rows, 100):
        ids = range(at, min(at + 100, rows))
        sizes = (_WIDE_BYTES if is_wide(row, rows) else _SMALL_BYTES for row in ids)
        texts = [random.Random(row).randbytes(size // 2).hex() for row, size in zip(ids, sizes, strict=True)]
        yield pa.record_batch([pa.array(ids, pa.int64()), pa.array(texts)], schema=_SCHEMA)


class _Memory:
    """The memory of a process: at the start, its largest growth, and where it settled."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self._status = Path(f"/proc/{pid}/status")
        self._before = self._now()
        Path(f"/proc/{pid}/clear_refs").write_text("5")  # the peak is counted from here on

    def _now(self) -> int:
        return int(self._process.memory_info().rss)

    def grown(self) -> Document:
        """What it grew by, once it is settled."""
        last, since, end = self._now(), time.monotonic(), time.monotonic() + _WAIT_SECONDS
        while time.monotonic() < min(end, since + _SETTLED_SECONDS):
            time.sleep(0.1)
            if abs(self._now() - last) > 1 << 20:
                last, since = self._now(), time.monotonic()
        peak = next(line for line in self._status.read_text().splitlines() if line.startswith("VmHWM"))
        return {"held_bytes": self._now() - self._before, "peak_bytes": 1024 * int(peak.split()[1]) - self._before}


@contextlib.contextmanager
def _over_grpc(caller: Caller, table: str) -> Iterator[None]:
    """A reader that has taken one message."""
    with grpc.insecure_channel(caller.service["commit_coordinator"]) as channel:
        ref = catalog_pb2.TableRef(database=caller.database, table=table)
        stub = tables_pb2_grpc.TableServiceStub(channel)
        call = stub.ReadRows(tables_pb2.ReadRowsRequest(table=ref), metadata=caller.metadata)
        next(call)
        yield
        call.cancel()


@contextlib.contextmanager
def _over_flight(caller: Caller, table: str) -> Iterator[None]:
    shown = fl.FlightCallOptions(headers=[(k.encode(), v.encode()) for k, v in caller.metadata])
    with fl.connect(f"grpc://{caller.service['commit_coordinator']}") as client:
        ticket = fl.Ticket(json.dumps({"table": {"database": caller.database, "table": table}}))
        reader = client.do_get(ticket, shown)
        reader.read_chunk()
        yield
        reader.cancel()


def main() -> None:
    options = options_of(__doc__ or "", rows=20_000, fragments=4, repetitions=1)
    cases: Document = {}
    with scratch(options) as folder, running(folder / "lake") as caller:
        pid = caller.processes()["commit_coordinator"]
        for layout in (spread, together):
            batches = pa.RecordBatchReader.from_batches(_SCHEMA, _batches(options.rows, layout))
            rows = -(-options.rows // options.fragments)
            lance.write_dataset(batches, caller.uri(layout.__name__), max_rows_per_file=rows)
            for way, stalled in (("grpc", _over_grpc), ("flight", _over_flight)):
                with stalled(caller, layout.__name__):  # what a first read takes is no reader's
                    pass
                memory = _Memory(pid)
                with contextlib.ExitStack() as readers:
                    for _ in range(_READERS):
                        readers.enter_context(stalled(caller, layout.__name__))
                    name = f"{layout.__name__}, {way}"
                    cases[name] = memory.grown()
                held, peak = cases[name]["held_bytes"] / 1e6, cases[name]["peak_bytes"] / 1e6
                say(f"{name}: {held:.0f} MB, {peak:.0f} at its peak")
    targets = [
        Target(f"{name}: bytes held for a reader", case["held_bytes"] / _READERS, _MOST_BYTES)
        for name, case in cases.items()
    ]
    table_bytes = options.rows // _ONE_IN * _WIDE_BYTES
    report("stalled_readers", options, targets, readers=_READERS, wide_bytes_in_table=table_bytes, cases=cases)


if __name__ == "__main__":
    main()
