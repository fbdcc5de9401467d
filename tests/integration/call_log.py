"""Functions that write down what they are called with."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

import leman


class CallLog:
    """A file that a UDF appends its inputs to. Appends of a few bytes are atomic."""

    def __init__(self, folder: Path, name: str = "seen"):
        self.path = folder / f"{name}.txt"

    def seen(self) -> list[int]:
        """All inputs, in the order of the calls."""
        return [int(line) for line in self.path.read_text().split()] if self.path.exists() else []

    def clear(self) -> None:
        """Forgets what was seen."""
        self.path.unlink(missing_ok=True)

    def double(self, *, seconds: float = 0.0, version: str | None = None, **options: object) -> leman.UDF:
        """x → 2x, taking its time."""
        path = str(self.path)

        def double(x: int) -> int:
            import os
            import time

            handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            os.write(handle, f"{x}\n".encode())
            os.close(handle)
            if seconds:
                time.sleep(seconds)
            return 2 * x

        return leman.udf(data_type=pa.int64(), name=f"double_{self.path.stem}", version=version, **options)(double)


def numbers(rows: int, start: int = 0) -> pa.Table:
    """A column `x` of consecutive integers."""
    return pa.table({"x": pa.array(range(start, start + rows), pa.int64())})


def values(table: leman.Table, column: str) -> dict[int, object]:
    """x → value."""
    data = table.to_arrow(columns=["x", column])
    return dict(zip(data["x"].to_pylist(), data[column].to_pylist(), strict=True))
