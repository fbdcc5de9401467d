"""Column files: the values of one column in one fragment, in the table's data folder.

A file is staged until the coordinator installs it. A small file for an object store is built in memory and put in one
request, under its final name. The coordinator checks staged files, because Lance checks almost nothing.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt
import xxhash
from lance.file import LanceFileReader, LanceFileWriter
from lance.lance import BlobDescriptorArrayBuilder
from xxhash import xxh3_128_hexdigest

from leman_core.functions import arrow_types, binding
from leman_core.functions.arrow_values import concatenate
from leman_core.model import keys, row_states
from leman_core.model.plan import StagedFile
from leman_core.model.row_positions import RowRange
from leman_core.model.row_states import Predecessor, RowState, States, StateSummary
from leman_core.model.service_errors import DataLoss, FailedPrecondition, NotFound
from leman_core.storage import lance_files, whole_files
from leman_core.storage.error_translation import reading_file, using_storage, writing_values
from leman_core.storage.filesystems import count_request, filesystem_of
from leman_core.storage.lance_files import Deletions, as_file, made_in_memory
from leman_core.storage.locations import in_object_store
from leman_core.storage.object_stores import lance_options
from leman_core.storage.panics import panics_as_errors
from leman_core.storage.storage_errors import storage_unusable, store_failed
from leman_core.storage.whole_files import ObjectEnd, Tagged, put_small_file, small_file

#: Keys in a column file's metadata for the buffers with row states, deleted rows, earlier files, and NULL rows.
STATES_KEY = "leman.states"
DELETIONS_KEY = "leman.deletions"
PREDECESSORS_KEY = "leman.predecessors"
NULLS_KEY = "leman.nulls"
_DIGEST_CHUNK = 1 << 22


def data_folder(uri: str) -> str:
    """Return the folder of a table's data files."""
    return f"{uri.rstrip('/')}/data"


def data_path(uri: str, file: str) -> str:
    """Return the path of a data file of a table."""
    return f"{data_folder(uri)}/{file}"


def digest_of(uri: str, file: str, size_bytes: int | None = None) -> tuple[int, str]:
    """Return a data file's size in bytes, and the xxh3-128 of its bytes as hex.

    Args:
        uri: The table.
        file: The name of the file.
        size_bytes: Its expected size, if known, which saves a request.

    Raises:
        LemanError: It cannot be read; see `reading_file`.
    """
    whole = None if size_bytes is None else small_data_file(uri, file, size_bytes)
    if whole is not None:
        return len(whole), xxhash.xxh3_128_hexdigest(whole)
    digest = xxhash.xxh3_128()
    size = 0
    with reading_file(uri, f"Column file {file}"):
        filesystem, path = filesystem_of(data_path(uri, file))
        with filesystem.open_input_stream(path) as stream:
            while chunk := stream.read(_DIGEST_CHUNK):
                digest.update(chunk)
                size += len(chunk)
    return size, digest.hexdigest()


def tagged_digest_of(uri: str, file: str, size_bytes: int | None = None) -> tuple[Tagged, str]:
    """Return what `digest_of` does, and the ETag of the object, which is empty if its store has none.

    Raises:
        LemanError: It cannot be read; see `reading_file`.
    """
    if in_object_store(uri):
        found = whole_files.tagged_digest(data_folder(uri), file)
        if found is not None:
            return found
    size, digest = digest_of(uri, file, size_bytes)
    return Tagged(size, ""), digest


def small_data_file(uri: str, file: str, size_bytes: int) -> bytes | None:
    """Return what `small_file` does, for a data file of a table.

    Raises:
        LemanError: It cannot be read; see `reading_file`.
    """
    with reading_file(uri, f"Column file {file}"):
        return small_file(data_folder(uri), file, size_bytes)


def rows_of(uri: str, file: str) -> int:
    """Return the number of rows that the footer of a data file states.

    Raises:
        LemanError: It cannot be read; see `reading_file`.
    """
    with reading_file(uri, f"Data file {file}"):
        return lance_files.read_rows(*filesystem_of(data_path(uri, file)))


