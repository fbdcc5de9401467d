"""Computes a column with a SQL expression, without Spark.

Prints:
    ['ANN (15)', 'BOB (25)']
"""

import sys

import leman

db = leman.connect(sys.argv[1])
table = db.create_table("people", {"name": ["Ann", "Bob"], "age": [15, 25]}, mode="overwrite")
table.add_columns({"label": "concat(upper(name), ' (', cast(age as string), ')')"})
table.backfill("label")
print(table.to_arrow()["label"].to_pylist())
