"""Where Spark's workers call back, and what is said of those that cannot work."""

from __future__ import annotations

import asyncio
import dataclasses
import socket
import threading
from types import SimpleNamespace

import pyarrow as pa
import pytest
import structlog.testing

from leman._format.stored_functions import UdfDefinition, UdfKind
from leman_core.model.service_errors import FailedPrecondition, Unavailable
from leman_core.settings import Spark, Udf
from leman_executor.jobs import job_environment as job_services
from leman_executor.jobs.job_environment import JobEnvironment
from leman_executor.scheduling.dispatcher import Dispatcher, ExecutorEndpoint
from leman_executor.spark import cluster_readiness, spark_conf, spark_runner, worker_problems
from leman_executor.spark.driver_jvm import java_cause
from leman_executor.spark.spark_conf import CallbackAddress, callback_address, has_cluster, warn_of_open_spark
from leman_executor.spark.spark_runner import SparkRunner

CLUSTER = "spark://127.0.0.1:7077"
MISSING = (
    'java.io.IOException: Cannot run program "/opt/leman/bin/python": error=2, No such file or directory\n'
    "\tat java.base/java.lang.ProcessBuilder.start(ProcessBuilder.java:1143)"
)
NO_MODULE = (
    "org.apache.spark.SparkException: \nError from python worker:\n  /usr/bin/python3: Error while finding module "
    "specification for 'leman_executor.spark.daemon' (ModuleNotFoundError: No module named 'executor')"
)
OTHER = "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9 than that in driver: 3.11, PySpark"


@pytest.fixture(autouse=True)
def no_local_ip(monkeypatch):
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)


@pytest.mark.parametrize("master", ["", "local", "local[4,2]", "local-cluster[1,2,1024]"])
def test_a_local_master_is_on_loopback_whatever_is_advertised(master):
    assert callback_address(Spark(master=master, driver_host="10.0.0.1")) == CallbackAddress("127.0.0.1", "127.0.0.1")


def test_links_to_workers_are_encrypted_wherever_spark_has_a_cluster():
    masters = ["", "local", "local[*]", "local[2,4]", "local-cluster[1,2,1024]", CLUSTER, "yarn", "k8s://https://h:1"]
    assert [has_cluster(Spark(master=master)) for master in masters] == [False] * 4 + [True] * 4


@pytest.mark.parametrize(
    ("conf", "missing"),
    [
        ({}, ["spark.authenticate", "spark.network.crypto.enabled"]),
        ({"spark.authenticate": "true"}, ["spark.network.crypto.enabled"]),
        ({"spark.authenticate": "true", "spark.network.crypto.enabled": "true"}, None),
        ({"spark.ssl.rpc.enabled": "true"}, None),
    ],
    ids=str,
)
def test_the_log_warns_where_sparks_own_connections_are_open(conf, missing):
    with structlog.testing.capture_logs() as lines:
        warn_of_open_spark(Spark(master=CLUSTER, conf=conf))
    assert [(line["reason"], line["missing"]) for line in lines] == (
        [("SPARK_NOT_AUTHENTICATED", missing)] if missing else []
    )


def test_a_cluster_gets_the_address_that_this_machine_has_towards_the_master():
    assert callback_address(Spark(master=CLUSTER)).host == "127.0.0.1"
    assert callback_address(Spark(master="yarn")).host == socket.getfqdn()


def test_what_is_advertised_need_not_be_an_address_of_this_machine():
    """A container behind the address of its host."""
    found = callback_address(Spark(master=CLUSTER, driver_host="192.0.2.7", callback_port=7100))
    assert found == CallbackAddress("192.0.2.7", "0.0.0.0", 7100, 7101, 7102)
    assert found.spark_settings() == {
        "spark.driver.host": "192.0.2.7",
        "spark.driver.bindAddress": "0.0.0.0",
        "spark.driver.port": "7100",
        "spark.driver.blockManager.port": "7101",
    }


def test_the_settings_of_spark_win_and_spark_local_ip_counts(monkeypatch):
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.2")
    assert callback_address(Spark(master=CLUSTER)).host == "127.0.0.2"
    assert callback_address(Spark(master=CLUSTER, driver_host="127.0.0.3")).host == "127.0.0.3"
    named = Spark(master=CLUSTER, driver_host="127.0.0.3", conf={"spark.driver.host": "127.0.0.4"})
    assert callback_address(named).host == "127.0.0.4"


def test_workers_are_told_the_advertised_host_and_the_fixed_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    async def opened() -> tuple[ExecutorEndpoint, str]:
        dispatcher = Dispatcher("leman.example", "127.0.0.1", port)
        await dispatcher.start()
        second = Dispatcher("leman.example", "127.0.0.1", port)
        try:
            await second.start()
        except Unavailable as error:
            return dispatcher.open("job", None, None), str(error)
        finally:
            await dispatcher.stop()
        return dispatcher.open("job", None, None), ""

    told, refused = asyncio.run(opened())
    assert (told.host, told.port) == ("leman.example", port)
    assert f"cannot listen for workers on 127.0.0.1:{port}: LEMAN_SPARK__CALLBACK_PORT: another process" in refused


