"""Run the workers of jobs as Spark tasks in one warm Spark context: start Spark, submit Spark jobs, watch and cancel
them.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import re
import resource
import secrets
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import psutil
import structlog
from pyspark import RDD, SparkContext
from pyspark.resource import (
    ExecutorResourceRequests,
    ResourceProfile,
    ResourceProfileBuilder,
    TaskResourceRequests,
)

from leman_core.model.service_errors import LemanError, Unavailable
from leman_core.model.work import WorkContext
from leman_core.settings import Spark
from leman_executor.scheduling.dispatcher import Cancelled, ExecutorEndpoint
from leman_executor.scheduling.task_slots import Cluster, SlotProfile
from leman_executor.spark import driver_launch, early_jvm, spark_conf, worker_problems
from leman_executor.spark.cluster_readiness import ClusterReadiness, total_cores
from leman_executor.spark.driver_jvm import (
    DriverJvm,
    connect,
    detach_driver,
    driver_is_gone,
    driver_process,
    is_registered,
    java_cause,
    open_context,
)
from leman_executor.spark.driver_launch import LaunchedJvm
from leman_executor.spark.idle_tasks import IdleTasks
from leman_executor.spark.spark_conf import callback_address, is_local
from leman_executor.spark.temp_folder import TempFolder
from leman_executor.worker.worker_link import Hello, WorkerTask

#: The property of a Spark job that has the worker's task. Because of its name, Spark redacts the value in its logs.
WORKER_TASK = "leman.task.secret"


def worker_plan(context: SparkContext, count: int, profile: SlotProfile | None) -> Any:
    """Return a JVM RDD of `count` partitions. Counting its rows runs a worker in each partition.

    This avoids Spark SQL, which would double the number of classes that the JVM loads.
    """
    jvm: Any = context._jvm
    nothing = jvm.java.util.ArrayList()  # pyspark would write an empty Python list to a temporary file
    partitions: RDD[Any] = RDD(context._jsc.parallelize(nothing, count), context)
    workers = partitions.mapPartitionsWithIndex(task_function())
    if profile is not None:
        workers = workers.withResources(resource_profile(profile))
    return workers._jrdd.rdd()


def task_function() -> Callable[[int, Iterable[Any]], Iterator[int]]:
    """Return the function that Spark runs for each worker.

    The function is the same for all jobs, because a Spark job property says where to connect. It is a closure, which is
    pickled by value, so a worker need not import this module.
    """
    name = WORKER_TASK

    def worker(_partition: int, nothing: Iterable[Any]) -> Iterator[int]:
        from pyspark import TaskContext  # noqa: PLC0415

        from leman_executor.spark import function_processes  # noqa: PLC0415 on the worker only, for a fast driver

        task = TaskContext.get()
        worker_task = task.getLocalProperty(name) if task is not None else None
        units = function_processes.run(worker_task or "null")
        list(nothing)  # read all rows, or Spark will not reuse the process
        return iter([units])

    return worker


def resource_profile(asked: SlotProfile) -> ResourceProfile:
    """Return the Spark resource profile for these resources.

    If Spark cannot start executors for it, the profile has only task resources, so that the existing executors serve
    it.
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


_log = structlog.get_logger(__name__)

_MAX_CALLS = 256
_WARM_UP = "warm-up"
_LOOK_SECONDS = 1.0
_AGAIN_SECONDS = 10.0
#: Seconds from a cancel until it is checked whether the Spark job has ended.
_CANCEL_SECONDS = 0.2
#: Seconds for which a Spark job may continue after its workers have no work left.
_LINGER_SECONDS = 5.0
#: Seconds between the end of a Spark job and the start of waiting tasks for the next job, which must not compete for
#: cores with that end.
_QUIET_SECONDS = 0.1
#: Seconds that Spark may take to stop.
_STOP_SECONDS = 20.0
_NOTHING = "null"


class _JvmLost(Exception):
    """The JVM ended before Spark was ready, or was killed because its start took too long."""


