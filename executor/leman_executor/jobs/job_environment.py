"""Define the interfaces through which a job uses other parts of the system, and bundle them as one environment.

`leman_executor.app` supplies the implementations.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from leman._format.column_bindings import FunctionVersion
from leman._format.stored_functions import UdfDefinition, UdfKind
from leman_core.functions.function_definitions import FunctionPolicy
from leman_core.model.job import Attempt, BegunAttempt, ColumnCommit, FragmentOutcome, Job
from leman_core.model.plan import (
    BackfillSpec,
    CheckpointRef,
    FragmentReplacement,
    FragmentTask,
    OutputField,
    Plan,
    PlanHeader,
    StagedFile,
    TracedFile,
)
from leman_core.model.table import IndexCoverage
from leman_core.model.view import RefreshPlan, RefreshSpec, ViewCommit
from leman_core.model.work import Reservations, RowError, WorkContext
from leman_core.server.blocking import BlockingPool
from leman_core.settings import Settings
from leman_executor.scheduling.dispatcher import Dispatcher
from leman_executor.scheduling.local_runner import LocalRunner
from leman_executor.scheduling.task_slots import Cluster, TaskSlots, slots_for
from leman_executor.spark.spark_runner import SparkRunner


class Planner(Protocol):
    """The planner and the catalog. All calls raise the error of the planner (`leman_core.model.service_errors`)."""

    async def create_plan(self, spec: BackfillSpec) -> Plan:
        """Return the whole plan of a backfill."""
        ...

    async def plan_refresh(self, spec: RefreshSpec) -> RefreshPlan:
        """Return the plan of a refresh."""
        ...

    async def find_udf(self, database: str, name: str, version: str) -> FunctionVersion:
        """Return a registered function. Without a version, return the latest version.

        Raises:
            NotFound: UDF_NOT_FOUND.
        """
        ...

    async def functions_of(self, spec: BackfillSpec) -> list[str]:
        """Return `name@version` of the column's function, and of earlier functions whose values the column keeps."""
        ...

    async def alter_column(self, spec: BackfillSpec, function: FunctionVersion, *, keep_values: bool) -> bytes:
        """Set another function for the column.

        Returns:
            The ColumnOutcome for the caller, serialized; empty if unknown.
        """
        ...


class Commits(Protocol):
    """Install files in tables. All calls raise the error of the coordinator (`leman_core.model.service_errors`).

    After Unavailable, it is unknown whether the files were installed, and the request may be retried.
    """

    async def replace_column(
        self,
        header: PlanHeader,
        output: OutputField,
        replacements: Sequence[FragmentReplacement],
        *,
        attempt: Attempt,
        request_id: str,
    ) -> ColumnCommit:
        """Install a column's files."""
        ...

    async def replace_columns(
        self,
        columns: Sequence[tuple[PlanHeader, OutputField, Sequence[FragmentReplacement]]],
        *,
        attempt: Attempt,
        request_id: str,
    ) -> list[ColumnCommit]:
        """Install files of several columns of one table, in a single version if possible.

        Raises:
            LemanError: The error of one of the columns.
        """
        ...

    async def begin_attempt(
        self,
        uri: str,
        *,
        incarnation: str,
        attempt: Attempt,
        request_id: str,
        read_version: int = 0,
        identity: str = "",
    ) -> BegunAttempt:
        """Fence all earlier attempts at a job in one table. Give the table an incarnation if it has none.

        Args:
            incarnation: The expected incarnation of the table. If empty, it is not checked.
            identity: The identity of `read_version`, from the plan. If empty, it is not checked.
        """
        ...

    async def create_placeholders(
        self,
        plan: RefreshPlan,
        schema: pa.Schema,
        max_rows_per_fragment: int,
        *,
        attempt: Attempt,
        request_id: str,
    ) -> int:
        """Recreate a view's placeholders and return the new version of the view.

        Args:
            schema: The view's columns. Its metadata contains the view's definition.
        """
        ...

    async def fill_placeholders(
        self, plan: RefreshPlan, files: Sequence[tuple[int, StagedFile]], *, attempt: Attempt, request_id: str
    ) -> tuple[int, list[FragmentOutcome]]:
        """Fill placeholders with values. Return the view's new version (0 if there is none), and the outcome of each
        fragment.

        Args:
            files: The files, each with the fragment that it is for.
        """
        ...

    async def apply_view_delta(
        self,
        plan: RefreshPlan,
        *,
        appended: Sequence[StagedFile],
        swapped: Sequence[tuple[int, StagedFile]],
        evictions: tuple[str, str],
        replace_all: bool,
        metadata: Mapping[str, str],
        attempt: Attempt,
        request_id: str,
    ) -> ViewCommit:
        """Install all changes of a refresh, and return the view's new version.

        See `ApplyViewDelta` in protos/leman/internal/v1/submission.proto.

        Args:
            swapped: Files for existing fragments, each with the fragment that it is for.
            evictions: The uri of the file that lists the rows to remove, and its digest; or two empty texts.

        Raises:
            Aborted: VIEW_CHANGED – the view's version is not the plan's.
        """
        ...

    async def optimize_indices(self, uri: str, columns: Sequence[str]) -> list[IndexCoverage]:
        """Update the indexes on these columns (on all columns, if none are given). Return their coverage."""
        ...


