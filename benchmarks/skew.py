"""One fragment with nine tenths of the rows against even fragments, a function of a millisecond a row."""

from benchmarks.common import Target, figures, interleaved, medians, options_of, report, scratch
from benchmarks.leman_side import Run, running
from benchmarks.practical_limit import HEAVY, discard, even, make_table


def main() -> None:
    options = options_of(__doc__ or "", rows=HEAVY.rows, fragments=HEAVY.fragments, repetitions=5)
    large = options.rows * 9 // 10
    layouts = {
        "skewed": [large, *even(options.rows - large, options.fragments - 1)],
        "even": even(options.rows, options.fragments),
    }
    runs: dict[str, list[Run]] = {name: [] for name in layouts}
    with scratch(options) as folder, running(folder / "lake") as caller:
        for name, sizes in layouts.items():
            make_table(caller.uri(name), sizes)

        def side(name: str, repetition: int) -> None:
            column = f"y{repetition}"
            caller.add_column(name, column, HEAVY)
            run = caller.run(name, column)
            if repetition:
                runs[name].append(run)
            discard(caller.uri(name), column)

        interleaved(options.repetitions, lambda r: side("skewed", r), lambda r: side("even", r))
    seconds = {name: figures([run.seconds for run in runs[name]]) for name in layouts}
    ratio = seconds["skewed"]["median"] / seconds["even"]["median"]
    sides = {
        name: {"seconds": seconds[name], "summed_over_workers": medians([run.breakdown for run in runs[name]])}
        for name in layouts
    }
    report("skew", options, [Target("skewed / even ≤ 1.25", ratio, 1.25)], largest_fragment=large, **sides)


if __name__ == "__main__":
    main()
