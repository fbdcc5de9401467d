"""The functions of the stored database. Their code must not change: its version is part of every stored value.

Each value carries the time at which it was computed, so a value that is computed again differs from the stored one.
"""

from __future__ import annotations

import os
import time

import pyarrow as pa

import leman

#: While this file exists, `answer` takes so long that its job can be killed between two checkpoints.
SLOW = "/tmp/leman-upgrade-slow"


@leman.udf(data_type=pa.string())
def stamp(text: str) -> str:
    """Return the text and the time."""
    return f"{text}@{time.time_ns()}"


@leman.udf(data_type=pa.string())
def chained(stamped: str) -> str:
    """Return another stamp of a stamp."""
    return f"{stamped}@{time.time_ns()}"


@leman.udf(data_type=pa.string(), error_handling=leman.ErrorHandlingConfig(on_error=[leman.Skip(ValueError)]))
def grade(text: str) -> str:
    """Return a stamp, and fail on every text that ends in 7."""
    if text.endswith("7"):
        raise ValueError(f"no grade for {text}")
    return f"{text}@{time.time_ns()}"


@leman.udf(data_type=pa.string())
def answer(question: str) -> str:
    """Return a stamp, slowly while the database is made."""
    if os.path.exists("/tmp/leman-upgrade-slow"):  # noqa: PTH110 - the code is part of a stored version
        time.sleep(0.1)
    return f"{question}@{time.time_ns()}"
