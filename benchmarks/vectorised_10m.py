"""A function of a batch, ten million rows, 16 fragments."""

from benchmarks.against_limit import beside_limit
from benchmarks.practical_limit import VECTORISED

if __name__ == "__main__":
    beside_limit("vectorised_10m", VECTORISED, __doc__ or "")
