"""The services that a job uses: settings, runners of workers, and the ports of `leman_executor.jobs.ports`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from leman_core.functions.function_policy import FunctionPolicy
from leman_core.model.udf import UdfDefinition, UdfKind
from leman_core.settings import Settings
from leman_executor.jobs.ports import CheckpointMaintenance, Commits, JobStore, Planner, ReservationKeeping
from leman_executor.scheduling.dispatcher import Dispatcher
from leman_executor.scheduling.local_runner import LocalRunner
from leman_executor.scheduling.resources import Cluster, TaskSlots, slots_for
from leman_executor.spark.spark_runner import SparkRunner


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnvironment:
    """The services of one executor; all its jobs share them."""

    settings: Settings
    spark: SparkRunner
    local: LocalRunner
    dispatcher: Dispatcher
    planner: Planner
    commits: Commits
    slots: int
    """Task slots of this machine: those of a job that asks for no number, unless a cluster has others."""
    jobs: JobStore
    checkpoints: CheckpointMaintenance
    reservations: ReservationKeeping

    def cluster(self) -> Cluster:
        """Return what a worker can be given."""
        return self.spark.cluster(self.slots)

    def check_can_run(self, functions: Iterable[UdfDefinition]) -> None:
        """Check that Spark's workers can run these functions at present. SQL runs in the executor itself.

        Raises:
            LemanError: WORKERS_CANNOT_REACH_DRIVER, WORKER_PYTHON_UNUSABLE, SPARK_NOT_STARTED.
        """
        trouble = self.spark.trouble
        if trouble is not None and any(udf.kind is not UdfKind.SQL for udf in functions):
            raise trouble.with_traceback(None)  # all callers get the same error

    def cancel_workers(self, job_id: str) -> None:
        """End the workers of a job, and start no more. From any thread; blocks for a moment."""
        self.local.cancel(job_id)
        self.spark.cancel(job_id)

    def stop_units(self, job_id: str) -> None:
        """Have the workers of a job give back what they have at hand, checkpointed as far as it is."""
        self.dispatcher.stop_units(job_id)
        self.local.stop_units(job_id)

    async def stop_workers(self, job_id: str) -> None:
        """End the workers that a job has now, and return when none runs any more."""
        await self.spark.stop_job(job_id)
        await self.local.stop_job(job_id)

    def forget_workers(self, job_id: str) -> None:
        """Forget that a job was cancelled, as it is over or begins anew here."""
        self.spark.forget(job_id)
        self.local.forget(job_id)


def slots_of(udf: UdfDefinition, concurrency: int, services: JobEnvironment) -> TaskSlots:
    """Return what a job gets that asks for `concurrency` workers (0: as many as there are task slots).

    Raises:
        PermissionDenied: UDF_NOT_ALLOWED – this executor does not run such functions, whatever the planner planned.
        FailedPrecondition: RESOURCES_NOT_AVAILABLE – the function asks for what no worker has.
    """
    FunctionPolicy.of(services.settings.udf).check(udf)
    slots = services.slots
    if udf.kind is not UdfKind.SQL and not services.settings.executor.slots:
        slots = services.spark.slots(slots)
    return slots_for(udf, concurrency or slots, services.cluster)
