"""Read rows of a view's source: those that match a filter, their values and addresses, and values in an older version.

Row ids, addresses and the versions of rows' last updates are read without reading values. If the wanted rows are close
to each other, they are scanned, which is several times as fast as Lance's take. A row is found in an older version by
its address if its fragment is in both versions, otherwise by its stable row id.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from leman._format.view_definitions import IS_SET
from leman_core.functions import arrow_types
from leman_core.functions.arrow_values import single_batch
from leman_core.model import view_metadata
from leman_core.model.row_ids import NO_IDS, Ids, Mask, difference, distinct, isin, isin_sorted
from leman_core.model.row_positions import RowAddress, RowRange, addresses_of, fragments_of, offsets_of, split_range
from leman_core.model.service_errors import Aborted, DataLoss, LemanError, NotFound
from leman_core.model.table import DataFile, Fragment
from leman_core.sql import expressions
from leman_core.storage import lance_sql
from leman_core.storage.error_translation import LANCE_ERRORS, table_error, using_storage
from leman_core.storage.lance_files import deleted_offsets
from leman_core.storage.lance_sql import Dialect
from leman_core.storage.lance_tables import INCARNATION_KEY, snapshot_of
from leman_core.storage.manifest import ids_at, inline_row_ids_of, read_fragments
from leman_core.storage.opening import open_version
from leman_core.storage.panics import panics_as_errors
from leman_core.storage.scan import (
    CHUNK_ROWS,
    EXPRESSION_ROWS,
    Chunk,
    Columns,
    FragmentReader,
    fewer_rows,
    in_parts,
    is_overflow,
)


@dataclass(frozen=True, slots=True, eq=False)
class RowFacts:
    """Live rows in any order, each with its id, its address, and the version of its last update.

    A change of the row's values, or of its fragment's files, sets the version of the last update. Compaction keeps it.
    """

    ids: Ids
    addresses: Ids
    updated: Ids

    @property
    def fragment_ids(self) -> Ids:
        return fragments_of(self.addresses)

    @property
    def offsets(self) -> Ids:
        return offsets_of(self.addresses)

    def __len__(self) -> int:
        return len(self.ids)

    def by_id(self) -> RowFacts:
        """Return the same rows, sorted by id."""
        if not len(self) or bool((self.ids[1:] > self.ids[:-1]).all()):
            return self
        order = np.argsort(self.ids, kind="stable")
        return self.at(order)

    def between(self, low: int, high: int) -> RowFacts:
        """Return the rows with ids in [low, high)."""
        return self.at((self.ids >= low) & (self.ids < high))

    def at(self, chosen: npt.NDArray[np.int64] | npt.NDArray[np.bool_]) -> RowFacts:
        """Return some of the rows."""
        return RowFacts(self.ids[chosen], self.addresses[chosen], self.updated[chosen])


NO_ROWS = RowFacts(NO_IDS, NO_IDS, NO_IDS)


#: The name of the column of row ids among the values.
ROW_ID = "__leman_row_id"

#: Rows are scanned only if at least this many are wanted, and at most `_SPARSEST` are read for each wanted one.
_LEAST_SCAN = 1 << 12
_SPARSEST = 2


class RangeScan:
    """Scans ranges of rows in one open version of a table. Any number of threads may call it."""

    def __init__(self, dataset: lance.LanceDataset) -> None:
        self._dataset = dataset
        self._stable = bool(dataset.has_stable_row_ids)

    def scan(self, wanted: Ids, names: Mapping[str, str]) -> pa.RecordBatch | None:
        """Return values of the rows with these ids, in the order of the ids.

        Args:
            wanted: The ids, ascending.
            names: The name of each column of the result, mapped to its expression. One of them is `ROW_ID`.

        Returns:
            None if the rows are too few or too far apart for a scan, or some do not exist.
        """
        if len(wanted) < _LEAST_SCAN:
            return None
        if self._stable and int(wanted[-1]) - int(wanted[0]) >= _SPARSEST * len(wanted):
            return None
        with panics_as_errors():
            ends = self._dataset._take_rows(pa.array(wanted[[0, -1]], pa.uint64()), columns=["_rowaddr"])
            first, last = (
                RowAddress.from_int(int(number)) for number in [*ends.column("_rowaddr").to_pylist(), -1, -1][:2]
            )
            pieces = self._pieces(first, last)
            rows = sum(end - start for _, start, end in pieces)
            if not rows or rows > _SPARSEST * len(wanted) or len(pieces) > 1 + rows // _LEAST_SCAN:
                return None
            tables = [f.scanner(columns=dict(names), offset=at, limit=end - at).to_table() for f, at, end in pieces]
        batch = single_batch(pa.concat_tables(tables))
        ids = batch.column(ROW_ID).to_numpy().astype(np.int64)
        if np.array_equal(ids, wanted):
            return batch
        chosen = np.flatnonzero(isin_sorted(wanted, ids))
        return batch.take(pa.array(chosen)) if np.array_equal(ids[chosen], wanted) else None

    def _pieces(self, first: RowAddress, last: RowAddress) -> list[tuple[lance.LanceFragment, int, int]]:
        """Return the fragments between two addresses in the order of the table, each with the range of its rows.

        Returns:
            An empty list if a row of these fragments is deleted: Lance's offsets and limits count only live rows.
        """
        order, places = self._order
        begin, end = places.get(first.fragment_id), places.get(last.fragment_id)
        if begin is None or end is None or any(f.num_deletions for f in order[begin : end + 1]):
            return []
        return [
            (
                fragment,
                first.offset if place == begin else 0,
                last.offset + 1 if place == end else fragment.physical_rows,
            )
            for place, fragment in enumerate(order[begin : end + 1], begin)
        ]

    @cached_property
    def _order(self) -> tuple[list[lance.LanceFragment], dict[int, int]]:
        """Return all fragments, and the position of each by its id."""
        fragments = self._dataset.get_fragments()
        return fragments, {fragment.fragment_id: place for place, fragment in enumerate(fragments)}


_ROWS = 1 << 16
_FEW_ROWS = 1 << 10
_FACTS = ("_rowid", "_rowaddr", "_row_last_updated_at_version")
_LAST = 1 << 62
_FACT_ROWS = 1 << 18
#: The ids and versions of a fragment's rows are scanned if more than one row in this many is wanted. Otherwise they are
#: taken: a take of a row is slower by about this factor.
_SCAN_SHARE = 16
_MATCHES = "__leman_matches"


class SourceRows:
    """One version of a source, opened once. Any number of threads may call it.

    The id of a row is its stable row id, or its address if the source has no stable row ids. If the source is a view,
    rows whose values were never set count as missing. Lance's errors are translated by `storage_unusable`.
    """

    def __init__(self, uri: str, version: int) -> None:
        """Open a version of a source.

        Raises:
            NotFound: SOURCE_VERSION_NOT_FOUND.
        """
        try:
            self._dataset = open_version(uri, version)
        except (ValueError, OSError) as error:
            found = table_error(uri, error, version)
            if isinstance(found, NotFound | DataLoss):
                found = NotFound(
                    "SOURCE_VERSION_NOT_FOUND",
                    f"Version {version} of the source {uri} cannot be opened, it may have been cleaned up: {error}",
                    uri=uri,
                    version=version,
                )
            raise found from None
        self.uri = uri
        self.version = version

    @cached_property
    def _dialect(self) -> Dialect:
        return Dialect(self._dataset)

    @property
    def dataset(self) -> lance.LanceDataset:
        return self._dataset

    @cached_property
    def identity(self) -> str:
        """The source's `TableSnapshot.identity`. A table that is created later with the same URI has another one."""
        with using_storage(self.uri):
            known = str(self._dataset.config().get(INCARNATION_KEY, ""))
            if known:  # the incarnation suffices, so no fragment is read
                return known
            return snapshot_of(self.uri, self._dataset, read_fragments(self._dataset)).identity

    @cached_property
    def stable_row_ids(self) -> bool:
        return bool(self._dataset.has_stable_row_ids)

    @cached_property
    def is_view(self) -> bool:
        schema = self._dataset.schema
        return IS_SET in schema.names and view_metadata.from_metadata(schema.metadata or {}) is not None

    def condition(self, where: str) -> str:
        """Return the filter to apply for `where`: in a view, it also excludes rows that were never set.

        It is empty if it selects all rows.
        """
        parts = [f"({where})"] * bool(where) + [f"coalesce({IS_SET}, false)"] * self.is_view
        return " AND ".join(parts)

    def matching_ids(self, where: str, fragments: Collection[int] | None = None) -> Iterator[Ids]:
        """Yield the ids of the rows that the filter matches, in several arrays.

        Only the columns of the filter are read, in bounded memory.

        Args:
            where: The filter.
            fragments: The ids of the fragments to read; None for all.
        """
        yield from self._scan_ids(self.condition(where), fragments)

    def all_ids(self, fragments: Collection[int] | None = None) -> Iterator[Ids]:
        """Yield the ids of all live rows, including rows of a view that were never set. No data is read."""
        yield from self._scan_ids("", fragments)

    def matching(self, where: str, ids: Ids) -> Ids:
        """Return the ids whose rows the filter matches, in the order of `ids`. Only these rows are read."""
        condition = self.condition(where)
        if not condition or not len(ids):
            return ids
        found = self.take(ids, {_MATCHES: condition}).column(_MATCHES)
        chosen: Mask = found.fill_null(False).to_numpy(zero_copy_only=False)
        return ids[chosen]

    def take(self, ids: Ids, columns: Mapping[str, str]) -> pa.RecordBatch:
        """Return the values of SQL expressions for these rows, in the order of `ids`. Blobs are returned as bytes.

        Args:
            ids: The ids of the rows.
            columns: The name of each column of the result, mapped to its expression.

        Raises:
            Aborted: SOURCE_ROW_GONE – a row does not exist.
            FailedPrecondition: EXPRESSION_FAILED – an expression has no value for a row.
        """
        with self._reading():
            try:
                return self._values(ids, columns)
            except LANCE_ERRORS as error:
                if not is_overflow(error):
                    self._blame(ids, columns)
                raise

    def take_first(self, ids: Ids, columns: Mapping[str, str]) -> pa.RecordBatch:
        """Return what `take` does, but only for the first rows, as many as fit into one batch. It is at least one."""
        while True:
            try:
                return self.take(ids, columns)
            except LemanError as error:
                if len(ids) < 2 or not is_overflow(error):
                    raise
            ids = ids[: fewer_rows(len(ids))]

    def matching_rows(
        self, where: str, fragments: Collection[int], columns: Mapping[str, str], most_bytes: int
    ) -> tuple[Ids, pa.RecordBatch] | None:
        """Return the sorted ids of the rows of fragments that the filter matches, with their values, in one pass.

        Values are those that `take` returns.

        Returns:
            None if one pass is not possible: there are no columns, some are blobs, the values exceed `most_bytes`, or
                an expression has no value for a row. Use `matching_ids` and `take` then.
        """
        if not columns or any(self._blob(e) or e in self._blob_holders for e in columns.values()):
            return None
        try:
            return self._matching_rows(self.condition(where), fragments, columns, most_bytes)
        except LANCE_ERRORS:
            return None

    def present(self, ids: Ids) -> Mask:
        """Return for each id whether a live row has it. It needs stable row ids, and reads no data."""
        found = [NO_IDS]
        for at in range(0, len(ids), _ROWS):
            wanted = pa.array(distinct(ids[at : at + _ROWS]), pa.uint64())
            with self._reading():
                table = self._dataset._take_rows(wanted, columns={ROW_ID: "_rowid"})
            found.append(table.column(ROW_ID).to_numpy().astype(np.int64))
        return isin(ids, np.concatenate(found))

    def values(self, ids: Ids, columns: Mapping[str, str]) -> pa.RecordBatch:
        """Return what `take` does. If an expression has no value for a row, do not search for that row."""
        with self._reading():
            return self._values(ids, columns)

    def _values(self, ids: Ids, columns: Mapping[str, str]) -> pa.RecordBatch:
        """Read the values. Raises Lance's errors unchanged."""
        wanted, back = np.unique(np.asarray(ids, np.int64), return_inverse=True)
        blobs = {name: column for name, e in columns.items() if (column := self._blob(e))}
        nested = {name: path for name, e in columns.items() if (path := self._blob_holders.get(e))}
        found = self._take_sorted(wanted, {n: e for n, e in columns.items() if n not in blobs and n not in nested})
        with_bytes = self._take_with_bytes(wanted, sorted({*nested.values()})) if nested else found
        arrays = [
            self._read_blobs(wanted, blobs[n])
            if n in blobs
            else (with_bytes.column(nested[n]) if n in nested else found.column(n))
            for n in columns
        ]
        batch = pa.RecordBatch.from_arrays(arrays, names=list(columns))
        unchanged = len(back) == len(wanted) and bool((np.diff(back) == 1).all())
        return batch if unchanged else batch.take(pa.array(back))

    def within(self, ids: Ids, columns: Mapping[str, str], most_bytes: int) -> int:
        """Return how many of the first ids one `take` can read without exceeding `most_bytes` of blobs; at least one.

        Only the sizes of blobs are read.

        Raises:
            Aborted: SOURCE_ROW_GONE.
        """
        blobs = {column for expression in columns.values() if (column := self._blob(expression))}
        if not blobs or not len(ids):
            return len(ids)
        wanted, back = np.unique(np.asarray(ids, np.int64), return_inverse=True)
        with self._reading():
            places = self._take_sorted(wanted, plain_columns(sorted(blobs)))
        sizes: Ids = np.sum([blob_sizes(places.column(column)) for column in blobs], axis=0)
        return max(1, int(np.searchsorted(np.cumsum(sizes[back]), most_bytes, side="right")))

    def rows_of(self, fragments: Collection[int], low: int = 0, high: int | None = None) -> RowFacts:
        """Return the live rows of fragments with ids in [low, high). Missing fragments are ignored.

        It needs stable row ids, and reads no data.
        """
        found: list[list[Ids]] = [[NO_IDS], [NO_IDS], [NO_IDS]]
        with self._reading():
            chosen = self._fragments(fragments)
            if not chosen:
                return NO_ROWS
            scanner = self._dataset.scanner(
                columns=list(_FACTS), fragments=chosen, batch_size=_FACT_ROWS, batch_readahead=4
            )
            for batch in scanner.to_batches():
                columns = [batch.column(c).to_numpy().astype(np.int64) for c in _FACTS]
                if low or high is not None:
                    inside = (columns[0] >= low) & (columns[0] < (_LAST if high is None else high))
                    columns = [column[inside] for column in columns]
                for parts, column in zip(found, columns, strict=True):
                    parts.append(column)
        return RowFacts(*(np.concatenate(parts) for parts in found))

    def deleted(self, fragment_id: int) -> Ids:
        """Return the sorted offsets of a fragment's deleted rows; none for a missing fragment."""
        with self._reading():
            for fragment in self._fragments([fragment_id]):
                found = deleted_offsets(self.uri, fragment)
                if found is not None:
                    return found
                scanner = fragment.scanner(columns=[], with_row_id=True, include_deleted_rows=True)
                ids = scanner.to_table().column("_rowid")
                return np.flatnonzero(ids.is_null().to_numpy())
        return NO_IDS

    def at(self, fragment_id: int, offsets: Ids, *, updated: bool) -> RowFacts:
        """Return live rows of a fragment by their offsets. It needs stable row ids, and reads no data.

        Args:
            fragment_id: The fragment.
            offsets: The offsets, ascending.
            updated: Whether the versions of the rows' last updates are needed.
        """
        if not len(offsets):
            return NO_ROWS
        with self._reading():
            inline = self._inline_row_ids.get(fragment_id, b"")
            dense = updated and len(offsets) * _SCAN_SHARE > self.live_rows([fragment_id])
        if not inline or dense:
            rows = self.rows_of([fragment_id])
            return rows.at(isin_sorted(offsets, rows.offsets))
        ids = ids_at(inline, offsets)
        facts = RowFacts(ids, addresses_of(fragment_id, offsets), np.full(len(ids), -1, np.int64))
        return self._updated(facts) if updated else facts

    def _updated(self, rows: RowFacts) -> RowFacts:
        """Return the same rows with the versions of their last updates."""
        rows = rows.by_id()
        with self._reading():
            found = self._dataset._take_rows(pa.array(rows.ids, pa.uint64()), columns=list(_FACTS))
        return RowFacts(*(found.column(name).to_numpy().astype(np.int64) for name in _FACTS))

    @cached_property
    def _inline_row_ids(self) -> dict[int, bytes]:
        return inline_row_ids_of(self._dataset)

    def live_rows(self, fragments: Collection[int]) -> int:
        """Count the live rows of fragments. Missing fragments are ignored. No data is read."""
        with self._reading():
            return sum(int(fragment.count_rows()) for fragment in self._fragments(fragments))

    def count_rows(self) -> int:
        """Count all rows. No data is read."""
        with self._reading():
            return int(self._dataset.count_rows())

    def highest_id(self, fragments: Collection[int]) -> int:
        """Return the highest id in fragments; -1 if there is none. Missing fragments are ignored. No data is read."""
        return max((int(ids.max()) for ids in self.all_ids(fragments)), default=-1)

    def _blame(self, ids: Ids, columns: Mapping[str, str]) -> None:
        """Find the row for which an expression has no value, and raise its error. Return if there is no such row.

        Raises:
            FailedPrecondition: EXPRESSION_FAILED.
        """
        names = self._dataset.schema.names
        read = {
            name for text in columns.values() for name in expressions.columns_of_expression(text, names)
        } - self._blobs
        found = lance_sql.failed_row(
            np.sort(ids), lambda part: self._values(part, plain_columns(read)), lambda part: self._values(part, columns)
        )
        if found is not None:
            raise lance_sql.expression_failed(found[0], self.version, self.uri, found[1]) from None

    def _reading(self) -> AbstractContextManager[None]:
        return using_storage(self.uri)

    def _fragments(self, fragments: Collection[int]) -> list[lance.LanceFragment]:
        found = (self._dataset.get_fragment(fragment_id) for fragment_id in sorted(fragments))
        return [fragment for fragment in found if fragment is not None]

    def _scan_ids(self, condition: str, fragments: Collection[int] | None) -> Iterator[Ids]:
        with self._reading():
            try:
                yield from self._scan(condition, fragments)
            except LANCE_ERRORS:
                for ids in self._scan("", fragments) if condition else ():
                    self._blame(ids, {_MATCHES: condition})
                raise

    def _scan(self, condition: str, fragments: Collection[int] | None) -> Iterator[Ids]:
        chosen = None if fragments is None else self._fragments(fragments)
        if chosen is not None and not chosen:
            return
        with panics_as_errors():
            scanner = self._dataset.scanner(
                columns=[],
                filter=self._dialect.lance(condition) if condition else None,
                with_row_id=True,
                batch_size=_ROWS,
                fragments=chosen,
                batch_readahead=4,
                fragment_readahead=2,
            )
            for batch in scanner.to_batches():
                if batch.num_rows:
                    yield batch.column("_rowid").to_numpy().astype(np.int64)

    def _matching_rows(
        self, condition: str, fragments: Collection[int], columns: Mapping[str, str], most_bytes: int
    ) -> tuple[Ids, pa.RecordBatch] | None:
        names = {**{name: self._dialect.lance(text) for name, text in columns.items()}, ROW_ID: "_rowid"}
        chosen = self._fragments(fragments)
        if _stored_bytes(chosen) > most_bytes:
            return None
        found, size = [], 0
        with panics_as_errors():
            scanner = self._dataset.scanner(
                columns=names,
                filter=self._dialect.lance(condition) if condition else None,
                batch_size=_FEW_ROWS,
                fragments=chosen,
                batch_readahead=1,
                fragment_readahead=1,
            )
            for batch in scanner.to_batches() if chosen else ():
                size += batch.nbytes
                if size > most_bytes:
                    return None
                found.append(batch)
            table = pa.Table.from_batches(found, scanner.projected_schema)
        batch = single_batch(table)
        ids = batch.column(ROW_ID).to_numpy().astype(np.int64)
        order = np.argsort(ids)
        return ids[order], batch.select(list(columns)).take(pa.array(order))

    def _take_sorted(self, wanted: Ids, columns: Mapping[str, str]) -> pa.RecordBatch:
        names = {**{name: self._dialect.lance(text) for name, text in columns.items()}, ROW_ID: "_rowid"}
        if not len(wanted):
            schema = self._dataset.scanner(columns=names).projected_schema
            return pa.RecordBatch.from_pylist([], schema=schema)
        scanned = self._range_scan.scan(wanted, names)
        if scanned is not None:
            return scanned
        with panics_as_errors():
            table = self._dataset._take_rows(pa.array(wanted, pa.uint64()), columns=names)
        batch = single_batch(table) if table.num_rows else None
        found = NO_IDS if batch is None else batch.column(ROW_ID).to_numpy().astype(np.int64)
        if batch is None or not np.array_equal(found, wanted):
            raise self._gone(difference(wanted, found))
        return batch

    def _take_with_bytes(self, wanted: Ids, paths: Sequence[str]) -> pa.RecordBatch:
        """Scan columns with the bytes of their blobs. A take would return the places of blobs instead of the bytes."""
        chosen = ", ".join(map(str, wanted.tolist()))
        with panics_as_errors():
            table = self._dataset.scanner(
                columns=list(paths),
                filter=f"_rowid IN ({chosen})" if chosen else "false",
                with_row_id=True,
                blob_handling="all_binary",
            ).to_table()
        found = single_batch(table)
        ids = found.column("_rowid").to_numpy().astype(np.int64)
        order = np.argsort(ids)
        if not np.array_equal(ids[order], wanted):
            raise self._gone(difference(wanted, ids[order]))
        return found.take(pa.array(order))

    @cached_property
    def _range_scan(self) -> RangeScan:
        return RangeScan(self._dataset)

    def _gone(self, missing: Ids) -> Aborted:
        return Aborted(
            "SOURCE_ROW_GONE",
            f"{len(missing)} rows are not in version {self.version} of {self.uri}, the first has id {missing[:1]}: "
            "refresh again",
            uri=self.uri,
        )

    def _read_blobs(self, wanted: Ids, column: str) -> pa.Array:
        if not len(wanted):
            return pa.array([], pa.large_binary())
        with panics_as_errors():
            found = self._dataset.read_blobs(column, ids=pa.array(wanted, pa.uint64()), preserve_order=True)
        return pa.array([value for _, value in found], pa.large_binary())

    def _blob(self, expression: str) -> str:
        """Return the column's name if an expression is only the name of a blob column; otherwise empty."""
        return next(
            (c for c in expressions.columns_of_expression(expression, self._blobs) if _is_name(expression, c)), ""
        )

    @cached_property
    def _blobs(self) -> frozenset[str]:
        return frozenset(field.name for field in self._dataset.schema if arrow_types.is_blob(field))

    @cached_property
    def _blob_holders(self) -> Mapping[str, str]:
        """Return the paths of columns and fields that contain blobs, and of blobs in structs, by SQL expression."""
        return {quoted_path(path): path for path in _blob_paths("", self._dataset.schema)}


