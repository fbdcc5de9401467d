"""Starts a backfill, does something else, and looks how far it is. The job outlives the program that started it.

Prints:
    DONE 2000
"""

import sys
import time

import leman


@leman.udf
def square(x: int) -> int:
    return x * x


db = leman.connect(sys.argv[1])
table = db.create_table("squares", {"x": list(range(2000))}, mode="overwrite", max_rows_per_file=100)
table.add_columns({"y": square})
future = table.backfill_async("y", concurrency=2)
while not future.done():
    progress = future.progress()
    print(f"{progress.rows_committed} of {progress.rows_total}", file=sys.stderr)
    time.sleep(0.2)
future.result()  # raises where the job failed; db.job_future(job_id) finds it again in another program
print(future.status().value, future.progress().rows_committed)
