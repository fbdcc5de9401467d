"""Runs the workers of jobs as Spark tasks."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import subprocess
import sys
import threading
import time
import uuid
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import msgspec
import psutil
import structlog
from pyspark import SparkConf, SparkContext
from pyspark.find_spark_home import _find_spark_home
from pyspark.sql import DataFrame, SparkSession

from core import config
from core.config import Spark
from core.domain.work import WorkContext
from core.errors import LemanError, Unavailable
from executor.scheduling.cancelled import Cancelled
from executor.scheduling.dispatcher import ExecutorEndpoint
from executor.scheduling.resources import Cluster, SlotProfile
from executor.spark import spark_conf, standalone_capacity, worker_problems
from executor.spark.address import LOOPBACK, callback_address, is_local
from executor.spark.capacity_watch import CapacityWatch
from executor.spark.class_archive import ClassArchive
from executor.spark.spark_status import cores, failed_tasks
from executor.spark.spark_task import SCHEMA, WORKER_TASK, resource_profile, task_function
from executor.spark.standalone_capacity import Capacity
from executor.spark.temp_folder import TempFolder
from executor.worker.messages import Hello, WorkerTask

_log = structlog.get_logger(__name__)

_MAX_CALLS = 256
_WARM_UP = "warm-up"
_LOOK_SECONDS = 1.0
_AGAIN_SECONDS = 10.0
_EXIT_JVM_LOST = 70
#: Its sockets close a moment before it is dead.
_JVM_DIES_SECONDS = 0.5
#: How long a Spark job may go on whose workers have nothing to do any more.
_LINGER_SECONDS = 5.0


class SparkRunner:
    """One warm session. Safe to use from one event loop; Spark is called in threads.

    A JVM that died, or in which Spark has stopped, cannot be had back in this process: the process ends, whoever runs
    it starts it again, and its jobs are taken over."""

    def __init__(self, settings: Spark) -> None:
        self._settings = settings
        self._local = is_local(settings)
        self._python = settings.python or sys.executable
        self.address = callback_address(settings)
        #: Why no job can run at present.
        self.trouble: LemanError | None = None
        master = spark_conf.master(settings)
        self._capacity = CapacityWatch(master, self._registered, lambda: self._look(master))
        self._session: SparkSession | None = None
        self._starting: Future[None] | None = None
        self._stopping = False
        self._archive: ClassArchive | None = None
        self._scratch: TempFolder | None = None
        self._warm = False
        self._frames: dict[tuple[int, SlotProfile | None], DataFrame] = {}
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(_MAX_CALLS, thread_name_prefix="spark")
        self._cancelled: set[str] = set()
        self._calls: dict[str, set[Future[None]]] = {}

    def start_meanwhile(self) -> None:
        """Begins to start in a thread: the JVM takes seconds that imports can use."""
        self._starting = self._threads.submit(self._start)

    def start(self) -> None:
        """Starts the session and one job, so that the first user's job is a warm one. Blocks for seconds."""
        (self._starting or self._threads.submit(self._start)).result()

    def _start(self) -> None:
        os.environ["PYSPARK_PYTHON"] = self._python
        if self._local:
            os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
        os.environ.setdefault("PYTHONWARNINGS", "ignore::UserWarning")
        if self._settings.class_archive and spark_conf.JVM_OPTIONS_KEY not in self._settings.conf:
            chosen = self._settings.class_archive_dir
            self._archive = ClassArchive.of(Path(_find_spark_home()), spark_conf.JVM_OPTIONS, chosen)
        if SparkContext._gateway is None:  # a JVM that is there has its folder
            self._scratch = TempFolder.make(self._settings.scratch_dir)
        shared = self._archive.use() if self._archive is not None else []
        try:
            self._session = self._open(shared)
        except Exception as error:
            if self._archive is None or not shared:
                raise worker_problems.not_started(spark_conf.master(self._settings), _cause(error)) from error
            self._archive.discard()
            self._session = self._open([])
        self._session.sparkContext.setLogLevel("ERROR")
        threading.Thread(target=self._watch_jvm, name="jvm", daemon=True).start()
        if self._local:
            self._collect((_WARM_UP,), None, min(4, os.cpu_count() or 1))
        else:
            self._threads.submit(self._look_for_workers)  # a cluster may take minutes to start some
        self._warm = True

    def _look_for_workers(self) -> None:
        """Until one has run the warm-up. Meanwhile `trouble` says why none can, or that none has called back in time,
        and `busy` that the cluster has none to give. A warm-up that fails is tried again: the cluster may be mended."""
        pause = threading.Event()
        self._capacity.begin()
        while not self._stopping:
            tag = f"{_WARM_UP}-{uuid.uuid4().hex}"
            warming = self._threads.submit(self._collect, (tag,), None, min(4, os.cpu_count() or 1))
            while not wait([warming], _LOOK_SECONDS).done and not self._stopping:
                error = self._unusable(tag)
                if error is not None:
                    self._note(error)
                    self.cancel(tag)
                    continue
                self._capacity.check()
                late = self._capacity.seconds_with_capacity > self._settings.start_seconds
                if self.trouble is None and late and not self._registered():  # who has registered may have to unpack
                    self._note(self._unreached())
            with contextlib.suppress(Exception):
                warming.result()
                self._note(None)
                return
            self.forget(tag)
            pause.wait(_AGAIN_SECONDS)

    def _note(self, trouble: LemanError | None) -> None:
        if trouble is not None and str(trouble) != str(self.trouble):
            _log.error("jobs cannot run", reason=trouble.reason, message=trouble.message)
        elif trouble is None and self.trouble is not None:
            _log.info("Spark's workers are there", slots=self.slots(0))
        self.trouble = trouble

    def _unreached(self) -> LemanError:
        context = self._context()
        port = context.getConf().get("spark.driver.port", "?") if context is not None else "?"
        master = spark_conf.master(self._settings)
        seconds, has_capacity = self._settings.start_seconds, self._capacity.knows
        return worker_problems.unreachable(master, self.address.host, port or "?", seconds, has_capacity=has_capacity)

    def _context(self) -> SparkContext | None:
        return None if self._session is None else self._session.sparkContext

    @property
    def busy(self) -> str:
        """Why workers of jobs have to wait, where a cluster has no room for them; else empty."""
        busy = self._capacity.busy
        return "" if busy is None else busy.message

    def _registered(self) -> int:
        context = self._context()
        with contextlib.suppress(Exception):  # of Py4J, likewise
            return 0 if context is None else cores(context)
        return 0

    def _look(self, master: str) -> Capacity | None:
        context = self._context()
        return None if context is None else standalone_capacity.look(context, master)

    def _hindrance(self, tag: str, begin: float) -> LemanError | None:
        """Why a Spark job that began then is not waited for any longer."""
        self._capacity.check()
        if self._capacity.seconds_without(begin) > self._settings.busy_seconds:
            return self._capacity.busy
        return self._unusable(tag)

    def _unusable(self, tag: str) -> LemanError | None:
        """Why the workers that run a Spark job cannot run Python, from the first task of it that failed so."""
        context = self._context()
        if context is None:
            return None
        with contextlib.suppress(Exception):  # of Py4J: nothing is known yet, or not any more
            for message, host in failed_tasks(context, tag):
                error = worker_problems.unusable_python(message, host, self._python)
                if error is not None:
                    return error
        return None

    def _open(self, shared: list[str]) -> SparkSession:
        builder = SparkSession.builder
        ours = {**spark_conf.session(self._settings, shared, self._python), **self.address.spark_settings()}
        first = {"spark.app.name": "leman", "spark.master": spark_conf.master(self._settings)}
        chosen = {**first, **ours, **self._settings.conf}
        if self._scratch is not None:
            chosen = {**self._scratch.settings, **chosen}
            own = " ".join(self._scratch.jvm_options)
            chosen[spark_conf.JVM_OPTIONS_KEY] = f"{own} {chosen[spark_conf.JVM_OPTIONS_KEY]}"
        # the JVM's command line is for all to read
        shown = [item for item in chosen.items() if not config.is_secret(item[0])]
        SparkContext._ensure_initialized(conf=SparkConf().setAll(shown))
        for key, value in chosen.items():
            builder = builder.config(key, value)
        return builder.getOrCreate()

    @property
    def lacks_archive(self) -> bool:
        """Whether the next start would be sooner after `archive_classes`."""
        return self._archive is not None and self._archive.file is None and self._jvm() is not None

    def archive_classes(self) -> Path | None:
        """Makes the archive that the next JVM starts with, unless there is one. Takes half a minute of one core, in a
        JVM of low priority. None where this JVM cannot, or is not to."""
        archive, session, process = self._archive, self._session, self._jvm()
        if archive is None or session is None or process is None:
            return None
        if archive.file is None:
            try:
                path = archive.make(session.sparkContext._gateway, process.pid)
                _log.info("the next start is sooner: Spark's classes are archived", file=str(path))
            except Exception as error:  # noqa: BLE001 another JVM may not know how: it is only slower without
                _log.info("no archive of Spark's classes was made", error=str(error).partition("\n")[0])
        return archive.file

    def slots(self, here: int) -> int:
        """Workers at once: those of this machine where Spark runs on it alone, else one for each core of the
        cluster."""
        context = self._context()
        return here if self._local or context is None else max(1, cores(context))

    def stop(self) -> None:
        """Ends the session."""
        self._stopping = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._session is not None:
            self._session.stop()

    def cluster(self, slots: int) -> Cluster:
        """What a worker can be given. `slots`: workers of this machine, where Spark runs on it alone."""
        master = self._settings.master or "local"
        if self._local and not master.startswith("local-cluster"):
            named = re.match(r"local\[(\d+)", master)
            cores = min(slots, int(named[1])) if named else slots
            return Cluster(local=True, cores=cores, memory_bytes=psutil.virtual_memory().total)
        return spark_conf.executors(self._settings.conf, master)

    async def run_workers(
        self, address: ExecutorEndpoint, context: WorkContext, count: int, profile: SlotProfile | None = None
    ) -> None:
        """One Spark job with one task for each worker; returns when all workers have ended. `profile`: what each is to
        be given. Raises Cancelled; Unavailable (SPARK_FAILED) where Spark gave up on one.

        Whoever stops waiting leaves a Spark job that ends by itself, as nobody gives its workers work any more. One
        that does not is cut off."""
        job_id = address.job_id
        hello = Hello(job_id, address.secret)
        worker_task = WorkerTask(address.host, address.port, hello, msgspec.json.encode(context), context.udf.identity)
        own = f"{job_id}-{uuid.uuid4().hex}"
        call = self._threads.submit(self._collect, (job_id, own), worker_task, count, profile)
        calls = self._calls.setdefault(job_id, set())
        calls.add(call)
        call.add_done_callback(calls.discard)
        try:
            await self._until_done(own, call)
        except asyncio.CancelledError:
            asyncio.get_running_loop().call_later(_LINGER_SECONDS, self._cut_off, own, call)
            raise

    async def _until_done(self, tag: str, call: Future[None]) -> None:
        """Looks meanwhile whether the cluster has no worker, or none to give for too long, or one that cannot run
        Python at all: Spark would wait for ever, and try again and again."""
        done = asyncio.wrap_future(call)
        done.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # nobody may be left to hear it
        begin = time.monotonic()
        while not self._local and not (await asyncio.wait((done,), timeout=_LOOK_SECONDS))[0]:
            error = self.trouble or await asyncio.to_thread(self._hindrance, tag, begin)
            if error is not None:
                self._cut_off(tag, call)
                raise error.with_traceback(None)
        await done

    def _cut_off(self, tag: str, call: Future[None]) -> None:
        session = self._session
        if session is not None and not call.done():
            _log.warning("a Spark job is cut off: its workers have nothing to do and do not end", tag=tag)
            self._threads.submit(session.sparkContext.cancelJobsWithTag, tag)

    async def stop_job(self, tag: str) -> None:
        """Cancels what runs under the tag and returns when nothing does any more. The tag may be used again."""
        calls = self._calls.pop(tag, set())
        if calls:
            already = tag in self._cancelled
            await asyncio.to_thread(self.cancel, tag)
            await asyncio.to_thread(wait, list(calls))
            if not already:
                self.forget(tag)

    def cancel(self, tag: str) -> None:
        """Stops the tasks of a job and refuses to start more. A cancel before the submission is not lost."""
        self._cancelled.add(tag)
        if self._session is not None:
            self._session.sparkContext.cancelJobsWithTag(tag)

    def forget(self, tag: str) -> None:
        """The job is over: its tag may be used again."""
        self._cancelled.discard(tag)
        self._calls.pop(tag, None)

    def _collect(
        self, tags: tuple[str, ...], worker_task: WorkerTask | None, count: int, profile: SlotProfile | None = None
    ) -> None:
        """Runs a Spark job. The first of its tags is the one that it is cancelled by from outside."""
        if tags[0] in self._cancelled:
            raise Cancelled(tags[0])
        session = self._session
        if session is None:
            raise Unavailable("SPARK_STARTING", "The Spark session is not up yet")
        context = session.sparkContext
        try:
            for tag in tags:
                context.addJobTag(tag)
            context.setLocalProperty(WORKER_TASK, msgspec.json.encode(worker_task).decode())
            self._frame(session, count, profile).collect()
        except Exception as error:
            if tags[0] in self._cancelled:
                raise Cancelled(tags[0]) from None
            self._end_without_jvm()
            self._end_without_spark(context)
            cause = _cause(error)
            _log.warning("spark gave up on a task", tag=tags[0], cause=cause)
            raise Unavailable("SPARK_FAILED", f"Spark gave up on a task: {cause}. Finished work is kept.") from error
        finally:
            context.clearJobTags()

    def _watch_jvm(self) -> None:
        process = self._jvm()
        if process is not None:
            process.wait()
            self._end_without_jvm()

    def _end_without_jvm(self) -> None:
        process = self._jvm()
        if process is None or self._stopping:
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = process.wait(_JVM_DIES_SECONDS)
            _log.error("the Spark JVM is gone, and so goes this process", code=code)
            if self._archive is not None and not self._warm:
                self._archive.discard()  # it may be what the JVM died of
            os._exit(_EXIT_JVM_LOST)

    def _end_without_spark(self, context: SparkContext) -> None:
        """Spark stops by itself in a JVM that lives on: after an error of its own, or when its cluster drops it."""
        stopped = False
        with contextlib.suppress(Exception):  # of Py4J: the JVM is going
            stopped = bool(context._jsc.sc().isStopped())
        if stopped and not self._stopping:
            _log.error("Spark has stopped, and so does this process")
            os._exit(_EXIT_JVM_LOST)

    def _jvm(self) -> subprocess.Popen[bytes] | None:
        """None where somebody else started it."""
        gateway: Any = SparkContext._gateway
        return getattr(gateway, "proc", None)

    def _frame(self, session: SparkSession, count: int, profile: SlotProfile | None) -> DataFrame:
        """A worker in each of `count` partitions; building the frame costs as much as running it."""
        with self._lock:
            frame = self._frames.get((count, profile))
            if frame is None:
                asked = None if profile is None else resource_profile(profile)
                workers = session.range(0, count, 1, count)
                frame = self._frames[count, profile] = workers.mapInArrow(task_function(), SCHEMA, profile=asked)
            return frame


def _cause(error: Exception) -> str:
    """The line of a Java stack trace that says something."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    for line in lines:
        if "Python worker exited" in line or "Caused by" in line or "Error:" in line:
            return line[:500]
    return lines[0][:500] if lines else type(error).__name__