def read_state_summary(uri: str, file: str) -> StateSummary | None:
    """Return the counts of the row states in a partial column file; None if it has no states.

    Raises:
        LemanError: As `read_states_buffer`.
    """
    with reading_file(uri, f"Row states of {file}"):
        buffer = lance_files.read_buffer(*filesystem_of(data_path(uri, file)), STATES_KEY)
        return None if buffer is None else row_states.decode_state_summary(buffer)


def read_states(uri: str, file: str) -> States | None:
    """Return the row states of a partial column file; None if it has none.

    Raises:
        LemanError: As `read_states_buffer`.
    """
    buffer = read_states_buffer(uri, file)
    return None if buffer is None else row_states.decode_states(buffer)


def read_states_buffer(uri: str, file: str) -> bytes | None:
    """Check and return the encoded row states of a partial column file; None if it has none.

    Raises:
        LemanError: They cannot be read; see `reading_file`.
    """
    with reading_file(uri, f"Row states of {file}"):
        buffer = lance_files.read_buffer(*filesystem_of(data_path(uri, file)), STATES_KEY)
        if buffer is not None:
            row_states.check_states(buffer)
    return buffer


def read_predecessors(uri: str, file: str) -> list[Predecessor]:
    """Return the earlier files that a column file lists, latest first; none if the file is missing or damaged.

    Raises:
        LemanError: The storage cannot be used.
    """
    if keys.parse_column_file_name(file) is None:
        return []
    try:
        with reading_file(uri, f"The list of files before {file}"):
            buffer = lance_files.read_buffer(*filesystem_of(data_path(uri, file)), PREDECESSORS_KEY)
            return [] if buffer is None else row_states.decode_predecessors(buffer)
    except (NotFound, DataLoss):
        return []


def read_nulls(uri: str, file: str) -> npt.NDArray[np.int64] | None:
    """Return the physical offsets of the NULL rows without reading values; None if the file does not list them.

    Files of earlier releases do not list them, and neither do files of types for which `tells_nulls` is false.

    Raises:
        LemanError: They cannot be read; see `reading_file`.
    """
    if keys.parse_column_file_name(file) is None:
        return None
    with reading_file(uri, f"The list of NULL rows of {file}"):
        buffer = lance_files.read_buffer(*filesystem_of(data_path(uri, file)), NULLS_KEY)
        return None if buffer is None else row_states.decode_nulls(buffer)


def column_bytes(uri: str, file: str) -> list[int]:
    """Return the size in bytes of each column of a data file, which its footer states.

    Raises:
        LemanError: It cannot be read; see `reading_file`.
    """
    with reading_file(uri, f"Data file {file}"):
        return lance_files.read_column_bytes(*filesystem_of(data_path(uri, file)))


def tells_nulls(kind: pa.DataType) -> bool:
    """Return whether column files of a type list their NULL rows, which they do if values may be large.

    Files of dictionaries do not: a dictionary may contain NULL itself, so only the values show which rows are NULL.
    """
    while isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    return not (pt.is_primitive(kind) or pt.is_null(kind) or pt.is_dictionary(kind) or pt.is_decimal(kind))


class ColumnFileReader:
    """A reader of a column file that no version of the table contains.

    If the file is absent or damaged, calls raise the error that `storage_unusable` returns.
    """

    def __init__(self, uri: str, file: str) -> None:
        self._path = data_path(uri, file)
        count_request(uri, "lance", writes=False)
        with using_storage(self._path):
            self._reader = LanceFileReader(self._path, storage_options=lance_options(uri))
            buffer, lacks = buffer_in(self._reader, STATES_KEY), buffer_in(self._reader, DELETIONS_KEY)
            self._states = None if buffer is None else row_states.decode_states(buffer)
            self._deleted = None if lacks is None else Deletions.decode(lacks).mask

    def values(self, covered: RowRange) -> pa.Array:
        """Return one value for each physical row of a range."""
        with using_storage(self._path):
            table = self._reader.read_range(covered.start, covered.rows, batch_size=covered.rows).to_table()
        return concatenate(table.column(0).chunks)

    def states(self, covered: RowRange) -> States:
        """Return the rows' states. Rows that were deleted when the file was written are DELETED."""
        if self._states is None:
            found = np.full(covered.rows, RowState.COMPUTED, np.uint8)
        else:
            found = self._states[covered.start : covered.end].copy()
        if self._deleted is not None:
            found[self._deleted[covered.start : covered.end]] = RowState.DELETED
        return found


