"""Resolves what a plan is asked for: every name is looked up in one version of the table. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence

from leman_core.functions import binding, validation
from leman_core.model import view_metadata as metadata
from leman_core.model.errors import FailedPrecondition, InvalidArgument
from leman_core.model.plan import BackfillSpec, OutputField
from leman_core.model.table import TableField, TableSnapshot
from leman_core.model.udf import ColumnBinding, UdfDefinition
from leman_planner.resolved_request import Filter, ResolvedRequest

#: Lance changes its value whenever any column of the row's fragment is written: no data file tells that.
_MOVING_COLUMN = "_row_last_updated_at_version"
#: Columns that a message names at the most.
_LISTED = 40
#: The oldest of Lance's file formats in which a column can be in a file of its own.
OLDEST_FORMAT = (2, 0)


def resolve(
    spec: BackfillSpec,
    table: TableSnapshot,
    udf: UdfDefinition,
    bound_udf: UdfDefinition | None,
    bundle_uri: str = "",
) -> ResolvedRequest:
    """Resolve a request for all rows.

    Args:
        udf: computes the values.
        bound_udf: the function that the column was added with; None: it does not exist any more.

    Raises:
        FailedPrecondition: COLUMN_NOT_DEFINED, INPUT_COLUMN_MISSING, INPUT_COUNT_MISMATCH, TYPE_MISMATCH.
    """
    column, bound = defined_column(table, spec.column)
    own = (udf.name, udf.version) == bound.function
    names = bound.names if own else validation.NO_NAMES
    if bound.source is not None:  # what the function reads there was checked when the column was made
        inputs = _bound_inputs(table, bound)
    else:
        inputs = inputs_of(table, bound, udf, bound_udf)
        check_inputs(column.name, inputs, udf, names)
    validation.check_output_type(column, udf)
    return ResolvedRequest(
        table=table,
        output=OutputField(column, bound.column_id),
        udf=udf,
        inputs=inputs,
        num_frags=spec.num_frags,
        bundle_uri=bundle_uri,
        names=names,
        values_id=bound.values_id,
        keyed_as=bound.keyed_as(column.name),
        kept=bound.kept if own else (),
        failed_only=spec.failed_only,
        source=bound.source,
    )


def check_spec(spec: BackfillSpec) -> None:
    """Refuse a request that no table can answer.

    Raises:
        InvalidArgument: BAD_NUMBER for numbers that are negative or contradict each other; BAD_REQUEST for a missing
            column, for a version without a function, or for both `read_version` and `read_tag`.
    """
    if spec.read_version and spec.read_tag:
        raise InvalidArgument("BAD_REQUEST", "give either read_version or read_tag", field="spec.read_tag")
    bounds = spec.checkpoint
    if 0 < bounds.max_checkpoint_size < bounds.min_checkpoint_size:
        raise InvalidArgument(
            "BAD_NUMBER",
            f"min_checkpoint_size ({bounds.min_checkpoint_size}) is above max_checkpoint_size "
            f"({bounds.max_checkpoint_size})",
            field="spec.checkpoint",
        )
    if not spec.column:
        raise InvalidArgument("BAD_REQUEST", "column is empty: name the column to fill", field="spec.column")
    if spec.udf_version and not spec.udf_name:
        raise InvalidArgument("BAD_REQUEST", "a version of a function needs its name", field="spec.udf")


def check_format(table: TableSnapshot) -> None:
    """Refuse a table in Lance's first file format: a column can be added to it only by writing it anew.

    Raises:
        FailedPrecondition: FILE_FORMAT_NOT_SUPPORTED.
    """
    if table.file_format < OLDEST_FORMAT:
        written = "{}.{}".format(*table.file_format)
        raise FailedPrecondition(
            "FILE_FORMAT_NOT_SUPPORTED",
            f"Table {table.uri} is written in Lance's file format {written}, and computed columns need 2.0 at least. "
            "Write it anew: lance.write_dataset(lance.dataset(uri), new_uri, data_storage_version='stable')",
            uri=table.uri,
            file_format=written,
        )


def defined_column(table: TableSnapshot, name: str) -> tuple[TableField, ColumnBinding]:
    """Return the computed column of that name and its binding.

    Raises:
        FailedPrecondition: COLUMN_NOT_DEFINED where there is none, or no function computes it; IS_A_VIEW where a view's
            refreshes do.
    """
    column = table.column(name)
    bound = None if column is None else binding.read(column.arrow)
    if column is not None and bound is not None:
        return column, bound
    if column is not None and metadata.from_metadata(table.metadata) is not None:
        raise FailedPrecondition(
            "IS_A_VIEW", "Columns of a view are computed by its refreshes: refresh it", column=name
        )
    if column is not None:
        what = "it holds plain data, which no function computes. Name a computed column, or add one under another name "
        what += "with CatalogService.AddColumns"
    else:
        what = "add it with CatalogService.AddColumns first"
    message = f"Column {name} is not defined in this table: {what}. {_listed(table)}"
    raise FailedPrecondition("COLUMN_NOT_DEFINED", message, column=name)


def _listed(table: TableSnapshot) -> str:
    """Say which columns of a table are computed, or what columns it has where none is."""
    names = [field.name for field in table.fields]
    computed = [field.name for field in table.fields if binding.COLUMN_ID in (field.arrow.metadata or {})]
    if computed:
        return f"Computed are {', '.join(computed[:_LISTED])}"
    return f"No column of the table is computed; it has {', '.join(names[:_LISTED])}"


def with_filter(
    resolved: ResolvedRequest, where: str, names: Collection[str], fields: Iterable[TableField] | None = None
) -> ResolvedRequest:
    """Return the request for the rows that `where` matches.

    Args:
        names: casefolded, a superset of what the filter reads.
        fields: the columns of the version in which it is evaluated; None: the table's.
    """
    output = resolved.output.field.field_id
    own = {field.field_id for field in resolved.inputs} | {output}
    mentioned = [field for field in fields or resolved.table.fields if field.name.casefold() in names]
    made = Filter(
        where=where,
        columns=tuple(field for field in mentioned if field.field_id not in own),
        names=tuple(pair for field in mentioned for pair in field.inner_names()),
        reads_output=any(field.field_id == output for field in mentioned),
        reads_versions=_MOVING_COLUMN in names,
    )
    return dataclasses.replace(resolved, filter=made)


def check_inputs(
    column: str, inputs: Sequence[TableField], udf: UdfDefinition, names: Mapping[int, str] = validation.NO_NAMES
) -> None:
    """Check that a function can compute a column from these inputs.

    Args:
        column: its name.
        inputs: the columns that the function reads.
        udf: the function.
        names: those that it is given for fields of structs, by id; else they are as the table has them.

    Raises:
        FailedPrecondition: INPUT_IS_OUTPUT, TYPE_MISMATCH.
    """
    if any(field.name.split(".")[0] == column for field in inputs):
        raise FailedPrecondition("INPUT_IS_OUTPUT", f"Column '{column}' cannot be computed from itself", column=column)
    for field in inputs:
        _check_distinct(field, names)
    validation.check_input_types(inputs, udf, names)


def _check_distinct(field: TableField, names: Mapping[int, str]) -> None:
    """Refuse names by which two fields of a struct would be called the same."""
    given = [names.get(part.field_id, part.name) for part in field.parts]
    if twice := next((name for name in given if given.count(name) > 1), ""):
        raise FailedPrecondition(
            "TYPE_MISMATCH",
            f"Type mismatch for column {field.name}: its field that the function reads as '{twice}' was renamed, and "
            f"another one is called '{twice}' by now. Rename that one, or bind the column to its function again with "
            "CatalogService.AlterColumns: then it is given the names that the fields have now",
            column=field.name,
        )
    for child in field.children:
        _check_distinct(child, names)


def inputs_of(
    table: TableSnapshot, bound: ColumnBinding, udf: UdfDefinition, bound_udf: UdfDefinition | None
) -> tuple[TableField, ...]:
    """Return the columns that a function reads to compute a column.

    The column's mapping holds for its own function, and for another one with the same parameter names.

    Raises:
        FailedPrecondition: INPUT_COUNT_MISMATCH, INPUT_COLUMN_MISSING.
    """
    own = (udf.name, udf.version) == (bound.udf_name, bound.udf_version)
    if not own and (bound_udf is None or bound_udf.input_columns != udf.input_columns):
        return validation.find_inputs(udf.input_columns, udf, table)
    return _bound_inputs(table, bound)


def _bound_inputs(table: TableSnapshot, bound: ColumnBinding) -> tuple[TableField, ...]:
    # A renamed column keeps its id; one that was cast or made anew has another id under the old name.
    found = [table.find_id(i.field_id) or table.find(i.name) for i in bound.inputs]
    missing = [i.name for i, field in zip(bound.inputs, found, strict=True) if field is None]
    if missing:
        raise validation.input_missing(missing, table)
    return tuple(field for field in found if field is not None)
