"""Two of each service on the cluster, behind one address for each kind, and all that can happen to them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from tests.cluster.cluster import MASTER, PEERS, SECOND, STORE, Cluster

#: Longer than a job's lease: another executor has its jobs before it is back.
EXECUTOR_CUT_SECONDS = 15.0
#: Shorter than the minute for which callers wait.
CUT_SECONDS = 8.0


@dataclass(frozen=True)
class Fault:
    """Something goes, and is back."""

    kind: str
    what: str
    strike: Callable[[], None]
    heal: Callable[[], None]

    def __str__(self) -> str:
        return f"{self.kind}: {self.what}"


class Pairs:
    """The services of a cluster, twice. Each executor has a Spark application of its own, on both hosts."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._settings = {
            "LEMAN_COMMIT__ALONE": "false",
            **cluster.unpacked(**{"spark.cores.max": "2"}),
        }

    def start(self) -> None:
        """Start them, in place of those that run."""
        names = (*PEERS, *SECOND)
        for name in names:
            self._cluster.hosts[name].kill()
            self._start(name)
        self._cluster.wait_serving(*names)

    def alone(self) -> None:
        """Leave one of each, as it was before. They are not waited for."""
        for name in (*PEERS, *SECOND):
            self._cluster.hosts[name].kill()
        for name in PEERS:
            self._cluster.start_service(name)

    def _start(self, name: str) -> None:
        self._cluster.start_service(name, **self._settings)

    def faults(self) -> Iterator[Fault]:
        """Yield them again and again. Who was asked to end is killed the next time, and the other way round."""
        softly = True
        while True:
            yield self._killed("executor") if softly else self._ended("executor")
            yield self._cut("one", CUT_SECONDS)
            yield self._ended("commit-coordinator") if softly else self._killed("commit-coordinator")
            yield self._cut(STORE, CUT_SECONDS)
            yield self._ended("planner") if softly else self._killed("planner")
            yield self._spark_gone("two", partial(self._cluster.start_worker, "two"))
            yield self._ended("executor-2") if softly else self._killed("executor-2")
            yield self._cut("redis", CUT_SECONDS)
            yield self._killed("planner-2") if softly else self._ended("planner-2")
            yield self._cut("executor", EXECUTOR_CUT_SECONDS)
            yield self._killed("commit-coordinator-2") if softly else self._ended("commit-coordinator-2")
            yield self._spark_gone(MASTER, self._cluster.start_master)
            yield self._cut("commit-coordinator", CUT_SECONDS)
            softly = not softly

    def _ended(self, name: str) -> Fault:
        return Fault("SIGTERM", name, self._cluster.hosts[name].stop, partial(self._back, name))

    def _killed(self, name: str) -> Fault:
        return Fault("SIGKILL", name, self._cluster.hosts[name].kill, partial(self._back, name))

    def _back(self, name: str) -> None:
        self._start(name)
        self._cluster.wait_serving(name)

    def _spark_gone(self, name: str, start: Callable[[], None]) -> Fault:
        return Fault("SIGKILL", name, self._cluster.hosts[name].kill, start)

    def _cut(self, name: str, seconds: float) -> Fault:
        host = self._cluster.hosts[name]

        def cut() -> None:
            host.cut()
            threading.Event().wait(seconds)  # so long is the link cut

        return Fault("link cut", name, cut, host.mend)
