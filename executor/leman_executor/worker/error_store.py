"""Store the failed rows of a database in a Lance table, to which workers and executors append.

Runs on Spark workers, so it imports neither gRPC nor Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import pyarrow as pa

from leman._format.stored_logs import ERRORS, PLACE_ONLY
from leman_core.model.work import RowError
from leman_core.storage.append_log import AppendLog

_SCHEMA = pa.schema(
    [
        ("job_id", pa.string()),
        ("column", pa.string()),
        ("udf_version", pa.string()),
        ("row_address", pa.int64()),
        ("row_id", pa.int64()),
        ("error_type", pa.string()),
        ("error_message", pa.string()),
        ("traceback", pa.string()),
        ("attempt", pa.int32()),
    ]
)


def errors_uri(database: str) -> str:
    """Return the URI of a database's failed rows."""
    return f"{database.rstrip('/')}/{ERRORS}"


def open_log(uri: str) -> AppendLog:
    """Return the table of failed rows. Its damaged parts are set aside, because no value depends on them."""
    return AppendLog(uri, _SCHEMA, called=f"The failed rows in {uri}", repairs=True)


class JobErrors:
    """The failed rows of one job; a `leman_core.model.work.ErrorSink`.

    Args:
        uri: The table of failed rows. If empty, nothing is stored.
        job_id: The job.
        column: The computed column.
        udf_version: The version of the function.
        store_messages: Whether to store error messages; False stores only the places of failed rows.
    """

    def __init__(self, uri: str, job_id: str, column: str, udf_version: str, *, store_messages: bool = True) -> None:
        self._log = open_log(uri) if uri else None
        self._created = False
        self._job_id = job_id
        self._column = column
        self._udf_version = udf_version
        self._store_messages = store_messages

    def store(self, failures: Sequence[RowError]) -> None:
        """Append failed rows with a single commit to the table.

        Raises:
            LemanError: They could not be stored; see `storage_errors.failed`.
        """
        if self._log is not None:
            if not self._created:  # the executor may not have made the table, see `JobHistory.prepare`
                self._log.create()
                self._created = True
            self._log.append([msgspec.to_builtins(self._completed(f)) for f in failures])

    def _completed(self, failure: RowError) -> RowError:
        known = replace(failure, job_id=self._job_id, column=self._column, udf_version=self._udf_version)
        if self._store_messages:
            return known
        return replace(known, error_type=PLACE_ONLY, error_message="", traceback="")
