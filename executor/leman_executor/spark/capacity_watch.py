"""The watch over a Spark cluster's capacity: while it is full jobs wait, instead of failing for missing workers.

So they do, for a shorter time, where none of its workers is as large as an executor is to be.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import structlog

from leman_core.model.errors import LemanError
from leman_executor.spark import worker_problems
from leman_executor.spark.standalone_capacity import Capacity

_log = structlog.get_logger(__name__)

_ASK_SECONDS = 2.0


class CapacityWatch:
    """The watch over one cluster, for any number of threads.

    Args:
        cores: Counts the cores of the executors that have registered.
        look: Asks the master; it is called while there are no such cores.
        executor: Returns the cores and the bytes of memory that each executor is to have.
    """

    def __init__(
        self,
        master: str,
        cores: Callable[[], int],
        look: Callable[[], Capacity | None],
        executor: Callable[[], tuple[int, int]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._master = master
        self._cores, self._look, self._executor, self._clock = cores, look, executor, clock
        self._asking = threading.Lock()
        self._asked = -_ASK_SECONDS
        self._full_since = self._full_until = clock()
        #: The master has answered before.
        self.knows = False
        #: Why no executor can be had at present: CLUSTER_BUSY, or RESOURCES_NOT_AVAILABLE.
        self.busy: LemanError | None = None

    def begin(self) -> None:
        """Begin to count: from now on there is an application that workers could call back."""
        self._full_until = self._clock()

    def check(self) -> None:
        """Look, unless another thread is looking or has just looked; blocks for seconds at the most."""
        if not self._asking.acquire(blocking=False):
            return
        try:
            if self._clock() - self._asked >= _ASK_SECONDS:
                self._note(None if self._cores() else self._look())
                self._asked = self._clock()
        finally:
            self._asking.release()

    def _note(self, capacity: Capacity | None) -> None:
        now, self.knows = self._clock(), self.knows or capacity is not None
        if capacity is None or not (capacity.waits or capacity.is_too_small_for(*self._executor())):
            self.busy = None
            return
        self._full_until = now
        busy = self._lack(capacity)
        if self.busy is None or self.busy.reason != busy.reason:
            self._full_since = now
        if str(busy) != str(self.busy):
            _log.warning("jobs wait", reason=busy.reason, message=busy.message)
        self.busy = busy

    def _lack(self, capacity: Capacity) -> LemanError:
        cores, memory_bytes = self._executor()
        if capacity.is_too_small_for(cores, memory_bytes):
            return worker_problems.no_worker_for(self._master, cores, memory_bytes, capacity)
        return worker_problems.busy(self._master, capacity)

    @property
    def is_full(self) -> bool:
        """Whether others have what executors need, and may give it back."""
        busy = self.busy  # another thread may look just now
        return busy is not None and busy.reason == worker_problems.CLUSTER_BUSY

    @property
    def seconds_with_capacity(self) -> float:
        """The seconds for which workers could have called back, as far as is known."""
        return self._clock() - self._full_until

    def seconds_without(self, since: float) -> float:
        """Return the seconds for which `busy` has had its reason without a break, since `since` at the earliest."""
        return self._clock() - max(since, self._full_since) if self.busy is not None else 0.0
