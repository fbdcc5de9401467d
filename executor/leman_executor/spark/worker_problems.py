"""Make the errors that say why Spark's workers cannot run functions, and read the capacity of a standalone cluster.

From Spark's driver, an executor that cannot reach the driver looks the same as one that was never started. The master's
JSON page shows the capacity; its RPC endpoint returns the address of that page.
"""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark import SparkContext

from leman_core.model.service_errors import FailedPrecondition, LemanError, ResourceExhausted, Unavailable

_TIMEOUT_SECONDS = 3.0
_MESSAGES = "org.apache.spark.deploy.master.MasterMessages"
_LARGEST_ANSWER = 16 << 20


@dataclass(frozen=True, slots=True)
class WorkerSize:
    """The resources of a live Spark worker, and how much of them is free."""

    cores: int
    memory_bytes: int
    free_cores: int = 0
    free_memory_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """The capacity of a standalone cluster."""

    #: Number of live Spark workers.
    workers: int
    cores: int
    #: Number of cores in use.
    used: int
    #: Whether the application has no cores and waits to get some.
    waits: bool
    #: The size of each live worker.
    sizes: tuple[WorkerSize, ...] = ()

    def is_too_small_for(self, cores: int, memory_bytes: int) -> bool:
        """Return whether every live worker is too small for an executor, even when idle.

        Return False if there are no workers.
        """
        return bool(self.sizes) and not any(
            size.cores >= cores and size.memory_bytes >= memory_bytes for size in self.sizes
        )

    def has_room_for(self, cores: int, memory_bytes: int) -> bool:
        """Return whether one worker has this much free."""
        return any(size.free_cores >= cores and size.free_memory_bytes >= memory_bytes for size in self.sizes)


def read_capacity(context: SparkContext, master: str) -> Capacity | None:
    """Ask the master for the cluster's capacity; blocks for a few seconds at most.

    Returns None if this is not a standalone cluster, or if its master does not answer.
    """
    for host, port in standalone_masters(master):
        try:
            web = _web_port(context, host, port)
            capacity = capacity_of(_page(host, web), str(context.applicationId)) if web else None
        except Exception:  # noqa: BLE001 any error of Py4J, HTTP or JSON: unknown
            continue
        if capacity is not None:
            return capacity
    return None


def standalone_masters(url: str) -> Iterator[tuple[str, int]]:
    """Yield the host and port of each master in a URL `spark://host:port,host:port`. Yield nothing for other URLs."""
    if url.startswith("spark://"):
        for host, port in re.findall(r"(\[[^]]+\]|[^:,/\[\]]+):(\d+)", url.removeprefix("spark://")):
            yield host, int(port)


def capacity_of(said: Mapping[str, Any], application: str) -> Capacity | None:
    """Return the capacity from a master's page. Return None if the page does not list the application, as on a standby
    master.

    The page shows an application as running from its first executor on, even after the application has lost all
    executors. An application without any executor waits if no core is free.
    """
    ours = next((app for app in said.get("activeapps", ()) if app.get("id") == application), None)
    if ours is None:
        return None
    cores, used = int(said["cores"]), int(said["coresused"])
    waits = not int(ours["cores"]) and (ours["state"] == "WAITING" or used >= cores)
    sizes = tuple(
        WorkerSize(
            int(worker["cores"]),
            int(worker["memory"]) << 20,
            int(worker["coresfree"]),
            int(worker["memoryfree"]) << 20,
        )
        for worker in said.get("workers", ())
        if worker.get("state") == "ALIVE"
    )
    return Capacity(workers=int(said["aliveworkers"]), cores=cores, used=used, waits=waits, sizes=sizes)


def _web_port(context: SparkContext, host: str, port: int) -> int:
    """Return the port of the master's page; 0 if it has none."""
    jvm: Any = context._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()

    def scala_object(name: str) -> Any:
        return loader.loadClass(f"{name}$").getField("MODULE$").get(None)

    address = jvm.org.apache.spark.rpc.RpcAddress(host, port)
    endpoint = context._jsc.sc().schedulerBackend().rpcEnv().setupEndpointRef(address, "Master")
    answer = scala_object("scala.reflect.ClassTag").apply(loader.loadClass(f"{_MESSAGES}$BoundPortsResponse"))
    return int(endpoint.askSync(scala_object(f"{_MESSAGES}$BoundPortsRequest"), answer).webUIPort())


