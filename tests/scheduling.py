"""Which process of the whole suite, and of that of clusters and object stores, runs which file.

Two of them share the processors; a third one has the files that wait much, for services that restart, leases that
expire and programs of clients: in their pauses the others have the processors. After these it takes others, too: many
wait for something now and then.
"""

from __future__ import annotations

import collections
import functools

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

from tests import tiers

#: So many processes are needed for one to do nothing but wait.
WITH_A_WAITING_ONE = 3
#: Files that wait much, with services of their own.
WAITING = (
    "tests/conformance/clients/test_cases.py",
    "tests/conformance/clients/test_languages.py",
    "tests/faults/test_frozen_executor.py",
    "tests/faults/test_rolling_restarts.py",
    "tests/faults/test_stalls.py",
    "tests/integration/remote_functions/test_remote_functions.py",
)
#: Histories of a table in a store, of which nothing else runs.
HISTORIES = "tests/object_store/test_machine_on_a_store.py"


def order(nodeid: str) -> tuple[bool, float]:
    """Return the place of a test's file: those that wait come first, then those that take longest."""
    file = nodeid.partition("::")[0]
    return file not in WAITING, -_seconds_of_files().get(file, 0.0)


@functools.cache
def _seconds_of_files() -> dict[str, float]:
    seconds: dict[str, float] = collections.defaultdict(float)
    for function, (_, total) in tiers.durations().items():
        seconds[function.partition("::")[0]] += total
    return seconds


def group(nodeid: str) -> str:
    """Return what a test is run with in one process where `test --cluster` has two.

    There is one cluster for all that run on it; the histories need none, and mostly wait for a store that is far.
    """
    return "histories" if nodeid.startswith(HISTORIES) else "services"


class WaitingApart(LoadFileScheduling):
    """Gives files that wait to one process, before all others, and to no other one as long as there are others."""

    def __init__(self, config: pytest.Config, log: Producer) -> None:
        super().__init__(config, log)
        self._waiting: WorkerController | None = None

    def add_node(self, node: WorkerController) -> None:
        """Take a process in; the last one waits."""
        super().add_node(node)
        if len(self.nodes) == self.numnodes >= WITH_A_WAITING_ONE:
            self._waiting = node

    def remove_node(self, node: WorkerController) -> str | None:
        """Take a process out; what it had not done, others do.

        Of one that died amid a test, xdist gives others also the files that it was done with: nothing to do, and a
        process that has one test left waits for ever for what comes after it.
        """
        given = self.assigned_work[node]
        self.assigned_work[node] = {file: tests for file, tests in given.items() if not all(tests.values())}
        return super().remove_node(node)

    def _assign_work_unit(self, node: WorkerController) -> None:
        waits = node is self._waiting
        scope = next((file for file in self.workqueue if (file in WAITING) == waits), None)
        if scope is not None:
            self.workqueue.move_to_end(scope, last=False)
        super()._assign_work_unit(node)
