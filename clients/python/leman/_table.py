"""A table, its computed columns, their backfills, and changes to its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, Unpack, overload

from leman import local
from leman._arrow import pa
from leman._call_boundary import boundary, warn
from leman._columns import (
    BackfillOptions,
    BackfillParameters,
    ColumnChange,
    OnChange,
    SqlExpression,
    column_changes,
    on_change_to_proto,
    report_changes,
    report_lost,
    type_to_proto,
)
from leman._functions.udf_decorator import UDF
from leman._job_model import Progress
from leman._jobs import (
    JobFuture,
    create_job,
    failed_rows_of_job,
    row_states,
    rows_in_state,
    wait_for_job,
    with_usable_env,
)
from leman._local.embedded_services import reading_service
from leman._locations import check_name
from leman._preview import Preview, PreviewOptions, call_preview, is_registered, name_function
from leman._relation import Relation, check_no_function, no_function
from leman._signature import check_columns
from leman._table_model import Plan, RowStates, inputs_first
from leman._wire import conversions, row_transfer
from leman._wire.channel import Services
from leman._wire.wire_values import checked_request_id, function_ref
from leman.errors import ColumnNotDefined, FieldViolation, InvalidArgument
from leman.v1 import catalog_pb2, jobs_pb2, planner_pb2, tables_pb2

_A_DAY = 86400.0


@dataclass(frozen=True, slots=True)
class MergeResult:
    """The rows that a merge inserted, updated and deleted, and the table version with its changes."""

    num_inserted_rows: int
    num_updated_rows: int
    num_deleted_rows: int
    version: int


def check_sql(given: object, what: str) -> str:
    """Return the caller's SQL. Raises InvalidArgument if it is not a str."""
    if not isinstance(given, str):
        raise InvalidArgument(f"{what} is SQL in a str, such as 'n > 5', not a {type(given).__name__}")
    return given


def update_rows(
    services: Services,
    table: catalog_pb2.TableRef,
    schema: pa.Schema | None,
    where: str | None,
    *,
    values: Mapping[str, Any] | None,
    values_sql: Mapping[str, str] | None,
    request_id: str | None,
) -> int:
    """Update rows and return their number, see `Table.update`. `schema`: the table's, needed for `values`."""
    if not values and not values_sql:
        raise InvalidArgument("update() takes values={'column': value} or values_sql={'column': 'SQL'}")
    request = tables_pb2.UpdateRowsRequest(
        table=table,
        where="true" if where is None else check_sql(where, "where"),
        expressions={str(name): check_sql(text, f"values_sql[{name!r}]") for name, text in (values_sql or {}).items()},
        request_id=checked_request_id(request_id),
    )
    if values:
        row = local.as_arrow({name: [value] for name, value in values.items()}, schema)
        request.values = row_transfer.ipc_stream(row)
    return services.tables.UpdateRows(request, timeout=_A_DAY).rows_updated


