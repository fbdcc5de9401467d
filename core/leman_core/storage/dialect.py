"""SQL as callers write it → SQL as Lance reads it: its parser knows no CASE, and takes no text for a time.

CASE becomes `nvl2`, which Lance evaluates as a CASE: of a branch that is not taken nothing is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import lance
import pyarrow as pa
import pyarrow.types as pt

from leman_core.sql import case_expressions, nesting, time_literals
from leman_core.sql.arrow_names import rust_name
from leman_core.sql.case_expressions import Case
from leman_core.sql.common_types import common_type, sort_of
from leman_core.sql.filters import Kind, invalid, tokens
from leman_core.storage.panics import panics_as_errors

#: What Lance raises for an expression that it cannot plan.
ERRORS = (ValueError, OSError, RuntimeError, NotImplementedError)


class Dialect:
    """What translates for one version of a table. For many threads at once."""

    def __init__(self, dataset: lance.LanceDataset) -> None:
        self._dataset = dataset
        self._known: dict[str, str] = {}

    def lance(self, sql: str) -> str:
        """Return a checked filter or expression as Lance reads it; mostly the same text.

        What a table or view has stored is bounded here, so that nothing ends the process that others wrote.

        Raises:
            InvalidArgument: INVALID_FILTER.
            Exception: what Lance raises for a part that it cannot plan (`ERRORS`).
        """
        if sql not in self._known:
            if problem := nesting.stored_problem(sql):
                raise invalid(problem)
            self._known[sql] = self._translated(sql)
        return self._known[sql]

    def type_of(self, expression: str) -> pa.DataType:
        """Return what an expression in Lance's own words gives. Reads no rows. Raises `ERRORS`."""
        columns = {"value": f"({expression})", "row": "_rowid"}  # Lance refuses to read no column at all
        with panics_as_errors():
            return self._dataset.scanner(columns=columns).projected_schema.field("value").type

    def _translated(self, sql: str) -> str:
        found = tokens(sql)
        has_case = any(token.kind is Kind.WORD and token.lower == "case" for token in found)
        if not has_case and not time_literals.mentioned(found):
            return sql
        while has_case and (case := case_expressions.first(sql, tokens(sql))) is not None:
            sql = f"{sql[: case.begin]} {self._without_case(case)} {sql[case.end :]}".strip()
        return time_literals.with_numbers(sql, self._type_if_any)

    def _type_if_any(self, expression: str) -> pa.DataType | None:
        try:
            return self.type_of(expression)
        except ERRORS:
            return None  # Lance says of the whole text what is wrong with it

    def _without_case(self, case: Case) -> str:
        conditions = [self._condition(case.operand, when) for when, _ in case.branches]
        values = [self._translated(value) for value in (*(then for _, then in case.branches), case.otherwise)]
        kinds = [self.type_of(value) for value in values]
        if all(pt.is_null(kind) for kind in kinds):
            raise invalid("CASE is NULL for every row, of no type; write cast(NULL as …)")
        common = common_type(values, kinds, self.type_of)
        if pt.is_boolean(common):
            # of truth values Lance would make AND and OR, and compute all branches
            numbers = [f"cast(({value}) as bigint)" for value in values]
            return f"({_chosen(conditions, numbers, _as_number)} = 1)"
        name = rust_name(common)
        alike = [v if kind == common else f"arrow_cast({v}, '{name}')" for v, kind in zip(values, kinds, strict=True)]
        return _chosen(conditions, alike, lambda condition: _as(common, condition))

    def _condition(self, operand: str, when: str) -> str:
        if operand:
            when = f"({operand}) = {when if len(tokens(when)) == 1 else f'({when})'}"
        made = self._translated(when)
        kind = self.type_of(made)
        if not (pt.is_boolean(kind) or pt.is_null(kind)):
            raise invalid(f"WHEN needs a condition, {when} is {kind}")
        return made


def _chosen(conditions: Sequence[str], values: Sequence[str], marked: Callable[[str], str]) -> str:
    """Return the value of the first condition that holds, or the last of the values.

    `marked` makes of a condition a value, of the values' sort, that is NULL where it does not hold.
    """
    *values, result = values
    for condition, value in zip(reversed(conditions), reversed(values), strict=True):
        result = f"nvl2({marked(condition)}, {value}, {result})"
    return result


def _as(kind: pa.DataType, condition: str) -> str:
    """Return a value of a type that is not of truth; the number is 0, which all types of numbers and times have."""
    if sort_of(kind) in {"text", "bytes"}:
        return f"arrow_cast({_as_text(condition)}, '{rust_name(kind)}')"
    number = f"1 - {_as_number(condition)}"
    if pt.is_time32(kind):
        number = f"arrow_cast({number}, 'Int32')"
    return f"arrow_cast({number}, '{rust_name(kind)}')"


def _as_number(condition: str) -> str:
    return f"nullif(cast(({condition}) as bigint), 0)"


def _as_text(condition: str) -> str:
    return f"nullif(cast(({condition}) as string), 'false')"
