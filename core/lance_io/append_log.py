"""Small Lance tables that are only appended to: job history and the error store."""

from __future__ import annotations

import contextlib
import datetime
import random
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import lance
import pyarrow as pa
import structlog
from lance.commit import CommitConflictError

from core.errors import LemanError
from core.lance_io import damage
from core.lance_io.opening import has_versions, open_checked, open_latest, open_version
from core.lance_io.panics import panics_as_errors
from core.lance_io.table_errors import table_error
from core.storage import failed, refusal

_COMPACT_AFTER = 128
_KEEP = datetime.timedelta(hours=1)
_KEEP_LITTLE = datetime.timedelta(minutes=1)
#: A fragment with so many rows is not made larger by compaction.
_FULL = 1024
#: Appends that meet others: each try is Lance's twenty.
_TRIES = 30
_LONGEST_PAUSE_SECONDS = 0.5
#: Column of a log that keeps an order: the row id that a row had before it was saved from a damaged fragment.
_SAVED_FROM = "position"
_ROW_ID = "_rowid"

_log = structlog.get_logger(__name__)


def position(row: dict[str, object]) -> int:
    """Where a row stands among all others of its table: in the order in which their appends were committed.

    Commits give out stable row ids in their order, and compaction keeps them, while it moves rows behind others that
    were appended meanwhile. 0 for all rows of a table without them, as earlier releases made it: there the order of the
    manifest is all that is known.
    """
    if _SAVED_FROM not in row:
        return 0
    before = row[_SAVED_FROM]
    return int(str(row[_ROW_ID] if before is None else before))


def was_saved(row: dict[str, object]) -> bool:
    """Whether a row was appended anew, so that its position may be before those of rows that were there already."""
    return row.get(_SAVED_FROM) is not None