def _blob_paths(within: str, fields: Iterable[pa.Field]) -> Iterator[str]:
    """Yield the paths of fields that contain blobs, and of the blobs in structs."""
    for field in fields:
        path = f"{within}.{field.name}" if within else field.name
        if arrow_types.holds_blob(field.type):
            yield path
            if pa.types.is_struct(field.type):
                yield from _blob_paths(path, field.type)
        elif within and arrow_types.is_blob(field):
            yield path


def _stored_bytes(fragments: Iterable[lance.LanceFragment]) -> int:
    """Return the total size of fragments' files in bytes, without files whose size the manifest does not state."""
    return sum(file.file_size_bytes or 0 for fragment in fragments for file in fragment.metadata.files)


def blob_sizes(places: pa.Array) -> Ids:
    """Return the sizes in bytes of blobs, given their places, which Lance returns instead of their bytes."""
    return np.asarray(places.field("size").fill_null(0).to_numpy(zero_copy_only=False), np.int64)


def quoted_path(path: str) -> str:
    """Return the SQL expression for a path: the names of a column and of fields in it, joined by dots."""
    return ".".join("`" + name.replace("`", "``") + "`" for name in path.split("."))


def plain_columns(columns: Iterable[str]) -> dict[str, str]:
    """Return the argument of `SourceRows.take` that reads these columns unchanged."""
    return {column: quoted_path(column) for column in columns}


