"""A job does not wait for ever where no executor can be had in which its workers have room."""

from __future__ import annotations

import pytest

from leman_core.model.service_errors import FailedPrecondition, LemanError
from leman_core.settings import Spark
from leman_executor.scheduling.task_slots import SlotProfile
from leman_executor.spark import spark_conf
from leman_executor.spark.cluster_readiness import ClusterReadiness, ExecutorWait, RoomWait
from leman_executor.spark.worker_problems import Capacity, WorkerSize, capacity_of

MASTER = "spark://one:7077"
GIB = 1 << 30
IDLE, TAKEN = WorkerSize(4, 8 * GIB, 4, 8 * GIB), WorkerSize(4, 8 * GIB, 0, 8 * GIB)


def cluster(*sizes: WorkerSize) -> Capacity:
    used = sum(size.cores - size.free_cores for size in sizes)
    return Capacity(workers=len(sizes), cores=4 * len(sizes), used=used, waits=False, sizes=sizes)


class Waiting:
    """A wait on a clock of its own, of a cluster that is as `capacity` says."""

    def __init__(self, capacity: Capacity | None, profile: SlotProfile, heap: str = "1g") -> None:
        self.now, self.capacity, self.has_begun, self.asked = 0.0, capacity, False, 0
        settings = Spark(master=MASTER, start_seconds=60, busy_seconds=600, resource_seconds=900)
        memory_bytes = spark_conf.heap_bytes({"spark.executor.memory": heap})
        self.wait = ExecutorWait(
            settings, profile, memory_bytes, begun=lambda: self.has_begun, look=self.look, clock=lambda: self.now
        )

    def look(self) -> Capacity | None:
        self.asked += 1
        return self.capacity

    def after(self, seconds: float) -> LemanError | None:
        self.now += seconds
        return self.wait.check()


@pytest.mark.parametrize(
    ("profile", "heap", "words"),
    [
        (SlotProfile(executor_cores=8), "1g", "8 cores and 1 GiB"),
        (SlotProfile(executor_cores=1, executor_memory_bytes=8 * GIB), "9g", "1 core and 9 GiB"),
    ],
)
def test_what_no_worker_has_is_waited_for_as_long_as_a_larger_one_may_need_to_come(profile, heap, words):
    waiting = Waiting(cluster(IDLE, TAKEN), profile, heap)
    assert waiting.after(60) is None
    assert words in waiting.wait.why
    error = waiting.after(2)
    assert isinstance(error, FailedPrecondition)
    assert error.reason == "RESOURCES_NOT_AVAILABLE"
    for said in (words, MASTER, "the largest has 4 cores and 8 GiB", "Ask for less"):
        assert said in error.message


def test_memory_that_a_standalone_master_does_not_count_is_no_reason_to_wait():
    waiting = Waiting(cluster(IDLE), SlotProfile(executor_cores=1, executor_memory_bytes=64 * GIB))
    assert waiting.after(100) is None
    assert waiting.wait.why == ""


def test_a_larger_worker_that_comes_meanwhile_ends_the_wait():
    waiting = Waiting(cluster(IDLE), SlotProfile(executor_cores=8))
    assert waiting.after(30) is None
    waiting.capacity = cluster(IDLE, WorkerSize(8, 8 * GIB, 8, 8 * GIB))
    assert waiting.after(100) is None
    assert waiting.wait.why == ""
    waiting.has_begun = True
    assert waiting.after(10_000) is None
    asked = waiting.asked
    assert waiting.after(10_000) is None
    assert waiting.asked == asked, "no one is asked any more"


def test_workers_that_others_have_are_waited_for_like_a_full_cluster():
    waiting = Waiting(cluster(TAKEN), SlotProfile(executor_cores=4))
    assert waiting.after(600) is None
    assert "in use by other applications" in waiting.wait.why
    assert waiting.after(2).reason == "CLUSTER_BUSY"