def buffer_in(reader: LanceFileReader, key: str) -> bytes | None:
    """Return the global buffer whose number is in the file's metadata under a key; None without such a key."""
    metadata = reader.metadata().schema.metadata or {}
    index = metadata.get(key.encode())
    return None if index is None else bytes(reader.read_global_buffer(int(index)))


#: A file with at most this many bytes of values is put in one request. A larger one is written batch by batch.
_HELD_BYTES = 16 << 20
#: From this format on, files can store that a struct is NULL. In earlier ones it becomes a struct of NULLs.
_NULL_STRUCTS_FORMAT = (2, 1)


class ColumnFileWriter:
    """Writes one column file, batch by batch. It holds at most a batch in memory, or 16 MiB for an object store.

    Only `close` publishes the file. Each call translates errors of Lance and the store with `storage_unusable`.

    Args:
        uri: The table.
        field: The column's field, as `blobs.values_field` returns it.
        file_format: The table's file format. Lance also reads files of other formats, but cannot always compact them.
    """

    def __init__(self, uri: str, field: pa.Field, file_format: tuple[int, int] = (2, 2)) -> None:
        self._uri = uri
        self._version = "{}.{}".format(*file_format)
        self._copies_slices = holds_structs(field.type)
        self._describes_blobs = arrow_types.is_blob(field) and file_format >= arrow_types.V2_FORMAT
        self._field = (
            blob_descriptors(field.name, None)[0]
            if self._describes_blobs
            else arrow_types.values_field(field).with_nullable(True)
        )
        self._writer: LanceFileWriter | None = None
        #: Batches to write at the end; None if batches are written at once.
        self._held: list[pa.RecordBatch] | None = None
        self._held_bytes = 0
        self._file = ""
        self._rows = 0
        #: The parts of the file that have NULLs: the offset of the first row, and a mask of the NULL rows. None if the
        #: file does not list them.
        self._nulls: list[tuple[int, npt.NDArray[np.bool_]]] | None = None
        if tells_nulls(field.type) and not arrow_types.is_blob(field) and file_format >= _NULL_STRUCTS_FORMAT:
            self._nulls = []
        self.row_states = b""
        #: The list of files that this one replaces, as `leman_core.model.row_states` encodes it. Set it before `close`.
        self.predecessors = b""

    def open(self, file: str) -> None:
        """Begin the file, whose final name will be `file`."""
        self._file = file
        if in_object_store(self._uri):
            self._held = []
        else:
            self._writer = self._begun()

    def _begun(self) -> LanceFileWriter:
        count_request(self._uri, "lance", writes=True)
        with using_storage(data_path(self._uri, self._file)):
            return LanceFileWriter(
                data_path(self._uri, self._file),
                pa.schema([self._field]),
                version=self._version,
                storage_options=lance_options(self._uri),
            )

    def write(self, values: pa.Array) -> None:
        """Append values in physical order."""
        if values.offset and self._copies_slices:
            values = pa.concat_arrays([values])
        stored = blob_descriptors(self._field.name, values)[1] if self._describes_blobs else values
        batch = pa.record_batch([stored], schema=pa.schema([self._field]))
        if self._nulls is not None and values.null_count:
            self._nulls.append((self._rows, values.is_null().to_numpy(zero_copy_only=False)))
        self._rows += len(values)
        if self._writer is not None:
            self._write(self._writer, [batch])
        elif self._held is None:
            raise RuntimeError("write before open")
        else:
            self._hold(self._held, batch)

    def _hold(self, held: list[pa.RecordBatch], batch: pa.RecordBatch) -> None:
        """Keep a batch in memory, or write all kept batches if they are too large."""
        held.append(batch)
        self._held_bytes += batch.nbytes
        if self._held_bytes > _HELD_BYTES:
            self._writer, self._held = self._begun(), None
            self._write(self._writer, held)

    def _write(self, writer: LanceFileWriter, batches: Sequence[pa.RecordBatch]) -> None:
        with writing_values(data_path(self._uri, self._file), self._field):
            for batch in batches:
                writer.write_batch(batch)

    def close(
        self,
        states: States | None,
        filters: frozenset[str],
        file: str,
        deletions: Deletions | None = None,
        older: Sequence[str] = (),
        beside: Callable[[StagedFile], None] | None = None,
    ) -> StagedFile:
        """Publish the file as `file`.

        Args:
            states: The states of rows; None if every live row is computed.
            filters: The md5s of the filters for which the file is complete.
            file: The name.
            deletions: The deleted rows, for which the file has no values.
            older: See `leman_core.model.row_states.encode_states`.
            beside: If `is_put_at_once`, this is called while the file is being put. At that time the file may not exist
                yet, and its ETag is unknown.
        """
        if self._writer is None and self._held is None:
            raise RuntimeError("close before open")
        failed = 0
        computed = self._rows
        if states is not None:
            self.row_states = row_states.encode_states(states, filters, older)
            summary = row_states.summarize_states(states, older=older)
            failed, computed = summary.failed + summary.failed_older, summary.computed + summary.kept
        lacks = None if deletions is None else deletions.encode()
        staged = StagedFile(
            file=file, size_bytes=0, digest="", physical_rows=self._rows, rows_computed=computed, rows_failed=failed
        )
        if self._writer is not None:
            stored, digest = self._publish(self._writer, lacks, file)
            staged = replace(staged, size_bytes=stored.size_bytes, digest=digest, etag=stored.etag)
        else:
            content = self._made(self._held or (), lacks, file)
            staged = replace(staged, size_bytes=len(content), digest=xxhash.xxh3_128_hexdigest(content))
            staged = replace(staged, etag=self._put(content, staged, beside))
        self._writer = self._held = None
        return staged

    @property
    def is_put_at_once(self) -> bool:
        """Whether the whole file is in memory, so that `close` puts it into an object store in one request."""
        return self._held is not None

    def _publish(self, writer: LanceFileWriter, deletions: bytes | None, file: str) -> tuple[Tagged, str]:
        """Finish a file that was written in parts. Return its size and ETag in the store, and its digest."""
        with writing_values(data_path(self._uri, self._file), self._field):
            self._end(writer, deletions)
        with using_storage(data_path(self._uri, self._file)):
            if file != self._file:
                _rename(self._uri, self._file, file)
                self._file = file
        return tagged_digest_of(self._uri, self._file, writer.size_bytes)

    def _made(self, batches: Sequence[pa.RecordBatch], deletions: bytes | None, file: str) -> bytes:
        """Return the content of a file with these batches."""
        self._file = file

        def write(writer: LanceFileWriter) -> None:
            self._write(writer, batches)
            self._end(writer, deletions)

        with writing_values(data_path(self._uri, file), self._field):
            return made_in_memory(file, pa.schema([self._field]), write, self._version)

    def _put(self, content: bytes, staged: StagedFile, beside: Callable[[StagedFile], None] | None) -> str:
        """Put the file in one request, and call `beside` meanwhile. Return its ETag, or "" if the store has none."""

        def put() -> str:
            folder = data_folder(self._uri)
            etag = whole_files.put_object(folder, staged.file, content)
            if etag is None:
                with using_storage(data_path(self._uri, staged.file)):
                    put_small_file(folder, staged.file, content)
            return etag or ""

        if beside is None:
            return put()
        with ThreadPoolExecutor(1, thread_name_prefix="column-file") as thread:
            under_way = thread.submit(put)
            beside(staged)
            return under_way.result()

    def _null_rows(self) -> bytes:
        """Return the NULL rows as `row_states.encode_nulls` encodes them; empty if the file does not list them."""
        if self._nulls is None:
            return b""
        found = np.zeros(self._rows, np.bool_)
        for at, nulls in self._nulls:
            found[at : at + len(nulls)] = nulls
        return row_states.encode_nulls(found)

    def _end(self, writer: LanceFileWriter, deletions: bytes | None) -> None:
        buffers = {
            STATES_KEY: self.row_states,
            DELETIONS_KEY: deletions,
            PREDECESSORS_KEY: self.predecessors,
            NULLS_KEY: self._null_rows(),
        }
        for key, content in buffers.items():
            if content:
                writer.add_schema_metadata(key, str(writer.add_global_buffer(content)))
        writer.close()


