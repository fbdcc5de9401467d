"""What is known of a source's rows without reading their values: which there are, where they lie, when they changed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from leman_core.model.row_address import fragments_of, offsets_of
from leman_core.model.view_rows import NO_IDS, Ids


@dataclass(frozen=True, slots=True, eq=False)
class RowFacts:
    """Live rows, in no certain order: row id, address, and the version in which the row was updated last.

    Compaction keeps the latter; whatever changes a row's values, or its fragment's files, moves it.
    """

    ids: Ids
    addresses: Ids
    updated: Ids

    @property
    def fragment_ids(self) -> Ids:
        return fragments_of(self.addresses)

    @property
    def offsets(self) -> Ids:
        return offsets_of(self.addresses)

    def __len__(self) -> int:
        return len(self.ids)

    def by_id(self) -> RowFacts:
        """Return the same rows sorted by id."""
        if not len(self) or bool((self.ids[1:] > self.ids[:-1]).all()):
            return self
        order = np.argsort(self.ids, kind="stable")
        return self.at(order)

    def between(self, low: int, high: int) -> RowFacts:
        """Return those with ids in [low, high)."""
        return self.at((self.ids >= low) & (self.ids < high))

    def at(self, chosen: npt.NDArray[np.int64] | npt.NDArray[np.bool_]) -> RowFacts:
        """Return some of the rows."""
        return RowFacts(self.ids[chosen], self.addresses[chosen], self.updated[chosen])


NO_ROWS = RowFacts(NO_IDS, NO_IDS, NO_IDS)
