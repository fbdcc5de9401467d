"""Damaged files of Leman's own small tables: told from a store that cannot be read, set aside, and said."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import PurePosixPath

import pyarrow.fs as pafs

from leman_core.storage.filesystems import filesystem_of
from leman_core.storage.storage_errors import in_use

_FOLDER = "damaged"
_NOTE = ".txt"
_MANIFEST = ".manifest"
_NEWEST_FIRST = 20  # digits: names that count down
_CHUNK = 1 << 22


def check_store(uri: str, path: str) -> None:
    """Check that a file of a table is there with all its bytes, or is certainly not there.

    A reader that cannot make sense of the file has then found damage.

    Raises:
        OSError: the store cannot say; the file may be whole.
    """
    filesystem, root = filesystem_of(uri)
    try:
        with filesystem.open_input_stream(f"{root}/{path}") as stream:
            while stream.read(_CHUNK):
                pass
    except FileNotFoundError:
        return
    except OSError:
        if filesystem.get_file_info(f"{root}/{path}").type != pafs.FileType.Directory:
            raise


def versions(uri: str) -> list[tuple[int, str]]:
    """Return (version, path of its manifest) of those that lie there, whatever they may be worth, the latest first.

    Raises:
        OSError: that cannot be told.
    """
    filesystem, root = filesystem_of(uri)
    selector = pafs.FileSelector(f"{root}/_versions", allow_not_found=True)
    try:
        entries = filesystem.get_file_info(selector)
    except FileNotFoundError:  # where it is made at that very moment, pyarrow has seen it both ways
        entries = filesystem.get_file_info(selector)
    names = [PurePosixPath(entry.path).name for entry in entries]
    found = [
        (_version(name.removesuffix(_MANIFEST)), f"_versions/{name}")
        for name in names
        if name.endswith(_MANIFEST) and name.removesuffix(_MANIFEST).isdigit()
    ]
    return sorted(found, reverse=True)


def had_versions(uri: str) -> bool:
    """Tell whether there is a place for versions, even an empty one: there is a table, or is about to be."""
    filesystem, root = filesystem_of(uri)
    return bool(filesystem.get_file_info(f"{root}/_versions").type == pafs.FileType.Directory)


def is_plain_file(uri: str) -> bool:
    """Return whether a file lies where a table has its folder."""
    filesystem, root = filesystem_of(uri)
    return bool(filesystem.get_file_info(root).type == pafs.FileType.File)


def _version(stem: str) -> int:
    return (1 << 64) - 1 - int(stem) if len(stem) == _NEWEST_FIRST else int(stem)


def set_aside(uri: str, path: str, what: str) -> str:
    """Move a damaged file of a table, or with path "" the table, beside it into a folder `damaged`.

    Returns:
        A note for people, which lies there too. Where the move fails the file stays: the note then says so.
    """
    filesystem, root = filesystem_of(uri)
    folder, _, table = root.rpartition("/")
    name = "-".join(part for part in (table, str(time.time_ns()), PurePosixPath(path).name) if part)
    note = f"{what} It was set aside as {folder}/{_FOLDER}/{name}."
    try:
        filesystem.create_dir(f"{folder}/{_FOLDER}", recursive=True)
        with contextlib.suppress(FileNotFoundError):
            filesystem.move(f"{root}/{path}".rstrip("/"), f"{folder}/{_FOLDER}/{name}")
        with filesystem.open_output_stream(f"{folder}/{_FOLDER}/{name}{_NOTE}") as stream:
            stream.write(note.encode())
    except OSError as error:
        return f"{what} It could not be set aside: {error}"
    return note


def notes(uri: str, since: float = 0.0) -> list[str]:
    """Return what was set aside of a table, oldest first.

    Args:
        uri: that of the table.
        since: in seconds since the epoch; what was set aside before is left out.

    Raises:
        LemanError: what `storage_errors.failed` gives.
    """
    with in_use(f"What was set aside of {uri}", uri):
        return list(_notes(uri, int(since * 1e9)))


def _notes(uri: str, since_ns: int) -> Iterator[str]:
    filesystem, root = filesystem_of(uri)
    folder, _, table = root.rpartition("/")
    selector = pafs.FileSelector(f"{folder}/{_FOLDER}", allow_not_found=True)
    for path in sorted(entry.path for entry in filesystem.get_file_info(selector)):
        name = PurePosixPath(path).name
        if not name.startswith(f"{table}-") or not name.endswith(_NOTE):
            continue
        set_aside_at = name.removesuffix(_NOTE).removeprefix(f"{table}-").partition("-")[0]
        if not set_aside_at.isdigit() or int(set_aside_at) >= since_ns:
            with filesystem.open_input_stream(path) as stream:
                yield stream.read().decode(errors="replace")
