"""Compactions in a table's history: which old fragments' rows lie in a new one.

The name of a compacted file says nothing. Its transaction names the old fragments with their files and deletions, and
the rows of the new fragments are the live rows of the old ones, in this order.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import lance
import numpy as np
import numpy.typing as npt
from lance.fragment import RowIdMeta, RowIdSequence

from leman_core.model.row_ids import isin
from leman_core.model.row_positions import RowRange
from leman_core.model.service_errors import DataLoss, LemanError, NotFound
from leman_core.model.table import CompactionHistory, Fragment, Rewrite
from leman_core.storage.error_translation import using_storage
from leman_core.storage.opening import open_version
from leman_core.storage.scan import FragmentReader
from leman_core.storage.storage_errors import error_number, storage_failed
from leman_core.storage.transactions import Kind, Transaction, Transactions, VersionGone, fragments_of

Live = npt.NDArray[np.bool_]
RowIds = npt.NDArray[np.uint64]

#: Versions to read: a transaction takes 0.3 ms, and more with the number of fragments.
MOST_VERSIONS = 2000
_LEAST_VERSIONS = 50
_MOST_FRAGMENTS = 2_000_000


def versions_to_look_at(fragments: int) -> int:
    """Return how far back to search in a table of so many fragments."""
    return min(max(_MOST_FRAGMENTS // max(1, fragments), _LEAST_VERSIONS), MOST_VERSIONS)


def trace_compactions(
    uri: str,
    version: int,
    files: Collection[str],
    further: Callable[[Sequence[Fragment]], Iterable[str]],
    most_versions: int = MOST_VERSIONS,
) -> CompactionHistory:
    """Read transactions from `version` on, newest first, until the origin of all `files` is found.

    What an unknown transaction may have written is lost, unless an older one turns out to have written it.

    Args:
        uri: The table.
        version: The version to begin with.
        files: The files.
        further: Returns the files of old fragments whose origin is needed, too; empty ones are ignored.
        most_versions: How many transactions are read.

    Raises:
        NotFound: HISTORY_UNREADABLE if the history is gone or cannot be decoded.
        LemanError: What `storage_failed` gives if it may be whole.
    """
    try:
        return _traced(open_version(uri, version), set(files), further, most_versions)
    except (OSError, ValueError) as error:
        raise _unreadable(uri, error) from error


def _traced(
    dataset: lance.LanceDataset,
    wanted: set[str],
    further: Callable[[Sequence[Fragment]], Iterable[str]],
    most_versions: int,
) -> CompactionHistory:
    found: dict[str, Rewrite] = {}
    unknown = False
    for transaction in transactions_up_to(dataset.uri, int(dataset.version), most_versions):
        if transaction is None:
            break
        unknown = unknown or transaction.kind is Kind.UNKNOWN
        if transaction.kind is Kind.REWRITE:
            for rewrite in rewrites_of(transaction):
                made = wanted.intersection(f.path for fragment in rewrite.new for f in fragment.files)
                found.update(dict.fromkeys(made, rewrite))
                wanted -= made
                if made:
                    wanted.update(filter(None, further(rewrite.old)))
        elif transaction.kind is Kind.OVERWRITE and not unknown:
            wanted.clear()  # it added the remaining files
        else:
            wanted.difference_update(_written(transaction))
        if not wanted:
            break
    return CompactionHistory(found, frozenset(wanted))


def compactions_between(uri: str, older: int, newer: int, most_versions: int = MOST_VERSIONS) -> list[Rewrite]:
    """Return the compactions between two versions of a table, at its canonical uri, oldest first.

    Those that the history no longer has are missing.

    Raises:
        LemanError: As `trace_compactions`.
    """
    found: list[Rewrite] = []
    try:
        for transaction in transactions_up_to(uri, newer, min(most_versions, newer - older)):
            if transaction is None or transaction.version <= older:
                break
            if transaction.kind is Kind.REWRITE:
                found += rewrites_of(transaction)
    except (OSError, ValueError) as error:
        raise _unreadable(uri, error) from error
    return found[::-1]


def _lost(said: str) -> DataLoss:
    return DataLoss("HISTORY_LOST", said)


def _unreadable(uri: str, error: Exception) -> LemanError:
    said = f"The history of {uri} cannot be read"
    if error_number(error) in (None, errno.ENOENT):
        return NotFound("HISTORY_UNREADABLE", f"{said}: {error}", uri=uri)
    return storage_failed(error, f"{said} now: {error}", uri)


class OldVersion:
    """The version that a compaction rewrote: which rows of its fragments were live.

    If it was cleaned up, the stable row ids of the compacted rows show it.
    """

    def __init__(self, uri: str, version: int) -> None:
        self._uri = uri
        self._version = version
        self._reader: FragmentReader | None = None
        self._moved: dict[int, _Moved] | None = None
        self._last: tuple[int, Live] = (-1, np.empty(0, np.bool_))

    def live(self, fragment_id: int, covered: RowRange) -> Live:
        """Return for each physical row of `covered` whether it was live.

        Raises:
            DataLoss: HISTORY_LOST if nothing shows it.
            LemanError: What `storage_failed` gives.
        """
        with using_storage(self._uri):
            return self._live(fragment_id, covered)

    def _live(self, fragment_id: int, covered: RowRange) -> Live:
        if self._reader is None and self._moved is None:
            try:
                self._reader = FragmentReader(self._uri, self._version)
            except (NotFound, DataLoss):
                self._moved = {moved.old.id: moved for moved in self._rewritten()}
        if self._reader is not None:
            return self._reader.live(fragment_id, covered)
        moved = (self._moved or {}).get(fragment_id)
        if moved is None:
            said = (
                f"the history does not show which rows of fragment {fragment_id} were live in version {self._version}"
            )
            raise _lost(said)
        if self._last[0] != fragment_id:
            self._last = fragment_id, _live_of(moved.old, moved.group.ids[moved.begin : moved.end])
        return self._last[1][covered.start : covered.end]

    def moved(self, fragment_id: int) -> tuple[RowIds, RowIds] | None:
        """Return ids and offsets of a fragment's live rows, by the compaction after it.

        None: the compaction does not have them.
        """
        try:
            found = next((moved for moved in self._rewritten() if moved.old.id == fragment_id), None)
            if found is None:
                return None
            ids = found.group.ids[found.begin : found.end]
            return ids, np.flatnonzero(_live_of(found.old, ids)).astype(np.uint64)
        except (OSError, ValueError, DataLoss):
            return None

    def _rewritten(self) -> Iterator[_Moved]:
        """Yield the fragments that the next version's compaction rewrote."""
        try:
            transaction = Transactions(self._uri).read(self._version + 1)
        except VersionGone:
            return
        for old_fragments, new_fragments in _rewritten(transaction):
            made, begin = _Made(new_fragments), 0
            for old in old_fragments:
                end = begin + old.physical_rows - old.deletion_file.num_deleted_rows
                yield _Moved(old, made, begin, end)
                begin = end


