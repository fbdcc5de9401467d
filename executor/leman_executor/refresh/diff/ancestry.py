"""Rows that compaction moved without changing what a view reads, found through the compaction history.

`_row_last_updated_at_version` alone does not tell: it also moves when another column of the fragment is rewritten.

A computed column of a compacted fragment may have got another file since. That file says in which rows it differs from
the one that compaction wrote (`leman_core.model.changed_rows`): all others are still as compaction moved them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import numpy as np

from leman_core.model import keys
from leman_core.model.changed_rows import Predecessor
from leman_core.model.compactions import CompactionHistory
from leman_core.model.errors import LemanError
from leman_core.model.row_address import addresses_of
from leman_core.model.sorted_sets import among, contains, distinct
from leman_core.model.table import Fragment
from leman_core.model.view_rows import NO_IDS, Ids, Mask
from leman_core.storage import compactions
from leman_core.storage.column_files import read_predecessors
from leman_core.storage.views.row_facts import NO_ROWS, RowFacts
from leman_core.storage.views.source import SourceRows

#: A fragment's files that hold the fields that are read: the same files hold the same values.
State = tuple[str, ...]


class Ancestry:
    """The fragments of one version of a source, and what compactions made them of; `fields` are those that are read."""

    def __init__(self, uri: str, version: int, fields: Sequence[int], fragments: Mapping[int, Fragment]) -> None:
        self.fragments = fragments
        self._uri = uri
        self._version = version
        self._fields = tuple(fields)
        self._read: dict[tuple[int, int], RowFacts] = {}
        self._ancestors: dict[int, Mapping[State, Ids]] = {}
        self._predecessors: dict[str, Sequence[Predecessor]] = {}
        self._compactions = CompactionHistory()

    def state(self, fragment: Fragment) -> State:
        return tuple(fragment.file_of(i) for i in self._fields)

    def trace(self, fragment_ids: Collection[int], is_end: Callable[[Fragment], bool]) -> None:
        """Learn what these fragments were made of, and what that was made of, up to fragments for which `is_end`."""
        files = {self._compacted(self.fragments[i])[0] for i in fragment_ids if i in self.fragments} - {""}
        if not files:
            return
        most = compactions.versions_to_look_at(len(self.fragments))
        try:
            found = compactions.trace(
                self._uri, self._version, files, lambda old: "" if is_end(old) else self._compacted(old)[0], most
            )
        except LemanError:
            return
        self._compactions = CompactionHistory(
            {**self._compactions.rewrites, **found.rewrites}, self._compactions.lost | found.lost
        )

    def made_of(self, fragment: Fragment) -> Iterator[tuple[Fragment, RowFacts]]:
        """Yield the fragments that one compaction made this one of, with the rows that have the same values still."""
        file, changed = self._compacted(fragment)
        rewrite = self._compactions.rewrites.get(file)
        if rewrite is None:
            return
        made, before = rewrite.place_of(file)
        has_all = all(made.file_of(i) == (file if fragment.file_of(i) else "") for i in self._fields)
        if not has_all or made.physical_rows != fragment.physical_rows:
            return
        begin = -before
        for old in rewrite.old:
            alive = self._alive(rewrite.before, old.fragment_id)
            if not changed.any():
                yield old, alive
            elif len(alive) == old.live_rows:  # they lie in the new fragment in their order
                places = begin + np.argsort(np.argsort(alive.offsets))
                inside = (places >= 0) & (places < len(changed))
                yield old, alive.at(inside & ~changed[np.where(inside, places, 0)])
            begin += old.live_rows

    def ancestors(self, fragment_id: int) -> Mapping[State, Ids]:
        """Return the states in which compactions found rows of this fragment, with the sorted ids of those rows."""
        if fragment_id not in self._ancestors:
            found: dict[State, list[Ids]] = {}
            for state, ids in self._further(self.fragments[fragment_id]):
                found.setdefault(state, []).append(ids)
            self._ancestors[fragment_id] = {state: np.sort(np.concatenate(ids)) for state, ids in found.items()}
        return self._ancestors[fragment_id]

    def _further(self, fragment: Fragment) -> Iterator[tuple[State, Ids]]:
        for old, alive in self.made_of(fragment):
            yield self.state(old), alive.ids
            for state, ids in self._further(old):
                yield state, ids[among(ids, alive.ids)]

    def is_same(self, one: Fragment, other: Fragment) -> bool:
        return self.state(one) == self.state(other) and one.physical_rows == other.physical_rows

    def _compacted(self, fragment: Fragment) -> tuple[str, Mask]:
        """Return the one file that had all that is read, and which rows have had other values since then.

        The file's name is empty where there was none, or nothing tells what changed.
        """
        changed = np.zeros(fragment.physical_rows, np.bool_)
        files = fragment.files_of(self._fields)
        if len(files) == 1 and keys.parse_column_file_name(files[0]) is None:
            return files[0], changed
        earlier = [self._earlier(file) for file in files]
        known = [name for name in earlier[0] if all(name in found for found in earlier)] if earlier else []
        file = next((name for name in known if keys.parse_column_file_name(name) is None), "")
        for found in earlier if file else ():
            predecessor = found[file]
            if predecessor is not None and predecessor.rows != len(changed):
                return "", changed
            if predecessor is not None:
                changed |= predecessor.changed
        return file, changed

    def _earlier(self, file: str) -> Mapping[str, Predecessor | None]:
        """Return a column's file and those that it follows; nothing differs from the file itself."""
        if file not in self._predecessors:
            self._predecessors[file] = read_predecessors(self._uri, file)
        return {file: None, **{predecessor.file: predecessor for predecessor in self._predecessors[file]}}

    def _moved(self, version: int, fragment_id: int) -> RowFacts:
        """Return the rows as recorded by the compaction that took them over; none where it recorded nothing."""
        found = compactions.OldVersion(self._uri, version).moved(fragment_id)
        if found is None:
            return NO_ROWS
        ids, offsets = (column.astype(np.int64) for column in found)
        return RowFacts(ids, addresses_of(fragment_id, offsets), np.full(len(ids), -1, np.int64))

    def _alive(self, version: int, fragment_id: int) -> RowFacts:
        key = (version, fragment_id)
        if key not in self._read:
            try:
                self._read[key] = SourceRows(self._uri, version).rows_of([fragment_id])
            except LemanError:  # cleaned away
                self._read[key] = self._moved(version, fragment_id)
        return self._read[key]


