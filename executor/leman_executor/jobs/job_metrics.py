"""Sum the reports of a job's units, count the job's failed rows, and derive its progress."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from leman._format.stored_functions import ErrorPolicy
from leman_core.model.job import Progress
from leman_core.model.plan import FragmentTask, Plan, PlanHeader, StagedFile
from leman_core.model.plan_columns import planned_tasks
from leman_core.model.work import FragmentResult, ProgressReport, Timings, UnitOutcome


@dataclass(slots=True)
class _Told:
    """The fragments that a running unit has reported as finished, and their failed rows."""

    fragments: set[int] = field(default_factory=set)
    rows: int = 0


class FailedRows:
    """The failed rows of one job. Each counts once, as soon as it is stored.

    The numbers that units report for a fragment count until the fragment's file has the final number.
    """

    def __init__(self) -> None:
        self._said: dict[int, int] = {}
        self._files: dict[int, int] = {}
        self._told: dict[str, _Told] = {}
        self._running: dict[str, ProgressReport] = {}
        self._left: dict[int, int] = {}
        # Running sums, because every message of a worker reads them.
        self._sum = 0
        #: Number of rows that failed before the job and stay failed.
        self.left = 0

    @property
    def total(self) -> int:
        return self._sum + sum(self._at_hand(report) for report in self._running.values())

    @property
    def inherited(self) -> bool:
        """Return whether files have failed rows that only an earlier, unfinished job reported."""
        return any(failed > self._said.get(fragment_id, 0) for fragment_id, failed in self._files.items())

    def report(self, report: ProgressReport) -> None:
        """Record the report of a running unit."""
        self._running[report.unit_id] = report
        if report.result is not None:
            self._through(report.unit_id, report.result.fragment_id, report.result.rows_failed)

    def ended(self, unit_id: str, results: Iterable[FragmentResult]) -> None:
        """Record the end of a unit. Stored failed rows of an unfinished fragment count too."""
        for result in results:
            self._through(unit_id, result.fragment_id, result.rows_failed)
        last = self._running.pop(unit_id, None)
        if last is not None:
            self._add(last.fragment_id, self._at_hand(last))
        self._told.pop(unit_id, None)

    def staged(self, fragment_id: int, failed: int, left: int) -> None:
        """Record how many rows of a fragment failed in this job, according to its file. Another `left` rows failed
        before and stay failed.
        """
        self._sum += failed - self._files.get(fragment_id, self._said.get(fragment_id, 0))
        self._files[fragment_id] = failed
        self.left += left - self._left.get(fragment_id, 0)
        self._left[fragment_id] = left

    def _through(self, unit_id: str, fragment_id: int, rows: int) -> None:
        told = self._told.setdefault(unit_id, _Told())
        if fragment_id not in told.fragments:
            told.fragments.add(fragment_id)
            told.rows += rows
            self._add(fragment_id, rows)

    def _add(self, fragment_id: int, rows: int) -> None:
        self._said[fragment_id] = self._said.get(fragment_id, 0) + rows
        if fragment_id not in self._files:
            self._sum += rows

    def _at_hand(self, last: ProgressReport) -> int:
        """Return the number of failed rows that a running unit has stored of its current fragment."""
        told = self._told.get(last.unit_id, _Told())
        return 0 if last.fragment_id in told.fragments else max(0, last.rows_failed - told.rows)


_RATE_SECONDS = 5.0
#: Counts that continue from the values that the previous executor wrote.
_SUMS = (
    *(
        "rows_committed",
        "rows_skipped",
        "rows_evaluated",
        "rows_computed",
        "input_rows_evaluated",
        "fragments_committed",
        "spark_jobs",
        "commits",
    ),
    *("udf_seconds", "read_seconds", "checkpoint_seconds", "write_seconds", "load_seconds", "commit_seconds"),
)


class JobMetrics:
    """The counts and times of one job.

    The results of units are final. For running units, progress reports count. A failed row counts once, as soon as it
    is stored: at first in the unit's report, later in the fragment's file. `rows_failed_before` counts other rows:
    those that failed before the job and are not retried.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._begin = clock()
        self._running: dict[str, ProgressReport] = {}
        self._done: set[str] = set()
        self._evaluated = self._safe = 0
        self._failed = FailedRows()
        self._failed_inherited = self._failed_found = 0
        self._computed = 0
        self._times = Timings()
        #: By fragment, the rows of files that are not committed yet, and the rows that these files leave out.
        self._ready: dict[int, tuple[int, int]] = {}
        self._rows_ready = self._rows_skipped = 0  # running sums: each worker message reads them
        #: By fragment, the number of live rows in a committed partial file of the job. By file, the number of its
        #: failed rows.
        self._shown: dict[int, int] = {}
        #: The number of such rows that earlier executors committed, until a plan shows in which fragments they are.
        self._shown_before = 0
        self._failed_in_partial: dict[str, int] = {}
        self._recent: deque[tuple[float, int]] = deque()
        self.rows_total = self.rows_reused = self.rows_planned = self.fragments_planned = 0
        #: The number of rows with which the error policy compares `budget_failed`.
        self.budget_rows = 0
        self._before = 0
        self._filtered = False
        self._policy = ErrorPolicy()
        #: The counts of earlier executors of the job, including the numbers of rows that they stored or committed.
        self._attempts = Progress()
        self._safe_before = 0
        self.units = 0
        #: The number of rows with which functions of stale inputs were called before.
        self.input_rows_evaluated = 0
        self.rows_committed = self.fragments_committed = self.commits = self.spark_jobs = 0
        self.commit_seconds = self.planning_seconds = 0.0

    def planned(self, plan: Plan, seconds: float) -> None:
        """Record a plan. The first plan sets the totals. Later plans only add new work."""
        self.planning_seconds += seconds
        header = plan.header
        left = self.show(plan, self._shown_before)
        self._shown_before = 0
        if self.rows_total or not self._attempts.rows_planned:
            self.rows_committed += left
        else:
            self._attempts = replace(self._attempts, rows_committed=self._attempts.rows_committed + left)
        if not self.rows_total:
            self.rows_total, self.fragments_planned = header.rows_total, len(plan.tasks)
            self._before = header.rows_failed_before
            self._filtered = bool(header.where)
            self._take_rows(header)
            self._policy = header.udf.error_policy
            self.budget_rows = max(header.rows_to_compute, self._attempts.rows_planned)
            if self._attempts.rows_planned:
                self._count_commits_before(plan)
                self._failed_inherited = max(0, self._before - self._attempts.rows_failed_before)
                self._before -= self._failed_inherited

    def _count_commits_before(self, plan: Plan) -> None:
        """Count unrecorded commits of earlier executors: the work that is in their plans and not in the new plan.

        With a filter, it is unknown which rows of the remaining fragments were requested, so nothing is counted.
        """
        waiting = planned_tasks(plan.tasks).live_rows - plan.header.rows_to_compute
        rows = 0 if self._filtered else self._safe_before - waiting
        before, left = self._attempts, len(plan.tasks)
        self._attempts = replace(
            before,
            rows_committed=max(before.rows_committed, rows),
            fragments_committed=max(before.fragments_committed, before.fragments_planned - left if rows > 0 else 0),
        )

    def show(self, plan: Plan, rows: int) -> int:
        """Record which unfinished fragments have committed rows, because a compaction may have moved these rows.

        Args:
            plan: The plan, which lists the unfinished fragments.
            rows: Number of rows that earlier executors committed for such fragments.

        Returns:
            How many of these rows are in no unfinished fragment, because their fragments have been finished.
        """
        left = rows + sum(self._shown.values())
        if not left:
            return 0
        live = {t.fragment_id: t.physical_rows - t.deleted_rows for t in plan.tasks if t.extend_current}
        shown = {i: min(live[i], n) for i, n in self._shown.items() if i in live}
        known = planned_tasks(plan.tasks).live_rows - plan.header.rows_to_compute
        unplaced = max(0, min(left, known) - sum(shown.values()))
        for fragment_id, most in live.items():
            more = min(unplaced, most - shown.get(fragment_id, 0))
            shown[fragment_id] = shown.get(fragment_id, 0) + more
            unplaced -= more
        left -= sum(shown.values())
        self._shown = shown
        return left

    def _take_rows(self, header: PlanHeader) -> None:
        """Record how many rows need no work and how many are left. Rows that earlier executors completed are in
        neither.

        With a filter, the number of requested rows is unknown, so the reported number of completed rows is used.
        """
        done = max(0, self._attempts.rows_planned - header.rows_to_compute)
        self._safe_before = min(done, self._attempts.rows_checkpointed) if self._filtered else done
        self.rows_planned = header.rows_to_compute + self._safe_before
        self.rows_reused = max(0, header.rows_reused - self._safe_before)

    def go_on(self, before: Progress) -> None:
        """Continue the counts of earlier executors that worked on the job.

        Args:
            before: The progress that the last such executor wrote: with its first plan, or when the job was paused.
        """
        self._shown_before = before.rows_partly_committed
        self._attempts = replace(
            before, rows_committed=before.rows_committed - self._shown_before, rows_partly_committed=0
        )

    def own_failures(self, found: int) -> None:
        """Count all failed rows of the table as the job's, because the table belongs to this job alone.

        For the error policy, `found` of these rows do not count, because they failed before the job.
        """
        self._failed_inherited += self._before
        self._failed_found = min(found, self._before)
        self._before = 0
        self.budget_rows = self.rows_total

    def migrated(self, plan: Plan) -> None:
        """Record a plan that was made after a migration, before anything was computed. Less work is left."""
        if not self.rows_evaluated:
            self._take_rows(plan.header)
            self.budget_rows = max(plan.header.rows_to_compute, self._attempts.rows_planned)

    def inputs_computed(self, plan: Plan) -> None:
        """Record a plan that was made after inputs were computed, before anything else. More work may be left."""
        if not self.rows_evaluated:
            self.fragments_planned = len(plan.tasks)
        self.migrated(plan)

    def known(self, rows: int) -> None:
        """Subtract rows whose stored values the plan does not include."""
        self.rows_planned -= rows

    def report(self, report: ProgressReport) -> None:
        """Record the sums of a running unit. Late reports of ended units are ignored."""
        if report.unit_id in self._done:
            return
        self._running[report.unit_id] = report
        self._failed.report(report)

    def outcome(self, outcome: UnitOutcome) -> None:
        """Record the end of a unit: its results replace its reports.

        If the unit was `lost` before, another unit does its work, and failed rows count for that other unit.
        """
        if outcome.unit_id not in self._done:
            self._failed.ended(outcome.unit_id, outcome.results)
        said = self._running.pop(outcome.unit_id, None)
        if said is not None and outcome.failure is not None:  # some rows that it stored are in no result
            unsaid = max(0, said.rows_safe - sum(result.rows_evaluated for result in outcome.results))
            self._evaluated += unsaid
            self._safe += unsaid
            self._computed += max(0, unsaid - said.rows_failed)
        self._done.add(outcome.unit_id)
        for result in outcome.results:
            self._evaluated += result.rows_evaluated
            self._computed += result.rows_computed
            self._safe += result.rows_evaluated
        self._times += outcome.timings

    def lost(self, unit_id: str, stored: int | None = 0) -> None:
        """Record that a unit's worker died. The unit's stored rows stay; its other rows are computed again.

        Args:
            stored: The number of stored rows. None: the number last reported.
        """
        said = self._running.pop(unit_id, None)
        safe = stored if stored is not None else said.rows_safe if said is not None else 0
        self._evaluated += safe
        self._safe += safe
        self._computed += max(0, safe - (said.rows_failed if said is not None else 0))
        self._failed.ended(unit_id, ())
        self._done.add(unit_id)

    def staged(
        self, fragment_id: int, rows: int, rows_failed: int, failed_before: int = 0, rows_skipped: int = 0
    ) -> None:
        """Record a fragment's file that is to be committed.

        The file counts all failed rows, including those of earlier attempts; `failed_before` of them failed before the
        job. The filter left out another `rows_skipped` rows.
        """
        self._rows_ready += rows - self._ready.get(fragment_id, (0, 0))[0]
        self._ready[fragment_id] = rows, rows_skipped
        self._failed.staged(fragment_id, max(0, rows_failed - failed_before), failed_before)

    def committed(self, fragment_id: int) -> None:
        """Record that a fragment's file was committed, so that queries see its rows."""
        rows, skipped = self._ready.pop(fragment_id, (0, 0))
        self._shown.pop(fragment_id, None)
        self._rows_ready -= rows
        self._rows_skipped += skipped
        self.rows_committed += rows
        self.fragments_committed += 1

    def partly_committed(self, task: FragmentTask, staged: StagedFile) -> int:
        """Record the commit of a partial file of an unfinished fragment. Return the number of its live rows."""
        rows = max(0, task.physical_rows - task.deleted_rows - staged.rows_skipped)
        self._shown[task.fragment_id] = max(rows, self._shown.get(task.fragment_id, 0))
        before = self._failed_in_partial.get(task.current_file, 0)
        self._failed_in_partial[staged.file] = max(0, staged.rows_failed - task.rows_failed_before) + before
        return rows

    def failed_in_partial(self, file: str) -> int:
        """Return how many rows of a partial file failed in this job; 0 for any other file."""
        return self._failed_in_partial.get(file, 0)

    def rejected(self, fragment_id: int) -> None:
        """Record that the coordinator refused a fragment's file."""
        self._rows_ready -= self._ready.pop(fragment_id, (0, 0))[0]

    @property
    def rows_evaluated(self) -> int:
        return self._evaluated + sum(h.rows_evaluated for h in self._running.values())

    @property
    def rows_computed(self) -> int:
        """The number of evaluated rows that got a value. For running units, only stored rows count."""
        return self._computed + sum(max(0, h.rows_safe - h.rows_failed) for h in self._running.values())

    @property
    def rows_failed(self) -> int:
        """The number of rows that the job leaves without a value because the function failed."""
        return self._failed.total + self._failed_inherited

    @property
    def budget_failed(self) -> int:
        """The number of failed rows that the error policy counts.

        Each counts once, even if several executors ran the job.
        """
        return self.rows_failed - self._failed_found

    @property
    def budget_used(self) -> float:
        """The used share of the error policy's limit on failed rows; 0 without a limit."""
        allowed = self._policy.errors_allowed(self.budget_rows)
        return 0.0 if allowed is None else self.budget_failed / max(1, allowed)

    @property
    def failed_elsewhere(self) -> bool:
        """Return whether other jobs recorded some failed rows, which failed before or were already stored."""
        return bool(self.rows_failed_before) or self._failed.inherited

    @property
    def rows_failed_before(self) -> int:
        """The number of requested rows that failed before the job and stay failed."""
        # Files also count rows that the filter excludes.
        return self._before if self._filtered else max(self._before, self._failed.left)

    @property
    def seconds_per_row(self) -> float | None:
        """The seconds that one worker needs for a row. None if no row was evaluated."""
        return self._times.by_rows / self._evaluated if self._evaluated else None

    def progress(self) -> Progress:
        """Return the current progress."""
        times = self._times
        for report in self._running.values():
            times += report.timings
        evaluated = self.rows_evaluated
        elapsed = self._clock() - self._begin
        rate = self._rate(evaluated, elapsed)
        left = max(0, self.rows_planned - self._safe_before - evaluated)
        shown = sum(self._shown.values()) + self._shown_before
        now = Progress(
            rows_total=self.rows_total,
            rows_reused=self.rows_reused,
            rows_planned=self.rows_planned,
            rows_checkpointed=self._safe_before + self._safe + sum(h.rows_safe for h in self._running.values()),
            rows_ready_to_commit=self._rows_ready,
            rows_committed=self.rows_committed + shown,
            rows_partly_committed=shown,
            rows_skipped=self._rows_skipped,
            rows_failed=self.rows_failed,
            rows_evaluated=evaluated,
            rows_computed=self.rows_computed,
            input_rows_evaluated=self.input_rows_evaluated,
            rows_failed_before=self.rows_failed_before,
            fragments_planned=self._attempts.fragments_committed + self.fragments_planned,
            fragments_committed=self.fragments_committed,
            udf_seconds=times.udf,
            read_seconds=times.read,
            checkpoint_seconds=times.checkpoint,
            write_seconds=times.write,
            load_seconds=times.load,
            commit_seconds=self.commit_seconds,
            bottleneck=self._bottleneck(times, elapsed),
            elapsed_seconds=elapsed,
            spark_jobs=self.spark_jobs,
            rows_per_second=rate,
            eta_seconds=left / rate if rate and self._settled_rate(evaluated, elapsed) else 0.0,
            commits=self.commits,
        )
        return replace(now, **{name: getattr(self._attempts, name) + getattr(now, name) for name in _SUMS})

    def _settled_rate(self, evaluated: int, elapsed: float) -> bool:
        """Return whether the rate is stable enough for an estimate of the remaining time."""
        return elapsed >= 1.0 and (evaluated * 50 >= self.rows_planned or (elapsed >= 10.0 and evaluated > 0))

    def _rate(self, evaluated: int, elapsed: float) -> float:
        """Return the rows per second over the last seconds or, if the job has just started, over the whole job."""
        now = self._clock()
        self._recent.append((now, evaluated))
        while len(self._recent) > 2 and now - self._recent[0][0] > _RATE_SECONDS:
            self._recent.popleft()
        then, rows = self._recent[0]
        if now - then >= 1.0 and evaluated > rows:
            return (evaluated - rows) / (now - then)
        return evaluated / elapsed if elapsed > 0 else 0.0

    def _bottleneck(self, times: Timings, elapsed: float) -> str:
        spent = {
            "udf": times.udf,
            "read": times.read,
            "checkpoint": times.checkpoint,
            "write": times.write,
            "load": times.load,
            "commit": self.commit_seconds,
            "planning": self.planning_seconds,
        }
        busy = sum(spent.values())
        if busy < elapsed / 2:
            return "scheduling"
        return max(spent, key=lambda name: spent[name])
