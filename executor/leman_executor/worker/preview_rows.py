"""The rows of a preview: the first ones of a version of a table that a filter lets through.

Imports no gRPC and no Spark.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from leman_core.model.ranges import RowRange
from leman_core.model.work import WorkContext
from leman_core.storage.scan import CHUNK_ROWS, FragmentReader
from leman_executor.worker.row_source import as_given, types_given

#: A filter that lets nothing through has so many times the rows looked at in the next step.
_GROWTH = 8


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of one fragment that are next to each other among those of the preview."""

    fragment_id: int
    has_deletions: bool
    #: Their physical offsets.
    offsets: npt.NDArray[np.int64]
    #: Their inputs.
    rows: pa.RecordBatch
    #: How many rows of the preview come before them.
    first: int


def parts(reader: FragmentReader, context: WorkContext, rows: int) -> list[Part]:
    """Return the first rows of the table, part by part.

    Raises:
        LemanError: what `FragmentReader.read` raises.
    """
    found: list[Part] = []
    missing = rows
    for part in _all(reader, context, rows):
        taken = min(len(part.offsets), missing)
        if not taken:
            continue
        first = rows - missing
        found.append(Part(part.fragment_id, part.has_deletions, part.offsets[:taken], part.rows.slice(0, taken), first))
        missing -= taken
        if not missing:
            break
    return found


def _all(reader: FragmentReader, context: WorkContext, rows: int) -> Iterator[Part]:
    step, types = rows, types_given(context.input_schema)
    for fragment_id, physical, deleted in reader.sizes():
        at = 0
        while at < physical:
            covered = RowRange(at, min(at + step, physical))
            read = reader.read(fragment_id, covered, context.input_columns, deletions=deleted > 0, where=context.where)
            for chunk in read:
                yield Part(fragment_id, deleted > 0, chunk.offsets, as_given(chunk.rows, types), 0)
            at = covered.end
            step = min(step * _GROWTH, CHUNK_ROWS)


def inputs(found: list[Part], names: tuple[str, ...]) -> pa.RecordBatch:
    """Return the inputs of all parts as one batch; the columns have these names."""
    schema = pa.schema([pa.field(name, field.type) for name, field in zip(names, found[0].rows.schema, strict=True)])
    batches = [pa.RecordBatch.from_arrays(part.rows.columns, schema=schema) for part in found]
    return pa.concat_batches(batches)
