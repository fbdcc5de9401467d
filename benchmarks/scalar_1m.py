"""A function of one row, a million rows, 16 fragments."""

from benchmarks.against_limit import beside_limit
from benchmarks.common import options_of
from benchmarks.practical_limit import SCALAR


def main() -> None:
    beside_limit("scalar_1m", SCALAR, options_of(__doc__ or "", rows=SCALAR.rows, fragments=SCALAR.fragments))


if __name__ == "__main__":
    main()
