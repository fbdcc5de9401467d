"""What compactions did, as the table's history tells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from core.domain.table import Fragment


@dataclass(frozen=True, slots=True)
class Rewrite:
    """One group of one compaction. `before`: the version of the table in which the old fragments can be read."""

    before: int
    old: tuple[Fragment, ...]
    new: tuple[Fragment, ...]


@dataclass(frozen=True, slots=True)
class Trail:
    """Where files come from. `rewrites` by name of the file that was made; `lost`: files that are older than what is
    left of the history, or than what was looked at. A file that is in neither was written by no compaction."""

    rewrites: Mapping[str, Rewrite] = field(default_factory=dict)
    lost: frozenset[str] = frozenset()
