"""The common base of tables and views, and the queries from which views are made."""

from __future__ import annotations

import dataclasses
import datetime
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from leman import _maintenance, local
from leman._arrow import pa
from leman._call_boundary import boundary
from leman._functions.registration import Registration
from leman._functions.udf_decorator import UDF
from leman._jobs import PAGE, list_errors
from leman._local import local_reads
from leman._local.embedded_services import reading_service
from leman._maintenance import CheckpointCollection, StoredFile
from leman._message_text import Shown
from leman._signature import check_columns
from leman._table_model import Commit, IndexCoverage, RowErrors, TableInfo
from leman._wire import conversions
from leman._wire.channel import Services
from leman._wire.conversions import count
from leman._wire.row_transfer import RowStream, read_request
from leman._wire.wire_values import function_ref
from leman.errors import InvalidArgument, NotSupported
from leman.v1 import catalog_pb2, commit_pb2

if TYPE_CHECKING:
    import lance


QueryColumn = UDF | str | tuple[UDF | str, Sequence[str]]
"""The definition of a column: a function, a SQL expression, or a pair of a function and the source's columns that
replace its inputs. In a pair, the function may be a registered one (`name@version`)."""

#: Matches a registered function that was given in place of a SQL expression.
_REGISTERED = re.compile(r"\s*[\w.-]+@[\w.-]+\s*")

View_co = TypeVar("View_co", covariant=True)


class ViewMaker(Protocol[View_co]):
    """A database that can create a view."""

    def create_materialized_view(
        self,
        name: str,
        query: Query,
        max_rows_per_fragment: int | None = None,
        *,
        exist_ok: bool = False,
        request_id: str | None = None,
    ) -> View_co: ...


_JOINED = "a view reads one table. Add the other table's columns by key with merge_insert, or join after reading"
_GROUPED = "a view has a row for each row of its source. Group after reading, for example to_arrow().group_by(...)"
_SORTED = "rows of a view are in the order of its source, or shuffled. Sort after reading: to_arrow().sort_by(...)"
#: Advice for methods that queries of other libraries have.
_OTHER_WAYS = {
    **dict.fromkeys(["join", "merge"], _JOINED),
    **dict.fromkeys(["group_by", "groupby", "agg", "aggregate", "distinct"], _GROUPED),
    **dict.fromkeys(["order_by", "sort", "sort_by"], _SORTED),
}


