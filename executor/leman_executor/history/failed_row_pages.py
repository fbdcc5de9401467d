"""Page and group a job's failed rows by reading only the parts of the error store that have them.

A zone is a range of consecutive rows in the store. The zones show where the rows of each job are. If the rows of a page
are in few zones, these zones are read. Otherwise the job's rows are listed and sorted once.
"""

from __future__ import annotations

import bisect
import itertools
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from leman._format.stored_logs import PLACE_ONLY, ErrorGroup, ErrorGrouping, sql_quoted
from leman_core.model.job import Job
from leman_core.model.service_errors import LemanError
from leman_core.model.work import RowError
from leman_core.storage.log_snapshot import Snapshot
from leman_executor.worker.error_store import errors_uri, open_log

_Numbers = npt.NDArray[np.int64]
#: Maximum number of rows in a zone.
_ZONE = 1024
#: Maximum number of times that a zone is cut where the rows of another append begin. Unordered rows stay together.
_CUTS = 7


@dataclass(frozen=True, slots=True)
class ErrorZone:
    """Consecutive rows of the store, some of which belong to one particular job."""

    #: The place of the first row in the store, and the number of rows, including those of other jobs.
    begin: int
    rows: int
    #: The lowest and the highest row address among the job's rows.
    lowest: int
    highest: int


@dataclass(slots=True)
class _Fragment:
    rows: int
    #: By job. Places are relative to the fragment's first row.
    zones: dict[str, list[ErrorZone]] = field(default_factory=dict)


class ErrorZones:
    """The zones of one version of the store.

    The jobs and addresses of each fragment's rows are read once. There is one entry for each zone and job.
    """

    def __init__(self, snapshot: Snapshot, before: ErrorZones | None = None) -> None:
        """Take over the zones of an earlier version, and read the fragments that were added later."""
        self.version = snapshot.version
        sizes = snapshot.fragment_sizes
        known = before._fragments if before is not None else {}
        self._fragments: dict[str, _Fragment] = {
            name: known.get(name) or _Fragment(rows) for name, rows in sizes.items()
        }
        new = [name for name in sizes if name not in known]
        numbers = snapshot.fragments
        batches = snapshot.scan(["job_id", "row_address"], [numbers[name] for name in new])
        _learn([self._fragments[name] for name in new], batches)
        self._of_jobs: dict[str, tuple[ErrorZone, ...]] = {}

    def of(self, job_id: str) -> tuple[ErrorZone, ...]:
        """Return the zones with rows of a job, starting with the one with the lowest address."""
        found = self._of_jobs.get(job_id)
        if found is None:
            found = self._of_jobs[job_id] = tuple(sorted(self._placed(job_id), key=lambda zone: zone.lowest))
        return found

    def _placed(self, job_id: str) -> Iterator[ErrorZone]:
        begin = 0
        for fragment in self._fragments.values():
            for zone in fragment.zones.get(job_id, ()):
                yield ErrorZone(begin + zone.begin, zone.rows, zone.lowest, zone.highest)
            begin += fragment.rows


def _learn(fragments: Sequence[_Fragment], batches: Iterator[pa.RecordBatch]) -> None:
    """Build the zones of fragments from their rows. The batches must be in the order of the fragments."""
    coming = iter(fragments)
    fragment, at = None, 0
    for batch in batches:
        done = 0
        while done < batch.num_rows:
            while fragment is None or at == fragment.rows:
                fragment, at = next(coming), 0
            part = batch.slice(done, min(_ZONE, batch.num_rows - done, fragment.rows - at))
            for begin, end in _stretches(part["row_address"].to_numpy()):
                for job_id, lowest, highest in _extremes(part.slice(begin, end - begin)):
                    fragment.zones.setdefault(job_id, []).append(ErrorZone(at + begin, end - begin, lowest, highest))
            done, at = done + part.num_rows, at + part.num_rows


def _stretches(addresses: _Numbers) -> Iterator[tuple[int, int]]:
    """Yield the bounds of runs of ascending rows in one table fragment.

    If there are many runs, yield one for all rows.
    """
    cuts = np.flatnonzero((np.diff(addresses) < 0) | (np.diff(addresses >> 32) != 0)) + 1
    marks = [0, *(cuts.tolist() if len(cuts) <= _CUTS else ()), len(addresses)]
    return itertools.pairwise(marks)


