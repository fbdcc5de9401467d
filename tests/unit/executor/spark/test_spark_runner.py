"""The Spark runner over a context that does as it is told."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import threading
from collections import defaultdict
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from pyspark import SparkContext

from core.config import Spark
from core.domain.udf import ErrorPolicy, UdfKind
from core.domain.work import UdfRef
from core.errors import Unavailable
from executor.scheduling.cancelled import Cancelled
from executor.scheduling.dispatcher import ExecutorEndpoint
from executor.scheduling.resources import SlotProfile
from executor.spark import driver_jvm, driver_launch, function_processes, readiness, spark_runner, spark_task
from executor.spark.spark_runner import SparkRunner
from executor.spark.standing_tasks import StandingTasks, asked
from executor.worker.messages import WorkerTask

ADDRESS = ExecutorEndpoint("127.0.0.1", 1, "job-1", "s3cret")
FUNCTION = UdfRef(
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
    udf: UdfRef

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
        #: All that Spark jobs were told.
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
    monkeypatch.setattr(spark_task, "RDD", lambda found, _context: found)
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
    assert [(e.host, e.hello.job_id, e.hello.secret) for e in context.worker_tasks] == [
        ("127.0.0.1", "job-1", "s3cret"),
        ("h", "job-2", "other"),
    ]
    assert msgspec.json.decode(context.worker_tasks[0].context, type=Context) == CONTEXT
    assert {e.function for e in context.worker_tasks} == {"f@1 m:f"}


@pytest.fixture
def standing(runner, context, tmp_path_factory, monkeypatch) -> StandingTasks:
    """Tasks of a Spark job that wait."""
    monkeypatch.setattr(runner, "_folder", SimpleNamespace(path=tmp_path_factory.mktemp("s")))
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
        told = await asyncio.to_thread(asked, standing.address, 1)
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
        assert await asyncio.to_thread(asked, standing.address, 0) == ""
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
        assert await asyncio.to_thread(asked, standing.address, 0)
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
    runner._context, runner._folder = context, SimpleNamespace(path=tmp_path)
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


def test_an_archive_that_the_jvm_dies_of_is_thrown_away(monkeypatch):
    opened: list[list[str]] = []
    thrown: list[bool] = []

    def open_context(chosen: dict[str, str], _gateway: object = None) -> SimpleNamespace:
        options = chosen["spark.driver.extraJavaOptions"].split()
        opened.append([option for option in options if "SharedArchive" in option])
        if opened[-1]:
            raise RuntimeError("JAVA_GATEWAY_EXITED")
        return SimpleNamespace(setLogLevel=lambda _: None)

    archive = SimpleNamespace(use=lambda: ["-XX:SharedArchiveFile=broken"], discard=lambda: thrown.append(True))
    monkeypatch.setattr(driver_launch, "archive_of", lambda _: archive)
    runner = SparkRunner(Spark())
    monkeypatch.setattr(spark_runner, "open_context", open_context)
    monkeypatch.setattr(runner, "_run_spark_job", lambda *_: None)
    monkeypatch.setattr(driver_jvm, "driver_process", lambda: None)
    runner.start()
    runner._threads.shutdown()
    assert opened == [["-XX:SharedArchiveFile=broken"], []]
    assert thrown == [True]


def test_what_executors_of_a_cluster_have_is_as_spark_says(monkeypatch):
    """Files of Spark's own may have settings, too; and executors that registered are as large as they are."""
    effective = {"spark.executor.memory": "512m", "spark.cores.max": "6"}
    conf = SimpleNamespace(getAll=lambda: list(effective.items()))
    context = SimpleNamespace(applicationId="app-1", setLogLevel=lambda _: None, getConf=lambda: conf)
    runner = SparkRunner(Spark(master="spark://127.0.0.1:7077", conf={"spark.executor.memory": "512m"}))
    monkeypatch.setattr(spark_runner, "open_context", lambda *_: context)
    monkeypatch.setattr(readiness, "executor_cores", lambda _: (2, 4))
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
    monkeypatch.setattr(spark_runner, "open_context", lambda *_: context)
    monkeypatch.setattr(runner, "_look_for_workers", lambda: None)
    with pytest.raises(Unavailable, match=r"spark://127\.0\.0\.1:17099 .*LEMAN_SPARK__MASTER") as caught:
        runner.start()
    runner._threads.shutdown()
    assert caught.value.reason == "SPARK_NOT_STARTED"
    assert not runner.started


def test_an_archive_is_kept_where_a_jvm_that_lives_refuses_a_setting(monkeypatch):
    def refuse(*_: object) -> None:
        raise RuntimeError("no such setting")

    monkeypatch.setattr(driver_launch, "archive_of", lambda _: SimpleNamespace(use=lambda: ["-XX:SharedArchiveFile=a"]))
    monkeypatch.setattr(spark_runner, "open_context", refuse)
    monkeypatch.setattr(spark_runner, "driver_lives", lambda: True)
    runner = SparkRunner(Spark())
    with pytest.raises(Unavailable, match="no such setting"):
        runner.start()
    runner._threads.shutdown()


def test_a_jvm_that_dies_a_moment_after_its_sockets_does_not_live(monkeypatch):
    with subprocess.Popen(["sleep", "600"]) as process:
        monkeypatch.setattr(driver_jvm, "driver_process", lambda: process)
        assert driver_jvm.driver_lives()
        process.kill()
        assert not driver_jvm.driver_lives()
    monkeypatch.setattr(driver_jvm, "driver_process", lambda: None)
    assert not driver_jvm.driver_lives()


def test_a_jvm_that_does_not_begin_is_told_of_in_its_own_words(monkeypatch, tmp_path):
    """What it printed went by; the message says it, and no master is to blame."""

    def give_up(*_: object) -> None:
        raise RuntimeError("[JAVA_GATEWAY_EXITED] Java gateway process exited before sending its port number.")

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
    monkeypatch.setattr(spark_runner, "open_context", give_up)
    runner = SparkRunner(Spark(class_archive=False, scratch_dir=str(tmp_path / "scratch")))
    with pytest.raises(Unavailable) as caught:
        runner.start()
    runner._threads.shutdown()
    assert caught.value.reason == "SPARK_NOT_STARTED"
    words = "Invalid maximum heap size: -Xmx99999t; Error: Could not create the Java Virtual Machine"
    assert f"Spark did not start: {words}. See to " in caught.value.message
    assert "LEMAN_SPARK__DRIVER_MEMORY" in caught.value.message
    assert "LEMAN_SPARK__MASTER" not in caught.value.message


def test_a_jvm_that_comes_up_after_all_says_nothing(monkeypatch, tmp_path):
    program = tmp_path / "bin" / "spark-submit"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho hello\n")
    program.chmod(0o755)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert driver_launch.last_words({"spark.a": "b"}) == ""


def test_a_session_that_is_for_the_first_job_is_told_to_start():
    runner = SparkRunner(Spark(on_demand=True))
    assert runner.busy_for("job-1") == "Spark starts, which takes some seconds"
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
