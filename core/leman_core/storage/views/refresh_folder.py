"""The files of a view that are no data: lists of rows to be evicted and of failed ones, records of its source."""

from __future__ import annotations

from leman_core.storage import whole_files
from leman_core.storage.error_translation import using_storage
from leman_core.storage.filesystems import filesystem_of

#: The folder of a view that they lie in.
REFRESH_FOLDER = "_refresh"


def write_beside(uri: str, name: str, content: bytes) -> None:
    """Write a file of a view that is no data.

    Raises:
        LemanError: what `storage_errors.unusable` gives.
    """
    with using_storage(uri):
        filesystem, root = filesystem_of(uri)
        whole_files.put(filesystem, f"{root}/{REFRESH_FOLDER}/{name}", content)


def read_beside(uri: str, name: str) -> bytes | None:
    """Return all of a file of a view that is no data; None where there is none.

    Raises:
        LemanError: as `write_beside`.
    """
    with using_storage(uri):
        return bytes_beside(uri, name)


def bytes_beside(uri: str, name: str) -> bytes | None:
    """Return what `read_beside` does, for this package alone.

    Raises:
        OSError: the storage refuses.
    """
    filesystem, root = filesystem_of(uri)
    try:
        with filesystem.open_input_stream(f"{root}/{REFRESH_FOLDER}/{name}") as stream:
            return bytes(stream.read())
    except (FileNotFoundError, NotADirectoryError):
        return None
