"""The function processes of Spark's Python workers: functions run in them, with all that Spark has given the worker."""

from __future__ import annotations

import resource
import sys
import time
from decimal import Decimal

import msgspec
from pyspark import SparkFiles, TaskContext
from pyspark.resource import ResourceInformation

from leman_core.storage.thread_startup import start_threads
from leman_executor.spark import standing_tasks
from leman_executor.spark.practice import practise_batches, practise_rows
from leman_executor.worker.processes import caller
from leman_executor.worker.processes.caller import Caller

_WARM_UP = "null"
#: So long after its worker a task ends that waited for a job: the end costs Spark as much as a commit, and nobody waits
#: for it, while the commit is under way.
_QUIET_SECONDS = 0.1
_callers: list[Caller] = []


class _Given(msgspec.Struct, frozen=True):
    """What Spark sets up in a worker before a task; `resources`: addresses by name."""

    path: list[str]
    memory: tuple[int, int]
    files: str = ""
    scratch: int = 0
    partition: int = 0
    attempt: int = 0
    task: int = 0
    cpus: int = 0
    resources: dict[str, list[str]] = {}


_decoder = msgspec.json.Decoder(_Given)


def start() -> None:
    """Start the pool for all workers that are forked from this process."""
    _callers.append(caller.start(_take_over, (start_threads, practise_rows, practise_batches)))


def run(worker_task: str) -> int:
    """Run a worker's task and return how many units it computed; the executor warms up with a task of none."""
    task = TaskContext.get()
    told = standing_tasks.asked(worker_task, task.partitionId() if task is not None else 0)
    if told in (_WARM_UP, ""):
        return 0
    if not _callers:
        start()  # Spark was told not to use its daemon
    units = _callers[0].run(told, msgspec.json.encode(_given()))
    if standing_tasks.asks(worker_task):
        time.sleep(_QUIET_SECONDS)
    return units


def _given() -> _Given:
    files = getattr(SparkFiles, "_root_directory", None) or ""
    memory = resource.getrlimit(resource.RLIMIT_AS)
    task = TaskContext.get()
    if task is None:
        return _Given(sys.path, memory, files)
    return _Given(
        sys.path,
        memory,
        files,
        task.stageId(),
        task.partitionId(),
        task.attemptNumber(),
        task.taskAttemptId(),
        task.cpus(),
        {name: list(found.addresses) for name, found in (task.resources() or {}).items()},
    )


def _take_over(state: bytes) -> None:
    given = _decoder.decode(state)
    sys.path[:0] = [entry for entry in given.path if entry not in sys.path]
    if resource.getrlimit(resource.RLIMIT_AS) != given.memory:
        resource.setrlimit(resource.RLIMIT_AS, given.memory)
    SparkFiles._root_directory = given.files
    SparkFiles._is_running_on_worker = True
    TaskContext._setTaskContext(
        TaskContext(
            stageId=given.scratch,
            partitionId=given.partition,
            attemptNumber=given.attempt,
            taskAttemptId=given.task,
            cpus=given.cpus,
            cpuAmount=Decimal(given.cpus),
            resources={name: ResourceInformation(name, found) for name, found in given.resources.items()},
            localProperties={},
        )
    )
