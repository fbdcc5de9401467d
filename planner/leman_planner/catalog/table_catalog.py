"""Tables and their computed columns, and the checks before a column is added or altered."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from leman._format import column_bindings
from leman._format.column_bindings import ColumnBinding, ColumnInput, FunctionVersion
from leman._format.stored_functions import ErrorPolicy, UdfDefinition, UdfKind
from leman_core.functions import arrow_types, binding, column_checks
from leman_core.functions.column_checks import NewColumn
from leman_core.model import keys
from leman_core.model.service_errors import DataLoss, FailedPrecondition, InvalidArgument
from leman_core.model.table import TableSnapshot
from leman_core.model.view import SCRATCH_PREFIX
from leman_core.model.view_metadata import from_metadata
from leman_core.sql import expressions
from leman_core.storage.lance_tables import LanceTables
from leman_core.storage.locations import canonical_database, table_uri
from leman_core.storage.udf_registry import UdfRegistry
from leman_planner.planning.column_graph import check_cycles, inputs_first, pending_columns, with_columns
from leman_planner.planning.request_resolution import check_format, check_inputs, defined_column, inputs_of

#: The name under which SQL expressions of columns are registered.
SQL_FUNCTION_NAME = "sql"


def sql_function_definition(expression: str, columns: tuple[str, ...], output: pa.DataType) -> UdfDefinition:
    """Return the function of a SQL expression over these columns.

    Its version is the md5 of the text (without white space), the columns and the type.
    """
    text = expressions.normalize_spaces(expression)
    version = keys.md5("\n".join([text, *columns, str(output)]))
    return UdfDefinition(SQL_FUNCTION_NAME, version, UdfKind.SQL, columns, output, sql_expression=text)


#: What to do if a function returns another type than the column has.
KEEP_TYPE = "A column keeps its type: add a new column for the function, or cast its result"


@dataclass(frozen=True, slots=True)
class Addition:
    """Checked columns for the commit coordinator to add, or to bind to other functions."""

    uri: str
    request_id: str
    schema: pa.Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputedColumn:
    """A computed column and its function, with the present names of its inputs."""

    name: str
    udf_name: str
    udf_version: str
    input_columns: tuple[str, ...]
    kept: tuple[FunctionVersion, ...] = ()


def check_not_scratch(name: str, *, field: str) -> None:
    """Reject scratch tables of refreshes, which callers cannot describe, change or create.

    Raises:
        InvalidArgument: RESERVED_NAME.
    """
    if name.startswith(SCRATCH_PREFIX):
        text = f"'{name}' begins with {SCRATCH_PREFIX}, which is reserved for Leman: use another name"
        raise InvalidArgument("RESERVED_NAME", text, field=field)


def id_of_added(uri: str, request_id: str, column: str) -> str:
    """Return the id of a column that a request adds. A retry of the request gets the same id."""
    return keys.md5(f"{uri}\n{request_id}\n{column}")


class Catalog:
    """The tables, functions and columns of databases. It is stateless, so any number of threads may use it."""

    def __init__(self, tables: LanceTables, registry: Callable[[str], UdfRegistry] = UdfRegistry) -> None:
        self._tables = tables
        self._registry = registry

    def registry(self, database: str) -> UdfRegistry:
        """Return the function registry of a database."""
        return self._registry(canonical_database(database))

    def table(self, database: str, table: str) -> TableSnapshot:
        """Return the latest version of a table.

        Raises:
            InvalidArgument: RESERVED_NAME – it is a scratch table.
            LemanError: As `LanceTables.snapshot`.
        """
        check_not_scratch(table, field="table.table")
        return self._tables.snapshot(table_uri(database, table))

    def tables(self, database: str) -> list[str]:
        """Return the sorted names of the tables of a database, without scratch tables."""
        return [name for name in self._tables.list_tables(database) if not name.startswith(SCRATCH_PREFIX)]

    def checked_table(self, database: str, table: str, columns: Sequence[NewColumn]) -> TableSnapshot:
        """Return the latest version of a table to which computed columns are added.

        Raises:
            InvalidArgument: BAD_REQUEST – no column is listed, or one more than once; see also `table`.
            FailedPrecondition: IS_A_VIEW.
        """
        _check_named(columns)
        snapshot = self.table(database, table)
        if from_metadata(snapshot.metadata) is not None:
            raise FailedPrecondition(
                "IS_A_VIEW", f"'{table}' is a view: create one whose query has the column", table=table
            )
        return snapshot

    def function(self, database: str, table: TableSnapshot, column: NewColumn) -> UdfDefinition:
        """Return the function of a requested column. The function of an expression may not be registered yet.

        Raises:
            LemanError: See `CatalogService.AddColumns` (protos/leman/v1/catalog.proto).
        """
        return self._function(self.registry(database), table, column)

    def addition(
        self, database: str, table: str, columns: Sequence[NewColumn], request_id: str, body: str = ""
    ) -> Addition:
        """Check new columns and return them as fields with their bindings.

        Column ids are derived from the request id, so that a retry of the request gets the same ids. `body`
        distinguishes the request from a different one that reuses its id.

        Raises:
            LemanError: See `CatalogService.AddColumns` (protos/leman/v1/catalog.proto).
        """
        snapshot = self.checked_table(database, table, columns)
        check_format(snapshot)
        binding.check_request((field.arrow for field in snapshot.fields), request_id, body)
        registry = self.registry(database)
        asked = request_id or uuid.uuid4().hex
        ordered = self._inputs_first(registry, snapshot, columns)
        after = snapshot
        fields: list[pa.Field] = []
        functions: list[UdfDefinition] = []
        for column in ordered:
            udf = self._function(registry, after, column)
            column_id = id_of_added(snapshot.uri, asked, column.name)
            field = _added_before(snapshot, column.name, column_id, udf)
            if field is None:
                field = column_checks.new_field(column, udf, after, column_id)
                after = with_columns(after, [field])
            fields.append(binding.mark(field, request_id, body))
            functions.append(udf)
        self._check_expressions(after, registry, ordered, functions, fields)
        return Addition(snapshot.uri, asked, pa.schema(fields))

    def _inputs_first(
        self, registry: UdfRegistry, table: TableSnapshot, columns: Sequence[NewColumn]
    ) -> list[NewColumn]:
        """Sort new columns so that each comes after those that it reads.

        Raises:
            FailedPrecondition: COLUMN_CYCLE.
        """
        new = {column.name: column for column in columns}
        if len(new) < 2:
            return list(columns)
        names = [*(field.name for field in table.fields), *new]
        graph = {}
        for column in columns:
            if column.sql_expression:
                expressions.check_expression(column.sql_expression, names)
                read: Iterable[str] = expressions.columns_of_expression(column.sql_expression, names)
            else:
                read = column.input_columns or self._function(registry, table, column).input_columns
            first = dict.fromkeys(name.split(".")[0] for name in read)
            graph[column.name] = [name for name in first if name in new and name != column.name]
        return [new[name] for name in inputs_first(graph)]

    def alteration(
        self,
        database: str,
        table: str,
        columns: Sequence[NewColumn],
        request_id: str,
        body: str = "",
        also: Iterable[pa.Field] = (),
    ) -> Addition:
        """Check columns that get other functions and return them as fields with their new bindings.

        Their functions may read the columns in `also`, which are added first.

        Raises:
            LemanError: See `CatalogService.AlterColumns` (protos/leman/v1/catalog.proto).
        """
        _check_named(columns)
        snapshot = self.table(database, table)
        if from_metadata(snapshot.metadata) is not None:
            raise FailedPrecondition(
                "IS_A_VIEW",
                f"'{table}' is a view: use AlterMaterializedView to change its functions",
                table=table,
            )
        snapshot = with_columns(snapshot, also)
        binding.check_request((field.arrow for field in snapshot.fields), request_id, body)
        registry = self.registry(database)
        fields: list[pa.Field] = []
        functions: list[UdfDefinition] = []
        for column in columns:
            existing, bound = defined_column(snapshot, column.name)
            udf = self._function(registry, snapshot, column)
            if column.input_columns:
                inputs = column_checks.find_inputs(column.input_columns, udf, snapshot)
            else:
                own = (udf.name, udf.version) == bound.function  # a damaged definition is registered again
                before = udf if own else registry.find_expected(bound.udf_name, bound.udf_version)
                inputs = inputs_of(snapshot, bound, udf, before)
            check_inputs(column.name, inputs, udf)
            column_checks.check_output_type(existing, udf, KEEP_TYPE)
            arrow_types.check_storable(column.name, udf.output_type, snapshot.file_format)
            kept = column_checks.kept_functions(column.name, bound, udf, inputs, snapshot) if column.keep_values else ()
            rebound = column_checks.binding_to(
                bound.column_id, udf, inputs, bound.added_as, kept, before=bound, keep=column.keep_values
            )
            fields.append(binding.mark(column_bindings.bind(existing.arrow, rebound), request_id, body))
            functions.append(udf)
        check_cycles(snapshot, fields)
        self._check_expressions(snapshot, registry, columns, functions, fields)
        return Addition(snapshot.uri, request_id or uuid.uuid4().hex, pa.schema(fields))

    def _function(self, registry: UdfRegistry, table: TableSnapshot, column: NewColumn) -> UdfDefinition:
        """Return the registered function, or the function of the expression, which may not be registered yet."""
        if not column.sql_expression:
            if column.error_policy is not None:
                raise InvalidArgument(
                    "BAD_REQUEST",
                    f"column {column.name}: leave out the error policy, as a registered function has its own",
                    field="columns.error_policy",
                )
            if not column.udf_name:
                raise InvalidArgument(
                    "BAD_UDF", f"column {column.name}: set a function or a SQL expression", field="columns"
                )
            return registry.usable(column.udf_name, column.udf_version)
        if column.udf_name or column.udf_version or column.input_columns:
            raise InvalidArgument(
                "BAD_REQUEST",
                f"column {column.name}: set either a function or a SQL expression, and columns only for a function",
                field="columns.sql_expression",
            )
        names = [field.name for field in table.fields]
        expressions.check_expression(column.sql_expression, names)
        output = self._tables.expression_type(table.uri, column.sql_expression, also=pending_columns(table))
        made = sql_function_definition(
            column.sql_expression, expressions.columns_of_expression(column.sql_expression, names), output
        )
        return replace(made, error_policy=_policy(column, registry, made))

    def _check_expressions(
        self,
        table: TableSnapshot,
        registry: UdfRegistry,
        columns: Sequence[NewColumn],
        functions: Sequence[UdfDefinition],
        fields: Sequence[pa.Field],
    ) -> None:
        """Register the expressions of the columns, after all checks.

        An expression may be registered already for another table, so its type is checked for this one.
        """
        triples = list(zip(columns, functions, fields, strict=True))
        for column, udf, field in triples:
            if udf.kind is UdfKind.SQL and not column.sql_expression:
                self._check_expression(table, udf, binding.read(field))
        for column, udf, _ in triples:
            if column.sql_expression:
                registry.put(udf)

    def _check_expression(self, table: TableSnapshot, udf: UdfDefinition, bound: ColumnBinding | None) -> None:
        here = [column.name for column in bound.inputs] if bound is not None else []
        expression = expressions.rename_columns(udf.sql_expression, dict(zip(udf.input_columns, here, strict=True)))
        actual = self._tables.expression_type(table.uri, expression, also=pending_columns(table))
        if not column_checks.same_type(udf.output_type, actual):
            raise FailedPrecondition(
                "TYPE_MISMATCH",
                f"Function {udf.name} declares {udf.output_type}, `{expression}` gives {actual} on this table",
                udf=udf.name,
            )


def _policy(column: NewColumn, registry: UdfRegistry, made: UdfDefinition) -> ErrorPolicy:
    """Return the requested error policy, by default that of the registered expression."""
    if column.error_policy is not None:
        return column.error_policy
    try:
        stored = registry.find(made.name, made.version)
    except DataLoss:  # a damaged expression is registered again
        return made.error_policy
    return made.error_policy if stored is None else stored.error_policy


def _check_named(columns: Sequence[NewColumn]) -> None:
    names = [column.name for column in columns]
    if not names:
        raise InvalidArgument("BAD_REQUEST", "columns is empty: set at least one column", field="columns")
    if len(set(names)) != len(names):
        raise InvalidArgument(
            "BAD_REQUEST", f"columns has a column more than once ({', '.join(names)}): list each once", field="columns"
        )


def computed_columns(table: TableSnapshot) -> list[ComputedColumn]:
    """Return the computed columns of a table, in the order of its schema."""
    bound = [(field.name, binding.read(field.arrow)) for field in table.fields]
    return [
        ComputedColumn(
            name=name,
            udf_name=b.udf_name,
            udf_version=b.udf_version,
            input_columns=tuple(_name_now(table, i) for i in b.inputs),
            kept=b.kept,
        )
        for name, b in bound
        if b is not None
    ]


def _name_now(table: TableSnapshot, column: ColumnInput) -> str:
    found = table.find_id(column.field_id)
    return column.name if found is None else found.name


def _added_before(table: TableSnapshot, name: str, column_id: str, udf: UdfDefinition) -> pa.Field | None:
    """Return the field that an earlier call with this request id added, or None."""
    column = table.column(name)
    bound: ColumnBinding | None = None if column is None else binding.read(column.arrow)
    if bound is None or bound.column_id != column_id:
        return None
    if (bound.udf_name, bound.udf_version) != (udf.name, udf.version):
        return None
    return column_bindings.bind(column_checks.output_field(name, udf, table.file_format), bound)
