"""Pages of a job's failed rows: a page reads the few places of the store where its rows are, and no other row."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar

from leman_core.model.errors import LemanError
from leman_core.model.job import Job
from leman_core.storage.append_log import quoted
from leman_core.storage.log_snapshot import Snapshot
from leman_executor.history.error_listing import Listing, Page, PageKey, Wanted, list_all, page_near
from leman_executor.history.error_zones import ErrorZones
from leman_executor.worker.error_store import errors_uri, open_log

_Read = TypeVar("_Read")
#: Listings that are kept, and the rows in all of them, at 24 bytes each; the last one is kept however long it is.
_LISTINGS = 16
_ROWS_KEPT = 4_000_000
#: Of a store with more rows zones are learnt when somebody asks for failed rows: it may be nobody does.
_ROWS_AHEAD = 5_000_000


class RowErrors:
    """The failed rows of one database, for any number of threads.

    Of each version it knows in which zones of the store each job has rows; a new one costs a look at its new fragments.
    A page whose rows lie in few zones is read from there. Where they lie in many, all failed rows of the job are listed
    once, and the last listings are kept.
    """

    def __init__(self, database: str) -> None:
        self._database = database
        self._log = open_log(errors_uri(database))
        self._seen: Snapshot | None = None
        self._zones: ErrorZones | None = None
        self._kept: OrderedDict[Wanted, Listing] = OrderedDict()
        self._changing = threading.Lock()
        self._making = threading.Lock()
        self._learning = threading.Lock()

    def page(self, job_id: str, column: str, after: PageKey | None, size: int, *, all_places: bool = False) -> Page:
        """Return a page of the failed rows of a job, each once, as the last attempt left it.

        Pages of a listing that is kept are of the same version of the store, all others of the latest.

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
        wanted = Wanted(job_id, column, all_places)
        return self._mending(lambda: self._page(wanted, after, size))

    def _mending(self, read: Callable[[], _Read]) -> _Read:
        """Return what is read; where a part of the store is damaged, it is set aside, and the rest is read."""
        try:
            return read()
        except LemanError:
            with self._making:
                latest = self._log.snapshot()
                if latest is None or not self._log.mend(latest):
                    raise
            return read()

    def _page(self, wanted: Wanted, after: PageKey | None, size: int) -> Page:
        kept = self._find(wanted)
        if kept is not None and after is not None:
            try:
                return kept.page(after, size)
            except LemanError:  # its version was cleaned: the latest one has the rows elsewhere
                pass
        latest = self._latest()
        if latest is None:
            return [], None
        if kept is None or kept.snapshot.version != latest.version:
            near = page_near(latest, self._zones_of(latest).of(wanted.job_id), wanted, after, size)
            if near is not None:
                if after is None and kept is not None:
                    self._forget(wanted, kept)
                return near
        return self._listing(wanted, latest).page(after, size)

    def warnings(self, job: Job) -> list[str]:
        """Return what is lost of the failed rows that were stored since a job began, for people.

        Raises:
            LemanError: what `storage_errors.failed` gives, where that cannot be told.
        """
        found = self._log.warnings(job.created_at)
        if not found and job.progress.rows_failed and self._latest() is None:
            uri = errors_uri(self._database)
            found = [f"{uri} is gone, and with it the rows on which job {job.job_id} failed. Restore it from a copy."]
        return found

    def look_ahead(self) -> None:
        """Learn where failed rows are stored before somebody asks for them, unless they are very many.

        Raises:
            LemanError: what `storage_errors.failed` gives, where the store cannot be read.
        """
        self._mending(self._look_ahead)

    def _look_ahead(self) -> None:
        latest = self._latest()
        if latest is not None and latest.row_count <= _ROWS_AHEAD:
            self._zones_of(latest)

    def remove(self, job_id: str) -> None:
        """Delete the failed rows of a job.

        Raises:
            LemanError: what `storage_errors.failed` gives.
        """
        self._mending(lambda: self._log.remove(f"job_id = {quoted(job_id)}"))
        with self._changing:
            for key in [key for key in self._kept if key.job_id == job_id]:
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

    def _zones_of(self, latest: Snapshot) -> ErrorZones:
        with self._learning:  # of many who need them, one learns them
            if self._zones is None or self._zones.version != latest.version:
                self._zones = ErrorZones(latest, self._zones)
            return self._zones

    def _find(self, wanted: Wanted) -> Listing | None:
        with self._changing:
            return self._kept.get(wanted)

    def _forget(self, wanted: Wanted, outdated: Listing) -> None:
        """Drop a listing that lacks rows which a first page may have shown."""
        with self._changing:
            if self._kept.get(wanted) is outdated:
                del self._kept[wanted]

    def _listing(self, wanted: Wanted, latest: Snapshot) -> Listing:
        kept = self._find(wanted)
        if kept is not None and kept.snapshot.version == latest.version:
            return kept
        with self._making:  # of many who ask for one listing, one makes it
            kept = self._find(wanted)
            if kept is None or kept.snapshot.version != latest.version:
                kept = list_all(latest, wanted, kept)
                self._keep(wanted, kept)
            return kept

    def _keep(self, wanted: Wanted, listing: Listing) -> None:
        with self._changing:
            self._kept[wanted] = listing
            self._kept.move_to_end(wanted)
            rows = sum(len(kept.places) for kept in self._kept.values())
            while len(self._kept) > 1 and (rows > _ROWS_KEPT or len(self._kept) > _LISTINGS):
                rows -= len(self._kept.popitem(last=False)[1].places)
