"""Check requests to create or alter views, prepare what the commit coordinator then writes, and list views."""

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

#: The maximum number of tables that one page reads, because each one needs its manifest.
MOST_TABLES = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewPage:
    """One page of views."""

    views: tuple[ViewSummary, ...]
    #: Messages about tables that could not be read.
    warnings: tuple[str, ...]
    #: The last table of the page, or "" if there are no more.
    last: str


def list_views(tables: LanceTables, database: str, after: str, size: int) -> ViewPage:
    """Return at most `size` views with names after `after`, from at most `MOST_TABLES` tables.

    Raises:
        LemanError: See `CatalogService.ListMaterializedViews` (protos/leman/v1/catalog.proto).
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
        except NotFound:  # the table was dropped meanwhile
            continue
        except (DataLoss, FailedPrecondition) as error:
            warnings.append(f"{name}: {error.message}")
            continue
        except (InvalidArgument, PermissionDenied):  # the error's message may reveal the target of a link
            warnings.append(f"{name}: it is a link to a location that this service may not use. Remove the link")
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


_KEEP_TYPE = "A column of a view keeps its type: create another view, or cast the function's result"


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewChange:
    """New metadata of a view, which the commit coordinator writes on top of a certain version."""

    uri: str
    incarnation: str
    version: int
    request_id: str
    #: Empty if nothing changes.
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
    """Check the new functions of a view's columns and return the view's new metadata.

    Args:
        view: The view.
        definition: Its definition.
        functions: The new function of each column. One that lists no inputs reads the column's present inputs, or its
            own default ones.
        registry: The function registry.
        source: The latest version of the source.
        has_values: Whether any row of the view has been filled.
        request_id: The id of the request.
        body: Distinguishes the request from a different one that reuses its id.

    Raises:
        LemanError: See `CatalogService.AlterMaterializedView` (protos/leman/v1/catalog.proto).
    """
    names = [function.name for function in functions]
    if not names or len(set(names)) < len(names):
        text = f"functions must name each column once: {', '.join(names)}"
        raise InvalidArgument("BAD_REQUEST", text, field="functions")
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
    """Return `ViewDefinition.filled` for columns that these functions computed."""
    return {function.name: f"{function.udf_name}@{function.udf_version}" for function in functions}


def _altered(
    view: TableSnapshot, definition: ViewDefinition, wanted: ViewFunction, registry: UdfRegistry, source: TableSnapshot
) -> ViewDefinition:
    before = next((f for f in definition.query.functions if f.name == wanted.name), None)
    own = view.column(wanted.name)
    if before is None or own is None:
        raise FailedPrecondition(
            "COLUMN_NOT_DEFINED",
            f"Column {wanted.name} is not defined in this view: no function of its query computes it",
            column=wanted.name,
        )
    udf = _function(wanted, registry)
    inputs = wanted.inputs or _kept(before, udf, registry)
    after = ViewFunction(wanted.name, udf.name, udf.version, inputs)
    after = replace(after, inputs=inputs_of(after, udf, source))
    column_checks.check_output_type(own, udf, _KEEP_TYPE)
    functions = tuple(after if f.name == wanted.name else f for f in definition.query.functions)
    filled = definition.filled
    if after.inputs != before.inputs:  # `filled` has only name and version of a function
        filled = {name: by for name, by in filled.items() if name != wanted.name}
    return replace(definition, query=replace(definition.query, functions=functions), filled=filled)


def _function(wanted: ViewFunction, registry: UdfRegistry) -> UdfDefinition:
    udf = registry.usable(wanted.udf_name, wanted.udf_version)
    if udf.kind is UdfKind.SQL:
        raise InvalidArgument(
            "BAD_REQUEST",
            f"column {wanted.name}: function {udf.name} is SQL, which is part of a view's query. Create another view",
            field="functions.udf",
        )
    return udf


def _kept(before: ViewFunction, udf: UdfDefinition, registry: UdfRegistry) -> tuple[str, ...]:
    """Return the column's inputs if the new function's parameters have the same names, or else () for its own."""
    own = registry.find_expected(before.udf_name, before.udf_version)
    return before.inputs if own is not None and own.input_columns == udf.input_columns else ()


_MOST_NAME_BYTES = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Creation:
    """A checked view. Its definition is in the schema's metadata."""

    uri: str
    schema: pa.Schema
    #: Messages for the caller.
    warnings: tuple[str, ...]
    #: Whether an earlier call of the same request created the view.
    done: bool = False


class ViewCatalog:
    """Checks new and altered views. It is stateless, so any number of threads may use it."""

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
        """Check a new view. With `exist_ok`, a view of this name with the same query counts as created.

        Raises:
            LemanError: See `CatalogService.CreateMaterializedView` (protos/leman/v1/catalog.proto).
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
            self._tables.check_filter(source.uri, query.where, on_a_row=True)
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
        """Check a change of a view's functions. Return None if an earlier call of this request made it.

        Raises:
            LemanError: See `CatalogService.AlterMaterializedView` (protos/leman/v1/catalog.proto).
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
        """Return views of a database; see `list_views`."""
        return list_views(self._tables, database, after, size)

    def _existing(self, uri: str) -> TableSnapshot | None:
        try:
            return self._tables.snapshot(uri)
        except NotFound:
            return None


def _check_same(database: str, name: str, asked: str, made: str) -> None:
    """Reject the name of an existing view, unless the same request created it.

    Raises:
        AlreadyExists: REQUEST_ID_REUSED – a request with this id created the view from another query; TABLE_EXISTS.
    """
    if asked and asked == made:
        return
    if same_id(asked, made):
        raise AlreadyExists(
            "REQUEST_ID_REUSED",
            f"This request id created '{name}' from another query: use a new request id",
            table=name,
        )
    raise AlreadyExists(
        "TABLE_EXISTS",
        f"'{name}' already exists in {database}: choose another name, or drop it",
        table=name,
    )


def _check_same_query(name: str, asked: ViewDefinition, made: ViewDefinition | None) -> None:
    """Reject the name of a table, or of a view with another query.

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
    """Return the parts of a view's query as text."""
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
    """Reject a name that a new table cannot have, or that is too long for the scratch tables of refreshes.

    Raises:
        InvalidArgument: BAD_TABLE_NAME.
    """
    if name and not name[0].isalnum():
        raise InvalidArgument(
            "BAD_TABLE_NAME",
            f"'{excerpt(name)}' is not a valid name of a view: it must begin with a letter or a digit",
            field="view.table",
        )
    if len(name.encode()) > _MOST_NAME_BYTES:
        raise InvalidArgument(
            "BAD_TABLE_NAME",
            f"The name has {len(name.encode())} bytes; a view's name may have at most {_MOST_NAME_BYTES}",
            field="view.table",
        )


def _warnings(name: str, source: TableSnapshot) -> tuple[str, ...]:
    found = []
    if not source.stable_row_ids:
        found.append(
            f"Source table '{name}' does not have stable row IDs: the materialized view can be refreshed to the same "
            f"source version only (version {source.version}). Recreate the source table with stable row IDs enabled "
            "(the default of TableService.CreateTable) to refresh it to others"
        )
    if from_metadata(source.metadata) is not None:
        hidden = source.live_rows - classify_fragments(source, set_rows_of(source)).rows_set
        if hidden:
            found.append(
                f"{hidden} rows of the source view '{name}' have no values yet: refresh it first, then this view"
            )
    return tuple(found)
