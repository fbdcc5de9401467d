"""The requests of callers, and their results."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

import pyarrow as pa

from leman_coordinator.tables.requests import TableRequest
from leman_coordinator.views.requests import ViewRequest
from leman_core.model.plan import FragmentReplacement, OutputField


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaceRequest:
    """Install files of a column, and of others with it."""

    uri: str
    incarnation: str
    request_id: str
    job_id: str
    read_version: int
    output: OutputField
    replacements: tuple[FragmentReplacement, ...]
    #: Empty: the inputs that the column's metadata names.
    input_field_ids: tuple[int, ...] = ()
    attempt: int = 0
    #: See ReplaceColumn in protos/leman/internal/v1/submission.proto.
    inputs_version: int = 0
    #: Other columns of the same request.
    others: tuple[ReplaceRequest, ...] = ()

    @property
    def columns(self) -> tuple[ReplaceRequest, ...]:
        """Return the request column by column."""
        return (self, *self.others)


@dataclass(frozen=True, slots=True, kw_only=True)
class AddColumnsRequest:
    """Add columns without data. `incarnation` empty: whichever table is there."""

    uri: str
    incarnation: str
    request_id: str
    schema: pa.Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class BindColumnsRequest:
    """Say which functions compute columns. `incarnation` empty: whichever table is there."""

    uri: str
    incarnation: str
    request_id: str
    schema: pa.Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginAttemptRequest:
    """Refuse all earlier attempts at the job."""

    uri: str
    incarnation: str
    request_id: str
    job_id: str
    attempt: int


CommitRequest = (
    ReplaceRequest | AddColumnsRequest | BindColumnsRequest | BeginAttemptRequest | ViewRequest | TableRequest
)


class Status(enum.Enum):
    """What can become of a fragment. Meanings: `protos/leman/internal/v1/submission.proto`."""

    COMMITTED = "committed"
    ALREADY_CURRENT = "already_current"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one fragment."""

    fragment_id: int
    status: Status
    reason: str = ""
    message: str = ""
    #: The version of the table in which the fragment's file is; 0: not committed.
    version: int = 0


#: Answers that are right whichever table has the name afterwards.
_ENDINGS = frozenset({"DropTable", "DropView"})


@dataclass(frozen=True, slots=True)
class CommitResult:
    """The answer to a request."""

    #: 0: nothing was committed.
    version: int
    #: In the order of the request's fragments.
    outcomes: tuple[Outcome, ...] = ()
    #: The name of an operation that has no fragments.
    operation: str = ""
    #: How many rows came, went or changed.
    rows: int = 0
    #: How long the version took to write, where it was written for this request's fragments; 0: not known.
    manifest_seconds: float = field(default=0.0, compare=False)
    #: Whether it is known that this version has no index.
    without_indexes: bool = field(default=False, compare=False)
    #: How many rows a merge inserted, updated and deleted.
    merged: tuple[int, ...] = ()
    #: An earlier call with this request id had committed it already.
    repeated: bool = False
    #: Where the table lies that it is about; empty: where the request said.
    place: str = field(default="", compare=False)
    #: The incarnation of that table; empty: not known.
    incarnation: str = field(default="", compare=False)

    def is_about(self, uri: str, asked: str) -> bool:
        """Tell whether the answer, to a request for `asked`, is about the table at a place."""
        return self.operation not in _ENDINGS and (self.place or asked) == uri
