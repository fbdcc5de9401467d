"""384 floats for each of 200,000 rows, 16 fragments: 307 MB to write."""

from benchmarks.against_limit import beside_limit
from benchmarks.common import options_of
from benchmarks.practical_limit import EMBEDDING


def main() -> None:
    beside_limit(
        "embedding_200k", EMBEDDING, options_of(__doc__ or "", rows=EMBEDDING.rows, fragments=EMBEDDING.fragments)
    )


if __name__ == "__main__":
    main()
