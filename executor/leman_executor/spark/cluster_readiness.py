"""Check whether Spark's cluster can run jobs: its capacity, failed tasks, and how long jobs wait for executors.

A cluster may be full, too small, without a usable Python, or unable to reach this process. While the cluster is full,
jobs wait instead of failing. If no worker is large enough for an executor, jobs wait for a shorter time. This module
reads the records that Spark keeps of a running application, even if Spark's web page is off.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import structlog
from pyspark import SparkContext

from leman_core.model.service_errors import LemanError
from leman_core.settings import Spark
from leman_executor.scheduling.task_slots import SlotProfile
from leman_executor.spark import spark_conf, worker_problems
from leman_executor.spark.worker_problems import Capacity

_DRIVER = "driver"
_MOST_TASKS = 100


def executor_cores(context: SparkContext) -> tuple[int, ...]:
    """Return the number of cores of each registered executor."""
    executors = _items(_store(context).executorList(True))
    return tuple(int(executor.totalCores()) for executor in executors if executor.id() != _DRIVER)


def total_cores(context: SparkContext) -> int:
    """Return the number of cores of all registered executors."""
    return sum(executor_cores(context))


def has_begun(context: SparkContext, tag: str) -> bool:
    """Return whether a task has started in the Spark jobs that have a tag."""
    tracker = context.statusTracker()
    for job in context._jsc.sc().statusTracker().getJobIdsForTag(tag):
        found = tracker.getJobInfo(job)
        for stage in found.stageIds if found is not None else ():
            told = tracker.getStageInfo(stage)
            if told is not None and (told.numActiveTasks or told.numCompletedTasks or told.numFailedTasks):
                return True
    return False


def failed_tasks(context: SparkContext, tag: str) -> Iterator[tuple[str, str]]:
    """Yield the message and host of each failed task in the Spark jobs that have a tag."""
    tracker, store = context.statusTracker(), _store(context)
    for job in context._jsc.sc().statusTracker().getJobIdsForTag(tag):
        found = tracker.getJobInfo(job)
        for stage in found.stageIds if found is not None else ():
            told = tracker.getStageInfo(stage)
            if told is None or not told.numFailedTasks:
                continue
            for task in _items(store.taskList(stage, told.currentAttemptId, _MOST_TASKS)):
                if task.errorMessage().isDefined():
                    yield str(task.errorMessage().get()), str(task.host())


def _store(context: SparkContext) -> Any:
    return context._jsc.sc().statusStore()


def _items(sequence: Any) -> Iterator[Any]:
    """Yield the items of a Scala sequence."""
    return (sequence.apply(index) for index in range(sequence.size()))


_log = structlog.get_logger(__name__)

_ASK_SECONDS = 2.0


class CapacityWatch:
    """Watch the capacity of one cluster. Any thread may use it.

    Args:
        cores: Returns the number of cores of the registered executors.
        look: Asks the master about the cluster's capacity. Called only while no executor is registered.
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
        #: Whether the master has responded before.
        self.knows = False
        #: Why no executor is available now: CLUSTER_BUSY or RESOURCES_NOT_AVAILABLE.
        self.busy: LemanError | None = None

    def begin(self) -> None:
        """Start to count: from now on, workers can call the application back."""
        self._full_until = self._clock()

    def check(self) -> None:
        """Check the cluster, unless another thread does so or has just done so. Blocks for a few seconds at most."""
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
        """Whether other applications use the resources that executors need. The resources may become free."""
        busy = self.busy  # another thread may update it
        return busy is not None and busy.reason == worker_problems.CLUSTER_BUSY

    @property
    def seconds_with_capacity(self) -> float:
        """The seconds for which the cluster has had room for workers to call back, as far as known."""
        return self._clock() - self._full_until

    def seconds_without(self, since: float) -> float:
        """Return the seconds since `since` for which the cluster has been busy without interruption."""
        return self._clock() - max(since, self._full_since) if self.busy is not None else 0.0


class ExecutorWait:
    """Limit how long one Spark job waits until one of its tasks has started. Spark itself would wait forever.

    If all workers of a standalone cluster are too small, the job waits for a larger worker to register. If the workers
    are busy, the job waits as long as any job waits for a full cluster. For other kinds of clusters, it is unknown
    whether the workers are too small or busy.

    Args:
        profile: The resources of each Spark executor, except its heap.
        memory_bytes: The heap of each Spark executor. A standalone master counts no other memory.
        begun: Returns whether a task has started. Not called again once it has returned True.
        look: Asks the master about the cluster's capacity. Returns None if there is no master. Blocks for a few seconds
            at most.
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
        #: Why no executor is available yet; empty if the cause is unknown.
        self.why = ""

    def check(self) -> LemanError | None:
        """Return the error that ends the wait (RESOURCES_NOT_AVAILABLE, CLUSTER_BUSY). Return None to continue waiting,
        or if the wait is over.
        """
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
        """Return the time limit, and the error to raise when it is exceeded."""
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
    """Limit how long one Spark job waits for an executor with enough cores for a worker, if Spark does not start an
    executor for the job.

    The size of such executors is known once they register. While all of them are too small, no worker of the job runs,
    and the job waits for a larger executor to register.

    Args:
        cpus: The number of cores that a worker takes.
        registered: Returns the number of cores of each registered executor; nothing if unknown.
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
        #: Why no worker has started; empty if the cause is unknown.
        self.why = ""

    def check(self) -> LemanError | None:
        """Return the error that ends the wait (RESOURCES_NOT_AVAILABLE). Return None to continue waiting."""
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


