"""Check whether a caller's rows fit a table, bound their size, and cast them to the types of its columns. Pure.

A few bytes can encode a lot: a column of NULLs takes no bytes for any number of rows, and in a dictionary or a view all
rows can share one text.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from leman._format.value_casts import cast_advice, check_json, convertible, exact_cast
from leman_coordinator.tables.arrow_streams import MAX_BATCH_BYTES
from leman_core.functions import arrow_types, binding
from leman_core.functions.arrow_types import arrow_cast_name
from leman_core.functions.column_checks import column_not_found
from leman_core.model.service_errors import FailedPrecondition, InvalidArgument
from leman_core.model.table import TableField

_VIEW_BYTES = 16
_WORD = 8


def grows_when_cast(kind: pa.DataType) -> bool:
    """Return whether values of a type can grow a lot when they are cast."""
    if isinstance(kind, pa.BaseExtensionType):
        return grows_when_cast(kind.storage_type)
    if pt.is_null(kind) or pt.is_dictionary(kind) or pt.is_string_view(kind) or pt.is_binary_view(kind):
        return True
    return pt.is_nested(kind) and any(grows_when_cast(kind.field(at).type) for at in range(kind.num_fields))


def decoded_bytes(values: pa.Array, want: pa.DataType | None) -> int:
    """Return the approximate size in bytes of decoded values: without dictionaries and views, and with space for NULLs.

    All elements of nested lists count, even those outside the rows, because a cast converts them, too.

    Args:
        want: The type that NULLs are converted to, if any.
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
    """Return the size of rows in bytes without their dictionaries, which do not grow with the number of rows."""
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
    """Yield the values of a dictionary or view array in parts of limited decoded size, each with at least one value.

    Args:
        size: The maximum size of a part in bytes.
        most: The maximum size of all parts in bytes.

    Raises:
        InvalidArgument: BATCH_TOO_LARGE.
    """
    if pt.is_dictionary(values.type):
        sizes = np.append(_sizes(values.dictionary), 0)  # the last item is the size of NULL
        sizes = sizes[values.indices.cast(pa.int64()).fill_null(-1).to_numpy()]
    else:
        sizes = _sizes(values)
    ends = np.cumsum(sizes)
    if len(ends) and ends[-1] > most:
        raise InvalidArgument(
            "BATCH_TOO_LARGE",
            f"{len(values)} values, sent as {values.type}, have {ends[-1]} bytes, and at most {most} are accepted at "
            "once: send smaller batches",
            field="arrow_ipc",
        )
    at = 0
    while at < len(values):
        before = int(ends[at - 1]) if at else 0
        end = max(at + 1, int(np.searchsorted(ends, before + size, side="right")))
        yield values.slice(at, end - at)
        at = end


