"""Compactions in a table's history: which old fragments' rows lie in a new one.

A compacted file has a name that says nothing. The transaction that made it names the old fragments with their files
and deletions, and the rows of the new ones are the live rows of the old ones, in this order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import lance
import numpy as np
import numpy.typing as npt
from lance import LanceOperation
from lance.fragment import FragmentMetadata, RowIdSequence

from core.domain.ranges import RowRange
from core.domain.rewrites import Rewrite, Trail
from core.domain.table import DataFile, Fragment
from core.errors import NotFound
from core.lance_io.opening import open_latest
from core.lance_io.scan import FragmentReader

Live = npt.NDArray[np.bool_]
RowIds = npt.NDArray[np.uint64]

#: Versions that are looked at: a transaction takes 0.3 ms to read, and more the more fragments the table has.
MOST_VERSIONS = 2000
_LEAST_VERSIONS = 50
_MOST_FRAGMENTS = 2_000_000


def versions_to_look_at(fragments: int) -> int:
    """How far back it is worth going in a table of so many fragments."""
    return min(max(_MOST_FRAGMENTS // max(1, fragments), _LEAST_VERSIONS), MOST_VERSIONS)


def trace(
    uri: str,
    version: int,
    files: Collection[str],
    further: Callable[[Fragment], str],
    most_versions: int = MOST_VERSIONS,
) -> Trail:
    """Reads transactions from `version` on, newest first, until the origin of all `files` is found.

    `further` names the file of an old fragment whose origin is wanted too; empty: none. Raises OSError and ValueError
    where the version cannot be opened.
    """
    dataset = lance.dataset(uri, version=version)
    wanted = set(files)
    found: dict[str, Rewrite] = {}
    for at, operation in _operations(dataset, most_versions):
        if operation is None:
            break
        if isinstance(operation, LanceOperation.Rewrite):
            for rewrite in _groups(operation, at - 1):
                made = wanted.intersection(f.path for fragment in rewrite.new for f in fragment.files)
                found.update(dict.fromkeys(made, rewrite))
                wanted -= made
                if made:
                    wanted.update(name for old in rewrite.old if (name := further(old)))
        elif isinstance(operation, LanceOperation.Overwrite):
            wanted.clear()  # whatever is left came with it
        else:
            wanted.difference_update(_written(operation))
        if not wanted:
            break
    return Trail(found, frozenset(wanted))


def between(uri: str, older: int, newer: int, most_versions: int = MOST_VERSIONS) -> list[Rewrite]:
    """The compactions that led from one version to a later one, oldest first; those that the history does not tell of
    are missing. Raises OSError and ValueError where the later version cannot be opened."""
    found: list[Rewrite] = []
    for at, operation in _operations(lance.dataset(uri, version=newer), min(most_versions, newer - older)):
        if at <= older:
            break
        if isinstance(operation, LanceOperation.Rewrite):
            found += _groups(operation, at - 1)
    return found[::-1]


class OldVersion:
    """The version that a compaction rewrote: which rows of its fragments were live. Where it was cleaned away, the
    stable row ids of what the compaction made of them tell."""

    def __init__(self, uri: str, version: int) -> None:
        self._uri = uri
        self._version = version
        self._reader: FragmentReader | None = None
        self._moved: dict[int, _Moved] | None = None
        self._last: tuple[int, Live] = (-1, np.empty(0, np.bool_))

    def live(self, fragment_id: int, covered: RowRange) -> Live:
        """For each physical row of `covered`. Raises LemanError, OSError and ValueError where nothing tells."""
        if self._reader is None and self._moved is None:
            try:
                self._reader = FragmentReader(self._uri, self._version)
            except NotFound:
                self._moved = {moved.old.id: moved for moved in self._rewritten()}
        if self._reader is not None:
            return self._reader.live(fragment_id, covered)
        moved = (self._moved or {}).get(fragment_id)
        if moved is None:
            raise ValueError(f"nothing tells which rows of fragment {fragment_id} were live in version {self._version}")
        if self._last[0] != fragment_id:
            self._last = fragment_id, _live_of(moved.old, moved.group.ids[moved.begin : moved.end])
        return self._last[1][covered.start : covered.end]

    def _rewritten(self) -> Iterator[_Moved]:
        """The fragments that the next version's compaction rewrote."""
        transaction = open_latest(self._uri).read_transaction(self._version + 1)
        operation = None if transaction is None else transaction.operation
        for group in operation.groups if isinstance(operation, LanceOperation.Rewrite) else ():
            made, begin = _Made(tuple(group.new_fragments)), 0
            for old in group.old_fragments:
                end = begin + old.physical_rows - _deleted(old)
                yield _Moved(old, made, begin, end)
                begin = end


