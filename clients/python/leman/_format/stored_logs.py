"""The logs of a database: Lance tables of job states and of failed rows, and which of their rows count.

A state of a job is a text with its digest before it. A row that failed again is in the log again: the last one counts.
`ErrorGrouping` groups failed rows by what went wrong.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

#: Paths in a database, and the folder next to them for parts that were set aside.
JOBS = "_leman/jobs.lance"
ERRORS = "_leman/errors.lance"
DAMAGED = "damaged"
#: Replaces an exception's class if only the place of a failed row is stored.
PLACE_ONLY = ""
#: Column of a log that keeps an order: the row id that a row had before it was saved from a damaged fragment.
SAVED_FROM = "position"
ROW_ID = "_rowid"

#: Rows that fit none of this many groups are only counted.
MOST_GROUPS = 10_000
#: Rows that a group keeps as examples.
MOST_EXAMPLES = 5
#: Characters of a message that are shown, and that tell groups apart.
_SHOWN, _COMPARED = 200, 500
#: What differs from row to row in one and the same failure: numbers, and quoted text.
_VARYING = re.compile(r"'[^']*'|\"[^\"]*\"|\b0x[0-9a-f]+\b|\d+(?:\.\d+)?")
_LEFT_OUT = "…"
#: The first line of a message of pydantic, which says nothing of the reason; what follows a reason there.
_VALIDATION = re.compile(r"\d+ validation errors? for ")
_DETAILS = re.compile(r" (\[type=|\(type=).*")


def position(row: Mapping[str, object]) -> int:
    """Return where a row stands among all others of its table: in the order in which their appends were committed.

    Commits give out stable row ids in their order, and compaction keeps them, while it moves rows behind others that
    were appended meanwhile. A row that was saved from a damaged fragment is appended again under a new id; its column
    `position` has the old one. Rows with ids 0, 1, 2 of which the middle one was saved, with id 3, stand in the order
    0, 3 (position 1), 2.

    Returns:
        0 for all rows of a table without stable ids, as earlier releases made it: there the order of the manifest is
            all that is known.
    """
    if SAVED_FROM not in row:
        return 0
    before = row[SAVED_FROM]
    return int(str(row[ROW_ID] if before is None else before))


def sql_quoted(text: str) -> str:
    """Return a text as SQL writes it."""
    return "'" + text.replace("'", "''") + "'"


def is_sealed(record: str) -> bool:
    """Return whether a record carries a digest."""
    return not record.startswith("{")


class Word(Protocol):
    """The state that a job is in."""

    @property
    def terminal(self) -> bool: ...


class StateOfJob(Protocol):
    """What of a state of a job decides whether it counts."""

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
    """Return which of two states of a job counts, where `said` was written down after `known`.

    The first terminal state is final, but for the word that the job was deleted, after which nothing counts. An
    attempt belongs to the executor that wrote it down first; once a later one is written down, the earlier one's
    executor has nothing to say any more, not even that the job has ended.
    """
    if known is None or (said.deleted and known.state.terminal and not known.deleted):
        return said
    if known.state.terminal or said.attempt < known.attempt:
        return known
    return known if said.attempt == known.attempt and said.executor != known.executor else said


def failure_line(message: str) -> str:
    """Return what went wrong in one line: the first one, and of a validation error its fields and reasons too.

    "2 validation errors for Result\\nscore\\n  Input should be less … [type=…]\\n…" becomes "2 validation errors for
    Result: score: Input should be less …; tags.0: …". A line that ends with a colon is followed by the next one.
    """
    first, *more = message.strip().split("\n")
    if not _VALIDATION.match(first):
        return f"{first} {more[0].strip()}" if more and first.rstrip().endswith(":") else first
    field, reasons = "", []
    for line in more:
        if not line.startswith(" "):
            field = f"{line.strip()}: " if line.strip() else ""
        elif not line.startswith("    "):  # deeper is a link to pydantic's documentation
            reasons.append(field + _DETAILS.sub("", line).strip())
    return f"{first}: {'; '.join(reasons)}" if reasons else first


Row = TypeVar("Row")


class ErrorGroup(NamedTuple, Generic[Row]):
    """Rows on which the function failed alike."""

    error_type: str
    #: The `failure_line` of the messages, with `…` in place of what differs among them.
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
        """Count a row, as one of the group with the same exception and the same line but for what varies."""
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
