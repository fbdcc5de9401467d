"""Read what the plan of a refresh needs: manifests of view and source, compactions, and writes by other programs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import structlog

from leman._format.view_definitions import IS_SET, ViewColumn, ViewDefinition
from leman_core.functions import column_checks
from leman_core.model.plan import StaleInput
from leman_core.model.plan_columns import materialize
from leman_core.model.service_errors import UNREADABLE, FailedPrecondition, InvalidArgument, LemanError, NotFound
from leman_core.model.table import Rewrite, TableSnapshot
from leman_core.model.view import MaterializedView, RefreshPlan, RefreshPolicy, RefreshSpec, ResolvedFunction
from leman_core.process.crash_points import crash_point
from leman_core.sql import expressions
from leman_core.sql.expressions import columns_read
from leman_core.storage import compaction_history, view_side_files
from leman_core.storage.lance_tables import LanceTables
from leman_core.storage.locations import canonical_database, table_uri
from leman_core.storage.manifest import collector_paused
from leman_core.storage.opening import open_version
from leman_core.storage.transactions import HOUSEKEEPING, REQUEST_IDS, Kind, Transactions, VersionGone
from leman_core.storage.udf_registry import UdfRegistry
from leman_core.storage.view_data_files import definition_in
from leman_planner.planning.column_graph import is_computed, upstream_columns
from leman_planner.planning.plan_maker import PlanMaker, measure_phase
from leman_planner.planning.stale_inputs import stale_words
from leman_planner.views.refresh_planning import (
    Case,
    classify_fragments,
    current_view_state,
    earlier_versions_text,
    foreign_fragments,
    plan_refresh,
    versions_with_values,
)
from leman_planner.views.source_changes import source_column_missing

#: The maximum number of versions that are read.
MOST_VERSIONS = 2000
#: Operations that change no row and no value.
_HARMLESS = HOUSEKEEPING | {Kind.REWRITE}


@dataclass(frozen=True, slots=True)
class ExternalWrite:
    """A version of a view that another program wrote, and its kind of Lance operation."""

    version: int
    operation: str
    #: The latest version before it whose rows Leman wrote.
    before: int


def external_write(uri: str, version: int) -> ExternalWrite | None:
    """Return the newest write by another program up to a version, since Leman last wrote rows of the view.

    An earlier refresh has checked older writes. These do not count as writes: compaction, indexes, configuration, and
    the restore of a version of the view itself.

    Returns:
        None if there is no such write, or the history was cleaned up.

    Raises:
        LemanError: See `storage_errors.unusable`.
    """
    transactions = Transactions(uri)
    at = version
    found: ExternalWrite | None = None
    for _ in range(MOST_VERSIONS):
        if at <= 1:
            return found
        try:
            transaction = transactions.read_or_tell(at)
        except VersionGone:
            return found
        ours = REQUEST_IDS in transaction.properties
        if ours and transaction.kind is not Kind.DATA_REPLACEMENT:
            return found
        if transaction.kind is Kind.RESTORE:
            at = int(transaction.operation.version)
        elif ours or transaction.kind in _HARMLESS:
            at -= 1
        else:
            at -= 1
            found = ExternalWrite(at + 1, transaction.kind, at) if found is None else replace(found, before=at)
    return found


def set_rows(uri: str, version: int, fragments: Iterable[int]) -> dict[int, int]:
    """Count the live rows with values, by fragment id. Reads one column of bits."""
    dataset = open_version(uri, version)
    found = {}
    for fragment_id in fragments:
        fragment = dataset.get_fragment(fragment_id)
        found[fragment_id] = 0 if fragment is None else int(fragment.count_rows(filter=IS_SET))
    return found


_log = structlog.get_logger(__name__)


class ViewReader:
    """Describes views and plans their refreshes. It is stateless, so any number of threads may use it."""

    def __init__(self, tables: LanceTables, registry: Callable[[str], UdfRegistry] = UdfRegistry) -> None:
        self._tables = tables
        self._registry = registry
        self._plans = PlanMaker(tables, registry=registry)

    def plan(self, spec: RefreshSpec) -> RefreshPlan:
        """Plan a refresh of a view.

        Raises:
            LemanError: See `PlanningService.PlanRefresh` (protos/leman/internal/v1/planning.proto).
        """
        _check_spec(spec)
        with collector_paused():
            with measure_phase("refresh", "table"):
                view, definition = self._open(spec.database, spec.view)
                target = self._source(definition, spec.src_version)
                case = self._case(view, spec, definition, target)
                if case.base is None:
                    self._check_expressions(definition, target, view)
                functions = self._functions(spec.database, definition)
            with measure_phase("refresh", "files"):
                _check_external(view, spec.policy)
                rows_set = set_rows_of(view)
            with measure_phase("refresh", "decide"):
                plan = plan_refresh(case, functions, rows_set)
            with measure_phase("refresh", "stored"):
                earlier = tuple(
                    versions_with_values(plan, case, partial(self._recall, view), partial(self._case, view, spec))
                )
            with measure_phase("refresh", "inputs"):
                in_view = _stale_of_view(definition, target)
                stale = (*in_view, *self._stale_inputs(definition, target))
            message = "; ".join(
                [plan.message + earlier_versions_text(earlier), *stale_words(stale, spec.on_stale_input)]
            )
            plan = replace(
                plan,
                state=current_view_state(case),
                earlier=earlier,
                message=message,
                stale_inputs=stale,
                stale_in_source_view=bool(in_view),
            )
        crash_point("planner.refresh_planned")
        return plan

    def view(self, database: str, name: str) -> MaterializedView:
        """Describe the latest version of a view.

        Raises:
            NotFound: TABLE_NOT_FOUND.
            FailedPrecondition: NOT_A_VIEW.
        """
        view, definition = self._open(database, name)
        rows = classify_fragments(view, set_rows_of(view)).rows_set
        return MaterializedView(
            uri=view.uri,
            name=name,
            version=view.version,
            definition=definition,
            schema=view.schema,
            row_count=view.live_rows,
            rows_set=rows,
        )

    def _open(self, database: str, name: str) -> tuple[TableSnapshot, ViewDefinition]:
        view = _made(self._tables.snapshot(table_uri(database, name)))
        definition = definition_in(view)
        if definition is None:
            raise not_a_view(name)
        return view, definition

    def _case(self, view: TableSnapshot, spec: RefreshSpec, definition: ViewDefinition, target: TableSnapshot) -> Case:
        base = target if target.version == definition.base_version else self._base(definition)
        recorded = None if base is not None else self._recorded(view.uri, definition)
        compactions = partial(_compactions, definition, target)
        return Case(view, definition, base or recorded, target, spec, compactions, from_record=recorded is not None)

    def _stale_inputs(self, definition: ViewDefinition, source: TableSnapshot) -> tuple[StaleInput, ...]:
        """Return the stale computed columns that a view depends on, each before its readers.

        A column is not stale because of rows outside the view's filter, unless the filter itself reads a stale column.
        """
        query = definition.query
        read = columns_read(query, [field.name for field in source.fields])
        graph = {name: [*upstream_columns(source, name)] for name in read if is_computed(source, name)}
        if not graph:
            return ()
        names = dict.fromkeys(each for name, before in graph.items() for each in (*before, name))
        stale_inputs = self._plans.stale_inputs(query.database)
        found = stale_inputs.of_columns(source, list(names))
        filtering = {
            each for name in expressions.columns_of_expression(query.where, graph) for each in (*graph[name], name)
        }
        if found and query.where and filtering.isdisjoint(each.column for each in found):
            found = stale_inputs.of_columns(source, [each.column for each in found], query.where)
        return found

    def _recall(self, view: TableSnapshot, version: int) -> ViewDefinition | None:
        try:
            return definition_in(self._tables.snapshot(view.uri, version))
        except (NotFound, *UNREADABLE):
            return None

    def _source(self, definition: ViewDefinition, version: int) -> TableSnapshot:
        try:
            return _made(self._tables.snapshot(definition.source_uri, version))
        except NotFound as error:
            if error.reason != "TABLE_NOT_FOUND":
                raise
            raise NotFound(
                error.reason,
                f"The view's source '{definition.query.table}' is no longer in {definition.query.database}: restore "
                "it under that name, or drop the view",
                uri=definition.source_uri,
            ) from None

    def _base(self, definition: ViewDefinition) -> TableSnapshot | None:
        try:
            return _made(self._tables.snapshot(definition.source_uri, definition.base_version))
        except NotFound:
            return None

    def _recorded(self, view: str, definition: ViewDefinition) -> TableSnapshot | None:
        found = view_side_files.read_source_record(view, definition.base_record, definition.source_uri)
        return None if found is None else found.snapshot

    def _functions(self, database: str, definition: ViewDefinition) -> list[ResolvedFunction]:
        if not definition.query.functions:
            return []
        registry = self._registry(canonical_database(database))
        found = []
        for column in definition.query.functions:
            udf = registry.usable(column.udf_name, column.udf_version)
            found.append(ResolvedFunction(column, udf, registry.bundle_uri(udf)))
        return found

    def _check_expressions(self, definition: ViewDefinition, target: TableSnapshot, view: TableSnapshot) -> None:
        """If the last refresh's source version is gone, check expressions and filter on the target version."""
        for column in definition.query.columns:
            if not column.source_column:
                self._check_expression(column, target, view)
        if definition.query.where:
            self._tables.check_filter(target.uri, definition.query.where, is_stored=True)

    def _check_expression(self, column: ViewColumn, target: TableSnapshot, view: TableSnapshot) -> None:
        try:
            found = self._tables.expression_type(target.uri, column.expression, target.version, is_stored=True)
        except LemanError as error:
            if error.reason != "INPUT_COLUMN_MISSING":
                raise
            raise source_column_missing(column.expression, target, None) from None
        own = view.column(column.name)
        if own is not None and not column_checks.same_type(own.arrow.type, found):
            raise FailedPrecondition(
                "TYPE_MISMATCH",
                f"Type mismatch for column {column.name}: `{column.expression}` was {own.arrow.type}; in version "
                f"{target.version} of the source it is {found}. Drop the view and create it again",
                column=column.name,
            )


