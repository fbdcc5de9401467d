"""Compare requested columns with a table's columns, and estimate backfills by the run times of earlier ones."""

from __future__ import annotations

import contextlib
import itertools
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import structlog

from leman._format import column_bindings
from leman._format.column_bindings import ColumnBinding, FunctionVersion
from leman._format.stored_functions import UdfDefinition
from leman._format.stored_logs import JOBS, sql_quoted
from leman_core.functions import binding, column_checks
from leman_core.functions.column_checks import NewColumn
from leman_core.model.service_errors import UNREADABLE, DataLoss, FailedPrecondition, LemanError
from leman_core.model.table import TableField, TableSnapshot
from leman_core.storage import stored_jobs
from leman_core.storage.append_log import AppendLog
from leman_core.storage.locations import canonical_database
from leman_planner.catalog import column_changes, table_catalog
from leman_planner.catalog.column_changes import ColumnOutcome, OnChange, Outcome, RunTime, run_time
from leman_planner.catalog.table_catalog import KEEP_TYPE, Addition, Catalog, id_of_added
from leman_planner.planning.column_graph import with_columns
from leman_planner.planning.plan_maker import Forecast, PlanMaker
from leman_planner.planning.request_resolution import defined_column

_log = structlog.get_logger(__name__)

#: The maximum number of stored job states that are read, newest first. Each job has a few of them.
_LOOKED_AT = 200


def expected_seconds(database: str, table: str, column: str, rows: int) -> float | None:
    """Estimate the seconds for computing `rows` rows of a column. Return None for no rows, or if the time is unknown.

    The time is unknown if the job history cannot be read.
    """
    if not rows:
        return None
    try:
        found = last_run_time(database, table, column)
    except LemanError as error:
        _log.warning("the job history cannot be read", database=database, error=error.message)
        return None
    return None if found is None else found.of(rows)


def last_run_time(database: str, table: str, column: str) -> RunTime | None:
    """Return the run time of the last backfills of a column, as many as an estimate needs; None if too few rows were
    computed.

    Raises:
        LemanError: See `storage_errors.failed`.
        DataLoss: The history cannot be read.
    """
    uri = canonical_database(database)
    tail = stored_jobs.tail_records(uri)
    log = AppendLog(f"{uri}/{JOBS}", pa.schema([]), called=f"The job history of {uri}")
    rows = log.read(["record"], f"`table` = {sql_quoted(table)} AND `column` = {sql_quoted(column)}")
    total = RunTime()
    for record in itertools.chain(reversed(tail), (str(row["record"]) for row in rows[: -_LOOKED_AT - 1 : -1])):
        try:
            job = stored_jobs.decode_job(record)
        except UNREADABLE:  # skip this state and use an earlier one
            continue
        if (job.request.table, job.column) != (table, column):
            continue
        if (found := run_time(job)) is not None:
            total += found
            if total.is_enough:
                return total
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnRequest:
    """A request for columns of one table."""

    database: str
    table: str
    columns: Sequence[NewColumn]
    on_change: OnChange
    request_id: str
    #: Distinguishes the request from a different one that reuses its id.
    body: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnWork:
    """The commits to make, in order, and the outcomes to report afterwards."""

    #: The table's version when it was compared. It is reported if there is nothing to commit.
    version: int
    changed: Addition | None
    added: Addition | None
    outcomes: tuple[ColumnOutcome, ...]


@dataclass(frozen=True, slots=True)
class _Existing:
    asked: NewColumn
    field: TableField
    bound: ColumnBinding
    udf: UdfDefinition
    inputs: tuple[TableField, ...]


