"""Stage rows that a caller adds: write a data file for each new fragment. No version of the table has them yet."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import pyarrow as pa
from lance.file import LanceFileWriter

from leman._format.view_definitions import is_view
from leman_coordinator.commits.commit_requests import AppendRowsRequest
from leman_coordinator.lance_io import table_files
from leman_coordinator.tables.arrow_streams import Incoming, read_batches
from leman_coordinator.tables.row_digests import RowsDigest
from leman_coordinator.tables.schema_casting import Fitting
from leman_core.functions import arrow_types
from leman_core.model import keys
from leman_core.model.plan import StagedFile
from leman_core.model.service_errors import FailedPrecondition, NotFound, Unavailable
from leman_core.model.table import SentRows, TableField, TableSnapshot
from leman_core.storage.column_files import blob_descriptors, data_path, digest_of, holds_structs
from leman_core.storage.error_translation import first_line, is_definite, using_storage
from leman_core.storage.filesystems import count_request
from leman_core.storage.lance_tables import LanceTables, snapshot_of
from leman_core.storage.object_stores import lance_options
from leman_core.storage.view_data_files import new_name, remove_staged

#: The maximum number of rows in a fragment, unless the caller chooses: Lance's default.
FRAGMENT_ROWS = 1 << 20
#: When a fragment's file has this size, the next one is started.
_FRAGMENT_BYTES = 16 << 30
_OLDEST_FORMAT = (2, 0)
_COLUMNS_LISTED = 40


class StagedRows:
    """The files of one upload, written by one thread. Its creator either has them committed or discards them."""

    stays = True

    def __init__(self, uri: str, max_rows_per_fragment: int = 0) -> None:
        """Open the table.

        Raises:
            NotFound: TABLE_NOT_FOUND.
            FailedPrecondition: IS_A_VIEW; FILE_FORMAT_NOT_SUPPORTED – the table is of Lance's first file format.
            LemanError: raised by `LanceTables.dataset`.
        """
        self._table = snapshot_of(uri, LanceTables().dataset(uri), ())
        check_takes_rows(self._table)
        self._columns: tuple[TableField, ...] = ()
        self._files = RowFiles(self._table, max_rows_per_fragment)

    @property
    def files(self) -> list[StagedFile]:
        return self._files.files

    def request(self, request_id: str, body: str) -> AppendRowsRequest:
        """Return the request to commit."""
        table = self._table
        return AppendRowsRequest(table.uri, request_id, body, table.incarnation, self._columns, tuple(self.files))

    def write(self, incoming: Incoming) -> SentRows:
        """Write all rows until the stream ends. Return their digest and count.

        Raises:
            InvalidArgument: BAD_STREAM, BATCH_TOO_LARGE; see also `Fitting`.
            FailedPrecondition: see `Fitting`.
            LemanError: the error passed to `Incoming.end`; see also `storage_unusable`.
        """
        schema, coming = read_batches(incoming)
        fitting = Fitting(schema, self._table.fields)
        self._columns, digest = fitting.columns, RowsDigest(schema)
        for batch in coming:
            for part in fitting.fitted(batch):
                self._files.write(part)
            digest.add(batch)
        self._files.close()
        return digest.sent()

    def is_outlived(self) -> bool:
        """Return whether the table was dropped or replaced."""
        return is_outlived(self._table)

    def discard(self) -> None:
        """Remove the files. If that fails, they stay until garbage is collected."""
        self._files.discard()


class RowFiles:
    """Data files of new fragments, written one after the other. The creator has them committed or discards them."""

    def __init__(self, table: TableSnapshot, max_rows: int = 0) -> None:
        self._table = table
        self._rows = max_rows or FRAGMENT_ROWS
        self._file: _RowsFile | None = None
        self._names: list[str] = []
        self.files: list[StagedFile] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows, in the types in which the table's columns are written.

        Raises the errors of `storage_unusable`.
        """
        while batch.num_rows:
            if self._file is None:
                self._file = self._begun(batch.schema)
            part = batch.slice(0, self._rows - self._file.rows)
            self._file.write(part)
            batch = batch.slice(part.num_rows)
            if self._file.rows >= self._rows or self._file.bytes >= _FRAGMENT_BYTES:
                self._close_file()

    def close(self) -> None:
        """Publish the last file, and write a note of all files.

        Raises:
            LemanError: see `storage_unusable`; raised by `write_note`.
        """
        self._close_file()
        if self.files:
            table_files.write_note(self._table.uri, self.files)

    def discard(self) -> None:
        """Remove the files. If that fails, they stay until garbage is collected."""
        self._file = None  # a writer that is dropped leaves no file
        remove_staged(self._table.uri, self._names)

    def _begun(self, schema: pa.Schema) -> _RowsFile:
        name = new_name(keys.ROWS_FILE_PREFIX)
        self._names.append(name)
        return _RowsFile(self._table, name, schema)

    def _close_file(self) -> None:
        if self._file is not None:
            self.files.append(self._file.close())
            self._file = None


