"""Which file system a path or uri lies on: it is chosen here, for all but Lance's own reads and writes."""

from __future__ import annotations

import contextlib
import time

import pyarrow as pa
import pyarrow.fs as pafs

from leman_core.storage.locations import in_object_store
from leman_core.storage.object_stores.known import options_of
from leman_core.storage.object_stores.requests import counted_files

#: Looking in vain for the region of a bucket takes pyarrow six seconds, and a call opens many files: for so long after,
#: it is not looked for again.
_UNREACHED_SECONDS = 10.0
#: Buckets that no options cover and that were not reached: when, and what was said. A name more or less, lost to
#: another thread, does no harm.
_unreached: dict[str, tuple[float, str]] = {}
#: Containers of Azure that no options cover and that were reached.
_reached: set[str] = set()


def filesystem_of(uri: str) -> tuple[pafs.FileSystem, str]:
    """Return the file system of a path or uri, and the path in it.

    Raises:
        OSError: the storage of the uri cannot be used.
        ValueError: pyarrow knows no such storage.
    """
    if not in_object_store(uri):
        return pafs.LocalFileSystem(), uri
    filesystem, path = _in_store(uri)
    return counted_files(filesystem, uri), path


def _in_store(uri: str) -> tuple[pafs.FileSystem, str]:
    options = options_of(uri)
    if options is not None:
        from leman_core.storage.object_stores.pyarrow_options import filesystem_with  # noqa: PLC0415 - most processes need it never

        return filesystem_with(options, uri)
    if uri.startswith("s3://"):
        return _s3_of_the_environment(uri)
    if uri.startswith("abfss://"):
        return _azure_of_the_environment(uri)
    filesystem, path = pafs.FileSystem.from_uri(uri)
    return filesystem, path


def _azure_of_the_environment(uri: str) -> tuple[pafs.FileSystem, str]:
    """Return the file system of Azure; that its container can be asked is tried once, as pyarrow's error is no OSError.

    Raises:
        OSError: nothing in the environment gives credentials, or the container cannot be used.
    """
    container = uri.removeprefix("abfss://").partition("/")[0]
    at, said = _unreached.get(container, (0.0, ""))
    if said and time.monotonic() - at < _UNREACHED_SECONDS:
        raise OSError(said)
    filesystem, path = pafs.FileSystem.from_uri(uri)
    if container not in _reached:
        try:
            # of a place in the container: asked for the container itself pyarrow ends the process without credentials
            filesystem.get_file_info(f"{container.partition('@')[0]}/_")
        except (OSError, pa.ArrowException) as error:
            _unreached[container] = (time.monotonic(), str(error))
            raise OSError(str(error)) from error
        _reached.add(container)
    return filesystem, path


def _s3_of_the_environment(uri: str) -> tuple[pafs.FileSystem, str]:
    bucket = uri.removeprefix("s3://").partition("/")[0]
    at, said = _unreached.get(bucket, (0.0, ""))
    if said and time.monotonic() - at < _UNREACHED_SECONDS:
        raise OSError(said)
    try:
        # a small file is one request then, and not three
        filesystem, path = pafs.FileSystem.from_uri(f"{uri}?allow_delayed_open=true")
    except OSError as error:
        _unreached[bucket] = (time.monotonic(), str(error))
        raise
    _unreached.pop(bucket, None)
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
