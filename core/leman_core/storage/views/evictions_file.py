"""Lists of the rows that leave a view, as files beside its data: written by a refresh, read when it is committed."""

from __future__ import annotations

import contextlib
import uuid

import numpy as np
import pyarrow as pa
import xxhash

from leman_core.model.errors import DataLoss, NotFound
from leman_core.model.row_address import addresses_of, fragments_of, offsets_of
from leman_core.model.view_rows import Ids
from leman_core.storage.filesystems import filesystem_of
from leman_core.storage.views.refresh_folder import REFRESH_FOLDER, read_beside, write_beside

_EVICTIONS = pa.schema([pa.field("fragment_id", pa.int64()), pa.field("offset", pa.int64())])


def write(uri: str, addresses: Ids) -> tuple[str, str]:
    """Store which rows of the view are to be evicted and return (file name, digest)."""
    table = pa.table([pa.array(fragments_of(addresses)), pa.array(offsets_of(addresses))], schema=_EVICTIONS)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, _EVICTIONS) as writer:
        writer.write_table(table)
    content = sink.getvalue().to_pybytes()
    name = f"{uuid.uuid4().hex}.arrow"
    write_beside(uri, name, content)
    return name, xxhash.xxh3_128(content).hexdigest()


def read(uri: str, name: str, digest: str) -> Ids:
    """Return the addresses of a file of `write`.

    Raises:
        NotFound: FILE_MISSING.
        DataLoss: FILE_DAMAGED.
    """
    content = read_beside(uri, name)
    if content is None:
        raise NotFound("FILE_MISSING", f"Evictions {name} are not in the view's {REFRESH_FOLDER} folder")
    if xxhash.xxh3_128(content).hexdigest() != digest:
        raise DataLoss("FILE_DAMAGED", f"Evictions {name} changed after they were written")
    table = pa.ipc.open_file(content).read_all()
    fragments, offsets = (np.asarray(table.column(c).to_numpy(), np.int64) for c in _EVICTIONS.names)
    return np.asarray(addresses_of(fragments, offsets), np.int64)


def remove(uri: str, name: str) -> None:
    """Remove such a file once it is committed. What cannot be removed stays, until garbage is collected."""
    filesystem, root = filesystem_of(uri)
    with contextlib.suppress(OSError):
        filesystem.delete_file(f"{root}/{REFRESH_FOLDER}/{name}")
