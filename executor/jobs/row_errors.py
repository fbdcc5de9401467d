"""Pages of a job's failed rows: where each is stored is looked up once for a listing, and a page reads no other row."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from core.domain.job import StoredRowError
from core.lance_io.log_snapshot import Snapshot
from executor.worker.error_store import PLACE_ONLY, errors_uri, open_log

#: (row address, column) of the last row of a page.
Place = tuple[int, str]
#: Job, column, whether rows of which only the place is stored count.
_Key = tuple[str, str, bool]
_LISTINGS = 16
msgspec.json.Decoder(StoredRowError)  # at import, in one thread: msgspec crashes where two are the first to need it


@dataclass(frozen=True, slots=True)
class _Listing:
    """The failed rows of a job in one version of the store, in the order of row addresses and columns."""

    version: int
    addresses: npt.NDArray[np.int64]
    #: As numbers into `names`.
    columns: npt.NDArray[np.int64]
    names: tuple[str, ...]
    #: Where each row is stored.
    places: npt.NDArray[np.int64]

    def first_after(self, after: Place | None) -> int:
        if after is None:
            return 0
        address, name = after
        begin, end = (int(np.searchsorted(self.addresses, address, side)) for side in ("left", "right"))
        beyond = (n for n in range(begin, end) if self.names[self.columns[n]] > name)
        return next(beyond, end)


class RowErrors:
    """The failed rows of one database, for any number of threads. The last listings are kept, 24 bytes a row."""

    def __init__(self, database: str) -> None:
        self._log = open_log(errors_uri(database))
        self._kept: OrderedDict[_Key, _Listing] = OrderedDict()
        self._changing = threading.Lock()

    def page(
        self, job_id: str, column: str, after: Place | None, size: int, *, all_places: bool = False
    ) -> tuple[list[StoredRowError], Place | None]:
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
        found = self._listing((job_id, column, all_places), anew=after is None)
        if found is None:
            return [], None
        snapshot, listing = found
        begin = listing.first_after(after)
        end = min(begin + size, len(listing.places))
        rows = snapshot.rows(listing.places[begin:end].tolist())
        last = (int(listing.addresses[end - 1]), listing.names[listing.columns[end - 1]]) if end > begin else None
        more = end < len(listing.places)
        return [msgspec.convert(row, StoredRowError) for row in rows], last if more else None

    def _listing(self, key: _Key, *, anew: bool) -> tuple[Snapshot, _Listing] | None:
        with self._changing:
            kept = self._kept.get(key)
        if kept is not None and not anew:
            snapshot = self._log.snapshot(kept.version)
            if snapshot is not None:
                return snapshot, kept
        snapshot = self._log.snapshot()
        if snapshot is None:
            return None
        if kept is None or kept.version != snapshot.version:
            kept = _list(snapshot, *key)
        with self._changing:
            self._kept[key] = kept
            self._kept.move_to_end(key)
            if len(self._kept) > _LISTINGS:
                self._kept.popitem(last=False)
        return snapshot, kept


def _list(snapshot: Snapshot, job_id: str, column: str, all_places: bool) -> _Listing:  # noqa: FBT001 - a part of the key
    addresses, columns, places = [np.empty(0, np.int64)], [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    names: dict[str, int] = {}
    begin = 0
    for batch in snapshot.scan(["job_id", "column", "row_address", "error_type"]):
        wanted = pc.equal(batch["job_id"], job_id)
        if column:
            wanted = pc.and_(wanted, pc.equal(batch["column"], column))
        if not all_places:
            wanted = pc.and_(wanted, pc.not_equal(batch["error_type"], PLACE_ONLY))
        at = np.flatnonzero(wanted.to_numpy(zero_copy_only=False))
        if len(at):
            rows = batch.take(pa.array(at))
            addresses.append(rows["row_address"].to_numpy())
            numbers = [names.setdefault(name, len(names)) for name in rows["column"].to_pylist()]
            columns.append(np.array(numbers, np.int64))
            places.append(at + begin)
        begin += batch.num_rows
    return _sorted(snapshot.version, tuple(names), *(np.concatenate(parts) for parts in (addresses, columns, places)))


def _sorted(
    version: int,
    names: tuple[str, ...],
    addresses: npt.NDArray[np.int64],
    columns: npt.NDArray[np.int64],
    places: npt.NDArray[np.int64],
) -> _Listing:
    """Return a sorted listing; of a row that was stored again only the last one is in it."""
    alphabetical = sorted(range(len(names)), key=names.__getitem__)
    columns = np.argsort(np.array(alphabetical, np.int64))[columns] if names else columns
    order = np.lexsort((places, columns, addresses))
    addresses, columns, places = addresses[order], columns[order], places[order]
    last = np.ones(len(places), bool)
    last[:-1] = (addresses[1:] != addresses[:-1]) | (columns[1:] != columns[:-1])
    return _Listing(version, addresses[last], columns[last], tuple(names[n] for n in alphabetical), places[last])