def _made(table: TableSnapshot) -> TableSnapshot:
    """Return the table with its fragments in a form that is cheap to read repeatedly."""
    return replace(table, fragments=materialize(table.fragments))


def not_a_view(name: str) -> FailedPrecondition:
    """Return the error for a table that is not a view."""
    return FailedPrecondition("NOT_A_VIEW", f"Table '{name}' is not a materialized view: it has no query", table=name)


def _check_spec(spec: RefreshSpec) -> None:
    numbers = {
        "src_version": spec.src_version,
        "max_rows_per_fragment": spec.max_rows_per_fragment,
        "concurrency": spec.concurrency,
    }
    for name, number in numbers.items():
        if number < 0:
            raise InvalidArgument("BAD_NUMBER", f"{name} is {number}; it cannot be negative", field=f"spec.{name}")


def _check_external(view: TableSnapshot, policy: RefreshPolicy) -> None:
    """Reject a refresh of a view to which another program wrote. A full refresh is allowed, because it reuses no row.

    Raises:
        FailedPrecondition: EXTERNAL_WRITES.
    """
    if policy is RefreshPolicy.FULL:
        return
    found = external_write(view.uri, view.version)
    if found is not None:
        raise FailedPrecondition(
            "EXTERNAL_WRITES",
            f"Version {found.version} of the view was not written by Leman ({found.operation}), so its rows may not "
            f"match its query. Restore version {found.before}, or refresh with POLICY_FULL",
            version=found.version,
            operation=found.operation,
        )