def _sizes(values: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the size of each value in bytes, including nested values."""
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
    return np.full(len(values), whole if pt.is_nested(kind) or grows_when_cast(kind) else _null_bytes(kind), np.int64)


def _null_bytes(kind: pa.DataType | None) -> int:
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
    """Return the type of a nested part of a type, or None."""
    if want is None or not pt.is_nested(want) or at >= want.num_fields:
        return None
    return want.field(at).type


#: The number of rows that are converted at once.
_CONVERTED_ROWS = 1 << 16
#: Types for which no SQL cast is suggested, because the right cast depends on the values, or does not exist.
_WITHOUT_ADVICE = (pt.is_boolean, pt.is_null, pt.is_fixed_size_binary, pt.is_time, pt.is_duration)


class Fitting:
    """Casts batches of one schema to the types of a table's columns.

    A missing column becomes NULL. Values are cast if the cast does not change them: int32 → int64, string →
    large_string, a list of int32 → a list of int64, text in a dictionary → text. In a column of floats, numbers are
    rounded to its precision, and refused if they are too large for it. `castable` lists the kinds of values that are
    never cast to each other.
    """

    def __init__(
        self,
        given: pa.Schema,
        table: Sequence[TableField],
        *,
        whole: bool = True,
        computed: Collection[str] = (),
        clocks: Collection[str] = (),
        kept: Collection[str] = (),
    ) -> None:
        """Compare the schemas.

        Args:
            whole: Whether the rows are new, and so need all columns that cannot be NULL.
            computed: Columns whose values came from SQL.
            clocks: Columns that get the time of the call, `now()`, cast to the column's type, such as a date.
            kept: Columns whose values are already in the table.

        Raises:
            InvalidArgument: BAD_COLUMN – a column is repeated, or there is none.
            FailedPrecondition: COLUMN_NOT_FOUND – the table has no such column; COLUMN_REQUIRED – a column is missing
                that cannot be NULL; TYPE_MISMATCH – values of a column cannot be cast.
        """
        if not given.names or len(set(given.names)) < len(given.names):
            message = (
                "The rows have a column more than once: send each once"
                if given.names
                else "The rows have no column: send at least one"
            )
            raise InvalidArgument("BAD_COLUMN", message, field="arrow_ipc")
        known = {column.name: column for column in table}
        for name in given.names:
            if name not in known:
                raise column_not_found(name, list(known))
        required = [c.name for c in table if not c.arrow.nullable and c.name not in given.names]
        if whole and required:
            raise FailedPrecondition(
                "COLUMN_REQUIRED",
                f"Column '{required[0]}' cannot be NULL, and is missing in the rows",
                column=required[0],
            )
        #: The columns of the rows, in the table's order.
        self.columns = tuple(column for column in table if column.name in given.names)
        #: The schema of the resulting batches.
        self.schema = pa.schema([stored_field(column.arrow) for column in self.columns])
        self._kept = frozenset(kept)
        for field in self.schema:
            have = given.field(field.name).type
            _check(field.name, have, field.type, computed=field.name in computed, clock=field.name in clocks)

    def fitted(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield a batch in the types of the table's columns, in parts if values are cast.

        Raises:
            FailedPrecondition: TYPE_MISMATCH – a value does not fit; NULL_VALUE – a value is NULL in a column that does
                not allow it.
            InvalidArgument: BATCH_TOO_LARGE – a few bytes encode too many values.
        """
        columns = [batch.column(field.name) for field in self.schema]
        for field, values in zip(self.schema, columns, strict=True):
            if values.null_count and not field.nullable:
                raise FailedPrecondition(
                    "NULL_VALUE", f"Column '{field.name}' cannot be NULL, and a row has NULL there", column=field.name
                )
            if pt.is_nested(values.type):
                check_size(field, values)
        alike = all(values.type.equals(field.type) for field, values in zip(self.schema, columns, strict=True))
        most = batch.num_rows if alike else _CONVERTED_ROWS
        for at in range(0, batch.num_rows, max(1, most)):
            parts = zip(self.schema, (values.slice(at, most) for values in columns), strict=True)
            yield pa.RecordBatch.from_arrays([self._part(*part) for part in parts], schema=self.schema)

    def _part(self, field: pa.Field, values: pa.Array) -> pa.Array:
        made = _converted(field, values)
        if field.name not in self._kept:
            try:
                check_json(made)
            except ValueError as error:
                raise FailedPrecondition(
                    "TYPE_MISMATCH",
                    f"Type mismatch for column {field.name}: a value cannot be stored as JSON: {error}",
                    column=field.name,
                    given=values.type,
                    column_type=field.type,
                ) from None
        return made


def check_not_computed(names: Container[str], table: Sequence[TableField]) -> None:
    """Refuse values for columns that functions compute.

    Raises:
        FailedPrecondition: COLUMN_IS_COMPUTED.
    """
    for column in table:
        if column.name in names and binding.read(column.arrow) is not None:
            raise FailedPrecondition(
                "COLUMN_IS_COMPUTED",
                f"Column '{column.name}' is computed by its function: leave it out, and change its inputs instead",
                column=column.name,
            )


def stored_field(column: pa.Field) -> pa.Field:
    """Return the field as which a column is written. A blob column is written as a field of bytes."""
    if arrow_types.is_blob(column):
        return arrow_types.values_field(column).with_nullable(column.nullable)
    return column


def _check(name: str, have: pa.DataType, want: pa.DataType, *, computed: bool, clock: bool) -> None:
    if not convertible(have, want) and not (clock and pt.is_temporal(have) and pt.is_temporal(want)):
        source = "the expression gives" if computed else "the rows have"
        raise FailedPrecondition(
            "TYPE_MISMATCH",
            f"Type mismatch for column {name}: {source} {have}, the column is {want}"
            f"{_sql_advice(have, want) if computed else cast_advice(have, want)}",
            column=name,
            given=have,
            column_type=want,
        )


def _sql_advice(have: pa.DataType, want: pa.DataType) -> str:
    """Return advice on SQL that returns the wanted type, or "" if there is none."""
    if pt.is_floating(have) and pt.is_decimal(want):
        kind = f"decimal({want.precision}, {want.scale})"
        return (
            f". In SQL a number with a fraction is a double: write it in quotes, like cast('1.5' as {kind}), or send "
            f"it in `values`. cast(… as {kind}) rounds other doubles"
        )
    if pt.is_timestamp(want) and (pt.is_timestamp(have) or pt.is_date(have)):
        gives = "reads it as a time in that zone" if want.tz else "returns the time in UTC"
        return f". Make the zone explicit: arrow_cast(…, '{arrow_cast_name(want)}') {gives}"
    if pt.is_timestamp(have) and pt.is_date(want):
        return ". Remove the time of day: cast(… as date)"
    if pt.is_nested(have) or pt.is_nested(want) or pt.is_dictionary(want) or isinstance(want, pa.BaseExtensionType):
        return ""
    if pt.is_boolean(have) and pt.is_decimal(want):
        return f". Convert it: cast(cast(… as int) as decimal({want.precision}, {want.scale}))"
    if any(is_kind(want) for is_kind in _WITHOUT_ADVICE):
        return ""
    return f". Convert it: arrow_cast(…, '{arrow_cast_name(want)}')"


def check_size(field: pa.Field, values: pa.Array) -> None:
    """Refuse values that take too much memory in the type of a column.

    Raises:
        InvalidArgument: BATCH_TOO_LARGE.
    """
    if values.type.equals(field.type) or not grows_when_cast(values.type):
        return
    size = decoded_bytes(values, field.type)
    if size > MAX_BATCH_BYTES:
        raise InvalidArgument(
            "BATCH_TOO_LARGE",
            f"{len(values)} values of column '{field.name}', sent as {values.type}, have {size} bytes as {field.type}, "
            f"and at most {MAX_BATCH_BYTES} are accepted at once: send smaller batches",
            field="arrow_ipc",
        )


def _converted(field: pa.Field, values: pa.Array) -> pa.Array:
    if values.type.equals(field.type):
        return values
    check_size(field, values)
    try:
        if pt.is_dictionary(values.type) and not pt.is_dictionary(field.type):
            check_size(field, values.dictionary)
        return exact_cast(values, field.type)
    except (pa.ArrowException, OverflowError, ValueError) as error:
        raise FailedPrecondition(
            "TYPE_MISMATCH",
            f"Type mismatch for column {field.name}: a value does not fit {field.type}: {error}",
            column=field.name,
            given=values.type,
            column_type=field.type,
        ) from None
