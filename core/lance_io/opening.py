"""Opens the latest version of a table, also while older ones are being cleaned up."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import lance
import pyarrow.fs as pafs

_TRIES = 5
#: Lance takes a manifest of zeros, as a crash may leave it, for that of an empty table.
NO_VERSION = "the manifest is that of no version"


def open_latest(uri: str, storage_options: Mapping[str, str] | None = None) -> lance.LanceDataset:
    """Lance lists the versions and then opens the last one that it saw. Where a writer and a clean-up were faster, that
    one is gone and a later one is there: Lance says that there is no table. Raises what `lance.dataset` raises, and
    ValueError for a manifest of zeros."""
    for tries_left in reversed(range(_TRIES)):
        try:
            found = lance.dataset(uri, storage_options=dict(storage_options) if storage_options else None)
            if not found.version:
                raise ValueError(NO_VERSION)
            return found
        except (ValueError, OSError):
            if not tries_left or not has_versions(uri):
                raise
    raise AssertionError("the last try returns or raises")


def open_version(uri: str, version: int, storage_options: Mapping[str, str] | None = None) -> lance.LanceDataset:
    """A version of a table (0: the latest). Raises what `lance.dataset` raises."""
    if not version:
        return open_latest(uri, storage_options)
    return lance.dataset(uri, version=version, storage_options=dict(storage_options) if storage_options else None)


def has_versions(uri: str) -> bool:
    """Whether a version of a table lies there, whatever it may be worth. False where that cannot be told."""
    filesystem, root = filesystem_of(uri)
    try:
        found = filesystem.get_file_info(pafs.FileSelector(f"{root}/_versions"))
    except (OSError, ValueError):
        return False
    return any(Path(entry.path).suffix == ".manifest" for entry in found)


def filesystem_of(uri: str) -> tuple[pafs.FileSystem, str]:
    """The file system of a path or uri, and the path in it."""
    if "://" in uri:
        filesystem, path = pafs.FileSystem.from_uri(uri)
        return filesystem, path
    return pafs.LocalFileSystem(), uri
