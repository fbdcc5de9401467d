"""Ends streams to function servers that take a batch and do not answer it. Runs on Spark workers.

A connection that lives tells nothing of a server that waits for something that never comes: only time does.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

_LONGEST_TICK, _TICKS = 1.0, 10


class AwaitedAnswer:
    """A batch that a server has at work."""

    def __init__(self, cancel: Callable[[], None], until: float) -> None:
        self.cancel = cancel
        self.until = until
        #: Whether it was ended, as its time was over.
        self.overdue = False


class AnswerWatch:
    """Looks after the batches of one function that servers have at work, from one thread.

    Args:
        seconds: How long a server may have a batch at work; 0: there is no bound.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._awaited: set[AwaitedAnswer] = set()
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    @contextlib.contextmanager
    def awaiting(self, cancel: Callable[[], None]) -> Iterator[AwaitedAnswer]:
        """Have `cancel` called, which ends the call of this block, once its time is over."""
        answer = AwaitedAnswer(cancel, time.monotonic() + self.seconds)
        if not self.seconds:
            yield answer
            return
        with self._lock:
            self._awaited.add(answer)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="answers", daemon=True)
                self._thread.start()
        try:
            yield answer
        finally:
            with self._lock:
                self._awaited.discard(answer)

    def close(self) -> None:
        """Look after nothing any more."""
        self._over.set()

    def _run(self) -> None:
        while not self._over.wait(min(self.seconds / _TICKS, _LONGEST_TICK)):
            now = time.monotonic()
            with self._lock:  # what is over meanwhile is not cancelled: its stream may be at another batch
                for answer in self._awaited:
                    if now >= answer.until and not answer.overdue:
                        answer.overdue = True
                        answer.cancel()