def _page(host: str, port: int) -> Mapping[str, Any]:
    """Fetch the master's page. Use no proxy, because the page is in the cluster's network."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://{host}:{port}/json/", timeout=_TIMEOUT_SECONDS) as answer:
        said = json.loads(answer.read(_LARGEST_ANSWER))
    assert isinstance(said, dict)
    return said


#: Reason of ResourceExhausted.
CLUSTER_BUSY = "CLUSTER_BUSY"
_ADVICE = (
    "Install Leman there under the same path, set LEMAN_SPARK__PYTHON to an interpreter there that has it, or ship "
    "this environment with `leman pack-env`"
)
_ASK_LESS = "Ask for less (num_cpus, num_gpus, memory), or have larger workers. Finished work is kept"
#: Spark's messages for an invalid master URL.
_BAD_MASTER = re.compile(r"Master URL|Master must ")
#: Spark's messages for a driver heap that is too small.
_SMALL_HEAP = re.compile(r"INVALID_DRIVER_MEMORY|Insufficient driver memory")
#: The number of files that Spark opens at once, with a margin.
_OPEN_FILES = 1024
_BAD_VALUE = re.compile(r"IllegalArgumentException|NumberFormatException")
_MISSING = re.compile(r'Cannot run program "([^"]+)"[^\n]*?: (?:error=\d+, )?([^\n]+)')
_NO_MODULE = re.compile(r"No module named '?([\w.]+)")
_VERSIONS = re.compile(r"PYTHON_VERSION_MISMATCH\][^\n]*|Python in worker has different version[^\n]*")


def unusable_python(message: str, host: str, python: str) -> LemanError | None:
    """If Spark's message on a failed task says that Python cannot run, return the error WORKER_PYTHON_UNUSABLE.

    Returns None if the task failed for another reason.
    """
    missing = _MISSING.search(message)
    if missing is not None:
        what = f"cannot run {missing[1]}: {missing[2].strip()}"
    elif "from python worker" in message and (module := _NO_MODULE.search(message)) is not None:
        what = f"runs {python}, which has no module {module[1]}"
    elif (versions := _VERSIONS.search(message)) is not None:
        what = f"runs {python}, which is another Python: {versions[0][:300]}"
    else:
        return None
    return FailedPrecondition(
        "WORKER_PYTHON_UNUSABLE", f"Spark's worker on {host} {what}. {_ADVICE}", host=host, python=python
    )


def unreachable(master: str, host: str, port: str, seconds: float, *, has_capacity: bool = False) -> Unavailable:
    """Return the error WORKERS_CANNOT_REACH_DRIVER for workers that did not call back in time.

    Args:
        has_capacity: Whether the cluster is known to have free cores.
    """
    see = "" if has_capacity else ", and check that the cluster has free cores"
    return Unavailable(
        "WORKERS_CANNOT_REACH_DRIVER",
        f"Spark's workers cannot reach the driver at {host}:{port}: none of {master} has called back within "
        f"{seconds:g} s. Set an address of this machine that they can reach (LEMAN_SPARK__DRIVER_HOST, "
        f"LEMAN_SPARK__CALLBACK_PORT){see}",
        retry_after_seconds=5.0,
        host=host,
        port=port,
    )


def busy(master: str, capacity: Capacity) -> ResourceExhausted:
    """Return the error CLUSTER_BUSY for a cluster without room for an executor."""
    if not capacity.workers:
        why = f"the Spark master {master} has no workers"
    elif capacity.used >= capacity.cores:
        why = f"all {capacity.cores} cores of {master} are in use by other applications"
    else:
        why = (
            f"no worker of {master} has enough free cores and memory for an executor (spark.executor.cores, "
            "spark.executor.memory)"
        )
    return ResourceExhausted(CLUSTER_BUSY, why, retry_after_seconds=30.0, master=master)


def too_small(master: str, cores: int, memory_bytes: int, capacity: Capacity) -> FailedPrecondition:
    """Return RESOURCES_NOT_AVAILABLE for a function that needs executors larger than every worker."""
    return FailedPrecondition(
        "RESOURCES_NOT_AVAILABLE",
        f"The function needs Spark executors of {_executor(cores, memory_bytes)}, and no worker of {master} has that: "
        f"the largest has {_largest(capacity)}. {_ASK_LESS}",
        master=master,
    )


def no_worker_for(master: str, cores: int, memory_bytes: int, capacity: Capacity) -> FailedPrecondition:
    """Return RESOURCES_NOT_AVAILABLE if the settings ask for executors larger than every worker."""
    return FailedPrecondition(
        "RESOURCES_NOT_AVAILABLE",
        f"Each Spark executor is to have {_executor(cores, memory_bytes)}, and no worker of {master} has that: the "
        f"largest has {_largest(capacity)}. Set spark.executor.cores and spark.executor.memory in LEMAN_SPARK__CONF to "
        "what workers have, or have larger workers. Finished work is kept",
        master=master,
    )


def _largest(capacity: Capacity) -> str:
    largest = max(capacity.sizes, key=lambda size: (size.cores, size.memory_bytes))
    return _executor(largest.cores, largest.memory_bytes)


def no_executor(master: str, cores: int, memory_bytes: int, seconds: float) -> FailedPrecondition:
    """Return RESOURCES_NOT_AVAILABLE if Spark has started no executor for a function in time."""
    return FailedPrecondition(
        "RESOURCES_NOT_AVAILABLE",
        f"The function needs Spark executors of {_executor(cores, memory_bytes)}, and {master} has started none "
        f"within {seconds:g} s (LEMAN_SPARK__RESOURCE_SECONDS). {_ASK_LESS}",
        master=master,
    )


def no_room(master: str, cpus: int, largest: int) -> FailedPrecondition:
    """Return RESOURCES_NOT_AVAILABLE if no executor has as many cores as a worker takes."""
    return FailedPrecondition(
        "RESOURCES_NOT_AVAILABLE",
        f"Each worker takes {_cores(cpus)} of one Spark executor, and the largest executor of {master} has "
        f"{_cores(largest)}. Ask for fewer (num_cpus, spark.task.cpus), or set spark.executor.cores in "
        "LEMAN_SPARK__CONF to more; the cluster then needs workers with as many free cores. Finished work is kept",
        master=master,
    )


def _cores(number: int) -> str:
    return f"{number} core{'s' * (number > 1)}"


def _executor(cores: int, memory_bytes: int) -> str:
    return f"{_cores(cores)} and {memory_bytes / (1 << 30):.3g} GiB"


def no_master(master: str) -> Unavailable:
    """Return SPARK_NOT_STARTED for a cluster whose masters did not respond."""
    return Unavailable(
        "SPARK_NOT_STARTED",
        f"Spark did not start: the master {master} has not answered within a minute. Check that it runs, has the same "
        "release of Spark, and can be reached from here, and that LEMAN_SPARK__MASTER is right",
        master=master,
    )


def not_started(master: str, cause: str, *, local: bool, has_jvm: bool = True, open_files: int = -1) -> Unavailable:
    """Return SPARK_NOT_STARTED for any other reason why Spark did not start.

    Args:
        cause: The message of the JVM or of Spark.
        local: Whether the master is this machine.
        has_jvm: Whether a JVM started. If so, Spark failed in it.
        open_files: The number of files that the executor may open; -1 for any number.
    """
    if 0 <= open_files < _OPEN_FILES:
        advice = (
            f"The executor may open {open_files:,} files at once (ulimit -n), and Spark needs {_OPEN_FILES:,}: raise "
            "that limit first"
        )
    elif _BAD_MASTER.search(cause):
        advice = "Check LEMAN_SPARK__MASTER"
    elif _SMALL_HEAP.search(cause):
        advice = "Check LEMAN_SPARK__DRIVER_MEMORY"
    elif not has_jvm:
        advice = "Check LEMAN_SPARK__DRIVER_MEMORY, LEMAN_SPARK__CONF, JAVA_HOME and SPARK_HOME"
    elif local or _BAD_VALUE.search(cause):
        advice = "Check LEMAN_SPARK__CONF"
    else:
        advice = f"Check LEMAN_SPARK__CONF, that the master {master} runs, and that LEMAN_SPARK__MASTER is right"
    return Unavailable("SPARK_NOT_STARTED", f"Spark did not start: {cause.rstrip('.')}. {advice}")
