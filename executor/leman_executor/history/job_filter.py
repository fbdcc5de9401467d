"""Which jobs a caller means, and which page of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from leman_core.model.job import JobState
from leman_executor.history.job_record import Age, JobRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """Which jobs are wanted: those for which all holds that is given."""

    tables: frozenset[str] = frozenset()
    states: frozenset[JobState] = frozenset()
    #: Accepted at this time or later, and before that one, in microseconds since the epoch.
    accepted_from: int | None = None
    accepted_before: int | None = None
    #: Backfills of it.
    column: str = ""
    #: Asked for by this caller.
    initiator: str = ""
    #: All of them.
    labels: Mapping[str, str] = field(default_factory=dict)
    #: Anything else.
    matches: Callable[[JobRecord], bool] | None = None

    def wants(self, record: JobRecord) -> bool:
        """Tell whether a job is wanted, as far as more than its age says."""
        return (
            (not self.tables or record.table in self.tables)
            and (not self.states or record.state in self.states)
            and (not self.column or self.column in record.filled)
            and (not self.initiator or record.initiator == self.initiator)
            and all(record.labels.get(key) == value for key, value in self.labels.items())
            and (self.matches is None or self.matches(record))
        )

    def is_past(self, record: JobRecord, *, oldest_first: bool) -> bool:
        """Tell whether no job from this one on is wanted, as all are too old, or too young."""
        if oldest_first:
            return self.accepted_before is not None and record.created_at >= self.accepted_before
        return self.accepted_from is not None and record.created_at < self.accepted_from


@dataclass(frozen=True, slots=True, kw_only=True)
class JobListing:
    """A page of jobs."""

    filter: JobFilter = JobFilter()
    after: Age | None = None
    """The last job of the page before; None: the first page."""
    most: int | None = None
    """So many jobs at the most; None: all."""
    oldest_first: bool = False
    """The order; otherwise the newest come first."""
