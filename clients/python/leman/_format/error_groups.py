"""Group failed rows by what went wrong: one rule for the services and for reads that need no services."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

#: Rows that fit none of this many groups are only counted.
MOST_GROUPS = 10_000
#: Rows that a group keeps as examples.
MOST_EXAMPLES = 5
#: Characters of a message that are shown, and that tell groups apart.
_SHOWN, _COMPARED = 200, 500
#: What differs from row to row in one and the same failure: numbers, and quoted text.
_VARYING = re.compile(r"'[^']*'|\"[^\"]*\"|\b0x[0-9a-f]+\b|\d+(?:\.\d+)?")
_LEFT_OUT = "…"

Row = TypeVar("Row")


class ErrorGroup(NamedTuple, Generic[Row]):
    """Rows on which the function failed alike."""

    error_type: str
    #: The first line of the messages, with `…` in place of what differs among them.
    message: str
    rows: int
    #: The first rows that were added.
    examples: tuple[Row, ...]


@dataclass(slots=True)
class _Counted(Generic[Row]):
    line: str
    #: The numbers and quoted texts of the line; `…` where a later message has another one.
    values: list[str]
    rows: int
    examples: list[Row]


class ErrorGrouping(Generic[Row]):
    """Counts failed rows, in the order of their addresses. Its memory does not grow with the number of rows."""

    def __init__(self) -> None:
        self._groups: dict[tuple[str, str], _Counted[Row]] = {}
        #: Rows that were added, and those of them that are in no group.
        self.rows = 0
        self.ungrouped = 0

    def add(self, error_type: str, message: str, row: Row) -> None:
        """Count a row, as one of the group with the same exception and the same first line but for what varies."""
        self.rows += 1
        line = message.strip().split("\n", 1)[0]
        key = error_type, _VARYING.sub(_LEFT_OUT, line)[:_COMPARED]
        group = self._groups.get(key)
        if group is None:
            if len(self._groups) >= MOST_GROUPS:
                self.ungrouped += 1
                return
            group = self._groups[key] = _Counted(line, _VARYING.findall(line), 0, [])
        group.rows += 1
        if len(group.examples) < MOST_EXAMPLES:
            group.examples.append(row)
        if any(value != _LEFT_OUT for value in group.values):
            pairs = zip(group.values, _VARYING.findall(line), strict=False)  # lines may differ beyond what is compared
            group.values = [value if value == other else _LEFT_OUT for value, other in pairs]

    def largest_first(self) -> list[ErrorGroup[Row]]:
        """Return the groups; those of one size in the order of their first rows."""
        found = sorted(self._groups.items(), key=lambda item: -item[1].rows)
        return [
            ErrorGroup(error_type, _message(group), group.rows, tuple(group.examples))
            for (error_type, _), group in found
        ]


def _message(group: _Counted[Row]) -> str:
    values = iter(group.values)
    line = _VARYING.sub(lambda _: next(values, _LEFT_OUT), group.line)
    return line if len(line) <= _SHOWN else line[: _SHOWN - 1] + _LEFT_OUT
