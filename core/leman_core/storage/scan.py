"""Read rows of one fragment by physical offset, and check row ids and deletions against the manifest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from leman_core.functions import arrow_types
from leman_core.functions.arrow_values import concatenate
from leman_core.model.row_ids import distinct
from leman_core.model.row_positions import RowAddress, RowRange, fragments_of, offsets_of, split_range
from leman_core.model.service_errors import (
    Aborted,
    DataLoss,
    LemanError,
    NotFound,
    UnknownFormat,
)
from leman_core.sql import filters
from leman_core.storage import column_files, lance_files, lance_sql, manifest
from leman_core.storage.error_translation import (
    LANCE_ERRORS,
    file_damage,
    first_line,
    is_missing,
    table_error,
    using_storage,
)
from leman_core.storage.lance_sql import Dialect
from leman_core.storage.lance_tables import field_ids, file_format
from leman_core.storage.locations import in_object_store
from leman_core.storage.opening import open_by_manifest, open_checked, open_version
from leman_core.storage.panics import is_panic, panics_as_errors
from leman_core.storage.storage_errors import error_text, storage_failed


@contextmanager
def reading_row_ids(uri: str, version: int) -> Iterator[None]:
    """Translate errors of reading the row ids of a version. Do not read columns in the block.

    Raises:
        DataLoss: TABLE_DAMAGED – they cannot be decoded.
        NotFound: VERSION_NOT_FOUND – the version was cleaned up meanwhile; TABLE_NOT_FOUND – the table was removed.
        LemanError: They cannot be read now; see `storage_failed`.
    """
    try:
        with panics_as_errors():
            yield
    except LANCE_ERRORS as error:
        raise _error(uri, version, error) from error


def check_row_ids(uri: str) -> dict[int, LemanError]:
    """Check row ids and deletions of the latest version. Return the problem of each fragment that has one, by id.

    Lance keeps no digest of a deletion file, but the manifest states how many rows it deletes.

    Raises:
        LemanError: The table cannot be opened; see `table_error`.
    """
    try:
        dataset = open_checked(uri)
    except (OSError, ValueError) as error:
        raise table_error(uri, error) from None
    found: dict[int, LemanError] = {}
    stable, version = dataset.has_stable_row_ids, int(dataset.version)
    for fragment in dataset.get_fragments():
        if not stable and fragment.metadata.deletion_file is None:
            continue
        deleted = 0
        try:
            with reading_row_ids(uri, version):
                scanner = fragment.scanner(columns=[], with_row_id=True, include_deleted_rows=True)
                for batch in scanner.to_batches():
                    deleted += batch.column("_rowid").null_count
            _check_deletions(uri, fragment, deleted)
        except LemanError as error:
            found[int(fragment.fragment_id)] = error
    return found


def _check_deletions(uri: str, fragment: lance.LanceFragment, deleted: int) -> None:
    file = fragment.metadata.deletion_file
    known: int | None = None if file is None else file.num_deleted_rows  # None: written by an old Lance
    if file is None or known is None or known == deleted:
        return
    path = f"{uri}/{lance_files.deletion_file_path(fragment.fragment_id, file)}"
    raise DataLoss(
        "TABLE_DAMAGED",
        f"Table {uri} is damaged: {path} deletes {deleted} rows of fragment {fragment.fragment_id}, and the manifest "
        f"states {known}: deleted rows are back, or others are lost. Restore the file from a backup, or restore an "
        "earlier version that does not need it",
        uri=uri,
        path=path,
    )


def _error(uri: str, version: int, error: Exception) -> LemanError:
    what = f"row ids of table {uri} cannot be read from version {version}: {first_line(error)}"
    damage = file_damage(uri, error)
    if damage is not None and "path" in damage.facts:
        return damage
    if damage is None and is_missing(error):
        return table_error(uri, error, version)
    if damage is None and isinstance(error, OSError) and not is_panic(error):
        return storage_failed(error, f"The {what}", uri)
    # every deletion file is sound, so the manifest is damaged: it has everything else that row ids depend on
    path = f"{uri}/_versions/{manifest.manifest_file_name(version)}"
    return DataLoss(
        "TABLE_DAMAGED",
        f"Table {uri} is damaged: {what}. Find the fragments with CommitService.VerifyDatabase. Put {path} back from a "
        "backup, or restore an earlier version",
        uri=uri,
        path=path,
    )


CHUNK_ROWS = 1 << 16
CHUNK_BYTES = 16 << 20
_READAHEAD = 4
_MATCHES, _PLACE = "__matches", "__place"
#: How many column files to read concurrently for their lists of NULL rows.
_FOOTERS_AT_ONCE = 16
#: Rows for which to evaluate expressions at once. It is few, because an expression may be slow, and a job can store
#: only whole batches.
EXPRESSION_ROWS = 1 << 13
_EXPRESSIONS_AHEAD = 8
#: Options for chunks full of bytes, for which Lance's default of reading ahead would take 2 GB.
_WIDE: dict[str, Any] = {"batch_readahead": 1, "io_buffer_size": CHUNK_BYTES}
_FILTER_FAILS = "Error applying filter expression"
#: Lance's errors for a batch with more text or bytes in a column than 32-bit offsets can address.
_OVERFLOW, _OVERFLOW_BYTES = "offset overflow", 1 << 31
_BLOBS_AS_BYTES: Final = "all_binary"

Offsets = npt.NDArray[np.int64]
Columns = Sequence[str] | Mapping[str, str]
#: A function that returns the offset after a batch, given the batch and the offset after the previous one.
End = Callable[[pa.RecordBatch, int], int]
_Made = TypeVar("_Made")


@dataclass(frozen=True, slots=True)
class Chunk:
    """The live rows in a range of physical offsets that a filter matches."""

    covered: RowRange
    #: The rows' physical offsets.
    offsets: Offsets
    #: The rows' values in the requested columns.
    rows: pa.RecordBatch


def _after_all(batch: pa.RecordBatch, at: int) -> int:
    return at + int(batch.num_rows)


def _after_last(batch: pa.RecordBatch, at: int) -> int:
    """Return the offset after the last row of a batch, by the rows' addresses."""
    addresses = batch.column("_rowaddr").to_numpy()[-1:].astype(np.int64)
    return int(offsets_of(addresses)[0]) + 1 if len(addresses) else at


