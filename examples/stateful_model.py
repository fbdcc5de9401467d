"""Computes vectors with a class: it is built once in each worker, so a model is loaded once.

Prints:
    [[3.0, 1.0, 0.0], [1.0, 1.0, 1.0]]
"""

import sys
from typing import Any

import pyarrow as pa

import leman


@leman.udf(data_type=pa.list_(pa.float32(), 3))
class Embed:
    """How often each letter occurs."""

    def __init__(self, letters: str = "abc") -> None:
        self.letters = letters  # here a model would be loaded

    def __call__(self, text: str) -> list[float]:
        return [float(text.count(letter)) for letter in self.letters]


db = leman.connect(sys.argv[1])
table = db.create_table("words", {"text": ["banana", "cab"]}, mode="overwrite")
columns: dict[str, Any] = {"vector": Embed(letters="abc")}
table.add_columns(columns)
table.backfill("vector")
print(table.to_arrow()["vector"].to_pylist())
