"""Decide how many workers a job gets, and which resources to request from Spark for each of them. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from leman._format.stored_functions import Resources, UdfDefinition
from leman_core.model.service_errors import FailedPrecondition

_GPU_AMOUNT = "spark.executor.resource.gpu.amount"
_GPU_SCRIPT = "spark.executor.resource.gpu.discoveryScript"


@dataclass(frozen=True, slots=True)
class Cluster:
    """The capacity of this machine, or of each Spark executor of a cluster. 0 means unknown."""

    #: Whether Spark runs on one machine, without a cluster.
    local: bool
    cores: int = 0
    memory_bytes: int = 0
    gpus: float = 0.0
    #: The maximum number of cores of all Spark executors together.
    most_cores: int = 0
    #: The number of cores of each registered Spark executor.
    registered: tuple[int, ...] = ()
    #: Whether Spark starts its executors on demand.
    dynamic: bool = False
    gpu_script: str = ""
    gpu_vendor: str = ""


@dataclass(frozen=True, slots=True)
class SlotProfile:
    """The resources of each worker in Spark. `executor_*` describe the Spark executors to start; 0 if none are."""

    cpus: int = 1
    gpus: float = 0.0
    executor_cores: int = 0
    executor_gpus: int = 0
    executor_memory_bytes: int = 0
    gpu_script: str = ""
    gpu_vendor: str = ""


@dataclass(frozen=True, slots=True)
class TaskSlots:
    """The task slots of a job: their number, their profile (None: no requirements), and a note for the job."""

    count: int
    profile: SlotProfile | None = None
    note: str = ""


def slots_for(udf: UdfDefinition, wanted: int, find: Callable[[], Cluster]) -> TaskSlots:
    """Return the task slots of a job that wants `wanted` workers.

    Args:
        find: Returns the capacity. Called only if the function has requirements.

    Raises:
        FailedPrecondition: RESOURCES_NOT_AVAILABLE, if the function needs more than the capacity.
    """
    if udf.resources == Resources():
        return TaskSlots(wanted)
    cluster = find()
    if cluster.local:
        return _on_one_machine(udf, wanted, cluster)
    return TaskSlots(wanted, *(_of_new_executors(udf, cluster) if cluster.dynamic else _in_executors(udf, cluster)))


def _on_one_machine(udf: UdfDefinition, wanted: int, cluster: Cluster) -> TaskSlots:
    asked = udf.resources
    if asked.num_gpus:
        raise _missing(
            udf,
            f"num_gpus={asked.num_gpus:g}",
            "Spark runs in local mode and hands out no GPUs",
            f"Give the executor a Spark cluster (LEMAN_SPARK__MASTER) whose executors have GPUs ({_GPU_AMOUNT}), or "
            "leave num_gpus out and choose the device in the function",
        )
    _check_cpus(udf, cluster)
    _check_memory(udf, cluster)
    bounds = [wanted]
    reasons = []
    if asked.num_cpus:
        bounds.append(cluster.cores // asked.num_cpus)
        reasons.append(f"num_cpus={asked.num_cpus} of {cluster.cores} cores")
    if asked.memory_bytes:
        bounds.append(cluster.memory_bytes // asked.memory_bytes)
        reasons.append(f"memory={_size(asked.memory_bytes)} of {_size(cluster.memory_bytes)}, which is not enforced")
    count = min(bounds)
    return TaskSlots(count, note=f"at most {count} workers at once, for {' and '.join(reasons)}")


def _in_executors(udf: UdfDefinition, cluster: Cluster) -> tuple[SlotProfile, str]:
    """Return the profile for Spark executors of a fixed size.

    To give each worker its resources, an executor runs fewer workers than it has cores.
    """
    asked = udf.resources
    _check_cpus(udf, cluster)
    _check_memory(udf, cluster)
    if asked.num_gpus > cluster.gpus:
        raise _missing(
            udf,
            f"num_gpus={asked.num_gpus:g}",
            f"a Spark executor has {cluster.gpus:g}",
            f"Set {_GPU_AMOUNT} in LEMAN_SPARK__CONF to what the workers have, or turn dynamic allocation on",
        )
    cpus, memory = max(asked.num_cpus, 1), ""
    if asked.memory_bytes and cluster.memory_bytes and cluster.cores:
        together = min(cluster.cores, cluster.memory_bytes // asked.memory_bytes)
        cpus = max(cpus, math.ceil(cluster.cores / together))
        memory = f", for memory={_size(asked.memory_bytes)} of {_size(cluster.memory_bytes)} in an executor"
    elif asked.memory_bytes:
        memory = f"; memory={_size(asked.memory_bytes)} has no effect: set spark.executor.cores and dynamic allocation"
    return SlotProfile(cpus, asked.num_gpus), f"each worker takes {_cores(cpus)}{_gpus(asked)} of an executor{memory}"


def _of_new_executors(udf: UdfDefinition, cluster: Cluster) -> tuple[SlotProfile, str]:
    """Return the profile if Spark starts executors on demand. Their size fits the workers."""
    asked = udf.resources
    cpus = max(asked.num_cpus, 1)
    _check_share(udf, cluster)
    if asked.num_gpus and not cluster.gpu_script:
        raise _missing(
            udf,
            f"num_gpus={asked.num_gpus:g}",
            "Spark does not know how its executors find their GPUs",
            f"Set {_GPU_SCRIPT} in LEMAN_SPARK__CONF",
        )
    cores = max(cluster.cores, cpus)
    together = cores // cpus
    gpus = math.ceil(asked.num_gpus)
    if gpus:
        together = min(together, int(gpus / asked.num_gpus))
    memory = asked.memory_bytes * together
    script = (cluster.gpu_script, cluster.gpu_vendor) if gpus else ("", "")
    profile = SlotProfile(cpus, asked.num_gpus, cores, gpus, memory, *script)
    share = f", {_size(asked.memory_bytes)}" if asked.memory_bytes else ""
    return profile, f"each worker takes {_cores(cpus)}{_gpus(asked)}{share} of executors that Spark starts for them"


def _check_cpus(udf: UdfDefinition, cluster: Cluster) -> None:
    asked = udf.resources.num_cpus
    if cluster.cores and asked > cluster.cores:
        where = "the machine" if cluster.local else "a Spark executor"
        raise _missing(
            udf,
            f"num_cpus={asked}",
            f"{where} has {_cores(cluster.cores)} for workers",
            "Ask for fewer, or raise LEMAN_EXECUTOR__SLOTS" if cluster.local else "Raise spark.executor.cores",
        )
    _check_share(udf, cluster)
    largest = max(cluster.registered, default=0)
    if cluster.most_cores and asked > largest and sum(cluster.registered) >= cluster.most_cores:
        raise _missing(
            udf,
            f"num_cpus={asked}",
            f"the largest executor has {_cores(largest)}, and spark.cores.max={cluster.most_cores} allows no more",
            f"Ask for fewer, or set spark.executor.cores={asked} in LEMAN_SPARK__CONF",
        )


def _check_share(udf: UdfDefinition, cluster: Cluster) -> None:
    """Check that one worker needs no more cores than the limit for all Spark executors together."""
    asked = udf.resources.num_cpus
    if cluster.most_cores and asked > cluster.most_cores:
        raise _missing(
            udf,
            f"num_cpus={asked}",
            f"Spark's executors have {_cores(cluster.most_cores)} together at most",
            "Ask for fewer, or raise spark.cores.max in LEMAN_SPARK__CONF",
        )


def _check_memory(udf: UdfDefinition, cluster: Cluster) -> None:
    asked = udf.resources.memory_bytes
    if cluster.memory_bytes and asked > cluster.memory_bytes:
        where = "the machine" if cluster.local else "a Spark executor"
        raise _missing(
            udf,
            f"memory={_size(asked)}",
            f"{where} has {_size(cluster.memory_bytes)}",
            "Ask for less, or use a smaller batch_size" if cluster.local else "Raise spark.executor.memoryOverhead",
        )


def _missing(udf: UdfDefinition, asked: str, there_is: str, advice: str) -> FailedPrecondition:
    return FailedPrecondition(
        "RESOURCES_NOT_AVAILABLE",
        f"Function {udf.name} asks for {asked}: {there_is}. {advice}",
        udf=udf.name,
        asked=asked,
    )


def _cores(number: int) -> str:
    return f"{number} core" + ("s" if number > 1 else "")


def _gpus(asked: Resources) -> str:
    return f" and {asked.num_gpus:g} GPU" if asked.num_gpus else ""


def _size(amount: int) -> str:
    return f"{amount / (1 << 30):.3g} GiB" if amount >= 1 << 30 else f"{amount / (1 << 20):.3g} MiB"