def window(rows: RowRange) -> dict[str, Any]:
    """Return a scanner's options for a range of rows."""
    return {"offset": rows.start, "limit": rows.rows}


class FragmentReader:
    """One version of a table, opened once for a unit of work.

    Lance's errors are translated by `storage_unusable`, whose `error_text` is Lance's own text.

    Args:
        uri: The table.
        version: The version.
        manifest: The version's manifest, if it was read before; otherwise empty.
    """

    def __init__(self, uri: str, version: int, manifest: bytes = b"") -> None:
        try:
            self._dataset = open_by_manifest(uri, version, manifest) if manifest else open_version(uri, version)
            with panics_as_errors():  # Lance panics over a damaged schema at its first use
                self._dialect = Dialect(self._dataset)
        except (ValueError, OSError) as error:
            raise table_error(uri, error, version) from None
        self._by_manifest = bool(manifest)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            with using_storage(self._dataset.uri):
                yield
        except LemanError:
            if self._by_manifest:
                self._check_version()
            raise

    def _check_version(self) -> None:
        """Raise an error if the version no longer exists. Opening it with a known manifest does not detect this."""
        uri, version = self._dataset.uri, int(self._dataset.version)
        try:
            open_version(uri, version)
        except (ValueError, OSError) as error:
            raise table_error(uri, error, version) from None

    @property
    def stable_row_ids(self) -> bool:
        return bool(self._dataset.has_stable_row_ids)

    @property
    def file_format(self) -> tuple[int, int]:
        """Return the version of the file format of the table's data."""
        return file_format(self._dataset)

    def read(
        self, fragment_id: int, covered: RowRange, columns: Columns, *, deletions: bool, where: str = ""
    ) -> Iterator[Chunk]:
        """Yield chunks in order that together cover `covered`, of at most 65,536 physical rows each.

        A chunk has about 16 MB, estimated from the sizes of the files. It may be larger if values are well compressed
        or of uneven width: up to 2 GiB, which is Lance's limit for the text or bytes of a batch. If a batch would
        exceed that, fewer rows are read at once. Blobs are read as their bytes.

        Args:
            fragment_id: The fragment.
            covered: The range of physical rows.
            columns: Names, or names mapped to SQL expressions. Expressions are evaluated only for rows that are
                returned, for at most 8,192 rows at a time.
            deletions: Whether the fragment has deleted rows.
            where: The filter.

        Raises:
            FailedPrecondition: FILTER_FAILED – the filter cannot be evaluated for a row.
        """
        with self._reading():
            yield from self._read(fragment_id, covered, columns, deletions=deletions, where=where)

    def _read(
        self, fragment_id: int, covered: RowRange, columns: Columns, *, deletions: bool, where: str
    ) -> Iterator[Chunk]:
        if isinstance(columns, Mapping):
            columns = {name: self._dialect.lance(expression) for name, expression in columns.items()}
        if where:
            yield from self._filtered(fragment_id, covered, columns, where)
        elif not deletions:
            yield from self._dense(fragment_id, covered, columns)
        elif isinstance(columns, Mapping):
            yield from self._filtered(fragment_id, covered, columns, "")
        else:
            yield from self._without_deleted(fragment_id, covered, columns)

    def fragment(self, fragment_id: int) -> lance.LanceFragment | None:
        """Return a fragment; None if the version does not have it."""
        return self._dataset.get_fragment(fragment_id)

    def sizes(self) -> Iterator[tuple[int, int, int]]:
        """Yield id, physical rows and deleted rows of each fragment, in the order of the table."""
        with self._reading():
            for fragment in self._dataset.get_fragments():
                yield fragment.fragment_id, fragment.physical_rows, fragment.num_deletions

    def schema(self, columns: Columns) -> pa.Schema:
        """Return the schema of the chunks that `read` yields. Raise an error if an expression is invalid."""
        with self._reading():
            if isinstance(columns, Mapping):
                return self._schema({name: self._dialect.lance(expression) for name, expression in columns.items()})
            return self._schema(columns)

    def values(self, fragment_id: int, covered: RowRange, column: str) -> pa.Array:
        """Return the values of a column for each physical row of `covered`, which are NULL for deleted rows."""
        with self._reading():
            scanner = self._fragment(fragment_id).scanner(
                columns=[column],
                offset=covered.start,
                limit=covered.rows,
                with_row_id=True,
                include_deleted_rows=True,
                blob_handling=_BLOBS_AS_BYTES,
            )
            return concatenate(scanner.to_table().column(column).chunks)

    def values_in_parts(self, fragment_id: int, covered: RowRange, column: str) -> Iterator[tuple[RowRange, pa.Array]]:
        """Yield what `values` returns, in several parts if one array cannot hold it; see `in_parts`."""
        return in_parts(covered, lambda part: self.values(fragment_id, part, column))

    def null_rows(self, column: str) -> dict[int, Offsets]:
        """Return the physical offsets of a column's NULL rows by fragment, without deleted rows.

        Many column files list their NULL rows (`column_files.read_nulls`). For other files, the values are read. A scan
        of large values would load all their pages at its start, and the metadata cache would keep up to 1 GiB of them.
        So such values are taken a few rows at a time, with a small cache.
        """
        field = self._dataset.schema.field(column)
        is_blob = arrow_types.is_blob(field)  # of a blob, only its descriptor is read
        with self._reading():
            fragments = self._dataset.get_fragments()
            differ = column_files.tells_nulls(field.type) and not is_blob
            found = self._said_nulls(column, fragments) if differ else {}
            left = [fragment for fragment in fragments if fragment.fragment_id not in found]
            wide = {f.fragment_id for f in left if not is_blob and has_wide_rows(f)}
            if narrow := [f for f in left if f.fragment_id not in wide]:
                asked = "`" + column.replace("`", "``") + "` IS NULL"
                scanner = self._dataset.scanner(columns=[], filter=asked, with_row_address=True, fragments=narrow)
                found |= _by_fragment(scanner)
            if wide:
                careful = open_version(self._dataset.uri, int(self._dataset.version), cache_bytes=CHUNK_BYTES)
                chosen = (f for f in careful.get_fragments() if f.fragment_id in wide)
                found |= {f.fragment_id: _null_offsets(f, column) for f in chosen}
        return {fragment_id: offsets for fragment_id, offsets in found.items() if len(offsets)}

    def _said_nulls(self, column: str, fragments: Sequence[lance.LanceFragment]) -> dict[int, Offsets]:
        """Return the NULL rows of those fragments whose column file lists them."""
        uri = self._dataset.uri
        fields = zip(self._dataset.schema.names, self._dataset.lance_schema.fields(), strict=True)
        field_id = next(field.id() for name, field in fields if name == column)

        def said(fragment: lance.LanceFragment) -> Offsets | None:
            file = next((f for f in fragment.metadata.files if field_id in f.fields), None)
            if file is None or file.base_id is not None:
                return None
            try:
                found = column_files.read_nulls(uri, str(file.path))
            except (NotFound, DataLoss, UnknownFormat):  # read the values instead, which may fail, too
                return None
            if found is None or not len(found) or not fragment.num_deletions:
                return found
            return found[lance_files.live_rows(fragment, RowRange(0, fragment.physical_rows))[found]]

        if in_object_store(uri):
            with ThreadPoolExecutor(_FOOTERS_AT_ONCE, thread_name_prefix="null-rows") as pool:
                told = list(pool.map(said, fragments))
        else:
            told = list(map(said, fragments))
        pairs = zip(fragments, told, strict=True)
        return {fragment.fragment_id: offsets for fragment, offsets in pairs if offsets is not None}

    def rows_matching(self, fragment_ids: Iterable[int], where: str) -> dict[int, Offsets]:
        """Return the physical offsets of the live rows of fragments that a checked filter matches, by fragment.

        Raises:
            FailedPrecondition: FILTER_FAILED – the filter cannot be evaluated for a row.
        """
        fragments = [self._fragment(fragment_id) for fragment_id in fragment_ids]
        if not fragments:
            return {}
        with self._reading():
            spoken = self._dialect.lance(where)
            found = {f.fragment_id: offsets_matching(self._dataset, f, spoken) for f in fragments}
            if left := [fragment for fragment in fragments if found[fragment.fragment_id] is None]:
                scanner = self._dataset.scanner(columns=[], filter=spoken, fragments=left, with_row_address=True)
                found |= _by_fragment(scanner, where)
        return {fragment_id: offsets for fragment_id, offsets in found.items() if offsets is not None and len(offsets)}

    def matching(self, addresses: Sequence[int], where: str) -> list[int]:
        """Return those of the row addresses whose rows are live and match a filter. Only these rows are read.

        Raises an error if the filter cannot be evaluated for one of them.
        """
        if not addresses:
            return []
        with self._reading():
            asked = f"({self._dialect.lance(where)}) AND _rowaddr IN ({','.join(map(str, addresses))})"
            found = self._dataset.scanner(columns=[], filter=asked, with_row_address=True).to_table()
        return list(found.column("_rowaddr").to_pylist())

    def live(self, fragment_id: int, covered: RowRange) -> npt.NDArray[np.bool_]:
        """Return for each physical row of `covered` whether it is live, that is, not deleted."""
        fragment = self._fragment(fragment_id)
        with self._reading_row_ids():
            return lance_files.live_rows(fragment, covered)

    def deletions(self, fragment_id: int) -> lance_files.Deletions | None:
        """Return the fragment's deleted rows; None if it has no deletion file."""
        fragment = self._fragment(fragment_id)
        with self._reading_row_ids():
            return lance_files.deletions_of(fragment)

    def located(self, fragment_id: int, offsets: Sequence[int]) -> list[tuple[int, RowAddress]]:
        """Return the row ids (see `row_ids`) and the row addresses of physical offsets."""
        ids = self.row_ids(fragment_id, offsets)
        return [(i, RowAddress(fragment_id, offset)) for i, offset in zip(ids, offsets, strict=True)]

    def row_ids(self, fragment_id: int, offsets: Sequence[int]) -> list[int]:
        """Return the stable row ids of physical offsets; -1 for each if the table has no stable row ids."""
        if not self.stable_row_ids or not offsets:
            return [-1] * len(offsets)
        low, high = min(offsets), max(offsets) + 1
        scanner = self._fragment(fragment_id).scanner(
            columns=[], offset=low, limit=high - low, with_row_id=True, include_deleted_rows=True
        )
        with self._reading_row_ids():
            ids = scanner.to_table().column("_rowid").to_pylist()
        return [ids[o - low] if ids[o - low] is not None else -1 for o in offsets]

    def _reading_row_ids(self) -> AbstractContextManager[None]:
        return reading_row_ids(self._dataset.uri, int(self._dataset.version))

    def _fragment(self, fragment_id: int) -> lance.LanceFragment:
        fragment = self._dataset.get_fragment(fragment_id)
        if fragment is None:
            raise Aborted("FRAGMENT_GONE", f"Fragment {fragment_id} is not in the table any more")
        return fragment

    def _scan(
        self,
        fragment_id: int,
        columns: Columns,
        covered: RowRange,
        options: Callable[[RowRange], dict[str, Any]] = window,
        end: End = _after_all,
    ) -> Iterator[pa.RecordBatch]:
        fragment = self._fragment(fragment_id)
        evaluates = isinstance(columns, Mapping)
        names = dict(columns) if isinstance(columns, Mapping) else list(columns)

        def scanner(rows: RowRange, bounds: dict[str, Any]) -> lance.LanceScanner:
            return fragment.scanner(columns=names, blob_handling=_BLOBS_AS_BYTES, **bounds, **options(rows))

        bounds = batches_of(fragment, EXPRESSION_ROWS, _EXPRESSIONS_AHEAD) if evaluates else batches_of(fragment)
        return batches_in_parts(scanner, covered, bounds, end)

    def _dense(self, fragment_id: int, covered: RowRange, columns: Columns) -> Iterator[Chunk]:
        at = covered.start
        for batch in self._scan(fragment_id, columns, covered):
            end = at + batch.num_rows
            yield Chunk(RowRange(at, end), np.arange(at, end, dtype=np.int64), batch)
            at = end

    def _without_deleted(self, fragment_id: int, covered: RowRange, columns: Sequence[str]) -> Iterator[Chunk]:
        def every(rows: RowRange) -> dict[str, Any]:
            return {**window(rows), "with_row_id": True, "include_deleted_rows": True}

        at = covered.start
        for batch in self._scan(fragment_id, columns, covered, every):
            end = at + batch.num_rows
            live = batch.column("_rowid").is_valid()
            rows = batch.select(list(columns)).filter(live)
            yield Chunk(RowRange(at, end), at + np.flatnonzero(live.to_numpy(zero_copy_only=False)), rows)
            at = end

    def _filtered(self, fragment_id: int, covered: RowRange, columns: Columns, where: str) -> Iterator[Chunk]:
        base = RowAddress(fragment_id, 0).to_int()

        def matching(rows: RowRange) -> dict[str, Any]:
            inside = f"_rowaddr >= {base + rows.start} AND _rowaddr < {base + rows.end}"
            asked = f"({self._dialect.lance(where)}) AND {inside}" if where else inside
            return {"filter": asked, "with_row_address": True}

        for piece in split_range(covered, CHUNK_ROWS):
            at = piece.start
            for batch in checked_batches(self._scan(fragment_id, columns, piece, matching, _after_last), where):
                offsets = offsets_of(batch.column("_rowaddr").to_numpy().astype(np.int64))
                if len(offsets):
                    end = int(offsets[-1]) + 1
                    yield Chunk(RowRange(at, end), offsets, batch.select(list(columns)))
                    at = end
            if at < piece.end:
                nothing = pa.RecordBatch.from_pylist([], schema=self._schema(columns))
                yield Chunk(RowRange(at, piece.end), np.empty(0, np.int64), nothing)

    def _schema(self, columns: Columns) -> pa.Schema:
        if isinstance(columns, Mapping):
            return self._dataset.scanner(columns=dict(columns)).projected_schema
        if any("." in path for path in columns):
            return self._dataset.scanner(columns=list(columns)).projected_schema
        schema = self._dataset.schema
        return pa.schema([arrow_types.values_field(schema.field(c)) for c in columns])