def test_the_workers_interpreter_is_the_one_that_is_named():
    assert spark_conf.context(Spark(), [], "./env/bin/python")["spark.pyspark.python"] == "./env/bin/python"
    assert SparkRunner(Spark(python="./env/bin/python"))._python == "./env/bin/python"


@pytest.mark.parametrize(
    ("message", "what"),
    [
        (MISSING, "cannot run /opt/leman/bin/python: No such file"),
        (NO_MODULE, "which has no module executor"),
        (OTHER, "another Python: .*3.9"),
    ],
)
def test_a_worker_that_cannot_run_python_is_named_with_the_path(message, what):
    error = worker_problems.unusable_python(message, "10.86.0.12", "/opt/leman/bin/python")
    assert error is not None
    assert (error.reason, error.facts["host"]) == ("WORKER_PYTHON_UNUSABLE", "10.86.0.12")
    assert "10.86.0.12" in error.message
    with pytest.raises(FailedPrecondition, match=what):
        raise error


def test_other_failures_of_tasks_are_not_the_interpreters():
    for message in ("FunctionProcessEnded: the function's process ended with code 1", "ModuleNotFoundError: No module"):
        assert worker_problems.unusable_python(message, "h", "p") is None


BAD_VALUE = (
    "An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.\n"
    ": org.apache.spark.SparkIllegalArgumentException: [INVALID_CONF_VALUE.TYPE_MISMATCH] The value 'abc'\n"
    "\tat org.apache.spark.SparkConf.getInt(SparkConf.scala:1)\n"
)


def test_sparks_own_words_say_why_it_does_not_start():
    words = java_cause(RuntimeError(BAD_VALUE))
    assert words == "org.apache.spark.SparkIllegalArgumentException: [INVALID_CONF_VALUE.TYPE_MISMATCH] The value 'abc'"
    deeper = java_cause(RuntimeError(f"{BAD_VALUE}Caused by: java.net.BindException: in use\n\tat x.y(z)"))
    assert deeper == "Caused by: java.net.BindException: in use"
    assert java_cause(RuntimeError("An error occurred while calling o1.x")) == "An error occurred while calling o1.x"


@pytest.mark.parametrize(
    ("why", "local", "has_jvm", "named"),
    [
        ("Invalid maximum heap size: -Xmx1x", False, False, {"DRIVER_MEMORY", "CONF"}),
        ("SparkIllegalArgumentException: [INVALID_DRIVER_MEMORY.SYSTEM_MEMORY] Insuff", True, True, {"DRIVER_MEMORY"}),
        ("NumberFormatException: lots", True, True, {"CONF"}),
        ("SparkIllegalArgumentException: abc", False, True, {"CONF"}),
        ("SparkException: Could not parse Master URL: 'local[x]'", True, True, {"MASTER"}),
        ("SparkException: Master must either be yarn or start with spark", False, False, {"MASTER"}),
        ("UnknownHostException: rm", False, True, {"CONF", "MASTER"}),
    ],
)
def test_what_to_see_to_is_as_spark_says_why_it_does_not_start(why, local, has_jvm, named):
    error = worker_problems.not_started("yarn", why, local=local, has_jvm=has_jvm)
    assert error.reason == "SPARK_NOT_STARTED"
    assert f"Spark did not start: {why}. Check " in error.message
    assert {name for name in ("DRIVER_MEMORY", "CONF", "MASTER") if f"LEMAN_SPARK__{name}" in error.message} == named


class Workers:
    """In place of Spark: a warm-up that ends when told, and what it says of failed tasks."""

    def __init__(self, monkeypatch, **settings):
        self.runner = SparkRunner(Spark(master=CLUSTER, driver_host="10.9.8.7", **settings))
        self.there, self.said = threading.Event(), []
        self.cancelled, self.cut_off = threading.Event(), threading.Event()
        self.ended = threading.Semaphore(0)
        monkeypatch.setattr(spark_runner, "_LOOK_SECONDS", 0.01)
        monkeypatch.setattr(spark_runner, "_AGAIN_SECONDS", 0.01)
        monkeypatch.setattr(cluster_readiness, "failed_tasks", lambda *_: iter(self.said))
        monkeypatch.setattr(self.runner, "_run_spark_job", self.collect)
        context = SimpleNamespace(getConf=lambda: {"spark.driver.port": "7100"}, cancelJobsWithTag=self.cancel)
        self.runner._context = context
        self.runner._readiness.context = context
        monkeypatch.setattr(cluster_readiness, "total_cores", lambda _: 0)
        monkeypatch.setattr(cluster_readiness.worker_problems, "read_capacity", lambda *_: None)
        monkeypatch.setattr(self.runner, "slots", lambda _: 4)

    def collect(self, *_: object) -> None:
        while not self.there.wait(0.01):
            if self.cancelled.is_set():
                self.cancelled.clear()
                self.ended.release()
                raise RuntimeError("cancelled")

    def cancel(self, _tag: str) -> None:
        self.cancelled.set()
        self.cut_off.set()

    def end(self) -> None:
        self.runner._jvm.stopping = True
        self.there.set()
        self.runner._threads.shutdown()


