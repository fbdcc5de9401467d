"""The errors that Leman raises: subclasses of `LemanError`.

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
    │   ├── ColumnChanged (ValueError)            a column exists with another definition: give on_change=
    │   ├── ColumnNotDefined (ValueError)         no add_columns() for this column yet
    │   ├── InputColumnMissing (ValueError, KeyError)
    │   ├── InputColumnStale                      computed columns that a column reads are not current
    │   ├── TypeMismatch (TypeError)
    │   ├── TypeNotStorable (TypeError)           Lance cannot store the type that a function returns
    │   └── ResourcesNotAvailable                 a function needs resources that no worker has
    ├── Aborted                                   the table changed meanwhile: retry
    ├── Unavailable (ConnectionError)             no service answers
    │   └── StartFailed                           the embedded services did not start
    ├── DeadlineExceeded (TimeoutError)
    ├── Cancelled                                 the caller cancelled the call
    ├── ResourceExhausted                         too many jobs, or a message too large
    ├── DataLoss                                  a stored file is damaged
    ├── Unauthenticated (PermissionError)         no valid token
    ├── PermissionDenied (PermissionError)        a valid token without the right to do that
    ├── NotSupported (NotImplementedError)        not part of this release
    ├── MissingDependency (ImportError)           an optional package is not installed
    ├── Internal (RuntimeError)                   a bug in Leman
    ├── JobFailed (RuntimeError)                  a job ended as FAILED
    └── JobCancelled                              a job ended as CANCELLED

Each has a `reason` (a stable word for programs, such as COLUMN_NOT_DEFINED), a message that says what to do, `facts`
(short strings for programs), the gRPC `code`, the wrong `fields` of the request, and `retry_after`, the seconds to wait
before a retry, if the services say so.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from leman._message_text import Shown


@dataclass(frozen=True, slots=True)
class FieldViolation:
    """A field of a request, as a path such as `spec.where`, and what is wrong with it."""

    field: str
    description: str


class LemanError(Shown, Exception):
    """Base of all errors that Leman raises on purpose. `str()` is the message alone."""

    default_reason = "INTERNAL"
    default_code = "UNKNOWN"

    def __init_subclass__(cls, reason: str = "", code: str = "") -> None:
        super().__init_subclass__()
        cls.default_reason = reason or cls.default_reason
        cls.default_code = code or cls.default_code

    def __init__(self, message: str, *, reason: str = "", facts: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason or self.default_reason
        self.facts = dict(facts or {})
        self.code = self.default_code
        """Name of the gRPC code, also if no service was called."""
        self.fields: tuple[FieldViolation, ...] = ()
        """The wrong fields of the request, if the services report them."""
        self.retry_after: float | None = None
        """Seconds after which the services allow a retry, or None if they do not say."""

    def __str__(self) -> str:
        return self.message  # KeyError would show its repr

    def _render_traceback_(self) -> list[str]:  # IPython shows these lines for an uncaught error
        lines: list[str] = importlib.import_module("leman._notebook").error_lines(self)
        return lines


class InvalidArgument(LemanError, ValueError, reason="INVALID_ARGUMENT", code="INVALID_ARGUMENT"):
    """The request is wrong, whatever the state of the tables."""


class UdfDefinitionError(InvalidArgument, TypeError, reason="INVALID_UDF"):
    """A function cannot be used as a UDF as it is written or annotated."""


class VersionRequired(UdfDefinitionError, reason="VERSION_REQUIRED"):
    """The version of a function cannot be derived from its code; give `version=`."""


class NotFound(LemanError, KeyError, reason="NOT_FOUND", code="NOT_FOUND"):
    """The table, job or other object of the request does not exist."""


class TableNotFound(NotFound, reason="TABLE_NOT_FOUND"):
    """No such table in the database."""


class VersionNotFound(NotFound, reason="VERSION_NOT_FOUND"):
    """The table has no such version, or no longer has it."""


class UdfNotFound(NotFound, reason="UDF_NOT_FOUND"):
    """No function is registered under that name and version."""


class JobNotFound(NotFound, reason="JOB_NOT_FOUND"):
    """The database has no such job."""


class ColumnNotFound(NotFound, ValueError, reason="COLUMN_NOT_FOUND", code="FAILED_PRECONDITION"):
    """The table has no such column."""


class AlreadyExists(LemanError, ValueError, reason="ALREADY_EXISTS", code="ALREADY_EXISTS"):
    """The name or the request id is in use for something else."""


class TableExists(AlreadyExists, reason="TABLE_EXISTS"):
    """The database has a table of that name."""


class ColumnExists(AlreadyExists, reason="COLUMN_EXISTS"):
    """The table has a column of that name."""


class UdfExists(AlreadyExists, reason="UDF_EXISTS"):
    """Other code, or another definition, is registered under that name and version."""


class FailedPrecondition(LemanError, reason="FAILED_PRECONDITION", code="FAILED_PRECONDITION"):
    """The request is right, but the table or the function is not ready for it."""


class ColumnChanged(FailedPrecondition, ValueError, reason="COLUMN_CHANGED"):
    """Columns exist with another definition than `add_columns()` was given. Choose with `on_change` what to do.

    `facts` has `columns`, `rows_stale`, and the beginning of the sources' `diff`.
    """


class ColumnNotDefined(FailedPrecondition, ValueError, reason="COLUMN_NOT_DEFINED"):
    """No function computes this column; call `add_columns()` first."""


class InputColumnMissing(FailedPrecondition, ValueError, KeyError, reason="INPUT_COLUMN_MISSING"):
    """The function reads columns that the table does not have."""


class InputColumnStale(FailedPrecondition, reason="INPUT_COLUMN_STALE"):
    """The column or the view reads columns that are stale or not computed: backfill these, or set `on_stale_input`.

    `facts` has these columns as `inputs`, each before the columns that read it.
    """


class TypeMismatch(FailedPrecondition, TypeError, reason="TYPE_MISMATCH"):
    """The type of a column does not fit the type that the function declares."""


class TypeNotStorable(FailedPrecondition, TypeError, reason="TYPE_NOT_STORABLE"):
    """Lance cannot store the type of a function's values, at least not in the table's file format."""


class ResourcesNotAvailable(FailedPrecondition, reason="RESOURCES_NOT_AVAILABLE"):
    """A function needs CPUs, GPUs or memory that no worker has."""


class Aborted(LemanError, reason="ABORTED", code="ABORTED"):
    """The table changed during the call; a retry may succeed."""


class Unavailable(LemanError, ConnectionError, reason="UNAVAILABLE", code="UNAVAILABLE"):
    """A service or a store cannot be reached."""


class StartFailed(Unavailable, reason="START_FAILED"):
    """The embedded services did not start; the message has the end of their log."""


class DeadlineExceeded(LemanError, TimeoutError, reason="DEADLINE_EXCEEDED", code="DEADLINE_EXCEEDED"):
    """No answer within the time allowed."""


class Cancelled(LemanError, reason="CANCELLED", code="CANCELLED"):
    """The caller cancelled the call."""


class ResourceExhausted(LemanError, reason="RESOURCE_EXHAUSTED", code="RESOURCE_EXHAUSTED"):
    """A limit was reached, such as of queue length or message size."""


class DataLoss(LemanError, reason="DATA_LOSS", code="DATA_LOSS"):
    """A stored file does not have the content it was written with."""


class Unauthenticated(LemanError, PermissionError, reason="UNAUTHENTICATED", code="UNAUTHENTICATED"):
    """No valid token."""


class PermissionDenied(LemanError, PermissionError, reason="PERMISSION_DENIED", code="PERMISSION_DENIED"):
    """The caller may not do that: the token lacks a role, or the services do not allow it at all."""


class NotSupported(LemanError, NotImplementedError, reason="NOT_SUPPORTED", code="UNIMPLEMENTED"):
    """Part of the API, but not of this release."""


class MissingDependency(LemanError, ImportError, reason="MISSING_DEPENDENCY"):
    """An optional package is needed, and is not installed."""


class Internal(LemanError, RuntimeError, reason="INTERNAL_BUG", code="INTERNAL"):
    """A bug in Leman, not in the caller's code."""


