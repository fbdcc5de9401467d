"""What a job needs of the outside."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from core.config import Settings
from core.domain.job import Job
from core.domain.plan import FragmentTask, Plan
from core.domain.udf import UdfDefinition, UdfKind
from core.domain.work import RowFailure
from executor.peers import CommitClient, PlannerClient
from executor.scheduling.dispatcher import Dispatcher
from executor.scheduling.local_runner import LocalRunner
from executor.scheduling.resources import TaskSlots, slots_for
from executor.spark.spark_runner import SparkRunner


@dataclass(frozen=True, slots=True)
class Services:
    """`workers`: units at once where a job does not say. `save_job` writes a job's state into history and returns the
    one that counts (see `History.save`), `forget_file(uri, task, file)` deletes the records of a column file,
    `save_error(job, row)` stores the row that ended a job, `save_traced(plan)` what a plan found out about compacted
    files.
    `release(holder, scopes)` gives back what killed workers had reserved, `keep(holder, scopes)` renews what others
    left,
    `migrate_checkpoints(plan, stopped)` stores anew what the plan says is stored elsewhere, and says how many
    checkpoints."""

    settings: Settings
    spark: SparkRunner
    local: LocalRunner
    dispatcher: Dispatcher
    planner: PlannerClient
    commits: CommitClient
    workers: int
    save_job: Callable[[Job], Awaitable[Job]]
    forget_file: Callable[[str, FragmentTask, str], Awaitable[None]]
    save_error: Callable[[Job, RowFailure], Awaitable[None]]
    save_traced: Callable[[Plan], Awaitable[None]]
    release: Callable[[str, Sequence[str]], Awaitable[None]]
    keep: Callable[[str, Sequence[str]], Awaitable[None]]
    migrate_checkpoints: Callable[[Plan, Callable[[], bool]], Awaitable[int]]


def slots_of(udf: UdfDefinition, concurrency: int, services: Services) -> TaskSlots:
    """What a job gets that asks for so many workers (0: as many as there are). Raises FailedPrecondition
    (RESOURCES_NOT_AVAILABLE)."""
    slots = services.workers
    if udf.kind is not UdfKind.SQL and not services.settings.executor.slots:
        slots = services.spark.slots(slots)
    return slots_for(udf, concurrency or slots, lambda: services.spark.cluster(services.workers))
