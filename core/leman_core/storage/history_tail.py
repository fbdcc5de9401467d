"""The tail of a job history: states of jobs that are not in its table yet, in an object store.

An append to the table asks five requests of the store; an object that is put only where there is none, one. So an
executor that is the only one of a database, and of one release with all other services, writes states of jobs as such
objects, `<database>/_leman/jobs_tail/<number>.json`. Their numbers are their order, and leave none out: who puts the
next one knows that nobody wrote since the one before, and of two who put it one learns that the other was faster.

Now and then the tail is folded: states of jobs that have ended go into the table, and then an object is put that begins
the tail anew, with the states of jobs that go on; those before it do not count any more, and are deleted later.
`docs/decisions/0048-history-tail.md` says why nothing is lost by it, and nobody has a job twice.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow.fs as pafs
import structlog

from leman_core.model.errors import DataLoss, Unavailable
from leman_core.storage import sealed_documents, store_objects, stored_formats
from leman_core.storage.filesystems import filesystem_of
from leman_core.storage.locations import OWN_FOLDER
from leman_core.storage.small_files import read_expected
from leman_core.storage.storage_errors import STORE_UNAVAILABLE, in_use

FOLDER = "jobs_tail"
_SCHEME = "s3://"
_ENDING = ".json"
_DIGITS = 20
#: Objects that are read at once.
_READERS = 16
#: Of one that is read in one request.
_SMALL_BYTES = 1 << 20
_TRIES = 3
#: An object that does not count any more is deleted when the last one was put so long after it: whoever would put one
#: of its number, as it knows of none, has looked at the tail in the meantime
#: (`leman_executor.history.unfolded_states`).
KEPT_SECONDS = 600.0

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Entry:
    """An object of the tail.

    `records`: states of jobs as the table has them in its column `record`, in their order. `begins`: nothing before it
    counts any more. `damage`: why it cannot be read; empty: it can.
    """

    number: int
    records: tuple[str, ...] = ()
    begins: bool = False
    damage: str = ""
    size_bytes: int = 0


class HistoryTail:
    """The tail of one database's job history; any number of threads may call it.

    Where the storage cannot be used, calls raise what `storage_errors.failed` gives.
    """

    def __init__(self, database: str) -> None:
        self.uri = f"{database.rstrip('/')}/{OWN_FOLDER}/{FOLDER}"

    def since(self, number: int = 0) -> list[Entry]:
        """Return what was put after an object, oldest first, as far as it counts.

        It takes one listing, and a request for each object.

        Args:
            number: of the object; 0: all.
        """
        for tries_left in reversed(range(_TRIES)):
            try:
                return self._since(number)
            except FileNotFoundError as error:  # it has not counted for long, and is deleted
                if not tries_left:
                    message = f"The tail {self.uri} cannot be read now: {error} was deleted meanwhile"
                    raise Unavailable(STORE_UNAVAILABLE, message, uri=self.uri) from error
        raise AssertionError("the last try returns or raises")

    def _since(self, number: int) -> list[Entry]:
        later = sorted((n for n in self._listed() if n > number), reverse=True)
        found: list[Entry] = []
        if not later:
            return found
        with ThreadPoolExecutor(min(_READERS, len(later)), thread_name_prefix="history-tail") as readers:
            for at in range(0, len(later), _READERS):
                for entry in readers.map(self._read, later[at : at + _READERS]):
                    found.append(entry)
                    if entry.begins:
                        return found[::-1]
        return found[::-1]

    def put(self, number: int, records: Sequence[str], *, begins: bool = False) -> bool:
        """Put the object of a number; False: somebody else has put one.

        Raises:
            LemanError: what `storage_errors.failed` gives; it may be there all the same.
        """
        document = {
            "format": stored_formats.TAIL.current,
            "id": uuid.uuid4().hex,
            "records": list(records),
            "begins": begins,
        }
        content = sealed_documents.seal(document)
        name = _name(number)
        with in_use(f"The tail {self.uri} of a job history", self.uri):
            if store_objects.create(self.uri, name, content):
                return True
            # it is this one where the answer was lost, and the request was made again
            return read_expected(self.uri, name, _SMALL_BYTES) == content

    def forget_before(self, number: int) -> None:
        """Delete objects before this one, if they are old enough that nobody will put one of their numbers.

        Both times are the store's.
        """
        listed = self._listed()
        if not listed:
            return
        last = max(listed.values())
        old = [_name(n) for n, at in listed.items() if n < number and at < last - KEPT_SECONDS]
        if old:
            with in_use(f"The tail {self.uri} of a job history", self.uri):
                store_objects.delete(self.uri, old)

    def _listed(self) -> dict[int, float]:
        """Return when each object was put, by its number."""
        with in_use(f"The tail {self.uri} of a job history", self.uri):
            filesystem, root = filesystem_of(self.uri)
            try:
                found = filesystem.get_file_info(pafs.FileSelector(root, allow_not_found=True))
            except FileNotFoundError:
                return {}
        stems = ((info, info.base_name.removesuffix(_ENDING)) for info in found if info.base_name.endswith(_ENDING))
        return {int(stem): (info.mtime_ns or 0) / 1e9 for info, stem in stems if stem.isdigit()}

    def _read(self, number: int) -> Entry:
        with in_use(f"The tail {self.uri} of a job history", self.uri):
            content = read_expected(self.uri, _name(number), _SMALL_BYTES)
        try:
            document = sealed_documents.unseal(content)
            stored_formats.TAIL.check(document.get("format"), f"{self.uri}/{_name(number)}")
            records = tuple(map(str, document["records"]))
            return Entry(number, records, bool(document["begins"]), size_bytes=len(content))
        except (ValueError, KeyError, TypeError) as error:
            what = f"{self.uri}/{_name(number)} is damaged ({error}): the states of jobs in it are lost."
            _log.error("damage", uri=self.uri, what=what)
            return Entry(number, damage=what, size_bytes=len(content))


def tail_of(database: str) -> HistoryTail | None:
    """Return the tail of a database's job history; None: there is none where it lies."""
    return HistoryTail(database) if database.startswith(_SCHEME) else None


def records_of(database: str) -> list[str]:
    """Return the records of the tail, oldest first; look before the table is read, as what is folded is in both.

    Raises:
        DataLoss: RECORD_DAMAGED.
        LemanError: what `storage_errors.failed` gives.
    """
    tail = tail_of(database)
    entries: Iterable[Entry] = () if tail is None else tail.since()
    found: list[str] = []
    for entry in entries:
        if entry.damage:
            raise DataLoss("RECORD_DAMAGED", entry.damage)
        found += entry.records
    return found


def _name(number: int) -> str:
    return f"{number:0{_DIGITS}d}{_ENDING}"
