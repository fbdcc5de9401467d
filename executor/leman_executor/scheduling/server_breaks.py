"""Servers of a remote function that break the connection over every row: the function is at fault, and no row. Pure."""

from __future__ import annotations

import time
from collections.abc import Callable

from leman_core.model.errors import Unavailable
from leman_core.model.work import ProgressReport, ServerAnswers

#: So many rows, each tried by itself, are given up in a row while no worker has a batch answered; the job ends then.
MOST_LOST = 32
#: So many connections may break in a row over batches that were tried by themselves, once the patience is over, too.
MOST_BROKEN = 32
_NOTHING = ServerAnswers()
_NEXT = (
    "See in the servers' own logs why they end or hang up; once that is mended, run the job again: it computes these "
    "rows. Where a fragment was finished before the job ended, its rows count as failed (`row_states`): retry them. "
    "Finished work is kept"
)


class ServerBreaks:
    """What broke connections to servers since any worker of one plan had a batch answered.

    A row that ends servers is looked for by halves, and given up alone where the error policy skips it. Where all do
    that a table would take weeks, and end with nothing but failed rows. Where each death takes seconds, as a supervisor
    starts servers again, 32 rows would take many minutes: then broken connections are counted.

    Args:
        function: Name and version.
        patience_seconds: How long servers may answer nothing, though they break connections only now and then.
        clock: Seconds, as `time.monotonic` counts them.
    """

    def __init__(
        self, function: str, patience_seconds: float = 60.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._function = function
        self._patience = patience_seconds
        self._clock = clock
        self._heard: dict[str, ServerAnswers] = {}
        #: When units were last answered, of the last two: one of them is another one than whichever asks.
        self._answered: dict[str, float] = {}
        self._lost = 0
        self._broken = 0
        self._since = 0.0

    def heard(self, report: ProgressReport) -> Unavailable | None:
        """Take in a unit's sums; return the error (FUNCTION_UNAVAILABLE) that ends the job, else None."""
        before, now = self._heard.get(report.unit_id, _NOTHING), report.servers
        if now.answered <= before.answered and now.lost <= before.lost and now.broken <= before.broken:
            return None  # the same, or an older one that came later
        self._heard[report.unit_id] = now
        if now.answered > before.answered:
            self._lost = self._broken = 0
            self._note_answered(report.unit_id)
        if not self._broken:
            self._since = self._clock()
        self._lost += max(0, now.lost - before.lost)
        self._broken += max(0, now.broken - before.broken)
        what = self._too_much()
        if not what:
            return None
        return Unavailable(
            "FUNCTION_UNAVAILABLE",
            f"Servers of function {self._function} answer nothing: {what}, and no batch was answered in between. Of "
            f"the last one: {now.message}. {_NEXT}",
        )

    def _note_answered(self, unit_id: str) -> None:
        self._answered.pop(unit_id, None)
        self._answered[unit_id] = self._clock()
        if len(self._answered) > 2:
            del self._answered[next(iter(self._answered))]

    def _too_much(self) -> str:
        """Return what shows that no row is to blame; empty: nothing does yet."""
        if self._lost >= MOST_LOST:
            return f"{self._lost} rows in succession, each tried by itself, broke the connections to them"
        seconds = self._clock() - self._since
        if self._broken >= MOST_BROKEN and seconds >= self._patience:
            return (
                f"for {seconds:.0f} s connections to them broke, {self._broken} times in succession, over batches that "
                "were tried by themselves"
            )
        return ""

    def answer_others(self, unit_id: str) -> bool:
        """Tell whether servers answered other units while this one waited for one of them."""
        since = self._clock() - self._patience
        return any(at > since and other != unit_id for other, at in self._answered.items())

    def ended(self, unit_id: str) -> None:
        """Forget a unit that came back, or was lost."""
        self._heard.pop(unit_id, None)