def checked_batches(batches: Iterator[pa.RecordBatch], where: str) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a scan, and translate the error of a filter.

    Raises:
        FailedPrecondition: FILTER_FAILED – the filter cannot be evaluated for a row.
    """
    try:
        yield from batches
    except LANCE_ERRORS as error:
        said = str(error)
        if not where or _FILTER_FAILS not in said:
            raise
        cause = said.partition(_FILTER_FAILS)[2].partition(", /")[0].partition("\n")[0].removeprefix(" to batch: ")
        raise lance_sql.filter_failed("filter", where, cause) from error


def batches_in_parts(
    scanner: Callable[[RowRange, dict[str, Any]], lance.LanceScanner],
    covered: RowRange,
    bounds: dict[str, Any],
    end: End = _after_all,
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a range. If a batch is too large for Lance, read fewer rows at once from there on.

    File sizes do not show in advance which batch is too large, because values are compressed and of uneven width.

    Args:
        scanner: Returns a scanner, given a range and the options that bound its batches.
        covered: The range.
        bounds: The first options; see `batches_of`.
        end: Returns the offset after a batch; see `End`.
    """
    at = covered.start
    while True:
        try:
            for batch in scanner(RowRange(at, covered.end), bounds).to_batches():
                at = end(batch, at)
                yield batch
        except LANCE_ERRORS as error:
            rows = min(bounds["batch_size"], covered.end - at)
            if not is_overflow(error) or rows <= 1:
                raise
        else:
            return
        bounds = {**bounds, **_WIDE, "batch_size": fewer_rows(rows)}


