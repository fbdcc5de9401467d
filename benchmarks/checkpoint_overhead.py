"""What checkpoints cost: adaptive ones, and such of a fixed size (min = max: a hundredth of a fragment), against an
interval so long that no time ever makes one due; for a dear and for a cheap function.

Two figures for each: the two systems' wall times compared, which is noisy, and the share of the workers' time that
went into checkpoints and fragment records, which is not. Even with a huge interval a unit that hands its fragment back
stores what it has, so the second figure is the one to trust. Only adaptive ones have a limit: who forces a size gets
it. `--rows` is for the heavy function; the vectorised one
gets 500 times as many.
"""

from __future__ import annotations

import functools
from pathlib import Path

from benchmarks.common import Document, Options, Target, figures, interleaved, medians, options_of, report, scratch
from benchmarks.leman_side import Caller, Run, running
from benchmarks.practical_limit import HEAVY, VECTORISED, Workload, discard, even, make_table
from leman.v1 import udf_pb2

_CHEAP_ROWS = 500
_FORCED = 100
_NEVER = {
    "LEMAN_EXECUTOR__CHECKPOINT_INTERVAL_SECONDS": "1e9",
    "LEMAN_EXECUTOR__CHECKPOINT_MAX_BYTES": str(1 << 40),
}


def main() -> None:
    options = options_of(__doc__ or "", rows=2 * HEAVY.rows, fragments=4)
    targets: list[Target] = []
    sides: Document = {}
    with (
        scratch(options) as folder,
        running(folder / "adaptive") as adaptive,
        running(folder / "never", **_NEVER) as never,
    ):
        for workload, rows, limit in ((HEAVY, options.rows, 0.01), (VECTORISED, options.rows * _CHEAP_ROWS, 0.10)):
            callers = {"adaptive": adaptive, "forced": adaptive, "never": never}
            sides[workload.name] = _measure(workload, rows, options, callers)
            for figure in ("extra_wall", "share_of_worker_time"):
                rule = f"{workload.name}: {figure.replace('_', ' ')} ≤ {limit:.0%}"
                targets.append(Target(rule, sides[workload.name]["adaptive"][figure], limit))
    report("checkpoint_overhead", options, targets, **sides)


def _measure(workload: Workload, rows: int, options: Options, callers: dict[str, Caller]) -> Document:
    runs: dict[str, list[Run]] = {name: [] for name in callers}
    stored: dict[str, list[int]] = {name: [] for name in callers}
    for caller in (callers["adaptive"], callers["never"]):
        make_table(caller.uri(workload.name), even(rows, options.fragments))
    size = max(1, rows // options.fragments // _FORCED)
    forced = udf_pb2.CheckpointBounds(min_checkpoint_size=size, max_checkpoint_size=size)

    def side(name: str, repetition: int) -> None:
        caller, column = callers[name], f"{name}{repetition}"
        before = _checkpoints(caller, workload.name)
        caller.add_column(workload.name, column, workload)
        run = caller.run(workload.name, column, **({"checkpoint": forced} if name == "forced" else {}))
        if repetition:
            runs[name].append(run)
            stored[name].append(_checkpoints(caller, workload.name) - before)
        discard(caller.uri(workload.name), column)

    interleaved(options.repetitions, *(functools.partial(side, name) for name in callers))
    seconds = {name: figures([run.seconds for run in runs[name]]) for name in callers}
    breakdowns = {name: medians([run.breakdown for run in runs[name]]) for name in callers}
    costs = {name: _cost(seconds[name], seconds["never"], breakdowns[name]) for name in ("adaptive", "forced")}
    return {
        "rows": rows,
        "forced_size": size,
        "seconds": seconds,
        "checkpoints_and_records": {name: figures(stored[name])["median"] for name in callers},
        "summed_over_workers": breakdowns,
        **costs,
    }


def _cost(with_checkpoints: Document, without: Document, breakdown: dict[str, float]) -> Document:
    busy = sum(seconds for name, seconds in breakdown.items() if name != "commit_seconds")
    return {
        "extra_wall": with_checkpoints["median"] / without["median"] - 1,
        "share_of_worker_time": breakdown["checkpoint_seconds"] / busy,
    }


def _checkpoints(caller: Caller, table: str) -> int:
    folder = Path(caller.uri(table), "_checkpoints")
    return sum(1 for _ in folder.iterdir()) if folder.exists() else 0


if __name__ == "__main__":
    main()
