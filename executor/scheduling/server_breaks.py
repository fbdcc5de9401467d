"""Servers of a remote function that break the connection over every row: the function is at fault, and no row. Pure."""

from __future__ import annotations

from core.domain.work import ProgressReport, ServerAnswers
from core.errors import Unavailable

#: So many rows, each tried by itself, are given up in a row while no worker has a batch answered; the job ends then.
MOST_LOST = 32
_NOTHING = ServerAnswers()


class ServerBreaks:
    """The rows that were given up since any worker of one plan had a batch answered.

    A row that ends servers is looked for by halves, at three broken connections for each, and given up alone where the
    error policy skips it. Where all do that a table would take weeks, and end with nothing but failed rows.

    Args:
        function: Name and version.
    """

    def __init__(self, function: str) -> None:
        self._function = function
        self._heard: dict[str, ServerAnswers] = {}
        self._lost = 0

    def heard(self, report: ProgressReport) -> Unavailable | None:
        """Take in a unit's sums; return the error (FUNCTION_UNAVAILABLE) that ends the job, else None."""
        before, now = self._heard.get(report.unit_id, _NOTHING), report.servers
        if now.answered <= before.answered and now.lost <= before.lost:  # the same, or an older one that came later
            return None
        self._heard[report.unit_id] = now
        if now.answered > before.answered:
            self._lost = 0
        self._lost += max(0, now.lost - before.lost)
        if self._lost < MOST_LOST:
            return None
        return Unavailable(
            "FUNCTION_UNAVAILABLE",
            f"Servers of function {self._function} answer nothing: {self._lost} rows in succession, each tried by "
            f"itself, broke the connections to them, and no batch was answered in between. Of the last row: "
            f"{now.message}. See in the servers' own logs why they end or hang up; once that is mended, run the job "
            "again, and retry this one for the rows that it skipped. Finished work is kept",
        )

    def ended(self, unit_id: str) -> None:
        """Forget a unit that came back, or was lost."""
        self._heard.pop(unit_id, None)
