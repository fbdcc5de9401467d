"""Computes vectors with a class: it is built once in each worker, so a model is loaded once.

Prints:
    [[1.0, 0.0, 2.0], [0.0, 1.0, 0.0]]
"""

import sys

import pyarrow as pa

import leman


@leman.udf(data_type=pa.list_(pa.float32(), 3))
class Embed:
    def __init__(self, letters: str = "abc") -> None:
        self.letters = letters  # here a model would be loaded

    def __call__(self, text: str) -> list[float]:
        return [float(text.count(letter)) for letter in self.letters]


db = leman.connect(sys.argv[1])
table = db.create_table("words", {"text": ["cacao? no: cac", "bed"]}, mode="overwrite")
table.add_columns({"vector": Embed(letters="abc")})
table.backfill("vector")
print(table.to_arrow()["vector"].to_pylist())
