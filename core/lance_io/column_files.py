"""Column files: one column of one fragment, staged in the table's data folder until the coordinator installs it."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import xxhash
from lance.file import LanceFileReader, LanceFileWriter
from lance.lance import BlobDescriptorArrayBuilder

from core import row_states
from core.domain.plan import StagedFile
from core.domain.ranges import RowRange
from core.errors import DataLoss, FailedPrecondition, NotFound
from core.lance_io import footer
from core.lance_io.concatenation import joined
from core.lance_io.deletions import Deletions
from core.lance_io.error_translation import reading_file, using_storage
from core.lance_io.panics import panics_as_errors
from core.row_states import RowState, States, StateSummary
from core.udf import binding, blobs

_STATES_KEY = "leman.states"
_DELETIONS_KEY = "leman.deletions"
_DIGEST_CHUNK = 1 << 22


def data_path(uri: str, file: str) -> str:
    """Return where a data file of a table lies."""
    return f"{uri.rstrip('/')}/data/{file}"


class ColumnFileWriter:
    """What writes one column file, batch by batch; memory is bounded by the batch.

    A file is published by `close` alone: a writer that is dropped leaves none. Each call raises what
    `storage_errors.unusable` gives where the store refuses, or Lance does not take the values.

    Args:
        field: as `blobs.values_field` gives it.
        file_format: that of the table; Lance reads files of others, but cannot always compact them.
    """

    def __init__(self, uri: str, field: pa.Field, file_format: tuple[int, int] = (2, 2)) -> None:
        self._uri = uri
        self._version = "{}.{}".format(*file_format)
        self._copies_slices = _holds_structs(field.type)
        self._describes_blobs = blobs.is_blob(field) and file_format >= blobs.V2_FORMAT
        self._field = (
            _descriptors(field.name, None)[0]
            if self._describes_blobs
            else blobs.values_field(field).with_nullable(True)
        )
        self._writer: LanceFileWriter | None = None
        self._file = ""
        self._rows = 0
        self.row_states = b""

    def open(self, file: str) -> None:
        """Begin the file under its final name."""
        self._file = file
        with using_storage(data_path(self._uri, file)):
            self._writer = LanceFileWriter(data_path(self._uri, file), pa.schema([self._field]), version=self._version)

    def write(self, values: pa.Array) -> None:
        """Append values in physical order."""
        if self._writer is None:
            raise RuntimeError("write before open")
        if values.offset and self._copies_slices:
            values = pa.concat_arrays([values])
        stored = _descriptors(self._field.name, values)[1] if self._describes_blobs else values
        with using_storage(data_path(self._uri, self._file)):
            self._writer.write_batch(pa.record_batch([stored], schema=pa.schema([self._field])))
        self._rows += len(values)

    def close(
        self,
        states: States | None,
        filters: frozenset[str],
        file: str,
        deletions: Deletions | None = None,
        older: Sequence[str] = (),
    ) -> StagedFile:
        """Publish the file as `file`.

        Args:
            states: what the file carries of row states; None: every live row is computed.
            deletions: rows that it lacks.
            older: see `core.row_states.encode`.
        """
        if self._writer is None:
            raise RuntimeError("close before open")
        failed = 0
        computed = self._rows
        if states is not None:
            self.row_states = row_states.encode(states, filters, older)
            summary = row_states.summarize(states, older=older)
            failed, computed = summary.failed + summary.failed_older, summary.computed + summary.kept
        with using_storage(data_path(self._uri, self._file)):
            self._publish(self._writer, None if deletions is None else deletions.encode(), file)
        self._writer = None
        size, digest = digest_of(self._uri, self._file)
        return StagedFile(self._file, size, digest, self._rows, computed, failed)

    def _publish(self, writer: LanceFileWriter, deletions: bytes | None, file: str) -> None:
        for key, content in ((_STATES_KEY, self.row_states), (_DELETIONS_KEY, deletions)):
            if content:
                writer.add_schema_metadata(key, str(writer.add_global_buffer(content)))
        writer.close()
        if file != self._file:
            _rename(self._uri, self._file, file)
            self._file = file


def _holds_structs(kind: pa.DataType) -> bool:
    """Tell whether a type holds structs: in these Lance panics over a slice that begins later than its array."""
    if not pa.types.is_nested(kind):
        return False
    return bool(pa.types.is_struct(kind)) or any(_holds_structs(kind.field(i).type) for i in range(kind.num_fields))


def _descriptors(name: str, values: pa.Array | None) -> tuple[pa.Field, pa.Array]:
    """Return bytes as Lance's newer kind of blob has them.

    All of them stay in the column file: one file, one digest.
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
    filesystem, path = _filesystem(data_path(uri, old))
    filesystem.move(path, _filesystem(data_path(uri, new))[1])


