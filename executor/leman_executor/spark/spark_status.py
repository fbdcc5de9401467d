"""Spark's own records of a running application; they are kept without its web page too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark import SparkContext

_DRIVER = "driver"
_MOST_TASKS = 100


def executor_cores(context: SparkContext) -> tuple[int, ...]:
    """Return the number of cores of each executor that has registered."""
    executors = _items(_store(context).executorList(True))
    return tuple(int(executor.totalCores()) for executor in executors if executor.id() != _DRIVER)


def cores(context: SparkContext) -> int:
    """Return the number of cores of all executors that have registered."""
    return sum(executor_cores(context))


def has_begun(context: SparkContext, tag: str) -> bool:
    """Tell whether a task of the Spark jobs under a tag has begun."""
    tracker = context.statusTracker()
    for job in context._jsc.sc().statusTracker().getJobIdsForTag(tag):
        found = tracker.getJobInfo(job)
        for stage in found.stageIds if found is not None else ():
            told = tracker.getStageInfo(stage)
            if told is not None and (told.numActiveTasks or told.numCompletedTasks or told.numFailedTasks):
                return True
    return False


def failed_tasks(context: SparkContext, tag: str) -> Iterator[tuple[str, str]]:
    """Yield message and host of the tasks that failed in the Spark jobs under a tag."""
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
