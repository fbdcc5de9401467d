"""The Spark task of a worker: what it runs, and what it is to be given."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.resource import (
    ExecutorResourceRequests,
    ResourceProfile,
    ResourceProfileBuilder,
    TaskResourceRequests,
)
from pyspark.sql import SparkSession

from executor.scheduling.resources import SlotProfile

SCHEMA = "units long"
#: Property of a Spark job. Its name makes Spark redact the value in its logs.
WORKER_TASK = "leman.task.secret"


def worker_plan(session: SparkSession, count: int, profile: SlotProfile | None) -> Any:
    """Return an RDD of the JVM that runs a worker in each of `count` partitions, as often as its rows are counted.

    It is the one under a DataFrame, without what SQL does around each query, a quarter of the time of a job that does
    nothing: here nobody looks at rows.
    """
    asked = None if profile is None else resource_profile(profile)
    frame: Any = session.range(0, count, 1, count).mapInArrow(task_function(), SCHEMA, profile=asked)
    return frame._jdf.queryExecution().toRdd()


def task_function() -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return what Spark runs for a worker, the same for every job: a property of the Spark job says where to connect.

    It is a closure, as that travels by value: a worker need not import this module.
    """
    name = WORKER_TASK

    def worker(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext  # noqa: PLC0415

        from executor.spark import function_processes  # noqa: PLC0415 on the worker: the driver starts sooner without

        task = TaskContext.get()
        worker_task = task.getLocalProperty(name) if task is not None else None
        units = function_processes.run(worker_task or "null")  # before Spark's one row is there: it says nothing
        for batch in batches:
            yield pa.record_batch({"units": pa.array([units] * batch.num_rows, pa.int64())})

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
