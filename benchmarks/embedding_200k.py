"""384 floats for each of 200,000 rows, 16 fragments: 307 MB to write."""

from benchmarks.against_limit import beside_limit
from benchmarks.practical_limit import EMBEDDING

if __name__ == "__main__":
    beside_limit("embedding_200k", EMBEDDING, __doc__ or "")
