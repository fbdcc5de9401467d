"""Leman keeps computed columns of Lance tables up to date.

    import leman

    @leman.udf
    def word_count(text: str) -> int:
        return len(text.split())

    db = leman.connect("./lake")
    table = db.create_table("docs", [{"text": "to be or not to be"}])
    table.add_columns({"words": word_count})
    table.backfill("words")

Its errors are in `leman.errors`. `leman.local` needs the extra `leman[lance]`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leman._columns import BackfillParameters, ColumnChange, SqlExpression, sql
    from leman._connect import DatabaseInfo, DatabaseLimits, Databases, Session, connect, databases, session
    from leman._database import Database
    from leman._functions.udf_decorator import UDF, udf
    from leman._job_model import Job, JobError, JobEvent, JobState, JobUpdate, Progress, RefreshResult, Stall
    from leman._jobs import JobFuture
    from leman._maintenance import CheckpointCollection, Finding, StoredFile, Verification, Verified
    from leman._preview import Preview, PreviewError, PreviewRow
    from leman._relation import Query
    from leman._table import MergeInsert, MergeResult, Table
    from leman._table_model import (
        Commit,
        ComputedColumn,
        FragmentDecision,
        IndexCoverage,
        KeptRows,
        Plan,
        ReasonCount,
        RefreshPlan,
        RowError,
        RowErrorGroup,
        RowStates,
        StaleInput,
        TableInfo,
        UdfInfo,
        ViewColumn,
        ViewFunction,
        ViewInfo,
        ViewQuery,
        ViewSummary,
    )
    from leman._view import View
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
    "RowErrorGroup",
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

#: Module → its names in `__all__`. A module is imported on first use: importing all of them takes half a second.
_PLACES = {
    "leman._columns": "BackfillParameters ColumnChange sql SqlExpression",
    "leman._connect": "connect DatabaseInfo DatabaseLimits databases Databases Session session",
    "leman._database": "Database",
    "leman._functions.udf_decorator": "UDF udf",
    "leman._job_model": "Job JobError JobEvent JobState JobUpdate Progress RefreshResult Stall",
    "leman._jobs": "JobFuture",
    "leman._maintenance": "CheckpointCollection Finding StoredFile Verification Verified",
    "leman._preview": "Preview PreviewError PreviewRow",
    "leman._relation": "Query",
    "leman._table": "MergeInsert MergeResult Table",
    "leman._table_model": (
        "Commit ComputedColumn FragmentDecision IndexCoverage KeptRows Plan ReasonCount RefreshPlan RowError "
        "RowErrorGroup RowStates StaleInput TableInfo UdfInfo ViewColumn ViewFunction ViewInfo ViewQuery "
        "ViewSummary"
    ),
    "leman._view": "View",
    "leman.error_handling": "ErrorHandlingConfig Fail Retry Skip",
    "leman.errors": "JobCancelled JobFailed LemanError",
}
_MODULES = ("error_handling", "errors", "functions", "local", "progress")


def __getattr__(name: str) -> Any:
    """Import a name when it is first used."""
    if name == "__version__":
        from importlib import metadata  # noqa: PLC0415 - only where it is asked for

        found: Any = metadata.version("leman")
    elif name in _MODULES:
        found = importlib.import_module(f"leman.{name}")
    else:
        place = next((module for module, names in _PLACES.items() if name in names.split()), "")
        if not place:
            raise AttributeError(f"module 'leman' has no attribute {name!r}")
        found = getattr(importlib.import_module(place), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
