"""Several Arrow arrays as one.

pyarrow does not join dictionaries that hold NULL, as Lance's file format 2.0 reads them back.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from leman_core.functions.nested_types import holds


def joined(arrays: Sequence[pa.Array]) -> pa.Array:
    """Return the values of at least one array, one after the other; all are of the same type."""
    if len(arrays) == 1:
        return arrays[0]
    return pa.concat_arrays([_tidy(array) for array in arrays] if holds(arrays[0].type, pt.is_dictionary) else arrays)


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """Return the rows of a table in one batch."""
    columns = [joined(column.chunks or [pa.nulls(0, column.type)]) for column in table.columns]
    return pa.RecordBatch.from_arrays(columns, schema=table.schema)


def _tidy(array: pa.Array) -> pa.Array:
    """Return the same values, with NULL in no dictionary."""
    if pt.is_dictionary(array.type):
        return _without_null(array)
    if not holds(array.type, pt.is_dictionary):
        return array
    if pt.is_struct(array.type):
        fields = [_tidy(array.field(at)) for at in range(array.type.num_fields)]
        return pa.StructArray.from_arrays(fields, fields=list(array.type), mask=array.is_null())
    own = 1 if pt.is_fixed_size_list(array.type) else 2  # the first buffers are its own, then come those of its values
    buffers, values = array.buffers()[:own], [_tidy(array.values)]
    return pa.Array.from_buffers(array.type, len(array), buffers, offset=array.offset, children=values)


def _without_null(array: pa.DictionaryArray) -> pa.DictionaryArray:
    held = array.dictionary
    if not held.null_count:
        return array
    valid = held.is_valid().to_numpy(zero_copy_only=False)
    places = pa.array(np.cumsum(valid) - 1, array.type.index_type, mask=~valid)
    return pa.DictionaryArray.from_arrays(places.take(array.indices), held.drop_null(), ordered=array.type.ordered)
