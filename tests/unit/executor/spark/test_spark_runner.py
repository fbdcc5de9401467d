"""The Spark runner over a context that follows a script."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import sys
import threading
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import psutil
import pytest
from pyspark import SparkContext

from leman._format.stored_functions import ErrorPolicy, UdfKind
from leman_core.model.service_errors import Unavailable
from leman_core.model.work import FunctionSpec
from leman_core.settings import Spark
from leman_executor.scheduling.dispatcher import Cancelled, ExecutorEndpoint
from leman_executor.scheduling.task_slots import SlotProfile
from leman_executor.spark import cluster_readiness, driver_jvm, driver_launch, function_processes, spark_runner
from leman_executor.spark.idle_tasks import IdleTasks, receive_task
from leman_executor.spark.spark_runner import SparkRunner
from leman_executor.worker.worker_link import WorkerTask

ADDRESS = ExecutorEndpoint("127.0.0.1", 1, "job-1", "s3cret")
FUNCTION = FunctionSpec(
    name="f",
    version="1",
    kind=UdfKind.SCALAR,
    input_columns=("x",),
    bundle_uri="",
    bundle_sha256="",
    bundle_python="",
    entrypoint="m:f",
    stateful=False,
    batch_size=0,
    error_policy=ErrorPolicy(),
)


@dataclass
class Context:
    uri: str
    udf: FunctionSpec
    env: str = "sesame"

    def process_name(self, _salt: bytes) -> str:
        return self.udf.identity


CONTEXT: Any = Context("/lake/t.lance", FUNCTION)
SECONDS = 10.0


class FakeContext:
    """A Spark job runs until one of its tags is cancelled, or until `finish` is set."""

    def __init__(self) -> None:
        self.running, self.finish, self.heard = threading.Event(), threading.Event(), threading.Event()
        self.frames: list[int] = []
        self.worker_tasks: list[WorkerTask] = []
        #: All that Spark jobs were given.
        self.values: list[str] = []
        self.cancelled: list[str] = []
        self.properties: dict[int, str | None] = {}
        self._tags: dict[int, set[str]] = defaultdict(set)

    def addJobTag(self, tag: str) -> None:
        self._tags[threading.get_ident()].add(tag)

    def clearJobTags(self) -> None:
        self._tags.pop(threading.get_ident(), None)

    def setLocalProperty(self, _: str, value: str | None) -> None:
        self.properties[threading.get_ident()] = value
        if value is not None:
            self.values.append(value)
            if value.startswith("{"):
                self.worker_tasks.append(msgspec.json.decode(value, type=WorkerTask))

    def cancelJobsWithTag(self, tag: str) -> None:
        self.cancelled.append(tag)
        self.heard.set()
        if any(tag in tags for tags in self._tags.values()):
            self.finish.set()

    @property
    def _jvm(self) -> Any:
        return SimpleNamespace(java=SimpleNamespace(util=SimpleNamespace(ArrayList=list)))

    @property
    def _jsc(self) -> FakeContext:
        return self

    def parallelize(self, *_: object) -> FakeContext:
        return self

    def mapPartitionsWithIndex(self, _: object) -> FakeContext:
        self.frames.append(1)
        return self

    @property
    def _jrdd(self) -> FakeContext:
        return self

    def rdd(self) -> FakeContext:
        return self

    def count(self) -> None:
        self.running.set()
        assert self.finish.wait(SECONDS)
        if self.cancelled:
            raise RuntimeError("Job was cancelled")


@pytest.fixture
def context():
    return FakeContext()


@pytest.fixture
def runner(context, monkeypatch):
    monkeypatch.setattr(spark_runner, "RDD", lambda found, _context: found)
    monkeypatch.setattr(spark_runner, "_LINGER_SECONDS", 0.0)
    runner = SparkRunner(Spark())
    runner._context = context
    monkeypatch.setattr(driver_jvm, "driver_process", lambda: None)
    yield runner
    context.finish.set()
    runner._threads.shutdown()


async def left(runner: SparkRunner, context: FakeContext) -> None:
    """Begins a Spark job and stops waiting for it."""
    workers = asyncio.ensure_future(runner.run_workers(ADDRESS, CONTEXT, 2))
    assert await asyncio.to_thread(context.running.wait, SECONDS)
    workers.cancel()
    with pytest.raises(asyncio.CancelledError):
        await workers


def test_a_spark_job_that_was_left_and_does_not_end_is_cut_off(runner, context):
    async def work() -> None:
        await left(runner, context)
        assert await asyncio.to_thread(context.finish.wait, SECONDS)

    asyncio.run(work())
    assert len(context.cancelled) == 1
    assert context.cancelled[0].startswith("job-1-"), "another Spark job of the same job must not be hit"


def test_one_that_has_ended_is_not_cut_off(runner, context):
    context.finish.set()
    ended = runner._threads.submit(context.count)
    ended.result(SECONDS)
    runner._cut_off("job-1-x", ended)
    runner._threads.shutdown()
    assert context.cancelled == []


def test_stop_job_ends_what_was_left_too(runner, context, monkeypatch):
    monkeypatch.setattr(spark_runner, "_LINGER_SECONDS", SECONDS)

    async def work() -> None:
        await left(runner, context)
        await runner.stop_job("job-1")

    asyncio.run(work())
    assert context.cancelled == ["job-1"]


def test_cancelled_before_it_began(runner):
    runner.cancel("job-1")
    with pytest.raises(Cancelled):
        asyncio.run(runner.run_workers(ADDRESS, CONTEXT, 2))


def test_workers_that_are_asked_for_before_spark_is_up_are_refused_for_now(runner):
    runner._context = None
    with pytest.raises(Unavailable) as caught:
        asyncio.run(runner.run_workers(ADDRESS, CONTEXT, 2))
    assert caught.value.reason == "SPARK_STARTING"


@pytest.mark.parametrize("stopped_for_good", [True, False])
def test_cancelled_while_it_is_on_its_way_to_spark(runner, context, stopped_for_good):
    """Spark does nothing about a tag that no job has: a job that comes after that is not to run for ever."""
    arrived, go_on = threading.Event(), threading.Event()
    tagged = context.addJobTag

    def on_its_way(tag: str) -> None:
        arrived.set()
        assert go_on.wait(SECONDS)
        tagged(tag)

    context.addJobTag = on_its_way

    async def work() -> None:
        workers = asyncio.ensure_future(runner.run_workers(ADDRESS, CONTEXT, 2))
        assert await asyncio.to_thread(arrived.wait, SECONDS)
        if stopped_for_good:
            runner.cancel("job-1")
            go_on.set()
        else:
            stopping = asyncio.ensure_future(runner.stop_job("job-1"))
            await asyncio.to_thread(context.heard.wait, SECONDS)
            go_on.set()
            await stopping
        with pytest.raises(Cancelled):
            await workers

    asyncio.run(work())
    assert len(context.cancelled) > 1


@pytest.mark.parametrize("gives_up", [False, True])
def test_a_thread_keeps_nothing_of_its_job(runner, context, gives_up):
    context.finish.set()
    context.cancelled = ["another"] if gives_up else []
    told = contextlib.nullcontext() if not gives_up else pytest.raises(Unavailable)
    with told:
        asyncio.run(runner.run_workers(ADDRESS, CONTEXT, 2))
    assert context.worker_tasks, "it was told"
    assert set(context.properties.values()) == {None}


def test_every_job_runs_the_same_plan_with_a_worker_task_of_its_own(runner, context):
    context.finish.set()
    asyncio.run(runner.run_workers(ADDRESS, CONTEXT, 2))
    asyncio.run(runner.run_workers(ExecutorEndpoint("h", 2, "job-2", "other"), CONTEXT, 2))
    assert len(context.frames) == 1
    assert [(e.host, e.hello.job_key, e.hello.secret) for e in context.worker_tasks] == [
        ("127.0.0.1", "job-1", "s3cret"),
        ("h", "job-2", "other"),
    ]
    assert {e.function for e in context.worker_tasks} == {"f@1 m:f"}
    assert not any("sesame" in value for value in context.values), "workers are sent the context on their own link"


@pytest.fixture
def standing(runner, context, tmp_path_factory, monkeypatch) -> IdleTasks:
    """Tasks of a Spark job that wait."""
    monkeypatch.setattr(runner, "_folder", SimpleNamespace(sockets=tmp_path_factory.mktemp("s")))
    runner._standing_count = 2
    runner._stand()
    assert context.running.wait(SECONDS)
    assert runner._standing is not None
    return runner._standing


def test_a_job_takes_the_tasks_that_wait_and_new_ones_wait_when_it_is_over(runner, context, standing, monkeypatch):
    monkeypatch.setattr(spark_runner, "_QUIET_SECONDS", 0.0)
    begun = asyncio.Event()

    async def work() -> None:
        workers = asyncio.ensure_future(runner.run_workers(ADDRESS, CONTEXT, 2))
        told = await asyncio.to_thread(receive_task, standing.address, 1)
        assert msgspec.json.decode(told, type=WorkerTask).hello.secret == "s3cret"
        assert runner._standing is None
        runner._stand()
        assert runner._standing is None, "a job runs"
        loop, stand = asyncio.get_running_loop(), runner._stand
        monkeypatch.setattr(runner, "_stand", lambda: (stand(), loop.call_soon(begun.set)))
        context.running.clear()
        context.finish.set()
        await workers
        await asyncio.wait_for(begun.wait(), SECONDS)
        assert await asyncio.to_thread(context.running.wait, SECONDS)

    asyncio.run(work())
    assert len(context.values) == 2, "one Spark job, and the next one that waits"
    assert context.worker_tasks == [], "what a worker is to do is not told to Spark"
    assert context.values[1] != standing.address


def test_as_many_wait_as_jobs_have_asked_for(runner, context, standing, monkeypatch):
    """On a machine with many cores a job that says nothing has as many workers."""
    monkeypatch.setattr(spark_runner.os, "cpu_count", lambda: 8)
    runner._plans[8, None] = runner._plans[99, None] = context

    async def work(many: int) -> None:
        workers = asyncio.ensure_future(runner.run_workers(ADDRESS, CONTEXT, many))
        context.finish.set()
        await workers

    for many, waiting in ((1, 2), (8, 8), (99, 8), (2, 8)):
        asyncio.run(work(many))
        assert runner._standing_count == waiting


@pytest.mark.parametrize("many", [3, 1])
def test_tasks_that_are_of_no_use_to_a_job_end(runner, context, standing, many):
    """Or they would take the slots of its own."""
    profile = SlotProfile(cpus=2) if many == 1 else None

    async def work() -> None:
        workers = asyncio.ensure_future(runner.run_workers(ADDRESS, CONTEXT, many, profile))
        assert await asyncio.to_thread(receive_task, standing.address, 0) == ""
        context.finish.set()
        await workers

    if profile is not None:
        runner._plans[many, profile] = context
    asyncio.run(work())
    assert len(context.worker_tasks) == 1


@pytest.mark.parametrize("stopped_for_good", [True, False])
def test_a_job_that_has_the_tasks_that_waited_is_cancelled(runner, context, standing, stopped_for_good):
    async def work() -> None:
        workers = asyncio.ensure_future(runner.run_workers(ADDRESS, CONTEXT, 2))
        assert await asyncio.to_thread(receive_task, standing.address, 0)
        if stopped_for_good:
            runner.cancel("job-1")
        else:
            await runner.stop_job("job-1")
        with pytest.raises(Cancelled):
            await workers

    asyncio.run(work())
    assert standing.tag in context.cancelled


def test_a_job_that_is_cancelled_before_it_began_leaves_them(runner, standing):
    runner.cancel("job-1")
    with pytest.raises(Cancelled):
        asyncio.run(runner.run_workers(ADDRESS, CONTEXT, 2))
    assert runner._standing is standing


def test_tasks_that_ended_by_themselves_are_given_no_job(runner, context, standing):
    context.finish.set()
    standing.call.result(SECONDS)
    asyncio.run(runner.run_workers(ADDRESS, CONTEXT, 2))
    assert len(context.worker_tasks) == 1


@pytest.mark.parametrize("settings", [Spark(master="local[2]"), Spark(master="spark://h:7077")])
def test_none_wait_where_others_may_need_their_slots(settings, context, tmp_path):
    runner = SparkRunner(settings)
    runner._context, runner._folder = context, SimpleNamespace(sockets=tmp_path)
    runner._stand()
    runner._threads.shutdown()
    assert runner._standing is None
    assert context.values == []


def test_spark_that_gives_up_says_so(runner, context, monkeypatch):
    def fail() -> None:
        raise RuntimeError("Caused by: no more workers")

    monkeypatch.setattr(context, "count", fail)
    with pytest.raises(Unavailable, match="no more workers"):
        asyncio.run(runner.run_workers(ADDRESS, CONTEXT, 2))


class FakeLaunched:
    """A JVM that is up, or that has ended before."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, lives: bool = True) -> None:
        self.archived: list[bool] = []
        self.discarded = self.ended = 0
        self.is_alive = lives
        self.archive = SimpleNamespace(discard=self._discard)
        self.process = SimpleNamespace(returncode=-9)
        self.folder, self.chosen, self.overran = None, dict[str, str](), threading.Event()
        monkeypatch.setattr(spark_runner.LaunchedJvm, "begin", self._begin)
        monkeypatch.setattr(spark_runner, "connect", lambda _: "gateway")
        monkeypatch.setattr(spark_runner.driver_launch, "check_java", lambda: None)
        monkeypatch.setattr(SparkContext, "_gateway", None)

    def _begin(self, _: Spark, *, archived: bool) -> FakeLaunched:
        self.archived.append(archived)
        return self

    def _discard(self) -> None:
        self.discarded += 1

    def limited_to(self, _: float) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def lives(self) -> bool:
        return self.is_alive

    def end(self) -> None:
        self.ended += 1


