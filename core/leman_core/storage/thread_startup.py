"""Lance in a process that has not used it yet: its threads are started before they are needed."""

from __future__ import annotations

import lance
import numpy as np
import pyarrow as pa


def start_threads() -> None:
    """Write a row to a table in memory and read it: the first use of Lance in a process costs tens of milliseconds.

    The next one costs fewer. Processes that are forked afterwards must not use Lance.
    """
    lance.write_dataset(pa.table({"x": [0]}), "memory://").to_table()


def small_table(uri: str, rows: int) -> int:
    """Write a table to practise with, of an int64 column `x` and an empty one `y`, and return its version."""
    dataset = lance.write_dataset(pa.table({"x": np.arange(rows, dtype=np.int64)}), uri)
    dataset.add_columns(pa.field("y", pa.int64()))
    return int(dataset.version)