#: Returns for a fragment, as the older version has it and as it was later, the offsets at which the fields' values may
#: differ; None: at any.
Patched = Callable[[Fragment, Fragment], Ids | None]


class Origins:
    """Traces fragments of one version of a source to fragments that `old` has too, and to what both were made of.

    `patched` comes with each call: if it were kept here, its owner and what that read would stay in memory until
    Python's collector runs.
    """

    def __init__(self, new: Ancestry, old: Ancestry) -> None:
        self._new = new
        self._old = old
        self._found: dict[int, dict[int, Ids]] = {}

    def only_moved(self, now: RowFacts, before: RowFacts, patched: Patched) -> Mask:
        """Tell for each row, given as it is now and before, whether nothing but compaction moved it."""
        found = np.zeros(len(now), np.bool_)
        asked = [i for i in distinct(now.fragment_ids).tolist() if i in self._new.fragments]
        unknown = [i for i in asked if i not in self._found]
        self._new.trace(unknown, lambda f: self._other_offsets(f, patched) is not None)
        for fragment_id in asked:
            here = np.flatnonzero(now.fragment_ids == fragment_id)
            for origin, ids in self._origins_of(fragment_id, patched).items():
                came = here[before.fragment_ids[here] == origin]
                found[came] |= contains(ids, now.ids[came])
        return found

    def _origins_of(self, fragment_id: int, patched: Patched) -> dict[int, Ids]:
        """Return what `_origins` returns, with sorted ids."""
        if fragment_id not in self._found:
            origins = self._origins(self._new.fragments[fragment_id], patched)
            self._found[fragment_id] = {origin: np.sort(ids) for origin, ids in origins.items()}
        return self._found[fragment_id]

    def _origins(self, fragment: Fragment, patched: Patched) -> dict[int, Ids]:
        """Return by fragment of the old version the ids of the rows that came from it into this one."""
        found: dict[int, list[Ids]] = {}
        for old, alive in self._new.made_of(fragment):
            other = self._other_offsets(old, patched)
            if other is not None:
                found.setdefault(old.fragment_id, []).append(alive.ids[~contains(other, alive.offsets)])
                continue
            for origin, ids in self._origins(old, patched).items():
                found.setdefault(origin, []).append(ids[among(ids, alive.ids)])
        return {origin: np.concatenate(parts) for origin, parts in found.items()}

    def _other_offsets(self, fragment: Fragment, patched: Patched) -> Ids | None:
        """Return where the old version's fragment of this id has other values; None: anywhere, or there is none."""
        kept = self._old.fragments.get(fragment.fragment_id)
        if kept is None or kept.physical_rows != fragment.physical_rows:
            return None
        return NO_IDS if self._old.is_same(kept, fragment) else patched(kept, fragment)


def common_origin(one: Ancestry, here: RowFacts, other: Ancestry, there: RowFacts) -> Mask:
    """Tell for each row, given in both versions, whether compactions alone moved it to both places, out of one.

    That is so where a version was restored after a compaction, and compacted again.
    """
    found = np.zeros(len(here), np.bool_)
    for ancestry, rows in ((one, here), (other, there)):
        ancestry.trace(distinct(rows.fragment_ids).tolist(), lambda _: False)
    for a, b in {*zip(here.fragment_ids.tolist(), there.fragment_ids.tolist(), strict=True)}:
        both = np.flatnonzero((here.fragment_ids == a) & (there.fragment_ids == b))
        ids, states = here.ids[both], other.ancestors(b)
        for state, came in one.ancestors(a).items():
            if state in states:
                found[both] |= contains(came, ids) & contains(states[state], ids)
    return found