def test_an_archive_that_the_jvm_dies_of_is_thrown_away(monkeypatch):
    launched, contexts = FakeLaunched(monkeypatch, lives=False), 0

    def open_context(*_: object) -> SimpleNamespace:
        nonlocal contexts
        contexts += 1
        if contexts == 1:
            raise RuntimeError("Answer from Java side is empty")
        return SimpleNamespace(setLogLevel=lambda _: None)

    monkeypatch.setattr(spark_runner, "open_context", open_context)
    monkeypatch.setattr(driver_jvm, "driver_process", lambda: None)
    runner = SparkRunner(Spark())
    monkeypatch.setattr(runner, "_run_spark_job", lambda *_: None)
    runner.start()
    runner._threads.shutdown()
    assert launched.archived == [True, False]
    assert (launched.discarded, launched.ended) == (1, 1)


def test_what_executors_of_a_cluster_have_is_as_spark_says(monkeypatch):
    """Files of Spark's own may have settings, too; and executors that registered are as large as they are."""
    effective = {"spark.executor.memory": "512m", "spark.cores.max": "6"}
    conf = SimpleNamespace(getAll=lambda: list(effective.items()))
    context = SimpleNamespace(applicationId="app-1", setLogLevel=lambda _: None, getConf=lambda: conf)
    runner = SparkRunner(Spark(master="spark://127.0.0.1:7077", conf={"spark.executor.memory": "512m"}))
    FakeLaunched(monkeypatch)
    monkeypatch.setattr(spark_runner, "open_context", lambda *_: context)
    monkeypatch.setattr(cluster_readiness, "executor_cores", lambda _: (2, 4))
    monkeypatch.setattr(runner, "_look_for_workers", lambda: None)
    monkeypatch.setattr(driver_jvm, "driver_process", lambda: None)
    runner.start()
    runner._threads.shutdown()
    found = runner.cluster(1)
    assert (found.cores, found.most_cores, found.registered) == (0, 6, (2, 4))


