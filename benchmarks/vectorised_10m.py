"""A function of a batch, ten million rows, 16 fragments."""

from benchmarks.against_limit import beside_limit
from benchmarks.common import options_of
from benchmarks.practical_limit import VECTORISED


def main() -> None:
    beside_limit(
        "vectorised_10m", VECTORISED, options_of(__doc__ or "", rows=VECTORISED.rows, fragments=VECTORISED.fragments)
    )


if __name__ == "__main__":
    main()
