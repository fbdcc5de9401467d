"""Scratch tables: hidden tables in which ordinary backfills compute the function columns of a refresh.

A scratch table has `__source_row_id`, and one computed column for each function. Its config has the digest of the work
that it is for: after a crash, a refresh with the same work finds what was computed.
"""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from typing import Any

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.fs as pafs
from lance.fragment import write_fragments

from leman._format.view_definitions import SOURCE_ROW_ID
from leman_core.functions.arrow_values import single_batch
from leman_core.model import keys, row_states
from leman_core.model.service_errors import Aborted, DataLoss, FailedPrecondition, LemanError, NotFound
from leman_core.process.crash_points import crash_point
from leman_core.storage import column_files
from leman_core.storage.checkpoint_store import checkpoint_place, remove_checkpoints_elsewhere
from leman_core.storage.error_translation import LANCE_ERRORS, table_error, using_storage
from leman_core.storage.filesystems import counted_table, delete_folder, filesystem_of
from leman_core.storage.lance_tables import INCARNATION_KEY, fields_of
from leman_core.storage.locations import TABLE_ENDING, in_object_store
from leman_core.storage.manifest import read_fragments
from leman_core.storage.object_stores import lance_options, options_of
from leman_core.storage.opening import move_to_latest, open_latest
from leman_core.storage.storage_errors import refusal_error, storage_failed
from leman_core.storage.view_data_files import storage_version

_DIGEST_KEY = "leman.scratch.digest"
_COLUMNS_KEY = "leman.scratch.columns"

_DROP_TRIES = 5
#: Lance field id of `__source_row_id`, the first column.
_ROW_ID_FIELD = 0
#: Held while a thread looks for a scratch table and creates it.
_CREATING = threading.Lock()

RowIds = npt.NDArray[np.int64]


