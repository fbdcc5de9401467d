"""A table, its computed columns and their backfills."""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

import pyarrow as pa

from leman import _garbage, _wire, local
from leman._backfill import BackfillOptions, BackfillParameters
from leman._boundary import boundary
from leman._channel import Services
from leman._future import JobFuture, wait
from leman._garbage import CheckpointCollection, StoredFile
from leman._job_model import Progress
from leman._paging import list_errors
from leman._plan import Plan
from leman._query import Query
from leman._registration import Registration
from leman._row_states import failed_rows_of_job, row_states, rows_in_state
from leman._signature import check_columns
from leman._sql import SqlExpression
from leman._table_model import IndexCoverage, RowError, RowStates, TableInfo
from leman._udf import UDF
from leman.errors import InvalidArgument, NotSupported
from leman.v1 import catalog_pb2, commit_pb2, jobs_pb2, planner_pb2

if TYPE_CHECKING:
    import lance

_A_DAY = 86400.0
NewColumn = UDF | str | SqlExpression | tuple[UDF, Sequence[str]]
"""A function, a SQL expression, or a function and the columns that take the place of its inputs."""


class Table:
    """A table of a database. Holds no state: every answer is of now."""

    def __init__(self, services: Services, registration: Registration, database: str, name: str) -> None:
        self.name = name
        self.uri = f"{database}/{name}.lance"
        self._services = services
        self._registration = registration
        self._database = database

    def __repr__(self) -> str:
        return f"<leman.Table {self.name} in {self._database}>"

    @boundary
    def describe(self) -> TableInfo:
        """Schema, version, rows and computed columns. Raises TableNotFound."""
        request = catalog_pb2.DescribeTableRequest(table=self._ref())
        return _wire.table_info(self.name, self._services.catalog.DescribeTable(request))

    @property
    def schema(self) -> pa.Schema:
        """All columns."""
        return self.describe().schema

    @property
    def version(self) -> int:
        """The latest version."""
        return self.describe().version

    def count_rows(self) -> int:
        """Rows, without deleted ones."""
        return self.describe().row_count

    @boundary
    def to_lance(self, version: int | None = None) -> lance.LanceDataset:
        """The table as a Lance dataset, to read with all that Lance offers. Needs `leman[lance]`.

        Raises TableNotFound, VersionNotFound."""
        return local.open_table(self.uri, version)

    @boundary
    def to_arrow(self, columns: list[str] | None = None, where: str | None = None) -> pa.Table:
        """The rows as an Arrow table. Needs `leman[lance]`. Raises TableNotFound, InvalidArgument."""
        return local.read_table(self.uri, columns, where)

    @boundary
    def add(self, data: Any, *, max_rows_per_file: int | None = None) -> None:
        """Appends rows; `data` as in `Database.create_table`. Needs `leman[lance]`.

        Columns that are left out, such as computed ones, become NULL; the next backfill computes those.
        Raises ColumnNotFound, TypeMismatch.
        """
        local.append(self.uri, data, max_rows_per_file=max_rows_per_file)

    def search(self, query: None = None) -> Query:
        """A query over this table's rows, of which a view can be made. `query`: None, as search by vector or text is no
        part of a view."""
        if query is not None:
            raise NotSupported("search by vector or text is not supported: search(None) takes all rows")
        return Query(self)

    @boundary
    def add_columns(self, columns: Mapping[str, NewColumn]) -> int:
        """Adds computed columns, all NULL, without writing data; `backfill` computes them. All are added,
        or none.

        `columns`: name of the new column to a function, to `(function, [columns])` where the function's inputs are
        called otherwise in this table, or to a SQL expression over its columns, such as `"upper(title)"` or
        `leman.sql("100 / x", error_handling=…)`, which is computed without Spark. Returns the table version in which
        they exist.

        Raises ColumnExists, InputColumnMissing, TypeMismatch, UdfExists, UdfDefinitionError, InvalidArgument.
        """
        request = catalog_pb2.AddColumnsRequest(table=self._ref(), request_id=uuid.uuid4().hex)
        request.columns.extend(self._wanted("add_columns", columns))
        return self._services.catalog.AddColumns(request).version

    @boundary
    def alter_columns(self, columns: Mapping[str, NewColumn], *, keep_values: bool = False) -> int:
        """Gives computed columns other functions: all of them or none. Their values stay and are stale: the next
        `backfill` computes them again. With the earlier function again, those that were not computed again since are
        current.

        `keep_values`: values that the functions so far computed stay current instead; the new one, which has to have
        the same inputs, computes only rows that failed or were never computed. `plan_backfill` names the rows that keep
        an earlier function's values. Without `keep_values`, values kept before are stale too.

        `columns`: as for `add_columns`. A function without `[columns]` reads what the column's function so far reads
        if their parameters have the same names. A column keeps its type. Returns the table version with the change.

        Raises ColumnNotDefined, InputColumnMissing, TypeMismatch, UdfExists, UdfDefinitionError, InvalidArgument.
        """
        request = catalog_pb2.AlterColumnsRequest(table=self._ref(), request_id=uuid.uuid4().hex)
        request.columns.extend(self._wanted("alter_columns", columns))
        for wanted in request.columns:
            wanted.keep_values = keep_values
        return self._services.catalog.AlterColumns(request).version

    @boundary
    def backfill(
        self,
        column: str,
        *,
        udf: UDF | str | None = None,
        progress: bool | Callable[[Progress], object] | None = None,
        **parameters: Unpack[BackfillParameters],
    ) -> str:
        """Computes the missing and stale values of a column, waits, and returns the job's id.

        `udf`: compute with this function (or a registered one, `name` or `name@version`) instead of the
        column's own. `progress`: None shows it (a live display on a terminal, lines otherwise, on standard
        error), False does not, a function is called with each Progress. Other parameters: see
        `BackfillParameters`.

        A job that ended as DONE_WITH_ERRORS returns too, with a warning in the log. Ctrl-C cancels the job.
        Raises JobFailed with what the function raised and where, ColumnNotDefined, InputColumnMissing,
        TypeMismatch, TableNotFound, InvalidArgument.
        """
        future = self.backfill_async(column, udf=udf, **parameters)
        return wait(future, f"{self.name}.{column}", progress=progress).job_id

    @boundary
    def backfill_async(
        self, column: str, *, udf: UDF | str | None = None, **parameters: Unpack[BackfillParameters]
    ) -> JobFuture:
        """As `backfill`, but returns when the job has begun. Raises what planning it raises."""
        request = jobs_pb2.CreateJobRequest(
            backfill=self._spec(column, udf, BackfillOptions.of(parameters)), request_id=uuid.uuid4().hex
        )
        job = _wire.job(self._services.jobs.CreateJob(request).job)
        return JobFuture(self._services, self._database, job.job_id, job if job.state.terminal else None)

    @boundary
    def plan_backfill(
        self, column: str, *, udf: UDF | str | None = None, **parameters: Unpack[BackfillParameters]
    ) -> Plan:
        """What a backfill with these parameters would do, and why. Changes nothing in the table; print it."""
        request = planner_pb2.ExplainPlanRequest(spec=self._spec(column, udf, BackfillOptions.of(parameters)))
        return _wire.plan(self.name, self._services.planner.ExplainPlan(request))

    @boundary
    def get_errors(self, *, job_id: str, column_name: str | None = None, limit: int | None = None) -> list[RowError]:
        """The rows of a job for which the function failed, by row address; at most `limit` of them.

        Raises JobNotFound.
        """
        return list_errors(self._services, self._database, job_id, column_name, limit)

    @boundary
    def get_failed_row_addresses(self, *, job_id: str | None = None, column_name: str | None = None) -> list[int]:
        """Row addresses (fragment id << 32 | physical offset) of the rows that are marked as failed now, in the latest
        version: those that a retry would try again, wherever compaction has moved them.

        `job_id`: only rows on which this job failed, told by their row ids; on a table without stable row ids by the
        addresses that they had then, which hold until a compaction. `column_name`: may be left out where `job_id` says
        it. Raises JobNotFound, ColumnNotDefined, InvalidArgument where neither is given.
        """
        if job_id is None:
            if column_name is None:
                raise InvalidArgument("get_failed_row_addresses() takes job_id, column_name or both")
            return self.rows_in_state(column_name, "failed")
        request = jobs_pb2.GetJobRequest(database=self._database, job_id=job_id)
        column = self._services.jobs.GetJob(request).job.backfill.column
        if column_name not in (None, column):
            return []
        rows = rows_in_state(self._services, self._ref(), column, "failed")
        return failed_rows_of_job(self._services, self._database, job_id, column, rows)

    @boundary
    def row_states(self, column: str) -> RowStates:
        """Tells rows that are computed (with NULL or another value), that failed, and that were never computed, apart:
        how many there are of each. Raises TableNotFound, ColumnNotDefined."""
        return row_states(self._services, self._ref(), check_name(column, "column"))

    @boundary
    def rows_in_state(self, column: str, state: str) -> list[int]:
        """Addresses (fragment id << 32 | physical offset), in the latest version, of a computed column's rows that are
        `computed`, `null` (computed, and the value is NULL), `failed` or `not_computed`: see `RowStates`.

        Raises TableNotFound, ColumnNotDefined, InvalidArgument.
        """
        return list(rows_in_state(self._services, self._ref(), check_name(column, "column"), state))

    @boundary
    def optimize_indices(self, columns: Sequence[str] | None = None) -> tuple[IndexCoverage, ...]:
        """Brings the indexes of the table up to date, those on any of `columns` (None: all), and tells what they cover
        then. A backfill takes the fragments that it writes out of the indexes on its column, and added rows are in
        none: a search still finds them by scanning, a fast search does not.

        Takes as long as Lance needs for the rows that are left out, and no time where none are. Raises TableNotFound.
        """
        if isinstance(columns, str):
            raise InvalidArgument(f"columns is a list of names, not {columns!r}")
        request = commit_pb2.OptimizeIndicesRequest(uri=self.uri, columns=columns or ())
        answer = self._services.commits.OptimizeIndices(request, timeout=_A_DAY)
        return tuple(_wire.index_coverage(index) for index in answer.indices)

    @boundary
    def checkpoints(self, *, limit: int = 10_000) -> tuple[StoredFile, ...]:
        """Checkpoints, fragment records and staged column files of the table, and what each is for; at most `limit` of
        them (10,000 is the most), by path. Changes nothing. Raises TableNotFound."""
        request = _garbage.make_request(self.uri, None, limit, dry_run=True, include_kept=True)
        return _garbage.from_wire(self._services.commits.CollectGarbage(request), dry_run=True).files

    @boundary
    def collect_checkpoints(
        self, *, older_than: str | datetime.timedelta | None = None, dry_run: bool = False, limit: int = 1000
    ) -> CheckpointCollection:
        """Deletes checkpoints, fragment records and staged column files that nothing can need any more.

        `older_than`: garbage written later than so long ago stays; a timedelta or text such as `12h`; default 7 days.
        Column files stay for a day at the least, except with 0 while no job of the table is open: that says that
        nothing writes to the table now. `dry_run`: only say what would go. `limit`: how many files are named.

        What a version, tag or branch refers to, what an unfinished fragment can reuse and what a job that has not
        ended may need always stays. Raises TableNotFound, InvalidArgument.
        """
        request = _garbage.make_request(self.uri, older_than, limit, dry_run=dry_run, include_kept=False)
        return _garbage.from_wire(self._services.commits.CollectGarbage(request), dry_run=dry_run)

    def _spec(self, column: str, udf: UDF | str | None, options: BackfillOptions) -> planner_pb2.BackfillSpec:
        check_name(column, "column")
        found = None if udf is None else self._registration.resolve(udf)
        name, version = (found.name, found.version) if found is not None else ("", "")
        return options.spec(self._ref(), column, name, version)

    def _wanted(self, method: str, columns: Mapping[str, NewColumn]) -> list[catalog_pb2.NewColumn]:
        """The columns on the wire, their functions registered once all is checked that can be checked here."""
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
                    catalog_pb2.NewColumn(name=name, udf_name=f.name, udf_version=f.version, input_columns=inputs)
                )
        return wanted

    def _ref(self) -> catalog_pb2.TableRef:
        return catalog_pb2.TableRef(database=self._database, table=self.name)


def _taken_apart(name: str, value: Any) -> tuple[UDF | SqlExpression, list[str]]:
    if isinstance(value, str | SqlExpression):
        expression = SqlExpression(value) if isinstance(value, str) else value
        if not expression.text.strip():
            raise InvalidArgument(f"column {name!r}: the SQL expression is empty")
        return expression, []
    udf, inputs = value if isinstance(value, tuple) and len(value) == 2 else (value, [])
    if not isinstance(udf, UDF):
        raise InvalidArgument(
            f"column {name!r}: give a function made by @leman.udf, (function, ['input column', ...])"
            f" or a SQL expression, not {value!r}"
        )
    return udf, check_columns(inputs, f"column {name!r}: its input columns") if inputs else []


def check_name(name: Any, what: str) -> str:
    """`name`. Raises InvalidArgument for what can be the name of nothing; the services know the finer rules."""
    if not isinstance(name, str) or not name:
        raise InvalidArgument(f"a {what} is named by a str, not {name!r}")
    return name
