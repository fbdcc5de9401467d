"""Leman keeps computed columns of Lance tables up to date.

    import leman

    @leman.udf
    def word_count(text: str) -> int:
        return len(text.split())

    db = leman.connect("./lake")
    table = db.create_table("docs", [{"text": "to be or not to be"}])
    table.add_columns({"words": word_count})
    table.backfill("words")

`leman.errors` has the errors; `leman.local` needs the extra `leman[lance]`.
"""

from leman._backfill import BackfillParameters
from leman._connect import connect, databases
from leman._database import Database
from leman._databases import DatabaseInfo, DatabaseLimits, Databases
from leman._future import JobFuture
from leman._garbage import CheckpointCollection, StoredFile
from leman._job_model import Job, JobError, JobEvent, JobState, Progress, RefreshResult, Stall
from leman._plan import FragmentDecision, Plan
from leman._query import Query
from leman._sql import SqlExpression, sql
from leman._table import Table
from leman._table_model import (
    Commit,
    ComputedColumn,
    IndexCoverage,
    KeptRows,
    ReasonCount,
    RowError,
    RowStates,
    TableInfo,
    UdfInfo,
)
from leman._udf import UDF, udf
from leman._verify import Finding, Verification, Verified
from leman._view import View
from leman._view_model import RefreshPlan, ViewColumn, ViewFunction, ViewInfo, ViewQuery, ViewSummary
from leman.error_handling import ErrorHandlingConfig, Fail, Retry, Skip
from leman.errors import JobCancelled, JobFailed, LemanError

__all__ = [
    "UDF",
    "BackfillParameters",
    "CheckpointCollection",
    "Commit",
    "ComputedColumn",
    "Database",
    "DatabaseInfo",
    "DatabaseLimits",
    "Databases",
    "ErrorHandlingConfig",
    "Fail",
    "Finding",
    "FragmentDecision",
    "IndexCoverage",
    "Job",
    "JobCancelled",
    "JobError",
    "JobEvent",
    "JobFailed",
    "JobFuture",
    "JobState",
    "KeptRows",
    "LemanError",
    "Plan",
    "Progress",
    "Query",
    "ReasonCount",
    "RefreshPlan",
    "RefreshResult",
    "Retry",
    "RowError",
    "RowStates",
    "Skip",
    "SqlExpression",
    "Stall",
    "StoredFile",
    "Table",
    "TableInfo",
    "UdfInfo",
    "Verification",
    "Verified",
    "View",
    "ViewColumn",
    "ViewFunction",
    "ViewInfo",
    "ViewQuery",
    "ViewSummary",
    "connect",
    "databases",
    "sql",
    "udf",
]
