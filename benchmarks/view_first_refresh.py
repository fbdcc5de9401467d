"""First refresh of a view of a million rows, half of them kept, with one scalar function: from CreateJob to DONE.

The other side: plain processes that filter, compute and write the same rows, and commit once.
"""

import shutil

import pyarrow as pa

import leman
from benchmarks.common import CORES, Target, figures, interleaved, medians, options_of, report, scratch
from benchmarks.leman_side import Run, running
from benchmarks.practical_limit import double, even, make_table
from benchmarks.view_side import KEPT, PlainView, refresh


def main() -> None:
    options = options_of(__doc__ or "", rows=1_000_000)
    runs: list[Run] = []
    plain: list[float] = []
    with scratch(options) as folder, running(folder / "lake") as caller, PlainView(CORES) as pool:
        uri = caller.uri("t")
        make_table(uri, even(options.rows, options.fragments))
        table = caller.sdk.open_table("t")

        def one(repetition: int) -> None:
            function = leman.udf(data_type=pa.int64(), name="double", version=f"v{repetition}")(double)
            query = table.search(None).where(KEPT).select(["x"]).add_column("y", function)
            caller.sdk.create_materialized_view(f"v{repetition}", query)
            run = refresh(caller, f"v{repetition}")
            if repetition:
                runs.append(run)

        def other(repetition: int) -> None:
            target = str(folder / f"plain{repetition}.lance")
            seconds = pool.make(uri, target)
            shutil.rmtree(target)
            if repetition:
                plain.append(seconds)

        interleaved(options.repetitions, one, other)
    seconds, limit = figures([run.seconds for run in runs]), figures(plain)
    wanted = options.rows - options.rows // 2
    targets = [
        Target("Leman ≤ P + 0.4 s", seconds["median"], limit["median"] + 0.4),
        Target("rows in the view", runs[-1].job.refresh_result.rows_added, wanted, at_least=True),
    ]
    side = {"seconds": seconds, "summed_over_workers": medians([run.breakdown for run in runs])}
    report("view_first_refresh", options, targets, leman=side, plain={"seconds": limit})


if __name__ == "__main__":
    main()
