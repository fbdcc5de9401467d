"""The garbage collection of one table."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable

import structlog

from leman_coordinator.garbage.retention import (
    CHECKPOINTS,
    DATA,
    Inventory,
    PartialStates,
    Uses,
    decide_retention,
    partial_files,
    removal_order,
)
from leman_coordinator.lance_io import table_files
from leman_coordinator.lance_io.table_files import (
    TableVersions,
    data_folder,
    refresh_folder,
    remove_files,
    unfinished_elsewhere,
    untouched_ranges,
)
from leman_core.model import keys
from leman_core.model.garbage import RetentionDecision, StoredFile
from leman_core.model.service_errors import InvalidArgument, LemanError
from leman_core.process.crash_points import crash_point
from leman_core.storage.checkpoint_records import FragmentRecord
from leman_core.storage.checkpoint_store import LanceCheckpointStore, checkpoint_root, in_own_folder
from leman_core.storage.locations import database_and_table, is_link
from leman_core.storage.stored_jobs import open_jobs

_log = structlog.get_logger(__name__)


class GarbageCollector:
    """One garbage collection of a table: call `look` first, then `sweep` while the table has no running commit.

    Both calls block, so run them in threads. `older_than` is in seconds. `alone` means that no other coordinator serves
    the table.

    Raises:
        NotFound: TABLE_NOT_FOUND – the table does not exist.
        InvalidArgument: BAD_TABLE_NAME – it is a link.
        LemanError: see `storage_failed`.
    """

    def __init__(self, uri: str, older_than: float, *, alone: bool = True) -> None:
        self._uri = uri
        self._alone = alone
        self._older_than = older_than
        self._store = LanceCheckpointStore(checkpoint_root(uri))
        self._versions: TableVersions | None = None

    def look(self) -> tuple[int, list[RetentionDecision]]:
        """Return the version of the table, and a decision on each file.

        Files are listed before versions are read, and versions before jobs. So a file that is written meanwhile, or
        used by a job that begins meanwhile, is either not listed or known to be in use.
        """
        if is_link(self._uri):
            name = database_and_table(self._uri)[1]
            raise InvalidArgument(
                "BAD_TABLE_NAME",
                f"'{name}' is a link to a table that jobs know by another name: collect the "
                "garbage of that table by its own database and name",
                field="table",
            )
        TableVersions(self._uri)  # raises if there is no table, and so no folder to list
        files = [
            *self._store.files(),
            *data_folder(self._uri),
            *refresh_folder(self._uri),
            *unfinished_elsewhere(self._uri),
        ]
        now = time.time()
        self._versions = TableVersions(self._uri)
        uses = self._uses(self._versions, files)
        inventory = Inventory(
            now=now,
            older_than=self._older_than,
            uses=uses,
            files=files,
            records=self._records(files),
            states=self._states(partial_files(uses, files)),
            jobs=open_jobs(self._uri),
            alone=self._alone,
        )
        return uses.version, decide_retention(inventory)

    def sweep(self, decisions: Iterable[RetentionDecision]) -> list[StoredFile]:
        """Remove the garbage, and yield each removed file. After an interruption, a second call continues.

        A data file stays if a commit after `look` refers to it.
        """
        if self._versions is None:
            raise RuntimeError("sweep before look")
        committed = self._versions.files_since()
        wanted = [f for f in removal_order(decisions) if f.folder != DATA or f.name not in committed]
        gone: list[StoredFile] = []
        for file in remove_files(self._uri, wanted):
            gone.append(file)
            crash_point("coordinator.garbage_removed")
        _log.info("garbage collected", uri=self._uri, files=len(gone), bytes=sum(f.size_bytes for f in gone))
        return gone

    def fold_notes(self) -> None:
        """Merge many notes into one, see `table_files.fold_notes`. After an error, the next collection retries."""
        with contextlib.suppress(LemanError):
            table_files.fold_notes(self._uri, lambda: {file.name for file in data_folder(self._uri)})

    def _uses(self, versions: TableVersions, files: list[StoredFile]) -> Uses:
        uses = Uses(versions.latest, own_folder=in_own_folder(self._uri))
        left = uses.unexplained(files)
        if not left:
            return uses
        for snapshot in versions.older():
            uses.add(snapshot)
            left = uses.unexplained(left)
            if not left:
                return uses
        for snapshot in versions.branches():
            uses.refer(snapshot)
        return uses

    def _records(self, files: list[StoredFile]) -> dict[str, FragmentRecord | None]:
        found: dict[str, FragmentRecord | None] = {}
        for file in files:
            if file.folder != CHECKPOINTS or keys.parse_record_key(file.key) is None:
                continue
            try:
                found[file.name] = FragmentRecord.from_batch(self._store.read_file(file.name))
            except KeyError:
                found[file.name] = None
        return found

    def _states(self, partial: Iterable[str]) -> dict[str, PartialStates]:
        read = {file: untouched_ranges(self._uri, file) for file in partial}
        return {file: PartialStates(*states) for file, states in read.items() if states is not None}