def holds_structs(kind: pa.DataType) -> bool:
    """Return whether a type contains structs. Lance panics on a slice of structs that does not begin at offset 0."""
    if not pa.types.is_nested(kind):
        return False
    return bool(pa.types.is_struct(kind)) or any(holds_structs(kind.field(i).type) for i in range(kind.num_fields))


def blob_descriptors(name: str, values: pa.Array | None) -> tuple[pa.Field, pa.Array]:
    """Return a field and an array for bytes in the form of Lance's newer kind of blob.

    All bytes stay in the column file, so that its digest covers them.
    """
    builder = BlobDescriptorArrayBuilder(name)
    for value in values if values is not None else ():
        data = value.as_buffer()
        if data is None:
            builder.append_null()
        else:
            builder.append_inline(data.to_pybytes())
    field: pa.Field = builder.field
    return field, builder.finish()


def _rename(uri: str, old: str, new: str) -> None:
    filesystem, path = filesystem_of(data_path(uri, old))
    filesystem.move(path, filesystem_of(data_path(uri, new))[1])


@contextlib.contextmanager
def empty_copy(uri: str, staged: StagedFile, field: pa.Field, file_format: tuple[int, int]) -> Iterator[str]:
    """Yield the name of a file without rows that has the layout of a staged file. Delete it afterwards.

    It is for a staged file whose column was renamed since.
    """
    writer = ColumnFileWriter(uri, field, file_format)
    name = f"{staged.file.removesuffix('.lance')}{uuid.uuid4().hex}.lance"  # garbage collection knows such names
    writer.open(name)
    writer.close(None, frozenset(), name)
    try:
        yield name
    finally:
        filesystem, path = filesystem_of(data_path(uri, name))
        filesystem.delete_file(path)


