"""Files of an object store that are read whole, in one request: each look at a size would be another one."""

from __future__ import annotations

import functools
import os

from lance.file import LanceFileSession

from core.domain.store import StoreOptions
from core.stores.known import options_of
from core.stores.lance_options import lance_options

#: Larger ones are read piece by piece.
_MOST_BYTES = 32 << 20
#: Folders of which the connections are kept.
_KEPT = 32


def small_file(folder: str, name: str, size: int) -> bytes | None:
    """Return all bytes of a file; None where it is on a local disk, or large.

    Args:
        folder: Where it lies.
        name: Of the file.
        size: That it should have. Of one that is longer there is a byte more.

    Raises:
        OSError: what Lance raises.
    """
    if "://" not in folder or size > _MOST_BYTES:
        return None
    return bytes(_session(folder, options_of(folder), os.getpid()).read_range(name, 0, size + 1))


@functools.lru_cache(_KEPT)
def _session(folder: str, _options: StoreOptions | None, _process: int) -> LanceFileSession:
    return LanceFileSession(folder, storage_options=lance_options(folder))
