"""A backfill of a column that is complete, 16 fragments: from CreateJob to DONE.

The other side is what any program has to do to find that out: open the table and walk its manifest.
"""

import time

import lance

from benchmarks.common import Target, figures, interleaved, medians, options_of, report, scratch
from benchmarks.leman_side import Run, running
from benchmarks.practical_limit import SCALAR, even, make_table


def main() -> None:
    options = options_of(__doc__ or "", rows=SCALAR.rows, repetitions=20)
    runs: list[Run] = []
    walks: list[float] = []
    with scratch(options) as folder, running(folder / "lake") as caller:
        uri = caller.uri("t")
        make_table(uri, even(options.rows, options.fragments))
        caller.add_column("t", "y", SCALAR)
        caller.run("t", "y")
        version = lance.dataset(uri).version

        def leman(repetition: int) -> None:
            run = caller.run("t", "y")
            if repetition:
                runs.append(run)

        def walk(repetition: int) -> None:
            begin = time.perf_counter()
            files = [f.path for fragment in lance.dataset(uri).get_fragments() for f in fragment.metadata.files]
            if repetition and files:
                walks.append(time.perf_counter() - begin)

        interleaved(options.repetitions, leman, walk)
        versions_written = lance.dataset(uri).version - version
    seconds = figures([run.seconds for run in runs])
    targets = [
        Target("Leman ≤ 0.03 s", seconds["median"], 0.03),
        Target("Spark jobs = 0", sum(run.job.progress.spark_jobs for run in runs), 0),
        Target("rows read = 0", sum(run.job.progress.rows_evaluated for run in runs), 0),
        Target("table versions written = 0", versions_written, 0),
    ]
    leman_side = {"seconds": seconds, "phases": medians([run.phases for run in runs])}
    report("nothing_to_do", options, targets, leman=leman_side, manifest_walk={"seconds": figures(walks)})


if __name__ == "__main__":
    main()