#: A file up to this size is read whole, which also takes one request, and little more time.
_WHOLE_BYTES = 1 << 20
#: The bytes to read from the end of a larger file. In most files they include all metadata; if not, more are read, up
#: to the second number.
_END_BYTES = 1 << 16
_LONGEST_END_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Verified:
    """A staged file that passed all checks.

    Its fields are the name that the column had when the file was written, the version (major, minor) of the file's
    format, and the rows that were deleted when the file was written and have no values in it.
    """

    column: str
    format: tuple[int, int]
    deletions: Deletions | None


def verify_column_file(uri: str, staged: StagedFile, field: pa.Field) -> Verified:
    """Check a staged file before its commit, because Lance checks almost nothing.

    Raises:
        NotFound: FILE_MISSING.
        DataLoss: FILE_DAMAGED – it has the wrong size or digest, or cannot be read.
        FailedPrecondition: ROW_COUNT_MISMATCH, TYPE_MISMATCH.
    """
    content = read_verified(uri, staged)
    if not _holds(content.schema, field):
        held = ", ".join(f"{column.name}: {column.type}" for column in content.schema)
        raise FailedPrecondition(
            "TYPE_MISMATCH",
            f"Type mismatch for column {field.name}: {staged.file} has {held}, and the column is {field.type}",
        )
    return Verified(content.schema.names[0], content.format, content.deletions)


@dataclass(frozen=True, slots=True)
class Content:
    """The metadata of a staged file whose bytes and number of rows are the announced ones."""

    schema: pa.Schema
    format: tuple[int, int]
    deletions: Deletions | None


