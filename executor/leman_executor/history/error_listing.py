"""Failed rows of a job, sorted: where each is stored, and pages of what is said of them."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from leman_core.model.job import StoredRowError
from leman_core.storage.log_snapshot import Snapshot
from leman_executor.history.error_zones import Zone
from leman_executor.worker.error_store import PLACE_ONLY

#: (row address, column) of the last row of a page.
PageKey = tuple[int, str]
#: The rows of a page, and the place after which the next one begins; None: it was the last.
Page = tuple[list[StoredRowError], PageKey | None]
_Numbers = npt.NDArray[np.int64]
#: Columns that tell which rows are listed, and in which order.
_TOLD_BY = ("job_id", "column", "row_address", "error_type")
#: A page that is made without a listing reads so many rows of the store at the most.
_ROWS_NEAR = 16_384
msgspec.json.Decoder(StoredRowError)  # at import, in one thread: msgspec crashes where two are the first to need it


class Wanted(NamedTuple):
    """What is listed: the failed rows of a job."""

    job_id: str
    #: Empty: those of all columns.
    column: str
    #: Also rows of which only the place is stored.
    all_places: bool


@dataclass(frozen=True, slots=True)
class Listing:
    """Failed rows of a job in one version of the store, in the order of row addresses and columns."""

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

    @classmethod
    def empty(cls, snapshot: Snapshot) -> Listing:
        """Return that of no rows."""
        nothing = np.empty(0, np.int64)
        return cls(snapshot, (), 0, nothing, nothing, (), nothing)

    def first_after(self, after: PageKey | None) -> int:
        if after is None:
            return 0
        address, name = after
        begin, end = (int(np.searchsorted(self.addresses, address, side)) for side in ("left", "right"))
        beyond = (n for n in range(begin, end) if self.names[self.columns[n]] > name)
        return next(beyond, end)

    def page(self, after: PageKey | None, size: int) -> Page:
        """Return the rows that come after a place."""
        begin = self.first_after(after)
        return self._between(begin, min(begin + size, len(self.places)), more=begin + size < len(self.places))

    def page_below(self, after: PageKey | None, size: int, bound: int | None) -> Page | None:
        """Return a page of rows with addresses below a bound, which others than these may have; None: they are too few.

        Without a bound there are no others.
        """
        if bound is None:
            return self.page(after, size)
        begin = self.first_after(after)
        complete = begin + size <= int(np.searchsorted(self.addresses, bound))
        return self._between(begin, begin + size, more=True) if complete else None

    def _between(self, begin: int, end: int, *, more: bool) -> Page:
        rows = self.snapshot.rows(self.places[begin:end].tolist())
        last = (int(self.addresses[end - 1]), self.names[self.columns[end - 1]]) if end > begin else None
        return [msgspec.convert(row, StoredRowError) for row in rows], last if more else None


def list_all(snapshot: Snapshot, wanted: Wanted, before: Listing | None) -> Listing:
    """Return the listing of a version.

    Args:
        before: That of an earlier one. Where its fragments are the first of this version, only the others are read.
    """
    numbers = snapshot.fragments
    fragments = tuple(numbers)
    if before is None or fragments[: len(before.fragments)] != before.fragments:
        before = Listing.empty(snapshot)
    listing = replace(before, snapshot=snapshot, fragments=fragments, rows_stored=snapshot.row_count)
    unread = [numbers[file] for file in fragments[len(before.fragments) :]]
    return _with_rows(listing, _placed(snapshot.scan(_TOLD_BY, unread), before.rows_stored), wanted)


def page_near(
    snapshot: Snapshot, zones: Sequence[Zone], wanted: Wanted, after: PageKey | None, size: int
) -> Page | None:
    """Return a page from the few zones that have its rows; None: they are many, and a listing is the better way.

    Args:
        zones: Those with rows of the job, the one with the lowest address first.
    """
    zones = [zone for zone in zones if after is None or zone.highest >= after[0]]
    rows = list(itertools.accumulate((zone.rows for zone in zones), initial=0))
    listing, read, enough = Listing.empty(snapshot), 0, size + 1
    while True:
        upto = min(bisect.bisect_left(rows, enough), len(zones))
        if rows[upto] > _ROWS_NEAR:
            return None
        listing = _with_rows(listing, _in_zones(snapshot, zones[read:upto]), wanted)
        page = listing.page_below(after, size, zones[upto].lowest if upto < len(zones) else None)
        if page is not None:
            return page
        read, enough = upto, 2 * rows[upto]


def _placed(batches: Iterable[pa.RecordBatch], begin: int) -> Iterator[tuple[pa.RecordBatch, _Numbers]]:
    """Yield batches that lie one behind the other, each with the places of its rows."""
    for batch in batches:
        yield batch, np.arange(begin, begin + batch.num_rows)
        begin += batch.num_rows


def _in_zones(snapshot: Snapshot, zones: Sequence[Zone]) -> Iterator[tuple[pa.RecordBatch, _Numbers]]:
    if zones:
        places = np.sort(np.concatenate([np.arange(zone.begin, zone.begin + zone.rows) for zone in zones]))
        yield snapshot.batch(_TOLD_BY, places.tolist()), places


def _with_rows(listing: Listing, read: Iterable[tuple[pa.RecordBatch, _Numbers]], wanted: Wanted) -> Listing:
    """Return a listing with more rows, those of them that are wanted."""
    names = {name: number for number, name in enumerate(listing.names)}
    found = [part for batch, places in read if (part := _wanted(batch, places, wanted, names)) is not None]
    if not found:
        return listing
    parts = [(listing.addresses, listing.columns, listing.places), *found]
    addresses, columns, places = (np.concatenate(part) for part in zip(*parts, strict=True))
    return _sorted(listing, tuple(names), addresses, columns, places)


def _wanted(
    batch: pa.RecordBatch, places: _Numbers, wanted: Wanted, names: dict[str, int]
) -> tuple[_Numbers, _Numbers, _Numbers] | None:
    """Return the addresses, columns and places of the rows that are wanted.

    Args:
        names: Gets the names of the columns that are not in it yet.
    """
    those = pc.equal(batch["job_id"], wanted.job_id)
    if wanted.column:
        those = pc.and_(those, pc.equal(batch["column"], wanted.column))
    if not wanted.all_places:
        those = pc.and_(those, pc.not_equal(batch["error_type"], PLACE_ONLY))
    at: Any = np.flatnonzero(those.to_numpy(zero_copy_only=False))
    if not len(at):
        return None
    rows = batch if len(at) == batch.num_rows else batch.take(pa.array(at))
    encoded = rows["column"].dictionary_encode()
    numbers = [names.setdefault(name, len(names)) for name in encoded.dictionary.to_pylist()]
    columns = np.array(numbers, np.int64)[encoded.indices.to_numpy()]
    return rows["row_address"].to_numpy(), columns, places[at]


def _sorted(
    listing: Listing, names: tuple[str, ...], addresses: _Numbers, columns: _Numbers, places: _Numbers
) -> Listing:
    """Return the listing with these rows, sorted; of a row that was stored again only the last one is in it.

    Args:
        listing: Gets them.
        names: The names of columns that `columns` are numbers of.
    """
    alphabetical = sorted(range(len(names)), key=names.__getitem__)
    columns = np.argsort(np.array(alphabetical, np.int64))[columns]
    order = np.argsort(addresses, kind="stable") if len(names) == 1 else np.lexsort((columns, addresses))
    addresses, columns, places = addresses[order], columns[order], places[order]
    first = np.flatnonzero(np.r_[True, (addresses[1:] != addresses[:-1]) | (columns[1:] != columns[:-1])])
    in_order = tuple(names[n] for n in alphabetical)
    return replace(
        listing,
        addresses=addresses[first],
        columns=columns[first],
        names=in_order,
        places=np.maximum.reduceat(places, first),
    )
