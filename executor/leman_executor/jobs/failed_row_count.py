"""The count of the rows on which a job's function failed: each is counted once, as soon as it is stored."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from leman_core.model.work import FragmentResult, ProgressReport


@dataclass(slots=True)
class _Told:
    """The fragments that a running unit is done with, and the failed rows in them."""

    fragments: set[int] = field(default_factory=set)
    rows: int = 0


class FailedRows:
    """The failed rows of one job; a fragment counts as units report it, until its file says how many there are."""

    def __init__(self) -> None:
        self._said: dict[int, int] = {}
        self._files: dict[int, int] = {}
        self._told: dict[str, _Told] = {}
        self._running: dict[str, ProgressReport] = {}
        self._left: dict[int, int] = {}
        # sums, as they are asked for with each message of a worker
        self._sum = 0
        #: Rows that had failed before the job and stay so.
        self.left = 0

    @property
    def total(self) -> int:
        """The number of failed rows by now."""
        return self._sum + sum(self._at_hand(report) for report in self._running.values())

    @property
    def inherited(self) -> bool:
        """Tell whether files have failed rows that no unit found: an earlier job found them, and was not finished."""
        return any(failed > self._said.get(fragment_id, 0) for fragment_id, failed in self._files.items())

    def report(self, report: ProgressReport) -> None:
        """Take in the report of a running unit."""
        self._running[report.unit_id] = report
        if report.result is not None:
            self._through(report.unit_id, report.result.fragment_id, report.result.rows_failed)

    def ended(self, unit_id: str, results: Iterable[FragmentResult]) -> None:
        """Take in the end of a unit; rows that it had stored of an unfinished fragment count too."""
        for result in results:
            self._through(unit_id, result.fragment_id, result.rows_failed)
        last = self._running.pop(unit_id, None)
        if last is not None:
            self._add(last.fragment_id, self._at_hand(last))
        self._told.pop(unit_id, None)

    def staged(self, fragment_id: int, failed: int, left: int) -> None:
        """Take in how many rows failed in the job, as a fragment's file says; `left` had failed before and stay so."""
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
        """Return the failed rows that a running unit has stored of the fragment at hand."""
        told = self._told.get(last.unit_id, _Told())
        return 0 if last.fragment_id in told.fragments else max(0, last.rows_failed - told.rows)
