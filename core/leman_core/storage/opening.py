"""Open tables with Lance, during cleanups of older versions, too, and prepare Lance's threads in a new process."""

from __future__ import annotations

from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs

from leman_core.storage.filesystems import counted_table, filesystem_of
from leman_core.storage.locations import in_object_store
from leman_core.storage.object_stores import lance_options
from leman_core.storage.panics import panics_as_errors

_TRIES = 5
#: A crash may leave a manifest of zeros, which Lance takes for an empty table.
NO_VERSION = "the manifest is that of no version"
#: Lance reads by the version in a manifest, and writes by the version in its name: no write succeeds.
OTHER_VERSION = "the manifest is that of another version"
#: Lance's text for such a manifest when it is opened by the number in its name.
_SAYS_OTHER = "Version not found error"


def open_latest(uri: str, *, cache_bytes: int | None = None) -> lance.LanceDataset:
    """Open the latest version of a table, despite concurrent writers and cleanups.

    Lance lists the versions and then opens the last one. If a writer and a cleanup were faster, that version is gone
    and a later one exists, but Lance reports that there is no table.

    Args:
        uri: The table.
        cache_bytes: Lance's cache for this dataset, and for those that commits and checkouts make of it; None: up to 1
            GiB, including the manifest of every version.

    Raises:
        ValueError: The manifest is of zeros, or of another version.
        OSError: Lance panics over it.
        Exception: What `lance.dataset` raises.
    """
    for tries_left in reversed(range(_TRIES)):
        try:
            with panics_as_errors():
                options = lance_options(uri)
                found = lance.dataset(uri, storage_options=options, metadata_cache_size_bytes=cache_bytes)
            return _of_its_version(counted_table(found))
        except (ValueError, OSError):
            if not tries_left or not _seems_to_have_versions(uri):
                raise
    raise AssertionError("the last try returns or raises")


def _seems_to_have_versions(uri: str) -> bool:
    """Return what `has_versions` does; False if that is unknown."""
    try:
        return has_versions(uri)
    except (OSError, ValueError):
        return False


def open_checked(uri: str, *, cache_bytes: int | None = None) -> lance.LanceDataset:
    """Open as `open_latest` does, and detect a manifest of another version in an object store, too."""
    found = open_latest(uri, cache_bytes=cache_bytes)
    if in_object_store(uri):
        _check_version(found)
    return found


def open_version(uri: str, version: int, *, cache_bytes: int | None = None) -> lance.LanceDataset:
    """Return a version of a table (0: the latest).

    Args:
        uri: The table.
        version: Its number.
        cache_bytes: As `open_latest`.

    Raises:
        OSError: Lance panics.
        Exception: What `lance.dataset` raises.
    """
    if not version:
        return open_latest(uri, cache_bytes=cache_bytes)
    try:
        with panics_as_errors():
            options = lance_options(uri)
            return counted_table(
                lance.dataset(uri, version=version, storage_options=options, metadata_cache_size_bytes=cache_bytes)
            )
    except ValueError as error:
        if _SAYS_OTHER in str(error):
            raise ValueError(OTHER_VERSION) from error
        raise


def open_by_manifest(uri: str, version: int, manifest: bytes) -> lance.LanceDataset:
    """Return a version of a table whose manifest, as a message, was read before.

    It saves an object store a request. A missing version is opened all the same.

    Raises:
        OSError: Lance panics.
        Exception: What `lance.dataset` raises.
    """
    try:
        with panics_as_errors():
            options = lance_options(uri)
            found = counted_table(
                lance.LanceDataset(uri, version, serialized_manifest=manifest, storage_options=options)
            )
            if found.version == version:
                return found
    except (OSError, ValueError):  # reading it shows what is wrong
        pass
    return open_version(uri, version)


def move_to_latest(dataset: lance.LanceDataset) -> None:
    """Move an open table to its latest version.

    Raises:
        Exception: What `open_latest` raises.
    """
    with panics_as_errors():
        dataset.checkout_latest()  # type: ignore[no-untyped-call]
    _of_its_version(dataset)


def _check_version(dataset: lance.LanceDataset) -> None:
    """Check that the latest manifest has the version of its name. Lists the versions again.

    Raises:
        ValueError: It does not.
        Exception: What `open_version` raises.
    """
    latest = int(dataset.latest_version)
    if latest != dataset.version:  # or another writer was faster
        open_version(dataset.uri, latest)


def _of_its_version(dataset: lance.LanceDataset) -> lance.LanceDataset:
    """Check the version, except in an object store.

    There, a second listing costs as much as opening, and bytes do not change by themselves.
    """
    if not dataset.version:
        raise ValueError(NO_VERSION)
    if not in_object_store(dataset.uri):
        with panics_as_errors():
            _check_version(dataset)
    return dataset


def has_versions(uri: str) -> bool:
    """Return whether a version of a table exists, readable or not.

    Raises:
        OSError, ValueError: The storage cannot be read.
    """
    filesystem, root = filesystem_of(uri)
    try:
        found = filesystem.get_file_info(pafs.FileSelector(f"{root}/_versions"))
    except (FileNotFoundError, NotADirectoryError):
        return False
    return any(Path(entry.path).suffix == ".manifest" for entry in found)


def start_threads() -> None:
    """Write and read a row in a table in memory: the first use of Lance in a process costs tens of milliseconds.

    The second costs fewer. Processes that are forked afterwards must not use Lance.
    """
    lance.write_dataset(pa.table({"x": [0]}), "memory://").to_table()


def small_table(uri: str, rows: int) -> int:
    """Write a table for practice, with an int64 column `x` and an empty one `y`. Return its version."""
    dataset = lance.write_dataset(pa.table({"x": np.arange(rows, dtype=np.int64)}), uri)
    dataset.add_columns(pa.field("y", pa.int64()))
    return int(dataset.version)
