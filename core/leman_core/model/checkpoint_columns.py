"""The checkpoints of many fragments in columns, as far as a plan reuses them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from leman_core.model.fragment_columns import starts as starts_of
from leman_core.model.object_columns import Numbers
from leman_core.model.ranges import RowRange


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CheckpointColumns:
    """Ranges that checkpoints settle: one at least of each fragment, in order, none of them within those before it.

    Example: fragments of 100 rows, one with the ranges 0-40 and 30-60, one with 50-100, are `rows` [100, 100], `first`
    [0, 2, 3], `starts` [0, 30, 50] and `ends` [40, 60, 100].
    """

    #: In the files of each fragment.
    rows: Numbers
    #: Where the ranges of each fragment begin in `starts` and `ends`, and the number of all.
    first: Numbers
    starts: Numbers
    ends: Numbers

    @property
    def rows_stored(self) -> Numbers:
        """Of each fragment; a row counts once for each of its checkpoints."""
        return self._summed(self.ends - self.starts)

    @property
    def rows_missing(self) -> Numbers:
        """Of each fragment."""
        before = np.concatenate([np.zeros(1, np.int64), self.ends])[:-1]
        before[self.first[:-1]] = 0
        return self.rows - self._summed(self.ends - np.maximum(self.starts, before))

    def _summed(self, values: Numbers) -> Numbers:
        return np.add.reduceat(values, self.first[:-1]) if len(values) else values

    def __len__(self) -> int:
        return len(self.rows)

    def ranges(self, begin: int, end: int) -> Iterator[tuple[list[RowRange], tuple[RowRange, ...]]]:
        """Yield the ranges and those that are missing of the fragments at places from `begin` to before `end`."""
        first = self.first[begin : end + 1].tolist()
        bounds = zip(*(ends[first[0] : first[-1]].tolist() for ends in (self.starts, self.ends)), strict=True)
        covered = itertools.starmap(RowRange, bounds)
        for rows, (start, stop) in zip(self.rows[begin:end].tolist(), itertools.pairwise(first), strict=True):
            settled = list(itertools.islice(covered, stop - start))
            yield settled, tuple(_between(settled, rows))

    def part(self, begin: int, end: int) -> CheckpointColumns:
        """Return those of the fragments at places from `begin` to before `end`."""
        first = self.first[begin : end + 1]
        return CheckpointColumns(
            rows=self.rows[begin:end],
            first=first - first[0],
            starts=self.starts[first[0] : first[-1]],
            ends=self.ends[first[0] : first[-1]],
        )

    def some(self, places: Numbers) -> CheckpointColumns:
        """Return those of the fragments at some places."""
        counts = np.diff(self.first)[places]
        first = starts_of(counts)
        each = np.arange(first[-1]) + np.repeat(self.first[places] - first[:-1], counts)
        return CheckpointColumns(rows=self.rows[places], first=first, starts=self.starts[each], ends=self.ends[each])

    @classmethod
    def joined(cls, parts: Sequence[CheckpointColumns]) -> CheckpointColumns:
        """Return those of several parts as one; one at least."""
        return cls(
            rows=np.concatenate([part.rows for part in parts]),
            first=starts_of(np.concatenate([np.diff(part.first) for part in parts])),
            starts=np.concatenate([part.starts for part in parts]),
            ends=np.concatenate([part.ends for part in parts]),
        )


def _between(settled: Sequence[RowRange], rows: int) -> Iterator[RowRange]:
    """Yield what ranges in order leave open of so many rows."""
    at = 0
    for start, end in settled:
        if start > at:
            yield RowRange(at, start)
        at = end
    if at < rows:
        yield RowRange(at, rows)
