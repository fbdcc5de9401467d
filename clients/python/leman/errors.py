"""The errors that Leman raises, all of them subclasses of `LemanError`.

    LemanError
    ├── InvalidArgument (ValueError)              the request is wrong, whatever the state of the tables
    │   └── UdfDefinitionError (TypeError)        a function cannot be used as it is written
    │       └── VersionRequired                   its version cannot be derived: give version=
    ├── NotFound (KeyError)
    │   ├── TableNotFound · VersionNotFound · UdfNotFound · JobNotFound
    │   └── ColumnNotFound (ValueError)
    ├── AlreadyExists (ValueError)
    │   └── TableExists · ColumnExists · UdfExists
    ├── FailedPrecondition                        table or function is not ready for the request
    │   ├── ColumnChanged (ValueError)            a column is there with another definition: say what becomes of it
    │   ├── ColumnNotDefined (ValueError)         no add_columns() for this column yet
    │   ├── InputColumnMissing (ValueError, KeyError)
    │   ├── InputColumnStale                      computed columns that a column reads are not current
    │   ├── TypeMismatch (TypeError)
    │   ├── TypeNotStorable (TypeError)           Lance does not store the type that a function gives
    │   └── ResourcesNotAvailable                 a function asks for what no worker has
    ├── Aborted                                   the table changed meanwhile: try again
    ├── Unavailable (ConnectionError)             no service answers
    │   └── StartFailed                           the embedded services did not come up
    ├── DeadlineExceeded (TimeoutError)
    ├── Cancelled                                 the call was ended by its caller
    ├── ResourceExhausted                         too many jobs, or a message too large
    ├── DataLoss                                  a stored file is damaged
    ├── Unauthenticated (PermissionError)         no valid token
    ├── PermissionDenied (PermissionError)        a valid token, and no right to do that
    ├── NotSupported (NotImplementedError)        not part of this release
    ├── MissingDependency (ImportError)           an optional package is not installed
    ├── Internal (RuntimeError)                   a bug of Leman's
    ├── JobFailed (RuntimeError)                  a job ended as FAILED
    └── JobCancelled                              a job ended as CANCELLED

Each has a `reason` (a stable word for programs, such as COLUMN_NOT_DEFINED), a message that says what to do
next, `facts` (short strings for programs), the `code` of gRPC, the `fields` of the request that are wrong, and in
`retry_after` how long the services ask to wait.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from leman._message_text import Shown


@dataclass(frozen=True, slots=True)
class FieldViolation:
    """A field of a request that is wrong, as a path such as `spec.where`, and what is wrong with it."""

    field: str
    description: str


class LemanError(Shown, Exception):
    """Base of all errors that Leman raises on purpose. `str()` is the message alone."""

    default_reason = "INTERNAL"
    default_code = "UNKNOWN"

    def __init__(self, message: str, *, reason: str = "", facts: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason or self.default_reason
        self.facts = dict(facts or {})
        self.code = self.default_code
        """Name of the gRPC code, also where no service was asked."""
        self.fields: tuple[FieldViolation, ...] = ()
        """The fields of the request that are wrong, as far as the services name them."""
        self.retry_after: float | None = None
        """Seconds after which the services say that the call may be made again; None: they say nothing."""

    def __str__(self) -> str:
        return self.message  # KeyError would show its repr

    def _render_traceback_(self) -> list[str]:
        """What IPython shows of it where no one caught it."""
        lines: list[str] = importlib.import_module("leman._notebook").error_lines(self)
        return lines


class InvalidArgument(LemanError, ValueError):
    """The request is wrong, whatever the state of the tables."""

    default_reason = "INVALID_ARGUMENT"
    default_code = "INVALID_ARGUMENT"


class UdfDefinitionError(InvalidArgument, TypeError):
    """A function cannot be used as a UDF the way it is written or annotated."""

    default_reason = "INVALID_UDF"


class VersionRequired(UdfDefinitionError):
    """The version of a function cannot be derived from what it is made of; give `version=`."""

    default_reason = "VERSION_REQUIRED"


class NotFound(LemanError, KeyError):
    """What the request names does not exist."""

    default_reason = "NOT_FOUND"
    default_code = "NOT_FOUND"


class TableNotFound(NotFound):
    """No such table in the database."""

    default_reason = "TABLE_NOT_FOUND"


class VersionNotFound(NotFound):
    """The table has no such version (any more)."""

    default_reason = "VERSION_NOT_FOUND"


class UdfNotFound(NotFound):
    """No function is registered under that name and version."""

    default_reason = "UDF_NOT_FOUND"


class JobNotFound(NotFound):
    """The database has no such job."""

    default_reason = "JOB_NOT_FOUND"


class ColumnNotFound(NotFound, ValueError):
    """The table has no such column."""

    default_reason = "COLUMN_NOT_FOUND"
    default_code = "FAILED_PRECONDITION"


class AlreadyExists(LemanError, ValueError):
    """Something else stands under that name or request id."""

    default_reason = "ALREADY_EXISTS"
    default_code = "ALREADY_EXISTS"


class TableExists(AlreadyExists):
    """The database has a table of that name."""

    default_reason = "TABLE_EXISTS"


class ColumnExists(AlreadyExists):
    """The table has a column of that name."""

    default_reason = "COLUMN_EXISTS"


class UdfExists(AlreadyExists):
    """Other code, or another definition, is registered under that name and version."""

    default_reason = "UDF_EXISTS"


class FailedPrecondition(LemanError):
    """The request is right, the table or the function is not ready for it."""

    default_reason = "FAILED_PRECONDITION"
    default_code = "FAILED_PRECONDITION"


class ColumnChanged(FailedPrecondition, ValueError):
    """Columns are there with another definition than `add_columns()` was given: `on_change` says what becomes of them.

    `facts` has `columns`, `rows_stale`, and the beginning of the sources' `diff`.
    """

    default_reason = "COLUMN_CHANGED"


class ColumnNotDefined(FailedPrecondition, ValueError):
    """No function computes this column; `add_columns()` comes first."""

    default_reason = "COLUMN_NOT_DEFINED"


class InputColumnMissing(FailedPrecondition, ValueError, KeyError):
    """The function reads columns that the table does not have."""

    default_reason = "INPUT_COLUMN_MISSING"


class InputColumnStale(FailedPrecondition):
    """The column or the view reads computed columns that are stale or not computed: backfill these, or set
    `on_stale_input`.

    `facts` has these columns as `inputs`, inputs before what reads them.
    """

    default_reason = "INPUT_COLUMN_STALE"


class TypeMismatch(FailedPrecondition, TypeError):
    """The type of a column and the type that the function declares do not go together."""

    default_reason = "TYPE_MISMATCH"


class TypeNotStorable(FailedPrecondition, TypeError):
    """Lance does not store the type that a function gives, or not in the table's file format."""

    default_reason = "TYPE_NOT_STORABLE"


