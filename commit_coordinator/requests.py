"""What callers ask for, and what becomes of it."""

from __future__ import annotations

import enum
from dataclasses import dataclass

import pyarrow as pa

from commit_coordinator.views.requests import ViewRequest
from core.domain.plan import OutputField, StagedFile


@dataclass(frozen=True, slots=True)
class Replacement:
    """A column file for one fragment, with all that its correctness rests on.

    `input_files` are the data files of the input columns that it was computed from, `replaces` the output
    column's file that the plan saw (empty: none).
    """

    fragment_id: int
    staged: StagedFile
    input_files: tuple[str, ...]
    replaces: str = ""


@dataclass(frozen=True, slots=True)
class ReplaceRequest:
    """Install one column's files. `input_field_ids` empty: the inputs that the column's metadata names.
    `inputs_version`: see ReplaceColumn in protos/leman/internal/v1/submission.proto."""

    uri: str
    incarnation: str
    request_id: str
    job_id: str
    read_version: int
    output: OutputField
    replacements: tuple[Replacement, ...]
    input_field_ids: tuple[int, ...] = ()
    attempt: int = 0
    inputs_version: int = 0


@dataclass(frozen=True, slots=True)
class AddColumnsRequest:
    """Add columns without data. `incarnation` empty: whichever table is there."""

    uri: str
    incarnation: str
    request_id: str
    schema: pa.Schema


@dataclass(frozen=True, slots=True)
class BindColumnsRequest:
    """Say which functions compute columns. `incarnation` empty: whichever table is there."""

    uri: str
    incarnation: str
    request_id: str
    schema: pa.Schema


@dataclass(frozen=True, slots=True)
class BeginAttemptRequest:
    """Refuse all earlier attempts at the job."""

    uri: str
    incarnation: str
    request_id: str
    job_id: str
    attempt: int


CommitRequest = ReplaceRequest | AddColumnsRequest | BindColumnsRequest | BeginAttemptRequest | ViewRequest


class Status(enum.Enum):
    """What can become of a fragment. Meanings: `protos/leman/internal/v1/submission.proto`."""

    COMMITTED = "committed"
    ALREADY_CURRENT = "already_current"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one fragment; `version` is that of the table in which its file is (0: not committed)."""

    fragment_id: int
    status: Status
    reason: str = ""
    message: str = ""
    version: int = 0


@dataclass(frozen=True, slots=True)
class CommitResult:
    """Answer to a request: outcomes in the order of its fragments; `version` 0: nothing was committed. `operation`
    names what had no fragments."""

    version: int
    outcomes: tuple[Outcome, ...] = ()
    operation: str = ""
