"""Errors that end a job: that of a failed unit, that of too many failed rows, and how a job keeps them. Pure."""

from __future__ import annotations

from leman_core.model import errors as error_tree
from leman_core.model.errors import (
    INTERNAL_BUG,
    DataLoss,
    FailedPrecondition,
    Internal,
    LemanError,
    NotFound,
    Unavailable,
)
from leman_core.model.job import JobError
from leman_core.model.udf import UdfDefinition
from leman_core.model.work import RowFailure, UnitFailure

#: Failures of a unit that are no FailedPrecondition.
_KINDS: dict[str, type[LemanError]] = {
    INTERNAL_BUG: Internal,
    "FUNCTION_UNAVAILABLE": Unavailable,
    "FUNCTION_NOT_FOUND": NotFound,
    "TABLE_DAMAGED": DataLoss,
}


def of_unit(failure: UnitFailure) -> LemanError:
    """Return the job's error for a unit's failure, with what is known of the row that is to blame."""
    error = _KINDS.get(failure.reason, FailedPrecondition)(failure.reason, failure.message)
    if failure.row is not None:
        error.facts.update(facts_of(failure.row))
    return error


def too_many(udf: UdfDefinition, rows: int, failed: int) -> LemanError | None:
    """Return the error (TOO_MANY_ERRORS) where more of the rows failed than the function's policy allows; else None."""
    allowed = udf.error_policy.errors_allowed(rows)
    if allowed is None or failed <= allowed:
        return None
    return FailedPrecondition(
        "TOO_MANY_ERRORS",
        f"UDF '{udf.name}' failed on {failed} rows, {allowed} are allowed. "
        "JobService.ListJobErrors tells which; fix the function, or raise `max_errors` of its error policy.",
        rows_failed=failed,
    )


def facts_of(row: RowFailure) -> dict[str, str]:
    """Return a failed row as the facts of an error."""
    return {
        "error_type": row.error_type,
        "error_message": row.message[:500],
        "row_address": str(row.row_address),
        "fragment_id": str(row.fragment_id),
        "offset": str(row.offset),
        "attempt": str(row.attempt),
        "traceback": row.traceback[-2000:],
    }


def to_job(error: LemanError) -> JobError:
    """Return an error as a job keeps it."""
    return JobError(kind=type(error).__name__, reason=error.reason, message=error.message, facts=error.facts)


def of_job(error: JobError) -> LemanError:
    """Return an error that a job kept, as it was raised; Internal where this release has no such error."""
    kind: type[LemanError] = getattr(error_tree, error.kind, error_tree.Internal)
    found = kind(error.reason, error.message)
    found.facts = error.facts
    return found