@dataclass(frozen=True, slots=True)
class FunctionColumn:
    """A column and its function: one made by `@leman.udf`, or a registered one, `name` or `name@version`."""

    name: str
    function: UDF | str
    inputs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Query:
    """Rows and columns of a table or view, made by `Table.search(None)`. Every method returns a new query.

        table.search(None).where("age > 21").select(["name"]).add_column("n", word_count).shuffle(seed=42)

    A view that is made from the query has one row for each row of the table that the filter matches.
    """

    table: Relation
    filter: str = ""
    columns: tuple[tuple[str, str], ...] = ()
    expressions: tuple[tuple[str, str], ...] = ()
    functions: tuple[FunctionColumn, ...] = ()
    seed: int | None = None
    most: int | None = None
    skipped: int = 0

    def where(self, expression: str) -> Self:
        """Keep only rows for which this SQL expression is true. Several calls are combined with AND."""
        if not _is_text(expression):
            raise InvalidArgument(f'where is a SQL expression such as "age > 21", not {expression!r}')
        both = f"({self.filter}) AND ({expression})" if self.filter else expression
        return dataclasses.replace(self, filter=both)

    def select(self, columns: Sequence[str] | Mapping[str, str]) -> Self:
        """Keep only these columns: their names, or names mapped to SQL expressions (`{"title": "upper(name)"}`).

        Without `select`, a view has all columns of its source. If you call it several times, the last call counts.
        """
        given: Any = columns
        if isinstance(given, str) or not isinstance(given, Iterable) or not columns:
            raise InvalidArgument(f"select takes a list of columns or {{'name': 'expression'}}, not {columns!r}")
        pairs = columns.items() if isinstance(columns, Mapping) else [(name, "") for name in columns]
        for name, expression in pairs:
            if not _is_text(name):
                raise InvalidArgument(f"select: a column is named by a str, not {name!r}")
            if isinstance(columns, Mapping) and not _is_text(expression):
                raise InvalidArgument(f"select: column {name!r} needs a SQL expression, not {expression!r}")
        return dataclasses.replace(self, columns=tuple(pairs))

    def add_column(self, name: str, value: QueryColumn) -> Self:
        """Add a computed column. `value`: a function; `(function, [columns])` if its inputs have other names in the
        table; a registered function as `("name@version", [columns])`; or a SQL expression."""
        if not _is_text(name):
            raise InvalidArgument(f"a column is named by a str, not {name!r}")
        udf, inputs = value if isinstance(value, tuple) and len(value) == 2 else (value, ())
        if isinstance(value, str) and value.strip():
            check_no_function(name, value)
            return dataclasses.replace(self, expressions=(*self.expressions, (name, value)))
        registered = isinstance(value, tuple) and _is_text(udf) and bool(inputs)
        if not registered and not isinstance(udf, UDF):
            raise no_function(name, value)
        names = tuple(check_columns(inputs, f"column {name!r}: its input columns")) if inputs else ()
        return dataclasses.replace(self, functions=(*self.functions, FunctionColumn(name, udf, names)))

    def shuffle(self, seed: int = 0) -> Self:
        """Put the rows in a random order, which depends only on the seed. Rows that a refresh adds are shuffled among
        themselves and come after the others."""
        _check_seed(seed)
        return dataclasses.replace(self, seed=seed)

    def limit(self, rows: int) -> Self:
        """Keep at most this many rows, the first by the table's row ids, before the shuffle. The limit stays exact when
        the table changes."""
        return dataclasses.replace(self, most=_rows("limit", rows))

    def offset(self, rows: int) -> Self:
        """Skip this many rows, the first by the table's row ids."""
        return dataclasses.replace(self, skipped=_rows("offset", rows))

    def create_materialized_view(
        self,
        conn: ViewMaker[View_co],
        view_name: str,
        max_rows_per_fragment: int | None = None,
        *,
        exist_ok: bool = False,
        request_id: str | None = None,
    ) -> View_co:
        """Create a view in the database `conn`, see `Database.create_materialized_view`."""
        if not hasattr(conn, "create_materialized_view"):
            raise InvalidArgument(f"conn is the database for the view, not a {type(conn).__name__}")
        return conn.create_materialized_view(
            view_name, self, max_rows_per_fragment, exist_ok=exist_ok, request_id=request_id
        )

    def __getattr__(self, name: str) -> Any:
        way = _OTHER_WAYS.get(name)
        said = f": {way}" if way else ""
        raise AttributeError(f"a leman.Query has no {name}{said}", name=name, obj=self)

    def __repr__(self) -> str:
        return f"<leman.Query of {self.table.name}>"


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _rows(name: str, rows: Any) -> int:
    """Return a number of rows, 0 or more. Raises InvalidArgument, also for None."""
    if rows is None:
        raise InvalidArgument(f"{name} is a whole number, 0 or more, not None: leave {name}() out for all rows")
    return count(name, rows, least=0) or 0


def _check_seed(seed: Any) -> None:
    if isinstance(seed, bool) or not isinstance(seed, int) or not -(1 << 63) <= seed < 1 << 63:
        raise InvalidArgument(f"seed is a whole number, not {seed!r}")


def query_message(query: Query, registration: Registration) -> catalog_pb2.ViewQuery:
    """Return the query for the wire. After all other checks, register its functions in the view's database."""
    table = query.table.describe()
    for column in query.functions:
        if isinstance(column.function, UDF):
            column.function.check_inputs(table.schema, column.inputs or column.function.input_columns)
    message = catalog_pb2.ViewQuery(
        source=query.table.ref(), where=query.filter, shuffle_seed=query.seed, limit=query.most, offset=query.skipped
    )
    columns = query.columns
    if query.expressions and not columns:  # the expressions are added to all columns of the source
        columns = tuple((name, "") for name in table.schema.names)
    for name, expression in [*columns, *query.expressions]:
        message.columns.add(name=name, expression=expression)
    for column in query.functions:
        found = registration.resolve(column.function)
        message.functions.add(
            name=column.name, udf=function_ref(found.name, found.version), input_columns=column.inputs
        )
    return message


def check_no_function(name: str, expression: str) -> None:
    """Raise InvalidArgument if a SQL expression is the name of a registered function."""
    if _REGISTERED.fullmatch(expression):
        raise InvalidArgument(
            f"column {name!r}: give a registered function together with the columns that it reads: "
            f"('{expression.strip()}', ['input column', ...])"
        )


