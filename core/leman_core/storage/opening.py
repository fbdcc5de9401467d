"""Open tables with Lance, also while older versions are cleaned up, and in a process that has not used Lance yet.

Open the latest version of a table, also while older ones are being cleaned up.

Lance in a process that has not used it yet: its threads are started before they are needed.
"""

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
#: Lance takes a manifest of zeros, as a crash may leave it, for that of an empty table.
NO_VERSION = "the manifest is that of no version"
#: Lance reads by the version that a manifest holds, and writes by the version in its name: no write succeeds.
OTHER_VERSION = "the manifest is that of another version"
#: What Lance says of such a manifest when it is asked for by the number in its name.
_SAYS_OTHER = "Version not found error"


def open_latest(uri: str, *, cache_bytes: int | None = None) -> lance.LanceDataset:
    """Open the latest version of a table, however fast writers and clean-ups are.

    Lance lists the versions and then opens the last one that it saw. Where a writer and a clean-up were faster, that
    one is gone and a later one is there: Lance says that there is no table.

    Args:
        uri: Of the table.
        cache_bytes: The most that Lance keeps of what it read for this dataset, and for those that commits and
            checkouts make of it; None: up to 1 GiB, the manifest of every version among it.

    Raises:
        ValueError: the manifest is of zeros or of another version.
        OSError: Lance panics over it.
        Exception: what `lance.dataset` raises.
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
    """Return what `has_versions` does; False where that cannot be told."""
    try:
        return has_versions(uri)
    except (OSError, ValueError):
        return False


def open_checked(uri: str, *, cache_bytes: int | None = None) -> lance.LanceDataset:
    """Open as `open_latest` does, and notice a manifest of another version on an object store too."""
    found = open_latest(uri, cache_bytes=cache_bytes)
    if in_object_store(uri):
        _check_version(found)
    return found


def open_version(uri: str, version: int, *, cache_bytes: int | None = None) -> lance.LanceDataset:
    """Return a version of a table (0: the latest).

    Args:
        uri: Of the table.
        version: Its number.
        cache_bytes: As `open_latest`.

    Raises:
        OSError: Lance panics.
        Exception: what `lance.dataset` raises.
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

    It takes a request less of an object store. A version that is gone is opened all the same.

    Raises:
        OSError: Lance panics.
        Exception: what `lance.dataset` raises.
    """
    try:
        with panics_as_errors():
            options = lance_options(uri)
            found = counted_table(
                lance.LanceDataset(uri, version, serialized_manifest=manifest, storage_options=options)
            )
            if found.version == version:
                return found
    except (OSError, ValueError):  # what is wrong is told by reading it
        pass
    return open_version(uri, version)


def move_to_latest(dataset: lance.LanceDataset) -> None:
    """Move an open table to its latest version.

    Raises:
        Exception: what `open_latest` raises.
    """
    with panics_as_errors():
        dataset.checkout_latest()  # type: ignore[no-untyped-call]
    _of_its_version(dataset)


def _check_version(dataset: lance.LanceDataset) -> None:
    """Check that the latest manifest holds the version that it is named after.

    Lists the versions again.

    Raises:
        ValueError: it does not.
        Exception: what `open_version` raises.
    """
    latest = int(dataset.latest_version)
    if latest != dataset.version:  # or others were faster
        open_version(dataset.uri, latest)


def _of_its_version(dataset: lance.LanceDataset) -> lance.LanceDataset:
    """Check the version, except on an object store.

    There another listing costs as much as the opening, and bytes do not change by themselves.
    """
    if not dataset.version:
        raise ValueError(NO_VERSION)
    if not in_object_store(dataset.uri):
        with panics_as_errors():
            _check_version(dataset)
    return dataset


def has_versions(uri: str) -> bool:
    """Return whether a version of a table lies there, whatever it may be worth.

    Raises:
        OSError: that cannot be told; ValueError likewise.
    """
    filesystem, root = filesystem_of(uri)
    try:
        found = filesystem.get_file_info(pafs.FileSelector(f"{root}/_versions"))
    except (FileNotFoundError, NotADirectoryError):
        return False
    return any(Path(entry.path).suffix == ".manifest" for entry in found)


def start_threads() -> None:
    """Write a row to a table in memory and read it: the first use of Lance in a process costs tens of milliseconds.

    The next one costs fewer. Processes that are forked afterwards must not use Lance.
    """
    lance.write_dataset(pa.table({"x": [0]}), "memory://").to_table()


def small_table(uri: str, rows: int) -> int:
    """Write a table to practise with, of an int64 column `x` and an empty one `y`, and return its version."""
    dataset = lance.write_dataset(pa.table({"x": np.arange(rows, dtype=np.int64)}), uri)
    dataset.add_columns(pa.field("y", pa.int64()))
    return int(dataset.version)
