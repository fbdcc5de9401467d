"""Record the progress of a refresh, including the work of earlier executors, in metrics and a journal.

The metrics combine the counts of the refresh with those of the backfills of its scratch table. The journal is stored in
the job's record, so that the counts continue when another executor takes the job over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import structlog

from leman_core.model.job import Progress
from leman_core.model.service_errors import LemanError
from leman_core.model.view import AskedCommit, RefreshJournal, RefreshResult
from leman_core.storage import transactions
from leman_executor.jobs.async_helpers import run_storage_work
from leman_executor.jobs.job_environment import JobStore
from leman_executor.jobs.job_metrics import JobMetrics
from leman_executor.jobs.job_status import JobStatus

_SUMMED = (
    "rows_evaluated",
    "rows_computed",
    "udf_seconds",
    "read_seconds",
    "checkpoint_seconds",
    "write_seconds",
    "load_seconds",
    "commit_seconds",
    "spark_jobs",
)


@dataclass(frozen=True, slots=True)
class _Step:
    """The rows of the step that runs now."""

    #: Number of rows that were committed before this step.
    committed: int
    rows: int
    functions: int
    #: By function name, the metrics of the backfill that started last.
    parts: dict[str, JobMetrics] = field(default_factory=dict)

    def is_same(self, other: _Step) -> bool:
        """Return whether both steps compute the same rows, as far as that is known before a backfill has started."""
        return (self.committed, self.rows, self.functions) == (other.committed, other.rows, other.functions)

    def begin(self, part: JobMetrics, name: str) -> None:
        """Add a backfill of this step. Drop backfills of other scratch tables, which belong to an earlier step."""
        table = name.rpartition("/")[0]
        for other in [known for known in self.parts if known.rpartition("/")[0] != table]:
            del self.parts[other]
        self.parts[name] = part

    @property
    def has_all_begun(self) -> bool:
        """Return whether a backfill of each function has started, so that the costs of all functions are known."""
        return len(self.parts) >= self.functions


class RefreshMetrics(JobMetrics):
    """The metrics of a refresh, counted in rows of the view.

    A row counts as committed once it is in the view. It counts once, even if several functions are called for it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._parts: list[JobMetrics] = []
        self._step = _Step(0, 0, 0)
        self._failing: dict[str, JobMetrics | int] = {}
        self._given_up: set[str] = set()
        self._settled: set[str] = set()
        self.seconds_reading = self.seconds_writing = 0.0

    @property
    def budget_used(self) -> float:
        """The largest share of an error budget that any function has used."""
        return max((part.budget_used for part in self._parts), default=0.0)

    def begin(self, part: JobMetrics, name: str) -> None:
        """Add a backfill of the scratch table.

        Its failed rows replace those of an earlier backfill with this `name`.
        """
        self._parts.append(part)
        self._step.begin(part, name)
        if name not in self._given_up:
            for other in self._given_up:
                self._failing.pop(other, None)
        self._given_up.clear()
        self._failing[name] = part

    def inherit(self, failed: Mapping[str, int]) -> None:
        """Take over the numbers of failed rows that an earlier executor counted, by name of the backfill."""
        self._failing = dict(failed)
        self._settled = set(failed)

    @property
    def failed_by_name(self) -> dict[str, int]:
        """Return the number of failed rows by name of the backfill."""
        return {name: part if isinstance(part, int) else part.rows_failed for name, part in self._failing.items()}

    @property
    def rows_failed(self) -> int:
        """Return the number of values that are missing because a function failed."""
        return sum(self.failed_by_name.values())

    def left_failed(self, rows: int) -> None:
        """Set how many values of the view are missing because they failed in earlier jobs."""
        self._before = rows

    def expect(self, rows: int, functions: int) -> None:
        """Begin a step, or resume one that was interrupted.

        If no row of the previous step was committed, that step counts as abandoned.

        Args:
            rows: The number of rows to commit.
            functions: The number of functions to call for each row.
        """
        if self.rows_committed == self._step.committed:
            self._given_up = {name for name in self._failing if name not in self._settled}
        else:
            self._settled |= self._failing.keys()
        step = _Step(self.rows_committed, rows, functions)
        self._step = self._step if self._step.is_same(step) else step
        self.rows_planned = self.rows_committed + rows

    @property
    def all_evaluated(self) -> int:
        """Return the sum, over all functions, of the rows that each was called with."""
        return sum(p.rows_evaluated for p in self._parts)

    def progress(self) -> Progress:
        """Return the progress; see `JobMetrics.progress`."""
        own = super().progress()
        parts = [p.progress() for p in self._parts]
        sums = {name: getattr(own, name) + sum(getattr(p, name) for p in parts) for name in _SUMMED}
        sums["read_seconds"] += self.seconds_reading
        sums["write_seconds"] += self.seconds_writing
        last = parts[-1] if parts else own
        before = self._attempts.rows_committed
        return replace(
            own,
            rows_planned=before + self.rows_planned,
            rows_checkpointed=before + max(self.rows_committed, self._step.committed + self._safe_rows()),
            rows_per_second=last.rows_per_second,
            eta_seconds=last.eta_seconds if self._step.has_all_begun else 0.0,
            bottleneck=last.bottleneck,
            **sums,
        )

    def _safe_rows(self) -> int:
        """Return the number of the step's stored rows. A row with one of two functions called counts as half."""
        step = self._step
        parts = [part.progress() for part in step.parts.values() if part.rows_total]
        missing = (part.rows_planned - part.rows_checkpointed for part in parts)
        values = sum(max(0, step.rows - rows) for rows in missing)
        return min(values // max(1, step.functions), step.rows)


_log = structlog.get_logger(__name__)


class JournalKeeper:
    """Keep the refresh journal of a job.

    Each commit, and the computation of each column, is recorded before it begins. Its result is later read from the
    view or the scratch table. After a crash, the counts therefore lack only function calls that must be repeated.
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
        #: What the refresh has done so far, without function calls in progress.
        self.result = status.job.refresh_result or RefreshResult()

    @property
    def evaluated(self) -> int:
        """Return the sum, over all functions and executors, of the rows that each function was called with."""
        return self._before.evaluated + self._metrics.all_evaluated

    def update(self, **changes: Any) -> None:
        """Change fields of the result that the job reports so far."""
        self.result = replace(self.result, **changes)
        self._status.update(refresh_result=self.result)

    async def column(self, scratch: str, column: str, part: JobMetrics) -> None:
        """Record that a scratch table's column is about to be computed.

        If the column has more values than a dead executor recorded, the additional values were computed for this
        refresh, or for another refresh that shares the scratch table. All failed rows of the column count as failed for
        the refresh, but only those that this job found count towards the error budget.

        Args:
            scratch: The name of the scratch table.
            column: The column.
            part: The metrics of the column's backfill, which already has a plan.
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

    def note_request(self, commit: AskedCommit) -> None:
        """Note in memory a commit that is about to be requested. For jobs that are not in the history yet."""
        self._asked = (*self._asked, commit)

    async def write_request(self, commit: AskedCommit) -> None:
        """Write to the job history that a commit is about to be requested."""
        self.note_request(commit)
        await self._write()

    def committed(self, commit: AskedCommit, version: int, fragments: Collection[int] | None = None) -> None:
        """Count a commit that the view contains since `version`. If `fragments` is given, count only these."""
        self._asked = tuple(other for other in self._asked if other != commit)
        if fragments is not None:
            added = sum(rows for fragment_id, rows in commit.filled.items() if fragment_id in fragments)
            commit = replace(commit, gains=replace(commit.gains, rows_added=added))
        gains, now = commit.gains, self.result
        self.update(
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
        """Find out from the view whether commits that got no response were made."""
        before = self.result
        for commit in self._asked:
            record = await run_storage_work(
                transactions.find_commit, commit.uri, commit.request_id, commit.read_version
            )
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
        except LemanError:  # only counts become wrong, and only if this executor dies
            _log.warning("a step of a refresh could not be recorded", job_id=self._status.job.job_id, exc_info=True)