def no_function(name: str, value: object) -> InvalidArgument:
    """Return the error for a value that cannot compute a column."""
    return InvalidArgument(
        f"column {name!r}: give a function made by @leman.udf, (function, ['input column', ...]),"
        f" a registered one by ('name@version', ['input column', ...]), or a SQL expression, not {value!r}"
    )


_A_DAY = 86400.0


class Relation(Shown):
    """A table or a view of a database. The object caches nothing: each call reads the current state."""

    #: A condition that all rows in reads fulfil, and columns that reads leave out.
    _shown: str = ""
    _hidden: tuple[str, ...] = ()

    def __init__(self, services: Services, registration: Registration, database: str, name: str) -> None:
        self.name = name
        self.uri = f"{database}/{name}.lance"
        self._services = services
        self._registration = registration
        self._database = database

    @boundary
    def describe(self) -> TableInfo:
        """Return schema, version, rows and computed columns. Raises TableNotFound."""
        if self._services.reads_alone() and (found := local_reads.local_table(self._database, self.name)) is not None:
            return found
        request = catalog_pb2.DescribeTableRequest(table=self.ref())
        return conversions.table_info(self.name, self._services.catalog.DescribeTable(request))

    @property
    def schema(self) -> pa.Schema:
        """The schema of all columns."""
        return self.describe().schema

    @property
    def version(self) -> int:
        """The latest version."""
        return self.describe().version

    def count_rows(self) -> int:
        """Count the rows, without deleted ones."""
        return self.describe().row_count

    @boundary
    def to_lance(self, version: int | str | None = None) -> lance.LanceDataset:
        """Open the table as a Lance dataset. Needs `leman[lance]`. Raises TableNotFound, VersionNotFound."""
        return local.open_table(self.uri, version)

    @boundary
    def to_batches(
        self,
        columns: list[str] | None = None,
        where: str | None = None,
        *,
        limit: int | None = None,
        offset: int = 0,
        version: int | str | None = None,
        batch_size: int = 0,
        include_checkpointed: bool = False,
    ) -> pa.RecordBatchReader:
        """Return the rows as a reader of record batches, read through the services.

        It needs no pylance, and only a few megabytes of memory. `columns`: None selects all columns that queries show.
        `where`: a SQL condition. `limit`, `offset`: apply to the rows for which `where` is true. `version`: a number or
        a tag; None: the latest. `batch_size`: at most this many rows in a batch; 0: 8,192.

        `include_checkpointed`: also return values of computed columns that jobs have stored but not committed yet, if
        the column's current function computed them from the current inputs. Other rows have the value of the latest
        version. `where` is evaluated on the returned values. This works while a job runs, and after it failed or was
        cancelled. It does not work with `version`, nor for a view. If the stream of a reader with checkpointed values
        is interrupted, the reader raises an error instead of resuming.

        Raises TableNotFound, VersionNotFound, ColumnNotFound, InvalidArgument, and FailedPrecondition (IS_A_VIEW) for a
        view with `include_checkpointed`. The reader raises later errors.
        """
        span: dict[str, Any] = {"limit": limit, "offset": offset, "version": version, "batch_size": batch_size}
        request = read_request(self.ref(), columns, where, **span, include_checkpointed=include_checkpointed)
        return RowStream(self._services, request).reader()

    def head(self, n: int = 5, *, include_checkpointed: bool = False) -> pa.Table:
        """Return the first `n` rows as an Arrow table. `include_checkpointed` and errors: as `to_arrow`."""
        return self.to_arrow(limit=n, include_checkpointed=include_checkpointed)

    @boundary
    def to_arrow(
        self,
        columns: list[str] | None = None,
        where: str | None = None,
        *,
        limit: int | None = None,
        offset: int = 0,
        version: int | str | None = None,
        include_checkpointed: bool = False,
    ) -> pa.Table:
        """Return the rows as an Arrow table, read without the services if pylance is installed (see `connect`).

        Parameters and errors: as `to_batches`.
        """
        if internal := [name for name in columns or () if name in self._hidden]:
            raise InvalidArgument(f"column {internal[0]!r} is internal to the view")
        span: dict[str, Any] = {"limit": limit, "offset": offset, "version": version}
        if self._services.direct and not include_checkpointed:
            rows = local.read_table(self.uri, columns, where, **span, shown=self._shown, hidden=self._hidden)
            if rows is not None:  # a view's metadata would make a table of these rows a view
                return rows.replace_schema_metadata() if self._hidden else rows
        request = read_request(self.ref(), columns, where, **span, include_checkpointed=include_checkpointed)
        return RowStream(self._services, request).read_all()

    def search(self, query: None = None) -> Query:
        """Return a query over the rows, from which you can make a view. `query` must be None: views do not search."""
        if query is not None:
            raise NotSupported(
                "search by vector or text is not supported: search(None) takes all rows. Search with Lance: "
                "to_lance().to_table(nearest={'column': …, 'q': […], 'k': 10}), or full_text_query='…' with an "
                "INVERTED index"
            )
        return Query(self)

    @boundary
    def get_errors(self, *, job_id: str, column_name: str | None = None, limit: int | None = None) -> RowErrors:
        """Return at most `limit` rows for which a job's function failed, by row address. Raises JobNotFound."""
        return list_errors(self._services, self._database, job_id, column_name, limit)

    @boundary
    def commits(self, *, limit: int = 100) -> list[Commit]:
        """Return at most `limit` versions of the table that Leman committed, newest first.

        Versions that were cleaned up are left out. Raises TableNotFound.
        """
        found: list[Commit] = []
        request = commit_pb2.ListCommitsRequest(table=self.ref())
        while len(found) < limit:  # pages may be short: a call reads a bounded number of versions
            request.page_size = min(limit - len(found), PAGE)
            answer = self._services.commits.ListCommits(request)
            found += map(conversions.commit, answer.commits)
            request.page_token = answer.next_page_token
            if not request.page_token:
                break
        return found

    @boundary
    def optimize_indices(self, columns: Sequence[str] | None = None) -> tuple[IndexCoverage, ...]:
        """Add the rows that the table's indexes on `columns` (None: all) lack, and return what the indexes cover.

        A backfill removes the fragments that it writes from the indexes on its column, and added rows are in no index
        yet. A search still finds such rows by scanning, but a fast search misses them. The call takes as long as Lance
        needs to index these rows. Raises TableNotFound.
        """
        if isinstance(columns, str):
            raise InvalidArgument(f"columns is a list of names, not {columns!r}")
        request = commit_pb2.OptimizeIndicesRequest(table=self.ref(), columns=columns or ())
        answer = self._services.commits.OptimizeIndices(request, timeout=_A_DAY)
        return tuple(conversions.index_coverage(index) for index in answer.indices)

    @boundary
    def checkpoints(self, *, limit: int = 10_000) -> tuple[StoredFile, ...]:
        """Return the table's checkpoints, fragment records and staged column files by path, each with its purpose.

        It returns at most `limit` files (`limit` may be up to 10,000). It changes nothing. Raises TableNotFound.
        """
        request = _maintenance.make_request(self.ref(), None, limit, dry_run=True, include_kept=True)
        with reading_service(self._services, "commit_coordinator") as services:
            return _maintenance.from_wire(services.commits.CollectGarbage(request), dry_run=True).files

    @boundary
    def collect_checkpoints(
        self, *, older_than: str | datetime.timedelta | None = None, dry_run: bool = False, limit: int = 1000
    ) -> CheckpointCollection:
        """Delete checkpoints, fragment records and staged column files that are no longer needed.

        `older_than`: keep younger garbage; a timedelta or a text such as `12h`, 7 days by default. Column files stay
        for at least a day. With 0 you assert that nothing writes to the table now: then younger column files are
        deleted too, if no job of the table is open. `dry_run`: only report what would be deleted. `limit`: how many
        files the result lists.

        Files are always kept if a version, tag or branch refers to them, if an unfinished fragment can reuse them, or
        if a job that has not ended may need them. Raises TableNotFound, InvalidArgument.
        """
        request = _maintenance.make_request(self.ref(), older_than, limit, dry_run=dry_run, include_kept=False)
        return _maintenance.from_wire(self._services.commits.CollectGarbage(request), dry_run=dry_run)

    def ref(self) -> catalog_pb2.TableRef:
        """Return the table's name for the wire."""
        return catalog_pb2.TableRef(database=self._database, table=self.name)