def _extremes(rows: pa.RecordBatch) -> Iterator[tuple[str, int, int]]:
    """Yield each job of these rows, with its lowest and its highest row address."""
    jobs = rows["job_id"].dictionary_encode()
    names = jobs.dictionary.to_pylist()
    addresses: _Numbers = rows["row_address"].to_numpy()
    if len(names) == 1:
        yield names[0], int(addresses.min()), int(addresses.max())
        return
    numbers: _Numbers = jobs.indices.to_numpy()
    order = np.lexsort((addresses, numbers))
    numbers, addresses = numbers[order], addresses[order]
    first = np.flatnonzero(np.r_[True, numbers[1:] != numbers[:-1]])
    for begin, end in zip(first, [*first[1:], len(numbers)], strict=True):
        yield names[numbers[begin]], int(addresses[begin]), int(addresses[end - 1])


#: The row address and the column of the last row of a page.
PageKey = tuple[int, str]
#: The rows of a page, and the key after which the next page begins. The key is None for the last page.
FailedRowPage = tuple[list[RowError], PageKey | None]
#: The columns by which rows are selected and sorted for a listing.
_TOLD_BY = ("job_id", "column", "row_address", "error_type")
#: Maximum number of the store's rows that are read for a page without a listing.
_ROWS_NEAR = 16_384
msgspec.json.Decoder(RowError)  # at import: msgspec crashes if two threads are the first to use it


class PageQuery(NamedTuple):
    """A query for the failed rows of a job."""

    job_id: str
    #: The column; empty for all columns.
    column: str
    #: Whether to include rows of which only the place is stored.
    all_places: bool


@dataclass(frozen=True, slots=True)
class FailedRowListing:
    """The failed rows of a job in one version of the store, sorted by row address and column."""

    snapshot: Snapshot
    #: The fragments of that version in order, and their numbers of rows.
    fragments: tuple[str, ...]
    rows_stored: int
    addresses: _Numbers
    #: The column of each row, as an index into `names`.
    columns: _Numbers
    names: tuple[str, ...]
    #: The place of each row in the store.
    places: _Numbers

    @classmethod
    def empty(cls, snapshot: Snapshot) -> FailedRowListing:
        """Return an empty listing."""
        nothing = np.empty(0, np.int64)
        return cls(snapshot, (), 0, nothing, nothing, (), nothing)

    def first_after(self, after: PageKey | None) -> int:
        if after is None:
            return 0
        address, name = after
        begin, end = (int(np.searchsorted(self.addresses, address, side)) for side in ("left", "right"))
        beyond = (n for n in range(begin, end) if self.names[self.columns[n]] > name)
        return next(beyond, end)

    def page(self, after: PageKey | None, size: int) -> FailedRowPage:
        """Return the page of rows after a key."""
        begin = self.first_after(after)
        return self._between(begin, min(begin + size, len(self.places)), more=begin + size < len(self.places))

    def page_below(self, after: PageKey | None, size: int, bound: int | None) -> FailedRowPage | None:
        """Return a page of rows with addresses below `bound`. Return None if there are not enough for a page.

        At or above the bound, the store may have rows that the listing does not have. If there is no bound, the listing
        is complete.
        """
        if bound is None:
            return self.page(after, size)
        begin = self.first_after(after)
        complete = begin + size <= int(np.searchsorted(self.addresses, bound))
        return self._between(begin, begin + size, more=True) if complete else None

    def _between(self, begin: int, end: int, *, more: bool) -> FailedRowPage:
        rows = self.snapshot.rows(self.places[begin:end].tolist())
        last = (int(self.addresses[end - 1]), self.names[self.columns[end - 1]]) if end > begin else None
        return [msgspec.convert(row, RowError) for row in rows], last if more else None


def list_failed_rows(snapshot: Snapshot, wanted: PageQuery, before: FailedRowListing | None) -> FailedRowListing:
    """Return the listing of a version of the store.

    Args:
        before: The listing of an earlier version. If the new version only adds fragments, only these are read.
    """
    numbers = snapshot.fragments
    fragments = tuple(numbers)
    if before is None or fragments[: len(before.fragments)] != before.fragments:
        before = FailedRowListing.empty(snapshot)
    listing = replace(before, snapshot=snapshot, fragments=fragments, rows_stored=snapshot.row_count)
    unread = [numbers[file] for file in fragments[len(before.fragments) :]]
    return _with_rows(listing, _placed(snapshot.scan(_TOLD_BY, unread), before.rows_stored), wanted)