def _is_name(expression: str, column: str) -> bool:
    return expression.strip() in {column, quoted_path(column)} or expression.strip().casefold() == column.casefold()


def rows_still_there(uri: str, version: int, fragments: Sequence[int], then: int) -> Mapping[int, int]:
    """Return how many live rows of each fragment also exist in the version `then`, by fragment id.

    Rows are identified by their stable row ids. No data is read.
    """
    now, old = SourceRows(uri, version), SourceRows(uri, then)
    last = old.highest_id([fragment.fragment_id for fragment in old.dataset.get_fragments()])
    found: dict[int, int] = {}
    for fragment in fragments:
        ids = np.concatenate([np.empty(0, np.int64), *now.all_ids([fragment])])
        found[fragment] = int(old.present(ids[ids <= last]).sum())
    return found


class PastReader(FragmentReader):
    """Reads the rows of one version's fragments with the values that they had in an older version."""

    def __init__(self, uri: str, version: int, then: int) -> None:
        super().__init__(uri, version)
        self._uri, self._then = uri, then
        self._old = FragmentReader(uri, then)

    def read(
        self, fragment_id: int, covered: RowRange, columns: Columns, *, deletions: bool, where: str = ""
    ) -> Iterator[Chunk]:
        """Yield what `FragmentReader.read` does, with values of the older version, to which the filter applies, too.

        Rows that did not exist in the older version are left out.
        """
        with using_storage(self._uri):
            yield from self._read_then(fragment_id, covered, columns, deletions=deletions, where=where)

    def _read_then(
        self, fragment_id: int, covered: RowRange, columns: Columns, *, deletions: bool, where: str
    ) -> Iterator[Chunk]:
        if not self._is_there(fragment_id):
            yield from self._moved(fragment_id, covered, columns, where)
            return
        for chunk in self._old.read(fragment_id, covered, columns, deletions=True, where=where):
            yield self._still_live(fragment_id, chunk) if deletions else chunk

    def schema(self, columns: Columns) -> pa.Schema:
        """Return what `FragmentReader.schema` does, for the columns of the older version."""
        return self._old.schema(columns)

    def _is_there(self, fragment_id: int) -> bool:
        then = self._old.fragment(fragment_id)
        now = self.fragment(fragment_id)
        return then is not None and now is not None and _summary(now).has_rows_of(_summary(then))

    def _still_live(self, fragment_id: int, chunk: Chunk) -> Chunk:
        if not len(chunk.offsets):
            return chunk
        live = self.live(fragment_id, chunk.covered)[chunk.offsets - chunk.covered.start]
        return Chunk(chunk.covered, chunk.offsets[live], chunk.rows.filter(pa.array(live)))

    def _moved(self, fragment_id: int, covered: RowRange, columns: Columns, where: str) -> Iterator[Chunk]:
        wanted = dict(columns) if isinstance(columns, Mapping) else plain_columns(columns)
        rows_each = EXPRESSION_ROWS if isinstance(columns, Mapping) else CHUNK_ROWS
        asked = {**wanted, **({_MATCHES: f"({where})"} if where else {})}

        def chunk(part: RowRange) -> Chunk:
            offsets, ids = self._found(fragment_id, part)
            rows = self._source.values(ids, asked)
            if where:
                matches = rows.column(_MATCHES).fill_null(False)
                offsets = offsets[matches.to_numpy(zero_copy_only=False)]
                rows = rows.filter(matches)
            return Chunk(part, offsets, rows.select(list(wanted)))

        for piece in split_range(covered, rows_each):
            yield from (made for _, made in in_parts(piece, chunk))

    def _found(self, fragment_id: int, covered: RowRange) -> tuple[npt.NDArray[np.int64], Ids]:
        """Return the physical offsets and the row ids of the live rows that also exist in the older version."""
        offsets = covered.start + np.flatnonzero(self.live(fragment_id, covered))
        ids = np.asarray(self.row_ids(fragment_id, offsets.tolist()), np.int64)
        present = self._source.present(ids)
        return offsets[present], ids[present]

    @cached_property
    def _source(self) -> SourceRows:
        return SourceRows(self._uri, self._then)


def _summary(fragment: lance.LanceFragment) -> Fragment:
    metadata = fragment.metadata
    files = tuple(DataFile(str(file.path), tuple(file.fields)) for file in metadata.files)
    return Fragment(metadata.id, metadata.physical_rows, 0, files)