class ResourcesNotAvailable(FailedPrecondition):
    """A function asks for CPUs, GPUs or memory that no worker has."""

    default_reason = "RESOURCES_NOT_AVAILABLE"


class Aborted(LemanError):
    """The table changed while the request was served; the same call again may succeed."""

    default_reason = "ABORTED"
    default_code = "ABORTED"


class Unavailable(LemanError, ConnectionError):
    """A service or a store cannot be reached."""

    default_reason = "UNAVAILABLE"
    default_code = "UNAVAILABLE"


class StartFailed(Unavailable):
    """The embedded services did not come up; the message holds the end of their log."""

    default_reason = "START_FAILED"


class DeadlineExceeded(LemanError, TimeoutError):
    """No answer within the time allowed."""

    default_reason = "DEADLINE_EXCEEDED"
    default_code = "DEADLINE_EXCEEDED"


class Cancelled(LemanError):
    """The call was ended by its caller."""

    default_reason = "CANCELLED"
    default_code = "CANCELLED"


class ResourceExhausted(LemanError):
    """A bound was hit: queue length, message size."""

    default_reason = "RESOURCE_EXHAUSTED"
    default_code = "RESOURCE_EXHAUSTED"


class DataLoss(LemanError):
    """A stored file does not have the content it was written with."""

    default_reason = "DATA_LOSS"
    default_code = "DATA_LOSS"


