"""Units a second that one executor's work queue hands out and takes back, with 100 to 1,000,000 fragments open.

`units_per_second`: no service, no I/O: it is what the executor's event loop does between two messages of workers.
Fragments of 10,000 rows of a millisecond each, 1,000 workers; every unit comes back done but for its last tenth. The
other side is a queue that sorts all open fragments for each unit, at 10,000 of them.

`dispatched_per_second`: the same through the dispatcher, to workers that are connections over loopback and only
answer. They run in the same process, so that it pays for both ends. `memory_mb` is what a queue of so many fragments
adds to the process, its plan included. All seconds are those of the process's own time on processors.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections import deque

import msgspec
import psutil

from benchmarks.common import Document, Target, figures, interleaved, options_of, report
from leman_core.model.plan import CheckpointRef, FragmentTask, Reason, StagedFile
from leman_core.model.plan_columns import BATCH_TASKS, PlannedTasks, task_batch, whole_range
from leman_core.model.row_positions import RowRange, count_offsets, subtract_ranges
from leman_core.model.work import (
    FragmentResult,
    FragmentWork,
    InFlightRows,
    ProgressReport,
    Timings,
    UnitOutcome,
    WorkUnit,
)
from leman_executor.scheduling.dispatcher import Dispatcher, ExecutorEndpoint
from leman_executor.scheduling.work_queue import WorkQueue
from leman_executor.worker.worker_link import LENGTH_BYTES, Done, Hello, framed

_WORKERS = 1000
_CONNECTIONS = 64
_SECONDS_PER_ROW = 1e-3
_SECONDS = 2.0
_SORTED_FRAGMENTS = 10_000


def tasks_of(fragments: int, rows: int) -> PlannedTasks:
    """A plan with nothing computed."""
    missing = whole_range(rows)

    def task(at: int) -> FragmentTask:
        prefix, files = "udf-f_ver-1_col-c_where-", (f"{at:032x}.lance",)
        return FragmentTask(at, rows, 0, Reason.MISSING, "0" * 32, prefix, files, missing=missing)

    parts = (range(begin, min(begin + BATCH_TASKS, fragments)) for begin in range(0, fragments, BATCH_TASKS))
    return PlannedTasks(task_batch([task(at) for at in part]) for part in parts)


def outcome_of(unit: WorkUnit) -> UnitOutcome:
    """The unit is done, but for a tenth of its last fragment."""
    results = [_done(work) for work in unit.works]
    last = unit.works[-1]
    if last.ranges and last.ranges[-1].rows >= 10:
        end = last.ranges[-1]
        left = RowRange(end.end - end.rows // 10, end.end)
        refs = tuple(CheckpointRef(f"{unit.unit_id}-{r.start}", r) for r in subtract_ranges(last.ranges, [left]))
        results[-1] = FragmentResult(
            last.fragment_id, refs, (left,), rows_evaluated=count_offsets(last.ranges) - left.rows
        )
    rows = sum(result.rows_evaluated for result in results)
    return UnitOutcome(unit.unit_id, tuple(results), timings=Timings(udf=rows * _SECONDS_PER_ROW))


def _done(work: FragmentWork) -> FragmentResult:
    rows = count_offsets(work.ranges)
    if work.finish:
        staged = StagedFile(
            file="f.lance", size_bytes=1, digest="d", physical_rows=rows, rows_computed=rows, rows_failed=0
        )
        return FragmentResult(work.fragment_id, staged=staged, rows_evaluated=rows)
    refs = tuple(CheckpointRef(f"{work.fragment_id}-{r.start}", r) for r in work.ranges)
    return FragmentResult(work.fragment_id, refs, rows_evaluated=rows)


def rate(fragments: int, rows: int) -> float:
    """Units a second, taken and given back, with all workers at work."""
    work_queue = WorkQueue(tasks_of(fragments, rows), _WORKERS, seconds_per_row=_SECONDS_PER_ROW)
    out: deque[WorkUnit] = deque()
    back: list[UnitOutcome] = []
    units, spent = 0, 0.0
    while spent < _SECONDS and (out or not work_queue.empty):
        begin = time.process_time()
        while len(out) < _WORKERS and (unit := work_queue.take()) is not None:
            out.append(unit)
            units += 1
        spent += time.process_time() - begin
        back = [outcome_of(out.popleft()) for _ in range(max(1, len(out) // 2))]
        begin = time.process_time()
        for outcome in back:
            work_queue.note(outcome)
        spent += time.process_time() - begin
    return units / spent


class _Units:
    """The `UnitSource` of the dispatcher, for so many seconds."""

    def __init__(self, work_queue: WorkQueue) -> None:
        self._work_queue = work_queue
        self._until = time.process_time() + _SECONDS
        self.units = 0

    async def next_unit(self, _worker: str, *, heartbeats: bool) -> WorkUnit | None:  # noqa: ARG002
        if time.process_time() > self._until:
            return None
        self.units += 1
        return self._work_queue.take()

    def on_outcome(self, outcome: UnitOutcome) -> None:
        self._work_queue.note(outcome)

    def on_alive(self, unit: WorkUnit) -> None: ...

    def on_report(self, report: ProgressReport) -> None: ...

    def on_in_flight(self, unit: WorkUnit, in_flight: InFlightRows) -> None: ...

    def on_lost(self, unit: WorkUnit) -> None: ...


async def _work(address: ExecutorEndpoint) -> None:
    """A worker that does nothing with its units."""
    reader, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(framed(Hello(address.job_id, address.secret)))
    decoder = msgspec.json.Decoder(WorkUnit | None)
    await reader.readexactly(int.from_bytes(await reader.readexactly(LENGTH_BYTES), "big"))  # the context
    while True:
        length = int.from_bytes(await reader.readexactly(LENGTH_BYTES), "big")
        unit = decoder.decode(await reader.readexactly(length))
        if unit is None:
            break
        writer.write(framed(Done(outcome_of(unit))))
    writer.close()


async def dispatched(fragments: int, rows: int) -> float:
    """Units a second through the dispatcher, with some connections."""
    dispatcher = Dispatcher("127.0.0.1")
    await dispatcher.start()
    units = _Units(WorkQueue(tasks_of(fragments, rows), _WORKERS, seconds_per_row=_SECONDS_PER_ROW))
    address = dispatcher.open("job", units, None)
    begin = time.process_time()
    await asyncio.gather(*(_work(address) for _ in range(_CONNECTIONS)))
    seconds = time.process_time() - begin
    await dispatcher.close(address)
    await dispatcher.stop()
    return units.units / seconds


def memory_of(fragments: int, rows: int) -> float:
    """MB that a queue adds to the process."""
    gc.collect()
    before = psutil.Process().memory_info().rss
    work_queue = WorkQueue(tasks_of(fragments, rows), _WORKERS, seconds_per_row=_SECONDS_PER_ROW)
    out = [work_queue.take() for _ in range(_WORKERS)]
    after = psutil.Process().memory_info().rss
    return float(after - before) / (1 << 20) if out else 0.0


def sorted_rate(fragments: int, rows: int) -> float:
    """Units a second where all open fragments are sorted for each."""
    left = dict.fromkeys(range(fragments), rows)
    units, begin = 0, time.process_time()
    while time.process_time() - begin < _SECONDS:
        largest = sorted(left, key=lambda i: (-left[i], i))[0]
        left[largest] -= 1
        units += 1
    return units / (time.process_time() - begin)


def main() -> None:
    options = options_of(__doc__ or "", rows=10_000, fragments=1_000_000, repetitions=3)
    sizes = sorted({100, *(size for size in (10_000, 100_000) if size < options.fragments), options.fragments})
    megabytes = memory_of(options.fragments, options.rows)
    rates: dict[int, list[float]] = {fragments: [] for fragments in sizes}
    through: list[float] = []
    plain: list[float] = []

    def side(repetition: int) -> None:
        for fragments in sizes:
            found = rate(fragments, options.rows)
            if repetition:
                rates[fragments].append(found)

    def wired(repetition: int) -> None:
        found = asyncio.run(dispatched(options.fragments, options.rows))
        if repetition:
            through.append(found)

    def other(repetition: int) -> None:
        found = sorted_rate(min(_SORTED_FRAGMENTS, options.fragments), options.rows)
        if repetition:
            plain.append(found)

    interleaved(options.repetitions, side, wired, other)
    found: Document = {str(fragments): figures(rates[fragments]) for fragments in sizes}
    what = f"units/s at {options.fragments:,} fragments"
    targets = [
        Target(f"{what} ≥ 5000", found[str(options.fragments)]["median"], 5000, at_least=True),
        Target(f"{what}, dispatched ≥ 2000", figures(through)["median"], 2000, at_least=True),
    ]
    report(
        "work_queue_rate",
        options,
        targets,
        workers=_WORKERS,
        units_per_second=found,
        dispatched_per_second=figures(through),
        memory_mb=megabytes,
        sorting=figures(plain),
    )


if __name__ == "__main__":
    main()
