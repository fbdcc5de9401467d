"""Small Lance tables that rows are only appended to (job history, failed rows). Their damaged files are moved aside."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath

import lance
import pyarrow as pa
import pyarrow.fs as pafs
import structlog
from lance.commit import CommitConflictError

from leman._format import stored_documents
from leman._format.stored_logs import DAMAGED, SAVED_FROM, position
from leman_core.model.service_errors import LemanError, check_format
from leman_core.storage import whole_files
from leman_core.storage.documents import DocumentFolder
from leman_core.storage.error_translation import LANCE_ERRORS, table_error
from leman_core.storage.filesystems import counted_table, filesystem_of
from leman_core.storage.locations import in_object_store
from leman_core.storage.log_snapshot import Snapshot, readable, saved, with_position
from leman_core.storage.object_stores import lance_options
from leman_core.storage.opening import has_versions, open_checked, open_latest, open_version
from leman_core.storage.panics import panics_as_errors
from leman_core.storage.storage_errors import (
    error_text,
    refusal_error,
    storage_failed,
    store_failed,
)
from leman_core.storage.table_creation import create_empty

_NOTE = ".txt"
_MANIFEST = ".manifest"
_NEWEST_FIRST = 20  # digits in a manifest's name, if names count down so that the newest sorts first
_CHUNK = 1 << 22


def check_file_whole(uri: str, path: str) -> None:
    """Read a table's file completely. If this succeeds or the file is missing, an error of Lance about it means damage.

    Raises:
        OSError: The store does not answer, so the file may be intact.
    """
    filesystem, root = filesystem_of(uri)
    try:
        with filesystem.open_input_stream(f"{root}/{path}") as stream:
            while stream.read(_CHUNK):
                pass
    except FileNotFoundError:
        return
    except OSError:
        if filesystem.get_file_info(f"{root}/{path}").type != pafs.FileType.Directory:
            raise


def manifest_versions(uri: str) -> list[tuple[int, str]]:
    """Return (version, path of its manifest) of all manifests, readable or not, latest first.

    Raises:
        OSError: The folder cannot be listed.
    """
    filesystem, root = filesystem_of(uri)
    selector = pafs.FileSelector(f"{root}/_versions", allow_not_found=True)
    try:
        entries = filesystem.get_file_info(selector)
    except FileNotFoundError:  # pyarrow, if the folder is created at this moment
        entries = filesystem.get_file_info(selector)
    names = [PurePosixPath(entry.path).name for entry in entries]
    found = [
        (_version(name.removesuffix(_MANIFEST)), f"_versions/{name}")
        for name in names
        if name.endswith(_MANIFEST) and name.removesuffix(_MANIFEST).isdigit()
    ]
    return sorted(found, reverse=True)


def had_versions(uri: str) -> bool:
    """Return whether the table's folder of versions exists. If so, the table exists or is being created."""
    filesystem, root = filesystem_of(uri)
    return bool(filesystem.get_file_info(f"{root}/_versions").type == pafs.FileType.Directory)


def is_plain_file(uri: str) -> bool:
    """Return whether a plain file is at `uri`, where a table would have its folder."""
    filesystem, root = filesystem_of(uri)
    return bool(filesystem.get_file_info(root).type == pafs.FileType.File)


def _version(stem: str) -> int:
    return (1 << 64) - 1 - int(stem) if len(stem) == _NEWEST_FIRST else int(stem)


def set_aside(uri: str, path: str, what: str) -> str:
    """Move a damaged file of a table, or with path "" the whole table, to the folder `damaged` next to the table.

    Returns:
        A note for people, which is also stored in that folder. If the move fails, the file stays, and the note says so.
    """
    filesystem, root = filesystem_of(uri)
    folder, _, table = root.rpartition("/")
    name = "-".join(part for part in (table, str(time.time_ns()), PurePosixPath(path).name) if part)
    note = f"{what} It was set aside as {folder}/{DAMAGED}/{name}."
    try:
        filesystem.create_dir(f"{folder}/{DAMAGED}", recursive=True)
        with contextlib.suppress(FileNotFoundError):
            filesystem.move(f"{root}/{path}".rstrip("/"), f"{folder}/{DAMAGED}/{name}")
        whole_files.put_whole_file(filesystem, f"{folder}/{DAMAGED}/{name}{_NOTE}", note.encode())
    except OSError as error:
        return f"{what} It could not be set aside: {error}"
    return note


