"""What a verification of a database looks at, and what it finds."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import NamedTuple


class Subject(enum.Enum):
    """What was looked at. Meanings: `protos/leman/v1/commit.proto`."""

    FUNCTION = "function"
    BUNDLE = "bundle"
    JOB_HISTORY = "job history"
    ERROR_STORE = "error store"
    TABLE = "table"
    COLUMN = "column"
    VIEW = "view"
    COLUMN_FILE = "column file"
    DATA_FILE = "data file"
    NOTE = "note of committed files"
    CHECKPOINT = "checkpoint"
    RECORD = "fragment record"
    SOURCE_RECORD = "record of a source"


class Flaw(enum.Enum):
    """What is wrong. Meanings: `protos/leman/v1/commit.proto`."""

    DAMAGED = "damaged"
    MISSING = "missing"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it was written. `path` is within the database. `columns`, `fragment_id` (-1: none) and
    `rows` say what it is about; `message` is for a person, and ends with what to do."""

    subject: Subject
    flaw: Flaw
    path: str
    message: str
    table: str = ""
    columns: tuple[str, ...] = ()
    fragment_id: int = -1
    rows: int = 0


@dataclass(frozen=True, slots=True)
class Looked:
    """One thing that was looked at. `verifiable`: there was a digest to compare it with, or all of it was read."""

    subject: Subject
    size_bytes: int = 0
    verifiable: bool = True
    findings: tuple[Finding, ...] = ()


class Place(NamedTuple):
    """How far a verification has come: the last thing that was looked at. `table` is empty for what a database has
    once; places compare in the order in which things are looked at."""

    table: str
    part: int
    name: str


@dataclass(slots=True)
class Count:
    """Things of one subject."""

    looked: int = 0
    unverifiable: int = 0
    flawed: int = 0
    size_bytes: int = 0


@dataclass(slots=True)
class FindingCounts:
    """What was looked at since the last report, and what was found."""

    counts: dict[Subject, Count] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def add(self, looked: Looked) -> None:
        """Counts one thing."""
        count = self.counts.setdefault(looked.subject, Count())
        count.looked += 1
        count.size_bytes += looked.size_bytes
        count.unverifiable += not looked.verifiable
        count.flawed += bool(looked.findings)
        self.findings.extend(looked.findings)
