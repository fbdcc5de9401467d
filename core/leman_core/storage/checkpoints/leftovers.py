"""Checkpoints of tables that are gone, and what else jobs leave where a table was dropped under them."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pyarrow.fs as pafs

from leman_core.model import keys
from leman_core.storage.checkpoints.lance_store import checkpoint_place, checkpoint_root
from leman_core.storage.filesystems import delete_folder, filesystem_of


def remove_leftovers(uri: str) -> None:
    """Remove checkpoints and column files where they lie without a table; where there is one, do nothing.

    Files of others stay: one of a table that is made under the name at this moment among them.

    Raises:
        OSError: it cannot be told whether there is a table, or something cannot be removed.
    """
    system, path = filesystem_of(uri)
    (versions,) = system.get_file_info([f"{path}/_versions"])
    if versions.type is not pafs.FileType.NotFound:
        return
    remove_checkpoints(uri)
    for info in system.get_file_info(pafs.FileSelector(f"{path}/data", allow_not_found=True)):
        if keys.parse_column_file_name(info.base_name) is not None:
            system.delete_file(info.path)
    if isinstance(system, pafs.LocalFileSystem):
        with contextlib.suppress(OSError):  # there is something in it
            for folder in (Path(path, "data"), Path(path)):
                if folder.exists():
                    folder.rmdir()


def remove_checkpoints_elsewhere(uri: str) -> None:
    """Remove all checkpoints of a table that goes, where they do not go with its folder.

    Raises:
        OSError: something cannot be removed.
    """
    if checkpoint_place(uri) != uri.rstrip("/"):
        remove_checkpoints(uri)


def remove_checkpoints(uri: str) -> None:
    """Remove all checkpoints of a table.

    Raises:
        OSError: something cannot be removed.
    """
    with contextlib.suppress(FileNotFoundError):
        delete_folder(*filesystem_of(checkpoint_root(uri)))
    place = checkpoint_place(uri)
    if place != uri.rstrip("/"):
        system, path = filesystem_of(place)
        # what lies in a store's folder that was emptied is a mark that it is one
        if not system.get_file_info(pafs.FileSelector(path, allow_not_found=True)):
            with contextlib.suppress(FileNotFoundError):
                delete_folder(system, path)
