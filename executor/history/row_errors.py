"""Pages of a job's failed rows: where each is stored is looked up once for a listing, and a page reads no other row."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from core.domain.job import StoredRowError
from core.errors import LemanError
from core.lance_io.append_log import quoted
from core.lance_io.log_snapshot import Snapshot
from executor.worker.error_store import PLACE_ONLY, errors_uri, open_log

#: (row address, column) of the last row of a page.
PageKey = tuple[int, str]
#: Job, column, whether rows of which only the place is stored count.
_Key = tuple[str, str, bool]
_Numbers = npt.NDArray[np.int64]
#: Listings that are kept, and the rows in all of them, at 24 bytes each; the last one is kept however long it is.
_LISTINGS = 16
_ROWS_KEPT = 4_000_000
msgspec.json.Decoder(StoredRowError)  # at import, in one thread: msgspec crashes where two are the first to need it


@dataclass(frozen=True, slots=True)
class _Listing:
    """The failed rows of a job in one version of the store, in the order of row addresses and columns."""

    snapshot: Snapshot
    #: The fragments of that version, in their order, and how many rows they have.
    fragments: tuple[str, ...]
    rows_stored: int
    addresses: _Numbers
    #: As numbers into `names`.
    columns: _Numbers
    names: tuple[str, ...]
    #: Where each row is stored.
    places: _Numbers

    def first_after(self, after: PageKey | None) -> int:
        if after is None:
            return 0
        address, name = after
        begin, end = (int(np.searchsorted(self.addresses, address, side)) for side in ("left", "right"))
        beyond = (n for n in range(begin, end) if self.names[self.columns[n]] > name)
        return next(beyond, end)

    def page(self, after: PageKey | None, size: int) -> tuple[list[StoredRowError], PageKey | None]:
        begin = self.first_after(after)
        end = min(begin + size, len(self.places))
        rows = self.snapshot.rows(self.places[begin:end].tolist())
        last = (int(self.addresses[end - 1]), self.names[self.columns[end - 1]]) if end > begin else None
        more = end < len(self.places)
        return [msgspec.convert(row, StoredRowError) for row in rows], last if more else None


class RowErrors:
    """The failed rows of one database, for any number of threads. The last listings are kept.

    A new version of the store costs a look at its new fragments, unless it was compacted: then all of it is looked
    through again.
    """

    def __init__(self, database: str) -> None:
        self._log = open_log(errors_uri(database))
        self._seen: Snapshot | None = None
        self._kept: OrderedDict[_Key, _Listing] = OrderedDict()
        self._changing = threading.Lock()
        self._making = threading.Lock()

    def page(
        self, job_id: str, column: str, after: PageKey | None, size: int, *, all_places: bool = False
    ) -> tuple[list[StoredRowError], PageKey | None]:
        """Return a page of the failed rows of a job, each once, as the last attempt left it.

        The first page lists what there is; later ones go on in the same version of the store while that is kept.

        Args:
            column: Empty: the failed rows of all columns.
            after: The place after which the page begins; None: the first page.
            size: The most rows of the page.
            all_places: Also rows of which nothing but the place is stored.

        Returns:
            The rows, and the place after which the next page begins; None: this was the last.

        Raises:
            LemanError: what `storage_errors.failed` gives, where the store cannot be read.
        """
        key = job_id, column, all_places
        kept = self._find(key)
        if kept is not None and after is not None:
            try:
                return kept.page(after, size)
            except LemanError:  # its version was cleaned: the latest one has the rows elsewhere
                pass
        latest = self._latest()
        return ([], None) if latest is None else self._listing(key, latest).page(after, size)

    def remove(self, job_id: str) -> None:
        """Delete the failed rows of a job.

        Raises:
            LemanError: what `storage_errors.failed` gives.
        """
        self._log.remove(f"job_id = {quoted(job_id)}")
        with self._changing:
            for key in [key for key in self._kept if key[0] == job_id]:
                del self._kept[key]

    def _latest(self) -> Snapshot | None:
        seen = self._seen
        try:
            if seen is not None and seen.is_latest:
                return seen
        except LemanError:  # damaged, or gone
            pass
        self._seen = latest = self._log.snapshot()
        return latest

    def _find(self, key: _Key) -> _Listing | None:
        with self._changing:
            return self._kept.get(key)

    def _listing(self, key: _Key, latest: Snapshot) -> _Listing:
        kept = self._find(key)
        if kept is not None and kept.snapshot.version == latest.version:
            return kept
        with self._making:  # of many who ask for one listing, one makes it
            kept = self._find(key)
            if kept is None or kept.snapshot.version != latest.version:
                kept = _list(latest, key, kept)
                self._keep(key, kept)
            return kept

    def _keep(self, key: _Key, listing: _Listing) -> None:
        with self._changing:
            self._kept[key] = listing
            self._kept.move_to_end(key)
            rows = sum(len(kept.places) for kept in self._kept.values())
            while len(self._kept) > 1 and (rows > _ROWS_KEPT or len(self._kept) > _LISTINGS):
                rows -= len(self._kept.popitem(last=False)[1].places)


def _list(snapshot: Snapshot, key: _Key, before: _Listing | None) -> _Listing:
    """Return the listing of a version.

    Args:
        before: That of an earlier one. Where its fragments are the first of this version, only the others are read.
    """
    numbers = snapshot.fragments
    fragments = tuple(numbers)
    if before is None or fragments[: len(before.fragments)] != before.fragments:
        nothing = np.empty(0, np.int64)
        before = _Listing(snapshot, (), 0, nothing, nothing, (), nothing)
    listing = replace(before, snapshot=snapshot, fragments=fragments, rows_stored=snapshot.row_count)
    names = {name: number for number, name in enumerate(before.names)}
    unread = [numbers[file] for file in fragments[len(before.fragments) :]]
    found = _read(snapshot, unread, key, names, before.rows_stored)
    if not found:
        return listing
    parts = [(before.addresses, before.columns, before.places), *found]
    addresses, columns, places = (np.concatenate(part) for part in zip(*parts, strict=True))
    return _sorted(listing, tuple(names), addresses, columns, places)


def _read(
    snapshot: Snapshot, fragment_ids: Sequence[int], key: _Key, names: dict[str, int], begin: int
) -> list[tuple[_Numbers, _Numbers, _Numbers]]:
    """Return the addresses, columns and places of a job's failed rows in fragments of which `begin` is the first place.

    Args:
        names: Gets the names of the columns that are not in it yet.
    """
    job_id, column, all_places = key
    found = []
    for batch in snapshot.scan(["job_id", "column", "row_address", "error_type"], fragment_ids):
        wanted = pc.equal(batch["job_id"], job_id)
        if column:
            wanted = pc.and_(wanted, pc.equal(batch["column"], column))
        if not all_places:
            wanted = pc.and_(wanted, pc.not_equal(batch["error_type"], PLACE_ONLY))
        at: Any = np.flatnonzero(wanted.to_numpy(zero_copy_only=False))
        if len(at):
            rows = batch if len(at) == batch.num_rows else batch.take(pa.array(at))
            encoded = rows["column"].dictionary_encode()
            numbers = [names.setdefault(name, len(names)) for name in encoded.dictionary.to_pylist()]
            columns = np.array(numbers, np.int64)[encoded.indices.to_numpy()]
            found.append((rows["row_address"].to_numpy(), columns, at + begin))
        begin += batch.num_rows
    return found


def _sorted(
    listing: _Listing, names: tuple[str, ...], addresses: _Numbers, columns: _Numbers, places: _Numbers
) -> _Listing:
    """Return the listing with these rows, sorted; of a row that was stored again only the last one is in it.

    Args:
        listing: Gets them.
        names: The names of columns that `columns` are numbers of.
        places: Of one row, a later one stands behind an earlier one.
    """
    alphabetical = sorted(range(len(names)), key=names.__getitem__)
    columns = np.argsort(np.array(alphabetical, np.int64))[columns]
    order = np.argsort(addresses, kind="stable") if len(names) == 1 else np.lexsort((columns, addresses))
    addresses, columns, places = addresses[order], columns[order], places[order]
    last = np.ones(len(places), bool)
    last[:-1] = (addresses[1:] != addresses[:-1]) | (columns[1:] != columns[:-1])
    in_order = tuple(names[n] for n in alphabetical)
    return replace(listing, addresses=addresses[last], columns=columns[last], names=in_order, places=places[last])
