"""The logs of a database: Lance tables to which states of jobs and failed rows are appended, and which of them count.

A state of a job is a text with a digest of its own before it. A row that failed again is in the log again: the last one
counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeVar

#: Paths in a database, and the folder next to them for parts that were set aside.
JOBS = "_leman/jobs.lance"
ERRORS = "_leman/errors.lance"
DAMAGED = "damaged"
#: Replaces an exception's class if only the place of a failed row is stored.
PLACE_ONLY = ""
#: Column of a log that keeps an order: the row id that a row had before it was saved from a damaged fragment.
SAVED_FROM = "position"
ROW_ID = "_rowid"


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
