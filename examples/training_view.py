"""A view to train from: rows that fit, shuffled, with columns of its own, read batch by batch, and kept up to date.

Prints:
    2,000 numbers in the table, * in the view
    epoch 1: * batches of at most 256
    500 numbers more, 10 corrected: * rows added, * computed again
    nothing changed: 0 rows
    the model: * % of the primes are found
"""

import sys
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

import leman


@leman.udf(data_type=pa.list_(pa.float32(), 12))
def features(n: int) -> list[float]:
    """Whether small primes divide a number."""
    return [float(n % p == 0) for p in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)]


@leman.udf
def is_prime(n: int) -> bool:
    return n > 1 and all(n % d for d in range(2, int(n**0.5) + 1))


def numbers(first: int, last: int) -> pa.Table:
    return pa.table(
        {"n": pa.array(range(first, last), pa.int64()), "usable": [i % 10 != 0 for i in range(first, last)]}
    )


def batches(view: leman.View) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """What a training loop takes: inputs and labels, 256 rows at a time."""
    for batch in view.to_batches(["features", "prime"], batch_size=256):
        inputs = batch["features"].flatten().to_numpy().reshape(-1, 12)
        yield inputs, batch["prime"].to_numpy(zero_copy_only=False)


db = leman.connect(sys.argv[1])
if "training" in db.table_names():
    db.drop_view("training")
table = db.create_table("numbers", numbers(100, 2_100), mode="overwrite")
query = table.search(None).where("usable").select(["n"]).add_column("features", features)
view = query.add_column("prime", is_prime).shuffle(seed=1).create_materialized_view(conn=db, view_name="training")
view.refresh()
print(f"{table.count_rows():,} numbers in the table, {view.count_rows():,} in the view")
print(f"epoch 1: {sum(1 for _ in batches(view))} batches of at most 256")

table.add(numbers(2_100, 2_600))
table.update("n < 110", values_sql={"n": "n + 3000"})
result = view.refresh()
print(f"500 numbers more, 10 corrected: {result.rows_added} rows added, {result.rows_recomputed} computed again")
print(f"nothing changed: {view.refresh().rows_added} rows")

none = hits = primes = 0
for inputs, labels in batches(view):  # the plainest model there is: a number that no small prime divides
    found = inputs.sum(axis=1) == none
    hits, primes = hits + int((found & labels).sum()), primes + int(labels.sum())
print(f"the model: {100 * hits // primes} % of the primes are found")
