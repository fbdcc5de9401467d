"""Progress of a refresh: its own counts and those of the backfills of its stage."""

from __future__ import annotations

from dataclasses import replace

from core.domain.job import Progress
from executor.jobs.tally import Tally

_SUMMED = (
    "rows_checkpointed",
    "rows_failed",
    "rows_evaluated",
    "udf_seconds",
    "read_seconds",
    "checkpoint_seconds",
    "write_seconds",
    "commit_seconds",
    "spark_jobs",
)


class RefreshTally(Tally):
    """What is committed is counted where the view has it, not where the stage has it."""

    def __init__(self) -> None:
        super().__init__()
        self._parts: list[Tally] = []
        self.seconds_reading = self.seconds_writing = 0.0

    def begin(self, part: Tally) -> None:
        """A backfill of the stage begins."""
        self._parts.append(part)

    def expect(self, rows: int, functions: int) -> None:
        """Rows that are to be installed next, after so many functions have had each of them."""
        done = max(self.rows_committed, sum(p.progress().rows_checkpointed for p in self._parts))
        self.rows_planned = done + rows * max(1, functions)

    @property
    def all_failed(self) -> int:
        """Rows without a value because a function failed for them, now or when the stage was filled before."""
        return sum(p.rows_failed + p.rows_failed_before for p in self._parts)

    @property
    def all_evaluated(self) -> int:
        """Rows given to functions, each function's counted apart."""
        return sum(p.rows_evaluated for p in self._parts)

    def progress(self) -> Progress:
        """See `Tally.progress`."""
        own = super().progress()
        parts = [p.progress() for p in self._parts]
        sums = {name: getattr(own, name) + sum(getattr(p, name) for p in parts) for name in _SUMMED}
        sums["read_seconds"] += self.seconds_reading
        sums["write_seconds"] += self.seconds_writing
        last = parts[-1] if parts else own
        return replace(
            own,
            rows_per_second=last.rows_per_second,
            eta_seconds=last.eta_seconds,
            bottleneck=last.bottleneck,
            **sums,
        )