def page_from_zones(
    snapshot: Snapshot, zones: Sequence[ErrorZone], wanted: PageQuery, after: PageKey | None, size: int
) -> FailedRowPage | None:
    """Return a page, read from the zones that have its rows. Return None if a listing is cheaper, as
    these zones are many.

    Args:
        zones: The zones with rows of the job, starting with the one with the lowest address.
    """
    zones = [zone for zone in zones if after is None or zone.highest >= after[0]]
    rows = list(itertools.accumulate((zone.rows for zone in zones), initial=0))
    listing, read, enough = FailedRowListing.empty(snapshot), 0, size + 1
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
    """Yield consecutive batches, each with the places of its rows."""
    for batch in batches:
        yield batch, np.arange(begin, begin + batch.num_rows)
        begin += batch.num_rows


def _in_zones(snapshot: Snapshot, zones: Sequence[ErrorZone]) -> Iterator[tuple[pa.RecordBatch, _Numbers]]:
    if zones:
        places = np.sort(np.concatenate([np.arange(zone.begin, zone.begin + zone.rows) for zone in zones]))
        yield snapshot.batch(_TOLD_BY, places.tolist()), places


def _with_rows(
    listing: FailedRowListing, read: Iterable[tuple[pa.RecordBatch, _Numbers]], wanted: PageQuery
) -> FailedRowListing:
    """Return a listing to which the rows that match the query are added."""
    names = {name: number for number, name in enumerate(listing.names)}
    found = [part for batch, places in read if (part := _wanted(batch, places, wanted, names)) is not None]
    if not found:
        return listing
    parts = [(listing.addresses, listing.columns, listing.places), *found]
    addresses, columns, places = (np.concatenate(part) for part in zip(*parts, strict=True))
    return _sorted(listing, tuple(names), addresses, columns, places)


def _wanted(
    batch: pa.RecordBatch, places: _Numbers, wanted: PageQuery, names: dict[str, int]
) -> tuple[_Numbers, _Numbers, _Numbers] | None:
    """Return the addresses, columns and places of the rows that match the query.

    Args:
        names: The column names so far. New names are added.
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
    listing: FailedRowListing, names: tuple[str, ...], addresses: _Numbers, columns: _Numbers, places: _Numbers
) -> FailedRowListing:
    """Return the listing with these rows added, sorted. If a row was stored several times, keep only its latest copy.

    Args:
        listing: The listing to extend.
        names: The column names to which the indexes in `columns` refer.
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


#: Number of rows whose messages are in memory at once during grouping. A message takes up to 2 KB.
_GROUPED_AT_ONCE = 4096


class FailedRowGroupPage(NamedTuple):
    """Some groups of a job's failed rows."""

    #: The groups, the largest first, each with example rows.
    groups: Sequence[ErrorGroup[RowError]]
    #: Total number of groups.
    total: int
    #: Total number of rows, and number of rows that are in no group.
    rows: int
    ungrouped: int


@dataclass(frozen=True, slots=True)
class FailedRowGroups:
    """The failed rows of a job in one version of the store, grouped by cause. Examples are positions of rows."""

    snapshot: Snapshot
    groups: Sequence[ErrorGroup[int]]
    rows: int
    ungrouped: int

    def page(self, begin: int, size: int, examples: int) -> FailedRowGroupPage:
        """Return at most `size` groups, starting with number `begin`, each with at most `examples` rows."""
        chosen = self.groups[begin : begin + size]
        rows = iter(self.snapshot.rows([place for group in chosen for place in group.examples[:examples]]))
        shown = [
            ErrorGroup(
                group.error_type,
                group.message,
                group.rows,
                tuple(msgspec.convert(row, RowError) for row in itertools.islice(rows, len(group.examples[:examples]))),
            )
            for group in chosen
        ]
        return FailedRowGroupPage(shown, len(self.groups), self.rows, self.ungrouped)


