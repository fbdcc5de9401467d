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

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leman._backfill import BackfillParameters
    from leman._column_changes import ColumnChange
    from leman._connect import connect, databases
    from leman._database import Database
    from leman._databases import DatabaseInfo, DatabaseLimits, Databases
    from leman._future import JobFuture
    from leman._garbage import CheckpointCollection, StoredFile
    from leman._job_model import Job, JobError, JobEvent, JobState, JobUpdate, Progress, RefreshResult, Stall
    from leman._plan import FragmentDecision, Plan
    from leman._preview import Preview, PreviewError, PreviewRow
    from leman._query import Query
    from leman._row_changes import MergeInsert, MergeResult
    from leman._session import Session, session
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
        StaleInput,
        TableInfo,
        UdfInfo,
    )
    from leman._udf import UDF, udf
    from leman._verify import Finding, Verification, Verified
    from leman._view import View
    from leman._view_model import RefreshPlan, ViewColumn, ViewFunction, ViewInfo, ViewQuery, ViewSummary
    from leman.error_handling import ErrorHandlingConfig, Fail, Retry, Skip
    from leman.errors import JobCancelled, JobFailed, LemanError

    __version__: str

__all__ = [
    "UDF",
    "BackfillParameters",
    "CheckpointCollection",
    "ColumnChange",
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
    "JobUpdate",
    "KeptRows",
    "LemanError",
    "MergeInsert",
    "MergeResult",
    "Plan",
    "Preview",
    "PreviewError",
    "PreviewRow",
    "Progress",
    "Query",
    "ReasonCount",
    "RefreshPlan",
    "RefreshResult",
    "Retry",
    "RowError",
    "RowStates",
    "Session",
    "Skip",
    "SqlExpression",
    "StaleInput",
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
    "__version__",
    "connect",
    "databases",
    "session",
    "sql",
    "udf",
]

#: Where the names of `__all__` are: each is imported when it is first used, as all of them take half a second.
_PLACES = {
    "leman._backfill": ("BackfillParameters",),
    "leman._column_changes": ("ColumnChange",),
    "leman._connect": ("connect", "databases"),
    "leman._database": ("Database",),
    "leman._databases": ("DatabaseInfo", "DatabaseLimits", "Databases"),
    "leman._future": ("JobFuture",),
    "leman._garbage": ("CheckpointCollection", "StoredFile"),
    "leman._job_model": ("Job", "JobError", "JobEvent", "JobState", "JobUpdate", "Progress", "RefreshResult", "Stall"),
    "leman._plan": ("FragmentDecision", "Plan"),
    "leman._preview": ("Preview", "PreviewError", "PreviewRow"),
    "leman._query": ("Query",),
    "leman._row_changes": ("MergeInsert", "MergeResult"),
    "leman._session": ("Session", "session"),
    "leman._sql": ("SqlExpression", "sql"),
    "leman._table": ("Table",),
    "leman._table_model": (
        "Commit",
        "ComputedColumn",
        "IndexCoverage",
        "KeptRows",
        "ReasonCount",
        "RowError",
        "RowStates",
        "StaleInput",
        "TableInfo",
        "UdfInfo",
    ),
    "leman._udf": ("UDF", "udf"),
    "leman._verify": ("Finding", "Verification", "Verified"),
    "leman._view": ("View",),
    "leman._view_model": ("RefreshPlan", "ViewColumn", "ViewFunction", "ViewInfo", "ViewQuery", "ViewSummary"),
    "leman.error_handling": ("ErrorHandlingConfig", "Fail", "Retry", "Skip"),
    "leman.errors": ("JobCancelled", "JobFailed", "LemanError"),
}
_MODULES = ("error_handling", "errors", "functions", "local", "progress")


def __getattr__(name: str) -> Any:
    """Import what is asked for."""
    if name == "__version__":
        from importlib import metadata  # noqa: PLC0415 - only where it is asked for

        found: Any = metadata.version("leman")
    elif name in _MODULES:
        found = importlib.import_module(f"leman.{name}")
    else:
        place = next((module for module, names in _PLACES.items() if name in names), "")
        if not place:
            raise AttributeError(f"module 'leman' has no attribute {name!r}")
        found = getattr(importlib.import_module(place), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
