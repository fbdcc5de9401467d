"""Digest the rows of a request, to detect a request that reuses an id for other rows. No I/O.

The digest covers the rows as sent. It does not depend on the table's state, nor on how rows are divided into batches.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
import xxhash

from leman_coordinator.tables.arrow_streams import MAX_BATCH_BYTES, Incoming, bad_stream, read_batches
from leman_coordinator.tables.schema_casting import check_size, in_parts
from leman_core.functions.arrow_values import leaf_parts, nested_parts
from leman_core.model.table import SentRows

#: The maximum number of bytes of values in dictionaries or views that are decoded at once.
_DECODED_BYTES = 8 << 20
#: The maximum decoded size of one column of one batch, because a small dictionary can encode any amount.
_MOST_DECODED_BYTES = 64 * MAX_BATCH_BYTES
#: Types that differ only in their layout, each with the type that stands for it in the digest.
_WIDTHS = {
    **dict.fromkeys(("large_string", "string_view"), "string"),
    **dict.fromkeys(("large_binary", "binary_view"), "binary"),
}
#: The number of parts of values without nested values: lengths and bytes.
_PARTS = 2


class RowsDigest:
    """Computes the digest of rows that are added batch by batch. Only one batch is in memory.

    The digest depends neither on the encoding of values (dictionaries, views, wide offsets) nor on the order of
    columns.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._rows = 0
        told = sorted((field.name, _kind(field.type)) for field in schema)
        self._columns = {name: _Values() for name, _ in told}
        #: Digest of the columns.
        self.columns = xxhash.xxh3_64_hexdigest(json.dumps(told).encode())

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the next rows.

        Raises:
            InvalidArgument: BATCH_TOO_LARGE – a few bytes encode too many values; BAD_STREAM – Arrow cannot read the
                values.
        """
        self._rows += batch.num_rows
        try:
            for name, values in self._columns.items():
                for part in _plain_parts(name, batch.column(name)):
                    values.add(part)
        except pa.ArrowNotImplementedError as error:
            raise bad_stream(f"has values that cannot be read: {error}") from None

    def only_count(self, batch: pa.RecordBatch) -> None:
        """Count the next rows without reading their values."""
        self._rows += batch.num_rows

    def sent(self) -> SentRows:
        """Return the digest and count of the rows so far."""
        digest = xxhash.xxh3_128()
        for values in self._columns.values():
            digest.update(values.digest())
        return SentRows(self._rows, self.columns, digest.hexdigest())


class ComparedRows:
    """Reads rows that may repeat an earlier request, without writing them.

    Args:
        first: The rows of the earlier request, or None if unknown.
    """

    def __init__(self, first: SentRows | None) -> None:
        self._first = first

    def write(self, incoming: Incoming) -> SentRows:
        """Read all rows until the stream ends. Return their digest and count.

        Raises:
            InvalidArgument: BAD_STREAM, BATCH_TOO_LARGE.
            LemanError: the error passed to `Incoming.end`.
        """
        schema, coming = read_batches(incoming)
        digest = RowsDigest(schema)
        alike = self._first is not None and self._first.columns == digest.columns
        for batch in coming:
            if alike:
                digest.add(batch)
            else:
                digest.only_count(batch)
        return digest.sent()

    def is_outlived(self) -> bool:
        """Return False, because no table is involved."""
        return False

    def discard(self) -> None:
        """Do nothing, because nothing was written."""


class _Values:
    """The values of a column, or nested values, without their encoding."""

    def __init__(self) -> None:
        self._count = 0
        self._nulls = xxhash.xxh3_128()
        self._lengths = xxhash.xxh3_128()
        self._parts = tuple(xxhash.xxh3_128() for _ in range(_PARTS))
        self._inner: dict[int, _Values] = {}

    def add(self, array: pa.Array) -> None:
        if isinstance(array, pa.ExtensionArray):
            array = array.storage
        before, self._count = self._count, self._count + len(array)
        if pt.is_null(array.type):
            return
        if array.null_count:
            missing = np.flatnonzero(pc.is_null(array).to_numpy(zero_copy_only=False))
            self._nulls.update((missing + before).astype(np.int64).tobytes())
            array = array.drop_null()
        if not pt.is_nested(array.type):
            for digest, part in zip(self._parts, leaf_parts(array), strict=False):
                digest.update(part)
            return
        lengths, inner = nested_parts(array)
        self._lengths.update(lengths)
        for at, values in enumerate(inner):
            self._inner.setdefault(at, _Values()).add(values)

    def digest(self) -> bytes:
        digest = xxhash.xxh3_128(b"%d" % self._count)
        for part in (self._nulls, self._lengths, *self._parts):
            digest.update(part.digest())
        for at, values in sorted(self._inner.items()):
            if values._count:  # empty batches must not change the digest
                digest.update(b"%d" % at)
                digest.update(values.digest())
        return digest.digest()


def _plain_parts(name: str, values: pa.Array) -> Iterator[pa.Array]:
    """Yield the values, decoded from dictionaries and views, in parts that take bounded memory."""
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    if pt.is_dictionary(values.type):
        plain = _without_encoding(name, values.dictionary)
        coded = pa.DictionaryArray.from_arrays(values.indices, plain)
        for part in in_parts(coded, _DECODED_BYTES, _MOST_DECODED_BYTES):
            yield part.dictionary.take(part.indices)
    elif pt.is_string_view(values.type) or pt.is_binary_view(values.type):
        for part in in_parts(values, _DECODED_BYTES, _MOST_DECODED_BYTES):
            yield part.cast(_plain(values.type))
    else:
        yield _without_encoding(name, values)


def _without_encoding(name: str, values: pa.Array) -> pa.Array:
    plain = _plain(values.type)
    if values.type.equals(plain):
        return values
    check_size(pa.field(name, plain), values)
    return values.cast(plain)


def _plain(kind: pa.DataType) -> pa.DataType:
    """Return the type that values have after they are decoded from dictionaries and views."""
    if pt.is_dictionary(kind):
        return _plain(kind.value_type)
    if pt.is_string_view(kind):
        return pa.large_string()
    if pt.is_binary_view(kind):
        return pa.large_binary()
    if pt.is_struct(kind):
        return pa.struct([field.with_type(_plain(field.type)) for field in kind])
    if pt.is_map(kind):
        return pa.map_(_plain(kind.key_type), _plain(kind.item_type), kind.keys_sorted)
    if pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind):
        inner = kind.value_field.with_type(_plain(kind.value_type))
        if pt.is_fixed_size_list(kind):
            return pa.list_(inner, kind.list_size)
        return pa.large_list(inner) if pt.is_large_list(kind) else pa.list_(inner)
    return kind


def _kind(kind: pa.DataType) -> str:
    """Return a name for a type. Types that differ only in encoding or layout have the same name."""
    if isinstance(kind, pa.BaseExtensionType):
        return _kind(kind.storage_type)
    if pt.is_dictionary(kind):
        return _kind(kind.value_type)
    if pt.is_struct(kind):
        return "struct<" + ", ".join(f"{field.name!r}: {_kind(field.type)}" for field in kind) + ">"
    if pt.is_map(kind):
        return f"map<{_kind(kind.key_type)}, {_kind(kind.item_type)}>"
    if pt.is_fixed_size_list(kind):
        return f"list<{_kind(kind.value_type)}, {kind.list_size}>"
    if pt.is_list(kind) or pt.is_large_list(kind):
        return f"list<{_kind(kind.value_type)}>"
    return _WIDTHS.get(str(kind), str(kind))