class ColumnRequests:
    """Compares requested columns with those of a table. It is stateless."""

    def __init__(
        self,
        catalog: Catalog,
        plans: PlanMaker,
        expected: Callable[[str, str, str, int], float | None] = expected_seconds,
    ) -> None:
        self._catalog = catalog
        self._plans = plans
        self._expected = expected

    def work(self, request: ColumnRequest) -> ColumnWork:
        """Return the commits by which the table gets the columns.

        Raises:
            LemanError: See `CatalogService.AddColumns` (protos/leman/v1/catalog.proto).
        """
        asked = request.request_id or uuid.uuid4().hex
        request = replace(request, request_id=asked)
        table = self._catalog.checked_table(request.database, request.table, request.columns)
        binding.check_request((field.arrow for field in table.fields), asked, request.body)
        new = [column for column in request.columns if not self._is_there(request, table, column)]
        place = (request.database, request.table)
        to_add = self._catalog.addition(*place, new, asked, request.body) if new else None
        fields = [] if to_add is None else list(to_add.schema)
        outcomes, changed = self._compared(request, with_columns(table, fields), fields)
        if request.on_change is OnChange.ERROR:
            _refuse_changed(outcomes)
        to_change = self._catalog.alteration(*place, changed, asked, request.body, fields) if changed else None
        if to_add is not None and to_change is not None:  # the coordinator accepts a request id for one operation
            to_change = replace(to_change, request_id=f"{to_change.request_id}-changed")
        return ColumnWork(version=table.version, changed=to_change, added=to_add, outcomes=tuple(outcomes))

    def alteration_outcomes(
        self, database: str, table: str, columns: Sequence[NewColumn], wanted: Addition
    ) -> list[ColumnOutcome]:
        """Return the outcomes of an alteration before it is committed, or no outcomes if they cannot be determined.

        Args:
            database: The database.
            table: The table before the alteration.
            columns: The arguments of `Catalog.alteration`.
            wanted: Its result.
        """
        with contextlib.suppress(LemanError):  # a failure must not prevent the alteration
            snapshot, registry = self._catalog.table(database, table), self._catalog.registry(database)
            outcomes = []
            for column, field in zip(columns, wanted.schema, strict=True):
                if (now := binding.read(field)) is None:
                    raise TypeError(f"column {field.name} was not bound")
                existing, bound = defined_column(snapshot, column.name)
                udf = registry.usable(now.udf_name, now.udf_version)
                inputs = tuple(filter(None, (snapshot.find_id(known.field_id) for known in now.inputs)))
                request = ColumnRequest(
                    database=database,
                    table=table,
                    columns=columns,
                    on_change=OnChange.KEEP if column.keep_values else OnChange.UPDATE,
                    request_id=wanted.request_id,
                    body="",
                )
                outcome = self._outcome(request, snapshot, _Existing(column, existing, bound, udf, inputs))
                # Values of several functions cannot be restored by one alteration, and those of expressions are cheap.
                can_keep = outcome.can_keep and not bound.kept and bound.udf_name != table_catalog.SQL_FUNCTION_NAME
                outcomes.append(replace(outcome, on_change=None, can_keep=can_keep))
            return outcomes
        return []

    def _is_there(self, request: ColumnRequest, table: TableSnapshot, column: NewColumn) -> bool:
        """Return whether a column exists. A column that an earlier try of this request created does not count."""
        field = table.column(column.name)
        bound = None if field is None else binding.read(field.arrow)
        if bound is None or request.on_change is OnChange.REFUSE_ANY:
            return False
        return bound.column_id != id_of_added(table.uri, request.request_id, column.name)

    def _compared(
        self, request: ColumnRequest, table: TableSnapshot, new: Sequence[pa.Field]
    ) -> tuple[list[ColumnOutcome], list[NewColumn]]:
        """Return the outcomes for the existing columns, and those requested columns whose definition changes."""
        added = {field.name: field for field in new}
        outcomes: list[ColumnOutcome] = []
        changed: list[NewColumn] = []
        for column in request.columns:
            if column.name in added:
                outcomes.append(_added(added[column.name], table))
                continue
            existing = self._existing(request, table, column)
            outcomes.append(self._outcome(request, table, existing))
            if outcomes[-1].outcome is not Outcome.UNCHANGED:
                names = () if column.sql_expression else tuple(field.name for field in existing.inputs)
                keep = request.on_change is OnChange.KEEP
                changed.append(replace(column, input_columns=names, keep_values=keep))
        return outcomes, changed

    def _existing(self, request: ColumnRequest, table: TableSnapshot, column: NewColumn) -> _Existing:
        field, bound = defined_column(table, column.name)
        udf = self._catalog.function(request.database, table, column)
        inputs = column_changes.inputs_asked(column, udf, bound, table)
        column_checks.check_output_type(field, udf, KEEP_TYPE)
        return _Existing(column, field, bound, udf, inputs)

    def _outcome(self, request: ColumnRequest, table: TableSnapshot, existing: _Existing) -> ColumnOutcome:
        column, udf, bound = existing.asked.name, existing.udf, existing.bound
        function = FunctionVersion(udf.name, udf.version)
        kept = request.on_change is OnChange.KEEP
        if binding.was_made_by(existing.field.arrow, request.request_id):
            return ColumnOutcome(column=column, outcome=Outcome.KEPT if kept else Outcome.UPDATED, function=function)
        gives_up = request.on_change is OnChange.UPDATE and bool(bound.kept)  # values that an earlier "keep" kept
        if column_changes.is_same(udf, existing.inputs, bound, table) and not gives_up:
            return ColumnOutcome(column=column, outcome=Outcome.UNCHANGED, function=function)
        before = self._function_before(request.database, bound)
        planned = self._plan_after(table, existing, kept=kept)
        after = planned.header
        stale, first = column_changes.rows_by_need(after)
        lost, stored, asks = 0, 0, not kept and before is not None
        if before is not None and not kept:
            with contextlib.suppress(FailedPrecondition):  # an input of the present function is gone
                lost, stored = column_changes.rows_lost(self._plans.forecast(table, column, before).header, after)
        return ColumnOutcome(
            column=column,
            outcome=Outcome.KEPT if kept else Outcome.UPDATED,
            function=function,
            before=bound.function,
            diff=column_changes.source_diff(before, udf),
            rows_stale=stale,
            rows_not_computed=first - stored,
            rows_stored=stored,
            rows_lost=lost,
            rows_found=planned.rows_found,
            rows_compared=planned.rows_compared,
            can_keep=bool(lost) and _can_keep(table, existing),
            inputs_before=tuple(column_changes.input_names(bound, table)),
            on_change=request.on_change,
            expected_seconds=self._expected(request.database, request.table, column, stale + first),
            notes=column_changes.difference_notes(udf, existing.inputs, bound, table, before),
            has_values=not asks or bool(stale + stored + planned.rows_found),
        )

    def _plan_after(self, table: TableSnapshot, existing: _Existing, *, kept: bool) -> Forecast:
        """Return the plan that a backfill would have with the column's new definition."""
        column, udf, bound, inputs = existing.asked.name, existing.udf, existing.bound, existing.inputs
        earlier = column_checks.kept_functions(column, bound, udf, inputs, table) if kept else ()
        rebound = column_checks.binding_to(
            bound.column_id, udf, inputs, bound.added_as, earlier, before=bound, keep=kept
        )
        field = replace(existing.field, arrow=column_bindings.bind(existing.field.arrow, rebound))
        fields = tuple(field if f.field_id == field.field_id else f for f in table.fields)
        return self._plans.forecast(replace(table, fields=fields), column, udf, compares=True)

    def _function_before(self, database: str, bound: ColumnBinding) -> UdfDefinition | None:
        with contextlib.suppress(DataLoss):  # a damaged definition cannot be compared
            return self._catalog.registry(database).find_expected(bound.udf_name, bound.udf_version)
        return None


def _added(field: pa.Field, table: TableSnapshot) -> ColumnOutcome:
    bound = binding.read(field)
    if bound is None:
        raise TypeError(f"column {field.name} was not bound")
    return ColumnOutcome(
        column=field.name, outcome=Outcome.ADDED, function=bound.function, rows_not_computed=table.live_rows
    )


def _can_keep(table: TableSnapshot, existing: _Existing) -> bool:
    """Return whether a column's values can stay current with its new function."""
    try:
        column_checks.kept_functions(existing.asked.name, existing.bound, existing.udf, existing.inputs, table)
    except FailedPrecondition:
        return False
    return True


def _refuse_changed(outcomes: Sequence[ColumnOutcome]) -> None:
    refused = [o for o in outcomes if o.outcome is Outcome.UPDATED and o.has_values]
    if refused:
        raise column_changes.column_changed_error(refused)
