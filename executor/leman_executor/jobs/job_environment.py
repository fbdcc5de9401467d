"""What a job uses: its ports, its settings and the runners of its workers.

The ports of a job: what it needs of its surroundings, as small protocols. `leman_executor.app` fills them.

Renews and gives back reservations from an event loop.

The services that a job uses: settings, runners of workers, and the ports of `leman_executor.jobs.job_environment`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

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
from leman_core.model.udf import FunctionVersion, UdfDefinition, UdfKind
from leman_core.model.view import RefreshPlan, RefreshSpec, ViewCommit
from leman_core.model.work import Reservations, RowError, WorkContext
from leman_core.server.blocking import BlockingPool
from leman_core.settings import Settings
from leman_executor.scheduling.dispatcher import Dispatcher
from leman_executor.scheduling.local_runner import LocalRunner
from leman_executor.scheduling.task_slots import Cluster, TaskSlots, slots_for
from leman_executor.spark.spark_runner import SparkRunner


class Planner(Protocol):
    """Plans and the catalog. All calls raise the planner's error (`leman_core.model.service_errors`)."""

    async def create_plan(self, spec: BackfillSpec) -> Plan:
        """Return the whole plan of a backfill."""
        ...

    async def plan_refresh(self, spec: RefreshSpec) -> RefreshPlan:
        """Return the plan of a refresh."""
        ...

    async def find_udf(self, database: str, name: str, version: str) -> FunctionVersion:
        """Return a registered function; of several versions the last, where none is named.

        Raises:
            NotFound: UDF_NOT_FOUND.
        """
        ...

    async def functions_of(self, spec: BackfillSpec) -> list[str]:
        """Return `name@version` of the function of the column to fill, and of earlier ones whose values it keeps."""
        ...

    async def alter_column(self, spec: BackfillSpec, function: FunctionVersion, *, keep_values: bool) -> bytes:
        """Give the column to fill another function.

        Returns:
            What becomes of the column, as the ColumnOutcome that the caller is sent; empty where that cannot be told.
        """
        ...


class Commits(Protocol):
    """Make files visible in tables. All calls raise the coordinator's error (`leman_core.model.service_errors`).

    After Unavailable the outcome is unknown, and the same request may be sent again.
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
        """Install files of several columns of one table, in one version where that can be.

        Raises:
            LemanError: what would be said of one of the columns.
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
        """Refuse all earlier attempts at a job in one table from now on, and give it an incarnation if it has none.

        Args:
            incarnation: Of the table that is meant; empty: whichever is there.
            identity: Of `read_version`, as a plan says; empty: that is not checked.
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
        """Create a view's placeholders again and return the view's version then.

        Args:
            schema: The view's columns; its metadata has the definition.
        """
        ...

    async def fill_placeholders(
        self, plan: RefreshPlan, files: Sequence[tuple[int, StagedFile]], *, attempt: Attempt, request_id: str
    ) -> tuple[int, list[FragmentOutcome]]:
        """Give placeholders their values; return the view's version, or 0, and an outcome for each fragment.

        Args:
            files: The files with the fragments that they are for.
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
        """Install everything that a refresh changed, and return the view's version with it.

        See `ApplyViewDelta` in protos/leman/internal/v1/submission.proto.

        Args:
            swapped: The files with the fragments that they are for.
            evictions: The file with the rows that leave, and its digest; or two empty texts.

        Raises:
            Aborted: VIEW_CHANGED – the view is at another version than the plan's.
        """
        ...

    async def optimize_indices(self, uri: str, columns: Sequence[str]) -> list[IndexCoverage]:
        """Have the indexes on these columns (none: all) cover the whole table, and return how they are then."""
        ...