def _stop(context: SparkContext) -> None:
    """Stop Spark. If the JVM does not end in time, kill it."""
    process = driver_process()
    timer = threading.Timer(_STOP_SECONDS, process.kill) if process is not None else None
    if timer is not None:
        timer.daemon = True
        timer.start()
    try:
        context.stop()
    except Exception as error:  # noqa: BLE001 Py4J raises if the JVM has ended
        _log.info("Spark had ended before it was stopped", error=java_cause(error))
        detach_driver()
    finally:
        if timer is not None:
            timer.cancel()


class SparkRunner:
    """One warm Spark context, for use on one event loop. Calls to Spark run in threads.

    If the context is lost, this process ends (see `DriverJvm`), and its jobs are taken over.
    """

    def __init__(self, settings: Spark) -> None:
        self._settings = settings
        self._local = is_local(settings)
        self._python = driver_launch.python_of(settings)
        self.address = callback_address(settings)
        self._readiness = ClusterReadiness(settings, self._python, self.address.host)
        self._jvm = DriverJvm()
        self._context: SparkContext | None = None
        self._starting: Future[None] | None = None
        #: Whether Spark starts only with the first job that needs it.
        self.on_demand = settings.on_demand and self._local
        self._folder: TempFolder | None = None
        #: The JVM in which Spark is starting.
        self._launched: LaunchedJvm | None = None
        #: Whether a class archive is being made.
        self._archiving = False
        #: Spark's plans of jobs, by number of workers and profile.
        self._plans: dict[tuple[int, SlotProfile | None], Any] = {}
        self._salt = secrets.token_bytes(32)
        self._lock = threading.Lock()
        self._beginning = threading.Lock()
        self._threads = ThreadPoolExecutor(_MAX_CALLS, thread_name_prefix="spark")
        self._cancelled: set[str] = set()
        #: By job, why its Spark executors are missing.
        self._waits: dict[str, str] = {}
        self._calls: dict[str, set[Future[None]]] = {}
        #: The tasks that wait for the next job.
        self._standing: IdleTasks | None = None
        self._standing_count = min(4, os.cpu_count() or 1)
        #: The jobs that got waiting tasks, by the tag of the tasks' Spark job.
        self._given: dict[str, str] = {}

    def start_meanwhile(self) -> Future[None]:
        """Start Spark in a thread, because that takes seconds. If it was started before, do nothing."""
        with self._beginning:
            if self._starting is None or (self._starting.done() and self._starting.exception() is not None):
                self._starting = self._threads.submit(self._start)
            return self._starting

    def start(self) -> None:
        """Start Spark, and run one Spark job to warm it up. Blocks for seconds.

        Raises:
            Unavailable: SPARK_NOT_STARTED.
        """
        self.start_meanwhile().result()

    @property
    def started(self) -> bool:
        """Return whether Spark is up and warm."""
        return self._jvm.warm

    def _start(self) -> None:
        """Start Spark, even if it was started before.

        If a JVM dies during the start, or takes too long, another JVM is tried. The last attempt uses no class archive,
        because the archive may be the cause.
        """
        if driver_is_gone():
            detach_driver()
        if SparkContext._gateway is not None:
            self._warm_up(self._open(None))
            return
        early = early_jvm.take()
        launches: list[Callable[[], LaunchedJvm]] = [self._launch, functools.partial(self._launch, archived=False)]
        if early is not None:
            launches.insert(0, lambda: early)
        while launches:
            launched = launches.pop(0)()
            try:
                self._start_in(launched)
            except _JvmLost as lost:
                overran = launched.overran.is_set() and launched is not early
                if not launches or overran or self._jvm.stopping:
                    raise self._lost(launched, str(lost)) from lost
                _log.warning("Spark's JVM ended before Spark was up; another JVM is started", why=str(lost))
            else:
                launches.clear()

    def _launch(self, *, archived: bool = True) -> LaunchedJvm:
        driver_launch.check_java()
        try:
            return LaunchedJvm.begin(self._settings, archived=archived)
        except OSError as error:
            raise self._not_started(str(error), has_jvm=False) from error

    def _start_in(self, launched: LaunchedJvm) -> None:
        """Start Spark in a JVM. If that fails, end the JVM and clean up.

        Raises:
            _JvmLost: The JVM died, or took too long.
            LemanError: Spark did not start, although the JVM did.
        """
        self._launched, self._jvm.archive, self._jvm.starting = launched, launched.archive, True
        try:
            with launched.limited_to(self._settings.driver_start_seconds):
                gateway = None if self._jvm.stopping else connect(launched)
                if gateway is None:
                    raise _JvmLost("the JVM ended during its start")
                self._folder = launched.folder
                self._warm_up(self._open(gateway, launched.chosen))
        except Exception as error:
            lost = not launched.lives()
            self._context = self._readiness.context = self._folder = None
            self._plans.clear()
            launched.end()
            detach_driver()
            if launched.overran.is_set():
                seconds = self._settings.driver_start_seconds
                raise _JvmLost(f"it was not up within {seconds:g} s (LEMAN_SPARK__DRIVER_START_SECONDS)") from error
            if lost and launched.archive is not None and not self._jvm.stopping:
                launched.archive.discard()  # the archive may have crashed the JVM
            if lost and not isinstance(error, _JvmLost):
                raise _JvmLost(f"the JVM ended (exit status {launched.process.returncode})") from error
            raise
        finally:
            self._launched, self._jvm.starting = None, False

    def _open(self, gateway: Any, chosen: dict[str, str] | None = None) -> SparkContext:
        """Open the context in a running JVM.

        Args:
            gateway: The gateway to the JVM. None if pyspark already has one.
            chosen: The settings of the context. None to make them here.
        """
        if chosen is None:
            driver_launch.prepare_environment(self._settings)
            chosen = driver_launch.context_settings(self._settings, [], self._folder)
        try:
            context = open_context(chosen, gateway)
            if self._settings.master.startswith("spark://") and not is_registered(context):
                raise worker_problems.no_master(spark_conf.master(self._settings))
            context.setLogLevel("ERROR")
        except LemanError:
            raise
        except Exception as error:
            raise self._not_started(java_cause(error)) from error
        return context

    def _warm_up(self, context: SparkContext) -> None:
        """Run one Spark job in a context to warm it up. From now on, use the context for jobs."""
        self._context = self._readiness.context = context
        if not self._local:
            self._readiness.conf = dict(context.getConf().getAll())
        if self._local:
            self._run_spark_job((_WARM_UP,), _NOTHING, self._standing_count)
        else:
            self._threads.submit(self._look_for_workers)  # a cluster may take minutes to start executors
        self._jvm.starting = False
        self._jvm.watch()
        if self._local:
            self._stand()
        self._jvm.warm = True

    def _lost(self, launched: LaunchedJvm, why: str) -> Unavailable:
        """Return the error of a start after which no JVM is running."""
        ended_by_itself = (launched.process.returncode or 0) > 0
        words = driver_launch.startup_error(launched.chosen) if ended_by_itself else ""
        return self._not_started(words or why, has_jvm=False)

    def _not_started(self, why: str, *, has_jvm: bool = True) -> Unavailable:
        master = spark_conf.master(self._settings)
        open_files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return worker_problems.not_started(master, why, local=self._local, has_jvm=has_jvm, open_files=open_files)

    def _look_for_workers(self) -> None:
        """Repeat the warm-up until a worker has run it.

        Until then, `trouble` returns why no worker can run, and `busy_for` returns whether the cluster has no room. A
        failed warm-up is repeated, because the cluster may recover.
        """
        pause = threading.Event()
        self._readiness.begin()
        while not self._jvm.stopping:
            tag = f"{_WARM_UP}-{uuid.uuid4().hex}"
            warming = self._threads.submit(self._run_spark_job, (tag,), _NOTHING, min(4, os.cpu_count() or 1))
            while not wait([warming], _LOOK_SECONDS).done and not self._jvm.stopping:
                error = self._readiness.unusable(tag)
                if error is not None:
                    self._readiness.note(error)
                    self.cancel(tag)
                else:
                    self._readiness.check_reached()
            with contextlib.suppress(Exception):
                warming.result()
                self._readiness.note_ready()
                return
            self.forget(tag)
            pause.wait(_AGAIN_SECONDS)

    @property
    def trouble(self) -> LemanError | None:
        """Why no job can run now; None if jobs can run."""
        return self._readiness.trouble

    def busy_for(self, job_key: str) -> str:
        """Return why the workers of a job wait for room in the cluster. Return "" if they do not wait."""
        if self.on_demand and not self.started:
            return "Spark is starting, which takes some seconds"
        trouble = self.trouble
        return self._readiness.busy or (trouble.message if trouble else "") or self._waits.get(job_key, "")

    @property
    def lacks_archive(self) -> bool:
        """Return whether `archive_classes` would make the next start faster."""
        archive = self._jvm.archive
        return archive is not None and archive.file is None and driver_process() is not None

    def archive_classes(self) -> Path | None:
        """Make the class archive for the next JVM, unless it exists. Return its file.

        This takes half a minute of one core, in a JVM with low priority. Returns None if this JVM does not support
        archives, or the settings forbid them.
        """
        archive, context, process = self._jvm.archive, self._context, driver_process()
        if archive is None or context is None or process is None:
            return None
        if archive.file is None:
            self._archiving = True
            try:
                path = archive.make(context._gateway, process.pid)
                _log.info("the archive of Spark's classes is made, so the next start is faster", file=str(path))
            except Exception as error:  # noqa: BLE001 archives are optional, and not all JVMs support them
                _log.info("no archive of Spark's classes was made", error=str(error).partition("\n")[0])
            finally:
                self._archiving = False
        return archive.file

    def release_memory(self) -> None:
        """Let the JVM return unused heap memory to the system. Blocks for a tenth of a second."""
        if self._context is not None and self._local:
            with contextlib.suppress(Exception):  # raised by Py4J: the JVM is ending
                jvm: Any = self._context._jvm
                jvm.java.lang.System.gc()

    def slots(self, here: int) -> int:
        """Return how many workers can run at once.

        This is `here` if Spark runs only on this machine, else the number of cores of the cluster.
        """
        return here if self._local or self._context is None else max(1, total_cores(self._context))

    def stop(self) -> None:
        """Stop Spark."""
        self._jvm.stopping = True
        if self._standing is not None:
            self._standing.close()
        self._threads.shutdown(wait=False, cancel_futures=True)
        launched, archive = self._launched, self._jvm.archive if self._archiving else None
        if archive is not None:
            archive.abandon()
        if launched is not None:  # abort the start of the JVM
            launched.kill()
        elif self._context is not None:
            _stop(self._context)
        if archive is not None:  # the JVM may just have started to make it
            archive.abandon()

    def cluster(self, slots: int) -> Cluster:
        """Return the resources that workers can get. `slots` is the number of workers if Spark runs only here."""
        master = self._settings.master or "local"
        if self._local and not master.startswith("local-cluster"):
            named = re.match(r"local\[(\d+)", master)
            cores = min(slots, int(named[1])) if named else slots
            return Cluster(local=True, cores=cores, memory_bytes=psutil.virtual_memory().total)
        found = spark_conf.executors(self._readiness.conf, master)
        return replace(found, registered=self._readiness.registered())

    async def run_workers(
        self,
        address: ExecutorEndpoint,
        context: WorkContext,
        count: int,
        profile: SlotProfile | None = None,
        *,
        additional: bool = False,
    ) -> None:
        """Run one Spark job with a task for each worker. Return when all workers have ended.

        If the caller stops waiting, the Spark job ends because its workers get no more work. If the Spark job does not
        end, it is cancelled.

        Args:
            profile: The resources of each worker. None if there are no requirements.
            additional: Whether other workers already run. If so, the new workers may wait for resources as long as the
                others run.

        Raises:
            Cancelled: The job was asked to stop.
            Unavailable: SPARK_FAILED, if Spark gave up on a worker.
            LemanError: No job can run now, the cluster was full for too long, or a start on demand failed.
        """
        if self.on_demand and not self.started:
            await asyncio.shield(asyncio.wrap_future(self.start_meanwhile()))
        job_key = address.job_key
        hello, name = Hello(job_key, address.secret), context.process_name(self._salt)
        worker_task = WorkerTask(address.host, address.port, hello, address.certificate, name)
        own, call = self._begin_job(job_key, msgspec.json.encode(worker_task).decode(), count, profile)
        calls = self._calls.setdefault(job_key, set())
        calls.add(call)
        call.add_done_callback(calls.discard)
        loop = asyncio.get_running_loop()
        call.add_done_callback(lambda _: self._stand_later(loop))
        try:
            await self._until_done(job_key, own, call, None if additional else profile)
        except asyncio.CancelledError:
            asyncio.get_running_loop().call_later(_LINGER_SECONDS, self._cut_off, own, call)
            raise

    def _begin_job(
        self, job_key: str, worker_task: str, count: int, profile: SlotProfile | None
    ) -> tuple[str, Future[None]]:
        """Start a Spark job, or use the tasks that wait. Return the Spark job's unique tag and its call."""
        standing = self._standing_for(count, profile) if job_key not in self._cancelled else None
        if profile is None:  # the next job will probably ask for as many workers
            self._standing_count = max(self._standing_count, min(count, os.cpu_count() or 1))
        if standing is not None:
            self._given[standing.tag] = job_key
            standing.call.add_done_callback(lambda _: self._given.pop(standing.tag, None))
            standing.give(worker_task, count)
            return standing.tag, standing.call
        own = f"{job_key}-{uuid.uuid4().hex}"
        return own, self._threads.submit(self._run_spark_job, (job_key, own), worker_task, count, profile)

    def _standing_for(self, count: int, profile: SlotProfile | None) -> IdleTasks | None:
        """Return waiting tasks for a job.

        End waiting tasks that the job cannot use, because it may need their slots.
        """
        standing, self._standing = self._standing, None
        if standing is None or standing.call.done():
            return None
        if profile is not None or count > standing.count:
            standing.dismiss()
            return None
        return standing

    def _stand_later(self, loop: asyncio.AbstractEventLoop) -> None:
        with contextlib.suppress(RuntimeError):  # raised if the loop is closed, and then no more jobs come
            loop.call_soon_threadsafe(loop.call_later, _QUIET_SECONDS, self._stand)

    def _stand(self) -> None:
        """Start tasks that wait for the next job, unless some wait already or a job runs.

        Do this only if the tasks take no slots that other applications may need. (If a master is configured, its number
        of slots is unknown.)
        """
        waits = self._standing is not None and not self._standing.call.done()
        folder = self._folder
        if self._settings.master or folder is None or waits or any(self._calls.values()) or self._jvm.stopping:
            return
        with contextlib.suppress(OSError, RuntimeError):  # there can be no socket, or the threads have ended
            standing = IdleTasks(folder.sockets, self._standing_count)
            tags, count = (standing.tag,), standing.count
            standing.call = self._threads.submit(self._run_spark_job, tags, standing.address, count)
            standing.call.add_done_callback(lambda _: standing.close())
            self._standing = standing

    async def _until_done(self, job_key: str, tag: str, call: Future[None], profile: SlotProfile | None) -> None:
        """Wait for a Spark job. Cancel it if the cluster cannot run it, or has no executors for its profile.

        A cluster cannot run the job if the cluster has no worker, no worker becomes free in time, no worker is as large
        as requested, no executor has room for a worker, or Python does not run. Spark itself would wait or retry
        forever.
        """
        done = asyncio.wrap_future(call)
        # Retrieve an error here, because the caller may have stopped waiting.
        done.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        begin = time.monotonic()
        executors = None if self._local else self._readiness.executor_wait(tag, profile)
        while not self._local and not (await asyncio.wait((done,), timeout=_LOOK_SECONDS))[0]:
            error = self.trouble or await asyncio.to_thread(self._readiness.hindrance, tag, begin)
            if executors is not None:
                error = error or await asyncio.to_thread(executors.check)
                self._waits[job_key] = executors.why
            if error is not None:
                self._cut_off(tag, call)
                raise error.with_traceback(None)
        await done

    def _cut_off(self, tag: str, call: Future[None]) -> None:
        context = self._context
        if context is not None and not call.done():
            _log.warning("a Spark job is cancelled because its workers have no work left and do not end", tag=tag)
            self._threads.submit(context.cancelJobsWithTag, tag)

    async def stop_job(self, tag: str) -> None:
        """Cancel the Spark jobs with a tag, and wait until they have ended. Afterwards the tag may be used again."""
        calls = list(self._calls.pop(tag, ()))
        if calls:
            already = tag in self._cancelled
            self._cancelled.add(tag)
            await asyncio.to_thread(self._cancel_until_ended, tag, calls)
            if not already:
                self.forget(tag)

    def cancel(self, tag: str) -> None:
        """Stop the tasks of a job and start no others, even if the job is not submitted yet."""
        self._cancelled.add(tag)
        if self._context is not None:
            self._cancel_now(self._context, tag)
        if calls := list(self._calls.get(tag, ())):
            self._threads.submit(self._cancel_until_ended, tag, calls)

    def _cancel_until_ended(self, tag: str, calls: list[Future[None]]) -> None:
        """Cancel Spark jobs repeatedly until they end, because Spark ignores a tag whose job is not yet submitted."""
        while self._context is not None and not self._jvm.stopping:
            self._cancel_now(self._context, tag)
            if not wait(calls, _CANCEL_SECONDS).not_done:
                return

    def _cancel_now(self, context: SparkContext, job_key: str) -> None:
        given = [own for own, job in list(self._given.items()) if job == job_key]
        for tag in (job_key, *given):
            context.cancelJobsWithTag(tag)

    def forget(self, tag: str) -> None:
        """Forget that a job was cancelled. The job is over, and its tag may be used again."""
        self._cancelled.discard(tag)
        self._calls.pop(tag, None)
        self._waits.pop(tag, None)

    def _run_spark_job(
        self, tags: tuple[str, ...], worker_task: str, count: int, profile: SlotProfile | None = None
    ) -> None:
        """Run a Spark job.

        Any of its tags cancels it: the first, its own, or that of a Leman job that gets its workers.
        """
        if tags[0] in self._cancelled:
            raise Cancelled(tags[0])
        context = self._context
        if context is None:
            raise Unavailable("SPARK_STARTING", "Spark is not up yet")
        try:
            for tag in tags:
                context.addJobTag(tag)
            context.setLocalProperty(WORKER_TASK, worker_task)
            self._plan(context, count, profile).count()
        except Exception as error:
            if self._given.get(tags[0], tags[0]) in self._cancelled:
                raise Cancelled(tags[0]) from None
            self._jvm.end_if_gone()
            self._jvm.end_if_spark_stopped(context)
            why = java_cause(error)
            _log.warning("spark gave up on a task", tag=tags[0], cause=why)
            raise Unavailable("SPARK_FAILED", f"Spark gave up on a task: {why}. Finished work is kept.") from error
        finally:
            context.clearJobTags()
            # This thread will run other jobs, which must not get this job's secret and environment.
            cleared: Any = None
            context.setLocalProperty(WORKER_TASK, cleared)

    def _plan(self, context: SparkContext, count: int, profile: SlotProfile | None) -> Any:
        """Return Spark's plan for one worker in each of `count` partitions; see `worker_plan`.

        Plans are cached, because making a plan costs as much as running it.
        """
        with self._lock:
            plan = self._plans.get((count, profile))
            if plan is None:
                plan = self._plans[count, profile] = worker_plan(context, count, profile)
            return plan