def _compactions(definition: ViewDefinition, target: TableSnapshot) -> Sequence[Rewrite]:
    """Return the source's compactions since the last refresh's version, or () if they cannot be read."""
    older, newer = sorted([definition.base_version, target.version])
    try:
        return compaction_history.compactions_between(
            target.uri, older, newer, compaction_history.versions_to_look_at(len(target.fragments))
        )
    except LemanError as error:
        _log.warning("history cannot be read", uri=target.uri, version=newer, error=error.message)
        return ()


def set_rows_of(view: TableSnapshot) -> dict[int, int]:
    """Count the rows with values in `foreign_fragments` of a view, by fragment id."""
    if view.column(IS_SET) is None:  # the column was dropped
        return {}
    others: Sequence[int] = [fragment.fragment_id for fragment in foreign_fragments(view)]
    return set_rows(view.uri, view.version, others) if others else {}


def _stale_of_view(definition: ViewDefinition, source: TableSnapshot) -> tuple[StaleInput, ...]:
    """Return the function columns of a source view whose values another function computed."""
    below = definition_in(source)
    read = columns_read(definition.query, [field.name for field in source.fields]) if below is not None else ()
    stale = [name for name in below.stale if name in read] if below is not None else []
    if not stale:
        return ()
    rows = classify_fragments(source, set_rows_of(source)).rows_set
    return tuple(StaleInput(name, rows) for name in stale if rows)
