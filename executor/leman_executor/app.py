"""Assemble an executor: choose its components and connect them."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import grpc
import structlog

from leman_core.model.service_errors import LemanError
from leman_core.process.addresses import is_unspecified
from leman_core.server.blocking import SLOW_STORE_SECONDS, BlockingPool
from leman_core.server.channels import open_peer
from leman_core.server.database_locations import DatabaseLocations
from leman_core.settings import Settings
from leman_core.storage.lance_tables import LanceTables
from leman_core.telemetry.instruments import FUNCTIONS_AVAILABLE, JOB_ROWS
from leman_executor.api.job_forwarding import OtherExecutors
from leman_executor.api.job_service import JobServicer
from leman_executor.api.peers import CommitClient, PlannerClient
from leman_executor.coordination.env_values import EnvValues
from leman_executor.coordination.leases import JobLeases, check_accepted, check_workers_accepted
from leman_executor.coordination.redis_clients import show_memory
from leman_executor.coordination.reservations import reservations_at
from leman_executor.jobs.checkpoint_maintenance import CompactionWatch, LanceCheckpointMaintenance
from leman_executor.jobs.function_previews import PreviewPool, Previews
from leman_executor.jobs.job_environment import JobEnvironment, PooledReservations
from leman_executor.jobs.lineage import LineageSender
from leman_executor.manager import JobManager
from leman_executor.manager.job_databases import JobDatabases, follow_served, open_served
from leman_executor.manager.job_store import HistoryJobStore, LineageReporter, RunningJobs
from leman_executor.manager.job_supervisor import ManagerDeps
from leman_executor.scheduling.dispatcher import Dispatcher
from leman_executor.scheduling.local_runner import LocalRunner
from leman_executor.spark.driver_launch import passed_variables, worker_variables
from leman_executor.spark.spark_conf import has_cluster, is_local, warn_of_open_spark
from leman_executor.spark.spark_runner import SparkRunner

_log = structlog.get_logger(__name__)

#: The name under which the health service reports whether Spark's workers can run functions.
FUNCTIONS_ABILITY = "leman.functions"
#: Seconds without a job after which the archive of Spark's classes is made.
_ARCHIVE_AFTER_SECONDS = 30.0
_LOOK_SECONDS = 3.0
#: Minimum seconds between two reads of the limits of registered databases.
_LEAST_SECONDS = 1.0


def create(settings: Settings, draining: asyncio.Event, spark: SparkRunner | None = None) -> Executor:
    """Start Spark, or wait until it has started, and create the service. Blocks for seconds.

    If the settings say that Spark starts with the first job, this does not start it.

    Raises:
        InvalidArgument: BAD_SETTING – Redis rejects the executor's credentials.
    """
    check_accepted(settings.redis.url.get_secret_value())
    check_workers_accepted(settings.redis.workers_url.get_secret_value())
    spark = spark or SparkRunner(settings.spark)
    if not spark.on_demand:
        spark.start()
    return Executor(settings, draining, spark)


class Executor:
    """The executor's process, see `leman_core.server.server.Service`."""

    def __init__(self, settings: Settings, draining: asyncio.Event, spark: SparkRunner) -> None:
        self._settings = settings
        self._draining = draining
        self._spark = spark
        self._pool = BlockingPool(8, name="executor", slow_seconds=SLOW_STORE_SECONDS)
        python = settings.spark.python if is_local(settings.spark) else ""
        FUNCTIONS_AVAILABLE.show(lambda: [(float(spark.trouble is None), {})])
        show_memory(settings.redis.url.get_secret_value())
        self._functions = PreviewPool(python, worker_variables(settings.spark), passed_variables(settings.spark))
        self._manager: JobManager | None = None
        self._dispatcher: Dispatcher | None = None
        self._lineage: LineageSender | None = None
        self._leases = _leases(settings)
        self._others = OtherExecutors(settings, self._leases)
        self._channels: list[grpc.aio.Channel] = []
        self._background: list[asyncio.Task[None]] = []

    async def start(self, server: grpc.aio.Server, locations: DatabaseLocations) -> list[str]:
        """Take over the jobs of a local database, then register JobService."""
        services, manager = await self._assemble()
        self._manager = manager
        embedded = self._settings.embedded
        if embedded.database:
            await open_served(manager, embedded.database)
        if embedded.databases_file:
            following = follow_served(Path(embedded.databases_file), manager, self._spark.start_meanwhile)
            self._background.append(asyncio.create_task(following))
        looks = self._settings.executor.takeover_look_seconds
        if looks and not (embedded.database or embedded.databases_file):
            self._background.append(asyncio.create_task(manager.follow_abandoned(locations, looks)))
        if locations.registry is not None:
            seconds = max(self._settings.server.registry_seconds, _LEAST_SECONDS)
            following = manager.follow_limits(locations.registrations, seconds)
            self._background.append(asyncio.create_task(following))
        seconds = self._settings.executor.compaction_watch_seconds
        if seconds:
            tables = LanceTables(roots=locations.roots)
            watch = CompactionWatch(services.planner, services.checkpoints, manager, tables)
            self._background.append(asyncio.create_task(watch.run(seconds)))
        if JOB_ROWS.is_bound:
            self._background.append(asyncio.create_task(manager.measure()))
        self._background.append(asyncio.create_task(self._archive_when_idle(manager)))
        self._background.append(asyncio.create_task(self._release_when_idle(manager)))
        previews = Previews(PlannerClient(self._channels[0]), services, self._functions)
        return JobServicer(manager, self._draining, previews, self._others).add_to(server)

    async def _assemble(self) -> tuple[JobEnvironment, JobManager]:
        """Choose implementations of the protocols of `jobs.job_environment`, and create the job manager."""
        settings = self._settings
        planner, coordinator = open_peer(settings, "planner"), open_peer(settings, "commit_coordinator")
        self._channels = [planner, coordinator]
        address = self._spark.address
        encrypted = has_cluster(settings.spark)
        if encrypted:
            warn_of_open_spark(settings.spark)
        self._dispatcher = Dispatcher(address.host, address.bind, address.dispatcher_port, encrypted=encrypted)
        await self._dispatcher.start()
        redis_url = settings.redis.url.get_secret_value()
        reservations = reservations_at(redis_url, settings.executor.reservation_ttl_seconds)
        leases = self._leases
        databases = JobDatabases(self._pool, alone=leases.is_alone, has_tail=bool(_embedded(settings)))
        running = RunningJobs()
        store = HistoryJobStore(databases, running, leases, self._pool)
        if settings.lineage.url or settings.lineage.file:
            self._lineage = LineageSender(settings.lineage)
            store.lineage = LineageReporter(self._lineage.send, settings.lineage.namespace)
        services = JobEnvironment(
            settings=settings,
            spark=self._spark,
            local=LocalRunner(),
            dispatcher=self._dispatcher,
            planner=PlannerClient(planner),
            commits=CommitClient(coordinator),
            slots=settings.executor.slots or os.cpu_count() or 1,
            jobs=store,
            checkpoints=LanceCheckpointMaintenance(self._pool),
            reservations=PooledReservations(reservations, self._pool),
        )
        shared = ManagerDeps(
            services=services,
            databases=databases,
            running=running,
            store=store,
            leases=leases,
            env_values=EnvValues(redis_url, settings.executor.env_folder),
        )
        return services, JobManager(shared)

    def bound(self, address: str) -> None:
        """See `leman_core.server.server.IsReached`.

        If this is the only executor, no other executor forwards calls to it.
        """
        if not self._leases.is_alone:
            self._leases.reached_at(_reached_at(self._settings, address))

    def abilities(self) -> Mapping[str, LemanError | None]:
        """See `leman_core.server.server.ReportsAbilities`."""
        return {FUNCTIONS_ABILITY: self._spark.trouble}

    async def stop(self) -> None:
        """Hand the jobs over to other executors, and stop Spark."""
        for task in self._background:
            task.cancel()
        if self._manager is not None:
            await self._manager.stop()
        if self._dispatcher is not None:
            await self._dispatcher.stop()
        if self._lineage is not None:
            await asyncio.to_thread(self._lineage.stop)
        await self._functions.stop()
        await self._others.close()
        for channel in self._channels:
            await channel.close()
        self._pool.close()
        await asyncio.to_thread(self._spark.stop)

    async def _release_when_idle(self, manager: JobManager) -> None:
        """Let Spark free memory, once after each period with jobs."""
        released = False
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            if manager.busy() or not self._spark.started:
                released = False
            elif not released:
                await asyncio.to_thread(self._spark.release_memory)
                released = True

    async def _archive_when_idle(self, manager: JobManager) -> None:
        idle_since = time.monotonic()
        while time.monotonic() - idle_since < _ARCHIVE_AFTER_SECONDS:
            await asyncio.sleep(_LOOK_SECONDS)
            if manager.busy() or not self._spark.started:
                idle_since = time.monotonic()
        if not self._spark.lacks_archive:
            return
        # A daemon thread, so that stopping the executor does not wait for it.
        threading.Thread(target=self._spark.archive_classes, name="archive", daemon=True).start()


def _leases(settings: Settings) -> JobLeases:
    """Return the leases of this executor.

    A local database has one executor at a time. A new executor therefore immediately owns the leases of the previous
    executor.
    """
    embedded = _embedded(settings)
    owner = f"{os.uname().nodename}:{embedded or os.getpid()}"
    redis_url = settings.redis.url.get_secret_value()
    return JobLeases(redis_url, owner, settings.executor.job_lease_seconds, alone=bool(embedded))


def _embedded(settings: Settings) -> str:
    """Return the database, or the file that lists the databases, of this process's local system, or ""."""
    return settings.embedded.database or settings.embedded.databases_file


def _reached_at(settings: Settings, bound: str) -> str:
    """Return the address at which other executors reach this one. Its server listens on `bound` (host:port)."""
    if settings.executor.address:
        return settings.executor.address
    host, _, port = bound.rpartition(":")
    if is_unspecified(bound):
        host = os.uname().nodename
    return f"{host}:{settings.server.mtls_port or port}"
