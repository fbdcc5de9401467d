"""Tells a bucket that is not there from one in which nothing lies: a look at a folder is answered alike."""

from __future__ import annotations

import pyarrow.fs as pafs

from leman_core.storage.filesystems import filesystem_of
from leman_core.storage.locations import in_object_store
from leman_core.storage.storage_errors import missing


def check_bucket(place: str) -> None:
    """Refuse a place in a bucket or container that is not there. One that may not be looked at counts as there.

    Costs one request, and nothing on a local disk.

    Raises:
        FailedPrecondition: STORAGE_MISSING.
    """
    if not in_object_store(place):
        return
    try:
        filesystem, root = filesystem_of(place)
        found = filesystem.get_file_info(root.partition("/")[0])
    except (OSError, ValueError):
        return
    if found.type == pafs.FileType.NotFound:
        raise missing(place)