class _Made:
    """What a compaction made of some fragments."""

    def __init__(self, fragments: Sequence[FragmentMetadata]) -> None:
        self._fragments = fragments

    @cached_property
    def ids(self) -> RowIds:
        """Of its rows. Raises ValueError where they are not stable."""
        return np.concatenate([_row_ids(fragment) for fragment in self._fragments])


@dataclass(frozen=True, slots=True)
class _Moved:
    """An old fragment, whose live rows became those from `begin` to `end` of what was made."""

    old: FragmentMetadata
    group: _Made
    begin: int
    end: int


def _live_of(old: FragmentMetadata, made: RowIds) -> Live:
    """Which rows of an old fragment are those that were made. A row that an update moved is in two old fragments, and
    live in one."""
    ids = _row_ids(old)
    live = np.isin(ids, made)
    if not np.array_equal(ids[live], made):
        raise ValueError(f"the rows of fragment {old.id} are not those that were made of it")
    return live


def _row_ids(fragment: FragmentMetadata) -> RowIds:
    if fragment.row_id_meta is None:
        raise ValueError(f"the rows of fragment {fragment.id} have no stable ids")
    ids: RowIds = RowIdSequence.from_inline_metadata(fragment.row_id_meta).to_pyarrow().to_numpy()
    if len(ids) != fragment.physical_rows:
        raise ValueError(f"fragment {fragment.id} has {fragment.physical_rows} rows and {len(ids)} row ids")
    return ids


def _operations(dataset: lance.LanceDataset, most: int) -> Iterable[tuple[int, Any]]:
    """(version, its operation), newest first; a restored version takes the place of what it undid. The last operation
    is None where older ones are unknown: cleaned away, or too many."""
    at = int(dataset.version)
    for _ in range(most):
        try:
            transaction = dataset.read_transaction(at)
        except (OSError, ValueError):
            transaction = None
        operation = None if transaction is None else transaction.operation
        yield at, operation
        at = int(operation.version) if isinstance(operation, LanceOperation.Restore) else at - 1
        if at < 1 or operation is None:
            return
    yield at, None


def _groups(operation: LanceOperation.Rewrite, before: int) -> Iterable[Rewrite]:
    for group in operation.groups:
        yield Rewrite(before, _fragments(group.old_fragments), _fragments(group.new_fragments))


def _fragments(metadata: Iterable[Any]) -> tuple[Fragment, ...]:
    return tuple(
        Fragment(
            f.id,
            f.physical_rows,
            _deleted(f),
            # `path` makes a class at every call
            tuple(DataFile(d._path, tuple(d.fields)) for d in f.files),
            f"{f.deletion_file.id}-{f.deletion_file.read_version}" if f.deletion_file is not None else "",
        )
        for f in metadata
    )


def _deleted(metadata: Any) -> int:
    return (metadata.deletion_file.num_deleted_rows or 0) if metadata.deletion_file is not None else 0


def _written(operation: Any) -> set[str]:
    """Files that came into the table with an operation that is no compaction. Of a Merge they cannot be told from the
    older ones that it names too."""
    if isinstance(operation, LanceOperation.DataReplacement):
        return {str(group.new_file.path) for group in operation.replacements}
    if isinstance(operation, LanceOperation.Append):
        return {str(f.path) for fragment in operation.fragments for f in fragment.files}
    if isinstance(operation, LanceOperation.Update):
        return {str(f.path) for fragment in operation.new_fragments for f in fragment.files}
    return set()