class JobStore(Protocol):
    """The history of jobs and their failed rows."""

    async def save(self, job: Job) -> Job:
        """Write a state of a job, and return the current state (see `JobHistory.save`).

        If the current state belongs to another executor's attempt, the local run of the job ends.
        """
        ...

    async def save_error(self, job: Job, row: RowError) -> None:
        """Store the row that ended a backfill."""
        ...

    def failed_in(self, job: Job) -> tuple[str, ...]:
        """Return a few earlier jobs, newest first, in which rows of the same column and function version failed."""
        ...

    def lost_commit(self, job: Job, version: int) -> Job | None:
        """Return a recent job that committed a later version of the job's table or view than `version`, or None.

        Args:
            version: The latest version that the table has now.
        """
        ...


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of comparing the inputs of rows."""

    #: The compared files. Files that could not be compared are left out.
    files: list[TracedFile]
    #: Number of rows that keep their values, and of rows that get them from a checkpoint.
    kept: int = 0
    restored: int = 0


class CheckpointMaintenance(Protocol):
    """Maintain checkpoints, so that plans find stored work."""

    async def migrate(self, plan: Plan, stop: threading.Event) -> int:
        """Store checkpoints of moved rows again, until `stop` is set. Return their number."""
        ...

    async def save_traced(self, plan: Plan) -> None:
        """Record the files that the plan has traced through compactions."""
        ...

    async def compare(self, plan: Plan, stop: threading.Event) -> Comparison:
        """Compare the files that the plan lists for it, until `stop` is set. Store the results for the next plan."""
        ...

    async def write_partial(
        self, context: WorkContext, task: FragmentTask, checkpoints: Sequence[CheckpointRef], stop: threading.Event
    ) -> StagedFile | None:
        """Write the stored rows of a fragment as a column file; see `leman_executor.worker.fragment_writer`."""
        ...

    async def forget_file(self, uri: str, task: FragmentTask, file: str) -> None:
        """Delete the records of a fragment's column file, so that no plan finds it."""
        ...

    async def remove_leftovers(self, uri: str) -> None:
        """Remove the stored data of a deleted table. Do not raise if this fails."""
        ...


class ReservationKeeping(Protocol):
    """Keep reservations after the workers that made them have ended. A scope is `fragment id:fingerprint`."""

    async def keep(self, holder: str, scopes: Sequence[str]) -> None:
        """Renew a holder's reservations in the scopes."""
        ...

    async def release(self, holder: str, scopes: Sequence[str]) -> None:
        """Release a holder's reservations in the scopes."""
        ...


class PooledReservations:
    """A `ReservationKeeping` that calls Redis in a thread pool."""

    def __init__(self, reservations: Reservations, pool: BlockingPool) -> None:
        self._reservations = reservations
        self._pool = pool

    async def keep(self, holder: str, scopes: Sequence[str]) -> None:
        await self._pool.run(self._reservations.renew, scopes, holder)

    async def release(self, holder: str, scopes: Sequence[str]) -> None:
        await self._pool.run(self._reservations.release_all, scopes, holder)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnvironment:
    """The services of one executor, shared by its jobs."""

    settings: Settings
    spark: SparkRunner
    local: LocalRunner
    dispatcher: Dispatcher
    planner: Planner
    commits: Commits
    slots: int
    """Task slots of this machine, for jobs without a set number of workers that do not run on a cluster."""
    jobs: JobStore
    checkpoints: CheckpointMaintenance
    reservations: ReservationKeeping

    def cluster(self) -> Cluster:
        """Return the resources that workers can have."""
        return self.spark.cluster(self.slots)

    def check_can_run(self, functions: Iterable[UdfDefinition]) -> None:
        """Check that Spark's workers can run these functions now. SQL needs no Spark: the executor itself runs it.

        Raises:
            LemanError: WORKERS_CANNOT_REACH_DRIVER, WORKER_PYTHON_UNUSABLE, SPARK_NOT_STARTED.
        """
        trouble = self.spark.trouble
        if trouble is not None and any(udf.kind is not UdfKind.SQL for udf in functions):
            raise trouble.with_traceback(None)  # all callers share one error object

    def cancel_workers(self, job_key: str) -> None:
        """Kill the workers of a job, and start no more. Callable from any thread. Blocks for a moment."""
        self.local.cancel(job_key)
        self.spark.cancel(job_key)

    def stop_units(self, job_key: str) -> None:
        """Ask the workers of a job to store their computed rows and return their units."""
        self.dispatcher.stop_units(job_key)
        self.local.stop_units(job_key)

    async def stop_workers(self, job_key: str) -> None:
        """Stop the current workers of a job, and wait until none runs."""
        await self.spark.stop_job(job_key)
        await self.local.stop_job(job_key)

    def forget_workers(self, job_key: str) -> None:
        """Forget that a job was cancelled, because the job has ended or restarts here."""
        self.spark.forget(job_key)
        self.local.forget(job_key)


def task_slots_for(udf: UdfDefinition, concurrency: int, services: JobEnvironment) -> TaskSlots:
    """Return the task slots of a job that asks for `concurrency` workers (0: all task slots).

    Raises:
        PermissionDenied: UDF_NOT_ALLOWED – this executor does not run such functions, even if the planner allows them.
        FailedPrecondition: RESOURCES_NOT_AVAILABLE – no worker has the resources that the function asks for.
    """
    FunctionPolicy.of(services.settings.udf).check(udf)
    slots = services.slots
    if udf.kind is not UdfKind.SQL and not services.settings.executor.slots:
        slots = services.spark.slots(slots)
    return slots_for(udf, concurrency or slots, services.cluster)
