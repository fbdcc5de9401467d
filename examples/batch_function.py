"""Computes a column with a function of whole batches: Arrow arrays in, an Arrow array out.

Prints:
    [5.0, 13.0]
"""

import sys

import pyarrow as pa
import pyarrow.compute as pc

import leman


@leman.udf(data_type=pa.float64())
def length(x: pa.DoubleArray, y: pa.DoubleArray) -> pa.Array:
    return pc.sqrt(pc.add(pc.multiply(x, x), pc.multiply(y, y)))


db = leman.connect(sys.argv[1])
table = db.create_table("points", {"x": [3.0, 5.0], "y": [4.0, 12.0]}, mode="overwrite")
table.add_columns({"length": length})
table.backfill("length")
print(table.to_arrow()["length"].to_pylist())
