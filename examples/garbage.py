"""Prints what is stored next to a table and what for, and deletes what nothing can need any more.

Prints:
    record: its rows are in the table: kept while young
    1 files
"""

import sys

import leman


@leman.udf
def negative(x: int) -> int:
    return -x


db = leman.connect(sys.argv[1])
table = db.create_table("leftovers", {"x": [1, 2, 3]}, mode="overwrite")
table.add_columns({"y": negative})
table.backfill("y")
for file in table.checkpoints():
    print(f"{file.kind}: {file.why}")
print(table.collect_checkpoints(older_than="0").files_removed, "files")
