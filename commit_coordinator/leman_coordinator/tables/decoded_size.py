"""How large values become that a caller sends in few bytes. Pure.

A column of NULLs has no bytes however many rows it has, and a dictionary or a view has one text for any number of rows.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from leman_core.model.errors import InvalidArgument

_VIEW_BYTES = 16
_WORD = 8


def swells(kind: pa.DataType) -> bool:
    """Tell whether values of a type can have far more bytes once they are converted to another one."""
    if isinstance(kind, pa.BaseExtensionType):
        return swells(kind.storage_type)
    if pt.is_null(kind) or pt.is_dictionary(kind) or pt.is_string_view(kind) or pt.is_binary_view(kind):
        return True
    return pt.is_nested(kind) and any(swells(kind.field(at).type) for at in range(kind.num_fields))


def decoded_bytes(values: pa.Array, want: pa.DataType | None) -> int:
    """Return about how many bytes values have without dictionaries and views, and with room for NULLs.

    Of lists all elements count that lie beneath, also those of rows before and after: a conversion takes them all.

    Args:
        want: the type that NULLs get; None: a plain one.
    """
    kind = values.type
    if isinstance(kind, pa.BaseExtensionType):
        return decoded_bytes(values.storage, want)
    if pt.is_null(kind):
        return len(values) * _null_bytes(want)
    if pt.is_dictionary(kind):
        sizes = _sizes(values.dictionary)
        return int(sizes[values.indices.drop_null().to_numpy()].sum())
    if pt.is_string_view(kind) or pt.is_binary_view(kind):
        return int(_sizes(values).sum())
    if pt.is_struct(kind):
        return sum(decoded_bytes(values.field(at), _inner(want, at)) for at in range(kind.num_fields))
    if pt.is_map(kind):
        return decoded_bytes(values.keys, _inner(want, 0)) + decoded_bytes(values.items, None)
    if pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind):
        return decoded_bytes(values.values, _inner(want, 0))
    return int(values.nbytes)


def bytes_beside_dictionaries(rows: pa.RecordBatch) -> int:
    """Return the bytes of rows without those of their dictionaries, which are as many for one row as for all."""
    return int(rows.nbytes) - sum(map(_bytes_of_dictionaries, rows.columns))


def _bytes_of_dictionaries(values: pa.Array) -> int:
    kind = values.type
    if isinstance(kind, pa.BaseExtensionType):
        return _bytes_of_dictionaries(values.storage)
    if pt.is_dictionary(kind):
        return int(values.dictionary.nbytes)
    if pt.is_struct(kind):
        return sum(_bytes_of_dictionaries(values.field(at)) for at in range(kind.num_fields))
    if pt.is_map(kind):
        return _bytes_of_dictionaries(values.keys) + _bytes_of_dictionaries(values.items)
    if pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind):
        return _bytes_of_dictionaries(values.values)
    return 0


def in_parts(values: pa.Array, size: int, most: int) -> Iterator[pa.Array]:
    """Yield a dictionary's values, or views, in parts that have so many bytes without it, and at least one value.

    Args:
        size: Bytes of a part.
        most: Bytes of all of them.

    Raises:
        InvalidArgument: BATCH_TOO_LARGE.
    """
    if pt.is_dictionary(values.type):
        sizes = np.append(_sizes(values.dictionary), 0)  # the last one is that of NULL
        sizes = sizes[values.indices.cast(pa.int64()).fill_null(-1).to_numpy()]
    else:
        sizes = _sizes(values)
    ends = np.cumsum(sizes)
    if len(ends) and ends[-1] > most:
        raise InvalidArgument(
            "BATCH_TOO_LARGE",
            f"{len(values)} values, sent as {values.type}, have {ends[-1]} bytes, at most {most} are taken at once: "
            "send smaller batches",
            field="arrow_ipc",
        )
    at = 0
    while at < len(values):
        before = int(ends[at - 1]) if at else 0
        end = max(at + 1, int(np.searchsorted(ends, before + size, side="right")))
        yield values.slice(at, end - at)
        at = end


def _sizes(values: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the bytes of each value; of one that is nested those of all of them."""
    kind, end = values.type, values.offset + len(values)
    if not len(values):
        return np.zeros(0, np.int64)
    if pt.is_string_view(kind) or pt.is_binary_view(kind):
        views = np.frombuffer(values.buffers()[1], np.int32, count=end * _VIEW_BYTES // 4).reshape(end, -1)
        valid = values.is_valid().to_numpy(zero_copy_only=False)
        return np.where(valid, views[values.offset :, 0], 0).astype(np.int64)
    if pt.is_string(kind) or pt.is_binary(kind) or pt.is_large_string(kind) or pt.is_large_binary(kind):
        offset = np.int64 if pt.is_large_string(kind) or pt.is_large_binary(kind) else np.int32
        ends = np.frombuffer(values.buffers()[1], offset, count=end + 1)[values.offset :]
        return np.diff(ends).astype(np.int64)
    whole = decoded_bytes(values, None)
    return np.full(len(values), whole if pt.is_nested(kind) or swells(kind) else _null_bytes(kind), np.int64)


def _null_bytes(kind: pa.DataType | None) -> int:
    """Return the bytes that a NULL of a type takes."""
    if kind is None:
        return _WORD
    if isinstance(kind, pa.BaseExtensionType):
        return _null_bytes(kind.storage_type)
    if pt.is_fixed_size_list(kind):
        return int(kind.list_size) * _null_bytes(kind.value_type)
    if pt.is_struct(kind):
        return sum(_null_bytes(field.type) for field in kind) + 1
    return max(1, kind.bit_width // 8) if pt.is_primitive(kind) or pt.is_decimal(kind) else _WORD


def _inner(want: pa.DataType | None, at: int) -> pa.DataType | None:
    """Return the type of a part of a type's values; None where it has no such part."""
    if want is None or not pt.is_nested(want) or at >= want.num_fields:
        return None
    return want.field(at).type
