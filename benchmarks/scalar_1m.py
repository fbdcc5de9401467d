"""A function of one row, a million rows, 16 fragments."""

from benchmarks.against_limit import beside_limit
from benchmarks.practical_limit import SCALAR

if __name__ == "__main__":
    beside_limit("scalar_1m", SCALAR, __doc__ or "")
