"""A batch in a Lance file, with its key, a digest of its values and room for one of the file's bytes."""

from __future__ import annotations

import pyarrow as pa
from lance.file import LanceFileReader, LanceFileWriter

from leman_core.storage import stored_formats
from leman_core.storage.checkpoints import sealed_files
from leman_core.storage.checkpoints.digest import batch_digest
from leman_core.storage.concatenation import one_batch

KEY, _DIGEST, FORMAT = "leman.key", "leman.digest", "leman.format"


def write(writer: LanceFileWriter, key: str, batch: pa.RecordBatch) -> None:
    """Write and close a file. Raises what Lance raises for values that it does not take."""
    writer.write_batch(batch.replace_schema_metadata(None))
    writer.add_schema_metadata(KEY, key)
    writer.add_schema_metadata(_DIGEST, batch_digest(batch))
    writer.add_schema_metadata(FORMAT, str(stored_formats.CHECKPOINT.current))
    sealed_files.make_room(writer)
    writer.close()


def read(path: str, key: str) -> pa.RecordBatch | None:
    """Return the batch; None where it is not what was written under the key.

    Raises what Lance raises: call it for files whose bytes are known to be whole.
    """
    reader = LanceFileReader(path)
    schema, rows = reader.metadata().schema, reader.num_rows()
    metadata = schema.metadata or {}
    stated = metadata.get(FORMAT.encode())
    stored_formats.CHECKPOINT.check(None if stated is None else stated.decode(), f"Checkpoint {path}")
    if rows:
        table = reader.read_all(batch_size=rows).to_table()
        batch = one_batch(table.replace_schema_metadata(None))
    else:
        batch = pa.RecordBatch.from_pylist([], schema=schema.remove_metadata())
    said = metadata.get(KEY.encode()), metadata.get(_DIGEST.encode())
    return batch if said == (key.encode(), batch_digest(batch).encode()) else None
