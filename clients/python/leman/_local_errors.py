"""Failed rows of a job in a folder of this machine: for reads where services would have to be started.

They lie in a Lance table to which workers append. A row that failed again is there again: what was said last counts.
"""

from __future__ import annotations

import dataclasses
import os

from leman import _local_jobs, local
from leman._table_model import RowError
from leman.errors import LemanError

_MANY = 100_000
_FIELDS = tuple(field.name for field in dataclasses.fields(RowError))


def errors(database: str, job_id: str, column: str, limit: int | None) -> list[RowError] | None:
    """Those of a job, and of one column where it is named, by row address; None: the services know, or say why not."""
    known = _local_jobs.jobs(database)
    job = next((job for job in known or () if job.job_id == job_id), None)
    if job is None:
        return None
    uri = f"{database}/_leman/errors.lance"
    if not os.path.isdir(uri):  # noqa: PTH112 - a str, as on the wire
        return None if job.progress.rows_failed else []
    try:
        return _read(uri, job_id, column)[: None if limit is None else max(limit, 0)]
    except (_ManyRows, LemanError, OSError, ValueError, LookupError, TypeError):
        return None


class _ManyRows(Exception):
    """More than are read at once."""


def _read(uri: str, job_id: str, column: str) -> list[RowError]:
    table = local.open_table(uri)
    wanted = f"job_id = {_quoted(job_id)} AND error_type <> ''"  # without one only the row's place is stored
    if column:
        wanted += f" AND column = {_quoted(column)}"
    if table.count_rows(wanted) > _MANY:
        raise _ManyRows
    last = {}
    for row in table.to_table(list(_FIELDS), filter=wanted).to_pylist():
        row_id = row["row_id"] if row["row_id"] >= 0 else None
        last[row["row_address"], row["column"]] = RowError(**{**row, "row_id": row_id})
    return [last[place] for place in sorted(last)]


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
