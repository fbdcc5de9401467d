"""A SQL column, `x * 2`, over a million rows in 16 fragments: from CreateJob to DONE.

The other side is Lance alone: one process that projects the expression and writes a column file for each fragment,
without a commit.
"""

import time
import uuid

import lance
import pyarrow as pa
from lance.file import LanceFileWriter

from benchmarks.common import Target, figures, interleaved, medians, options_of, report, scratch
from benchmarks.leman_side import Run, running
from benchmarks.practical_limit import even, make_table


def project_and_write(uri: str) -> float:
    """Seconds of the other side."""
    begin = time.perf_counter()
    for fragment in lance.dataset(uri).get_fragments():
        path = f"{uri}/data/{uuid.uuid4().hex}.lance"
        with LanceFileWriter(path, pa.schema([("y", pa.int64())])) as writer:
            for batch in fragment.scanner(columns={"y": "x * 2"}, batch_size=1 << 16).to_batches():
                writer.write_batch(batch)
    return time.perf_counter() - begin


def main() -> None:
    options = options_of(__doc__ or "", rows=1_000_000)
    runs: list[Run] = []
    alone: list[float] = []
    with scratch(options) as folder, running(folder / "lake") as caller:
        uri = caller.uri("t")
        make_table(uri, even(options.rows, options.fragments))

        def leman(repetition: int) -> None:
            column = f"y{repetition}"
            caller.sdk.open_table("t").add_columns({column: f"x * {repetition + 2}"})  # each a function of its own
            run = caller.run("t", column)
            if repetition:
                runs.append(run)

        def plain(repetition: int) -> None:
            seconds = project_and_write(uri)
            if repetition:
                alone.append(seconds)

        interleaved(options.repetitions, leman, plain)
    seconds, limit = figures([run.seconds for run in runs]), figures(alone)
    targets = [
        Target("Leman ≤ 5 × Lance alone", seconds["median"], 5 * limit["median"]),
        Target("Spark jobs = 0", sum(run.job.progress.spark_jobs for run in runs), 0),
    ]
    leman_side = {"seconds": seconds, "phases": medians([run.phases for run in runs])}
    report("sql_1m", options, targets, leman=leman_side, lance_alone={"seconds": limit})


if __name__ == "__main__":
    main()