class _JobEnded(LemanError):
    def __init__(
        self, message: str, *, reason: str = "", facts: Mapping[str, str] | None = None, job_id: str = ""
    ) -> None:
        super().__init__(message, reason=reason, facts=facts)
        self.job_id = job_id


class JobFailed(_JobEnded, RuntimeError, reason="JOB_FAILED"):
    """A job ended as FAILED. Its finished work is kept: repeat the call to continue from there.

    If a row of the user's data was the cause, `facts` has `error_type`, `row_address` and the like.
    """


class JobCancelled(_JobEnded, reason="JOB_CANCELLED", code="CANCELLED"):
    """A job ended as CANCELLED. Its finished work is kept."""


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
        *(ColumnChanged, ColumnExists, ColumnNotDefined, ColumnNotFound, InputColumnMissing, InputColumnStale),
        *(JobNotFound, ResourcesNotAvailable, TableExists, TableNotFound, TypeMismatch, TypeNotStorable),
        *(UdfExists, UdfNotFound, VersionNotFound),
    )
}
"""Class by ErrorInfo.reason, which takes precedence over the code."""


def make(
    code: str,
    reason: str,
    message: str,
    facts: Mapping[str, str] | None = None,
    *,
    fields: Sequence[FieldViolation] = (),
    retry_after: float | None = None,
) -> LemanError:
    """Return the error for the name of a gRPC status code and an ErrorInfo reason, which may be ""."""
    kind = BY_REASON.get(reason) or BY_CODE.get(code, Internal)
    error = kind(message, reason=reason, facts=facts)
    error.code, error.fields, error.retry_after = code, tuple(fields), retry_after
    return error