class ScratchTable:
    """An existing scratch table. `rows`: the number of rows of each fragment, in order.

    What cannot be read raises what `storage_unusable` gives.
    """

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self._options = options_of(uri)
        try:
            self._dataset = open_latest(uri)
        except (ValueError, OSError) as error:
            found = table_error(uri, error)
            if isinstance(found, NotFound | DataLoss):  # a damaged one counts as gone
                found = NotFound("TABLE_NOT_FOUND", f"The scratch table {uri} is gone: {error}")
            raise found from None
        with using_storage(uri):
            held = [fragment.metadata for fragment in self._dataset.get_fragments()]
        self.rows = [int(fragment.physical_rows) for fragment in held]
        #: Distinguishes it from a later one at its place: file names are unique.
        self._created_as = [file.path for fragment in held for file in fragment.files if _ROW_ID_FIELD in file.fields]
        self._known: dict[tuple[str, ...], frozenset[int]] = {}

    def again(self) -> ScratchTable:
        """Return the same scratch table, reopened, with later commits.

        Raises:
            Aborted: SCRATCH_TABLE_TAKEN: it is gone, or another refresh replaced it.
        """
        try:
            found = ScratchTable(self.uri)
        except NotFound as error:
            raise taken(self.uri, error) from None
        if found._created_as != self._created_as:
            raise taken(self.uri, "it was created again")
        return found

    def is_there(self) -> bool:
        """Return whether it is still the opened one, with all its files.

        True if the storage does not answer: that is an error of its own, and a new plan would not help.
        """
        try:
            return self.again().is_whole()
        except FailedPrecondition:
            return True
        except LemanError:
            return False

    @property
    def digest(self) -> str:
        """Return the digest of its work; empty: it was not created completely, or is being replaced."""
        config = self._dataset.config()
        complete = len(self._dataset.schema) > int(config.get(_COLUMNS_KEY, "0"))
        return str(config.get(_DIGEST_KEY, "")) if complete else ""

    def is_whole(self) -> bool:
        """Return whether all its files exist."""
        with using_storage(self.uri):
            system, path = filesystem_of(self.uri)
            found = system.get_file_info(pafs.FileSelector(f"{path}/data", allow_not_found=True))
            files = {file.path for fragment in read_fragments(self._dataset) for file in fragment.files}
            return files <= {info.base_name for info in found}

    def row_ids(self) -> RowIds:
        """Return `__source_row_id` of all rows, by their position in the scratch table."""
        with using_storage(self.uri):
            column = self._dataset.to_table(columns=[SOURCE_ROW_ID]).column(SOURCE_ROW_ID)
        return np.asarray(column.to_numpy(), np.int64)

    def complete(self, columns: Iterable[str]) -> list[int]:
        """Return the positions, in order, of the fragments in which every column's file has only settled rows."""
        self.refresh()
        return self._complete(columns)

    def _complete(self, columns: Iterable[str]) -> list[int]:
        wanted = set(columns)
        with using_storage(self.uri):
            fields = [f.field_ids for f in fields_of(self._dataset) if f.name in wanted]
            fragments = read_fragments(self._dataset)
        return [
            at
            for at, fragment in enumerate(fragments)
            if all(_is_complete(self.uri, fragment.files_of(ids)) for ids in fields)
        ]

    def failed(self, column: str, fragments: Collection[int] | None = None) -> RowIds:
        """Return the rows of a column for which its function failed: ascending positions in the scratch table.

        Args:
            column: The column.
            fragments: Positions of complete fragments to read; None: all.
        """
        with using_storage(self.uri):
            fields = next((f.field_ids for f in fields_of(self._dataset) if f.name == column), ())
            held = read_fragments(self._dataset)
        starts = np.cumsum([0, *self.rows])
        found = [np.empty(0, np.int64)]
        for at, fragment in enumerate(held):
            if fragments is not None and at not in fragments:
                continue
            for file in fragment.files_of(fields):
                name = keys.parse_column_file_name(file)
                states = column_files.read_states(self.uri, file) if name is not None and name.partial else None
                if states is not None:
                    found.append(starts[at] + np.flatnonzero(states == row_states.RowState.FAILED))
        return np.concatenate(found)

    def values(self, columns: Sequence[str], start: int, rows: int) -> pa.RecordBatch:
        """Return values by position in the scratch table; blobs as their bytes.

        Raises:
            Aborted: SCRATCH_TABLE_TAKEN: they were not computed, as another process is replacing the table.
        """
        if tuple(columns) not in self._known:
            self._known[tuple(columns)] = frozenset(self._complete(columns))
        ends = np.cumsum(self.rows)
        first, last = np.searchsorted(ends, [start, start + max(rows, 1) - 1], side="right").tolist()
        if not self._known[tuple(columns)].issuperset(range(first, last + 1)):
            raise taken(self.uri, "values are missing")
        with using_storage(self.uri):
            scanner = self._dataset.scanner(columns=list(columns), offset=start, limit=rows, blob_handling="all_binary")
            return single_batch(scanner.to_table())

    def refresh(self) -> None:
        """Read later commits."""
        self._known.clear()
        options = options_of(self.uri)
        with using_storage(self.uri):
            if options == self._options:
                move_to_latest(self._dataset)
            else:  # credentials were renewed
                self._dataset, self._options = open_latest(self.uri), options


def find(uri: str, digest: str) -> ScratchTable | None:
    """Return the scratch table of that work, if it was created completely and has all its files.

    A refresh that wrote to a table while another dropped it leaves one without files.
    """
    try:
        found = ScratchTable(uri)
    except NotFound:
        return None
    return found if found.digest == digest and found.is_whole() else None


def find_for(uri: str, digest: str, parts: Sequence[RowIds]) -> ScratchTable | None:
    """Return what `find` does, if it has all rows of `parts`, in whatever fragments."""
    found = find(uri, digest)
    if found is None:
        return None
    held = np.sort(found.row_ids())
    return found if all(_holds(held, ids) for ids in parts) else None


def _holds(ascending: RowIds, ids: RowIds) -> bool:
    places = np.searchsorted(ascending, ids)
    return not len(ids) or (places.max() < len(ascending) and np.array_equal(ascending[places], ids))