@pytest.fixture
def workers(monkeypatch):
    made = Workers(monkeypatch, start_seconds=0.1)
    yield made
    made.end()


def until(condition) -> None:
    pause = threading.Event()
    for _ in range(1000):
        if condition():
            return
        pause.wait(0.01)
    raise AssertionError("it did not happen")


def test_a_start_without_workers_is_bounded_says_why_and_heals(workers):
    workers.runner._threads.submit(workers.runner._look_for_workers)
    until(lambda: workers.runner.trouble is not None)
    trouble = workers.runner.trouble
    assert trouble is not None
    assert trouble.reason == "WORKERS_CANNOT_REACH_DRIVER"
    assert "workers cannot reach the driver at 10.9.8.7:7100" in trouble.message
    workers.there.set()
    until(lambda: workers.runner.trouble is None)


def test_a_missing_interpreter_is_told_from_the_first_task_that_failed(workers):
    workers.said.append((MISSING, "10.86.0.12"))
    workers.runner._threads.submit(workers.runner._look_for_workers)
    until(lambda: workers.runner.trouble is not None)
    assert workers.runner.trouble.reason == "WORKER_PYTHON_UNUSABLE"
    workers.said.clear()
    workers.there.set()
    until(lambda: workers.runner.trouble is None)


def test_only_functions_are_refused_while_workers_cannot_run_them():
    trouble = worker_problems.unreachable(CLUSTER, "10.9.8.7", "7100", 60)
    names = {field.name: None for field in dataclasses.fields(JobEnvironment)}
    services = JobEnvironment(**names | {"spark": SimpleNamespace(trouble=trouble)})
    python, sql = (SimpleNamespace(kind=kind) for kind in (UdfKind.SCALAR, UdfKind.SQL))
    services.check_can_run([sql])
    services.check_can_run([])
    for _ in range(2):
        with pytest.raises(Unavailable, match="cannot reach the driver"):
            services.check_can_run([sql, python])
    names["spark"] = SimpleNamespace(trouble=None)
    JobEnvironment(**names).check_can_run([python])


def test_a_job_says_in_an_event_that_workers_cannot_run_functions(workers):
    workers.runner._readiness.trouble = worker_problems.unreachable(CLUSTER, "10.9.8.7", "7100", 60)
    assert "cannot reach the driver" in workers.runner.busy_for("job-1")


def test_a_running_job_ends_at_the_first_worker_without_an_interpreter(workers, monkeypatch):
    workers.said.append((MISSING, "10.86.0.12"))
    context = SimpleNamespace(process_name=lambda _salt: "f@1 x")
    monkeypatch.setattr(spark_runner.msgspec.json, "encode", lambda _: b"{}")
    with pytest.raises(FailedPrecondition, match=r"10\.86\.0\.12 cannot run /opt/leman/bin/python"):
        asyncio.run(workers.runner.run_workers(ExecutorEndpoint("h", 1, "job-1", "s"), context, 2))
    assert workers.cut_off.wait(10)


def test_a_running_job_does_not_wait_for_workers_for_ever(workers, monkeypatch):
    workers.runner._readiness.trouble = worker_problems.unreachable(CLUSTER, "10.9.8.7", "7100", 60)
    context = SimpleNamespace(process_name=lambda _salt: "f@1 x")
    monkeypatch.setattr(spark_runner.msgspec.json, "encode", lambda _: b"{}")
    for _ in range(2):
        with pytest.raises(Unavailable, match="cannot reach the driver"):
            asyncio.run(workers.runner.run_workers(ExecutorEndpoint("h", 1, "job-1", "s"), context, 2))
        assert workers.ended.acquire(timeout=20), "its cancel would be the next one's"


def test_workers_follow_the_cores_of_the_cluster_unless_the_settings_say(monkeypatch):
    wanted = []
    monkeypatch.setattr(job_services, "slots_for", lambda _udf, count, _find: wanted.append(count))
    spark = SimpleNamespace(slots=lambda _here: 12)
    for kind, concurrency, slots in (("scalar", 0, 0), ("scalar", 3, 0), ("scalar", 0, 2), ("sql", 0, 0)):
        settings = SimpleNamespace(executor=SimpleNamespace(slots=slots), udf=Udf())
        services = SimpleNamespace(slots=slots or 2, settings=settings, spark=spark, cluster=None)
        udf = UdfDefinition("f", "1", UdfKind(kind), (), pa.int64(), entrypoint="" if kind == "sql" else "m:f")
        job_services.task_slots_for(udf, concurrency, services)
    assert wanted == [12, 3, 2, 2]


def test_an_address_of_this_machine_is_told_from_others():
    assert spark_conf._is_ours("127.0.0.1")
    assert not spark_conf._is_ours("192.0.2.7")
