"""The readiness of Spark's cluster: it may be full, unable to reach this process, or without Python."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

import structlog
from pyspark import SparkContext

from leman_core.model.errors import LemanError
from leman_core.settings import Spark
from leman_executor.scheduling.resources import SlotProfile
from leman_executor.spark import spark_conf, standalone_capacity, worker_problems
from leman_executor.spark.capacity_watch import CapacityWatch
from leman_executor.spark.executor_wait import ExecutorWait, RoomWait
from leman_executor.spark.spark_status import cores, executor_cores, failed_tasks, has_begun
from leman_executor.spark.standalone_capacity import Capacity

_log = structlog.get_logger(__name__)


class ClusterReadiness:
    """The readiness of one cluster, for any number of threads.

    `trouble`: why no job can run at present; `context`: None until there is one; `conf`: the settings of Spark, those
    that were given until there is a context.
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
        """The reason why workers of jobs have to wait, where the cluster has no room for them; else empty."""
        busy = self._capacity.busy
        return "" if busy is None else busy.message

    def begin(self) -> None:
        """Begin to count: from now on there is an application that workers could call back."""
        self._capacity.begin()

    def registered_cores(self) -> int:
        """Return the number of cores of the executors that have registered; 0 where that is not known."""
        with contextlib.suppress(Exception):  # of Py4J: nothing is known yet, or not any more
            return 0 if self.context is None else cores(self.context)
        return 0

    def registered(self) -> tuple[int, ...]:
        """Return the number of cores of each executor that has registered; none where that is not known."""
        with contextlib.suppress(Exception):  # of Py4J, as above
            return () if self.context is None else executor_cores(self.context)
        return ()

    def note_ready(self) -> None:
        """Note that workers have run something."""
        if self.trouble is not None:
            _log.info("Spark's workers are there", slots=max(1, self.registered_cores()))
        self.trouble = None

    def note(self, trouble: LemanError) -> None:
        """Note that no job can run at present."""
        if str(trouble) != str(self.trouble):
            _log.error("jobs cannot run", reason=trouble.reason, message=trouble.message)
        self.trouble = trouble

    def check_reached(self) -> None:
        """Note where no worker has called back in time; the time counts from when the cluster has room for one."""
        self._capacity.check()
        late = self._capacity.seconds_with_capacity > self._settings.start_seconds
        if self.trouble is None and late and not self.registered_cores():  # who has registered may have to unpack
            self.note(self._unreached())

    def hindrance(self, tag: str, begin: float) -> LemanError | None:
        """Return why to stop waiting for a Spark job that began at `begin`; None: wait on.

        It blocks for seconds at the most.
        """
        self._capacity.check()
        limit = self._settings.busy_seconds if self._capacity.is_full else self._settings.start_seconds
        if self._capacity.seconds_without(begin) > limit:
            return self._capacity.busy
        return self.unusable(tag)

    def executor_wait(self, tag: str, profile: SlotProfile | None) -> ExecutorWait | RoomWait | None:
        """Return the wait of a Spark job, which begins now, for executors of its own, or for one that has the room.

        None: its workers have room in any.
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
        """Return why the workers of a Spark job cannot run Python, from its first task that failed so; else None."""
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
        return None if self.context is None else standalone_capacity.look(self.context, self._master)
