"""SQL expressions that compute a column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from leman.error_handling import ErrorHandlingConfig
from leman.errors import InvalidArgument, UdfDefinitionError
from leman.v1 import catalog_pb2


@dataclass(frozen=True)
class SqlExpression:
    """A SQL expression and what happens to rows for which it has no value. Made by `leman.sql`."""

    text: str
    error_handling: ErrorHandlingConfig | None = None

    def column(self, name: str) -> catalog_pb2.NewColumn:
        """As a new column on the wire."""
        policy = None if self.error_handling is None else self.error_handling.proto()
        return catalog_pb2.NewColumn(name=name, sql_expression=self.text, error_policy=policy)


def sql(expression: str, *, error_handling: ErrorHandlingConfig | None = None) -> SqlExpression:
    """A SQL expression for `Table.add_columns` and `alter_columns`, where a text alone does not say enough.

    `error_handling`: what happens to rows for which it has no value, as of a cast of `'abc'` to a number or a division
    by zero: rules call that `SqlError`, and nothing is tried again. Without it the first such row ends the job, or what
    the same expression was registered with before holds.
    """
    given: Any = expression
    if not isinstance(given, str):
        raise InvalidArgument(f"sql() takes a SQL expression as text, not {given!r}")
    if error_handling is not None and not isinstance(error_handling, ErrorHandlingConfig):
        raise UdfDefinitionError("error_handling takes a leman.ErrorHandlingConfig")
    return SqlExpression(expression, error_handling)
