"""Compactions in a table's history: which old fragments' rows lie in a new one.

A compacted file has a name that says nothing. The transaction that made it names the old fragments with their files
and deletions, and the rows of the new ones are the live rows of the old ones, in this order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

import lance
from lance import LanceOperation

from core.domain.rewrites import Rewrite, Trail
from core.domain.table import DataFile, Fragment

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
            (f.deletion_file.num_deleted_rows or 0) if f.deletion_file is not None else 0,
            # `path` makes a class at every call
            tuple(DataFile(d._path, tuple(d.fields)) for d in f.files),
            f"{f.deletion_file.id}-{f.deletion_file.read_version}" if f.deletion_file is not None else "",
        )
        for f in metadata
    )


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