class Snapshot:
    """The rows of one version, each with a place of its own: 0 is the first."""

    def __init__(self, dataset: lance.LanceDataset) -> None:
        self._dataset = dataset
        self.version = int(dataset.version)

    @property
    def columns(self) -> list[str]:
        """Names of all columns."""
        return list(self._dataset.schema.names)

    @property
    def is_latest(self) -> bool:
        """Whether no later version is there. Raises OSError, ValueError where that cannot be told."""
        return int(self._dataset.latest_version) == self.version

    @property
    def fragments(self) -> dict[str, int]:
        """Its fragments in the order of their rows: the name of a file that no other fragment ever has, and the number,
        which may be given again where the latest version was damaged."""
        found = (fragment.metadata for fragment in self._dataset.get_fragments())
        return {str(metadata.files[0].path): int(metadata.id) for metadata in found}

    @property
    def row_count(self) -> int:
        return int(self._dataset.count_rows())

    def files(self, fragment_id: int) -> list[str]:
        """Paths of a fragment's data files in the folder of the table."""
        return [f"data/{file.path}" for file in self._fragment(fragment_id).metadata.files]

    def fragment(self, fragment_id: int, columns: Sequence[str]) -> list[dict[str, object]]:
        """These columns of a fragment's rows, and what tells their `position`. Raises `damage.UNREADABLE`."""
        ordered = _SAVED_FROM in self.columns
        names = [*columns, _SAVED_FROM] if ordered else list(columns)
        with panics_as_errors():
            found = self._fragment(fragment_id).to_table(columns=names, with_row_id=ordered)
            rows: list[dict[str, object]] = found.to_pylist()
        return rows

    def readable(self, fragment_id: int) -> list[dict[str, object]]:
        """Those of a damaged fragment's rows that can be read by themselves, with what tells their `position`."""
        fragment = self._fragment(fragment_id)
        with panics_as_errors():  # the manifest has the ids: no file is read
            ids = fragment.to_table(columns=[], with_row_id=True).column(_ROW_ID).to_pylist()
        found: list[dict[str, object]] = []
        for row, row_id in enumerate(ids):
            with contextlib.suppress(*damage.UNREADABLE), panics_as_errors():
                found += [{**values, _ROW_ID: row_id} for values in fragment.take([row]).to_pylist()]
        return found

    def _fragment(self, fragment_id: int) -> lance.LanceFragment:
        found = self._dataset.get_fragment(fragment_id)
        if found is None:
            raise OSError(f"there is no fragment {fragment_id}")
        return found

    def without(self, fragment_id: int) -> None:
        """Commits that the table does without a fragment. Raises OSError where others are in the way."""
        gone = lance.LanceOperation.Delete([], [fragment_id], "damaged")
        lance.LanceDataset.commit(self._dataset, gone, read_version=self.version)

    def scan(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """These columns of all rows, in the order of their places."""
        scanner = self._dataset.scanner(columns=list(columns), scan_in_order=True)
        batches: Iterator[pa.RecordBatch] = scanner.to_batches()
        return batches

    def rows(self, places: Sequence[int]) -> list[dict[str, object]]:
        """The rows of these places, in this order."""
        if not places:
            return []
        rows: list[dict[str, object]] = self._dataset.take(list(places)).to_pylist()
        return rows


class AppendLog:
    """Rows of one schema under a uri. Not safe for threads; several processes may append at once.

    `compact_after`: so many appends of this one make it compact the table; 0: it is left to the caller. Whoever
    `repairs` sets aside what is damaged, and says so in the log. One that is `ordered` is created such that rows keep
    their `position`, whatever compaction and repair do.
    """

    def __init__(
        self,
        uri: str,
        schema: pa.Schema,
        *,
        compact_after: int = _COMPACT_AFTER,
        repairs: bool = False,
        ordered: bool = False,
    ) -> None:
        self._uri = uri
        self._schema = schema
        self._ordered = ordered
        self._compact_after = compact_after
        self._repairs = repairs
        self._appended = 0

    def create(self) -> None:
        """Makes the table if there is none. Call it before the first append: of two appends that both find no table,
        Lance would keep one."""
        if self._open() is not None:
            return
        try:
            if "://" not in self._uri:
                Path(self._uri).parent.mkdir(parents=True, exist_ok=True)
            schema = self._schema.append(_saved_from()) if self._ordered else self._schema
            lance.write_dataset(schema.empty_table(), self._uri, mode="create", enable_stable_row_ids=self._ordered)
        except OSError as error:  # somebody else was faster, unless the storage refuses
            self._raise_refusal(error)

    def append(self, rows: Sequence[dict[str, object]]) -> Snapshot:
        """Adds rows in one version, and gives that. Where others append at the same time it takes its turn. Raises
        what `core.storage.failed` gives, and DataLoss (TABLE_DAMAGED)."""
        table = pa.Table.from_pylist(list(rows), schema=self._schema)
        written = Snapshot(self._write(table))
        self._appended += 1
        if self._compact_after and self._appended >= self._compact_after:
            self._appended = 0
            self.compact()
        return written

    def _write(self, table: pa.Table) -> lance.LanceDataset:
        looked = False
        tries_left = _TRIES
        while True:
            tries_left -= 1
            try:
                with panics_as_errors():
                    return lance.write_dataset(table, self._uri, mode="append")
            except damage.UNREADABLE as error:
                self._raise_refusal(error)
                met = _met_others(error)
                if not tries_left or (not met and (looked or not self._repairs)):
                    raise failed(error, f"{self._uri} cannot be appended to: {error}", self._uri) from error
            if not looked:  # the latest version may be damaged: then another one takes its place
                looked = True
                self._look()
            if met:
                time.sleep(random.uniform(0.0, _LONGEST_PAUSE_SECONDS))

    def _look(self) -> None:
        """Returns where the table can be opened, for whoever repairs perhaps at an earlier version."""
        try:
            self._open()
        except (OSError, ValueError) as error:
            raise table_error(self._uri, error) from error

    def read(self, columns: Sequence[str] | None = None, where: str | None = None) -> list[dict[str, object]]:
        """Rows in the order of their appends, see `position`; nothing where nothing was appended yet. Raises
        `damage.UNREADABLE`."""
        dataset = self._open()
        if dataset is None:
            return []
        ordered = _SAVED_FROM in dataset.schema.names
        own = [name for name in dataset.schema.names if name != _SAVED_FROM]
        names = list(columns) if columns is not None else own
        asked = [*names, _SAVED_FROM] if ordered else names
        with panics_as_errors():
            rows = dataset.to_table(columns=asked, filter=where, with_row_id=ordered).to_pylist()
        return [{name: row[name] for name in names} for row in sorted(rows, key=position)]

    def snapshot(self, version: int = 0) -> Snapshot | None:
        """The rows of a version (0: the latest); None where nothing was appended yet, or the version was cleaned."""
        if not version:
            dataset = self._open()
            return None if dataset is None else Snapshot(dataset)
        try:
            return Snapshot(open_version(self._uri, version))
        except (ValueError, OSError):
            return None

    def salvage(
        self, snapshot: Snapshot, fragment_id: int, why: Exception, usable: Callable[[dict[str, object]], bool]
    ) -> list[dict[str, object]]:
        """The `usable` rows of a fragment that has others, or that cannot be read as a whole; for whoever `repairs`
        they take its place in the table, each at its old `position`. Raises OSError where it is not certain that the
        fragment is damaged."""
        files = snapshot.files(fragment_id)
        for path in files:
            damage.check_store(self._uri, path)
        rows = [row for row in snapshot.readable(fragment_id) if usable(row)]
        if self._repairs:
            with contextlib.suppress(OSError, LemanError):  # then the next one who reads it does the same
                if rows:
                    self._write(self._saved(snapshot, rows))
                snapshot.without(fragment_id)
                for path in files:
                    self._set_aside(path, f"{self._uri}/{path} is damaged ({why}); {len(rows)} rows of it were saved.")
        return rows

    def _saved(self, snapshot: Snapshot, rows: Sequence[dict[str, object]]) -> pa.Table:
        if _SAVED_FROM not in snapshot.columns:
            return pa.Table.from_pylist(list(rows), schema=self._schema)
        placed = [{**row, _SAVED_FROM: position(row)} for row in rows]
        return pa.Table.from_pylist(placed, schema=self._schema.append(_saved_from()))

    def compact(self) -> None:
        """Makes few files of many; a writer that comes in between goes first."""
        dataset = self._open()
        if dataset is None:
            return
        with contextlib.suppress(OSError):
            dataset.optimize.compact_files()
            dataset.cleanup_old_versions(older_than=_KEEP)

    def tidy(self) -> tuple[Snapshot, Snapshot] | None:
        """As `compact`, but touches no fragment that is full and keeps no version for long. Gives the versions before
        and after it; None: nothing was done."""
        before = self.snapshot()
        if before is None:
            return None
        with contextlib.suppress(*damage.UNREADABLE), panics_as_errors():
            dataset = open_latest(self._uri)
            dataset.optimize.compact_files(target_rows_per_fragment=_FULL)
            dataset.cleanup_old_versions(older_than=_KEEP_LITTLE)
        after = self.snapshot()
        return None if after is None else (before, after)

    def _raise_refusal(self, error: Exception) -> None:
        refused = refusal(error, self._uri)
        if refused is not None:
            raise refused from error

    def _open(self) -> lance.LanceDataset | None:
        try:
            with panics_as_errors():
                return self._checked(open_checked(self._uri))
        except (ValueError, OSError) as error:
            found = damage.versions(self._uri)
            if not self._repairs and (found or damage.had_versions(self._uri)):
                raise
            if not found:
                return None
            return self._open_before_damage(error)

    def _open_before_damage(self, why: Exception) -> lance.LanceDataset | None:
        """The latest version that can be opened; manifests after it are set aside. None where there is none: then all
        of the table is."""
        found = damage.versions(self._uri)
        for version, path in found:
            damage.check_store(self._uri, path)
            try:
                with panics_as_errors():
                    self._checked(open_version(self._uri, version)).get_fragments()
            except damage.UNREADABLE:
                continue
            for later, damaged in found:
                if later > version:
                    self._set_aside(damaged, f"Version {later} of {self._uri} is damaged ({why}).")
            return open_latest(self._uri)
        if has_versions(self._uri):
            self._set_aside("", f"No version of {self._uri} can be opened ({why}).")
        return None

    def _checked(self, dataset: lance.LanceDataset) -> lance.LanceDataset:
        """A manifest of nothing but zeros opens as a table without columns. Raises ValueError."""
        missing = [name for name in self._schema.names if name not in dataset.schema.names]
        if missing:
            raise ValueError(f"it has no columns {', '.join(missing)}")
        return dataset

    def _set_aside(self, path: str, what: str) -> None:
        note = damage.set_aside(self._uri, path, what)
        _log.error("damage", uri=self._uri, what=note)


def _saved_from() -> pa.Field:
    return pa.field(_SAVED_FROM, pa.int64())


def _met_others(error: Exception) -> bool:
    """Whether an append failed because of other writers, and not because of the store."""
    text = str(error).lower()
    return isinstance(error, CommitConflictError) or "concurrent" in text or "conflict" in text
