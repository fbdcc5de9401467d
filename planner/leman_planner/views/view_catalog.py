"""Views before they exist and afterwards: creation, alteration, lists.

The views of a database: which of its tables are views, and what can be told of them without reading rows.

Function columns of a view get other functions: what is checked, and what the view's metadata then says.

Views before they exist: what is checked, and the table that the commit coordinator is to make.
"""

from __future__ import annotations

import uuid
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from leman._format.stored_functions import UdfDefinition, UdfKind
from leman._format.view_definitions import ViewDefinition, ViewFormat, ViewFunction, ViewQuery, with_query, write
from leman_core.functions import column_checks
from leman_core.model.service_errors import (
    AlreadyExists,
    DataLoss,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    excerpt,
    reused_request_id,
)
from leman_core.model.table import TableSnapshot
from leman_core.model.view import SCRATCH_PREFIX, ViewSummary
from leman_core.model.view_metadata import (
    MADE_BY,
    alterations,
    from_metadata,
    made_by,
    request,
    same_id,
    with_alteration,
)
from leman_core.storage.lance_tables import LanceTables
from leman_core.storage.locations import canonical_database, table_uri
from leman_core.storage.udf_registry import UdfRegistry
from leman_core.storage.view_data_files import definition_in
from leman_planner.catalog.table_catalog import check_not_scratch
from leman_planner.planning.request_resolution import check_format
from leman_planner.views.query_resolution import inputs_of, resolve_query
from leman_planner.views.refresh_planning import classify_fragments, foreign_fragments
from leman_planner.views.refresh_reader import not_a_view, set_rows_of

#: Tables that are looked at for one page: each takes a manifest to be read.
MOST_TABLES = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewPage:
    """What one call tells."""

    views: tuple[ViewSummary, ...]
    #: Of tables that could not be looked at, for people.
    warnings: tuple[str, ...]
    #: The table that was looked at last, where there are more; empty: there are none.
    last: str


def list_views(tables: LanceTables, database: str, after: str, size: int) -> ViewPage:
    """Return views by name, those after `after`: `size` at the most, and those of `MOST_TABLES` tables.

    Raises:
        LemanError: what `CatalogService.ListMaterializedViews` (protos/leman/v1/catalog.proto) names.
    """
    home = canonical_database(database)
    names = [name for name in tables.list_tables(home) if not name.startswith(SCRATCH_PREFIX)]
    first = bisect_right(names, after)
    found: list[ViewSummary] = []
    warnings: list[str] = []
    looked = first
    for name in names[first : first + MOST_TABLES]:
        if len(found) == size:
            break
        looked += 1
        try:
            summary = _summary(name, tables.snapshot(table_uri(home, name)))
        except NotFound:  # dropped meanwhile
            continue
        except (DataLoss, FailedPrecondition) as error:
            warnings.append(f"{name}: {error.message}")
            continue
        except (InvalidArgument, PermissionDenied):  # which may say where it leads
            warnings.append(f"{name}: it is a link to where this service may not work: remove the link")
            continue
        if summary is not None:
            found.append(summary)
    last = names[looked - 1] if looked < len(names) else ""
    return ViewPage(views=tuple(found), warnings=tuple(warnings), last=last)


def _summary(name: str, table: TableSnapshot) -> ViewSummary | None:
    definition = definition_in(table)
    if definition is None:
        return None
    return ViewSummary(
        uri=table.uri,
        name=name,
        version=table.version,
        definition=definition,
        row_count=table.live_rows,
        rows_set=None if foreign_fragments(table) else classify_fragments(table, {}).rows_set,
    )


_KEEP_TYPE = "A column of a view keeps its type: make another view, or cast the function's result"


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewChange:
    """What the commit coordinator is to write into a view's metadata, on top of a version."""

    uri: str
    incarnation: str
    version: int
    request_id: str
    #: Empty: there is nothing to write.
    metadata: dict[str, str]


