"""Check whether a function can fill a column of a table. Pure: everything is checked before anything runs."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import pyarrow as pa

from leman._format import column_bindings
from leman._format.column_bindings import ColumnBinding, ColumnInput, FunctionVersion
from leman._format.stored_functions import ErrorPolicy, UdfDefinition, UdfKind
from leman_core.functions import arrow_types, binding
from leman_core.model.row_states import MOST_KEPT
from leman_core.model.service_errors import AlreadyExists, FailedPrecondition, InvalidArgument, excerpt
from leman_core.model.table import TableField, TableSnapshot

#: Reserved beginnings of names: `_row` is Lance's, `__leman` is Leman's.
RESERVED_PREFIXES = ("_row", "__leman")
_TEXT = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
NO_NAMES: Mapping[int, str] = MappingProxyType({})
#: The most columns that an error lists.
_MOST_LISTED = 40
#: The most characters of an unknown name that are compared with the names of columns.
_MOST_COMPARED = 200
_BYTES = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)


@dataclass(frozen=True, slots=True)
class NewColumn:
    """A computed column to be added or altered."""

    name: str
    udf_name: str
    udf_version: str
    #: Input columns that replace those in the function's definition, if given.
    input_columns: tuple[str, ...] = ()
    #: A SQL expression in place of the function, if given; `error_policy` is then its policy.
    sql_expression: str = ""
    #: See `kept_functions`.
    keep_values: bool = False
    error_policy: ErrorPolicy | None = None


def new_field(column: NewColumn, udf: UdfDefinition, table: TableSnapshot, column_id: str) -> pa.Field:
    """Return the field to add: nullable, with the binding in its metadata.

    Raises:
        InvalidArgument: BAD_COLUMN_NAME.
        AlreadyExists: COLUMN_EXISTS.
        FailedPrecondition: INPUT_COLUMN_MISSING, INPUT_COUNT_MISMATCH, INPUT_IS_OUTPUT, TYPE_MISMATCH,
            TYPE_NOT_STORABLE.
    """
    check_column_name(column.name)
    if (existing := table.column(column.name)) is not None:
        why = "holds plain data, which no function computes, so on_change does not apply: choose another name"
        if binding.read(existing.arrow) is not None:
            why = "is computed: alter it, or choose another name"
        message = f"Column '{column.name}' exists already and {why}"
        raise AlreadyExists("COLUMN_EXISTS", message, column=column.name)
    names = column.input_columns or udf.input_columns
    if column.name in names:
        raise FailedPrecondition(
            "INPUT_IS_OUTPUT",
            f"Column '{column.name}' cannot be computed from itself: name other columns in input_columns",
            column=column.name,
        )
    inputs = find_inputs(names, udf, table)
    check_input_types(inputs, udf)
    arrow_types.check_storable(column.name, udf.output_type, table.file_format)
    bound = binding_to(column_id, udf, inputs, column.name)
    return column_bindings.bind(output_field(column.name, udf, table.file_format), bound)


def output_field(name: str, udf: UdfDefinition, file_format: tuple[int, int]) -> pa.Field:
    """Return the column of a function in a table of that file format.

    It is nullable, with the function's type after storage by Lance.
    """
    if udf.blob:
        return arrow_types.blob_field(name, file_format)
    return pa.field(name, arrow_types.stored_type(udf.output_type), nullable=True)


def binding_to(
    column_id: str,
    udf: UdfDefinition,
    inputs: Sequence[TableField],
    added_as: str,
    kept: tuple[FunctionVersion, ...] = (),
    *,
    before: ColumnBinding | None = None,
    keep: bool = False,
) -> ColumnBinding:
    """Return the binding of a column to a function that reads these columns.

    Args:
        before: The column's old binding.
        keep: Whether the values that were computed with the old binding stay current.
    """
    return ColumnBinding(
        column_id=column_id,
        udf_name=udf.name,
        udf_version=udf.version,
        inputs=tuple(ColumnInput(f.name, f.field_id) for f in inputs),
        added_as=added_as,
        kept=kept,
        input_names=binding.names_of(inputs, before, keep=keep),
    )


def kept_functions(
    column: str, bound: ColumnBinding, udf: UdfDefinition, inputs: Sequence[TableField], table: TableSnapshot
) -> tuple[FunctionVersion, ...]:
    """Return the earlier functions whose values stay current when a column gets another function, most recent first.

    Raises:
        FailedPrecondition: KEPT_INPUTS_DIFFER if the functions have different inputs, as it would be unknown when a
            kept value is stale; TOO_MANY_KEPT.
    """
    new = FunctionVersion(udf.name, udf.version)
    before = [table.find_id(i.field_id) or table.find(i.name) for i in bound.inputs]
    if [field and field.field_id for field in before] != [field.field_id for field in inputs]:
        raise FailedPrecondition(
            "KEPT_INPUTS_DIFFER",
            f"Column {column} cannot keep its values: {bound.function} reads {_listed(i.name for i in bound.inputs)}, "
            f"{new} reads {_listed(f.name for f in inputs)}. With on_change: 'update' "
            "they are not kept, and all rows are computed again",
            column=column,
        )
    if new == bound.function:
        return bound.kept
    found = (bound.function, *(k for k in bound.kept if k != new))
    if len(found) > MOST_KEPT:
        raise FailedPrecondition(
            "TOO_MANY_KEPT",
            f"Column {column} keeps values of {MOST_KEPT} versions of its function already: compute it again first, "
            "with CatalogService.AlterColumns to its present function and a backfill",
            column=column,
        )
    return found


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)


#: The most characters of a new column's name. Names are shown and stored often.
_LONGEST_NAME = 1_024


def check_column_name(name: str, field: str = "columns.name") -> None:
    """Refuse a name that Lance refuses or that breaks the table.

    Args:
        field: The request's field, for the error.

    Raises:
        InvalidArgument: BAD_COLUMN_NAME.
    """
    if not name.strip() or not name.isprintable():
        problem = "it must not be empty or contain control characters"
    elif "." in name:
        problem = "Lance allows no '.' in the name of a column"
    elif len(name) > _LONGEST_NAME:
        problem = f"it has {len(name)} characters, and may have {_LONGEST_NAME}"
    elif _unreadable(name):
        problem = "Lance cannot read a column of that name"
    elif name.lower().startswith(RESERVED_PREFIXES):
        problem = f"names that begin with {' or '.join(RESERVED_PREFIXES)} are reserved"
    else:
        return
    raise InvalidArgument("BAD_COLUMN_NAME", f"'{excerpt(name)}' cannot be a column: {problem}", field=field)


def _unreadable(name: str) -> bool:
    """Return whether Lance would read another column, or all columns, if asked for this name."""
    return "`" in name or name == "*"


def find_inputs(names: Sequence[str], udf: UdfDefinition, table: TableSnapshot) -> tuple[TableField, ...]:
    """Return the named columns.

    Raises:
        FailedPrecondition: INPUT_COUNT_MISMATCH, INPUT_COLUMN_MISSING, TYPE_NOT_STORABLE.
        InvalidArgument: BAD_COLUMN_NAME.
    """
    if len(names) != len(udf.input_columns):
        raise FailedPrecondition(
            "INPUT_COUNT_MISMATCH",
            f"Function {udf.name} takes {len(udf.input_columns)} columns ({', '.join(udf.input_columns)}), "
            f"{len(names)} are given ({', '.join(names)})",
            udf=udf.name,
        )
    missing = [name for name in names if table.find(name) is None]
    if missing:
        raise input_missing(missing, table)
    for name in filter(_unreadable, names):
        raise InvalidArgument(
            "BAD_COLUMN_NAME",
            f"Lance cannot read a column that is called '{name}': write the table again with another name for it",
            field="columns.input_columns",
        )
    found = tuple(field for name in names if (field := table.find(name)) is not None)
    for field in found:
        column = table.column(field.name.partition(".")[0])
        arrow_types.check_readable_path(field.name, None if column is None else column.arrow)
        arrow_types.check_readable(field.name, field.arrow.type)
    return found


def unknown_column_text(name: str, known: Sequence[str]) -> str:
    """Return the error text for an unknown column."""
    return f"Column '{excerpt(name)}' not found in table schema. Its columns are: {list_names(known)}"


def column_not_found(name: str, known: Sequence[str], advice: str = "", *, uri: str = "") -> FailedPrecondition:
    """Return the error for an unknown column of a table, at `uri` if given."""
    facts = {"uri": uri} if uri else {}
    return FailedPrecondition("COLUMN_NOT_FOUND", unknown_column_text(name, known) + advice, column=name, **facts)


def list_names(names: Sequence[str]) -> str:
    """Return a text for an error with the first of some names."""
    return ", ".join(map(excerpt, names[:_MOST_LISTED])) + (", …" if len(names) > _MOST_LISTED else "")


def input_missing(missing: Sequence[str], table: TableSnapshot) -> FailedPrecondition:
    """Return the error for missing input columns, with suggestions."""
    existing = [f.name for f in table.fields]
    return FailedPrecondition(
        "INPUT_COLUMN_MISSING",
        f"UDF expects input columns {[excerpt(name) for name in missing[:_MOST_LISTED]]} which are not found: "
        f"Column '{excerpt(missing[0])}' not found in table schema. {suggest(missing, existing)}",
        columns=",".join(missing),
    )


def suggest(wanted: Iterable[str], existing: Sequence[str]) -> str:
    """Return a sentence with the existing names that are most similar or, if none is, with all existing names."""
    by_lower = {name.lower(): name for name in existing}
    asked = [name[:_MOST_COMPARED].lower() for name in itertools.islice(wanted, _MOST_LISTED)]
    close = {by_lower[match]: None for name in asked for match in difflib.get_close_matches(name, by_lower, 2)}
    if close:
        return (
            f'Did you mean {" or ".join(map(excerpt, close))}? Map columns with input_columns or `(udf, ["column"])`.'
        )
    return f'The table has {list_names(existing)}. Map columns with input_columns or `(udf, ["column"])`.'


def check_input_types(inputs: Sequence[TableField], udf: UdfDefinition, names: Mapping[int, str] = NO_NAMES) -> None:
    """Check that each input type that the function declares is the type of the column.

    Args:
        inputs: The columns.
        names: The names under which the function sees struct fields, by Lance field id. Other fields have the table's
            names.

    Raises:
        FailedPrecondition: TYPE_MISMATCH.
    """
    for column, declared in zip(inputs, udf.input_types, strict=False):
        actual = arrow_types.given_type(column.arrow, column.type_under(names))
        given = actual.value_type if udf.kind is UdfKind.REMOTE and pa.types.is_dictionary(actual) else actual
        if declared is not None and not same_type(declared, given):
            raise FailedPrecondition(
                "TYPE_MISMATCH",
                f"Type mismatch for column {column.name}: function {udf.name} declares {declared}, the "
                f"column is {actual}. Fix the type annotation, or cast the column",
                column=column.name,
                declared=declared,
                actual=actual,
            )


def check_output_type(
    column: TableField,
    udf: UdfDefinition,
    advice: str = "Drop the column and add it again, or use another function",
) -> None:
    """Check that the function returns the column's type.

    Raises:
        FailedPrecondition: TYPE_MISMATCH.
    """
    actual = arrow_types.values_field(column.arrow).type
    if udf.blob and not arrow_types.is_blob(column.arrow):
        raise FailedPrecondition(
            "TYPE_MISMATCH",
            f"Type mismatch for column {column.name}: function {udf.name} gives blobs, the column is plain {actual}. "
            f"{advice}",
            column=column.name,
            declared="blob",
            actual=actual,
        )
    if not same_type(udf.output_type, actual):
        raise FailedPrecondition(
            "TYPE_MISMATCH",
            f"Type mismatch for column {column.name}: function {udf.name} gives {udf.output_type}, the "
            f"column is {actual}. {advice}",
            column=column.name,
            declared=udf.output_type,
            actual=actual,
        )


def same_type(declared: pa.DataType, actual: pa.DataType) -> bool:
    """Return whether two types are equal, apart from the width of offsets at any depth."""
    if declared == actual:
        return True
    for family in (_TEXT, _BYTES):
        if any(is_kind(declared) for is_kind in family):
            return any(is_kind(actual) for is_kind in family)
    if _is_list(declared) and _is_list(actual):
        return same_type(declared.value_type, actual.value_type)
    if pa.types.is_fixed_size_list(declared) and pa.types.is_fixed_size_list(actual):
        return declared.list_size == actual.list_size and same_type(declared.value_type, actual.value_type)
    if pa.types.is_struct(declared) and pa.types.is_struct(actual):
        return [f.name for f in declared] == [f.name for f in actual] and all(
            same_type(d.type, a.type) for d, a in zip(declared, actual, strict=True)
        )
    if pa.types.is_dictionary(declared) and pa.types.is_dictionary(actual):
        return declared.index_type == actual.index_type and same_type(declared.value_type, actual.value_type)
    if pa.types.is_map(declared) and pa.types.is_map(actual):
        return same_type(declared.key_type, actual.key_type) and same_type(declared.item_type, actual.item_type)
    return False


def _is_list(type_: pa.DataType) -> bool:
    return bool(pa.types.is_list(type_) or pa.types.is_large_list(type_))