class MergeInsert:
    """A merge of rows, see `Table.merge_insert`: say what happens to matching and other rows, then call `execute`."""

    def __init__(
        self, services: Services, table: catalog_pb2.TableRef, schema: pa.Schema, on: str | Iterable[str]
    ) -> None:
        keys = check_columns([on] if isinstance(on, str) else list(on), "on", InvalidArgument)
        self._services = services
        self._schema = schema
        self._header = tables_pb2.MergeRowsHeader(table=table, on=keys)

    def when_matched_update_all(self, where: str | None = None) -> Self:
        """Update the table's matching rows to the given values. Columns that are not given keep their values.

        `where`: only rows for which this SQL is true. Refer to the table's columns as `target.n`, and to those of the
        given rows as `source.n`. CASE is not supported. Compare a column of times with a time zone as a number:
        `cast(target.at as bigint) < 1717200000000000`.
        """
        self._header.update_matched = True
        self._header.update_where = where or ""
        return self

    def when_not_matched_insert_all(self) -> Self:
        """Add the given rows that match no row of the table."""
        self._header.insert_not_matched = True
        return self

    def when_not_matched_by_source_delete(self, condition: str | None = None) -> Self:
        """Delete rows of the table that match no given row.

        `condition`: only rows for which this SQL over the table's columns is true.
        """
        self._header.delete_not_matched_by_source = True
        self._header.delete_where = condition or ""
        return self

    @boundary
    def execute(self, data: Any, *, request_id: str | None = None) -> MergeResult:
        """Merge, all or nothing, in one version of the table. `data`: as in `Database.create_table`. `request_id`: as
        for `Table.add`.

        Raises ColumnNotFound, TypeMismatch, TableNotFound, InvalidArgument, and FailedPrecondition whose `reason` is
        COLUMN_IS_COMPUTED, DUPLICATE_KEY, FILTER_FAILED or NULL_VALUE.
        """
        header = self._header
        if not (header.update_matched or header.insert_not_matched or header.delete_not_matched_by_source):
            refused = InvalidArgument(
                "a merge has nothing to do: call when_matched_update_all(), when_not_matched_insert_all() or"
                " when_not_matched_by_source_delete() before execute()",
                reason="MISSING_FIELD",
            )
            refused.fields = (FieldViolation("header.update_matched", "a merge would change nothing"),)
            raise refused
        rows = local.as_arrow(data, self._schema)
        answer = row_transfer.merge_rows(self._services, self._header, rows, request_id)
        return MergeResult(answer.rows_inserted, answer.rows_updated, answer.rows_deleted, answer.version)


NewColumn = UDF | str | SqlExpression | tuple[UDF | str, Sequence[str]]
"""The definition of a column: a function, a SQL expression, or a pair of a function and the columns that replace its
inputs.

An empty list of columns stands for those that the function's parameters name. In a pair, the function may be a
registered one (`name@version`).
"""


