"""What a unit of work did when, for the trace of its job: plain data, which the worker's executor makes spans of."""

from __future__ import annotations

import time

from leman_core.model.work import WorkSpan

#: Of one unit; what comes after is in none.
_MOST = 256


class SpanRecorder:
    """The stretches of one unit: what lies between two checkpoints is one stretch of each kind.

    Reading and calling take turns many times a second: a stretch lasts from the first to the last of them, and says how
    many there were and how long they took together.
    """

    def __init__(self) -> None:
        self._epoch = time.time_ns() - time.perf_counter_ns()
        self._open: dict[str, WorkSpan] = {}
        self._closed: list[WorkSpan] = []

    def add(self, what: str, begin: float, seconds: float) -> None:
        """Take in something that was done; from any thread.

        Args:
            what: `read`, `call`, `checkpoint`, `write` or `load`.
            begin: On the clock of `time.perf_counter`.
            seconds: How long it took.
        """
        start = self._epoch + int(begin * 1e9)
        end = start + int(seconds * 1e9)
        before = self._open.get(what)
        if before is None:
            self._open[what] = WorkSpan(what, start, end, seconds, 1)
        else:
            self._open[what] = WorkSpan(what, before.begin, end, before.seconds + seconds, before.times + 1)

    def cut(self) -> None:
        """Begin new stretches: a checkpoint, or a fragment, is done."""
        closed, self._open = self._open, {}
        self._closed += list(closed.values())[: max(0, _MOST - len(self._closed))]

    @property
    def spans(self) -> tuple[WorkSpan, ...]:
        """What was done, also in stretches that still go on."""
        return (*self._closed, *self._open.values())[:_MOST]
