"""CreatePlan of tables with 1,000, 10,000 and 100,000 fragments, from the call to the last message; and a backfill with
nothing to do at 10,000. With `--fragments 1000000` also of a million, all missing and all current.

Cases: every fragment missing; all current; nine tenths current and of each other one half in a checkpoint
(`tenth_keys`) or in a partial column file (`tenth_partial`); and of every fragment half in a checkpoint (`keys`).
`peak_mb` is the largest resident size of the planner's process during the call. The other side is what any program has
to do first: open the table and walk its manifest. `--fragments` leaves out larger tables.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import lance
import psutil

from benchmarks import wide_table
from benchmarks.common import Document, Options, Target, figures, interleaved, options_of, report, say, scratch
from benchmarks.leman_side import Caller, running
from benchmarks.wide_table import COLUMN, Layout
from leman_core.wire.convert_plans import tasks_from_bytes
from leman_internal.v1 import planning_pb2, planning_pb2_grpc

SIZES = (1_000, 10_000, 100_000, 1_000_000)
CASES = {
    "missing": Layout(),
    "reused": Layout(current=1.0),
    "tenth_keys": Layout(current=0.9, keyed=True),
    "tenth_partial": Layout(current=0.9, partial=True),
    "keys": Layout(keyed=True),
}
#: The cases of the largest size.
LARGEST_CASES = ("missing", "reused")
#: Seconds and MB of the planner's process, by number of fragments.
_LIMITS = {100_000: (1.0, 512), 1_000_000: (10.0, 2048)}


@dataclass(frozen=True, slots=True)
class Look:
    """One plan. `cpu_seconds`: of the planner's process."""

    seconds: float
    cpu_seconds: float
    peak_mb: float
    tasks: int


class Planner:
    """The planner's process of a running system."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._stub = planning_pb2_grpc.PlanningServiceStub(caller.channel("planner"))
        self._process = psutil.Process(caller.processes()["planner"])

    def plan(self, table: str) -> Look:
        """Raises what the call raises."""
        spec = self._caller.spec(table, COLUMN)
        request = planning_pb2.CreatePlanRequest(spec=spec, reads_batches=True)
        self._forget_peak()
        before = self._cpu()
        begin = time.perf_counter()
        messages = self._stub.CreatePlan(request, metadata=self._caller.metadata)
        batches = [message.task_batch for message in messages if message.task_batch]
        seconds = time.perf_counter() - begin
        return Look(seconds, self._cpu() - before, self._peak_mb(), len(tasks_from_bytes(batches)))

    def _cpu(self) -> float:
        times = self._process.cpu_times()
        return float(times.user + times.system)

    def _forget_peak(self) -> None:
        Path(f"/proc/{self._process.pid}/clear_refs").write_text("5")

    def _peak_mb(self) -> float:
        lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def cases_of(fragments: int) -> dict[str, Layout]:
    """Return the cases of one size."""
    return {case: layout for case, layout in CASES.items() if fragments < SIZES[-1] or case in LARGEST_CASES}


def walk(uri: str) -> float:
    """Seconds to open a table and look at every fragment's files."""
    begin = time.perf_counter()
    files = [f.path for fragment in lance.dataset(uri).get_fragments() for f in fragment.metadata.files]
    if not files:
        raise RuntimeError(f"{uri} has no files")
    return time.perf_counter() - begin


def measure(caller: Caller, fragments: int, repetitions: int) -> Document:
    """All cases of one size, in turn, and the walk over one of the tables."""
    planner = Planner(caller)
    cases = cases_of(fragments)
    looks: dict[str, list[Look]] = {case: [] for case in cases}
    walks: list[float] = []
    for case, layout in cases.items():
        wide_table.make(caller, f"{case}_{fragments}", fragments, layout)
    say(f"{fragments} fragments: tables made")

    def side(case: str) -> Callable[[int], None]:
        def plan(repetition: int) -> None:
            look = planner.plan(f"{case}_{fragments}")
            if repetition:
                looks[case].append(look)

        return plan

    def walked(repetition: int) -> None:
        seconds = walk(caller.uri(f"missing_{fragments}"))
        if repetition:
            walks.append(seconds)

    interleaved(repetitions, *(side(case) for case in cases), walked)
    return {**{case: _document(looks[case]) for case in cases}, "manifest_walk": figures(walks)}


def nothing_to_do(caller: Caller, fragments: int, repetitions: int) -> Document:
    """CreateJob of a column that is complete."""
    seconds = [caller.run(f"reused_{fragments}", COLUMN).seconds for _ in range(repetitions + 1)]
    return figures(seconds[1:])


def _document(looks: list[Look]) -> Document:
    return {
        "seconds": figures([look.seconds for look in looks]),
        "planner_cpu_seconds": figures([look.cpu_seconds for look in looks]),
        "peak_mb": max(look.peak_mb for look in looks),
        "tasks": looks[0].tasks,
    }


def targets_of(documents: dict[int, Document], idle: dict[int, Document]) -> list[Target]:
    """The promises, for the sizes that were measured."""
    targets = []
    for fragments in [size for size in _LIMITS if size in documents]:
        seconds, megabytes = _LIMITS[fragments]
        for case in cases_of(fragments):
            found, what = documents[fragments][case], f"{case}: {fragments:,} fragments"
            targets.append(Target(f"{what} ≤ {seconds:g} s", found["seconds"]["median"], seconds))
            targets.append(Target(f"{what} ≤ {megabytes} MB", found["peak_mb"], megabytes))
    if SIZES[1] in idle:
        targets.append(Target("nothing to do at 10,000 fragments ≤ 0.5 s", idle[SIZES[1]]["median"], 0.5))
    return targets


def run(options: Options) -> tuple[dict[int, Document], dict[int, Document]]:
    """(plans, backfills with nothing to do), by number of fragments."""
    plans: dict[int, Document] = {}
    idle: dict[int, Document] = {}
    with scratch(options) as folder, running(folder / "lake") as caller:
        for fragments in [size for size in SIZES if size <= options.fragments]:
            plans[fragments] = measure(caller, fragments, options.repetitions)
            idle[fragments] = nothing_to_do(caller, fragments, options.repetitions)
    return plans, idle


def main() -> None:
    options = options_of(__doc__ or "", rows=wide_table.ROWS, fragments=SIZES[-2])
    plans, idle = run(options)
    report(
        "plan_time",
        options,
        targets_of(plans, idle),
        create_plan={str(fragments): document for fragments, document in plans.items()},
        nothing_to_do={str(fragments): {"seconds": document} for fragments, document in idle.items()},
    )


if __name__ == "__main__":
    main()
