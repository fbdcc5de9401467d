"""Gives a column another function: its values are stale from then on, and the next backfill computes them.

Prints:
    [3, 4]
    UDF_CHANGED
    [2, 2]
"""

import sys

import leman


@leman.udf
def letters(text: str) -> int:
    return len(text)


@leman.udf
def distinct_letters(text: str) -> int:
    return len(set(text))


db = leman.connect(sys.argv[1])
table = db.create_table("terms", {"text": ["aab", "abab"]}, mode="overwrite")
table.add_columns({"n": letters})
table.backfill("n")
print(table.to_arrow()["n"].to_pylist())
table.alter_columns({"n": distinct_letters})
print(*(count.reason for count in table.plan_backfill("n").reasons))
table.backfill("n")
print(table.to_arrow()["n"].to_pylist())
