"""Fragments that compaction made of others without a change to any row, told by the history.

Pure.

A file's name is used only once, so what the history says of fragments with certain files and deletions holds for such
fragments in any version: the rows of those that a compaction made are the live rows of those that it found.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from leman_core.model.compactions import Rewrite
from leman_core.model.table import Fragment

#: What tells a fragment's rows and the fields that are read: fragments with equal states hold the same.
_State = tuple[int, int, str, tuple[str, ...]]


@dataclass(frozen=True, slots=True, eq=False)
class _Group:
    """Fragments of the older version, and the states of those that now have their rows, all of them and no others."""

    sources: frozenset[Fragment]
    holders: frozenset[_State]


def only_moved(
    older: Iterable[Fragment], newer: Iterable[Fragment], fields: Sequence[int], compactions: Iterable[Rewrite]
) -> Collection[Fragment]:
    """Return the fragments, of either version, whose rows compaction only moved.

    All rows of such a fragment are in fragments of this kind of the other version too, with the same values of all
    `fields`.

    Args:
        compactions: oldest first; where some are missing less is found.
    """
    groups = {
        state: _Group(frozenset([fragment]), frozenset([state]))
        for fragment in older
        if any((state := _state(fragment, fields))[-1])  # without a file nothing tells it from another one of its id
    }
    for rewrite in compactions:
        _trace(groups, rewrite, fields)
    ends = {_state(fragment, fields): fragment for fragment in newer}
    found: set[Fragment] = set()
    for group in set(groups.values()):
        if group.holders <= ends.keys():
            found |= group.sources
            found.update(ends[state] for state in group.holders)
    return found


def _trace(groups: dict[_State, _Group], rewrite: Rewrite, fields: Sequence[int]) -> None:
    """Apply one compaction to the groups: of fragments that are all known it makes others with the same rows."""
    old, new = ({_state(f, fields) for f in fragments} for fragments in (rewrite.old, rewrite.new))
    if not old <= groups.keys() or not _is_whole(rewrite, fields):
        return
    merged = {groups[state] for state in old}
    sources = frozenset().union(*(group.sources for group in merged))
    holders = frozenset().union(*(group.holders for group in merged)) - old | new
    for state in old:
        del groups[state]
    groups.update(dict.fromkeys(holders, _Group(sources, holders)))


def _is_whole(rewrite: Rewrite, fields: Sequence[int]) -> bool:
    """Tell whether the new fragments have all rows and fields of the old ones."""
    if sum(f.live_rows for f in rewrite.old) != sum(f.live_rows for f in rewrite.new):
        return False
    held = {i for f in rewrite.old for i in fields if f.file_of(i)}
    return all(f.file_of(i) for f in rewrite.new for i in held)


def _state(fragment: Fragment, fields: Sequence[int]) -> _State:
    files = tuple(fragment.file_of(i) for i in fields)
    return fragment.fragment_id, fragment.physical_rows, fragment.deletion_file, files