def _filesystem(path: str) -> tuple[pafs.FileSystem, str]:
    return pafs.FileSystem.from_uri(path) if "://" in path else (pafs.LocalFileSystem(), path)


def digest_of(uri: str, file: str) -> tuple[int, str]:
    """Return (size in bytes, xxh3-128 of the bytes as hex).

    Raises:
        LemanError: what `reading_file` gives.
    """
    digest = xxhash.xxh3_128()
    size = 0
    with reading_file(uri, f"Column file {file}"):
        filesystem, path = _filesystem(data_path(uri, file))
        with filesystem.open_input_stream(path) as stream:
            while chunk := stream.read(_DIGEST_CHUNK):
                digest.update(chunk)
                size += len(chunk)
    return size, digest.hexdigest()


def rows_of(uri: str, file: str) -> int:
    """Count the rows of a data file, by its footer.

    Raises:
        LemanError: what `reading_file` gives.
    """
    with reading_file(uri, f"Data file {file}"):
        return footer.read_rows(*_filesystem(data_path(uri, file)))


def read_state_summary(uri: str, file: str) -> StateSummary | None:
    """Return the counts of the row states in a partial column file; None where it carries none.

    Raises:
        LemanError: as `read_states_buffer`.
    """
    buffer = read_states_buffer(uri, file)
    return None if buffer is None else row_states.decode_summary(buffer)


def read_states(uri: str, file: str) -> States | None:
    """Return the row states of a partial column file; None where it carries none.

    Raises:
        LemanError: as `read_states_buffer`.
    """
    buffer = read_states_buffer(uri, file)
    return None if buffer is None else row_states.decode(buffer)


def read_states_buffer(uri: str, file: str) -> bytes | None:
    """Return the row states of a partial column file as they are stored, and whole; None where it carries none.

    Raises:
        LemanError: what `reading_file` gives.
    """
    with reading_file(uri, f"Row states of {file}"):
        buffer = footer.read_buffer(*_filesystem(data_path(uri, file)), _STATES_KEY)
        if buffer is not None:
            row_states.check(buffer)
    return buffer


class ColumnFileReader:
    """What reads a column file that is in no version of the table.

    Raises what `storage_errors.unusable` gives where the file is gone or damaged.
    """

    def __init__(self, uri: str, file: str) -> None:
        self._path = data_path(uri, file)
        with using_storage(self._path):
            self._reader = LanceFileReader(self._path)
            buffer, lacks = _buffer_in(self._reader, _STATES_KEY), _buffer_in(self._reader, _DELETIONS_KEY)
            self._states = None if buffer is None else row_states.decode(buffer)
            self._deleted = None if lacks is None else Deletions.decode(lacks).mask

    def values(self, covered: RowRange) -> pa.Array:
        """Return one value for each physical row of a range."""
        with using_storage(self._path):
            table = self._reader.read_range(covered.start, covered.rows, batch_size=covered.rows).to_table()
        return joined(table.column(0).chunks)

    def states(self, covered: RowRange) -> States:
        """Return the rows' states, with the rows that were deleted when the file was written as DELETED."""
        if self._states is None:
            found = np.full(covered.rows, RowState.COMPUTED, np.uint8)
        else:
            found = self._states[covered.start : covered.end].copy()
        if self._deleted is not None:
            found[self._deleted[covered.start : covered.end]] = RowState.DELETED
        return found


def _buffer_in(reader: LanceFileReader, key: str) -> bytes | None:
    metadata = reader.metadata().schema.metadata or {}
    index = metadata.get(key.encode())
    return None if index is None else bytes(reader.read_global_buffer(int(index)))


