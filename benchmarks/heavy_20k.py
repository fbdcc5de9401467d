"""A function of a millisecond a row, 20,000 rows, 8 fragments: how much of the cores' time goes into the function."""

from benchmarks.against_limit import compare
from benchmarks.common import CORES, Target, options_of, report
from benchmarks.practical_limit import HEAVY


def main() -> None:
    options = options_of(__doc__ or "", rows=HEAVY.rows, fragments=HEAVY.fragments)
    done = compare(HEAVY, options)
    ideal = done.udf_cpu_seconds / CORES
    target = Target("wall / (UDF CPU / cores) ≤ 1.15", done.leman_seconds / ideal, 1.15)
    plain = {"ideal_seconds": ideal, "plain_over_ideal": done.plain_seconds / ideal}
    report("heavy_20k", options, [target], **done.document(), **plain)


if __name__ == "__main__":
    main()
