"""The same 10,000 rows appended to sources of one and of ten million rows, then a refresh of a view with one scalar
function: from CreateJob to DONE. The time must not grow with the table."""

import pyarrow as pa

import leman
from benchmarks.common import Target, figures, options_of, report, say, scratch
from benchmarks.leman_side import Run, running
from benchmarks.practical_limit import double, even, make_table
from benchmarks.view_side import KEPT, append_rows, refresh

_APPENDED = 10_000


def main() -> None:
    options = options_of(__doc__ or "", rows=1_000_000)
    runs: dict[str, list[Run]] = {"small": [], "large": []}
    function = leman.udf(data_type=pa.int64(), name="double", version="v1")(double)
    with scratch(options) as folder, running(folder / "lake") as caller:
        for name, rows in (("small", options.rows), ("large", 10 * options.rows)):
            make_table(caller.uri(name), even(rows, options.fragments))
            query = caller.sdk.open_table(name).search(None).where(KEPT).select(["x"]).add_column("y", function)
            caller.sdk.create_materialized_view(f"view_{name}", query)
            refresh(caller, f"view_{name}")
        for repetition in range(options.repetitions + 1):
            for name, measured in runs.items():
                append_rows(caller.uri(name), _APPENDED)
                run = refresh(caller, f"view_{name}")
                if repetition:
                    measured.append(run)
            say(f"repetition {repetition} of {options.repetitions}")
    small, large = (figures([run.seconds for run in runs[name]]) for name in ("small", "large"))
    evaluated = {run.job.refresh_result.rows_evaluated for name in runs for run in runs[name]}
    targets = [
        Target("≤ 0.35 s on the small table", small["median"], 0.35),
        Target("≤ 0.35 s on the large table", large["median"], 0.35),
        Target("large ≤ 1.2 × small", large["median"], 1.2 * small["median"]),
        Target("rows evaluated = those appended that match", max(evaluated), _APPENDED // 2),
    ]
    report("view_append", options, targets, small={"seconds": small}, large={"seconds": large})


if __name__ == "__main__":
    main()
