"""Views before they exist: what is checked, and the table that the commit coordinator is to make."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from leman_core.model.errors import AlreadyExists, InvalidArgument, NotFound, reused
from leman_core.model.table import TableSnapshot
from leman_core.model.view import ViewDefinition, ViewFormat, ViewFunction, ViewQuery
from leman_core.model.view_metadata import (
    MADE_BY,
    alterations,
    from_metadata,
    identity,
    made_by,
    request,
    same_id,
    write,
)
from leman_core.storage.locations import canonical_database, table_uri
from leman_core.storage.tables import LanceTables
from leman_core.storage.udf_registry import UdfRegistry
from leman_core.storage.views.definitions import definition_in
from leman_planner.catalog import check_not_scratch
from leman_planner.request_resolution import check_format
from leman_planner.views.alteration import ViewChange, alter, filled_by
from leman_planner.views.fill_state import classify
from leman_planner.views.query_resolution import resolve
from leman_planner.views.refresh_reader import not_a_view, set_rows_of
from leman_planner.views.view_listing import ViewPage, list_views

_MOST_NAME_BYTES = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Creation:
    """A validated view. The definition is in the schema's metadata."""

    uri: str
    schema: pa.Schema
    #: For the one who makes the view.
    warnings: tuple[str, ...]
    #: Whether the same request made it before.
    done: bool = False


class ViewCatalog:
    """What checks views that are to be made or altered. It holds no state: any number of threads may use one."""

    def __init__(self, tables: LanceTables, registry: Callable[[str], UdfRegistry] = UdfRegistry) -> None:
        self._tables = tables
        self._registry = registry

    def creation(
        self,
        database: str,
        name: str,
        query: ViewQuery,
        request_id: str = "",
        max_rows_per_fragment: int = 0,
        *,
        exist_ok: bool = False,
    ) -> Creation:
        """Check a view that is to be made.

        Args:
            exist_ok: A view of this name that has the same query is done, whichever request made it.

        Raises:
            LemanError: what `CatalogService.CreateMaterializedView` (protos/leman/v1/catalog.proto) names.
        """
        home = canonical_database(database, "view.database")
        check_not_scratch(name, field="view.table")
        _check_length(name)
        check_not_scratch(query.table, field="query.source.table")
        uri = table_uri(home, name, "view")
        asked = request(request_id, query, max_rows_per_fragment)
        made = self._existing(uri)
        if made is not None and not exist_ok:
            _check_same(database, name, asked, made_by(made.metadata))
        source_database = canonical_database(query.database or home, "query.source.database")
        source = self._tables.snapshot(table_uri(source_database, query.table, "query.source"))
        check_format(source)
        registry = self._registry(home)
        resolved = resolve(
            replace(query, database=source_database),
            source,
            registry.usable,
            lambda expression: self._tables.expression_type(source.uri, expression, source.version),
        )
        if query.where:
            self._tables.check_filter(source.uri, query.where)
        definition = ViewDefinition(
            query=resolved.query,
            source_uri=source.uri,
            base_version=source.version,
            base_incarnation=identity(source),
            in_own_database=source_database == home,
            format=ViewFormat.STABLE_ROW_IDS if source.stable_row_ids else ViewFormat.ADDRESSES,
            filled=filled_by(resolved.query.functions),
        )
        if made is not None and exist_ok:
            _check_same_query(name, definition, definition_in(made))
        schema = resolved.schema.with_metadata({MADE_BY: asked} if asked else None)
        warnings = _warnings(query.table, source)
        return Creation(uri=uri, schema=write(schema, definition), warnings=warnings, done=made is not None)

    def alteration(
        self, database: str, name: str, functions: Sequence[ViewFunction], request_id: str, body: str = ""
    ) -> ViewChange | None:
        """Check a change of a view's functions; None where this very request made it before.

        Args:
            body: tells the request from another one under the same id.

        Raises:
            LemanError: what `CatalogService.AlterMaterializedView` (protos/leman/v1/catalog.proto) names.
        """
        home = canonical_database(database)
        view = self._tables.snapshot(table_uri(home, name))
        definition = definition_in(view)
        if definition is None:
            raise not_a_view(name)
        known = alterations(view.metadata).get(request_id)
        if known is not None:
            if known != body:
                raise reused(request_id)
            return None
        source = self._tables.snapshot(definition.source_uri)
        has_values = bool(classify(view, set_rows_of(view)).rows_set)
        return alter(
            view,
            definition,
            functions,
            self._registry(home),
            source,
            has_values=has_values,
            request_id=request_id,
            body=body,
        )

    def views(self, database: str, after: str, size: int) -> ViewPage:
        """Return views of a database; see `leman_planner.views.view_listing.list_views`."""
        return list_views(self._tables, database, after, size)

    def _existing(self, uri: str) -> TableSnapshot | None:
        try:
            return self._tables.snapshot(uri)
        except NotFound:
            return None


