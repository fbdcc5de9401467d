"""The values in which a verification of a database reports."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import NamedTuple


class Subject(enum.Enum):
    """The kind of a verified thing. Meanings: `protos/leman/v1/commit.proto`."""

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
    """Something that is not as it was written, and where."""

    subject: Subject
    flaw: Flaw
    #: Within the database.
    path: str
    #: For a person; it ends with what to do.
    message: str
    table: str = ""
    columns: tuple[str, ...] = ()
    #: -1: none.
    fragment_id: int = -1
    rows: int = 0


@dataclass(frozen=True, slots=True)
class Inspection:
    """One verified thing."""

    subject: Subject
    size_bytes: int = 0
    #: Whether there was a digest to compare it with, or all of it was read.
    verifiable: bool = True
    findings: tuple[Finding, ...] = ()


class ResumePoint(NamedTuple):
    """The last thing that a verification has looked at.

    Points compare in the order of verification.
    """

    #: Empty for things of the whole database.
    table: str
    part: int
    name: str


@dataclass(slots=True)
class Count:
    """The number of things of one kind, and their bytes."""

    looked: int = 0
    unverifiable: int = 0
    flawed: int = 0
    size_bytes: int = 0


@dataclass(slots=True)
class FindingCounts:
    """The things verified since the last report, and the findings."""

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
