"""Which file system a path or uri lies on: it is chosen here, for all but Lance's own reads and writes."""

from __future__ import annotations

import pyarrow.fs as pafs


def filesystem_of(uri: str) -> tuple[pafs.FileSystem, str]:
    """Return the file system of a path or uri, and the path in it.

    Raises:
        OSError: the storage of the uri cannot be used.
        ValueError: pyarrow knows no such storage.
    """
    if "://" in uri:
        filesystem, path = pafs.FileSystem.from_uri(uri)
        return filesystem, path
    return pafs.LocalFileSystem(), uri