def read_verified(uri: str, staged: StagedFile) -> Content:
    """Check a staged file's bytes and number of rows. Raises what `verify_column_file` raises, except TYPE_MISMATCH.

    The digest of the bytes is compared. For a large file the ETag is enough, if it shows that the object is the one
    whose digest was computed.
    """
    end = _unchanged(uri, staged)
    whole = None if end is not None else _read_whole(uri, staged)
    try:
        with panics_as_errors(), _as_read(uri, staged, whole, end) as reader:
            metadata = reader.metadata()
            lacks = buffer_in(reader, DELETIONS_KEY)
    except (OSError, ValueError, RuntimeError) as error:
        if store_failed(error):
            raise storage_unusable(error, data_path(uri, staged.file)) from error
        raise DataLoss("FILE_DAMAGED", f"Column file {staged.file} cannot be read: {error}") from None
    if metadata.num_rows != staged.physical_rows:
        raise FailedPrecondition(
            "ROW_COUNT_MISMATCH",
            f"Column file {staged.file} has {metadata.num_rows} rows, and {staged.physical_rows} were announced",
        )
    version = metadata.major_version, metadata.minor_version  # type: ignore[attr-defined]  # its stub is incomplete
    return Content(metadata.schema, version, None if lacks is None else Deletions.decode(lacks))


def _unchanged(uri: str, staged: StagedFile) -> ObjectEnd | None:
    """Return the last bytes of a file if its size and ETag show that it has not changed since its digest was computed.

    Returns:
        None if the file has to be read: it is small, its ETag is unknown, or it has changed.
    """
    if not staged.etag or staged.size_bytes <= _WHOLE_BYTES:
        return None
    start = staged.size_bytes - _END_BYTES
    while staged.size_bytes - start <= _LONGEST_END_BYTES:
        end = whole_files.read_object_end(data_folder(uri), staged.file, start, staged.size_bytes)
        if end is None or end.tagged.etag != staged.etag:
            return None
        try:
            needed = lance_files.start_of_metadata(end.content, staged.size_bytes)
        except ValueError:
            return None
        if needed >= start:
            return end
        start = needed
    return None


def _read_whole(uri: str, staged: StagedFile) -> bytes | None:
    """Compare a file with its digest. Return its bytes if they were read in one request, otherwise None.

    Raises:
        NotFound: FILE_MISSING.
        DataLoss: FILE_DAMAGED.
    """
    try:
        whole = small_data_file(uri, staged.file, staged.size_bytes)
        size, digest = digest_of(uri, staged.file) if whole is None else (len(whole), xxh3_128_hexdigest(whole))
    except NotFound:
        raise NotFound("FILE_MISSING", f"Column file {staged.file} is not in the table's data folder") from None
    if (size, digest) != (staged.size_bytes, staged.digest):
        raise DataLoss(
            "FILE_DAMAGED",
            f"Column file {staged.file} changed after it was written: {size} bytes with digest {digest}, "
            f"{staged.size_bytes} bytes with digest {staged.digest} were staged. Its values are recomputed.",
        )
    return whole


@contextlib.contextmanager
def _as_read(uri: str, staged: StagedFile, whole: bytes | None, end: ObjectEnd | None) -> Iterator[LanceFileReader]:
    """Yield a reader of a data file's footer. It uses the whole file or its end if that was read before."""
    if end is not None:
        known = as_file(end.content, staged.size_bytes - len(end.content))
    elif whole is not None:
        known = as_file(whole)
    else:
        count_request(uri, "lance", writes=False)
        yield LanceFileReader(data_path(uri, staged.file), storage_options=lance_options(uri))
        return
    with known as path:
        yield LanceFileReader(path)


def _names(field: pa.Field) -> set[str]:
    """Return the names that a column may have in files: its present one and, after a rename, its first one."""
    bound = binding.read(field)
    return {field.name} if bound is None or not bound.added_as else {field.name, bound.added_as}


def _holds(written: pa.Schema, field: pa.Field) -> bool:
    """Return whether a schema is that of a column file of this column.

    In such a schema, a blob of the newer kind is an empty struct, followed by its descriptor.
    """
    first = written.field(0)
    if first.name not in _names(field):
        return False
    if arrow_types.is_blob(field):
        return arrow_types.is_blob(first)
    return len(written) == 1 and first.type == type_in_file(field.type)


def type_in_file(kind: pa.DataType) -> pa.DataType:
    """Return the type that a column has in a data file, which is a binary one for JSON."""
    return pa.large_binary() if isinstance(kind, pa.JsonType) else kind
