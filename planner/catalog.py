"""Tables and their computed columns: what is checked before a column is added, and what a table is."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from core import keys
from core.domain.table import TableSnapshot
from core.domain.udf import ColumnBinding, UdfDefinition
from core.errors import InvalidArgument
from core.lance_io.tables import LanceTables, normalise_database, table_uri
from core.udf import binding, validation
from core.udf.registry import UdfRegistry
from core.udf.validation import NewColumn


@dataclass(frozen=True, slots=True)
class Addition:
    """Validated columns that the commit coordinator is to add."""

    uri: str
    request_id: str
    schema: pa.Schema


@dataclass(frozen=True, slots=True)
class ComputedColumn:
    """A column and the function that computes it; inputs by the names that they have now."""

    name: str
    udf_name: str
    udf_version: str
    input_columns: tuple[str, ...]


class Catalog:
    """Holds no state: any number of threads may use one."""

    def __init__(self, tables: LanceTables, registry: Callable[[str], UdfRegistry] = UdfRegistry) -> None:
        self._tables = tables
        self._registry = registry

    def registry(self, database: str) -> UdfRegistry:
        """The functions of a database."""
        return self._registry(normalise_database(database))

    def table(self, database: str, table: str) -> TableSnapshot:
        """The latest version of a table."""
        return self._tables.snapshot(table_uri(database, table))

    def tables(self, database: str) -> list[str]:
        """Names of the tables of a database, sorted."""
        return self._tables.list_tables(database)

    def addition(self, database: str, table: str, columns: Sequence[NewColumn], request_id: str) -> Addition:
        """Checks all columns. Column ids follow from the request id, so that a repetition asks for the same.

        Raises what `CatalogService.AddColumns` (protos/leman/v1/catalog.proto) names.
        """
        names = [column.name for column in columns]
        if not names or len(set(names)) != len(names):
            problem = "name at least one column" if not names else "a column is named twice"
            raise InvalidArgument("BAD_REQUEST", f"{problem}: {', '.join(names)}", field="columns")
        snapshot = self.table(database, table)
        registry = self.registry(database)
        asked = request_id or uuid.uuid4().hex
        fields = []
        for column in columns:
            udf = registry.get(column.udf_name, column.udf_version)
            column_id = keys.md5(f"{snapshot.uri}\n{asked}\n{column.name}")
            added = _added_before(snapshot, column.name, column_id, udf)
            fields.append(added or validation.new_field(column, udf, snapshot, column_id))
        return Addition(snapshot.uri, asked, pa.schema(fields))


def computed_columns(table: TableSnapshot) -> list[ComputedColumn]:
    """The computed columns of a table, in the order of its schema."""
    bound = [(field.name, binding.read(field.arrow)) for field in table.fields]
    names = {field.field_id: field.name for field in table.fields}
    return [
        ComputedColumn(name, b.udf_name, b.udf_version, tuple(names.get(i.field_id, i.name) for i in b.inputs))
        for name, b in bound
        if b is not None
    ]


def _added_before(table: TableSnapshot, name: str, column_id: str, udf: UdfDefinition) -> pa.Field | None:
    """The field as an earlier call with the same request id asked for it."""
    column = table.column(name)
    bound: ColumnBinding | None = None if column is None else binding.read(column.arrow)
    if bound is None or bound.column_id != column_id:
        return None
    if (bound.udf_name, bound.udf_version) != (udf.name, udf.version):
        return None
    return binding.bind(pa.field(name, udf.output_type, nullable=True), bound)
