"""A database's logs, which are Lance tables of job states and of failed rows, and the rules for which rows count.

A job state is stored as text with its digest in front. A row that failed again is logged again, and its last entry
counts. `ErrorGrouping` groups failed rows by error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

#: Paths in a database; the last one is the folder for damaged parts that were set aside.
JOBS = "_leman/jobs.lance"
ERRORS = "_leman/errors.lance"
DAMAGED = "damaged"
#: The exception's class in an entry that has only the address of a failed row, not the error.
PLACE_ONLY = ""
#: A log's column for the row id that a row had before it was saved from a damaged fragment. It keeps the order.
SAVED_FROM = "position"
ROW_ID = "_rowid"

#: The maximum number of groups. Rows that fit none of them are only counted.
MOST_GROUPS = 10_000
#: The maximum number of example rows in a group.
MOST_EXAMPLES = 5
#: Characters of a message that are shown, and that are compared to find its group.
_SHOWN, _COMPARED = 200, 500
#: The parts of a message that vary among rows with the same error: numbers and quoted text.
_VARYING = re.compile(r"'[^']*'|\"[^\"]*\"|\b0x[0-9a-f]+\b|\d+(?:\.\d+)?")
_LEFT_OUT = "…"
#: The first line of a pydantic message, which contains no reason, and the text after each reason.
_VALIDATION = re.compile(r"\d+ validation errors? for ")
_DETAILS = re.compile(r" (\[type=|\(type=).*")


def position(row: Mapping[str, object]) -> int:
    """Return a row's place in the order in which a table's appends were committed.

    Commits assign stable row ids in increasing order, and compaction keeps them although it moves rows behind later
    ones. A row that was saved from a damaged fragment was appended again and has a new id; its column `position` has
    the old one. Example: of rows 0, 1 and 2, the middle one was saved and got id 3. The order is 0, 3 (position 1), 2.

    Returns:
        0 for all rows of a table without stable row ids, as earlier releases made it. Such rows keep the manifest's
            order.
    """
    if SAVED_FROM not in row:
        return 0
    before = row[SAVED_FROM]
    return int(str(row[ROW_ID] if before is None else before))


def sql_quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def is_sealed(record: str) -> bool:
    return not record.startswith("{")


class Word(Protocol):
    @property
    def terminal(self) -> bool: ...


class StateOfJob(Protocol):
    """The fields of a stored job state that decide whether it counts."""

    @property
    def state(self) -> Word: ...

    @property
    def attempt(self) -> int: ...

    @property
    def executor(self) -> str: ...

    @property
    def deleted(self) -> bool: ...


_State = TypeVar("_State", bound=StateOfJob)


def newer_state(known: _State | None, said: _State) -> _State:
    """Return which of two states of a job counts, where `said` was stored after `known`.

    The first terminal state is final; only the deletion of the job may follow it. An attempt belongs to the executor
    that stored it first. Once a later attempt is stored, nothing that an earlier attempt's executor stores counts, not
    even that the job has ended.
    """
    if known is None or (said.deleted and known.state.terminal and not known.deleted):
        return said
    if known.state.terminal or said.attempt < known.attempt:
        return known
    return known if said.attempt == known.attempt and said.executor != known.executor else said


def failure_line(message: str) -> str:
    """Return an error message as one line: its first line, or for a validation error also its fields and reasons.

    "2 validation errors for Result\\nscore\\n  Input should be less … [type=…]\\n…" becomes "2 validation errors for
    Result: score: Input should be less …; tags.0: …". If a line ends with a colon, the next one is added.
    """
    first, *more = message.strip().split("\n")
    if not _VALIDATION.match(first):
        return f"{first} {more[0].strip()}" if more and first.rstrip().endswith(":") else first
    field, reasons = "", []
    for line in more:
        if not line.startswith(" "):
            field = f"{line.strip()}: " if line.strip() else ""
        elif not line.startswith("    "):  # more indented lines are links to pydantic's documentation
            reasons.append(field + _DETAILS.sub("", line).strip())
    return f"{first}: {'; '.join(reasons)}" if reasons else first


Row = TypeVar("Row")


class ErrorGroup(NamedTuple, Generic[Row]):
    """Rows on which the function failed with the same error."""

    error_type: str
    #: The `failure_line` of the messages, with `…` for the parts that vary among them.
    message: str
    rows: int
    #: The rows that were added first.
    examples: tuple[Row, ...]


@dataclass(slots=True)
class _Counted(Generic[Row]):
    line: str
    #: The numbers and quoted texts of the line, with `…` for those that vary among the messages.
    values: list[str]
    rows: int
    examples: list[Row]


class ErrorGrouping(Generic[Row]):
    """Counts failed rows by error. Rows are added in the order of their addresses. Its memory is bounded."""

    def __init__(self) -> None:
        self._groups: dict[tuple[str, str], _Counted[Row]] = {}
        #: The number of rows added, and the number of those in no group.
        self.rows = 0
        self.ungrouped = 0

    def add(self, error_type: str, message: str, row: Row) -> None:
        """Count a row in the group of rows with the same exception and message, apart from varying parts."""
        self.rows += 1
        line = failure_line(message)
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
            pairs = zip(group.values, _VARYING.findall(line), strict=False)  # ends may differ
            group.values = [value if value == other else _LEFT_OUT for value, other in pairs]

    def largest_first(self) -> list[ErrorGroup[Row]]:
        """Return the groups, the largest first; groups of one size are in the order of their first rows."""
        found = sorted(self._groups.items(), key=lambda item: -item[1].rows)
        return [
            ErrorGroup(error_type, _message(group), group.rows, tuple(group.examples))
            for (error_type, _), group in found
        ]


def _message(group: _Counted[Row]) -> str:
    values = iter(group.values)
    line = _VARYING.sub(lambda _: next(values, _LEFT_OUT), group.line)
    return line if len(line) <= _SHOWN else line[: _SHOWN - 1] + _LEFT_OUT
