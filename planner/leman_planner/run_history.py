"""What earlier backfills of a column took, as the job history of its database tells it."""

from __future__ import annotations

import itertools

import pyarrow as pa
import structlog

from leman_core.model.errors import UNREADABLE, LemanError
from leman_core.storage import history_tail, job_records
from leman_core.storage.append_log import AppendLog, quoted
from leman_core.storage.locations import canonical_database
from leman_planner.run_times import RunTime, run_time

_log = structlog.get_logger(__name__)

#: States of jobs that are looked at, the newest first: a job has a few.
_LOOKED_AT = 200


def expected_seconds(database: str, table: str, column: str, rows: int) -> float | None:
    """Return how long computing so many rows will take about; None: that is not known, or there are none.

    It is said beside other things: a history that cannot be read is no error here.
    """
    if not rows:
        return None
    try:
        found = last_run_time(database, table, column)
    except LemanError as error:
        _log.warning("the job history cannot be read", database=database, error=error.message)
        return None
    return None if found is None else found.of(rows)


def last_run_time(database: str, table: str, column: str) -> RunTime | None:
    """Return what the last backfill of a column took that called its function; None: history knows of none.

    Raises:
        LemanError: what `storage_errors.failed` gives, and DataLoss where the history cannot be read.
    """
    uri = canonical_database(database)
    tail = history_tail.records_of(uri)
    log = AppendLog(f"{uri}/_leman/jobs.lance", pa.schema([]), called=f"The job history of {uri}")
    rows = log.read(["record"], f"`table` = {quoted(table)} AND `column` = {quoted(column)}")
    for record in itertools.chain(reversed(tail), (str(row["record"]) for row in rows[: -_LOOKED_AT - 1 : -1])):
        try:
            job = job_records.decode(record)
        except UNREADABLE:  # an earlier one tells it, too
            continue
        if (job.request.table, job.column) != (table, column):
            continue
        if (found := run_time(job)) is not None:
            return found
    return None
