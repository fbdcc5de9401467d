"""What compactions did, as the table's history tells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from leman_core.model.table import Fragment


@dataclass(frozen=True, slots=True)
class Rewrite:
    """One group of fragments of one compaction."""

    #: The version of the table in which the old fragments can be read.
    before: int
    old: tuple[Fragment, ...]
    new: tuple[Fragment, ...]

    def place_of(self, file: str) -> tuple[Fragment, int]:
        """Return the new fragment that had a file when it was made, and how many rows the new ones before it have."""
        at = next(i for i, new in enumerate(self.new) if any(f.path == file for f in new.files))
        return self.new[at], sum(new.physical_rows for new in self.new[:at])


@dataclass(frozen=True, slots=True)
class CompactionHistory:
    """Where files come from. A file that is in neither collection was written by no compaction."""

    #: By name of the file that was made.
    rewrites: Mapping[str, Rewrite] = field(default_factory=dict)
    #: Files that are older than what is left of the history, or than what was looked at.
    lost: frozenset[str] = frozenset()