def test_an_application_that_no_master_has_taken_in_is_no_start(monkeypatch):
    """Spark makes a context of it, which it stops a moment later."""
    context = SimpleNamespace(applicationId="spark-application-1795837402162", setLogLevel=lambda _: None)
    runner = SparkRunner(Spark(master="spark://127.0.0.1:17099"))
    launched = FakeLaunched(monkeypatch)
    monkeypatch.setattr(spark_runner, "open_context", lambda *_: context)
    monkeypatch.setattr(runner, "_look_for_workers", lambda: None)
    with pytest.raises(Unavailable, match=r"spark://127\.0\.0\.1:17099 .*LEMAN_SPARK__MASTER") as caught:
        runner.start()
    runner._threads.shutdown()
    assert caught.value.reason == "SPARK_NOT_STARTED"
    assert not runner.started
    assert launched.ended, "the next start does not find the context that Spark stops"


def test_an_archive_is_kept_where_a_jvm_that_lives_refuses_a_setting(monkeypatch):
    def refuse(*_: object) -> None:
        raise RuntimeError("no such setting")

    launched = FakeLaunched(monkeypatch)
    monkeypatch.setattr(spark_runner, "open_context", refuse)
    runner = SparkRunner(Spark())
    with pytest.raises(Unavailable, match="no such setting"):
        runner.start()
    runner._threads.shutdown()
    assert launched.archived == [True]
    assert (launched.discarded, launched.ended) == (0, 1)


