"""The three cheap workloads with ten times their rows, in the same number of fragments: Leman and plain processes.

`--rows` is that of the scalar workload; the others have as many times more or fewer as in their own scripts. The
folder needs about 10 GB.
"""

from dataclasses import replace

from benchmarks.against_limit import compare
from benchmarks.common import Document, Target, options_of, report, say
from benchmarks.practical_limit import EMBEDDING, SCALAR, VECTORISED

_TIMES = 10


def main() -> None:
    options = options_of(__doc__ or "", rows=_TIMES * SCALAR.rows, fragments=SCALAR.fragments, repetitions=3)
    targets: list[Target] = []
    sides: Document = {}
    for workload in (SCALAR, VECTORISED, EMBEDDING):
        rows = options.rows * workload.rows // SCALAR.rows
        say(f"{workload.name}: {rows:,} rows")
        done = compare(workload, replace(options, rows=rows))
        limit = 1.2 * done.plain_seconds + 0.25
        targets.append(Target(f"{workload.name}, {rows:,} rows: Leman ≤ 1.2 × P + 0.25 s", done.leman_seconds, limit))
        sides[workload.name] = {"rows": rows, **done.document()}
    report("ten_times", options, targets, **sides)


if __name__ == "__main__":
    main()
