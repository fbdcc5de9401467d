"""The rows of one version of an `AppendLog`, in the order of their appends."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Sequence
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lance.fragment import RowIdMeta, RowIdSequence

from leman._format.stored_logs import ROW_ID, SAVED_FROM, position
from leman_core.model.service_errors import LemanError
from leman_core.storage import manifest
from leman_core.storage.error_translation import LANCE_ERRORS
from leman_core.storage.filesystems import counted_table
from leman_core.storage.locations import in_object_store
from leman_core.storage.object_stores import options_of
from leman_core.storage.opening import move_to_latest
from leman_core.storage.panics import panics_as_errors
from leman_core.storage.storage_errors import storage_failed, store_failed

_SCANNED_AT_ONCE = 1 << 16


class LogRows:
    """Rows of a log as columns, with their order; see `position`."""

    def __init__(self, table: pa.Table, *, ordered: bool) -> None:
        self._table = table
        self.ordered = ordered
        self.saved = ordered and table.column(SAVED_FROM).null_count < table.num_rows

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def after(self, row_id: int) -> LogRows:
        """Return the rows with a higher row id."""
        return self._where(pc.greater(self._ids(), row_id)) if self.ordered else self

    def up_to(self, row_id: int) -> LogRows:
        """Return the rows with this row id or a lower one."""
        return self._where(pc.less_equal(self._ids(), row_id)) if self.ordered else self

    def texts(self, column: str, at_once: int = 4096) -> Iterator[tuple[int, str]]:
        """Yield the row id (-1: none) and the text of each row, in the order of the appends."""
        order: Any = np.arange(len(self))
        if self.ordered and len(self):
            positions = pc.coalesce(self._table.column(SAVED_FROM), self._ids()).to_numpy()
            order = np.argsort(positions, kind="stable")
        for begin in range(0, len(self), at_once):
            part = LogRows(self._table.take(pa.array(order[begin : begin + at_once])), ordered=self.ordered)
            ids = part._ids().to_pylist() if self.ordered else [-1] * len(part)
            yield from zip(ids, part._table.column(column).to_pylist(), strict=True)

    def _ids(self) -> pa.ChunkedArray:
        return self._table.column(ROW_ID).cast(pa.int64())

    def _where(self, wanted: pa.ChunkedArray) -> LogRows:
        return LogRows(self._table.filter(wanted), ordered=True)


class Snapshot:
    """The rows of one version, by their place: 0 is the first.

    If the storage cannot be used, or a file not be decoded, calls raise what `storage_failed` gives; `error_text` has
    the original text.
    """

    def __init__(self, dataset: lance.LanceDataset, called: str) -> None:
        self._dataset = dataset
        self._called = called
        self.version = int(dataset.version)
        self._manifest = manifest.manifest_identity(dataset)
        self._options = options_of(dataset.uri)

    @property
    def columns(self) -> list[str]:
        """Return the names of all columns."""
        return list(self._dataset.schema.names)

    @property
    def is_latest(self) -> bool:
        """Return whether there is no later version."""
        with self._readable():
            return int(self._dataset.latest_version) == self.version

    @property
    def is_untouched(self) -> bool:
        """Return whether a cheap check proves that nothing was written since, and that it is still the same table.

        False in an object store, where the check costs as much as opening the latest version.
        """
        if self._manifest is None or manifest.manifest_identity(self._dataset) != self._manifest:
            return False
        try:
            return self.is_latest
        except LemanError:
            return False

    def append(self, table: pa.Table) -> lance.LanceDataset:
        """Add rows to this version, which is assumed to be the latest. Raises what Lance raises."""
        return counted_table(lance.write_dataset(table, self._dataset, mode="append"))

    def append_in_store(self, table: pa.Table) -> lance.LanceDataset | None:
        """Add rows to the latest version of a table in an object store. Raises what Lance raises.

        One listing finds the latest version, and shows by the ETag whether this one is still there: the manifest of a
        table that was recreated is read, because a commit would take this version for one of that table.

        Returns:
            None if nothing was added: the table is on a local disk, or was opened with credentials that were renewed
                since.
        """
        if not in_object_store(self._dataset.uri) or options_of(self._dataset.uri) != self._options:
            return None
        latest = copy.copy(self._dataset)
        move_to_latest(latest)
        return counted_table(lance.write_dataset(table, latest, mode="append"))

    @property
    def fragments(self) -> dict[str, int]:
        """Return the fragments in the order of their rows, as name → number.

        The name has the file and its deleted rows, and is unique for ever. A number may be reused after damage to the
        latest version.
        """
        with self._readable():
            found = (fragment.metadata for fragment in self._dataset.get_fragments())
            return {_name(metadata): int(metadata.id) for metadata in found}

    @property
    def fragment_sizes(self) -> dict[str, int]:
        """Return the number of rows of each fragment by name, in the order of `fragments`, from the manifest."""
        with self._readable():
            found = (fragment.metadata for fragment in self._dataset.get_fragments())
            return {_name(metadata): int(metadata.num_rows) for metadata in found}

    @property
    def row_count(self) -> int:
        with self._readable():
            return int(self._dataset.count_rows())

    def files(self, fragment_id: int) -> list[str]:
        """Return the paths of a fragment's data files in the folder of the table."""
        with self._readable():
            return [f"data/{file.path}" for file in self._fragment(fragment_id).metadata.files]

    def fragment(self, fragment_id: int, columns: Sequence[str]) -> list[dict[str, object]]:
        """Return these columns of a fragment's rows, with those for their `position`."""
        ordered = SAVED_FROM in self.columns
        names = [*columns, SAVED_FROM] if ordered else list(columns)
        with self._readable():
            found = self._fragment(fragment_id).to_table(columns=names, with_row_id=ordered)
            rows: list[dict[str, object]] = found.to_pylist()
        return rows

    def rows_in(self, fragment_ids: Sequence[int], columns: Sequence[str]) -> LogRows:
        """Return these columns of the rows of fragments, in one read."""
        ordered = SAVED_FROM in self.columns
        names = [*columns, SAVED_FROM] if ordered else list(columns)
        with self._readable():
            fragments = [self._fragment(number) for number in fragment_ids]
            scanner = self._dataset.scanner(columns=names, fragments=fragments, with_row_id=ordered, scan_in_order=True)
            found = scanner.to_table()
            return LogRows(found if fragment_ids else found.slice(0, 0), ordered=ordered)

    def row_ids(self, fragment_id: int) -> list[int]:
        """Return the row ids of a fragment in the order of its rows, from the manifest; empty: it has none."""
        if SAVED_FROM not in self.columns:
            return []
        with self._readable():
            fragment = self._fragment(fragment_id)
            stored = fragment.metadata.row_id_meta
            if isinstance(stored, RowIdMeta) and fragment.metadata.deletion_file is None:
                ids: list[int] = RowIdSequence.from_inline_metadata(stored).to_pyarrow().to_pylist()
            else:
                ids = fragment.to_table(columns=[], with_row_id=True).column(ROW_ID).to_pylist()
        return ids

    def readable(self, fragment_id: int) -> list[dict[str, object]]:
        """Return the rows of a damaged fragment that can be read one by one, with the columns for their `position`.

        If the store does not answer for one row, the call fails.
        """
        with self._readable():  # the manifest has the ids: no file is read
            fragment = self._fragment(fragment_id)
            ids = fragment.to_table(columns=[], with_row_id=True).column(ROW_ID).to_pylist()
        found: list[dict[str, object]] = []
        for row, row_id in enumerate(ids):
            try:
                with panics_as_errors():
                    found += [{**values, ROW_ID: row_id} for values in fragment.take([row]).to_pylist()]
            except LANCE_ERRORS as error:
                if store_failed(error):
                    raise storage_failed(error, f"{self._called} cannot be read: {error}", self._dataset.uri) from error
        return found

    def without(self, fragment_id: int) -> None:
        """Commit the removal of a fragment, unless there is a conflict."""
        gone = lance.LanceOperation.Delete([], [fragment_id], "damaged")
        with self._readable():
            counted_table(lance.LanceDataset.commit(self._dataset, gone, read_version=self.version))

    def scan(self, columns: Sequence[str], fragment_ids: Sequence[int] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield these columns of the rows of fragments (None: of all), in the order of their places."""
        with self._readable():
            fragments = None if fragment_ids is None else [self._fragment(number) for number in fragment_ids]
            if fragments == []:  # Lance would read all fragments
                return
            yield from self._dataset.scanner(
                columns=list(columns), fragments=fragments, batch_size=_SCANNED_AT_ONCE, scan_in_order=True
            ).to_batches()

    def batch(self, columns: Sequence[str], places: Sequence[int]) -> pa.RecordBatch:
        """Return these columns of the rows at these places, in this order."""
        with self._readable():
            found = self._dataset.take(list(places), columns=list(columns)).combine_chunks()
            return next(iter(found.to_batches()), pa.RecordBatch.from_pylist([], found.schema))

    def rows(self, places: Sequence[int]) -> list[dict[str, object]]:
        """Return the rows at these places, in this order."""
        if not places:
            return []
        with self._readable():
            rows: list[dict[str, object]] = self._dataset.take(list(places)).to_pylist()
        return rows

    def _fragment(self, fragment_id: int) -> lance.LanceFragment:
        found = self._dataset.get_fragment(fragment_id)
        if found is None:
            raise OSError(f"there is no fragment {fragment_id}")
        return found

    def _readable(self) -> contextlib.AbstractContextManager[None]:
        return readable(self._called, self._dataset.uri)


def _name(fragment: lance.fragment.FragmentMetadata) -> str:
    # the property `path` creates a class at every call
    deletions = fragment.deletion_file
    return str(fragment.files[0]._path) + (f" without {deletions.asdict()}" if deletions is not None else "")


@contextlib.contextmanager
def readable(called: str, uri: str) -> Iterator[None]:
    """Raise what `storage_failed` gives if a log, by its name for people, cannot be read."""
    try:
        with panics_as_errors():
            yield
    except LANCE_ERRORS as error:
        raise storage_failed(error, f"{called} cannot be read: {error}", uri) from error


def saved(snapshot: Snapshot, rows: Sequence[dict[str, object]], schema: pa.Schema) -> pa.Table:
    """Return the rows of a snapshot in the form in which they are appended again, with their old position."""
    if SAVED_FROM not in snapshot.columns:
        return pa.Table.from_pylist(list(rows), schema=schema)
    placed = [{**row, SAVED_FROM: position(row)} for row in rows]
    return pa.Table.from_pylist(placed, schema=with_position(schema))


def with_position(schema: pa.Schema) -> pa.Schema:
    """Return the schema of a log that keeps an order."""
    return schema.append(pa.field(SAVED_FROM, pa.int64()))