def damage_notes(uri: str, since: float = 0.0) -> list[str]:
    """Return the notes on the damaged parts of a table that were moved aside, oldest first.

    Args:
        uri: The table.
        since: Leave out notes from before this time, in seconds since the epoch.

    Raises:
        LemanError: What `storage_failed` gives.
    """
    place, _, table = uri.rpartition("/")
    folder = DocumentFolder(f"{place}/{DAMAGED}", f"What was set aside of {uri}")
    found = []
    for name in (entry.name for entry in folder.entries(_NOTE) if entry.name.startswith(f"{table}-")):
        set_aside_at = name.removesuffix(_NOTE).removeprefix(f"{table}-").partition("-")[0]
        if not set_aside_at.isdigit() or int(set_aside_at) >= int(since * 1e9):
            content = folder.read(name)
            found += [] if content is None else [content.decode(errors="replace")]
    return found


#: The key of the log's format number in the schema's metadata.
_FORMAT = "leman.format"
_COMPACT_AFTER = 128
_KEEP = datetime.timedelta(hours=1)
_KEEP_LITTLE = datetime.timedelta(minutes=1)
#: Compaction leaves fragments with this many rows unchanged.
_FULL = 1024
#: Above this number of fragments, compaction makes larger ones, because every manifest lists all fragments.
_MANY_FRAGMENTS = 64
_LARGE = _FULL * _MANY_FRAGMENTS
#: The size of Lance's cache for a log. By default Lance caches the manifest of every opened version, up to 1 GiB.
_CACHE_BYTES = 4 << 20
#: Seconds between attempts to open a table whose folder of versions is still empty; 0 marks the last attempt.
_PAUSES = (0.01, 0.05, 0.2, 0.0)
#: Attempts of an append among concurrent writers. In each of them, Lance tries twenty times.
_TRIES = 30
_LONGEST_PAUSE_SECONDS = 0.5

_log = structlog.get_logger(__name__)


