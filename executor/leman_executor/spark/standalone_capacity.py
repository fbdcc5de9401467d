"""The capacity of a standalone Spark cluster, as its master tells: cores, and what this application has of them.

Spark's driver cannot tell executors that do not reach it from executors that it was never given. The master tells on
the page that it serves as JSON; its RPC endpoint says where that page is.
"""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark import SparkContext

_TIMEOUT_SECONDS = 3.0
_MESSAGES = "org.apache.spark.deploy.master.MasterMessages"
_LARGEST_ANSWER = 16 << 20


@dataclass(frozen=True, slots=True)
class WorkerSize:
    """What a live worker has, and what of it is free."""

    cores: int
    memory_bytes: int
    free_cores: int = 0
    free_memory_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """The capacity of a cluster."""

    #: Live workers.
    workers: int
    cores: int
    #: Cores in use.
    used: int
    #: The application has been given no core and waits for some.
    waits: bool
    #: Of each live worker.
    sizes: tuple[WorkerSize, ...] = ()

    def is_too_small_for(self, cores: int, memory_bytes: int) -> bool:
        """Tell whether no live worker has so much for an executor, in use or not; False where there is none at all."""
        return bool(self.sizes) and not any(
            size.cores >= cores and size.memory_bytes >= memory_bytes for size in self.sizes
        )

    def has_room_for(self, cores: int, memory_bytes: int) -> bool:
        """Tell whether a worker has so much free."""
        return any(size.free_cores >= cores and size.free_memory_bytes >= memory_bytes for size in self.sizes)


def look(context: SparkContext, master: str) -> Capacity | None:
    """Ask the master for the cluster's capacity; blocks for seconds at the most.

    None where this is no standalone cluster, or its master does not tell.
    """
    for host, port in masters(master):
        try:
            web = _web_port(context, host, port)
            capacity = capacity_of(_page(host, web), str(context.applicationId)) if web else None
        except Exception:  # noqa: BLE001 of Py4J, HTTP or JSON: what cannot be had is not known
            continue
        if capacity is not None:
            return capacity
    return None


def masters(url: str) -> Iterator[tuple[str, int]]:
    """Yield hosts and ports of `spark://host:port,host:port`; of any other url none."""
    if url.startswith("spark://"):
        for host, port in re.findall(r"(\[[^]]+\]|[^:,/\[\]]+):(\d+)", url.removeprefix("spark://")):
            yield host, int(port)


def capacity_of(said: Mapping[str, Any], application: str) -> Capacity | None:
    """Return the capacity that a master's page tells; None where it does not know the application, as a standby master.

    An application counts as running from its first executor on, and stays so when it has lost them all: without any it
    waits where no core is free for another one.
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
    """Return the port of the master's page; 0 where it has none."""
    jvm: Any = context._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()

    def scala_object(name: str) -> Any:
        return loader.loadClass(f"{name}$").getField("MODULE$").get(None)

    address = jvm.org.apache.spark.rpc.RpcAddress(host, port)
    endpoint = context._jsc.sc().schedulerBackend().rpcEnv().setupEndpointRef(address, "Master")
    answer = scala_object("scala.reflect.ClassTag").apply(loader.loadClass(f"{_MESSAGES}$BoundPortsResponse"))
    return int(endpoint.askSync(scala_object(f"{_MESSAGES}$BoundPortsRequest"), answer).webUIPort())


def _page(host: str, port: int) -> Mapping[str, Any]:
    """Fetch the master's page, without a proxy: it is in the cluster's network."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://{host}:{port}/json/", timeout=_TIMEOUT_SECONDS) as answer:
        said = json.loads(answer.read(_LARGEST_ANSWER))
    assert isinstance(said, dict)
    return said
