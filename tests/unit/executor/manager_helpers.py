"""A job manager with its history, and fakes in the place of planner and Spark."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from leman._format.stored_functions import UdfDefinition, UdfKind
from leman_core.model.job import Attempt, BegunAttempt, Job
from leman_core.model.keys import id_in_key
from leman_core.model.plan import BackfillSpec, FragmentTask, OutputField, Plan, PlanHeader, Reason
from leman_core.model.row_positions import RowRange
from leman_core.model.service_errors import LemanError
from leman_core.model.table import TableField
from leman_core.model.work import WorkContext
from leman_core.server.blocking import BlockingPool
from leman_core.settings import Settings
from leman_executor.api.job_forwarding import OtherExecutors
from leman_executor.coordination.env_values import EnvValues
from leman_executor.coordination.leases import JobLeases
from leman_executor.jobs.job_environment import JobEnvironment
from leman_executor.manager import JobManager
from leman_executor.manager.job_databases import JobDatabases
from leman_executor.manager.job_store import HistoryJobStore, RunningJobs
from leman_executor.manager.job_supervisor import ManagerDeps
from leman_executor.scheduling.dispatcher import Cancelled
from leman_executor.scheduling.local_runner import LocalRunner

OUTPUT = OutputField(TableField(pa.field("y", pa.int64()), (1,)), "c0ffee")
UDF = UdfDefinition("f", "1", UdfKind.SCALAR, ("x",), pa.int64())
HEADER = PlanHeader(
    uri="/lake/t.lance",
    read_version=1,
    incarnation="i",
    output=OUTPUT,
    input_columns=("x",),
    udf=UDF,
    bundle_uri="",
    where="",
)
TASK = FragmentTask(0, 10, 0, Reason.MISSING, "f" * 32, "p", (), missing=(RowRange(0, 10),))


#: For a servicer that no one asks for previews.
NO_PREVIEWS: Any = None
#: An executor that knows of no other ones.
NO_OTHERS = OtherExecutors(Settings(), JobLeases("", "me"))


class BusySpark:
    """Runs workers that end when their job is cancelled, and not by themselves. `started`: whose workers it ran, in
    this order; `cancelled`: jobs that were to be; `stopped`: jobs whose workers were to end, and be gone; `contexts`:
    what workers got last, by job."""

    busy_for = staticmethod(lambda _job_id: "")
    trouble = None

    def __init__(self) -> None:
        self.at_work = asyncio.Event()
        self.started: list[str] = []
        self.cancelled: list[str] = []
        self.stopped: list[str] = []
        self.contexts: dict[str, WorkContext] = {}
        self._loop = asyncio.get_running_loop()
        self._running: dict[str, asyncio.Future[None]] = {}
        self._stopped: set[str] = set()

    async def run_workers(self, _address: object, context: WorkContext, *_: object, **_more: object) -> None:
        if context.key in self._stopped:
            raise Cancelled(context.job_id)
        running = self._running[context.key] = self._loop.create_future()
        self.started.append(context.job_id)
        self.contexts[context.job_id] = context
        self.at_work.set()
        await running

    async def stop_job(self, key: str) -> None:
        self.stopped.append(id_in_key(key))

    def slots(self, here: int) -> int:
        return here

    def cancel(self, key: str) -> None:
        """From any thread."""
        self.cancelled.append(id_in_key(key))
        self._loop.call_soon_threadsafe(self._stop, key)

    def _stop(self, key: str) -> None:
        self._stopped.add(key)
        running = self._running.get(key)
        if running is not None and not running.done():
            running.set_exception(Cancelled(id_in_key(key)))

    def forget(self, key: str) -> None:
        self._running.pop(key, None)
        self._stopped.discard(key)


class Planner:
    """Plans one fragment, as soon as it may; `asked` is set when someone waits for a plan."""

    def __init__(self) -> None:
        self.tasks: tuple[FragmentTask, ...] = (TASK,)
        self.rows = 0
        self.error: LemanError | None = None
        self.udf = UDF
        self.asked = asyncio.Event()
        self.may = asyncio.Event()
        self.may.set()

    async def create_plan(self, spec: BackfillSpec) -> Plan:
        self.asked.set()
        await self.may.wait()
        if self.error is not None:
            raise self.error
        header = replace(HEADER, udf=self.udf, where=spec.where, rows_to_compute=self.rows, rows_total=self.rows)
        return Plan(header, self.tasks)


class Commits:
    """Remembers which attempts have begun, and where."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, Attempt]] = []

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
        assert request_id
        self.begun.append((uri, attempt))
        return BegunAttempt(len(self.begun))


class Dispatcher:
    def open(self, *_: object) -> None:
        return

    def stop_units(self, _: str) -> None:
        return

    async def close(self, _: str) -> None:
        return


class Checkpoints:
    """Has nothing to look after."""

    async def forget_file(self, *_: object) -> None:
        return

    async def remove_leftovers(self, _uri: str) -> None:
        return


class Reservations:
    """No one leaves any."""

    async def keep(self, *_: object) -> None:
        return

    async def release(self, *_: object) -> None:
        return


class Executor:
    """A job manager, and the process around it."""

    def __init__(
        self,
        database: Path | str,
        settings: Settings | None = None,
        leases: Any = None,
        env_values: Any = None,
        *,
        has_tail: bool = False,
    ) -> None:
        self.database = str(database)
        self.spark = BusySpark()
        self.planner = Planner()
        self.commits = Commits()
        settings = settings or Settings()
        self.pool = BlockingPool(2, name="test")
        self.leases: Any = leases or JobLeases("", "me")
        self.running, databases = RunningJobs(), JobDatabases(self.pool, alone=has_tail, has_tail=has_tail)
        self.store = HistoryJobStore(databases, self.running, self.leases, self.pool)
        services = JobEnvironment(
            settings=settings,
            spark=self.spark,
            local=LocalRunner(),
            dispatcher=Dispatcher(),
            planner=self.planner,
            commits=self.commits,
            slots=2,
            jobs=self.store,
            checkpoints=Checkpoints(),
            reservations=Reservations(),
        )
        self.jobs = JobManager(
            ManagerDeps(
                services=services,
                databases=databases,
                running=self.running,
                store=self.store,
                leases=self.leases,
                env_values=env_values or EnvValues(""),
            )
        )

    async def works(self) -> None:
        async with asyncio.timeout(60):
            await self.spark.at_work.wait()

    async def die(self) -> None:
        """Ends without a word to history."""
        tasks = [*self.running.tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.pool.close()

    async def stop(self) -> None:
        await self.jobs.stop()
        self.pool.close()

    async def job(self, job_id: str) -> Job:
        return await self.jobs.get(self.database, job_id)


def with_executor(folder: Path, work: Callable[[Executor], Coroutine[Any, Any, None]], settings: Settings) -> None:
    """Do something with an executor for a database, for half a minute at the most."""
    (folder / "_leman").mkdir(exist_ok=True)

    async def bounded() -> None:
        executor = Executor(folder, settings)
        async with asyncio.timeout(30):
            await work(executor)
        await executor.stop()

    asyncio.run(bounded())