@dataclass(frozen=True, slots=True)
class Verified:
    """A staged file that holds what was announced.

    Known are the name that its column had, the version (major, minor) of its format, and the rows that it lacks because
    they were deleted when it was written.
    """

    column: str
    format: tuple[int, int]
    deletions: Deletions | None


def verify(uri: str, staged: StagedFile, field: pa.Field) -> Verified:
    """Check a staged file before it is committed; Lance itself checks almost nothing of it.

    Raises:
        NotFound: FILE_MISSING.
        DataLoss: FILE_DAMAGED, for its size, its digest, or a file that cannot be read.
        FailedPrecondition: ROW_COUNT_MISMATCH, TYPE_MISMATCH.
    """
    content = read_verified(uri, staged)
    if not _holds(content.schema, field):
        held = ", ".join(f"{column.name}: {column.type}" for column in content.schema)
        raise FailedPrecondition(
            "TYPE_MISMATCH",
            f"Type mismatch for column {field.name}: {staged.file} holds {held}, the column is {field.type}",
        )
    return Verified(content.schema.names[0], content.format, content.deletions)


@dataclass(frozen=True, slots=True)
class Content:
    """What is known of a staged file that holds the bytes and the rows that were announced."""

    schema: pa.Schema
    format: tuple[int, int]
    deletions: Deletions | None


def read_verified(uri: str, staged: StagedFile) -> Content:
    """Check a staged file's bytes and rows. Raises what `verify` raises, but for TYPE_MISMATCH."""
    try:
        size, digest = digest_of(uri, staged.file)
    except NotFound:
        raise NotFound("FILE_MISSING", f"Column file {staged.file} is not in the table's data folder") from None
    if (size, digest) != (staged.size_bytes, staged.digest):
        raise DataLoss(
            "FILE_DAMAGED",
            f"Column file {staged.file} changed after it was written: {size} bytes with digest {digest}, "
            f"{staged.size_bytes} bytes with digest {staged.digest} were staged. It will be computed again.",
        )
    try:
        with panics_as_errors():
            reader = LanceFileReader(data_path(uri, staged.file))
            metadata = reader.metadata()
            lacks = _buffer_in(reader, _DELETIONS_KEY)
    except (OSError, ValueError, RuntimeError) as error:
        raise DataLoss("FILE_DAMAGED", f"Column file {staged.file} cannot be read: {error}") from None
    if metadata.num_rows != staged.physical_rows:
        raise FailedPrecondition(
            "ROW_COUNT_MISMATCH",
            f"Column file {staged.file} has {metadata.num_rows} rows, {staged.physical_rows} were announced",
        )
    version = metadata.major_version, metadata.minor_version  # type: ignore[attr-defined]  # its stub is incomplete
    return Content(metadata.schema, version, None if lacks is None else Deletions.decode(lacks))


@contextlib.contextmanager
def empty_copy(uri: str, staged: StagedFile, field: pa.Field, file_format: tuple[int, int]) -> Iterator[str]:
    """Write a file without rows, in the layout of a staged one whose column was renamed since.

    It lasts as long as the context is open.
    """
    writer = ColumnFileWriter(uri, field, file_format)
    name = f"{staged.file.removesuffix('.lance')}{uuid.uuid4().hex}.lance"  # one that garbage collection knows
    writer.open(name)
    writer.close(None, frozenset(), name)
    try:
        yield name
    finally:
        filesystem, path = _filesystem(data_path(uri, name))
        filesystem.delete_file(path)


def _names(field: pa.Field) -> set[str]:
    """Return what files call a column: its name, or the one under which it was added, if it was renamed since."""
    bound = binding.read(field)
    return {field.name} if bound is None or not bound.added_as else {field.name, bound.added_as}


def _holds(written: pa.Schema, field: pa.Field) -> bool:
    """Tell whether a file's schema is that of a column file of this column.

    A blob of the newer kind is an empty struct in it, and after it comes what describes it.
    """
    first = written.field(0)
    if first.name not in _names(field):
        return False
    if blobs.is_blob(field):
        return blobs.is_blob(first)
    return len(written) == 1 and first.type == type_in_file(field.type)


def type_in_file(kind: pa.DataType) -> pa.DataType:
    """Return what a data file says of a column of this type: JSON is stored in a binary form."""
    return pa.large_binary() if isinstance(kind, pa.JsonType) else kind
