"""What a function asks for becomes fewer workers on one machine, a resource profile on a cluster, or a refusal."""

from __future__ import annotations

from dataclasses import replace

import psutil
import pyarrow as pa
import pytest

from leman._format.stored_functions import Resources, UdfDefinition, UdfKind
from leman_core.model.service_errors import FailedPrecondition
from leman_core.settings import Spark
from leman_executor.scheduling.task_slots import Cluster, SlotProfile, TaskSlots, slots_for
from leman_executor.spark.spark_runner import SparkRunner, resource_profile

GIB = 1 << 30
MACHINE = Cluster(local=True, cores=4, memory_bytes=16 * GIB)
EXECUTORS = Cluster(local=False, cores=8, memory_bytes=32 * GIB, gpus=2)
DYNAMIC = replace(EXECUTORS, dynamic=True, gpus=0, gpu_script="/opt/gpus.sh", gpu_vendor="nvidia.com")


def workers(cluster: Cluster, wanted: int = 4, **asked: float) -> TaskSlots:
    udf = UdfDefinition("f", "1", UdfKind.SCALAR, ("x",), pa.int64(), resources=Resources(**asked))
    return slots_for(udf, wanted, lambda: cluster)


def refusal(cluster: Cluster, **asked: float) -> str:
    with pytest.raises(FailedPrecondition, match="Function f asks for ") as caught:
        workers(cluster, **asked)
    assert caught.value.reason == "RESOURCES_NOT_AVAILABLE"
    return caught.value.message


def test_nothing_asked_is_nothing_looked_for():
    udf = UdfDefinition("f", "1", UdfKind.SCALAR, ("x",), pa.int64())
    assert slots_for(udf, 5, lambda: pytest.fail("no one asked")) == TaskSlots(5)


@pytest.mark.parametrize(
    ("asked", "wanted", "count"),
    [
        ({"num_cpus": 1}, 4, 4),
        ({"num_cpus": 2}, 4, 2),
        ({"num_cpus": 2}, 32, 2),
        ({"num_cpus": 3}, 4, 1),
        ({"num_cpus": 1}, 2, 2),
        ({"memory_bytes": 6 * GIB}, 4, 2),
        ({"num_cpus": 2, "memory_bytes": 9 * GIB}, 4, 1),
    ],
    ids=str,
)
def test_fewer_workers_on_one_machine(asked, wanted, count):
    found = workers(MACHINE, wanted, **asked)
    assert (found.count, found.profile) == (count, None)
    assert f"at most {count} workers at once" in found.note


def test_the_note_tells_what_is_not_enforced():
    note = workers(MACHINE, num_cpus=2, memory_bytes=6 * GIB).note
    assert (
        note == "at most 2 workers at once, for num_cpus=2 of 4 cores and memory=6 GiB of 16 GiB, which is not enforced"
    )


def test_refusals_on_one_machine():
    assert "LEMAN_SPARK__MASTER" in refusal(MACHINE, num_gpus=1)
    assert "num_gpus=0.5" in refusal(MACHINE, num_gpus=0.5)
    assert "num_cpus=5: the machine has 4 cores" in refusal(MACHINE, num_cpus=5)
    assert "memory=17 GiB: the machine has 16 GiB" in refusal(MACHINE, memory_bytes=17 * GIB)


@pytest.mark.parametrize(
    ("asked", "profile"),
    [
        ({"num_cpus": 2}, SlotProfile(2)),
        ({"num_gpus": 0.5}, SlotProfile(1, 0.5)),
        ({"num_cpus": 4, "num_gpus": 1}, SlotProfile(4, 1)),
        ({"memory_bytes": 16 * GIB}, SlotProfile(4)),
        ({"memory_bytes": 11 * GIB}, SlotProfile(4)),
        ({"memory_bytes": 32 * GIB, "num_cpus": 2}, SlotProfile(8)),
        ({"memory_bytes": GIB}, SlotProfile(1)),
    ],
    ids=str,
)
def test_workers_share_executors_that_run(asked, profile):
    found = workers(EXECUTORS, **asked)
    assert (found.count, found.profile) == (4, profile)
    assert "each worker takes" in found.note


def test_refusals_of_executors_that_run():
    assert "spark.executor.resource.gpu.amount" in refusal(EXECUTORS, num_gpus=3)
    assert "spark.executor.cores" in refusal(EXECUTORS, num_cpus=9)
    assert "spark.executor.memoryOverhead" in refusal(EXECUTORS, memory_bytes=33 * GIB)


def test_more_than_spark_gives_to_all_executors_is_refused_before_there_are_any():
    for cluster in (Cluster(local=False, most_cores=2), replace(DYNAMIC, most_cores=2)):
        said = refusal(cluster, num_cpus=3)
        assert "num_cpus=3: Spark's executors have 2 cores together at most. Ask for fewer, or raise" in said
        assert "spark.cores.max" in said
        assert workers(cluster, num_cpus=2).count == 4


