"""The wait of a job for executors in which its workers have room: those that Spark is to start for it, with what its
function asks for, or those that an application has anyway.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from leman_core.model.errors import LemanError
from leman_core.settings import Spark
from leman_executor.scheduling.resources import SlotProfile
from leman_executor.spark import spark_conf, worker_problems
from leman_executor.spark.standalone_capacity import Capacity

_ASK_SECONDS = 2.0


class ExecutorWait:
    """The wait of one Spark job, from now until one of its tasks has begun; Spark itself would wait for ever.

    A standalone cluster whose workers are all too small is given the time in which a larger one may register, one whose
    workers are busy the time that any job waits for a full cluster; of other clusters it is not known which it is.

    Args:
        profile: What each executor is to have, beside its heap.
        memory_bytes: Its heap, which is all that a standalone master counts.
        begun: Tells whether a task has begun; it is not called again once one has.
        look: Asks the master; None where there is none to ask. It blocks for seconds at the most.
    """

    def __init__(
        self,
        settings: Spark,
        profile: SlotProfile,
        memory_bytes: int,
        *,
        begun: Callable[[], bool],
        look: Callable[[], Capacity | None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings, self._master = settings, spark_conf.master(settings)
        self._cores, self._memory_bytes = profile.executor_cores, memory_bytes
        self._begun, self._look, self._clock = begun, look, clock
        self._since = self._asked = clock()
        self._over = False
        #: Why no executor is there yet; empty: nothing is known to be amiss.
        self.why = ""

    def check(self) -> LemanError | None:
        """Return why to wait no longer (RESOURCES_NOT_AVAILABLE, CLUSTER_BUSY); None: wait on, or it is over."""
        now = self._clock()
        if self._over or now - self._asked < _ASK_SECONDS:
            return None
        self._asked = now
        if self._begun():
            self._over, self.why = True, ""
            return None
        error, limit = self._lack(self._look())
        return error if now - self._since > limit else None

    def _lack(self, capacity: Capacity | None) -> tuple[LemanError, float]:
        """Return what to say when the time is up, and how long that is."""
        cores, memory_bytes = self._cores, self._memory_bytes
        self.why = ""
        if capacity is None:
            seconds = self._settings.resource_seconds
            return worker_problems.no_executor(self._master, cores, memory_bytes, seconds), seconds
        if capacity.is_too_small_for(cores, memory_bytes):
            too_small = worker_problems.too_small(self._master, cores, memory_bytes, capacity)
            self.why = too_small.message
            return too_small, self._settings.start_seconds
        busy = worker_problems.busy(self._master, capacity)
        if not capacity.has_room_for(cores, memory_bytes):
            self.why = busy.message
        return busy, self._settings.busy_seconds


class RoomWait:
    """The wait of one Spark job for an executor that has the cores of a worker, where Spark starts none for it.

    How large such executors are is known once they have registered. While all are too small nothing of the job runs:
    it is given the time in which a larger one may register.

    Args:
        cpus: The cores that a worker takes.
        registered: Tells the cores of each executor that has registered; none where that is not known.
    """

    def __init__(
        self,
        settings: Spark,
        cpus: int,
        *,
        registered: Callable[[], tuple[int, ...]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._master, self._seconds = spark_conf.master(settings), settings.start_seconds
        self._cpus, self._registered, self._clock = cpus, registered, clock
        self._since = self._asked = clock()
        #: Why no worker has begun; empty: nothing is known to be amiss.
        self.why = ""

    def check(self) -> LemanError | None:
        """Return why to wait no longer (RESOURCES_NOT_AVAILABLE); None: wait on."""
        now = self._clock()
        if now - self._asked < _ASK_SECONDS:
            return None
        self._asked = now
        largest = max(self._registered(), default=0)
        if not largest or largest >= self._cpus:
            self._since, self.why = now, ""
            return None
        error = worker_problems.no_room(self._master, self._cpus, largest)
        self.why = error.message
        return error if now - self._since > self._seconds else None
