"""Read Spark's settings, and choose the address at which workers call this process back. Imports no pyspark.

The driver, its block manager and the dispatcher all listen at this address.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import structlog

from leman_core.settings import Spark
from leman_core.settings.sections import mebibytes
from leman_executor.scheduling.task_slots import Cluster

JVM_OPTIONS_KEY = "spark.driver.extraJavaOptions"
#: A small heap that grows if needed and returns free memory after a full collection. By default a JVM fills a young
#: generation of a quarter of the heap and keeps it. Spark's 55 MB of classes are loaded without a collection. In Java
#: 17.0.9 and later, memory that the JVM has freed but glibc keeps is returned too.
JVM_OPTIONS = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xms32m",
    "-Xmn24m",
    "-XX:MinHeapFreeRatio=10",
    "-XX:MaxHeapFreeRatio=20",
    "-XX:MetaspaceSize=96m",
    "-XX:+IgnoreUnrecognizedVMOptions",
    "-XX:TrimNativeHeapInterval=30000",
)

#: Maximum number of times that one worker may fail. When Spark gives up on a worker, it ends all other workers too. A
#: few rows that crash their worker must not cause that.
_TASK_FAILURES = 64


def master(settings: Spark) -> str:
    """Return the configured master. By default it is this machine, with many more slots than cores.

    The executor, not Spark, limits how many units of a job run at once. The local master allows failures, because
    otherwise the first dead worker would end the job.
    """
    return settings.master or f"local[{max(32, 4 * (os.cpu_count() or 1))},{_TASK_FAILURES}]"


def context(settings: Spark, shared: Sequence[str], python: str) -> dict[str, str]:
    """Return the settings of a small context that has no UI and starts workers quickly."""
    return {
        "spark.ui.enabled": "false",
        "spark.driver.memory": settings.driver_memory,
        JVM_OPTIONS_KEY: " ".join([*JVM_OPTIONS, *shared]),
        "spark.pyspark.python": python,
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.daemon.module": "leman_executor.spark.daemon",
        "spark.python.worker.reuse": "true",
        "spark.python.task.killTimeout": "500ms",
        "spark.scheduler.mode": "FAIR",
        "spark.task.maxFailures": str(_TASK_FAILURES),
        "spark.log.level": "ERROR",
        "spark.ui.showConsoleProgress": "false",
    }


def heap_bytes(conf: Mapping[str, str]) -> int:
    """Return the heap size of a Spark executor in bytes."""
    return mebibytes(conf.get("spark.executor.memory", "1g")) << 20


def executor_size(conf: Mapping[str, str]) -> tuple[int, int]:
    """Return the cores and the minimum heap bytes of each Spark executor in a standalone cluster."""
    return int(conf.get("spark.executor.cores", "1")), heap_bytes(conf)


def task_cores(conf: Mapping[str, str]) -> int:
    """Return how many cores a worker takes by default."""
    return int(conf.get("spark.task.cpus", "1"))


def is_dynamic(conf: Mapping[str, str]) -> bool:
    """Return whether Spark starts its executors on demand."""
    return conf.get("spark.dynamicAllocation.enabled", "false").lower() == "true"


def executors(conf: Mapping[str, str], master: str) -> Cluster:
    """Return the resources of a cluster's Spark executors, as far as the settings say."""
    local_cluster = re.match(r"local-cluster\[\d+\s*,\s*(\d+)\s*,\s*(\d+)", master)
    # In a standalone cluster, an executor without a setting takes all free cores of its Spark worker.
    unsaid = local_cluster[1] if local_cluster else "1" if master.startswith(("yarn", "k8s://")) else "0"
    cores = conf.get("spark.executor.cores", unsaid)
    most_cores = conf.get("spark.cores.max", "0") if local_cluster or master.startswith("spark://") else "0"
    # Python workers use the memory outside the JVM's heap.
    heap = heap_bytes(conf) >> 20
    outside = conf.get("spark.executor.pyspark.memory") or conf.get("spark.executor.memoryOverhead")
    return Cluster(
        local=False,
        cores=int(cores),
        most_cores=int(most_cores),
        memory_bytes=(mebibytes(outside) if outside else max(384, heap // 10)) << 20,
        gpus=float(conf.get("spark.executor.resource.gpu.amount", 0)),
        dynamic=is_dynamic(conf),
        gpu_script=conf.get("spark.executor.resource.gpu.discoveryScript", ""),
        gpu_vendor=conf.get("spark.executor.resource.gpu.vendor", ""),
    )


_log = structlog.get_logger(__name__)

LOOPBACK = "127.0.0.1"
_EVERYWHERE = "0.0.0.0"  # in case workers use another address for this machine, as with a container


@dataclass(frozen=True, slots=True)
class CallbackAddress:
    """The address and the ports at which workers call this process back. Port 0 means any free port."""

    #: The address that workers connect to.
    host: str
    #: The local address to listen on.
    bind: str
    driver_port: int = 0
    block_port: int = 0
    dispatcher_port: int = 0

    def spark_settings(self) -> dict[str, str]:
        """The Spark settings for the address."""
        ports = {"spark.driver.port": self.driver_port, "spark.driver.blockManager.port": self.block_port}
        return {
            "spark.driver.host": self.host,
            "spark.driver.bindAddress": self.bind,
            **{key: str(port) for key, port in ports.items() if port},
        }


def is_local(settings: Spark) -> bool:
    """Return whether Spark runs workers on this machine only, without a cluster."""
    return not settings.master or settings.master.startswith("local")


def has_cluster(settings: Spark) -> bool:
    """Return whether workers are processes of a Spark cluster, including one on this machine (`local-cluster`)."""
    return bool(settings.master) and re.match(r"local($|\[)", settings.master) is None


def warn_of_open_spark(settings: Spark) -> None:
    """Log a warning if Spark's own connections are not protected by the settings."""
    wanted = ("spark.authenticate", "spark.network.crypto.enabled")
    missing = [name for name in wanted if settings.conf.get(name, "").lower() != "true"]
    if missing and settings.conf.get("spark.ssl.rpc.enabled", "").lower() != "true":
        _log.warning(
            "Anyone who can reach Spark's ports can use them: set both options in LEMAN_SPARK__CONF, or keep the "
            "network between executor and workers to yourself",
            reason="SPARK_NOT_AUTHENTICATED",
            missing=missing,
        )


def callback_address(settings: Spark) -> CallbackAddress:
    """Return the address at which workers call back.

    If Spark runs on this machine, this is loopback. Otherwise it is the host in the settings or in SPARK_LOCAL_IP, or
    else the local address of this machine's connection to the master.
    """
    if is_local(settings):
        return CallbackAddress(LOOPBACK, LOOPBACK)
    host = settings.conf.get("spark.driver.host", "") or settings.driver_host or os.environ.get("SPARK_LOCAL_IP", "")
    host = host or _towards(settings.master)
    bind = settings.conf.get("spark.driver.bindAddress", "") or (host if _is_ours(host) else _EVERYWHERE)
    first = settings.callback_port
    return CallbackAddress(host, bind, *((first, first + 1, first + 2) if first else (0, 0, 0)))


def _towards(master: str) -> str:
    """Return the local address of the interface through which the master is reached.

    If the master's URL has no address, return this host's name.
    """
    found = re.match(r"spark://([^:,/]+|\[[^]]+\]):(\d+)", master)
    if found:
        with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((found[1], int(found[2])))  # sends nothing
            return str(probe.getsockname()[0])
    return socket.getfqdn()


def _is_ours(host: str) -> bool:
    try:
        with socket.socket() as probe:
            probe.bind((host, 0))
    except OSError:
        return False
    return True
