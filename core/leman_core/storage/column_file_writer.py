"""The writing of column files: staged in the table's data folder until the coordinator installs them.

In an object store a small one is made in memory and put in one request: its digest is known then, and its last name.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash
from lance.file import LanceFileWriter
from lance.lance import BlobDescriptorArrayBuilder

from leman_core.functions import blobs
from leman_core.model import row_states
from leman_core.model.plan import StagedFile
from leman_core.model.row_states import States
from leman_core.storage import store_objects
from leman_core.storage.column_files import (
    DELETIONS_KEY,
    NULLS_KEY,
    PREDECESSORS_KEY,
    STATES_KEY,
    data_folder,
    data_path,
    tagged_digest_of,
    tells_nulls,
)
from leman_core.storage.deletions import Deletions
from leman_core.storage.error_translation import using_storage, writing_values
from leman_core.storage.files_in_memory import made_in_memory
from leman_core.storage.filesystems import filesystem_of
from leman_core.storage.locations import in_object_store
from leman_core.storage.object_stores.lance_options import lance_options
from leman_core.storage.object_stores.requests import count
from leman_core.storage.small_files import put_file
from leman_core.storage.store_objects import Tagged

#: Of values of a file that is put in one request; more of them are written as they come.
_HELD_BYTES = 16 << 20
#: Files of earlier formats do not hold that a struct is NULL: it comes back as one of NULLs.
_NULL_STRUCTS_FORMAT = (2, 1)


class ColumnFileWriter:
    """What writes one column file, batch by batch; memory is bounded by the batch, and by 16 MiB in an object store.

    A file is published by `close` alone: a writer that is dropped leaves none. Each call raises what
    `storage_errors.unusable` gives where the store refuses, or Lance does not take the values.

    Args:
        field: as `blobs.values_field` gives it.
        file_format: that of the table; Lance reads files of others, but cannot always compact them.
    """

    def __init__(self, uri: str, field: pa.Field, file_format: tuple[int, int] = (2, 2)) -> None:
        self._uri = uri
        self._version = "{}.{}".format(*file_format)
        self._copies_slices = holds_structs(field.type)
        self._describes_blobs = blobs.is_blob(field) and file_format >= blobs.V2_FORMAT
        self._field = (
            blob_descriptors(field.name, None)[0]
            if self._describes_blobs
            else blobs.values_field(field).with_nullable(True)
        )
        self._writer: LanceFileWriter | None = None
        #: Batches that are not written yet; None: they are written as they come.
        self._held: list[pa.RecordBatch] | None = None
        self._held_bytes = 0
        self._file = ""
        self._rows = 0
        #: Parts of the file with NULLs: the offset of the first row, and which are NULL. None: the file does not say.
        self._nulls: list[tuple[int, npt.NDArray[np.bool_]]] | None = None
        if tells_nulls(field.type) and not blobs.is_blob(field) and file_format >= _NULL_STRUCTS_FORMAT:
            self._nulls = []
        self.row_states = b""
        #: What the file carries about those that it replaces, see `leman_core.model.changed_rows`; to be set before
        #: `close`.
        self.predecessors = b""

    def open(self, file: str) -> None:
        """Begin the file under its final name."""
        self._file = file
        if in_object_store(self._uri):
            self._held = []
        else:
            self._writer = self._begun()

    def _begun(self) -> LanceFileWriter:
        count(self._uri, "lance", writes=True)
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
        """Keep a batch, or write all that are kept where that is too much."""
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
            states: what the file carries of row states; None: every live row is computed.
            deletions: rows that it lacks.
            older: see `leman_core.model.row_states.encode`.
            beside: called while the file is put, where `is_put_at_once`, and before it may be there, so without an
                ETag; else not at all.
        """
        if self._writer is None and self._held is None:
            raise RuntimeError("close before open")
        failed = 0
        computed = self._rows
        if states is not None:
            self.row_states = row_states.encode(states, filters, older)
            summary = row_states.summarize(states, older=older)
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
        """Whether all of the file is in memory, and is put into an object store in one request by `close`."""
        return self._held is not None

    def _publish(self, writer: LanceFileWriter, deletions: bytes | None, file: str) -> tuple[Tagged, str]:
        """End the file that was written so far; return what its store says of it, and its digest."""
        with writing_values(data_path(self._uri, self._file), self._field):
            self._end(writer, deletions)
        with using_storage(data_path(self._uri, self._file)):
            if file != self._file:
                _rename(self._uri, self._file, file)
                self._file = file
        return tagged_digest_of(self._uri, self._file, writer.size_bytes)

    def _made(self, batches: Sequence[pa.RecordBatch], deletions: bytes | None, file: str) -> bytes:
        """Return the content of the file of these batches."""
        self._file = file

        def write(writer: LanceFileWriter) -> None:
            self._write(writer, batches)
            self._end(writer, deletions)

        with writing_values(data_path(self._uri, file), self._field):
            return made_in_memory(file, pa.schema([self._field]), write, self._version)

    def _put(self, content: bytes, staged: StagedFile, beside: Callable[[StagedFile], None] | None) -> str:
        """Put the file in one request, and do something beside that; return its ETag, or "" where nobody tells it."""

        def put() -> str:
            folder = data_folder(self._uri)
            etag = store_objects.put(folder, staged.file, content)
            if etag is None:
                with using_storage(data_path(self._uri, staged.file)):
                    put_file(folder, staged.file, content)
            return etag or ""

        if beside is None:
            return put()
        with ThreadPoolExecutor(1, thread_name_prefix="column-file") as thread:
            under_way = thread.submit(put)
            beside(staged)
            return under_way.result()

    def _null_rows(self) -> bytes:
        """Return which rows are NULL, as `row_states.encode_nulls` gives it; empty: the file does not say."""
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
    """Tell whether a type holds structs: in these Lance panics over a slice that begins later than its array."""
    if not pa.types.is_nested(kind):
        return False
    return bool(pa.types.is_struct(kind)) or any(holds_structs(kind.field(i).type) for i in range(kind.num_fields))


def blob_descriptors(name: str, values: pa.Array | None) -> tuple[pa.Field, pa.Array]:
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
    filesystem, path = filesystem_of(data_path(uri, old))
    filesystem.move(path, filesystem_of(data_path(uri, new))[1])


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
        filesystem, path = filesystem_of(data_path(uri, name))
        filesystem.delete_file(path)
