"""A cluster whose cores are taken is distinguished from one whose workers cannot reach the driver."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

from leman_core.model.service_errors import LemanError, ResourceExhausted
from leman_executor.scheduling.dispatcher import ExecutorEndpoint
from leman_executor.spark import cluster_readiness, spark_runner, worker_problems
from leman_executor.spark.cluster_readiness import CapacityWatch
from leman_executor.spark.worker_problems import Capacity, WorkerSize, capacity_of, standalone_masters
from tests.unit.executor.spark.test_worker_problems import CLUSTER, Workers, until

FULL, FREE, TAKEN = (
    Capacity(workers=2, cores=4, used=4, waits=True),
    Capacity(workers=2, cores=4, used=0, waits=False),
    Capacity(workers=2, cores=4, used=4, waits=False),
)
GIB = 1 << 30


def page(cores: int, state: str, *, used: int, of: int = 4, workers: int = 2) -> dict[str, object]:
    """What a master serves of two applications."""
    others = {"id": "app-2", "cores": 4, "state": "RUNNING"}
    apps = [others, {"id": "app-1", "cores": cores, "state": state}]
    return {"aliveworkers": workers, "cores": of, "coresused": used, "activeapps": apps, "status": "ALIVE"}


@pytest.mark.parametrize(
    ("said", "waits"),
    [
        (page(0, "WAITING", used=4), True),
        (page(0, "WAITING", used=1), True),  # of the memory or the cores that it wants no one has enough
        (page(0, "WAITING", used=0, of=0, workers=0), True),
        (page(2, "RUNNING", used=4), False),
        (page(0, "RUNNING", used=0), False),  # its executors die one after the other
        (page(0, "RUNNING", used=4), True),  # it had some, and others have their cores now
    ],
)
def test_who_waits_for_cores_is_told_by_the_master(said, waits):
    capacity = capacity_of(said, "app-1")
    assert capacity is not None
    assert (capacity.waits, capacity.used, capacity.cores) == (waits, said["coresused"], said["cores"])


def test_a_master_that_does_not_know_the_application_tells_nothing():
    assert capacity_of(page(0, "WAITING", used=4), "app-3") is None
    assert capacity_of({"activeapps": [], "status": "STANDBY"}, "app-1") is None


def test_the_masters_of_a_url():
    assert list(standalone_masters("spark://one:7077,two:7078")) == [("one", 7077), ("two", 7078)]
    assert list(standalone_masters("spark://[::1]:7077")) == [("[::1]", 7077)]
    assert list(standalone_masters("yarn")) == list(standalone_masters("k8s://https://host:443")) == []


def test_of_several_masters_the_one_that_leads_is_heard(monkeypatch):
    def web_port(_context: object, host: str, _port: int) -> int:
        if host == "dead":
            raise OSError(host)
        return {"stands by": 1, "leads": 2}[host]

    pages = {1: {"activeapps": [], "status": "STANDBY"}, 2: page(0, "WAITING", used=4)}
    monkeypatch.setattr(worker_problems, "_web_port", web_port)
    monkeypatch.setattr(worker_problems, "_page", lambda _host, port: pages[port])
    context = SimpleNamespace(applicationId="app-1")
    assert worker_problems.read_capacity(context, "spark://dead:1,stands by:1,leads:1") == FULL
    assert worker_problems.read_capacity(context, "spark://dead:1") is None
    assert worker_problems.read_capacity(context, "yarn") is None


@pytest.mark.parametrize(
    ("capacity", "words"),
    [
        (FULL, "all 4 cores of spark://127.0.0.1:7077 are in use by other applications"),
        (Capacity(workers=0, cores=0, used=0, waits=True), "has no workers"),
        (Capacity(workers=2, cores=4, used=1, waits=True), r"enough free cores and memory .*spark\.executor\.memory"),
    ],
)
def test_what_the_cluster_lacks_is_said(capacity, words):
    with pytest.raises(ResourceExhausted, match=words) as caught:
        raise worker_problems.busy(CLUSTER, capacity)
    assert caught.value.reason == "CLUSTER_BUSY"


class Clocked:
    """A watch with a clock of its own, of a cluster that is as `capacity` says."""

    def __init__(self) -> None:
        self.now, self.cores, self.asked = 100.0, 0, 0
        self.capacity: Capacity | None = FULL
        self.watch = CapacityWatch(CLUSTER, lambda: self.cores, self.look, lambda: (2, GIB), lambda: self.now)

    def look(self) -> Capacity | None:
        self.asked += 1
        return self.capacity

    def after(self, seconds: float) -> CapacityWatch:
        self.now += seconds
        self.watch.check()
        return self.watch


def test_workers_have_their_time_from_when_there_is_capacity_for_them():
    clocked = Clocked()
    assert clocked.after(70).seconds_with_capacity == 0
    assert clocked.watch.busy is not None
    clocked.capacity = TAKEN
    assert clocked.after(10).seconds_with_capacity == 10
    assert clocked.watch.busy is None
    clocked.capacity = None
    assert clocked.after(10).seconds_with_capacity == 20


def test_the_time_that_spark_itself_needs_to_start_does_not_count():
    clocked = Clocked()
    clocked.capacity = None
    clocked.now += 100
    clocked.watch.begin()
    assert clocked.after(10).seconds_with_capacity == 10


def test_a_cluster_that_tells_nothing_is_none_that_is_full():
    clocked = Clocked()
    clocked.capacity = None
    assert (clocked.after(70).seconds_with_capacity, clocked.watch.busy, clocked.watch.knows) == (70, None, False)


def test_the_master_is_asked_now_and_then_and_only_while_no_executor_is_there():
    clocked = Clocked()
    for _ in range(8):
        clocked.after(0.5)
    assert clocked.asked == 2
    clocked.cores = 4
    assert clocked.after(10).busy is None
    assert clocked.asked == 2


def test_how_long_a_job_has_waited_counts_from_its_begin_and_from_the_last_break():
    clocked = Clocked()
    clocked.after(10)
    begin = clocked.now
    assert clocked.after(30).seconds_without(begin) == 30
    clocked.capacity = TAKEN
    assert clocked.after(10).seconds_without(begin) == 0
    clocked.capacity = FULL
    clocked.after(10)
    assert clocked.after(5).seconds_without(begin) == 5


def with_workers(*sizes: WorkerSize) -> Capacity:
    return replace(FULL, used=0, sizes=sizes)


def test_a_cluster_whose_workers_are_too_small_is_none_that_is_full():
    clocked = Clocked()
    clocked.capacity = with_workers(WorkerSize(8, GIB // 2), WorkerSize(1, 8 * GIB))
    begin = clocked.now
    assert clocked.after(10).busy is not None
    assert clocked.watch.busy.reason == "RESOURCES_NOT_AVAILABLE"
    assert not clocked.watch.is_full
    assert "is to have 2 cores and 1 GiB" in clocked.watch.busy.message
    assert "the largest has 8 cores and 0.5 GiB" in clocked.watch.busy.message
    clocked.after(5)
    clocked.capacity = with_workers(WorkerSize(2, GIB))
    assert clocked.after(10).is_full
    assert clocked.watch.seconds_without(begin) == 0, "the time for the other reason does not count"


def test_the_only_worker_that_was_large_enough_may_have_died():
    """The master says that an application that had executors still runs."""
    clocked = Clocked()
    clocked.capacity = replace(with_workers(WorkerSize(1, 8 * GIB)), waits=False)
    begin = clocked.now
    assert clocked.after(10).busy is not None
    assert clocked.watch.busy.reason == "RESOURCES_NOT_AVAILABLE"
    assert clocked.after(20).seconds_without(begin) == 20
    clocked.capacity = replace(with_workers(WorkerSize(2, GIB)), waits=False)
    assert clocked.after(10).busy is None


@pytest.mark.parametrize(
    ("conf", "size", "reason"),
    [
        ({"spark.executor.cores": "4"}, WorkerSize(2, 4 * GIB), "RESOURCES_NOT_AVAILABLE"),
        ({"spark.executor.memory": "8g"}, WorkerSize(2, 4 * GIB), "RESOURCES_NOT_AVAILABLE"),
        ({"spark.executor.cores": "2", "spark.executor.memory": "4g"}, WorkerSize(2, 4 * GIB), "CLUSTER_BUSY"),
        ({}, WorkerSize(1, GIB), "CLUSTER_BUSY"),
    ],
)
def test_a_job_that_no_worker_could_ever_run_waits_as_long_as_a_larger_one_may_register(
    monkeypatch, conf, size, reason
):
    limits = {"start_seconds": 3600.0, "busy_seconds": 3600.0}
    limits["busy_seconds" if reason == "CLUSTER_BUSY" else "start_seconds"] = 0.2
    made = Workers(monkeypatch, **limits, conf=conf)
    monkeypatch.setattr(cluster_readiness, "_ASK_SECONDS", 0.01)
    monkeypatch.setattr(cluster_readiness.worker_problems, "read_capacity", lambda *_: with_workers(size))
    monkeypatch.setattr(spark_runner.msgspec.json, "encode", lambda _: b"{}")
    context = SimpleNamespace(process_name=lambda _salt: "f@1 x")
    try:
        with pytest.raises(LemanError) as caught:
            asyncio.run(made.runner.run_workers(ExecutorEndpoint("h", 1, "job-1", "s"), context, 2))
    finally:
        made.end()
    assert caught.value.reason == reason


@pytest.fixture
def full(monkeypatch):
    """Workers that do not come, as the cluster is full."""
    made = Workers(monkeypatch, start_seconds=0.1, busy_seconds=0.3)
    made.capacity = FULL
    monkeypatch.setattr(cluster_readiness, "_ASK_SECONDS", 0.01)
    monkeypatch.setattr(cluster_readiness.worker_problems, "read_capacity", lambda *_: made.capacity)
    monkeypatch.setattr(spark_runner.msgspec.json, "encode", lambda _: b"{}")
    yield made
    made.end()


def test_a_full_cluster_is_no_trouble_and_jobs_are_accepted(full):
    full.runner._threads.submit(full.runner._look_for_workers)
    until(lambda: full.runner.busy_for("job-1"))
    begin = time.monotonic()
    until(lambda: time.monotonic() - begin > 3 * 0.1 or full.runner.trouble)
    assert full.runner.trouble is None
    full.capacity = FREE
    until(lambda: full.runner.trouble is not None)
    assert full.runner.trouble.reason == "WORKERS_CANNOT_REACH_DRIVER"
    assert "free cores" not in full.runner.trouble.message, "the master says that there are some"
    assert "cannot reach the driver" in full.runner.busy_for("job-1"), "the job's event has the reason"


def test_workers_that_have_registered_and_are_not_ready_yet_are_no_trouble(full, monkeypatch):
    """They may have an environment of hundreds of megabytes to unpack: they do reach the driver."""
    monkeypatch.setattr(cluster_readiness, "total_cores", lambda _: 4)
    full.runner._threads.submit(full.runner._look_for_workers)
    begin = time.monotonic()
    until(lambda: time.monotonic() - begin > 3 * 0.1 or full.runner.trouble)
    assert full.runner.trouble is None
    assert not full.runner.busy_for("job-1")


def test_a_job_waits_for_a_full_cluster_and_not_for_ever(full):
    context = SimpleNamespace(process_name=lambda _salt: "f@1 x")
    with pytest.raises(ResourceExhausted) as caught:
        asyncio.run(full.runner.run_workers(ExecutorEndpoint("h", 1, "job-1", "s"), context, 2))
    assert caught.value.reason == "CLUSTER_BUSY"
    assert full.cut_off.wait(10)


def test_a_job_goes_on_when_others_have_given_their_cores_back(full):
    context = SimpleNamespace(process_name=lambda _salt: "f@1 x")

    async def scenario() -> None:
        workers = asyncio.ensure_future(full.runner.run_workers(ExecutorEndpoint("h", 1, "job-1", "s"), context, 2))
        while not full.runner.busy_for("job-1"):  # noqa: ASYNC110 - it tells no one
            await asyncio.sleep(0.01)
        full.capacity = TAKEN
        full.there.set()
        await workers

    asyncio.run(asyncio.wait_for(scenario(), 10))
    assert not full.cut_off.is_set()
