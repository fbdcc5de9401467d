"""Which file system a path or uri lies on: it is chosen here, for all but Lance's own reads and writes."""

from __future__ import annotations

import contextlib

import pyarrow.fs as pafs

from core.locations import in_object_store
from core.stores.known import options_of


def filesystem_of(uri: str) -> tuple[pafs.FileSystem, str]:
    """Return the file system of a path or uri, and the path in it.

    Raises:
        OSError: the storage of the uri cannot be used.
        ValueError: pyarrow knows no such storage.
    """
    if not in_object_store(uri):
        return pafs.LocalFileSystem(), uri
    options = options_of(uri)
    if options is not None:
        from core.stores.pyarrow_options import filesystem_with  # noqa: PLC0415 - most processes need it never

        return filesystem_with(options, uri)
    # a small file is one request then, and not three
    filesystem, path = pafs.FileSystem.from_uri(f"{uri}?allow_delayed_open=true" if uri.startswith("s3://") else uri)
    return filesystem, path


def delete_folder(system: pafs.FileSystem, path: str) -> None:
    """Delete a folder with all that is in it.

    In a store that keeps folders as such, those that had files in them when they were to go are still there afterwards.

    Raises:
        OSError: it cannot be deleted.
    """
    try:
        system.delete_dir(path)
    except FileNotFoundError:
        raise
    except OSError:
        if isinstance(system, pafs.LocalFileSystem):
            raise
        with contextlib.suppress(FileNotFoundError):
            system.delete_dir(path)
