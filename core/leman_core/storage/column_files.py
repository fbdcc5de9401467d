"""Column files: one column of one fragment, in the table's data folder. Where they lie, and what they hold.

`column_file_writer` writes them, `column_file_checks` checks them before the coordinator installs them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt
import xxhash
from lance.file import LanceFileReader

from leman_core.model import changed_rows, keys, row_states
from leman_core.model.changed_rows import Predecessor
from leman_core.model.errors import DataLoss, NotFound
from leman_core.model.ranges import RowRange
from leman_core.model.row_states import RowState, States, StateSummary
from leman_core.storage import footer, store_objects
from leman_core.storage.concatenation import joined
from leman_core.storage.deletions import Deletions
from leman_core.storage.error_translation import reading_file, using_storage
from leman_core.storage.filesystems import filesystem_of
from leman_core.storage.locations import in_object_store
from leman_core.storage.object_stores.lance_options import lance_options
from leman_core.storage.object_stores.requests import count
from leman_core.storage.small_files import small_file
from leman_core.storage.store_objects import Tagged

#: Keys of a column file's metadata, under which it names the buffers with row states, with deleted rows, with the files
#: that it follows, and with the rows that are NULL.
STATES_KEY = "leman.states"
DELETIONS_KEY = "leman.deletions"
PREDECESSORS_KEY = "leman.predecessors"
NULLS_KEY = "leman.nulls"
_DIGEST_CHUNK = 1 << 22


def data_folder(uri: str) -> str:
    """Return the folder of a table's data files."""
    return f"{uri.rstrip('/')}/data"


def data_path(uri: str, file: str) -> str:
    """Return where a data file of a table lies."""
    return f"{data_folder(uri)}/{file}"


def digest_of(uri: str, file: str, size_bytes: int | None = None) -> tuple[int, str]:
    """Return (size in bytes, xxh3-128 of the bytes as hex).

    Args:
        uri: Of the table.
        file: In its data folder.
        size_bytes: That the file should have, where that is known: it spares a request.

    Raises:
        LemanError: what `reading_file` gives.
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
    """Return what `digest_of` does, and the ETag of what was read, where its object store tells one.

    Raises:
        LemanError: what `reading_file` gives.
    """
    if in_object_store(uri):
        found = store_objects.tagged_digest(data_folder(uri), file)
        if found is not None:
            return found
    size, digest = digest_of(uri, file, size_bytes)
    return Tagged(size, ""), digest


def small_data_file(uri: str, file: str, size_bytes: int) -> bytes | None:
    """Return what `small_file` does of a data file.

    Raises:
        LemanError: what `reading_file` gives.
    """
    with reading_file(uri, f"Column file {file}"):
        return small_file(data_folder(uri), file, size_bytes)


def rows_of(uri: str, file: str) -> int:
    """Count the rows of a data file, by its footer.

    Raises:
        LemanError: what `reading_file` gives.
    """
    with reading_file(uri, f"Data file {file}"):
        return footer.read_rows(*filesystem_of(data_path(uri, file)))


def read_state_summary(uri: str, file: str) -> StateSummary | None:
    """Return the counts of the row states in a partial column file; None where it carries none.

    Raises:
        LemanError: as `read_states_buffer`.
    """
    with reading_file(uri, f"Row states of {file}"):
        buffer = footer.read_buffer(*filesystem_of(data_path(uri, file)), STATES_KEY)
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
        buffer = footer.read_buffer(*filesystem_of(data_path(uri, file)), STATES_KEY)
        if buffer is not None:
            row_states.check(buffer)
    return buffer


def read_predecessors(uri: str, file: str) -> list[Predecessor]:
    """Return the files that a column file follows, the latest first; none where it is gone, damaged or says nothing.

    Raises:
        LemanError: what `reading_file` gives, where the store does not answer.
    """
    if keys.parse_column_file_name(file) is None:
        return []
    try:
        with reading_file(uri, f"The list of files before {file}"):
            buffer = footer.read_buffer(*filesystem_of(data_path(uri, file)), PREDECESSORS_KEY)
            return [] if buffer is None else changed_rows.decode(buffer)
    except (NotFound, DataLoss):
        return []


def read_nulls(uri: str, file: str) -> npt.NDArray[np.int64] | None:
    """Return the physical offsets of the rows that are NULL, without a look at values; None: the file does not say.

    That is so for files of earlier releases, and for types of which `tells_nulls` is not true.

    Raises:
        LemanError: what `reading_file` gives.
    """
    if keys.parse_column_file_name(file) is None:
        return None
    with reading_file(uri, f"The list of NULL rows of {file}"):
        buffer = footer.read_buffer(*filesystem_of(data_path(uri, file)), NULLS_KEY)
        return None if buffer is None else row_states.decode_nulls(buffer)


def column_bytes(uri: str, file: str) -> list[int]:
    """Return how many bytes a data file has of each of its columns, by its footer.

    Raises:
        LemanError: what `reading_file` gives.
    """
    with reading_file(uri, f"Data file {file}"):
        return footer.read_column_bytes(*filesystem_of(data_path(uri, file)))


def tells_nulls(kind: pa.DataType) -> bool:
    """Tell whether column files of a type say which rows are NULL: they do where values may be large.

    A dictionary may hold NULL itself, so that only its values tell it.
    """
    while isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    return not (pt.is_primitive(kind) or pt.is_null(kind) or pt.is_dictionary(kind) or pt.is_decimal(kind))


class ColumnFileReader:
    """What reads a column file that is in no version of the table.

    Raises what `storage_errors.unusable` gives where the file is gone or damaged.
    """

    def __init__(self, uri: str, file: str) -> None:
        self._path = data_path(uri, file)
        count(uri, "lance", writes=False)
        with using_storage(self._path):
            self._reader = LanceFileReader(self._path, storage_options=lance_options(uri))
            buffer, lacks = buffer_in(self._reader, STATES_KEY), buffer_in(self._reader, DELETIONS_KEY)
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


def buffer_in(reader: LanceFileReader, key: str) -> bytes | None:
    """Return the global buffer that the file's metadata names under a key; None where there is none."""
    metadata = reader.metadata().schema.metadata or {}
    index = metadata.get(key.encode())
    return None if index is None else bytes(reader.read_global_buffer(int(index)))