def test_a_cluster_without_workers_is_no_cluster_of_small_ones():
    waiting = Waiting(cluster(), SlotProfile(executor_cores=4))
    assert waiting.after(100) is None
    assert "has no workers" in waiting.wait.why


def test_elsewhere_spark_has_the_time_that_is_set():
    waiting = Waiting(None, SlotProfile(executor_cores=4))
    assert waiting.after(900) is None
    assert waiting.wait.why == ""
    error = waiting.after(2)
    assert error.reason == "RESOURCES_NOT_AVAILABLE"
    assert "within 900 s (LEMAN_SPARK__RESOURCE_SECONDS)" in error.message


def test_the_cluster_is_asked_every_other_second():
    waiting = Waiting(cluster(IDLE), SlotProfile(executor_cores=8))
    for _ in range(8):
        waiting.after(0.5)
    assert waiting.asked == 2


class RoomWaiting:
    """A wait for room on a clock of its own, where executors of `cores` have registered."""

    def __init__(self, cpus: int, *cores: int) -> None:
        self.now, self.cores = 0.0, cores
        settings = Spark(master=MASTER, start_seconds=60)
        self.wait = RoomWait(settings, cpus, registered=lambda: self.cores, clock=lambda: self.now)

    def after(self, seconds: float) -> LemanError | None:
        self.now += seconds
        return self.wait.check()


def test_executors_that_are_all_too_small_are_given_the_time_in_which_a_larger_one_may_come():
    waiting = RoomWaiting(64, 2, 1)
    assert waiting.after(60) is None
    words = f"takes 64 cores of one Spark executor, and the largest executor of {MASTER} has 2 cores"
    assert words in waiting.wait.why
    error = waiting.after(2)
    assert isinstance(error, FailedPrecondition)
    assert error.reason == "RESOURCES_NOT_AVAILABLE"
    for said in (words, "num_cpus", "spark.executor.cores in LEMAN_SPARK__CONF"):
        assert said in error.message


def test_an_executor_with_room_ends_the_wait_and_its_loss_begins_another():
    waiting = RoomWaiting(3, 2)
    assert waiting.after(59) is None
    waiting.cores = (2, 4)
    assert waiting.after(1_000) is None
    assert waiting.wait.why == ""
    waiting.cores = (2,)
    assert waiting.after(59) is None
    assert waiting.after(2).reason == "RESOURCES_NOT_AVAILABLE"


def test_a_cluster_without_executors_is_for_others_to_judge():
    waiting = RoomWaiting(3)
    assert waiting.after(1_000) is None
    assert waiting.wait.why == ""


@pytest.mark.parametrize(
    ("conf", "profile", "kind"),
    [
        ({}, None, None),
        ({}, SlotProfile(1, 0.5), None),
        ({}, SlotProfile(2), RoomWait),
        ({"spark.task.cpus": "2"}, None, RoomWait),
        ({"spark.task.cpus": "2", "spark.dynamicAllocation.enabled": "true"}, None, None),
        ({"spark.dynamicAllocation.enabled": "true"}, SlotProfile(2, executor_cores=2), ExecutorWait),
    ],
    ids=str,
)
def test_what_a_job_waits_for(conf, profile, kind):
    wait = ClusterReadiness(Spark(master=MASTER, conf=conf), "python", "host").executor_wait("tag", profile)
    assert type(wait) is (kind or type(None))


def test_a_master_tells_the_sizes_of_its_live_workers():
    def worker(state: str, cores: int) -> dict[str, object]:
        return {"state": state, "cores": cores, "coresfree": 1, "memory": 2048, "memoryfree": 1024}

    said = {
        "aliveworkers": 1,
        "cores": 2,
        "coresused": 1,
        "activeapps": [{"id": "a", "cores": 1, "state": "RUNNING"}],
        "workers": [worker("ALIVE", 2), worker("DEAD", 64)],
    }
    assert capacity_of(said, "a").sizes == (WorkerSize(2, 2 * GIB, 1, GIB),)
