"""What a refresh did, over all executors that worked on it: whoever takes a job over goes on counting."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import replace
from typing import Any

import structlog

from leman_core.model.errors import LemanError
from leman_core.model.refresh import AskedCommit, RefreshJournal, RefreshResult
from leman_core.storage import commit_history
from leman_executor.jobs.job_metrics import JobMetrics
from leman_executor.jobs.job_status import JobStatus
from leman_executor.jobs.ports import JobStore
from leman_executor.refresh.refresh_metrics import RefreshMetrics
from leman_executor.refresh.storage_retries import in_thread

_log = structlog.get_logger(__name__)


class Journal:
    """The refresh journal of a job.

    Each commit and each column is written down before it begins, and what became of them is found out from the view
    and the scratch table. So after a kill -9 everything is counted except calls of a function that have to be made
    again.
    """

    def __init__(self, status: JobStatus, metrics: RefreshMetrics, jobs: JobStore) -> None:
        self._status = status
        self._metrics = metrics
        self._jobs = jobs
        self._before = status.job.refresh_journal
        self._inherited = dict(self._before.settled)
        self._begun = {name: (rows, JobMetrics()) for name, rows in self._inherited.items()}
        self._asked = self._before.asked
        self._found = dict(self._before.found)
        metrics.inherit(self._before.failed)
        #: What the refresh did so far, without the calls under way.
        self.result = status.job.refresh_result or RefreshResult()

    @property
    def evaluated(self) -> int:
        """Return how many rows were given to functions; each function's rows are counted separately."""
        return self._before.evaluated + self._metrics.all_evaluated

    def say(self, **changes: Any) -> None:
        """Add to what the refresh tells of itself."""
        self.result = replace(self.result, **changes)
        self._status.update(refresh_result=self.result)

    async def column(self, scratch: str, column: str, part: JobMetrics) -> None:
        """Write down that a scratch table's column is going to be computed.

        What the column holds beyond what a dead executor had written down was computed for this refresh, or for another
        one that shares the scratch table. All of its failed rows count as the refresh's; for the error budget only
        those count that this job found.

        Args:
            scratch: The name of the scratch table.
            column: The column.
            part: The metrics of its backfill, which have its plan.
        """
        name, settled = f"{scratch}/{column}", part.rows_total - part.rows_planned
        if name in self._inherited:
            found = max(0, settled - self._inherited.pop(name))
            self._before = replace(self._before, evaluated=self._before.evaluated + found)
        self._begun = {n: begun for n, begun in self._begun.items() if n.startswith(f"{scratch}/")}
        self._begun[name] = (settled, part)
        part.own_failures(self._found.setdefault(name, part.rows_failed_before))
        self._metrics.begin(part, name)
        await self._write()

    def expect(self, commit: AskedCommit) -> None:
        """Note that a commit is going to be asked for, by a job that is not in the job history yet."""
        self._asked = (*self._asked, commit)

    async def asking(self, commit: AskedCommit) -> None:
        """Write down that a commit is going to be asked for."""
        self.expect(commit)
        await self._write()

    def committed(self, commit: AskedCommit, version: int, fragments: Collection[int] | None = None) -> None:
        """Count a commit that the view has since `version`: all of it, or only these fragments."""
        self._asked = tuple(other for other in self._asked if other != commit)
        if fragments is not None:
            added = sum(rows for fragment_id, rows in commit.filled.items() if fragment_id in fragments)
            commit = replace(commit, gains=replace(commit.gains, rows_added=added))
        gains, now = commit.gains, self.result
        self.say(
            rows_added=now.rows_added + gains.rows_added,
            rows_recomputed=now.rows_recomputed + gains.rows_recomputed,
            rows_evicted=now.rows_evicted + gains.rows_evicted,
            rows_reused=gains.rows_reused,
            source_rows_read=now.source_rows_read + gains.source_rows_read,
            fragments_rewritten=now.fragments_rewritten + gains.fragments_rewritten,
            source_version=gains.source_version,
            view_version=version,
        )
        self._status.update(table_version=version)

    async def look_back(self) -> None:
        """Find out about commits that were never answered, if there are any."""
        before = self.result
        for commit in self._asked:
            record = await in_thread(commit_history.find_commit, commit.uri, commit.request_id, commit.read_version)
            if record is not None:
                self.committed(commit, record.version, record.files.keys() if commit.filled else None)
        now = self.result
        self._metrics.rows_committed += (
            now.rows_added - before.rows_added + now.rows_recomputed - before.rows_recomputed
        )

    async def _write(self) -> None:
        settled = {name: rows + part.rows_evaluated for name, (rows, part) in self._begun.items()}
        failed, found = self._metrics.failed_by_name, dict(self._found)
        self._status.update(
            refresh_journal=RefreshJournal(
                asked=self._asked, evaluated=self.evaluated, settled=settled, failed=failed, found=found
            )
        )
        saving = asyncio.ensure_future(self._jobs.save(self._status.snapshot()))
        try:
            await asyncio.shield(saving)
        except asyncio.CancelledError:  # the next write must come after this one
            await asyncio.gather(saving, return_exceptions=True)
            raise
        except LemanError:  # it costs a count at the most, and only where this executor dies
            _log.warning("a refresh could not be written down", job_id=self._status.job.job_id, exc_info=True)
