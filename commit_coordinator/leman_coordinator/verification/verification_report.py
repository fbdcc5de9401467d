"""The values that report the verification of a database."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import NamedTuple


class Subject(enum.Enum):
    """A kind of verified thing. Meanings: `protos/leman/v1/commit.proto`."""

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
    """A kind of problem. Meanings: `protos/leman/v1/commit.proto`."""

    DAMAGED = "damaged"
    MISSING = "missing"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem: which stored data was changed or lost, and where it is."""

    subject: Subject
    flaw: Flaw
    #: The path in the database.
    path: str
    #: A message for people, which ends with advice.
    message: str
    table: str = ""
    columns: tuple[str, ...] = ()
    #: -1 if no fragment is concerned.
    fragment_id: int = -1
    rows: int = 0


@dataclass(frozen=True, slots=True)
class Inspection:
    """One verified thing."""

    subject: Subject
    size_bytes: int = 0
    #: Whether it can be checked: by comparing it with a digest, or by reading all of it.
    verifiable: bool = True
    findings: tuple[Finding, ...] = ()


class ResumePoint(NamedTuple):
    """The last thing that a verification has checked.

    Points compare in the order of the verification.
    """

    #: Empty for things outside of tables.
    table: str
    part: int
    name: str


@dataclass(slots=True)
class Count:
    """The number of things of one kind, and their total bytes."""

    looked: int = 0
    unverifiable: int = 0
    flawed: int = 0
    size_bytes: int = 0


@dataclass(slots=True)
class FindingCounts:
    """The things verified since the last report, with the findings."""

    counts: dict[Subject, Count] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def add(self, looked: Inspection) -> None:
        """Count one thing, and keep its findings."""
        count = self.counts.setdefault(looked.subject, Count())
        count.looked += 1
        count.size_bytes += looked.size_bytes
        count.unverifiable += not looked.verifiable
        count.flawed += bool(looked.findings)
        self.findings.extend(looked.findings)
