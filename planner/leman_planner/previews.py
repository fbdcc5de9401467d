"""Which function a preview is of, what it reads, and what a backfill of the whole table would compute with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from leman_core.functions import binding, storable_types, validation
from leman_core.functions.validation import NewColumn
from leman_core.model.plan import OutputField, PlanHeader
from leman_core.model.preview import PreviewSpec
from leman_core.model.table import TableField, TableSnapshot
from leman_core.model.udf import ColumnBinding, UdfDefinition
from leman_core.storage.tables import LanceTables
from leman_planner.catalog import KEEP_TYPE, Catalog
from leman_planner.plan_maker import PlanMaker
from leman_planner.request_resolution import check_format, check_inputs, defined_column, inputs_of
from leman_planner.resolved_request import given_types, with_names_now

#: What the output of a function is called that is not a column's.
_OUTPUT = "output"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Resolved:
    """A function, the columns that it reads now, and where its values would go."""

    udf: UdfDefinition
    inputs: tuple[TableField, ...]
    #: Names of fields of structs in them, as the function is given them, by id.
    names: Mapping[int, str] = field(default_factory=dict)
    output: OutputField
    rows_to_compute: int


class PreviewPlans:
    """What makes plans of previews. It holds no state: any number of threads may use one."""

    def __init__(self, catalog: Catalog, plans: PlanMaker, tables: LanceTables) -> None:
        self._catalog = catalog
        self._plans = plans
        self._tables = tables

    def plan(self, asked: PreviewSpec) -> PlanHeader:
        """Return what is to be run; the bundle of a function that is not registered is not looked for.

        Raises:
            LemanError: what `PlanningService.PlanPreview` (protos/leman/internal/v1/planning.proto) names.
        """
        table = self._catalog.table(asked.database, asked.table)
        check_format(table)
        found = self._of_column(asked, table) if asked.column else self._of_function(asked, table)
        version = self._tables.tagged(table.uri, asked.read_tag) if asked.read_tag else asked.read_version
        read = self._tables.snapshot(table.uri, version) if version else table
        inputs = _fields_in(read, found.inputs) if version else found.inputs
        return PlanHeader(
            uri=table.uri,
            read_version=read.version,
            incarnation=table.incarnation,
            output=found.output,
            input_columns=tuple(field.name for field in inputs),
            input_types=given_types(inputs, found.names),
            udf=with_names_now(found.udf, inputs, found.names),
            bundle_uri=self._catalog.registry(asked.database).bundle_uri(found.udf),
            where=self._plans.pinned(read, asked.where) if asked.where else "",
            rows_total=table.live_rows,
            rows_to_compute=found.rows_to_compute,
        )

    def _of_function(self, asked: PreviewSpec, table: TableSnapshot) -> _Resolved:
        udf = self._function(asked, table)
        inputs = validation.find_inputs(asked.input_columns or udf.input_columns, udf, table)
        validation.check_input_types(inputs, udf)
        storable_types.check(_OUTPUT, udf.output_type, table.file_format)
        field = validation.output_field(_OUTPUT, udf, table.file_format)
        output = OutputField(TableField(field, ()), "")
        return _Resolved(udf=udf, inputs=inputs, output=output, rows_to_compute=table.live_rows)

    def _of_column(self, asked: PreviewSpec, table: TableSnapshot) -> _Resolved:
        column, bound = defined_column(table, asked.column)
        own = self._catalog.registry(asked.database).find_expected(bound.udf_name, bound.udf_version)
        if asked.names_function:
            udf = self._function(asked, table)
        else:
            udf = self._catalog.registry(asked.database).usable(bound.udf_name, bound.udf_version)
        if asked.input_columns:
            inputs = validation.find_inputs(asked.input_columns, udf, table)
        else:
            inputs = inputs_of(table, bound, udf, own)
        is_bound = (udf.name, udf.version) == bound.function and not asked.input_columns
        names = bound.names if is_bound else validation.NO_NAMES
        check_inputs(column.name, inputs, udf, names)
        validation.check_output_type(column, udf, KEEP_TYPE)
        rows = self._rows_of_column(table, column, bound, udf, inputs)
        output = OutputField(column, bound.column_id)
        return _Resolved(udf=udf, inputs=inputs, names=names, output=output, rows_to_compute=rows)

    def _function(self, asked: PreviewSpec, table: TableSnapshot) -> UdfDefinition:
        if asked.definition is not None:
            self._catalog.registry(asked.database).check_new(asked.definition)
            return asked.definition
        column = NewColumn(
            asked.column or _OUTPUT,
            asked.udf_name,
            asked.udf_version,
            sql_expression=asked.sql_expression,
            error_policy=asked.error_policy,
        )
        return self._catalog.function(asked.database, table, column)

    def _rows_of_column(
        self,
        table: TableSnapshot,
        column: TableField,
        bound: ColumnBinding,
        udf: UdfDefinition,
        inputs: Sequence[TableField],
    ) -> int:
        """Count the rows that a backfill of the column would compute, had it this function and these inputs."""
        if (udf.name, udf.version) != bound.function or [f.field_id for f in inputs] != [
            i.field_id for i in bound.inputs
        ]:
            rebound = validation.bound_to(bound.column_id, udf, inputs, bound.added_as, before=bound)
            field = replace(column, arrow=binding.bind(column.arrow, rebound))
            fields = tuple(field if f.field_id == field.field_id else f for f in table.fields)
            table = replace(table, fields=fields)
        return self._plans.forecast(table, column.name, udf).rows_to_compute


def _fields_in(read: TableSnapshot, inputs: Sequence[TableField]) -> tuple[TableField, ...]:
    """Return the columns as they are in the version that is read.

    Raises:
        FailedPrecondition: INPUT_COLUMN_MISSING.
    """
    then = [read.find_id(field.field_id) for field in inputs]
    missing = [field.name for field, found in zip(inputs, then, strict=True) if found is None]
    if missing:
        raise validation.input_missing(missing, read)
    return tuple(found for found in then if found is not None)
