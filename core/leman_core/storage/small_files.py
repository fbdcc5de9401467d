"""Files of an object store that are read or written whole, in one request: each look at a size would be another one."""

from __future__ import annotations

import functools
import os

from lance.file import LanceFileSession

from leman_core.model.store import StoreOptions
from leman_core.storage.error_translation import LANCE_ERRORS
from leman_core.storage.files_in_memory import as_file
from leman_core.storage.filesystems import filesystem_of
from leman_core.storage.locations import in_object_store
from leman_core.storage.object_stores.known import options_of
from leman_core.storage.object_stores.lance_options import lance_options
from leman_core.storage.object_stores.requests import count
from leman_core.storage.panics import panics_as_errors

#: Larger ones are read piece by piece.
_MOST_BYTES = 32 << 20
#: Folders of which the connections are kept.
_KEPT = 32
#: How Lance says that an object is not there.
_MISSING = "Not found:"


def small_file(folder: str, name: str, size: int) -> bytes | None:
    """Return all bytes of a file; None where it is on a local disk, or large.

    Args:
        folder: Where it lies.
        name: Of the file.
        size: That it should have. Of one that is longer there is a byte more.

    Raises:
        FileNotFoundError: it is not there.
        OSError: what Lance raises.
    """
    if not in_object_store(folder) or folder.startswith("file:") or size > _MOST_BYTES:
        return None
    try:
        count(folder, "lance", writes=False)
        return bytes(_session(folder, options_of(folder), os.getpid()).read_range(name, 0, size + 1))
    except OSError as error:
        if _MISSING in str(error):
            raise FileNotFoundError(str(error)) from error
        raise


def whole_if_small(folder: str, name: str, most: int) -> bytes | None:
    """Return all bytes of a file whose size is not known.

    Returns:
        None where it is on a local disk, has more than `most` bytes, or cannot be read so: whoever reads it in another
            way hears why.

    Raises:
        FileNotFoundError: it is not there.
    """
    try:
        with panics_as_errors():
            found = small_file(folder, name, most)
    except FileNotFoundError:
        raise
    except LANCE_ERRORS:
        return None
    return None if found is None or len(found) > most else found


def read_expected(folder: str, name: str, most: int) -> bytes:
    """Return all bytes of a file that most likely is there.

    Of an object store that takes one request where it has at most `most` bytes; where it is not there, several.

    Raises:
        FileNotFoundError: it is not there.
        OSError: the storage cannot be used.
    """
    whole = whole_if_small(folder, name, most)
    if whole is not None:
        return whole
    filesystem, path = filesystem_of(f"{folder}/{name}")
    with filesystem.open_input_stream(path) as stream:
        return bytes(stream.read())


def put_file(folder: str, name: str, content: bytes) -> None:
    """Write a file of an object store, in place of another one if there is one.

    Raises:
        OSError: what Lance raises.
    """
    count(folder, "lance", writes=True)
    with as_file(content) as path:
        _session(folder, options_of(folder), os.getpid()).upload_file(path, name)


@functools.lru_cache(_KEPT)
def _session(folder: str, _options: StoreOptions | None, _process: int) -> LanceFileSession:
    return LanceFileSession(folder, storage_options=lance_options(folder))