class JobStore(Protocol):
    """The history of jobs, and the rows on which they failed."""

    async def save(self, job: Job) -> Job:
        """Write a state of a job down, and return the one that counts (see `JobHistory.save`).

        Where that is another executor's attempt, what runs here for the job is ended.
        """
        ...

    async def save_error(self, job: Job, row: RowError) -> None:
        """Store the row that ended a backfill."""
        ...

    def failed_in(self, job: Job) -> tuple[str, ...]:
        """Name a few earlier jobs in which rows of the same column and function version failed, newest first."""
        ...

    def lost_commit(self, job: Job, version: int) -> Job | None:
        """Return a recent job that left the job's table, or view, at a later version than the latest one is now.

        None: the history knows of no such job.

        Args:
            version: The latest version of the table.
        """
        ...


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a comparison found."""

    #: What is known of the files that were compared.
    files: list[TracedFile]
    #: Rows that keep their values, and rows that get them from a checkpoint.
    kept: int = 0
    restored: int = 0


class CheckpointMaintenance(Protocol):
    """The maintenance by which plans find stored work."""

    async def migrate(self, plan: Plan, stop: threading.Event) -> int:
        """Store again what the plan says is stored elsewhere, until `stop` is set; return the number of checkpoints."""
        ...

    async def save_traced(self, plan: Plan) -> None:
        """Record what the plan found out about files that compaction wrote."""
        ...

    async def compare(self, plan: Plan, stop: threading.Event) -> Comparison:
        """Compare the plan's compared files, until `stop` is set, and store what was found for the next plan."""
        ...

    async def write_partial(
        self, context: WorkContext, task: FragmentTask, checkpoints: Sequence[CheckpointRef], stop: threading.Event
    ) -> StagedFile | None:
        """Write what is stored of a fragment as a column file; see `leman_executor.worker.fragment_writer`."""
        ...

    async def forget_file(self, uri: str, task: FragmentTask, file: str) -> None:
        """Delete the records of a column file of a fragment, so that no plan finds it."""
        ...

    async def remove_leftovers(self, uri: str) -> None:
        """Remove what is stored for a table that is not there any more; nothing is raised where that fails."""
        ...


class ReservationKeeping(Protocol):
    """Reservations that outlive the workers which made them. Scopes are `fragment id:fingerprint`."""

    async def keep(self, holder: str, scopes: Sequence[str]) -> None:
        """Renew a holder's reservations of the scopes."""
        ...

    async def release(self, holder: str, scopes: Sequence[str]) -> None:
        """Give a holder's reservations of the scopes back."""
        ...


class PooledReservations:
    """Reservations whose calls run in a pool of threads; a `ReservationKeeping`."""

    def __init__(self, reservations: Reservations, pool: BlockingPool) -> None:
        self._reservations = reservations
        self._pool = pool

    async def keep(self, holder: str, scopes: Sequence[str]) -> None:
        """Renew what the holder has in the scopes."""
        await self._pool.run(self._reservations.renew, scopes, holder)

    async def release(self, holder: str, scopes: Sequence[str]) -> None:
        """Give back what the holder has in the scopes."""
        await self._pool.run(self._reservations.release_all, scopes, holder)


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

    def cancel_workers(self, job_key: str) -> None:
        """End the workers of a job, and start no more. From any thread; blocks for a moment."""
        self.local.cancel(job_key)
        self.spark.cancel(job_key)

    def stop_units(self, job_key: str) -> None:
        """Have the workers of a job give back what they have at hand, checkpointed as far as it is."""
        self.dispatcher.stop_units(job_key)
        self.local.stop_units(job_key)

    async def stop_workers(self, job_key: str) -> None:
        """End the workers that a job has now, and return when none runs any more."""
        await self.spark.stop_job(job_key)
        await self.local.stop_job(job_key)

    def forget_workers(self, job_key: str) -> None:
        """Forget that a job was cancelled, as it is over or starts again here."""
        self.spark.forget(job_key)
        self.local.forget(job_key)


def task_slots_for(udf: UdfDefinition, concurrency: int, services: JobEnvironment) -> TaskSlots:
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