class Unauthenticated(LemanError, PermissionError):
    """No valid token."""

    default_reason = "UNAUTHENTICATED"
    default_code = "UNAUTHENTICATED"


class PermissionDenied(LemanError, PermissionError):
    """The caller may not do that: the token lacks a role, or the services do not allow it to anybody."""

    default_reason = "PERMISSION_DENIED"
    default_code = "PERMISSION_DENIED"


class NotSupported(LemanError, NotImplementedError):
    """Named in the API, not part of this release."""

    default_reason = "NOT_SUPPORTED"
    default_code = "UNIMPLEMENTED"


class MissingDependency(LemanError, ImportError):
    """An optional package is needed and not installed."""

    default_reason = "MISSING_DEPENDENCY"


class Internal(LemanError, RuntimeError):
    """A bug of Leman's, not of the caller's."""

    default_reason = "INTERNAL_BUG"
    default_code = "INTERNAL"


class JobFailed(LemanError, RuntimeError):
    """A job ended as FAILED. What it had finished is kept: the same call again continues from there.

    `error_type`, `row_address` and the like are in `facts` when a row of the user's data was the cause.
    """

    default_reason = "JOB_FAILED"

    def __init__(
        self, message: str, *, reason: str = "", facts: Mapping[str, str] | None = None, job_id: str = ""
    ) -> None:
        super().__init__(message, reason=reason, facts=facts)
        self.job_id = job_id


class JobCancelled(LemanError):
    """A job ended as CANCELLED. What it had finished is kept."""

    default_reason = "JOB_CANCELLED"
    default_code = "CANCELLED"

    def __init__(
        self, message: str, *, reason: str = "", facts: Mapping[str, str] | None = None, job_id: str = ""
    ) -> None:
        super().__init__(message, reason=reason, facts=facts)
        self.job_id = job_id


BY_CODE: dict[str, type[LemanError]] = {
    "ABORTED": Aborted,
    "ALREADY_EXISTS": AlreadyExists,
    "CANCELLED": Cancelled,
    "DATA_LOSS": DataLoss,
    "DEADLINE_EXCEEDED": DeadlineExceeded,
    "FAILED_PRECONDITION": FailedPrecondition,
    "INVALID_ARGUMENT": InvalidArgument,
    "NOT_FOUND": NotFound,
    "OUT_OF_RANGE": InvalidArgument,
    "PERMISSION_DENIED": PermissionDenied,
    "RESOURCE_EXHAUSTED": ResourceExhausted,
    "UNAUTHENTICATED": Unauthenticated,
    "UNAVAILABLE": Unavailable,
    "UNIMPLEMENTED": NotSupported,
}
"""Class by gRPC status code; a code that is not listed is `Internal`."""

BY_REASON: dict[str, type[LemanError]] = {
    kind.default_reason: kind
    for kind in (
        ColumnChanged,
        ColumnExists,
        ColumnNotDefined,
        ColumnNotFound,
        InputColumnMissing,
        InputColumnStale,
        JobNotFound,
        ResourcesNotAvailable,
        TableExists,
        TableNotFound,
        TypeMismatch,
        TypeNotStorable,
        UdfExists,
        UdfNotFound,
        VersionNotFound,
    )
}
"""Class by ErrorInfo.reason, which wins over the code."""


def make(
    code: str,
    reason: str,
    message: str,
    facts: Mapping[str, str] | None = None,
    *,
    fields: Sequence[FieldViolation] = (),
    retry_after: float | None = None,
) -> LemanError:
    """The error for a gRPC status code name and an ErrorInfo reason (empty: none was given)."""
    kind = BY_REASON.get(reason) or BY_CODE.get(code, Internal)
    error = kind(message, reason=reason, facts=facts)
    error.code, error.fields, error.retry_after = code, tuple(fields), retry_after
    return error
