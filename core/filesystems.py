"""Which file system a path or uri lies on: it is chosen here, for all but Lance's own reads and writes."""

from __future__ import annotations

import pyarrow.fs as pafs

from core.stores.known import options_of


def filesystem_of(uri: str) -> tuple[pafs.FileSystem, str]:
    """Return the file system of a path or uri, and the path in it.

    Raises:
        OSError: the storage of the uri cannot be used.
        ValueError: pyarrow knows no such storage.
    """
    if "://" not in uri:
        return pafs.LocalFileSystem(), uri
    options = options_of(uri)
    if options is not None:
        from core.stores.pyarrow_options import filesystem_with  # noqa: PLC0415 - most processes need it never

        return filesystem_with(options, uri)
    filesystem, path = pafs.FileSystem.from_uri(uri)
    return filesystem, path