class AppendLog:
    """A table of one schema that rows are appended to. Not thread-safe; several processes may append concurrently.

    If the storage cannot be used or the table cannot be read, calls raise the error that `storage_failed` returns.

    Args:
        uri: The table.
        schema: Its columns.
        called: Its name in messages; empty: the uri.
        compact_after: Compact the table after this many appends; 0: only the caller compacts.
        repairs: Whether to move damaged parts aside and write a log line about each.
        ordered: Whether the rows of a table that this object creates keep their `position` through compaction and
            repair.
    """

    def __init__(
        self,
        uri: str,
        schema: pa.Schema,
        *,
        called: str = "",
        compact_after: int = _COMPACT_AFTER,
        repairs: bool = False,
        ordered: bool = False,
    ) -> None:
        self._uri = uri
        self._schema = schema
        self._called = called or uri
        self._ordered = ordered
        self._compact_after = compact_after
        self._repairs = repairs
        self._appended = 0

    def create(self) -> None:
        """Create the table unless it exists.

        Call it before the first append: if two concurrent appends found no table, Lance would keep only one of them.

        Raises:
            LemanError: What `storage_failed` gives.
        """
        if self._open() is not None:
            return
        try:
            if not in_object_store(self._uri):
                Path(self._uri).parent.mkdir(parents=True, exist_ok=True)
            schema = with_position(self._schema) if self._ordered else self._schema
            schema = schema.with_metadata({_FORMAT: str(stored_documents.LOG.current)})
            with panics_as_errors():
                create_empty(self._uri, schema, stable_row_ids=self._ordered)
        except FileExistsError:
            return
        except LANCE_ERRORS as error:
            raise storage_failed(error, f"{self._called} cannot be made: {error}", self._uri) from error

    def append(self, rows: Sequence[dict[str, object]], base: Snapshot | None = None) -> Snapshot:
        """Add rows in one version and return it; wait for concurrent writers.

        Args:
            rows: What to add.
            base: An open version to append to. If it is the latest, this saves one of six requests to an object store.

        Raises:
            DataLoss: TABLE_DAMAGED.
            LemanError: What `storage_failed` gives.
        """
        table = pa.Table.from_pylist(list(rows), schema=self._schema)
        written = self._write_on(base, table) or self._write(table)
        self._appended += 1
        if self._compact_after and self._appended >= self._compact_after:
            self._appended = 0
            self.compact()
        return self._snapshot(written)

    def _write_on(self, base: Snapshot | None, table: pa.Table) -> lance.LanceDataset | None:
        """Append to an open version. Return None if that failed, or if a table on a local disk has a later version.

        Raises:
            LemanError: What `storage_failed` gives, if the store does not answer. Another attempt would fail, too.
        """
        if base is None:
            return None
        try:
            with panics_as_errors():
                return base.append(table) if base.is_untouched else base.append_in_store(table)
        except LANCE_ERRORS as error:
            if in_object_store(self._uri) and store_failed(error):
                self._raise_refusal(error)
                raise storage_failed(error, f"{self._uri} cannot be appended to: {error}", self._uri) from error
            return None

    def _write(self, table: pa.Table) -> lance.LanceDataset:
        looked = False
        tries_left = _TRIES
        while True:
            tries_left -= 1
            try:
                with panics_as_errors():
                    return counted_table(
                        lance.write_dataset(table, self._uri, mode="append", storage_options=lance_options(self._uri))
                    )
            except LANCE_ERRORS as error:
                self._raise_refusal(error)
                met = _met_others(error)
                if not tries_left or (not met and (looked or not self._repairs)):
                    raise storage_failed(error, f"{self._uri} cannot be appended to: {error}", self._uri) from error
            if not looked:  # the latest version may be damaged; `_look` then moves it aside
                looked = True
                self._look()
            if met:
                time.sleep(random.uniform(0.0, _LONGEST_PAUSE_SECONDS))

    def remove(self, where: str) -> Snapshot | None:
        """Delete rows and return the new version; None if no row matches. The other rows keep their order.

        The call waits for concurrent writers. The files contain the deleted rows until the next compaction.

        Raises:
            LemanError: What `storage_failed` gives.
        """
        if self._open() is None:
            return None
        for tries_left in range(_TRIES, -1, -1):
            try:
                with panics_as_errors():
                    dataset = self._open_some()
                    if not dataset.count_rows(where):
                        return None
                    dataset.delete(where)
                    return self._snapshot(dataset)
            except LANCE_ERRORS as error:
                self._raise_refusal(error)
                if not tries_left or not _met_others(error):
                    raise storage_failed(error, f"rows of {self._uri} cannot be deleted: {error}", self._uri) from error
            time.sleep(random.uniform(0.0, _LONGEST_PAUSE_SECONDS))
        raise AssertionError("the loop returns or raises")

    def _look(self) -> None:
        """Check that the table can be opened. With `repairs`, first move damaged latest versions aside."""
        try:
            self._open_raw()
        except (OSError, ValueError) as error:
            raise table_error(self._uri, error) from error

    def read(self, columns: Sequence[str] | None = None, where: str | None = None) -> list[dict[str, object]]:
        """Return rows in the order in which they were appended (`position`); none before the first append."""
        dataset = self._open()
        if dataset is None:
            return []
        ordered = SAVED_FROM in dataset.schema.names
        own = [name for name in dataset.schema.names if name != SAVED_FROM]
        names = list(columns) if columns is not None else own
        asked = [*names, SAVED_FROM] if ordered else names
        with readable(self._called, self._uri):
            rows = dataset.to_table(columns=asked, filter=where, with_row_id=ordered).to_pylist()
        return [{name: row[name] for name in names} for row in sorted(rows, key=position)]

    def snapshot(self, version: int = 0) -> Snapshot | None:
        """Return a snapshot of a version (0: the latest), from which its rows can be read.

        Returns:
            None if nothing was appended yet, or if the version was cleaned up.
        """
        if not version:
            dataset = self._open()
            return None if dataset is None else self._snapshot(dataset)
        try:
            return self._snapshot(open_version(self._uri, version))
        except (ValueError, OSError):
            return None

    def warnings(self, since: float = 0.0) -> list[str]:
        """Return the notes on parts of the table that were moved aside since a time, oldest first."""
        return damage_notes(self._uri, since)

    def salvage(
        self, snapshot: Snapshot, fragment_id: int, why: LemanError, usable: Callable[[dict[str, object]], bool]
    ) -> list[dict[str, object]]:
        """Return the readable and `usable` rows of a fragment that has damaged rows or cannot be read as a whole.

        With `repairs`, these rows replace the fragment, each at its old `position`. If the fragment may be intact,
        because the storage cannot be used, raise that error instead.
        """
        files = snapshot.files(fragment_id)
        with readable(self._called, self._uri):
            for path in files:
                check_file_whole(self._uri, path)
        rows = [row for row in snapshot.readable(fragment_id) if usable(row)]
        if self._repairs:
            with contextlib.suppress(OSError, LemanError):  # the next reader repeats the repair
                if rows:
                    self._write(saved(snapshot, rows, self._schema))
                snapshot.without(fragment_id)
                for path in files:
                    what = f"{self._uri}/{path} is damaged ({error_text(why)}); {len(rows)} rows of it were saved."
                    self._set_aside(path, what)
        return rows

    def mend(self, snapshot: Snapshot) -> bool:
        """Replace each damaged fragment by its readable rows, and move the damaged files aside, as `salvage` does.

        Returns:
            Whether a fragment was damaged. If so, the table has a new latest version.

        Raises:
            LemanError: What `storage_failed` gives, if a fragment cannot be read and may still be intact.
        """
        damaged = False
        for fragment_id in snapshot.fragments.values():
            try:
                snapshot.fragment(fragment_id, self._schema.names)
            except LemanError as error:
                self.salvage(snapshot, fragment_id, error, lambda _: True)
                damaged = True
        return damaged

    def compact(self) -> None:
        """Merge small files, and remove versions older than an hour. If another writer commits meanwhile, give up."""
        dataset = self._open()
        if dataset is None:
            return
        with contextlib.suppress(OSError):
            dataset.optimize.compact_files(materialize_deletions_threshold=0.0)
            dataset.cleanup_old_versions(older_than=_KEEP)

    def tidy(self) -> tuple[Snapshot, Snapshot] | None:
        """Merge small files, but leave full fragments without deleted rows unchanged. Earlier versions stay.

        Returns:
            The versions before and after; None if there is no table to compact.
        """
        before = self.snapshot()
        if before is None:
            return None
        with contextlib.suppress(*LANCE_ERRORS), panics_as_errors():
            dataset = self._open_some()
            many = len(dataset.get_fragments()) > _MANY_FRAGMENTS
            target = _LARGE if many else _FULL
            dataset.optimize.compact_files(target_rows_per_fragment=target, materialize_deletions_threshold=0.0)
            self._drop_row_versions()
        after = self.snapshot()
        return None if after is None else (before, after)

    def _drop_row_versions(self) -> None:
        """Remove from the manifest the numbers of the versions in which each row was created and last changed.

        Lance stores them for tables with stable row ids: ten bytes for each row, in every later manifest. Leman does
        not read them. If another writer commits at the same time, the manifest stays as it is.
        """
        dataset = self._open_some()
        known = (fragment.metadata for fragment in dataset.get_fragments())
        without = [
            dataclasses.replace(fragment, created_at_version_meta=None, last_updated_at_version_meta=None)
            for fragment in known
            if fragment.created_at_version_meta is not None or fragment.last_updated_at_version_meta is not None
        ]
        if without:
            operation = lance.LanceOperation.Update(
                removed_fragment_ids=[], updated_fragments=without, new_fragments=[]
            )
            counted_table(lance.LanceDataset.commit(dataset, operation, read_version=dataset.version))

    def _open_some(self) -> lance.LanceDataset:
        return open_latest(self._uri, cache_bytes=_CACHE_BYTES)

    def forget_past(self) -> None:
        """Remove all versions older than a minute but the latest. Other writers may continue meanwhile."""
        with contextlib.suppress(*LANCE_ERRORS), panics_as_errors():
            self._open_some().cleanup_old_versions(older_than=_KEEP_LITTLE)

    def _snapshot(self, dataset: lance.LanceDataset) -> Snapshot:
        return Snapshot(dataset, self._called)

    def _raise_refusal(self, error: Exception) -> None:
        refused = refusal_error(error, self._uri)
        if refused is not None:
            raise refused from error

    def _open(self) -> lance.LanceDataset | None:
        with readable(self._called, self._uri):
            return self._open_raw()

    def _open_raw(self) -> lance.LanceDataset | None:
        """Open the latest version of the table, and let Lance's errors pass."""
        for pause in _PAUSES:
            try:
                return self._open_latest()
            except (ValueError, OSError) as error:
                if self._repairs and is_plain_file(self._uri):
                    self._set_aside("", f"{self._uri} is a file, and no table.")
                    return None
                found = manifest_versions(self._uri)
                if found:
                    with contextlib.suppress(ValueError, OSError):
                        return self._open_latest()  # the table was created after the first attempt
                if self._repairs:
                    return self._open_before_damage(error) if found else None
                if not found and not had_versions(self._uri):
                    return None
                if found or not pause:
                    raise
            time.sleep(pause)  # the table is being created: its folder of versions comes before its first version
        raise AssertionError("the last try returns or raises")

    def _open_latest(self) -> lance.LanceDataset:
        with panics_as_errors():
            return self._checked(open_checked(self._uri, cache_bytes=_CACHE_BYTES))

    def _open_before_damage(self, why: Exception) -> lance.LanceDataset | None:
        """Open the latest readable version, and move the damaged manifests of later versions aside.

        Returns:
            None if no version is readable. The whole table is then moved aside.

        Raises:
            OSError: The store does not answer, so the versions may be intact. Other errors of Lance also pass.
        """
        if store_failed(why):
            raise why

        found = manifest_versions(self._uri)
        for version, path in found:
            check_file_whole(self._uri, path)
            try:
                with panics_as_errors():
                    self._checked(open_version(self._uri, version)).get_fragments()
            except LANCE_ERRORS as error:
                if store_failed(error):
                    raise
                continue
            for later, damaged in found:
                if later > version:
                    self._set_aside(damaged, f"Version {later} of {self._uri} is damaged ({why}).")
            return self._open_some()
        if has_versions(self._uri):
            self._set_aside("", f"No version of {self._uri} can be opened ({why}).")
        return None

    def _checked(self, dataset: lance.LanceDataset) -> lance.LanceDataset:
        """Return the dataset, after a check that it has the log's columns.

        Lance opens a manifest of zeros, as a crash of the machine may leave, as a table without columns.

        Raises:
            ValueError: A column is missing.
            UnknownFormat: FORMAT_TOO_NEW.
        """
        stated = (dataset.schema.metadata or {}).get(_FORMAT.encode())
        check_format(stored_documents.LOG, None if stated is None else stated.decode(), self._called)
        missing = [name for name in self._schema.names if name not in dataset.schema.names]
        if missing:
            raise ValueError(f"it lacks the columns {', '.join(missing)}")
        return dataset

    def _set_aside(self, path: str, what: str) -> None:
        note = set_aside(self._uri, path, what)
        _log.error("damage", uri=self._uri, what=note)


def _met_others(error: Exception) -> bool:
    """Return whether an append failed because other writers committed first, rather than because of the store."""
    text = str(error).lower()
    return isinstance(error, CommitConflictError) or "concurrent" in text or "conflict" in text
