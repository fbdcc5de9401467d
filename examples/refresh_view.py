"""Refreshes a view after its source changed: only what changed is computed.

Prints:
    the source as it is: full, 100 calls of the function
    rows appended: incremental, 5 calls of the function
    nothing: no_op, 0 calls of the function
"""

import sys

import leman


@leman.udf
def half(x: int) -> float:
    return x / 2


db = leman.connect(sys.argv[1])
if "halves" in db.table_names():
    db.drop_view("halves")
source = db.create_table("wholes", {"x": list(range(100))}, mode="overwrite")
view = source.search(None).add_column("half", half).create_materialized_view(conn=db, view_name="halves")
for change in ("the source as it is", "rows appended", "nothing"):
    if change == "rows appended":
        source.add({"x": list(range(100, 105))})
    done = view.refresh()
    print(f"{change}: {done.mode}, {done.rows_evaluated} calls of the function")