class _Made:
    """The result of a compaction of some fragments."""

    def __init__(self, fragments: Sequence[Any]) -> None:
        self._fragments = fragments

    @cached_property
    def ids(self) -> RowIds:
        """Return the stable row ids of its rows.

        Raises:
            ValueError: They are not stable.
        """
        return np.concatenate([_row_ids(fragment) for fragment in self._fragments])


@dataclass(frozen=True, slots=True)
class _Moved:
    """An old fragment, whose live rows became those from `begin` to `end` of the result."""

    old: Any
    group: _Made
    begin: int
    end: int


def _live_of(old: Any, made: RowIds) -> Live:
    """Return which rows of an old fragment are in the result.

    A row that an update moved is in two old fragments, and live in one.
    """
    ids = _row_ids(old)
    live = isin(ids, made)
    if not np.array_equal(ids[live], made):
        raise _lost(f"the rows of fragment {old.id} differ from the compacted ones")
    return live


def _row_ids(fragment: Any) -> RowIds:
    if not fragment.inline_row_ids:
        raise _lost(f"the rows of fragment {fragment.id} have no stable ids, or have them elsewhere")
    stored: RowIdMeta = RowIdMeta.from_json(  # type: ignore[misc,call-arg]  # the stub lacks the decorator
        json.dumps({"Inline": list(fragment.inline_row_ids)})
    )
    ids: RowIds = RowIdSequence.from_inline_metadata(stored).to_pyarrow().to_numpy()
    if len(ids) != fragment.physical_rows:
        raise _lost(f"fragment {fragment.id} has {fragment.physical_rows} rows and {len(ids)} row ids")
    return ids


def transactions_up_to(uri: str, version: int, most: int) -> Iterator[Transaction | None]:
    """Yield the transactions up to a version, newest first. A restored version replaces what it undid.

    The last one is None if older ones are unknown: cleaned up, or too many.
    """
    history, at = Transactions(uri), version
    for _ in range(most):
        try:
            transaction = history.read(at)
        except VersionGone:
            break
        yield transaction
        at = int(transaction.operation.version) if transaction.kind is Kind.RESTORE else at - 1
        if at < 1:
            return
    yield None


def rewrites_of(transaction: Transaction) -> Iterator[Rewrite]:
    """Yield the groups of fragments that a compaction rewrote."""
    for old, new in _rewritten(transaction):
        yield Rewrite(transaction.version - 1, fragments_of(old), fragments_of(new))


def _rewritten(transaction: Transaction) -> Iterator[tuple[Sequence[Any], Sequence[Any]]]:
    """Yield the fragments of each group of a compaction: the old ones and the new ones."""
    if transaction.kind is not Kind.REWRITE:
        return
    for group in transaction.operation.groups:
        yield group.old_fragments, group.new_fragments
    if transaction.operation.old_fragments:  # the form of older releases of Lance
        yield transaction.operation.old_fragments, transaction.operation.new_fragments


def _written(transaction: Transaction) -> set[str]:
    """Return the files that an operation other than a compaction added to the table.

    Those of a Merge cannot be distinguished from the older ones that it names, too.
    """
    operation = transaction.operation
    if transaction.kind is Kind.DATA_REPLACEMENT:
        return {group.new_file.path for group in operation.replacements}
    if transaction.kind in (Kind.APPEND, Kind.OVERWRITE):
        return {f.path for fragment in operation.fragments for f in fragment.files}
    if transaction.kind is Kind.UPDATE:
        return {f.path for fragment in operation.new_fragments for f in fragment.files}
    return set()
