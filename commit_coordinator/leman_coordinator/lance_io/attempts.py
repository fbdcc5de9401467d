"""The record of which attempt at a job may still change a table, under one key of the table's own config.

A commit has read the manifest anyway, so that a look costs nothing; and what a table's manifest says holds for
every coordinator, after any restart, and without Redis (decision 16).
"""

from __future__ import annotations

import json
from collections.abc import Mapping

ATTEMPTS_KEY = "leman.attempts"
#: Jobs that were taken over last. An executor that wakes so many takeovers of one table later may commit again.
_JOBS_KEPT = 64


def read(config: Mapping[str, str]) -> dict[str, int]:
    """Return the last attempt that has begun, by job, for the jobs that were taken over.

    Anybody may write a config: what is no such record counts as none.
    """
    try:
        stored = json.loads(config.get(ATTEMPTS_KEY) or "{}")
    except ValueError:
        return {}
    if not isinstance(stored, dict):
        return {}
    return {job_id: attempt for job_id, attempt in stored.items() if isinstance(attempt, int)}


def with_attempt(known: Mapping[str, int], job_id: str, attempt: int) -> str:
    """Return the record with one more attempt, as it is stored: the latest jobs last, 64 of them at the most."""
    entries = [(job, number) for job, number in known.items() if job != job_id][-_JOBS_KEPT + 1 :]
    return json.dumps(dict([*entries, (job_id, attempt)]), separators=(",", ":"))
