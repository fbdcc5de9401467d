"""Have Lance start its threads before they are needed."""

from __future__ import annotations

import lance
import pyarrow as pa


def start_threads() -> None:
    """Write a row to a table in memory and read it: the first use of Lance in a process costs tens of milliseconds.

    The next one costs fewer. Processes that are forked afterwards must not use Lance.
    """
    lance.write_dataset(pa.table({"x": [0]}), "memory://").to_table()