class ClusterReadiness:
    """The readiness of one cluster. Any thread may use it.

    `trouble` says why no job can run now. `context` is None until Spark has started. `conf` has Spark's settings: the
    configured ones until Spark has started, then the actual ones.
    """

    def __init__(self, settings: Spark, python: str, driver_host: str) -> None:
        self._settings = settings
        self.conf: Mapping[str, str] = settings.conf
        self._python = python
        self._driver_host = driver_host
        self._master = spark_conf.master(settings)
        self._capacity = CapacityWatch(
            self._master, self.registered_cores, self._look, lambda: spark_conf.executor_size(self.conf)
        )
        self.context: SparkContext | None = None
        self.trouble: LemanError | None = None

    @property
    def busy(self) -> str:
        """Why workers of jobs must wait for room in the cluster; empty if they need not wait."""
        busy = self._capacity.busy
        return "" if busy is None else busy.message

    def begin(self) -> None:
        """Start to count: from now on, workers can call the application back."""
        self._capacity.begin()

    def registered_cores(self) -> int:
        """Return the number of cores of the registered executors; 0 if unknown."""
        with contextlib.suppress(Exception):  # Py4J raises if the cores are not known yet, or no longer
            return 0 if self.context is None else total_cores(self.context)
        return 0

    def registered(self) -> tuple[int, ...]:
        """Return the number of cores of each registered executor; nothing if unknown."""
        with contextlib.suppress(Exception):  # Py4J raises, as above
            return () if self.context is None else executor_cores(self.context)
        return ()

    def note_ready(self) -> None:
        """Record that workers have run a Spark job."""
        if self.trouble is not None:
            _log.info("Spark's workers are ready", slots=max(1, self.registered_cores()))
        self.trouble = None

    def note(self, trouble: LemanError) -> None:
        """Record why no job can run now."""
        if str(trouble) != str(self.trouble):
            _log.error("jobs cannot run", reason=trouble.reason, message=trouble.message)
        self.trouble = trouble

    def check_reached(self) -> None:
        """If the cluster has had room for a worker for too long and none has called back, record that as trouble."""
        self._capacity.check()
        late = self._capacity.seconds_with_capacity > self._settings.start_seconds
        if self.trouble is None and late and not self.registered_cores():  # registered executors may still be unpacking
            self.note(self._unreached())

    def hindrance(self, tag: str, begin: float) -> LemanError | None:
        """Return why to stop waiting for a Spark job that started at `begin`. Return None to continue waiting.

        Blocks for a few seconds at most.
        """
        self._capacity.check()
        limit = self._settings.busy_seconds if self._capacity.is_full else self._settings.start_seconds
        if self._capacity.seconds_without(begin) > limit:
            return self._capacity.busy
        return self.unusable(tag)

    def executor_wait(self, tag: str, profile: SlotProfile | None) -> ExecutorWait | RoomWait | None:
        """Start to wait until a Spark job gets executors of its own, or one with enough room.

        Return None if every executor has enough room.
        """
        if profile is None or not profile.executor_cores:
            cpus = spark_conf.task_cores(self.conf) if profile is None else profile.cpus
            if cpus == 1 or spark_conf.is_dynamic(self.conf):
                return None
            return RoomWait(self._settings, cpus, registered=self.registered)

        def begun() -> bool:
            with contextlib.suppress(Exception):  # of Py4J, as above
                return self.context is not None and has_begun(self.context, tag)
            return False

        heap = spark_conf.heap_bytes(self.conf)
        return ExecutorWait(self._settings, profile, heap, begun=begun, look=self._look)

    def unusable(self, tag: str) -> LemanError | None:
        """If a task of a Spark job failed because its worker cannot run Python, return the error of the first such
        task. Otherwise return None.
        """
        if self.context is None:
            return None
        with contextlib.suppress(Exception):  # of Py4J, as above
            for message, host in failed_tasks(self.context, tag):
                error = worker_problems.unusable_python(message, host, self._python)
                if error is not None:
                    return error
        return None

    def _unreached(self) -> LemanError:
        port = self.context.getConf().get("spark.driver.port", "?") if self.context is not None else "?"
        return worker_problems.unreachable(
            self._master,
            self._driver_host,
            port or "?",
            self._settings.start_seconds,
            has_capacity=self._capacity.knows,
        )

    def _look(self) -> Capacity | None:
        return None if self.context is None else worker_problems.read_capacity(self.context, self._master)
