"""The Spark task of a worker: what it runs, and what it is to be given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pyspark import RDD, SparkContext
from pyspark.resource import (
    ExecutorResourceRequests,
    ResourceProfile,
    ResourceProfileBuilder,
    TaskResourceRequests,
)

from leman_executor.scheduling.resources import SlotProfile

#: Property of a Spark job. Its name makes Spark redact the value in its logs.
WORKER_TASK = "leman.task.secret"


def worker_plan(context: SparkContext, count: int, profile: SlotProfile | None) -> Any:
    """Return an RDD of the JVM that runs a worker in each of `count` partitions, as often as its rows are counted.

    It needs nothing of Spark's SQL, whose classes would be half of all that the JVM loads.
    """
    jvm: Any = context._jvm
    nothing = jvm.java.util.ArrayList()  # an empty list of this process would become a file in a temporary folder
    partitions: RDD[Any] = RDD(context._jsc.parallelize(nothing, count), context)
    workers = partitions.mapPartitionsWithIndex(task_function())
    if profile is not None:
        workers = workers.withResources(resource_profile(profile))
    return workers._jrdd.rdd()


def task_function() -> Callable[[int, Iterable[Any]], Iterator[int]]:
    """Return what Spark runs for a worker, the same for every job: a property of the Spark job says where to connect.

    It is a closure, as that travels by value: a worker need not import this module.
    """
    name = WORKER_TASK

    def worker(_partition: int, nothing: Iterable[Any]) -> Iterator[int]:
        from pyspark import TaskContext  # noqa: PLC0415

        from leman_executor.spark import function_processes  # noqa: PLC0415 on the worker: the driver starts sooner without

        task = TaskContext.get()
        worker_task = task.getLocalProperty(name) if task is not None else None
        units = function_processes.run(worker_task or "null")
        list(nothing)  # to its end, or Spark takes the process for none that it can use again
        return iter([units])

    return worker


def resource_profile(asked: SlotProfile) -> ResourceProfile:
    """Return the profile that Spark is asked for.

    It is one of tasks alone where no executors are to be started: Spark then uses those that run.
    """
    tasks = TaskResourceRequests().cpus(asked.cpus)
    if asked.gpus:
        tasks = tasks.resource("gpu", asked.gpus)
    builder = ResourceProfileBuilder().require(tasks)
    if asked.executor_cores:
        executors = ExecutorResourceRequests().cores(asked.executor_cores)
        if asked.executor_memory_bytes:
            executors = executors.memoryOverhead(f"{-(-asked.executor_memory_bytes >> 20)}m")
        if asked.executor_gpus:
            executors = executors.resource("gpu", asked.executor_gpus, asked.gpu_script, asked.gpu_vendor)
        builder = builder.require(executors)
    return builder.build
