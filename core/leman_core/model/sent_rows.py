"""The rows that a request stood for: how many, and digests of their columns and values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SentRows:
    """Rows as they were sent. Two of the same text are the same rows, in whichever batches they came."""

    rows: int
    #: Tells other names or types of columns apart.
    columns: str
    #: Tells other values apart, and another order of rows.
    values: str

    def __str__(self) -> str:
        return f"{self.rows}:{self.columns}:{self.values}"

    @classmethod
    def parse(cls, text: str) -> SentRows:
        """Return what `str` gave.

        Raises:
            ValueError: it is another text.
        """
        rows, columns, values = text.split(":")
        return cls(int(rows), columns, values)

    def difference(self, now: SentRows) -> str:
        """Say what is other about other rows than these, which came first."""
        if self.rows != now.rows:
            return f"{self.rows} rows came with it first, now {now.rows}"
        if self.columns != now.columns:
            return f"the {self.rows} rows that came with it first had other columns, or other types"
        return f"the {self.rows} rows that came with it first had other values, or another order"