def is_overflow(error: BaseException) -> bool:
    """Return whether an error means that a batch or array is too large for Lance or pyarrow. Fewer rows may fit."""
    return _OVERFLOW in error_text(error).casefold()


def fewer_rows(rows: int) -> int:
    """Return how many rows to read at once if `rows` rows were too large for a batch."""
    return max(1, rows * CHUNK_BYTES // _OVERFLOW_BYTES)


def in_parts(covered: RowRange, make: Callable[[RowRange], _Made]) -> Iterator[tuple[RowRange, _Made]]:
    """Yield a range and the result of `make` for it. If one array cannot hold the values, do so for parts of it."""
    try:
        made = make(covered)
    except (LemanError, pa.ArrowException) as error:
        if covered.rows == 1 or not is_overflow(error):
            raise
    else:
        yield covered, made
        return
    for part in split_range(covered, fewer_rows(covered.rows)):
        yield from in_parts(part, make)


def batches_of(fragment: lance.LanceFragment, rows: int = CHUNK_ROWS, ahead: int = _READAHEAD) -> dict[str, Any]:
    """Return a scanner's options that limit the size of batches, and how many of them it reads ahead.

    For wide rows `batch_size` is small: Lance decodes that many rows at once, and applies `batch_size_bytes` only then.
    """
    if not has_wide_rows(fragment):
        return {"batch_size": rows, "batch_size_bytes": CHUNK_BYTES, "batch_readahead": ahead}
    few = max(1, min(rows, int(CHUNK_BYTES / _row_bytes(fragment))))
    return {"batch_size": few, "batch_size_bytes": CHUNK_BYTES, **_WIDE}


def _null_offsets(fragment: lance.LanceFragment, column: str) -> Offsets:
    """Return the physical offsets of the live NULL rows of a column.

    It reads few rows at a time, because files are compressed and do not show how large the values are.
    """
    live = np.flatnonzero(lance_files.live_rows(fragment, RowRange(0, fragment.physical_rows)))
    most, largest = batches_of(fragment)["batch_size"], 1
    found: list[Offsets] = [np.empty(0, np.int64)]
    at, count = 0, 1
    while at < len(live):
        here = live[at : at + count]
        values = fragment.take(list(range(at, at + len(here))), columns=[column]).column(0)
        found.append(here[values.is_null().to_numpy()])
        at += len(here)
        largest = max(largest, values.nbytes // len(here))
        count = max(1, min(most, 4 * count, CHUNK_BYTES // largest))
    return np.concatenate(found)


def offsets_matching(
    dataset: lance.LanceDataset, fragment: lance.LanceFragment, where: str, most: int | None = None
) -> Offsets | None:
    """Return the physical offsets of the live rows that a filter over large values matches.

    A scan with a filter would load all pages of such values at its start. This function reads few rows at a time, with
    a small cache.

    Args:
        dataset: The table.
        fragment: One of its fragments.
        where: The filter, in Lance's dialect.
        most: How many rows are wanted; None for all.

    Returns:
        None if the values are small, or Lance cannot evaluate the filter in this way. Use a scan then.
    """
    row_bytes = _bytes_read(dataset, fragment, where) / max(1, fragment.physical_rows)
    if row_bytes * CHUNK_ROWS <= CHUNK_BYTES:
        return None
    few = max(1, int(CHUNK_BYTES / row_bytes))
    found: list[Offsets] = [np.empty(0, np.int64)]
    try:
        careful = open_version(dataset.uri, int(dataset.version), cache_bytes=CHUNK_BYTES)
        names = {_MATCHES: f"({where})", _PLACE: "_rowaddr"}
        at, rows = 0, fragment.count_rows()
        while at < rows:
            scanner = careful.scanner(
                columns=names, offset=at, limit=few, fragments=[fragment], batch_size=few, **_WIDE
            )
            try:
                part = scanner.to_table()
            except LANCE_ERRORS as error:
                if few > 1 and is_overflow(error):
                    few = fewer_rows(min(few, rows - at))
                    continue
                raise
            matching = part.filter(part.column(_MATCHES)).column(_PLACE)
            found.append(offsets_of(matching.to_numpy().astype(np.int64)))
            if most is not None and sum(map(len, found)) >= most:
                break
            at += few
    except LANCE_ERRORS:
        return None
    return np.concatenate(found)[:most]


def _bytes_read(dataset: lance.LanceDataset, fragment: lance.LanceFragment, where: str) -> int:
    """Return the stored size of the columns that a filter reads in a fragment, without numbers and blobs."""
    if not has_wide_rows(fragment):
        return 0
    ids = _large_fields(dataset, where)
    size = 0
    for file in fragment.metadata.files:
        if ids.isdisjoint(file.fields) or file.base_id is not None:
            continue
        try:
            columns = column_files.column_bytes(dataset.uri, str(file.path))
        except (NotFound, DataLoss):  # for example in an unknown format
            continue
        places = zip(file.fields, file.column_indices, strict=True)
        size += sum(columns[at] for field_id, at in places if field_id in ids and 0 <= at < len(columns))
    return size


def may_read_large(dataset: lance.LanceDataset, where: str) -> bool:
    """Return whether a filter, in Lance's dialect, reads a column whose values may be large."""
    return bool(_large_fields(dataset, where))


def _large_fields(dataset: lance.LanceDataset, where: str) -> set[int]:
    mentioned = filters.names_in_filter(where)
    pairs = zip(dataset.schema, dataset.lance_schema.fields(), strict=True)
    return {
        field_id
        for arrow, field in pairs
        if arrow.name.casefold() in mentioned
        and column_files.tells_nulls(arrow.type)
        and not arrow_types.is_blob(arrow)
        for field_id in field_ids(field)
    }


def has_wide_rows(fragment: lance.LanceFragment) -> bool:
    """Return whether a batch of the usual number of rows may be too large for memory."""
    return _row_bytes(fragment) * CHUNK_ROWS > CHUNK_BYTES


def _row_bytes(fragment: lance.LanceFragment) -> float:
    """Return the bytes of a row in the file of the fragment with the widest rows."""
    rows = max(1, fragment.physical_rows)
    return max((f.file_size_bytes or 0 for f in fragment.metadata.files), default=0) / rows


def _by_fragment(scanner: lance.LanceScanner, where: str = "") -> dict[int, Offsets]:
    """Return the physical offsets, by fragment, of the rows whose addresses a scanner returns.

    Args:
        scanner: A scanner of row addresses.
        where: The caller's filter, for errors.
    """
    found: dict[int, list[Offsets]] = {}
    for batch in checked_batches(iter(scanner.to_batches()), where):
        addresses = batch.column("_rowaddr").to_numpy().astype(np.int64)
        fragments, offsets = fragments_of(addresses), offsets_of(addresses)
        for fragment_id in distinct(fragments).tolist():
            found.setdefault(fragment_id, []).append(offsets[fragments == fragment_id])
    return {fragment_id: np.concatenate(parts) for fragment_id, parts in found.items()}
