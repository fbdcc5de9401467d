"""Which attempt at a job may still change a table: kept in the table itself, under one key of its config.

Whoever commits has read the manifest anyway, so that a look costs nothing; and what a table's manifest says holds for
every coordinator, after any restart, and without Redis (decision 16).
"""

from __future__ import annotations

import json
from collections.abc import Mapping

ATTEMPTS_KEY = "leman.attempts"
#: Jobs that were taken over last. An executor that is woken so many takeovers of one table later is let in again.
_JOBS_KEPT = 64


def read(config: Mapping[str, str]) -> dict[str, int]:
    """The last attempt that has begun, for each job that was ever taken over. What is no such record counts as none:
    a config is anybody's to write."""
    try:
        stored = json.loads(config.get(ATTEMPTS_KEY) or "{}")
    except ValueError:
        return {}
    if not isinstance(stored, dict):
        return {}
    return {job_id: attempt for job_id, attempt in stored.items() if isinstance(attempt, int)}


def with_attempt(known: Mapping[str, int], job_id: str, attempt: int) -> str:
    """The record with one more attempt, as it is stored: the latest jobs last, and only so many of them."""
    entries = [(job, number) for job, number in known.items() if job != job_id][-_JOBS_KEPT + 1 :]
    return json.dumps(dict([*entries, (job_id, attempt)]), separators=(",", ":"))
