"""What a small job takes beside its rows: a function of one row (a million rows) and one of batches (ten million), each
as a version of a function that is new, and as one whose processes have computed another column before.

Plain processes, which have done the same work before, take turns with both. `--pause` seconds pass before each job: in
a quarter of a second after a job the system gets ready for the next one. `--rows` is for the function of one row; the
other gets ten times as many.
"""

from __future__ import annotations

import argparse
import functools
import time

from benchmarks.common import CORES, Document, Options, Target, figures, interleaved, medians, report, scratch
from benchmarks.leman_side import Run, running
from benchmarks.practical_limit import SCALAR, VECTORISED, Filled, PlainPool, Workload, discard, even, make_table

_MORE_ROWS = {SCALAR.name: 1, VECTORISED.name: 10}
_TARGET_SECONDS = 0.08
_KINDS = {"new_version": "", "known_version": "v1"}


def _measure(workload: Workload, rows: int, options: Options, pause: float) -> Document:
    runs: dict[str, list[Run]] = {kind: [] for kind in _KINDS}
    filled: list[Filled] = []
    with scratch(options) as folder:
        sizes, plain_uri = even(rows, options.fragments), str(folder / "plain.lance")
        make_table(plain_uri, sizes)
        with running(folder / "lake") as caller, PlainPool(workload, plain_uri, CORES) as pool:
            make_table(caller.uri("t"), sizes)

            def leman(kind: str, repetition: int) -> None:
                column = f"{kind}{repetition}"
                caller.add_column("t", column, workload, _KINDS[kind])
                time.sleep(pause)
                run = caller.run("t", column)
                discard(caller.uri("t"), column)
                if repetition:
                    runs[kind].append(run)

            def plain(repetition: int) -> None:
                column = f"y{repetition}"
                pool.add_column(column)
                result = pool.fill(column)
                discard(plain_uri, column)
                if repetition:
                    filled.append(result)

            interleaved(options.repetitions, *(functools.partial(leman, kind) for kind in _KINDS), plain)
    limit = figures([one.seconds for one in filled])
    sides: Document = {"rows": rows, "plain": limit}
    for kind, of_kind in runs.items():
        seconds = figures([run.seconds for run in of_kind])
        sides[kind] = {
            "seconds": seconds,
            "beside_plain": seconds["median"] - limit["median"],
            "best_beside_plain": seconds["min"] - limit["min"],
            "phases": medians([run.phases for run in of_kind]),
        }
    return sides


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=SCALAR.rows)
    parser.add_argument("--fragments", type=int, default=SCALAR.fragments)
    parser.add_argument("--repetitions", type=int, default=9)
    parser.add_argument("--folder", default="", help="where the tables are made")
    parser.add_argument("--pause", type=float, default=1.0)
    given = vars(parser.parse_args())
    pause = given.pop("pause")
    options = Options(**given)
    sides: Document = {}
    targets: list[Target] = []
    for workload in (SCALAR, VECTORISED):
        side = sides[workload.name] = _measure(workload, options.rows * _MORE_ROWS[workload.name], options, pause)
        for kind in _KINDS:
            measured = side[kind]["seconds"]["median"]
            rule = f"{workload.name}, {kind.replace('_', ' ')}: Leman ≤ P + {_TARGET_SECONDS} s"
            targets.append(Target(rule, measured, side["plain"]["median"] + _TARGET_SECONDS))
    report("small_jobs", options, targets, pause=pause, **sides)


if __name__ == "__main__":
    main()