def alter_view(
    view: TableSnapshot,
    definition: ViewDefinition,
    functions: Sequence[ViewFunction],
    registry: UdfRegistry,
    source: TableSnapshot,
    *,
    has_values: bool,
    request_id: str,
    body: str,
) -> ViewChange:
    """Check the new functions of a view's columns and return what its metadata is to say.

    Args:
        functions: of columns that the view has, by name; without inputs, those of the column or of the function.
        source: its latest version.
        has_values: whether any row of the view has been filled.
        body: tells the request from another one under the same id.

    Raises:
        LemanError: what `CatalogService.AlterMaterializedView` (protos/leman/v1/catalog.proto) names.
    """
    names = [function.name for function in functions]
    if not names or len(set(names)) < len(names):
        raise InvalidArgument("BAD_REQUEST", f"name each column once: {', '.join(names)}", field="functions")
    changed = definition
    for function in functions:
        changed = _altered(view, changed, function, registry, source)
    if not has_values:
        changed = replace(changed, filled=filled_by(changed.query.functions))
    metadata = with_query(changed) if changed != definition else {}
    if metadata and request_id:
        metadata |= with_alteration(view.metadata, request_id, body)
    return ViewChange(
        uri=view.uri,
        incarnation=view.incarnation,
        version=view.version,
        request_id=request_id or uuid.uuid4().hex,
        metadata=metadata,
    )


def filled_by(functions: Sequence[ViewFunction]) -> dict[str, str]:
    """Return what `ViewDefinition.filled` says where these functions computed their columns."""
    return {function.name: f"{function.udf_name}@{function.udf_version}" for function in functions}


def _altered(
    view: TableSnapshot, definition: ViewDefinition, wanted: ViewFunction, registry: UdfRegistry, source: TableSnapshot
) -> ViewDefinition:
    before = next((f for f in definition.query.functions if f.name == wanted.name), None)
    own = view.column(wanted.name)
    if before is None or own is None:
        raise FailedPrecondition(
            "COLUMN_NOT_DEFINED",
            f"Column {wanted.name} is not defined in this table: no function of the view's query computes it",
            column=wanted.name,
        )
    udf = _function(wanted, registry)
    inputs = wanted.inputs or _kept(before, udf, registry)
    after = ViewFunction(wanted.name, udf.name, udf.version, inputs)
    after = replace(after, inputs=inputs_of(after, udf, source))
    column_checks.check_output_type(own, udf, _KEEP_TYPE)
    functions = tuple(after if f.name == wanted.name else f for f in definition.query.functions)
    filled = definition.filled
    if after.inputs != before.inputs:  # what filled it is known by name and version only
        filled = {name: by for name, by in filled.items() if name != wanted.name}
    return replace(definition, query=replace(definition.query, functions=functions), filled=filled)


def _function(wanted: ViewFunction, registry: UdfRegistry) -> UdfDefinition:
    udf = registry.usable(wanted.udf_name, wanted.udf_version)
    if udf.kind is UdfKind.SQL:
        raise InvalidArgument(
            "BAD_REQUEST",
            f"column {wanted.name}: function {udf.name} is SQL, which is part of a view's query. Make another view",
            field="functions.udf",
        )
    return udf


def _kept(before: ViewFunction, udf: UdfDefinition, registry: UdfRegistry) -> tuple[str, ...]:
    """Return the column's inputs where they hold for the new function, which has the same parameter names.

    Empty: the inputs are as the function names them.
    """
    own = registry.find_expected(before.udf_name, before.udf_version)
    return before.inputs if own is not None and own.input_columns == udf.input_columns else ()


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
        _check_view_name(name)
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
        resolved = resolve_query(
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
            base_incarnation=source.identity,
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
                raise reused_request_id(request_id)
            return None
        source = self._tables.snapshot(definition.source_uri)
        has_values = bool(classify_fragments(view, set_rows_of(view)).rows_set)
        return alter_view(
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
        """Return views of a database; see `leman_planner.views.view_catalog.list_views`."""
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


def _check_view_name(name: str) -> None:
    """Refuse a name that no new table may have, or that is too long for the tables of a refresh.

    They are called by more than the view's name.

    Raises:
        InvalidArgument: BAD_TABLE_NAME.
    """
    if name and not name[0].isalnum():
        raise InvalidArgument(
            "BAD_TABLE_NAME",
            f"'{excerpt(name)}' is no name for a view: it begins with a letter or digit",
            field="view.table",
        )
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
        hidden = source.live_rows - classify_fragments(source, set_rows_of(source)).rows_set
        if hidden:
            found.append(
                f"{hidden} rows of the source view '{name}' have no values yet: refresh it first, and this view then"
            )
    return tuple(found)
