"""Joins small chunks that come fast into few large ones: each costs a fixed time before it is in the column file.

Runs on Spark workers: imports no gRPC and no Spark.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from leman_core.functions.nested_types import holds
from leman_core.model.ranges import RowRange
from leman_core.storage.concatenation import one_batch
from leman_core.storage.scan import CHUNK_BYTES, CHUNK_ROWS, Chunk

_SECONDS = 0.05


def gathered(chunks: Iterator[Chunk], clock: Callable[[], float] = time.monotonic) -> Iterator[Chunk]:
    """Yield the same rows, in chunks of up to 65,536 rows or 16 MB.

    A chunk that took longer than a twentieth of a second is passed on at once, with those before it: rows that cost
    much are to be checkpointed and reported as they come. What came before an error is passed on before it is raised.
    """
    waiting: list[Chunk] = []
    begun = clock()
    try:
        for chunk in chunks:
            if waiting and not _fits(waiting, chunk):
                yield _joined(waiting)
                waiting = []
                begun = clock()
            waiting.append(chunk)
            if clock() - begun > _SECONDS:
                yield _joined(waiting)
                waiting = []
                begun = clock()
    except Exception:
        if waiting:
            yield _joined(waiting)
        raise
    if waiting:
        yield _joined(waiting)


def _fits(waiting: Sequence[Chunk], chunk: Chunk) -> bool:
    if any(holds(kind, pt.is_dictionary) for kind in chunk.rows.schema.types):
        return False  # their dictionaries differ from batch to batch
    rows = chunk.covered.end - waiting[0].covered.start
    return rows <= CHUNK_ROWS and sum(part.rows.nbytes for part in (*waiting, chunk)) <= CHUNK_BYTES


def _joined(chunks: Sequence[Chunk]) -> Chunk:
    if len(chunks) == 1:
        return chunks[0]
    covered = RowRange(chunks[0].covered.start, chunks[-1].covered.end)
    rows = one_batch(pa.Table.from_batches([chunk.rows for chunk in chunks]))
    return Chunk(covered, np.concatenate([chunk.offsets for chunk in chunks]), rows)