def test_a_jvm_that_does_not_begin_is_told_of_in_its_own_words(monkeypatch, tmp_path):
    """What it printed went by; the message says it, and no master is to blame."""

    program = tmp_path / "bin" / "spark-submit"
    program.parent.mkdir()
    program.write_text(
        "#!/bin/sh\n"
        "echo 'WARNING: Using incubator modules' >&2\n"
        "echo 'Invalid maximum heap size: -Xmx99999t'\n"
        "echo 'Error: Could not create the Java Virtual Machine.' >&2\n"
        "exit 1\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    monkeypatch.setattr(SparkContext, "_gateway", None)
    runner = SparkRunner(Spark(class_archive=False, scratch_dir=str(tmp_path / "scratch")))
    with pytest.raises(Unavailable) as caught:
        runner.start()
    runner._threads.shutdown()
    assert caught.value.reason == "SPARK_NOT_STARTED"
    words = "Invalid maximum heap size: -Xmx99999t; Error: Could not create the Java Virtual Machine"
    assert f"Spark did not start: {words}. Check " in caught.value.message
    assert "LEMAN_SPARK__DRIVER_MEMORY" in caught.value.message
    assert "LEMAN_SPARK__MASTER" not in caught.value.message


class Launcher:
    """A spark-submit of a test's own, in the place of Spark's; `script` runs instead of the JVM."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path, script: str, seconds: float = 60) -> None:
        self._launches = folder / "launches"
        program = folder / "bin" / "spark-submit"
        program.parent.mkdir()
        program.write_text(f"#!/bin/sh\necho $$ >> {self._launches}\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setenv("SPARK_HOME", str(folder))
        monkeypatch.setattr(SparkContext, "_gateway", None)
        monkeypatch.setattr(spark_runner.driver_launch, "check_java", lambda: None)
        scratch = str(folder / "scratch")
        self.runner = SparkRunner(Spark(class_archive=False, scratch_dir=scratch, driver_start_seconds=seconds))

    @property
    def pids(self) -> list[int]:
        return [int(line) for line in self._launches.read_text().splitlines()]

    def check_not_started(self, why: str) -> None:
        """Two starts after one another: each starts a JVM, and leaves none."""
        for _ in range(2):
            before = len(self.pids) if self._launches.exists() else 0
            with pytest.raises(Unavailable, match=why) as caught:
                self.runner.start()
            assert caught.value.reason == "SPARK_NOT_STARTED"
            assert len(self.pids) > before
            assert SparkContext._gateway is None
        assert not [pid for pid in self.pids if psutil.pid_exists(pid)]
        self.runner._threads.shutdown()


#: Listens, says where as a JVM does, and answers no connection.
SILENT = """
import os, socket, struct, time
path = os.environ["_PYSPARK_DRIVER_CONN_INFO_PATH"]
listener = socket.create_server(("127.0.0.1", 0))
with open(path + "-", "wb") as file:
    file.write(struct.pack(">ii", listener.getsockname()[1], 1) + b"s")
os.replace(path + "-", path)
"""


def test_a_jvm_that_ends_without_an_error_before_it_is_up_is_no_wait_without_end(monkeypatch, tmp_path):
    Launcher(monkeypatch, tmp_path, "exit 0").check_not_started("ended during its start")


def test_a_jvm_that_never_says_how_to_reach_it_is_ended(monkeypatch, tmp_path):
    Launcher(monkeypatch, tmp_path, "exec sleep 600", 0.3).check_not_started("not up within 0.3 s")


def test_a_jvm_that_says_how_to_reach_it_and_dies_is_forgotten(monkeypatch, tmp_path):
    (tmp_path / "jvm.py").write_text(SILENT)
    script = f"exec {sys.executable} {tmp_path}/jvm.py"
    Launcher(monkeypatch, tmp_path, script).check_not_started("the JVM ended")


def test_a_jvm_that_takes_a_connection_and_never_answers_is_ended(monkeypatch, tmp_path):
    (tmp_path / "jvm.py").write_text(f"{SILENT}\ntime.sleep(600)\n")
    script = f"exec {sys.executable} {tmp_path}/jvm.py"
    Launcher(monkeypatch, tmp_path, script, 1.0).check_not_started("not up within 1 s")


def test_a_stop_ends_a_jvm_that_starts(monkeypatch, tmp_path):
    launcher = Launcher(monkeypatch, tmp_path, "exec sleep 600")
    starting = launcher.runner.start_meanwhile()
    while not (tmp_path / "launches").exists():
        assert not starting.done()
    launcher.runner.stop()
    assert starting.exception(SECONDS) is not None
    assert not psutil.pid_exists(launcher.pids[0])
    assert len(launcher.pids) == 1


def test_a_jvm_that_comes_up_after_all_says_nothing(monkeypatch, tmp_path):
    program = tmp_path / "bin" / "spark-submit"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho hello\n")
    program.chmod(0o755)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert driver_launch.startup_error({"spark.a": "b"}) == ""


def test_a_session_that_is_for_the_first_job_is_told_to_start():
    runner = SparkRunner(Spark(on_demand=True))
    assert runner.busy_for("job-1") == "Spark is starting, which takes some seconds"
    runner._jvm.warm = True
    assert runner.busy_for("job-1") == ""
    runner._threads.shutdown()


def test_the_worker_task_that_warms_up_does_nothing():
    assert function_processes.run("null") == 0


def test_the_jvm_is_asked_to_give_memory_back(monkeypatch):
    collected: list[bool] = []
    system = SimpleNamespace(gc=lambda: collected.append(True))
    jvm = SimpleNamespace(java=SimpleNamespace(lang=SimpleNamespace(System=system)))
    runner = SparkRunner(Spark())
    runner.release_memory()  # there is none yet
    monkeypatch.setattr(runner, "_context", SimpleNamespace(_jvm=jvm))
    runner.release_memory()
    monkeypatch.setattr(runner, "_context", SimpleNamespace(_jvm=None))
    runner.release_memory()  # it is going
    runner._threads.shutdown()
    assert collected == [True]


def test_where_few_files_may_be_open_the_error_says_so(monkeypatch, tmp_path):
    few = (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    monkeypatch.setattr(spark_runner.resource, "getrlimit", lambda _: few)
    script = "echo 'InternalError: Error loading java.security file' >&2; exit 1"
    Launcher(monkeypatch, tmp_path, script).check_not_started(r"open 256 files at once \(ulimit -n\).*needs 1,024")
