"""Lists that come in pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from leman import _local_database, _local_errors, _wire
from leman._channel import Services
from leman._table_model import RowErrors
from leman._tracebacks import warn
from leman.v1 import jobs_pb2

PAGE = 1000


def pages(call: Callable[[str, int], Any], limit: int | None = None) -> Iterator[Any]:
    """The responses of a list call, `call(page_token, page_size)`, for `limit` items (None: all)."""
    token, left = "", limit
    while left is None or left > 0:
        size = PAGE if left is None else min(PAGE, left)
        response = call(token, size)
        yield response
        token = response.next_page_token
        left = None if left is None else left - size
        if not token:
            return


def list_errors(
    services: Services, database: str, job_id: str, column: str | None, limit: int | None, *, places_only: bool = False
) -> RowErrors:
    """The rows of a job for which the function failed, by row address. `places_only`: all of them, and only where they
    are. A UserWarning tells what of them is lost. Those of a local database without services this process reads."""
    if services.reads_alone() and not places_only:
        _local_database.check_there(database)
        found = _local_errors.errors(database, job_id, column or "", limit)
        if found is not None:
            return RowErrors(found)
    requests = pages(
        lambda token, size: services.jobs.ListJobErrors(
            jobs_pb2.ListJobErrorsRequest(
                database=database,
                job_id=job_id,
                column=column or "",
                page_size=size,
                page_token=token,
                places_only=places_only,
            ),
        ),
        limit,
    )
    found = RowErrors()
    for page in requests:
        found += [_wire.row_error(item) for item in page.errors]
        for text in page.warnings:
            warn(text)
    return found
