"""Tell SQL that has no value for a row (a division by zero, a cast) from storage that cannot be read."""

from __future__ import annotations

from collections.abc import Callable

from leman_core.model.errors import FailedPrecondition
from leman_core.model.view_rows import Ids
from leman_core.storage.error_translation import LANCE_ERRORS
from leman_core.storage.sql_messages import clean_message

_Read = Callable[[Ids], object]


def failed_row(ids: Ids, inputs: _Read, values: _Read) -> tuple[int, Exception] | None:
    """Return the first row of which the SQL's `inputs` can be read and its `values` cannot, and why.

    Returns:
        None where there is no such row.
    """
    error = _failure(ids, inputs, values)
    while error is not None and len(ids) > 1:
        middle = len(ids) // 2
        first = _failure(ids[:middle], inputs, values)
        if first is None:
            ids, error = ids[middle:], _failure(ids[middle:], inputs, values)
        else:
            ids, error = ids[:middle], first
    return None if error is None else (int(ids[0]), error)


def _failure(ids: Ids, inputs: _Read, values: _Read) -> Exception | None:
    try:
        inputs(ids)
    except LANCE_ERRORS:
        return None
    try:
        values(ids)
    except LANCE_ERRORS as error:
        return error
    return None


def expression_failed(row_id: int, version: int, uri: str, error: Exception) -> FailedPrecondition:
    """Return the error of SQL that has no value for a row."""
    return FailedPrecondition(
        "EXPRESSION_FAILED",
        f"The view's SQL has no value for the row with id {row_id} in version {version} of its source: "
        f"{clean_message(str(error))}. Change the row, or make the view anew with SQL that allows for it, such as "
        "try_cast(…) or x / nullif(y, 0); an AND or OR before it need not keep it from being evaluated",
        row_id=row_id,
        source_version=version,
        uri=uri,
    )
