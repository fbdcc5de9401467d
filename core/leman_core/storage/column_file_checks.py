"""The checks of staged files before they are committed; Lance itself checks almost nothing of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from lance.file import LanceFileReader
from xxhash import xxh3_128_hexdigest

from leman_core.functions import binding, blobs
from leman_core.model.errors import DataLoss, FailedPrecondition, NotFound
from leman_core.model.plan import StagedFile
from leman_core.storage import footer, store_objects
from leman_core.storage.column_files import DELETIONS_KEY, buffer_in, data_folder, data_path, digest_of, small_data_file
from leman_core.storage.deletions import Deletions
from leman_core.storage.files_in_memory import as_file
from leman_core.storage.object_stores.lance_options import lance_options
from leman_core.storage.object_stores.requests import count
from leman_core.storage.panics import panics_as_errors
from leman_core.storage.storage_errors import unusable
from leman_core.storage.store_failures import store_failed
from leman_core.storage.store_objects import ObjectEnd

#: Up to so many bytes a file is read whole: that is one request, too, and little more time.
_WHOLE_BYTES = 1 << 20
#: Of a larger one as many are read, in most of which is all that it says of itself, and up to so many where it is not.
_END_BYTES = 1 << 16
_LONGEST_END_BYTES = 8 << 20


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
    """Check a staged file's bytes and rows. Raises what `verify` raises, but for TYPE_MISMATCH.

    Its bytes are compared with its digest, unless it is large and its store says that it is the very object of which
    the digest was taken.
    """
    end = _unchanged(uri, staged)
    whole = None if end is not None else _read_whole(uri, staged)
    try:
        with panics_as_errors(), _as_read(uri, staged, whole, end) as reader:
            metadata = reader.metadata()
            lacks = buffer_in(reader, DELETIONS_KEY)
    except (OSError, ValueError, RuntimeError) as error:
        if store_failed(error):
            raise unusable(error, data_path(uri, staged.file)) from error
        raise DataLoss("FILE_DAMAGED", f"Column file {staged.file} cannot be read: {error}") from None
    if metadata.num_rows != staged.physical_rows:
        raise FailedPrecondition(
            "ROW_COUNT_MISMATCH",
            f"Column file {staged.file} has {metadata.num_rows} rows, {staged.physical_rows} were announced",
        )
    version = metadata.major_version, metadata.minor_version  # type: ignore[attr-defined]  # its stub is incomplete
    return Content(metadata.schema, version, None if lacks is None else Deletions.decode(lacks))


def _unchanged(uri: str, staged: StagedFile) -> ObjectEnd | None:
    """Return the end of a file whose store still tells the size and the ETag that its digest was taken under.

    Returns:
        None where the file has to be read: it is small, its ETag is not known, or it is not the same any more.
    """
    if not staged.etag or staged.size_bytes <= _WHOLE_BYTES:
        return None
    start = staged.size_bytes - _END_BYTES
    while staged.size_bytes - start <= _LONGEST_END_BYTES:
        end = store_objects.end_of(data_folder(uri), staged.file, start, staged.size_bytes)
        if end is None or end.tagged.etag != staged.etag:
            return None
        try:
            needed = footer.start_of_metadata(end.content, staged.size_bytes)
        except ValueError:
            return None
        if needed >= start:
            return end
        start = needed
    return None


def _read_whole(uri: str, staged: StagedFile) -> bytes | None:
    """Compare all bytes of a file with its digest; return them where they were read at once.

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
            f"{staged.size_bytes} bytes with digest {staged.digest} were staged. It will be computed again.",
        )
    return whole


@contextlib.contextmanager
def _as_read(uri: str, staged: StagedFile, whole: bytes | None, end: ObjectEnd | None) -> Iterator[LanceFileReader]:
    """Yield a reader of what a data file says of itself, of its bytes or of its end where these were read."""
    if end is not None:
        known = as_file(end.content, staged.size_bytes - len(end.content))
    elif whole is not None:
        known = as_file(whole)
    else:
        count(uri, "lance", writes=False)
        yield LanceFileReader(data_path(uri, staged.file), storage_options=lance_options(uri))
        return
    with known as path:
        yield LanceFileReader(path)


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