def test_more_than_the_largest_executor_has_is_refused_once_there_can_be_no_other():
    """How large executors are, settings need not say; one that is not there yet may be as large."""
    cluster = Cluster(local=False, most_cores=4, registered=(1, 2))
    assert workers(cluster, num_cpus=3).profile == SlotProfile(3)
    assert workers(replace(cluster, most_cores=0, registered=(1, 2)), num_cpus=3).profile == SlotProfile(3)
    full = replace(cluster, registered=(2, 1, 1))
    said = refusal(full, num_cpus=3)
    assert "the largest executor has 2 cores, and spark.cores.max=4 allows no more" in said
    assert "set spark.executor.cores=3 in LEMAN_SPARK__CONF" in said
    assert workers(full, num_cpus=2).profile == SlotProfile(2)


def test_memory_that_bounds_nothing_is_said_to():
    found = workers(replace(EXECUTORS, cores=0), memory_bytes=8 * GIB)
    assert found.profile == SlotProfile(1)
    assert "has no effect" in found.note


@pytest.mark.parametrize(
    ("asked", "profile"),
    [
        ({"num_cpus": 2}, SlotProfile(2, executor_cores=8)),
        ({"num_cpus": 16}, SlotProfile(16, executor_cores=16)),
        ({"num_cpus": 4, "memory_bytes": GIB}, SlotProfile(4, executor_cores=8, executor_memory_bytes=2 * GIB)),
        ({"num_gpus": 1}, SlotProfile(1, 1, 8, 1, 0, "/opt/gpus.sh", "nvidia.com")),
        ({"num_gpus": 0.25, "memory_bytes": GIB}, SlotProfile(1, 0.25, 8, 1, 4 * GIB, "/opt/gpus.sh", "nvidia.com")),
    ],
    ids=str,
)
def test_executors_are_started_for_workers(asked, profile):
    assert workers(DYNAMIC, **asked).profile == profile


def test_gpus_need_a_way_to_find_them():
    assert "discoveryScript" in refusal(replace(DYNAMIC, gpu_script=""), num_gpus=1)


def test_profile_of_tasks_alone():
    made = resource_profile(SlotProfile(2, 0.5))
    assert not made.executorResources, "Spark takes executors that run"
    assert {name: r.amount for name, r in made.taskResources.items()} == {"cpus": 2.0, "gpu": 0.5}


def test_profile_of_executors_too():
    made = resource_profile(SlotProfile(2, 1, 8, 4, 3 * GIB + 1, "/opt/gpus.sh", "nvidia.com"))
    assert {name: r.amount for name, r in made.taskResources.items()} == {"cpus": 2.0, "gpu": 1.0}
    executors = made.executorResources
    assert {name: r.amount for name, r in executors.items()} == {"cores": 8, "memoryOverhead": 3073, "gpu": 4}
    assert (executors["gpu"].discoveryScript, executors["gpu"].vendor) == ("/opt/gpus.sh", "nvidia.com")


@pytest.mark.parametrize(
    ("master", "cores"), [("", 4), ("local", 4), ("local[2]", 2), ("local[32,4]", 4), ("local[*]", 4)]
)
def test_one_machine(master, cores):
    found = SparkRunner(Spark(master=master)).cluster(4)
    assert found == Cluster(local=True, cores=cores, memory_bytes=psutil.virtual_memory().total)


def test_a_cluster_as_its_settings_say():
    conf = {
        "spark.executor.cores": "8",
        "spark.executor.memoryOverhead": "32g",
        "spark.dynamicAllocation.enabled": "true",
        "spark.executor.resource.gpu.amount": "2",
        "spark.executor.resource.gpu.discoveryScript": "/opt/gpus.sh",
        "spark.executor.resource.gpu.vendor": "nvidia.com",
    }
    found = SparkRunner(Spark(master="spark://host:7077", conf=conf)).cluster(4)
    assert found == replace(DYNAMIC, gpus=2)
    plain = SparkRunner(Spark(master="local-cluster[1,2,1024]")).cluster(4)
    assert plain == Cluster(local=False, cores=2, memory_bytes=384 << 20)
    other = SparkRunner(Spark(master="yarn", conf={"spark.executor.memory": "20480m"})).cluster(4)
    assert other == Cluster(local=False, cores=1, memory_bytes=2 * GIB), "what Spark gives an executor there"
    alone = SparkRunner(Spark(master="spark://host:7077", conf={"spark.cores.max": "6"})).cluster(4)
    assert alone == Cluster(local=False, memory_bytes=384 << 20, most_cores=6), "what the worker has free"
    python = SparkRunner(Spark(master="yarn", conf={"spark.executor.pyspark.memory": "512"})).cluster(4)
    assert python.memory_bytes == GIB // 2