def create(uri: str, digest: str, parts: Sequence[RowIds], columns: pa.Schema) -> ScratchTable:
    """Create a scratch table with one fragment for each of `parts` that has rows.

    A scratch table of other work at the same place is dropped. One of the same work is shared by refreshes that create
    it concurrently.

    Args:
        uri: The table.
        digest: The digest of the work.
        parts: Source row ids.
        columns: The function columns, bound to their functions.

    Raises:
        Aborted: SCRATCH_TABLE_TAKEN: another process is creating one there.
    """
    with _CREATING:
        found = find_for(uri, digest, parts)
        if found is not None:
            return found
        drop(uri)
        try:
            created = _created(uri, digest, parts, columns)
        except (*LANCE_ERRORS, NotFound) as error:  # Lance raises any of them for a table that changed
            raise refusal_error(error, uri) or taken(uri, error) from error
        if created.digest != digest:
            raise taken(uri, "it is being created again")
        return created


def taken(uri: str, why: object) -> Aborted:
    """Return the error for a scratch table that another process is creating or dropping."""
    return Aborted(
        "SCRATCH_TABLE_TAKEN", f"The scratch table {uri} cannot be used, perhaps for another refresh of the view: {why}"
    )


def _created(uri: str, digest: str, parts: Sequence[RowIds], columns: pa.Schema) -> ScratchTable:
    schema = pa.schema([pa.field(SOURCE_ROW_ID, pa.int64())])
    version: Any = storage_version(columns)
    fragments = []
    for ids in parts:
        if len(ids):
            table = pa.table({SOURCE_ROW_ID: pa.array(ids, pa.int64())}, schema=schema)
            fragments += write_fragments(
                table,
                uri,
                schema=schema,
                max_rows_per_file=len(ids),
                data_storage_version=version,
                storage_options=lance_options(uri),
            )
    dataset = counted_table(
        lance.LanceDataset.commit(
            uri,
            lance.LanceOperation.Overwrite(schema, fragments),
            enable_stable_row_ids=True,
            storage_options=lance_options(uri),
        )
    )
    dataset.update_config(
        {
            INCARNATION_KEY: uuid.uuid4().hex,
            _COLUMNS_KEY: str(len(columns)),
            _DIGEST_KEY: digest,
        }
    )
    crash_point("executor.scratch_written")
    if len(columns):  # last: the columns show that the table is complete
        dataset.add_columns(columns)
    return ScratchTable(uri)


def scratch_tables(database: str, named: re.Pattern[str]) -> list[str]:
    """Return the uris of a database's scratch tables with matching names, also half-created ones.

    It includes those of which only checkpoints remain, in another place.

    Raises:
        Unavailable: STORE_UNAVAILABLE.
    """
    database = database.rstrip("/")
    found = {name for place in {database, checkpoint_place(database)} for name in _folders_in(place)}
    return [f"{database}/{name}" for name in sorted(found) if named.fullmatch(name.removesuffix(TABLE_ENDING))]


def _folders_in(place: str) -> set[str]:
    try:
        system, root = filesystem_of(place)
        entries = system.get_file_info(pafs.FileSelector(root, allow_not_found=in_object_store(place)))
    except OSError as error:
        raise storage_failed(error, f"The folder {place} cannot be listed: {error}", place) from None
    return {entry.base_name for entry in entries if entry.base_name.endswith(TABLE_ENDING)}


def drop(uri: str) -> None:
    """Remove a scratch table, or what is left of one, with its checkpoints."""
    system, path = filesystem_of(uri)
    for tries_left in reversed(range(_DROP_TRIES)):
        try:
            remove_checkpoints_elsewhere(uri)
            delete_folder(system, path)
        except FileNotFoundError:
            return
        except OSError as error:  # another process wrote into it
            if not tries_left:
                raise storage_failed(error, f"The scratch table {uri} cannot be removed: {error}", uri) from None
        else:
            return


def _is_complete(uri: str, files: Sequence[str]) -> bool:
    try:
        return bool(files) and all(_is_settled(uri, file) for file in files)
    except LemanError:  # another process is dropping the scratch table
        return False


@lru_cache(maxsize=4096)
def _is_settled(uri: str, file: str) -> bool:
    """Return whether every row of a column file has a value or is known to have failed. A file never changes."""
    name = keys.parse_column_file_name(file)
    if name is None or not name.partial:
        return name is not None
    states = column_files.read_states(uri, file)
    return states is not None and not row_states.summarize_states(states).untouched
