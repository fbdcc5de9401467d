"""Rows that compaction moved without changing what a view reads, as the history of compactions tells.

`_row_last_updated_at_version` alone would not tell: it also moves when another column of the fragment is rewritten.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from core.domain.rewrites import Rewrite, Trail
from core.domain.table import Fragment
from core.errors import NotFound
from core.lance_io import rewrites
from core.lance_io.view_source import NO_ROWS, RowFacts, SourceRows
from core.view_rows import NO_IDS, Ids, Mask, contains


class Origins:
    """Looks from one version of a source back to fragments that `old` has too. Both tables are named by fragment id.

    `patched` says of a fragment, as `old` has it and as it was later, at which offsets the fields' values may differ;
    None: at any.
    """

    def __init__(
        self,
        uri: str,
        version: int,
        fields: Sequence[int],
        new: Mapping[int, Fragment],
        old: Mapping[int, Fragment],
        patched: Callable[[Fragment, Fragment], Ids | None],
    ) -> None:
        self._uri = uri
        self._version = version
        self._fields = tuple(fields)
        self._new = new
        self._old = old
        self._patched = patched
        self._read: dict[tuple[int, int], RowFacts] = {}
        self._found: dict[int, dict[int, Ids]] = {}
        self._trail = Trail()

    def only_moved(self, now: RowFacts, before: RowFacts) -> Mask:
        """For each of the rows, the same ones in both: did nothing but compaction move it from there to here?"""
        found = np.zeros(len(now), np.bool_)
        asked = {i: self._file(self._new[i]) for i in np.unique(now.fragment_ids).tolist() if i in self._new}
        self._follow({file for i, file in asked.items() if file and i not in self._found})
        for fragment_id in asked:
            here = np.flatnonzero(now.fragment_ids == fragment_id)
            for origin, ids in self._origins_of(fragment_id).items():
                came = here[before.fragment_ids[here] == origin]
                found[came] |= contains(ids, now.ids[came])
        return found

    def _origins_of(self, fragment_id: int) -> dict[int, Ids]:
        """As `_origins`, with sorted ids."""
        if fragment_id not in self._found:
            origins = self._origins(self._new[fragment_id])
            self._found[fragment_id] = {origin: np.sort(ids) for origin, ids in origins.items()}
        return self._found[fragment_id]

    def _follow(self, files: set[str]) -> None:
        """Learns where these files come from."""
        if not files:
            return
        most = rewrites.versions_to_look_at(len(self._new))
        try:
            trail = rewrites.trace(self._uri, self._version, files, self._further, most)
        except (OSError, ValueError):
            return
        self._trail = Trail({**self._trail.rewrites, **trail.rewrites}, self._trail.lost | trail.lost)

    def _further(self, fragment: Fragment) -> str:
        return "" if self._other_offsets(fragment) is not None else self._file(fragment)

    def _origins(self, fragment: Fragment) -> dict[int, Ids]:
        """By fragment of the old version: ids of the rows that came from it into this one."""
        rewrite = self._trail.rewrites.get(self._file(fragment))
        if rewrite is None or not self._is_as_made(rewrite, fragment):
            return {}
        found: dict[int, list[Ids]] = {}
        for old in rewrite.old:
            alive = self._alive(rewrite.before, old.fragment_id)
            other = self._other_offsets(old)
            if other is not None:
                found.setdefault(old.fragment_id, []).append(alive.ids[~contains(other, alive.offsets)])
                continue
            for origin, ids in self._origins(old).items():
                found.setdefault(origin, []).append(ids[np.isin(ids, alive.ids)])
        return {origin: np.concatenate(parts) for origin, parts in found.items()}

    def _is_as_made(self, rewrite: Rewrite, fragment: Fragment) -> bool:
        """Whether the fragment still has the files that the compaction gave it."""
        return any(self._same_files(made, fragment) for made in rewrite.new)

    def _other_offsets(self, fragment: Fragment) -> Ids | None:
        """Where the old version's fragment of this id has other values; None: anywhere, or there is none."""
        kept = self._old.get(fragment.fragment_id)
        if kept is None or kept.physical_rows != fragment.physical_rows:
            return None
        return NO_IDS if self._same_files(kept, fragment) else self._patched(kept, fragment)

    def _same_files(self, one: Fragment, other: Fragment) -> bool:
        same = all(one.file_of(i) == other.file_of(i) for i in self._fields)
        return same and one.physical_rows == other.physical_rows

    def _file(self, fragment: Fragment) -> str:
        """The one file that has all that is read; empty: there are several."""
        files = fragment.files_of(self._fields)
        return files[0] if len(files) == 1 else ""

    def _alive(self, version: int, fragment_id: int) -> RowFacts:
        key = (version, fragment_id)
        if key not in self._read:
            try:
                self._read[key] = SourceRows(self._uri, version).rows_of([fragment_id])
            except (NotFound, OSError):  # cleaned away: nothing is known of these rows
                self._read[key] = NO_ROWS
        return self._read[key]
