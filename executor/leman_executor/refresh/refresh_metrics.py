"""Progress of a refresh: its own counts, and those of the backfills of its scratch table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from leman_core.model.job import Progress
from leman_executor.jobs.job_metrics import JobMetrics

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
    """Rows that are being computed."""

    #: How many rows were committed before.
    committed: int
    rows: int
    functions: int
    #: The last backfill of each function that has begun, by its name.
    parts: dict[str, JobMetrics] = field(default_factory=dict)

    def is_same(self, other: _Step) -> bool:
        """Tell whether both are about the same rows, as far as can be told before a backfill has begun."""
        return (self.committed, self.rows, self.functions) == (other.committed, other.rows, other.functions)

    def begin(self, part: JobMetrics, name: str) -> None:
        """Take in a backfill; those of another scratch table are not of this step."""
        table = name.rpartition("/")[0]
        for other in [known for known in self.parts if known.rpartition("/")[0] != table]:
            del self.parts[other]
        self.parts[name] = part

    @property
    def has_all_begun(self) -> bool:
        """Tell whether all of its functions have begun: what those that wait will cost is not known."""
        return len(self.parts) >= self.functions


class RefreshMetrics(JobMetrics):
    """The metrics of a refresh, counted in rows of the view.

    A row is committed where the view has it, not where the scratch table has it. It is one row however many functions
    have to be called for it.
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
        """The share of what an error policy allows, of the function for which it is largest."""
        return max((part.budget_used for part in self._parts), default=0.0)

    def begin(self, part: JobMetrics, name: str) -> None:
        """Add a backfill of the scratch table; its failed rows replace those of an earlier one of that `name`."""
        self._parts.append(part)
        self._step.begin(part, name)
        if name not in self._given_up:
            for other in self._given_up:
                self._failing.pop(other, None)
        self._given_up.clear()
        self._failing[name] = part

    def inherit(self, failed: Mapping[str, int]) -> None:
        """Take over the number of failed rows, by name of the backfill, where another executor began the refresh."""
        self._failing = dict(failed)
        self._settled = set(failed)

    @property
    def failed_by_name(self) -> dict[str, int]:
        """Return how many rows failed, by name of the backfill."""
        return {name: part if isinstance(part, int) else part.rows_failed for name, part in self._failing.items()}

    @property
    def rows_failed(self) -> int:
        """Return how many values are missing because a function failed."""
        return sum(self.failed_by_name.values())

    def left_failed(self, rows: int) -> None:
        """Set how many values of the view are missing since earlier jobs."""
        self._before = rows

    def expect(self, rows: int, functions: int) -> None:
        """Begin a step, or begin one again that had to stop.

        Where no row of the step before was installed, that step was given up.

        Args:
            rows: How many rows are to be installed.
            functions: How many functions have to be called for each of them.
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
        """Return how many rows were given to functions; each function's rows are counted separately."""
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
        """Return the step's values that are safe, as rows: half a row if one of two functions was called for it."""
        step = self._step
        parts = [part.progress() for part in step.parts.values() if part.rows_total]
        missing = (part.rows_planned - part.rows_checkpointed for part in parts)
        values = sum(max(0, step.rows - rows) for rows in missing)
        return min(values // max(1, step.functions), step.rows)