def group_failed_rows(listing: FailedRowListing) -> FailedRowGroups:
    """Group the listed rows. This reads a few messages at a time, and no tracebacks."""
    grouping: ErrorGrouping[int] = ErrorGrouping()
    for begin in range(0, len(listing.places), _GROUPED_AT_ONCE):
        places = listing.places[begin : begin + _GROUPED_AT_ONCE].tolist()
        batch = listing.snapshot.batch(["error_type", "error_message"], places)
        for error_type, message, place in zip(
            batch["error_type"].to_pylist(), batch["error_message"].to_pylist(), places, strict=True
        ):
            grouping.add(error_type, message, place)
    return FailedRowGroups(listing.snapshot, grouping.largest_first(), grouping.rows, grouping.ungrouped)


_Read = TypeVar("_Read")
#: Maximum number of listings to keep, and maximum number of rows in all of them. A row takes 24 bytes. The latest
#: listing is always kept.
_LISTINGS = 16
_ROWS_KEPT = 4_000_000
#: Maximum number of groupings to keep. A grouping takes a few MB if all messages differ.
_GROUPINGS = 4
#: In a store with more rows, zones are built on the first request for failed rows, because there may never be one.
_ROWS_AHEAD = 5_000_000


class FailedRowPages:
    """Read the failed rows of one database. Thread-safe.

    This keeps the zones of all jobs for the latest version of the store. For a new version, it reads only new
    fragments. If the rows of a page are in few zones, the page is read from these zones. Otherwise all failed rows of
    the job are listed once. The most recent listings are kept.
    """

    def __init__(self, database: str) -> None:
        self._database = database
        self._log = open_log(errors_uri(database))
        self._seen: Snapshot | None = None
        self._zones: ErrorZones | None = None
        self._kept: OrderedDict[PageQuery, FailedRowListing] = OrderedDict()
        self._grouped: OrderedDict[PageQuery, FailedRowGroups] = OrderedDict()
        self._changing = threading.Lock()
        self._grouping = threading.Lock()
        self._making = threading.Lock()
        self._learning = threading.Lock()

    def page(
        self, job_id: str, column: str, after: PageKey | None, size: int, *, all_places: bool = False
    ) -> FailedRowPage:
        """Return a page of a job's failed rows. Each row occurs once, as the last attempt stored it.

        All pages from one listing show the same version of the store. Other pages show the latest version.

        Args:
            column: The column; empty for the failed rows of all columns.
            after: The key after which the page begins; None for the first page.
            size: The maximum number of rows on the page.
            all_places: Whether to include rows of which only the address is stored.

        Returns:
            The rows, and the key after which the next page begins. The key is None for the last page.

        Raises:
            LemanError: The store cannot be read; see `storage_failed`.
        """
        wanted = PageQuery(job_id, column, all_places)
        return self._mending(lambda: self._page(wanted, after, size))

    def _mending(self, read: Callable[[], _Read]) -> _Read:
        """Run `read`.

        If a part of the store is damaged, set that part aside and run `read` again on the remaining parts.
        """
        try:
            return read()
        except LemanError:
            with self._making:
                latest = self._log.snapshot()
                if latest is None or not self._log.mend(latest):
                    raise
            return read()

    def _page(self, wanted: PageQuery, after: PageKey | None, size: int) -> FailedRowPage:
        kept = self._find(wanted)
        if kept is not None and after is not None:
            try:
                return kept.page(after, size)
            except LemanError:  # its version was cleaned up; the latest version has the rows elsewhere
                pass
        latest = self._latest()
        if latest is None:
            return [], None
        if kept is None or kept.snapshot.version != latest.version:
            near = page_from_zones(latest, self._zones_of(latest).of(wanted.job_id), wanted, after, size)
            if near is not None:
                if after is None and kept is not None:
                    self._forget(wanted, kept)
                return near
        return self._listing(wanted, latest).page(after, size)

    def groups(self, job_id: str, column: str, begin: int, size: int, examples: int) -> FailedRowGroupPage:
        """Return groups of the failed rows that `page` lists, the largest group first.

        As long as the groups are kept, later pages show the same version of the store as the first page.

        Args:
            column: The column; empty for the failed rows of all columns.
            begin: The number of groups to skip.
            size: The maximum number of groups on the page.
            examples: The maximum number of rows to return for each group.

        Raises:
            LemanError: The store cannot be read; see `storage_failed`.
        """
        wanted = PageQuery(job_id, column, all_places=False)
        return self._mending(lambda: self._group_page(wanted, begin, size, examples))

    def _group_page(self, wanted: PageQuery, begin: int, size: int, examples: int) -> FailedRowGroupPage:
        kept = self._grouped.get(wanted)
        if kept is not None and begin:
            try:
                return kept.page(begin, size, examples)
            except LemanError:  # its version was cleaned up; the latest version has the rows elsewhere
                pass
        latest = self._latest()
        if latest is None:
            return FailedRowGroupPage([], 0, 0, 0)
        with self._grouping:  # concurrent callers share one grouping
            kept = self._grouped.get(wanted)
            if kept is None or kept.snapshot.version != latest.version:
                kept = group_failed_rows(self._listing_for_groups(wanted, latest))
                self._keep_groups(wanted, kept)
        return kept.page(begin, size, examples)

    def _listing_for_groups(self, wanted: PageQuery, latest: Snapshot) -> FailedRowListing:
        zones = self._zones_of(latest).of(wanted.job_id)
        if sum(zone.rows for zone in zones) > _ROWS_NEAR:
            return self._listing(wanted, latest)
        return _with_rows(FailedRowListing.empty(latest), _in_zones(latest, zones), wanted)

    def _keep_groups(self, wanted: PageQuery, made: FailedRowGroups) -> None:
        with self._changing:
            self._grouped[wanted] = made
            self._grouped.move_to_end(wanted)
            while len(self._grouped) > _GROUPINGS:
                self._grouped.popitem(last=False)

    def warnings(self, job: Job) -> list[str]:
        """Return a warning for each time that failed rows were lost since the job began.

        Raises:
            LemanError: The store cannot be read; see `storage_failed`.
        """
        found = self._log.warnings(job.created_at)
        if not found and job.progress.rows_failed and self._latest() is None:
            uri = errors_uri(self._database)
            found = [f"{uri} is gone, so the failed rows of job {job.job_id} are lost. Restore it from a copy."]
        return found

    def look_ahead(self) -> None:
        """Build the zones before the first request for failed rows, unless the store is very large.

        Raises:
            LemanError: The store cannot be read; see `storage_failed`.
        """
        self._mending(self._look_ahead)

    def _look_ahead(self) -> None:
        latest = self._latest()
        if latest is not None and latest.row_count <= _ROWS_AHEAD:
            self._zones_of(latest)

    def remove(self, job_id: str) -> None:
        """Delete the failed rows of a job.

        Raises the errors of `storage_failed`.
        """
        self._mending(lambda: self._log.remove(f"job_id = {sql_quoted(job_id)}"))
        with self._changing:
            kept: OrderedDict[PageQuery, Any]
            for kept in (self._kept, self._grouped):
                for key in [key for key in kept if key.job_id == job_id]:
                    del kept[key]

    def _latest(self) -> Snapshot | None:
        seen = self._seen
        try:
            if seen is not None and seen.is_latest:
                return seen
        except LemanError:  # the version is damaged, or was cleaned up
            pass
        self._seen = latest = self._log.snapshot()
        return latest

    def _zones_of(self, latest: Snapshot) -> ErrorZones:
        with self._learning:  # concurrent callers share one build
            if self._zones is None or self._zones.version != latest.version:
                self._zones = ErrorZones(latest, self._zones)
            return self._zones

    def _find(self, wanted: PageQuery) -> FailedRowListing | None:
        with self._changing:
            return self._kept.get(wanted)

    def _forget(self, wanted: PageQuery, outdated: FailedRowListing) -> None:
        """Drop a listing if a later first page may have shown rows that the listing does not have."""
        with self._changing:
            if self._kept.get(wanted) is outdated:
                del self._kept[wanted]

    def _listing(self, wanted: PageQuery, latest: Snapshot) -> FailedRowListing:
        kept = self._find(wanted)
        if kept is not None and kept.snapshot.version == latest.version:
            return kept
        with self._making:  # concurrent callers share one listing
            kept = self._find(wanted)
            if kept is None or kept.snapshot.version != latest.version:
                kept = list_failed_rows(latest, wanted, kept)
                self._keep(wanted, kept)
            return kept

    def _keep(self, wanted: PageQuery, listing: FailedRowListing) -> None:
        with self._changing:
            self._kept[wanted] = listing
            self._kept.move_to_end(wanted)
            rows = sum(len(kept.places) for kept in self._kept.values())
            while len(self._kept) > 1 and (rows > _ROWS_KEPT or len(self._kept) > _LISTINGS):
                rows -= len(self._kept.popitem(last=False)[1].places)
