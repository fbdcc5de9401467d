"""Computes a part of a column first, and the rest later: no row is computed twice.

Prints:
    100 computed, 900 not
    900 of 1,000 rows to compute, 100 reused
    1000 computed, 0 not
"""

import sys

import leman


@leman.udf
def double(x: int) -> int:
    return 2 * x


db = leman.connect(sys.argv[1])
table = db.create_table("numbers", {"x": list(range(1000))}, mode="overwrite", max_rows_per_file=250)
table.add_columns({"y": double})
table.backfill("y", where="x < 100")
print("{0.computed} computed, {0.not_computed} not".format(table.row_states("y")))
print(str(table.plan_backfill("y")).splitlines()[2].strip())  # what would run, what is reused, why
table.backfill("y")
print("{0.computed} computed, {0.not_computed} not".format(table.row_states("y")))