class Table(Relation):
    """A table of a database. The object caches nothing: each call reads the table's current state."""

    def __repr__(self) -> str:
        return f"<leman.Table {self.name} in {self._database}>"

    @boundary
    def add(self, data: Any, *, max_rows_per_file: int | None = None, request_id: str | None = None) -> None:
        """Append rows, all or none. `data`: as in `Database.create_table`.

        Columns that are left out become NULL. The next backfill computes the computed columns among them.

        `request_id`: an id that you choose. However often you or another process send the change with this id, it is
        made once. If you give none, the client chooses an id for this call and its retries. All methods that change
        something take a `request_id`. A call with the same id but another change, or other rows, is refused. The
        services remember the id of an append as long as its commit is among the last 1,000 kept versions of the table;
        for other changes see docs/reference.md.

        Raises ColumnNotFound, TypeMismatch, TableNotFound, InvalidArgument, and AlreadyExists (REQUEST_ID_REUSED).
        """
        if self._services.direct and request_id is None:
            local.append(self.uri, data, max_rows_per_file=max_rows_per_file)
        else:
            rows = local.as_arrow(data, self.describe().schema)
            row_transfer.append_rows(self._services, self.ref(), rows, max_rows_per_file, request_id)

    @boundary
    def delete(self, where: str, *, request_id: str | None = None) -> int:
        """Delete the rows for which a SQL condition is true (`true`: all rows), and return their number.

        `request_id`: as for `add`. Raises TableNotFound, InvalidArgument, and FailedPrecondition whose `reason` is
        FILTER_FAILED.
        """
        sql = check_sql(where, "where")
        request = tables_pb2.DeleteRowsRequest(table=self.ref(), where=sql, request_id=checked_request_id(request_id))
        return self._services.tables.DeleteRows(request).rows_deleted

    @boundary
    def update(
        self,
        where: str | None = None,
        values: Mapping[str, Any] | None = None,
        *,
        values_sql: Mapping[str, str] | None = None,
        request_id: str | None = None,
    ) -> int:
        """Change values of the rows for which a SQL condition is true (None: all rows), and return the number of rows.

        All changes are made in one version of the table. `values`: column → value. `values_sql`: column → SQL over the
        row as it was, such as `{"n": "n + 1"}`. Computed columns that depend on a changed column become NULL in these
        rows; the next backfill computes them. `request_id`: as for `add`.

        Raises TableNotFound, ColumnNotFound, TypeMismatch, InvalidArgument, and FailedPrecondition whose `reason` is
        COLUMN_IS_COMPUTED, FILTER_FAILED, EXPRESSION_FAILED or NULL_VALUE.
        """
        schema = self.describe().schema if values else None
        return update_rows(
            *(self._services, self.ref(), schema, where), values=values, values_sql=values_sql, request_id=request_id
        )

    @boundary
    def merge_insert(self, on: str | Iterable[str]) -> MergeInsert:
        """Merge given rows into the table. Rows match if they have the same values in the columns `on`.

        To update rows that exist and add the others:

            table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(rows)

        As with `update`, computed columns that depend on given columns become NULL in updated rows.
        """
        return MergeInsert(self._services, self.ref(), self.describe().schema, on)

    @boundary
    def add_columns(
        self,
        columns: Mapping[str, NewColumn],
        *,
        on_change: OnChange = "error",
        report: bool | Callable[[ColumnChange], object] | None = None,
        request_id: str | None = None,
    ) -> int:
        """Define computed columns, and return the table version in which they exist.

        New columns are NULL until `backfill` computes them; adding them writes no data. Columns that exist with the
        same definition stay unchanged, so you can run a program again.

        `columns`: maps the name of each column to its definition: a function; `(function, [columns])` if the function
        is a registered one (`name@version`), or if its inputs have other names in this table; or a SQL expression over
        the table's columns, such as `"upper(title)"` or `leman.sql("100 / x", error_handling=…)`, which is computed
        without Spark.

        `on_change`: what to do if a column exists with another definition, because the function, its inputs or the
        expression changed. The new definition must have the column's type. A column without any computed value always
        gets the new definition.
        - `"error"`: raise ColumnChanged and do nothing. The error says what changed in the source, how many rows would
          be stale, and about how long computing them takes.
        - `"update"`: use the new definition. The next backfill computes all rows of the column again, including those
          that an earlier `"keep"` kept.
        - `"keep"`: use the new definition; existing values stay current, as with `alter_columns(keep_values=True)`. So
        do values that a failed job computed and that are not in the table yet.

        `report`: None prints changed columns on standard error, False does not, a function is called with each
        ColumnChange. `request_id`: as for `add`.

        Raises ColumnChanged, ColumnExists (no function computes the existing column), InputColumnMissing, TypeMismatch,
        UdfExists, UdfDefinitionError, InvalidArgument.
        """
        self._services.expect_writes()
        request = catalog_pb2.AddColumnsRequest(
            table=self.ref(), request_id=checked_request_id(request_id), on_change=on_change_to_proto(on_change)
        )
        request.columns.extend(self._wanted("add_columns", columns))
        answer = self._services.catalog.AddColumns(request)
        report_changes(column_changes(answer.columns), report)
        return answer.version

    @boundary
    def alter_columns(
        self,
        columns: Mapping[str, NewColumn],
        *,
        keep_values: bool = False,
        report: bool | Callable[[ColumnChange], object] | None = None,
        request_id: str | None = None,
    ) -> int:
        """Give computed columns other functions, all or nothing, and return the table version with the change.

        The values of the columns stay in the table and become stale: the next `backfill` computes them again. If a
        column gets its earlier function back before that, its old values are current again.

        `keep_values`: the existing values stay current. The new function must have the same inputs; it computes only
        rows that failed or were never computed. Rows that a failed job computed and stored count as computed, although
        they are not in the table yet. `plan_backfill` reports the rows with values of an earlier function. Without
        `keep_values`, values that an earlier call kept become stale too.

        `columns`: as for `add_columns`. A function without `[columns]` reads the same columns as the earlier function
        if the parameters of both have the same names. The new function must have the column's type. `report`: what
        happens if finished rows will be computed again. None prints on standard error how many, and how to keep them;
        False prints nothing; a function is called with each ColumnChange. `request_id`: as for `add`.

        Raises ColumnNotDefined, InputColumnMissing, TypeMismatch, UdfExists, UdfDefinitionError, InvalidArgument.
        """
        request = catalog_pb2.AlterColumnsRequest(table=self.ref(), request_id=checked_request_id(request_id))
        for column in self._wanted("alter_columns", columns):
            request.columns.add(column=column, keep_values=keep_values)
        answer = self._services.catalog.AlterColumns(request)
        report_lost(answer.columns, report)
        return answer.version

    @boundary
    def add_plain_columns(self, schema: pa.Schema, *, request_id: str | None = None) -> int:
        """Add columns that no function computes, all or nothing, and return the table version with them.

        They are NULL; no data is written. `request_id`: as for `add`.

        Raises ColumnExists, InvalidArgument, and FailedPrecondition whose `reason` is TYPE_NOT_STORABLE.
        """
        if not hasattr(schema, "serialize") or not hasattr(schema, "names"):
            raise InvalidArgument(f"schema is a pyarrow.Schema of the columns, not a {type(schema).__name__}")
        request = tables_pb2.AddPlainColumnsRequest(
            table=self.ref(), schema=schema.serialize().to_pybytes(), request_id=checked_request_id(request_id)
        )
        return self._services.tables.AddPlainColumns(request).version

    @boundary
    def drop_columns(self, columns: Sequence[str], *, force: bool = False, request_id: str | None = None) -> int:
        """Drop plain or computed columns, all or nothing, and return the table version without them.

        `force`: drop the columns even if computed columns or views of this database read them, or if jobs compute them.
        These computed columns and views then keep their values but can no longer be computed, and these jobs fail.
        `request_id`: as for `add`.

        Raises ColumnNotFound, InvalidArgument, and FailedPrecondition whose `reason` is COLUMN_IN_USE or LAST_COLUMN.
        """
        request = tables_pb2.DropColumnsRequest(
            table=self.ref(),
            columns=check_columns(columns, "columns", InvalidArgument),
            force=force,
            request_id=checked_request_id(request_id),
        )
        return self._services.tables.DropColumns(request).version

    @boundary
    def rename_column(self, name: str, new_name: str, *, force: bool = False, request_id: str | None = None) -> int:
        """Rename a column, and return the table version with the new name.

        Computed columns that use this column as an input continue to work: they read it under its new name. Views refer
        to columns by name: with `force`, a view that reads the column keeps its rows and can no longer be refreshed.
        `request_id`: as for `add`.

        Raises ColumnNotFound, ColumnExists, InvalidArgument, and FailedPrecondition whose `reason` is COLUMN_IN_USE.
        """
        column = tables_pb2.PlainColumnAlteration(
            name=check_name(name, "column"), new_name=check_name(new_name, "column")
        )
        request = tables_pb2.AlterPlainColumnsRequest(
            table=self.ref(), columns=[column], force=force, request_id=checked_request_id(request_id)
        )
        return self._services.tables.AlterPlainColumns(request).version

    @boundary
    def retype_column(self, name: str, data_type: pa.DataType, *, request_id: str | None = None) -> int:
        """Give a column another type, and return the table version with it.

        The type can change among integers, among floats, and between text, bytes or lists and their large forms. The
        call is refused if a value does not fit. `request_id`: as for `add`.

        Raises ColumnNotFound, InvalidArgument, and FailedPrecondition whose `reason` is COLUMN_IN_USE or
        COMMIT_REFUSED.
        """
        column = tables_pb2.PlainColumnAlteration(name=check_name(name, "column"), type=type_to_proto(data_type))
        request = tables_pb2.AlterPlainColumnsRequest(
            table=self.ref(), columns=[column], request_id=checked_request_id(request_id)
        )
        return self._services.tables.AlterPlainColumns(request).version

    @overload
    def backfill(
        self,
        column: str,
        *,
        udf: UDF | str | None = ...,
        progress: bool | Callable[[Progress], object] | None = ...,
        labels: Mapping[str, str] | None = ...,
        priority: int = ...,
        env: Mapping[str, str] | None = ...,
        request_id: str | None = ...,
        **parameters: Unpack[BackfillParameters],
    ) -> str: ...
    @overload
    def backfill(
        self,
        column: list[str] | tuple[str, ...] | None = None,
        *,
        progress: bool | Callable[[Progress], object] | None = ...,
        labels: Mapping[str, str] | None = ...,
        priority: int = ...,
        env: Mapping[str, str] | None = ...,
        request_id: str | None = ...,
        **parameters: Unpack[BackfillParameters],
    ) -> list[str]: ...
    @boundary
    def backfill(
        self,
        column: str | list[str] | tuple[str, ...] | None = None,
        *,
        udf: UDF | str | None = None,
        progress: bool | Callable[[Progress], object] | None = None,
        labels: Mapping[str, str] | None = None,
        priority: int = 0,
        env: Mapping[str, str] | None = None,
        request_id: str | None = None,
        **parameters: Unpack[BackfillParameters],
    ) -> str | list[str]:
        """Compute the missing and stale values of a column, wait, and return the job's id.

        Several columns, or all computed columns if none is named, are computed in one job. Its id is then returned in a
        list, which is empty if the table has no computed column. The job computes each column after the columns that it
        reads. Columns of SQL expressions are read together and become visible together; other columns are computed one
        after the other. If a column fails, the job still computes all columns that do not read it, and JobFailed names
        it.

        `udf`: for one column: compute with this function (or a registered one, `name` or `name@version`) instead of the
        column's own. `progress`: None shows it on standard error (live on a terminal, else as lines), False does not, a
        function is called with each Progress. `labels`: to find the job by, see `Database.jobs`. `priority`: -100 to
        100; waiting jobs with a higher priority run first. Other parameters: see `BackfillParameters`.

        `env`: environment variables of the function, such as `{"API_KEY": os.environ["API_KEY"]}`, in addition to those
        that the services pass on. An embedded system passes on its whole environment, as it was at its start; other
        services pass on the variables that processes need and those that their operator allows. Values are secrets: the
        services keep them until the job ends and never show them. `Job.env_names` has the names. The variables are
        not part of the function's version: changing a value makes nothing stale. If inputs are computed first, their
        functions receive the variables too. SQL and remote functions cannot receive variables: their columns are
        computed without them. If no column uses the variables, a warning says so.

        `request_id`: an id that you choose, under which the job is created once. A repeated call with this id, even
        from another process, waits for the same job.

        If rows failed (DONE_WITH_ERRORS), the call returns and logs a warning. Ctrl-C cancels the job. Raises JobFailed
        with the function's error and its place, ColumnNotDefined, InputColumnMissing, InputColumnStale, TypeMismatch,
        TableNotFound, InvalidArgument.
        """
        self._services.expect_writes()
        columns = (column,) if isinstance(column, str) else self._several(column, udf)
        if not columns:
            return []
        if parameters.get("on_stale_input") == "warn":
            for name in columns:
                for stale in self.plan_backfill(name, udf=udf, **parameters).stale_inputs:
                    if stale.column not in columns:
                        warn(f"{self.name}.{name} is computed from values that are not current: {stale}")
        had_env = list[bool]()

        def start(usable: Mapping[str, str] | None) -> JobFuture:
            given: Any = column if isinstance(column, str) else columns
            future = self.backfill_async(
                given, udf=udf, labels=labels, priority=priority, env=usable, request_id=request_id, **parameters
            )
            had_env.append(usable is not None)
            return future

        if isinstance(column, str):
            return wait_for_job(start(env), f"{self.name}.{column}", progress=progress).job_id
        future = with_usable_env(start, env)
        if env and not any(had_env):
            warn(f"env has no effect: only SQL or remote functions compute {self.name}.{', '.join(columns)}")
        what = f"{self.name}.{columns[0]}" if len(columns) == 1 else f"{self.name}: {len(columns)} columns"
        return [wait_for_job(future, what, progress=progress).job_id]

    def _several(self, columns: Sequence[str] | None, udf: UDF | str | None) -> tuple[str, ...]:
        if udf is not None:
            raise InvalidArgument("udf replaces the function of one column: give column as a str")
        return tuple(self._inputs_first(columns))

    def _inputs_first(self, columns: Sequence[str] | None) -> list[str]:
        """Return computed columns (None: all) in the order in which they are computed. Raises ColumnNotDefined."""
        computed = self.describe().computed_columns
        if columns is None:
            return inputs_first(computed)
        names = check_columns(columns, "columns", InvalidArgument)
        known = {column.name for column in computed}
        for name in names:
            if name not in known:
                raise ColumnNotDefined(
                    f"Column {name} is not computed by a function: add it with add_columns() first. The computed"
                    f" columns: {', '.join(known) or 'none'}"
                )
        return [name for name in inputs_first(computed) if name in names]

    @boundary
    def backfill_async(
        self,
        column: str | list[str] | tuple[str, ...] | None = None,
        *,
        udf: UDF | str | None = None,
        labels: Mapping[str, str] | None = None,
        priority: int = 0,
        env: Mapping[str, str] | None = None,
        request_id: str | None = None,
        **parameters: Unpack[BackfillParameters],
    ) -> JobFuture:
        """Start a `backfill`, and return a future once its job is created. Raises the errors of `plan_backfill`."""
        options = BackfillOptions.of(parameters)
        columns = (column,) if isinstance(column, str) else self._several(column, udf)
        if not columns:
            raise ColumnNotDefined(f"{self.name} has no computed column: add one with add_columns() first")
        spec = self._spec(columns[0], udf, options)
        if len(columns) > 1:
            spec.column = ""
            spec.columns.extend(columns)
        place = self._services, self._database
        return create_job(*place, labels, priority, env, request_id, backfill=spec)

    @boundary
    def plan_backfill(
        self, column: str, *, udf: UDF | str | None = None, **parameters: Unpack[BackfillParameters]
    ) -> Plan:
        """Return what a backfill with these parameters would do, and why. Changes nothing; print the result."""
        request = planner_pb2.ExplainPlanRequest(spec=self._spec(column, udf, BackfillOptions.of(parameters)))
        with reading_service(self._services, "planner") as services:
            return conversions.plan(self.name, services.planner.ExplainPlan(request))

    @boundary
    def preview(
        self,
        function: NewColumn,
        n: int = 5,
        *,
        where: str | None = None,
        udf: UDF | str | None = None,
        read_version: int | str | None = None,
        timeout: float | None = None,
        concurrency: int | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Preview:
        """Try a function on a few rows, as a backfill would, without writing anything. Print the result.

        This creates no column, job, checkpoint or version, and does not register a new function.

        `function`: as for `add_columns`: a function, `(function, [columns])`, a registered one (`name@version`) or a
        SQL expression; or the name of a computed column, to try that column's function or, if given, `udf`. `n`: try
        the first `n` rows, at most 100, for which the SQL expression `where` is true. `read_version`: take the rows
        from this version, a number or a tag. `timeout`: in seconds, 30 by default and at most 600. `concurrency`: the
        worker processes of the backfill that the preview projects. `env`: as for `backfill`.

        The Preview reports what the function raised for a row, and on which rows it hangs or ends its process. Raises
        InputColumnMissing, TypeMismatch, UdfDefinitionError, ColumnNotDefined, TableNotFound, InvalidArgument, and
        FailedPrecondition whose `reason` is UDF_NOT_LOADABLE.
        """
        options = PreviewOptions(
            n=n, where=where, read_version=read_version, timeout=timeout, concurrency=concurrency, env=env
        )
        request = options.request(self.ref())
        if isinstance(function, str) and (udf is not None or function in self.describe().schema.names):
            request.column = check_name(function, "column")
            if udf is not None:
                name_function(request, self._services, udf)
        elif udf is not None:
            raise InvalidArgument("udf replaces the function of a column: give the column's name as a str")
        else:
            registered = isinstance(function, str) and is_registered(function)
            taken, inputs = _taken_apart("preview", (function, []) if registered else function)
            if isinstance(taken, UDF):
                taken.check_inputs(self.describe().schema, inputs or taken.input_columns)
            request.input_columns.extend(inputs)
            name_function(request, self._services, taken)
        return call_preview(self._services, request)

    @boundary
    def get_failed_row_addresses(self, *, job_id: str | None = None, column_name: str | None = None) -> list[int]:
        """Return the addresses (fragment id << 32 | physical offset) of the rows that are marked as failed now.

        The addresses are those in the latest version, even after a compaction. A retry computes these rows again.
        `job_id`: only rows on which this job failed. The rows of a job are found by row id. In a table without stable
        row ids, they are found by their addresses during the job, which are valid only until a compaction.
        `column_name`: may be left out if the job filled one column. Raises JobNotFound, ColumnNotDefined, and
        InvalidArgument if neither is given.
        """
        if job_id is None:
            if column_name is None:
                raise InvalidArgument("get_failed_row_addresses() needs job_id, column_name or both")
            return self.rows_in_state(column_name, "failed")
        request = jobs_pb2.GetJobRequest(database=self._database, job_id=job_id)
        asked = self._services.jobs.GetJob(request).job.backfill
        if column_name is None and asked.columns:
            raise InvalidArgument(f"job {job_id} filled several columns: give column_name")
        if column_name not in (None, asked.column, *asked.columns):
            return []
        column = column_name or asked.column
        rows = rows_in_state(self._services, self.ref(), column, "failed")
        return failed_rows_of_job(self._services, self._database, job_id, column, rows)

    @boundary
    def row_states(self, column: str) -> RowStates:
        """Count the rows that are computed (NULL or not), that failed, and that were never computed.

        Raises TableNotFound, ColumnNotDefined.
        """
        return row_states(self._services, self.ref(), check_name(column, "column"))

    @boundary
    def rows_in_state(self, column: str, state: str) -> list[int]:
        """Return the addresses (fragment id << 32 | physical offset) of a computed column's rows in a state.

        The addresses are those in the latest version. `state`: `computed`, `null` (computed as NULL), `failed` or
        `not_computed`, see `RowStates`. Raises TableNotFound, ColumnNotDefined, InvalidArgument.
        """
        return list(rows_in_state(self._services, self.ref(), check_name(column, "column"), state))

    def _spec(self, column: str, udf: UDF | str | None, options: BackfillOptions) -> planner_pb2.BackfillSpec:
        check_name(column, "column")
        found = None if udf is None else self._registration.resolve(udf)
        name, version = (found.name, found.version) if found is not None else ("", "")
        return options.spec(self.ref(), column, name, version)

    def _wanted(self, method: str, columns: Mapping[str, NewColumn]) -> list[catalog_pb2.NewColumn]:
        """Return the columns for the wire. Check them as far as the client can, and then register their functions."""
        if not columns:
            raise InvalidArgument(f"{method}() takes at least one column: {{'name': function}}")
        parts = [(check_name(name, "column"), *_taken_apart(name, value)) for name, value in columns.items()]
        table = self.describe()
        mapped = {column.name: column.input_columns for column in table.computed_columns}
        for name, udf, inputs in parts:
            if isinstance(udf, UDF):
                own = mapped.get(name, udf.input_columns) == udf.input_columns
                udf.check_inputs(table.schema, inputs or (udf.input_columns if own else ()))
        wanted = []
        for name, udf, inputs in parts:
            if isinstance(udf, SqlExpression):
                wanted.append(udf.column(name))
            else:
                f = self._registration.resolve(udf)
                wanted.append(
                    catalog_pb2.NewColumn(name=name, udf=function_ref(f.name, f.version), input_columns=inputs)
                )
        return wanted


def _taken_apart(name: str, value: Any) -> tuple[UDF | str | SqlExpression, list[str]]:
    if isinstance(value, str | SqlExpression):
        expression = SqlExpression(value) if isinstance(value, str) else value
        if not expression.text.strip():
            raise InvalidArgument(f"column {name!r}: the SQL expression is empty")
        check_no_function(name, expression.text)
        return expression, []
    udf, inputs = value if isinstance(value, tuple) and len(value) == 2 else (value, [])
    if not isinstance(udf, UDF) and not (isinstance(udf, str) and "@" in udf):
        raise no_function(name, value)
    return udf, check_columns(inputs, f"column {name!r}: its input columns") if inputs else []
