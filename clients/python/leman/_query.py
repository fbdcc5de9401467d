"""What a view is to hold, put together step by step."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeVar

from leman._registration import Registration
from leman._signature import check_columns
from leman._table_model import TableInfo
from leman._udf import UDF
from leman._view_wire import count
from leman._wire_values import ref
from leman.errors import InvalidArgument
from leman.v1 import catalog_pb2

QueryColumn = UDF | str | tuple[UDF | str, Sequence[str]]
"""A function, a SQL expression, or a function, made here or registered (`name@version`), and the source's columns that
take the place of its inputs."""

#: A registered function, where a SQL expression is expected.
_REGISTERED = re.compile(r"\s*[\w.-]+@[\w.-]+\s*")

View_co = TypeVar("View_co", covariant=True)


class Source(Protocol):
    """What a query is over: a table or a view."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    def describe(self) -> TableInfo:
        """Tell what it is now."""
        ...

    def ref(self) -> catalog_pb2.TableRef:
        """Name it on the wire."""
        ...


class ViewMaker(Protocol[View_co]):
    """What a view is made in: a database."""

    def create_materialized_view(
        self,
        name: str,
        query: Query,
        max_rows_per_fragment: int | None = None,
        *,
        exist_ok: bool = False,
        request_id: str | None = None,
    ) -> View_co:
        """Make a view of the query."""
        ...


_JOINED = "a view reads one table. Bring the other's columns into it by key with merge_insert, or join what you read"
_GROUPED = "a view has a row for each row of its source. Group what you read, for example to_arrow().group_by(...)"
_SORTED = "rows of a view are in the order of its source, or shuffled. Sort what you read: to_arrow().sort_by(...)"
#: What to do instead of what queries of others have, by name.
_OTHER_WAYS = {
    **dict.fromkeys(["join", "merge"], _JOINED),
    **dict.fromkeys(["group_by", "groupby", "agg", "aggregate", "distinct"], _GROUPED),
    **dict.fromkeys(["order_by", "sort", "sort_by"], _SORTED),
}


@dataclass(frozen=True, slots=True)
class FunctionColumn:
    """A column that a function computes: one made by `@leman.udf`, or a registered one, `name` or `name@version`."""

    name: str
    function: UDF | str
    inputs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Query:
    """Rows and columns of a table, made by `Table.search(None)`. Every method returns a new query.

        table.search(None).where("age > 21").select(["name"]).add_column("n", word_count).shuffle(seed=42)

    A view made of it holds one row for each row of the table that the filter matches.
    """

    table: Source
    filter: str = ""
    columns: tuple[tuple[str, str], ...] = ()
    expressions: tuple[tuple[str, str], ...] = ()
    functions: tuple[FunctionColumn, ...] = ()
    seed: int | None = None
    most: int | None = None
    skipped: int = 0

    def where(self, expression: str) -> Self:
        """Only rows for which this SQL expression is true; given twice, both have to be."""
        if not _is_text(expression):
            raise InvalidArgument(f'where is a SQL expression such as "age > 21", not {expression!r}')
        both = f"({self.filter}) AND ({expression})" if self.filter else expression
        return dataclasses.replace(self, filter=both)

    def select(self, columns: Sequence[str] | Mapping[str, str]) -> Self:
        """Only these columns: their names, or a mapping of names to SQL expressions (`{"title": "upper(name)"}`).
        Without it a view has all columns of its source. Given twice, the last one holds."""
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
        """One more column: computed by a function, by `(function, [columns])` where its inputs are called otherwise
        in the table, by a registered one, `("name@version", [columns])`, or by a SQL expression."""
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
        """Rows in a random order, the same for the same seed. Rows that a refresh adds are shuffled among themselves
        and come after the others."""
        _check_seed(seed)
        return dataclasses.replace(self, seed=seed)

    def limit(self, rows: int) -> Self:
        """At most so many rows, the first by row id of the table, chosen before the shuffle. Stays exact when the
        table changes."""
        return dataclasses.replace(self, most=_rows("limit", rows))

    def offset(self, rows: int) -> Self:
        """Leave out so many rows, the first by row id of the table."""
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
        """As `Database.create_materialized_view`; `conn`: the database that the view is made in."""
        if not hasattr(conn, "create_materialized_view"):
            raise InvalidArgument(f"conn is the database that the view is made in, not a {type(conn).__name__}")
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
    """None is no number of rows: a limit of 0 would be a view of nothing."""
    if rows is None:
        raise InvalidArgument(f"{name} is a whole number, 0 or more, not None: leave {name}() out for all rows")
    return count(name, rows, least=0) or 0


def _check_seed(seed: Any) -> None:
    if isinstance(seed, bool) or not isinstance(seed, int) or not -(1 << 63) <= seed < 1 << 63:
        raise InvalidArgument(f"seed is a whole number, not {seed!r}")


def query_message(query: Query, registration: Registration) -> catalog_pb2.ViewQuery:
    """The query, its functions registered in the view's database once all is checked that can be checked here."""
    table = query.table.describe()
    for column in query.functions:
        if isinstance(column.function, UDF):
            column.function.check_inputs(table.schema, column.inputs or column.function.input_columns)
    message = catalog_pb2.ViewQuery(
        source=query.table.ref(),
        where=query.filter,
        shuffle_seed=query.seed,
        limit=query.most,
        offset=query.skipped,
    )
    columns = query.columns
    if query.expressions and not columns:  # all columns of the source, and these
        columns = tuple((name, "") for name in table.schema.names)
    for name, expression in [*columns, *query.expressions]:
        message.columns.add(name=name, expression=expression)
    for column in query.functions:
        found = registration.resolve(column.function)
        message.functions.add(name=column.name, udf=ref(found.name, found.version), input_columns=column.inputs)
    return message


def check_no_function(name: str, expression: str) -> None:
    """Refuse the name of a registered function, where a SQL expression is expected. Raises InvalidArgument."""
    if _REGISTERED.fullmatch(expression):
        raise InvalidArgument(
            f"column {name!r}: a registered function goes with the columns that it reads: "
            f"('{expression.strip()}', ['input column', ...])"
        )


def no_function(name: str, value: object) -> InvalidArgument:
    """The error where what is to compute a column is nothing that can."""
    return InvalidArgument(
        f"column {name!r}: give a function made by @leman.udf, (function, ['input column', ...]),"
        f" a registered one by ('name@version', ['input column', ...]), or a SQL expression, not {value!r}"
    )