def _check_same(database: str, name: str, asked: str, made: str) -> None:
    """Refuse the name of a view that exists, unless the same request made it.

    Raises:
        AlreadyExists: REQUEST_ID_REUSED where the same request id made it from another query; TABLE_EXISTS.
    """
    if asked and asked == made:
        return
    if same_id(asked, made):
        raise AlreadyExists(
            "REQUEST_ID_REUSED",
            f"'{name}' was made by this request id from another query: choose a new one",
            table=name,
        )
    raise AlreadyExists(
        "TABLE_EXISTS",
        f"'{name}' exists already in {database}: choose another name, or drop it",
        table=name,
    )


def _check_same_query(name: str, asked: ViewDefinition, made: ViewDefinition | None) -> None:
    """Refuse the name of a table, or of a view that has another query.

    Raises:
        AlreadyExists: TABLE_EXISTS.
    """
    if made is None:
        raise AlreadyExists("TABLE_EXISTS", f"'{name}' is a table: choose another name, or drop it", table=name)
    wanted, there = _query_parts(asked), _query_parts(made)
    other = [f"its {part} is {there[part]}, not {wanted[part]}" for part in wanted if wanted[part] != there[part]]
    if other:
        raise AlreadyExists(
            "TABLE_EXISTS",
            f"The view '{name}' exists with another query: {'; '.join(other)}. Alter its functions "
            "(AlterMaterializedView), drop it, or choose another name",
            table=name,
        )


def _query_parts(definition: ViewDefinition) -> dict[str, str]:
    """Return the parts of a view's query as texts."""
    query = definition.query
    functions = {function.name: function.identity for function in query.functions}
    return {
        "source": definition.source_uri,
        "columns": ", ".join(f"{column.name} = {column.expression}" for column in query.columns),
        "functions": ", ".join(f"{column} = {identity}" for column, identity in functions.items()) or "none",
        "filter": query.where or "none",
        "order": f"shuffled with seed {query.seed}" if query.shuffle else "that of the source",
        "limit": "none" if query.limit is None else str(query.limit),
        "offset": str(query.offset),
    }


def _check_length(name: str) -> None:
    """Refuse a name that is too long for the tables of a refresh: they are called by more than the view's name.

    Raises:
        InvalidArgument: BAD_TABLE_NAME.
    """
    if len(name.encode()) > _MOST_NAME_BYTES:
        raise InvalidArgument(
            "BAD_TABLE_NAME",
            f"a view's name has {_MOST_NAME_BYTES} bytes at the most, not {len(name.encode())}",
            field="view.table",
        )


def _warnings(name: str, source: TableSnapshot) -> tuple[str, ...]:
    found = []
    if not source.stable_row_ids:
        found.append(
            f"Source table '{name}' does not have stable row IDs: the materialized view can be refreshed to the same "
            f"source version only (version {source.version}). Recreate the source table with stable row IDs enabled "
            "(TableService.CreateTable does so unless told otherwise) to refresh it to others"
        )
    if from_metadata(source.metadata) is not None:
        hidden = source.live_rows - classify(source, set_rows_of(source)).rows_set
        if hidden:
            found.append(
                f"{hidden} rows of the source view '{name}' have no values yet: refresh it first, and this view then"
            )
    return tuple(found)