class _RowsFile:
    """One file of rows. `close` publishes it."""

    def __init__(self, table: TableSnapshot, name: str, schema: pa.Schema) -> None:
        self._uri = table.uri
        self._name = name
        self._described = _described_blobs(schema, table.file_format)
        self._schema = pa.schema(
            [blob_descriptors(f.name, None)[0] if f.name in self._described else f for f in schema]
        )
        self.rows = 0
        self.bytes = 0
        count_request(self._uri, "lance", writes=True)
        with using_storage(self._uri):
            version = "{}.{}".format(*table.file_format)
            self._writer = LanceFileWriter(
                data_path(self._uri, name), self._schema, version=version, storage_options=lance_options(self._uri)
            )

    def write(self, batch: pa.RecordBatch) -> None:
        arrays = [self._stored(field.name, batch.column(field.name)) for field in self._schema]
        with self._writing():
            self._writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=self._schema))
        self.rows += batch.num_rows
        self.bytes += batch.nbytes

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Raise COMMIT_REFUSED if Lance can never store the values. Lance does not say in which column they are."""
        try:
            with using_storage(self._uri):
                yield
        except Unavailable as error:
            if error.__cause__ is None or not is_definite(error.__cause__):
                raise
            names = ", ".join(self._schema.names[:_COLUMNS_LISTED])
            raise FailedPrecondition(
                "COMMIT_REFUSED",
                f"Lance cannot store values of the columns {names}: {first_line(error.__cause__)}. Correct the values, "
                "or use another type for the column",
                uri=self._uri,
            ) from error.__cause__

    def _stored(self, name: str, values: pa.Array) -> pa.Array:
        if name in self._described:
            return blob_descriptors(name, values)[1]
        return pa.concat_arrays([values]) if values.offset and holds_structs(values.type) else values

    def close(self) -> StagedFile:
        with self._writing():
            self._writer.close()
        size, digest = digest_of(self._uri, self._name)
        return StagedFile(
            file=self._name,
            size_bytes=size,
            digest=digest,
            physical_rows=self.rows,
            rows_computed=self.rows,
            rows_failed=0,
        )


def _described_blobs(schema: pa.Schema, file_format: tuple[int, int]) -> Sequence[str]:
    """Return the columns with Lance's newer blob encoding, in which a struct describes the bytes."""
    return [f.name for f in schema if arrow_types.is_blob(f) and file_format >= arrow_types.V2_FORMAT]


def is_outlived(table: TableSnapshot) -> bool:
    """Return whether a table was dropped or replaced."""
    try:
        now = snapshot_of(table.uri, LanceTables().dataset(table.uri), ())
    except NotFound:
        return True
    return now.incarnation != table.incarnation


def check_takes_rows(table: TableSnapshot) -> None:
    """Refuse a table whose rows callers cannot write.

    Raises:
        FailedPrecondition: IS_A_VIEW; FILE_FORMAT_NOT_SUPPORTED – the table is of Lance's first file format.
    """
    if is_view(table.metadata):
        raise FailedPrecondition("IS_A_VIEW", f"{table.uri} is a view: its rows come from its source", uri=table.uri)
    if table.file_format < _OLDEST_FORMAT:
        raise FailedPrecondition(
            "FILE_FORMAT_NOT_SUPPORTED",
            f"Table {table.uri} is written in Lance's first file format: rewrite it with lance.write_dataset",
            uri=table.uri,
        )
